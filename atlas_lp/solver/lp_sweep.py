"""The paper's own way to T(L) and T(G): one LP, a grid of points, dual simplex warm starts (``--solver sweep``).

Source: the compositional analysis of NCCL traces, section III.A, step 3: raise the lower bound of the swept parameter,
re-optimise from the basis before, read the slope from the reduced cost, collect the pieces of all points.  Kept as
reference and baseline: breakpoints come out as grid points, and pieces shorter than a step are missed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction

from atlas_lp.fabrics.fabric import Fabric
from atlas_lp.goal.event_graph import EventGraph
from atlas_lp.solver.axis import Axis
from atlas_lp.solver.highs import LongestPathLP
from atlas_lp.solver.longest_path import Evaluator


@dataclass(frozen=True)
class SweepPoint:
    """One grid point: the parameter *x*, T in ns, the reduced cost (messages or bytes), and simplex pivots."""

    x: Fraction
    time_ns: float
    slope: float
    pivots: int


@dataclass(frozen=True)
class SweepPiece:
    """A piece as the grid shows it: the first and last point with this slope, and its line."""

    start: Fraction
    stop: Fraction
    constant_ns: float
    slope: float


def sweep(
    graph: EventGraph,
    fabric: Fabric,
    axis: Axis,
    values: Sequence[Fraction],
    progress: Callable[[int], None] | None = None,
) -> list[SweepPoint]:
    """Solve the LP of *graph* with HiGHS at every one of *values* along *axis*, the other variable native.

    The first solve is cold, with presolve; the others warm.  Raises :class:`~atlas_lp.errors.SolveError` when HiGHS
    does not end with an optimum.
    """
    wheres = [axis.point(x, axis.other.of(fabric.native)) for x in sorted(values)]
    evaluator = Evaluator(graph, fabric.theta())
    lp = LongestPathLP(evaluator, float(evaluator.at(wheres[-1]).time_ns))
    result = []
    for number, (x, where) in enumerate(zip(sorted(values), wheres, strict=True)):
        time, *slopes, pivots = lp.solve_warm(where) if number else lp.solve_cold(where)
        result.append(SweepPoint(x, time, slopes[axis.index], pivots))
        if progress is not None:
            progress(number + 1)
    return result


def pieces_of(points: Sequence[SweepPoint]) -> list[SweepPiece]:
    """Pieces collected over the grid: neighbouring points with equal slope are one."""
    pieces: list[SweepPiece] = []
    for p in points:
        if pieces and abs(pieces[-1].slope - p.slope) <= 1e-6 * max(1.0, abs(p.slope)):
            last = pieces[-1]
            pieces[-1] = SweepPiece(last.start, p.x, last.constant_ns, last.slope)
        else:
            pieces.append(SweepPiece(p.x, p.x, p.time_ns - p.slope * float(p.x), p.slope))
    return pieces
