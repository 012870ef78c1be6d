"""PAT AllGather and ReduceScatter, an approximation: log2 steps over distances 2^d, several blocks per message.

ReduceScatter sends to rank + 2^d, near distances first; AllGather to rank - 2^d, far ones first.  A rank sends n - 1
blocks in all, packed as NCCL packs them; order inside the kernel is reduced to two sequences, one that sends (chain 0)
and one that receives (chain 1), joined where a message needs what was received.

Source: NVIDIA/nccl ``include/collectives.h`` PatRSAlgorithm, PatAGAlgorithm; ``graph/tuning.cc`` ncclPatEnable; needs
one GPU per node (2.23 .. 2.30).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from atlas_lp.errors import InputError, UnsupportedError
from atlas_lp.signatures.algorithms.algorithm import Algorithm, Built, Loops, Parameters
from atlas_lp.signatures.costs import CostTable, Primitive
from atlas_lp.signatures.nccl.protocols import Protocol
from atlas_lp.signatures.nccl.splits import ceil_div
from atlas_lp.signatures.nccl.versions import SPLIT_RULES, split_rule
from atlas_lp.signatures.placement import members_of_nodes
from atlas_lp.signatures.signature import (
    ChannelPart,
    RecordedParts,
    Signature,
    simple_signature,
    spread_over_channels,
    task_of,
)
from atlas_lp.signatures.slices import Slices

Ints = NDArray[np.int64]

_SENDS, _RECEIVES = 0, 1
_LEAST_CHUNK = 65_536
_CHUNKS_OF_TOTAL = {"AllGather": 32, "ReduceScatter": 16}


def pat_signature(
    collective: str,
    size_bytes: int,
    node_of_rank: Sequence[int],
    *,
    channels: int,
    nccl: str,
    element_bytes: int = 4,
    nic_of_rank: Sequence[int] | None = None,
    parts: RecordedParts | None = None,
) -> Signature:
    """Build the signature of a PAT AllGather or ReduceScatter; labels are communicator ranks.

    Raises :class:`~atlas_lp.errors.UnsupportedError` for other collectives, before NCCL 2.23 and where a node has
    several GPUs.
    """
    ranks = len(node_of_rank)
    if collective not in _CHUNKS_OF_TOTAL:
        raise UnsupportedError(f"PAT does AllGather and ReduceScatter, not {collective}")
    if SPLIT_RULES.index(split_rule(nccl)) < SPLIT_RULES.index("2.23"):
        raise UnsupportedError(f"NCCL {nccl} has no PAT: it came with 2.23")
    if len(members_of_nodes(node_of_rank)) < ranks:
        raise UnsupportedError("NCCL uses PAT only where every node has one GPU of the communicator")
    if ranks < 2 or size_bytes < 1 or channels < 1:
        raise InputError(f"PAT {collective} of {size_bytes} bytes on {ranks} ranks over {channels} channels")
    task = task_of(collective, Protocol.SIMPLE, size_bytes, element_bytes, channels, None)
    spread = spread_over_channels(task, ranks, nccl, Protocol.SIMPLE.step_bytes, parts)
    chunked = [
        replace(part, chunk_bytes=_chunk_bytes(collective, ranks, part.count * spread.element_bytes))
        for part in spread.parts
    ]
    return simple_signature(
        collective,
        "pat",
        range(ranks),
        node_of_rank,
        nic_of_rank,
        size_bytes=size_bytes,
        element_bytes=spread.element_bytes,
        chunk_bytes=Protocol.SIMPLE.step_bytes,
        split=spread.rule,
        parts=chunked,
    )


def _chunk_bytes(collective: str, ranks: int, per_rank: int) -> int:
    chunk = Protocol.SIMPLE.step_bytes
    while chunk > _LEAST_CHUNK and chunk * _CHUNKS_OF_TOTAL[collective] > ranks * per_rank:
        chunk //= 2
    return chunk


@dataclass(frozen=True)
class PatSteps:
    """Messages of one rank in order, alike on all ranks: ``dimension``, ``blocks`` packed, and ``needs``.

    ``needs`` is the number of the received message that must be there before this one can be sent, -1 if none.
    """

    dimension: Ints
    blocks: Ints
    needs: Ints


def pat_steps(collective: str, ranks: int, per_message: int) -> PatSteps:
    """Plan the messages of all ranks for one chunk, up to *per_message* blocks in each.

    A block is known by its distance: of the rank it is for (ReduceScatter) or from (AllGather).  Over dimension d
    travel the distances that are odd multiples of 2^d, so that each of 1 .. n-1 travels once.
    """
    dimensions = list(range((ranks - 1).bit_length()))
    scatter = collective == "ReduceScatter"
    rows: list[tuple[int, Ints]] = []
    message_of = np.full(ranks, -1, dtype=np.int64)
    for d in dimensions if scatter else reversed(dimensions):
        distances = np.arange(1 << d, ranks, 2 << d)
        for first in range(0, len(distances), per_message):
            packed = distances[first : first + per_message]
            message_of[packed] = len(rows)
            rows.append((d, packed))
    needs = []
    for d, packed in rows:
        if scatter:
            arrived = [packed + (1 << lower) for lower in range(d)]
            inside = np.concatenate([np.zeros(0, dtype=np.int64), *arrived])
            inside = inside[inside < ranks]
        else:
            inside = packed - (1 << d)
        needs.append(int(message_of[inside].max(initial=-1)))
    return PatSteps(np.array([d for d, _ in rows]), np.array([len(packed) for _, packed in rows]), np.array(needs))


def blocks_per_message(signature: Signature, part: ChannelPart) -> int:
    """Blocks that NCCL packs into one message: a power of two that fits the chunk, at most half of the ranks."""
    fitting = (part.chunk_bytes or signature.chunk_bytes) // (part.count * signature.element_bytes)
    return 1 << min(max(fitting, 1).bit_length() - 1, (ceil_div(signature.ranks, 2) - 1).bit_length())


def pat_slices(signature: Signature, reduce_copy: CostTable, labels: Ints) -> Slices:
    """Return the slices of the ranks *labels*; the link of a connection is its dimension."""
    tables: list[Ints] = []
    before, after, count = [], [], 0
    for part in signature.parts:
        sends, receives, needs = _part_rows(signature, reduce_copy, part, np.asarray(labels, dtype=np.int64))
        tables += [sends, receives]
        needing = np.flatnonzero(needs >= 0)
        before.append(count + sends.shape[1] + needs[needing])
        after.append(count + needing)
        count += 2 * sends.shape[1]
    rows = np.concatenate(tables, axis=1)
    waits = np.concatenate(before), np.concatenate(after)
    sends, receives = np.flatnonzero(rows[2] == _SENDS), np.flatnonzero(rows[2] == _RECEIVES)
    return Slices.of_rows(rows, sends, receives, signature.fifo_slices, waits)


def _part_rows(
    signature: Signature, reduce_copy: CostTable, part: ChannelPart, labels: Ints
) -> tuple[Ints, Ints, Ints]:
    """Rows that send and rows that receive one part, and per sending row the receiving row it needs (-1: none).

    A row is (rank, channel, chain, step, cost, peer, link, wire); both kinds are in the order rank, loop, message.
    """
    scatter = signature.collective == "ReduceScatter"
    steps = pat_steps(signature.collective, signature.ranks, blocks_per_message(signature, part))
    per_rank, chunk = part.count * signature.element_bytes, part.chunk_bytes or signature.chunk_bytes
    block = np.minimum(chunk, per_rank - np.arange(0, per_rank, chunk))
    loops, messages = len(block), len(steps.blocks)
    data = np.tile((block[:, None] * steps.blocks).reshape(-1), len(labels))
    step = np.tile(np.arange(loops * messages), len(labels))
    link = np.tile(steps.dimension, loops * len(labels))
    rank = np.repeat(labels, loops * messages)
    ahead = (1 << link) * (1 if scatter else -1)
    channel = np.full_like(rank, part.channel)
    received = Primitive.RECV_REDUCE_COPY if scatter else Primitive.RECV
    send_ns, receive_ns = (reduce_copy.time_ns(p, signature.protocol, data) for p in (Primitive.SEND, received))
    to, source = (rank + ahead) % signature.ranks, (rank - ahead) % signature.ranks
    sends = np.stack([rank, channel, np.full_like(rank, _SENDS), 2 * step, send_ns, to, link, data])
    receives = np.stack([rank, channel, np.full_like(rank, _RECEIVES), 2 * step + 1, receive_ns, source, link, data])
    needs = np.tile(steps.needs, loops * len(labels))
    first_of_loop = np.arange(len(needs)) // messages * messages
    return sends, receives, np.where(needs >= 0, first_of_loop + needs, -1)


def pat_operations(signature: Signature) -> int:
    """Exact number of operations of the whole schedule."""
    total = 0
    for part in signature.parts:
        steps = pat_steps(signature.collective, signature.ranks, blocks_per_message(signature, part))
        per_rank, chunk = part.count * signature.element_bytes, part.chunk_bytes or signature.chunk_bytes
        total += 4 * len(steps.blocks) * ceil_div(per_rank, chunk) * signature.ranks
    return total


def pat_loops(signature: Signature) -> Loops | None:
    """Full chunks that all channels have, each a round of messages of one block."""
    units = tuple((part.chunk_bytes or signature.chunk_bytes) // signature.element_bytes for part in signature.parts)
    messages = {
        len(pat_steps(signature.collective, signature.ranks, blocks_per_message(signature, part)).blocks)
        for part in signature.parts
    }
    # The last full chunk stays: with less than one more blocks are packed into a message.
    count = min(part.count // unit for part, unit in zip(signature.parts, units, strict=True)) - 1
    return Loops(count, 2 * messages.pop(), units) if len(messages) == 1 and count > 0 else None


def _built(p: Parameters) -> Built:
    signature = pat_signature(
        p.collective,
        p.size_bytes,
        p.node_of_rank,
        channels=p.channels or 1,
        nccl=p.nccl,
        element_bytes=p.element_bytes,
        nic_of_rank=p.nic_of_rank,
    )
    return Built(signature, range(len(p.node_of_rank)))


def _links(signature: Signature) -> list[Ints]:
    ranks = np.arange(signature.ranks)
    hops = [1 << d for d in range((signature.ranks - 1).bit_length())]
    return [(ranks + sign * hop) % signature.ranks for hop in hops for sign in (1, -1)]


PAT = Algorithm(
    name="pat",
    collectives=tuple(_CHUNKS_OF_TOTAL),
    protocols=(Protocol.SIMPLE,),
    build=_built,
    slices=pat_slices,
    operations=pat_operations,
    loops=pat_loops,
    links=_links,
    approximation="PAT is an approximation: log2 steps with NCCL's packing, one reduce/copy per message and end",
)
