"""Plain values for JSON, as every verb and the report read them, and the answer in one sentence."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from atlas_lp.fabrics.fabric import Fabric
from atlas_lp.program.critical_path import Step
from atlas_lp.program.job import Job
from atlas_lp.solver.axis import AXES, GAP, Axis
from atlas_lp.solver.envelope import Box, Envelope, Piece, furthest
from atlas_lp.traces.signing.sign import SignedInstance
from atlas_lp.units import format_bandwidth, format_time, gbps, number


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

    held = {axis: fabric.native[axis.other.index] for axis in AXES}
    return {axis.name: [row(piece, axis) for piece in envelope.along(axis, held[axis])] for axis in AXES}


def joint_json(envelope: Envelope) -> list[dict[str, Any]]:
    """Return all planes of T(L, G), sorted."""
    return [
        {"constant_ns": number(c), "messages": m, "bytes": b}
        for c, m, b in sorted(envelope.planes(), key=lambda plane: (plane[1], plane[2], plane[0]))
    ]


def tolerance_json(envelope: Envelope, fabric: Fabric, percent: int) -> dict[str, Any]:
    """Largest L and smallest bandwidth that keep T within *percent* of the native time; null beyond the box."""
    limit = envelope.time_ns(*fabric.native) * (1 + Fraction(percent, 100))
    most = {axis: furthest(envelope.along(axis, fabric.native[axis.other.index]), limit) for axis in AXES}
    most_gap = most[GAP]
    return {
        "percent": percent,
        **{axis.key: None if value is None else number(value) for axis, value in most.items()},
        "bandwidth_gbps": None if most_gap is None else gbps(most_gap),
    }


_DOMINANT = {
    "compute_and_idle_ns": "compute and idle time",
    "reduce_copy_ns": "reduce and copy loops inside collectives",
    "latency_ns": "scale-out latency",
    "bandwidth_ns": "scale-out bandwidth",
    "overhead_ns": "message overheads",
    "scale_up_ns": "scale-up transfers",
    "other_fabrics_ns": "collectives on fabrics of their own",
}


def headline(summary: dict[str, Any]) -> str:
    """The answer in one sentence: native point, time there, what dominates, tolerances."""
    native, tolerance = summary["native"], summary["tolerance"]
    largest, amount = max(summary["breakdown"].items(), key=lambda item: item[1])
    share = 100 * amount / summary["makespan_ns"] if summary["makespan_ns"] else 0.0
    box = summary["box"]
    if tolerance["latency_ns"] is None:
        latency = f"any L up to {format_time(box['latency_to_ns'])}"
    else:
        latency = f"L up to {format_time(tolerance['latency_ns'])}"
    if tolerance["bandwidth_gbps"] is None:
        bandwidth = f"any bandwidth down to {format_bandwidth(Fraction(box['gap_to_ns_per_byte']))}"
    else:
        bandwidth = f"bandwidth down to {format_bandwidth(Fraction(tolerance['gap_ns_per_byte']))}"
    return (
        f"At L = {format_time(native['latency_ns'])} and {format_bandwidth(Fraction(native['gap_ns_per_byte']))} "
        f"the recorded schedule "
        f"takes {format_time(summary['makespan_ns'])}; {_DOMINANT[largest]}: {share:.0f} % of it; it stays within "
        f"+{tolerance['percent']} % for {latency}, or for {bandwidth}."
    )
