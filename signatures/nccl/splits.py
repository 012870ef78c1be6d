"""How NCCL spreads the bytes of operations over channels: the rules of 2.19, of 2.20 and of 2.22 and newer.

Source: NVIDIA/nccl ``device/all_reduce.h`` runRing and its siblings (2.19), ``enqueue.cc`` scheduleCollTasksToPlan and
addCBDCollToPlan (2.20), ncclCollCbdPart (2.22 and newer).  Small payloads use fewer channels than were chosen: never
divide by their number.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from atlas_lp.errors import UnsupportedError
from atlas_lp.signatures.nccl.protocols import Protocol
from atlas_lp.signatures.nccl.versions import number_of

Ints = NDArray[np.int64]

PartList = list[tuple[int, int]]
"""Parts of one operation as (channel, count in work units)."""


@dataclass(frozen=True)
class Task:
    """One operation to split: *count* work units of *element_bytes* each, over *channels* chosen channels."""

    collective: str
    protocol: Protocol
    count: int
    element_bytes: int
    channels: int
    threads: int


def ceil_div(a: int, b: int) -> int:
    """Ceiling division."""
    return -(-a // b)


def round_up(x: int, a: int) -> int:
    """*x* rounded up to a multiple of *a*."""
    return ceil_div(x, a) * a


def alignment_220(task: Task) -> int:
    """Elements that NCCL 2.20 rounds parts and last chunks to."""
    if task.protocol is Protocol.SIMPLE:
        return max(1, 4096 // task.element_bytes)
    if task.protocol is Protocol.LL:
        return max(1, 8 // task.element_bytes) * task.threads
    return max(1, 480 // task.element_bytes) * (task.threads // 32)


def interleaved_lengths(task: Task, chunk: int, chunks: int, channel: int) -> Iterator[Ints]:
    """Lengths of the *chunks* chunks that one *channel* takes in each loop of 2.19 and older.

    A loop covers ``channels x chunks x chunk`` work units; the last one shrinks its chunks to a whole number of
    thread grains.  *chunks* is the number of ranks for AllReduce, else 1.
    """
    share = task.channels * chunks
    grain = _grain_219(task)
    place = np.arange(chunks, dtype=np.int64)
    simple = task.protocol is Protocol.SIMPLE
    place = channel * chunks + place if simple else place * task.channels + channel
    for done in range(0, task.count, share * chunk):
        left = task.count - done
        if simple:
            length = round_up(min(chunk, ceil_div(left, share)), grain)
        else:
            length = min(chunk, round_up(ceil_div(left, share), grain))
        lengths: Ints = np.clip(left - place * length, 0, length)
        if lengths.any():
            yield lengths


def _grain_219(task: Task) -> int:
    """Elements that NCCL 2.19 rounds the chunks of the last loop to."""
    if task.protocol is Protocol.SIMPLE:
        return max(1, (task.threads - 32) * 8 // task.element_bytes)
    return max(1, (8 if task.protocol is Protocol.LL else 30) * task.threads // task.element_bytes)


def interleaved_parts(task: Task, chunk: int, chunks: int) -> PartList:
    """What each channel carries in all loops of :func:`interleaved_lengths` together."""
    counts = [
        sum(int(lengths.sum()) for lengths in interleaved_lengths(task, chunk, chunks, channel))
        for channel in range(task.channels)
    ]
    return [(channel, count) for channel, count in enumerate(counts) if count]


def split(rule: str, tasks: list[Task], channels: int, ranks: int) -> list[PartList]:
    """Split the operations of one group over the *channels* of a communicator of *ranks* ranks.

    Raises :class:`~atlas_lp.errors.UnsupportedError` where the 2.22 rule names a channel that does not exist.
    """
    if rule == "2.20":
        return _split_220(tasks, channels)
    parts = _split_222(rule, tasks, channels, ranks)
    highest = max((channel for part in parts for channel, _ in part), default=0)
    if highest >= channels:
        raise UnsupportedError(
            f"the channel split of NCCL 2.22 names channel {highest} of {channels} for this size; "
            "its behaviour there is unknown"
        )
    return parts


def _split_220(tasks: list[Task], channels: int) -> list[PartList]:
    usable = min(channels, sum(task.channels for task in tasks))
    limit = round_up(ceil_div(sum(t.count * t.element_bytes for t in tasks), usable), 16)
    used = [0] * usable
    result = []
    for task in tasks:
        left, parts = task.count, []
        for channel in range(usable):
            if used[channel] >= limit:
                continue
            if left == 0:
                break
            wanted = min(limit - used[channel], left * task.element_bytes)
            count = min(round_up(ceil_div(wanted, task.element_bytes), alignment_220(task)), left)
            parts.append((channel, count))
            used[channel] += count * task.element_bytes
            left -= count
        result.append(parts)
    return result


def _traffic_factor(rule: str, task: Task, ranks: int) -> int:
    """Bytes of traffic per byte of the operation, as NCCL counts it when it balances channels."""
    factor = {"AllReduce": 2, "AllGather": ranks, "ReduceScatter": ranks}.get(task.collective, 1)
    if task.protocol is Protocol.LL and number_of(rule) >= (2, 26):
        factor *= 4
    return factor


def _split_222(rule: str, tasks: list[Task], channels: int, ranks: int) -> list[PartList]:
    """Continuous byte distribution: countLo / countMid / countHi of every operation."""
    version = number_of(rule)
    least = 512 if version < (2, 23) else 16_384 if version < (2, 29) else 32_768
    factors = [_traffic_factor(rule, task, ranks) for task in tasks]
    total = 0
    for task, factor in zip(tasks, factors, strict=True):
        traffic = task.count * task.element_bytes * factor
        total += traffic if version < (2, 23) else max(least, traffic)
    chosen = min(sum(task.channels for task in tasks), channels)
    per_channel = max(least, total // chosen) if version < (2, 29) else round_up(total // chosen, 16)
    channel, here, result = 0, 0, []
    for task, factor in zip(tasks, factors, strict=True):
        cell = 16 if version < (2, 23) else round_up(ceil_div(least, factor), 16)
        parts, channel, here = _place(task, factor, cell, per_channel, channel, here, channels, version)
        result.append(parts)
    return result


def _place(
    task: Task,
    factor: int,
    cell: int,
    per_channel: int,
    channel: int,
    here: int,
    channels: int,
    version: tuple[int, ...],
) -> tuple[PartList, int, int]:
    """Place one operation from *channel* on, where *here* traffic already sits; return the next state."""
    element = task.element_bytes
    cell_elements, cell_traffic = cell // element, cell * factor
    cells = ceil_div(task.count * element, cell)
    per_middle = min(cells, ceil_div(per_channel, cell_traffic))
    if channel + 1 == channels:
        low = cells
    elif version < (2, 23):
        low = min(cells, (per_channel - here) // cell_traffic)
    else:
        low = min(cells, ceil_div(per_channel - here, cell_traffic))
    middle, high = divmod(cells - low, per_middle)
    if channels < channel + (low > 0) + middle + (high > 0):
        middle = channels - channel - 2
        per_middle = (cells - low) // (middle + 1)
        high = per_middle + (cells - low) % (middle + 1)
    if high == 0 and middle > 0:
        high, middle = per_middle, middle - 1
    if low == 0:
        channel += 1
        if middle == 0:
            low, high = high, 0
        else:
            low, middle = per_middle, middle - 1
    counts = [low * cell_elements, *[per_middle * cell_elements] * middle]
    if high > 0:
        counts.append(high * cell_elements)
    counts[-1] -= cells * cell_elements - task.count
    parts = [(channel + i, count) for i, count in enumerate(counts)]
    exact = version >= (2, 23)
    if high > 0:
        channel += middle + 1
        here = (high * cell_elements if exact else counts[-1]) * element * factor
    else:
        here += (low * cell_elements if exact else counts[0]) * element * factor
    if here >= per_channel and channel + 1 != channels:
        channel, here = channel + 1, 0
    return parts, channel, here
