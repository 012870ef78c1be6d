"""Who pays for latency and bandwidth: dT/dL and dT/dG by signature, communicator, stream, rank pair and phase.

On every piece of T(L) or T(G) the critical path of its middle is walked; the messages (or bytes) of the instances on it
add up to the slope of the piece, and so do those of the hops inside them (:mod:`~atlas_lp.collectives.path_messages`).
Between pieces, instances enter and leave the path.  Where several paths are equally long, the first one of the engine's
order stands for all.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from atlas_lp.collectives.path_messages import Amounts, Passage, find_hops
from atlas_lp.goal.event_graph import COMPONENTS
from atlas_lp.program.job import Job
from atlas_lp.solver.axis import AXES, Axis, Point
from atlas_lp.solver.envelope import Piece, RankClasses
from atlas_lp.solver.longest_path import BYTES, MESSAGES, PathVector
from atlas_lp.units import number

PAIRS = 10
"""Rank pairs listed per piece; the others are added up."""

UNKNOWN = "not looked into"
"""Phase of messages whose schedule is too large to look for hops, or that wait for a NIC that collectives share."""

Pair = tuple[int | None, int | None]
"""GPUs that send and receive; None for one that was not recorded."""


@dataclass(frozen=True)
class Crossing:
    """One collective on a critical path: which instance, its cost vector, and the plane it took (None: no plane)."""

    instance: int
    vector: PathVector
    passage: Passage | None


@dataclass
class Payers:
    """Instances on the critical path of one piece: how often each signature, and the slope by five groupings."""

    instances: Counter[str] = field(default_factory=Counter)
    by_signature: Counter[str] = field(default_factory=Counter)
    by_communicator: Counter[str] = field(default_factory=Counter)
    by_stream: Counter[int] = field(default_factory=Counter)
    by_pair: Counter[Pair] = field(default_factory=Counter)
    by_phase: Counter[str] = field(default_factory=Counter)


class Attribution:
    """Walks critical paths of the program of a job."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.keys = job.signed.keys
        self.identities = [job.signed.communicator(number) for number in range(len(self.keys))]
        streams = job.trace.column("operations", "stream")
        self.streams = [int(streams[s.instance.rows[0]]) for s in job.signed.instances]
        self.gpu = job.trace.column("operations", "gpu")
        self.classes: dict[tuple[str, int], RankClasses] = {}
        self.hops: dict[Passage, Amounts] = {}

    def along(self, axis: Axis, pieces: Sequence[Piece]) -> list[dict[str, Any]]:
        """Return plain values per piece of T along *axis*, the other variable at its native value."""
        held = axis.other.of(self.job.fabric.native)
        middles = [axis.point((p.start + p.stop) / 2, held) for p in pieces]
        return _rows(pieces, self.payers(middles, axis), axis)

    def hops_at(self, where: Point) -> dict[str, Any]:
        """Return plain values: messages and bytes on the critical path at *where*, by phase and rank pair."""
        return {
            axis.component: {axis.component: sum(paid.by_signature.values()), **_hops(paid, axis.component)}
            for axis in AXES
            for paid in self.payers([where], axis)
        }

    def payers(self, points: Sequence[Point], axis: Axis) -> list[Payers]:
        """Return who pays the slope along *axis*, messages or bytes, on the critical path at each of *points*."""
        walks = [self._walk(where) for where in points]
        wanted = {
            crossing.passage: where
            for where, walk in zip(reversed(points), reversed(walks), strict=True)
            for crossing in walk
            if crossing.passage is not None and crossing.passage not in self.hops
        }
        self.hops.update(
            find_hops(wanted, self.job.signed.signatures, self.classes, self.job.fabric, self.job.order_at)
        )
        return [self._payers(walk, axis) for walk in walks]

    def _walk(self, where: Point) -> list[Crossing]:
        """Collectives on the critical path at *where*."""
        program = self.job.program
        return [
            Crossing(owner, vector, self._passage(owner, vector, program.vertices.pair(owner, vertices)))
            for owner, vector, vertices in program.edges(self.job.at(where))
            if owner >= 0
        ]

    def _passage(self, owner: int, vector: PathVector, pair: tuple[int, int] | None) -> Passage | None:
        """The plane that an edge is, None where it is the bound of a shared NIC, or of a collective without a graph."""
        if owner in self.job.changed or pair is None or not (vector[MESSAGES] or vector[BYTES]):
            return None
        collective = self.job.collectives[owner]
        split = self.keys[owner], collective.count
        if self.classes.setdefault(split, collective) != collective:
            return None
        planes = next(vectors for arriving, ending, vectors in collective.planes if (arriving, ending) == pair)
        return Passage(*split, *pair, vector) if vector in planes else None

    def _payers(self, walk: Sequence[Crossing], axis: Axis) -> Payers:
        paid, component = Payers(), COMPONENTS.index(axis.component)
        for crossing in walk:
            owner, amount = crossing.instance, crossing.vector[component]
            paid.instances[self.keys[owner]] += 1
            paid.by_signature[self.keys[owner]] += amount
            paid.by_communicator[self.identities[owner]] += amount
            paid.by_stream[self.streams[owner]] += amount
            found = None if crossing.passage is None else self.hops.get(crossing.passage)
            if found is None:
                paid.by_phase[UNKNOWN] += amount
                continue
            gpus = self._gpus(owner)
            for hop, amounts in found.items():
                part = amounts[axis.index]
                paid.by_pair[gpus.get(hop.source), gpus.get(hop.target)] += part
                paid.by_phase[hop.phase] += part
        return paid

    def _gpus(self, owner: int) -> dict[int, int]:
        """GPU of every label of an instance."""
        signed = self.job.signed.instances[owner]
        return dict(zip(signed.labels, self.gpu[signed.instance.rows].tolist(), strict=True))


def _rows(pieces: Sequence[Piece], payers: Sequence[Payers], axis: Axis) -> list[dict[str, Any]]:
    rows, slope = [], axis.component
    before: Mapping[str, int] | None = None
    for piece, paid in zip(pieces, payers, strict=True):
        rows.append(
            {
                f"from_{axis.unit}": number(piece.start),
                f"to_{axis.unit}": number(piece.stop),
                slope: piece.slope,
                "signatures": _shares(paid.by_signature, slope),
                "communicators": _shares(paid.by_communicator, slope),
                "streams": _shares(paid.by_stream, slope),
                **_hops(paid, slope),
                "entered": _changes(before, paid.instances),
                "left": _changes(paid.instances, before) if before is not None else [],
            }
        )
        before = paid.instances
    return rows


def _hops(paid: Payers, slope: str) -> dict[str, Any]:
    pairs = _ordered(paid.by_pair)
    return {
        "phases": _shares(paid.by_phase, slope),
        "pairs": [{"from_gpu": a, "to_gpu": b, slope: amount} for (a, b), amount in pairs[:PAIRS]],
        "other_pairs": {"pairs": len(pairs[PAIRS:]), slope: sum(amount for _, amount in pairs[PAIRS:])},
    }


def _ordered(amounts: Mapping[Any, int]) -> list[tuple[Any, int]]:
    """Payers of anything at all, largest first."""
    ordered = sorted(amounts.items(), key=lambda item: (-item[1], str(item[0])))
    return [(key, amount) for key, amount in ordered if amount]


def _shares(amounts: Mapping[Any, int], slope: str) -> list[dict[str, Any]]:
    return [{"key": key, slope: amount} for key, amount in _ordered(amounts)]


def _changes(before: Mapping[str, int] | None, after: Mapping[str, int] | None) -> list[dict[str, Any]]:
    """How many more instances of a signature *after* has than *before*; nothing for the first piece."""
    if before is None or after is None:
        return []
    more = {key: after[key] - before.get(key, 0) for key in sorted(after) if after[key] > before.get(key, 0)}
    return [{"key": key, "instances": count} for key, count in more.items()]
