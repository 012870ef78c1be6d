"""Longest paths of a schedule whose loops are alike, from a shorter one: the loops left out as a power in max-plus.

The operations of a schedule of N loops are ready when operations of the same or of earlier loops are: in the max-plus
algebra the times of loop j are a linear map of those of the loops before, the same map for every j.  Where the times of
loop j are those of loop j - 1 plus one constant, the cycle time, for as many loops as the map looks back, they are for
all loops to come (Baccelli, Cohen, Olsder and Quadrat 1992, section 3.7).  So a graph of some loops stands for any
number of them: everything behind a cut moves by the cycle time for each loop left out, exactly.

The cut follows the order of time at the point in whose order ports serve, because loops overlap: no edge leads back
over it.  That times repeat is looked at in every evaluation; where they do not, :class:`NotPeriodic` asks for more.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from atlas_lp.compiled import compiled
from atlas_lp.errors import SolveError
from atlas_lp.fabrics.fabric import Fabric
from atlas_lp.goal.event_graph import EventGraph
from atlas_lp.goal.schedule import Ints, Schedule
from atlas_lp.solver.axis import Point, point
from atlas_lp.solver.longest_path import LIMB_BITS, Evaluator, Longest, PathVector, Small, group_ends

Flags = NDArray[np.bool_]

_MOST_BACK, _AHEAD = 16, 16
"""Loops that an edge may look back at most, and that some rank may be ahead of others at most."""


class NotPeriodic(Exception):  # noqa: N818 - a signal to whoever chose the number of loops, not an error of a user
    """The loops of a graph are too few for their times to repeat; caught by who left the others out."""


@dataclass(frozen=True)
class Fold:
    """Where loops are left out of a graph.

    ``loop`` numbers the loops of all vertices by the time of the cut: those from 0 on lie behind it.  ``earlier`` is
    the same vertex one loop before, known for the *window*: the vertices of the last ``back`` loops before the cut, as
    many as edges look back.  ``last`` is the vertex of loop -1 that is the same as one of the window.
    """

    missing: int
    back: int
    loop: Ints
    earlier: Ints
    last: Ints
    window: Ints


def fold_at(graph: EventGraph, schedule: Schedule, steps: int, missing: int, time: Ints) -> Fold:
    """Cut *graph*, made of *schedule* with loops of so many *steps*, where *missing* loops are to be left out.

    *time* holds exact times of all vertices at the point in whose order ports serve.  Raises :class:`NotPeriodic`
    where loops are not alike around the middle.
    """
    earlier = _one_loop_earlier(graph, schedule, steps)
    known = earlier >= 0
    gain = np.where(known, time - time[np.maximum(earlier, 0)], 0)
    loop_of = np.zeros(graph.vertices, dtype=np.int64)
    loop_of[graph.vertex] = (schedule.step if schedule.step is not None else 0) // steps
    loops = int(loop_of.max()) + 1
    middle = np.flatnonzero(known & (loop_of == max(loops // 2, loops - _AHEAD)))
    cycle = int(gain[middle[0]]) if len(middle) else 0
    if cycle <= 0:
        raise NotPeriodic("no loop takes time")
    loop = (time - time[middle].min()) // cycle
    back = _looks_back(graph, loop)
    window = np.flatnonzero((loop < 0) & (loop >= -back - 1))
    fold = Fold(missing, back, loop, earlier, _last(earlier, loop, window), window[loop[window] >= -back])
    _check_alike(graph, fold, gain, cycle)
    return fold


def _one_loop_earlier(graph: EventGraph, schedule: Schedule, steps: int) -> Ints:
    """The vertex of the same operation one loop before, -1 for none."""
    step = np.zeros(len(schedule), dtype=np.int64) if schedule.step is None else schedule.step
    towards = schedule.peer if schedule.towards is None else schedule.towards
    same = (schedule.rank, schedule.cpu, schedule.kind, schedule.tag, towards, step % steps)
    order = np.lexsort((np.arange(len(schedule)), step // steps, *same))
    keys = np.stack([*same, step // steps])[:, order]
    new = np.ones(len(order), dtype=bool)
    new[1:] = np.any(keys[:, 1:] != keys[:, :-1], axis=0)
    occurrence = np.arange(len(order)) - np.maximum.accumulate(np.where(new, np.arange(len(order)), 0))
    number = np.empty_like(order)
    number[order] = occurrence
    order = np.lexsort((step // steps, number, *same))
    keys = np.stack([*same, number])[:, order]
    follows = np.all(keys[:, 1:] == keys[:, :-1], axis=0) & (np.diff((step // steps)[order]) == 1)
    earlier = np.full(graph.vertices, -1, dtype=np.int64)
    earlier[graph.vertex[order[1:][follows]]] = graph.vertex[order[:-1][follows]]
    return earlier


def _looks_back(graph: EventGraph, loop: Ints) -> int:
    """How many loops the edges to the last loop before the cut, and to all behind it, look back: at least one.

    Those from the start, which nothing waits for in a loop that repeats, do not count.
    """
    target = np.repeat(np.arange(graph.vertices), np.diff(graph.in_start))
    near = (loop[target] >= -1) & (graph.source > 0)
    back = max(1, int((loop[target] - loop[graph.source])[near].max(initial=1)))
    if back > _MOST_BACK:
        raise NotPeriodic(f"an edge looks back {back} loops")
    return back


def _last(earlier: Ints, loop: Ints, window: Ints) -> Ints:
    """The vertex of loop -1 that is the same as each vertex of *window*, -1 elsewhere."""
    last = np.full(len(earlier), -1, dtype=np.int64)
    for vertex in window[np.argsort(-loop[window], kind="stable")].tolist():
        if loop[vertex] == -1:
            last[vertex] = vertex
        if last[vertex] >= 0 and earlier[vertex] >= 0:
            last[earlier[vertex]] = last[vertex]
    return last


def _check_alike(graph: EventGraph, fold: Fold, gain: Ints, cycle: int) -> None:
    """Raise :class:`NotPeriodic` unless the window repeats at the point of the cut and its edges are alike."""
    window, loop, earlier = fold.window, fold.loop, fold.earlier
    sizes = np.bincount(-loop[(loop < 0) & (loop >= -fold.back - 1)], minlength=fold.back + 2)[1:]
    alike = len(window) > 0 and np.all(sizes == sizes[0]) and np.all(earlier[window] >= 0)
    if not alike or np.any(gain[window] != cycle) or np.any(loop[earlier[window]] != loop[window] - 1):
        raise NotPeriodic("the loops before the cut are not alike")
    template = window[loop[window] == -1]
    if _edges_into(graph, template, fold.last, loop) != _edges_into(graph, earlier[template], fold.last, loop + 1):
        raise NotPeriodic("the edges of the loops before the cut are not alike")


def _edges_into(graph: EventGraph, vertices: Ints, last: Ints, loop: Ints) -> list[list[tuple[int, ...]]]:
    """Per vertex its in-edges as (vertex of the last loop, loops back, costs), sorted."""
    found = []
    for vertex in vertices.tolist():
        edges = [e for e in range(graph.in_start[vertex], graph.in_start[vertex + 1]) if graph.source[e]]
        ends = [(int(last[u]), int(loop[u])) for u in graph.source[edges]]
        found.append(sorted((*end, *graph.costs[graph.cost[e]].tolist()) for end, e in zip(ends, edges, strict=True)))
    return found


def folded(graph: EventGraph, schedule: Schedule, steps: int, missing: int, fabric: Fabric) -> FoldedEvaluator:
    """What evaluates *graph* with *missing* loops more, cut as its ports serve at the point of *fabric*.

    The other arguments, and what is raised, are those of :func:`fold_at`.
    """
    time = Evaluator(graph, fabric.theta()).exact_times(point(*fabric.order_at))
    if time is None:
        raise NotPeriodic("times are too large to compare")
    return FoldedEvaluator(graph, fabric.theta(), fold_at(graph, schedule, steps, missing, time))


def part_of(fold: Fold, part: EventGraph) -> Fold:
    """The same cut through a *part* of the graph (see :meth:`~atlas_lp.goal.event_graph.EventGraph.between`)."""
    kept = np.flatnonzero(part.vertex >= 0)

    def moved(column: Ints) -> Ints:
        result: Ints = np.where(column[kept] >= 0, part.vertex[np.maximum(column[kept], 0)], -1)
        return result

    window = part.vertex[fold.window]
    window = window[window >= 0]
    found = replace(fold, loop=fold.loop[kept], earlier=moved(fold.earlier), last=moved(fold.last), window=window)
    if not len(window) or np.any(found.earlier[window] < 0) or np.any(found.last[window] < 0):
        raise NotPeriodic("the loops before the cut are not alike for every rank")
    return found


class FoldedEvaluator(Evaluator):
    """Evaluates the graph with all loops, of which *graph* has the first and the last ones."""

    def __init__(self, graph: EventGraph, theta: dict[str, Fraction], fold: Fold) -> None:
        super().__init__(graph, theta)
        self.fold = fold

    def at(self, where: Point) -> Longest:
        """Longest path at *where*; raises :class:`NotPeriodic` where the loops are too few to tell."""
        low, high, tight = self._times(where)
        cycle = self._cycle(low, high)
        late = np.flatnonzero(self.fold.loop >= 0)
        end = _latest(low, high, late)
        scaled = _exact(low, high, end) + self.fold.missing * cycle
        early = _latest(low, high, np.flatnonzero(self.fold.loop < 0))
        if _exact(low, high, early) > scaled:
            end, scaled = early, _exact(low, high, early)
        time_ns = Fraction(scaled, where[2] * self.scale)
        vector = self.vector(tight, end)
        constant, messages, size = self.plane(vector)
        if constant * where[2] + messages * where[0] + size * where[1] != scaled:
            raise SolveError("a path through loops that were left out is not as long as it should be")
        return Longest(time_ns, vector, end, tight)

    def ends_at(self, where: Point, group_of_vertex: Ints, groups: int) -> tuple[Small, Ints]:
        """As of an :class:`Evaluator`: a group ends behind the cut where it has a vertex there."""
        low, high, tight = self._times(where)
        self._cycle(low, high)
        ends = np.full(groups, -1, dtype=np.int64)
        for side in (self.fold.loop < 0, self.fold.loop >= 0):
            own = group_ends(low, high, np.where(side, group_of_vertex, -1), groups)
            ends = np.where(own >= 0, own, ends)
        return tight, ends

    def of_part(self, part: EventGraph) -> Evaluator:
        """What evaluates a *part* of the graph with the same loops left out."""
        return FoldedEvaluator(part, self.theta, part_of(self.fold, part))

    @property
    def missing(self) -> int:
        """Loops that are left out of the graph."""
        return self.fold.missing

    def _cycle(self, low: Ints, high: Ints | None) -> int:
        """How much later every loop of the window is than the one before."""
        window, earlier = self.fold.window, self.fold.earlier[self.fold.window]
        gains = low[window] - low[earlier]
        if high is not None:
            gains = gains.astype(object) + ((high[window] - high[earlier]).astype(object) << LIMB_BITS)
        if np.any(gains != gains[0]):
            raise NotPeriodic("the times of the loops do not repeat yet")
        return int(gains[0])

    def vector(self, tight: Small, end: int) -> PathVector:
        """Vector of the path of *tight* edges to the vertex *end*, through the loops that were left out."""
        fold, graph = self.fold, self.graph
        if fold.loop[end] < 0:
            return super().vector(tight, end)
        walked, round_trip, turns, vertex = _through(
            graph.source, graph.cost, graph.costs, tight, end, fold.loop, fold.last, fold.missing
        )
        loops, vertex = divmod(int(vertex), graph.vertices)
        for _ in range(loops):
            vertex = int(fold.earlier[vertex])
        rest = super().vector(tight, vertex)
        pieces = zip(walked.tolist(), round_trip.tolist(), rest, strict=True)
        return tuple(own + int(turns) * turn + left for own, turn, left in pieces)


def _latest(low: Ints, high: Ints | None, among: Ints) -> int:
    """The last of the latest vertices *among* some."""
    if high is not None:
        among = among[high[among] == high[among].max()]
    return int(among[low[among] == low[among].max()][-1])


def _exact(low: Ints, high: Ints | None, vertex: int) -> int:
    return int(low[vertex]) + (0 if high is None else int(high[vertex]) << LIMB_BITS)


@compiled
def _through(
    source: Small, cost: Small, costs: Ints, tight: Small, end: int, loop: Ints, last: Ints, missing: int
) -> tuple[Ints, Ints, int, int]:
    """Walk back from *end* through the late loops and those left out, to a vertex of the loops before the cut.

    Returns the costs walked, those of one round trip that comes back to the same vertex some loops earlier, how often
    that is walked beside, and where the walk ends: a vertex of loop -1, plus so many times the number of vertices as it
    has to go back loops from there.
    """
    vertices = len(loop)
    total = np.zeros(costs.shape[1], np.int64)
    vertex = end
    while loop[vertex] >= 0:
        edge = tight[vertex]
        total += costs[cost[edge]]
        vertex = source[edge]
    at = missing + loop[vertex]
    vertex = last[vertex]
    seen_at = np.full(vertices, -1, np.int64)
    seen = np.zeros((vertices, len(total)), np.int64)
    round_trip, turns = np.zeros_like(total), 0
    while at >= 0:
        if turns == 0 and seen_at[vertex] >= 0:
            round_trip = total - seen[vertex]
            turns = at // (seen_at[vertex] - at)
            at -= turns * (seen_at[vertex] - at)
            if turns > 0:
                continue
        if turns == 0:
            seen_at[vertex] = at
            seen[vertex] = total
        edge = tight[vertex]
        total += costs[cost[edge]]
        vertex = source[edge]
        at += loop[vertex] + 1
        vertex = last[vertex]
    return total, round_trip, turns, vertex + vertices * (-1 - at)
