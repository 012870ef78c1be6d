"""Ring collectives: who does which primitive on which chunk, slice by slice.

Source: NVIDIA/nccl ``device/all_reduce.h``, ``all_gather.h``, ``reduce_scatter.h``, ``broadcast.h``,
``reduce.h`` (2.18 .. 2.30), ``enqueue.cc`` computeCollLastChunkInfo (2.20).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import repeat

import numpy as np
from numpy.typing import NDArray

from atlas_lp.signatures.algorithms.algorithm import Algorithm, Built, Loops, Parameters
from atlas_lp.signatures.costs import CostTable, Primitive
from atlas_lp.signatures.nccl.collectives import COLLECTIVES, WITH_KERNEL
from atlas_lp.signatures.nccl.protocols import Protocol, slice_sizes
from atlas_lp.signatures.nccl.splits import Task, alignment_220, ceil_div, interleaved_lengths, round_up
from atlas_lp.signatures.signature import ChannelPart, Signature, label_order, ring_signature
from atlas_lp.signatures.slices import Messages, Slices
from atlas_lp.signatures.topology import assumed_rings

Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]

_P = Primitive
PRIMITIVES = tuple(Primitive)


@dataclass(frozen=True)
class Steps:
    """Slices of all ring indices of one channel in program order, ring index by ring index.

    Arrays of equal length: ``index`` (ring index), ``step`` (position in the program of that index, empty slices
    counted, so that a step of all indices is the same one),
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
    channels = []
    for part in signature.parts:
        steps = ring_steps(signature, part, _index_of(signature, part)[labels])
        data = steps.elements * signature.element_bytes
        cost = np.zeros_like(data)
        for number in np.unique(steps.primitive).tolist():
            mine = steps.primitive == number
            cost[mine] = reduce_copy.time_ns(PRIMITIVES[number], signature.protocol, data[mine])
        wire = signature.protocol.wire_bytes(data)
        channels.append(_Channel(part, steps.index, steps.step, steps.primitive, wire, cost))
    return _joined(signature, channels)


@dataclass(frozen=True)
class _Channel:
    """Slices of one channel: ring index, step, primitive, bytes on the wire and time of each."""

    part: ChannelPart
    index: Ints
    step: Ints
    primitive: Ints
    wire: Ints
    cost: Ints


def _index_of(signature: Signature, part: ChannelPart) -> Ints:
    """Place of every label in the ring of *part*."""
    ring = np.array(signature.rings[part.ring])
    index_of = np.empty_like(ring)
    index_of[ring] = np.arange(signature.ranks)
    return index_of


def _joined(signature: Signature, channels: list[_Channel]) -> Slices:
    """The slices of all channels, each of which sends to the next rank of its ring and receives from the one before."""
    columns = []
    for own in channels:
        ring = np.array(signature.rings[own.part.ring])
        channel = np.full_like(own.step, own.part.channel)
        ends = ring[own.index], ring[(own.index + 1) % signature.ranks], ring[own.index - 1]
        columns.append((*ends, channel, own.step, own.primitive, own.wire, own.cost))
    rank, following, previous, channel, step, primitive, wire, cost = (
        np.concatenate(column) for column in zip(*columns, strict=True)
    )
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
    """Cut primitives into slices, numbered in program order, and drop empty ones."""
    chunking = signature.chunking
    order = np.lexsort((step, index))
    pieces = slice_sizes(elements[order], signature.protocol, chunking, signature.element_bytes)
    row, piece = np.nonzero(pieces)
    index, step, primitive, chunk = (column[order][row] for column in (index, step, primitive, chunk))
    return Steps(index, step * pieces.shape[1] + piece, primitive, chunk, pieces[pieces > 0])


def ring_operations(signature: Signature) -> int:
    """Exact number of operations (receives, calcs, sends) of the whole schedule, without expanding it."""
    chunking = signature.chunking
    total, every = 0, np.arange(signature.ranks)
    for part in signature.parts:
        program, _ = _program(signature, every)
        # A chain has one chunk that every rank handles once; elsewhere every rank handles all n chunks in turn.
        per_chunk = 3 * program.size - 2 * signature.ranks if program.shape[1] > 1 else 3 * len(program) - 2
        for times, lengths in _kinds_of_loops(signature, part):
            pieces = slice_sizes(lengths, signature.protocol, chunking, signature.element_bytes)
            slices = int(np.count_nonzero(pieces))
            total += times * (slices * per_chunk // (len(lengths) if program.shape[1] > 1 else 1))
    return total


def equal_chunks(signature: Signature) -> bool:
    """Whether all chunks of every loop have one length, so that every ring index works on equal slices."""
    return all(
        lengths.min() == lengths.max() for part in signature.parts for _, lengths in _kinds_of_loops(signature, part)
    )


def ring_loops(signature: Signature) -> Loops | None:
    """Full loops that all channels have; None for the loops of 2.19, which alternate over channels, and for chains.

    The root of a chain runs ahead of the others without end, because credits do not hold it back.
    """
    if signature.interleaved or COLLECTIVES[signature.collective].rooted:
        return None
    program, _ = _program(signature, np.zeros(1, dtype=np.int64))
    loop = _chunks(signature) * (signature.chunk_bytes // signature.element_bytes)
    counts = [part.count // loop for part in signature.parts]
    slices = 1 if signature.protocol is not Protocol.SIMPLE else signature.slices
    return Loops(min(counts), program.shape[1] * slices, (loop,) * len(counts))


def _program(signature: Signature, index: Ints) -> tuple[Ints, Ints]:
    """Primitives of each ring *index* in a loop (indices x P), and how far back their chunk is (P)."""
    if COLLECTIVES[signature.collective].rooted:
        return _chain(signature.collective, signature.ranks)[index], np.zeros(1, dtype=np.int64)
    primitives, back = _primitives(signature.collective, signature.ranks)
    return np.broadcast_to(primitives, (len(index), len(primitives))), back


def _loops(signature: Signature, part: ChannelPart, index: Ints) -> Iterator[tuple[Ints, Ints, Ints]]:
    """Yield per loop: primitives (indices x P), how far back their chunk is (P), and the length of each chunk."""
    program, back = _program(signature, index)
    for times, lengths in _kinds_of_loops(signature, part):
        yield from repeat((program, back, lengths), times)


def _kinds_of_loops(signature: Signature, part: ChannelPart) -> Iterator[tuple[int, Ints]]:
    """Yield the lengths of the chunks of a loop, and how many such loops follow each other.

    The blocks of AllGather and ReduceScatter are alike: one length stands for all ranks.
    """
    chunk, chunks = signature.chunk_bytes // signature.element_bytes, _chunks(signature)
    kinds: Iterable[tuple[int, Ints]]
    if signature.interleaved:
        kinds = ((1, lengths) for lengths in interleaved_lengths(_task(signature), chunk, chunks, part.channel))
    else:
        full, left = divmod(part.count, chunks * chunk)
        last = chunk if chunks == 1 else _last_chunk(signature, part, left)
        kinds = [(full, _cut(chunks * chunk, chunk, chunks))] * (full > 0) + [(1, _cut(left, last, chunks))] * (
            left > 0
        )
    rooted = COLLECTIVES[signature.collective].rooted
    for times, lengths in kinds:
        yield times, np.full(signature.ranks, lengths[0]) if len(lengths) == 1 and not rooted else lengths


def _chunks(signature: Signature) -> int:
    """Chunks of one loop: one for every rank of an AllReduce, else one."""
    return signature.ranks if signature.collective == "AllReduce" else 1


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


def ring_bounds(signature: Signature, reduce_copy: CostTable, labels: Ints, share: int) -> tuple[Slices, Slices]:
    """Slices of the ranks *labels* that bound those of rings whose chunks differ, from above and from below.

    Above, every slice takes as long and is as large as that of the worst chunk of its loop, and is there if any chunk
    has one: no edge of the graph of all ranks costs more, and what an empty slice leaves out is implied.  Below, it
    takes the mean of the *share* chunks that take least, rounded down, and is there if every chunk has one.  Where
    ranks form classes of at least *share* that are exact for equal chunks, this is at most the mean over each
    class; the mean over every class of a solution of the LP of all ranks is one of the LP of classes with mean costs,
    so that the time can only be less.  Both hold where ports serve messages in one order (docs/model.md#symmetry).
    """
    above: list[_Channel] = []
    below: list[_Channel] = []
    for part in signature.parts:
        index = _index_of(signature, part)[labels]
        zero, step_base = np.zeros(1, dtype=np.int64), 0
        for program, _, lengths in _loops(signature, part, zero):
            primitives = program[0]
            bounds = _LoopBounds(signature, reduce_copy, lengths, share)
            for chosen, (there, wire, cost) in ((above, bounds.above(primitives)), (below, bounds.below(primitives))):
                row, piece = np.nonzero(np.broadcast_to(there, cost.shape))
                step = np.tile((step_base + row) * cost.shape[1] + piece, len(index))
                columns = (np.tile(c, len(index)) for c in (primitives[row], wire[piece], cost[row, piece]))
                chosen.append(_Channel(part, np.repeat(index, len(row)), step, *columns))
            step_base += len(primitives)
    return _joined(signature, above), _joined(signature, below)


def ring_journeys(signature: Signature, reduce_copy: CostTable) -> Ints:
    """Cost vectors of the first slice of the largest chunk of every channel, from rank to rank until all have it.

    Rows of :data:`~atlas_lp.goal.event_graph.COMPONENTS`: paths of the graph of all ranks, so no time is below theirs.
    They bound from below what loops with empty chunks leave of :func:`ring_bounds`.
    """
    rows = []
    for part in signature.parts:
        program, back, lengths = next(_loops(signature, part, np.zeros(1, dtype=np.int64)))
        chunk = int(lengths.argmax())
        sizes = slice_sizes(lengths[chunk : chunk + 1], signature.protocol, signature.chunking, signature.element_bytes)
        data = sizes[0, :1] * signature.element_bytes
        ranks = np.array(signature.rings[part.ring])[(chunk + back) % signature.ranks]
        node = np.array(signature.nodes)[ranks]
        hops = np.count_nonzero(node[1:] != node[:-1]), np.count_nonzero(node[1:] == node[:-1])
        wire = int(signature.protocol.wire_bytes(data)[0])
        work = sum(int(reduce_copy.time_ns(PRIMITIVES[p], signature.protocol, data)[0]) for p in program[0].tolist())
        rows.append((work, hops[0], hops[0] * max(wire - 1, 0), 2 * hops[0], 0, hops[1], hops[1] * wire))
    return np.array(rows, dtype=np.int64)


class _LoopBounds:
    """Bounds of the slices of one loop over all of its chunks."""

    def __init__(self, signature: Signature, reduce_copy: CostTable, lengths: Ints, share: int) -> None:
        self.protocol, self.reduce_copy, self.share = signature.protocol, reduce_copy, share
        lengths, self.times = np.unique(lengths, return_counts=True)
        self.data = slice_sizes(lengths, self.protocol, signature.chunking, signature.element_bytes)
        self.data *= signature.element_bytes
        self.wire = self.protocol.wire_bytes(self.data)

    def above(self, primitives: Ints) -> tuple[Flags, Ints, Ints]:
        """Which slices some chunk has, and the most bytes, and time for each of *primitives*, of any."""
        filled = self.data > 0
        there: Flags = np.any(filled, axis=0)
        return there, self.wire.max(axis=0), self._costs(primitives, lambda c: (c * filled).max(axis=0))

    def below(self, primitives: Ints) -> tuple[Flags, Ints, Ints]:
        """Which slices every chunk has, and the mean bytes, and time for each of *primitives*, of those with least."""
        there: Flags = np.all(self.data > 0, axis=0)
        return there, self._least(self.wire), self._costs(primitives, self._least)

    def _costs(self, primitives: Ints, reduced: Callable[[Ints], Ints]) -> Ints:
        """Time of every slice of each of *primitives*, *reduced* over the chunks."""
        known = {
            number: reduced(self.reduce_copy.time_ns(PRIMITIVES[number], self.protocol, self.data))
            for number in np.unique(primitives).tolist()
        }
        return np.stack([known[number] for number in primitives.tolist()])

    def _least(self, values: Ints) -> Ints:
        """Mean of the least *share* of *values* over the chunks, rounded down."""
        ordered = np.sort(np.repeat(values, self.times, axis=0), axis=0)[: self.share]
        mean: Ints = ordered.sum(axis=0) // self.share
        return mean


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
    return neighbours(signature) if equal_chunks(signature) else None


def neighbours(signature: Signature) -> list[Ints] | None:
    """Next and previous rank of every rank on every ring; None for chains, whose ranks run unequal programs."""
    if COLLECTIVES[signature.collective].rooted:
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
    loops=ring_loops,
    follows="rings",
)
