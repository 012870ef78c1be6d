"""The joint map: which parameter matters at each (L, bandwidth), and by how much T grows.

Borders are computed from the planes, one exact crossing for each column or row of pixels, not traced on a grid.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import numpy as np

from atlas_lp.analysis.regimes import (
    BAND_EDGES,
    BANDWIDTH,
    BOTH,
    LATENCY,
    NEAR,
    REGIMES,
    THRESHOLD,
    Floats,
    Joint,
    gap_limits,
    latency_limits,
    regime_map,
    time_grid,
)
from atlas_lp.report.page.curves import DRAWN, LAYOUTS, Layout
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
    tick_text,
    to_text,
)
from atlas_lp.solver.axis import AXES
from atlas_lp.units import format_time

_TOP = 22.0
_BELOW = 40.0
_LABELS = {NEAR: "near native or faster", LATENCY: "latency", BANDWIDTH: "bandwidth", BOTH: "both"}
_NATIVE_ROOM = 60.0  # pixels the name of the native point takes
_HATCH = 7.0  # pixels between hatching lines
_CELL = 6.0  # pixels of a cell when looking for room for a label


def map_figure(summary: Mapping[str, Any], layout: Layout) -> str:
    """Return the map as SVG text."""
    return _Map(summary, layout).draw()


def map_figures(summary: Mapping[str, Any]) -> list[str]:
    """Return the map in every layout."""
    return [map_figure(summary, layout) for layout in LAYOUTS]


class _Map:
    """Draws the joint planes of a summary in a layout."""

    def __init__(self, summary: Mapping[str, Any], layout: Layout) -> None:
        self.joint: Joint = summary["joint"]
        native, box = summary["native"], summary["box"]
        self.latency, self.gap = (float(native[axis.key]) for axis in AXES)
        self.native_ns = float(time_grid(self.joint, self.latency, self.gap)[0, 0])
        across, upward = (drawn.ends(box, native[drawn.axis.key], math.inf) for drawn in DRAWN)
        self.bottom = _TOP + 0.62 * layout.width + (40 if layout.narrow else 0)
        self.x = Scale(*across, layout.left, layout.width - layout.right, log=True)
        self.y = Scale(*upward, self.bottom, _TOP, log=True)
        self.name = f"map-{layout.name}"
        self.layout = layout

    def draw(self) -> str:
        root = figure(self.name, self.layout.width, self.bottom + _BELOW, self._description())
        root.set("data-axis", f"{self.x.low!r} {self.x.high!r} {self.x.start:g} {self.x.stop:g}")
        root.set("data-axis-y", f"{self.y.low!r} {self.y.high!r} {self.y.start:g} {self.y.stop:g}")
        definitions = add(root, "defs")
        self._clip(definitions, "plot", self._rectangle())
        levels = [self._level(edge) for edge in BAND_EDGES]
        for number, level in enumerate(levels, 1):
            add(definitions, "path", id=f"{self.name}-{number}", d=self._below(level))
        plot = add(root, "g", clip_path=f"url(#{self.name}-plot)")
        self._regimes(plot, definitions)
        add(plot, "path", d=self._near(), class_="near")
        for level in levels:
            add(plot, "path", d=path(level), class_="contour")
        self._axes(root)
        self._contour_labels(root, levels)
        self._region_labels(root)
        self._native(root)
        add(root, "path", class_="cursor")
        return to_text(root)

    def _description(self) -> str:
        grid = regime_map(
            self.joint,
            (self.latency, self.gap),
            np.array(self.x.values(60)) * 1e3,
            8 / np.array(self.y.values(60)),
        )
        shares = [f"{100 * np.mean(grid.regimes == i):.0f} % {name}" for i, name in enumerate(REGIMES)]
        return (
            f"Map of latency {format_time(self.x.low * 1e3)} to {format_time(self.x.high * 1e3)} against bandwidth "
            f"{tick_text(self.y.low)} to {tick_text(self.y.high)} Gbps, both logarithmic. Share of its area by what "
            f"slows the job: {', '.join(shares)}. The table beside it holds the same in numbers."
        )

    def _point(self, latency_ns: float, gap: float) -> Point:
        """Pixels, a little outside the plot beyond its ends; an infinite G is no bandwidth at all."""
        x, y = latency_ns / 1e3, 8 / gap if gap > 0 else math.inf
        return _beyond(self.x, x), _beyond(self.y, y)

    def _columns(self) -> Floats:
        return np.array(self.x.values(1 + int(self.x.stop - self.x.start) // 2)) * 1e3

    def _rows(self) -> Floats:
        """G from the lowest bandwidth up."""
        return 8 / np.array(self.y.values(1 + int(self.y.start - self.y.stop) // 2))

    def _level(self, slowdown: float) -> list[Point]:
        """Where T is *slowdown* above native, by rising L; T is larger below that line."""
        columns = self._columns()
        limits = gap_limits(self.joint, columns, (1 + slowdown) * self.native_ns)
        return [self._point(x, g) for x, g in zip(columns, limits, strict=True)]

    def _bandwidth_border(self) -> list[Point]:
        """By rising L, where bandwidth alone wins the threshold; it does below that line."""
        columns = self._columns()
        there = time_grid(self.joint, columns, self.gap)[0]
        limits = gap_limits(self.joint, columns, there + THRESHOLD * self.native_ns)
        return [self._point(x, g) for x, g in zip(columns, limits, strict=True)]

    def _latency_border(self) -> list[Point]:
        """By rising bandwidth, where latency alone wins the threshold; it does right of that line."""
        rows = self._rows()
        there = time_grid(self.joint, self.latency, rows)[:, 0]
        limits = latency_limits(self.joint, rows, there + THRESHOLD * self.native_ns)
        return [self._point(x, g) for x, g in zip(limits, rows, strict=True)]

    def _rectangle(self) -> str:
        x, y = self.x, self.y
        return path([(x.start, y.stop), (x.stop, y.stop), (x.stop, y.start), (x.start, y.start)], close=True)

    def _below(self, line: list[Point]) -> str:
        y = self.bottom + 9
        return path([*line, (line[-1][0], y), (line[0][0], y)], close=True)

    def _above(self, line: list[Point]) -> str:
        y = _TOP - 9
        return path([*line, (line[-1][0], y), (line[0][0], y)], close=True)

    def _right(self, line: list[Point]) -> str:
        x = self.x.stop + 9
        return path([*line, (x, line[-1][1]), (x, line[0][1])], close=True)

    def _left(self, line: list[Point]) -> str:
        x = self.x.start - 9
        return path([*line, (x, line[-1][1]), (x, line[0][1])], close=True)

    def _near(self) -> str:
        return self._above(self._level(THRESHOLD))

    def _clip(self, definitions: Element, name: str, data: str) -> str:
        add(add(definitions, "clipPath", id=f"{self.name}-{name}"), "path", d=data)
        return f"url(#{self.name}-{name})"

    def _regimes(self, plot: Element, definitions: Element) -> None:
        """Paint "both" everywhere, then what only one parameter slows over it."""
        latency, bandwidth = self._latency_border(), self._bandwidth_border()
        self._bands(plot, "both")
        add(plot, "path", d=self._hatching(), class_="hatch")
        sides: tuple[tuple[str, str, str], ...] = (
            ("latency", self._right(latency), self._above(bandwidth)),
            ("bandwidth", self._below(bandwidth), self._left(latency)),
        )
        for regime, inside, outside in sides:
            group = add(plot, "g", clip_path=self._clip(definitions, f"{regime}-in", inside))
            group = add(group, "g", clip_path=self._clip(definitions, f"{regime}-out", outside))
            self._bands(group, regime)

    def _hatching(self) -> str:
        """Diagonal lines over the whole plot: a second sign of "both" beside its colour."""
        width, height = self.x.stop - self.x.start, self.bottom - _TOP
        starts = np.arange(self.x.start - height, self.x.start + width, _HATCH)
        return "".join(path([(x, self.bottom), (x + height, _TOP)]) for x in starts)

    def _bands(self, parent: Element, regime: str) -> None:
        add(parent, "path", d=self._rectangle(), class_=f"{regime}0")
        for number in range(1, len(BAND_EDGES) + 1):
            add(parent, "use", href=f"#{self.name}-{number}", class_=f"{regime}{number}")

    def _axes(self, root: Element) -> None:
        left, right = self.x.start, self.x.stop
        add(root, "path", d=self._rectangle(), class_="frame")
        spacing = 32 if self.layout.narrow else 30
        horizontal_axis(root, self.x, self.bottom, DRAWN[0].title, spacing)
        add(root, "text", "bandwidth (Gbps)", x=2, y=_TOP - 9, class_="axis-title")
        add(root, "text", "G (ns/B)", x=self.layout.width - 1, y=_TOP - 9, class_="end axis-title")
        for value in self.y.ticks(22):
            y = self.y.at(value)
            add(root, "path", d=f"M{left - 5:g} {y:.1f}h5M{right:g} {y:.1f}h5", class_="tick")
            add(root, "text", tick_text(value), x=left - 8, y=y + 4, class_="end")
            add(root, "text", f"{8 / value:.3g}", x=right + 8, y=y + 4)

    def _contour_labels(self, root: Element, levels: list[list[Point]]) -> None:
        """Name each line on itself, at another share of its visible length so that names do not meet."""
        for number, (line, edge) in enumerate(zip(levels, BAND_EDGES, strict=True)):
            visible = [p for p in line if self._inside(p, 14)]
            if len(visible) > 20:
                x, y = _along(visible, 0.12 + 0.22 * number)
                add(root, "text", f"+{100 * edge:g} %", x=x, y=y + 4, class_="middle label small")

    def _inside(self, point: Point, margin: float) -> bool:
        x, y = point
        return self.x.start + margin < x < self.x.stop - margin and self.y.stop + margin < y < self.y.start - margin

    def _region_labels(self, root: Element) -> None:
        """Write the name of a regime in the middle of its largest free rectangle, upright if need be."""
        columns = np.arange(self.x.start + _CELL / 2, self.x.stop, _CELL)
        rows = np.arange(self.y.stop + _CELL / 2, self.y.start, _CELL)
        latencies = [1e3 * self.x.value(c) for c in columns]
        gaps = [8 / self.y.value(r) for r in rows]
        grid = regime_map(self.joint, (self.latency, self.gap), latencies, gaps)
        x, y = self._point(self.latency, self.gap)
        taken = (np.abs(columns - x) < _NATIVE_ROOM)[None, :] & (np.abs(rows - y) < _CELL * 2)[:, None]
        for regime, label in _LABELS.items():
            free, size = (grid.regimes == regime) & ~taken, (text_width(label, 14), 18.0)
            for turn, (width, height) in ((0, size), (-90, size[::-1])):
                spot = _room(free, width, height)
                if spot is not None:
                    x, y = self.x.start + spot[0], self.y.stop + spot[1]
                    place = f"translate({x:.1f} {y:.1f}) rotate({turn})"
                    add(root, "text", label, y=5, transform=place, class_="middle label region")
                    break

    def _native(self, root: Element) -> None:
        x, y = self._point(self.latency, self.gap)
        mark = add(root, "path", d=f"M{x:.1f} {y - 7:.1f}l7 7l-7 7l-7-7Z", class_="native")
        shown = ", ".join(axis.show(x) for axis, x in zip(AXES, (self.latency, self.gap), strict=True))
        hint(mark, f"native point: {shown}")
        side, offset = ("start", 11) if x + _NATIVE_ROOM < self.x.stop else ("end", -11)
        add(root, "text", "native", x=x + offset, y=y + 4, class_=f"{side} label native-text")


def _beyond(scale: Scale, value: float) -> float:
    """Pixel of *value*, or a few pixels outside the scale."""
    outward = math.copysign(6, scale.stop - scale.start)
    if value > scale.high:
        return scale.stop + outward
    return scale.at(value) if value >= scale.low else scale.start - outward


def _along(line: list[Point], share: float) -> Point:
    """Point at a share of the length of *line*."""
    steps = [math.dist(a, b) for a, b in pairwise(line)]
    rest = share * sum(steps)
    for position, step in zip(line, steps, strict=False):
        rest -= step
        if rest <= 0:
            return position
    return line[-1]


def _room(mask: np.ndarray[Any, np.dtype[np.bool_]], width: float, height: float) -> Point | None:
    """Centre, in pixels, of the largest rectangle of this shape that lies wholly in *mask*."""
    for scale in (4.0, 3.0, 2.5, 2.0, 1.6, 1.3, 1.0):
        shape = math.ceil(scale * height / _CELL), math.ceil(scale * width / _CELL)
        if shape[0] > mask.shape[0] or shape[1] > mask.shape[1]:
            continue
        windows = np.lib.stride_tricks.sliding_window_view(mask, shape)
        found = np.argwhere(windows.all(axis=(2, 3)))
        if len(found):
            row, column = found[len(found) // 2]
            return (column + shape[1] / 2) * _CELL, (row + shape[0] / 2) * _CELL
    return None
