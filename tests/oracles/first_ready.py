"""Ports that serve first come, first served: an event simulation, operation by operation.

Written from docs/model.md alone.  A send wants its port from the moment it has paid o, a message wants the port of its
receiver from the moment its first byte arrives.  Whoever wants a port first is served first; of those who want one at
the same time, the one that fewer operations come before, then the one that stands earlier in the block of its rank,
then the one of the lower rank.

``run(operations, nodes, rule, network, ingress)`` serves first come, first served at *network* and says in which order;
``in_order(that run, operations, nodes, rule, elsewhere, ingress)`` is the time at another network of ports that keep
that order, whoever is ready there.
"""

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

from oracles.loggp import Network, Operations
from oracles.matching import matched


@dataclass
class Run:
    """When the last operation ended, and the sends and the receives in the order in which ports took them."""

    makespan: Fraction
    sends: list[int]
    arrivals: list[int]


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
        self.depths: dict[tuple[int, bool], int] = {}

    def run(self) -> Run:
        sends, arrivals = [], []
        self.settle()
        while self.waiting:
            side, operation = min(self.waiting, key=self.turn)
            wanted = self.waiting.pop((side, operation))
            if side == "leave":
                sends.append(operation)
                self.leave(operation, wanted)
            else:
                arrivals.append(operation)
                self.arrive(operation, wanted)
            self.settle()
        assert len(self.end) == len(self.found.kind), "operations wait for each other"
        return Run(max(self.end.values(), default=Fraction(0)), sends, arrivals)

    def turn(self, key: tuple[str, int]) -> tuple[object, ...]:
        side, operation = key
        # Before a message that arrives stands its send, not what its receive requires.
        depth = self.depth(operation) if side == "leave" else self.depth(self.came_from[operation]) + 1
        position = operation - self.found.rank.index(self.found.rank[operation])
        return self.waiting[key], depth, position, self.found.rank[operation]

    def depth(self, operation: int, of_start: bool = False) -> int:
        """Operations on the longest chain before it ends, or *of_start*, before it starts."""
        key = operation, of_start
        if key not in self.depths:
            before = [self.depth(first, on_start) for first, on_start in self.needs[operation]]
            before += [self.depth(self.came_from[operation])] if operation in self.came_from and not of_start else []
            self.depths[key] = max((depth + 1 for depth in before), default=0)
        return self.depths[key]

    def body(self, send: int) -> Fraction:
        return max(self.found.size[send] - 1, 0) * self.network.gap_per_byte

    def port_of_send(self, send: int) -> tuple[object, ...]:
        rank = self.found.rank[send]
        if self.rule == "port":
            return "out", self.nodes[rank], self.found.nic[send]
        return "out", rank, self.found.rank[self.message[send]]

    def port_of_recv(self, recv: int) -> tuple[object, ...]:
        return "in", self.nodes[self.found.rank[recv]], self.found.nic[recv]

    def leave(self, send: int, wanted: Fraction) -> None:
        port = self.port_of_send(send)
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
        port = self.port_of_recv(recv)
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


def in_order(
    order: Run, found: Operations, nodes: list[int], rule: str, network: Network, ingress: bool = False
) -> Fraction:
    """When the last operation ends at *network* if every port serves in the *order* of a run of the same operations."""
    return _Ordered(order, found, nodes, rule, network, ingress).makespan()


class _Ordered:
    """Ends of operations by the sentences of the model, each from those before it."""

    def __init__(
        self, order: Run, found: Operations, nodes: list[int], rule: str, network: Network, ingress: bool
    ) -> None:
        self.of = _Simulation(found, nodes, rule, network, ingress)
        sends = order.sends if rule != "none" else []
        self.before = _followed(sends, self.of.port_of_send) | _followed(order.arrivals, self.of.port_of_recv)
        self.known: dict[tuple[str, int], Fraction] = {}

    def makespan(self) -> Fraction:
        return max((self.time("end", operation) for operation in range(len(self.of.found.kind))), default=Fraction(0))

    def time(self, what: str, operation: int) -> Fraction:
        if (what, operation) not in self.known:
            self.known[what, operation] = getattr(self, what)(operation)
        return self.known[what, operation]

    def start(self, operation: int) -> Fraction:
        needs = self.of.needs[operation]
        return max((self.time("start" if on_start else "end", b) for b, on_start in needs), default=Fraction(0))

    def end(self, operation: int) -> Fraction:
        of, start = self.of, self.time("start", operation)
        if operation in of.out:
            ends = [start + of.network.overhead]
            if operation in self.before:
                last = self.before[operation]
                ends.append(self.time("end", last) + of.body(last) + of.network.message_gap)
            return max(ends)
        send = of.came_from.get(operation)
        if send in of.out:
            return max(start, self.time("arrival", operation)) + of.network.overhead
        if send is not None:
            inside = of.network.up_latency + of.found.size[send] * of.network.up_gap_per_byte
            return max(start, self.time("end", send) + inside)
        return start + (of.found.size[operation] if of.found.kind[operation] == "calc" else 0)

    def arrival(self, recv: int) -> Fraction:
        """The last byte of a message."""
        of, send = self.of, self.of.came_from[recv]
        times = [self.time("end", send) + of.network.latency + of.body(send)]
        if recv in self.before:
            times.append(self.time("arrival", self.before[recv]) + of.network.message_gap + of.body(send))
        return max(times)


def _followed(order: list[int], port_of: Callable[[int], tuple[object, ...]]) -> dict[int, int]:
    """What each operation of *order* follows at its port."""
    last: dict[tuple[object, ...], int] = {}
    before = {}
    for operation in order:
        port = port_of(operation)
        if port in last:
            before[operation] = last[port]
        last[port] = operation
    return before
