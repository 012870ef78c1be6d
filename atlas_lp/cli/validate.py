"""``validate``: composite, monolithic, LP and measurement of one trace in one table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Unpack

import click

from atlas_lp.cli.options import (
    cache_options,
    dependencies_option,
    fabric_options,
    json_option,
    stats_option,
    traces_argument,
)
from atlas_lp.cli.output import Stats, print_json, print_table
from atlas_lp.cli.trace_options import TraceOptions, load_trace, trace_options
from atlas_lp.errors import GateError
from atlas_lp.schemas import VALIDATION
from atlas_lp.units import format_bandwidth, format_size, format_time, number

if TYPE_CHECKING:
    from atlas_lp.cache import Store
    from atlas_lp.fabrics.fabric import Fabric
    from atlas_lp.validation.validate import Validation


@click.command()
@traces_argument
@click.option(
    "--tolerance",
    type=click.FloatRange(0),
    default=1.0,
    show_default=True,
    help="Percent that composite and monolithic may differ before the exit code is 3.",
)
@trace_options
@dependencies_option
@fabric_options
@cache_options
@json_option
@stats_option
def validate(
    traces: tuple[str, ...],
    tolerance: float,
    dependencies: str,
    fabric: Fabric,
    store: Store,
    as_json: bool,
    stats: bool,
    **options: Unpack[TraceOptions],
) -> None:
    """Check the composition of a trace against the graph of all its messages, an LP solver and the measurement.

    The time at five points of (L, G): of the composed program, of the monolithic graph of every message of the trace,
    of HiGHS on the program, and of LogGOPSim on the messages where it is on PATH (with txt2bin). Composite and
    monolithic read the same --dependencies. Exit code 3 when they differ by more than --tolerance.

    \b
    Example:
      atlas-lp validate traces/
      atlas-lp validate traces/ --tolerance 0.5 --json
    """
    from atlas_lp.collectives.solver import CollectiveSolver
    from atlas_lp.validation.validate import validate as compare

    record = Stats(stats)
    with record.stage("read"):
        trace = load_trace(traces, **options)
    with record.stage("compare"):
        found = compare(
            trace, CollectiveSolver(fabric, store=store), dependencies=None if dependencies == "auto" else dependencies
        )
    if as_json:
        print_json(_json(found, tolerance))
    else:
        _print(found)
    record.write()
    if found.difference is not None and found.difference > tolerance / 100:
        raise GateError(
            f"composite and monolithic differ by {100 * found.difference:.3g} %, more than {tolerance:g} %: "
            "trust the monolithic time, or raise --tolerance"
        )


def _json(found: Validation, tolerance: float) -> dict[str, Any]:
    return {
        **VALIDATION.head(),
        "points": [{"latency_ns": number(latency), "gap_ns_per_byte": number(gap)} for latency, gap in found.points],
        "methods": [
            {"name": m.name, "times_ns": list(m.times_ns), "vertices": m.vertices, "note": m.note}
            for m in found.methods
        ],
        "measured_ns": found.measured_ns,
        "dependencies": found.dependencies,
        "difference": found.difference,
        "tolerance": tolerance / 100,
    }


def _print(found: Validation) -> None:
    header = ["method", *(f"{format_time(latency)}, {format_bandwidth(gap)}" for latency, gap in found.points)]
    rows: list[list[object]] = []
    base = found.methods[0].times_ns
    for method in found.methods:
        cells = [
            format_time(t, 6) if method is found.methods[0] else f"{format_time(t, 6)} ({100 * (t / b - 1):+.3f} %)"
            for t, b in zip(method.times_ns, base, strict=False)
        ]
        cells += ["-"] * (len(found.points) - len(cells))
        peak = format_size(method.peak_bytes) if method.peak_bytes else "-"
        rows.append([method.name, *cells, method.vertices, f"{method.seconds:.2f} s", peak])
    measured = f"{format_time(found.measured_ns, 6)} ({100 * (found.measured_ns / base[0] - 1):+.3f} %)"
    rows.append(["measured", measured, *["-"] * (len(found.points) - 1), "-", "-", "-"])
    print_table(
        "Time at five points (L, bandwidth), relative to composite", [*header, "vertices", "time", "peak"], rows
    )
    click.echo(f"dependencies: from {found.dependencies}")
    for method in found.methods:
        if method.note:
            click.echo(f"{method.name}: {method.note}")
    click.echo(
        "composite holds ranks that do alike together until the last is done, so it is not below monolithic unless "
        "collectives overlap on a NIC, or one begins while the last body of another is on its way out"
    )
