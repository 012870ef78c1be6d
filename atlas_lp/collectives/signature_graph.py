"""From a signature to the messages that are solved in its place, the fewest that are exact, or to bounds of them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property

import numpy as np

from atlas_lp.collectives.limits import Limits
from atlas_lp.fabrics.fabric import Fabric
from atlas_lp.goal.event_graph import EventGraph, PortMessages
from atlas_lp.goal.schedule import SEND, Ints, Schedule
from atlas_lp.signatures.algorithms.expand import expand, operation_count
from atlas_lp.signatures.algorithms.ring import equal_chunks, neighbours, ring_bounds, ring_journeys
from atlas_lp.signatures.algorithms.symmetry import Symmetry, by_class, classes_of, find_symmetry, quotient
from atlas_lp.signatures.costs import load_costs
from atlas_lp.signatures.signature import Signature
from atlas_lp.signatures.slices import ACKNOWLEDGE_TAG, LINK_TAG
from atlas_lp.solver.envelope import Envelope
from atlas_lp.solver.folding import folded
from atlas_lp.solver.longest_path import Evaluator
from atlas_lp.solver.solve import as_it_is
from atlas_lp.units import format_size

_STEPS = 1 << 31
"""More than the slices of any channel."""


@dataclass(frozen=True)
class LeftOut:
    """Full loops that a schedule lacks, each so many *steps* long (docs/model.md#loops)."""

    loops: int = 0
    steps: int = 1


@dataclass(frozen=True)
class SignatureGraph:
    """The schedule to solve a signature by, and how it was made: ``quotient`` or ``full``.

    ``nodes`` is the node of every GOAL rank of the *schedule*; ``goal_rank`` is the one that stands for every rank of
    the signature; ``left_out`` says how many loops the schedule has less than the signature.
    """

    schedule: Schedule
    nodes: Ints
    method: str
    goal_rank: Ints
    fabric: Fabric
    left_out: LeftOut = LeftOut()

    @cached_property
    def messages(self) -> PortMessages:
        """The messages, before the order of the ports is decided."""
        return self.fabric.messages(self.schedule, self.nodes)

    def in_order(self) -> EventGraph:
        """The graph whose ports serve in the order of the point of the fabric, or in turn where it is given."""
        return self.messages.graph(self.messages.served(self.fabric.theta_at(self.fabric.order_at)))

    def rank_of_vertex(self, graph: EventGraph) -> Ints:
        """GOAL rank of every vertex of *graph*, made of :attr:`messages`; -1 for none."""
        ranks = np.full(graph.vertices, -1, dtype=np.int32)
        ranks[graph.vertex] = self.schedule.rank
        return ranks

    def sent_by_rank(self) -> tuple[tuple[int, int, int], ...]:
        """What every rank puts on its NIC: bytes of all bodies, messages, and the largest body."""
        sent = _sent(self.schedule, self.nodes, self.left_out)
        return tuple((size, count, largest) for size, count, largest in sent[self.goal_rank].tolist())

    def evaluator(self, graph: EventGraph, fabric: Fabric) -> Evaluator:
        """What evaluates *graph*, made of :attr:`messages`, with the loops that were left out."""
        if not self.left_out.loops:
            return as_it_is(graph, fabric)
        return folded(graph, self.schedule, self.left_out.steps, self.left_out.loops, fabric)

    def in_turn(self, turn: Ints) -> SignatureGraph:
        """The same with every operation in its *turn*."""
        return replace(self, schedule=replace(self.schedule, turn=turn))


def signature_graph(
    signature: Signature,
    fabric: Fabric,
    use_symmetry: bool = True,
    left_out: LeftOut = LeftOut(),
    limits: Limits | None = None,
) -> SignatureGraph:
    """Return what to solve *signature* by: one rank per class, with *use_symmetry* where that is exact, or all.

    Raises :class:`~atlas_lp.errors.UnsupportedError` where that is more than the *limits* allow.
    """
    symmetry = find_symmetry(signature) if use_symmetry else None
    classes = signature.ranks if symmetry is None else symmetry.classes
    (limits or Limits()).check_memory(_named(signature), operation_count(signature) * classes // signature.ranks)
    if symmetry is None:
        schedule, nodes = expand(signature, fabric.reduce_copy, fabric.credits), np.array(signature.nodes)
        return SignatureGraph(schedule, nodes, "full", np.arange(signature.ranks), fabric, left_out)
    schedule, nodes = quotient(signature, symmetry, fabric.reduce_copy, fabric.credits)
    return SignatureGraph(schedule, nodes, "quotient", symmetry.class_of_rank, fabric, left_out)


def _named(signature: Signature) -> str:
    size = format_size(signature.transfers.equal_bytes if signature.transfers else signature.size_bytes)
    return f"{signature.collective} of {size} on {signature.ranks} ranks"


def all_ranks(signature: Signature, fabric: Fabric, limits: Limits | None = None) -> SignatureGraph:
    """All ranks of *signature*, every operation in its turn on the ports of *fabric*, in the order of its point.

    Rings that are bracketed are in the order of their bracket, as by *limits*.
    """
    limits = limits or Limits()
    whole = signature_graph(signature, fabric, use_symmetry=False, limits=limits)
    large = operation_count(signature) > limits.full_operations
    uneven = UnevenRing.of(signature, fabric) if large else None
    if uneven is not None:
        return uneven.in_order(whole, fabric)
    return whole.in_turn(whole.messages.place(whole.messages.served(fabric.theta_at(fabric.order_at))))


@dataclass(frozen=True)
class UnevenRing:
    """A ring whose chunks differ in length and whose ranks are otherwise alike, between bounds with equal chunks.

    Its ports serve in one order, that of the bound from *above*; so do those of the bound from *below*.  *journeys* are
    paths that it has in any order.
    """

    signature: Signature
    above: SignatureGraph
    below: SignatureGraph
    journeys: Ints

    @classmethod
    def of(cls, signature: Signature, fabric: Fabric, left_out: LeftOut = LeftOut()) -> UnevenRing | None:
        """The bounds of *signature*; None where it is no such ring."""
        if signature.algorithm != "ring" or equal_chunks(signature):
            return None
        links = neighbours(signature)
        symmetry = None if links is None else classes_of(signature, links)
        if symmetry is None:
            return None
        costs, share = load_costs(fabric.reduce_copy), int(np.bincount(symmetry.class_of_rank).min())
        above, below = (
            _of_classes(by_class(signature, symmetry, own, fabric.credits), symmetry, fabric, left_out)
            for own in ring_bounds(signature, costs, symmetry.representative, share)
        )
        return cls(signature, above, below, ring_journeys(signature, costs))

    def least_ns(self, below: Envelope, where: tuple[Fraction, Fraction], fabric: Fabric) -> Fraction:
        """No order of the ports takes less than this at a point; *below* is the envelope of that bound."""
        theta = list(fabric.theta_at(where).values())
        paths = (
            sum((n * value for n, value in zip(row, theta, strict=True)), Fraction(0)) for row in self.journeys.tolist()
        )
        return max(below.time_ns(*where), *paths)

    def in_order(self, found: SignatureGraph, fabric: Fabric) -> SignatureGraph:
        """*found*, of all ranks or a bound, in the order of the bound from above at the point of *fabric*."""
        messages = self.above.messages
        place = messages.place(messages.served(fabric.theta_at(fabric.order_at)))
        of_rank = self.above.goal_rank
        of_goal_rank = of_rank if found.method == "full" else np.arange(found.schedule.ranks)
        sides = (self.above, np.arange(self.above.schedule.ranks)), (found, of_goal_rank)
        known, wanted = (_same_on_all_ranks(side, classes) for side, classes in sides)
        order = np.argsort(known)
        return found.in_turn(place[order[np.searchsorted(known[order], wanted)]])


def _of_classes(schedule: Schedule, symmetry: Symmetry, fabric: Fabric, left_out: LeftOut) -> SignatureGraph:
    return SignatureGraph(schedule, symmetry.port, "quotient", symmetry.class_of_rank, fabric, left_out)


def _same_on_all_ranks(found: SignatureGraph, class_of_rank: Ints) -> Ints:
    """A number for every operation of a ring that only those of the same class, channel, step and kind share."""
    schedule = found.schedule
    steps = schedule.step if schedule.step is not None else np.zeros(len(schedule), dtype=np.int64)
    acknowledges = schedule.tag >= ACKNOWLEDGE_TAG
    number = class_of_rank[schedule.rank]
    for column, most in ((schedule.cpu, LINK_TAG), (acknowledges, 2), (schedule.kind, 3), (steps, _STEPS)):
        number = number * most + column
    return number


def _sent(schedule: Schedule, nodes: Ints, left_out: LeftOut) -> Ints:
    """Per GOAL rank: bytes of all bodies that leave it for another node, messages, and the largest body."""
    sends = np.flatnonzero(schedule.kind == SEND)
    rank = schedule.rank[sends]
    leaves = nodes[rank] != nodes[schedule.peer[sends]] if schedule.scale_out is None else schedule.scale_out[sends]
    rank, body = rank[leaves], np.maximum(schedule.size[sends[leaves]] - 1, 0)
    result = np.zeros((schedule.ranks, 3), dtype=np.int64)
    times = np.ones(len(rank), dtype=np.int64)
    if left_out.loops and schedule.step is not None:
        # The second loop stands for all that were left out: the first may have more to do.
        times += left_out.loops * (schedule.step[sends[leaves]] // left_out.steps == 1)
    np.add.at(result[:, 0], rank, body * times)
    np.add.at(result[:, 1], rank, times)
    np.maximum.at(result[:, 2], rank, body)
    return result
