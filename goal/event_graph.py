"""The LogGP graph of a schedule: vertices are ends of operations, edges carry integer cost vectors.

The model (LogGP as published; DESIGN section 4).  A vertex is the time an operation *ends*:

* ``calc c`` ends ``c`` after the operations it requires;
* a scale-out ``send`` ends ``o`` after the operations it requires, and no earlier than ``(m-1) G + g`` after
  the send before it on the same port;
* its ``recv`` ends ``L + (m-1) G + o`` after the send ended, and ``o`` after what the recv itself requires: an
  uncontended message takes ``2 o + L + (m-1) G``;
* a scale-up message of m bytes takes ``L_up + m G_up`` and nothing else.

*Issue order*: the sends of a port follow each other in the order of their depth, which is the number of
operations on the longest chain of dependencies and messages before them, then of their position in the
block of their rank, then of their rank.  Depth grows along every dependency, so this order can never
contradict one, and it does not depend on L or G.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

import numpy as np
from numpy.typing import NDArray

from atlas_lp.errors import CycleError, GoalError
from atlas_lp.goal.kernels import find_cycle, group_by, topological_order
from atlas_lp.goal.schedule import CALC, Ints, Schedule

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
    source: NDArray[np.int32]
    cost: NDArray[np.int32]
    costs: Ints
    vertex: Ints

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
        cls, vertices: int, sources: Ints, targets: Ints, cost: Ints, costs: Ints, name: object = str
    ) -> EventGraph:
        """Build from edge columns; vertex 0 must be the only one without in-edges.

        *costs* is the table that the column *cost* points into; *name* turns a vertex into words for errors.
        Raises :class:`~atlas_lp.errors.CycleError` with one cycle named, and
        :class:`~atlas_lp.errors.GoalError` for a negative cost.  Cost O(V + E).
        """
        if costs.size and int(costs.min()) < 0:
            raise GoalError("a cost is negative: calc times, sizes and gaps must be 0 or more")
        order, _ = topological_order(vertices, sources, targets)
        if len(order) < vertices:
            raise CycleError(_cycle_text(find_cycle(vertices, sources, targets, order), name))
        place = np.empty(vertices, dtype=np.int64)
        place[order] = np.arange(vertices)
        in_start, members = group_by(place[targets], vertices)
        return cls(
            in_start=in_start,
            source=place[sources[members]].astype(np.int32),
            cost=cost[members].astype(np.int32),
            costs=np.ascontiguousarray(costs, dtype=np.int64),
            vertex=place,
        )


def _cycle_text(cycle: list[int], name: object) -> str:
    words = [name(vertex) for vertex in cycle]  # type: ignore[operator]
    shown = words if len(words) <= 8 else [*words[:4], f"... {len(words) - 8} more ...", *words[-4:]]
    return "operations wait for each other in a cycle: " + " -> ".join([*shown, words[0]])


class _CostTable:
    """Collects cost rows and the edge columns that point at them."""

    def __init__(self) -> None:
        self.rows: list[Ints] = []
        self.count = 0
        self.columns: list[tuple[Ints, Ints, Ints]] = []

    def add(self, sources: Ints, targets: Ints, **components: Ints | int) -> None:
        """Add edges whose cost vectors have the given components (arrays or one value for all)."""
        if not len(sources):
            return
        vectors = np.zeros((len(sources), len(COMPONENTS)), dtype=np.int64)
        for component, values in components.items():
            vectors[:, COMPONENTS.index(component)] = values
        varying = [COMPONENTS.index(c) for c, v in components.items() if not np.isscalar(v)]
        if varying:  # at most one component varies inside one kind of edge
            _, first, inverse = np.unique(vectors[:, varying[0]], return_index=True, return_inverse=True)
        else:
            first, inverse = np.zeros(1, dtype=np.int64), np.zeros(len(sources), dtype=np.int64)
        self.rows.append(vectors[first])
        self.columns.append((sources, targets, inverse.reshape(-1) + self.count))
        self.count += len(first)

    def edges(self) -> tuple[Ints, Ints, Ints, Ints]:
        """Return sources, targets, cost ids and the cost table."""
        empty = np.zeros(0, dtype=np.int64)
        parts = self.columns or [(empty, empty, empty)]
        rows = self.rows or [np.zeros((0, len(COMPONENTS)), dtype=np.int64)]
        sources, targets, cost = (np.concatenate(column) for column in zip(*parts, strict=True))
        return sources, targets, cost, np.concatenate(rows)


def event_graph(
    schedule: Schedule, node_of_rank: Ints | None = None, port_rule: PortRule = PortRule.PORT
) -> EventGraph:
    """Build the LogGP graph of *schedule*.

    *node_of_rank* says which ranks share a node: messages inside a node are scale-up, and ``nic`` numbers
    count per node.  Without it every rank is a node of its own.

    Raises :class:`~atlas_lp.errors.GoalError` for unmatched messages and
    :class:`~atlas_lp.errors.CycleError` for a cycle.  Time and memory O(n log n), the sort being the matching.
    """
    node = np.arange(schedule.ranks) if node_of_rank is None else np.asarray(node_of_rank, dtype=np.int64)
    sends, recvs = schedule.messages()
    if schedule.scale_out is None:
        scale_out = node[schedule.rank[sends]] != node[schedule.rank[recvs]]
    else:
        scale_out = schedule.scale_out[sends]
    own = np.where(schedule.kind == CALC, schedule.size, 0)
    pays_overhead = np.zeros(len(schedule), dtype=bool)
    pays_overhead[sends[scale_out]] = pays_overhead[recvs[scale_out]] = True

    table = _CostTable()
    vertices, issued = _add_dependencies(table, schedule, own, pays_overhead)
    out_send, out_recv = sends[scale_out], recvs[scale_out]
    table.add(
        out_send + 1,
        out_recv + 1,
        messages=1,
        overheads=1,
        bytes=np.maximum(schedule.size[out_send] - 1, 0),
    )
    up_send, up_recv = sends[~scale_out], recvs[~scale_out]
    table.add(up_send + 1, up_recv + 1, up_messages=1, up_bytes=schedule.size[up_send])

    name = _namer(schedule, issued)
    if port_rule is not PortRule.NONE and len(out_send):
        sources, targets, _, _ = table.edges()
        order, depth = topological_order(vertices, sources, targets)
        if len(order) < vertices:
            raise CycleError(_cycle_text(find_cycle(vertices, sources, targets, order), name))
        first, then = _port_queues(schedule, out_send, out_recv, depth[out_send + 1], node, port_rule)
        table.add(first + 1, then + 1, gaps=1, bytes=np.maximum(schedule.size[first] - 1, 0))
    sources, targets, cost, costs = table.edges()
    graph = EventGraph.from_edges(vertices, sources, targets, cost, costs, name)
    return EventGraph(graph.in_start, graph.source, graph.cost, graph.costs, graph.vertex[1 : len(schedule) + 1])


def _add_dependencies(
    table: _CostTable, schedule: Schedule, own: Ints, pays_overhead: NDArray[np.bool_]
) -> tuple[int, Ints]:
    """Add the edges of ``requires``, ``irequires`` and of the source; return vertex count and issued ones.

    Operation i is vertex i + 1.  An operation that others ``irequire`` gets a second vertex, the time it is
    *issued*: when everything it requires has ended.
    """
    n = len(schedule)
    issued = np.unique(schedule.before[schedule.on_start])
    issue_vertex = np.arange(1, n + 1)
    issue_vertex[issued] = n + 1 + np.arange(len(issued))
    split = np.zeros(n, dtype=bool)
    split[issued] = True

    before = np.where(schedule.on_start, issue_vertex[schedule.before], schedule.before + 1)
    has_before = np.zeros(n, dtype=bool)
    has_before[schedule.after] = True
    free = np.flatnonzero(~has_before)
    sources = np.concatenate([before, np.zeros(len(free), dtype=np.int64)])
    operation = np.concatenate([schedule.after, free])

    into_issue = split[operation]
    table.add(sources[into_issue], issue_vertex[operation[into_issue]])
    sources = np.concatenate([sources[~into_issue], issue_vertex[issued]])
    operation = np.concatenate([operation[~into_issue], issued])
    overhead = pays_overhead[operation]
    table.add(sources[overhead], operation[overhead] + 1, overheads=1)
    table.add(sources[~overhead], operation[~overhead] + 1, calc_ns=own[operation[~overhead]])
    return n + 1 + len(issued), issued


def _namer(schedule: Schedule, issued: Ints) -> object:
    def name(vertex: int) -> str:
        if vertex == 0:
            return "start"
        operation = vertex - 1 if vertex <= len(schedule) else int(issued[vertex - 1 - len(schedule)])
        return schedule.name(operation)

    return name


def _port_queues(
    schedule: Schedule, sends: Ints, recvs: Ints, depth: Ints, node: Ints, rule: PortRule
) -> tuple[Ints, Ints]:
    """Return the pairs of sends that follow each other in a queue (see *Issue order* above)."""
    rank = schedule.rank[sends]
    if rule is PortRule.PORT:
        queue = np.stack([node[rank], schedule.nic[sends]])
    else:
        queue = np.stack([rank, schedule.rank[recvs]])
    position = schedule.block_position()[sends]
    order = np.lexsort((rank, position, depth, queue[1], queue[0]))
    same = np.all(queue[:, order[1:]] == queue[:, order[:-1]], axis=0)
    return sends[order[:-1][same]], sends[order[1:][same]]
