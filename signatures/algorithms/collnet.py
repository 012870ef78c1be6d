"""AllReduce with a reducer in the network (SHARP): CollNetChain and CollNetDirect; approximations.

The network part is one calc on every rank that talks to the switch, so T depends on neither L nor G of the fabric.

Source: NVIDIA/nccl ``device/all_reduce.h`` runCollnetChain, runCollnetDirect (2.20 .. 2.30) for who talks to whom;
times of the switch are nominal, not measured.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from atlas_lp.errors import InputError, UnsupportedError
from atlas_lp.signatures.algorithms.algorithm import Algorithm, Built, Parameters
from atlas_lp.signatures.algorithms.tree import tree_operations, tree_slices, trees_signature
from atlas_lp.signatures.costs import CostTable, Primitive
from atlas_lp.signatures.nccl.protocols import Protocol
from atlas_lp.signatures.nccl.splits import ceil_div
from atlas_lp.signatures.nccl.versions import split_rule
from atlas_lp.signatures.placement import members_of_nodes, node_order
from atlas_lp.signatures.signature import Signature, simple_signature
from atlas_lp.signatures.slices import Messages, Slices
from atlas_lp.signatures.topology import Tree

Ints = NDArray[np.int64]

_CHUNK = 262_144
_MOST_LOCAL = 8


def collnet_chain_signature(
    size_bytes: int,
    node_of_rank: Sequence[int],
    *,
    channels: int,
    nccl: str,
    element_bytes: int = 4,
    nic_of_rank: Sequence[int] | None = None,
) -> Signature:
    """Build the signature of a CollNetChain AllReduce: a chain up every node, the switch, and the chain down.

    The head of the chain turns by one GPU per channel.
    """
    _check(size_bytes, element_bytes, node_of_rank, channels, nccl)
    members = members_of_nodes(node_of_rank)
    return trees_signature(
        "collnet_chain",
        Protocol.SIMPLE,
        size_bytes,
        [_chains(members, len(node_of_rank), channel) for channel in range(channels)],
        node_of_rank,
        chunk_bytes=_CHUNK,
        nccl=nccl,
        element_bytes=element_bytes,
        nic_of_rank=nic_of_rank,
    )


def _check(size_bytes: int, element_bytes: int, node_of_rank: Sequence[int], channels: int, nccl: str) -> None:
    if split_rule(nccl) == "2.19":
        raise UnsupportedError(f"NCCL {nccl}: the CollNet models hold from 2.20 on")
    if len(set(node_of_rank)) < 2:
        raise UnsupportedError("CollNet reduces between nodes, but all ranks share one")
    if element_bytes not in (1, 2, 4, 8) or size_bytes < 1 or size_bytes % element_bytes or channels < 1:
        raise InputError(f"CollNet AllReduce of {size_bytes} bytes in {element_bytes}-byte elements")


def _chains(members: Sequence[Sequence[int]], ranks: int, channel: int) -> Tree:
    parents = [-1] * ranks
    for local in members:
        turn = channel % len(local)
        chain = [*local[turn:], *local[:turn]]
        for above, below in pairwise(chain):
            parents[below] = above
    return Tree(tuple(parents), (0,) * ranks)


def collnet_direct_signature(
    size_bytes: int,
    node_of_rank: Sequence[int],
    *,
    nccl: str,
    element_bytes: int = 4,
    nic_of_rank: Sequence[int] | None = None,
) -> Signature:
    """Build the signature of a CollNetDirect AllReduce: every GPU is the head of one share of the data.

    Raises :class:`~atlas_lp.errors.UnsupportedError` for nodes of unequal size or of more than 8 GPUs.
    """
    _check(size_bytes, element_bytes, node_of_rank, 1, nccl)
    members = members_of_nodes(node_of_rank)
    if len({len(local) for local in members}) > 1 or not 2 <= len(members[0]) <= _MOST_LOCAL:
        raise UnsupportedError("CollNetDirect needs nodes of 2 to 8 GPUs, equally many on each")
    return simple_signature(
        "AllReduce",
        "collnet_direct",
        node_order(node_of_rank),
        node_of_rank,
        nic_of_rank,
        size_bytes=size_bytes,
        element_bytes=element_bytes,
        chunk_bytes=_CHUNK,
    )


def collnet_direct_slices(signature: Signature, reduce_copy: CostTable, labels: Ints) -> Slices:
    """Return the slices of the ranks *labels*: scatter (chain 0), reduce and switch (chain 1), gather (chain 2).

    The link of a connection is twice the distance of its ranks in the node, plus 1 for the gather.
    """
    k = signature.ranks // len(set(signature.nodes))
    labels = np.asarray(labels, dtype=np.int64)
    chunk = _shares(signature, k)
    loops, offsets = len(chunk), np.arange(1, k)
    costs = [
        reduce_copy.time_ns(Primitive.SEND, signature.protocol, (k - 1) * chunk),
        reduce_copy.time_ns(Primitive.RECV_REDUCE_COPY_SEND, signature.protocol, (k - 1) * chunk)
        + reduce_copy.switch_ns("network", chunk),
        reduce_copy.time_ns(Primitive.RECV, signature.protocol, (k - 1) * chunk),
    ]
    rows = len(labels) * loops
    loop = np.tile(np.arange(loops), len(labels))
    base = labels // k * k
    to = np.repeat(base[:, None] + (labels[:, None] - base[:, None] + offsets) % k, loops, axis=0).reshape(-1)
    source = np.repeat(base[:, None] + (labels[:, None] - base[:, None] - offsets) % k, loops, axis=0).reshape(-1)
    link = np.tile(2 * (offsets - 1), rows)
    wire = np.repeat(np.tile(chunk, len(labels)), len(offsets))
    row = np.repeat(np.arange(rows), len(offsets))
    return Slices(
        rank=np.tile(np.repeat(labels, loops), 3),
        channel=np.zeros(3 * rows, dtype=np.int64),
        chain=np.repeat(np.arange(3), rows),
        step=np.concatenate([3 * loop, 3 * loop + 1, 3 * loop + 2]),
        cost_ns=np.concatenate([np.tile(cost, len(labels)) for cost in costs]),
        receives=Messages(
            np.concatenate([row + rows, row + 2 * rows]),
            np.tile(source, 2),
            np.concatenate([link, link + 1]),
            np.tile(wire, 2),
        ),
        sends=Messages(
            np.concatenate([row, row + rows]), np.tile(to, 2), np.concatenate([link, link + 1]), np.tile(wire, 2)
        ),
        fifo_slices=signature.fifo_slices,
    )


def _shares(signature: Signature, heads: int) -> Ints:
    """Bytes per head in every loop."""
    share = ceil_div(signature.parts[0].count, heads) * signature.element_bytes
    return np.minimum(signature.chunk_bytes, share - np.arange(0, share, signature.chunk_bytes))


def collnet_direct_operations(signature: Signature) -> int:
    """Exact number of operations of the whole schedule."""
    k = signature.ranks // len(set(signature.nodes))
    return signature.ranks * len(_shares(signature, k)) * (3 + 4 * (k - 1))


def _chain_built(p: Parameters) -> Built:
    signature = collnet_chain_signature(
        p.size_bytes,
        p.node_of_rank,
        channels=p.channels or 1,
        nccl=p.nccl,
        element_bytes=p.element_bytes,
        nic_of_rank=p.nic_of_rank,
    )
    return Built(signature, node_order(p.node_of_rank))


def _direct_built(p: Parameters) -> Built:
    signature = collnet_direct_signature(
        p.size_bytes, p.node_of_rank, nccl=p.nccl, element_bytes=p.element_bytes, nic_of_rank=p.nic_of_rank
    )
    return Built(signature, node_order(p.node_of_rank))


COLLNET_CHAIN = Algorithm(
    name="collnet_chain",
    collectives=("AllReduce",),
    protocols=(Protocol.SIMPLE,),
    build=_chain_built,
    slices=tree_slices,
    operations=tree_operations,
    approximation="CollNetChain is an approximation: the switch reduces in a fixed time, without L or G",
)
COLLNET_DIRECT = Algorithm(
    name="collnet_direct",
    collectives=("AllReduce",),
    protocols=(Protocol.SIMPLE,),
    build=_direct_built,
    slices=collnet_direct_slices,
    operations=collnet_direct_operations,
    approximation="CollNetDirect is an approximation: the switch reduces in a fixed time, without L or G",
)
