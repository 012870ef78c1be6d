"""From an event graph to its exact envelope over a box, with a solver check (docs/model.md#all-planes)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from itertools import zip_longest
from typing import TypedDict

from atlas_lp.errors import InputError
from atlas_lp.fabrics.fabric import Fabric
from atlas_lp.goal.event_graph import COMPONENTS, EventGraph
from atlas_lp.solver.axis import AXES, Point, point
from atlas_lp.solver.envelope import Box, Envelope, Piece, fixed_values, upper_pieces
from atlas_lp.solver.highs import CheckLimits, certify
from atlas_lp.solver.longest_path import Evaluator, PathVector, Plane
from atlas_lp.solver.upper_envelope import explore

PlanesFound = Callable[[int], None]
"""Called with the number of planes known, after every evaluation."""


_LEAST_EVALUATIONS, _MOST_EVALUATIONS, _EDGES_LOOKED_AT = 2_000, 200_000, 10**10


class How(TypedDict, total=False):
    """Keywords of :func:`solve` that others pass on."""

    limits: CheckLimits | None
    progress: PlanesFound | None
    tolerance: Fraction
    evaluate: Evaluate


Evaluate = Callable[[EventGraph, Fabric], Evaluator]
"""Makes what evaluates a graph on a fabric."""


def as_it_is(graph: EventGraph, fabric: Fabric) -> Evaluator:
    """Evaluate *graph* as it is."""
    return Evaluator(graph, fabric.theta())


def solve(
    graph: EventGraph,
    fabric: Fabric,
    box: Box | None = None,
    *,
    limits: CheckLimits | None = None,
    progress: PlanesFound | None = None,
    tolerance: Fraction = Fraction(0),
    evaluate: Evaluate = as_it_is,
) -> Envelope:
    """Return the exact envelope of *graph* over *box*, certified by HiGHS.

    *fabric* gives the fixed parameters and the native point, which only chooses where to certify; *limits* says how
    much.  With a *tolerance* (relative) planes that would raise T by less are not looked for; beyond the
    :func:`budget` of a graph it grows by itself.  The result says how far it may be off.  *evaluate* makes another
    :class:`Evaluator`, of a graph that stands for a longer one.

    Raises :class:`~atlas_lp.errors.InputError` when the native point lies outside the box, and
    :class:`~atlas_lp.errors.SolveError` when HiGHS disagrees.  Cost: at most vertices + planes of the
    envelope evaluations of O(V + E) each, independent of any number of parameter points.
    """
    box = box or Box()
    box.check(*fabric.native)
    theta = fabric.theta()
    evaluator = evaluate(graph, fabric)
    vectors: dict[Plane, PathVector] = {}

    def tangent(where: Point) -> Plane:
        vector = evaluator.at(where).vector
        plane = evaluator.plane(vector)
        # Different vectors can be one plane at these fixed parameters: keep the smallest.
        vectors[plane] = min(vectors.get(plane, vector), vector)
        return plane

    found = explore(box.corners(), tangent, progress, tolerance, budget(graph.edges))
    chosen = tuple(sorted(vectors[plane] for plane in found.envelope.cells))
    result = Envelope(chosen, fixed_values(theta), box, tolerance_reached=float(found.reached))
    certificate = certify(evaluator, certificate_points(result, fabric), limits)
    return replace(result, certificate=certificate)


def budget(edges: int) -> int:
    """Evaluations of a graph after which planes that matter less are not looked for (tens of seconds on one core)."""
    return min(_MOST_EVALUATIONS, max(_LEAST_EVALUATIONS, _EDGES_LOOKED_AT // max(edges, 1)))


def solve_along(graph: EventGraph, fabric: Fabric, component: str, low: Fraction, high: Fraction) -> list[Piece]:
    """Exact pieces of T along the parameter of one *component*, from *low* to *high*, all others as in *fabric*.

    The component is any of :data:`~atlas_lp.goal.event_graph.COMPONENTS`: ``messages`` for L, ``bytes`` for G,
    ``calc_ns`` for a factor on all compute, ``overheads``, ``gaps``, ``up_messages``, ``up_bytes``.  Two-tangent
    recursion (Eisner and Severance): about 2 k + 1 longest paths for k pieces.

    Raises :class:`~atlas_lp.errors.InputError` for an unknown component or an empty range.
    """
    if component not in COMPONENTS:
        raise InputError(f"{component!r} is no component; choose one of {', '.join(COMPONENTS)}")
    if not 0 <= low < high:
        raise InputError("the range must rise from 0 or more")
    other = "bytes" if component != "bytes" else "messages"
    theta = fabric.theta()
    evaluator = Evaluator(graph, theta, (component, other))

    def line_at(x: Fraction) -> tuple[Fraction, int]:
        constant, slope, rest = evaluator.plane(evaluator.at(point(x, theta[other])).vector)
        return Fraction(constant + rest * theta[other], evaluator.scale), slope // evaluator.scale

    ends = [(low, line_at(low)), (high, line_at(high))]
    lines = {ends[0][1], ends[1][1]}
    pending = [(*ends[0], *ends[1])]
    while pending:
        left, left_line, right, right_line = pending.pop()
        if left_line[1] == right_line[1]:
            continue
        x = (left_line[0] - right_line[0]) / (right_line[1] - left_line[1])
        if not left < x < right:
            continue
        line = line_at(x)
        if line[0] + line[1] * x > left_line[0] + left_line[1] * x:
            lines.add(line)
            pending += [(left, left_line, x, line), (x, line, right, right_line)]
    return upper_pieces(lines, low, high)


def certificate_points(envelope: Envelope, fabric: Fabric) -> list[Point]:
    """Where to ask HiGHS: native point, then breakpoints of T(L) and T(G) in turn, midpoints in turn, corners."""
    points = [point(*fabric.native)]
    held = [(axis, axis.other.of(fabric.native)) for axis in AXES]
    pieces = [(axis, rest, envelope.along(axis, rest)) for axis, rest in held]
    for marks in (_breakpoints, _midpoints):
        sides = [[axis.point(x, rest) for x in marks(found)] for axis, rest, found in pieces]
        points += [p for pair in zip_longest(*sides) for p in pair if p is not None]
    return list(dict.fromkeys([*points, *envelope.box.corners()]))


def _breakpoints(pieces: list[Piece]) -> list[Fraction]:
    return [piece.start for piece in pieces[1:]]


def _midpoints(pieces: list[Piece]) -> list[Fraction]:
    return [(piece.start + piece.stop) / 2 for piece in pieces]
