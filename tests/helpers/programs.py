"""Synthetic jobs with a schedule that several rooms look at: slack, a straggler, overlap, random collectives."""

import random

from helpers.jobs import COMMUNICATOR, SIMPLE, processes, write

MS = 1_000_000


def all_reduce(process, start, end, call, size=16 << 20):
    process.collective(
        "AllReduce",
        size_bytes=size,
        communicator=COMMUNICATOR,
        stream=17,
        start_ns=start,
        end_ns=end,
        channels=2,
        threads=SIMPLE,
        reduction="Sum",
        call_ns=call,
    )


def overlapped_gradients(folder, *, measured=1 * MS, events=True):
    """Two gradients of 5 ms each, reduced on their own stream while the next is computed, then the optimizer.

    The host called everything in the first 0.4 ms.  The first reduction took *measured*, so 5 ms - *measured* of slack
    lie between it and the second, which waited for the second gradient.
    """
    exports, ranks = processes(2, 1)
    for process in ranks:
        at = 1 * MS
        process.kernel("gradient 1", stream=7, start_ns=at, end_ns=at + 5 * MS, call_ns=at - 100_000)
        first = process.record_event(7, call_ns=at - 90_000) if events else None
        process.kernel("gradient 2", stream=7, start_ns=at + 5 * MS, end_ns=at + 10 * MS, call_ns=at - 80_000)
        second = process.record_event(7, call_ns=at - 70_000) if events else None
        if events:
            process.wait_event(first, 17, call_ns=at + 100_000)
        all_reduce(process, at + 5 * MS, at + 5 * MS + measured, at + 110_000)
        if events:
            process.wait_event(second, 17, call_ns=at + 200_000)
        all_reduce(process, at + 10 * MS, at + 10 * MS + measured, at + 210_000)
        if events:
            reduced = process.record_event(17, call_ns=at + 300_000)
            process.wait_event(reduced, 7, call_ns=at + 310_000)
        start = at + 10 * MS + measured
        process.kernel("optimizer", stream=7, start_ns=start, end_ns=start + 2 * MS, call_ns=at + 320_000)
    write(exports, folder)


PAIR_A, PAIR_B = COMMUNICATOR + 1, COMMUNICATOR + 2


def straggler(folder, late_ns):
    """All four ranks reduce, then the pairs (0, 1) and (2, 3) for themselves, then all; rank 3 is late once.

    Ranks 0 and 1 compute 1 ms longer than 2 and 3 before the last reduction, so of rank 3's lateness 1 ms is slack.
    """
    exports, ranks = processes(4, 1)
    for number, process in enumerate(ranks):
        process.init_communicator(PAIR_A if number < 2 else PAIR_B, ranks=2, rank=number % 2, at_ns=2_000)

    def reduce(members, identity, start, end):
        for rank in members:
            ranks[rank].collective(
                "AllReduce",
                size_bytes=8 << 20,
                communicator=identity,
                stream=17,
                start_ns=start[rank],
                end_ns=end,
                channels=2,
                threads=SIMPLE,
                reduction="Sum",
            )

    begin = [2 * MS] * 4
    reduce(range(4), COMMUNICATOR, begin, 4 * MS)
    pairs = [4 * MS, 4 * MS, 4 * MS, 4 * MS + late_ns]
    reduce((0, 1), PAIR_A, pairs, 5 * MS)
    reduce((2, 3), PAIR_B, pairs, 5 * MS + late_ns)
    last = [7 * MS, 7 * MS, 6 * MS + late_ns, 6 * MS + late_ns]
    reduce(range(4), COMMUNICATOR, last, max(last) + 2 * MS)
    for process in ranks:
        process.kernel("work", stream=7, start_ns=1 * MS, end_ns=2 * MS)
    write(exports, folder)


def overlapping(folder):
    """Two large reductions at once on two streams: in the graph of all messages they share their NICs."""
    exports, ranks = processes(2, 1)
    for process in ranks:
        for stream in (1, 2):
            process.collective(
                "AllReduce",
                size_bytes=64 << 20,
                communicator=COMMUNICATOR,
                stream=stream,
                start_ns=3_000_000 + stream,
                end_ns=9_000_000 + stream,
                channels=4,
                threads=SIMPLE,
                reduction="Sum",
            )
    write(exports, folder)


EVERY_RANK = ("AllReduce", "AllGather", "ReduceScatter")


def random_collectives(folder, seed, kinds, *, uneven, nodes=16, gpus_per_node=4, count=20, channels=2, sizes=None):
    """Random collectives, up to 0.1 ms of compute before each, the same for all GPUs or not."""
    draw = random.Random(seed)
    exports, ranks = processes(nodes, gpus_per_node)
    now = 1_000_000
    for _ in range(count):
        kind = draw.choice(kinds)
        size = draw.randrange(*sizes) if sizes else draw.choice((256 << 10, 1 << 20, 4 << 20))
        size //= len(ranks) if kind in ("AllGather", "ReduceScatter") else 1
        common = draw.randrange(100_000)
        gaps = [draw.randrange(100_000) if uneven else common for _ in ranks]
        end = now + max(gaps) + 5_000_000
        for process, gap in zip(ranks, gaps, strict=True):
            process.kernel("work", stream=7, start_ns=now, end_ns=now + gap)
            process.collective(
                kind,
                size_bytes=size,
                communicator=COMMUNICATOR,
                stream=17,
                start_ns=now + gap,
                end_ns=end,
                channels=channels,
                threads=SIMPLE,
            )
        now = end
    write(exports, folder)
