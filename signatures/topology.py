"""Rings and trees of a communicator: as recorded, or as NCCL builds them for nodes of alike GPUs.

Everything here speaks of communicator ranks; :mod:`~atlas_lp.signatures.signature` turns them into labels.

Source: NVIDIA/nccl ``graph/trees.cc`` ncclGetBtree, ncclGetDtree; ``graph/connect.cc`` ncclTopoPreset, connectTrees;
``init.cc`` setupChannel (2.20 .. 2.30, unchanged).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from atlas_lp.errors import InputError
from atlas_lp.signatures.placement import members_of_nodes

TREE_PATTERNS = ("tree", "balanced", "split")
"""Which GPU of a parent node receives its child nodes: the first; the second and the first; the second."""

_FIRST_CHILD = {"tree": 0, "balanced": 1, "split": 1}
_SECOND_CHILD = {"tree": 0, "balanced": 0, "split": 1}


@dataclass(frozen=True)
class Tree:
    """A rooted tree: ``parents`` of every rank (-1: none) and ``slots``, its place among its parent's children."""

    parents: tuple[int, ...]
    slots: tuple[int, ...]

    def children(self) -> list[list[int]]:
        """Return the children of every rank in the order of their slots."""
        found: list[list[int]] = [[] for _ in self.parents]
        for rank in sorted(range(len(self.parents)), key=lambda rank: self.slots[rank]):
            if self.parents[rank] >= 0:
                found[self.parents[rank]].append(rank)
        return found

    def preorder(self) -> list[int]:
        """Return all ranks, parents first and children by slot, tree by tree where there are several roots."""
        children, order = self.children(), []
        waiting = [rank for rank in range(len(self.parents) - 1, -1, -1) if self.parents[rank] < 0]
        while waiting:
            rank = waiting.pop()
            order.append(rank)
            waiting.extend(reversed(children[rank]))
        return order

    @classmethod
    def of_children(cls, children: Sequence[Sequence[int]]) -> Tree:
        """Build from the ordered children of every rank.

        Raises :class:`~atlas_lp.errors.InputError` unless every rank has at most one parent and none is its own
        ancestor.
        """
        parents, slots = [-1] * len(children), [0] * len(children)
        for rank, own in enumerate(children):
            for slot, child in enumerate(own):
                if not 0 <= child < len(children) or parents[child] >= 0:
                    raise InputError(f"a tree names rank {child} twice as a child, or it does not exist")
                parents[child], slots[child] = rank, slot
        tree = cls(tuple(parents), tuple(slots))
        if len(tree.preorder()) != len(children):
            raise InputError("a tree of ranks has a cycle: no path leads from a root to each of them")
        return tree


def assumed_rings(node_of_rank: Sequence[int], channels: int) -> list[list[int]]:
    """Rings for a communicator whose topology is not recorded, one per channel, as ranks.

    Nodes follow each other in the order of their lowest rank; inside a node ranks ascend, rotated by one
    position per channel, so that channels leave a node through different GPUs, as NCCL arranges it where
    every GPU has its NIC.
    """
    members = members_of_nodes(node_of_rank)
    return [[rank for local in members for rank in _turned(local, channel)] for channel in range(channels)]


def assumed_trees(node_of_rank: Sequence[int], channels: int, pattern: str = "balanced") -> list[Tree]:
    """Double binary trees over the nodes with a chain inside each, one tree per channel.

    Channels of the first half use the first tree, the others the second; the GPUs of a node are rotated by one
    position per channel of a half.  *pattern* is one of :data:`TREE_PATTERNS`.
    """
    members = members_of_nodes(node_of_rank)
    half = max(1, -(-channels // 2))
    return [
        double_binary_tree([_turned(local, channel % half) for local in members], channel // half, pattern)
        for channel in range(channels)
    ]


def double_binary_tree(chains: Sequence[Sequence[int]], which: int, pattern: str) -> Tree:
    """Join the *chains* of GPUs of all nodes by binary tree number *which* (0 or 1)."""
    if pattern not in TREE_PATTERNS:
        raise InputError(f"{pattern!r} is no tree pattern: choose one of {', '.join(TREE_PATTERNS)}")
    nodes = len(chains)
    children: list[list[int]] = [[] for _ in range(sum(len(chain) for chain in chains))]
    for chain in chains:
        for above, below in pairwise(chain):
            children[above].append(below)
    for played in range(nodes):
        chain = chains[_node_playing(played, nodes, which)]
        for child in _binary_children(played, nodes):
            place = (_FIRST_CHILD if child < played else _SECOND_CHILD)[pattern]
            children[chain[min(place, len(chain) - 1)]].append(chains[_node_playing(child, nodes, which)][0])
    return Tree.of_children(children)


def _node_playing(played: int, nodes: int, which: int) -> int:
    """Node that stands at number *played* of the binary tree: itself; in tree 1 mirrored (even) or shifted (odd)."""
    if which == 0:
        return played
    return nodes - 1 - played if nodes % 2 == 0 else (played + 1) % nodes


def _binary_children(number: int, nodes: int) -> list[int]:
    """Children of *number* in the binary tree whose leaves are the odd numbers; 0 is the root with one child."""
    if number == 0:
        return [1 << ((nodes - 1).bit_length() - 1)] if nodes > 1 else []
    lowest = number & -number
    if lowest == 1:
        return []
    offset = lowest >> 1
    first = number - offset
    while offset and number + offset >= nodes:
        offset >>= 1
    return [first, number + offset] if offset else [first]


def _turned(local: Sequence[int], channel: int) -> list[int]:
    turn = channel % len(local)
    return [*local[turn:], *local[:turn]]
