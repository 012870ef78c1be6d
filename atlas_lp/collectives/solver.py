"""From a signature to its envelope by the cheapest way that is exact, or else a bracket; solved once and kept.

docs/model.md#symmetry and docs/model.md#program have the reasons.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from fractions import Fraction
from typing import Any, Unpack

import numpy as np

from atlas_lp.cache.store import Store, content_key
from atlas_lp.collectives.limits import Limits
from atlas_lp.collectives.rank_classes import can_solve_by_rank, choose_classes, planes_between
from atlas_lp.collectives.signature_graph import LeftOut, SignatureGraph, UnevenRing, all_ranks, signature_graph
from atlas_lp.fabrics.fabric import Fabric
from atlas_lp.goal.event_graph import EventGraph
from atlas_lp.progress import Progress
from atlas_lp.signatures.algorithms.expand import MODEL_VERSION, operation_count
from atlas_lp.signatures.algorithms.table import algorithm_of
from atlas_lp.signatures.signature import Signature
from atlas_lp.solver.envelope import Box, Envelope, RankClasses
from atlas_lp.solver.folding import NotPeriodic
from atlas_lp.solver.longest_path import Evaluator
from atlas_lp.solver.port_order import solve_in_order, solve_messages
from atlas_lp.solver.solve import How, solve

_LOOPS = (12, 1), (24, 2), (48, 4), (96, 12), (192, 24)
"""Loops that are expanded at least, and how many of them together are taken to be alike, one try after the other."""


class CollectiveSolver:
    """Solves signatures on *fabric*, exact over *box*, and keeps what it solved in *store*.

    Without *use_symmetry* every signature is expanded fully.  *progress* is told what is being solved; *limits* say
    what is affordable.  Nothing that it returns depends on what was in the store before.
    """

    def __init__(
        self,
        fabric: Fabric,
        box: Box | None = None,
        store: Store | None = None,
        use_symmetry: bool = True,
        progress: Progress | None = None,
        limits: Limits | None = None,
    ) -> None:
        self.fabric = fabric
        self.box = box or Box()
        self.store = store or Store(None)
        self.use_symmetry = use_symmetry
        self.progress = progress
        self.limits = limits or Limits()

    def at(self, fabric: Fabric, box: Box) -> CollectiveSolver:
        """The same for another fabric and box."""
        return CollectiveSolver(fabric, box, self.store, self.use_symmetry, self.progress, self.limits)

    def telling(self, progress: Progress | None) -> CollectiveSolver:
        """The same, which tells *progress* what it does."""
        return CollectiveSolver(self.fabric, self.box, self.store, self.use_symmetry, progress, self.limits)

    def key(self, signature: Signature) -> str:
        """Cache key of a solved signature: all that its envelope depends on."""
        return content_key(
            {
                "signature": signature.canonical(),
                "fixed": self.fabric.fixed(),
                "box": self.box.canonical(),
                "symmetry": self.use_symmetry,
                "limits": self.limits.canonical(),
                "model": MODEL_VERSION,
            }
        )

    def envelope(self, signature: Signature) -> Envelope:
        """The envelope of *signature* with the planes between its classes of ranks, from the store or solved."""
        key = self.key(signature)
        return self.store.solved(key, lambda: self.solve(signature, by_class=True), _about(signature))

    def envelopes(self, signatures: Mapping[str, Signature]) -> dict[str, Envelope]:
        """The envelopes of all *signatures*, by key."""
        result = {}
        for done, (key, signature) in enumerate(signatures.items()):
            if self.progress is not None:
                self.progress("signatures", done, len(signatures))
            result[key] = self.envelope(signature)
        return result

    def can_solve_by_rank(self, signature: Signature, envelope: Envelope) -> bool:
        """Whether a class for every rank is affordable, and there is none yet."""
        split = envelope.by_class.count < signature.ranks
        return split and can_solve_by_rank(signature, len(envelope.vectors), self.limits)

    def by_rank(self, signature: Signature, envelope: Envelope) -> RankClasses:
        """The planes between every two ranks, from the store or solved: with them nothing is held together.

        *envelope* is that of *signature*; :meth:`can_solve_by_rank` says what is affordable.
        """

        def planes() -> Envelope:
            serving = self.fabric.in_order_of(envelope.order_at or self.fabric.order_at)
            found = all_ranks(signature, serving, self.limits)
            graph = found.in_order()
            corners, ranks = envelope.box.corners(), found.rank_of_vertex(graph)
            whole = Evaluator(graph, self.fabric.theta())
            between = planes_between(graph, ranks, signature.ranks, whole, corners)
            return replace(envelope, classes=RankClasses(tuple(range(signature.ranks)), tuple(between)))

        key = content_key({"of": self.key(signature), "by": "rank"})
        return self.store.solved(key, planes, _about(signature), counted=False).by_class

    def graph(self, signature: Signature) -> tuple[EventGraph, str] | None:
        """The graph of *signature* in the order of ``fabric.order_at``, and how it was made; None for a bracket."""
        if self._is_large(signature) and UnevenRing.of(signature, self.fabric) is not None:
            return None if self.use_symmetry else (all_ranks(signature, self.fabric, self.limits).in_order(), "full")
        found = signature_graph(signature, self.fabric, self.use_symmetry, limits=self.limits)
        return found.in_order(), found.method

    def solve(self, signature: Signature, *, by_class: bool = False, **how: Unpack[How]) -> Envelope:
        """Solve *signature*: by symmetry where that is exact, fully where that is affordable, else as a bracket.

        ``method`` of the result says which.  A bracket is the bound from above of a ring whose chunks differ; its
        ``bracket_width`` is the largest relative distance, at the corners of the box, to that from below.  With
        *by_class* ranks that start or end earlier than others get planes of their own.
        """
        return self.solved(signature, by_class=by_class, **how)[1]

    def solved(
        self, signature: Signature, *, by_class: bool = False, **how: Unpack[How]
    ) -> tuple[EventGraph, Envelope]:
        """What :meth:`solve` does; with the graph that was solved, of a bracket the one from above."""
        how = {"limits": self.limits.check, "tolerance": self.limits.tolerance, **how}
        for short, left_out in self._shortened(signature):
            try:
                return self._solved(short, left_out, by_class, **how)
            except NotPeriodic:
                continue
        return self._solved(signature, LeftOut(), by_class, **how)

    def _shortened(self, signature: Signature) -> Iterator[tuple[Signature, LeftOut]]:
        """The same with more and more of its loops, where it has many operations."""
        loops = algorithm_of(signature).loops(signature)
        operations = operation_count(signature)
        if loops is None or operations <= self.limits.loop_operations:
            return
        for kept, together in _LOOPS:
            if 2 * kept < loops.count:
                missing = (loops.count - kept) // together
                yield loops.without(signature, missing * together), LeftOut(missing, loops.steps * together)

    def _solved(
        self, signature: Signature, left_out: LeftOut, by_class: bool, **how: Unpack[How]
    ) -> tuple[EventGraph, Envelope]:
        """Solve a signature that some loops may be left out of; raises :class:`NotPeriodic` for too many of them."""
        uneven = UnevenRing.of(signature, self.fabric, left_out) if self._is_large(signature) else None
        if uneven is None:
            found = signature_graph(signature, self.fabric, self.use_symmetry, left_out, self.limits)
            how["evaluate"] = found.evaluator
            graph, envelope = solve_messages(found.messages, self._middle, self.box, **how)
            envelope = replace(envelope, method=found.method)
        else:
            found, graph, envelope = self._uneven(uneven, **how)
        if by_class:
            classes = self._by_class(found, graph, envelope)
            envelope = replace(envelope, classes=classes, sent=found.sent_by_rank())
        return graph, envelope

    @property
    def _middle(self) -> Fabric:
        """The fabric at the middle of the box: what is solved there does not depend on the native point."""
        return self.fabric.at(latency_ns=self.box.middle[0], gap_ns_per_byte=self.box.middle[1])

    def _is_large(self, signature: Signature) -> bool:
        """Whether a ring whose chunks differ is bracketed, and otherwise in the order of its bracket."""
        return operation_count(signature) > self.limits.full_operations

    def _uneven(self, uneven: UnevenRing, **how: Unpack[How]) -> tuple[SignatureGraph, EventGraph, Envelope]:
        """Solve a ring whose chunks differ, all ranks or as a bracket, in the order of its bound from above."""
        how["evaluate"] = uneven.above.evaluator
        graph, above = solve_messages(uneven.above.messages, self._middle, self.box, **how)
        fabric = self._middle.in_order_of(above.order_at or self.fabric.order_at)
        if not self.use_symmetry:
            whole = signature_graph(uneven.signature, self.fabric, False, uneven.above.left_out, self.limits)
            how["evaluate"] = whole.evaluator
            ordered = uneven.in_order(whole, fabric)
            graph, envelope = solve_in_order(whole.messages, ordered.in_order(), fabric, self.box, **how)
            return whole, graph, replace(envelope, method="full")
        how["evaluate"] = uneven.below.evaluator
        below = solve(uneven.in_order(uneven.below, fabric).in_order(), fabric, self.box, **how)
        points = [(Fraction(x, w), Fraction(y, w)) for x, y, w in self.box.corners()]
        tops = [above.time_ns(*where) for where in points]
        least = [uneven.least_ns(below, where, fabric) for where in points]
        width = max(float((top - low) / top) for top, low in zip(tops, least, strict=True))
        return uneven.above, graph, replace(above, method="bracket", bracket_width=width)

    def _by_class(self, found: SignatureGraph, graph: EventGraph, whole: Envelope) -> RankClasses | None:
        """Solve between every two classes of ranks; None when all ranks are alike."""
        if not len(graph.vertex):
            return None
        ranks = found.rank_of_vertex(graph)
        fixed, corners = self.fabric.theta(), whole.box.corners()
        evaluator = found.evaluator(graph, self.fabric.in_order_of(whole.order_at or self.fabric.order_at))
        thetas = [{**fixed, "messages": Fraction(x, w), "bytes": Fraction(y, w)} for x, y, w in corners]
        count, planes = int(found.goal_rank.max()) + 1, len(whole.vectors)
        class_of_goal_rank, width = choose_classes(graph, ranks, count, thetas, planes, self.limits)
        of_rank = class_of_goal_rank[found.goal_rank]
        count = int(of_rank.max()) + 1
        if count == 1:
            return None
        class_of_vertex = np.where(ranks >= 0, class_of_goal_rank[ranks], -1)
        between = planes_between(graph, class_of_vertex, count, evaluator, corners)
        return RankClasses(tuple(of_rank.tolist()), tuple(between), width)


def _about(signature: Signature) -> Mapping[str, Any]:
    """What ``cache ls`` shows of a signature."""
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
