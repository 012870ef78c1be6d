"""AllReduce through NVLink switches that reduce and multicast: NVLS on one node, NVLSTree on several; approximations.

NVLS is a barrier of the node and one calc per GPU of bytes (1 + 1/k) through the switch.  NVLSTree is one tree over the
nodes per GPU of a node, each for its share of the data, with the switch before the up send (chain -1) and after the
down send (chain 3).

Source: NVIDIA/nccl ``transport/nvls.cc``, ``device/all_reduce.h`` (2.20 .. 2.30) for who talks to whom; times are
nominal rates, not measurements.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from atlas_lp.errors import InputError, UnsupportedError
from atlas_lp.signatures.algorithms.algorithm import Algorithm, Built, Parameters
from atlas_lp.signatures.algorithms.tree import (
    DOWN,
    UP,
    chunk_count,
    chunk_lengths,
    tree_operations,
    tree_order,
    tree_slices,
    trees_signature,
)
from atlas_lp.signatures.costs import CostTable
from atlas_lp.signatures.nccl.protocols import Protocol
from atlas_lp.signatures.nccl.splits import ceil_div
from atlas_lp.signatures.nccl.versions import split_rule
from atlas_lp.signatures.placement import members_of_nodes
from atlas_lp.signatures.signature import Signature, simple_signature
from atlas_lp.signatures.slices import Messages, Slices
from atlas_lp.signatures.topology import Tree, double_binary_tree

Ints = NDArray[np.int64]

_CHUNK, _CHUNK_FOUR_NODES = 131_072, 65_536
_REDUCE, _BROADCAST = -1, 3


def nvls_signature(
    size_bytes: int,
    node_of_rank: Sequence[int],
    *,
    nccl: str,
    element_bytes: int = 4,
    nic_of_rank: Sequence[int] | None = None,
) -> Signature:
    """Build the signature of an NVLS AllReduce inside one node; all channels together are one calc per GPU.

    Raises :class:`~atlas_lp.errors.UnsupportedError` where the ranks span nodes.
    """
    ranks = len(node_of_rank)
    _check(size_bytes, element_bytes, ranks, nccl)
    if len(set(node_of_rank)) > 1:
        raise UnsupportedError("NVLS reduces inside one node; between nodes NCCL uses NVLSTree")
    return simple_signature(
        "AllReduce",
        "nvls",
        range(ranks),
        node_of_rank,
        nic_of_rank,
        size_bytes=size_bytes,
        element_bytes=element_bytes,
        chunk_bytes=_CHUNK,
    )


def _check(size_bytes: int, element_bytes: int, ranks: int, nccl: str) -> None:
    if split_rule(nccl) == "2.19":
        raise UnsupportedError(f"NCCL {nccl}: the NVLS models hold from 2.20 on")
    if ranks < 2 or element_bytes not in (1, 2, 4, 8) or size_bytes < 1 or size_bytes % element_bytes:
        raise InputError(f"NVLS AllReduce of {size_bytes} bytes in {element_bytes}-byte elements on {ranks} ranks")


def nvls_slices(signature: Signature, reduce_copy: CostTable, labels: Ints) -> Slices:
    """Return the slices of the ranks *labels*; the link of a connection is the distance of its ranks less one."""
    k = signature.ranks
    labels = np.asarray(labels, dtype=np.int64)
    offsets = np.arange(1, k)
    volume = np.array([signature.size_bytes + ceil_div(signature.size_bytes, k)])
    cost = int(reduce_copy.switch_ns("nvlink", volume)[0])
    place = np.arange(len(labels))
    zero = np.zeros(len(labels) * len(offsets), dtype=np.int64)
    link = np.tile(offsets - 1, len(labels))
    to = ((labels[:, None] + offsets) % k).reshape(-1)
    source = ((labels[:, None] - offsets) % k).reshape(-1)
    return Slices(
        rank=np.tile(labels, 2),
        channel=np.zeros(2 * len(labels), dtype=np.int64),
        chain=np.zeros(2 * len(labels), dtype=np.int64),
        step=np.repeat([0, 1], len(labels)),
        cost_ns=np.repeat([0, cost], len(labels)),
        receives=Messages(np.repeat(len(labels) + place, len(offsets)), source, link, zero),
        sends=Messages(np.repeat(place, len(offsets)), to, link, zero),
        fifo_slices=signature.fifo_slices,
    )


def nvls_operations(signature: Signature) -> int:
    """Exact number of operations of the whole schedule."""
    return 2 * signature.ranks * signature.ranks


def nvls_tree_signature(
    size_bytes: int,
    node_of_rank: Sequence[int],
    *,
    channels: int,
    nccl: str,
    element_bytes: int = 4,
    nic_of_rank: Sequence[int] | None = None,
) -> Signature:
    """Build the signature of an NVLSTree AllReduce over nodes of equally many GPUs.

    Every GPU of a node is a head and owns 1/k of the data; the parts of the signature are those of one head.
    """
    ranks = len(node_of_rank)
    _check(size_bytes, element_bytes, ranks, nccl)
    members = members_of_nodes(node_of_rank)
    heads = len(members[0])
    if len(members) < 2 or any(len(local) != heads for local in members):
        raise UnsupportedError("NVLSTree joins at least two nodes with equally many GPUs")
    half = ceil_div(channels, 2)
    trees = [_head_trees(members, channel // half) for channel in range(channels)]
    share = ceil_div(size_bytes // element_bytes, heads) * element_bytes
    signature = trees_signature(
        "nvls_tree",
        Protocol.SIMPLE,
        share,
        trees,
        node_of_rank,
        chunk_bytes=_CHUNK_FOUR_NODES if len(members) >= 4 else _CHUNK,
        nccl=nccl,
        element_bytes=element_bytes,
        nic_of_rank=nic_of_rank,
    )
    return replace(signature, size_bytes=size_bytes)


def _head_trees(members: Sequence[Sequence[int]], which: int) -> Tree:
    """One binary tree over the nodes for every place in a node, all in one forest."""
    shape = double_binary_tree([[node] for node in range(len(members))], which, "tree")
    parents = {
        rank: members[shape.parents[node]][place] if shape.parents[node] >= 0 else -1
        for node, local in enumerate(members)
        for place, rank in enumerate(local)
    }
    slots = {rank: shape.slots[node] for node, local in enumerate(members) for rank in local}
    return Tree(tuple(parents[rank] for rank in sorted(parents)), tuple(slots[rank] for rank in sorted(slots)))


def nvls_tree_slices(signature: Signature, reduce_copy: CostTable, labels: Ints) -> Slices:
    """Return the slices of the ranks *labels*: trees, with the switch before and after each chunk."""
    trees = tree_slices(signature, reduce_copy, labels)
    heads = signature.ranks // len(set(signature.nodes))
    volume = np.zeros(len(trees.rank), dtype=np.int64)
    for part in signature.parts:
        # All heads and all channels share the links of a GPU.
        data = chunk_lengths(signature, part) * signature.element_bytes * heads * len(signature.parts)
        here = trees.channel == part.channel
        volume[here] = data[trees.step[here]]
    through = reduce_copy.switch_ns("nvlink", volume) - reduce_copy.switch_ns("nvlink", 0 * volume)
    through += np.where(trees.step == 0, reduce_copy.switch_ns("nvlink", 0 * volume), 0)
    up, down = trees.chain == UP, trees.chain == DOWN
    roots = np.array([[parent < 0 for parent in tree.parents] for tree in signature.trees])
    tree_of_channel = np.zeros(1 + max(part.channel for part in signature.parts), dtype=np.int64)
    for part in signature.parts:
        tree_of_channel[part.channel] = part.ring
    before = np.flatnonzero(up)
    after = np.flatnonzero(down | roots[tree_of_channel[trees.channel], trees.rank])
    added = np.concatenate([before, after])
    number = len(trees.rank) + np.arange(len(added))
    first, second = number[: len(before)], number[len(before) :]
    chain = np.repeat([_REDUCE, _BROADCAST], [len(before), len(after)])
    return replace(
        trees,
        rank=np.concatenate([trees.rank, trees.rank[added]]),
        channel=np.concatenate([trees.channel, trees.channel[added]]),
        chain=np.concatenate([trees.chain, chain]),
        step=np.concatenate([trees.step, trees.step[added]]),
        cost_ns=np.concatenate([trees.cost_ns, through[added]]),
        waits=(np.concatenate([first, after]), np.concatenate([before, second])),
        reduces=np.concatenate([up, chain == _REDUCE]),
    )


def nvls_tree_operations(signature: Signature) -> int:
    """Exact number of operations of the whole schedule."""
    chunks = sum(chunk_count(signature, part) for part in signature.parts)
    return tree_operations(signature) + 2 * signature.ranks * chunks


def _nvls_built(p: Parameters) -> Built:
    signature = nvls_signature(
        p.size_bytes, p.node_of_rank, nccl=p.nccl, element_bytes=p.element_bytes, nic_of_rank=p.nic_of_rank
    )
    return Built(signature, range(len(p.node_of_rank)))


def _nvls_tree_built(p: Parameters) -> Built:
    signature = nvls_tree_signature(
        p.size_bytes,
        p.node_of_rank,
        channels=p.channels or 1,
        nccl=p.nccl,
        element_bytes=p.element_bytes,
        nic_of_rank=p.nic_of_rank,
    )
    return Built(signature, tree_order([_head_trees(members_of_nodes(p.node_of_rank), 0)]))


NVLS = Algorithm(
    name="nvls",
    collectives=("AllReduce",),
    protocols=(Protocol.SIMPLE,),
    build=_nvls_built,
    slices=nvls_slices,
    operations=nvls_operations,
    approximation="NVLS is an approximation: a barrier and one calc of bytes (1 + 1/k) at NVLink rate per GPU",
)
NVLS_TREE = Algorithm(
    name="nvls_tree",
    collectives=("AllReduce",),
    protocols=(Protocol.SIMPLE,),
    build=_nvls_tree_built,
    slices=nvls_tree_slices,
    operations=nvls_tree_operations,
    approximation="NVLSTree is an approximation: one node-level tree per GPU, NVLS before the up and after the down "
    "sends",
)
