"""The program of a trace: instances and what lies between them as one event graph (docs/model.md#program).

Each instance has two vertices per class of its ranks: *ready*, when the last rank of the class has arrived, and *done*;
one edge for each plane between two classes (:mod:`~atlas_lp.collectives.rank_classes`).  How instances follow each
other is for :mod:`~atlas_lp.program.dependencies.readings` to say.  Time inside NCCL kernels is never a cost, because
it contains waiting.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from atlas_lp.goal.event_graph import COMPONENTS, EventGraph
from atlas_lp.goal.schedule import Ints
from atlas_lp.program.dependencies.links import Links
from atlas_lp.program.nic_sharing import Rows, without_cycles
from atlas_lp.program.vertices import Vertices
from atlas_lp.solver.envelope import RankClasses
from atlas_lp.solver.longest_path import Longest, PathVector
from atlas_lp.traces.signing.signed_trace import SignedTrace


@dataclass(frozen=True)
class Program:
    """The composition graph.

    ``owner`` gives per cost row the instance it is a plane of, or ``-1 - gpu`` for measured time of a GPU between them.
    ``vertices`` says which ones instances begin and end at, ``dependencies`` which reading was used.  ``sharing``
    counts the instances that overlap another one on a NIC, where that was asked for.
    """

    graph: EventGraph
    owner: Ints
    vertices: Vertices
    dependencies: str
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
    signed: SignedTrace, collectives: Sequence[RankClasses], links: Links, bounds: Rows | None = None
) -> Program:
    """Build the program of *signed*, whose instances take the planes of *collectives* and follow each other by *links*.

    With *bounds* collectives that overlap share their NICs (:func:`~atlas_lp.program.nic_sharing.shared_ports`).

    Raises :class:`~atlas_lp.errors.CycleError` when two ranks recorded the same instances in opposite orders.
    """
    vertices = Vertices.of(signed.timeline, collectives)
    rows = [_planes(collectives, vertices), *([] if bounds is None else [bounds])]
    graph, owner = _graph(links, rows, signed, vertices)
    return Program(graph, owner, vertices, links.dependencies, 0 if bounds is None else bounds.instances)


def _planes(collectives: Sequence[RankClasses], vertices: Vertices) -> Rows:
    """One edge per plane from ready to done of two classes of every instance."""
    tables = {collective: _table(collective) for collective in dict.fromkeys(collectives)}
    own = [tables[collective] for collective in collectives]
    arriving, ending, vectors = (np.concatenate(column) for column in zip(*own, strict=True))
    instance = np.repeat(np.arange(len(own)), [len(table[0]) for table in own])
    done = vertices.first[instance] + vertices.classes[instance] + ending
    return Rows(vertices.first[instance] + arriving, done, vectors, instance)


def _graph(links: Links, rows: Sequence[Rows], signed: SignedTrace, vertices: Vertices) -> tuple[EventGraph, Ints]:
    """Join links and rows of instances; return the graph and the owner of every cost row."""
    waits = np.zeros((len(links.costs_ns), len(COMPONENTS)), dtype=np.int64)
    waits[:, COMPONENTS.index("calc_ns")] = links.costs_ns
    before, after = vertices.ends_of(links)
    source = np.concatenate([before, *(r.sources for r in rows)]).astype(np.int32)
    target = np.concatenate([after, *(r.targets for r in rows)]).astype(np.int32)
    costs = np.concatenate([waits, *(r.vectors for r in rows)])
    owner = np.concatenate([-1 - links.gpus, *(r.owners for r in rows)])
    count = vertices.end + links.others
    if len(rows) > 1:
        kept = without_cycles(count, source, target, len(source) - len(rows[-1].sources))
        source, target, costs, owner = source[kept], target[kept], costs[kept], owner[kept]

    def name(vertex: int) -> str:
        return _name(vertex, signed, vertices)

    cost = np.arange(len(source), dtype=np.int32)
    return EventGraph.from_edges(count, source, target, cost, costs, name), owner


def _table(collective: RankClasses) -> tuple[Ints, Ints, Ints]:
    """Arriving class, ending class and path vector of every plane, as columns."""
    rows = [(arriving, ending, v) for arriving, ending, vectors in collective.planes for v in vectors]
    arriving, ending = (np.array([row[column] for row in rows], dtype=np.int64) for column in (0, 1))
    return arriving, ending, np.array([row[2] for row in rows], dtype=np.int64).reshape(-1, len(COMPONENTS))


def _name(vertex: int, signed: SignedTrace, vertices: Vertices) -> str:
    """Words for a vertex, for error messages."""
    if vertex == 0:
        return "start"
    if vertex >= vertices.end:
        return f"GPU work {vertex - vertices.end}"
    instance = vertices.instance(vertex)
    signature = signed.instances[instance].signature
    return f"{signature.collective} of {signature.size_bytes} B (instance {instance + 1})"
