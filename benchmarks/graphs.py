"""The graphs of the benchmarks, built from columns: no Python loop over operations.

Two kinds.  The *stencil* is a ring of ranks that compute for random times and then exchange messages with both
neighbours, again and again: its critical path changes with L, which makes it the honest workload of an LP solver.  With
messages of random sizes it changes with L and G in over a thousand ways.  The *ring* is NCCL's ring AllReduce as the
library expands it.
"""

from __future__ import annotations

import numpy as np

from atlas_lp.fabrics.fabric import Fabric
from atlas_lp.goal import CALC, RECV, SEND, EventGraph, Schedule, event_graph
from atlas_lp.signatures.algorithms.expand import expand
from atlas_lp.signatures.nccl.protocols import Protocol
from atlas_lp.signatures.signature import Signature, ring_signature
from atlas_lp.signatures.topology import assumed_rings

CALC_NS = 50_000, 150_000
"""Shortest and longest compute time of a stencil iteration."""

EQUAL_BYTES = 1 << 15, 1 << 15
RANDOM_BYTES = 1 << 10, 1 << 16
"""Smallest and largest message of a stencil."""

# One iteration of one rank: compute, send both ways, receive from both sides.
_ITERATION = np.array([CALC, SEND, SEND, RECV, RECV], dtype=np.int8)
_OPERATIONS = len(_ITERATION)
_RIGHTWARD, _LEFTWARD = 0, 1


def stencil(
    ranks: int = 64, iterations: int = 312, seed: int = 1, message_bytes: tuple[int, int] = EQUAL_BYTES
) -> Schedule:
    """A periodic one-dimensional stencil: ``ranks * (5 * iterations + 1)`` operations.

    A block holds, per iteration, a calc, the sends to the left and right and the receives from the left and right, and
    a last calc of 0 ns.  All four messages require the calc; the next calc requires all five.  The tag of a message is
    0 to the right and 1 to the left, so that messages match first in, first out.
    """
    random = np.random.default_rng(seed)
    compute = random.integers(*CALC_NS, size=(ranks, iterations), endpoint=True)
    to_left, to_right = random.integers(*message_bytes, size=(2, ranks, iterations), endpoint=True)
    number = np.arange(ranks)
    left, right = (number - 1) % ranks, (number + 1) % ranks
    sizes = np.stack([compute, to_left, to_right, to_right[left], to_left[right]], axis=2)
    peers = np.stack([np.full(ranks, -1), left, right, left, right], axis=1)
    tags = np.array([0, _LEFTWARD, _RIGHTWARD, _RIGHTWARD, _LEFTWARD])
    block = _OPERATIONS * iterations + 1
    before, after = _stencil_dependencies(ranks, iterations)
    zeros = np.zeros(ranks * block, dtype=np.int64)
    return Schedule(
        ranks=ranks,
        kind=np.tile(np.append(np.tile(_ITERATION, iterations), CALC).astype(np.int8), ranks),
        rank=np.repeat(number, block),
        size=_with_last(sizes.reshape(ranks, -1), 0),
        peer=_with_last(np.tile(peers, (1, iterations)), -1),
        tag=_with_last(np.tile(tags, (ranks, iterations)), 0),
        cpu=zeros,
        nic=zeros,
        before=before,
        after=after,
        on_start=np.zeros(len(before), dtype=np.bool_),
    )


def _with_last(rows: np.ndarray, last: int) -> np.ndarray:
    """Append one column to *rows* and lay them out one after another."""
    return np.pad(rows, ((0, 0), (0, 1)), constant_values=last).reshape(-1)


def _stencil_dependencies(ranks: int, iterations: int) -> tuple[np.ndarray, np.ndarray]:
    """Columns (before, after): the messages on their calc, the next calc on everything."""
    block = _OPERATIONS * iterations + 1
    calc = np.arange(ranks)[:, None] * block + np.arange(iterations) * _OPERATIONS
    everything = calc[..., None] + np.arange(_OPERATIONS)
    messages, following = everything[..., 1:], calc + _OPERATIONS
    before = np.concatenate([np.repeat(calc.reshape(-1), _OPERATIONS - 1), everything.reshape(-1)])
    after = np.concatenate([messages.reshape(-1), np.repeat(following.reshape(-1), _OPERATIONS)])
    return before, after


def stencil_of(vertices: int, ranks: int = 64, seed: int = 1, message_bytes: tuple[int, int] = EQUAL_BYTES) -> Schedule:
    """The stencil whose graph comes nearest to so many vertices."""
    return stencil(ranks, max(1, round(vertices / ranks / _OPERATIONS)), seed, message_bytes)


def ring(ranks: int, channels: int, size_bytes: int, gpus_per_node: int) -> Signature:
    """Ring AllReduce of float32 with protocol Simple on rings in the order of nodes."""
    nodes = [rank // gpus_per_node for rank in range(ranks)]
    return ring_signature("AllReduce", Protocol.SIMPLE, size_bytes, assumed_rings(nodes, channels), nodes, nccl="2.28")


def ring_graph(signature: Signature, fabric: Fabric) -> EventGraph:
    """The full graph of a ring, every rank expanded: no quotient."""
    return event_graph(
        expand(signature, fabric.reduce_copy, fabric.credits), np.array(signature.nodes), fabric.port_rule
    )


def csr_bytes(graph: EventGraph) -> int:
    """Bytes of the arrays that hold the graph itself."""
    return int(graph.in_start.nbytes + graph.source.nbytes + graph.cost.nbytes)
