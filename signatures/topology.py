"""Rings, trees and NICs of a communicator: as recorded, or as NCCL builds them for nodes of alike GPUs.

Everything here speaks of communicator ranks; :mod:`~atlas_lp.signatures.signature` turns them into labels.

Source: NVIDIA/nccl ``graph/trees.cc`` ncclGetBtree, ncclGetDtree; ``graph/connect.cc`` ncclTopoPreset, connectTrees;
``init.cc`` setupChannel (2.20 .. 2.30, unchanged).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from atlas_lp.errors import InputError

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


def members_of_nodes(node_of_rank: Sequence[int]) -> list[list[int]]:
    """Return the ranks of every node, nodes in the order of their lowest rank."""
    members: dict[int, list[int]] = {}
    for rank, node in enumerate(node_of_rank):
        members.setdefault(node, []).append(rank)
    return list(members.values())


def by_first_appearance(values: Iterable[int]) -> list[int]:
    """Number *values* from 0 in the order in which they first appear."""
    numbers: dict[int, int] = {}
    return [numbers.setdefault(value, len(numbers)) for value in values]


def assumed_rings(node_of_rank: Sequence[int], channels: int) -> list[list[int]]:
    """Rings for a communicator whose topology is not recorded, one per channel, as ranks.

    Nodes follow each other in the order of their lowest rank; inside a node ranks ascend, rotated by one
    position per channel, so that channels leave a node through different GPUs, as NCCL arranges it where
    every GPU has its NIC.
    """
    members = members_of_nodes(node_of_rank)
    return [[rank for local in members for rank in _turned(local, channel)] for channel in range(channels)]


def permuted_rings(order: Sequence[int], channels: int) -> list[list[int]]:
    """Return the same ring, ranks in *order* from rank 0 on, for every channel (the identity: ``range(ranks)``)."""
    ring = list(order)
    return [_turned(ring, ring.index(0))] * channels


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


def ring_from_neighbours(neighbours: Iterable[tuple[int, int, int]]) -> list[int]:
    """Return the ring of one channel from its (previous, rank, next) triples: the walk along next from rank 0.

    Raises :class:`~atlas_lp.errors.InputError` when the triples are no single ring.
    """
    rows = list(neighbours)
    following = {rank: after for _, rank, after in rows}
    ring: list[int] = []
    rank = 0
    while rank in following and len(ring) < len(rows):
        ring.append(rank)
        rank = following[rank]
    if len(ring) < len(rows) or rank != 0 or len(following) < len(rows):
        raise InputError(f"{len(rows)} lines of ring neighbours do not close to one ring through rank 0")
    previous = {rank: before for before, rank, _ in rows}
    for at, rank in enumerate(ring):
        if previous[rank] != ring[at - 1]:
            raise InputError(f"rank {ring[at - 1]} sends to rank {rank}, which receives from rank {previous[rank]}")
    return ring


def tree_from_neighbours(neighbours: Iterable[tuple[Sequence[int], int, int]]) -> Tree:
    """Return the tree of one channel from its (children, rank, parent) triples, -1 meaning none.

    Raises :class:`~atlas_lp.errors.InputError` when a rank is missing or two lines disagree.
    """
    rows = {rank: ([child for child in children if child >= 0], parent) for children, rank, parent in neighbours}
    if sorted(rows) != list(range(len(rows))):
        raise InputError(f"the lines of a tree cover ranks {sorted(rows)[:8]}, not 0 to {len(rows) - 1}")
    tree = Tree.of_children([rows[rank][0] for rank in range(len(rows))])
    for rank, parent in enumerate(tree.parents):
        if rows[rank][1] != parent:
            raise InputError(f"rank {rank} names parent {rows[rank][1]}, but is a child of {parent}")
    return tree


_TRIPLE = r"(-?\d+)\s*->\s*(-?\d+)\s*->\s*(-?\d+)(?![/\d])"
_CHILDREN = r"(-?\d+(?:/-?\d+)+)"
_RING = re.compile(r"(?:\[|Ring\s+)(\d+)(?:\]|\s*:)\s*" + _TRIPLE)
_TREE = re.compile(r"\[(\d+)\]\s*" + _CHILDREN + r"\s*->\s*(-?\d+)\s*->\s*(-?\d+)")
_TREE_DOWNWARDS = re.compile(r"Tree\s+(\d+)\s*:\s*(-?\d+)\s*->\s*(-?\d+)\s*->\s*" + _CHILDREN)


def ring_lines(text: str) -> list[tuple[int, tuple[int, int, int]]]:
    """Return (channel, (previous, rank, next)) of every ``[c] prev->rank->next`` or ``Ring c : ..`` in *text*."""
    return [(int(m[1]), (int(m[2]), int(m[3]), int(m[4]))) for m in _RING.finditer(text)]


def tree_lines(text: str) -> list[tuple[int, tuple[tuple[int, ...], int, int]]]:
    """Return (channel, (children, rank, parent)) of every tree in *text*.

    Both forms of NCCL are read: ``[c] c1/c2/c3->rank->parent`` and ``Tree c : parent -> rank -> c1/c2/c3``.
    """
    found = [(int(m[1]), (_numbers(m[2]), int(m[3]), int(m[4]))) for m in _TREE.finditer(text)]
    found += [(int(m[1]), (_numbers(m[4]), int(m[3]), int(m[2]))) for m in _TREE_DOWNWARDS.finditer(text)]
    return found


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(number) for number in text.split("/"))


def shared_nics(node_of_rank: Sequence[int], gpus_per_nic: int = 1) -> list[int]:
    """NIC of every rank within its node: *gpus_per_nic* consecutive GPUs share one."""
    nics = [0] * len(node_of_rank)
    for local in members_of_nodes(node_of_rank):
        for place, rank in enumerate(local):
            nics[rank] = place // gpus_per_nic
    return nics


def rotated_nics(node_of_rank: Sequence[int], nics_per_node: int, channels: int) -> list[list[int]]:
    """NIC of every rank per channel where each GPU uses another NIC on every channel (more NICs than GPUs, or PCI)."""
    own = shared_nics(node_of_rank)
    return [[(nic + channel) % nics_per_node for nic in own] for channel in range(channels)]
