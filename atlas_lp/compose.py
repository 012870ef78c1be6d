"""The program of a trace: instances and measured gaps as one small event graph (DESIGN section 7).

Each instance has two vertices: *ready*, when its last rank has arrived, and *done*; one edge between them per plane
of its envelope.  On every GPU an operation follows, on each stream, the last operation that had ended when it started,
after the measured gap between them.  Time inside NCCL kernels is never a cost, because it contains waiting.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from atlas_lp.goal.event_graph import COMPONENTS, EventGraph
from atlas_lp.goal.schedule import Ints
from atlas_lp.longest_path import Longest, PathVector
from atlas_lp.traces import Gap, SignedInstance, Trace
from atlas_lp.traces.clocks import host_offsets

GAP = -1
"""Owner of a cost row that is a measured gap and not a plane of an instance."""

START = -1
"""Predecessor of an operation that has none."""


@dataclass(frozen=True)
class Program:
    """The composition graph; ``owner`` gives per cost row the instance it is a plane of, or :data:`GAP`.

    ``measured_ns`` is the span from the first to the last recorded GPU activity, ``durations_ns`` the measured
    duration of every instance from the arrival of its last rank on.
    """

    graph: EventGraph
    owner: Ints
    measured_ns: int
    durations_ns: Ints
    gaps: tuple[Gap, ...]

    def path(self, longest: Longest) -> list[tuple[int, PathVector]]:
        """Edges of a critical path from the start on, as (owner, cost)."""
        result = []
        vertex = longest.end
        while longest.tight[vertex] >= 0:
            edge = int(longest.tight[vertex])
            row = int(self.graph.cost[edge])
            result.append((int(self.owner[row]), tuple(self.graph.costs[row].tolist())))
            vertex = int(self.graph.source[edge])
        return result[::-1]


def compose(trace: Trace, signed: Sequence[SignedInstance], planes: Sequence[Sequence[PathVector]]) -> Program:
    """Build the program of *trace*; *planes* gives the path vectors of every instance of *signed*.

    Raises :class:`~atlas_lp.errors.CycleError` when two ranks recorded the same instances in opposite orders.
    Cost O(operations x streams).
    """
    times = OperationTimes(trace, signed)
    before, after, costs = times.gap_edges()
    sources = np.where(before == START, 0, _done(times.instance[before]))
    targets = np.where(after < 0, times.end, _ready(times.instance[after]))
    columns = [(sources, targets, np.arange(len(costs)))]
    vectors = np.zeros((len(costs), len(COMPONENTS)), dtype=np.int64)
    vectors[:, COMPONENTS.index("calc_ns")] = costs
    owners = [np.full(len(costs), GAP)]
    count = len(costs)
    rows = [vectors]
    for instance, own in enumerate(planes):
        number = np.arange(count, count + len(own))
        columns.append((np.full(len(own), 1 + 2 * instance), np.full(len(own), 2 + 2 * instance), number))
        owners.append(np.full(len(own), instance))
        rows.append(np.array(own, dtype=np.int64).reshape(-1, len(COMPONENTS)))
        count += len(own)
    source, target, cost = (np.concatenate(c).astype(np.int32) for c in zip(*columns, strict=True))
    graph = EventGraph.from_edges(times.end + 1, source, target, cost, np.concatenate(rows), times.name)
    return Program(graph, np.concatenate(owners), times.measured_ns, times.durations(), tuple(times.gaps))


def _ready(instance: Ints) -> Ints:
    return 1 + 2 * instance


def _done(instance: Ints) -> Ints:
    return 2 + 2 * instance


class OperationTimes:
    """Starts and ends of all operations of the signed instances, host clocks aligned.

    Operations are numbered instance by instance, by rank; the arrays ``instance``, ``gpu``, ``stream``, ``start`` and
    ``end_ns`` have one entry each.
    """

    def __init__(self, trace: Trace, signed: Sequence[SignedInstance]) -> None:
        instances = [s.instance for s in signed]
        self.signed = signed
        offsets, gaps = host_offsets(trace, instances)
        self.gaps = list(gaps)
        self.rows = [instance.rows for instance in instances]
        row = np.concatenate(self.rows)
        self.instance = np.repeat(np.arange(len(instances)), [len(r) for r in self.rows])
        self.gpu = trace.column("operations", "gpu")[row].astype(np.int64)
        self.stream = trace.column("operations", "stream")[row]
        self.start = trace.column("operations", "start_ns")[row] + offsets[self.gpu]
        self.end_ns = trace.column("operations", "end_ns")[row] + offsets[self.gpu]
        self.first = trace.column("gpus", "first_ns") + offsets
        self.last = trace.column("gpus", "last_ns") + offsets
        self.origin = int(self.first.min())
        self.measured_ns = int(self.last.max()) - self.origin
        self.end = 1 + 2 * len(instances)

    def name(self, vertex: int) -> str:
        """Words for a vertex, for error messages."""
        if vertex in (0, self.end):
            return "start" if vertex == 0 else "end"
        signature = self.signed[(vertex - 1) // 2].signature
        return f"{signature.collective} of {signature.size_bytes} B (instance {(vertex - 1) // 2 + 1})"

    def durations(self) -> Ints:
        """From the last arrival to the last end of every instance, at least 0."""
        starts = np.zeros(len(self.rows), dtype=np.int64)
        ends = np.zeros(len(self.rows), dtype=np.int64)
        np.maximum.at(starts, self.instance, self.start)
        np.maximum.at(ends, self.instance, self.end_ns)
        durations: Ints = np.maximum(ends - starts, 0)
        return durations

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
