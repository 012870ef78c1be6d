"""What NCCL can be asked to do: one table of its collectives, and of Send and Recv.

This module is data: a collective is known everywhere, to whoever reads traces as well as to whoever expands schedules,
by the name and the properties given here.

Source: NVIDIA/nccl ``nccl.h`` for the functions, ``enqueue.cc`` taskAppend for what is counted in bytes and what is
carried out as sends and receives (2.18 .. 2.30; ncclAlltoAll, ncclGather and ncclScatter since 2.28).
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Collective:
    """One operation of NCCL.

    ``calls`` are the functions that ask for it.  A ``rooted`` one has a rank that gives or gets everything.  The work
    unit of a ``byte_counted`` one is a byte, whatever its datatype.  No rank leaves a ``synchronising`` one before all
    have arrived, and all end it together, so that clocks can be set by it (the ranks of an AllToAll end apart, peer
    by peer).  ``by_messages`` ones have no kernel of their own: NCCL carries them out as sends and receives.
    ``point_to_point`` ones are one end of a message and no collective at all.
    """

    name: str
    calls: tuple[str, ...]
    rooted: bool = False
    byte_counted: bool = False
    synchronising: bool = False
    by_messages: bool = False
    point_to_point: bool = False


COLLECTIVES = {
    row.name: row
    for row in (
        Collective("AllReduce", ("ncclAllReduce",), synchronising=True),
        Collective("AllGather", ("ncclAllGather",), byte_counted=True, synchronising=True),
        Collective("ReduceScatter", ("ncclReduceScatter",), synchronising=True),
        Collective("Broadcast", ("ncclBroadcast", "ncclBcast"), rooted=True, byte_counted=True),
        Collective("Reduce", ("ncclReduce",), rooted=True),
        Collective("AllToAll", ("ncclAlltoAll",), byte_counted=True, by_messages=True),
        Collective("Gather", ("ncclGather",), rooted=True, byte_counted=True, by_messages=True),
        Collective("Scatter", ("ncclScatter",), rooted=True, byte_counted=True, by_messages=True),
        Collective("Send", ("ncclSend",), byte_counted=True, by_messages=True, point_to_point=True),
        Collective("Recv", ("ncclRecv",), byte_counted=True, by_messages=True, point_to_point=True),
    )
}
"""The table, by name."""

SEND_RECV = "SendRecv"
"""What the sends and receives of one group are called together, here and in the names of NCCL's kernels."""

CALLS = {call: row.name for row in COLLECTIVES.values() for call in row.calls}
"""NCCL functions that move data, and what an operation of theirs is called here."""

WITH_KERNEL = tuple(row.name for row in COLLECTIVES.values() if not row.by_messages)
"""Collectives with a kernel of their own; sizes are those of the NCCL call: bytes sent per rank for AllGather,
received per rank for ReduceScatter, the whole buffer for the others."""

SYNCHRONISING = tuple(row.name for row in COLLECTIVES.values() if row.synchronising)

POINT_TO_POINT = tuple(row.name for row in COLLECTIVES.values() if row.point_to_point)


def known_as(word: str) -> str:
    """Name of what NCCL's logs and plugins, or traces packed by 0.1.0, call *word*; other words stay what they are.

    >>> known_as("AlltoAll"), known_as("Bcast"), known_as("AllReduce"), known_as("SendRecv")
    ('AllToAll', 'Broadcast', 'AllReduce', 'SendRecv')
    """
    return CALLS.get(f"nccl{word}", word)
