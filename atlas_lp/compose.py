"""The program of a trace: instances and measured gaps as one small event graph (DESIGN section 7).

Each instance has two vertices: *ready*, when its last rank has arrived, and *done*; one edge between them per plane
of its envelope.  On every GPU an operation follows, on each stream, the last operation that had ended when it started,
after the measured gap between them.  Time inside NCCL kernels is never a cost, because it contains waiting.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from atlas_lp.goal.event_graph import COMPONENTS, EventGraph
from atlas_lp.longest_path import Longest, PathVector
from atlas_lp.traces import Gap, SignedInstance, Trace
from atlas_lp.traces.clocks import host_offsets

Ints = NDArray[np.int64]

GAP = -1
"""Owner of a cost row that is a measured gap and not a plane of an instance."""


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
    times = _Times(trace, signed)
    sources, targets, costs = times.gap_edges()
    columns = [(sources, targets, np.arange(len(costs)))]
    vectors = np.zeros((len(costs), len(COMPONENTS)), dtype=np.int64)
    vectors[:, COMPONENTS.index("calc_ns")] = costs
    owners = [np.full(len(costs), GAP)]
    count = len(costs)
    rows = [vectors]
    for instance, own in enumerate(planes):
        number = np.arange(count, count + len(own))
        columns.append((np.full(len(own), _ready(instance)), np.full(len(own), _done(instance)), number))
        owners.append(np.full(len(own), instance))
        rows.append(np.array(own, dtype=np.int64).reshape(-1, len(COMPONENTS)))
        count += len(own)
    source, target, cost = (np.concatenate(c).astype(np.int64) for c in zip(*columns, strict=True))
    graph = EventGraph.from_edges(
        times.end + 1, source, target, cost, np.concatenate(rows), lambda v: times.name(v)
    )
    return Program(graph, np.concatenate(owners), times.measured_ns, times.durations(), tuple(times.gaps))


def _ready(instance: int) -> int:
    return 1 + 2 * instance


def _done(instance: int) -> int:
    return 2 + 2 * instance


class _Times:
    """Starts and ends of all operations of the signed instances, host clocks aligned."""

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
        return np.maximum(ends - starts, 0)

    def gap_edges(self) -> tuple[Ints, Ints, Ints]:
        """Edges between instances on every GPU, from the start and to the end, with their gap in ns."""
        sources: list[Ints] = []
        targets: list[Ints] = []
        costs: list[Ints] = []
        overlaps = 0
        for gpu in np.unique(self.gpu):
            mine = np.flatnonzero(self.gpu == gpu)
            mine = mine[np.lexsort((mine, self.end_ns[mine], self.start[mine]))]
            followed = np.zeros(len(mine), dtype=bool)
            for stream in np.unique(self.stream[mine]):
                own = mine[self.stream[mine] == stream]
                before, overlapping = self._last_ended(mine, own, stream)
                overlaps += overlapping
                has = before >= 0
                followed |= has
                later, earlier = mine[has], own[before[has]]
                sources.append(_done(0) + 2 * self.instance[earlier])
                targets.append(_ready(0) + 2 * self.instance[later])
                costs.append(np.maximum(self.start[later] - self.end_ns[earlier], 0))
                sources.append(np.array([_done(int(self.instance[own[-1]]))]))
                targets.append(np.array([self.end]))
                costs.append(np.array([max(int(self.last[gpu] - self.end_ns[own[-1]]), 0)]))
            free = mine[~followed]
            sources.append(np.zeros(len(free), dtype=np.int64))
            targets.append(_ready(0) + 2 * self.instance[free])
            costs.append(self.start[free] - self.origin)
        if overlaps:
            self.gaps.append(
                Gap("overlap", overlaps, "operations that start before the one before them on their stream ends")
            )
        return np.concatenate(sources), np.concatenate(targets), np.concatenate(costs)

    def _last_ended(self, mine: Ints, own: Ints, stream: int) -> tuple[Ints, int]:
        """Position in *own* (one stream) of the last operation ended when each of *mine* starts, -1 for none.

        On its own stream an operation always follows the one before it, even if the two overlap.
        """
        latest_end = np.maximum.accumulate(self.end_ns[own])
        before = np.searchsorted(latest_end, self.start[mine], side="right") - 1
        same = self.stream[mine] == stream
        previous = np.arange(same.sum()) - 1
        overlapping = int(np.count_nonzero(before[same] < previous))
        before[same] = previous
        return before, overlapping
