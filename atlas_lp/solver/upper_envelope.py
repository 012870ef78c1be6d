"""Upper envelope of planes over a box of (L, G) as an exact subdivision into convex cells.

Each plane that is highest somewhere owns one polygon; polygons are lists of :data:`Point`, counter-clockwise.
Inserting a plane cuts the polygons it rises above and gives it the convex hull of what was cut off.
All tests are signs of integers; floats only preselect the polygons worth testing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from atlas_lp.solver.axis import Point, reduced
from atlas_lp.solver.longest_path import Plane

Floats = NDArray[np.float64]

# A vertex whose float height differs by less than this relative amount is tested exactly.
_PRESELECT = 1e-9


def height(plane: Plane, where: Point) -> int:
    """Scaled height of *plane* above *where*, times its W."""
    return plane[0] * where[2] + plane[1] * where[0] + plane[2] * where[1]


class UpperEnvelope:
    """The envelope of the planes inserted so far over the box with the given *corners*."""

    def __init__(self, first: Plane, corners: list[Point]) -> None:
        self.corners = corners
        self.cells: dict[Plane, list[Point]] = {first: list(corners)}
        self._rows: dict[Plane, tuple[Floats, Floats]] = {}
        self._remember(first)

    def _remember(self, plane: Plane) -> None:
        """Keep floats of a cell's vertices and heights for preselection."""
        vertices = np.array([(x / w, y / w) for x, y, w in self.cells[plane]])
        self._rows[plane] = (vertices, plane[0] + vertices @ np.array(plane[1:], dtype=float))

    def _may_rise_above(self, plane: Plane) -> list[Plane]:
        """Planes with a vertex that *plane* reaches, up to float noise."""
        owners = list(self._rows)
        vertices = np.concatenate([self._rows[owner][0] for owner in owners])
        heights = np.concatenate([self._rows[owner][1] for owner in owners])
        mine = plane[0] + vertices @ np.array(plane[1:], dtype=float)
        reached = mine >= heights - _PRESELECT * np.maximum(heights, 1.0)
        starts = np.cumsum([0, *(len(self._rows[owner][1]) for owner in owners[:-1])])
        return [owners[i] for i in np.flatnonzero(np.logical_or.reduceat(reached, starts))]

    def insert(self, plane: Plane) -> list[Point]:
        """Insert *plane* and return the vertices of its cell (empty when it is nowhere highest)."""
        if plane in self.cells:
            return []
        mine: set[Point] = set()
        cuts: dict[Plane, list[Point]] = {}
        for owner in self._may_rise_above(plane):
            kept, boundary, removed = _cut(self.cells[owner], owner, plane)
            mine.update(boundary)
            if removed:
                mine.update(corner for corner in self.corners if corner in removed)
                cuts[owner] = kept
        hull = convex_hull(mine) if cuts else []
        for owner, kept in cuts.items():
            if kept:
                self.cells[owner] = kept
                self._remember(owner)
            else:
                del self.cells[owner], self._rows[owner]
        if hull:
            self.cells[plane] = hull
            self._remember(plane)
        return hull


def _cut(polygon: list[Point], owner: Plane, plane: Plane) -> tuple[list[Point], list[Point], list[Point]]:
    """Keep the part of *polygon* where *owner* is at least as high as *plane*.

    Returns the kept polygon (empty when it has no area), the points of equal height, and the vertices lost.
    """
    difference = (owner[0] - plane[0], owner[1] - plane[1], owner[2] - plane[2])
    signs = [height(difference, vertex) for vertex in polygon]
    kept: list[Point] = []
    boundary: list[Point] = []
    for i, (vertex, sign) in enumerate(zip(polygon, signs, strict=True)):
        if sign >= 0:
            kept.append(vertex)
            if sign == 0:
                boundary.append(vertex)
        following, next_sign = polygon[(i + 1) % len(polygon)], signs[(i + 1) % len(polygon)]
        if (sign > 0 > next_sign) or (sign < 0 < next_sign):
            a, b = abs(next_sign), abs(sign)
            x, y, w = (a * p + b * q for p, q in zip(vertex, following, strict=True))
            kept.append(reduced(x, y, w))
            boundary.append(kept[-1])
    removed = [vertex for vertex, sign in zip(polygon, signs, strict=True) if sign < 0]
    return kept if any(sign > 0 for sign in signs) else [], boundary, removed


def _turn(a: Point, b: Point, c: Point) -> int:
    """Positive when a, b, c turn left: the determinant of their homogeneous coordinates."""
    return a[0] * (b[1] * c[2] - b[2] * c[1]) - a[1] * (b[0] * c[2] - b[2] * c[0]) + a[2] * (b[0] * c[1] - b[1] * c[0])


def convex_hull(points: Iterable[Point]) -> list[Point]:
    """Corners of the convex hull, counter-clockwise from the lowest (L, G); collinear points are left out."""
    ordered = sorted(set(points), key=lambda p: (Fraction(p[0], p[2]), Fraction(p[1], p[2])))
    if len(ordered) < 3:
        return ordered

    def chain(sequence: list[Point]) -> list[Point]:
        hull: list[Point] = []
        for candidate in sequence:
            while len(hull) >= 2 and _turn(hull[-2], hull[-1], candidate) <= 0:
                hull.pop()
            hull.append(candidate)
        return hull[:-1]

    return chain(ordered) + chain(ordered[::-1])


@dataclass(frozen=True)
class Exploration:
    """What :func:`explore` found: the envelope, how often it asked, and how far T may lie above it (relative)."""

    envelope: UpperEnvelope
    evaluations: int
    reached: Fraction


def explore(
    corners: list[Point],
    evaluate: Callable[[Point], Plane],
    progress: Callable[[int], None] | None = None,
    tolerance: Fraction = Fraction(0),
) -> Exploration:
    """Find all planes of a convex piecewise affine function over the box, by asking for tangents.

    *evaluate* returns a plane that is highest at the point asked for.  The envelope of the planes known is
    evaluated at each of its vertices; when none of them rises, convexity makes it exact on the whole box.
    With a *tolerance* a vertex may rise by that much, relative; by convexity T then lies nowhere further above the
    envelope than at its vertices, and the largest rise is reported as *reached*.
    The number of evaluations is at most vertices + planes.
    """
    first = evaluate(corners[0])
    envelope = UpperEnvelope(first, corners)
    queue = deque((corner, first) for corner in corners)
    settled = {corners[0]}
    rises: dict[Point, Fraction] = {}
    evaluations = 1
    while queue:
        where, owner = queue.popleft()
        # A vertex that its cell has lost lies below a plane found since, whose own vertices are queued.
        if where in settled or where not in envelope.cells.get(owner, ()):
            continue
        plane = evaluate(where)
        settled.add(where)
        evaluations += 1
        if progress is not None:
            progress(len(envelope.cells))
        now, before = height(plane, where), height(owner, where)
        if now > before and now - before > tolerance * before:
            queue.extend((vertex, plane) for vertex in envelope.insert(plane))
        elif now > before:
            rises[where] = Fraction(now - before, before)
    vertices = {vertex for polygon in envelope.cells.values() for vertex in polygon}
    reached = max((rise for where, rise in rises.items() if where in vertices), default=Fraction(0))
    return Exploration(envelope, evaluations, reached)
