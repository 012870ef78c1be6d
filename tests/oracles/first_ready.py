"""Ports that serve first come, first served: an event simulation, operation by operation.

Written from docs/model.md alone.  A send wants its port from the moment it has paid o, a message wants the port of its
receiver from the moment its first byte arrives.  Whoever wants a port first is served first; of those who want one at
the same time, the one that fewer operations come before, then the one that stands earlier in the block of its rank,
then the one of the lower rank.
"""

from collections import defaultdict
from dataclasses import dataclass
from fractions import Fraction

from oracles.loggp import Network, Operations
from oracles.matching import matched


@dataclass
class Run:
    """When the last operation ended, and the sends in the order in which ports took them."""

    makespan: Fraction
    sends: list[int]


def run(found: Operations, nodes: list[int], rule: str, network: Network, ingress: bool = False) -> Run:
    """Run the operations *found*; *nodes* gives the node of each rank, *rule* is port, destination or none."""
    return _Simulation(found, nodes, rule, network, ingress).run()


class _Simulation:
    def __init__(self, found: Operations, nodes: list[int], rule: str, network: Network, ingress: bool) -> None:
        self.found, self.nodes, self.rule, self.network, self.ingress = found, nodes, rule, network, ingress
        self.message = matched(found.kind, found.rank, found.peer, found.tag)
        self.came_from = {recv: send for send, recv in self.message.items()}
        self.out = {s for s, r in self.message.items() if nodes[found.rank[s]] != nodes[found.rank[r]]}
        self.needs: dict[int, list[tuple[int, bool]]] = defaultdict(list)
        for first, then, on_start in found.dependencies:
            self.needs[then].append((first, on_start))
        self.start: dict[int, Fraction] = {}
        self.end: dict[int, Fraction] = {}
        self.arrived: dict[int, Fraction] = {}
        self.free: dict[tuple[object, ...], Fraction] = {}
        self.waiting: dict[tuple[str, int], Fraction] = {}
        self.depths: dict[int, int] = {}

    def run(self) -> Run:
        sends = []
        self.settle()
        while self.waiting:
            side, operation = min(self.waiting, key=self.turn)
            wanted = self.waiting.pop((side, operation))
            if side == "leave":
                sends.append(operation)
                self.leave(operation, wanted)
            else:
                self.arrive(operation, wanted)
            self.settle()
        assert len(self.end) == len(self.found.kind), "operations wait for each other"
        return Run(max(self.end.values(), default=Fraction(0)), sends)

    def turn(self, key: tuple[str, int]) -> tuple[object, ...]:
        _, operation = key
        depth = self.depth(operation)
        position = operation - self.found.rank.index(self.found.rank[operation])
        return self.waiting[key], depth, position, self.found.rank[operation]

    def depth(self, operation: int) -> int:
        """Operations on the longest chain before it."""
        if operation not in self.depths:
            before = [first for first, _ in self.needs[operation]]
            before += [self.came_from[operation]] if operation in self.came_from else []
            self.depths[operation] = max((self.depth(b) + 1 for b in before), default=0)
        return self.depths[operation]

    def body(self, send: int) -> Fraction:
        return max(self.found.size[send] - 1, 0) * self.network.gap_per_byte

    def leave(self, send: int, wanted: Fraction) -> None:
        rank = self.found.rank[send]
        port = (
            ("out", self.nodes[rank], self.found.nic[send])
            if self.rule == "port"
            else ("out", rank, self.found.rank[self.message[send]])
        )
        at = max(wanted, self.free.get(port, wanted))
        self.free[port] = at + self.body(send) + self.network.message_gap
        self.left(send, at)

    def left(self, send: int, at: Fraction) -> None:
        self.end[send] = at
        recv = self.message[send]
        first_byte = at + self.network.latency
        if self.ingress:
            self.waiting["arrive", recv] = first_byte
        else:
            self.arrived[recv] = first_byte + self.body(send)

    def arrive(self, recv: int, first_byte: Fraction) -> None:
        port = ("in", self.nodes[self.found.rank[recv]], self.found.nic[recv])
        at = max(first_byte, self.free.get(port, first_byte)) + self.body(self.came_from[recv])
        self.free[port] = at + self.network.message_gap
        self.arrived[recv] = at

    def settle(self) -> None:
        """Run everything that waits for no port, until nothing moves."""
        moved = True
        while moved:
            moved = sum(self.step(operation) for operation in range(len(self.found.kind))) > 0

    def step(self, operation: int) -> bool:
        found, network = self.found, self.network
        if operation in self.end:
            return False
        if operation not in self.start:
            known = [
                self.start.get(first) if on_start else self.end.get(first) for first, on_start in self.needs[operation]
            ]
            if None in known:
                return False
            self.start[operation] = max((time for time in known if time is not None), default=Fraction(0))
            if operation in self.out:
                wanted = self.start[operation] + network.overhead
                if self.rule == "none":
                    self.left(operation, wanted)
                else:
                    self.waiting["leave", operation] = wanted
                return True
        if operation in self.out:
            return False
        if operation in self.came_from:
            send = self.came_from[operation]
            if send in self.out:
                if operation not in self.arrived:
                    return False
                self.end[operation] = max(self.start[operation], self.arrived[operation]) + network.overhead
                return True
            if send not in self.end:
                return False
            inside = network.up_latency + found.size[send] * network.up_gap_per_byte
            self.end[operation] = max(self.start[operation], self.end[send] + inside)
            return True
        self.end[operation] = self.start[operation] + (found.size[operation] if found.kind[operation] == "calc" else 0)
        return True
