"""Space-time picture of a small schedule: ranks from top to bottom, time from left to right.

Calcs are boxes, messages lines from the end of the send to the end of the receive.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from atlas_lp.errors import GoalError
from atlas_lp.goal.schedule import CALC, RECV, SEND, Ints, Schedule
from atlas_lp.report.figures.style import BAND, COLORS, QUIET, as_bytes, house_figure, time_unit
from atlas_lp.texts import plain

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST_RANKS, MOST_OPERATIONS = 40, 6000
"""What still is a readable picture."""

WORK = {
    (False, True): ("work that sends", COLORS[0]),
    (True, True): ("work that receives and sends", COLORS[1]),
    (True, False): ("work that receives", COLORS[2]),
    (False, False): ("work without messages", QUIET),
}
"""Words and colour of a calc, by whether it follows a receive and whether a send follows it."""

MESSAGES = {True: ("message between nodes", COLORS[6], 0.9), False: ("message inside a node", QUIET, 0.7)}
"""Words, colour and line width of a message, by whether it leaves its node."""

_INCHES, _LANE_INCHES, _AROUND_INCHES = 9.0, 0.12, 1.15
_BETWEEN_RANKS = 0.5
_LEAST_SHARE = 1 / 300
"""Least width of a box as a share of the time axis: much narrower, and its white edge covers all of it."""


def draw_schedule(
    schedule: Schedule, node_of_rank: Sequence[int], end_ns: Ints, title: str = "", kind: str = "svg"
) -> bytes:
    """Return the picture of *schedule*, whose operations end at *end_ns*; equal inputs, equal bytes.

    *kind* is one of :data:`~atlas_lp.report.figures.style.FORMATS`.

    Raises :class:`~atlas_lp.errors.GoalError` when it has too many ranks or operations to be read.
    """
    if schedule.ranks > MOST_RANKS or len(schedule) > MOST_OPERATIONS:
        raise GoalError(
            f"{schedule.ranks} ranks and {len(schedule)} operations do not fit a picture; the limits are {MOST_RANKS} "
            f"and {MOST_OPERATIONS}: draw fewer ranks, channels or bytes"
        )
    places = _Places(schedule, node_of_rank, end_ns)
    unit, scale = time_unit(places.span_ns)
    with house_figure(_INCHES, _AROUND_INCHES + _LANE_INCHES * places.height) as (figure, axes):
        _draw_bands(axes, places)
        _draw_messages(axes, places, scale)
        _draw_work(axes, places, scale)
        axes.set_xlim(0, places.span_ns / scale)
        axes.set_ylim(places.height, 0)
        axes.set_xlabel(f"time ({unit})")
        axes.set_title(plain(title), loc="left", fontsize=10)
        axes.spines[["top", "right", "left"]].set_visible(False)
        axes.tick_params(left=False)
        figure.legend(loc="outside lower left", ncols=3, frameon=False, fontsize=8)
        return as_bytes(figure, kind)


class _Places:
    """Where everything stands: a row per rank, node by node, and in it as many lanes as calcs run at once."""

    def __init__(self, schedule: Schedule, node_of_rank: Sequence[int], end_ns: Ints) -> None:
        self.schedule, self.node = schedule, [int(node) for node in node_of_rank]
        self.end_ns = np.asarray(end_ns, dtype=np.float64)
        self.begin_ns = self.end_ns - np.where(schedule.kind == CALC, schedule.size, 0)
        self.span_ns = float(self.end_ns.max(initial=0)) or 1.0
        self.lane = self._lanes()
        lanes = [1] * schedule.ranks
        for operation, lane in self.lane.items():
            rank = int(schedule.rank[operation])
            lanes[rank] = max(lanes[rank], lane + 1)
        # Rows go node by node; in some schedules the numbers of ranks do not.
        self.rows = sorted(range(schedule.ranks), key=lambda rank: (self.node[rank], rank))
        self.top = [0.0] * schedule.ranks
        self.lanes, self.height = lanes, 0.0
        for rank in self.rows:
            self.top[rank] = self.height + _BETWEEN_RANKS / 2
            self.height += lanes[rank] + _BETWEEN_RANKS

    def _lanes(self) -> dict[int, int]:
        """Lane of every calc in its rank: the first that is free when it begins."""
        calcs = np.flatnonzero(self.schedule.kind == CALC).tolist()
        free: list[list[float]] = [[] for _ in range(self.schedule.ranks)]
        lane = {}
        slack = 1e-9 * self.span_ns
        for operation in sorted(calcs, key=lambda o: (self.begin_ns[o], self.end_ns[o], o)):
            own = free[int(self.schedule.rank[operation])]
            at = next((i for i, until in enumerate(own) if until <= self.begin_ns[operation] + slack), len(own))
            own[at : at + 1] = [float(self.end_ns[operation])]
            lane[operation] = at
        return lane

    @cached_property
    def _neighbours(self) -> list[tuple[int, int]]:
        return list(zip(self.schedule.before.tolist(), self.schedule.after.tolist(), strict=True))

    def does(self) -> dict[int, tuple[bool, bool]]:
        """Whether each calc follows a receive, and whether a send follows it."""
        kind = self.schedule.kind
        receives = {after for before, after in self._neighbours if kind[before] == RECV}
        sends = {before for before, after in self._neighbours if kind[after] == SEND}
        return {operation: (operation in receives, operation in sends) for operation in self.lane}

    def messages(self) -> list[tuple[int, int, bool]]:
        """Send, receive, and whether it leaves its node, of every message."""
        sends, recvs = self.schedule.messages()
        pairs = sorted(zip(sends.tolist(), recvs.tolist(), strict=True))
        rank = self.schedule.rank
        return [(send, recv, self.node[int(rank[send])] != self.node[int(rank[recv])]) for send, recv in pairs]

    def heights(self) -> dict[int, float]:
        """Height of the ends of messages: the middle of the calc before a send, or behind a receive."""
        kind, result = self.schedule.kind, {}
        for before, after in self._neighbours:
            if kind[before] == CALC and kind[after] == SEND:
                result[after] = self.middle(before)
            if kind[before] == RECV and kind[after] == CALC:
                result[before] = self.middle(after)
        return result

    def middle(self, operation: int) -> float:
        """Height of the middle of a calc, or of the first lane of its rank."""
        return self.top[int(self.schedule.rank[operation])] + self.lane.get(operation, 0) + 0.5


def _draw_bands(axes: Axes, places: _Places) -> None:
    """A ground behind every other node, and the names of nodes and ranks."""
    names = []
    for place, rank in enumerate(places.rows):
        node = places.node[rank]
        low = places.top[rank] - _BETWEEN_RANKS / 2
        if node % 2 == 0:
            axes.axhspan(low, low + places.lanes[rank] + _BETWEEN_RANKS, color=BAND, linewidth=0, zorder=0)
        is_first = place == 0 or places.node[places.rows[place - 1]] != node
        names.append(f"node {node}   {rank}" if is_first else f"{rank}")
    axes.set_yticks([places.top[rank] + places.lanes[rank] / 2 for rank in places.rows], names)


def _draw_work(axes: Axes, places: _Places, scale: float) -> None:
    """A box per calc, in the colour of what it does."""
    from matplotlib.collections import PolyCollection

    does = places.does()
    least = places.span_ns / scale * _LEAST_SHARE
    for what, (words, color) in WORK.items():
        boxes = []
        for operation in (operation for operation in sorted(does) if does[operation] == what):
            left, right = places.begin_ns[operation] / scale, places.end_ns[operation] / scale
            right, middle = max(right, left + least), places.middle(operation)
            low, high = middle - 0.42, middle + 0.42
            boxes.append([(left, low), (right, low), (right, high), (left, high)])
        if boxes:
            axes.add_collection(
                PolyCollection(boxes, facecolors=color, edgecolors="white", linewidths=0.4, zorder=2, gid=words)
            )
            axes.plot([], [], color=color, linewidth=6, label=words)


def _draw_messages(axes: Axes, places: _Places, scale: float) -> None:
    """A line per message, from the end of its send to the end of its receive."""
    from matplotlib.collections import LineCollection

    heights, messages = places.heights(), places.messages()
    for leaves, (words, color, width) in MESSAGES.items():
        lines = [
            [(places.end_ns[end] / scale, heights.get(end, places.middle(end))) for end in (send, recv)]
            for send, recv, out in messages
            if out == leaves
        ]
        if lines:
            axes.add_collection(
                LineCollection(lines, colors=color, linewidths=width, alpha=0.8, zorder=3 if leaves else 1, gid=words)
            )
            axes.plot([], [], color=color, linewidth=2, label=words)
