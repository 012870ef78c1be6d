"""From a signature to its envelope by the cheapest way that is exact, or else a bracket (DESIGN section 6)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np

from atlas_lp.cache.store import Store, content_key
from atlas_lp.envelope import Box, Envelope, RankClasses
from atlas_lp.goal import EventGraph, Schedule, event_graph
from atlas_lp.goal.schedule import Ints
from atlas_lp.parameters import Fabric
from atlas_lp.rank_classes import choose_classes, planes_between
from atlas_lp.signatures import Signature, expand, operation_count
from atlas_lp.signatures.expand import MODEL_VERSION
from atlas_lp.signatures.symmetry import bracket, find_symmetry, quotient
from atlas_lp.solve import Planes, solve

FULL_OPERATIONS = 4_000_000
"""Schedules without exact symmetry are expanded fully up to this many operations, and bracketed beyond it."""


@dataclass(frozen=True)
class SignatureGraph:
    """The graph to solve a signature by, and how it was made: ``quotient``, ``full`` or ``bracket``.

    There is no graph when only a bracket is affordable.  ``rank_of_vertex`` is the GOAL rank of every vertex (-1 for
    none), ``goal_rank`` the one that stands for every rank of the signature.
    """

    graph: EventGraph | None
    method: str
    rank_of_vertex: Ints
    goal_rank: Ints


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
    envelope = solve_signature(signature, fabric, box, use_symmetry, by_class=True)
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
    signature: Signature,
    fabric: Fabric,
    box: Box,
    use_symmetry: bool = True,
    progress: Planes | None = None,
    *,
    by_class: bool = False,
) -> Envelope:
    """Solve *signature*: by symmetry where that is exact, fully where that is affordable, else as a bracket.

    ``method`` of the result says which.  A bracket is the envelope with all chunks as large as the largest; its
    ``bracket_width`` is the largest relative distance, at native point and corners, to that with all chunks as small as
    the smallest.  With *by_class* ranks that start or end earlier than others get planes of their own.
    """
    found = signature_graph(signature, fabric, use_symmetry)
    if found.graph is not None:
        envelope = replace(solve(found.graph, fabric, box, progress=progress), method=found.method)
        return replace(envelope, classes=_by_class(found, envelope, fabric)) if by_class else envelope
    lower, upper = bracket(signature)
    most = solve(_quotient_graph(upper, fabric), fabric, box, progress=progress)
    least = solve(_quotient_graph(lower, fabric), fabric, box, progress=progress)
    return replace(most, method="bracket", bracket_width=_width(least, most, fabric))


def signature_graph(signature: Signature, fabric: Fabric, use_symmetry: bool = True) -> SignatureGraph:
    """Return the graph to solve *signature* by, the cheapest that is exact."""
    symmetry = find_symmetry(signature) if use_symmetry else None
    if symmetry is not None:
        parts = quotient(signature, symmetry, fabric.reduce_copy, fabric.credits)
        return _signature_graph(*parts, fabric, "quotient", symmetry.class_of_rank)
    if use_symmetry and _has_bracket(signature) and operation_count(signature) > FULL_OPERATIONS:
        none = np.zeros(0, dtype=np.int64)
        return SignatureGraph(None, "bracket", none, none)
    schedule = expand(signature, fabric.reduce_copy, fabric.credits)
    return _signature_graph(schedule, np.array(signature.nodes), fabric, "full", np.arange(signature.ranks))


def _signature_graph(schedule: Schedule, nodes: Ints, fabric: Fabric, method: str, goal_rank: Ints) -> SignatureGraph:
    graph = _graph(schedule, nodes, fabric)
    rank_of_vertex = np.full(graph.vertices, -1, dtype=np.int32)
    rank_of_vertex[graph.vertex] = schedule.rank
    return SignatureGraph(graph, method, rank_of_vertex, goal_rank)


def _by_class(found: SignatureGraph, whole: Envelope, fabric: Fabric) -> RankClasses | None:
    """Solve between every two classes of ranks; None when all ranks are alike."""
    graph, ranks = found.graph, found.rank_of_vertex
    if graph is None or not len(graph.vertex):
        return None
    fixed, corners = fabric.theta(), whole.box.corners()
    thetas = [{**fixed, "messages": Fraction(x, w), "bytes": Fraction(y, w)} for x, y, w in corners]
    class_of_goal_rank, width = choose_classes(graph, ranks, thetas, len(whole.vectors))
    of_rank = class_of_goal_rank[found.goal_rank]
    count = int(of_rank.max()) + 1
    if count == 1:
        return None
    class_of_vertex = np.where(ranks >= 0, class_of_goal_rank[ranks], -1)
    planes = planes_between(graph, class_of_vertex, count, fixed, corners)
    return RankClasses(tuple(of_rank.tolist()), tuple(planes), width)


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
