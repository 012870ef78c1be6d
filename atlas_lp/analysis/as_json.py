"""Plain values for JSON, as every verb and the report read them."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from atlas_lp.fabrics.fabric import Fabric
from atlas_lp.program.critical_path import Step
from atlas_lp.program.job import Job
from atlas_lp.solver.axis import AXES, GAP, Axis
from atlas_lp.solver.envelope import Box, Envelope, Piece, tolerances
from atlas_lp.traces.signing.sign import SignedInstance
from atlas_lp.units import gbps, number


def signature_json(signed: SignedInstance) -> dict[str, Any]:
    """Return a signature and the sources of its fields as plain values."""
    signature = signed.signature
    return {
        "key": signature.key(),
        "type": signature.collective,
        "algorithm": signature.algorithm,
        "protocol": signature.protocol.value,
        "size_bytes": signature.size_bytes,
        "ranks": signature.ranks,
        "nodes": len(set(signature.nodes)),
        "channels": signature.channels,
        "sources": dict(signed.sources),
    }


def steps_json(job: Job, steps: Sequence[Step]) -> list[dict[str, Any]]:
    """Return plain values per step of a critical path, collectives with type, size, signature and communicator."""
    rows = []
    for step in steps:
        row: dict[str, Any] = {"begin_ns": number(step.begin_ns), "duration_ns": number(step.duration_ns)}
        if step.instance is None:
            row["gpu"] = step.gpu
        else:
            signature = job.signed.instances[step.instance].signature
            row |= {
                "type": signature.collective,
                "size_bytes": signature.size_bytes,
                "key": signature.key(),
                "communicator": job.signed.communicator(step.instance),
                "ranks": signature.ranks,
                "messages": step.messages,
                "bytes": step.bytes,
            }
        rows.append(row)
    return rows


def native_json(fabric: Fabric) -> dict[str, Any]:
    """Return the native operating point."""
    return {
        "latency_ns": number(fabric.latency_ns),
        "gap_ns_per_byte": number(fabric.gap_ns_per_byte),
        "bandwidth_gbps": gbps(fabric.gap_ns_per_byte),
    }


def box_json(box: Box) -> dict[str, Any]:
    """Return the range of parameters an envelope is exact on."""
    return {name: number(value) for name, value in box.__dict__.items()}


def envelopes_json(envelope: Envelope, fabric: Fabric) -> dict[str, Any]:
    """Pieces of T(L) and T(G) through the native point."""

    def row(piece: Piece, axis: Axis) -> dict[str, Any]:
        return {
            f"from_{axis.unit}": number(piece.start),
            f"to_{axis.unit}": number(piece.stop),
            "constant_ns": number(piece.constant_ns),
            axis.component: piece.slope,
        }

    held = {axis: axis.other.of(fabric.native) for axis in AXES}
    return {axis.name: [row(piece, axis) for piece in envelope.along(axis, held[axis])] for axis in AXES}


def joint_json(envelope: Envelope) -> list[dict[str, Any]]:
    """Return all planes of T(L, G), sorted."""
    return [
        {"constant_ns": number(c), "messages": m, "bytes": b}
        for c, m, b in sorted(envelope.planes(), key=lambda plane: (plane[1], plane[2], plane[0]))
    ]


def tolerance_json(envelope: Envelope, fabric: Fabric, percent: int) -> dict[str, Any]:
    """Largest L and smallest bandwidth that keep T within *percent* of the native time; null beyond the box."""
    most = tolerances(envelope, fabric.native, Fraction(percent))
    most_gap = GAP.of(most)
    return {
        "percent": percent,
        **{axis.key: None if value is None else number(value) for axis, value in zip(AXES, most, strict=True)},
        "bandwidth_gbps": None if most_gap is None else gbps(most_gap),
    }
