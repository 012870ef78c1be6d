"""Solving in any direction, stopping early, the paper's sweep as reference, and laws that any answer must obey."""

from fractions import Fraction

import numpy as np
import pytest
from helpers.graphs import all_paths, brute_force, fabric, graph_of, path_time, random_graph, schedules
from hypothesis import assume, given, reject
from hypothesis import strategies as st

from atlas_lp.errors import CycleError, InputError
from atlas_lp.goal import COMPONENTS, EventGraph, PortRule, Schedule, event_graph
from atlas_lp.solver.axis import AXES, GAP, LATENCY, point
from atlas_lp.solver.envelope import Box
from atlas_lp.solver.highs import CheckLimits, certify
from atlas_lp.solver.longest_path import Evaluator
from atlas_lp.solver.lp_sweep import pieces_of, sweep
from atlas_lp.solver.solve import solve, solve_along
from atlas_lp.solver.upper_envelope import explore

NATIVE = fabric(30, Fraction(1, 10), 7, 3, up_latency_ns=2, up_gap_ns_per_byte=Fraction(1, 150))
BOX = Box(Fraction(0), Fraction(400), Fraction(1, 1000), Fraction(5))


@pytest.mark.parametrize("component", COMPONENTS)
@pytest.mark.parametrize("seed", range(4))
def test_any_direction_equals_all_paths(component, seed):
    graph = random_graph(seed, 9)
    pieces = solve_along(graph, NATIVE, component, Fraction(0), Fraction(50))
    assert (pieces[0].start, pieces[-1].stop) == (0, 50)
    paths = list(all_paths(graph))
    marks = [p.start for p in pieces] + [(p.start + p.stop) / 2 for p in pieces] + [Fraction(50)]
    for x in marks:
        theta = {**NATIVE.theta(), component: x}
        assert max(p.at(x) for p in pieces) == max(path_time(v, theta) for v in paths)


def test_latency_direction_is_the_cut_through_the_joint_envelope():
    graph = random_graph(11, 80)
    joint = solve(graph, NATIVE, BOX)
    assert solve_along(graph, NATIVE, "messages", Fraction(0), Fraction(400)) == joint.along(LATENCY, Fraction(1, 10))
    assert solve_along(graph, NATIVE, "bytes", Fraction(1, 1000), Fraction(5)) == joint.along(GAP, Fraction(30))


@pytest.mark.parametrize(("component", "low", "high"), [("speed", 0, 1), ("messages", 2, 1), ("bytes", -1, 1)])
def test_directions_that_make_no_sense(component, low, high):
    with pytest.raises(InputError):
        solve_along(random_graph(0, 5), NATIVE, component, Fraction(low), Fraction(high))


@pytest.mark.parametrize("percent", [2, 5, 20])
def test_a_tolerance_keeps_its_word(percent):
    graph = random_graph(3, 200, largest=(4000, 9, 900, 2, 1, 2, 99))
    exact = solve(graph, NATIVE, BOX)
    rough = solve(graph, NATIVE, BOX, tolerance=Fraction(percent, 100))
    assert len(rough.vectors) < len(exact.vectors)
    assert 0 <= rough.tolerance_reached <= percent / 100
    assert exact.tolerance_reached == 0
    rng = np.random.default_rng(percent)
    for latency, gap in zip(rng.integers(0, 401, 200).tolist(), rng.integers(1, 5001, 200).tolist(), strict=True):
        where = Fraction(latency), Fraction(gap, 1000)
        low, true = rough.time_ns(*where), exact.time_ns(*where)
        assert low <= true <= low * (1 + Fraction(rough.tolerance_reached) + Fraction(1, 10**12))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("axis", AXES, ids=lambda axis: axis.name)
def test_the_sweep_of_the_paper_agrees_at_every_grid_point(seed, axis):
    graph = random_graph(seed, 400)
    exact = solve(graph, NATIVE, BOX)
    low, high = BOX.range(axis)
    values = [low + i * (high - low) / 40 for i in range(41)]
    points = sweep(graph, NATIVE, axis, values)
    pieces = exact.along(axis, axis.other.of(NATIVE.native))
    for found in points:
        assert found.time_ns == pytest.approx(float(max(p.at(found.x) for p in pieces)), rel=1e-9)
        around = [p.slope for p in pieces if p.start <= found.x <= p.stop]
        assert min(around) - 1e-6 <= found.slope <= max(around) + 1e-6
    assert len(pieces_of(points)) <= len(pieces)


@pytest.mark.parametrize("seed", range(3))
def test_highs_agrees_at_every_breakpoint_and_every_vertex_of_the_joint_envelope(seed):
    graph = random_graph(seed, 300)
    evaluator = Evaluator(graph, NATIVE.theta())
    found = explore(BOX.corners(), lambda where: evaluator.plane(evaluator.at(where).vector))
    vertices = sorted({vertex for polygon in found.envelope.cells.values() for vertex in polygon})
    assert len(vertices) >= 10
    joint = certify(evaluator, vertices, CheckLimits.everything())
    along = solve(graph, NATIVE, BOX, limits=CheckLimits.everything()).certificate
    for certificate in (joint, along):
        assert certificate.points == certificate.points_of_interest
        assert certificate.pivots == 0
        assert certificate.largest_relative_difference <= 1e-9


def test_the_sweep_steps_over_breakpoints_that_the_envelope_has():
    lines = [(0, 1, (1000 - i * i, i, 0, 0, 0, 0, 0)) for i in range(20)]
    graph = graph_of(2, lines)
    native = fabric(1, Fraction(1, 10))
    exact = solve(graph, native, Box(Fraction(0), Fraction(60))).along(LATENCY, Fraction(1, 10))
    coarse = pieces_of(sweep(graph, native, LATENCY, [Fraction(0), Fraction(20), Fraction(60)]))
    assert len(exact) == 20
    assert len(coarse) < len(exact)


def test_an_lp_can_be_written_and_read_by_the_solver(tmp_path):
    import highspy

    from atlas_lp.solver.highs import LongestPathLP, _banner_hidden

    graph = random_graph(5, 30)
    evaluator = Evaluator(graph, NATIVE.theta())
    where = point(Fraction(30), Fraction(1, 10))
    exact = float(evaluator.at(where).time_ns)
    for ending in (".mps", ".lp"):
        lp = LongestPathLP(evaluator, exact)
        lp.solve_cold(where)
        lp.write(tmp_path / f"x{ending}")
        with _banner_hidden():
            reader = highspy.Highs()
            reader.setOptionValue("output_flag", False)
        reader.readModel(str(tmp_path / f"x{ending}"))
        reader.run()
        assert reader.getInfo().objective_function_value / lp.unit == pytest.approx(exact, rel=1e-9)
    with pytest.raises(InputError, match=r"written as \.mps or \.lp"):
        lp.write(tmp_path / "x.txt")


# --- laws -------------------------------------------------------------------------------------------------

WHERE = st.tuples(st.integers(0, 400), st.integers(1, 500))


def time(graph: EventGraph, latency: int, gap: int, native=NATIVE) -> Fraction:
    return Evaluator(graph, native.theta()).at(point(Fraction(latency), Fraction(gap, 100))).time_ns


@given(schedules(), WHERE, st.integers(2, 9))
def test_scaling_times_and_parameters_scales_the_result(schedule: Schedule, where, k):
    from dataclasses import replace

    longer = replace(schedule, size=np.where(schedule.kind == 0, schedule.size * k, schedule.size))
    slower = fabric(0, 0, 7 * k, 3 * k, up_latency_ns=2 * k, up_gap_ns_per_byte=Fraction(k, 150))
    once = time(event_graph(schedule), *where)
    assert time(event_graph(longer), where[0] * k, where[1] * k, slower) == k * once


@given(schedules(), WHERE, st.randoms(use_true_random=False))
def test_one_more_dependency_never_lowers_the_result(schedule: Schedule, where, rng):
    from dataclasses import replace

    n = len(schedule)
    pairs = [(a, b) for a in range(n) for b in range(a + 1, n) if schedule.rank[a] == schedule.rank[b]]
    assume(pairs)
    a, b = rng.choice(pairs)
    more = replace(
        schedule,
        before=np.append(schedule.before, a),
        after=np.append(schedule.after, b),
        on_start=np.append(schedule.on_start, False),
    )
    rule = PortRule.NONE  # a dependency may change the issue order, which a queue would feel
    try:
        after = time(event_graph(more, port_rule=rule), *where)
    except CycleError:
        reject()
    assert after >= time(event_graph(schedule, port_rule=rule), *where)


@given(schedules(), WHERE, WHERE, st.integers(0, 10))
def test_the_result_is_convex_and_does_not_fall(schedule: Schedule, one, other, tenths):
    graph = event_graph(schedule)
    evaluator = Evaluator(graph, NATIVE.theta())
    share = Fraction(tenths, 10)
    points = [(Fraction(latency), Fraction(gap, 100)) for latency, gap in (one, other)]
    middle = tuple(share * a + (1 - share) * b for a, b in zip(*points, strict=True))
    t = [evaluator.at(point(*p)).time_ns for p in (*points, middle)]
    assert t[2] <= share * t[0] + (1 - share) * t[1]
    above = tuple(max(a, b) for a, b in zip(*points, strict=True))
    assert evaluator.at(point(*above)).time_ns >= max(t)


@given(schedules(on_start=False), WHERE, st.permutations(range(3)))
def test_renaming_ranks_changes_nothing(schedule: Schedule, where, names):
    """Without queues across ranks the numbers of ranks are only names."""
    from dataclasses import replace

    new = np.argsort(names[: schedule.ranks])
    rank = new[schedule.rank]
    order = np.argsort(rank, kind="stable")
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    peer = np.where(schedule.peer < 0, -1, new[schedule.peer])
    columns = {name: getattr(schedule, name)[order] for name in ("kind", "size", "tag", "cpu", "nic")}
    renamed = replace(
        schedule,
        **columns,
        rank=rank[order],
        peer=peer[order],
        before=place[schedule.before],
        after=place[schedule.after],
    )
    assert time(event_graph(renamed), *where) == time(event_graph(schedule), *where)


@given(st.integers(0, 50), WHERE)
def test_two_runs_give_the_same_planes_in_the_same_order(seed, where):
    graph = random_graph(seed, 30)
    one, two = (solve(graph, NATIVE, BOX, limits=CheckLimits.nothing()).vectors for _ in range(2))
    assert one == two
    theta = NATIVE.theta() | {"messages": Fraction(where[0]), "bytes": Fraction(where[1], 100)}
    small = random_graph(seed, 8)
    assert time(small, *where) == brute_force(small, theta)
