"""An event simulation of trees in the style of that of rings: work, links that queue, credits of eight chunks."""

import heapq
from collections import defaultdict
from collections.abc import Sequence

Rows = Sequence[tuple[int, int, int]]

BYTES = 512 << 10
COSTS = {"send": max(1090, BYTES / 48.7), "reduce": max(1770, BYTES / 36.9), "top": max(2270, BYTES / 23)}
COSTS |= {"copy": max(1060, BYTES / 27.5), "receive": max(930, BYTES / 46.7)}


class EventModel:
    """The program of a tree in time, from the moment that nothing waits for anything."""

    def __init__(self, slices: Rows, receives: Rows, sends: Rows, nodes: Sequence[int], shared: bool) -> None:
        """A tree as rows: slices are (rank, chain, step); receives and sends are (slice, peer, link).

        Chain 0 goes up and chain 1 down.
        """
        self.nodes, self.shared = nodes, shared
        rows = [(rank, chain, step) for rank, chain, step in slices]
        self.rank, self.chain, self.step = ([row[i] for row in rows] for i in range(3))
        self.row_of = {key: row for row, key in enumerate(rows)}
        self.receives = {row for row, _, _ in receives}
        self.sends: list[list[tuple[int, int]]] = [[] for _ in rows]
        self.behind: list[list[int]] = [[] for _ in rows]
        self.inputs = [0] * len(rows)
        to = {(self.rank[row], peer, link, self.step[row]): row for row, peer, link in receives}
        for row, peer, link in sends:
            connection, chunk = (peer, self.rank[row], link), self.step[row]
            self.sends[row].append((link, to[*connection, chunk]))
            self.inputs[to[*connection, chunk]] += 1
            if chunk >= 8:
                self._follow(to[*connection, chunk - 8], row)
        for row, (rank, chain, chunk) in enumerate(rows):
            if chunk > 0:
                self._follow(self.row_of[rank, chain, chunk - 1], row)
        self.start, self.end = [0.0] * len(rows), [0.0] * len(rows)
        self.free: dict[object, float] = defaultdict(float)
        self.heap: list[tuple[float, int, int, int]] = []
        for row in [row for row, count in enumerate(self.inputs) if count == 0]:
            self._push(row)
        while self.heap:
            self._finish()
        assert not any(self.inputs)

    def _follow(self, row: int, then: int) -> None:
        self.inputs[then] += 1
        self.behind[row].append(then)

    def _push(self, row: int) -> None:
        heapq.heappush(self.heap, (self.start[row] + self._cost(row), self.chain[row], self.rank[row], row))

    def _cost(self, row: int) -> float:
        if self.chain[row] == 1:
            return COSTS["copy" if self.sends[row] else "receive"]
        if row not in self.receives:
            return COSTS["send"]
        return COSTS["reduce" if (self.rank[row], 1, 0) in self.row_of else "top"]

    def _finish(self) -> None:
        now, _, rank, row = heapq.heappop(self.heap)
        self.end[row] = now
        for _, target in sorted(self.sends[row]):
            inside = self.nodes[rank] == self.nodes[self.rank[target]]
            key = rank if self.shared and not inside else (rank, self.rank[target])
            self.free[key] = max(now, self.free[key]) + BYTES / (150 if inside else 25)
            self._arrive(target, self.free[key] + (1000 if inside else 5000))
        for then in self.behind[row]:
            self._arrive(then, now)

    def _arrive(self, row: int, time: float) -> None:
        self.start[row] = max(self.start[row], time)
        self.inputs[row] -= 1
        if self.inputs[row] == 0:
            self._push(row)
