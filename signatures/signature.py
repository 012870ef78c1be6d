"""What decides the graph of a collective, in canonical labels, and its key."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass

from atlas_lp.errors import InputError, UnsupportedError
from atlas_lp.signatures.protocols import Protocol, ring_chunking
from atlas_lp.signatures.splits import Task, split, split_rule

COLLECTIVES = ("AllReduce", "AllGather", "ReduceScatter", "Broadcast", "Reduce")
"""Collectives with a schedule; sizes are those of the NCCL call: bytes sent per rank for AllGather,
received per rank for ReduceScatter, the whole buffer for the others."""

_ROOTED = ("Broadcast", "Reduce")
_BYTE_UNITS = ("AllGather", "Broadcast")


@dataclass(frozen=True)
class Part:
    """What one channel carries: *count* work units along ring number *ring* of the signature."""

    channel: int
    count: int
    ring: int


@dataclass(frozen=True)
class Signature:
    """Everything that decides a collective's graph.

    Ranks are labels 0..ranks-1 in the order of the first ring, from communicator rank 0 or, for Broadcast and
    Reduce, from the root.  ``rings`` lists labels in ring order from ring index 0; ``nodes`` and ``nics`` give
    the node of each label and the NIC within it, numbered by first appearance.  ``element_bytes`` is the size of
    a work unit (1 for AllGather and Broadcast, which NCCL counts in bytes); ``split`` names the NCCL rule family,
    which also decides the last chunk; ``threads`` matter for family 2.20 only and are 0 otherwise.
    """

    collective: str
    algorithm: str
    protocol: Protocol
    size_bytes: int
    element_bytes: int
    ranks: int
    split: str
    threads: int
    chunk_bytes: int
    slices: int
    fifo_slices: int
    parts: tuple[Part, ...]
    rings: tuple[tuple[int, ...], ...]
    nodes: tuple[int, ...]
    nics: tuple[int, ...]

    @property
    def channels(self) -> int:
        """Number of channels that carry something."""
        return len(self.parts)

    @property
    def leaves_node(self) -> bool:
        """Whether any hop crosses the scale-out network."""
        return len(set(self.nodes)) > 1

    def canonical(self) -> dict[str, object]:
        """Return all fields as plain values."""
        values = {**self.__dict__, "protocol": self.protocol.value}
        values["parts"] = [[p.channel, p.count, p.ring] for p in self.parts]
        return values

    def key(self) -> str:
        """SHA-256 of the canonical form: equal keys mean equal graphs."""
        text = json.dumps(self.canonical(), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()


def assumed_rings(node_of_rank: Sequence[int], channels: int) -> list[list[int]]:
    """Rings for a communicator whose topology is not recorded, one per channel, as ranks.

    Nodes follow each other in the order of their lowest rank; inside a node ranks ascend, rotated by one
    position per channel, so that channels leave a node through different GPUs, as NCCL arranges it where
    every GPU has its NIC.
    """
    members: dict[int, list[int]] = {}
    for rank, node in enumerate(node_of_rank):
        members.setdefault(node, []).append(rank)
    rings = []
    for channel in range(channels):
        ring: list[int] = []
        for local in members.values():
            turn = channel % len(local)
            ring.extend(local[turn:] + local[:turn])
        rings.append(ring)
    return rings


def ring_signature(
    collective: str,
    protocol: Protocol,
    size_bytes: int,
    rings: Sequence[Sequence[int]],
    node_of_rank: Sequence[int],
    *,
    nccl: str,
    element_bytes: int = 4,
    root: int = 0,
    nic_of_rank: Sequence[int] | None = None,
    threads: int | None = None,
) -> Signature:
    """Build the signature of a ring collective.

    *rings* has one ring of communicator ranks per chosen channel; *node_of_rank* and *nic_of_rank* (default:
    one NIC per GPU) place them; *nccl* is a version such as ``2.28.9``; *element_bytes* the size of the datatype.

    Raises :class:`~atlas_lp.errors.UnsupportedError` for a collective or version without rules and
    :class:`~atlas_lp.errors.InputError` for impossible values.
    """
    ranks = len(node_of_rank)
    _check(collective, size_bytes, element_bytes, ranks, rings)
    rule = split_rule(nccl)
    unit = 1 if collective in _BYTE_UNITS else element_bytes
    if size_bytes % unit:
        raise InputError(f"{collective} of {size_bytes} bytes is not a whole number of {unit}-byte elements")
    task = Task(collective, protocol, size_bytes // unit, unit, len(rings), threads or protocol.default_threads)
    parts = split(rule, [task], len(rings), ranks)[0]
    order = label_order(collective, rings[0], root)
    labels = {rank: label for label, rank in enumerate(order)}
    label_rings = [tuple(labels[rank] for rank in turned(ring, order[0])) for ring in rings]
    nodes = _by_first_appearance([node_of_rank[rank] for rank in order])
    nics = [0] * ranks
    for node in set(nodes):
        inside = [label for label in range(ranks) if nodes[label] == node]
        named = [order[x] if nic_of_rank is None else nic_of_rank[order[x]] for x in inside]
        for label, nic in zip(inside, _by_first_appearance(named), strict=True):
            nics[label] = nic
    distinct = list(dict.fromkeys(label_rings[channel] for channel, _ in parts))
    chunking = ring_chunking(collective, protocol)
    return Signature(
        collective=collective,
        algorithm="ring",
        protocol=protocol,
        size_bytes=size_bytes,
        element_bytes=unit,
        ranks=ranks,
        split=rule,
        threads=task.threads if rule == "2.20" else 0,
        chunk_bytes=chunking.chunk_bytes,
        slices=chunking.slices,
        fifo_slices=chunking.fifo_slices,
        parts=tuple(Part(c, count, distinct.index(label_rings[c])) for c, count in parts),
        rings=tuple(distinct),
        nodes=tuple(nodes),
        nics=tuple(nics),
    )


def _check(collective: str, size_bytes: int, element_bytes: int, ranks: int, rings: Sequence[Sequence[int]]) -> None:
    if collective not in COLLECTIVES:
        raise UnsupportedError(f"{collective} has no schedule; there are schedules for {', '.join(COLLECTIVES)}")
    if ranks < 2:
        raise InputError(f"{collective} on {ranks} rank exchanges no messages")
    if size_bytes < 1:
        raise InputError(f"{collective} of {size_bytes} bytes moves nothing")
    if element_bytes not in (1, 2, 4, 8):
        raise InputError(f"no datatype has {element_bytes} bytes")
    if not rings:
        raise InputError("a collective needs at least one channel")
    for ring in rings:
        if sorted(ring) != list(range(ranks)):
            raise InputError(f"a ring must visit each of the {ranks} ranks once")


def turned(ring: Sequence[int], first: int) -> list[int]:
    """Return *ring* with *first* at ring index 0."""
    at = list(ring).index(first)
    return [*ring[at:], *ring[:at]]


def label_order(collective: str, first_ring: Sequence[int], root: int = 0) -> list[int]:
    """Communicator rank of every label: the first ring from the root, or from rank 0 where there is none."""
    return turned(first_ring, root if collective in _ROOTED else 0)


def _by_first_appearance(values: Sequence[int]) -> list[int]:
    numbers: dict[int, int] = {}
    return [numbers.setdefault(value, len(numbers)) for value in values]
