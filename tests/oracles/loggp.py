"""LogGP as published, operation by operation, repeated until nothing moves."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from oracles.matching import matched


@dataclass(frozen=True)
class Network:
    """L, G, o and g between nodes; latency and time per byte inside them."""

    latency: Fraction
    gap_per_byte: Fraction
    overhead: Fraction
    message_gap: Fraction
    up_latency: Fraction
    up_gap_per_byte: Fraction


@dataclass(frozen=True)
class Operations:
    """Columns of a schedule: *kind* is calc, send or recv; dependencies are (before, after, on start of before)."""

    kind: Sequence[str]
    rank: Sequence[int]
    size: Sequence[int]
    peer: Sequence[int]
    tag: Sequence[int]
    nic: Sequence[int]
    dependencies: Sequence[tuple[int, int, bool]]


def issue_order(found: Operations, message: dict[int, int]) -> list[int]:
    """Sends by depth, position and rank, from the words of the module alone (without irequires)."""
    before: dict[int, list[int]] = defaultdict(list)
    for first, then, _ in found.dependencies:
        before[then].append(first)
    for send, recv in message.items():
        before[recv].append(send)
    depth: dict[int, int] = {}

    def depth_of(operation: int) -> int:
        if operation not in depth:
            depth[operation] = max((depth_of(b) + 1 for b in before[operation]), default=0)
        return depth[operation]

    position = [operation - found.rank.index(rank) for operation, rank in enumerate(found.rank)]
    return sorted(message, key=lambda s: (depth_of(s), position[s], found.rank[s]))


def queues(found: Operations, message: dict[int, int], nodes: Sequence[int], rule: str) -> dict[int, int]:
    """The send that every send waits for: the one before it at its port, or to its destination."""
    last: dict[tuple[int, int], int] = {}
    queue_before: dict[int, int] = {}
    rank = found.rank
    for s in issue_order(found, message) if rule != "none" else ():
        if nodes[rank[s]] == nodes[rank[message[s]]]:
            continue
        key = (nodes[rank[s]], found.nic[s]) if rule == "port" else (rank[s], rank[message[s]])
        if key in last:
            queue_before[s] = last[key]
        last[key] = s
    return queue_before


def makespan(found: Operations, nodes: Sequence[int], rule: str, network: Network) -> Fraction:
    """When the last operation ends under the port *rule* port, destination or none."""
    message = matched(found.kind, found.rank, found.peer, found.tag)
    came_from = {recv: send for send, recv in message.items()}
    rank, size = found.rank, found.size
    out = {s for s, r in message.items() if nodes[rank[s]] != nodes[rank[r]]}
    body = {s: max(size[s] - 1, 0) * network.gap_per_byte for s in out}
    queue_before = queues(found, message, nodes, rule)
    count = len(found.kind)
    start, end = [Fraction(0)] * count, [Fraction(0)] * count
    for _ in range(2 * count + 1):
        for i in range(count):
            firsts = [start[b] if on_start else end[b] for b, a, on_start in found.dependencies if a == i]
            start[i] = max(firsts, default=Fraction(0))
            if i in out or came_from.get(i) in out:
                end[i] = start[i] + network.overhead
            else:
                end[i] = start[i] + (size[i] if found.kind[i] == "calc" else 0)
            if i in queue_before:
                end[i] = max(end[i], end[queue_before[i]] + body[queue_before[i]] + network.message_gap)
            if i in came_from:
                s = came_from[i]
                far = network.latency + body[s] + network.overhead if s in out else Fraction(0)
                near = network.up_latency + size[s] * network.up_gap_per_byte
                end[i] = max(end[i], end[s] + (far if s in out else near))
    return max(end)
