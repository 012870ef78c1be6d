"""Rings and trees as annotations and NCCL logs give them, rank by rank, to one topology per communicator."""

from __future__ import annotations

from collections.abc import Sequence

from atlas_lp.traces.records import Rings
from atlas_lp.traces.trace import Topology


def topology_of(rings: Sequence[Rings], communicator: int, ranks: int) -> Topology:
    """Topology of one communicator from all that is known about it; empty unless every ring is closed."""
    mine = [one for one in rings if one.communicator == communicator]
    if not mine:
        return Topology()
    after: dict[tuple[int, int], int] = {}
    trees: dict[tuple[int, int], tuple[int, tuple[int, ...]]] = {}
    for one in mine:
        after.update({(channel, rank): following for channel, rank, following in one.next_rank})
        trees.update({(channel, rank): (parent, children) for channel, rank, parent, children in one.trees})
    p2p = max(one.p2p_channels for one in mine)
    closed = []
    for channel in range(1 + max((channel for channel, _ in after), default=-1)):
        ring = [0]
        while len(ring) < ranks and (channel, ring[-1]) in after:
            ring.append(after[channel, ring[-1]])
        if sorted(ring) != list(range(ranks)):
            return Topology(source=mine[0].source, p2p_channels=p2p)
        closed.append(tuple(ring))
    whole = [
        tuple(trees[channel, rank] for rank in range(ranks) if (channel, rank) in trees)
        for channel in range(1 + max((channel for channel, _ in trees), default=-1))
    ]
    if any(len(tree) != ranks for tree in whole):
        whole = []
    return Topology(tuple(closed), tuple(whole), mine[0].source, p2p)
