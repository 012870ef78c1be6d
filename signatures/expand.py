"""From a signature to a GOAL schedule: messages, calcs, program order and FIFO credits.

For slice t of one (rank, channel), with receive R_t, reduce/copy K_t and send S_t::

    R_t -> K_t -> S_t          what the slice does
    K_(t-1) -> K_t             one thread block runs a channel strictly in order
    K_u -> R_t                 u: the receiving slice D receives earlier (the FIFO slot is free again)
    S_v -> K_t                 v: the sending slice D sends earlier, network hops only (local send buffer)

Empty slices are left out.  Source: ``device/prims_simple.h`` genericOp, waitPeer, postPeer;
``transport/net.cc`` sendProxyProgress, recvProxyProgress (NCCL 2.20.5).

Credits ``local`` are the edges above: they delay nobody across the network.  With ``acknowledged`` each freed slot
is told to the sender by a 0-byte message before it may send the D-th next slice, which limits a connection
to D slices per round trip, as NCCL's clear-to-send does.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from atlas_lp.errors import UnsupportedError
from atlas_lp.goal.schedule import CALC, RECV, SEND, Schedule
from atlas_lp.signatures.costs import reduce_copy_ns
from atlas_lp.signatures.ring import PRIMITIVES, ring_steps
from atlas_lp.signatures.signature import Signature
from atlas_lp.signatures.splits import ceil_div

Ints = NDArray[np.int64]

MODEL_VERSION = "1"
"""Changes whenever any rule changes that alters the graph of some signature; part of every cache key."""

MAX_OPERATIONS = 60_000_000
"""Operations expanded at most: about 10 GB of columns while the graph is built."""

_ACK_TAG = 1 << 16


def operation_count(signature: Signature) -> int:
    """Upper estimate of the operations of the schedule, without expanding it."""
    n = signature.ranks
    total = 0
    for part in signature.parts:
        chunk = signature.chunk_bytes // signature.element_bytes
        if signature.collective == "AllReduce":
            slices, primitives = ceil_div(part.count, n * chunk) * signature.slices, 2 * n - 1
        elif signature.collective in ("AllGather", "ReduceScatter"):
            slices, primitives = ceil_div(part.count, chunk) * signature.slices, n
        else:
            slices, primitives = ceil_div(part.count, chunk) * signature.slices, 1
        total += 3 * n * slices * primitives
    return total


def expand(signature: Signature, reduce_copy: str = "gh200", credits: str = "local") -> Schedule:
    """Expand *signature* into its schedule; GOAL ranks are its labels, cpus its channels.

    Operations of a rank stand in the order (step, channel), which is also the issue order of its port.

    Raises :class:`~atlas_lp.errors.UnsupportedError` above :data:`MAX_OPERATIONS`.
    """
    estimate = operation_count(signature)
    if estimate > MAX_OPERATIONS:
        raise UnsupportedError(
            f"{signature.collective} on {signature.ranks} ranks expands to about {estimate:.2g} operations; "
            f"the limit is {MAX_OPERATIONS:.2g}"
        )
    rows = _Rows(signature, reduce_copy)
    return rows.schedule(credits)


class _Rows:
    """One row per slice of every (rank, channel), sorted by (rank, step, channel)."""

    def __init__(self, signature: Signature, reduce_copy: str) -> None:
        self.signature = signature
        columns = [self._channel(part_number, reduce_copy) for part_number in range(signature.channels)]
        stacked = np.concatenate(columns, axis=1)
        stacked = stacked[:, np.lexsort((stacked[2], stacked[1], stacked[0]))]
        self.rank, self.step, self.part, self.primitive, self.wire, self.cost, self.next, self.prev = stacked
        self.receives = np.array([p.receives for p in PRIMITIVES])[self.primitive]
        self.sends = np.array([p.sends for p in PRIMITIVES])[self.primitive]
        self.channel = np.array([part.channel for part in signature.parts])[self.part]
        nodes = np.array(signature.nodes)
        self.to_network = nodes[self.rank] != nodes[self.next]

    def _channel(self, part_number: int, reduce_copy: str) -> Ints:
        signature = self.signature
        part = signature.parts[part_number]
        ring = np.array(signature.rings[part.ring])
        steps = ring_steps(signature, part)
        data = steps.elements * signature.element_bytes
        cost = np.zeros_like(data)
        for number in np.unique(steps.primitive).tolist():
            mine = steps.primitive == number
            cost[mine] = reduce_copy_ns(PRIMITIVES[number], signature.protocol, data[mine], reduce_copy)
        return np.stack(
            [
                ring[steps.index],
                steps.step,
                np.full(len(data), part_number),
                steps.primitive,
                signature.protocol.wire_bytes(data),
                cost,
                ring[(steps.index + 1) % signature.ranks],
                ring[steps.index - 1],
            ]
        )

    def _earlier(self, selected: NDArray[np.bool_], distance: int) -> tuple[Ints, Ints]:
        """Pairs (row, row *distance* selected rows before it) within one (rank, channel)."""
        rows = np.flatnonzero(selected)
        rows = rows[np.lexsort((self.step[rows], self.part[rows], self.rank[rows]))]
        later, earlier = rows[distance:], rows[: len(rows) - distance]
        same = (self.rank[later] == self.rank[earlier]) & (self.part[later] == self.part[earlier])
        return later[same], earlier[same]

    def schedule(self, credits: str) -> Schedule:
        """Lay the operations of each row out as R, K, acknowledge, await acknowledgement, S."""
        everything = np.ones(len(self.rank), dtype=bool)
        depth = self.signature.fifo_slices
        tells, told = np.zeros_like(everything), np.zeros_like(everything)
        freed, slot_of = self._earlier(self.receives, depth)
        reused, buffer_of = self._earlier(self.sends, depth)
        if credits == "acknowledged":
            tells[slot_of], told[reused] = True, True
        present = np.stack([self.receives, everything, tells, told, self.sends], axis=1)
        number = (np.cumsum(present) - 1).reshape(present.shape)
        recv, calc, tell, hear, send = number.T

        later, earlier = self._earlier(everything, 1)
        pairs = [
            (recv[self.receives], calc[self.receives]),
            (calc[earlier], calc[later]),
            (calc[self.sends], send[self.sends]),
        ]
        if credits != "none":
            network = self.to_network[reused]
            pairs.append((calc[slot_of], recv[freed]))
            pairs.append((send[buffer_of][network], calc[reused][network]))
        pairs += [(calc[tells], tell[tells]), (hear[told], send[told])]
        before, after = (np.concatenate(ends) for ends in zip(*pairs, strict=True))
        return self._columns(present, before, after)

    def _columns(self, present: NDArray[np.bool_], before: Ints, after: Ints) -> Schedule:
        row, slot = np.nonzero(present)
        kind = np.array([RECV, CALC, SEND, RECV, SEND], dtype=np.int8)[slot]
        zero = np.zeros(len(self.rank), dtype=np.int64)
        size = np.stack([self.wire, self.cost, zero, zero, self.wire], axis=1)[row, slot]
        peer = np.stack([self.prev, zero - 1, self.prev, self.next, self.next], axis=1)[row, slot]
        acknowledges = (slot == 2) | (slot == 3)
        return Schedule(
            ranks=self.signature.ranks,
            kind=kind,
            rank=self.rank[row],
            size=size,
            peer=peer,
            tag=np.where(kind == CALC, 0, self.channel[row] + acknowledges * _ACK_TAG),
            cpu=self.channel[row],
            nic=np.where(kind == CALC, 0, np.array(self.signature.nics)[self.rank[row]]),
            before=before,
            after=after,
            on_start=np.zeros(len(before), dtype=np.bool_),
        )
