"""A training step of 16 GPUs, about 200 collectives each: its composite, cold and warm, against its graph of messages.

The paper's own comparison (section IV.C: 45 to 77 s and 343 MB for the composite, 83 minutes and 14 GB for the
monolithic LP of 2.3 million variables).  Both sides here are the exact T(L) of the same engine, the composite with the
whole joint envelope T(L, G) besides; each runs in a process of its own, which has read the trace and solved a tiny
graph before, so that compiled code is loaded.

Run: ``python benchmarks/composite.py`` (half a minute, 2 GB), ``--quick`` for one point of the messages only.
"""

from __future__ import annotations

import json
import tempfile
from fractions import Fraction
from pathlib import Path
from time import perf_counter
from typing import Any

import click
from graphs import stencil
from measuring import claim, in_bytes, in_fresh_process, in_seconds, show, start_bytes

from atlas_lp.cache import Store
from atlas_lp.collectives.solver import CollectiveSolver
from atlas_lp.fabrics.fabric import load_fabric
from atlas_lp.goal import event_graph
from atlas_lp.peak_memory import peak_bytes
from atlas_lp.program.dependencies.readings import find_links
from atlas_lp.program.job import solve_job
from atlas_lp.program.message_graph import message_graph
from atlas_lp.solver.axis import LATENCY, point
from atlas_lp.solver.envelope import Box
from atlas_lp.solver.longest_path import Evaluator
from atlas_lp.solver.solve import solve, solve_along
from atlas_lp.traces.reading.read import read_trace
from atlas_lp.traces.signing.signed_trace import SignedTrace
from atlas_lp.traces.synthetic.demo import write_demo

COLD_SECONDS, COLD_BYTES, WARM_SECONDS = 2, 4e8, 0.2
RANGE = Fraction(0), Fraction(10**6)


def load_compiled() -> None:
    """Solve a tiny graph."""
    solve(event_graph(stencil(3, 2)), load_fabric(), Box())


def composite(traces: Path, cache: Path) -> dict[str, Any]:
    """Solve signatures and program; the first run fills the cache."""
    trace, fabric = read_trace([traces]), load_fabric()
    load_compiled()
    start_bytes()
    begin = perf_counter()
    job = solve_job(trace, CollectiveSolver(fabric, store=Store(cache)))
    envelope = job.solve()
    seconds = perf_counter() - begin
    pieces = envelope.along(LATENCY, fabric.gap_ns_per_byte)
    native = float(envelope.time_ns(fabric.latency_ns, fabric.gap_ns_per_byte))
    found = {"vertices": job.program.graph.vertices, "pieces": len(pieces), "planes": len(envelope.vectors)}
    return {**found, "seconds": seconds, "peak": peak_bytes(), "native_ns": native}


def messages(traces: Path, quick: bool) -> dict[str, Any]:
    """Expand every message of the trace and find T(L)."""
    trace, fabric = read_trace([traces]), load_fabric()
    load_compiled()
    start_bytes()
    begin = perf_counter()
    signed = SignedTrace.of(trace, fabric.gpus_per_nic)
    schedule = message_graph(signed, fabric, find_links(signed))
    graph = event_graph(schedule, trace.column("gpus", "node"), fabric.port_rule, fabric.ingress)
    native = Evaluator(graph, fabric.theta()).at(point(fabric.latency_ns, fabric.gap_ns_per_byte)).time_ns
    pieces = [] if quick else solve_along(graph, fabric, "messages", *RANGE)
    found = {"vertices": graph.vertices, "pieces": len(pieces), "planes": 0}
    return {**found, "seconds": perf_counter() - begin, "peak": peak_bytes(), "native_ns": float(native)}


def report(quick: bool) -> None:
    """Measure all three and print the claims."""
    with tempfile.TemporaryDirectory() as folder:
        traces, cache = Path(folder) / "traces", Path(folder) / "cache"
        write_demo(traces)
        words = ["--traces", traces, "--cache", cache, *(["--quick"] if quick else [])]
        names = ("composite, cold", "composite, warm", "every message")
        steps = ("composite", "composite", "messages")
        found = [in_fresh_process(__file__, "--step", step, *words) for step in steps]
    show(
        ("", "vertices", "pieces of T(L)", "planes of T(L, G)", "time", "peak of the process", "T native"),
        [
            (
                *(name, f"{f['vertices']:,}", f["pieces"] or "-", f["planes"] or "-", in_seconds(f["seconds"])),
                *(in_bytes(f["peak"]), f"{f['native_ns'] / 1e6:.3f} ms"),
            )
            for name, f in zip(names, found, strict=True)
        ],
    )
    cold, warm, whole = found
    ratio = whole["seconds"] / cold["seconds"]
    claim(f"every message / composite, cold: ratio of times {ratio:.1f} > 1", ratio > 1, not quick)
    apart = cold["native_ns"] / whole["native_ns"] - 1
    claim(f"composite / every message, native T: {100 * apart:+.3f} %, less than 0.1 %", abs(apart) < 1e-3)
    good = cold["seconds"] < COLD_SECONDS and cold["peak"] < COLD_BYTES
    claim(
        f"composite, cold: {in_seconds(cold['seconds'])} < {COLD_SECONDS} s and {in_bytes(cold['peak'])} < "
        f"{in_bytes(COLD_BYTES)}",
        good,
        not quick,
    )
    claim(
        f"composite, warm: {in_seconds(warm['seconds'])} < {WARM_SECONDS} s",
        warm["seconds"] < WARM_SECONDS,
        not quick,
    )


@click.command(help=__doc__)
@click.option("--quick", is_flag=True, help="One point of the graph of messages only; nothing is judged.")
@click.option("--step", type=click.Choice(["composite", "messages"]), hidden=True)
@click.option("--traces", type=click.Path(path_type=Path), hidden=True)
@click.option("--cache", type=click.Path(path_type=Path), hidden=True)
def main(quick: bool, step: str | None, traces: Path, cache: Path) -> None:
    if step is None:
        report(quick)
    else:
        print(json.dumps(composite(traces, cache) if step == "composite" else messages(traces, quick)))


if __name__ == "__main__":
    main()
