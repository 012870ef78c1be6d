"""T(L) over its slope and T(bandwidth) over its slope, as the paper draws them: one shared axis, two panels."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from atlas_lp.report.page.svg import (
    Axis,
    Element,
    Point,
    add,
    figure,
    hint,
    horizontal_axis,
    path,
    text_width,
    tick_texts,
    to_text,
)
from atlas_lp.report.words import show_bandwidth, signed, to_gbps
from atlas_lp.units import format_size, format_time

MOST_SLOWDOWN = 1.0
"""A curve is drawn up to this slowdown, or the end of the analysed range; the map shows the rest."""

_TIME_UNITS = ((1e9, "s"), (1e6, "ms"), (1e3, "us"), (1.0, "ns"))
_SIZE_UNITS = ((2.0**30, "GiB"), (2.0**20, "MiB"), (2.0**10, "KiB"), (1.0, "B"))


@dataclass(frozen=True)
class Layout:
    """Pixels of one variant: margins, and heights of the panel of T and the panel of its slope."""

    name: str
    width: float
    left: float
    right: float
    upper: float
    lower: float

    @property
    def narrow(self) -> bool:
        """Whether labels must be short."""
        return self.width < 500


LAYOUTS = (Layout("wide", 640, 56, 58, 240, 96), Layout("narrow", 350, 46, 58, 200, 80))

_TOP = 34.0
_BETWEEN = 30.0
_BELOW = 40.0


@dataclass(frozen=True)
class Band:
    """A range of networks on an axis, up to *until* in its unit, after the paper."""

    until: float
    name: str
    lines: tuple[str, ...]
    short: str


LATENCY_BANDS = (
    Band(50, "HPC and AI fabrics below 50 us", ("HPC / AI", "fabrics"), "HPC / AI"),
    Band(100, "cloud RDMA 50 to 100 us", ("cloud", "RDMA"), ""),
    Band(500, "TCP 100 to 500 us", ("TCP",), "TCP"),
    Band(float("inf"), "metro and inter-datacentre links above 500 us", ("metro,", "inter-DC"), ""),
)
BANDWIDTH_BANDS = (
    Band(200, "legacy below 200 Gbps", ("legacy",), "legacy"),
    Band(800, "current switches 200 to 800 Gbps", ("current", "switches"), "current"),
    Band(float("inf"), "next generation above 800 Gbps", ("next", "generation"), "next"),
)


@dataclass(frozen=True)
class Piece:
    """``T = constant + slope * x`` on start..stop; x is L in ns or G in ns per byte."""

    start: float
    stop: float
    constant: float
    slope: int

    def at(self, x: float) -> float:
        """Time in ns."""
        return self.constant + self.slope * x


def latency_pieces(summary: Mapping[str, Any]) -> list[Piece]:
    """Pieces of T(L) at the native G."""
    return [
        Piece(row["from_ns"], row["to_ns"], row["constant_ns"], row["messages"])
        for row in summary["envelopes"]["latency"]
    ]


def gap_pieces(summary: Mapping[str, Any]) -> list[Piece]:
    """Pieces of T(G) at the native L."""
    return [
        Piece(row["from_ns_per_byte"], row["to_ns_per_byte"], row["constant_ns"], row["bytes"])
        for row in summary["envelopes"]["gap"]
    ]


def time_at(pieces: Sequence[Piece], x: float) -> float:
    """T in ns: pieces of a convex function, so their largest value."""
    return max(piece.at(x) for piece in pieces)


def is_flat(pieces: Sequence[Piece]) -> bool:
    """Whether T does not depend on the parameter at all."""
    return all(piece.slope == 0 for piece in pieces)


@dataclass(frozen=True)
class Parameter:
    """One of the two network parameters: its axis and how its values and slopes read.

    The curve is drawn over *to_axis* of L in ns or of G in ns per byte.  *label_side* is the ``text-anchor`` that
    puts a label where the curve leaves room.
    """

    kind: str
    symbol: str
    axis_title: str
    slope_title: str
    bands: tuple[Band, ...]
    label_side: str
    to_axis: Callable[[float], float]
    from_axis: Callable[[float], float]
    show: Callable[[float], str]
    show_slope: Callable[[int], str]
    slope_units: Sequence[tuple[float, str]]


LATENCY = Parameter(
    kind="latency",
    symbol="L",
    axis_title="one-way latency L (us, log scale)",
    slope_title="slope dT/dL: messages on the critical path",
    bands=LATENCY_BANDS,
    label_side="end",
    to_axis=lambda ns: ns / 1e3,
    from_axis=lambda us: us * 1e3,
    show=format_time,
    show_slope=lambda slope: f"{slope:,} messages",
    slope_units=((1.0, ""),),
)
GAP = Parameter(
    kind="gap",
    symbol="G",
    axis_title="bandwidth 8 / G (Gbps, log scale)",
    slope_title="slope dT/dG: bytes on the critical path",
    bands=BANDWIDTH_BANDS,
    label_side="start",
    to_axis=to_gbps,
    from_axis=lambda gbps: 8 / gbps,
    show=show_bandwidth,
    show_slope=format_size,
    slope_units=_SIZE_UNITS,
)

Range = tuple[float, float]


def latency_range(box: Mapping[str, float], native: float, furthest: float) -> Range:
    """Ends of a logarithmic axis of L in ns: the native point in sight, up to *furthest*."""
    high = min(furthest, box["latency_to_ns"])
    return max(min(native / 3, 1e3), box["latency_from_ns"], high / 1e4), high


def gap_range(box: Mapping[str, float], native: float, furthest: float) -> Range:
    """Ends of a logarithmic axis of G in ns per byte: from an eighth of the native G up to *furthest*."""
    high = min(furthest, box["gap_to_ns_per_byte"])
    return max(native / 8, box["gap_from_ns_per_byte"], high / 1e4), high


def _unit(largest: float, units: Sequence[tuple[float, str]]) -> tuple[float, str]:
    return next((unit for unit in units if largest >= unit[0]), units[-1])


@dataclass(frozen=True)
class Curve:
    """What one figure shows: pieces, native point and the limit that keeps T within *percent*."""

    parameter: Parameter
    pieces: Sequence[Piece]
    native: float
    native_ns: float
    limit: float | None
    percent: float

    def draw(self, layout: Layout, box: Mapping[str, float]) -> str:
        """Return the figure as SVG text."""
        return _Drawing(self, layout, box).draw()

    def furthest(self) -> float:
        """Largest x worth drawing."""
        cap = (1 + max(MOST_SLOWDOWN, self.percent / 25)) * self.native_ns
        for piece in self.pieces:
            if piece.at(piece.stop) > cap:
                return (cap - piece.constant) / piece.slope
        return self.pieces[-1].stop


class _Drawing:
    """Draws a :class:`Curve` in a :class:`Layout`."""

    def __init__(self, curve: Curve, layout: Layout, box: Mapping[str, float]) -> None:
        self.curve, self.layout, self.parameter = curve, layout, curve.parameter
        choose = latency_range if self.parameter is LATENCY else gap_range
        low, high = sorted(map(self.parameter.to_axis, choose(box, curve.native, curve.furthest())))
        self.x = Axis(low, high, layout.left, layout.width - layout.right, log=True)
        self.time_bottom = _TOP + layout.upper
        self.slope_top = self.time_bottom + _BETWEEN
        self.bottom = self.slope_top + layout.lower
        self.points = self._points()
        self.y = self._time_axis()
        self.slopes = [piece for piece in curve.pieces if self._shown(piece)]
        largest = max(piece.slope for piece in self.slopes)
        self.slope_unit, self.slope_unit_name = _unit(largest, self.parameter.slope_units)
        self.slope_y = Axis(0, max(1.0, 1.08 * largest / self.slope_unit), self.bottom, self.slope_top)

    def draw(self) -> str:
        name = f"{self.parameter.kind}-{self.layout.name}"
        root = figure(name, self.layout.width, self.bottom + _BELOW, self._description())
        root.set("data-axis", f"{self.x.low!r} {self.x.high!r} {self.x.start:g} {self.x.stop:g}")
        self._bands(root)
        self._time_grid(root)
        self._slope_grid(root)
        spacing = 32 if self.layout.narrow else 30
        horizontal_axis(root, self.x, self.bottom, self.parameter.axis_title, spacing)
        self._limit(root)
        add(root, "path", d=path(self.points), class_="curve")
        add(root, "path", d=path(self._steps()), class_="curve")
        self._breakpoints(root)
        self._native(root)
        self._labels(root)
        add(root, "path", class_="cursor", d=self._vertical(self.x.start))
        return to_text(root)

    def _description(self) -> str:
        curve, show = self.curve, self.parameter.show
        ends = sorted((self.curve.pieces[0].start, self.curve.pieces[-1].stop))
        first, last = (format_time(time_at(curve.pieces, x)) for x in ends)
        limit = f"all of that range stays within +{curve.percent:g} %"
        if curve.limit is not None:
            limit = f"+{curve.percent:g} % is reached at {show(curve.limit)}"
        return (
            f"T goes from {first} at {show(ends[0])} to {last} at {show(ends[1])} in {len(curve.pieces)} straight "
            f"pieces; at the native {show(curve.native)} it is {format_time(curve.native_ns)}; {limit}. The panel "
            f"below shows the slope, which rises from {self.parameter.show_slope(curve.pieces[0].slope)} to "
            f"{self.parameter.show_slope(curve.pieces[-1].slope)}."
        )

    def _shown(self, piece: Piece) -> bool:
        a, b = sorted(map(self.parameter.to_axis, (piece.start, piece.stop)))
        return b > self.x.low and a < self.x.high

    def _points(self) -> list[tuple[float, float]]:
        """Samples of (axis value, T in ns): every two pixels and at every breakpoint."""
        count = int(self.x.stop - self.x.start) // 2
        at_breaks = [self.parameter.to_axis(piece.stop) for piece in self.curve.pieces[:-1]]
        values = sorted([*self.x.values(count), *filter(self.x.holds, at_breaks)])
        return [(value, self._time(value)) for value in values]

    def _time(self, value: float) -> float:
        return time_at(self.curve.pieces, self.parameter.from_axis(value))

    def _time_axis(self) -> Axis:
        """Axis of T that always shows twice the limit, so that a flat curve looks flat; fixes the points."""
        times = [time for _, time in self.points]
        low, high = min(times), max(*times, (1 + self.curve.percent / 50) * self.curve.native_ns)
        pad = 0.04 * (high - low)
        axis = Axis(low - pad, high + 4 * pad, self.time_bottom, _TOP)
        self.points = [(self.x.at(value), axis.at(time)) for value, time in self.points]
        return axis

    def _steps(self) -> list[Point]:
        points = []
        for piece in self.slopes:
            y = self.slope_y.at(piece.slope / self.slope_unit)
            points += [(self.x.at(self.parameter.to_axis(x)), y) for x in (piece.start, piece.stop)]
        return points

    def _vertical(self, x: float) -> str:
        """Path data of a line through both panels."""
        return f"M{x:.1f} {_TOP:g}V{self.time_bottom:g}M{x:.1f} {self.slope_top:g}V{self.bottom:g}"

    def _column(self, left: float, right: float) -> str:
        """Path data of a strip through both panels."""
        panels = ((_TOP, self.time_bottom), (self.slope_top, self.bottom))
        return "".join(path([(left, a), (right, a), (right, b), (left, b)], close=True) for a, b in panels)

    def _bands(self, root: Element) -> None:
        """Shade the ranges of networks and name them above the plot."""
        start = 0.0
        for number, band in enumerate(self.parameter.bands):
            left, right = self.x.at(start), self.x.at(band.until)
            start = band.until
            if right - left < 1:
                continue
            shade = add(root, "path", class_=f"shade{number % 2}")
            shade.set("d", self._column(left, right))
            hint(shade, band.name)
            lines = (band.short,) if self.layout.narrow else band.lines
            if max(text_width(line, 10.5) for line in lines) > right - left:
                continue
            for i, line in enumerate(reversed(lines)):
                add(root, "text", line, x=(left + right) / 2, y=_TOP - 6 - 12 * i, class_="middle small")

    def _time_grid(self, root: Element) -> None:
        left, right = self.x.start, self.x.stop
        factor, unit = _unit(self.curve.native_ns, _TIME_UNITS)
        scaled = Axis(self.y.low / factor, self.y.high / factor, self.y.start, self.y.stop)
        add(root, "text", f"T ({unit})", x=2, y=_TOP - 6, class_="axis-title")
        _rule(root, scaled, 38, left, right)
        add(root, "text", "vs native", x=self.layout.width - 1, y=_TOP - 6, class_="end axis-title")
        native = self.curve.native_ns
        percent = Axis(100 * (self.y.low / native - 1), 100 * (self.y.high / native - 1), self.y.start, self.y.stop)
        for value in percent.ticks(38):
            y = percent.at(value)
            add(root, "path", d=f"M{right:g} {y:.1f}h4", class_="tick")
            add(root, "text", signed(value, 0), x=right + 7, y=y + 4)
        add(root, "path", d=f"M{left:g} {self.time_bottom:g}H{right:g}", class_="tick")

    def _slope_grid(self, root: Element) -> None:
        left, right = self.x.start, self.x.stop
        unit = f" ({self.slope_unit_name})" if self.slope_unit_name else ""
        title = self.parameter.slope_title + unit
        add(root, "text", title, x=2, y=self.slope_top - 8, class_="axis-title")
        _rule(root, self.slope_y, 30, left, right)
        add(root, "path", d=f"M{left:g} {self.bottom:g}H{right:g}", class_="tick")

    def _breakpoints(self, root: Element) -> None:
        """A dot with its exact numbers where two pieces meet."""
        for before, after in pairwise(self.curve.pieces):
            value = self.parameter.to_axis(after.start)
            if not self.x.holds(value):
                continue
            dot = add(root, "circle", cx=self.x.at(value), cy=self.y.at(after.at(after.start)), r=2.6)
            dot.set("class", "breakpoint")
            slope = self.parameter.show_slope
            hint(
                dot,
                f"breakpoint at {self.parameter.show(after.start)}, T {format_time(after.at(after.start))}: "
                f"{slope(before.slope)} below, {slope(after.slope)} above in {self.parameter.symbol}",
            )

    def _native(self, root: Element) -> None:
        curve = self.curve
        x, y = self.x.at(self.parameter.to_axis(curve.native)), self.y.at(curve.native_ns)
        add(root, "path", d=self._vertical(x), class_="native-line")
        mark = add(root, "path", d=f"M{x:.1f} {y - 6:.1f}l6 6l-6 6l-6-6Z", class_="native")
        hint(mark, f"native point: {self.parameter.show(curve.native)}, T {format_time(curve.native_ns)}")

    def _limit(self, root: Element) -> None:
        """The horizontal line of T + x % and where T crosses it."""
        curve = self.curve
        y = self.y.at((1 + curve.percent / 100) * curve.native_ns)
        add(root, "path", d=f"M{self.x.start:g} {y:.1f}H{self.x.stop:g}", class_="limit-line")
        if curve.limit is None:
            return
        x = self.x.at(self.parameter.to_axis(curve.limit))
        add(root, "path", d=self._vertical(x), class_="limit-line")

    def _labels(self, root: Element) -> None:
        """Name the native point and the limit, over all lines and one below the other."""
        curve, show = self.curve, self.parameter.show
        self._label(root, f"native {show(curve.native)}", curve.native, _TOP + 16, "native-text")
        if curve.limit is not None:
            text = f"+{curve.percent:g} % at {show(curve.limit)}"
            self._label(root, text, curve.limit, _TOP + 33, "limit-text")

    def _label(self, root: Element, text: str, at: float, y: float, name: str) -> None:
        """Write beside the vertical line at L or G *at*, on the side with room if the text fits there."""
        x = self.x.at(self.parameter.to_axis(at))
        side, width = self.parameter.label_side, text_width(text) + 8
        if side == "end" and x - width < self.x.start:
            side = "start"
        elif side == "start" and x + width > self.x.stop:
            side = "end"
        add(root, "text", text, x=x + (6 if side == "start" else -6), y=y, class_=f"{side} label {name}")


def _rule(root: Element, axis: Axis, spacing: float, left: float, right: float) -> None:
    """Horizontal lines with their values at the left."""
    values = axis.ticks(spacing)
    for value, text in zip(values, tick_texts(values), strict=True):
        y = axis.at(value)
        if y < _TOP + 5:  # the title of the upper axis is there
            continue
        add(root, "path", d=f"M{left:g} {y:.1f}H{right:g}", class_="grid")
        add(root, "text", text, x=left - 6, y=y + 4, class_="end")
