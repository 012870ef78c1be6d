"""Longest paths by trying every path, and the upper envelope of lines by trying every crossing.

A graph is a list with the in-edges of every vertex, each as (source, cost vector); vertex 0 is the start.
"""

from collections.abc import Iterable, Iterator, Sequence
from fractions import Fraction

Vector = tuple[int, ...]
InEdges = Sequence[Sequence[tuple[int, Vector]]]
Line = tuple[Fraction, int]


def plus(one: Vector, other: Vector) -> Vector:
    return tuple(a + b for a, b in zip(one, other, strict=True))


def all_paths(in_edges: InEdges, components: int) -> Iterator[Vector]:
    """Cost vectors of all paths from the source to any vertex, without any cleverness."""
    found: list[list[Vector]] = [[(0,) * components]]
    for own in in_edges[1:]:
        found.append([plus(path, cost) for source, cost in own for path in found[source]])
    for paths in found:
        yield from paths


def paths_between(in_edges: InEdges) -> Iterator[tuple[int, int, Vector]]:
    """Every path that leaves the start, as (first vertex, last vertex, vector)."""
    found: list[list[tuple[int, Vector]]] = [[]]
    for target, own in enumerate(in_edges[1:], start=1):
        here: list[tuple[int, Vector]] = []
        for source, cost in own:
            before = found[source] if source else [(target, (0,) * len(cost))]
            here += [(first, plus(path, cost)) for first, path in before]
        found.append(here)
        yield from ((first, target, vector) for first, vector in here)


def path_time(vector: Sequence[int], weights: Sequence[Fraction]) -> Fraction:
    """Time of one path: its vector times what each component costs."""
    return sum((x * weight for x, weight in zip(vector, weights, strict=True)), Fraction(0))


def breakpoints(lines: Iterable[Line], start: Fraction, stop: Fraction) -> list[Fraction]:
    """Points where the highest line changes, by trying every crossing of two lines."""
    lines, found = list(lines), set()
    for c, s in lines:
        for d, t in lines:
            if s < t and start < (x := (c - d) / (t - s)) < stop and c + s * x == max(e + u * x for e, u in lines):
                found.add(x)
    return sorted(found)
