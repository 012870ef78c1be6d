"""The exact subdivision of a box: cells that tile it, whatever the order and however the planes touch."""

import itertools
import random
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracles.areas import highest_area, polygon_area

from atlas_lp.solver.axis import Point
from atlas_lp.solver.longest_path import Plane
from atlas_lp.solver.upper_envelope import UpperEnvelope, convex_hull, explore, height

XY = tuple[Fraction, Fraction]

SQUARE: list[Point] = [(0, 0, 1), (4, 0, 1), (4, 4, 1), (0, 4, 1)]
SKEWED: list[Point] = [(1, 1, 7), (22, 1, 7), (22, 15, 7), (1, 15, 7)]

small_planes = st.lists(st.tuples(*[st.integers(0, 4)] * 3), min_size=1, max_size=9)
# Differences far below what a float of that size can tell apart, and large ones.
large_planes = st.lists(
    st.tuples(*[st.integers(10**20, 10**20 + 3)] * 3) | st.tuples(*[st.integers(0, 10**20)] * 3),
    min_size=1,
    max_size=9,
)


def xy(where: Point) -> XY:
    return Fraction(where[0], where[2]), Fraction(where[1], where[2])


def area(polygon: list[Point]) -> Fraction:
    return polygon_area([xy(vertex) for vertex in polygon])


def build(planes: list[Plane], corners: list[Point]) -> UpperEnvelope:
    envelope = UpperEnvelope(planes[0], corners)
    for plane in planes[1:]:
        envelope.insert(plane)
    return envelope


def check(envelope: UpperEnvelope, planes: list[Plane]) -> None:
    """Cells tile the box; each is the very region where its plane is highest of all."""
    total = Fraction(0)
    for plane, polygon in envelope.cells.items():
        assert len(polygon) >= 3
        total += area(polygon)
        assert area(polygon) == highest_area(plane, planes, envelope.corners) > 0
        for vertex in polygon:
            assert height(plane, vertex) == max(height(other, vertex) for other in planes)
    assert total == area(envelope.corners)
    for plane in set(planes) - set(envelope.cells):
        assert highest_area(plane, planes, envelope.corners) == 0


@pytest.mark.parametrize("corners", [SQUARE, SKEWED])
@given(planes=small_planes)
def test_small_planes_that_touch_and_coincide(planes: list[Plane], corners: list[Point]) -> None:
    check(build(planes, corners), planes)


@given(large_planes)
def test_large_planes(planes: list[Plane]) -> None:
    check(build(planes, SKEWED), planes)


@given(small_planes, st.randoms(use_true_random=False))
def test_the_order_of_insertion_does_not_matter(planes: list[Plane], rng: random.Random) -> None:
    shuffled = planes[:]
    rng.shuffle(shuffled)
    one, other = build(planes, SQUARE).cells, build(shuffled, SQUARE).cells
    assert {plane: set(convex_hull(cell)) for plane, cell in one.items()} == {
        plane: set(convex_hull(cell)) for plane, cell in other.items()
    }


def test_all_orders_of_a_degenerate_set() -> None:
    # All six meet above (2, 2); three of them share a line.
    planes: list[Plane] = [(4, 1, 1), (8, 0, 0), (0, 2, 2), (6, 1, 0), (6, 0, 1), (4, 0, 2)]
    for order in itertools.permutations(planes):
        check(build(list(order), SQUARE), planes)


@pytest.mark.parametrize(
    "plane",
    [
        (6, 0, 0),  # below everywhere but at no point higher
        (4, 1, 0),  # equal along an edge of the box
        (0, 1, 1),  # equal at a corner only
        (4, 1, 1),  # the same plane again
    ],
)
def test_planes_that_only_touch_are_no_part(plane: Plane) -> None:
    envelope = build([(4, 1, 1), (8, 0, 0)], SQUARE)
    before = dict(envelope.cells)
    assert envelope.insert(plane) == []
    assert envelope.cells == before


def test_a_plane_that_touches_an_inner_edge_is_no_part() -> None:
    # Halfway between two planes: equal to both along their border, below both elsewhere.
    envelope = build([(0, 2, 0), (4, 0, 0)], SQUARE)
    assert envelope.insert((2, 1, 0)) == []
    check(envelope, [(0, 2, 0), (4, 0, 0), (2, 1, 0)])


def test_a_plane_above_all_takes_the_box() -> None:
    envelope = build([(0, 2, 0), (4, 0, 0)], SQUARE)
    assert sorted(envelope.insert((100, 0, 0))) == sorted(SQUARE)
    assert list(envelope.cells) == [(100, 0, 0)]


def test_a_peak_inside_the_box_cuts_a_hole_into_no_one() -> None:
    tent: list[Plane] = [(8, 0, 0), (0, 4, 0), (0, 0, 4), (10, 1, 0), (11, 0, 1)]
    check(build(tent, SQUARE), tent)


@given(small_planes | large_planes, st.randoms(use_true_random=False))
def test_exploring_finds_the_planes_by_asking_for_tangents(planes: list[Plane], rng: random.Random) -> None:
    asked: list[Point] = []

    def tangent(where: Point) -> Plane:
        asked.append(where)
        top = max(height(plane, where) for plane in planes)
        return rng.choice([plane for plane in planes if height(plane, where) == top])

    seen: list[int] = []
    found = explore(SKEWED, tangent, seen.append)
    envelope, evaluations = found.envelope, found.evaluations
    assert found.reached == 0
    check(envelope, planes)
    assert evaluations == len(asked) == len(set(asked))
    assert len(seen) == evaluations - 1
    vertices = {vertex for cell in envelope.cells.values() for vertex in cell}
    assert vertices <= set(asked)


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5), st.integers(1, 3)), max_size=12))
def test_hulls_turn_left_and_hold_every_point(points: list[Point]) -> None:
    hull = [xy(p) for p in convex_hull(points)]
    assert set(hull) <= {xy(p) for p in points}

    def turn(a: XY, b: XY, c: XY) -> Fraction:
        return (b[0] - a[0]) * (c[1] - a[1]) - (b[1] - a[1]) * (c[0] - a[0])

    if len(hull) < 3:
        assert not any(turn(*(xy(p) for p in three)) for three in itertools.combinations(points, 3))
        return
    for a, b, c in zip(hull, hull[1:] + hull[:1], hull[2:] + hull[:2], strict=True):
        assert turn(a, b, c) > 0
    for a, b in zip(hull, hull[1:] + hull[:1], strict=True):
        assert all(turn(a, b, xy(p)) >= 0 for p in points)


def ladder(count: int, seed: int) -> list[Plane]:
    """Tangent planes of a paraboloid, all of which are highest somewhere, in random order."""
    rng = random.Random(seed)
    points = [(x, y) for x in range(1, 4 * count, 4) for y in range(1, 4 * count, 4)]
    rng.shuffle(points)
    return [(-(x * x) - y * y, 2 * x, 2 * y) for x, y in points]


def test_an_insertion_costs_what_it_changes() -> None:
    """Polygons cut per insertion do not grow with the number of planes: the work is local."""
    rates = []
    for count in (8, 16, 32):
        corners = [(0, 0, 1), (4 * count, 0, 1), (4 * count, 4 * count, 1), (0, 4 * count, 1)]
        planes = ladder(count, 1)
        found = explore(corners, lambda where, planes=planes: max(planes, key=lambda p: (height(p, where), p)))
        assert set(found.envelope.cells) == set(planes)
        rates.append(found.envelope.cuts / len(planes))
    assert max(rates) < 1.5 * min(rates)


@given(small_planes, st.integers(0, 50))
def test_what_is_reached_is_the_largest_rise_at_the_end(planes: list[Plane], percent: int) -> None:
    above = [(10 + c, m, b) for c, m, b in planes]
    found = explore(
        SQUARE, lambda where: max(above, key=lambda p: (height(p, where), p)), tolerance=Fraction(percent, 100)
    )
    kept = list(found.envelope.cells)
    points = [(int(i), int(j), 4) for i in range(17) for j in range(17)]
    rises = [Fraction(max(height(p, w) for p in above), max(height(p, w) for p in kept)) - 1 for w in points]
    assert max(rises) <= found.reached <= Fraction(percent, 100)
    if found.reached:
        at = [w for cell in found.envelope.cells.values() for w in cell]
        assert found.reached == max(
            Fraction(max(height(p, w) for p in above), max(height(p, w) for p in kept)) - 1 for w in at
        )


def test_beyond_the_budget_the_tolerance_grows_and_is_reported() -> None:
    corners: list[Point] = [(0, 0, 1), (96, 0, 1), (96, 96, 1), (0, 96, 1)]
    planes = [(10**5 + c, m, b) for c, m, b in ladder(24, 2)]
    everything = explore(corners, lambda where: max(planes, key=lambda p: (height(p, where), p)))
    assert everything.reached == 0
    assert len(everything.envelope.cells) == len(planes)
    some = explore(corners, lambda where: max(planes, key=lambda p: (height(p, where), p)), budget=100)
    assert len(some.envelope.cells) < len(planes) / 2
    assert 0 < some.reached <= Fraction(1, 10)
