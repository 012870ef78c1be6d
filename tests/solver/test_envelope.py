"""T(L, G), T(L) and T(G): every breakpoint, every plane, and the questions asked of them."""

import random
from fractions import Fraction
from itertools import pairwise

import pytest
from helpers.graphs import all_paths, brute_force, fabric, graph_of, graph_of_lines, graphs, random_graph
from hypothesis import given
from hypothesis import strategies as st
from oracles import paths
from oracles.areas import highest_area

from atlas_lp.errors import InputError
from atlas_lp.fabrics.fabric import Fabric
from atlas_lp.goal import EventGraph
from atlas_lp.solver.axis import GAP, LATENCY, point
from atlas_lp.solver.envelope import Box, Envelope, Piece, furthest, slopes_at, upper_pieces
from atlas_lp.solver.longest_path import Evaluator
from atlas_lp.solver.solve import solve

BOX = Box(Fraction(0), Fraction(200), Fraction(1, 100), Fraction(2))
NATIVE = fabric(100, Fraction(1, 25), o=Fraction(7, 3), g=2, up_latency_ns=5, up_gap_ns_per_byte=Fraction(1, 150))

in_latency = st.fractions(0, 200, max_denominator=60)
in_gap = st.fractions(Fraction(1, 100), 2, max_denominator=100)


def exact(graph: EventGraph, chosen: Fabric, latency: Fraction, gap: Fraction) -> Fraction:
    return Evaluator(graph, chosen.theta()).at(point(latency, gap)).time_ns


def check_pieces(pieces: list[Piece], lines: set[tuple[Fraction, int]], start: Fraction, stop: Fraction) -> None:
    """The pieces are the maximum of *lines* on start..stop, each of positive length, slopes rising."""
    assert (pieces[0].start, pieces[-1].stop) == (start, stop)
    assert all(piece.start < piece.stop for piece in pieces)
    for left, right in pairwise(pieces):
        assert left.stop == right.start
        assert left.at(left.stop) == right.at(right.start)
        assert left.slope < right.slope
    assert [piece.start for piece in pieces[1:]] == paths.breakpoints(lines, start, stop)
    for piece in pieces:
        for x in (piece.start, (piece.start + piece.stop) / 2, piece.stop):
            assert piece.at(x) == max(c + s * x for c, s in lines)


@given(graphs(), in_latency, in_gap)
def test_pieces_against_all_paths(graph: EventGraph, latency: Fraction, gap: Fraction) -> None:
    envelope = solve(graph, NATIVE, BOX)
    planes = {(envelope.constant_ns(v), v[1], v[2]) for v in all_paths(graph)}
    by_latency = {(c + b * gap, m) for c, m, b in planes}
    check_pieces(envelope.along(LATENCY, gap), by_latency, Fraction(0), Fraction(200))
    by_gap = {(c + m * latency, b) for c, m, b in planes}
    check_pieces(envelope.along(GAP, latency), by_gap, Fraction(1, 100), Fraction(2))


@given(graphs(), st.lists(st.tuples(in_latency, in_gap), min_size=1, max_size=5))
def test_the_joint_envelope_against_all_paths(graph: EventGraph, points: list[tuple[Fraction, Fraction]]) -> None:
    envelope = solve(graph, NATIVE, BOX)
    for latency, gap in points:
        assert envelope.time_ns(latency, gap) == brute_force(
            graph, NATIVE.at(latency_ns=latency, gap_ns_per_byte=gap).theta()
        )
    assert set(envelope.vectors) <= set(all_paths(graph))


@pytest.mark.parametrize("seed", range(6))
def test_the_joint_envelope_of_larger_graphs(seed: int) -> None:
    rng = random.Random(seed)
    graph = random_graph(seed, 300, largest=(400, 2, 900, 2, 1, 2, 99))
    envelope = solve(graph, NATIVE, BOX)
    for _ in range(40):
        latency, gap = Fraction(rng.randint(0, 20_000), 100), Fraction(rng.randint(1, 200), 100)
        assert envelope.time_ns(latency, gap) == exact(graph, NATIVE, latency, gap)
    for _ in range(4):
        gap = Fraction(rng.randint(1, 200), 100)
        for left, right in pairwise(envelope.along(LATENCY, gap)):
            # At a breakpoint both sides hold, and just beside it only one of them.
            assert exact(graph, NATIVE, left.stop, gap) == left.at(left.stop) == right.at(left.stop)
            beside = left.stop + Fraction(1, 10**6)
            assert exact(graph, NATIVE, beside, gap) == right.at(beside) > left.at(beside)


@pytest.mark.parametrize("seed", range(6))
def test_every_plane_is_highest_somewhere_in_the_box(seed: int) -> None:
    envelope = solve(random_graph(seed, 120, largest=(400, 2, 900, 2, 1, 2, 99)), NATIVE, BOX)
    planes, corners = envelope.planes(), BOX.corners()
    areas = [highest_area(plane, planes, corners) for plane in planes]
    assert len(planes) > 1
    assert min(areas) > 0
    assert sum(areas) == 200 * (2 - Fraction(1, 100))


# --- the four solver tests (field_reports 5.1) ---------------------------------------------------------------------


def along_latency(lines: list[tuple[int, int]], stop: int = 10) -> list[Piece]:
    box = Box(Fraction(0), Fraction(stop), Fraction(1, 100), Fraction(2))
    return solve(graph_of_lines(lines), fabric(1, 1), box).along(LATENCY, Fraction(1))


def breakpoints(pieces: list[Piece]) -> list[Fraction]:
    return [piece.start for piece in pieces[1:]]


def slopes(pieces: list[Piece]) -> list[int]:
    return [piece.slope for piece in pieces]


def test_s1_a_walk_would_stall_at_a_breakpoint() -> None:
    pieces = along_latency([(10, 1), (4, 3), (0, 4)])
    assert (breakpoints(pieces), slopes(pieces)) == ([3, 4], [1, 3, 4])


def graph_of_field_reports(rng: random.Random, n: int) -> EventGraph:
    """The random graphs of field_reports 5.2, call by call."""
    edges = []
    for v in range(1, n):
        for u in rng.sample(range(v), min(v, 3)):
            constant, slope = rng.randint(0, 40), rng.randint(0, 3)
            edges.append((u, v, (constant, slope, 0, 0, 0, 0, 0)))
    return graph_of(n, edges)


def test_s2_bases_change_where_slopes_do_not() -> None:
    box = Box(Fraction(0), Fraction(200), Fraction(1, 100), Fraction(2))
    counts = []
    for seed in range(60):
        rng = random.Random(seed)
        graph = graph_of_field_reports(rng, rng.choice([20, 60, 150]))
        pieces = solve(graph, fabric(1, 1), box).along(LATENCY, Fraction(1))
        counts.append(len(breakpoints(pieces)))
    assert sum(counts) == 140


def test_s2_the_graph_of_seed_1() -> None:
    box = Box(Fraction(0), Fraction(100), Fraction(1, 100), Fraction(2))
    pieces = solve(graph_of_field_reports(random.Random(1), 60), fabric(1, 1), box).along(LATENCY, Fraction(1))
    assert breakpoints(pieces) == [2, Fraction(35, 3)]


def test_s3_breakpoints_one_ns_apart() -> None:
    # Slopes 1, 2, 3 with breakpoints at 5000 and 5001 ns.
    pieces = along_latency([(10_001, 1), (5001, 2), (0, 3)], stop=100_000)
    assert (breakpoints(pieces), slopes(pieces)) == ([5000, 5001], [1, 2, 3])


def test_s4_ties_are_an_interval_of_slopes() -> None:
    pieces = along_latency([(10, 1), (4, 3)])
    assert slopes_at(pieces, Fraction(3)) == (1, 3)
    assert slopes_at(pieces, Fraction(2)) == (1, 1)
    assert slopes_at(pieces, Fraction(4)) == (3, 3)
    assert slopes_at(pieces, Fraction(0)) == (1, 1)
    assert slopes_at(pieces, Fraction(10)) == (3, 3)


def test_s4_three_paths_through_one_point() -> None:
    pieces = along_latency([(10, 1), (7, 2), (4, 3)])
    assert slopes_at(pieces, Fraction(3)) == (1, 3)
    with pytest.raises(InputError, match="outside the range"):
        slopes_at(pieces, Fraction(11))


def test_equal_planes_of_different_paths_are_one() -> None:
    # o = 2: one overhead or 2 ns of calc are the same plane; the smaller vector stands for both.
    graph = graph_of(3, [(0, 1, (2, 1, 0, 0, 0, 0, 0)), (0, 2, (0, 1, 0, 1, 0, 0, 0))])
    assert solve(graph, fabric(1, 1, o=2), BOX).vectors in (((0, 1, 0, 1, 0, 0, 0),), ((2, 1, 0, 0, 0, 0, 0),))


# --- lines and tolerances ------------------------------------------------------------------------------------------

small_lines = st.lists(st.tuples(st.fractions(0, 20, max_denominator=4), st.integers(0, 5)), min_size=1, max_size=8)


@given(small_lines)
def test_upper_pieces_are_the_maximum(lines: list[tuple[Fraction, int]]) -> None:
    check_pieces(upper_pieces(lines, Fraction(1), Fraction(7)), set(lines), Fraction(1), Fraction(7))


@given(small_lines, st.fractions(0, 60, max_denominator=8))
def test_furthest_is_where_the_limit_is_reached(lines: list[tuple[Fraction, int]], limit: Fraction) -> None:
    pieces = upper_pieces(lines, Fraction(0), Fraction(7))

    def time(x: Fraction) -> Fraction:
        return max(c + s * x for c, s in lines)

    if time(Fraction(0)) > limit:
        with pytest.raises(InputError, match="whole range"):
            furthest(pieces, limit)
        return
    x = furthest(pieces, limit)
    if x is None:
        assert time(Fraction(7)) <= limit
    else:
        assert 0 <= x < 7
        assert time(x) == limit
        assert time(x + Fraction(1, 10**9)) > limit


def test_the_tolerance_of_an_envelope() -> None:
    # 10 % over T(1) = 11 is 12.1, on the first piece; twice 11 is reached on the last.
    pieces = along_latency([(10, 1), (4, 3), (0, 4)])
    assert furthest(pieces, Fraction(121, 10)) == Fraction(21, 10)
    assert furthest(pieces, Fraction(22)) == Fraction(22, 4)
    assert furthest(pieces, Fraction(13)) == 3
    assert furthest(pieces, Fraction(40)) is None
    assert furthest(pieces, Fraction(39)) == Fraction(39, 4)


# --- boxes ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("bounds", "said"),
    [
        ((1, 1, 0, 1), "latency range"),
        ((2, 1, 0, 1), "latency range"),
        ((-1, 1, 0, 1), "latency range"),
        ((0, 1, 1, 1), "bandwidth range"),
        ((0, 1, 2, 1), "bandwidth range"),
        ((0, 1, -1, 1), "bandwidth range"),
    ],
)
def test_boxes_have_an_area(bounds: tuple[int, int, int, int], said: str) -> None:
    with pytest.raises(InputError, match=said):
        Box(*(Fraction(bound) for bound in bounds))


def test_the_default_box_spans_what_networks_offer() -> None:
    low, high = Fraction(8, 10_000), Fraction(8, 10)  # 10 Tbps and 10 Gbps
    corners = [(0, low), (10**6, low), (10**6, high), (0, high)]
    assert Box().corners() == [point(Fraction(latency), gap) for latency, gap in corners]


def test_nothing_is_answered_outside_the_box() -> None:
    envelope = solve(graph_of_lines([(10, 1)]), fabric(1, 1), BOX)
    assert envelope.time_ns(Fraction(200), Fraction(2)) == 210
    outside = Fraction(201)
    for ask in (
        lambda: envelope.time_ns(outside, Fraction(1)),
        lambda: envelope.time_ns(Fraction(1), outside),
        lambda: envelope.along(LATENCY, outside),
        lambda: envelope.along(GAP, outside),
        lambda: solve(graph_of_lines([(10, 1)]), fabric(201, 1), BOX),
    ):
        with pytest.raises(InputError, match="outside the analysed range"):
            ask()


def test_an_envelope_needs_its_vectors_only() -> None:
    envelope = Envelope(
        ((3, 1, 0, 2, 0, 0, 0), (0, 0, 7, 0, 1, 1, 1)), tuple(map(Fraction, (1, 10, 100, 1000, 10_000))), BOX
    )
    assert envelope.planes() == [(23, 1, 0), (11_100, 0, 7)]
    assert envelope.time_ns(Fraction(5), Fraction(1)) == 11_107
