"""From a signature to its envelope by the cheapest way that is exact, or else a bracket; solved once and kept.

docs/model.md#symmetry and docs/model.md#program have the reasons.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np

from atlas_lp.cache.store import Store, content_key
from atlas_lp.collectives.limits import Limits
from atlas_lp.collectives.rank_classes import can_solve_by_rank, choose_classes, planes_between
from atlas_lp.collectives.signature_graph import SignatureGraph, needs_bracket, signature_graph
from atlas_lp.fabrics.fabric import Fabric
from atlas_lp.progress import Progress
from atlas_lp.signatures.algorithms.expand import MODEL_VERSION
from atlas_lp.signatures.algorithms.ring import bracket
from atlas_lp.signatures.signature import Signature
from atlas_lp.solver.envelope import Box, Envelope, RankClasses
from atlas_lp.solver.solve import PlanesFound, solve


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
            found = signature_graph(signature, self.fabric, use_symmetry=False)
            corners = envelope.box.corners()
            between = planes_between(found.graph, found.rank_of_vertex, signature.ranks, self.fabric.theta(), corners)
            return replace(envelope, classes=RankClasses(tuple(range(signature.ranks)), tuple(between)))

        key = content_key({"of": self.key(signature), "by": "rank"})
        return self.store.solved(key, planes, _about(signature), counted=False).by_class

    def graph(self, signature: Signature) -> SignatureGraph | None:
        """The graph to solve *signature* by, the cheapest that is exact; None when only a bracket is affordable."""
        if self.use_symmetry and needs_bracket(signature, self.limits.full_operations):
            return None
        return signature_graph(signature, self.fabric, self.use_symmetry)

    def solve(self, signature: Signature, *, by_class: bool = False, planes: PlanesFound | None = None) -> Envelope:
        """Solve *signature*: by symmetry where that is exact, fully where that is affordable, else as a bracket.

        ``method`` of the result says which.  A bracket is the envelope with all chunks as large as the largest; its
        ``bracket_width`` is the largest relative distance, at the corners of the box, to that with all chunks as small
        as the smallest.  With *by_class* ranks that start or end earlier than others get planes of their own.
        *planes* is told how many were found.
        """
        found = self.graph(signature)
        if found is None:
            return self._bracket(signature, planes)
        envelope = replace(self._solved(found, planes), method=found.method)
        if by_class:
            classes = self._by_class(found, envelope)
            envelope = replace(envelope, classes=classes, sent=found.sent_by_rank())
        return envelope

    def _solved(self, found: SignatureGraph, planes: PlanesFound | None) -> Envelope:
        """The envelope of a graph, checked at points of the box alone: an entry does not depend on the native point."""
        middle = self.fabric.at(latency_ns=self.box.middle[0], gap_ns_per_byte=self.box.middle[1])
        return solve(found.graph, middle, self.box, limits=self.limits.check, progress=planes)

    def _bracket(self, signature: Signature, planes: PlanesFound | None) -> Envelope:
        lower, upper = (signature_graph(side, self.fabric) for side in bracket(signature))
        most, least = (self._solved(side, planes) for side in (upper, lower))
        points = [(Fraction(x, w), Fraction(y, w)) for x, y, w in self.box.corners()]
        tops = [most.time_ns(*where) for where in points]
        width = max(float(abs(top - least.time_ns(*where)) / top) for top, where in zip(tops, points, strict=True))
        return replace(most, method="bracket", bracket_width=width, sent=upper.sent_by_rank())

    def _by_class(self, found: SignatureGraph, whole: Envelope) -> RankClasses | None:
        """Solve between every two classes of ranks; None when all ranks are alike."""
        graph, ranks = found.graph, found.rank_of_vertex
        if not len(graph.vertex):
            return None
        fixed, corners = self.fabric.theta(), whole.box.corners()
        thetas = [{**fixed, "messages": Fraction(x, w), "bytes": Fraction(y, w)} for x, y, w in corners]
        count, planes = int(found.goal_rank.max()) + 1, len(whole.vectors)
        class_of_goal_rank, width = choose_classes(graph, ranks, count, thetas, planes, self.limits)
        of_rank = class_of_goal_rank[found.goal_rank]
        count = int(of_rank.max()) + 1
        if count == 1:
            return None
        class_of_vertex = np.where(ranks >= 0, class_of_goal_rank[ranks], -1)
        between = planes_between(graph, class_of_vertex, count, fixed, corners)
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
