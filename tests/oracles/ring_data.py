"""Runs a ring on symbolic data: values are sets of contributing ranks (bit r = rank r)."""

import random
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Piece:
    """One slice of one chunk as one ring index works on it."""

    primitive: str
    chunk: int
    number: int
    elements: int

    @property
    def key(self) -> tuple[int, int]:
        return self.chunk, self.number


class Machine:
    """Runs a schedule: messages as early as they may, calcs as late as they can be, else in random order."""

    def __init__(
        self,
        kind: Sequence[str],
        rank: Sequence[int],
        channel: Sequence[int],
        dependencies: Iterable[tuple[int, int]],
        receive_of: Mapping[int, int],
        piece: Sequence[Piece],
        *,
        reduces: bool,
    ) -> None:
        """Every operation serves a *piece*; *receive_of* names the receive of every send."""
        self.kind, self.rank, self.channel, self.piece, self.reduces = kind, rank, channel, piece, reduces
        self.value = [0] * len(kind)
        self.output: dict[tuple[int, int], dict[tuple[int, int], int]] = defaultdict(dict)
        self.source = {recv: send for send, recv in receive_of.items()}
        self.before: list[list[int]] = [[] for _ in kind]
        for first, then in dependencies:
            self.before[then].append(first)
        self.held: Counter[tuple[int, int]] = Counter()  # slices received and not yet worked on
        self.most_held = 0
        self.run()

    def run(self) -> None:
        rng = random.Random(0)
        behind: list[list[int]] = [[] for _ in self.kind]
        missing = [0] * len(self.kind)
        for then, firsts in enumerate(self.before):
            for first in firsts + ([self.source[then]] if then in self.source else []):
                behind[first].append(then)
                missing[then] += 1
        ready = [
            [i for i, m in enumerate(missing) if m == 0 and self.kind[i] in kinds]
            for kinds in (("calc",), ("send", "recv"))
        ]
        done = 0
        while ready[0] or ready[1]:
            queue = ready[1] or ready[0]
            at = rng.randrange(len(queue))
            queue[at], queue[-1] = queue[-1], queue[at]
            operation = queue.pop()
            self.execute(operation)
            done += 1
            for then in behind[operation]:
                missing[then] -= 1
                if missing[then] == 0:
                    ready[self.kind[then] != "calc"].append(then)
        assert done == len(self.kind)

    def execute(self, operation: int) -> None:
        where = self.rank[operation], self.channel[operation]
        piece = self.piece[operation]
        if self.kind[operation] == "calc":
            received = [self.value[b] for b in self.before[operation] if self.kind[b] == "recv"]
            assert len(received) == piece.primitive.startswith("RECV")
            self.held[where] -= len(received)
            self.value[operation] = self.work(where, piece, *received)
        elif self.kind[operation] == "send":
            (self.value[operation],) = [self.value[b] for b in self.before[operation] if self.kind[b] == "calc"]
        else:
            sender = self.source[operation]
            assert self.piece[sender].key == piece.key  # first in, first out brings the right slice
            assert self.piece[sender].elements == piece.elements
            self.value[operation] = self.value[sender]
            self.held[where] += 1
            self.most_held = max(self.most_held, self.held[where])

    def work(self, where: tuple[int, int], piece: Piece, received: int = 0) -> int:
        own = 1 << where[0]
        if "REDUCE" in piece.primitive:
            assert not received & own  # counted twice
        value = received | own if "REDUCE" in piece.primitive or piece.primitive == "SEND" else received
        # Forwarding a partial sum stores nothing; whoever sends first keeps its own data, reduced or not.
        if piece.primitive != "RECV_REDUCE_SEND" and not (piece.primitive == "SEND" and self.reduces):
            self.output[where][piece.key] = value
        return value
