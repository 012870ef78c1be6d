"""The main job: from a trace to T(L, G) of its program, with everything assumed named."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from statistics import median
from typing import Any, Unpack

from atlas_lp.analysis.summary import Summary
from atlas_lp.collectives.solver import CollectiveSolver
from atlas_lp.program.job import Asked, solve_job
from atlas_lp.solver.envelope import Envelope
from atlas_lp.traces.trace import Trace
from atlas_lp.units import number


@dataclass(frozen=True)
class Analysis:
    """What ``analyze`` found: the envelope of the program, the *native* point (L, G), and the plain-value *summary*."""

    envelope: Envelope
    native: tuple[Fraction, Fraction]
    summary: dict[str, Any]


def analyze(trace: Trace, solver: CollectiveSolver, **asked: Unpack[Asked]) -> Analysis:
    """Analyze *trace* on the fabric of *solver*, exact over its box; *asked* is as for ``solve_job``.

    Raises what signing, expanding and solving raise; nothing is written but cache entries.
    """
    solver.box.check(*solver.fabric.native)
    job = solve_job(trace, solver, **asked)
    signatures = {"hits": solver.store.hits, "misses": solver.store.misses}
    progress = solver.progress
    tell = None if progress is None else (lambda planes: progress("program planes", planes, 0))
    envelope = job.solve(tell)
    summary = Summary(job, envelope).build()
    summary["cache"] = signatures
    return Analysis(envelope, solver.fabric.native, summary)


def native_times(trace: Trace, solver: CollectiveSolver, **asked: Unpack[Asked]) -> dict[str, Any]:
    """Predicted and measured length of *trace* at the native point alone: what one of several iterations took."""
    job = solve_job(trace, solver, **asked)
    return {"makespan_ns": number(job.native.time_ns), "measured_ns": job.signed.timeline.measured_ns}


def spread(times: Sequence[float]) -> float:
    """Largest minus smallest of *times*, relative to their median."""
    return (max(times) - min(times)) / median(times)
