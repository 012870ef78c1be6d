"""Small SVG: elements, scales and ticks.

Figures carry no colours and no fonts, only classes; the style sheet of the report gives both, so they follow the
reader's light or dark scheme.  Coordinates are pixels of the view box, rounded to a tenth.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from xml.etree import ElementTree as ET

Element = ET.Element
Point = tuple[float, float]

TICK_LABEL_HEIGHT = 16.0


def add(parent: Element, name: str, text: str = "", **attributes: str | float) -> Element:
    """Append an element; ``class_`` becomes ``class``, other underscores hyphens, numbers tenths."""
    plain = {key.rstrip("_").replace("_", "-"): _attribute(value) for key, value in attributes.items()}
    element = ET.SubElement(parent, name, plain)
    element.text = text or None
    return element


def _attribute(value: str | float) -> str:
    return value if isinstance(value, str) else f"{round(value, 1):g}"


def hint(element: Element, text: str) -> None:
    """Show *text* when the pointer rests on *element*."""
    add(element, "title", text)


def path(points: Iterable[Point], close: bool = False) -> str:
    """Path data through *points*."""
    text = "L".join(f"{_attribute(x)} {_attribute(y)}" for x, y in points)
    return f"M{text}Z" if close else f"M{text}"


def figure(name: str, width: float, height: float, described: str) -> Element:
    """Root element of the figure *name*, labelled by the heading with that id; *described* is read aloud."""
    kind, _, _ = name.partition("-")
    attributes = {
        "class": f"chart {name.rpartition('-')[2]}",
        "viewBox": f"0 0 {width:g} {height:g}",
        "role": "img",
        "tabindex": "0",
        "aria-labelledby": f"{kind}-heading",
        "aria-describedby": f"{name}-desc",
        "data-kind": kind,
    }
    root = ET.Element("svg", attributes)
    add(root, "desc", described, id=f"{name}-desc")
    return root


def to_text(root: Element) -> str:
    """Serialise for embedding in HTML."""
    return ET.tostring(root, encoding="unicode")


def text_width(text: str, size: float = 12) -> float:
    """Rough width of *text*, on the generous side: fonts differ between readers."""
    return 0.58 * size * len(text)


@dataclass(frozen=True)
class Scale:
    """Maps values *low*..*high* to pixels *start*..*stop*, linearly or by logarithm; clamps outside."""

    low: float
    high: float
    start: float
    stop: float
    log: bool = False

    def at(self, value: float) -> float:
        """Pixel of *value*."""
        value = min(max(value, self.low), self.high)
        if self.log:
            share = math.log(value / self.low) / math.log(self.high / self.low)
        else:
            share = (value - self.low) / (self.high - self.low)
        return self.start + share * (self.stop - self.start)

    def value(self, pixel: float) -> float:
        """Value at a pixel; the inverse of :meth:`at` on the scale."""
        share = (pixel - self.start) / (self.stop - self.start)
        if self.log:
            return float(self.low * (self.high / self.low) ** share)
        return self.low + (self.high - self.low) * share

    def values(self, count: int) -> list[float]:
        """*count* values, evenly spread in pixels, ends included."""
        length = self.stop - self.start
        inner = [self.value(self.start + length * i / (count - 1)) for i in range(1, count - 1)]
        return [self.low, *inner, self.high]

    def holds(self, value: float) -> bool:
        """Whether *value* lies on the scale."""
        return self.low <= value <= self.high

    def ticks(self, spacing: float) -> list[float]:
        """Round values at least about *spacing* pixels apart."""
        length = abs(self.stop - self.start)
        if self.log:
            return _log_ticks(self, spacing)
        return _linear_ticks(self.low, self.high, max(2, int(length / spacing)))


def _linear_ticks(low: float, high: float, most: int) -> list[float]:
    rough = (high - low) / most
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * m for m in (1, 2, 5, 10) if power * m >= rough * (1 - 1e-9))
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [i * step for i in range(first, last + 1)]


def _log_ticks(scale: Scale, spacing: float) -> list[float]:
    per_decade = abs(scale.stop - scale.start) / math.log10(scale.high / scale.low)
    fitting = (m for gap, m in ((0.3, (1, 2, 5)), (0.47, (1, 3))) if gap * per_decade >= spacing)
    chosen = next(fitting, (1,))
    decades = range(math.floor(math.log10(scale.low)), math.ceil(math.log10(scale.high)) + 1)
    ticks = [m * 10.0**d for d in decades for m in chosen if scale.holds(m * 10.0**d)]
    if len(ticks) >= 3:
        return ticks
    return _linear_ticks(scale.low, scale.high, max(2, int(abs(scale.stop - scale.start) / (2 * spacing))))


def tick_text(value: float) -> str:
    """Write a tick without an exponent: ``0.5``, ``20``, ``1,000``."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{round(value, 9):.6g}"


def tick_texts(values: Sequence[float]) -> list[str]:
    """Write the ticks of a linear axis with the same number of decimals, large ones in k or M.

    >>> tick_texts([0.0, 0.5, 1.0]), tick_texts([0, 5e5, 1e6])
    (['0.0', '0.5', '1.0'], ['0.0M', '0.5M', '1.0M'])
    """
    largest = max(map(abs, values), default=0)
    factor, suffix = (1e6, "M") if largest >= 1e6 else (1e3, "k") if largest >= 1e5 else (1, "")
    values = [value / factor for value in values]
    digits = max((len(f"{round(value, 9):.6g}".partition(".")[2]) for value in values), default=0)
    return [f"{value:,.{digits}f}{suffix}" for value in values]


def horizontal_axis(parent: Element, scale: Scale, y: float, title: str, spacing: float) -> None:
    """Ticks, labels and a title below *y*."""
    for value in scale.ticks(spacing):
        x = scale.at(value)
        add(parent, "path", d=f"M{x:.1f} {y:g}v5", class_="tick")
        add(parent, "text", tick_text(value), x=x, y=y + TICK_LABEL_HEIGHT + 1, class_="middle")
    middle = (scale.start + scale.stop) / 2
    add(parent, "text", title, x=middle, y=y + 2 * TICK_LABEL_HEIGHT + 3, class_="middle axis-title")
