"""``inspect``: what a trace holds, what it lacks, what was inferred."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import click

from atlas_lp.cli.shared.options import json_option, stats_option, traces_argument
from atlas_lp.cli.shared.output import Stats, print_blocks, print_json
from atlas_lp.cli.shared.trace_options import load_trace, trace_options
from atlas_lp.errors import AtlasError, PayloadError, TraceError, UnsupportedError
from atlas_lp.schemas import INSPECTION

if TYPE_CHECKING:
    from atlas_lp.traces.reading.survey import Survey
    from atlas_lp.traces.trace import Trace


@click.command()
@traces_argument
@trace_options
@json_option
@stats_option
def inspect(traces: tuple[str, ...], as_json: bool, stats: bool, **options: Any) -> None:
    """Show what a trace holds, what it lacks and what was inferred.

    TRACE is any number of .sqlite exports of Nsight Systems (or .nsys-rep, when nsys is on PATH) or Kineto traces
    (.json, .json.gz), folders or globs of them: one job, all its ranks.  Exports without payloads, which analyze
    refuses, are counted as far as they go.

    \b
    Example:
      atlas-lp inspect node0.sqlite node1.sqlite
      atlas-lp inspect traces/ --json
    """
    from atlas_lp.report import terminal

    record = Stats(stats)
    try:
        with record.stage("read"):
            trace = load_trace(traces, **options)
    except PayloadError as error:
        _inspect_survey(traces, as_json, error)
        record.write()
        return
    with record.stage("sign"):
        summary = _summary(trace)
    if as_json:
        print_json(summary)
    else:
        print_blocks(terminal.inspection(summary))
    record.write()


def _inspect_survey(traces: tuple[str, ...], as_json: bool, error: AtlasError) -> None:
    """Show what was counted; repeat the refusal where counting is not possible either."""
    from atlas_lp.report import terminal
    from atlas_lp.traces.reading.survey import survey

    try:
        found = survey(traces)
    except TraceError:
        raise error from None
    if not found.processes:
        raise error
    summary = _survey_summary(found, str(error))
    if as_json:
        print_json(summary)
    else:
        print_blocks(terminal.survey(summary))


def _survey_summary(found: Survey, refusal: str) -> dict[str, Any]:
    return {
        **INSPECTION.head(),
        "files": list(found.files),
        "nsys": list(found.nsys),
        "processes": [process.as_json() for process in found.processes],
        "refused": refusal,
    }


def _summary(trace: Trace) -> dict[str, Any]:
    from atlas_lp.analysis.as_json import signature_json
    from atlas_lp.traces.signing.sign import sign
    from atlas_lp.traces.trace import Gap, total_operations

    gaps = list(trace.gaps)
    rows: list[dict[str, Any]] = []
    try:
        signed, found = sign(trace)
        gaps += found
        counts = Counter(s.signature.key() for s in signed)
        unique = {s.signature.key(): s for s in reversed(signed)}
        rows = [{**signature_json(s), "count": counts[key]} for key, s in unique.items()]
    except UnsupportedError as error:
        gaps.append(Gap("unsupported", 1, str(error)))
    processes = set(zip(*(trace.gpus[c].to_pylist() for c in ("host", "process")), strict=True))
    return {
        **INSPECTION.head(),
        "trace": {
            "files": list(trace.files),
            "ranks": trace.gpus.num_rows,
            "nodes": trace.nodes,
            "processes": len(processes),
            "placement": trace.placement,
            "synthetic": trace.synthetic,
            "nccl": {"version": trace.nccl_version.value, "source": trace.nccl_version.source},
        },
        "communicators": [
            {"id": f"{row['id']:#x}", "ranks": row["ranks"], "generation": row["generation"]}
            for row in trace.communicators.to_pylist()
        ],
        "clocks": _clocks(trace),
        "iterations": trace.iterations,
        "operations": [
            {"type": kind, "size_bytes": size, "count": count} for kind, size, count in total_operations(trace)
        ],
        "signatures": sorted(rows, key=lambda r: (r["type"], r["size_bytes"], r["key"])),
        "gaps": [gap.as_json() for gap in sorted(gaps)],
    }


def _clocks(trace: Trace) -> list[dict[str, Any]]:
    """Offsets between the clocks of hosts, estimated from the ends of collectives: a diagnostic, never a result."""
    from atlas_lp.traces.join.clocks import host_offsets

    if trace.nodes < 2:
        return []
    offsets, _ = host_offsets(trace, trace.instances())
    of_host = dict(zip(trace.column("gpus", "host").tolist(), offsets.tolist(), strict=True))
    return [{"host": host, "offset_ns": offset} for host, offset in of_host.items()]
