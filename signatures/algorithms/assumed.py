"""A signature from parameters alone: the topology is what NCCL would build for nodes of alike GPUs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from atlas_lp.errors import InputError, UnsupportedError
from atlas_lp.signatures.algorithms.collnet import collnet_chain_signature, collnet_direct_signature
from atlas_lp.signatures.algorithms.nvls import nvls_signature, nvls_tree_signature
from atlas_lp.signatures.algorithms.pat import pat_signature
from atlas_lp.signatures.algorithms.point_to_point import CHANNELS, CHANNELS_PER_PEER, all_to_all_signature
from atlas_lp.signatures.algorithms.tree import tree_signature
from atlas_lp.signatures.nccl.protocols import Protocol
from atlas_lp.signatures.signature import Signature, ring_signature
from atlas_lp.signatures.topology import assumed_rings, assumed_trees

_RINGS = "rings are assumed, not recorded: node after node, turned by one GPU per channel"
_TREES = "trees are assumed, not recorded: double binary trees over nodes (pattern {pattern}), chains of GPUs inside"
_ROUNDS = "point-to-point channels are assumed, not recorded: {channels} channels, {per_peer} per peer"

_DOES = {
    "tree": ("AllReduce",),
    "p2p": ("AllToAll",),
    "pat": ("AllGather", "ReduceScatter"),
    "nvls": ("AllReduce",),
    "nvls_tree": ("AllReduce",),
    "collnet_chain": ("AllReduce",),
    "collnet_direct": ("AllReduce",),
}


@dataclass(frozen=True)
class Parameters:
    """What one collective is, as typed: *size_bytes* is per pair for AllToAll, else that of the NCCL call.

    *channels* None means one, or NCCL's usual number of point-to-point channels for AllToAll.
    """

    collective: str
    size_bytes: int
    node_of_rank: Sequence[int]
    nccl: str
    algorithm: str = "ring"
    protocol: Protocol = Protocol.SIMPLE
    channels: int | None = None
    element_bytes: int = 4
    root: int = 0
    nic_of_rank: Sequence[int] | None = None
    threads: int | None = None
    tree_pattern: str = "balanced"
    per_peer: int = CHANNELS_PER_PEER


def assumed_signature(parameters: Parameters) -> tuple[Signature, list[str]]:
    """Return the signature of *parameters* and what it assumes, as sentences.

    Raises what the builder of the algorithm raises, and :class:`~atlas_lp.errors.UnsupportedError` for a collective
    that the algorithm does not do.
    """
    p = parameters
    algorithm = "p2p" if p.collective == "AllToAll" and p.algorithm == "ring" else p.algorithm
    does = _DOES.get(algorithm)
    if does is not None and p.collective not in does:
        raise UnsupportedError(f"{algorithm} does {' and '.join(does)}, not {p.collective}")
    if algorithm not in ("ring", "tree") and p.protocol is not Protocol.SIMPLE:
        raise InputError(f"{algorithm} runs the Simple protocol only (p2p takes LL by itself where NCCL does)")
    signature = _build(algorithm, p)
    if algorithm == "ring":
        assumed = [_RINGS]
    elif algorithm == "p2p":
        assumed = [_ROUNDS.format(channels=p.channels or CHANNELS, per_peer=p.per_peer)]
    else:
        assumed = [_TREES.format(pattern=p.tree_pattern)] if algorithm == "tree" else []
    return signature, [*assumed, *([signature.assumption] if signature.assumption else [])]


def _build(algorithm: str, p: Parameters) -> Signature:
    size, nodes, nics, nccl, element = p.size_bytes, p.node_of_rank, p.nic_of_rank, p.nccl, p.element_bytes
    channels = p.channels or 1
    match algorithm:
        case "ring":
            rings = assumed_rings(nodes, channels)
            return ring_signature(
                p.collective,
                p.protocol,
                size,
                rings,
                nodes,
                nccl=nccl,
                element_bytes=element,
                root=p.root,
                nic_of_rank=nics,
                threads=p.threads,
            )
        case "tree":
            trees = assumed_trees(nodes, channels, p.tree_pattern)
            return tree_signature(
                p.protocol,
                size,
                trees,
                nodes,
                nccl=nccl,
                element_bytes=element,
                nic_of_rank=nics,
                threads=p.threads,
            )
        case "p2p":
            return all_to_all_signature(
                size, nodes, nics, nccl=nccl, channels=p.channels or CHANNELS, per_peer=p.per_peer
            )
        case "pat":
            return pat_signature(
                p.collective, size, nodes, channels=channels, nccl=nccl, element_bytes=element, nic_of_rank=nics
            )
        case "nvls":
            return nvls_signature(size, nodes, nccl=nccl, element_bytes=element, nic_of_rank=nics)
        case "nvls_tree":
            return nvls_tree_signature(
                size, nodes, channels=channels, nccl=nccl, element_bytes=element, nic_of_rank=nics
            )
        case "collnet_chain":
            return collnet_chain_signature(
                size, nodes, channels=channels, nccl=nccl, element_bytes=element, nic_of_rank=nics
            )
        case "collnet_direct":
            return collnet_direct_signature(size, nodes, nccl=nccl, element_bytes=element, nic_of_rank=nics)
    raise UnsupportedError(f"{algorithm} has no schedule")
