"""``validate``: composite, monolithic, LP and measurement of one trace in one table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Unpack

import click

from atlas_lp.cli.shared.options import (
    Finite,
    cache_options,
    dependencies_option,
    fabric_options,
    json_option,
    stats_option,
    traces_argument,
)
from atlas_lp.cli.shared.output import Stats, print_blocks, print_json
from atlas_lp.cli.shared.trace_options import TraceOptions, load_trace, trace_options
from atlas_lp.errors import GateError
from atlas_lp.schemas import VALIDATION
from atlas_lp.units import number

if TYPE_CHECKING:
    from atlas_lp.cache import Store
    from atlas_lp.fabrics.fabric import Fabric
    from atlas_lp.validation.validate import Validation


@click.command()
@traces_argument
@click.option(
    "--tolerance",
    type=Finite(0),
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
    from atlas_lp.report import terminal
    from atlas_lp.validation.validate import validate as compare

    record = Stats(stats)
    with record.stage("read"):
        trace = load_trace(traces, **options)
    with record.stage("compare"):
        found = compare(
            trace, CollectiveSolver(fabric, store=store), dependencies=None if dependencies == "auto" else dependencies
        )
    result = _json(found, tolerance)
    if as_json:
        print_json(result)
    else:
        print_blocks(terminal.validation(result, [(method.seconds, method.peak_bytes) for method in found.methods]))
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
            {
                "name": m.name,
                "times_ns": list(m.times_ns),
                "vertices": m.vertices,
                "note": m.note,
                **({"against_ns": list(m.against_ns)} if m.against_ns else {}),
            }
            for m in found.methods
        ],
        "measured_ns": found.measured_ns,
        "dependencies": found.dependencies,
        "difference": found.difference,
        "tolerance": tolerance / 100,
    }
