"""Is the exact T(L) cheaper than one run of LogGOPSim on the same schedule, and do both say the same time?

Peer: LogGOPSim (spcl/LogGOPSim, or the fork in spcl/atlahs, which knows several cpus and G with decimals), found on
PATH as ``LogGOPSim`` and ``txt2bin`` or named by options; without them the script says that it skips.  It gets the
schedules of ``engine_vs_sweep.py`` as GOAL text, one rank per node.  The time of a run is that of the process; turning
text into its binary form is counted for it as little as building the graph is for the engine.

Tags number the messages of each pair of ranks, which the fork in atlahs needs (``atlas_lp/goal/per_node.py``).

Two points are compared.  At *plain* (o = g = 0, G = 1 ns/B) the two models coincide but for the order in which a port
sends: LogGOPSim's is that of readiness, and not defined where two sends are ready at the same time.  At *native* it
also adds g to every message on the path, truncates (m-1)G to whole ns, and lets the operations of one cpu wait for each
other: receives for calcs, and in the ring, where a message inside a node is a calc, calcs for messages.

Run: ``python benchmarks/loggopsim.py`` (a minute; ``--quick``: seconds).
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from time import perf_counter

import click
import numpy as np
from graphs import EQUAL_BYTES, RANDOM_BYTES, ring, stencil
from measuring import best_of, claim, in_seconds, show

from atlas_lp.errors import AtlasError
from atlas_lp.fabrics.fabric import Fabric, load_fabric
from atlas_lp.goal import EventGraph, Schedule, event_graph
from atlas_lp.goal.per_node import numbered, per_node
from atlas_lp.signatures.algorithms.expand import expand
from atlas_lp.solver.axis import point
from atlas_lp.solver.longest_path import MESSAGES, Evaluator
from atlas_lp.solver.solve import solve_along
from atlas_lp.validation.loggopsim import COMPILER, SIMULATOR, compiled, programs

LATEST_NS = 100_000


@dataclass(frozen=True)
class Comparison:
    """One schedule: seconds of the engine and of the simulator, and what both say at the two points."""

    name: str
    operations: int
    text_bytes: int
    compile: float
    build: float
    exact: float
    one: float
    many: float
    plain: tuple[int, Fraction]
    native: tuple[int, Fraction]
    messages: int


def plain(fabric: Fabric) -> Fabric:
    """The same with o = g = 0 and G = 1 ns/B."""
    zero = Fraction(0)
    return replace(fabric, overhead_ns=zero, message_gap_ns=zero, gap_ns_per_byte=Fraction(1))


def schedules(quick: bool, gpus_per_node: int, fabric: Fabric) -> dict[str, Schedule]:
    """One GOAL rank per node."""
    ranks, channels, size, iterations = (8, 2, 4 << 20, 16) if quick else (64, 8, 128 << 20, 312)
    signature = ring(ranks, channels, size, gpus_per_node)
    merged = per_node(
        expand(signature, fabric.reduce_copy, fabric.credits),
        np.array(signature.nodes),
        fabric.up_latency_ns,
        fabric.up_gap_ns_per_byte,
    )
    name = f"ring {ranks} ranks x {channels} channels x {size >> 20} MiB"
    found = {f"{name}, {gpus_per_node} GPUs per node": merged}
    for kind, message_bytes in {"equal": EQUAL_BYTES, "random": RANDOM_BYTES}.items():
        name = f"stencil {ranks} ranks x {iterations} iterations, {kind} messages"
        found[name] = stencil(ranks, iterations, 1, message_bytes)
    return found


def exact_time(graph: EventGraph, fabric: Fabric) -> tuple[Fraction, int]:
    """T in ns and the messages on the critical path."""
    evaluator = Evaluator(graph, fabric.theta())
    longest = evaluator.at(point(fabric.latency_ns, fabric.gap_ns_per_byte))
    return longest.time_ns, longest.vector[MESSAGES]


def compare(
    name: str, schedule: Schedule, fabric: Fabric, installed: tuple[str, str], points: int, folder: Path
) -> Comparison:
    """Solve and simulate one schedule."""
    compile_seconds, program = best_of(1, lambda: compiled(numbered(schedule), folder, installed))
    build, graph = best_of(1, lambda: event_graph(schedule, None, fabric.port_rule))
    exact, _ = best_of(3, lambda: solve_along(graph, fabric, "messages", Fraction(0), Fraction(LATEST_NS)))
    one, native = best_of(3, lambda: program.time_ns(fabric))
    begin = perf_counter()
    for i in range(points):
        program.time_ns(fabric.at(latency_ns=Fraction(LATEST_NS * i // (points - 1))))
    many = perf_counter() - begin
    time, messages = exact_time(graph, fabric)
    simple = plain(fabric)
    return Comparison(
        name=name,
        operations=len(schedule),
        text_bytes=(folder / "schedule.goal").stat().st_size,
        compile=compile_seconds,
        build=build,
        exact=exact,
        one=one,
        many=many,
        plain=(program.time_ns(simple), exact_time(graph, simple)[0]),
        native=(native, time),
        messages=messages,
    )


def report(found: list[Comparison], fabric: Fabric, points: int, judged: bool) -> None:
    """Print both tables and the claim."""
    show(
        ("schedule", "operations", "txt2bin", "build", "exact T(L)", "one run", "ratio", f"{points} runs", "ratio"),
        [
            (
                *(c.name, f"{c.operations:,}", in_seconds(c.compile), in_seconds(c.build), in_seconds(c.exact)),
                *(in_seconds(c.one), f"{c.one / c.exact:.1f}", in_seconds(c.many), f"{c.many / c.exact:,.0f}"),
            )
            for c in found
        ],
    )
    print("The ratios are those of LogGOPSim to the exact T(L) with all its pieces.", end="\n\n")
    added = int(fabric.message_gap_ns)
    show(
        (
            *("T (ns)", "plain: LogGOPSim", "exact", "difference"),
            *("native: LogGOPSim", "exact", "difference", "relative", "messages on path", f"x g = {added} ns"),
        ),
        [
            (
                *(c.name, f"{c.plain[0]:,}", f"{float(c.plain[1]):,.0f}", f"{float(c.plain[0] - c.plain[1]):,.0f}"),
                *(f"{c.native[0]:,}", f"{float(c.native[1]):,.1f}", f"{float(c.native[0] - c.native[1]):,.1f}"),
                *(f"{float(c.native[0] / c.native[1]) - 1:.1e}", f"{c.messages:,}", f"{c.messages * added:,}"),
            )
            for c in found
        ],
    )
    first = found[0]
    equal = sum(c.plain[0] == c.plain[1] for c in found)
    print(f"- plain: LogGOPSim and the longest path say the same to the ns on {equal} of {len(found)} schedules")
    claim(
        f"{first.name}: exact T(L) is faster than one LogGOPSim run, ratio {first.one / first.exact:.1f} > 1",
        first.one > first.exact,
        judged,
    )


@contextmanager
def refusing() -> Iterator[None]:
    """Turn an error of the project into one line."""
    try:
        yield
    except AtlasError as error:
        raise click.ClickException(str(error)) from None


@click.command(help=__doc__)
@click.option("--quick", is_flag=True, help="Small schedules.")
@click.option("--simulator", default=SIMULATOR, show_default=True, help="Name on PATH, or file.")
@click.option("--compiler", default=COMPILER, show_default=True, help="Name on PATH, or file.")
@click.option("--points", type=click.IntRange(min=2), default=101, show_default=True, help="Runs over 0..100 us.")
@click.option("--gap", help="G in ns per byte for the native point; whole for forks other than ATLAHS.")
@click.option(
    "--gpus-per-node",
    type=click.IntRange(min=1),
    default=4,
    show_default=True,
    help="GPUs of a node in the ring; 1 for forks other than ATLAHS, which lose dependencies between cpus.",
)
def main(quick: bool, simulator: str, compiler: str, points: int, gap: str | None, gpus_per_node: int) -> None:
    installed = programs(simulator, compiler)
    if installed is None:
        print(f"skipped: {simulator} and {compiler} are not both installed; no ratio was measured")
        return
    fabric = load_fabric()
    if gap is not None:
        fabric = fabric.at(gap_ns_per_byte=Fraction(gap))
    solve_along(event_graph(stencil(3, 2)), fabric, "messages", Fraction(0), Fraction(LATEST_NS))
    with tempfile.TemporaryDirectory() as folder, refusing():
        found = [
            compare(name, schedule, fabric, installed, points, Path(folder))
            for name, schedule in schedules(quick, gpus_per_node, fabric).items()
        ]
    report(found, fabric, points, not quick)


if __name__ == "__main__":
    main()
