"""A job ready to be asked: its collectives solved, and composed into a program.

Data flows once: trace, unique signatures, cached envelopes, program.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypedDict

from atlas_lp.cache.store import Store
from atlas_lp.collective import solve_cached
from atlas_lp.compose import Program, compose, seen_by
from atlas_lp.envelope import Box, Envelope, RankClasses
from atlas_lp.goal.event_graph import COMPONENTS
from atlas_lp.longest_path import Evaluator, Longest, Point
from atlas_lp.parameters import Fabric
from atlas_lp.traces import Gap, Progress, SignedInstance, Trace, sign
from atlas_lp.what_if import AS_RECORDED, WhatIf


class Asked(TypedDict, total=False):
    """What may be asked of a trace, as keywords of :func:`solve_job`."""

    use_symmetry: bool
    dependencies: str | None
    gpu: int | None
    what_if: WhatIf


@dataclass(frozen=True)
class Job:
    """A trace, its signed instances, the envelope of every signature (by key) and the program of all.

    ``collectives`` holds the planes of every instance as composed, ``free`` the keys of collectives that were given no
    time; with ``gpu`` trace and instances are what that GPU alone saw.
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
    gaps: tuple[Gap, ...]

    def composed(self, dependencies: str) -> Program:
        """The same job by another reading of its trace."""
        return compose(self.trace, self.signed, self.collectives, dependencies, self.what_if)

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
) -> Job:
    """Sign and solve the collectives of *trace* on *fabric*, exact over *box*, and compose them.

    Solved signatures are kept in *store*; without *use_symmetry* every signature is expanded fully.  *dependencies* is
    as for :func:`~atlas_lp.compose.compose`; with *gpu* the program is what that GPU alone saw; *what_if* changes the
    job.

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
    program = compose(trace, signed, collectives, dependencies, what_if)
    found = (*trace.gaps, *gaps, *program.gaps)
    return Job(trace, fabric, signed, envelopes, collectives, program, free, gpu, what_if, found)
