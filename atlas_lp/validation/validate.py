"""One trace, several ways to its time: what the composition leaves out, measured.

*composite* is the program of instances; *monolithic* the graph of every message of the whole trace through the same
engine; *lp* HiGHS on the program, cold at the first point and warm after it; *LogGOPSim* the simulator on the exported
messages, where it is installed; *measured* the recorded span.

Composite and monolithic read the same dependencies.  The composite holds the ranks of one class together until the last
one arrives or is done (:mod:`~atlas_lp.collectives.rank_classes`), so it is never below the monolithic graph but for
NICs: collectives that overlap in time share them in the monolithic graph, and not in the composite, and a NIC may still
be busy with the last body of a collective when the next one begins.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path

import numpy as np

from atlas_lp.collectives.solver import CollectiveSolver
from atlas_lp.errors import InputError, UnsupportedError
from atlas_lp.fabrics.fabric import Fabric
from atlas_lp.goal import EventGraph
from atlas_lp.goal.per_node import numbered, per_node
from atlas_lp.peak_memory import peak_bytes, restart_peak
from atlas_lp.program.job import Job, solve_job
from atlas_lp.solver.axis import point
from atlas_lp.solver.highs import LongestPathLP
from atlas_lp.solver.longest_path import Evaluator
from atlas_lp.traces.trace import Trace
from atlas_lp.validation.loggopsim import DIFFERS, compiled, programs

Points = Sequence[tuple[Fraction, Fraction]]
"""Points (L in ns, G in ns per byte)."""


@dataclass(frozen=True)
class Method:
    """One way to the time: T in ns at every point, vertices of its graph, seconds to build and to evaluate.

    ``peak_bytes`` is the most memory of the process meanwhile (0: not known).  ``times_ns`` is empty where ``note``
    says why there is none; else ``note`` says what to keep in mind.  ``against_ns`` is the composite by the reading of
    the trace that this method was given, where that may be another one.
    """

    name: str
    times_ns: tuple[float, ...]
    vertices: int
    seconds: float
    peak_bytes: int = 0
    note: str = ""
    against_ns: tuple[float, ...] = ()


@dataclass(frozen=True)
class Validation:
    """All methods at the same *points*; ``difference`` is the largest relative one of composite and monolithic."""

    points: tuple[tuple[Fraction, Fraction], ...]
    methods: tuple[Method, ...]
    measured_ns: int
    dependencies: str

    @property
    def difference(self) -> float | None:
        """Largest relative difference of composite and monolithic, None when there is no monolithic graph."""
        composite, whole = (m.times_ns for m in self.methods[:2])
        if not whole:
            return None
        return max(abs(a - b) / b for a, b in zip(composite, whole, strict=True))


def default_points(fabric: Fabric) -> Points:
    """Native point, no latency, 50 us more latency, a quarter and four times the bandwidth."""
    latency, gap = fabric.latency_ns, fabric.gap_ns_per_byte
    return [
        (latency, gap),
        (Fraction(0), gap),
        (latency + 50_000, gap),
        (latency, 4 * gap),
        (latency, gap / 4),
    ]


def validate(
    trace: Trace, solver: CollectiveSolver, points: Points | None = None, dependencies: str | None = None
) -> Validation:
    """Compare all methods on *trace* at *points* (default: :func:`default_points` of the fabric of *solver*).

    *dependencies* is as for :func:`~atlas_lp.program.dependencies.readings.find_links`.  LogGOPSim runs one calc of a
    cpu at a time, so it gets what the order of streams gives.

    Raises what reading, signing and solving raise; a monolithic graph that is too large is noted, not raised.
    """
    chosen = tuple(points or default_points(solver.fabric))
    fabric = solver.fabric.at(latency_ns=chosen[0][0], gap_ns_per_byte=chosen[0][1])
    watch = _Watch("composite")
    job = solve_job(trace, solver.at(fabric, solver.box.around(chosen)), dependencies=dependencies)
    methods = [watch.evaluated(job.program.graph, fabric, chosen)]
    methods.append(_monolithic(_Watch("monolithic"), job, chosen))
    watch = _Watch("lp (HiGHS)")
    methods.append(watch.found(_lp(job.program.graph, fabric, chosen), job.program.graph.vertices))
    watch = _Watch("composite, NICs shared")
    shared = job.composed(contention=True)
    if shared.sharing:
        methods.append(watch.evaluated(shared.graph, fabric, chosen))
    installed = programs()
    if installed is not None:
        methods.append(_simulated(_Watch("LogGOPSim"), job, chosen, installed))
    return Validation(chosen, tuple(methods), job.signed.timeline.measured_ns, job.dependencies)


class _Watch:
    """Time and memory of one method, from now on."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.begin = time.perf_counter()
        self.watched = restart_peak()

    def found(self, times: tuple[float, ...], vertices: int, note: str = "") -> Method:
        """The method with its *times*."""
        peak = peak_bytes() if self.watched else 0
        return Method(self.name, times, vertices, time.perf_counter() - self.begin, peak, note)

    def skipped(self, note: str) -> Method:
        """The method without times, and why."""
        return self.found((), 0, note)

    def evaluated(self, graph: EventGraph, fabric: Fabric, points: Points) -> Method:
        """The method that *graph* is, at all *points*."""
        evaluator = Evaluator(graph, fabric.theta())
        return self.found(tuple(float(evaluator.at(point(*where)).time_ns) for where in points), graph.vertices)


def _monolithic(watch: _Watch, job: Job, points: Points) -> Method:
    """The graph of every message of the trace."""
    fabric = job.fabric
    try:
        schedule = job.message_graph()
    except UnsupportedError as error:
        return watch.skipped(str(error))
    graph = fabric.graph(schedule, job.trace.column("gpus", "node"))
    return watch.evaluated(graph, fabric, points)


def _lp(graph: EventGraph, fabric: Fabric, points: Points) -> tuple[float, ...]:
    """HiGHS on the program: cold at the first point, warm after it."""
    evaluator = Evaluator(graph, fabric.theta())
    lp = LongestPathLP(evaluator, max(float(evaluator.at(point(*where)).time_ns) for where in points))
    solves: list[Callable[..., tuple[float, float, float, int]]] = [lp.solve_cold, *[lp.solve_warm] * len(points)]
    return tuple(solve(point(*where))[0] for solve, where in zip(solves, points, strict=False))


def _simulated(watch: _Watch, job: Job, points: Points, installed: tuple[str, str]) -> Method:
    """LogGOPSim on the messages, one GOAL rank per node; the memory is ours, not that of the simulator."""
    fabric = job.fabric
    _, node = np.unique(job.trace.column("gpus", "node"), return_inverse=True)
    try:
        schedule = job.message_graph("streams")
        exported = numbered(per_node(schedule, node, fabric.up_latency_ns, fabric.up_gap_ns_per_byte))
        with tempfile.TemporaryDirectory(prefix="atlas-lp-") as folder:
            simulator = compiled(exported, Path(folder), installed)
            times = [
                float(simulator.time_ns(fabric.at(latency_ns=latency, gap_ns_per_byte=gap))) for latency, gap in points
            ]
    except InputError as error:
        return watch.skipped(str(error))
    note = DIFFERS if job.dependencies == "streams" else f"dependencies from streams; {DIFFERS}"
    found = watch.found(tuple(times), len(exported), note)
    evaluator = Evaluator(job.composed("streams", contention=False).graph, fabric.theta())
    return replace(found, against_ns=tuple(float(evaluator.at(point(*where)).time_ns) for where in points))
