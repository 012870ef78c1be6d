"""The main job: from a trace to T(L, G) of its program, with everything assumed named."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from statistics import median
from typing import Any, Unpack

from atlas_lp.analysis.summary import Summary
from atlas_lp.cache.store import Store
from atlas_lp.fabrics.fabric import Fabric
from atlas_lp.program.job import Asked, solve_job
from atlas_lp.solver.envelope import Box, Envelope
from atlas_lp.solver.longest_path import point
from atlas_lp.traces.reading.read import Progress
from atlas_lp.traces.trace import Trace
from atlas_lp.units import number


@dataclass(frozen=True)
class Analysis:
    """What ``analyze`` found: the envelope of the program, the native point, and the plain-value *summary*."""

    envelope: Envelope
    latency_ns: Fraction
    gap_ns_per_byte: Fraction
    summary: dict[str, Any]


def analyze(
    trace: Trace,
    fabric: Fabric,
    box: Box,
    store: Store,
    progress: Progress | None = None,
    **asked: Unpack[Asked],
) -> Analysis:
    """Analyze *trace* on *fabric*: exact over *box*, solved signatures kept in *store*.

    *asked* is as for :func:`~atlas_lp.program.job.solve_job`.

    Raises what reading, signing, expanding and solving raise; nothing is written but cache entries.
    """
    box.check(fabric.latency_ns, fabric.gap_ns_per_byte)
    job = solve_job(trace, fabric, box, store, progress, **asked)
    signatures = {"hits": store.hits, "misses": store.misses}
    tell = None if progress is None else (lambda planes: progress("program planes", planes, 0))
    envelope = job.solve(box, store, tell)
    summary = Summary(job, envelope).build()
    summary["cache"] = signatures
    return Analysis(envelope, fabric.latency_ns, fabric.gap_ns_per_byte, summary)


def native_times(trace: Trace, fabric: Fabric, box: Box, store: Store, **asked: Unpack[Asked]) -> dict[str, Any]:
    """Predicted and measured length of *trace* at the native point alone: what one of several iterations took."""
    job = solve_job(trace, fabric, box, store, **asked)
    longest = job.at(point(fabric.latency_ns, fabric.gap_ns_per_byte))
    return {"makespan_ns": number(longest.time_ns), "measured_ns": job.program.measured_ns}


def spread(times: Sequence[float]) -> float:
    """Largest minus smallest of *times*, relative to their median."""
    return (max(times) - min(times)) / median(times)
