"""The LogGP graph of a schedule: vertices are ends of operations, edges carry integer cost vectors.

The model (LogGP as published; docs/model.md#loggp).  A vertex is the time an operation *ends*:

* ``calc c`` ends ``c`` after the operations it requires;
* a scale-out ``send`` ends ``o`` after the operations it requires, and no earlier than ``(m-1) G + g`` after
  the send before it on the same port;
* its ``recv`` ends ``L + (m-1) G + o`` after the send ended, and ``o`` after what the recv itself requires: an
  uncontended message takes ``2 o + L + (m-1) G``;
* a scale-up message of m bytes takes ``L_up + m G_up`` and nothing else.
* With ingress queues the last byte of a message arrives no earlier than ``(m-1) G + g`` after the last byte of the
  message before it at the same receiving port; off by default, because LogGP has no such queue, but incast needs it.

*Order on a port* (:mod:`~atlas_lp.goal.port_order`): the messages of a port follow each other in the order of their
turn where the schedule gives them one, then in that in which they become ready at the parameters *order_at*: a send
when all that it requires has ended, a message at its receiver when its first byte arrives.  Messages that are ready
together go by depth, which is the number of operations on the longest chain of dependencies and messages before them,
then by position in the block of their rank, then by rank.  This order can never contradict a dependency, and it does
not change with L or G.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from atlas_lp.errors import CycleError, GoalError
from atlas_lp.goal.kernels import Flags, find_cycle, group_by, paths_between, topological_order
from atlas_lp.goal.port_order import Edges, Queued, Served, first_come_first_served
from atlas_lp.goal.schedule import CALC, Ints, Schedule, encode

Small = NDArray[np.int32]
Name = Callable[[int], str]
Theta = Mapping[str, Fraction]

COMPONENTS = ("calc_ns", "messages", "bytes", "overheads", "gaps", "up_messages", "up_bytes")
"""The entries of a cost or path vector: what multiplies 1, L, G, o, g, L_up and G_up."""


class PortRule(Enum):
    """Which sends wait for each other before they enter the scale-out network."""

    PORT = "port"
    """All sends of one NIC: one queue per (node, nic)."""
    DESTINATION = "destination"
    """Sends of one rank to one destination (the paper's equation 4)."""
    NONE = "none"
    """Nothing waits (LLAMP)."""


@dataclass(frozen=True)
class EventGraph:
    """A DAG with one source (vertex 0) whose vertices are numbered in topological order.

    ``in_start`` (V+1) and ``source`` (E) are the in-edges as CSR; edge e costs row ``cost[e]`` of ``costs``
    (K x 7, :data:`COMPONENTS`).  The time of the graph is the latest time of any vertex.
    ``vertex`` maps what the graph was built from (operations of a schedule) to vertices.
    """

    in_start: Ints
    source: Small
    cost: Small
    costs: Ints
    vertex: Small

    @property
    def vertices(self) -> int:
        """Number of vertices, the source included."""
        return len(self.in_start) - 1

    @property
    def edges(self) -> int:
        """Number of edges."""
        return len(self.source)

    @classmethod
    def from_edges(
        cls, vertices: int, sources: Ints, targets: Ints, cost: Ints, costs: Ints, name: Name = str
    ) -> EventGraph:
        """Build from edge columns; vertex 0 must be the only one without in-edges.

        *costs* is the table that the column *cost* points into; *name* turns a vertex into words for errors.
        Raises :class:`~atlas_lp.errors.CycleError` with one cycle named, and
        :class:`~atlas_lp.errors.GoalError` for a negative cost.  Cost O(V + E).
        """
        if costs.size and int(costs.min()) < 0:
            raise GoalError("a cost is negative: calc times, sizes and gaps must be 0 or more")
        order, _ = topological_order(vertices, sources, targets, np.zeros(0, dtype=np.int32))
        if len(order) < vertices:
            raise CycleError(_cycle_text(find_cycle(vertices, sources, targets, order), name))
        place = np.empty(vertices, dtype=np.int32)
        place[order] = np.arange(vertices, dtype=np.int32)
        del order
        in_start, members = group_by(place[targets], vertices)
        return cls(
            in_start=in_start,
            source=place[sources[members]],
            cost=cost[members].astype(np.int32, copy=False),
            costs=np.ascontiguousarray(costs, dtype=np.int64),
            vertex=place,
        )

    def between(self, first: Flags, last: Flags) -> EventGraph | None:
        """The part of the graph on paths from the start over *first* to *last* (masks of vertices); None if none is.

        ``vertex`` of the result maps the vertices of this graph to its own, -1 for those left out.  Cost O(V + E).
        """
        kept, used = paths_between(self.in_start, self.source, first, last)
        if not kept[0]:
            return None
        place = np.where(kept, np.cumsum(kept) - 1, -1).astype(np.int32)
        before = np.concatenate([[0], np.cumsum(used)])
        ends = self.in_start[1:][kept]
        return EventGraph(
            in_start=np.concatenate([[0], before[ends]]),
            source=place[self.source[used]],
            cost=self.cost[used],
            costs=self.costs,
            vertex=place,
        )


def _cycle_text(cycle: list[int], name: Name) -> str:
    words = [name(vertex) for vertex in cycle]
    shown = words if len(words) <= 8 else [*words[:4], f"... {len(words) - 8} more ...", *words[-4:]]
    return "operations wait for each other in a cycle: " + " -> ".join([*shown, words[0]])


class _Collected:
    """Collects edges as columns and the rows of the cost table they point at."""

    def __init__(self) -> None:
        self.rows: list[Ints] = []
        self.count = 0
        self.columns: list[tuple[Small, Small, Small]] = []

    def add(
        self, sources: Ints, targets: Ints, varying: str | None = None, values: Ints | None = None, **costs: int
    ) -> None:
        """Add edges that cost *costs*, and *values* of the component *varying*."""
        if not len(sources):
            return
        distinct: Ints
        code: Ints
        if varying is None or values is None:
            distinct, code = np.zeros(1, dtype=np.int64), np.zeros(len(sources), dtype=np.int32)
        else:
            distinct, code = encode(values)
        rows = np.zeros((len(distinct), len(COMPONENTS)), dtype=np.int64)
        for component, cost in costs.items():
            rows[:, COMPONENTS.index(component)] = cost
        if varying is not None:
            rows[:, COMPONENTS.index(varying)] = distinct
        self.rows.append(rows)
        small = [column.astype(np.int32, copy=False) for column in (sources, targets, code + self.count)]
        self.columns.append((small[0], small[1], small[2]))
        self.count += len(distinct)

    def taken(self, vertices: int) -> Edges:
        """The edges between so many *vertices*; the collected columns are given up."""
        empty = np.zeros(0, dtype=np.int32)
        sources, targets, cost = (
            np.concatenate([empty, *(columns[place] for columns in self.columns)]) for place in range(3)
        )
        rows = np.concatenate([np.zeros((0, len(COMPONENTS)), dtype=np.int64), *self.rows])
        self.columns.clear()
        return Edges(vertices, sources, targets, cost, rows)


def event_graph(
    schedule: Schedule,
    node_of_rank: Ints | None = None,
    port_rule: PortRule = PortRule.PORT,
    ingress: bool = False,
    order_at: Theta | None = None,
) -> EventGraph:
    """Build the LogGP graph of *schedule*.

    *node_of_rank* says which ranks share a node: messages inside a node are scale-up, and ``nic`` numbers
    count per node.  Without it every rank is a node of its own.  With *ingress* messages also queue at the port
    that receives them.  *order_at* gives the value of every component where ports serve first come, first served;
    without it everything is ready at once, so that messages go by depth.

    Raises :class:`~atlas_lp.errors.GoalError` for unmatched messages and
    :class:`~atlas_lp.errors.CycleError` for a cycle.  Time and memory O(n), but for sorting the messages of queues.
    """
    messages = PortMessages(schedule, node_of_rank, port_rule, ingress)
    return messages.graph(messages.served(order_at))


class PortMessages:
    """A schedule whose messages wait for their ports, before their order there is decided.

    Parameters and errors are those of :func:`event_graph`, which decides it once; here it can be tried at many points.
    """

    def __init__(
        self,
        schedule: Schedule,
        node_of_rank: Ints | None = None,
        port_rule: PortRule = PortRule.PORT,
        ingress: bool = False,
    ) -> None:
        negative = np.flatnonzero(schedule.size < 0)
        if len(negative):
            raise GoalError(f"{schedule.name(int(negative[0]))} is negative: times and sizes must be 0 or more")
        node = np.arange(schedule.ranks) if node_of_rank is None else np.asarray(node_of_rank, dtype=np.int64)
        self._builder = _Builder(schedule, node)
        self._builder.add_dependencies()
        self._builder.add_messages(ingress)
        self._edges = self._builder.edges.taken(self._builder.vertices)
        self._queued = self._builder.queued(port_rule, ingress, self._edges)

    @property
    def queue_up(self) -> bool:
        """Whether some port serves more than one message, so that an order has to be decided."""
        return len(self._queued.queue) > 1 + int(self._queued.queue.max(initial=-1))

    def served(self, theta: Theta | None = None) -> Served:
        """Serve all messages first come, first served at *theta*; without it all are ready at once."""
        values = [Fraction(0) if theta is None else theta[component] for component in COMPONENTS]
        return first_come_first_served(self._edges, self._queued, values)

    def graph(self, served: Served) -> EventGraph:
        """The graph whose ports serve in that order."""
        builder, edges, queued = self._builder, self._edges, self._queued
        order = served.order
        if len(order) < len(queued.vertex):
            # Something waits for itself, with the queues or without them: building the graph names it.
            order = np.lexsort((queued.tie, queued.turn))
        first, then = queued.followers(order)
        pairs, pair = encode(queued.after[first].astype(np.int64) * len(queued.costs) + queued.before[then])
        rows = queued.costs[pairs // len(queued.costs)] + queued.costs[pairs % len(queued.costs)]
        graph = EventGraph.from_edges(
            edges.vertices,
            np.concatenate([edges.sources, queued.vertex[first].astype(np.int32)]),
            np.concatenate([edges.targets, queued.vertex[then].astype(np.int32)]),
            np.concatenate([edges.cost, (pair + len(edges.costs)).astype(np.int32)]),
            np.concatenate([edges.costs, rows]),
            builder.name,
        )
        return replace(graph, vertex=graph.vertex[1 : len(builder.schedule) + 1])

    def place(self, served: Served) -> Ints:
        """Place of every operation among all that are served: a send where it leaves, a receive where it arrives.

        0 for everything that no port serves.
        """
        place = np.zeros(len(self._builder.schedule), dtype=np.int64)
        place[self._queued.operation[served.order]] = np.arange(len(served.order))
        return place


class _Builder:
    """The vertices and edges of one schedule, and what its ports serve; operation i is vertex i + 1."""

    def __init__(self, schedule: Schedule, node: Ints) -> None:
        self.schedule, self.node = schedule, node
        sends, recvs = schedule.messages()
        if schedule.scale_out is None:
            scale_out = node[schedule.rank[sends]] != node[schedule.rank[recvs]]
        else:
            scale_out = schedule.scale_out[sends]
        self.out_send, self.out_recv = sends[scale_out], recvs[scale_out]
        self.up_send, self.up_recv = sends[~scale_out], recvs[~scale_out]
        # (m - 1) G is what the body of a message takes on the wire; an empty message has none.
        self.body = np.maximum(schedule.size[self.out_send] - 1, 0)
        self.edges = _Collected()
        self.vertices = len(schedule) + 1
        self.issued = np.unique(schedule.before[schedule.on_start])
        self.arrivals: Ints = np.zeros(0, dtype=np.int64)

    def _new_vertices(self, count: int) -> Ints:
        numbers = np.arange(self.vertices, self.vertices + count)
        self.vertices += count
        return numbers

    def name(self, vertex: int) -> str:
        """Words for a vertex, for error messages."""
        n = len(self.schedule)
        if vertex == 0:
            return "start"
        if vertex <= n:
            return self.schedule.name(vertex - 1)
        if vertex <= n + len(self.issued):
            return self.schedule.name(int(self.issued[vertex - 1 - n]))
        return self.schedule.name(int(self.out_recv[vertex - 1 - n - len(self.issued)]))

    def add_dependencies(self) -> None:
        """Add the edges of ``requires`` and ``irequires``, and of the source to operations that require nothing.

        An operation that others ``irequire`` gets a second vertex, the time it is *issued*: when everything it
        requires has ended.
        """
        schedule, n, issued = self.schedule, len(self.schedule), self.issued
        own = np.where(schedule.kind == CALC, schedule.size, 0)
        pays_overhead = np.zeros(n, dtype=bool)
        pays_overhead[self.out_send] = pays_overhead[self.out_recv] = True
        issue_vertex = np.arange(1, n + 1, dtype=np.int32)
        issue_vertex[issued] = self._new_vertices(len(issued))
        split = np.zeros(n, dtype=bool)
        split[issued] = True

        vertex = np.arange(1, n + 1, dtype=np.int32)
        before = np.where(schedule.on_start, issue_vertex[schedule.before], vertex[schedule.before])
        has_before = np.zeros(n, dtype=bool)
        has_before[schedule.after] = True
        free = np.flatnonzero(~has_before).astype(np.int32)
        sources = np.concatenate([before, np.zeros(len(free), dtype=np.int32)])
        operation = np.concatenate([schedule.after.astype(np.int32), free])
        del before

        into_issue = split[operation]
        self.edges.add(sources[into_issue], issue_vertex[operation[into_issue]])
        sources = np.concatenate([sources[~into_issue], issue_vertex[issued]])
        operation = np.concatenate([operation[~into_issue], issued.astype(np.int32)])
        overhead = pays_overhead[operation]
        self.edges.add(sources[overhead], operation[overhead] + 1, overheads=1)
        rest = operation[~overhead]
        self.edges.add(sources[~overhead], rest + 1, "calc_ns", own[rest])

    def add_messages(self, ingress: bool) -> None:
        """Add an edge per message; with *ingress* it goes through a vertex, the time the last byte arrives."""
        if ingress:
            self.arrivals = self._new_vertices(len(self.out_send))
            self.edges.add(self.out_send + 1, self.arrivals, "bytes", self.body, messages=1)
            self.edges.add(self.arrivals, self.out_recv + 1, overheads=1)
        else:
            self.edges.add(self.out_send + 1, self.out_recv + 1, "bytes", self.body, messages=1, overheads=1)
        sizes = self.schedule.size[self.up_send]
        self.edges.add(self.up_send + 1, self.up_recv + 1, "up_bytes", sizes, up_messages=1)

    def queued(self, rule: PortRule, ingress: bool, edges: Edges) -> Queued:
        """What ports serve: the sends of every port by *rule* and, with *ingress*, the arrivals at every port."""
        schedule, sides = self.schedule, []
        bodies, body = encode(self.body)
        rows = _occupied(bodies)
        idle, gap, whole, whole_and_gap = (np.full(len(body), at) for at in (0, 1, 2, 2 + len(bodies)))
        sender, receiver = schedule.rank[self.out_send], schedule.rank[self.out_recv]
        if rule is PortRule.PORT:
            port = self.node[sender], schedule.nic[self.out_send]
            sides.append((self.out_send + 1, self.out_send, *port, idle, whole_and_gap + body))
        elif rule is PortRule.DESTINATION:
            towards = receiver if schedule.towards is None else schedule.towards[self.out_send]
            sides.append((self.out_send + 1, self.out_send, sender, towards, idle, whole_and_gap + body))
        if ingress:
            port = self.node[receiver], schedule.nic[self.out_recv]
            sides.append((self.arrivals, self.out_recv, *port, whole + body, gap))
        columns = np.concatenate([np.zeros((7, 0), dtype=np.int64), *map(_numbered, range(len(sides)), sides)], axis=1)
        side, vertex, operation, first, second, before, after = columns
        ends, end = encode(second)
        _, queue = encode((side * (int(first.max(initial=0)) + 1) + first) * max(len(ends), 1) + end)
        turn = np.zeros_like(vertex) if schedule.turn is None else schedule.turn[operation]
        tie = self._ties(edges, vertex, operation)
        return Queued(vertex, operation, queue, turn, tie, before, after, rows)

    def _ties(self, edges: Edges, vertex: Ints, operation: Ints) -> Ints:
        """Number the queued *vertex* column by depth, then the position of its *operation* in its block, then rank."""
        tie = np.empty(len(vertex), dtype=np.int64)
        if len(vertex):
            keys = self.schedule.rank[operation], self.schedule.block_position()[operation], self.depths(edges)[vertex]
            tie[np.lexsort(keys)] = np.arange(len(vertex))
        return tie

    def depths(self, edges: Edges) -> Small:
        """Depth of every vertex, not counting the queues of ports."""
        owners = np.concatenate([self.issued + 1, self.out_recv[: len(self.arrivals)] + 1]).astype(np.int32)
        order, depth = topological_order(self.vertices, edges.sources, edges.targets, owners)
        if len(order) < self.vertices:
            raise CycleError(_cycle_text(find_cycle(self.vertices, edges.sources, edges.targets, order), self.name))
        return depth


def _numbered(side: int, columns: tuple[Ints, ...]) -> Ints:
    return np.stack([np.full(len(columns[0]), side), *columns])


def _occupied(bodies: Ints) -> Ints:
    """Costs of nothing, of a gap, of each of *bodies*, and of each with a gap."""
    rows = np.zeros((2 + 2 * len(bodies), len(COMPONENTS)), dtype=np.int64)
    rows[1, COMPONENTS.index("gaps")] = 1
    rows[2:, COMPONENTS.index("bytes")] = np.concatenate([bodies, bodies])
    rows[2 + len(bodies) :, COMPONENTS.index("gaps")] = 1
    return rows
