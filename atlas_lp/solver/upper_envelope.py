"""Upper envelope of planes over a box of (L, G) as an exact subdivision into convex cells.

Each plane that is highest somewhere owns one polygon; polygons are lists of :data:`Point`, counter-clockwise.
Inserting a plane cuts the polygons it rises above and gives it the convex hull of what was cut off.  They are found
from a vertex that lies below the plane, from neighbour to neighbour over vertices that do: an envelope is convex, so
where a plane rises above it is one piece, which holds a vertex of every polygon that it cuts.  An insertion costs what
it changes, however many planes there are.  All tests are signs of integers.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fractions import Fraction

from atlas_lp.solver.axis import Point, reduced
from atlas_lp.solver.longest_path import Plane


def height(plane: Plane, where: Point) -> int:
    """Scaled height of *plane* above *where*, times its W."""
    return plane[0] * where[2] + plane[1] * where[0] + plane[2] * where[1]


class UpperEnvelope:
    """The envelope of the planes inserted so far over the box with the given *corners*.

    ``cuts`` counts the polygons that were cut so far.
    """

    def __init__(self, first: Plane, corners: list[Point]) -> None:
        self.corners = corners
        self.cells: dict[Plane, list[Point]] = {}
        self.cuts = 0
        self._owners: dict[Point, dict[Plane, None]] = {}
        self._own(first, list(corners))

    def _own(self, plane: Plane, polygon: list[Point]) -> None:
        """Make *polygon* the cell of *plane*; an empty one takes its cell away."""
        for vertex in set(self.cells.pop(plane, ())) if not polygon else set(self.cells.get(plane, ())) - set(polygon):
            del self._owners[vertex][plane]
            if not self._owners[vertex]:
                del self._owners[vertex]
        if polygon:
            self.cells[plane] = polygon
            for vertex in polygon:
                self._owners.setdefault(vertex, {})[plane] = None

    def height(self, where: Point) -> int:
        """Scaled height above the vertex *where* of some cell, times its W."""
        return height(next(iter(self._owners[where])), where)

    def is_vertex(self, where: Point) -> bool:
        """Whether some cell has the vertex *where*."""
        return where in self._owners

    def insert(self, plane: Plane, below: Point | None = None) -> list[Point]:
        """Insert *plane* and return the vertices of its cell (empty when it is nowhere highest).

        It rises above the vertex *below*; without one, all vertices are searched for it.
        """
        if plane in self.cells:
            return []
        if below is None:
            below = next((where for where in self._owners if height(plane, where) > self.height(where)), None)
        mine: set[Point] = set()
        changed: dict[Plane, list[Point]] = {}
        lost = [] if below is None else [below]
        seen = set(lost)
        while lost:
            for owner in self._owners[lost.pop()]:
                if owner not in changed:
                    changed[owner], boundary, removed = _cut(self.cells[owner], owner, plane)
                    mine.update(boundary, (corner for corner in self.corners if corner in removed))
                    lost += [vertex for vertex in removed if vertex not in seen]
                    seen.update(removed)
        for owner, kept in changed.items():
            self._own(owner, kept)
        self.cuts += len(changed)
        hull = convex_hull(mine)
        if hull:
            self._own(plane, hull)
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


_LOOSER = (Fraction(1, 10**4), Fraction(1, 10**3), Fraction(1, 100), Fraction(1, 10))
"""Tolerances that follow each other when a budget is used up once, twice, ..."""


def explore(
    corners: list[Point],
    evaluate: Callable[[Point], Plane],
    progress: Callable[[int], None] | None = None,
    tolerance: Fraction = Fraction(0),
    budget: int | None = None,
) -> Exploration:
    """Find all planes of a convex piecewise affine function over the box, by asking for tangents.

    *evaluate* returns a plane that is highest at the point asked for.  The envelope of the planes known is
    evaluated at each of its vertices; when none of them rises, convexity makes it exact on the whole box.
    With a *tolerance* a vertex may rise by that much, relative; by convexity T then lies nowhere further above the
    envelope than at its vertices, and the largest rise is reported as *reached*.  After *budget* evaluations the
    tolerance grows to 0.01 %, after two to 0.1 %, and so on to 10 %.
    The number of evaluations is at most vertices + planes.
    """
    first = evaluate(corners[0])
    envelope = UpperEnvelope(first, corners)
    queue = deque((corner, first) for corner in corners)
    settled = {corners[0]: first}
    while queue:
        where, owner = queue.popleft()
        # A vertex that its cell has lost lies below a plane found since, whose own vertices are queued.
        if where in settled or where not in envelope.cells.get(owner, ()):
            continue
        plane = settled[where] = evaluate(where)
        if progress is not None:
            progress(len(envelope.cells))
        used = len(settled) // budget if budget else 0
        allowed = max(tolerance, _LOOSER[min(used, len(_LOOSER)) - 1]) if used else tolerance
        now, before = height(plane, where), height(owner, where)
        if now > before and now - before > allowed * before:
            queue.extend((vertex, plane) for vertex in envelope.insert(plane, where))
    # Planes found later may have risen at vertices that stay, such as the corners: the height at the end counts.
    rises = (
        Fraction(height(plane, where), envelope.height(where)) - 1
        for where, plane in settled.items()
        if envelope.is_vertex(where) and envelope.height(where)
    )
    return Exploration(envelope, len(settled), max(rises, default=Fraction(0)))
