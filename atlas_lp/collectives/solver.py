"""From a signature to its envelope by the cheapest way that is exact, or else a bracket (DESIGN section 6)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np

from atlas_lp.cache.store import Store, content_key
from atlas_lp.collectives.rank_classes import choose_classes, planes_between
from atlas_lp.fabrics.fabric import Fabric
from atlas_lp.goal import SEND, EventGraph, Schedule, event_graph
from atlas_lp.goal.schedule import Ints
from atlas_lp.signatures.algorithms.expand import MODEL_VERSION, expand, operation_count
from atlas_lp.signatures.algorithms.ring import bracket, equal_chunks
from atlas_lp.signatures.algorithms.symmetry import find_symmetry, quotient
from atlas_lp.signatures.signature import Signature
from atlas_lp.solver.envelope import Box, Envelope, RankClasses
from atlas_lp.solver.solve import Planes, solve

FULL_OPERATIONS = 4_000_000
"""Schedules without exact symmetry are expanded fully up to this many operations, and bracketed beyond it."""


@dataclass(frozen=True)
class SignatureGraph:
    """The graph to solve a signature by, and how it was made: ``quotient`` or ``full``.

    ``rank_of_vertex`` is the GOAL rank of every vertex (-1 for none), ``goal_rank`` the one that stands for every rank
    of the signature; ``sent`` is as in an :class:`~atlas_lp.solver.envelope.Envelope`, per GOAL rank.
    """

    graph: EventGraph
    method: str
    rank_of_vertex: Ints
    goal_rank: Ints
    sent: Ints

    def sent_by_rank(self) -> tuple[tuple[int, int, int], ...]:
        """What every rank of the signature puts on its NIC."""
        return tuple((size, count, largest) for size, count, largest in self.sent[self.goal_rank].tolist())


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


def solve_by_rank(
    signature: Signature, envelope: Envelope, fabric: Fabric, store: Store, use_symmetry: bool = True
) -> RankClasses:
    """Return the planes between every two ranks, from *store* or solved: with them nothing is held together.

    *envelope* is that of *signature*; see :func:`~atlas_lp.collectives.rank_classes.can_solve_by_rank` for what is
    affordable.
    """
    key = content_key({"of": envelope_key(signature, fabric, envelope.box, use_symmetry), "by": "rank"})
    known = store.get(key, counted=False)
    if isinstance(known, Envelope):
        return known.by_class
    found = _graph_of(signature, fabric, use_symmetry=False)
    planes = planes_between(found.graph, found.rank_of_vertex, signature.ranks, fabric.theta(), envelope.box.corners())
    classes = RankClasses(tuple(range(signature.ranks)), tuple(planes))
    store.put(key, replace(envelope, classes=classes), _about(signature))
    return classes


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
    if found is not None:
        envelope = replace(solve(found.graph, fabric, box, progress=progress), method=found.method)
        if by_class:
            envelope = replace(envelope, classes=_by_class(found, envelope, fabric), sent=found.sent_by_rank())
        return envelope
    lower, upper = (_graph_of(side, fabric) for side in bracket(signature))
    most, least = (solve(side.graph, fabric, box, progress=progress) for side in (upper, lower))
    width = _width(least, most, fabric)
    return replace(most, method="bracket", bracket_width=width, sent=upper.sent_by_rank())


def signature_graph(signature: Signature, fabric: Fabric, use_symmetry: bool = True) -> SignatureGraph | None:
    """Return the graph to solve *signature* by, the cheapest that is exact; None when only a bracket is affordable."""
    if use_symmetry and _has_bracket(signature) and operation_count(signature) > FULL_OPERATIONS:
        return None
    return _graph_of(signature, fabric, use_symmetry)


def _graph_of(signature: Signature, fabric: Fabric, use_symmetry: bool = True) -> SignatureGraph:
    """By symmetry where that is exact, else fully."""
    symmetry = find_symmetry(signature) if use_symmetry else None
    if symmetry is None:
        schedule, nodes = expand(signature, fabric.reduce_copy, fabric.credits), np.array(signature.nodes)
        method, goal_rank = "full", np.arange(signature.ranks)
    else:
        schedule, nodes = quotient(signature, symmetry, fabric.reduce_copy, fabric.credits)
        method, goal_rank = "quotient", symmetry.class_of_rank
    graph = event_graph(schedule, nodes, fabric.port_rule, fabric.ingress)
    rank_of_vertex = np.full(graph.vertices, -1, dtype=np.int32)
    rank_of_vertex[graph.vertex] = schedule.rank
    return SignatureGraph(graph, method, rank_of_vertex, goal_rank, _sent(schedule, nodes))


def _sent(schedule: Schedule, nodes: Ints) -> Ints:
    """Per GOAL rank: bytes of all bodies that leave it for another node, messages, and the largest body."""
    sends = np.flatnonzero(schedule.kind == SEND)
    rank = schedule.rank[sends]
    leaves = nodes[rank] != nodes[schedule.peer[sends]] if schedule.scale_out is None else schedule.scale_out[sends]
    rank, body = rank[leaves], np.maximum(schedule.size[sends[leaves]] - 1, 0)
    result = np.zeros((schedule.ranks, 3), dtype=np.int64)
    np.add.at(result[:, 0], rank, body)
    np.add.at(result[:, 1], rank, 1)
    np.maximum.at(result[:, 2], rank, body)
    return result


def _by_class(found: SignatureGraph, whole: Envelope, fabric: Fabric) -> RankClasses | None:
    """Solve between every two classes of ranks; None when all ranks are alike."""
    graph, ranks = found.graph, found.rank_of_vertex
    if not len(graph.vertex):
        return None
    fixed, corners = fabric.theta(), whole.box.corners()
    thetas = [{**fixed, "messages": Fraction(x, w), "bytes": Fraction(y, w)} for x, y, w in corners]
    class_of_goal_rank, width = choose_classes(graph, ranks, int(found.goal_rank.max()) + 1, thetas, len(whole.vectors))
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
    plain = not recorded and not signature.interleaved
    return ring and plain and not equal_chunks(signature)


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
