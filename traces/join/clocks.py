"""Clocks of several hosts: put on one axis by the collectives they ended together.

Only differences of the clock of one host enter an analysis; the axis serves the start of the trace, where a GPU
has no collective behind it yet, and the measured span.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from atlas_lp.errors import TraceError
from atlas_lp.signatures.nccl.collectives import SYNCHRONISING
from atlas_lp.traces.trace import Gap, Instance, Trace

Ints = NDArray[np.int64]

_MOST_OFFSET_NS = 2**62


def host_offsets(trace: Trace, instances: list[Instance]) -> tuple[Ints, list[Gap]]:
    """Nanoseconds to add to the clock of each GPU's host.

    Two hosts that share instances are aligned so that the first of them ends on both at the same time.  Hosts
    without any are aligned by their first recorded activity, which is named as a gap.

    Raises :class:`~atlas_lp.errors.TraceError` for clocks that no two hosts have.
    """
    hosts = trace.column("gpus", "host")
    names = sorted(set(hosts.tolist()), key=hosts.tolist().index)
    host_of_gpu = np.array([names.index(host) for host in hosts])
    ends = trace.column("operations", "end_ns")
    host_of_row = host_of_gpu[trace.column("operations", "gpu")]
    offset = {0: 0} if len(names) == 1 else _reached(_last_ends(trace, instances, ends, host_of_row))
    first = trace.column("gpus", "first_ns")
    origin = min(int(first[host_of_gpu == h].min()) + shift for h, shift in offset.items())
    apart = [h for h in range(len(names)) if h not in offset]
    for h in apart:
        offset[h] = origin - int(first[host_of_gpu == h].min())
    if max(map(abs, offset.values())) >= _MOST_OFFSET_NS:
        raise TraceError("the clocks of two hosts differ by more than a century: a time of a collective is damaged")
    gaps = [Gap("clocks", len(apart), "hosts that share no collective: aligned by first activity")] if apart else []
    return np.array([offset[h] for h in host_of_gpu], dtype=np.int64), gaps


_Ends = tuple[tuple[int, int], tuple[int, int]]
"""Two hosts that took part in an instance, each with the last end there, on its own clock."""


def _last_ends(trace: Trace, instances: list[Instance], ends: Ints, host_of_row: Ints) -> Iterator[_Ends]:
    """Yield neighbouring hosts of the first instance of every set of ranks.

    Instances that synchronize come first: the root of a Broadcast ends before the others.
    """
    kind = trace.column("operations", "type")
    loose = [kind[i.rows[0]] not in SYNCHRONISING for i in instances]
    order = sorted(range(len(instances)), key=lambda n: (loose[n], instances[n].sequence, instances[n].communicator))
    known: set[tuple[int, tuple[int, ...]]] = set()
    for instance in (instances[n] for n in order):
        if (instance.communicator, instance.ranks) in known:
            continue
        known.add((instance.communicator, instance.ranks))
        rows_host, rows_end = host_of_row[instance.rows], ends[instance.rows]
        present = np.unique(rows_host).tolist()
        yield from pairwise((h, int(rows_end[rows_host == h].max())) for h in present)


def _reached(pairs: Iterable[_Ends]) -> dict[int, int]:
    """Offsets of the hosts that the first one is linked with, directly or through others.

    Hosts are a graph whose edges are the first instance of each pair; clocks follow its spanning tree by breadth, so
    that an offset adds as few differences as possible.
    """
    import networkx as nx

    graph = nx.Graph()
    graph.add_node(0)
    for (a, end_a), (b, end_b) in pairs:
        if not graph.has_edge(a, b):
            graph.add_edge(a, b, ends={a: end_a, b: end_b})
    offset = {0: 0}
    for here, there in nx.bfs_edges(graph, 0):
        ends = graph.edges[here, there]["ends"]
        offset[there] = offset[here] + ends[here] - ends[there]
    return offset
