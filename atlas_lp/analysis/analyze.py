"""The main job: from a trace to T(L, G) of its program, with everything assumed named."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Unpack

from atlas_lp.analysis.answer import Answer
from atlas_lp.analysis.summary import Summary
from atlas_lp.collectives.solver import CollectiveSolver
from atlas_lp.program.job import Asked, solve_job
from atlas_lp.traces.trace import Trace
from atlas_lp.units import number

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class Analysis(Answer):
    """What ``analyze`` found: T(L, G) of the program of a trace, and the plain-value *summary*."""

    summary: dict[str, Any]

    @property
    def signatures(self) -> pa.Table:
        """Unique collectives: what they are, how often, how long each takes and was measured, their share of T."""
        import pyarrow as pa

        rows = [{name: value for name, value in row.items() if name != "sources"} for row in self.summary["signatures"]]
        return pa.Table.from_pylist(rows)

    @property
    def assumptions(self) -> list[str]:
        """Everything that the answer assumes, as sentences."""
        return list(self.summary["assumptions"])

    @property
    def gaps(self) -> pa.Table:
        """What the trace lacks or what was left out: code, count and words."""
        import pyarrow as pa

        schema = pa.schema([("code", pa.string()), ("count", pa.int64()), ("message", pa.string())])
        return pa.Table.from_pylist(self.summary["gaps"], schema)


def analyze(trace: Trace, solver: CollectiveSolver, **asked: Unpack[Asked]) -> Analysis:
    """Analyze *trace* on the fabric of *solver*, exact over its box; *asked* is as for ``solve_job``.

    Raises what signing, expanding and solving raise; nothing is written but cache entries.
    """
    solver.box.check(*solver.fabric.native)
    job = solve_job(trace, solver, **asked)
    store = solver.store
    cache: dict[str, Any] = {"hits": store.hits, "misses": store.misses}
    progress = solver.progress
    tell = None if progress is None else (lambda planes: progress("program planes", planes, 0))
    envelope = job.solve(tell)
    summary = Summary(job, envelope).build()
    told = {"refused": store.refused, "unusable": store.unusable, "swept": store.swept}
    summary["cache"] = cache | {name: value for name, value in told.items() if value}
    return Analysis(envelope, solver.fabric.native, summary)


def native_times(trace: Trace, solver: CollectiveSolver, **asked: Unpack[Asked]) -> dict[str, Any]:
    """Predicted and measured length of *trace* at the native point alone: what one of several iterations took."""
    job = solve_job(trace, solver, **asked)
    return {"makespan_ns": number(job.native.time_ns), "measured_ns": job.signed.timeline.measured_ns}
