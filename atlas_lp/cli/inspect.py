"""``inspect``: what a trace holds, what it lacks, what was inferred."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import click

from atlas_lp.cli.options import gpus_per_node_option, json_option, stats_option, traces_argument
from atlas_lp.cli.output import Stats, print_json, print_list, print_table
from atlas_lp.errors import UnsupportedError
from atlas_lp.units import format_size

if TYPE_CHECKING:
    from atlas_lp.traces import Trace


@click.command()
@traces_argument
@gpus_per_node_option
@json_option
@stats_option
def inspect(traces: tuple[str, ...], gpus_per_node: int | None, as_json: bool, stats: bool) -> None:
    """Show what a trace holds, what it lacks and what was inferred.

    TRACE is any number of .sqlite exports of Nsight Systems (or .nsys-rep, when nsys is on PATH), folders or
    globs of them: one job, all its ranks.

    \b
    Example:
      atlas-lp inspect node0.sqlite node1.sqlite
      atlas-lp inspect traces/ --json
    """
    from atlas_lp.traces import read_trace

    record = Stats(stats)
    with record.stage("read"):
        trace = read_trace(traces)
        if gpus_per_node is not None:
            trace = trace.placed(gpus_per_node)
    with record.stage("sign"):
        summary = _summary(trace)
    if as_json:
        print_json(summary)
    else:
        _print(summary)
    record.write()


def _summary(trace: Trace) -> dict[str, Any]:
    from atlas_lp.analyze import signature_json
    from atlas_lp.traces import Gap, sign
    from atlas_lp.traces.nsight import total_operations

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
    identities = trace.communicators["id"].to_pylist()
    processes = set(zip(*(trace.gpus[c].to_pylist() for c in ("host", "process")), strict=True))
    return {
        "schema": "atlas-lp/inspect",
        # History: 1 (0.1.0) first.
        "version": 1,
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
            {"id": f"{identity:#x}", "ranks": ranks}
            for identity, ranks in zip(identities, trace.communicators["ranks"].to_pylist(), strict=True)
        ],
        "operations": [
            {"type": kind, "size_bytes": size, "count": count} for kind, size, count in total_operations(trace)
        ],
        "signatures": sorted(rows, key=lambda r: (r["type"], r["size_bytes"], r["key"])),
        "gaps": [gap.as_json() for gap in sorted(gaps)],
    }


def _print(summary: dict[str, Any]) -> None:
    trace = summary["trace"]
    synthetic = " (SYNTHETIC)" if trace["synthetic"] else ""
    click.echo(
        f"{trace['ranks']} ranks on {trace['nodes']} nodes ({trace['placement']}), {trace['processes']} processes, "
        f"{len(trace['files'])} files{synthetic}"
    )
    click.echo(f"NCCL {trace['nccl']['version']} ({trace['nccl']['source']})")
    print_table("Communicators", ("id", "ranks"), [(c["id"], c["ranks"]) for c in summary["communicators"]])
    print_table(
        "Operations (all ranks)",
        ("type", "size", "bytes", "count"),
        [(o["type"], format_size(o["size_bytes"]), o["size_bytes"], o["count"]) for o in summary["operations"]],
    )
    if summary["signatures"]:
        print_table(
            "Signatures",
            ("key", "type", "size", "algorithm", "protocol", "channels", "ranks", "nodes", "count"),
            [
                (
                    s["key"][:12],
                    s["type"],
                    format_size(s["size_bytes"]),
                    s["algorithm"],
                    s["protocol"],
                    s["channels"],
                    s["ranks"],
                    s["nodes"],
                    s["count"],
                )
                for s in summary["signatures"]
            ],
        )
        sources = sorted({f"{f}: {s}" for row in summary["signatures"] for f, s in row["sources"].items()})
        print_list("Where signature fields come from", sources)
    print_list("Gaps", [f"{gap['count']} x {gap['message']}" for gap in summary["gaps"]])
