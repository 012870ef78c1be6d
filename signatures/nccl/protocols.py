"""Buffers, steps, chunks and slices of the NCCL protocols (NCCL 2.19 .. 2.30, default buffer sizes).

Source: NVIDIA/nccl ``init.cc`` computeBuffSizes, ``include/device.h``, ``include/collectives.h``,
``device/prims_simple.h`` genericOp.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]

STEPS = 8
"""Slots of the FIFO of one connection (``NCCL_STEPS``)."""


class Protocol(Enum):
    """How data and flags share the wire."""

    SIMPLE = "simple"
    LL = "ll"
    LL128 = "ll128"

    @property
    def step_bytes(self) -> int:
        """Data bytes of one FIFO step: 4 MiB / 8; half of 64 KiB; 120/128 of 600 KiB."""
        return {Protocol.SIMPLE: 524_288, Protocol.LL: 32_768, Protocol.LL128: 576_000}[self]

    @property
    def default_threads(self) -> int:
        """Threads per block that NCCL 2.20 starts from for a ring (they round parts in 2.20 and 2.21)."""
        return {Protocol.SIMPLE: 544, Protocol.LL: 512, Protocol.LL128: 640}[self]

    def wire_bytes(self, data_bytes: Ints) -> Ints:
        """Bytes on the wire of messages of *data_bytes*: LL doubles lines of 8 B, LL128 adds 8 B to 120."""
        if self is Protocol.LL:
            return 16 * -(-data_bytes // 8)
        if self is Protocol.LL128:
            return 2048 * -(-data_bytes // 1920)
        return data_bytes


@dataclass(frozen=True)
class Chunking:
    """How one channel's part is cut: a chunk is at most *slices* slices; the FIFO holds *fifo_slices*."""

    chunk_bytes: int
    slices: int
    fifo_slices: int

    @property
    def smallest_slice_bytes(self) -> int:
        """Slices are not made smaller than this while a chunk has more than one (step * sliceSteps / 32)."""
        return Protocol.SIMPLE.step_bytes * (STEPS // self.fifo_slices) // 32


def ring_chunking(collective: str, protocol: Protocol) -> Chunking:
    """Chunks of a ring: chunkSteps / sliceSteps are 4 / 2 for Simple, except Broadcast and Reduce (1 / 1)."""
    if protocol is Protocol.SIMPLE and collective not in ("Broadcast", "Reduce"):
        return Chunking(chunk_bytes=4 * protocol.step_bytes, slices=2, fifo_slices=4)
    return Chunking(chunk_bytes=protocol.step_bytes, slices=1, fifo_slices=8)


def slice_sizes(elements: Ints, protocol: Protocol, chunking: Chunking, element_bytes: int) -> Ints:
    """Cut primitives of *elements* (any shape) into slices: result shape + (slices,), 0 where empty.

    Simple: ``first = max(16 ceil(x / (16 S)), F)`` elements, then pieces of that size.  LL and LL128 do not
    cut a primitive.
    """
    if protocol is not Protocol.SIMPLE:
        return elements[..., None]
    count = chunking.slices
    floor = chunking.smallest_slice_bytes // element_bytes
    first = np.maximum(16 * -(-elements // (16 * count)), floor)
    starts = first[..., None] * np.arange(count)
    pieces: Ints = np.clip(elements[..., None] - starts, 0, first[..., None])
    return pieces
