"""The compiled loops of the graph room: counting sort into CSR, topological order, depth, service by queues.

All are O(V + E) in time and memory, but for the sorting of queues, and deterministic: the order of a vertex's edges is
the order in which the edges were given.
"""

from __future__ import annotations

import heapq
from typing import Any

import numpy as np
from numpy.typing import NDArray

from atlas_lp.compiled import compiled

Ints = NDArray[np.integer[Any]]
Small = NDArray[np.int32]
Flags = NDArray[np.bool_]


@compiled
def group_by(keys: Ints, groups: int) -> tuple[Ints, Small]:
    """Stable counting sort of integers: pointers of every group and the positions of its members."""
    pointers = np.zeros(groups + 1, np.int64)
    for key in keys:
        pointers[key + 1] += 1
    for group in range(groups):
        pointers[group + 1] += pointers[group]
    fill = pointers[:-1].copy()
    members = np.empty(len(keys), np.int32)
    for i in range(len(keys)):
        key = keys[i]
        members[fill[key]] = i
        fill[key] += 1
    return pointers, members


@compiled
def topological_order(vertices: int, sources: Ints, targets: Ints, owners: Ints) -> tuple[Small, Small]:
    """Order the vertices first in, first out (Kahn), and give each its depth.

    The last vertices are auxiliary: moments inside the operation that *owners* names.  The depth of a vertex is the
    number of edges of the longest chain before it, not counting those from an auxiliary vertex to its owner.  Vertices
    on or behind a cycle are missing from the order, which is then shorter than *vertices*.
    """
    pointers, members = group_by(sources, vertices)
    first = vertices - len(owners)
    waiting = np.zeros(vertices, np.int32)
    for target in targets:
        waiting[target] += 1
    depth = np.zeros(vertices, np.int32)
    order = np.empty(vertices, np.int32)
    filled = 0
    for vertex in range(vertices):
        if waiting[vertex] == 0:
            order[filled] = vertex
            filled += 1
    done = 0
    while done < filled:
        vertex = order[done]
        done += 1
        for k in range(pointers[vertex], pointers[vertex + 1]):
            target = targets[members[k]]
            own = vertex >= first and owners[vertex - first] == target
            depth[target] = max(depth[target], depth[vertex] + (0 if own else 1))
            waiting[target] -= 1
            if waiting[target] == 0:
                order[filled] = target
                filled += 1
    return order[:filled], depth


@compiled
def paths_between(in_start: Ints, source: Small, first: Flags, last: Flags) -> tuple[Flags, Flags]:
    """Which vertices and edges lie on a path that leaves vertex 0 to one marked *first* and ends in one marked *last*.

    Vertices are in topological order; the only in-edges of the start that count are those into *first*.
    """
    vertices = len(in_start) - 1
    reached = np.zeros(vertices, np.bool_)
    reached[0] = True
    for vertex in range(1, vertices):
        for edge in range(in_start[vertex], in_start[vertex + 1]):
            u = source[edge]
            if reached[u] and (u != 0 or first[vertex]):
                reached[vertex] = True
                break
    wanted = reached & last
    wanted[0] = False
    used = np.zeros(len(source), np.bool_)
    for vertex in range(vertices - 1, 0, -1):
        if wanted[vertex]:
            for edge in range(in_start[vertex], in_start[vertex + 1]):
                u = source[edge]
                if reached[u] and (u != 0 or first[vertex]):
                    used[edge] = True
                    wanted[u] = True
    return wanted, used


def find_cycle(vertices: int, sources: Ints, targets: Ints, order: Ints) -> list[int]:
    """Return one cycle among the vertices that *order* (of :func:`topological_order`) left out."""
    left = np.ones(vertices, dtype=bool)
    left[order] = False
    keep = left[sources] & left[targets]
    # Every vertex left out has an in-edge from another one left out: walking back must repeat a vertex.
    back = dict(zip(targets[keep].tolist(), sources[keep].tolist(), strict=True))
    vertex = min(back)
    seen: dict[int, int] = {}
    walk: list[int] = []
    while vertex not in seen:
        seen[vertex] = len(walk)
        walk.append(vertex)
        vertex = back[vertex]
    return walk[seen[vertex] :][::-1]


@compiled
def _chain(first: np.int64, following: Ints) -> list[np.int64]:
    """Entries of a linked list that ends with -1."""
    entries = [first for _ in range(0)]
    while first >= 0:
        entries.append(first)
        first = following[first]
    return entries


@compiled
def serve(
    out_edges: tuple[Ints, Ints, Ints],
    waiting: Small,
    vertex: Ints,
    queue: Ints,
    block: Ints,
    first_block: Ints,
    tie: Ints,
    service: tuple[Ints, Ints],
) -> tuple[Ints, int]:
    """Run a graph through queues that serve first come, first served; return the order of service and the last time.

    *out_edges* are pointers, targets and weights by source; *waiting* counts the in-edges of every vertex (it is used
    up), of which vertex 0 alone has none.  Entry i of *vertex*, *queue*, *block* and *tie* is a vertex that a queue
    serves.  The blocks of a queue q, ``first_block[q]`` up to that of the next queue, follow each other strictly;
    inside a block who comes first is served first, and of those that come together the one with the smaller *tie*.
    *service* is the time of a queue that lies before the end of the vertex, and the time that it keeps the queue busy
    afterwards.

    The order is shorter than *vertex* where vertices wait for each other in a cycle.  Cost O(V + E + Q log Q).
    """
    pointers, targets, weight = out_edges
    before, after = service
    vertices, blocks = len(waiting), first_block[-1]
    entry = np.full(vertices, -1, np.int32)
    left = np.zeros(blocks, np.int64)
    for each in range(len(vertex)):
        entry[vertex[each]] = each
        left[block[each]] += 1
    parked, next_parked = np.full(blocks, -1, np.int64), np.full(len(vertex), -1, np.int64)
    open_block, free = first_block[:-1].copy(), np.full(len(first_block) - 1, -(np.int64(1) << 62))
    time = np.zeros(vertices, np.int64)
    stack = np.empty(vertices, np.int32)
    stack[0], depth = 0, 1
    heap: list[Any] = [(np.int64(0), np.int64(0), np.int64(0)) for _ in range(0)]
    order = np.empty(len(vertex), np.int64)
    served = 0
    while True:
        while depth > 0:
            depth -= 1
            v = stack[depth]
            for k in range(pointers[v], pointers[v + 1]):
                target = targets[k]
                time[target] = max(time[target], time[v] + weight[k])
                waiting[target] -= 1
                if waiting[target] == 0:
                    i = np.int64(entry[target])
                    if i >= 0:
                        heapq.heappush(heap, (time[target] - before[i], tie[i], i))
                    else:
                        stack[depth] = target
                        depth += 1
        if len(heap) == 0:
            break
        _, _, i = heapq.heappop(heap)
        q, b = queue[i], block[i]
        if b != open_block[q]:
            next_parked[i] = parked[b]
            parked[b] = i
            continue
        v = vertex[i]
        time[v] = max(time[v], free[q] + before[i])
        free[q] = time[v] + after[i]
        order[served] = i
        served += 1
        stack[depth] = v
        depth += 1
        left[b] -= 1
        if left[b] == 0 and b + 1 < first_block[q + 1]:
            open_block[q] = b + 1
            for other in _chain(parked[b + 1], next_parked):
                heapq.heappush(heap, (time[vertex[other]] - before[other], tie[other], other))
    return order[:served], time.max()
