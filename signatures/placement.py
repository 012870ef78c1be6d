"""Where ranks sit: the nodes of a communicator and the NICs in them.

What comes in speaks of communicator ranks; :func:`placed` turns it into what a signature holds, numbers of labels that
do not depend on how nodes and NICs are called.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from atlas_lp.errors import InputError


def members_of_nodes(node_of_rank: Sequence[int]) -> list[list[int]]:
    """Return the ranks of every node, nodes in the order of their lowest rank."""
    members: dict[int, list[int]] = {}
    for rank, node in enumerate(node_of_rank):
        members.setdefault(node, []).append(rank)
    return list(members.values())


def node_order(node_of_rank: Sequence[int]) -> list[int]:
    """Communicator rank of every label where no ring or tree orders them: node by node, ranks ascending."""
    return [rank for members in members_of_nodes(node_of_rank) for rank in members]


def by_first_appearance(values: Iterable[int]) -> list[int]:
    """Number *values* from 0 in the order in which they first appear."""
    numbers: dict[int, int] = {}
    return [numbers.setdefault(value, len(numbers)) for value in values]


def shared_nics(node_of_rank: Sequence[int], gpus_per_nic: int = 1) -> list[int]:
    """NIC of every rank within its node: *gpus_per_nic* consecutive GPUs share one."""
    nics = [0] * len(node_of_rank)
    for local in members_of_nodes(node_of_rank):
        for place, rank in enumerate(local):
            nics[rank] = place // gpus_per_nic
    return nics


def placed(
    order: Sequence[int], node_of_rank: Sequence[int], nic_of_rank: Sequence[int] | None
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return node and NIC of each label, *order* being the ranks of the labels, numbered by first appearance."""
    if nic_of_rank is not None and len(nic_of_rank) != len(node_of_rank):
        raise InputError(f"{len(nic_of_rank)} NICs for {len(node_of_rank)} ranks: give one NIC number per rank")
    nodes = by_first_appearance(node_of_rank[rank] for rank in order)
    seen: dict[int, dict[int, int]] = {}
    nics = []
    for rank, node in zip(order, nodes, strict=True):
        numbers = seen.setdefault(node, {})
        nics.append(numbers.setdefault(rank if nic_of_rank is None else nic_of_rank[rank], len(numbers)))
    return tuple(nodes), tuple(nics)
