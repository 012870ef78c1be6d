"""Sends and receives matched into messages, and launches that exchange them into one instance each.

NCCL matches the k-th send of one rank to another with the k-th receive there (per communicator).  One kernel carries
all sends and receives of a group, so launches that share messages run together.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from atlas_lp.errors import MismatchError


@dataclass(frozen=True, slots=True)
class Half:
    """One send or receive: *row* of the operation, *rank*, *peer*, bytes, and the launch it is part of."""

    row: int
    rank: int
    peer: int
    is_send: bool
    size_bytes: int
    launch: int


@dataclass(frozen=True, order=True, slots=True)
class Message:
    """A matched send and receive: ranks of the communicator, bytes, and the two operations."""

    source: int
    target: int
    size_bytes: int
    send_row: int
    recv_row: int


def match(halves: Sequence[Half], name: str) -> list[tuple[Half, Half]]:
    """Pair sends and receives first in, first out; *halves* are in issue order per rank.

    Raises :class:`~atlas_lp.errors.MismatchError` naming the ranks when a half stays alone or sizes differ.
    """
    sends: defaultdict[tuple[int, int], list[Half]] = defaultdict(list)
    receives: defaultdict[tuple[int, int], list[Half]] = defaultdict(list)
    for half in halves:
        if half.is_send:
            sends[half.rank, half.peer].append(half)
        else:
            receives[half.peer, half.rank].append(half)
    pairs = []
    for source, target in sorted({*sends, *receives}):
        out, into = sends[source, target], receives[source, target]
        if len(out) != len(into):
            raise MismatchError(
                f"{name}: rank {source} sends {len(out)} messages to rank {target}, which receives {len(into)}; the "
                "trace is cut on one of them: capture the same steps on every rank"
            )
        for number, (send, receive) in enumerate(zip(out, into, strict=True)):
            if send.size_bytes != receive.size_bytes:
                raise MismatchError(
                    f"{name}: message {number + 1} from rank {source} to rank {target} is sent as {send.size_bytes} B "
                    f"and received as {receive.size_bytes} B"
                )
            pairs.append((send, receive))
    return pairs


def exchanges(halves: Sequence[Half], pairs: Sequence[tuple[Half, Half]]) -> list[list[Half]]:
    """Halves whose launches exchange messages, directly or through others, in order of their first row."""
    nodes = [(half.rank, half.launch) for half in halves]
    root = dict(zip(nodes, nodes, strict=True))

    def find(node: tuple[int, int]) -> tuple[int, int]:
        while root[node] != node:
            root[node] = root[root[node]]
            node = root[node]
        return node

    for send, receive in pairs:
        a, b = find((send.rank, send.launch)), find((receive.rank, receive.launch))
        root[max(a, b)] = min(a, b)
    together: defaultdict[tuple[int, int], list[Half]] = defaultdict(list)
    for half in halves:
        together[find((half.rank, half.launch))].append(half)
    return sorted(together.values(), key=lambda group: min(half.row for half in group))
