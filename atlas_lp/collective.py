"""From a signature to its envelope by the cheapest way that is exact, or else a bracket (DESIGN section 6)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from atlas_lp.cache.store import Store, content_key
from atlas_lp.envelope import Box, Envelope
from atlas_lp.goal import EventGraph, Schedule, event_graph
from atlas_lp.goal.schedule import Ints
from atlas_lp.parameters import Fabric
from atlas_lp.signatures import Signature, expand, operation_count
from atlas_lp.signatures.expand import MODEL_VERSION
from atlas_lp.signatures.symmetry import bracket, find_symmetry, quotient
from atlas_lp.solve import Planes, solve

FULL_OPERATIONS = 4_000_000
"""Schedules without exact symmetry are expanded fully up to this many operations, and bracketed beyond it."""


def envelope_key(signature: Signature, fabric: Fabric, box: Box, use_symmetry: bool = True) -> str:
    """Cache key of a solved signature: all that its envelope depends on."""
    return content_key(
        {
            "signature": signature.canonical(),
            "fixed": fabric.fixed(),
            "box": [str(value) for value in box.__dict__.values()],
            "symmetry": use_symmetry,
            "model": MODEL_VERSION,
        }
    )


def solve_cached(signature: Signature, fabric: Fabric, box: Box, store: Store, use_symmetry: bool = True) -> Envelope:
    """Return the envelope of *signature*, from *store*, or solved and stored."""
    key = envelope_key(signature, fabric, box, use_symmetry)
    found = store.get(key)
    if isinstance(found, Envelope):
        return found
    envelope = solve_signature(signature, fabric, box, use_symmetry)
    store.put(key, envelope, _about(signature))
    return envelope


def _about(signature: Signature) -> Mapping[str, Any]:
    return {
        "signature": signature.key(),
        "type": signature.collective,
        "algorithm": signature.algorithm,
        "protocol": signature.protocol.value,
        "size_bytes": signature.size_bytes,
        "ranks": signature.ranks,
        "channels": signature.channels,
        "nodes": len(set(signature.nodes)),
    }


def solve_signature(
    signature: Signature, fabric: Fabric, box: Box, use_symmetry: bool = True, progress: Planes | None = None
) -> Envelope:
    """Solve *signature*: by symmetry where that is exact, fully where that is affordable, else as a bracket.

    ``method`` of the result says which.  A bracket is the envelope with all chunks as large as the largest; its
    ``bracket_width`` is the largest relative distance, at native point and corners, to that with all chunks as small as
    the smallest.
    """
    graph, method = signature_graph(signature, fabric, use_symmetry)
    if graph is not None:
        return replace(solve(graph, fabric, box, progress=progress), method=method)
    lower, upper = bracket(signature)
    most = solve(_quotient_graph(upper, fabric), fabric, box, progress=progress)
    least = solve(_quotient_graph(lower, fabric), fabric, box, progress=progress)
    return replace(most, method="bracket", bracket_width=_width(least, most, fabric))


def signature_graph(signature: Signature, fabric: Fabric, use_symmetry: bool = True) -> tuple[EventGraph | None, str]:
    """Return the graph to solve and ``quotient`` or ``full``; no graph when only a bracket is affordable."""
    symmetry = find_symmetry(signature) if use_symmetry else None
    if symmetry is not None:
        return _graph(*quotient(signature, symmetry, fabric.reduce_copy, fabric.credits), fabric), "quotient"
    if use_symmetry and _has_bracket(signature) and operation_count(signature) > FULL_OPERATIONS:
        return None, "bracket"
    schedule = expand(signature, fabric.reduce_copy, fabric.credits)
    return _graph(schedule, np.array(signature.nodes), fabric), "full"


def _has_bracket(signature: Signature) -> bool:
    """Whether only the rule for the last chunk of an AllReduce ring stands between *signature* and equal chunks."""
    recorded = any(part.last_chunk for part in signature.parts)
    ring = signature.algorithm == "ring" and signature.collective == "AllReduce"
    return ring and not recorded and not signature.interleaved and not signature.channel_nics


def _quotient_graph(signature: Signature, fabric: Fabric) -> EventGraph:
    """Return the graph of a signature made to have equal chunks."""
    symmetry = find_symmetry(signature)
    if symmetry is None:
        return _graph(expand(signature, fabric.reduce_copy, fabric.credits), np.array(signature.nodes), fabric)
    return _graph(*quotient(signature, symmetry, fabric.reduce_copy, fabric.credits), fabric)


def _graph(schedule: Schedule, nodes: Ints, fabric: Fabric) -> EventGraph:
    return event_graph(schedule, nodes, fabric.port_rule, fabric.ingress)


def _width(least: Envelope, most: Envelope, fabric: Fabric) -> float:
    """Largest relative distance of the two sides at the native point and the corners of the box."""
    box = most.box
    points = [(fabric.latency_ns, fabric.gap_ns_per_byte)]
    points += [
        (latency, gap)
        for latency in (box.latency_from_ns, box.latency_to_ns)
        for gap in (box.gap_from_ns_per_byte, box.gap_to_ns_per_byte)
    ]
    tops = [most.time_ns(*point) for point in points]
    return max(float(abs(top - least.time_ns(*point)) / top) for top, point in zip(tops, points, strict=True))
