"""Which order of the ports an envelope is solved with, and how far first come, first served differs from it.

The order of a port has to be one for the whole box: only then is T a maximum of planes.  It is that in which messages
become ready at one point, by default the native one.  Elsewhere the ports of a network would serve in another order.
How much that changes T is measured, and where it is much, orders of other points are tried (docs/model.md#port-order).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import accumulate
from math import isqrt
from typing import Unpack

from atlas_lp.fabrics.fabric import Fabric
from atlas_lp.goal.event_graph import EventGraph, PortMessages
from atlas_lp.goal.port_order import Served
from atlas_lp.solver.axis import AXES, point
from atlas_lp.solver.envelope import Box, Envelope, PortOrder
from atlas_lp.solver.longest_path import Evaluator
from atlas_lp.solver.solve import How, solve

Where = tuple[Fraction, Fraction]

TOLERATED = Fraction(1, 100)
"""Relative difference from first come, first served up to which the order of the native point is kept unasked."""

_BREAKPOINTS, _VERTICES = 12, 20_000_000
"""Breakpoints of each of T(L) and T(G) where orders are compared, and vertices of all graphs compared at each."""

_POWERS = 8
"""Orders are compared at L and G up to so many powers of two away, too."""


def solve_messages(
    messages: PortMessages, fabric: Fabric, box: Box | None = None, **how: Unpack[How]
) -> tuple[EventGraph, Envelope]:
    """Choose the order of the ports of *messages*; return the graph and its envelope, solved as :func:`solve` does.

    The order is that of ``fabric.order_at`` where T differs by no more than :data:`TOLERATED` from first come, first
    served at the corners of the box and along T(L) and T(G).  Else, of the orders at these points
    that leave T as it is at ``fabric.order_at``, the one whose largest difference is the least.
    """
    trial = _Trial(messages, fabric)
    graph = trial.graph(fabric.order_at)
    envelope = solve(graph, fabric, box, **how)
    if not messages.queue_up:
        return graph, envelope
    points = _points(trial, graph, envelope)
    chosen = trial.best(graph, points)
    if chosen == fabric.order_at:
        return graph, _measured(trial, graph, envelope, points)
    return solve_in_order(messages, trial.graph(chosen), fabric.in_order_of(chosen), box, points, **how)


def solve_in_order(
    messages: PortMessages,
    graph: EventGraph,
    fabric: Fabric,
    box: Box | None = None,
    also_at: Sequence[Where] = (),
    **how: Unpack[How],
) -> tuple[EventGraph, Envelope]:
    """Solve *graph*, whose ports serve *messages* in the order of ``fabric.order_at``, and measure that order.

    It is compared with first come, first served at the corners of the box, along the axes, and *also_at* other points.
    """
    envelope = solve(graph, fabric, box, **how)
    if not messages.queue_up:
        return graph, envelope
    trial = _Trial(messages, fabric)
    points = list(dict.fromkeys([*_points(trial, graph, envelope), *also_at]))
    return graph, _measured(trial, graph, envelope, points)


def _measured(trial: _Trial, graph: EventGraph, envelope: Envelope, points: list[Where]) -> Envelope:
    difference, where = trial.worst(graph, points)
    return replace(envelope, order=PortOrder(trial.fabric.order_at, float(difference), where))


def _points(trial: _Trial, graph: EventGraph, envelope: Envelope) -> list[Where]:
    """The point of the order, the corners of the box, and, where T differs at one of them, points along the axes."""
    own = trial.fabric.order_at
    points = [own, *((Fraction(x, w), Fraction(y, w)) for x, y, w in envelope.box.corners())]
    if trial.worst(graph, points)[0]:
        most = min(_BREAKPOINTS, max(2, isqrt(_VERTICES // graph.vertices)))
        points += _along_the_axes(envelope, own, most)
    return list(dict.fromkeys(points))


def _along_the_axes(envelope: Envelope, through: Where, most: int) -> Iterator[Where]:
    """Ends and breakpoints of T(L) and T(G) through a point, or the nearest one of the box, and powers of two of it.

    Of each kind *most*, evenly.
    """
    box = envelope.box
    inside = [min(max(axis.of(through), box.range(axis)[0]), box.range(axis)[1]) for axis in AXES]
    for axis in AXES:
        (low, high), own, held = box.range(axis), inside[axis.index], inside[1 - axis.index]
        breakpoints = [piece.start for piece in envelope.along(axis, held)[1:]]
        powers = [x for x in (own * Fraction(2) ** k for k in range(-_POWERS, _POWERS + 1)) if low < x < high]
        for values in ([low, high], breakpoints, powers):
            values = values[:: -(-len(values) // most) or 1]
            yield from (axis.pair(x, held) for x in values)


class _Trial:
    """Orders of the same messages at several points, each found once."""

    def __init__(self, messages: PortMessages, fabric: Fabric) -> None:
        self.messages, self.fabric = messages, fabric
        self._served: dict[Where, Served] = {}
        self._asked: tuple[Evaluator, dict[Where, Fraction]] | None = None

    def served(self, where: Where) -> Served:
        """First come, first served at a point."""
        if where not in self._served:
            self._served[where] = self.messages.served(self.fabric.theta_at(where))
        return self._served[where]

    def graph(self, where: Where) -> EventGraph:
        """The graph in the order of a point."""
        return self.messages.graph(self.served(where))

    def differences(self, graph: EventGraph, points: list[Where]) -> Iterator[Fraction]:
        """Relative differences of T from first come, first served."""
        for where in points:
            here = self.served(where).end_ns
            yield abs(self.time_ns(graph, where) - here) / here if here else Fraction(0)

    def worst(self, graph: EventGraph, points: list[Where]) -> tuple[Fraction, Where]:
        """The largest relative difference, and the first point that has it."""
        found = list(self.differences(graph, points))
        return max(found), points[found.index(max(found))]

    def best(self, graph: EventGraph, points: list[Where]) -> Where:
        """The point whose order is kept; *graph* has that of the first one."""
        own = chosen = points[0]
        least, _ = self.worst(graph, points)
        if least <= TOLERATED:
            return own
        as_it_is = self.time_ns(graph, own)
        for where in points[1:]:
            other = self.graph(where)
            if self.time_ns(other, own) == as_it_is:
                largest = Fraction(0)
                for largest in accumulate(self.differences(other, points), max):
                    if largest >= least:
                        break
                if largest < least:
                    least, chosen = largest, where
        return chosen

    def time_ns(self, graph: EventGraph, where: Where) -> Fraction:
        """T at a point; of the graph that was asked last, what is known is not evaluated again."""
        if self._asked is None or self._asked[0].graph is not graph:
            self._asked = Evaluator(graph, self.fabric.theta()), {}
        evaluator, known = self._asked
        if where not in known:
            known[where] = evaluator.at(point(*where)).time_ns
        return known[where]
