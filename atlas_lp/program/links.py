"""What an operation of a program waited for: two readings of one trace.

*streams*: on every GPU an operation follows, on each stream, the last operation that had ended when it started,
unless another one ran in between; the gap is the time since the last operation of the GPU ended.  All that lies between
is taken as a fixed wait, as in the paper.

*events*: every piece of GPU work is a vertex of its own.  It follows the work before it on its stream, the work behind
an event that its stream waited for, and the host's call, which follows the work that the host had waited for.  What is
left between the last of these and its start is a fixed delay.  An operation that waited for a gradient thus depends on
the compute that made it and not on the operation before it: when the network slows, that slack is used up before the
step grows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from atlas_lp.errors import InputError
from atlas_lp.goal.schedule import Ints
from atlas_lp.program.what_if import AS_RECORDED, WhatIf
from atlas_lp.solver.envelope import RankClasses
from atlas_lp.traces.join.clocks import host_offsets
from atlas_lp.traces.signing.sign import SignedInstance
from atlas_lp.traces.trace import Gap, Trace
from atlas_lp.traces.work import Work

DEPENDENCIES = ("events", "streams")
"""Readings of a trace: by recorded events and host calls, or by the order of streams."""

START = -1
"""Predecessor of what has none."""


@dataclass(frozen=True)
class Links:
    """Edges of a program other than its instances: sources, targets, cost in ns, and the GPU whose time that is.

    Vertex 0 is the start, those of the instances follow (:class:`Ends`); *vertices* counts all.
    """

    sources: Ints
    targets: Ints
    costs: Ints
    gpus: Ints
    vertices: int
    gaps: tuple[Gap, ...]


@dataclass(frozen=True)
class Ends:
    """Where instances begin and end: a vertex *ready* and a vertex *done* for every class of ranks of each.

    ``ready`` and ``done`` have an entry per operation, in the order of :class:`OperationTimes`; ``first`` is the vertex
    where class 0 of each instance is ready, ``classes`` how many it has.  Class c of an instance of k classes is ready
    at ``first + c`` and done at ``first + k + c``.
    """

    ready: Ints
    done: Ints
    first: Ints
    classes: Ints

    @classmethod
    def of(cls, times: OperationTimes, collectives: Sequence[RankClasses]) -> Ends:
        """Number the vertices of the instances of *times*, instance by instance, from 1 on."""
        classes = np.array([c.count for c in collectives], dtype=np.int64)
        of_rank = [np.array(collective.of_rank, dtype=np.int64) for collective in collectives]
        return cls._numbered(times, classes, times.by_label(of_rank))

    @classmethod
    def of_operations(cls, times: OperationTimes) -> Ends:
        """The same with a class for every operation."""
        classes = np.array([len(rows) for rows in times.rows], dtype=np.int64)
        own = np.arange(len(times.instance)) - np.repeat(np.cumsum(classes) - classes, classes)
        return cls._numbered(times, classes, own)

    @classmethod
    def _numbered(cls, times: OperationTimes, classes: Ints, own: Ints) -> Ends:
        first = 1 + np.cumsum(2 * classes) - 2 * classes
        ready = first[times.instance] + own
        return cls(ready, ready + classes[times.instance], first, classes)

    @property
    def end(self) -> int:
        """The first vertex behind those of all instances."""
        return 1 + 2 * int(self.classes.sum())

    def instance(self, vertex: int) -> int:
        """The instance that *vertex* belongs to."""
        return int(np.searchsorted(self.first, vertex, side="right")) - 1

    def pair(self, instance: int, vertices: tuple[int, int]) -> tuple[int, int] | None:
        """Arriving and ending class of an edge between two *vertices* of *instance*; None where it is of two."""
        arriving, ending = vertices[0] - int(self.first[instance]), vertices[1] - int(self.first[instance])
        count = int(self.classes[instance])
        return (arriving, ending - count) if 0 <= arriving < count <= ending < 2 * count else None


class OperationTimes:
    """Starts and ends of all operations of the signed instances, host clocks aligned.

    Operations are numbered instance by instance, by rank; the arrays ``instance``, ``gpu``, ``stream``, ``start`` and
    ``end_ns`` have one entry each.  ``offset`` is added to the clock of each GPU's host.
    """

    def __init__(self, trace: Trace, signed: Sequence[SignedInstance]) -> None:
        instances = [s.instance for s in signed]
        self.signed = signed
        self.offset, gaps = host_offsets(trace, instances)
        self.gaps = list(gaps)
        self.rows = [instance.rows for instance in instances]
        row = np.concatenate(self.rows)
        self.instance = np.repeat(np.arange(len(instances)), [len(r) for r in self.rows])
        self.gpu = trace.column("operations", "gpu")[row].astype(np.int64)
        self.stream = trace.column("operations", "stream")[row]
        self.start = trace.column("operations", "start_ns")[row] + self.offset[self.gpu]
        self.end_ns = trace.column("operations", "end_ns")[row] + self.offset[self.gpu]
        self.first = trace.column("gpus", "first_ns") + self.offset
        self.last = trace.column("gpus", "last_ns") + self.offset
        seen = np.unique(self.gpu)
        self.origin = int(self.first[seen].min())
        self.measured_ns = int(self.last[seen].max()) - self.origin

    def by_label(self, values: Sequence[Ints]) -> Ints:
        """Spread the values of every instance, one row per label of its signature, over its operations; 0 for none."""
        result = np.zeros((len(self.instance), *values[0].shape[1:]), dtype=np.int64)
        begin = 0
        for signed, rows, own in zip(self.signed, self.rows, values, strict=True):
            if len(own):
                result[begin : begin + len(rows)] = own[list(signed.labels)]
            begin += len(rows)
        return result

    def durations(self) -> tuple[Ints, Ints]:
        """Per instance: from the last arrival to the last end (at least 0), and from the first arrival to the last."""
        first_start = np.full(len(self.rows), np.iinfo(np.int64).max)
        last_start, last_end = (np.full(len(self.rows), np.iinfo(np.int64).min) for _ in range(2))
        np.minimum.at(first_start, self.instance, self.start)
        np.maximum.at(last_start, self.instance, self.start)
        np.maximum.at(last_end, self.instance, self.end_ns)
        return np.maximum(last_end - last_start, 0), last_start - first_start

    def gap_edges(self) -> tuple[Ints, Ints, Ints]:
        """Measured gaps as (earlier operation or :data:`START`, later operation, ns).

        A later operation of ``-1 - gpu`` is the end of the recorded activity of that GPU.  The gap before an operation
        is the time since the last operation of its GPU ended, so it never contains time inside a collective.
        """
        edges: list[tuple[Ints, Ints, Ints]] = []
        for gpu in np.unique(self.gpu):
            mine = np.flatnonzero(self.gpu == gpu)
            mine = mine[np.lexsort((mine, self.end_ns[mine], self.start[mine]))]
            later = np.append(mine, -1 - gpu)
            start = np.append(self.start[mine], self.last[gpu])
            ended = self._last_ended(mine, start)
            end = np.where(ended >= 0, self.end_ns[ended], np.iinfo(np.int64).min)
            begin = np.where(ended >= 0, self.start[ended], np.iinfo(np.int64).min)
            # Another operation ran between this one and the later one: the order is kept through it.
            follows = (ended >= 0) & ((end > begin.max(axis=0)) | (begin == begin.max(axis=0)))
            gap = np.maximum(start - end.max(axis=0), 0)
            free = np.flatnonzero(~follows.any(axis=0))
            stream, place = np.nonzero(follows)
            edges.append((ended[stream, place], later[place], gap[place]))
            edges.append((np.full(len(free), START), later[free], start[free] - self.origin))
        before, after, cost = (np.concatenate(column) for column in zip(*edges, strict=True))
        return before, after, cost

    def _last_ended(self, mine: Ints, start: Ints) -> Ints:
        """Last operation ended at each *start*, per stream of one GPU (streams x starts), -1 for none.

        On its own stream an operation always follows the one before it, even if the two overlap by a little.
        """
        streams, own_stream = np.unique(self.stream[mine], return_inverse=True)
        result = np.full((len(streams), len(start)), -1, dtype=np.int64)
        overlapping = 0
        for number in range(len(streams)):
            here = np.flatnonzero(own_stream == number)
            own = mine[here]
            before = np.searchsorted(np.maximum.accumulate(self.end_ns[own]), start, side="right") - 1
            previous = np.arange(len(own)) - 1
            overlapping += int(np.count_nonzero(before[here] < previous))
            before[here] = previous
            result[number] = np.where(before >= 0, own[before], -1)
        if overlapping:
            self.gaps.append(
                Gap("overlap", overlapping, "operations that start before the one before them on their stream ends")
            )
        return result


def records_events(trace: Trace) -> bool:
    """Whether the trace says what GPU work waited for: some event wait or synchronisation was recorded."""
    return trace.work is not None and bool(len(trace.work.before) or (trace.work.synced >= 0).any())


def find_links(
    trace: Trace, times: OperationTimes, ends: Ends, dependencies: str | None, what_if: WhatIf = AS_RECORDED
) -> tuple[Links, str]:
    """Links by *dependencies*, one of :data:`DEPENDENCIES`; None takes events where the trace recorded them.

    Returns which was used, too.  Raises :class:`~atlas_lp.errors.InputError` when events are asked for and were not
    recorded.
    """
    used = dependencies or ("events" if records_events(trace) else "streams")
    if used == "streams":
        return stream_links(times, ends, what_if), used
    if trace.work is None:
        raise InputError("the trace records no CUDA calls or streams: use --dependencies streams")
    return event_links(times, ends, trace.work, what_if), used


def stream_links(times: OperationTimes, ends: Ends, what_if: WhatIf = AS_RECORDED) -> Links:
    """Links by the order of streams, merged where operations do not overlap.  Cost O(operations x streams).

    All that lies between operations counts as compute for *what_if*.
    """
    before, after, costs = times.gap_edges()
    sources = np.where(before == START, 0, ends.done[before])
    targets = np.where(after < 0, ends.end, ends.ready[after])
    gpus = np.where(after < 0, -1 - after, times.gpu[after])
    return Links(sources, targets, what_if.scaled(costs), gpus, ends.end + 1, tuple(times.gaps))


def event_links(times: OperationTimes, ends: Ends, work: Work, what_if: WhatIf = AS_RECORDED) -> Links:
    """Links by recorded dependencies of every piece of GPU work.  Cost O(n log n) of the work.

    For *what_if* the time of GPU work counts as compute; launches, calls of the host and delays stay as they are.

    Raises :class:`~atlas_lp.errors.InputError` when an operation's kernel is not among the work.
    """
    return _EventLinks(times, ends, work, what_if).build()


class _EventLinks:
    def __init__(self, times: OperationTimes, ends: Ends, work: Work, what_if: WhatIf) -> None:
        self.times, self.ends, self.work, self.what_if = times, ends, work, what_if
        offset = times.offset[work.gpu]
        self.start, self.end = work.start_ns + offset, work.end_ns + offset
        self.called = work.call_ns >= 0
        self.possible = self._possible_start(work.call_ns + offset)
        self.gaps = list(times.gaps)
        self.carried = self._carried()

    def _carried(self) -> tuple[Ints, Ints]:
        """(work, operation) of every operation, sorted by work: a kernel may carry several operations."""
        times, work = self.times, self.work
        keys = np.stack([work.gpu, work.stream, self.start])
        wanted = np.stack([times.gpu, times.stream, times.start])
        _, inverse = np.unique(np.concatenate([keys, wanted], axis=1), axis=1, return_inverse=True)
        inverse = inverse.reshape(-1)
        place = np.full(int(inverse.max()) + 1, -1, dtype=np.int64)
        place[inverse[: len(work)]] = np.arange(len(work))
        found = place[inverse[len(work) :]]
        if (found < 0).any():
            lost = int(np.count_nonzero(found < 0))
            raise InputError(
                f"{lost} operations have no kernel among the recorded GPU work; use --dependencies streams"
            )
        order = np.lexsort((times.instance, found))
        return found[order], order

    def build(self) -> Links:
        before, after, available = self._waits()
        delay = np.maximum(self.start - available, 0)
        host, host_cost = self._host(delay)
        carriers = np.zeros(len(self.work), dtype=bool)
        carriers[self.carried[0]] = True
        own = np.where(carriers, 0, self.what_if.scaled(self.end - self.start))
        everything = np.arange(len(self.work))
        sources, targets, costs, gpus = (
            np.concatenate(pair)
            for pair in (
                (before, host),
                (after, everything),
                ((delay + own)[after], host_cost + own),
                (self.work.gpu[after], self.work.gpu),
            )
        )
        known = np.append(np.full(len(before), True), host_cost >= 0)
        columns = (column[known] for column in (sources, targets, costs, gpus))
        return Links(*self._vertices(carriers, *columns), self.ends.end + len(self.work), tuple(self.gaps))

    def _waits(self) -> tuple[Ints, Ints, Ints]:
        """Pairs (before, after) of streams and events, and when all that each piece waited for was over."""
        previous = self._previous_on_stream()
        follows = np.flatnonzero(previous >= 0)
        self.alone = previous < 0
        self.alone[self.work.after] = False
        before = np.concatenate([previous[follows], self.work.before])
        after = np.concatenate([follows, self.work.after])
        available = np.where(self.called, self.possible, np.iinfo(np.int64).min)
        np.maximum.at(available, after, self.end[before])
        unknown = available == np.iinfo(np.int64).min
        available[unknown] = self.times.origin
        return before, after, available

    def _previous_on_stream(self) -> Ints:
        """Last work that had ended on the stream of each piece when it started, -1 for none."""
        work = self.work
        order = np.lexsort((self.end, self.start, work.stream, work.gpu))
        lane = np.stack([work.gpu, work.stream])[:, order]
        first = np.flatnonzero(np.append(True, np.any(lane[:, 1:] != lane[:, :-1], axis=0)))
        result = np.full(len(work), -1, dtype=np.int64)
        overlapping = 0
        for low, high in zip(first, np.append(first[1:], len(order)), strict=True):
            own = order[low:high]
            ends = np.maximum.accumulate(self.end[own])
            latest = np.maximum.accumulate(np.where(self.end[own] == ends, np.arange(len(own)), 0))
            before = np.minimum(np.searchsorted(ends, self.start[own], side="right"), np.arange(len(own))) - 1
            overlapping += int(np.count_nonzero(before < np.arange(len(own)) - 1))
            result[own] = np.where(before >= 0, own[latest[before]], -1)
        if overlapping:
            self.gaps.append(
                Gap("overlap", overlapping, "GPU work that starts before the work before it on its stream ends")
            )
        return result

    def _possible_start(self, call: Ints) -> Ints:
        """When each piece could have started for its call: after the shortest time of its GPU from call to start.

        Never after it did start, whatever the clocks of host and GPU say.
        """
        shortest = np.full(len(self.times.first), np.iinfo(np.int64).max)
        np.minimum.at(shortest, self.work.gpu[self.called], (self.start - call)[self.called])
        latency = np.maximum(np.where(shortest == np.iinfo(np.int64).max, 0, shortest), 0)
        possible: Ints = np.minimum(call + latency[self.work.gpu], self.start)
        return possible

    def _host(self, delay: Ints) -> tuple[Ints, Ints]:
        """What the host had waited for before each call (:data:`START`: nothing), and the cost from there on.

        Work without a recorded call starts at a fixed time when nothing else held it; -1 where something did.
        """
        synced = self.work.synced
        since = np.where(synced >= 0, self.end[synced], self.times.origin)
        cost = np.maximum(self.possible - since, 0) + delay
        fixed = np.where(self.alone, self.start - self.times.origin, -1)
        return synced, np.where(self.called, cost, fixed)

    def _vertices(
        self, carriers: np.ndarray, sources: Ints, targets: Ints, costs: Ints, gpus: Ints
    ) -> tuple[Ints, Ints, Ints, Ints]:
        """Replace work by vertices: its own, or those of the instances that an NCCL kernel carried."""
        carried, operation = self.carried
        for side, own in enumerate((self.ends.done, self.ends.ready)):
            ends = (sources, targets)[side]
            low = np.searchsorted(carried, ends, side="left")
            is_operation = (ends >= 0) & carriers[ends]
            count = np.where(is_operation, np.searchsorted(carried, ends, side="right") - low, 1)
            row = np.repeat(np.arange(len(ends)), count)
            within = np.arange(len(row)) - np.repeat(np.cumsum(count) - count, count)
            plain = np.where(ends >= 0, self.ends.end + ends, 0)
            at = np.minimum(low[row] + within, len(operation) - 1)
            vertex = np.where(is_operation[row], own[operation[at]], plain[row])
            sources, targets = (vertex, targets[row]) if side == 0 else (sources[row], vertex)
            costs, gpus = costs[row], gpus[row]
        return sources, targets, costs, gpus
