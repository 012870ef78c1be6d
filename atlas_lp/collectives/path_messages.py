"""Hops of a path inside a collective: between which ranks, and in which phase, its messages are.

A plane is the cost vector of some longest path of the collective's graph.  That path is found again at a point where
the plane is the highest, on the graph of all ranks, and its messages are read off: each has a sender, a receiver and a
phase.  Where several paths are equally long, the first one of the engine's order stands for all.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from atlas_lp.collectives.signature_graph import all_ranks
from atlas_lp.fabrics.fabric import Fabric
from atlas_lp.goal import EventGraph, Schedule
from atlas_lp.goal.schedule import SEND, Ints
from atlas_lp.signatures.algorithms.expand import operation_count
from atlas_lp.signatures.signature import Signature
from atlas_lp.solver.axis import Point
from atlas_lp.solver.envelope import RankClasses
from atlas_lp.solver.longest_path import BYTES, MESSAGES, Evaluator, PathVector

OPERATIONS = 1_000_000
"""Schedules of more operations are not expanded to look for hops."""

PHASES = {True: "reduce", False: "copy", None: "messages"}
"""What a step does with what it receives; ``messages`` where an algorithm has no such phases."""


@dataclass(frozen=True)
class Hop:
    """Scale-out messages from label *source* to label *target* of a signature, in one of :data:`PHASES`."""

    source: int
    target: int
    phase: str


Amounts = Mapping[Hop, tuple[int, int]]
"""Messages and bytes of a path by hop."""


@dataclass(frozen=True)
class Passage:
    """One plane of a signature between two of its *classes* of ranks, by their numbers."""

    key: str
    classes: int
    arriving: int
    ending: int
    vector: PathVector


def find_hops(
    passages: Mapping[Passage, Point],
    signatures: Mapping[str, Signature],
    classes: Mapping[tuple[str, int], RankClasses],
    fabric: Fabric,
    order_at: Mapping[str, tuple[Fraction, Fraction]] | None = None,
) -> dict[Passage, Amounts]:
    """Return the hops of every passage, given with a point where its plane is the highest.

    *signatures* are by key, *classes* by key and number; *order_at* by key is the point in whose order ports serve.
    Passages of signatures that are too large are missing from the result.  Schedules are expanded one at a time.
    """
    together: dict[tuple[str, int], list[Passage]] = defaultdict(list)
    for passage in passages:
        if operation_count(signatures[passage.key]) <= OPERATIONS:
            together[passage.key, passage.classes].append(passage)
    found: dict[Passage, Amounts] = {}
    for split, own in together.items():
        serving = fabric.in_order_of((order_at or {}).get(split[0], fabric.order_at))
        walker = _Walker(signatures[split[0]], classes[split], serving)
        found.update((passage, walker.hops(passage, passages[passage])) for passage in own)
    return found


class _Walker:
    """The graph of all ranks of one signature, and its messages."""

    def __init__(self, signature: Signature, classes: RankClasses, fabric: Fabric) -> None:
        self.fabric = fabric
        found = all_ranks(signature, fabric)
        self.schedule: Schedule = found.schedule
        self.graph = found.in_order()
        of_rank = np.array(classes.of_rank or (0,) * signature.ranks)
        self.class_of_vertex = np.full(self.graph.vertices, -1)
        self.class_of_vertex[self.graph.vertex] = of_rank[self.schedule.rank]
        sends, recvs = self.schedule.messages()
        self.recv_of = np.full(len(self.schedule), -1)
        self.recv_of[sends] = recvs
        self.parts: dict[tuple[int, int], tuple[EventGraph, Evaluator, Ints]] = {}

    def _part(self, arriving: int, ending: int) -> tuple[EventGraph, Evaluator, Ints]:
        """The graph between two classes, its evaluator, and the operation that ends at each of its vertices."""
        if (arriving, ending) not in self.parts:
            part = self.graph.between(self.class_of_vertex == arriving, self.class_of_vertex == ending)
            graph = self.graph if part is None else part
            operation = np.full(self.graph.vertices, -1)
            operation[self.graph.vertex] = np.arange(len(self.schedule))
            kept = operation if part is None else operation[part.vertex >= 0]
            self.parts[arriving, ending] = graph, Evaluator(graph, self.fabric.theta()), kept
        return self.parts[arriving, ending]

    def hops(self, passage: Passage, where: Point) -> Amounts:
        """Messages and bytes of the longest path at *where* by hop."""
        graph, evaluator, operation = self._part(passage.arriving, passage.ending)
        longest = evaluator.at(where)
        messages: Counter[Hop] = Counter()
        size: Counter[Hop] = Counter()
        vertex = longest.end
        following = -1
        while longest.tight[vertex] >= 0:
            edge = int(longest.tight[vertex])
            row, source = graph.costs[graph.cost[edge]], int(graph.source[edge])
            if operation[vertex] >= 0:
                following = int(operation[vertex])
            if row[MESSAGES] or row[BYTES]:
                hop = self._hop(int(operation[source]), following)
                messages[hop] += int(row[MESSAGES])
                size[hop] += int(row[BYTES])
            vertex = source
        return {hop: (messages[hop], size[hop]) for hop in messages | size}

    def _hop(self, source: int, following: int) -> Hop:
        """The message of an edge out of the operation *source*, or, out of an arrival, of the receive behind it."""
        schedule = self.schedule
        if source >= 0 and schedule.kind[source] == SEND:
            ends, recv = (int(schedule.rank[source]), int(schedule.peer[source])), int(self.recv_of[source])
        else:
            ends, recv = (int(schedule.peer[following]), int(schedule.rank[following])), following
        return Hop(*ends, PHASES[None if schedule.reduces is None else bool(schedule.reduces[recv])])
