"""Picture of a critical path: time from left to right, a lane per GPU whose work is on it and per communicator."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from atlas_lp.report.figures.style import COLORS, INK, QUIET, as_bytes, house_figure, time_unit
from atlas_lp.texts import plain

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MOST_LANES = 8
_VISIBLE = 1e-3
"""Share of the time below which a step is no more than a hair line: the path is not drawn from lane to lane for it."""

Row = Mapping[str, Any]


def draw_timeline(rows: Sequence[Row], title: str, kind: str = "svg") -> bytes:
    """Return the picture of steps as of :func:`~atlas_lp.analysis.as_json.steps_json`; equal steps, equal bytes.

    *kind* is one of :data:`~atlas_lp.report.figures.style.FORMATS`.
    """
    lanes = _lanes(rows)
    names = sorted(set(lanes), key=_place)
    last = max((row["begin_ns"] + row["duration_ns"] for row in rows), default=1)
    unit, scale = time_unit(last)
    with house_figure(11, 1.4 + 0.36 * len(names)) as (figure, axes):
        places = [names.index(lane) for lane in lanes]
        _draw_steps(axes, rows, places, scale)
        _draw_changes(axes, rows, places, scale, _VISIBLE * last)
        axes.set_yticks(range(len(names)), [plain(name) for name in names])
        axes.set_ylim(len(names) - 0.4, -0.6)
        axes.set_xlim(0, last / scale)
        axes.set_xlabel(f"time ({unit})")
        axes.set_title(plain(title), loc="left", fontsize=10)
        axes.spines[["top", "right", "left"]].set_visible(False)
        axes.tick_params(left=False)
        figure.legend(loc="outside lower left", ncols=6, frameon=False)
        return as_bytes(figure, kind)


def _draw_steps(axes: Axes, rows: Sequence[Row], places: Sequence[int], scale: float) -> None:
    """Boxes of the steps, one colour per type of collective."""
    types = sorted({row["type"] for row in rows if "type" in row})
    colors = {"": QUIET, **{name: COLORS[i % len(COLORS)] for i, name in enumerate(types)}}
    for name, color in colors.items():
        for place in sorted(set(places)):
            spans = [
                (row["begin_ns"] / scale, row["duration_ns"] / scale)
                for row, own in zip(rows, places, strict=True)
                if own == place and row.get("type", "") == name
            ]
            axes.broken_barh(spans, (place - 0.36, 0.72), facecolors=color, linewidth=0)
        axes.plot([], [], color=color, linewidth=6, label=plain(name) or "GPU work and idle time")


def _draw_changes(axes: Axes, rows: Sequence[Row], places: Sequence[int], scale: float, least_ns: float) -> None:
    """Lines where the path goes from one lane to another."""
    seen = [(row, place) for row, place in zip(rows, places, strict=True) if row["duration_ns"] >= least_ns]
    for (_, before), (row, after) in pairwise(seen):
        if before != after:
            axes.plot([row["begin_ns"] / scale] * 2, [before, after], color=INK, linewidth=0.7, zorder=0)


def _lanes(rows: Sequence[Row]) -> list[str]:
    """Lane of every row; GPUs and communicators with the least time share one where there are too many."""
    own = [f"GPU {row['gpu']}" if "gpu" in row else f"{row['ranks']} ranks, {row['communicator']}" for row in rows]
    time: Counter[str] = Counter()
    for lane, row in zip(own, rows, strict=True):
        time[lane] += row["duration_ns"]
    kept: set[str] = set()
    for is_gpu in (True, False):
        mine = [lane for lane in time if lane.startswith("GPU ") == is_gpu]
        mine.sort(key=lambda lane: (-time[lane], lane))
        kept.update(mine if len(mine) <= _MOST_LANES else mine[: _MOST_LANES - 1])
    return [
        lane if lane in kept else "GPUs, others" if lane.startswith("GPU ") else "other communicators" for lane in own
    ]


def _place(lane: str) -> tuple[int, int, str]:
    """GPUs by number, the other GPUs, communicators, the other communicators."""
    if lane.startswith("GPU "):
        return 0, int(lane[4:]), lane
    return ("GPUs, others", "", "other communicators").index(lane if lane[0] in "Go" else "") + 1, 0, lane
