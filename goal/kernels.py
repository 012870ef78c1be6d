"""The compiled loops of the graph room: counting sort into CSR, topological order, depth.

All are O(V + E) in time and memory and deterministic: the order of a vertex's edges is the order in
which the edges were given.
"""

from __future__ import annotations

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
