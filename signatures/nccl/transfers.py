"""Point-to-point messages as NCCL plans them: rounds of peers, channels, parts and chunks.

Grouped Send and Recv, AllToAll, AllToAllv, Gather and Scatter are all planned this way.  NCCL walks the peers of a rank
in rounds; in one round it sends to a peer some distance away and receives from the one at that distance behind.

Source: NVIDIA/nccl ``enqueue.cc`` scheduleP2pTasksToPlan, addP2pToPlan, calcP2pChunkSize; ``include/channel.h``
ncclP2pChannelBaseForRound; ``include/device.h`` ncclP2pPartBounds, ncclP2pChannelForPart; ``init.cc`` ncclP2pSchedule
and the end of initTransportsRank (2.20, 2.22 .. 2.30).
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]

FLAT_RULES = ("2.22", "2.28.3")
"""Rules that count distances of ranks, not of nodes, where nodes have unequal sizes."""

BATCH_ROUNDS = 8
"""Consecutive rounds whose sends and receives run at the same time on one channel."""

_LL_STEP_WIRE, LL_CHUNK = 65_536, 32_768
_LL_THRESHOLD = 16_384


@dataclass(frozen=True)
class Transfers:
    """The messages of a group of Send and Recv calls, and what decides how they are cut.

    ``channels`` is P and ``per_peer`` Q, NCCL's p2p channels and p2p channels per peer (powers of two);
    ``chunk_bytes`` its p2p chunk; ``peers`` and ``nodes`` the size of the communicator, whose idle ranks are left out.
    Per message: labels of ``source`` and ``destination``, ``size_bytes``, ``round`` and ``base`` of its channels.
    All five are empty for an AllToAll of equal messages, which ``equal_bytes`` then gives.
    """

    rule: str
    channels: int
    per_peer: int
    chunk_bytes: int
    peers: int
    nodes: int
    equal_bytes: int = 0
    source: tuple[int, ...] = ()
    destination: tuple[int, ...] = ()
    size_bytes: tuple[int, ...] = ()
    round: tuple[int, ...] = ()
    base: tuple[int, ...] = ()

    def canonical(self) -> dict[str, object]:
        """Return the fields as plain values, the columns of messages as one digest."""
        values = dict(self.__dict__)
        columns = [values.pop(name) for name in ("source", "destination", "size_bytes", "round", "base")]
        rows = np.array(columns, dtype="<i8").tobytes()
        return {**values, "messages": len(self.source), "digest": hashlib.sha256(rows).hexdigest()}


@dataclass(frozen=True)
class Rounds:
    """Round and channel base of every pair of ranks of one communicator, found from their places in it.

    ``group`` and ``place`` give the node (or scheduling group) of a rank and its place there; a round is
    ``group_round[distance of groups] * width + place_round[distance of places]``.  ``spread`` is the number of rounds
    that share a set of channels: the GPUs of a node (at most), or a scheduling group.
    """

    rule: str
    group: Ints
    place: Ints
    group_round: Ints
    place_round: Ints
    nodes: int
    spread: int

    @property
    def width(self) -> int:
        """Rounds per distance of groups."""
        return len(self.place_round)

    def of(self, source: Ints, destination: Ints) -> tuple[Ints, Ints]:
        """Return round and channel base of messages between ranks."""
        groups = (self.group[destination] - self.group[source]) % len(self.group_round)
        places = (self.place[destination] - self.place[source]) % self.width
        number = self.group_round[groups] * self.width + self.place_round[places]
        if self.rule == "2.20":
            return number, groups + places // 8 if self.nodes > 1 else places
        if self.nodes == 1:
            return number, number & 255
        return number, number // self.spread * -(-self.spread // 8) + number % self.spread // 8


def peer_rounds(rule: str, nodes: Ints) -> Rounds:
    """Return the rounds of a communicator whose ranks, in order, sit on *nodes* (numbered from 0).

    Between nodes of unequal size, 2.22 to 2.28.3 walk over all ranks as if they shared one node.
    """
    sizes = np.bincount(nodes)
    largest = int(sizes.max())
    local = np.empty_like(nodes)
    for node in range(len(sizes)):
        local[nodes == node] = np.arange(sizes[node])
    if rule == "2.20":
        width = _padded(largest)
        return Rounds(rule, nodes, local, _order_220(len(sizes)), np.arange(width), len(sizes), largest)
    if rule in FLAT_RULES and is_uneven(nodes):
        places = _quadratic_order(len(nodes))
        return Rounds(rule, 0 * nodes, np.arange(len(nodes)), _inverse([0], 1), places, len(sizes), largest)
    if rule in FLAT_RULES:
        places = _quadratic_order(largest)
        return Rounds(rule, nodes, local, _quadratic_order(len(sizes)), places, len(sizes), largest)
    width = int(sizes[0]) if len(sizes) == 1 else math.gcd(8, *sizes.tolist())
    at = (np.cumsum(sizes) - sizes)[nodes] + local
    order = _quadratic_order(len(nodes) // width)
    return Rounds(rule, at // width, at % width, order, np.arange(width), len(sizes), width)


def is_uneven(nodes: Ints) -> bool:
    """Whether the *nodes* of ranks have unequally many of them."""
    return len(set(np.bincount(nodes).tolist())) > 1


def _padded(local: int) -> int:
    """Local ranks as 2.20 pads them: 1, 2, 4, 8 or a multiple of 8."""
    return -(-local // 8) * 8 if local > 8 else 1 << (local - 1).bit_length()


def _order_220(nodes: int) -> Ints:
    """Round number of every distance of nodes in 2.20: near ones first, from both ends and from the middle."""
    order: list[int] = []
    for distance in range(nodes // 4 + 1):
        middle = nodes // 2 - distance
        order += [value % nodes for value in (distance, nodes - distance, middle, nodes - middle)]
    return _inverse(list(dict.fromkeys(order)), nodes)


def _quadratic_order(count: int) -> Ints:
    """Round number of every distance since 2.22: 0, 1, 3, 6, 10, .. modulo a power of two."""
    modulus = 1 << (count - 1).bit_length()
    deltas = [j * (j + 1) // 2 % modulus for j in range(modulus)]
    return _inverse([delta for delta in deltas if delta < count], count)


def _inverse(order: list[int], count: int) -> Ints:
    place = np.full(count, -1, dtype=np.int64)
    place[order] = np.arange(len(order))
    return place


@dataclass(frozen=True)
class Parts:
    """Parts of messages: ``message`` it belongs to, ``number`` within it, ``bytes``, ``chunk`` and whether it is LL."""

    message: Ints
    number: Ints
    bytes: Ints
    chunk: Ints
    ll: NDArray[np.bool_]


def cut_parts(transfers: Transfers, size_bytes: Ints, network: NDArray[np.bool_]) -> Parts:
    """Cut messages of *size_bytes* into parts; *network* says which leave their node.

    A message of 0 bytes is one empty part; LL runs inside a node only (network connections have no LL buffers unless
    asked for).
    """
    old = transfers.rule == "2.20"
    per_peer = transfers.per_peer
    while per_peer > 1 and per_peer * transfers.peers > transfers.channels:
        per_peer //= 2
    counted_ll = ~network & (size_bytes <= transfers.per_peer * _LL_THRESHOLD) & (not old)
    step = np.where(counted_ll & (transfers.rule != "2.29"), _LL_STEP_WIRE, transfers.chunk_bytes)
    low = step // (2 if transfers.nodes > 1 else 8)
    high = step * (1 if transfers.nodes > 1 else 32)
    used = np.full_like(size_bytes, per_peer)
    if not old:
        used = np.clip(-(-size_bytes // low), 1, per_peer)
    size = np.maximum(low, -(-size_bytes // used))
    while (more := (size > high) & (used <= transfers.per_peer // 2)).any():
        used = np.where(more, 2 * used, used)
        size = np.where(more, -(-size_bytes // used), size)
    grain = low if old else 4096
    size = np.maximum(-(-(size if old else -(-size_bytes // used)) // grain) * grain, 1)
    count = np.maximum(-(-size_bytes // size), 1)
    message = np.repeat(np.arange(len(size_bytes)), count)
    number = np.arange(len(message)) - np.repeat(np.cumsum(count) - count, count)
    part = np.minimum(size[message], size_bytes[message] - number * size[message])
    if old:
        ll = ~network[message] & (part <= _LL_THRESHOLD)
    elif transfers.rule == "2.29":
        ll = (~network & (size_bytes <= used * _LL_THRESHOLD))[message]
    else:
        ll = counted_ll[message]
    tested = part if old else size_bytes[message]
    chunk = np.full_like(part, transfers.chunk_bytes)
    short = tested < transfers.chunk_bytes
    chunk = np.where(network[message] & (tested < 8 * transfers.chunk_bytes), chunk // np.where(short, 4, 2), chunk)
    return Parts(message, number, part, np.where(ll, LL_CHUNK, chunk), ll)


def channel_of_part(transfers: Transfers, base: Ints, number: Ints) -> Ints:
    """Channel of part *number* of messages whose channels start at *base*."""
    channels = transfers.channels
    if transfers.rule == "2.22":
        return (base + _reversed(number, channels)) % channels
    return (_reversed(base % channels, channels) + number) % channels


def _reversed(values: Ints, channels: int) -> Ints:
    """Bits of *values* in reverse order, in as many bits as number *channels*."""
    result = np.zeros_like(values)
    for bit in range(channels.bit_length() - 1):
        result = (result << 1) | ((values >> bit) & 1)
    return result
