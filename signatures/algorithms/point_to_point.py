"""Grouped Send and Recv, AllToAll, AllToAllv, Gather and Scatter: batches of messages on every channel.

On one channel the sends and receives of up to 8 consecutive rounds run at the same time on different warps, each a
chain of chunks; batches follow each other, and one ends with its slowest member.  A message to self is one copy.

Source: NVIDIA/nccl ``enqueue.cc`` scheduleP2pTasksToPlan, ``device/sendrecv.h``, ``proxy.cc`` ncclProxyComputeP2p
(2.20, 2.22 .. 2.30).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from atlas_lp.errors import InputError
from atlas_lp.signatures.algorithms.algorithm import Algorithm, Built, Parameters
from atlas_lp.signatures.costs import CostTable, Primitive
from atlas_lp.signatures.nccl.collectives import SEND_RECV
from atlas_lp.signatures.nccl.protocols import Protocol
from atlas_lp.signatures.nccl.splits import round_up
from atlas_lp.signatures.nccl.transfers import (
    BATCH_ROUNDS,
    FLAT_RULES,
    Parts,
    Transfers,
    channel_of_part,
    cut_parts,
    is_uneven,
    peer_rounds,
)
from atlas_lp.signatures.nccl.versions import p2p_rule
from atlas_lp.signatures.placement import by_first_appearance, node_order
from atlas_lp.signatures.signature import Signature, simple_signature
from atlas_lp.signatures.slices import Slices

Ints = NDArray[np.int64]

NETWORK_CHUNK, NVLINK_CHUNK = 131_072, 524_288
"""``NCCL_P2P_NET_CHUNKSIZE`` (more than one node) and ``NCCL_P2P_NVL_CHUNKSIZE`` (one node)."""

CHANNELS, CHANNELS_PER_PEER = 32, 2
"""P and Q where they are not recorded (NCCL logs them as ``p2p channels`` and ``p2p channels per peer``)."""

USUAL_CHANNELS = "assumed: NCCL's default channels for point-to-point"
"""Source of :data:`CHANNELS` and :data:`CHANNELS_PER_PEER` where a trace does not say."""

_SEND, _RECEIVE = 0, 1


def point_to_point_order(messages: Sequence[tuple[int, int, int]], node_of_rank: Sequence[int]) -> list[int]:
    """Communicator rank of every label of :func:`point_to_point_signature`: those that take part, node by node."""
    active = {rank for source, destination, _ in messages for rank in (source, destination)}
    return [rank for rank in node_order(node_of_rank) if rank in active]


def point_to_point_signature(
    messages: Sequence[tuple[int, int, int]],
    node_of_rank: Sequence[int],
    nic_of_rank: Sequence[int] | None = None,
    *,
    nccl: str,
    collective: str = SEND_RECV,
    channels: int = CHANNELS,
    per_peer: int = CHANNELS_PER_PEER,
    chunk_bytes: int | None = None,
) -> Signature:
    """Build the signature of *messages* (source, destination, bytes) that one group of calls exchanges.

    Ranks are those of the communicator that *node_of_rank* covers; the calls of one pair keep their order.  Ranks
    without a message are left out of the labels.  *channels* and *per_peer* are NCCL's p2p channels (powers of two),
    *chunk_bytes* its p2p chunk (default: by the number of nodes).  *collective* is only a name.

    Raises :class:`~atlas_lp.errors.InputError` for impossible values and
    :class:`~atlas_lp.errors.UnsupportedError` for a version without rules.
    """
    columns = np.array(messages, dtype=np.int64).reshape(-1, 3)
    _check_messages(columns, len(node_of_rank))
    settings = _settings(node_of_rank, nccl, channels, per_peer, chunk_bytes)
    nodes = np.array(by_first_appearance(node_of_rank), dtype=np.int64)
    rounds = peer_rounds(settings.rule, nodes)
    source, destination, size = columns.T
    number, base = rounds.of(source, destination)
    # A batch has no peer twice: the second message of a pair belongs to a second walk through all rounds, and so on.
    walk = round_up(len(rounds.group_round) * rounds.width, BATCH_ROUNDS)
    number = number + _occurrence(source * len(nodes) + destination) * walk
    order = point_to_point_order(messages, node_of_rank)
    label = np.full(len(nodes), -1, dtype=np.int64)
    label[order] = np.arange(len(order))
    rows = np.stack([label[source], label[destination], size, number, base])
    rows = rows[:, np.lexsort((rows[1], rows[3], rows[0]))]
    transfers = Transfers(
        settings.rule,
        settings.channels,
        settings.per_peer,
        settings.chunk_bytes,
        settings.peers,
        settings.nodes,
        0,
        *(tuple(row.tolist()) for row in rows),
    )
    return _of_transfers(collective, transfers, int(size.sum()), order, node_of_rank, nic_of_rank)


def all_to_all_signature(
    size_bytes: int,
    node_of_rank: Sequence[int],
    nic_of_rank: Sequence[int] | None = None,
    *,
    nccl: str,
    channels: int = CHANNELS,
    per_peer: int = CHANNELS_PER_PEER,
    chunk_bytes: int | None = None,
) -> Signature:
    """Build the signature of an AllToAll of *size_bytes* from every rank to every rank, itself included.

    The graph is that of the same messages given to :func:`point_to_point_signature`, but none of them is stored.
    Raises as it does.
    """
    if len(node_of_rank) < 2:
        raise InputError(f"AllToAll on {len(node_of_rank)} rank exchanges no messages")
    if size_bytes < 1:
        raise InputError(f"AllToAll of {size_bytes} bytes moves nothing")
    settings = _settings(node_of_rank, nccl, channels, per_peer, chunk_bytes, size_bytes)
    order = node_order(node_of_rank)
    ranks = range(len(order))
    if order != list(ranks) and settings.rule in FLAT_RULES and is_uneven(np.array(by_first_appearance(node_of_rank))):
        # Here the rounds depend on the numbers of ranks, which labels in the order of nodes do not keep.
        return point_to_point_signature(
            [(source, destination, size_bytes) for source in ranks for destination in ranks],
            node_of_rank,
            nic_of_rank,
            nccl=nccl,
            collective="AllToAll",
            channels=channels,
            per_peer=per_peer,
            chunk_bytes=chunk_bytes,
        )
    return _of_transfers("AllToAll", settings, size_bytes, order, node_of_rank, nic_of_rank)


def _settings(
    node_of_rank: Sequence[int], nccl: str, channels: int, per_peer: int, chunk_bytes: int | None, equal_bytes: int = 0
) -> Transfers:
    for name, value in (("p2p channels", channels), ("p2p channels per peer", per_peer)):
        if not 1 <= value <= 64 or value & (value - 1):
            raise InputError(f"{value} {name}: NCCL uses powers of two up to 64")
    if per_peer > channels:
        raise InputError(f"{per_peer} channels per peer of {channels} p2p channels")
    nodes = len(set(node_of_rank))
    chunk = chunk_bytes or (NETWORK_CHUNK if nodes > 1 else NVLINK_CHUNK)
    if not 4096 <= chunk <= NVLINK_CHUNK:
        raise InputError(f"a p2p chunk of {chunk} bytes: NCCL uses 4 KiB to 512 KiB")
    return Transfers(p2p_rule(nccl), channels, per_peer, chunk, len(node_of_rank), nodes, equal_bytes)


def _check_messages(columns: Ints, ranks: int) -> None:
    if not len(columns):
        raise InputError("a group of calls without messages")
    if columns.min() < 0 or columns[:, :2].max() >= ranks:
        raise InputError(f"a message of negative size, or to a rank outside 0 to {ranks - 1}")
    if np.all(columns[:, 0] == columns[:, 1]):
        raise InputError("all messages of the group stay on their rank: nothing is exchanged")


def _occurrence(keys: Ints) -> Ints:
    """How often each key stood before its place."""
    order = np.argsort(keys, kind="stable")
    ordered = keys[order]
    first = np.searchsorted(ordered, ordered)
    result = np.empty_like(keys)
    result[order] = np.arange(len(keys)) - first
    return result


def _of_transfers(
    collective: str,
    transfers: Transfers,
    size_bytes: int,
    order: Sequence[int],
    node_of_rank: Sequence[int],
    nic_of_rank: Sequence[int] | None,
) -> Signature:
    return simple_signature(
        collective,
        "p2p",
        order,
        node_of_rank,
        nic_of_rank,
        size_bytes=size_bytes,
        element_bytes=1,
        chunk_bytes=transfers.chunk_bytes,
        split=transfers.rule,
        parts=(),
        transfers=transfers,
    )


@dataclass(frozen=True)
class _Calls:
    """Messages in which some ranks take part: labels, bytes, round, channel base and link of their connection."""

    source: Ints
    destination: Ints
    size: Ints
    round: Ints
    base: Ints
    link: Ints


def _transfers(signature: Signature) -> Transfers:
    if signature.transfers is None:
        raise InputError(f"a signature of {signature.algorithm} has no point-to-point messages")
    return signature.transfers


def _calls(signature: Signature, labels: Ints) -> _Calls:
    transfers = _transfers(signature)
    if not transfers.equal_bytes:
        rows = np.array(
            [transfers.source, transfers.destination, transfers.size_bytes, transfers.round, transfers.base],
            dtype=np.int64,
        )
        _, pair = np.unique(rows[0] * signature.ranks + rows[1], return_inverse=True)
        first = np.full(int(pair.max()) + 1, np.iinfo(np.int64).max)
        np.minimum.at(first, pair.reshape(-1), rows[3])
        rows = np.vstack([rows, first[pair.reshape(-1)]])
        return _Calls(*rows[:, np.isin(rows[0], labels) | np.isin(rows[1], labels)])
    others = np.arange(signature.ranks)
    ends = np.stack([np.repeat(labels, len(others)), np.tile(others, len(labels))])
    behind = ends[::-1][:, ~np.isin(ends[1], labels)]
    source, destination = np.concatenate([ends, behind], axis=1)
    rounds = peer_rounds(transfers.rule, np.array(signature.nodes, dtype=np.int64))
    number, base = rounds.of(source, destination)
    return _Calls(source, destination, np.full_like(source, transfers.equal_bytes), number, base, number)


def point_to_point_slices(signature: Signature, reduce_copy: CostTable, labels: Ints) -> Slices:
    """Return the slices of the ranks *labels* of a group of calls.

    The link of a connection is the round in which its pair first meets, which is alike for equal ranks.
    """
    transfers = _transfers(signature)
    calls = _calls(signature, np.asarray(labels, dtype=np.int64))
    nodes = np.array(signature.nodes, dtype=np.int64)
    parts = _whole_copies(calls, cut_parts(transfers, calls.size, nodes[calls.source] != nodes[calls.destination]))
    copies = (calls.source == calls.destination)[parts.message]
    channel = channel_of_part(transfers, calls.base[parts.message], parts.number)
    stride = int((-(-parts.bytes // parts.chunk)).max(initial=1)) + 2
    kinds = [
        _Kind(calls.source, calls.destination, Primitive.SEND, _SEND, ~copies),
        _Kind(calls.destination, calls.source, Primitive.RECV, _RECEIVE, ~copies),
        _Kind(calls.source, calls.source, Primitive.SEND, _SEND, copies),
    ]
    rows = [_rows(calls, parts, channel, kind, reduce_copy, labels, stride) for kind in kinds]
    ends = np.cumsum([0, *(rows_of.shape[1] for rows_of in rows)])
    sends, receives = np.arange(ends[0], ends[1]), np.arange(ends[1], ends[2])
    table = np.concatenate(rows, axis=1)
    barriers, waits = _batches(table, stride)
    every = np.concatenate([table, barriers], axis=1)
    return Slices.of_rows(every, sends, receives, signature.fifo_slices, waits)


def _whole_copies(calls: _Calls, parts: Parts) -> Parts:
    """Make a message to self one part and one chunk."""
    copies = calls.source == calls.destination
    kept = ~copies[parts.message] | (parts.number == 0)
    message = parts.message[kept]
    whole, size = copies[message], calls.size[message]
    return Parts(
        message=message,
        number=parts.number[kept],
        bytes=np.where(whole, size, parts.bytes[kept]),
        chunk=np.where(whole, np.maximum(size, 1), parts.chunk[kept]),
        ll=parts.ll[kept] & ~whole,
    )


def round_links(signature: Signature) -> list[Ints]:
    """Whom every rank sends to, and receives from, in every round of an AllToAll; -1 where it idles."""
    ranks = np.arange(signature.ranks)
    transfers = _transfers(signature)
    rounds = peer_rounds(transfers.rule, np.array(signature.nodes, dtype=np.int64))
    count = len(rounds.group_round) * rounds.width
    to, back = (np.full((count, signature.ranks), -1, dtype=np.int32) for _ in range(2))
    for rank in ranks:
        number, _ = rounds.of(np.full_like(ranks, rank), ranks)
        to[number, rank] = ranks
        back[number, ranks] = rank
    return [row.astype(np.int64) for pair in zip(to, back, strict=True) for row in pair]


@dataclass(frozen=True)
class _Kind:
    """One side of messages: whose rows, towards whom, what they do, and which parts."""

    rank: Ints
    peer: Ints
    primitive: Primitive
    direction: int
    parts: NDArray[np.bool_]


def _rows(
    calls: _Calls, parts: Parts, channel: Ints, kind: _Kind, reduce_copy: CostTable, labels: Ints, stride: int
) -> Ints:
    """One column per chunk: rank, channel, chain, step, cost, peer, link, wire, batch, whether first, whether last."""
    mine = np.flatnonzero(kind.parts & np.isin(kind.rank[parts.message], labels))
    count = np.maximum(-(-parts.bytes[mine] // parts.chunk[mine]), 1)
    part = np.repeat(mine, count)
    number = np.arange(len(part)) - np.repeat(np.cumsum(count) - count, count)
    data = np.minimum(parts.chunk[part], parts.bytes[part] - number * parts.chunk[part])
    message, ll = parts.message[part], parts.ll[part]
    simple = reduce_copy.time_ns(kind.primitive, Protocol.SIMPLE, data)
    cost = np.where(ll, reduce_copy.time_ns(kind.primitive, Protocol.LL, data), simple)
    batch = calls.round[message] // BATCH_ROUNDS
    return np.stack(
        [
            kind.rank[message],
            channel[part],
            2 * calls.round[message] + kind.direction,
            batch * stride + number,
            cost,
            kind.peer[message],
            calls.link[message],
            np.where(ll, Protocol.LL.wire_bytes(data), data),
            batch,
            number == 0,
            number == count.repeat(count) - 1,
        ]
    )


def _batches(table: Ints, stride: int) -> tuple[Ints, tuple[Ints, Ints]]:
    """Return a slice of no cost after every batch but the last of a channel, and the waits it makes."""
    rank, channel, batch = table[0], table[1], table[8]
    batches = int(batch.max()) + 1
    place = rank * (int(channel.max()) + 1) + channel
    keys, first, at = np.unique(place * batches + batch, return_index=True, return_inverse=True)
    follows = keys[1:] // batches == keys[:-1] // batches
    barrier = np.full(len(keys), -1, dtype=np.int64)
    ended = np.flatnonzero(follows)
    barrier[ended] = table.shape[1] + np.arange(len(ended))
    rows = np.zeros((len(table), len(ended)), dtype=np.int64)
    rows[0], rows[1], rows[2] = rank[first[ended]], channel[first[ended]], -1
    rows[3] = (batch[first[ended]] + 1) * stride - 1
    last = np.flatnonzero((table[10] == 1) & (barrier[at] >= 0))
    before = np.concatenate([[-1], barrier[:-1]])[at]
    begun = np.flatnonzero((table[9] == 1) & (before >= 0))
    return rows, (np.concatenate([last, before[begun]]), np.concatenate([barrier[at[last]], begun]))


def point_to_point_operations(signature: Signature) -> int:
    """Upper estimate of the operations of the schedule: two slices and messages per chunk, two barriers per part."""
    transfers = _transfers(signature)
    nodes = np.array(signature.nodes, dtype=np.int64)
    if transfers.equal_bytes:
        inside = int((np.bincount(nodes) ** 2).sum())
        counts = np.array([inside, signature.ranks**2 - inside])
        sizes = np.full(2, transfers.equal_bytes)
        network = np.array([False, True])
    else:
        sizes = np.array(transfers.size_bytes, dtype=np.int64)
        network = nodes[list(transfers.source)] != nodes[list(transfers.destination)]
        counts = np.ones(len(sizes), dtype=np.int64)
    parts = cut_parts(transfers, sizes, network)
    chunks = np.maximum(-(-parts.bytes // parts.chunk), 1)
    return int(((4 * chunks + 2) * counts[parts.message]).sum())


def _built(p: Parameters) -> Built:
    channels, per_peer = p.channels or CHANNELS, p.per_peer or CHANNELS_PER_PEER
    signature = all_to_all_signature(
        p.size_bytes, p.node_of_rank, p.nic_of_rank, nccl=p.nccl, channels=channels, per_peer=per_peer
    )
    return Built(
        signature,
        node_order(p.node_of_rank),
        assumed=f"point-to-point channels are assumed, not recorded: {channels} channels, {per_peer} per peer",
        source="" if p.channels else USUAL_CHANNELS,
    )


def _links(signature: Signature) -> list[Ints] | None:
    return round_links(signature) if _transfers(signature).equal_bytes else None


P2P = Algorithm(
    name="p2p",
    collectives=("AllToAll",),
    protocols=(Protocol.SIMPLE,),
    build=_built,
    slices=point_to_point_slices,
    operations=point_to_point_operations,
    links=_links,
)
