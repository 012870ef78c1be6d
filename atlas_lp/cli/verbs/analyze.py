"""``analyze``: the main job, from a trace to an analysis folder."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

import click

from atlas_lp.cli.shared.options import (
    NAME,
    box_options,
    cache_options,
    fabric_options,
    force_option,
    job_options,
    json_option,
    memory_option,
    quotient_option,
    stats_option,
    tolerance_option,
    traces_argument,
)
from atlas_lp.cli.shared.output import Stats, print_blocks, print_json, progress, say
from atlas_lp.cli.shared.trace_options import TraceOptions, load_recording, trace_options
from atlas_lp.errors import InputError

if TYPE_CHECKING:
    from atlas_lp.analysis.analyze import Analysis
    from atlas_lp.cache import Store
    from atlas_lp.collectives.solver import CollectiveSolver
    from atlas_lp.fabrics.fabric import Fabric
    from atlas_lp.program.job import Asked
    from atlas_lp.solver.envelope import Box
    from atlas_lp.traces.reading.read import Recording


@click.command()
@traces_argument
@click.option("-o", "--output", type=NAME, help="Folder for the analysis.")
@force_option
@trace_options
@fabric_options
@box_options
@job_options
@quotient_option
@memory_option
@tolerance_option
@cache_options
@json_option
@stats_option
def analyze(
    traces: tuple[str, ...],
    output: Path | None,
    force: bool,
    fabric: Fabric,
    box: Box,
    asked: Asked,
    no_quotient: bool,
    memory: int | None,
    tolerance: float,
    store: Store,
    as_json: bool,
    stats: bool,
    **options: Unpack[TraceOptions],
) -> None:
    """Solve a trace: exact T(L), T(G) and T(L, G), with everything assumed named.

    Writes analysis.arrow (all that later verbs need), summary.json and report.html into the folder given with -o;
    --json prints the summary.  Solved collectives are kept in a cache and reused by other traces.

    \b
    Example:
      atlas-lp analyze traces/ -o out
      atlas-lp analyze two_gpus.sqlite --gpus-per-node 1 --latency 5us --bandwidth 100Gbps -o out
      atlas-lp analyze traces/ --compute 0.5 --free AllGather -o faster_gpus
    """
    from atlas_lp.analysis.folder import check_output, write_analysis
    from atlas_lp.collectives.limits import Limits
    from atlas_lp.collectives.solver import CollectiveSolver
    from atlas_lp.report import terminal
    from atlas_lp.report.page import render_report

    if output is None and not as_json:
        raise InputError("nowhere to put the result: give a folder with -o, or --json")
    if output is not None:
        check_output(output, force)
    record = Stats(stats)
    limits = Limits(tolerance=Fraction(str(tolerance)) / 100, memory_bytes=memory)
    solver = CollectiveSolver(fabric, box, store, not no_quotient, limits=limits)
    analysis = run(lambda: load_recording(traces, **options), solver, record, **asked)
    summary = analysis.summary
    if output is not None:
        with record.stage("write"):
            write_analysis(output, analysis, render_report(summary))
    record.write()
    if as_json:
        print_json(summary)
    else:
        print_blocks(terminal.analysis(summary))
        say(f"report: {output}/report.html")


def run(read: Callable[[], Recording], solver: CollectiveSolver, record: Stats, **asked: Unpack[Asked]) -> Analysis:
    """Read and solve.

    *read* reads the files; iterations are taken from that one reading.
    """
    from atlas_lp.analysis.analyze import analyze as solve_trace
    from atlas_lp.analysis.analyze import native_times

    with record.stage("read"):
        recording = read()
        trace = recording.trace()
    iterations = recording if trace.iterations > 1 else None
    del recording  # large, and of no use where there is one iteration
    with record.stage("solve"), progress() as report:
        analysis = solve_trace(trace, solver.telling(report), **asked)
    if iterations is not None:
        with record.stage("iterations"):
            each = [native_times(iterations.trace(k), solver, **asked) for k in range(trace.iterations)]
        analysis.summary["iterations"] = each
    return analysis
