"""From a signature to the event graph that is solved in its place, the cheapest that is exact."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from atlas_lp.fabrics.fabric import Fabric
from atlas_lp.goal import SEND, EventGraph, Schedule, event_graph
from atlas_lp.goal.schedule import Ints
from atlas_lp.signatures.algorithms.expand import expand, operation_count
from atlas_lp.signatures.algorithms.ring import equal_chunks
from atlas_lp.signatures.algorithms.symmetry import find_symmetry, quotient
from atlas_lp.signatures.signature import Signature


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


def needs_bracket(signature: Signature, full_operations: int) -> bool:
    """Whether no exact graph of *signature* is affordable: it has no symmetry, and too many operations to expand."""
    return _has_bracket(signature) and operation_count(signature) > full_operations


def signature_graph(signature: Signature, fabric: Fabric, use_symmetry: bool = True) -> SignatureGraph:
    """Return the graph of *signature*: one rank per class with *use_symmetry* where that is exact, else all ranks."""
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


def _has_bracket(signature: Signature) -> bool:
    """Whether only the rule for the last chunk of an AllReduce ring stands between *signature* and equal chunks."""
    recorded = any(part.last_chunk for part in signature.parts)
    ring = signature.algorithm == "ring" and signature.collective == "AllReduce"
    plain = not recorded and not signature.interleaved
    return ring and plain and not equal_chunks(signature)
