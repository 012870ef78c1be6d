"""What decides the graph of a collective, in canonical labels, and its key."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from atlas_lp.errors import InputError, UnsupportedError
from atlas_lp.signatures.nccl.collectives import COLLECTIVES, WITH_KERNEL
from atlas_lp.signatures.nccl.protocols import STEPS, Chunking, Protocol, ring_chunking
from atlas_lp.signatures.nccl.splits import Task, interleaved_parts, split
from atlas_lp.signatures.nccl.transfers import Transfers
from atlas_lp.signatures.nccl.versions import split_rule
from atlas_lp.signatures.placement import placed
from atlas_lp.signatures.topology import Tree

RecordedParts = Sequence[tuple[int, ...]]
"""Parts as a trace records them: (channel, count) or (channel, count, last chunk), in work units."""


@dataclass(frozen=True)
class ChannelPart:
    """What one channel carries: *count* work units along ring (or tree) number *ring* of the signature.

    *chunk_bytes* is the chunk of this channel where it differs from that of the signature (0: it does not), and
    *last_chunk* the recorded chunk, in work units, of its last loop (0: NCCL's rule decides).
    """

    channel: int
    count: int
    ring: int
    chunk_bytes: int = 0
    last_chunk: int = 0


@dataclass(frozen=True)
class Signature:
    """Everything that decides a collective's graph.

    Ranks are labels 0..ranks-1: for rings in the order of the first ring, from communicator rank 0 or, for Broadcast
    and Reduce, from the root; for trees in the order of the first tree, parents first; otherwise node by node.
    ``rings`` lists labels in ring order from ring index 0, ``trees`` the trees over labels; ``nodes`` and ``nics`` give
    the node of each label and the NIC within it, numbered by first appearance.  ``element_bytes`` is the size of a work
    unit (1 where NCCL counts in bytes); ``split`` names the NCCL rule family, which also decides the last chunk, or
    is ``recorded``; ``threads`` matter for families 2.19 and 2.20 only and are 0 otherwise; ``interleaved`` is the
    number of channels that the loops of 2.19 alternate over, 0 in newer versions.  ``transfers`` holds the messages of
    point-to-point operations.
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
    parts: tuple[ChannelPart, ...]
    rings: tuple[tuple[int, ...], ...]
    nodes: tuple[int, ...]
    nics: tuple[int, ...]
    trees: tuple[Tree, ...] = ()
    interleaved: int = 0
    transfers: Transfers | None = None

    @property
    def channels(self) -> int:
        """Number of channels that carry something."""
        return len(self.parts) if self.transfers is None else self.transfers.channels

    @property
    def chunking(self) -> Chunking:
        """How the part of a channel is cut."""
        return Chunking(self.chunk_bytes, self.slices, self.fifo_slices)

    @property
    def leaves_node(self) -> bool:
        """Whether any hop crosses the scale-out network."""
        return len(set(self.nodes)) > 1

    def canonical(self) -> dict[str, object]:
        """Return all fields as plain values; fields that an algorithm does not use are left out."""
        values: dict[str, object] = {name: getattr(self, name) for name in self.__dataclass_fields__}
        values["protocol"] = self.protocol.value
        values["parts"] = [_trimmed([p.channel, p.count, p.ring, p.chunk_bytes, p.last_chunk]) for p in self.parts]
        values["trees"] = [[tree.parents, tree.slots] for tree in self.trees]
        values["transfers"] = None if self.transfers is None else self.transfers.canonical()
        optional = ("trees", "interleaved", "transfers")
        return {name: value for name, value in values.items() if value or name not in optional}

    def key(self) -> str:
        """SHA-256 of the canonical form: equal keys mean equal graphs."""
        return self._key

    @cached_property
    def _key(self) -> str:
        text = json.dumps(self.canonical(), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()


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
    parts: RecordedParts | None = None,
) -> Signature:
    """Build the signature of a ring collective.

    *rings* has one ring of communicator ranks per chosen channel; *node_of_rank* and *nic_of_rank* (default:
    one NIC per GPU) place them; *nccl* is a version such as ``2.28.9``; *element_bytes* the size of the datatype.
    *parts*, where a trace records them, win over the split of *nccl*.

    Raises :class:`~atlas_lp.errors.UnsupportedError` for a collective or version without rules and
    :class:`~atlas_lp.errors.InputError` for impossible values.
    """
    ranks = len(node_of_rank)
    _check(collective, size_bytes, element_bytes, ranks, len(rings))
    for ring in rings:
        if sorted(ring) != list(range(ranks)):
            raise InputError(f"a ring must visit each of the {ranks} ranks once")
    chunking = ring_chunking(collective, protocol)
    task = task_of(collective, protocol, size_bytes, element_bytes, len(rings), threads)
    spread = spread_over_channels(task, ranks, nccl, chunking.chunk_bytes, parts)
    if COLLECTIVES[collective].rooted and not 0 <= root < ranks:
        raise InputError(f"root {root} is not one of {ranks} ranks")
    order = label_order(collective, rings[0], root)
    labels = {rank: label for label, rank in enumerate(order)}
    label_rings = [tuple(labels[rank] for rank in turned(ring, order[0])) for ring in rings]
    distinct = list(dict.fromkeys(label_rings[part.channel] for part in spread.parts))
    nodes, nics = placed(order, node_of_rank, nic_of_rank)
    return Signature(
        collective=collective,
        algorithm="ring",
        protocol=protocol,
        size_bytes=size_bytes,
        element_bytes=spread.element_bytes,
        ranks=ranks,
        split=spread.rule,
        threads=spread.threads,
        chunk_bytes=chunking.chunk_bytes,
        slices=chunking.slices,
        fifo_slices=chunking.fifo_slices,
        parts=tuple(replace(part, ring=distinct.index(label_rings[part.channel])) for part in spread.parts),
        rings=tuple(distinct),
        nodes=nodes,
        nics=nics,
        interleaved=spread.interleaved,
    )


@dataclass(frozen=True)
class Spread:
    """How a collective's bytes are spread: rule family, work unit, threads that matter, and parts (ring 0)."""

    rule: str
    element_bytes: int
    threads: int
    interleaved: int
    parts: tuple[ChannelPart, ...]


def task_of(
    collective: str, protocol: Protocol, size_bytes: int, element_bytes: int, channels: int, threads: int | None
) -> Task:
    """Return a collective as the split sees it, in work units.

    Raises :class:`~atlas_lp.errors.InputError` where *size_bytes* is no whole number of them.
    """
    unit = 1 if COLLECTIVES[collective].byte_counted else element_bytes
    if size_bytes % unit:
        raise InputError(f"{collective} of {size_bytes} bytes is not a whole number of {unit}-byte elements")
    return Task(collective, protocol, size_bytes // unit, unit, channels, threads or protocol.default_threads)


def spread_over_channels(task: Task, ranks: int, nccl: str, chunk_bytes: int, recorded: RecordedParts | None) -> Spread:
    """Split *task* over its channels by the rule of *nccl*, or take the *recorded* parts."""
    rule = split_rule(nccl)
    threads = task.threads if rule in ("2.19", "2.20") else 0
    if recorded is not None:
        parts = _recorded_parts(recorded, task)
        known = all(part.last_chunk for part in parts)
        return Spread("recorded" if known else rule, task.element_bytes, 0 if known else threads, 0, parts)
    if rule == "2.19":
        chunks = ranks if task.collective == "AllReduce" else 1
        counts = interleaved_parts(task, chunk_bytes // task.element_bytes, chunks)
    else:
        counts = split(rule, [task], task.channels, ranks)[0]
    interleaved = task.channels if rule == "2.19" else 0
    return Spread(
        rule,
        task.element_bytes,
        threads,
        interleaved,
        tuple(ChannelPart(channel, count, 0) for channel, count in counts),
    )


def _recorded_parts(recorded: RecordedParts, task: Task) -> tuple[ChannelPart, ...]:
    parts = tuple(ChannelPart(row[0], row[1], 0, last_chunk=row[2] if len(row) > 2 else 0) for row in recorded)
    if sum(part.count for part in parts) != task.count:
        raise InputError(f"the recorded parts hold {sum(p.count for p in parts)} of {task.count} work units")
    for part in parts:
        if not 0 <= part.channel < task.channels or part.count < 1:
            raise InputError(f"a recorded part of {part.count} on channel {part.channel} of {task.channels}")
    return parts


def _check(collective: str, size_bytes: int, element_bytes: int, ranks: int, channels: int) -> None:
    if collective not in WITH_KERNEL:
        raise UnsupportedError(f"{collective} has no schedule; there are schedules for {', '.join(WITH_KERNEL)}")
    if ranks < 2:
        raise InputError(f"{collective} on {ranks} rank exchanges no messages")
    if size_bytes < 1:
        raise InputError(f"{collective} of {size_bytes} bytes moves nothing")
    if element_bytes not in (1, 2, 4, 8):
        raise InputError(f"no datatype has {element_bytes} bytes")
    if not channels:
        raise InputError("a collective needs at least one channel")


def simple_signature(
    collective: str,
    algorithm: str,
    order: Sequence[int],
    node_of_rank: Sequence[int],
    nic_of_rank: Sequence[int] | None,
    *,
    size_bytes: int,
    element_bytes: int,
    chunk_bytes: int,
    split: str = "model",
    parts: Sequence[ChannelPart] | None = None,
    transfers: Transfers | None = None,
) -> Signature:
    """Return the signature of what runs the Simple protocol in chunks of one slice, without rings and trees.

    *order* has the communicator rank of every label; without *parts* all channels count as one.
    """
    nodes, nics = placed(order, node_of_rank, nic_of_rank)
    return Signature(
        collective=collective,
        algorithm=algorithm,
        protocol=Protocol.SIMPLE,
        size_bytes=size_bytes,
        element_bytes=element_bytes,
        ranks=len(order),
        split=split,
        threads=0,
        chunk_bytes=chunk_bytes,
        slices=1,
        fifo_slices=STEPS,
        parts=(ChannelPart(0, size_bytes // element_bytes, 0),) if parts is None else tuple(parts),
        rings=(),
        nodes=nodes,
        nics=nics,
        transfers=transfers,
    )


def turned(ring: Sequence[int], first: int) -> list[int]:
    """Return *ring* with *first* at ring index 0."""
    at = list(ring).index(first)
    return [*ring[at:], *ring[:at]]


def label_order(collective: str, first_ring: Sequence[int], root: int = 0) -> list[int]:
    """Communicator rank of every label: the first ring from the root, or from rank 0 where there is none."""
    return turned(first_ring, root if COLLECTIVES[collective].rooted else 0)


def _trimmed(row: list[int]) -> list[int]:
    """Leave out what a part does not set, beyond channel, count and ring."""
    while len(row) > 3 and row[-1] == 0:
        row.pop()
    return row
