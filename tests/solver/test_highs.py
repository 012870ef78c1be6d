"""HiGHS as witness: it needs no pivot, says the same time and slopes, and is heard when it does not."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from helpers.graphs import fabric, graph_of, graph_of_lines, graphs, random_graph, schedules
from hypothesis import given
from hypothesis import strategies as st

from atlas_lp.errors import SolveError
from atlas_lp.fabrics.fabric import Fabric, load_fabric
from atlas_lp.goal import EventGraph, PortRule, Schedule, event_graph, parse_goal
from atlas_lp.signatures.algorithms.expand import expand
from atlas_lp.signatures.nccl.protocols import Protocol
from atlas_lp.signatures.signature import ring_signature
from atlas_lp.signatures.topology import assumed_rings
from atlas_lp.solver import highs as certificate
from atlas_lp.solver.axis import GAP, LATENCY, Point, point
from atlas_lp.solver.envelope import Box, slopes_at
from atlas_lp.solver.highs import CheckLimits, LongestPathLP, certify
from atlas_lp.solver.longest_path import Evaluator, Longest
from atlas_lp.solver.solve import certificate_points, solve

BOX = Box(Fraction(0), Fraction(200), Fraction(1, 100), Fraction(2))
NATIVE = fabric(100, Fraction(1, 25), o=Fraction(7, 3), g=2, up_latency_ns=5, up_gap_ns_per_byte=Fraction(1, 150))


def lp_and_longest(graph: EventGraph, chosen: Fabric, where: Point) -> tuple[LongestPathLP, Longest]:
    evaluator = Evaluator(graph, chosen.theta())
    longest = evaluator.at(where)
    return LongestPathLP(evaluator, float(longest.time_ns)), longest


def agrees(graph: EventGraph, chosen: Fabric, box: Box, latency: Fraction, gap: Fraction) -> None:
    where = point(latency, gap)
    lp, longest = lp_and_longest(graph, chosen, where)
    time, messages, bytes_, pivots = lp.solve(where, longest)
    assert pivots == 0
    assert time == pytest.approx(float(longest.time_ns), rel=1e-9, abs=1e-9)
    envelope = solve(graph, chosen, box)
    for slope, (left, right) in (
        (messages, slopes_at(envelope.along(LATENCY, gap), latency)),
        (bytes_, slopes_at(envelope.along(GAP, latency), gap)),
    ):
        assert left - 1e-6 <= slope <= right + 1e-6


@given(graphs(), st.fractions(0, 200, max_denominator=30), st.fractions(Fraction(1, 100), 2, max_denominator=100))
def test_small_graphs_with_ties(graph: EventGraph, latency: Fraction, gap: Fraction) -> None:
    agrees(graph, NATIVE, BOX, latency, gap)


@pytest.mark.parametrize("seed", range(20))
def test_random_graphs(seed: int) -> None:
    graph = random_graph(seed, 40 * (seed % 5 + 1), largest=(400, 2, 900, 2, 1, 2, 99))
    agrees(graph, NATIVE, BOX, Fraction(37 * seed, 4), Fraction(seed + 1, 12))
    found = solve(graph, NATIVE, BOX).certificate
    assert found is not None
    assert (found.status, found.pivots, found.points) == ("optimal", 0, found.points_of_interest)
    assert found.largest_relative_difference <= 1e-9
    assert found.solver.startswith("HiGHS 1.")


@given(schedules(), st.sampled_from(PortRule))
def test_schedules(schedule: Schedule, rule: PortRule) -> None:
    envelope = solve(event_graph(schedule, port_rule=rule), NATIVE, BOX)
    assert envelope.certificate is not None
    assert (envelope.certificate.status, envelope.certificate.pivots) == ("optimal", 0)


@pytest.mark.parametrize("reduce_copy", ["gh200", "none"])
def test_a_ring(reduce_copy: str) -> None:
    nodes = [rank // 4 for rank in range(16)]
    signature = ring_signature("AllReduce", Protocol.SIMPLE, 1 << 24, assumed_rings(nodes, 2), nodes, nccl="2.28.9")
    graph = event_graph(expand(signature, reduce_copy), np.array(signature.nodes))
    envelope = solve(graph, load_fabric("alps"))
    assert envelope.certificate is not None
    assert envelope.certificate.points >= 1
    assert (envelope.certificate.status, envelope.certificate.pivots) == ("optimal", 0)


def test_a_day_with_one_message() -> None:
    # Beside 24 hours of compute a millisecond of latency must not fall below what the solver takes for zero.
    graph = graph_of(2, [(0, 1, (86_400 * 10**9, 1, 0, 0, 0, 0, 0))])
    envelope = solve(graph, fabric(10**6, Fraction(1, 25)), Box())
    assert envelope.certificate is not None
    assert envelope.certificate.status == "optimal"


def test_reduced_costs_are_the_slopes_where_no_paths_tie() -> None:
    graph = graph_of(3, [(0, 1, (10, 2, 50, 0, 0, 0, 0)), (1, 2, (5, 1, 7, 0, 0, 0, 0)), (0, 2, (1, 1, 1, 0, 0, 0, 0))])
    where = point(Fraction(30), Fraction(1))
    lp, longest = lp_and_longest(graph, fabric(30, 1), where)
    assert lp.solve(where, longest) == pytest.approx((15 + 90 + 57, 3, 57, 0))


def test_a_wrong_basis_costs_pivots_and_changes_nothing() -> None:
    graph = random_graph(5, 60)
    near, far = point(Fraction(0), Fraction(1, 100)), point(Fraction(10_000), Fraction(1, 100))
    lp, there = lp_and_longest(graph, NATIVE, near)
    here = Evaluator(graph, NATIVE.theta()).at(far)
    time, _, _, pivots = lp.solve(far, there)
    assert pivots > 0
    assert time == pytest.approx(float(here.time_ns), rel=1e-9)
    assert lp.solve(far, here)[3] == 0


@contextmanager
def options_of_the_solver(**options: Any) -> Iterator[None]:
    solver = certificate._solver()
    before = {name: solver.getOptionValue(name)[1] for name in options}
    try:
        for name, value in options.items():
            solver.setOptionValue(name, value)
        yield
    finally:
        for name, value in before.items():
            solver.setOptionValue(name, value)


def test_no_optimum_is_an_error() -> None:
    graph = random_graph(5, 60)
    lp, there = lp_and_longest(graph, NATIVE, point(Fraction(0), Fraction(1, 100)))
    with options_of_the_solver(simplex_iteration_limit=0), pytest.raises(SolveError, match="instead of an optimum"):
        lp.solve(point(Fraction(10_000), Fraction(1, 100)), there)


@pytest.mark.parametrize("factor", [1 + Fraction(1, 10**8), 1 - Fraction(1, 10**8), Fraction(0)])
def test_a_wrong_time_is_an_error(monkeypatch: pytest.MonkeyPatch, factor: Fraction) -> None:
    right = Evaluator.at

    def wrong(self: Evaluator, where: Point) -> Longest:
        longest = right(self, where)
        return replace(longest, time_ns=longest.time_ns * factor)

    monkeypatch.setattr(Evaluator, "at", wrong)
    evaluator = Evaluator(random_graph(2, 30), NATIVE.theta())
    with pytest.raises(SolveError, match=r"HiGHS says T = .* ns/B; the longest path says") as caught:
        certify(evaluator, [point(Fraction(100), Fraction(1, 25))])
    assert caught.value.exit_code == 2


def test_a_wrong_path_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """An engine that overlooks an edge everywhere is caught, because the solver sees all of them."""
    whole = graph_of_lines([(10, 1), (4, 3), (0, 4)])
    less = graph_of_lines([(10, 1), (4, 3)])
    right = Evaluator.at
    monkeypatch.setattr(Evaluator, "at", lambda self, where: right(Evaluator(less, self.theta), where))
    with pytest.raises(SolveError):
        solve(whole, fabric(1, 1), BOX)


def test_graphs_beyond_the_limits_are_certified_less_or_not() -> None:
    graph = random_graph(1, 40)
    evaluator = Evaluator(graph, NATIVE.theta())
    points = [point(Fraction(k), Fraction(1)) for k in range(5)]
    rows = graph.edges + 1
    assert certify(evaluator, points, CheckLimits(row_points=3 * rows)).points == 3
    one = certify(evaluator, points, CheckLimits(row_points=1))
    assert (one.status, one.points, one.points_of_interest) == ("optimal", 1, 5)
    none = certify(evaluator, points, CheckLimits(rows=rows - 1))
    assert none.status == f"skipped: {rows} rows are more than the limit of {rows - 1}"
    assert (none.points, none.pivots) == (0, 0)
    assert none.as_json()["status"] == none.status


def test_the_native_point_is_certified_first_and_breakpoints_next() -> None:
    envelope = solve(graph_of_lines([(10, 1), (4, 3), (0, 4)]), fabric(1, 1), BOX)
    points = certificate_points(envelope, fabric(1, 1))
    assert points[0] == (1, 1, 1)
    assert points[1:3] == [(3, 1, 1), (4, 1, 1)]
    assert set(BOX.corners()) <= set(points)
    assert len(points) == len(set(points))


def test_nothing_is_printed(capfd: pytest.CaptureFixture[str]) -> None:
    certificate._solver.cache_clear()
    solve(random_graph(3, 30), NATIVE, BOX)
    solve(random_graph(4, 30), NATIVE, BOX)
    assert capfd.readouterr() == ("", "")


def one_message(size: int, before: str = "") -> EventGraph:
    """Rank 0 sends *size* bytes to rank 1, *before* it what is given."""
    return event_graph(
        parse_goal(f"num_ranks 2\nrank 0 {{\n{before}s: send {size}b to 1\n}}\nrank 1 {{\nrecv {size}b from 0\n}}")
    )


@pytest.mark.parametrize("ending", [".lp", ".mps"])
def test_a_written_lp_is_in_ns_and_says_so(tmp_path, ending):
    """HiGHS reads it again, and its optimum is T in ns; columns and units are named at its head."""
    import highspy

    evaluator = Evaluator(one_message(8001, "calc 1000000\n"), NATIVE.theta())
    where = point(*NATIVE.native)
    lp = LongestPathLP(evaluator, 1.0, in_ns=True)
    lp.move(where)
    path = tmp_path / f"x{ending}"
    lp.write(path)
    head = path.read_text("ascii").splitlines()[:4]
    assert "Columns t0 to t3: times of the vertices of the graph in ns" in head[1]
    again = highspy.Highs()
    again.setOptionValue("output_flag", False)
    again.readModel(str(path))
    again.run()
    assert again.getInfo().objective_function_value == pytest.approx(float(evaluator.at(where).time_ns), rel=1e-12)
    assert set(again.getLp().col_names_) == {"t0", "t1", "t2", "t3", "T", "L", "G"}


@pytest.mark.parametrize("size", [10**15 + 2, 10**17, 3 * 10**18])
def test_messages_of_any_size_are_confirmed(size):
    assert solve(one_message(size), NATIVE, BOX).certificate.status == "optimal"


def test_a_box_of_30_years_is_confirmed():
    """Times from ns to years in one envelope: each is compared in a unit of its own."""
    certificate = solve(one_message(8), NATIVE, Box(latency_to_ns=Fraction(10**18))).certificate
    assert certificate.status == "optimal"
    assert certificate.largest_relative_difference < 1e-12
