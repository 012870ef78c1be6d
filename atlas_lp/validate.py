"""One trace, several ways to its time: what the composition leaves out, measured.

*composite* is the program of instances; *monolithic* the graph of every message of the whole trace through the same
engine; *lp* HiGHS on the program, cold at the first point and warm after it; *measured* the recorded span.

Composite and monolithic share the gaps of streams.  The composite holds the ranks of one class together until the last
one arrives or is done (:mod:`~atlas_lp.rank_classes`), so it is never below the monolithic graph but for the queues of
NICs: collectives that overlap in time share them in the monolithic graph, and not in the composite, and two channels
of one collective may take turns there in another order.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction

from atlas_lp.cache.store import Store
from atlas_lp.certificate import LongestPathLP
from atlas_lp.envelope import Box
from atlas_lp.errors import UnsupportedError
from atlas_lp.goal import EventGraph, event_graph
from atlas_lp.job import solve_job
from atlas_lp.longest_path import Evaluator, point
from atlas_lp.monolithic import monolithic
from atlas_lp.parameters import Fabric
from atlas_lp.traces import SignedInstance, Trace

Points = Sequence[tuple[Fraction, Fraction]]
"""Points (L in ns, G in ns per byte)."""


@dataclass(frozen=True)
class Method:
    """One way to the time: T in ns at every point, vertices of its graph, seconds to build and to evaluate.

    ``times_ns`` is empty where ``note`` says why there is none.
    """

    name: str
    times_ns: tuple[float, ...]
    vertices: int
    seconds: float
    note: str = ""


@dataclass(frozen=True)
class Validation:
    """All methods at the same *points*; ``difference`` is the largest relative one of composite and monolithic."""

    points: tuple[tuple[Fraction, Fraction], ...]
    methods: tuple[Method, ...]
    measured_ns: int

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


def validate(trace: Trace, fabric: Fabric, store: Store, points: Points | None = None) -> Validation:
    """Compare all methods on *trace* at *points* (default: :func:`default_points`).

    Raises what reading, signing and solving raise; a monolithic graph that is too large is noted, not raised.
    """
    chosen = tuple(points or default_points(fabric))
    box = Box().around(chosen)
    fabric = fabric.at(latency_ns=chosen[0][0], gap_ns_per_byte=chosen[0][1])
    begin = time.perf_counter()
    job = solve_job(trace, fabric, box, store, dependencies="streams")
    graph = job.program.graph
    composite = _method("composite", graph, fabric, chosen, begin)
    methods = [composite, _monolithic(trace, job.signed, fabric, chosen), _lp(graph, fabric, chosen)]
    begin = time.perf_counter()
    shared = job.composed(contention=True)
    if shared.sharing:
        methods.append(_method("composite, NICs shared", shared.graph, fabric, chosen, begin))
    return Validation(chosen, tuple(methods), job.program.measured_ns)


def _method(name: str, graph: EventGraph, fabric: Fabric, points: Points, begin: float) -> Method:
    evaluator = Evaluator(graph, fabric.theta())
    times = tuple(float(evaluator.at(point(*where)).time_ns) for where in points)
    return Method(name, times, graph.vertices, time.perf_counter() - begin)


def _monolithic(trace: Trace, signed: Sequence[SignedInstance], fabric: Fabric, points: Points) -> Method:
    begin = time.perf_counter()
    try:
        schedule = monolithic(trace, signed, fabric)
    except UnsupportedError as error:
        return Method("monolithic", (), 0, time.perf_counter() - begin, str(error))
    graph = event_graph(schedule, trace.column("gpus", "node"), fabric.port_rule, fabric.ingress)
    return _method("monolithic", graph, fabric, points, begin)


def _lp(graph: EventGraph, fabric: Fabric, points: Points) -> Method:
    begin = time.perf_counter()
    evaluator = Evaluator(graph, fabric.theta())
    lp = LongestPathLP(evaluator, max(float(evaluator.at(point(*where)).time_ns) for where in points))
    solves: list[Callable[..., tuple[float, float, float, int]]] = [lp.solve_cold, *[lp.solve_warm] * len(points)]
    times = tuple(solve(point(*where))[0] for solve, where in zip(solves, points, strict=False))
    return Method("lp (HiGHS)", times, graph.vertices, time.perf_counter() - begin)
