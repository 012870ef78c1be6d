"""Exact longest paths of an event graph at a rational point (L, G): the primal side of docs/model.md#planes.

Every edge weight is an integer after multiplication by a common denominator, so values, ties and path
vectors are exact.  Sums that fit 62 bits run on plain 64-bit integers; larger ones on two limbs of 58
bits.  Both loops are one pass over the in-edges, O(V + E).
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import lcm

import numpy as np
from numpy.typing import NDArray

from atlas_lp.compiled import compiled
from atlas_lp.errors import UnsupportedError
from atlas_lp.goal.event_graph import COMPONENTS, EventGraph
from atlas_lp.goal.schedule import Ints
from atlas_lp.solver.axis import Point

PathVector = tuple[int, ...]
"""Integer cost of one path, one entry per :data:`~atlas_lp.goal.event_graph.COMPONENTS`."""

Plane = tuple[int, int, int]
"""T as (c, m, b): scaled T = c + m L + b G."""

MESSAGES, BYTES = COMPONENTS.index("messages"), COMPONENTS.index("bytes")

_WORD_BITS = 62
LIMB_BITS = 58
_DIGIT_BITS = 29

Small = NDArray[np.int32]
Floats = NDArray[np.float64]


@compiled
def _longest_one(in_start: Ints, source: Small, cost: Small, weight: Ints) -> tuple[Ints, Small]:
    """Latest time of every vertex and the first in-edge that attains it."""
    vertices = len(in_start) - 1
    time = np.zeros(vertices, np.int64)
    tight = np.full(vertices, -1, np.int32)
    for vertex in range(1, vertices):
        best = np.int64(-1)
        for edge in range(in_start[vertex], in_start[vertex + 1]):
            candidate = time[source[edge]] + weight[cost[edge]]
            if candidate > best:
                best = candidate
                tight[vertex] = edge
        time[vertex] = best
    return time, tight


@compiled
def _longest_two(in_start: Ints, source: Small, cost: Small, high: Ints, low: Ints) -> tuple[Ints, Ints, Small]:
    """Return what :func:`_longest_one` does, for times ``high * 2**58 + low``."""
    vertices = len(in_start) - 1
    mask = (np.int64(1) << 58) - 1
    time_high = np.zeros(vertices, np.int64)
    time_low = np.zeros(vertices, np.int64)
    tight = np.full(vertices, -1, np.int32)
    for vertex in range(1, vertices):
        best_high = np.int64(-1)
        best_low = np.int64(0)
        for edge in range(in_start[vertex], in_start[vertex + 1]):
            u = source[edge]
            k = cost[edge]
            candidate_low = time_low[u] + low[k]
            candidate_high = time_high[u] + high[k] + (candidate_low >> 58)
            candidate_low &= mask
            if candidate_high > best_high or (candidate_high == best_high and candidate_low > best_low):
                best_high = candidate_high
                best_low = candidate_low
                tight[vertex] = edge
        time_high[vertex] = best_high
        time_low[vertex] = best_low
    return time_high, time_low, tight


@compiled
def heads_and_tails(in_start: Ints, source: Small, cost: Small, weight: Floats) -> tuple[Floats, Floats]:
    """Longest path from the start to every vertex, and from every vertex, its own in-edge of the start included.

    A vertex that does not follow the start itself has no tail (0).  In floats: for comparing, not for answers.
    """
    vertices = len(in_start) - 1
    head, rest, tail = np.zeros(vertices), np.zeros(vertices), np.zeros(vertices)
    for vertex in range(1, vertices):
        for edge in range(in_start[vertex], in_start[vertex + 1]):
            head[vertex] = max(head[vertex], head[source[edge]] + weight[cost[edge]])
    for vertex in range(vertices - 1, 0, -1):
        for edge in range(in_start[vertex], in_start[vertex + 1]):
            length = rest[vertex] + weight[cost[edge]]
            if source[edge] == 0:
                tail[vertex] = max(tail[vertex], length)
            else:
                rest[source[edge]] = max(rest[source[edge]], length)
    return head, tail


@compiled
def _multiply(columns: tuple[Ints, Ints, Ints], digits: Ints, high: Ints, low: Ints) -> None:
    """Limbs of ``sum over j of columns[j][k] * multiplier[j]``; multipliers as digits of 29 bits."""
    mask = (np.int64(1) << 29) - 1
    total = np.zeros(8, np.int64)
    for k in range(len(high)):
        total[:] = 0
        values = (columns[0][k], columns[1][k], columns[2][k])
        for j in range(3):
            value = values[j]
            place = 0
            while value > 0:
                digit = value & mask
                for t in range(4):
                    total[place + t] += digit * digits[j, t]
                value >>= 29
                place += 1
            carry = np.int64(0)
            for t in range(8):
                carry += total[t]
                total[t] = carry & mask
                carry >>= 29
        low[k] = total[0] | (total[1] << 29)
        high[k] = total[2] | (total[3] << 29)


@compiled
def _count_path(in_start: Ints, source: Small, cost: Small, tight: Small, end: int, rows: int) -> Ints:
    """How often every cost row occurs on the path of tight edges that ends at *end*."""
    counts = np.zeros(rows, np.int64)
    vertex = end
    while tight[vertex] >= 0:
        edge = tight[vertex]
        counts[cost[edge]] += 1
        vertex = source[edge]
    return counts


@compiled
def _sum_path(source: Small, cost: Small, costs: Ints, tight: Small, end: int) -> Ints:
    """Sum of the cost rows on the path of tight edges that ends at *end*."""
    total = np.zeros(costs.shape[1], np.int64)
    vertex = end
    while tight[vertex] >= 0:
        edge = tight[vertex]
        for component in range(len(total)):
            total[component] += costs[cost[edge], component]
        vertex = source[edge]
    return total


@compiled
def _group_ends(low: Ints, high: Ints, group: Ints, groups: int) -> Ints:
    """Last of the latest vertices of each group, -1 for a group without any."""
    ends = np.full(groups, -1, np.int64)
    for vertex in range(len(low)):
        if group[vertex] >= 0:
            best = ends[group[vertex]]
            later = best < 0 or high[vertex] > high[best] or (high[vertex] == high[best] and low[vertex] >= low[best])
            if later:
                ends[group[vertex]] = vertex
    return ends


def group_ends(low: Ints, high: Ints | None, group: Ints, groups: int) -> Ints:
    """Last of the latest vertices of each group (-1 of a vertex: none); -1 for a group without any."""
    ends: Ints = _group_ends(low, np.zeros_like(low) if high is None else high, group, groups)
    return ends


@dataclass(frozen=True)
class Longest:
    """One evaluation: the time in ns, the vector of the critical path, its end, and the tree of tight edges.

    The end is the last vertex with that time, which has no out-edges.
    """

    time_ns: Fraction
    vector: PathVector
    end: int
    tight: Small


class Evaluator:
    """Evaluates one graph at many points; everything but the parameters of two *axes* is fixed by *theta*.

    *axes* names the components whose parameters vary, by default L and G; *theta* gives the value of each component
    (its entries for the axes are not used).
    Raises :class:`~atlas_lp.errors.UnsupportedError` when the constants are too large for exact arithmetic
    (paths of more than about 2**61 scaled ns).
    """

    def __init__(
        self, graph: EventGraph, theta: dict[str, Fraction], axes: tuple[str, str] = ("messages", "bytes")
    ) -> None:
        self.graph = graph
        self.theta = dict(theta)
        self.axes = COMPONENTS.index(axes[0]), COMPONENTS.index(axes[1])
        values = [Fraction(0) if c in axes else Fraction(theta[c]) for c in COMPONENTS]
        self.scale = lcm(*(value.denominator for value in values))
        """Common denominator D of the fixed parameters: scaled times are D times the time in ns."""
        self._multipliers = [int(value * self.scale) for value in values]
        first, second = self.axes
        self._largest = int(graph.costs.max(initial=0))
        self._columns = self._constants(), graph.costs[:, first], graph.costs[:, second]
        self._bounds = [self._bound(column) for column in range(3)]
        self.evaluations = 0

    def _constants(self) -> Ints:
        """Scaled cost of every row that depends on neither axis."""
        costs = self.graph.costs
        tops = [int(x) for x in costs.max(axis=0, initial=0)]
        used = [m if top else 0 for m, top in zip(self._multipliers, tops, strict=True)]
        if sum(m * top for m, top in zip(used, tops, strict=True)) < 1 << _WORD_BITS:
            constants: Ints = costs @ np.array(used, dtype=np.int64)
        else:
            # Some row may be too large, not only the sum of the largest entries: look at each.
            exact = costs.astype(object) @ np.array(self._multipliers, dtype=object)
            if max(exact.tolist(), default=0) >= 1 << _WORD_BITS:
                raise UnsupportedError("one cost is too large for exact arithmetic; are the times in ns?")
            constants = exact.astype(np.int64)
        return constants

    def _bound(self, column: int) -> int:
        """Longest path counting one column alone; with it T(L, G) <= C + L M + G B is known beforehand."""
        weight = np.ascontiguousarray(self._columns[column])
        if int(weight.max(initial=0)) * self.graph.vertices >= 1 << _WORD_BITS:
            high, low = weight >> LIMB_BITS, weight & ((1 << LIMB_BITS) - 1)
            top, rest, _ = _longest_two(self.graph.in_start, self.graph.source, self.graph.cost, high, low)
            return max((int(h) << LIMB_BITS) + int(x) for h, x in zip(top, rest, strict=True))
        time, _ = _longest_one(self.graph.in_start, self.graph.source, self.graph.cost, weight)
        return int(time.max())

    def plane(self, vector: PathVector) -> Plane:
        """Scaled plane (c, m, b) of a path vector."""
        constant = sum(v * multiplier for v, multiplier in zip(vector, self._multipliers, strict=True))
        return constant, vector[self.axes[0]] * self.scale, vector[self.axes[1]] * self.scale

    def at(self, where: Point) -> Longest:
        """Longest path at *where*: exact time and the vector of the first critical path."""
        low, high, tight = self._times(where)
        if high is None:
            end = len(low) - 1 - int(low[::-1].argmax())
            value = int(low[end])
        else:
            best = np.flatnonzero(high == high.max())
            end = int(best[low[best] == low[best].max()][-1])
            value = (int(high[end]) << LIMB_BITS) + int(low[end])
        return Longest(Fraction(value, where[2] * self.scale), self.vector(tight, end), end, tight)

    def times_ns(self, where: Point) -> Ints:
        """Time of every vertex at *where* in whole ns, rounded down.

        Raises :class:`~atlas_lp.errors.UnsupportedError` for times of more than 62 bits.
        """
        low, high, _ = self._times(where)
        if high is not None:
            raise UnsupportedError("times of single vertices are limited to 62 bits")
        return low // (where[2] * self.scale)

    def exact_times(self, where: Point) -> Ints | None:
        """Time of every vertex at *where* in units of one over w and the scale; None where they exceed 62 bits."""
        low, high, _ = self._times(where)
        return low if high is None else None

    def ends_at(self, where: Point, group_of_vertex: Ints, groups: int) -> tuple[Small, Ints]:
        """Tight edges at *where*, and the vertex that each group of vertices (-1: none) ends with; -1 for no vertex."""
        low, high, tight = self._times(where)
        return tight, group_ends(low, high, group_of_vertex, groups)

    def of_part(self, part: EventGraph) -> Evaluator:
        """What evaluates a *part* of the graph (see :meth:`~atlas_lp.goal.event_graph.EventGraph.between`)."""
        return Evaluator(part, self.theta)

    @property
    def missing(self) -> int:
        """Loops that are left out of the graph: none."""
        return 0

    def vector(self, tight: Small, end: int) -> PathVector:
        """Vector of the path of *tight* edges to the vertex *end*."""
        graph = self.graph
        if self._largest * graph.vertices < 1 << _WORD_BITS:
            return tuple(_sum_path(graph.source, graph.cost, graph.costs, tight, end).tolist())
        counts = _count_path(graph.in_start, graph.source, graph.cost, tight, end, len(graph.costs))
        return tuple(counts.astype(object) @ graph.costs.astype(object))

    def _times(self, where: Point) -> tuple[Ints, Ints | None, Small]:
        """Scaled time of every vertex, as low and high limb (None where one is enough), and the tight edges."""
        self.evaluations += 1
        x, y, w = where
        multipliers = (w, self.scale * x, self.scale * y)
        bound = sum(m * b for m, b in zip(multipliers, self._bounds, strict=True))
        if bound < 1 << _WORD_BITS:
            low, tight = self._single(multipliers)
            return low, None, tight
        return self._double(multipliers, bound)

    def _single(self, multipliers: tuple[int, int, int]) -> tuple[Ints, Small]:
        usable = [m if b else 0 for m, b in zip(multipliers, self._bounds, strict=True)]
        weight = self._columns[0] * usable[0]
        for column, multiplier in zip(self._columns[1:], usable[1:], strict=True):
            weight += column * multiplier
        graph = self.graph
        time: Ints
        tight: Small
        time, tight = _longest_one(graph.in_start, graph.source, graph.cost, weight)
        return time, tight

    def _double(self, multipliers: tuple[int, int, int], bound: int) -> tuple[Ints, Ints, Small]:
        digits = np.zeros((3, 4), dtype=np.int64)
        for j, multiplier in enumerate(multipliers):
            usable = multiplier if self._bounds[j] else 0
            for t in range(4):
                digits[j, t] = (usable >> (_DIGIT_BITS * t)) & ((1 << _DIGIT_BITS) - 1)
            if usable >> (4 * _DIGIT_BITS) or bound >> (2 * LIMB_BITS):
                raise UnsupportedError("this point needs more than 116 bits for exact arithmetic")
        rows = len(self.graph.costs)
        high, low = np.empty(rows, dtype=np.int64), np.empty(rows, dtype=np.int64)
        _multiply(self._columns, digits, high, low)
        graph = self.graph
        top, rest, tight = _longest_two(graph.in_start, graph.source, graph.cost, high, low)
        return rest, top, tight
