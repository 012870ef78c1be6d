"""The two variables of T(L, G), and points of the plane they span.

Everything that is said of L is said of G with another symbol, component and unit, so code that serves both takes an
:class:`Axis` and asks it, instead of asking which of the two it has.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from math import gcd, lcm
from typing import TypeVar

from atlas_lp.units import format_bandwidth, format_size, format_time, parse_bandwidth, parse_time_ns

Value = TypeVar("Value")

Point = tuple[int, int, int]
"""A point (L, G) = (X / W, Y / W) in homogeneous integers (X, Y, W) with W > 0 and no common divisor."""


def point(latency_ns: Fraction, gap_ns_per_byte: Fraction) -> Point:
    """Return (L, G) as a :data:`Point`."""
    latency, gap = Fraction(latency_ns), Fraction(gap_ns_per_byte)
    w = lcm(latency.denominator, gap.denominator)
    return int(latency * w), int(gap * w), w


def reduced(x: int, y: int, w: int) -> Point:
    """Return homogeneous coordinates in lowest terms."""
    divisor = gcd(x, y, w)
    return x // divisor, y // divisor, w // divisor


@dataclass(frozen=True)
class Axis:
    """L or G: where it stands in a pair (L, G), how it is called, and how its values and slopes are written.

    *name* and *unit* make the keys of JSON documents (``latency_ns``); *component* is the entry of a path vector that
    is the slope along this axis; *quantity* is what people type and read, and *heading* that of a column of it: for G a
    bandwidth, which is one over G and therefore *inverted*.
    """

    index: int
    name: str
    symbol: str
    unit: str
    component: str
    quantity: str
    heading: str
    inverted: bool
    parse: Callable[[str], Fraction]
    show_value: Callable[[Fraction, int], str]
    show_slope: Callable[[int], str]

    @property
    def key(self) -> str:
        """Name and unit of a value: ``latency_ns`` or ``gap_ns_per_byte``."""
        return f"{self.name}_{self.unit}"

    @property
    def other(self) -> Axis:
        """The variable that is held when this one moves."""
        return AXES[1 - self.index]

    @property
    def slope_title(self) -> str:
        """Heading of a column of slopes: ``dT/dL (messages)``."""
        return f"dT/d{self.symbol} ({self.component})"

    def pair(self, own: Value, other: Value) -> tuple[Value, Value]:
        """*own* and *other* in the order (L, G)."""
        return (other, own) if self.index else (own, other)

    def of(self, pair: tuple[Value, Value]) -> Value:
        """The entry of a pair (L, G) that is this variable's."""
        return pair[self.index]

    def point(self, own: Fraction, held: Fraction) -> Point:
        """The point at *own* along this axis, the other variable being *held*."""
        return point(*self.pair(own, held))

    @property
    def worsens(self) -> str:
        """What the quantity does when T grows."""
        return "fall" if self.inverted else "rise"

    def spaced(self, low: Fraction, high: Fraction, points: int) -> list[Fraction]:
        """*points* values from *low* to *high*, both included, equally spaced in the quantity."""
        ends = [1 / value if self.inverted else value for value in (low, high)]
        step = (ends[1] - ends[0]) / (points - 1)
        values = [ends[0] + i * step for i in range(points)]
        return [1 / value for value in values] if self.inverted else values

    def show_exactly(self, value: Fraction | float, digits: int = 6) -> str:
        """The quantity, and, where that is another one, the value as it stands in the formulas."""
        exact = Fraction(value).limit_denominator(10**12)
        return f"{self.show(exact, digits)} ({float(value):.6g} ns/B)" if self.inverted else self.show(exact, digits)

    def show(self, value: Fraction | float, digits: int = 4) -> str:
        """Write a value as people read it: a time, or for G a bandwidth."""
        return self.show_value(Fraction(value), digits)


LATENCY = Axis(
    index=0,
    name="latency",
    symbol="L",
    unit="ns",
    component="messages",
    quantity="latency",
    heading="L",
    inverted=False,
    parse=parse_time_ns,
    show_value=format_time,
    show_slope=str,
)
GAP = Axis(
    index=1,
    name="gap",
    symbol="G",
    unit="ns_per_byte",
    component="bytes",
    quantity="bandwidth",
    heading="bandwidth",
    inverted=True,
    parse=parse_bandwidth,
    show_value=format_bandwidth,
    show_slope=format_size,
)
AXES = (LATENCY, GAP)
