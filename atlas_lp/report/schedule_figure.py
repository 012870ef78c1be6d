"""Space-time picture of a small schedule as SVG: ranks from top to bottom, time from left to right.

Calcs are boxes, messages lines from the end of the send to the end of the receive.  The text depends on the schedule
and the times alone, so that pictures in the documentation can be checked.
"""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from fractions import Fraction

import numpy as np

from atlas_lp.errors import GoalError
from atlas_lp.goal.event_graph import COMPONENTS, EventGraph
from atlas_lp.goal.schedule import CALC, RECV, SEND, Schedule

MOST_RANKS, MOST_OPERATIONS = 40, 6000
"""What still is a readable picture."""

_WIDTH, _LEFT, _RIGHT, _TOP = 860, 64, 16, 56
_LANE, _GAP, _LEAST = 9, 5, 1.0
_HEAD = (
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
    'font-family="sans-serif" font-size="10">'
)
_BACK, _BAND, _INK = "#ffffff", "#f1f3f5", "#343a40"
_FILL = {
    "work that sends": "#1971c2",
    "work that receives and sends": "#e8590c",
    "work that receives": "#2f9e44",
    "work without messages": "#868e96",
}
_EDGE = 'stroke="#ffffff" stroke-width="0.5"'
_OUT, _UP = "#c2255c", "#adb5bd"


def times_ns(graph: EventGraph, theta: Mapping[str, Fraction]) -> list[Fraction]:
    """Earliest time of every operation the *graph* was built from, at the parameters *theta*."""
    values = [Fraction(theta[component]) for component in COMPONENTS]
    cost = [sum((v * int(c) for v, c in zip(values, row, strict=True)), Fraction(0)) for row in graph.costs]
    start, source, edge = graph.in_start.tolist(), graph.source.tolist(), graph.cost.tolist()
    time = [Fraction(0)] * graph.vertices
    for vertex in range(graph.vertices):
        for k in range(start[vertex], start[vertex + 1]):
            time[vertex] = max(time[vertex], time[source[k]] + cost[edge[k]])
    return [time[vertex] for vertex in graph.vertex.tolist()]


def draw(schedule: Schedule, node_of_rank: Sequence[int], end_ns: Sequence[Fraction], title: str = "") -> str:
    """Return the picture of *schedule*, whose operations end at *end_ns* (:func:`times_ns`), as SVG text.

    Raises :class:`~atlas_lp.errors.GoalError` when it has too many ranks or operations to be read.
    """
    if schedule.ranks > MOST_RANKS or len(schedule) > MOST_OPERATIONS:
        raise GoalError(
            f"{schedule.ranks} ranks and {len(schedule)} operations do not fit a picture; the limits are {MOST_RANKS} "
            f"and {MOST_OPERATIONS}: draw fewer ranks, channels or bytes"
        )
    return _Picture(schedule, node_of_rank, end_ns, title).text()


class _Picture:
    """One picture; finds lanes first, then writes the parts from back to front."""

    def __init__(self, schedule: Schedule, node_of_rank: Sequence[int], end_ns: Sequence[Fraction], title: str) -> None:
        self.schedule, self.nodes, self.title = schedule, list(node_of_rank), title
        self.end = [float(time) for time in end_ns]
        self.span = max(self.end) or 1.0
        kind = schedule.kind.tolist()
        edges = list(zip(schedule.before.tolist(), schedule.after.tolist(), strict=True))
        self.sending = {b for b, a in edges if kind[b] == CALC and kind[a] == SEND}
        self.receiving = {a for b, a in edges if kind[b] == RECV and kind[a] == CALC}
        self.work_of = {a: b for b, a in edges if kind[b] == CALC and kind[a] == SEND}
        self.work_of |= {b: a for b, a in edges if kind[b] == RECV and kind[a] == CALC}
        sends, recvs = schedule.messages()
        self.messages = [
            (send, recv, self.nodes[int(schedule.rank[send])] != self.nodes[int(schedule.rank[recv])])
            for send, recv in sorted(zip(sends.tolist(), recvs.tolist(), strict=True))
        ]
        self.lane = self._lanes()
        lanes = [0] * schedule.ranks
        for operation, lane in self.lane.items():
            rank = int(schedule.rank[operation])
            lanes[rank] = max(lanes[rank], lane + 1)
        self.lanes = [max(count, 1) for count in lanes]
        # Rows go node by node; in some schedules the numbers of ranks do not.
        self.rows = sorted(range(schedule.ranks), key=lambda rank: (self.nodes[rank], rank))
        self.top, self.bottom = [0] * schedule.ranks, _TOP
        for rank in self.rows:
            self.top[rank] = self.bottom
            self.bottom += self.lanes[rank] * _LANE + _GAP
        self.height = self.bottom + 44

    def _lanes(self) -> dict[int, int]:
        """Lane of every calc in its rank: the first that is free when it begins."""
        calcs = np.flatnonzero(self.schedule.kind == CALC).tolist()
        free: list[list[float]] = [[] for _ in range(self.schedule.ranks)]
        lane = {}
        for operation in sorted(calcs, key=lambda o: (self._begin(o), self.end[o], o)):
            own = free[int(self.schedule.rank[operation])]
            slack = 1e-9 * self.span
            at = next((i for i, until in enumerate(own) if until <= self._begin(operation) + slack), len(own))
            own[at : at + 1] = [self.end[operation]]
            lane[operation] = at
        return lane

    def _begin(self, operation: int) -> float:
        return self.end[operation] - int(self.schedule.size[operation])

    def _x(self, time: float) -> float:
        return _LEFT + time / self.span * (_WIDTH - _LEFT - _RIGHT)

    def text(self) -> str:
        """Return the whole picture."""
        parts = [
            _HEAD.format(width=_WIDTH, height=self.height),
            f"<title>{html.escape(self.title)}</title>",
            f'<rect width="{_WIDTH}" height="{self.height}" fill="{_BACK}"/>',
            f'<text x="{_LEFT}" y="18" font-size="13" fill="{_INK}">{html.escape(self.title)}</text>',
            *self._legend(),
            *self._bands(),
            *self._boxes(),
            *self._messages(),
            *self._axis(),
            "</svg>",
        ]
        return "\n".join(parts) + "\n"

    def _legend(self) -> list[str]:
        x, parts = float(_LEFT), []
        shown = {self._what(operation) for operation in self.lane}
        for what in (what for what in _FILL if what in shown):
            parts.append(f'<rect x="{x:g}" y="28" width="12" height="9" fill="{_FILL[what]}"/>')
            parts.append(f'<text x="{x + 16:g}" y="36" fill="{_INK}">{what}</text>')
            x += 32 + 5.2 * len(what)
        crosses = {out for _, _, out in self.messages}
        for out, colour, what in ((True, _OUT, "message between nodes"), (False, _UP, "message inside a node")):
            if out in crosses:
                parts.append(f'<line x1="{x:g}" y1="33" x2="{x + 14:g}" y2="33" stroke="{colour}" stroke-width="2"/>')
                parts.append(f'<text x="{x + 18:g}" y="36" fill="{_INK}">{what}</text>')
                x += 34 + 5.2 * len(what)
        return parts

    def _bands(self) -> list[str]:
        parts = []
        before = -1
        for rank in self.rows:
            top, height = self.top[rank], self.lanes[rank] * _LANE
            if self.nodes[rank] % 2 == 0:
                parts.append(
                    f'<rect x="4" y="{top - _GAP / 2:g}" width="{_WIDTH - 8}" height="{height + _GAP}" fill="{_BAND}"/>'
                )
            words = f"node {self.nodes[rank]}" if self.nodes[rank] != before else ""
            before = self.nodes[rank]
            middle = top + height / 2 + 3
            parts.append(f'<text x="8" y="{middle:g}" font-size="8" fill="{_INK}">{words}</text>')
            parts.append(f'<text x="{_LEFT - 6}" y="{middle:g}" text-anchor="end" fill="{_INK}">{rank}</text>')
        return parts

    def _what(self, operation: int) -> str:
        does = (operation in self.receiving, operation in self.sending)
        return list(_FILL)[[(False, True), (True, True), (True, False), (False, False)].index(does)]

    def _middle(self, operation: int) -> float:
        """Height of a message's end: that of the work it belongs to."""
        lane = self.lane.get(self.work_of.get(operation, -1), 0)
        return self.top[int(self.schedule.rank[operation])] + (lane + 0.5) * _LANE

    def _boxes(self) -> list[str]:
        parts = []
        for operation in sorted(self.lane):
            x = self._x(self._begin(operation))
            width = max(self._x(self.end[operation]) - x, _LEAST)
            y = self.top[int(self.schedule.rank[operation])] + self.lane[operation] * _LANE
            fill = _FILL[self._what(operation)]
            parts.append(
                f'<rect x="{x:.2f}" y="{y:g}" width="{width:.2f}" height="{_LANE - 1}" fill="{fill}" {_EDGE}/>'
            )
        return parts

    def _messages(self) -> list[str]:
        parts = []
        for send, recv, out in self.messages:
            colour, width, opacity = (_OUT, 1.2, 0.75) if out else (_UP, 1, 0.9)
            parts.append(
                f'<line x1="{self._x(self.end[send]):.2f}" y1="{self._middle(send):g}" '
                f'x2="{self._x(self.end[recv]):.2f}" y2="{self._middle(recv):g}" '
                f'stroke="{colour}" stroke-width="{width}" stroke-opacity="{opacity}"/>'
            )
        return parts

    def _axis(self) -> list[str]:
        y = self.bottom + 4
        parts = [f'<line x1="{_LEFT}" y1="{y}" x2="{_WIDTH - _RIGHT}" y2="{y}" stroke="{_INK}"/>']
        step = _tick(self.span)
        for number in range(int(self.span / step) + 1):
            x = self._x(number * step)
            parts.append(f'<line x1="{x:.2f}" y1="{y}" x2="{x:.2f}" y2="{y + 4}" stroke="{_INK}"/>')
            label = f"{number * step / 1000:g}"
            parts.append(f'<text x="{x:.2f}" y="{y + 15}" text-anchor="middle" fill="{_INK}">{label}</text>')
        middle = (_LEFT + _WIDTH - _RIGHT) / 2
        parts.append(f'<text x="{middle:g}" y="{y + 30}" text-anchor="middle" fill="{_INK}">time in us</text>')
        return parts


def _tick(span: float) -> float:
    """Distance of ticks: 1, 2 or 5 times a power of ten, at most ten of them."""
    step = 10.0 ** (len(str(int(span))) - 2)
    return next(step * factor for factor in (1, 2, 5, 10, 20, 50, 100) if span / (step * factor) <= 10)
