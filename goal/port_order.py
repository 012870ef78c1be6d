"""In which order the ports of a graph serve its messages: first come, first served, at one set of parameters.

The order of a port is fixed, whatever L and G: with it T stays a maximum of planes (docs/model.md#port-order).  It is
that in which messages become ready at one point, found by an event simulation on the graph without its queues.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import lcm

import numpy as np
from numpy.typing import NDArray

from atlas_lp.goal.kernels import group_by, serve
from atlas_lp.goal.schedule import Ints

Small = NDArray[np.int32]

_TIME_BITS = 61


@dataclass(frozen=True)
class Queued:
    """The vertices that ports serve: columns of equal length, one entry per message and port.

    ``vertex`` ends when the message is served, ``operation`` is the send or receive, ``queue`` numbers its port, and
    messages of a lower ``turn`` are served before all others of the port.  Messages that become ready together go by
    ``tie``.  ``before`` and ``after`` are rows of *costs*: how long the port serves the message before the vertex ends,
    and how long it stays busy afterwards.
    """

    vertex: Ints
    operation: Ints
    queue: Ints
    turn: Ints
    tie: Ints
    before: Ints
    after: Ints
    costs: Ints

    def blocks(self) -> tuple[Ints, Ints, Ints]:
        """Number ports and turns: port and (port, turn) of every entry, and the first (port, turn) of every port."""
        _, queue = np.unique(self.queue, return_inverse=True)
        order = np.lexsort((self.turn, queue))
        new = np.ones(len(order), dtype=bool)
        new[1:] = (np.diff(queue[order]) != 0) | (np.diff(self.turn[order]) != 0)
        block = np.empty(len(order), dtype=np.int64)
        block[order] = np.cumsum(new) - 1
        first = np.searchsorted(queue[order][new], np.arange(queue.max(initial=-1) + 2))
        return queue, block, first

    def followers(self, order: Ints) -> tuple[Ints, Ints]:
        """Pairs of entries that follow each other at a port when all are served in *order*."""
        order = order[np.argsort(self.queue[order], kind="stable")]
        first, then = order[:-1], order[1:]
        same = self.queue[first] == self.queue[then]
        return first[same], then[same]


@dataclass(frozen=True)
class Edges:
    """A graph without its queues: the ends of its edges, the rows that they cost, and the table of *costs*."""

    vertices: int
    sources: Small
    targets: Small
    cost: Small
    costs: Ints


@dataclass(frozen=True)
class Served:
    """Entries of a :class:`Queued` in the order in which they were served, and when the last vertex ended, in ns.

    *order* is shorter than the entries where vertices wait for each other in a cycle.
    """

    order: Ints
    end_ns: Fraction


def first_come_first_served(edges: Edges, queued: Queued, theta: Sequence[Fraction]) -> Served:
    """Run *edges* with every port serving what is ready first, at the parameters *theta* (one per component).

    Times are exact, but for sums beyond 61 bits, which are counted in coarser units.  With all parameters 0 the order
    is that of turns and ties alone.  Cost O(V + E + Q log Q).
    """
    scale = _scale([(edges.costs, edges.cost), (queued.costs, queued.before), (queued.costs, queued.after)], theta)
    weight, occupied = (_scaled(table, theta, scale) for table in (edges.costs, queued.costs))
    before, after = occupied[queued.before], occupied[queued.after]
    pointers, members = group_by(edges.sources, edges.vertices)
    out_edges = pointers, edges.targets[members], weight[edges.cost[members]]
    waiting = np.bincount(edges.targets, minlength=edges.vertices).astype(np.int32)
    queue, block, first_block = queued.blocks()
    order, end = serve(out_edges, waiting, queued.vertex, queue, block, first_block, queued.tie, (before, after))
    return Served(order, Fraction(int(end)) / scale)


def _scale(tables: list[tuple[Ints, Ints]], theta: Sequence[Fraction]) -> Fraction:
    """Units per ns: all parameters are whole numbers in them, unless the sum of all costs would not fit then."""
    values = np.array([float(value) for value in theta])
    total = sum(float(np.bincount(used, minlength=len(table)) @ (table @ values)) for table, used in tables)
    exact = lcm(*(value.denominator for value in theta))
    return Fraction(exact) if total * exact < 1 << _TIME_BITS else Fraction(1 << _TIME_BITS) / (int(total) + 1)


def _scaled(table: Ints, theta: Sequence[Fraction], scale: Fraction) -> Ints:
    """Every row of *table* at *theta* in units of *scale*, rounded down."""
    values = [value * scale for value in theta]
    if all(value.denominator == 1 and value < 1 << _TIME_BITS for value in values):
        exact: Ints = table @ np.array([int(value) for value in values], dtype=np.int64)
        return exact
    whole = lcm(*(value.denominator for value in values))
    large = table.astype(object) @ np.array([int(value * whole) for value in values], dtype=object)
    # A row that nothing uses may cost more than any time.
    scaled: Ints = np.minimum(large // whole, 1 << _TIME_BITS).astype(np.int64)
    return scaled
