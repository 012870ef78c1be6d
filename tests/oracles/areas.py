"""Where a plane is the highest of several: polygons that are clipped, corner by corner."""

from collections.abc import Iterable, Sequence
from fractions import Fraction


def polygon_area(corners: Sequence[tuple[Fraction, Fraction]]) -> Fraction:
    """Area by the shoelace formula: positive when counter-clockwise."""
    sides = zip(corners, [*corners[1:], *corners[:1]], strict=True)
    return Fraction(sum(ax * by - bx * ay for (ax, ay), (bx, by) in sides)) / 2


def highest_area(
    plane: Sequence[Fraction | int], planes: Iterable[Sequence[Fraction | int]], corners: Sequence[tuple[int, int, int]]
) -> Fraction:
    """Area of the box where *plane* is highest, by clipping the box at one half-plane after the other.

    Corners are (x, y, w) for the point (x / w, y / w).
    """
    polygon = [(Fraction(x, w), Fraction(y, w)) for x, y, w in corners]
    for other in planes:
        c, m, b = (x - y for x, y in zip(plane, other, strict=True))
        heights = [c + m * x + b * y for x, y in polygon]
        kept = []
        for i, ((x, y), here) in enumerate(zip(polygon, heights, strict=True)):
            (far_x, far_y), there = polygon[i - 1], heights[i - 1]
            if here * there < 0:
                t = here / Fraction(here - there)
                kept.append((x + t * (far_x - x), y + t * (far_y - y)))
            if here >= 0:
                kept.append((x, y))
        polygon = kept
    return polygon_area(polygon) if polygon else Fraction(0)
