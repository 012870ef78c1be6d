"""Tree AllReduce: reduce up a tree of ranks and broadcast down again, both pipelined by chunks.

Every rank but the root runs two independent sequences (thread groups), chain 0 up and chain 1 down; the root, where
they meet, has chain 0 only.

Source: NVIDIA/nccl ``device/all_reduce.h`` runTreeSplit (2.18 .. 2.30); ``enqueue.cc`` computeCollChunkInfo (2.20) and
calcCollChunking (2.22 and newer) for the chunks of LL128.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from atlas_lp.errors import InputError
from atlas_lp.signatures.algorithms.algorithm import Algorithm, Built, Parameters
from atlas_lp.signatures.costs import CostTable, Primitive
from atlas_lp.signatures.nccl.protocols import STEPS, Protocol
from atlas_lp.signatures.nccl.splits import ceil_div, round_up
from atlas_lp.signatures.placement import placed
from atlas_lp.signatures.signature import ChannelPart, RecordedParts, Signature, spread_over_channels, task_of
from atlas_lp.signatures.slices import Messages, Slices
from atlas_lp.signatures.topology import Tree, assumed_trees

Ints = NDArray[np.int64]

UP, DOWN = 0, 1
"""Chains of a rank; the link of a connection is twice the child's slot plus its direction."""

_THREADS = {Protocol.SIMPLE: 640, Protocol.LL: 512, Protocol.LL128: 640}
_GRAIN_BYTES = {Protocol.SIMPLE: 512, Protocol.LL: 16, Protocol.LL128: 1920}


def tree_signature(
    protocol: Protocol,
    size_bytes: int,
    trees: Sequence[Tree],
    node_of_rank: Sequence[int],
    *,
    nccl: str,
    element_bytes: int = 4,
    nic_of_rank: Sequence[int] | None = None,
    threads: int | None = None,
    parts: RecordedParts | None = None,
) -> Signature:
    """Build the signature of a Tree AllReduce; *trees* has one tree of communicator ranks per chosen channel.

    The other arguments are those of :func:`~atlas_lp.signatures.signature.ring_signature`, as are the errors.
    """
    check_trees(trees, size_bytes, element_bytes, len(node_of_rank))
    return trees_signature(
        "tree",
        protocol,
        size_bytes,
        trees,
        node_of_rank,
        chunk_bytes=protocol.step_bytes,
        nccl=nccl,
        element_bytes=element_bytes,
        nic_of_rank=nic_of_rank,
        threads=threads,
        parts=parts,
    )


def trees_signature(
    algorithm: str,
    protocol: Protocol,
    size_bytes: int,
    trees: Sequence[Tree],
    node_of_rank: Sequence[int],
    *,
    chunk_bytes: int,
    nccl: str,
    element_bytes: int,
    nic_of_rank: Sequence[int] | None,
    threads: int | None = None,
    parts: RecordedParts | None = None,
) -> Signature:
    """Build the signature of any AllReduce over trees (or forests), whose chunks are *chunk_bytes*."""
    ranks = len(node_of_rank)
    task = task_of("AllReduce", protocol, size_bytes, element_bytes, len(trees), threads or _THREADS[protocol])
    spread = spread_over_channels(task, ranks, nccl, chunk_bytes, parts)
    order = tree_order(trees)
    label = {rank: number for number, rank in enumerate(order)}
    relabelled = [_relabelled(tree, order, label) for tree in trees]
    nodes, nics = placed(order, node_of_rank, nic_of_rank)
    signature = Signature(
        collective="AllReduce",
        algorithm=algorithm,
        protocol=protocol,
        size_bytes=size_bytes,
        element_bytes=element_bytes,
        ranks=ranks,
        split=spread.rule,
        threads=spread.threads,
        chunk_bytes=chunk_bytes,
        slices=1,
        fifo_slices=STEPS,
        parts=(),
        rings=(),
        nodes=nodes,
        nics=nics,
        interleaved=spread.interleaved,
    )
    if spread.interleaved:
        signature, used = _interleaved(signature)
    else:
        signature, used = _chunked(signature, spread.parts, len(trees))
    distinct = list(dict.fromkeys(relabelled[part.channel] for part in used))
    numbered = tuple(replace(part, ring=distinct.index(relabelled[part.channel])) for part in used)
    return replace(signature, trees=tuple(distinct), parts=numbered)


def _chunked(signature: Signature, parts: Sequence[ChannelPart], channels: int) -> tuple[Signature, list[ChannelPart]]:
    """Give every part its chunk, and the signature the largest one."""
    chunks = [_chunk_bytes(signature, part, channels) for part in parts]
    largest = max(chunks)
    own = [
        replace(part, chunk_bytes=0 if chunk == largest else chunk) for part, chunk in zip(parts, chunks, strict=True)
    ]
    return replace(signature, chunk_bytes=largest), own


def _interleaved(signature: Signature) -> tuple[Signature, list[ChannelPart]]:
    """In 2.19 and older channels take chunks in turn; a message below one loop is divided evenly, in thread grains."""
    element, threads, channels = signature.element_bytes, signature.threads, signature.interleaved
    grain_bytes = {Protocol.SIMPLE: (threads - 64) * 64, Protocol.LL: 8 * threads, Protocol.LL128: 60 * threads}
    grain = max(1, grain_bytes[signature.protocol] // element)
    count, chunk = signature.size_bytes // element, signature.chunk_bytes // element
    if channels * chunk > count:
        chunk = min(chunk, round_up(ceil_div(count, channels), grain))
    signature = replace(signature, chunk_bytes=chunk * element)
    counts = [int(chunk_lengths(signature, ChannelPart(channel, 0, 0)).sum()) for channel in range(channels)]
    return signature, [ChannelPart(channel, count, 0) for channel, count in enumerate(counts) if count]


def tree_order(trees: Sequence[Tree]) -> list[int]:
    """Communicator rank of every label: the first tree, parents before children, children by slot."""
    return trees[0].preorder()


def check_trees(trees: Sequence[Tree], size_bytes: int, element_bytes: int, ranks: int) -> None:
    """Raise :class:`~atlas_lp.errors.InputError` for values no AllReduce over trees has."""
    if ranks < 2:
        raise InputError(f"AllReduce on {ranks} rank exchanges no messages")
    if size_bytes < 1:
        raise InputError(f"AllReduce of {size_bytes} bytes moves nothing")
    if element_bytes not in (1, 2, 4, 8):
        raise InputError(f"no datatype has {element_bytes} bytes")
    if not trees:
        raise InputError("a collective needs at least one channel")
    for tree in trees:
        if len(tree.parents) != ranks or len([parent for parent in tree.parents if parent < 0]) != 1:
            raise InputError(f"a tree must have one root and join all {ranks} ranks")


def _relabelled(tree: Tree, order: Sequence[int], label: dict[int, int]) -> Tree:
    parents = tuple(label[tree.parents[rank]] if tree.parents[rank] >= 0 else -1 for rank in order)
    return Tree(parents, tuple(tree.slots[rank] for rank in order))


def _chunk_bytes(signature: Signature, part: ChannelPart, channels: int) -> int:
    """Chunk of one part: shrunk for LL128, rounded to the protocol's grain since 2.22."""
    chunk, element = signature.chunk_bytes, signature.element_bytes
    old = signature.split == "2.20"
    if signature.protocol is Protocol.LL128 and signature.algorithm == "tree":
        moved, over = (signature.size_bytes, channels) if old else (part.count * element, 1)
        chunk = shrunk_ll128_chunk(moved, over, signature.ranks, len(set(signature.nodes)))
    grain = element if old else _GRAIN_BYTES[signature.protocol]
    return max(grain, chunk // grain * grain)


def shrunk_ll128_chunk(size_bytes: int, channels: int, ranks: int, nodes: int) -> int:
    """Data bytes of the LL128 chunk of a tree: halved while the operation has too few chunks to fill the tree."""
    per_node = Fraction(ranks, nodes)
    steps = 1 + (nodes.bit_length() - 1) + per_node / 10
    chunk = Protocol.LL128.step_bytes
    for wanted, least in ((64, 131_072), (16, 32_768)):
        while chunk > least and size_bytes // (channels * chunk) < wanted * steps / per_node:
            chunk //= 2
    return chunk


def chunk_lengths(signature: Signature, part: ChannelPart) -> Ints:
    """Work units of every chunk of one part."""
    chunk = _chunk_units(signature, part)
    if not signature.interleaved:
        starts = np.arange(0, part.count, chunk)
        return np.minimum(chunk, part.count - starts)
    count = signature.size_bytes // signature.element_bytes
    starts = np.arange(part.channel * chunk, count, signature.interleaved * chunk)
    return np.minimum(chunk, count - starts)


def tree_slices(signature: Signature, reduce_copy: CostTable, labels: Ints) -> Slices:
    """Return the slices of the ranks *labels* of a Tree AllReduce, or of a CollNetChain.

    In a CollNetChain every node is a tree of its own, and the switch in the network follows the work of its root.
    """
    builder = _Builder(signature, reduce_copy)
    for part in signature.parts:
        builder.add(part, np.asarray(labels, dtype=np.int64))
    return builder.slices()


def tree_operations(signature: Signature) -> int:
    """Exact number of operations of the whole schedule: per chunk and edge of a tree four ends of messages and work."""
    total = 0
    for part in signature.parts:
        parents = np.array(signature.trees[part.ring].parents)
        edges = int(np.count_nonzero(parents >= 0))
        total += chunk_count(signature, part) * (4 * edges + signature.ranks + edges)
    return total


def chunk_count(signature: Signature, part: ChannelPart) -> int:
    """Number of chunks of one part, without listing them."""
    if signature.interleaved:
        return len(chunk_lengths(signature, part))
    return ceil_div(part.count, _chunk_units(signature, part))


def _chunk_units(signature: Signature, part: ChannelPart) -> int:
    return (part.chunk_bytes or signature.chunk_bytes) // signature.element_bytes


class _Builder:
    """Collects rows (slices) and messages of all channels."""

    def __init__(self, signature: Signature, reduce_copy: CostTable) -> None:
        self.signature, self.reduce_copy = signature, reduce_copy
        self.rows: list[Ints] = []
        self.received: list[Ints] = []
        self.sent: list[Ints] = []
        self.count = 0

    def add(self, part: ChannelPart, labels: Ints) -> None:
        """Add what *labels* do on one channel."""
        tree = self.signature.trees[part.ring]
        parents, slots = np.array(tree.parents), np.array(tree.slots)
        data = chunk_lengths(self.signature, part) * self.signature.element_bytes
        has_child = np.zeros(len(parents), dtype=bool)
        has_child[parents[parents >= 0]] = True
        root, inner = parents[labels] < 0, has_child[labels]
        up = self._rows(part, labels, UP, data, self._up_costs(data, root, inner))
        below = labels[~root]
        down = self._rows(part, below, DOWN, data, self._down_costs(data, has_child[below]))
        row_up = np.full(len(parents), -1)
        row_up[labels] = up
        row_down = row_up.copy()
        row_down[below] = down
        wire = self.signature.protocol.wire_bytes(data)
        self._edges(labels, parents, slots, (row_up, row_down), wire)

    def _up_costs(self, data: Ints, root: NDArray[np.bool_], inner: NDArray[np.bool_]) -> Ints:
        cost = {p: self._cost(p, data) for p in (Primitive.SEND, Primitive.RECV_REDUCE_SEND)}
        top = self._cost(Primitive.RECV_REDUCE_COPY_SEND, data)
        if self.signature.algorithm == "collnet_chain":
            alone = self._cost(Primitive.SEND, data)
            switch = self.reduce_copy.switch_ns("network", data)
            top = np.where(inner[:, None], top, alone) + switch
        below = np.where(inner[:, None], cost[Primitive.RECV_REDUCE_SEND], cost[Primitive.SEND])
        return np.where(root[:, None], top, below)

    def _down_costs(self, data: Ints, inner: NDArray[np.bool_]) -> Ints:
        return np.where(inner[:, None], self._cost(Primitive.RECV_COPY_SEND, data), self._cost(Primitive.RECV, data))

    def _cost(self, primitive: Primitive, data: Ints) -> Ints:
        return self.reduce_copy.time_ns(primitive, self.signature.protocol, data)

    def _rows(self, part: ChannelPart, labels: Ints, chain: int, data: Ints, cost: Ints) -> Ints:
        """Add one row per label and chunk; return the first row of each label."""
        chunks = len(data)
        step = np.tile(np.arange(chunks), len(labels))
        fixed = np.full_like(step, part.channel), np.full_like(step, chain)
        self.rows.append(np.stack([np.repeat(labels, chunks), *fixed, step, cost.reshape(-1)]))
        first = self.count + np.arange(len(labels)) * chunks
        self.count += len(step)
        return first

    def _edges(self, labels: Ints, parents: Ints, slots: Ints, rows: tuple[Ints, Ints], wire: Ints) -> None:
        """Add the ends of all messages that *labels* send or receive; the root answers from its up rows."""
        row_up, row_down = rows
        mine = np.zeros(len(parents), dtype=bool)
        mine[labels] = True
        child = np.flatnonzero(parents >= 0)
        parent = parents[child]
        as_child, as_parent = mine[child], mine[parent]
        below, above = child[as_child], child[as_parent]
        over = parents[above]
        self.sent.append(_messages(row_up[below], parents[below], 2 * slots[below] + UP, wire))
        self.received.append(_messages(row_down[below], parents[below], 2 * slots[below] + DOWN, wire))
        self.received.append(_messages(row_up[over], above, 2 * slots[above] + UP, wire))
        self.sent.append(_messages(row_down[over], above, 2 * slots[above] + DOWN, wire))

    def slices(self) -> Slices:
        """Return everything."""
        rank, channel, chain, step, cost = np.concatenate(self.rows, axis=1)
        return Slices(
            rank=rank,
            channel=channel,
            chain=chain,
            step=step,
            cost_ns=cost,
            receives=Messages(*np.concatenate(self.received, axis=1)),
            sends=Messages(*np.concatenate(self.sent, axis=1)),
            fifo_slices=self.signature.fifo_slices,
            reduces=chain == UP,
        )


def _messages(first_row: Ints, peer: Ints, link: Ints, wire: Ints) -> Ints:
    """One message per connection and chunk: slice, peer, link and wire bytes."""
    chunks = len(wire)
    rows = (first_row[:, None] + np.arange(chunks)).reshape(-1)
    return np.stack([rows, np.repeat(peer, chunks), np.repeat(link, chunks), np.tile(wire, len(first_row))])


def _built(p: Parameters) -> Built:
    trees = p.trees or assumed_trees(p.node_of_rank, 1 if p.channels is None else p.channels, p.tree_pattern)
    signature = tree_signature(
        p.protocol,
        p.size_bytes,
        trees,
        p.node_of_rank,
        nccl=p.nccl,
        element_bytes=p.element_bytes,
        nic_of_rank=p.nic_of_rank,
        threads=p.threads,
        parts=p.parts,
    )
    if p.trees:
        return Built(signature, tree_order(trees))
    return Built(
        signature,
        tree_order(trees),
        assumed="trees are assumed, not recorded: double binary trees over nodes "
        f"(pattern {p.tree_pattern}), chains of GPUs inside",
        source="assumed: balanced double binary trees over nodes in rank order, a chain inside each",
    )


TREE = Algorithm(
    name="tree",
    collectives=("AllReduce",),
    protocols=tuple(Protocol),
    build=_built,
    slices=tree_slices,
    operations=tree_operations,
    follows="trees",
)
