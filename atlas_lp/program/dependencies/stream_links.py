"""Links by the order of streams, as in the paper: gaps are what was measured between operations of one GPU."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from atlas_lp.goal.schedule import Ints
from atlas_lp.program.dependencies.links import START, Links, scaled
from atlas_lp.traces.signing.timeline import Timeline
from atlas_lp.traces.trace import Gap


def stream_links(timeline: Timeline, compute: Fraction = Fraction(1)) -> Links:
    """Links by the order of streams, merged where operations do not overlap.  Cost O(operations x streams).

    *compute* is a factor on all that lies between operations.
    """
    before, after, costs_ns, overlaps = gap_edges(timeline)
    operations = len(timeline.gpu)
    targets = np.where(after < 0, operations, after)
    gpus = np.where(after < 0, -1 - after, timeline.gpu[after])
    words = "operations that start before the one before them on their stream ends"
    gaps = (*timeline.gaps, *(Gap("overlap", count, words) for count in overlaps))
    return Links("streams", before, targets, scaled(costs_ns, compute), gpus, operations, 1, gaps)


def gap_edges(timeline: Timeline) -> tuple[Ints, Ints, Ints, list[int]]:
    """Measured gaps as (earlier operation or :data:`START`, later operation, ns).

    A later operation of ``-1 - gpu`` is the end of the recorded activity of that GPU.  The gap before an operation
    is the time since the last operation of its GPU ended, so it never contains time inside a collective.  The last
    value counts, for every GPU that has some, operations that start before the one before them on their stream ends.
    """
    edges: list[tuple[Ints, Ints, Ints]] = []
    overlaps = []
    for gpu in np.unique(timeline.gpu):
        mine = np.flatnonzero(timeline.gpu == gpu)
        mine = mine[np.lexsort((mine, timeline.end_ns[mine], timeline.start_ns[mine]))]
        later = np.append(mine, -1 - gpu)
        start = np.append(timeline.start_ns[mine], timeline.last_ns[gpu])
        ended, overlapping = _last_ended(timeline, mine, start)
        overlaps += [overlapping] if overlapping else []
        end = np.where(ended >= 0, timeline.end_ns[ended], np.iinfo(np.int64).min)
        begin = np.where(ended >= 0, timeline.start_ns[ended], np.iinfo(np.int64).min)
        # Another operation ran between this one and the later one: the order is kept through it.
        follows = (ended >= 0) & ((end > begin.max(axis=0)) | (begin == begin.max(axis=0)))
        gap = np.maximum(start - end.max(axis=0), 0)
        free = np.flatnonzero(~follows.any(axis=0))
        stream, place = np.nonzero(follows)
        edges.append((ended[stream, place], later[place], gap[place]))
        edges.append((np.full(len(free), START), later[free], start[free] - timeline.origin_ns))
    before, after, cost = (np.concatenate(column) for column in zip(*edges, strict=True))
    return before, after, cost, overlaps


def _last_ended(timeline: Timeline, mine: Ints, start: Ints) -> tuple[Ints, int]:
    """Last operation ended at each *start*, per stream of one GPU (streams x starts), -1 for none; and overlaps.

    On its own stream an operation always follows the one before it, even if the two overlap by a little.
    """
    streams, own_stream = np.unique(timeline.stream[mine], return_inverse=True)
    result = np.full((len(streams), len(start)), -1, dtype=np.int64)
    overlapping = 0
    for number in range(len(streams)):
        here = np.flatnonzero(own_stream == number)
        own = mine[here]
        before = np.searchsorted(np.maximum.accumulate(timeline.end_ns[own]), start, side="right") - 1
        previous = np.arange(len(own)) - 1
        overlapping += int(np.count_nonzero(before[here] < previous))
        before[here] = previous
        result[number] = np.where(before >= 0, own[before], -1)
    return result, overlapping
