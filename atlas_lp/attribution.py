"""Who pays for latency and bandwidth: dT/dL and dT/dG by signature, communicator and stream, piece by piece.

On every piece of T(L) or T(G) the critical path of its middle is walked; the messages (or bytes) of the instances on it
add up to the slope of the piece.  Between pieces, instances enter and leave the path.  Where several paths are equally
long, the first one of the engine's order stands for all.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from atlas_lp.compose import Program
from atlas_lp.envelope import Piece
from atlas_lp.longest_path import BYTES, MESSAGES, Evaluator, Point, point
from atlas_lp.parameters import Fabric
from atlas_lp.traces import SignedInstance, Trace
from atlas_lp.units import number


@dataclass(frozen=True)
class Payers:
    """Instances on the critical path of one piece: how often each signature, and the slope by three groupings."""

    instances: Mapping[str, int]
    by_signature: Mapping[str, int]
    by_communicator: Mapping[str, int]
    by_stream: Mapping[int, int]


class Attribution:
    """Walks critical paths of a program; ``identities`` and ``streams`` are given per instance."""

    def __init__(self, trace: Trace, signed: Sequence[SignedInstance], program: Program, fabric: Fabric) -> None:
        self.program, self.fabric = program, fabric
        self.evaluator = Evaluator(program.graph, fabric.theta())
        self.keys = [s.signature.key() for s in signed]
        ids = trace.communicators["id"].to_pylist()
        self.identities = [f"{ids[s.instance.communicator]:#x}" for s in signed]
        streams = trace.column("operations", "stream")
        self.streams = [int(streams[s.instance.rows[0]]) for s in signed]

    def at(self, where: Point, component: int) -> Payers:
        """Return who pays *component* (messages or bytes) on the critical path at *where*."""
        instances: Counter[str] = Counter()
        by_signature: Counter[str] = Counter()
        by_communicator: Counter[str] = Counter()
        by_stream: Counter[int] = Counter()
        for owner, vector in self.program.path(self.evaluator.at(where)):
            if owner >= 0:
                instances[self.keys[owner]] += 1
                by_signature[self.keys[owner]] += vector[component]
                by_communicator[self.identities[owner]] += vector[component]
                by_stream[self.streams[owner]] += vector[component]
        return Payers(instances, by_signature, by_communicator, by_stream)

    def along_latency(self, pieces: Sequence[Piece]) -> list[dict[str, Any]]:
        """Return plain values per piece of T(L) at the native bandwidth."""
        gap = self.fabric.gap_ns_per_byte
        payers = [self.at(point((p.start + p.stop) / 2, gap), MESSAGES) for p in pieces]
        return _rows(pieces, payers, "ns", "messages")

    def along_gap(self, pieces: Sequence[Piece]) -> list[dict[str, Any]]:
        """Return plain values per piece of T(G) at the native latency."""
        latency = self.fabric.latency_ns
        payers = [self.at(point(latency, (p.start + p.stop) / 2), BYTES) for p in pieces]
        return _rows(pieces, payers, "ns_per_byte", "bytes")


def _rows(pieces: Sequence[Piece], payers: Sequence[Payers], unit: str, slope: str) -> list[dict[str, Any]]:
    rows = []
    before: Mapping[str, int] | None = None
    for piece, paid in zip(pieces, payers, strict=True):
        rows.append(
            {
                f"from_{unit}": number(piece.start),
                f"to_{unit}": number(piece.stop),
                slope: piece.slope,
                "signatures": _shares(paid.by_signature, slope),
                "communicators": _shares(paid.by_communicator, slope),
                "streams": _shares(paid.by_stream, slope),
                "entered": _changes(before, paid.instances),
                "left": _changes(paid.instances, before) if before is not None else [],
            }
        )
        before = paid.instances
    return rows


def _shares(amounts: Mapping[Any, int], slope: str) -> list[dict[str, Any]]:
    """Payers of anything at all, largest first."""
    ordered = sorted(amounts.items(), key=lambda item: (-item[1], str(item[0])))
    return [{"key": key, slope: amount} for key, amount in ordered if amount]


def _changes(before: Mapping[str, int] | None, after: Mapping[str, int] | None) -> list[dict[str, Any]]:
    """How many more instances of a signature *after* has than *before*; nothing for the first piece."""
    if before is None or after is None:
        return []
    more = {key: after[key] - before.get(key, 0) for key in sorted(after) if after[key] > before.get(key, 0)}
    return [{"key": key, "instances": count} for key, count in more.items()]
