"""Ranks of a collective that start and end alike, and the planes from the arrival of one class to the end of another.

A collective as a matrix of the max-plus algebra: with a_r the arrival of rank r, rank s ends at max over r of
a_r + E_rs, where E_rs is the longest path from the operations that rank r can start with to those of rank s.  This is
exact as long as collectives do not meet on a NIC.  Ranks whose longest paths from their start and to their end are as
long as those of others share a class, whose E is the largest of its ranks: never less than the exact one.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from math import isqrt

import numpy as np
from numpy.typing import NDArray

from atlas_lp.collectives.limits import Limits
from atlas_lp.fabrics.fabric import Fabric
from atlas_lp.goal.event_graph import COMPONENTS, EventGraph
from atlas_lp.goal.kernels import paths_between
from atlas_lp.goal.schedule import Ints
from atlas_lp.signatures.algorithms.expand import operation_count
from atlas_lp.signatures.signature import Signature
from atlas_lp.solver.axis import Point
from atlas_lp.solver.envelope import RankClasses
from atlas_lp.solver.longest_path import Evaluator, PathVector, Plane, Small, heads_and_tails
from atlas_lp.solver.upper_envelope import explore

Floats = NDArray[np.float64]

_EDGES_PER_OPERATION = 2


def can_solve_by_rank(signature: Signature, planes: int, limits: Limits) -> bool:
    """Whether a class for every rank is within the limits, for a whole of so many *planes*."""
    ranks, edges = signature.ranks, _EDGES_PER_OPERATION * operation_count(signature)
    return ranks <= limits.ranks and edges * planes * ranks <= limits.rank_edges


def choose_classes(
    graph: EventGraph,
    rank_of_vertex: Ints,
    ranks: int,
    thetas: list[dict[str, Fraction]],
    planes: int,
    limits: Limits,
) -> tuple[Ints, float]:
    """Return a class for each of *ranks*, numbered by their lowest ranks, and how far apart ranks of one class are.

    Ranks are as far apart as the times from their start to the end of all, or from the start of all to their end,
    relative to the longest of all, at the worst of *thetas*.  Classes are as many as needed within *limits*,
    taking as many *planes* between any two of them as the whole has.
    """
    most = min(limits.classes, limits.class_edges // (graph.edges * planes + 1))
    if most < 2:
        return np.zeros(ranks, dtype=np.int64), 1.0
    places = _places(graph, rank_of_vertex, ranks, thetas)
    classes, width = _grouped(places, most, limits.class_width)
    if _pairs(graph, rank_of_vertex, classes) * planes > limits.class_planes:
        classes, width = _grouped(places, max(isqrt(limits.class_planes // planes), 1), limits.class_width)
    return classes, width


def _grouped(places: Floats, most: int, width: float) -> tuple[Ints, float]:
    """Classes of the points *places*: the one furthest from all classes founds the next (Gonzalez 1985).

    There are *most* classes, or fewer where all points are within *width* of theirs.  Cost O(points x classes).
    """
    founder = np.zeros(len(places), dtype=np.int64)
    apart = np.abs(places - places[0]).max(axis=1)
    for _ in range(most - 1):
        furthest = int(apart.argmax())
        if apart[furthest] <= width:
            break
        distance = np.abs(places - places[furthest]).max(axis=1)
        nearer = distance < apart
        founder[nearer], apart[nearer] = furthest, distance[nearer]
    _, first, classes = np.unique(founder, return_index=True, return_inverse=True)
    number = np.empty(len(first), dtype=np.int64)
    number[np.argsort(first)] = np.arange(len(first))
    return number[classes], float(apart.max())


def _pairs(graph: EventGraph, rank_of_vertex: Ints, classes: Ints) -> int:
    """How many pairs of classes have a path between them."""
    class_of_vertex = np.where(rank_of_vertex >= 0, classes[rank_of_vertex], -1)
    total = 0
    for arriving in range(int(classes.max()) + 1):
        kept, _ = paths_between(graph.in_start, graph.source, class_of_vertex == arriving, class_of_vertex >= 0)
        total += len(np.unique(class_of_vertex[kept & (class_of_vertex >= 0)]))
    return total


def _places(graph: EventGraph, rank_of_vertex: Ints, ranks: int, thetas: list[dict[str, Fraction]]) -> Floats:
    """Per rank, two columns for each of *thetas*: longest path from its start, and to its end."""
    owned = rank_of_vertex >= 0
    columns = []
    for theta in thetas:
        cost = graph.costs @ np.array([float(theta[c]) for c in COMPONENTS])
        heads, tails = heads_and_tails(graph.in_start, graph.source, graph.cost, cost)
        whole = heads.max() or 1.0
        for times in (tails, heads):
            column = np.zeros(ranks)
            np.maximum.at(column, rank_of_vertex[owned], times[owned] / whole)
            columns.append(column)
    return np.stack(columns, axis=1)


def planes_between(
    graph: EventGraph, class_of_vertex: Ints, count: int, whole: Evaluator, corners: list[Point]
) -> list[tuple[int, int, tuple[PathVector, ...]]]:
    """Return the path vectors that are longest somewhere between *corners*, for every class that waits for another.

    *whole* evaluates the graph.  One longest path from a class serves all classes that it ends in.  A rank without
    operations still ends no earlier than it arrives.
    """
    found: list[tuple[int, int, tuple[PathVector, ...]]] = []
    for arriving in range(count):
        part = graph.between(class_of_vertex == arriving, class_of_vertex >= 0)
        if part is None:
            found.append((arriving, arriving, ((0,) * len(COMPONENTS),)))
            continue
        group = class_of_vertex[part.vertex >= 0]
        from_class = _FromClass(whole.of_part(part), group, count)
        endings = np.unique(group[group >= 0]).tolist()
        found += [(arriving, ending, from_class.planes(ending, corners)) for ending in endings]
    return found


def times_ns(classes: RankClasses, theta: dict[str, Fraction]) -> list[Fraction]:
    """Time of every entry of ``classes.planes`` with the parameters *theta*, in ns."""
    return [
        max(sum((n * theta[c] for c, n in zip(COMPONENTS, vector, strict=True)), Fraction(0)) for vector in vectors)
        for _, _, vectors in classes.planes
    ]


def fixed_at(classes: RankClasses, fabric: Fabric) -> RankClasses:
    """The same with the times it takes at the native point of *fabric*, in whole ns (halves up), whatever L and G."""
    rest = (0,) * (len(COMPONENTS) - 1)
    times = [(time + Fraction(1, 2)).__floor__() for time in times_ns(classes, fabric.theta())]
    planes = zip(classes.planes, times, strict=True)
    return replace(
        classes, planes=tuple((arriving, ending, ((time, *rest),)) for (arriving, ending, _), time in planes)
    )


class _FromClass:
    """Longest paths from one class to all others, evaluated once per point."""

    def __init__(self, evaluator: Evaluator, group: Ints, count: int) -> None:
        self.evaluator, self.group, self.count = evaluator, group, count
        self.known: dict[Point, tuple[Small, Ints]] = {}

    def planes(self, ending: int, corners: list[Point]) -> tuple[PathVector, ...]:
        """Vectors that are longest somewhere between *corners* on the way to the class *ending*."""
        vectors: dict[Plane, PathVector] = {}

        def tangent(where: Point) -> Plane:
            if where not in self.known:
                self.known[where] = self.evaluator.ends_at(where, self.group, self.count)
            tight, ends = self.known[where]
            vector = self.evaluator.vector(tight, int(ends[ending]))
            plane = self.evaluator.plane(vector)
            vectors[plane] = min(vectors.get(plane, vector), vector)
            return plane

        return tuple(sorted(vectors[plane] for plane in explore(corners, tangent).envelope.cells))
