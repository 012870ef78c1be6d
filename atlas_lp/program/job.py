"""A job ready to be asked: its collectives solved, and composed into a program.

Data flows once: trace, unique signatures, cached envelopes, program.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypedDict

import numpy as np

from atlas_lp.cache.store import Store, content_key
from atlas_lp.collectives.rank_classes import fixed_at
from atlas_lp.collectives.solver import solve_cached
from atlas_lp.fabrics.fabric import Fabric
from atlas_lp.goal.event_graph import COMPONENTS
from atlas_lp.program.arrival_skew import split_uneven
from atlas_lp.program.compose import Program, compose, seen_by
from atlas_lp.program.nic_sharing import PortLoads
from atlas_lp.program.what_if import AS_RECORDED, WhatIf, named
from atlas_lp.signatures.algorithms.expand import MODEL_VERSION
from atlas_lp.solver.envelope import Box, Envelope, RankClasses
from atlas_lp.solver.longest_path import Evaluator, Longest, Point
from atlas_lp.solver.solve import Planes, solve
from atlas_lp.traces.reading.read import Progress
from atlas_lp.traces.signing.sign import SignedInstance, sign
from atlas_lp.traces.trace import Gap, Trace


class Asked(TypedDict, total=False):
    """What may be asked of a trace, as keywords of :func:`solve_job`."""

    use_symmetry: bool
    dependencies: str | None
    gpu: int | None
    what_if: WhatIf
    contention: bool


@dataclass(frozen=True)
class Job:
    """A trace, its signed instances, the envelope of every signature (by key) and the program of all.

    ``collectives`` holds the planes of every instance as composed, ``changed`` the instances that a what-if made free
    or put elsewhere; with ``gpu`` trace and instances are what that GPU alone saw.  With ``contention`` collectives
    that overlap share their NICs.
    """

    trace: Trace
    fabric: Fabric
    signed: Sequence[SignedInstance]
    envelopes: dict[str, Envelope]
    collectives: Sequence[RankClasses]
    program: Program
    changed: frozenset[int]
    gpu: int | None
    what_if: WhatIf
    contention: bool
    gaps: tuple[Gap, ...]

    def composed(self, dependencies: str | None = None, contention: bool | None = None) -> Program:
        """The same job by another reading of its trace, or with NICs shared or not."""
        reading = dependencies or self.program.dependencies
        shared = self.contention if contention is None else contention
        loads = port_loads(self.trace, self.fabric, self.signed, self.envelopes, self.changed) if shared else None
        return compose(self.trace, self.signed, self.collectives, reading, self.what_if, loads)

    def solve(self, box: Box, store: Store, progress: Planes | None = None) -> Envelope:
        """The envelope of the program over *box*, from *store* where the same program was solved before."""
        graph = self.program.graph
        content = hashlib.sha256()
        for column in (graph.in_start, graph.source, graph.cost, graph.costs):
            content.update(np.ascontiguousarray(column).tobytes())
        # The native point chooses where HiGHS is asked.
        native = [str(self.fabric.latency_ns), str(self.fabric.gap_ns_per_byte)]
        fixed = {"fixed": self.fabric.fixed(), "box": [str(value) for value in box.__dict__.values()], "native": native}
        key = content_key({"graph": content.hexdigest(), "model": MODEL_VERSION, **fixed})
        found = store.get(key)
        if not isinstance(found, Envelope):
            found = solve(graph, self.fabric, box, progress=progress)
            store.put(key, found, {"type": "program", "ranks": self.trace.gpus.num_rows, "nodes": self.trace.nodes})
        return found

    def at(self, where: Point) -> Longest:
        """The longest path of the program at *where*."""
        return self._evaluator.at(where)

    @cached_property
    def _evaluator(self) -> Evaluator:
        return Evaluator(self.program.graph, self.fabric.theta())


def solve_job(
    trace: Trace,
    fabric: Fabric,
    box: Box,
    store: Store,
    progress: Progress | None = None,
    *,
    use_symmetry: bool = True,
    dependencies: str | None = None,
    gpu: int | None = None,
    what_if: WhatIf = AS_RECORDED,
    contention: bool = False,
) -> Job:
    """Sign and solve the collectives of *trace* on *fabric*, exact over *box*, and compose them.

    Solved signatures are kept in *store*; without *use_symmetry* every signature is expanded fully.  *dependencies* is
    as for :func:`~atlas_lp.program.compose.compose`; with *gpu* the program is what that GPU alone saw; *what_if*
    changes the job; with *contention* collectives that overlap share their NICs.

    Raises what reading, signing, expanding and solving raise; nothing is written but cache entries.
    """
    signed, gaps = sign(trace, fabric.gpus_per_nic)
    if gpu is not None:
        trace, signed = seen_by(trace, signed, gpu)
    unique = {s.signature.key(): s.signature for s in signed}
    envelopes: dict[str, Envelope] = {}
    for done, (key, signature) in enumerate(sorted(unique.items())):
        if progress is not None:
            progress("signatures", done, len(unique))
        envelopes[key] = solve_cached(signature, fabric, box, store, use_symmetry)
    planes = {key: _Planes(envelope) for key, envelope in envelopes.items()}
    collectives = [planes[s.signature.key()].of(s) for s in signed]
    changes = _changes(trace, signed, what_if, fabric, store, use_symmetry)
    # What one GPU sees of a collective is its whole length, whoever arrived when.
    uneven: dict[int, RankClasses] = {}
    if gpu is None:
        uneven = split_uneven(trace, signed, envelopes, changes, fabric, store, use_symmetry, progress)
    for number, collective in (uneven | changes).items():
        collectives[number] = collective
    loads = port_loads(trace, fabric, signed, envelopes, changes) if contention else None
    program = compose(trace, signed, collectives, dependencies, what_if, loads)
    found = (*trace.gaps, *gaps, *program.gaps)
    changed = frozenset(changes)
    return Job(trace, fabric, signed, envelopes, collectives, program, changed, gpu, what_if, contention, found)


class _Planes:
    """How the instances of one signature pass time on: by class, or as a whole where not all ranks were seen.

    Ranks that are missing, or left out of the perspective of one GPU, are taken to arrive with the others.
    """

    def __init__(self, envelope: Envelope, elsewhere: Fabric | None = None) -> None:
        self.by_class, self.whole = envelope.by_class, RankClasses.alike(envelope.vectors)
        if elsewhere is not None:
            self.by_class, self.whole = fixed_at(self.by_class, elsewhere), fixed_at(self.whole, elsewhere)

    def of(self, signed: SignedInstance) -> RankClasses:
        return self.by_class if len(signed.instance.rows) == signed.signature.ranks else self.whole


def _changes(
    trace: Trace, signed: Sequence[SignedInstance], what_if: WhatIf, here: Fabric, store: Store, use_symmetry: bool
) -> dict[int, RankClasses]:
    """Instances that are free or run on a fabric of their own, and the time they take."""
    identities = trace.communicators["id"].to_pylist()
    result: dict[int, RankClasses] = {}
    for name, fabric in what_if.fabrics:
        box = Box().around([(fabric.latency_ns, fabric.gap_ns_per_byte)])
        # NICs that other GPUs share are another signature.
        same = fabric.gpus_per_nic == here.gpus_per_nic
        there = {_place(s): s.signature for s in (signed if same else sign(trace, fabric.gpus_per_nic)[0])}
        known: dict[str, _Planes] = {}
        for number in named(name, signed, identities):
            signature = there[_place(signed[number])]
            if signature.key() not in known:
                envelope = solve_cached(signature, fabric, box, store, use_symmetry)
                known[signature.key()] = _Planes(envelope, fabric)
            result[number] = known[signature.key()].of(signed[number])
    nothing = RankClasses.alike(((0,) * len(COMPONENTS),))
    return result | {number: nothing for name in what_if.free for number in named(name, signed, identities)}


def _place(signed: SignedInstance) -> tuple[int, str, int]:
    """What tells an instance from all others of its trace."""
    return signed.instance.communicator, signed.instance.kind, signed.instance.sequence


def port_loads(
    trace: Trace,
    fabric: Fabric,
    signed: Sequence[SignedInstance],
    envelopes: Mapping[str, Envelope],
    changed: Collection[int],
) -> PortLoads:
    """What every instance puts on the NICs of its ranks; nothing for those that are *changed*."""
    sent = {key: np.array(envelope.sent, dtype=np.int64).reshape(-1, 3) for key, envelope in envelopes.items()}
    none = np.zeros((0, 3), dtype=np.int64)
    nic, node = trace.nic_of_gpu(fabric.gpus_per_nic), trace.column("gpus", "node")
    own = [none if number in changed else sent[s.signature.key()] for number, s in enumerate(signed)]
    return PortLoads(own, node * (int(nic.max()) + 1) + nic)
