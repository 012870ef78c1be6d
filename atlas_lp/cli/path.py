"""``path``: the critical path of a trace at one point (L, G), as a table and as a picture."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

import click

from atlas_lp.cli.options import (
    cache_options,
    fabric_options,
    force_option,
    job_options,
    json_option,
    traces_argument,
)
from atlas_lp.cli.output import print_json, print_nature, print_table, progress
from atlas_lp.cli.trace_options import TraceOptions, load_trace, trace_options
from atlas_lp.files import check_free
from atlas_lp.schemas import PATH
from atlas_lp.units import format_bandwidth, format_size, format_time, number

if TYPE_CHECKING:
    from atlas_lp.cache import Store
    from atlas_lp.fabrics.fabric import Fabric
    from atlas_lp.program.job import Asked


@click.command()
@traces_argument
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Picture to write: .svg, .png or .pdf.")
@click.option("--graph", "graph_file", type=click.Path(path_type=Path), help="Also write the path as a .graphml graph.")
@force_option
@click.option(
    "--top", type=click.IntRange(min=1), default=20, show_default=True, help="How many steps to print, longest kept."
)
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
    from atlas_lp.analysis.attribution import Attribution, hop_words
    from atlas_lp.analysis.path_graph import check_graph_name, graphml
    from atlas_lp.collectives.solver import CollectiveSolver
    from atlas_lp.files import write_file
    from atlas_lp.program.job import solve_job
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
        write_file(output, draw_timeline(rows, _title(result, where), output.suffix[1:]))
    if graph_file is not None:
        write_file(graph_file, graphml(rows))
    if as_json:
        print_json(result)
        return
    print_nature(result)
    click.echo(f"{_title(result, where)}, dependencies from {result['dependencies']}")
    _print_steps(rows, top, makespan)
    for slope, row in hops.items():
        click.echo(f"{row[slope]:,} {slope}: {hop_words(row, slope, 3)}".rstrip(": "))
    if output is not None:
        click.echo(f"picture: {output}")
    if graph_file is not None:
        click.echo(f"graph: {graph_file}")


def _title(result: dict[str, Any], where: tuple[Fraction, Fraction]) -> str:
    return (
        f"Critical path at L = {format_time(where[0])}, {format_bandwidth(where[1])}: "
        f"T = {format_time(result['makespan_ns'], 6)}"
    )


def _print_steps(rows: list[dict[str, Any]], top: int, makespan: float) -> None:
    longest = sorted(range(len(rows)), key=lambda i: (-rows[i]["duration_ns"], i))[:top]
    cells = []
    for i in sorted(longest):
        row = rows[i]
        if "gpu" in row:
            what, where, carried = "GPU work and idle time", f"GPU {row['gpu']}", ("-", "-")
        else:
            what = f"{row['type']} {format_size(row['size_bytes'])}"
            where = f"{row['ranks']} ranks, communicator {row['communicator']}"
            carried = (f"{row['messages']:,}", f"{row['bytes']:,}")
        share = f"{100 * row['duration_ns'] / makespan:.1f} %"
        cells.append((format_time(row["begin_ns"]), format_time(row["duration_ns"]), share, what, where, *carried))
    print_table(
        f"The {len(cells)} longest of {len(rows)} steps, in order of time",
        ("begins at", "takes", "share", "what", "where", "messages", "bytes"),
        cells,
    )
    rest = sum(row["duration_ns"] for row in rows) - sum(rows[i]["duration_ns"] for i in longest)
    if len(rows) > len(longest):
        click.echo(f"the other {len(rows) - len(longest)} steps take {format_time(rest)}; see all with --top or --json")
