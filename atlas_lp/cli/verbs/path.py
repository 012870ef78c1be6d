"""``path``: the critical path of a trace at one point (L, G), as a table and as a picture."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Unpack

import click

from atlas_lp.cli.shared.options import (
    NAME,
    Whole,
    cache_options,
    fabric_options,
    force_option,
    job_options,
    json_option,
    traces_argument,
)
from atlas_lp.cli.shared.output import print_blocks, print_json, progress, say
from atlas_lp.cli.shared.trace_options import TraceOptions, load_trace, trace_options
from atlas_lp.files import check_free
from atlas_lp.schemas import PATH
from atlas_lp.units import number

if TYPE_CHECKING:
    from atlas_lp.cache import Store
    from atlas_lp.fabrics.fabric import Fabric
    from atlas_lp.program.job import Asked


@click.command()
@traces_argument
@click.option("-o", "--output", type=NAME, help="Picture to write: .svg, .png or .pdf.")
@click.option("--graph", "graph_file", type=NAME, help="Also write the path as a .graphml graph.")
@force_option
@click.option("--top", type=Whole(min=1), default=20, show_default=True, help="How many steps to print, longest kept.")
@trace_options
@fabric_options
@job_options
@cache_options
@json_option
def path(
    traces: tuple[str, ...],
    output: Path | None,
    graph_file: Path | None,
    force: bool,
    top: int,
    fabric: Fabric,
    asked: Asked,
    store: Store,
    as_json: bool,
    **options: Unpack[TraceOptions],
) -> None:
    """Print the critical path of a trace at one latency and bandwidth: which collectives and which GPUs' work make T.

    The longest steps in order of time; --json has all of them. With -o, a picture: a lane per GPU whose work is on the
    path and per communicator; with --graph, a graph of its steps for other tools. Collectives that an analysis solved
    are taken from the cache.

    \b
    Example:
      atlas-lp path traces/ --latency 100us
      atlas-lp path traces/ --bandwidth 50Gbps -o path.svg --graph path.graphml
    """
    from atlas_lp.analysis.as_json import steps_json
    from atlas_lp.analysis.attribution import Attribution
    from atlas_lp.analysis.path_graph import check_graph_name, graphml
    from atlas_lp.collectives.solver import CollectiveSolver
    from atlas_lp.files import write_file
    from atlas_lp.program.job import solve_job
    from atlas_lp.report import terminal
    from atlas_lp.report.figures.critical_path import draw_timeline
    from atlas_lp.report.figures.style import check_kind
    from atlas_lp.solver.axis import point
    from atlas_lp.solver.envelope import Box

    if output is not None:
        check_kind(output)
        check_free(output, force)
    if graph_file is not None:
        check_graph_name(graph_file)
        check_free(graph_file, force)
    where = fabric.native
    trace = load_trace(traces, **options)
    with progress() as report:
        solver = CollectiveSolver(fabric, Box().around([where]), store, progress=report)
        job = solve_job(trace, solver, **asked)
    steps = job.critical_path(*where)
    rows = steps_json(job, steps)
    makespan = number(steps[-1].end_ns) if steps else 0
    hops = Attribution(job).hops_at(point(*where))
    result = {
        **PATH.head(),
        "trace": {"synthetic": job.trace.synthetic},
        "what_if": job.what_if.sentences(job.dependencies),
        "dependencies": job.dependencies,
        "latency_ns": number(where[0]),
        "gap_ns_per_byte": number(where[1]),
        "makespan_ns": makespan,
        "steps": rows,
        "hops": hops,
    }
    if output is not None:
        write_file(output, draw_timeline(rows, terminal.path_title(result), output.suffix[1:]))
    if graph_file is not None:
        write_file(graph_file, graphml(rows))
    if as_json:
        print_json(result)
        return
    print_blocks(terminal.path(result, top))
    if output is not None:
        say(f"picture: {output}")
    if graph_file is not None:
        say(f"graph: {graph_file}")
