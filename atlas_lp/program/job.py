"""A job ready to be asked: its collectives solved, its links found, and a program composed for every question.

Data flows once: trace, unique signatures, cached envelopes, program.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from typing import TypedDict

import numpy as np

from atlas_lp.cache.store import content_key
from atlas_lp.collectives.rank_classes import fixed_at
from atlas_lp.collectives.solver import CollectiveSolver
from atlas_lp.fabrics.fabric import Fabric
from atlas_lp.goal.event_graph import COMPONENTS, EventGraph
from atlas_lp.goal.schedule import Schedule
from atlas_lp.program.arrival_skew import split_by_rank
from atlas_lp.program.compose import Program, compose
from atlas_lp.program.critical_path import Step, steps_of
from atlas_lp.program.dependencies.links import Links
from atlas_lp.program.dependencies.readings import find_links
from atlas_lp.program.message_graph import message_graph
from atlas_lp.program.nic_sharing import PortLoads, Rows, shared_ports
from atlas_lp.program.replay import Replay, replay
from atlas_lp.program.vertices import Vertices
from atlas_lp.program.what_if import AS_RECORDED, WhatIf, named
from atlas_lp.signatures.algorithms.expand import MODEL_VERSION
from atlas_lp.solver.axis import Point, point
from atlas_lp.solver.envelope import Box, Envelope, RankClasses
from atlas_lp.solver.longest_path import Evaluator, Longest
from atlas_lp.solver.solve import PlanesFound, solve
from atlas_lp.traces.signing.sign import SignedInstance
from atlas_lp.traces.signing.signed_trace import SignedTrace
from atlas_lp.traces.trace import Gap, Trace


class Asked(TypedDict, total=False):
    """What may be asked of a trace, as keywords of :func:`solve_job`."""

    dependencies: str | None
    gpu: int | None
    what_if: WhatIf
    contention: bool


@dataclass(frozen=True, eq=False)
class Job:
    """A signed trace on the fabric of a *solver*, the envelope of every signature (by key) and how instances pass time.

    ``collectives`` holds the planes of every instance as composed, ``changed`` the instances that a what-if made free
    or put elsewhere.  With ``contention`` collectives that overlap share their NICs.  Links are found once per reading,
    and programs composed once per reading and answer to contention, when they are asked for.
    """

    signed: SignedTrace
    solver: CollectiveSolver
    what_if: WhatIf
    contention: bool
    dependencies: str
    envelopes: Mapping[str, Envelope]
    collectives: Sequence[RankClasses]
    changed: frozenset[int]
    links: _LinksOfReadings
    _programs: dict[tuple[str, bool], Program] = field(default_factory=dict, repr=False)

    @property
    def trace(self) -> Trace:
        """What was recorded."""
        return self.signed.trace

    @property
    def fabric(self) -> Fabric:
        """The network whose native point is asked first."""
        return self.solver.fabric

    @property
    def order_at(self) -> dict[str, tuple[Fraction, Fraction]]:
        """The point in whose order ports serve the messages of every signature, by key, where they queue up at all."""
        return {key: envelope.order_at for key, envelope in self.envelopes.items() if envelope.order_at is not None}

    @property
    def gaps(self) -> tuple[Gap, ...]:
        """Everything that the trace lacks, or that was left out, on the way to the program."""
        return (*self.signed.all_gaps, *self.links.by(self.dependencies).gaps)

    @property
    def program(self) -> Program:
        """The program by the reading, and with NICs shared or not, that were asked for."""
        return self.composed()

    def composed(self, dependencies: str | None = None, contention: bool | None = None) -> Program:
        """The same job by another reading of its trace, or with NICs shared or not."""
        reading = dependencies or self.dependencies
        shared = self.contention if contention is None else contention
        if shared and not len(self._port_bounds.sources):
            return self.composed(reading, contention=False)
        if (reading, shared) not in self._programs:
            bounds = self._port_bounds if shared else None
            self._programs[reading, shared] = compose(self.signed, self.collectives, self.links.by(reading), bounds)
        return self._programs[reading, shared]

    def native_ns(self, dependencies: str | None = None, contention: bool | None = None) -> Fraction:
        """T at the native point, of :meth:`composed` with the same arguments."""
        program = self.composed(dependencies, contention)
        if program is self.program:
            return self.native.time_ns
        return Evaluator(program.graph, self.fabric.theta()).at(point(*self.fabric.native)).time_ns

    @cached_property
    def native(self) -> Longest:
        """The longest path at the native point."""
        return self.at(point(*self.fabric.native))

    def at(self, where: Point) -> Longest:
        """The longest path of the program at *where*."""
        return self._evaluator.at(where)

    def critical_path(self, latency_ns: Fraction, gap_ns_per_byte: Fraction) -> list[Step]:
        """Steps of the first critical path at (L, G), from the start to T."""
        theta = {**self.fabric.theta(), "messages": latency_ns, "bytes": gap_ns_per_byte}
        longest = self.at(point(latency_ns, gap_ns_per_byte))
        return steps_of(self.program.path(longest), theta)

    def replay(self) -> Replay:
        """The recording put through its own dependencies, which should give the measured span."""
        return replay(self.signed, self.links.as_recorded(self.dependencies))

    def message_graph(self, dependencies: str | None = None) -> Schedule:
        """Every message of the trace as one schedule; raises what :func:`~.message_graph.message_graph` does."""
        links = self.links.as_recorded(dependencies or self.dependencies)
        return message_graph(self.signed, self.fabric, links, self.order_at)

    def solve(self, progress: PlanesFound | None = None) -> Envelope:
        """The envelope of the program, from the store where the same program was solved before."""
        solver, graph = self.solver, self.program.graph
        about = {"type": "program", "ranks": self.trace.gpus.num_rows, "nodes": self.trace.nodes}
        check, tolerance = solver.limits.check, solver.limits.tolerance
        return solver.store.solved(
            _program_key(solver, graph),
            lambda: solve(graph, solver.fabric, solver.box, limits=check, progress=progress, tolerance=tolerance),
            about,
        )

    @cached_property
    def _port_bounds(self) -> Rows:
        """Bounds of collectives that overlap on a NIC, which no reading of the trace changes."""
        loads = PortLoads.of(self.signed, self.envelopes, self.fabric.gpus_per_nic, self.changed)
        vertices = Vertices.of(self.signed.timeline, self.collectives)
        return shared_ports(self.signed.timeline, vertices, loads)

    @cached_property
    def _evaluator(self) -> Evaluator:
        return Evaluator(self.program.graph, self.fabric.theta())


def _program_key(solver: CollectiveSolver, graph: EventGraph) -> str:
    """Cache key of a solved program: the content of its graph, and all that its envelope depends on beside it."""
    content = hashlib.sha256()
    for column in (graph.in_start, graph.source, graph.cost, graph.costs):
        content.update(np.ascontiguousarray(column).tobytes())
    return content_key(
        {
            "graph": content.hexdigest(),
            "fixed": solver.fabric.fixed(),
            "box": solver.box.canonical(),
            # The native point chooses where HiGHS is asked.
            "native": [str(value) for value in solver.fabric.native],
            "limits": solver.limits.canonical(),
            "model": MODEL_VERSION,
        }
    )


class _LinksOfReadings:
    """Links of one signed trace, found once for every reading, with a factor on compute or as recorded."""

    def __init__(self, signed: SignedTrace, compute: Fraction) -> None:
        self._signed, self._compute = signed, compute
        self._known: dict[tuple[str | None, Fraction], Links] = {}

    def by(self, dependencies: str | None) -> Links:
        """Links of a reading, changed as asked for; None is the default reading of the trace."""
        return self._found(dependencies, self._compute)

    def as_recorded(self, dependencies: str) -> Links:
        """Links of a reading without any change."""
        return self._found(dependencies, Fraction(1))

    def _found(self, dependencies: str | None, compute: Fraction) -> Links:
        if (dependencies, compute) not in self._known:
            links = find_links(self._signed, dependencies, compute)
            self._known[dependencies, compute] = self._known[links.dependencies, compute] = links
        return self._known[dependencies, compute]


def solve_job(
    trace: Trace,
    solver: CollectiveSolver,
    *,
    dependencies: str | None = None,
    gpu: int | None = None,
    what_if: WhatIf = AS_RECORDED,
    contention: bool = False,
) -> Job:
    """Sign *trace* and solve its collectives with *solver*.

    *dependencies* is as for :func:`~atlas_lp.program.dependencies.readings.find_links`; with *gpu* the job is what that
    GPU alone saw; *what_if* changes it; with *contention* collectives that overlap share their NICs.

    Raises what signing, expanding and solving raise; nothing is written but cache entries.
    """
    signed = SignedTrace.of(trace, solver.fabric.gpus_per_nic)
    if gpu is not None:
        signed = signed.seen_by(gpu)
    links = _LinksOfReadings(signed, what_if.compute)
    reading = links.by(dependencies).dependencies
    envelopes = solver.envelopes(signed.signatures)
    passing = {key: _Passing(envelope) for key, envelope in envelopes.items()}
    collectives = [passing[key].of(signed, number) for number, key in enumerate(signed.keys)]
    changes = _changes(signed, what_if, solver)
    # What one GPU sees of a collective is its whole length, whoever arrived when.
    apart = {} if gpu is not None else split_by_rank(signed, envelopes, changes, solver)
    for number, collective in (apart | changes).items():
        collectives[number] = collective
    return Job(signed, solver, what_if, contention, reading, envelopes, collectives, frozenset(changes), links)


class _Passing:
    """How the instances of one signature pass time on: by class, or as a whole where not all ranks were seen.

    Ranks that are missing, or left out of the perspective of one GPU, are taken to arrive with the others.
    """

    def __init__(self, envelope: Envelope, elsewhere: Fabric | None = None) -> None:
        self.by_class, self.whole = envelope.by_class, RankClasses.alike(envelope.vectors)
        if elsewhere is not None:
            self.by_class, self.whole = fixed_at(self.by_class, elsewhere), fixed_at(self.whole, elsewhere)

    def of(self, signed: SignedTrace, number: int) -> RankClasses:
        return self.by_class if signed.is_complete(number) else self.whole


def _changes(signed: SignedTrace, what_if: WhatIf, solver: CollectiveSolver) -> dict[int, RankClasses]:
    """Instances that are free or run on a fabric of their own, and the time they take."""
    result: dict[int, RankClasses] = {}
    for name, fabric in what_if.fabrics:
        there = solver.at(fabric, Box().around([fabric.native]))
        # NICs that other GPUs share are another signature.
        same = fabric.gpus_per_nic == solver.fabric.gpus_per_nic
        again = signed if same else SignedTrace.of(signed.trace, fabric.gpus_per_nic)
        signature_of = {_place(s): s.signature for s in again.instances}
        known: dict[str, _Passing] = {}
        for number in named(name, signed):
            signature = signature_of[_place(signed.instances[number])]
            if signature.key() not in known:
                known[signature.key()] = _Passing(there.envelope(signature), fabric)
            result[number] = known[signature.key()].of(signed, number)
    nothing = RankClasses.alike(((0,) * len(COMPONENTS),))
    return result | {number: nothing for name in what_if.free for number in named(name, signed)}


def _place(signed: SignedInstance) -> tuple[int, str, int]:
    """What tells an instance from all others of its trace."""
    return signed.instance.communicator, signed.instance.kind, signed.instance.sequence
