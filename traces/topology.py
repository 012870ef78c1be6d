"""Rings and trees as annotations and NCCL logs give them, rank by rank, to one topology per communicator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

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
    if not _is_whole(after, ranks):
        return Topology(source=mine[0].source, p2p_channels=p2p)
    closed = []
    for channel in range(len(after) // ranks):
        ring = [0]
        while len(ring) < ranks and (channel, ring[-1]) in after:
            ring.append(after[channel, ring[-1]])
        if sorted(ring) != list(range(ranks)):
            return Topology(source=mine[0].source, p2p_channels=p2p)
        closed.append(tuple(ring))
    whole = []
    if _is_whole(trees, ranks):
        whole = [tuple(trees[channel, rank] for rank in range(ranks)) for channel in range(len(trees) // ranks)]
    return Topology(tuple(closed), tuple(whole), mine[0].source, p2p)


def _is_whole(known: Mapping[tuple[int, int], object], ranks: int) -> bool:
    """Whether every rank of channels from 0 on is *known*; what is known may name any number, so none is counted to."""
    channels, rest = divmod(len(known), max(ranks, 1))
    return not rest and all(channel in range(channels) and rank in range(ranks) for channel, rank in known)
