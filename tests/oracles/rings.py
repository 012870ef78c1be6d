"""An event simulation of rings, as measured and published; its times were written down before our code existed.

It is floating point, keeps links and FIFO credits as events in time, and knows nothing of graphs.
"""

import heapq
from collections import defaultdict
from itertools import islice, pairwise

COST = {
    "SEND": (1090, 48.7),
    "RECV_REDUCE_SEND": (1770, 36.9),
    "RECV_REDUCE_COPY_SEND": (2270, 23.0),
    "RECV_COPY_SEND": (1060, 27.5),
    "RECV": (930, 46.7),
}
"""Least time in ns and bytes per ns of the work on one slice."""

CHUNK = 524_288  # elements of 4 bytes


def cost(primitive: str, size: int) -> float:
    least, rate = COST[primitive]
    return max(least, size / rate)


def up(x: int, multiple: int) -> int:
    return -(-x // multiple) * multiple


def parts(elements: int, channels: int) -> list[int]:
    """Elements of every channel: equal parts of whole 4096 bytes, the last takes the rest."""
    bounds = [*range(0, elements, up(-(-elements // channels), 1024)), elements]
    return [b - a for a, b in pairwise(bounds)]


def program(index: int, n: int, elements: int, grain: int, keep_empty: bool) -> list[tuple[str, int]]:
    """Primitives of a ring index with the bytes of their slices, two for each chunk."""
    steps = [("SEND", index - 1)]
    steps += [("RECV_REDUCE_SEND", index - j) for j in range(2, n)]
    steps += [("RECV_REDUCE_COPY_SEND", index)]
    steps += [("RECV_COPY_SEND", index - j) for j in range(1, n - 1)]
    steps += [("RECV", index + 1)]
    found = []
    for start in range(0, elements, n * CHUNK):
        rest = elements - start
        chunk = CHUNK if rest >= n * CHUNK else up(-(-rest // n), grain)
        for primitive, number in steps:
            length = min(max(rest - number % n * chunk, 0), chunk)
            first = min(max(up(length, 32) // 2, 8192), length)
            found += [(primitive, 4 * size) for size in (first, length - first) if size or keep_empty]
    return found


class Simulation:
    """Rings of *n* ranks on nodes of *k*; slices that end together are handled by channel and ring position."""

    def __init__(self, n: int, k: int, size: int, channels: int, grain: int = 1024, keep_empty: bool = True,
                 slots: int = 4, rotate: bool = True, one_nic: bool = False) -> None:  # fmt: skip
        self.n, self.k, self.slots, self.one_nic = n, k, slots, one_nic
        ring_parts = parts(size // 4, channels)
        self.ring = [
            [a + (b + c * rotate) % k for a in range(0, n, k) for b in range(k)] for c in range(len(ring_parts))
        ]
        self.left = {
            (c, i): iter(program(i, n, elements, grain, keep_empty))
            for c, elements in enumerate(ring_parts)
            for i in range(n)
        }
        self.now = {at: next(todo, None) for at, todo in self.left.items()}
        self.end = dict.fromkeys(self.now, 0.0)
        self.sent = dict.fromkeys(self.now, 0)
        self.arrived: dict[tuple[int, int], list[float]] = defaultdict(list)
        self.consumed: dict[tuple[int, int], list[float]] = defaultdict(list)
        self.link_free: dict[tuple[str, int], float] = defaultdict(float)
        self.heap: list[tuple[float, int, int]] = []
        self.running: set[tuple[int, int]] = set()
        for at in self.now:
            self.start(at)
        while self.heap:
            self.finish()
        assert not any(self.now.values()), "deadlock"

    def start(self, at: tuple[int, int]) -> None:
        """Start the next slice of a program if all it waits for is known."""
        slice_ = self.now[at]
        if slice_ is None or at in self.running:
            return
        primitive, size = slice_
        waits = [self.end[at]]
        if primitive != "SEND":
            waits += islice(self.arrived[at], len(self.consumed[at]), len(self.consumed[at]) + 1)
        if primitive != "RECV" and self.sent[at] >= self.slots:
            freed = self.sent[at] - self.slots
            waits += islice(self.consumed[self.following(at)], freed, freed + 1)
        if len(waits) == 1 + (primitive != "SEND") + (primitive != "RECV" and self.sent[at] >= self.slots):
            self.running.add(at)
            heapq.heappush(self.heap, (max(waits) + cost(primitive, size), *at))

    def following(self, at: tuple[int, int]) -> tuple[int, int]:
        return at[0], (at[1] + 1) % self.n

    def finish(self) -> None:
        """End a slice: free its slot, put it on the link, and start what waited."""
        end, *where = heapq.heappop(self.heap)
        at = where[0], where[1]
        primitive, size = self.now[at] or ("", 0)
        self.running.remove(at)
        self.now[at], self.end[at] = next(self.left[at], None), end
        if primitive != "SEND":
            self.consumed[at].append(end)
        if primitive != "RECV":
            self.sent[at] += 1
            rank, peer = self.ring[at[0]][at[1]], self.ring[at[0]][self.following(at)[1]]
            leaves = rank // self.k != peer // self.k
            key = ("nic", rank // self.k if self.one_nic else rank) if leaves else ("up", rank)
            latency, rate = (5000, 25.0) if leaves else (1000, 150.0)
            self.link_free[key] = max(end, self.link_free[key]) + size / rate
            self.arrived[self.following(at)].append(self.link_free[key] + latency)
        for one in (at, self.following(at), (at[0], (at[1] - 1) % self.n)):
            self.start(one)

    @property
    def ns(self) -> float:
        return max(self.end.values())
