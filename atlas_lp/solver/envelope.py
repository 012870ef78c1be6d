"""T(L, G) of a graph as the maximum of finitely many planes, and every question asked of it.

An :class:`Envelope` is exact on its :class:`Box`.  Fixing G gives T(L), fixing L gives T(G); both are
convex and piecewise affine, their breakpoints are ratios of integers.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property

from atlas_lp.errors import InputError
from atlas_lp.goal.event_graph import COMPONENTS
from atlas_lp.solver.axis import AXES, Axis, Point, point
from atlas_lp.solver.highs import Certificate
from atlas_lp.solver.longest_path import BYTES, MESSAGES, PathVector
from atlas_lp.units import format_bandwidth, format_time


@dataclass(frozen=True)
class Box:
    """The rectangle of (L, G) on which an envelope is exact; default 0..1 ms and 10 Gbps..10 Tbps."""

    latency_from_ns: Fraction = Fraction(0)
    latency_to_ns: Fraction = Fraction(10**6)
    gap_from_ns_per_byte: Fraction = Fraction(8, 10**4)
    gap_to_ns_per_byte: Fraction = Fraction(8, 10)

    def __post_init__(self) -> None:
        if not 0 <= self.latency_from_ns < self.latency_to_ns:
            raise InputError("the latency range of a box must rise from 0 or more")
        if not 0 <= self.gap_from_ns_per_byte < self.gap_to_ns_per_byte:
            raise InputError("the bandwidth range of a box must hold two different bandwidths")

    def around(self, points: Sequence[tuple[Fraction, Fraction]]) -> Box:
        """The box, widened where one of *points* (L, G) lies outside."""
        latencies, gaps = zip(*points, strict=True)
        return Box(
            min(self.latency_from_ns, *latencies),
            max(self.latency_to_ns, *latencies),
            min(self.gap_from_ns_per_byte, *gaps),
            max(self.gap_to_ns_per_byte, *gaps),
        )

    def range(self, axis: Axis) -> tuple[Fraction, Fraction]:
        """Lowest and highest value along *axis*."""
        latency, gap = (self.latency_from_ns, self.latency_to_ns), (self.gap_from_ns_per_byte, self.gap_to_ns_per_byte)
        return (latency, gap)[axis.index]

    @property
    def middle(self) -> tuple[Fraction, Fraction]:
        """The point (L, G) in the middle."""
        return (
            (self.latency_from_ns + self.latency_to_ns) / 2,
            (self.gap_from_ns_per_byte + self.gap_to_ns_per_byte) / 2,
        )

    def canonical(self) -> list[str]:
        """Exact text of the four limits, for keys and files."""
        return [str(value) for axis in AXES for value in self.range(axis)]

    def corners(self) -> list[Point]:
        """Corners counter-clockwise from the lowest (L, G)."""
        low, high = self.gap_from_ns_per_byte, self.gap_to_ns_per_byte
        return [
            point(self.latency_from_ns, low),
            point(self.latency_to_ns, low),
            point(self.latency_to_ns, high),
            point(self.latency_from_ns, high),
        ]

    def check(self, latency_ns: Fraction, gap_ns_per_byte: Fraction) -> None:
        """Raise :class:`~atlas_lp.errors.InputError` when the point lies outside."""
        if not self.latency_from_ns <= latency_ns <= self.latency_to_ns:
            raise InputError(
                f"latency {format_time(latency_ns)} lies outside the analysed range "
                f"{format_time(self.latency_from_ns)} .. {format_time(self.latency_to_ns)}; "
                "solve again with a wider --latency-box"
            )
        if not self.gap_from_ns_per_byte <= gap_ns_per_byte <= self.gap_to_ns_per_byte:
            raise InputError(
                f"bandwidth {format_bandwidth(gap_ns_per_byte)} lies outside the analysed range "
                f"{format_bandwidth(self.gap_to_ns_per_byte)} .. "
                f"{format_bandwidth(self.gap_from_ns_per_byte)}; solve again with a wider --bandwidth-box"
            )


@dataclass(frozen=True)
class Piece:
    """One affine piece of T(L) or T(G): ``T = constant_ns + slope * x`` for x in start..stop.

    x is L in ns and *slope* counts messages, or x is G in ns per byte and *slope* counts bytes.
    """

    start: Fraction
    stop: Fraction
    constant_ns: Fraction
    slope: int

    def at(self, x: Fraction) -> Fraction:
        """Time in ns at *x*."""
        return self.constant_ns + self.slope * x


@dataclass(frozen=True)
class PortOrder:
    """In which order the ports serve messages: as they become ready *at* a point (L, G).

    T differs from first come, first served by at most *difference* (relative) at the points of the box that were
    compared, which are its corners, breakpoints of T(L) and T(G), and powers of two of *at*; most at *worst_at*.
    """

    at: tuple[Fraction, Fraction]
    difference: float
    worst_at: tuple[Fraction, Fraction]


@dataclass(frozen=True)
class RankClasses:
    """How a collective passes time on: ``planes`` are (arriving class, ending class, path vectors).

    ``of_rank`` gives the class of every label of the signature, and is empty where all ranks are in class 0.  Classes
    without planes between them do not wait for each other.  ``width`` says how far apart, relative to the whole
    collective, ranks of one class start or end at most at the corners of the box.
    """

    of_rank: tuple[int, ...]
    planes: tuple[tuple[int, int, tuple[PathVector, ...]], ...]
    width: float = 0.0

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        """Hundreds of instances share one of these, which may hold thousands of planes: they are hashed once."""
        return hash((self.of_rank, self.planes))

    @classmethod
    def alike(cls, vectors: tuple[PathVector, ...]) -> RankClasses:
        """All ranks in one class: every one ends when the last one does."""
        return cls((), ((0, 0, vectors),))

    @property
    def count(self) -> int:
        """Number of classes."""
        return max(self.of_rank, default=0) + 1


@dataclass(frozen=True)
class Envelope:
    """The path vectors that are longest somewhere in *box*, with every parameter but L and G fixed.

    *fixed* holds the values of the components other than messages and bytes, in their order.  *method* says how the
    graph was made: ``full``, ``quotient`` (by symmetry, as exact) or ``bracket`` (an upper bound, *bracket_width*
    relative above a lower one).  Solved with a tolerance, T lies at most *tolerance_reached* (relative) above the
    planes.  *classes* are the planes between classes of ranks, None where all ranks are alike.  *sent* is what each
    rank puts on its NIC: the bytes of all bodies, the messages, and the bytes of the largest body.  *order* is None
    where no two messages meet on a port.
    """

    vectors: tuple[PathVector, ...]
    fixed: tuple[Fraction, ...]
    box: Box = field(default_factory=Box)
    certificate: Certificate | None = None
    method: str = "full"
    bracket_width: float = 0.0
    tolerance_reached: float = 0.0
    classes: RankClasses | None = None
    sent: tuple[tuple[int, int, int], ...] = ()
    order: PortOrder | None = None

    @property
    def order_at(self) -> tuple[Fraction, Fraction] | None:
        """The point (L, G) in whose order ports serve; None where no two messages meet on one."""
        return None if self.order is None else self.order.at

    @property
    def by_class(self) -> RankClasses:
        """The planes between classes of ranks, of which there may be only one."""
        return self.classes or RankClasses.alike(self.vectors)

    def constant_ns(self, vector: PathVector) -> Fraction:
        """Part of a path's time that depends neither on L nor on G."""
        rest = (v for i, v in enumerate(vector) if i not in (MESSAGES, BYTES))
        return sum((v * value for v, value in zip(rest, self.fixed, strict=True)), Fraction(0))

    def planes(self) -> list[tuple[Fraction, int, int]]:
        """Every plane as (constant_ns, messages, bytes)."""
        return self._planes

    @cached_property
    def _planes(self) -> list[tuple[Fraction, int, int]]:
        return [(self.constant_ns(v), v[MESSAGES], v[BYTES]) for v in self.vectors]

    def time_ns(self, latency_ns: Fraction, gap_ns_per_byte: Fraction) -> Fraction:
        """T at a point of the box; raises :class:`~atlas_lp.errors.InputError` outside."""
        self.box.check(latency_ns, gap_ns_per_byte)
        return max(c + m * latency_ns + b * gap_ns_per_byte for c, m, b in self.planes())

    def along(self, axis: Axis, held: Fraction) -> list[Piece]:
        """Pieces of T along *axis*, the other variable *held*: T(L) at a fixed G, or T(G) at a fixed L.

        Raises :class:`~atlas_lp.errors.InputError` when *held* lies outside the box.
        """
        low, high = self.box.range(axis)
        self.box.check(*axis.pair(low, held))
        slopes = ((c, (m, b)) for c, m, b in self.planes())
        lines = [(c + axis.other.of(pair) * held, pair[axis.index]) for c, pair in slopes]
        return upper_pieces(lines, low, high)


def tolerances(
    envelope: Envelope, native: tuple[Fraction, Fraction], percent: Fraction
) -> tuple[Fraction | None, Fraction | None]:
    """Largest L and largest G, the other at its *native* value, with T at most *percent* above the native time.

    None where no value in the box exceeds it.
    """
    limit = envelope.time_ns(*native) * (1 + percent / 100)
    latency, gap = (furthest(envelope.along(axis, axis.other.of(native)), limit) for axis in AXES)
    return latency, gap


def fixed_values(theta: dict[str, Fraction]) -> tuple[Fraction, ...]:
    """Pick the values an :class:`Envelope` keeps from a theta."""
    return tuple(Fraction(theta[c]) for i, c in enumerate(COMPONENTS) if i not in (MESSAGES, BYTES))


def upper_pieces(lines: Iterable[tuple[Fraction, int]], start: Fraction, stop: Fraction) -> list[Piece]:
    """Upper envelope of the lines ``constant + slope x`` on start..stop, in order of x.

    Pieces have positive length; neighbours have different slopes. Cost O(k log k).

    >>> [(str(p.start), p.slope) for p in upper_pieces([(10, 1), (4, 3), (0, 4)], 0, 10)]
    [('0', 1), ('3', 3), ('4', 4)]
    """
    best: dict[int, Fraction] = {}
    for constant, slope in lines:
        best[slope] = max(best.get(slope, Fraction(constant)), Fraction(constant))
    hull: list[tuple[Fraction, Fraction, int]] = []  # (from, constant, slope) by rising slope
    for slope in sorted(best):
        constant, begin = best[slope], Fraction(start)
        while hull:
            before, other_constant, other_slope = hull[-1]
            begin = (other_constant - constant) / (slope - other_slope)
            if begin > before:
                break
            hull.pop()
            begin = Fraction(start)
        if begin < stop:
            hull.append((begin, constant, slope))
    stops = [begin for begin, _, _ in hull[1:]] + [Fraction(stop)]
    return [Piece(b, e, c, s) for (b, c, s), e in zip(hull, stops, strict=True)]


def furthest(pieces: list[Piece], limit_ns: Fraction) -> Fraction | None:
    """Return the largest x with T(x) <= *limit_ns*, exactly, or None when no x in the range exceeds it.

    Raises :class:`~atlas_lp.errors.InputError` when T exceeds the limit from the first x on.
    """
    if pieces[0].at(pieces[0].start) > limit_ns:
        raise InputError("the limit is exceeded on the whole range")
    for piece in pieces:
        if piece.at(piece.stop) > limit_ns:
            return (limit_ns - piece.constant_ns) / piece.slope
    return None


def slopes_at(pieces: list[Piece], x: Fraction) -> tuple[int, int]:
    """Slopes to the left and right of *x*; they differ exactly at a breakpoint, where paths tie."""
    around = [piece.slope for piece in pieces if piece.start <= x <= piece.stop]
    if not around:
        raise InputError("the point lies outside the range of the pieces")
    return around[0], around[-1]
