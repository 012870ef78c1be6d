"""Ranks that see the same thing do the same thing at the same time: classes of ranks by refinement.

Start with all ranks that run equal programs in one class; split classes whose members differ in the class of a peer,
in whether a hop leaves the node, or in who shares their NIC, until nothing splits (colour refinement).  By induction
along the dependencies, the operations of the ranks of one class then have equal times at every (L, G), so one rank per
class is enough: exact, not an approximation.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from atlas_lp.goal.schedule import Schedule
from atlas_lp.signatures.algorithms.expand import slices
from atlas_lp.signatures.algorithms.table import algorithm_of
from atlas_lp.signatures.costs import CostTable
from atlas_lp.signatures.signature import Signature
from atlas_lp.signatures.slices import Slices

Ints = NDArray[np.int64]

_LINKS_AT_ONCE = 32
"""Links that one round of refinement looks at together: bounds its memory."""


@dataclass(frozen=True)
class Symmetry:
    """Classes of ranks: ``class_of_rank`` (labels), ``representative`` and ``port`` per class."""

    class_of_rank: Ints
    representative: Ints
    port: Ints

    @property
    def classes(self) -> int:
        """Number of classes."""
        return len(self.representative)


def find_symmetry(signature: Signature) -> Symmetry | None:
    """Return the classes of the ranks of *signature*, or None when there are as many as ranks.

    Where all nodes look alike, rings with equal chunks have as many classes as a node has GPUs, AllToAll as many as
    share a NIC, and PAT one.  Chains (Broadcast, Reduce), trees and unequal messages have none.  Cost O(ranks x links)
    for each round of refinement.
    """
    links = algorithm_of(signature).links(signature)
    return None if links is None else classes_of(signature, links)


def classes_of(signature: Signature, links: list[Ints]) -> Symmetry | None:
    """The classes of ranks that run equal programs over *links* (peer of every rank, -1: none); None if no two do."""
    nodes, ports = np.array(signature.nodes), _ports(signature)
    # Ties in the queue of a port go by rank, so ranks that share one are not alike.
    colour = _place_in_port(ports)
    count = int(colour.max()) + 1
    while True:
        colour = _refined([colour, *_port_colours(colour, ports)])
        for first in range(0, len(links), _LINKS_AT_ONCE):
            columns = [colour]
            for peer in links[first : first + _LINKS_AT_ONCE]:
                # A rank without a peer on this link is told apart by -1.
                columns += [np.where(peer < 0, -1, colour[peer]), (nodes[peer] != nodes) & (peer >= 0)]
            colour = _refined(columns)
        found = int(colour.max()) + 1
        if found == signature.ranks:
            return None
        if found == count:
            return _symmetry(colour, ports)
        count = found


def _refined(columns: list[Ints]) -> Ints:
    """Number ranks by their row of *columns*."""
    _, colour = np.unique(np.stack(columns), axis=1, return_inverse=True)
    return colour.reshape(-1)


def _ports(signature: Signature) -> Ints:
    """Port of every rank, numbered over the whole signature."""
    pairs = np.stack([signature.nodes, signature.nics])
    _, port = np.unique(pairs, axis=1, return_inverse=True)
    return port.reshape(-1)


def _place_in_port(ports: Ints) -> Ints:
    """How many lower ranks share the port of each rank."""
    order = np.argsort(ports, kind="stable")
    place = np.empty_like(order)
    place[order] = np.arange(len(order)) - np.searchsorted(ports[order], ports[order])
    return place


def _port_colours(colour: Ints, ports: Ints) -> list[Ints]:
    """Columns that tell ranks apart by the colours of those that share their port."""
    sizes = np.bincount(ports)
    order = np.lexsort((colour, ports))
    first = np.cumsum(sizes) - sizes
    columns = [sizes[ports]]
    for place in range(int(sizes.max())):
        at = np.minimum(first + place, len(order) - 1)
        columns.append(np.where(place < sizes, colour[order[at]], -1)[ports])
    return columns


def _symmetry(colour: Ints, ports: Ints) -> Symmetry | None:
    """Number classes by their lowest rank; refuse when two ranks of one class share a port."""
    _, representative, class_of_colour = np.unique(colour, return_index=True, return_inverse=True)
    order = np.argsort(representative)
    rank_of_class = np.empty(len(order), dtype=np.int64)
    rank_of_class[order] = np.arange(len(order))
    classes = rank_of_class[class_of_colour.reshape(-1)]
    shared = np.stack([ports, classes])
    if np.unique(shared, axis=1).shape[1] < len(colour):
        return None
    representative = representative[order]
    # Classes share a queue when their members share ports: the lowest class of the port names it.
    lowest = np.full(int(ports.max()) + 1, len(order))
    np.minimum.at(lowest, ports, classes)
    return Symmetry(classes, representative, lowest[ports[representative]])


def quotient(
    signature: Signature, symmetry: Symmetry, reduce_copy: str | CostTable, credits: str
) -> tuple[Schedule, Ints]:
    """Expand one rank per class; return the schedule and the node number (a port) of each of its ranks."""
    own = slices(signature, reduce_copy, symmetry.representative)
    return by_class(signature, symmetry, own, credits), symmetry.port


def by_class(signature: Signature, symmetry: Symmetry, own: Slices, credits: str) -> Schedule:
    """The schedule of one rank per class, which has the slices *own*."""
    nics = np.zeros(symmetry.classes, dtype=np.int64)
    return own.quotient(np.array(signature.nodes), symmetry.class_of_rank, nics, credits)
