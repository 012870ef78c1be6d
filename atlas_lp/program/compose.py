"""The program of a trace: instances and what lies between them as one event graph (docs/model.md#program).

Each instance has two vertices per class of its ranks: *ready*, when the last rank of the class has arrived, and *done*;
one edge for each plane between two classes (:mod:`~atlas_lp.collectives.rank_classes`).  How instances follow each
other is for :mod:`~atlas_lp.program.links` to say.  Time inside NCCL kernels is never a cost, because it contains
waiting.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from atlas_lp.errors import InputError
from atlas_lp.goal.event_graph import COMPONENTS, EventGraph
from atlas_lp.goal.schedule import Ints
from atlas_lp.program.links import Ends, Links, OperationTimes, find_links
from atlas_lp.program.nic_sharing import PortLoads, Rows, shared_ports, without_cycles
from atlas_lp.program.what_if import AS_RECORDED, WhatIf
from atlas_lp.solver.envelope import RankClasses
from atlas_lp.solver.longest_path import Longest, PathVector
from atlas_lp.traces.signing.sign import SignedInstance
from atlas_lp.traces.trace import Gap, Trace


@dataclass(frozen=True)
class Program:
    """The composition graph.

    ``owner`` gives per cost row the instance it is a plane of, or ``-1 - gpu`` for measured time of a GPU between them.

    ``measured_ns`` is the span from the first to the last recorded GPU activity, ``durations_ns`` the measured
    duration of every instance from the arrival of its last rank on, ``skews_ns`` how long its first rank waited for the
    last; ``dependencies`` says which reading was used.  ``sharing`` counts the instances that overlap another one on a
    NIC, where that was asked for.  ``ends`` says which vertices instances begin and end at.
    """

    graph: EventGraph
    owner: Ints
    measured_ns: int
    durations_ns: Ints
    skews_ns: Ints
    dependencies: str
    gaps: tuple[Gap, ...]
    ends: Ends
    sharing: int = 0

    def path(self, longest: Longest) -> list[tuple[int, PathVector]]:
        """Edges of a critical path from the start on, as (owner, cost)."""
        return [(owner, vector) for owner, vector, _ in self.edges(longest)]

    def edges(self, longest: Longest) -> list[tuple[int, PathVector, tuple[int, int]]]:
        """The same with the vertices of each edge, numbered as when the program was built."""
        number = np.empty(self.graph.vertices, dtype=np.int64)
        number[self.graph.vertex] = np.arange(self.graph.vertices)
        result = []
        vertex = longest.end
        while longest.tight[vertex] >= 0:
            edge = int(longest.tight[vertex])
            row, source = int(self.graph.cost[edge]), int(self.graph.source[edge])
            vector = tuple(self.graph.costs[row].tolist())
            result.append((int(self.owner[row]), vector, (int(number[source]), int(number[vertex]))))
            vertex = source
        return result[::-1]


def compose(
    trace: Trace,
    signed: Sequence[SignedInstance],
    collectives: Sequence[RankClasses],
    dependencies: str | None = None,
    what_if: WhatIf = AS_RECORDED,
    loads: PortLoads | None = None,
) -> Program:
    """Build the program of *trace*; *collectives* gives the planes of every instance of *signed*.

    *dependencies* is one of :data:`~atlas_lp.program.links.DEPENDENCIES`; None takes events where the trace recorded
    them.  Collectives that *what_if* frees are for the caller, who gives their planes.  With *loads* collectives that
    overlap share their NICs (:mod:`~atlas_lp.program.nic_sharing`).

    Raises :class:`~atlas_lp.errors.CycleError` when two ranks recorded the same instances in opposite orders, and
    :class:`~atlas_lp.errors.InputError` when events are asked for and were not recorded.
    """
    times = OperationTimes(trace, signed)
    ends = Ends.of(times, collectives)
    links, used = find_links(trace, times, ends, dependencies, what_if)
    planes = _planes(collectives, ends)
    rows = [planes] if loads is None else [planes, shared_ports(times, ends, loads)]
    graph, owner = _graph(links, rows, signed, ends)
    durations, skews = times.durations()
    sharing = 0 if loads is None else rows[1].instances
    return Program(graph, owner, times.measured_ns, durations, skews, used, links.gaps, ends, sharing)


def seen_by(trace: Trace, signed: Sequence[SignedInstance], gpu: int) -> tuple[Trace, list[SignedInstance]]:
    """Return what one GPU saw of a trace: its operations and its work, as in the paper.

    Instances start when this GPU arrives, whatever the others do.  Raises :class:`~atlas_lp.errors.InputError` for a
    GPU that took part in nothing.
    """
    own = trace.column("operations", "gpu")
    rows = [s.instance.rows[own[s.instance.rows] == gpu] for s in signed]
    kept = [_alone(s, r) for s, r in zip(signed, rows, strict=True) if len(r)]
    if not kept:
        raise InputError(f"GPU {gpu} ran no collective: the trace has GPUs 0 to {trace.gpus.num_rows - 1}")
    work = trace.work
    if work is not None:
        work = replace(work, gpu=np.where(work.gpu == gpu, gpu, -1)).only_numbered()
    return replace(trace, work=work), kept


def _alone(signed: SignedInstance, rows: NDArray[np.int64]) -> SignedInstance:
    """The instance with only *rows* of its own."""
    ranks = np.array(signed.instance.ranks)[np.isin(signed.instance.rows, rows)]
    return replace(signed, instance=replace(signed.instance, rows=rows, ranks=tuple(ranks.tolist())))


def _planes(collectives: Sequence[RankClasses], ends: Ends) -> Rows:
    """One edge per plane from ready to done of two classes of every instance."""
    tables: dict[int, tuple[Ints, Ints, Ints]] = {}
    for collective in collectives:
        if id(collective) not in tables:
            tables[id(collective)] = _table(collective)
    own = [tables[id(collective)] for collective in collectives]
    arriving, ending, vectors = (np.concatenate(column) for column in zip(*own, strict=True))
    instance = np.repeat(np.arange(len(own)), [len(table[0]) for table in own])
    done = ends.first[instance] + ends.classes[instance] + ending
    return Rows(ends.first[instance] + arriving, done, vectors, instance)


def _graph(links: Links, rows: Sequence[Rows], signed: Sequence[SignedInstance], ends: Ends) -> tuple[EventGraph, Ints]:
    """Join links and rows of instances; return the graph and the owner of every cost row."""
    waits = np.zeros((len(links.costs), len(COMPONENTS)), dtype=np.int64)
    waits[:, COMPONENTS.index("calc_ns")] = links.costs
    source = np.concatenate([links.sources, *(r.sources for r in rows)]).astype(np.int32)
    target = np.concatenate([links.targets, *(r.targets for r in rows)]).astype(np.int32)
    costs = np.concatenate([waits, *(r.vectors for r in rows)])
    owner = np.concatenate([-1 - links.gpus, *(r.owners for r in rows)])
    if len(rows) > 1:
        kept = without_cycles(links.vertices, source, target, len(source) - len(rows[-1].sources))
        source, target, costs, owner = source[kept], target[kept], costs[kept], owner[kept]

    def name(vertex: int) -> str:
        return _name(vertex, signed, ends)

    cost = np.arange(len(source), dtype=np.int32)
    return EventGraph.from_edges(links.vertices, source, target, cost, costs, name), owner


def _table(collective: RankClasses) -> tuple[Ints, Ints, Ints]:
    """Arriving class, ending class and path vector of every plane, as columns."""
    rows = [(arriving, ending, v) for arriving, ending, vectors in collective.planes for v in vectors]
    arriving, ending = (np.array([row[column] for row in rows], dtype=np.int64) for column in (0, 1))
    return arriving, ending, np.array([row[2] for row in rows], dtype=np.int64).reshape(-1, len(COMPONENTS))


def _name(vertex: int, signed: Sequence[SignedInstance], ends: Ends) -> str:
    """Words for a vertex, for error messages."""
    if vertex == 0:
        return "start"
    if vertex >= ends.end:
        return f"GPU work {vertex - ends.end}"
    instance = ends.instance(vertex)
    signature = signed[instance].signature
    return f"{signature.collective} of {signature.size_bytes} B (instance {instance + 1})"
