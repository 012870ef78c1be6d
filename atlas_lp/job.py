"""A job ready to be asked: its collectives solved, and composed into a program.

Data flows once: trace, unique signatures, cached envelopes, program.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TypedDict

import numpy as np

from atlas_lp.cache.store import Store, content_key
from atlas_lp.collective import solve_cached
from atlas_lp.compose import Program, compose, seen_by
from atlas_lp.contention import PortLoads
from atlas_lp.envelope import Box, Envelope, RankClasses
from atlas_lp.goal.event_graph import COMPONENTS
from atlas_lp.longest_path import Evaluator, Longest, Point
from atlas_lp.parameters import Fabric
from atlas_lp.signatures.expand import MODEL_VERSION
from atlas_lp.solve import Planes, solve
from atlas_lp.traces import Gap, Progress, SignedInstance, Trace, sign
from atlas_lp.what_if import AS_RECORDED, WhatIf


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

    ``collectives`` holds the planes of every instance as composed, ``free`` the keys of collectives that were given no
    time; with ``gpu`` trace and instances are what that GPU alone saw.  With ``contention`` collectives that overlap
    share their NICs.
    """

    trace: Trace
    fabric: Fabric
    signed: Sequence[SignedInstance]
    envelopes: dict[str, Envelope]
    collectives: Sequence[RankClasses]
    program: Program
    free: frozenset[str]
    gpu: int | None
    what_if: WhatIf
    contention: bool
    gaps: tuple[Gap, ...]

    def composed(self, dependencies: str | None = None, contention: bool | None = None) -> Program:
        """The same job by another reading of its trace, or with NICs shared or not."""
        reading = dependencies or self.program.dependencies
        shared = self.contention if contention is None else contention
        loads = port_loads(self.trace, self.fabric, self.signed, self.envelopes, self.free) if shared else None
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
        return Evaluator(self.program.graph, self.fabric.theta()).at(where)


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
    as for :func:`~atlas_lp.compose.compose`; with *gpu* the program is what that GPU alone saw; *what_if* changes the
    job; with *contention* collectives that overlap share their NICs.

    Raises what reading, signing, expanding and solving raise; nothing is written but cache entries.
    """
    signed, gaps = sign(trace, fabric.gpus_per_nic)
    if gpu is not None:
        trace, signed = seen_by(trace, signed, gpu)
    unique = {s.signature.key(): s.signature for s in signed}
    free = what_if.freed(unique)
    envelopes: dict[str, Envelope] = {}
    for done, (key, signature) in enumerate(sorted(unique.items())):
        if progress is not None:
            progress("signatures", done, len(unique))
        envelopes[key] = solve_cached(signature, fabric, box, store, use_symmetry)
    # What one GPU sees of a collective is its whole length, whatever class it is in.
    own = {k: e.by_class if gpu is None else RankClasses.alike(e.vectors) for k, e in envelopes.items()}
    own.update((key, RankClasses.alike(((0,) * len(COMPONENTS),))) for key in free)
    collectives = [own[s.signature.key()] for s in signed]
    loads = port_loads(trace, fabric, signed, envelopes, free) if contention else None
    program = compose(trace, signed, collectives, dependencies, what_if, loads)
    found = (*trace.gaps, *gaps, *program.gaps)
    return Job(trace, fabric, signed, envelopes, collectives, program, free, gpu, what_if, contention, found)


def port_loads(
    trace: Trace,
    fabric: Fabric,
    signed: Sequence[SignedInstance],
    envelopes: Mapping[str, Envelope],
    free: Collection[str],
) -> PortLoads:
    """What every instance puts on the NICs of its ranks; nothing for those that are *free*."""
    sent = {
        key: np.array(() if key in free else envelope.sent, dtype=np.int64).reshape(-1, 3)
        for key, envelope in envelopes.items()
    }
    nic, node = trace.nic_of_gpu(fabric.gpus_per_nic), trace.column("gpus", "node")
    return PortLoads([sent[s.signature.key()] for s in signed], node * (int(nic.max()) + 1) + nic)
