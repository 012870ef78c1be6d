"""Ring collectives: who does which primitive on which chunk, slice by slice.

Source: NVIDIA/nccl ``device/all_reduce.h``, ``all_gather.h``, ``reduce_scatter.h``, ``broadcast.h``,
``reduce.h`` (2.18 .. 2.30), ``enqueue.cc`` computeCollLastChunkInfo (2.20).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from atlas_lp.signatures.algorithms.algorithm import Algorithm, Built, Parameters
from atlas_lp.signatures.costs import CostTable, Primitive
from atlas_lp.signatures.nccl.collectives import COLLECTIVES, WITH_KERNEL
from atlas_lp.signatures.nccl.protocols import Protocol, slice_sizes
from atlas_lp.signatures.nccl.splits import Task, alignment_220, ceil_div, interleaved_lengths, round_up
from atlas_lp.signatures.signature import ChannelPart, Signature, label_order, ring_signature
from atlas_lp.signatures.slices import Messages, Slices
from atlas_lp.signatures.topology import assumed_rings

Ints = NDArray[np.int64]

_P = Primitive
PRIMITIVES = tuple(Primitive)


@dataclass(frozen=True)
class Steps:
    """Slices of all ring indices of one channel in program order, ring index by ring index.

    Arrays of equal length: ``index`` (ring index), ``step`` (position in the program of that index),
    ``primitive`` (number in :data:`PRIMITIVES`), ``chunk`` (global chunk number, for checks) and
    ``elements`` (work units of the slice, never 0).
    """

    index: Ints
    step: Ints
    primitive: Ints
    chunk: Ints
    elements: Ints


def ring_slices(signature: Signature, reduce_copy: CostTable, labels: Ints) -> Slices:
    """Return the slices of the ranks *labels* (labels of *signature*) of a ring collective.

    Every connection goes to the next rank of a channel's ring, so its link is 0.
    """
    columns: list[list[Ints]] = [[] for _ in range(8)]
    for part in signature.parts:
        ring = np.array(signature.rings[part.ring])
        index_of = np.empty_like(ring)
        index_of[ring] = np.arange(signature.ranks)
        steps = ring_steps(signature, part, index_of[labels])
        data = steps.elements * signature.element_bytes
        cost = np.zeros_like(data)
        for number in np.unique(steps.primitive).tolist():
            mine = steps.primitive == number
            cost[mine] = reduce_copy.time_ns(PRIMITIVES[number], signature.protocol, data[mine])
        values = (
            ring[steps.index],
            np.full_like(data, part.channel),
            steps.step,
            steps.primitive,
            signature.protocol.wire_bytes(data),
            cost,
            ring[(steps.index + 1) % signature.ranks],
            ring[steps.index - 1],
        )
        for column, value in zip(columns, values, strict=True):
            column.append(value)
    rank, channel, step, primitive, wire, cost, following, previous = (np.concatenate(c) for c in columns)
    receives = np.flatnonzero(np.array([p.receives for p in PRIMITIVES])[primitive])
    sends = np.flatnonzero(np.array([p.sends for p in PRIMITIVES])[primitive])
    return Slices(
        rank=rank,
        channel=channel,
        chain=np.zeros_like(rank),
        step=step,
        cost_ns=cost,
        receives=Messages(receives, previous[receives], np.zeros_like(receives), wire[receives]),
        sends=Messages(sends, following[sends], np.zeros_like(sends), wire[sends]),
        fifo_slices=signature.fifo_slices,
        reduces=np.array([p.reduces for p in PRIMITIVES])[primitive],
    )


def ring_steps(signature: Signature, part: ChannelPart, indices: Ints | None = None) -> Steps:
    """Return what the ring *indices* (default: all) do for one channel's *part* of *signature*."""
    index = np.arange(signature.ranks) if indices is None else np.sort(indices)
    blocks = []
    chunk_base, step_base = 0, 0
    for program, back, lengths in _loops(signature, part, index):
        owner, position, chunk = _occupied(index, back, lengths, program.shape[1])
        primitive = program[owner, position]
        step = step_base + position
        blocks.append((index[owner], step, primitive, chunk_base + chunk, lengths[chunk]))
        chunk_base += len(lengths)
        step_base += program.shape[1]
    columns = [np.concatenate(column) for column in zip(*blocks, strict=True)]
    return _sliced(signature, *columns)


def _occupied(index: Ints, back: Ints, lengths: Ints, primitives: int) -> tuple[Ints, Ints, Ints]:
    """Return (row of index, primitive, chunk) of all primitives whose chunk is not empty.

    Goes over the chunks where they are fewer than the ring indices asked for, so that a small message on many ranks
    costs what it sends and not ranks squared.
    """
    n, filled = len(lengths), np.flatnonzero(lengths)
    if len(filled) >= len(index) or n == 1:
        chunk = (index[:, None] - back) % n
        owner, position = np.nonzero(np.broadcast_to(lengths[chunk] > 0, (len(index), primitives)))
        return owner, position, np.broadcast_to(chunk, (len(index), primitives))[owner, position]
    owner_index = (filled[:, None] + back) % n
    row = np.searchsorted(index, owner_index)
    present = index[np.minimum(row, len(index) - 1)] == owner_index
    chunk_row, position = np.nonzero(present)
    return row[present], position, filled[chunk_row]


def _sliced(signature: Signature, index: Ints, step: Ints, primitive: Ints, chunk: Ints, elements: Ints) -> Steps:
    """Cut primitives into slices, drop empty ones, and number the rest per ring index in program order."""
    chunking = signature.chunking
    order = np.lexsort((step, index))
    pieces = slice_sizes(elements[order], signature.protocol, chunking, signature.element_bytes)
    row, _ = np.nonzero(pieces)
    index, primitive, chunk = (column[order][row] for column in (index, primitive, chunk))
    first = np.searchsorted(index, index)
    return Steps(index, np.arange(len(index)) - first, primitive, chunk, pieces[pieces > 0])


def ring_operations(signature: Signature) -> int:
    """Exact number of operations (receives, calcs, sends) of the whole schedule, without expanding it."""
    chunking = signature.chunking
    total = 0
    for part in signature.parts:
        for program, _, lengths in _loops(signature, part, np.arange(signature.ranks)):
            pieces = slice_sizes(lengths, signature.protocol, chunking, signature.element_bytes)
            # A chain has one chunk that every rank handles once; elsewhere every rank handles all n chunks in turn.
            per_chunk = 3 * program.size - 2 * signature.ranks if program.shape[1] > 1 else 3 * len(program) - 2
            slices = int(np.count_nonzero(pieces))
            total += slices * per_chunk // (len(lengths) if program.shape[1] > 1 else 1)
    return total


def equal_chunks(signature: Signature) -> bool:
    """Whether all chunks of every loop have one length, so that every ring index works on equal slices."""
    zero = np.zeros(1, dtype=np.int64)
    return all(
        lengths.min() == lengths.max() for part in signature.parts for _, _, lengths in _loops(signature, part, zero)
    )


def _loops(signature: Signature, part: ChannelPart, index: Ints) -> Iterator[tuple[Ints, Ints, Ints]]:
    """Yield per loop: primitives (indices x P), how far back their chunk is (P), and the length of each chunk."""
    n = signature.ranks
    if COLLECTIVES[signature.collective].rooted:
        program, back = _chain(signature.collective, n)[index], np.zeros(1, dtype=np.int64)
    else:
        primitives, back = _primitives(signature.collective, n)
        program = np.broadcast_to(primitives, (len(index), len(primitives)))
    for lengths in _lengths(signature, part):
        # The blocks of AllGather and ReduceScatter are alike: one length stands for all ranks.
        yield program, back, np.full(n, lengths[0]) if len(back) > 1 and len(lengths) == 1 else lengths


def _lengths(signature: Signature, part: ChannelPart) -> Iterator[Ints]:
    """Yield per loop the lengths of its chunks: n for AllReduce, else one."""
    n, width = signature.ranks, part.count
    chunk = signature.chunk_bytes // signature.element_bytes
    chunks = n if signature.collective == "AllReduce" else 1
    if signature.interleaved:
        yield from interleaved_lengths(_task(signature), chunk, chunks, part.channel)
        return
    for done in range(0, width, chunks * chunk):
        left = width - done
        length = chunk if left >= chunks * chunk or chunks == 1 else _last_chunk(signature, part, left)
        yield _cut(left, length, chunks)


def _primitives(collective: str, n: int) -> tuple[Ints, Ints]:
    """Primitives of ring index i in order, each with b of the chunk (i - b) mod n it works on."""
    if collective == "AllReduce":
        steps = [(_P.SEND, 1)]
        steps += [(_P.RECV_REDUCE_SEND, back) for back in range(2, n)]
        steps += [(_P.RECV_REDUCE_COPY_SEND, 0)]
        steps += [(_P.RECV_COPY_SEND, back) for back in range(1, n - 1)]
        steps += [(_P.RECV, -1)]
    elif collective == "AllGather":
        steps = [(_P.SEND, 0), *((_P.RECV_COPY_SEND, back) for back in range(1, n - 1)), (_P.RECV, -1)]
    else:
        steps = [
            (_P.SEND, 1),
            *((_P.RECV_REDUCE_SEND, back) for back in range(2, n)),
            (_P.RECV_REDUCE_COPY, 0),
        ]
    return np.array([PRIMITIVES.index(p) for p, _ in steps]), np.array([back for _, back in steps])


def _chain(collective: str, n: int) -> Ints:
    """The one primitive of each ring index for a chunk of Broadcast or Reduce; the root has index 0."""
    if collective == "Broadcast":
        roles = [_P.SEND, *[_P.RECV_COPY_SEND] * (n - 2), _P.RECV]
    else:
        roles = [_P.RECV_REDUCE_COPY, _P.SEND, *[_P.RECV_REDUCE_SEND] * (n - 2)]
    return np.array([[PRIMITIVES.index(role)] for role in roles])


def last_alignment(signature: Signature) -> int:
    """Work units that the chunk of the last AllReduce loop is rounded to: 16 B, in 2.20 as its parts."""
    if signature.split != "2.20":
        return max(1, 16 // signature.element_bytes)
    return alignment_220(_task(signature))


def last_lengths(signature: Signature, part: ChannelPart) -> Ints:
    """Length of every chunk in the last, partial loop of AllReduce (zeros when all loops are full)."""
    left = part.count % (signature.ranks * signature.chunk_bytes // signature.element_bytes)
    return _cut(left, _last_chunk(signature, part, left), signature.ranks)


def _last_chunk(signature: Signature, part: ChannelPart, left: int) -> int:
    return part.last_chunk or round_up(ceil_div(left, signature.ranks), last_alignment(signature))


def _task(signature: Signature) -> Task:
    element = signature.element_bytes
    count = signature.size_bytes // element
    return Task(signature.collective, signature.protocol, count, element, signature.interleaved or 1, signature.threads)


def _cut(left: int, length: int, ranks: int) -> Ints:
    """Chunks of *length* until nothing is left."""
    lengths: Ints = np.clip(left - np.arange(ranks) * length, 0, length)
    return lengths


def bracket(signature: Signature) -> tuple[Signature, Signature]:
    """Two signatures with equal chunks around an AllReduce whose last chunks differ.

    The second has all chunks of the last loop as large as the largest: an upper bound.  The first has them as large as
    the average, rounded down: a lower bound up to rounding, because T is convex in the chunk sizes and does not change
    when they are moved round the ring by whole nodes, so that averaging can only lower it.
    """
    n, unit = signature.ranks, last_alignment(signature)
    least, most = [], []
    for part in signature.parts:
        tail = last_lengths(signature, part)
        left = int(tail.sum())
        average = max(left // n // unit, 1) * unit if left else 0
        least.append(replace(part, count=part.count - left + n * average))
        most.append(replace(part, count=part.count - left + n * int(tail.max())))
    return replace(signature, parts=tuple(least)), replace(signature, parts=tuple(most))


def _built(p: Parameters) -> Built:
    rings = p.rings or assumed_rings(p.node_of_rank, 1 if p.channels is None else p.channels)
    signature = ring_signature(
        p.collective,
        p.protocol,
        p.size_bytes,
        rings,
        p.node_of_rank,
        nccl=p.nccl,
        element_bytes=p.element_bytes,
        root=p.root,
        nic_of_rank=p.nic_of_rank,
        threads=p.threads,
        parts=p.parts,
    )
    ranks = label_order(p.collective, rings[0], p.root)
    if p.rings:
        return Built(signature, ranks)
    return Built(
        signature,
        ranks,
        assumed="rings are assumed, not recorded: node after node, turned by one GPU per channel",
        source="assumed: rings in rank order, node after node, turned by one GPU per channel",
    )


def _links(signature: Signature) -> list[Ints] | None:
    """The neighbours on every ring; None for chains and where chunks differ."""
    if COLLECTIVES[signature.collective].rooted or not equal_chunks(signature):
        return None
    links = []
    for ring in signature.rings:
        following = np.empty(signature.ranks, dtype=np.int64)
        following[list(ring)] = np.roll(ring, -1)
        previous = np.empty_like(following)
        previous[following] = np.arange(signature.ranks)
        links += [following, previous]
    return links


RING = Algorithm(
    name="ring",
    collectives=WITH_KERNEL,
    protocols=tuple(Protocol),
    build=_built,
    slices=ring_slices,
    operations=ring_operations,
    links=_links,
    follows="rings",
)
