"""What each rank of a collective does, slice by slice, and how that becomes GOAL operations.

The common language of all algorithms is :class:`Slices`, a row per slice that a thread block works on, with the
messages it waits for and the messages it passes on.  For slice t of one chain (rank, channel, thread group), with
receives R_t, reduce/copy K_t and sends S_t, :meth:`Slices.schedule` emits::

    R_t -> K_t -> S_t          what the slice does
    K_(t-1) -> K_t             a thread group runs its slices strictly in order
    K_u -> R_t                 u: D receives earlier on that connection (the FIFO slot is free again)
    S_v -> K_t                 v: D sends earlier on that connection, network hops only (local send buffer)

Source: NVIDIA/nccl ``device/prims_simple.h`` genericOp, waitPeer, postPeer; ``transport/net.cc`` sendProxyProgress,
recvProxyProgress (2.20.5).

Credits ``local`` are the edges above: they delay nobody across the network.  With ``acknowledged`` each freed slot
is also told to the sender by a 0-byte message before it may send the D-th next slice, which limits a connection to D
slices per round trip, as NCCL's clear-to-send does.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from atlas_lp.goal.schedule import CALC, RECV, SEND, Schedule

Ints = NDArray[np.int64]

# Tag of a message: channel, then link, then whether it acknowledges a FIFO slot.
LINK_TAG = 1 << 6
ACKNOWLEDGE_TAG = 1 << 31

_NONE = np.zeros(0, dtype=np.int64)

# Order of the operations of one slice in its block.
_RECV, _CALC, _TELL, _HEAR, _SEND = range(5)


@dataclass(frozen=True)
class Messages:
    """One end of messages: the ``slice`` (row of the slices) it belongs to, ``peer``, ``link`` and ``wire`` bytes.

    Messages of one connection (rank, peer, channel, link) are matched first in, first out in the order of slices.
    """

    slice: Ints
    peer: Ints
    link: Ints
    wire: Ints


@dataclass(frozen=True)
class Slices:
    """Slices of some or all ranks: arrays ``rank``, ``channel``, ``chain`` (thread group), ``step`` and ``cost_ns``.

    ``step`` orders the slices of a chain and, across channels, the operations in the block of a rank.
    ``fifo_slices`` is D, the depth of every connection.  ``waits`` are pairs (earlier, later) of slices of one rank
    where the later waits for the earlier beside the order of its own chain.  ``reduces`` says which slices add what
    they receive to their own, None where an algorithm has no such phases.
    """

    rank: Ints
    channel: Ints
    chain: Ints
    step: Ints
    cost_ns: Ints
    receives: Messages
    sends: Messages
    fifo_slices: int
    waits: tuple[Ints, Ints] = (_NONE, _NONE)
    reduces: NDArray[np.bool_] | None = None

    @classmethod
    def of_rows(cls, rows: Ints, sends: Ints, receives: Ints, fifo_slices: int, waits: tuple[Ints, Ints]) -> Slices:
        """Return slices that have one message at most, given as a table with a column per slice.

        The lines of *rows* are rank, channel, chain, step, cost, peer, link and wire bytes (any others are left
        alone); *sends* and *receives* number the slices whose message goes out or comes in.
        """
        rank, channel, chain, step, cost_ns, peer, link, wire = rows[:8]
        return cls(
            rank=rank,
            channel=channel,
            chain=chain,
            step=step,
            cost_ns=cost_ns,
            receives=Messages(receives, peer[receives], link[receives], wire[receives]),
            sends=Messages(sends, peer[sends], link[sends], wire[sends]),
            fifo_slices=fifo_slices,
            waits=waits,
        )

    def schedule(self, node_of_rank: Ints, nic_of_rank: Ints, credits: str = "local") -> Schedule:
        """Lay the slices out as GOAL operations, block by block in the order (step, channel, chain).

        *credits* is ``local``, ``acknowledged`` or ``none``.
        """
        leaves = [node_of_rank[self.rank[m.slice]] != node_of_rank[m.peer] for m in (self.receives, self.sends)]
        return self._laid_out(len(node_of_rank), nic_of_rank, leaves[0], leaves[1], credits)

    def quotient(self, node_of_rank: Ints, class_of_rank: Ints, nic_of_class: Ints, credits: str = "local") -> Schedule:
        """Lay the slices of one rank per class out; a message to a peer becomes one to the peer's class.

        The result has a GOAL rank per class and carries ``scale_out``, because a class may well send to itself across
        the network, and ``towards``, because two ranks of a class are two destinations.
        """
        leaves = [node_of_rank[self.rank[m.slice]] != node_of_rank[m.peer] for m in (self.receives, self.sends)]
        towards = self.receives.peer, self.sends.peer
        renamed = replace(
            self,
            rank=class_of_rank[self.rank],
            receives=replace(self.receives, peer=class_of_rank[self.receives.peer]),
            sends=replace(self.sends, peer=class_of_rank[self.sends.peer]),
        )
        return renamed._laid_out(len(nic_of_class), nic_of_class, leaves[0], leaves[1], credits, towards)

    def _laid_out(
        self,
        ranks: int,
        nic_of_rank: Ints,
        receive_leaves: NDArray[np.bool_],
        send_leaves: NDArray[np.bool_],
        credits: str,
        towards: tuple[Ints, Ints] | None = None,
    ) -> Schedule:
        """Emit the operations; the two masks say which receives and sends cross the network."""
        layout = _Layout(self)
        receives, sends = self.receives, self.sends
        freed, slot_of = self._earlier(receives)
        reused, buffer_of = self._earlier(sends)
        acknowledged = credits == "acknowledged"
        tells = slot_of if acknowledged else slot_of[:0]
        hears = reused if acknowledged else reused[:0]
        recv, calc, tell, hear, send = layout.number(tells, hears)

        later, earlier = self._in_order()
        pairs = [(recv, calc[receives.slice]), (calc[earlier], calc[later]), (calc[sends.slice], send)]
        pairs.append((calc[self.waits[0]], calc[self.waits[1]]))
        if credits != "none":
            network = send_leaves[reused]
            pairs.append((calc[receives.slice[slot_of]], recv[freed]))
            pairs.append((send[buffer_of[network]], calc[sends.slice[reused[network]]]))
        pairs += [(calc[receives.slice[tells]], tell), (hear, send[hears])]
        none = np.zeros(len(self.rank), dtype=np.bool_)
        leaves = np.concatenate([receive_leaves, none, receive_leaves[tells], send_leaves[hears], send_leaves])
        schedule = layout.schedule(ranks, nic_of_rank, pairs, leaves)
        if towards is None:
            return schedule
        to, own = towards[1], np.full(len(self.rank), -1)
        column = np.concatenate([towards[0], own, towards[0][tells], to[hears], to])
        return replace(schedule, towards=column[layout.order])

    def _in_order(self) -> tuple[Ints, Ints]:
        """Pairs (slice, the slice before it in its chain)."""
        order = np.lexsort((self.step, self.chain, self.channel, self.rank))
        keys = np.stack([self.rank, self.channel, self.chain])[:, order]
        same = np.all(keys[:, 1:] == keys[:, :-1], axis=0)
        return order[1:][same], order[:-1][same]

    def _earlier(self, messages: Messages) -> tuple[Ints, Ints]:
        """Pairs (message, the message D before it on its connection)."""
        rank, channel, step = (column[messages.slice] for column in (self.rank, self.channel, self.step))
        order = np.lexsort((step, messages.link, messages.peer, channel, rank))
        keys = np.stack([rank, channel, messages.peer, messages.link])[:, order]
        depth = self.fifo_slices
        same = np.all(keys[:, depth:] == keys[:, : max(keys.shape[1] - depth, 0)], axis=0)
        return order[depth:][same], order[: len(order) - depth][same]


class _Layout:
    """Numbers the operations of slices in the order of their blocks."""

    def __init__(self, slices: Slices) -> None:
        self.slices = slices

    def number(self, tells: Ints, hears: Ints) -> list[Ints]:
        """Return operation numbers of receives, calcs, acknowledgements sent, awaited, and sends."""
        mine = self.slices
        receives, sends = mine.receives, mine.sends
        slices = [receives.slice, np.arange(len(mine.rank)), receives.slice[tells], sends.slice[hears], sends.slice]
        sizes = [len(rows) for rows in slices]
        self.slice = np.concatenate(slices)
        self.phase = np.repeat([_RECV, _CALC, _TELL, _HEAR, _SEND], sizes)
        none = np.full(len(mine.rank), -1, dtype=np.int64)
        self.peer = np.concatenate([receives.peer, none, receives.peer[tells], sends.peer[hears], sends.peer])
        self.link = np.concatenate([receives.link, none + 1, receives.link[tells], sends.link[hears], sends.link])
        zeros = np.zeros(len(tells) + len(hears), dtype=np.int64)
        self.size = np.concatenate([receives.wire, mine.cost_ns, zeros, sends.wire])
        rows = np.arange(len(mine.rank))
        place = np.empty_like(rows)
        place[np.lexsort((mine.chain, mine.channel, mine.step, mine.rank))] = rows
        self.order = np.lexsort((np.arange(len(self.slice)), self.phase, place[self.slice]))
        number = np.empty(len(self.order), dtype=np.int64)
        number[self.order] = np.arange(len(self.order))
        return np.split(number, np.cumsum(sizes)[:-1])

    def schedule(
        self, ranks: int, nic_of_rank: Ints, pairs: list[tuple[Ints, Ints]], leaves: NDArray[np.bool_]
    ) -> Schedule:
        """Return the numbered operations with the dependencies *pairs* (before, after)."""
        phase, rows = self.phase[self.order], self.slice[self.order]
        rank, channel = self.slices.rank[rows], self.slices.channel[rows]
        is_calc = phase == _CALC
        acknowledges = (phase == _TELL) | (phase == _HEAR)
        tag = channel + LINK_TAG * self.link[self.order] + acknowledges * ACKNOWLEDGE_TAG
        before, after = (np.concatenate(ends) for ends in zip(*pairs, strict=True))
        return Schedule(
            ranks=ranks,
            kind=np.array([RECV, CALC, SEND, RECV, SEND], dtype=np.int8)[phase],
            rank=rank,
            size=self.size[self.order],
            peer=self.peer[self.order],
            tag=np.where(is_calc, 0, tag),
            cpu=channel,
            nic=np.where(is_calc, 0, nic_of_rank[rank]),
            before=before,
            after=after,
            on_start=np.zeros(len(before), dtype=np.bool_),
            scale_out=leaves[self.order],
            step=self.slices.step[rows],
            reduces=None if self.slices.reduces is None else self.slices.reduces[rows],
        )
