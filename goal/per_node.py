"""One GOAL rank per node instead of one per GPU, as LogGOPSim expects.

Its simulator knows no nodes: whatever is a message costs L and G.  So the GPUs of a node become one rank, every
(GPU, cpu) of it one ``cpu``, and messages inside the node become calcs that take their scale-up time.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np

from atlas_lp.errors import GoalError
from atlas_lp.goal.kernels import topological_order
from atlas_lp.goal.schedule import CALC, SEND, Ints, Schedule

MOST_CPUS = 255
"""Highest number of cpus of a rank: LogGOPSim keeps them in 8 bits, and 255 itself breaks it."""

_TAG_SHIFT = 16
_MOST_NS = 2**63


def per_node(schedule: Schedule, node_of_rank: Ints, up_latency_ns: Fraction, up_gap_ns_per_byte: Fraction) -> Schedule:
    """Merge the ranks of each node of *schedule*; *node_of_rank* numbers the nodes from 0.

    A scale-up message of m bytes becomes a calc of ``up_latency_ns + m up_gap_ns_per_byte`` (whole ns, rounded half up)
    on the cpu of its sender, and one of 0 ns on that of its receiver.  When these times are whole, the graph has the
    same times as before at every L and G, provided nothing requires a scale-up send.  NIC numbers stay, tags are
    numbered anew per pair of nodes.

    Raises :class:`~atlas_lp.errors.GoalError` when a node would need more than :data:`MOST_CPUS` cpus, or a
    scale-up message takes more ns than 64 bits hold.
    """
    node = np.asarray(node_of_rank, dtype=np.int64)
    sends, recvs = schedule.messages()
    inside = node[schedule.rank[sends]] == node[schedule.rank[recvs]]
    up_send, up_recv = sends[inside], recvs[inside]
    kind, size = schedule.kind.copy(), schedule.size.astype(np.int64)
    kind[up_send] = kind[up_recv] = CALC
    sizes, at = np.unique(size[up_send], return_inverse=True)
    times = [_time(m, up_latency_ns, up_gap_ns_per_byte) for m in sizes.tolist()]
    if max(times, default=0) >= _MOST_NS:
        raise GoalError(f"a message inside a node would take {max(times):.3g} ns: more than 64 bits hold")
    size[up_send] = np.array(times, dtype=np.int64)[at]
    size[up_recv] = 0
    is_calc = kind == CALC
    order = _order(schedule, sends, recvs, node)
    place = np.empty(len(order), dtype=np.int64)
    place[order] = np.arange(len(order))
    return Schedule(
        ranks=int(node.max()) + 1,
        kind=kind[order],
        rank=node[schedule.rank][order],
        size=size[order],
        peer=np.where(is_calc, -1, node[schedule.peer])[order],
        tag=_tags(schedule, node, ~is_calc)[order],
        cpu=_cpus(schedule, node)[order],
        nic=np.where(is_calc, 0, schedule.nic)[order],
        before=place[np.concatenate([schedule.before, up_send])],
        after=place[np.concatenate([schedule.after, up_recv])],
        on_start=np.concatenate([schedule.on_start, np.zeros(len(up_send), dtype=np.bool_)]),
    )


def numbered(schedule: Schedule) -> Schedule:
    """Give every message of a pair of ranks a tag of its own (every 65,536th the same): the matching stays.

    The fork of LogGOPSim in spcl/atlahs puts a receive that finds its cpu or NIC busy back at the end of the queue;
    with equal tags it mixes such receives up and stops early without a word.  Its hash uses the upper half of a tag,
    so that is where the number stands.
    """
    sends, recvs = schedule.messages()
    pair = schedule.rank[sends] * schedule.ranks + schedule.peer[sends]
    order = np.lexsort((sends, pair))
    number = np.arange(len(order)) - np.searchsorted(pair[order], pair[order])
    tag = schedule.tag.astype(np.int64)
    tag[sends[order]] = tag[recvs[order]] = (number % (1 << _TAG_SHIFT)) << _TAG_SHIFT
    return replace(schedule, tag=tag)


def _time(size_bytes: int, latency_ns: Fraction, gap_ns_per_byte: Fraction) -> int:
    return (latency_ns + size_bytes * gap_ns_per_byte + Fraction(1, 2)).__floor__()


def _order(schedule: Schedule, sends: Ints, recvs: Ints, node: Ints) -> Ints:
    """Order of operations in the blocks of the nodes: that in which ports issue, so that no queue changes."""
    none = np.zeros(0, dtype=np.int32)
    sources, targets = np.concatenate([schedule.before, sends]), np.concatenate([schedule.after, recvs])
    _, depth = topological_order(len(schedule), sources, targets, none)
    order: Ints = np.lexsort((schedule.rank, schedule.block_position(), depth, node[schedule.rank]))
    return order


def _cpus(schedule: Schedule, node: Ints) -> Ints:
    """Number the (GPU, cpu) pairs of every node from 0."""
    pairs, at = np.unique(np.stack([schedule.rank, schedule.cpu]), axis=1, return_inverse=True)
    own = node[pairs[0]]
    order = np.lexsort((pairs[1], pairs[0], own))
    number = np.empty(len(own), dtype=np.int64)
    number[order] = np.arange(len(own)) - np.searchsorted(own[order], own[order])
    if int(number.max()) >= MOST_CPUS:
        raise GoalError(
            f"a node needs {int(number.max()) + 1} cpus (GPUs x channels), but LogGOPSim numbers them in 8 bits: "
            "write one rank per GPU instead"
        )
    cpus: Ints = number[at.reshape(-1)]
    return cpus


def _tags(schedule: Schedule, node: Ints, is_message: Ints) -> Ints:
    """Number the (sender, receiver, tag) of each pair of nodes from 0; both ends agree."""
    rank, peer = schedule.rank[is_message], schedule.peer[is_message]
    is_send = schedule.kind[is_message] == SEND
    source, destination = np.where(is_send, rank, peer), np.where(is_send, peer, rank)
    keys = np.stack([node[source], node[destination], source, destination, schedule.tag[is_message]])
    streams, at = np.unique(keys, axis=1, return_inverse=True)
    pair = streams[0] * (int(node.max()) + 1) + streams[1]
    tags = np.zeros(len(schedule), dtype=np.int64)
    tags[is_message] = (np.arange(len(pair)) - np.searchsorted(pair, pair))[at.reshape(-1)]
    return tags
