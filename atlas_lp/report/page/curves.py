"""T(L) over its slope and T(bandwidth) over its slope, as the paper draws them: one shared axis, two panels."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from atlas_lp.report.page.svg import (
    Element,
    Point,
    Scale,
    add,
    figure,
    hint,
    horizontal_axis,
    path,
    text_width,
    tick_texts,
    to_text,
)
from atlas_lp.report.words import box_end, signed, to_gbps
from atlas_lp.solver.axis import GAP, LATENCY, Axis
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
class DrawnPiece:
    """``T = constant + slope * x`` on start..stop; x is L in ns or G in ns per byte."""

    start: float
    stop: float
    constant: float
    slope: int

    def at(self, x: float) -> float:
        """Time in ns."""
        return self.constant + self.slope * x


def pieces_along(summary: Mapping[str, Any], axis: Axis) -> list[DrawnPiece]:
    """Pieces of T along *axis*, the other variable at its native value."""
    return [
        DrawnPiece(row[f"from_{axis.unit}"], row[f"to_{axis.unit}"], row["constant_ns"], row[axis.component])
        for row in summary["envelopes"][axis.name]
    ]


def time_at(pieces: Sequence[DrawnPiece], x: float) -> float:
    """T in ns: pieces of a convex function, so their largest value."""
    return max(piece.at(x) for piece in pieces)


def is_flat(pieces: Sequence[DrawnPiece]) -> bool:
    """Whether T does not depend on the parameter at all."""
    return all(piece.slope == 0 for piece in pieces)


@dataclass(frozen=True)
class DrawnAxis:
    """How T along *axis* is drawn: over *to_scale* of its value, and with which titles, ranges of networks and units.

    *least* is the smallest value worth drawing for a native one; *label_side* is the ``text-anchor`` that puts a label
    where the curve leaves room.
    """

    axis: Axis
    title: str
    slope_title: str
    bands: tuple[Band, ...]
    label_side: str
    to_scale: Callable[[float], float]
    from_scale: Callable[[float], float]
    least: Callable[[float], float]
    show_slope: Callable[[int], str]
    slope_units: Sequence[tuple[float, str]]

    def ends(self, box: Mapping[str, float], native: float, furthest: float) -> tuple[float, float]:
        """Ends of the logarithmic scale, lower one first: the native point in sight, up to *furthest*."""
        high = min(furthest, box_end(box, self.axis, "to"))
        low = max(self.least(native), box_end(box, self.axis, "from"), high / 1e4)
        return self.on_scale(low, high)

    def on_scale(self, start: float, stop: float) -> tuple[float, float]:
        """Two values as they lie on the scale, lower one first."""
        low, high = sorted(map(self.to_scale, (start, stop)))
        return low, high


DRAWN = (
    DrawnAxis(
        axis=LATENCY,
        title="one-way latency L (us, log scale)",
        slope_title="slope dT/dL: messages on the critical path",
        bands=LATENCY_BANDS,
        label_side="end",
        to_scale=lambda ns: ns / 1e3,
        from_scale=lambda us: us * 1e3,
        least=lambda native: min(native / 3, 1e3),
        show_slope=lambda slope: f"{slope:,} messages",
        slope_units=((1.0, ""),),
    ),
    DrawnAxis(
        axis=GAP,
        title="bandwidth 8 / G (Gbps, log scale)",
        slope_title="slope dT/dG: bytes on the critical path",
        bands=BANDWIDTH_BANDS,
        label_side="start",
        to_scale=to_gbps,
        from_scale=lambda gbps: 8 / gbps,
        least=lambda native: native / 8,
        show_slope=format_size,
        slope_units=_SIZE_UNITS,
    ),
)
"""L and G, in the order of :data:`~atlas_lp.solver.axis.AXES`."""


def _unit(largest: float, units: Sequence[tuple[float, str]]) -> tuple[float, str]:
    return next((unit for unit in units if largest >= unit[0]), units[-1])


@dataclass(frozen=True)
class Curve:
    """What one figure shows: pieces, native point and the limit that keeps T within *percent*."""

    drawn: DrawnAxis
    pieces: Sequence[DrawnPiece]
    native: float
    native_ns: float
    limit: float | None
    percent: float

    @classmethod
    def of(cls, summary: Mapping[str, Any], drawn: DrawnAxis) -> Curve:
        """The curve of a summary along one axis."""
        axis, tolerance = drawn.axis, summary["tolerance"]
        return cls(
            drawn,
            pieces_along(summary, axis),
            summary["native"][axis.key],
            summary["makespan_ns"],
            tolerance[axis.key],
            tolerance["percent"],
        )

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
        self.curve, self.layout, self.drawn, self.show = curve, layout, curve.drawn, curve.drawn.axis.show
        low, high = self.drawn.ends(box, curve.native, curve.furthest())
        self.x = Scale(low, high, layout.left, layout.width - layout.right, log=True)
        self.time_bottom = _TOP + layout.upper
        self.slope_top = self.time_bottom + _BETWEEN
        self.bottom = self.slope_top + layout.lower
        self.points = self._points()
        self.y = self._time_scale()
        self.slopes = [piece for piece in curve.pieces if self._shown(piece)]
        largest = max(piece.slope for piece in self.slopes)
        self.slope_unit, self.slope_unit_name = _unit(largest, self.drawn.slope_units)
        self.slope_y = Scale(0, max(1.0, 1.08 * largest / self.slope_unit), self.bottom, self.slope_top)

    def draw(self) -> str:
        name = f"{self.drawn.axis.name}-{self.layout.name}"
        root = figure(name, self.layout.width, self.bottom + _BELOW, self._description())
        root.set("data-axis", f"{self.x.low!r} {self.x.high!r} {self.x.start:g} {self.x.stop:g}")
        self._bands(root)
        self._time_grid(root)
        self._slope_grid(root)
        spacing = 32 if self.layout.narrow else 30
        horizontal_axis(root, self.x, self.bottom, self.drawn.title, spacing)
        self._limit(root)
        add(root, "path", d=path(self.points), class_="curve")
        add(root, "path", d=path(self._steps()), class_="curve")
        self._breakpoints(root)
        self._native(root)
        self._labels(root)
        add(root, "path", class_="cursor", d=self._vertical(self.x.start))
        return to_text(root)

    def _description(self) -> str:
        curve, show = self.curve, self.show
        ends = sorted((self.curve.pieces[0].start, self.curve.pieces[-1].stop))
        first, last = (format_time(time_at(curve.pieces, x)) for x in ends)
        limit = f"all of that range stays within +{curve.percent:g} %"
        if curve.limit is not None:
            limit = f"+{curve.percent:g} % is reached at {show(curve.limit)}"
        return (
            f"T goes from {first} at {show(ends[0])} to {last} at {show(ends[1])} in {len(curve.pieces)} straight "
            f"pieces; at the native {show(curve.native)} it is {format_time(curve.native_ns)}; {limit}. The panel "
            f"below shows the slope, which rises from {self.drawn.show_slope(curve.pieces[0].slope)} to "
            f"{self.drawn.show_slope(curve.pieces[-1].slope)}."
        )

    def _shown(self, piece: DrawnPiece) -> bool:
        a, b = self.drawn.on_scale(piece.start, piece.stop)
        return b > self.x.low and a < self.x.high

    def _points(self) -> list[tuple[float, float]]:
        """Samples of (value on the scale, T in ns): every two pixels and at every breakpoint."""
        count = int(self.x.stop - self.x.start) // 2
        at_breaks = [self.drawn.to_scale(piece.stop) for piece in self.curve.pieces[:-1]]
        values = sorted([*self.x.values(count), *filter(self.x.holds, at_breaks)])
        return [(value, self._time(value)) for value in values]

    def _time(self, value: float) -> float:
        return time_at(self.curve.pieces, self.drawn.from_scale(value))

    def _time_scale(self) -> Scale:
        """Scale of T that always shows twice the limit, so that a flat curve looks flat; fixes the points."""
        times = [time for _, time in self.points]
        low, high = min(times), max(*times, (1 + self.curve.percent / 50) * self.curve.native_ns)
        pad = 0.04 * (high - low)
        scale = Scale(low - pad, high + 4 * pad, self.time_bottom, _TOP)
        self.points = [(self.x.at(value), scale.at(time)) for value, time in self.points]
        return scale

    def _steps(self) -> list[Point]:
        points = []
        for piece in self.slopes:
            y = self.slope_y.at(piece.slope / self.slope_unit)
            points += [(self.x.at(self.drawn.to_scale(x)), y) for x in (piece.start, piece.stop)]
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
        for number, band in enumerate(self.drawn.bands):
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
        scaled = Scale(self.y.low / factor, self.y.high / factor, self.y.start, self.y.stop)
        add(root, "text", f"T ({unit})", x=2, y=_TOP - 6, class_="axis-title")
        _rule(root, scaled, 38, left, right)
        add(root, "text", "vs native", x=self.layout.width - 1, y=_TOP - 6, class_="end axis-title")
        native = self.curve.native_ns
        percent = Scale(100 * (self.y.low / native - 1), 100 * (self.y.high / native - 1), self.y.start, self.y.stop)
        for value in percent.ticks(38):
            y = percent.at(value)
            add(root, "path", d=f"M{right:g} {y:.1f}h4", class_="tick")
            add(root, "text", signed(value, 0), x=right + 7, y=y + 4)
        add(root, "path", d=f"M{left:g} {self.time_bottom:g}H{right:g}", class_="tick")

    def _slope_grid(self, root: Element) -> None:
        left, right = self.x.start, self.x.stop
        unit = f" ({self.slope_unit_name})" if self.slope_unit_name else ""
        title = self.drawn.slope_title + unit
        add(root, "text", title, x=2, y=self.slope_top - 8, class_="axis-title")
        _rule(root, self.slope_y, 30, left, right)
        add(root, "path", d=f"M{left:g} {self.bottom:g}H{right:g}", class_="tick")

    def _breakpoints(self, root: Element) -> None:
        """A dot with its exact numbers where two pieces meet."""
        for before, after in pairwise(self.curve.pieces):
            value = self.drawn.to_scale(after.start)
            if not self.x.holds(value):
                continue
            dot = add(root, "circle", cx=self.x.at(value), cy=self.y.at(after.at(after.start)), r=2.6)
            dot.set("class", "breakpoint")
            slope = self.drawn.show_slope
            hint(
                dot,
                f"breakpoint at {self.show(after.start)}, T {format_time(after.at(after.start))}: "
                f"{slope(before.slope)} below, {slope(after.slope)} above in {self.drawn.axis.symbol}",
            )

    def _native(self, root: Element) -> None:
        curve = self.curve
        x, y = self.x.at(self.drawn.to_scale(curve.native)), self.y.at(curve.native_ns)
        add(root, "path", d=self._vertical(x), class_="native-line")
        mark = add(root, "path", d=f"M{x:.1f} {y - 6:.1f}l6 6l-6 6l-6-6Z", class_="native")
        hint(mark, f"native point: {self.show(curve.native)}, T {format_time(curve.native_ns)}")

    def _limit(self, root: Element) -> None:
        """The horizontal line of T + x % and where T crosses it."""
        curve = self.curve
        y = self.y.at((1 + curve.percent / 100) * curve.native_ns)
        add(root, "path", d=f"M{self.x.start:g} {y:.1f}H{self.x.stop:g}", class_="limit-line")
        if curve.limit is None:
            return
        x = self.x.at(self.drawn.to_scale(curve.limit))
        add(root, "path", d=self._vertical(x), class_="limit-line")

    def _labels(self, root: Element) -> None:
        """Name the native point and the limit, over all lines and one below the other."""
        curve, show = self.curve, self.show
        self._label(root, f"native {show(curve.native)}", curve.native, _TOP + 16, "native-text")
        if curve.limit is not None:
            text = f"+{curve.percent:g} % at {show(curve.limit)}"
            self._label(root, text, curve.limit, _TOP + 33, "limit-text")

    def _label(self, root: Element, text: str, at: float, y: float, name: str) -> None:
        """Write beside the vertical line at L or G *at*, on the side with room if the text fits there."""
        x = self.x.at(self.drawn.to_scale(at))
        side, width = self.drawn.label_side, text_width(text) + 8
        if side == "end" and x - width < self.x.start:
            side = "start"
        elif side == "start" and x + width > self.x.stop:
            side = "end"
        add(root, "text", text, x=x + (6 if side == "start" else -6), y=y, class_=f"{side} label {name}")


def _rule(root: Element, scale: Scale, spacing: float, left: float, right: float) -> None:
    """Horizontal lines with their values at the left."""
    values = scale.ticks(spacing)
    for value, text in zip(values, tick_texts(values), strict=True):
        y = scale.at(value)
        if y < _TOP + 5:  # the title of the upper axis is there
            continue
        add(root, "path", d=f"M{left:g} {y:.1f}H{right:g}", class_="grid")
        add(root, "text", text, x=left - 6, y=y + 4, class_="end")
