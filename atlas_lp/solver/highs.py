"""HiGHS as an independent witness: the dual side of docs/model.md#planes.

The LP of a graph: minimise T subject to ``t_v >= t_u + w_uv(L, G)`` for every edge and ``T >= t_v`` for every
vertex without out-edges; L and G are columns fixed at the point.  The tree of tight in-edges of a longest
path is a basis of it, so HiGHS has to confirm optimality with zero pivots, and its reduced costs of L and G
are the slopes.  This module is the only one that imports highspy.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from atlas_lp.errors import InputError, OutputError, SolveError
from atlas_lp.files import prepend, replacement
from atlas_lp.goal.event_graph import COMPONENTS
from atlas_lp.solver.axis import Point
from atlas_lp.solver.longest_path import BYTES, MESSAGES, Evaluator, Longest

MAX_RELATIVE_DIFFERENCE = 1e-9

_NEAR, _APART = 14, 20
"""Power of two that times are scaled to, and powers that others may be away from it."""


@dataclass(frozen=True)
class CheckLimits:
    """How much is certified: rows x points of a graph with more rows than points, at least one point; and rows at all.

    HiGHS needs about 0.7 kB for each row.
    """

    row_points: int = 200_000
    rows: int = 1_200_000

    @classmethod
    def everything(cls) -> CheckLimits:
        """Every point of every graph."""
        return cls(sys.maxsize, sys.maxsize)

    @classmethod
    def nothing(cls) -> CheckLimits:
        """No point at all."""
        return cls(0, 0)


@dataclass(frozen=True)
class Certificate:
    """What an independent LP solver said of an envelope.

    *status* is ``optimal`` or ``skipped: <reason>``; *points* of the *points_of_interest* were solved, with *pivots*
    simplex iterations in all; *largest_relative_difference* compares objectives with the longest path.
    """

    solver: str
    status: str
    points: int
    points_of_interest: int
    pivots: int
    largest_relative_difference: float

    def as_json(self) -> dict[str, object]:
        """Return the fields as a plain dict."""
        return asdict(self)


@contextmanager
def _banner_hidden() -> Iterator[None]:
    """Hide what highspy prints to file descriptor 1 while its solver object is made."""
    libc = ctypes.CDLL(None)
    saved, null = os.dup(1), os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(null, 1)
        yield
        libc.fflush(None)
    finally:
        os.dup2(saved, 1)
        os.close(saved)
        os.close(null)


@lru_cache(maxsize=1)
def _solver() -> Any:
    """Return one HiGHS object for the process: serial dual simplex, no presolve."""
    import highspy

    with _banner_hidden():
        solver: Any = highspy.Highs()  # type: ignore[no-untyped-call]
        solver.setOptionValue("output_flag", False)
    for option, value in (
        ("presolve", "off"),
        ("solver", "simplex"),
        ("simplex_strategy", 1),
        ("parallel", "off"),
        ("threads", 1),
        ("simplex_scale_strategy", 0),
        # Bytes of a path are whole numbers of any size, not a careless infinity.
        ("large_matrix_value", 1e300),
    ):
        solver.setOptionValue(option, value)
    return solver


class LongestPathLP:
    """The LP of one graph inside HiGHS; columns are the V vertices, then T, L, G, all in units of ``1 / unit`` ns.

    L and G are scaled like times, so that their coefficients stay whole counts of messages and bytes.  With *in_ns* the
    unit is 1 ns and columns have names, to be written.
    Raises :class:`~atlas_lp.errors.SolveError` when HiGHS does not take the model.
    """

    def __init__(self, evaluator: Evaluator, largest_ns: float, in_ns: bool = False) -> None:
        import highspy

        self.evaluator = evaluator
        graph = evaluator.graph
        # A power of two that brings times near 2**14, where the solver's absolute tolerances are harmless.
        self.named = in_ns
        self.unit = 1.0 if in_ns else 2.0 ** (_NEAR - np.ceil(np.log2(max(largest_ns, 1.0))))
        has_out = np.zeros(graph.vertices, dtype=bool)
        has_out[graph.source] = True
        self.sinks = np.flatnonzero(~has_out)
        self.solver = _solver()
        self.solver.setOptionValue("presolve", "off")
        if self.solver.passModel(self._model()) == highspy.HighsStatus.kError:
            raise SolveError("HiGHS does not take a model with numbers of this size")

    def suits(self, time_ns: float) -> bool:
        """Whether a time is of a size where the solver's tolerances are harmless."""
        return bool(abs(np.log2(max(time_ns, 1.0) * self.unit) - _NEAR) <= _APART)

    def _model(self) -> Any:
        """One row per edge, then one per sink, as a row-wise matrix."""
        import highspy

        graph = self.evaluator.graph
        v, e, s = graph.vertices, graph.edges, len(self.sinks)
        columns = np.array(
            [float(self.evaluator.theta[c]) if c not in ("messages", "bytes") else 0.0 for c in COMPONENTS]
        )
        constant = (graph.costs @ columns)[graph.cost] * self.unit
        slopes = graph.costs[:, [MESSAGES, BYTES]][graph.cost]
        target = np.repeat(np.arange(v), np.diff(graph.in_start))
        index = np.empty((e, 4), dtype=np.int32)
        index[:, 0], index[:, 1], index[:, 2], index[:, 3] = target, graph.source, v + 1, v + 2
        value = np.empty((e, 4))
        value[:, 0], value[:, 1], value[:, 2:] = 1.0, -1.0, -slopes
        sink_index = np.stack([np.full(s, v), self.sinks], axis=1).astype(np.int32)
        # Entries that are zero must not be in the matrix.
        present = np.concatenate([(value != 0).ravel(), np.ones(2 * s, dtype=bool)])
        length = np.concatenate([(value != 0).sum(axis=1), np.full(s, 2)])
        lp = highspy.HighsLp()
        lp.num_col_, lp.num_row_ = v + 3, e + s
        lp.col_names_ = [*(f"t{vertex}" for vertex in range(v)), "T", "L", "G"] if self.named else []
        lp.col_cost_ = np.eye(1, v + 3, v).ravel()
        lp.col_lower_ = np.zeros(v + 3)
        lp.col_upper_ = np.concatenate([[0.0], np.full(v + 2, highspy.kHighsInf)])
        lp.row_lower_ = np.concatenate([constant, np.zeros(s)])
        lp.row_upper_ = np.full(e + s, highspy.kHighsInf)
        lp.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
        lp.a_matrix_.start_ = np.concatenate([[0], np.cumsum(length)]).astype(np.int32)
        lp.a_matrix_.index_ = np.concatenate([index.ravel(), sink_index.ravel()])[present]
        lp.a_matrix_.value_ = np.concatenate([value.ravel(), np.tile([1.0, -1.0], s)])[present]
        return lp

    def _basis(self, longest: Longest) -> Any:
        """Columns with a tight in-edge and T are basic; so are the rows that are not tight."""
        import highspy

        lower, basic = highspy.HighsBasisStatus.kLower, highspy.HighsBasisStatus.kBasic
        v = self.evaluator.graph.vertices
        rows = [basic] * (self.evaluator.graph.edges + len(self.sinks))
        for edge in longest.tight[1:].tolist():
            rows[edge] = lower
        end = int(np.searchsorted(self.sinks, longest.end))
        rows[self.evaluator.graph.edges + end] = lower
        basis = highspy.HighsBasis()
        basis.valid = True
        basis.col_status = [lower, *([basic] * v), lower, lower]
        basis.row_status = rows
        return basis

    def solve(self, where: Point, longest: Longest) -> tuple[float, float, float, int]:
        """Solve at *where* from the basis of *longest*: T in ns, both reduced costs, and pivots needed.

        Raises :class:`~atlas_lp.errors.SolveError` when HiGHS does not end with an optimum.
        """
        self.move(where)
        self.solver.setBasis(self._basis(longest))
        return self._run()

    def solve_cold(self, where: Point) -> tuple[float, float, float, int]:
        """Solve at *where* with presolve and no basis; results as of :meth:`solve`."""
        self.move(where)
        self.solver.setOptionValue("presolve", "on")
        return self._run()

    def solve_warm(self, where: Point) -> tuple[float, float, float, int]:
        """Solve at *where* by dual simplex from the basis of the solve before; results as of :meth:`solve`.

        On graphs whose bytes are many orders above their messages HiGHS may give up on the way: then it starts cold.
        """
        self.move(where)
        try:
            return self._run()
        except SolveError:
            self.solver.clearSolver()
            return self.solve_cold(where)

    def write(self, path: Path) -> None:
        """Write the LP at the point last moved to, as ``.mps`` or ``.lp``.

        Raises :class:`~atlas_lp.errors.InputError` for another ending or a path that cannot be written.
        """
        import highspy

        check_lp_name(path)
        with replacement(path) as temporary:
            status = self.solver.writeModel(str(temporary))
            # HiGHS does not tell when a disk is full: a file without its last word is not the LP.
            if status == highspy.HighsStatus.kError or not _is_whole(temporary):
                raise OutputError(path, "HiGHS could not write the whole of it")
            mark = "\\" if path.suffix == ".lp" else "*"
            words = _UNITS.format(last=self.evaluator.graph.vertices - 1).splitlines()
            prepend(temporary, "".join(f"{mark} {line}\n" for line in words))

    def move(self, where: Point) -> None:
        """Fix L and G at *where*."""
        v = self.evaluator.graph.vertices
        x, y, w = where
        for column, value in ((v + 1, x / w * self.unit), (v + 2, y / w * self.unit)):
            self.solver.changeColBounds(column, value, value)

    def _run(self) -> tuple[float, float, float, int]:
        import highspy

        self.solver.run()
        status = self.solver.getModelStatus()
        if status != highspy.HighsModelStatus.kOptimal:
            raise SolveError(f"HiGHS ended with {self.solver.modelStatusToString(status)} instead of an optimum")
        info = self.solver.getInfo()
        v = self.evaluator.graph.vertices
        dual = np.asarray(self.solver.getSolution().col_dual)
        return (
            info.objective_function_value / self.unit,
            float(dual[v + 1]),
            float(dual[v + 2]),
            int(info.simplex_iteration_count),
        )


def check_lp_name(path: Path) -> None:
    """Raise :class:`~atlas_lp.errors.InputError` when *path* does not end as an LP does."""
    if path.suffix not in _LAST_WORDS:
        raise InputError(f"{path}: an LP is written as .mps or .lp")


_UNITS = """The least time T of a LogGP graph: minimise T subject to t(v) - t(u) - m L - b G >= c for every edge u -> v.
Columns t0 to t{last}: times of the vertices of the graph in ns, t0 the start, in topological order; T in ns;
L, latency in ns, and G, gap in ns per byte, both fixed at the native point by their bounds.
m counts messages and b bytes of an edge, c is everything else in ns. The objective is T in ns."""

_LAST_WORDS = {".mps": b"ENDATA", ".lp": b"end"}


def _is_whole(path: Path) -> bool:
    """Whether the LP in *path* ends as its format does."""
    with path.open("rb") as file:
        file.seek(-min(path.stat().st_size, 64), os.SEEK_END)
        return file.read().rstrip().endswith(_LAST_WORDS[path.suffix])


def certify(evaluator: Evaluator, points: Sequence[Point], limits: CheckLimits | None = None) -> Certificate:
    """Solve the LP at *points* with HiGHS and compare with the longest path.

    Only the first points are solved when rows x points exceed the *limits*, none when rows do; the certificate says so.
    Raises :class:`~atlas_lp.errors.SolveError` for a relative difference above 1e-9.
    """
    import highspy

    solver_name = f"HiGHS {highspy.Highs.version(_solver())}"
    rows = evaluator.graph.edges + 1
    limits = limits or CheckLimits()
    if evaluator.missing:
        reason = f"skipped: {evaluator.missing} loops are left out of the graph, which it cannot repeat"
        return Certificate(solver_name, reason, 0, len(points), 0, 0.0)
    if rows > limits.rows:
        reason = f"skipped: {rows} rows are more than the limit of {limits.rows}"
        return Certificate(solver_name, reason, 0, len(points), 0, 0.0)
    chosen = points[: max(1, limits.row_points // rows)]
    found = [evaluator.at(where) for where in chosen]
    lp = LongestPathLP(evaluator, max(float(longest.time_ns) for longest in found))
    largest, pivots = 0.0, 0
    for where, longest in zip(chosen, found, strict=True):
        if not lp.suits(float(longest.time_ns)):
            lp = LongestPathLP(evaluator, float(longest.time_ns))
        objective, _, _, count = lp.solve(where, longest)
        exact = float(longest.time_ns)
        difference = abs(objective - exact) / max(abs(exact), 1.0)
        if difference > MAX_RELATIVE_DIFFERENCE:
            x, y, w = where
            raise SolveError(
                f"HiGHS says T = {objective} ns at L = {x / w} ns, G = {y / w} ns/B; the longest path says {exact} ns"
            )
        largest, pivots = max(largest, float(difference)), pivots + count
    return Certificate(solver_name, "optimal", len(chosen), len(points), pivots, largest)
