"""How do time and memory grow with the size of a graph, and with the number of ranks?

Peer: itself at another size, and the arrays that hold the graph (in-edges as CSR: in_start, source, cost).  Each size
runs in a process of its own, which first does the same to a few vertices; peak memory counts from there, and includes
the graph.

* stencil, 64 ranks, from 10 thousand to 10 million vertices: building (operations to graph), and one longest path of a
  graph that is read from a file, so that the memory of building does not hide that of solving; also with messages of
  random sizes, where the table of distinct costs is largest;
* ring AllReduce over 16 channels, 4 GPUs per node, 256 KiB per rank, from 16 to 4,096 ranks through the quotient by
  symmetry: exact T(L) and T(G) over the whole box, the joint envelope, and the joint envelope once more as the library
  returns it, with the solver check by HiGHS up to its limit of rows.

Run: ``python benchmarks/growth.py`` (a minute; needs about 4 GB; ``--quick``: seconds).
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import click
import numpy as np
from graphs import EQUAL_BYTES, RANDOM_BYTES, csr_bytes, ring, stencil_of
from joint import find_planes
from measuring import best_of, claim, exponent, in_bytes, in_fresh_process, in_seconds, show, start_bytes

from atlas_lp.collectives.solver import CollectiveSolver
from atlas_lp.fabrics.fabric import load_fabric
from atlas_lp.goal import EventGraph, event_graph
from atlas_lp.peak_memory import peak_bytes
from atlas_lp.solver.axis import point
from atlas_lp.solver.envelope import Box
from atlas_lp.solver.longest_path import Evaluator
from atlas_lp.solver.solve import solve, solve_along

# 384,615 and 3,846,154 vertices are 1 and 10 million edges.
STENCILS = 10_000, 30_000, 100_000, 384_615, 1_000_000, 3_846_154, 10_000_000
RANDOM_STENCILS = 100_000, 384_615, 1_000_000
RINGS = 16, 64, 256, 1024, 4096
TINY = {"build": 100, "build-random": 100, "solve": 0, "ring": 8}
"""Sizes that every process does first, so that libraries and compiled code are loaded."""

GROWTH = 1.5
MEMORY = 3
MILLION = 999_000
RING_SECONDS, RING_BYTES = 10, 10**9

Found = dict[str, Any]


def build_stencil(vertices: int, file: Path, message_bytes: tuple[int, int] = EQUAL_BYTES) -> Found:
    """Build the graph of a stencil and write it to *file*; the memory is that of its operations and the graph."""
    fabric = load_fabric()
    schedule = stencil_of(vertices, message_bytes=message_bytes)
    graph_seconds, graph = best_of(3, lambda: event_graph(schedule, None, fabric.port_rule))
    peak = peak_bytes()
    with file.open("wb") as stream:
        for column in (graph.in_start, graph.source, graph.cost, graph.costs):
            np.save(stream, column)
    return {
        "vertices": graph.vertices,
        "edges": graph.edges,
        "costs": len(graph.costs),
        "seconds": graph_seconds,
        "peak": peak,
    }


def solve_stencil(_: int, file: Path) -> Found:
    """Read a graph and find longest paths; the time is that of one."""
    with file.open("rb") as stream:
        in_start, source, cost, costs = (np.load(stream) for _ in range(4))
    graph = EventGraph(in_start, source, cost, costs, np.zeros(0, dtype=np.int32))
    fabric = load_fabric()
    evaluator = Evaluator(graph, fabric.theta())
    where = point(fabric.latency_ns, fabric.gap_ns_per_byte)
    seconds, _longest = best_of(7, lambda: evaluator.at(where))
    return {"csr": csr_bytes(graph), "seconds": seconds, "peak": peak_bytes()}


def solve_ring(ranks: int, _: Path) -> Found:
    """From the parameters of a ring to its graph, T(L), T(G) and joint envelope."""
    fabric, box = load_fabric(), Box()
    signature_seconds, signature = best_of(1, lambda: ring(ranks, 16, ranks << 18, 4))
    graph_seconds, found = best_of(1, lambda: CollectiveSolver(fabric).graph(signature))
    if found is None:
        raise click.ClickException(f"the ring of {ranks} ranks is not solved by a graph but as a bracket")
    graph, method = found
    along = {
        "messages": (box.latency_from_ns, box.latency_to_ns),
        "bytes": (box.gap_from_ns_per_byte, box.gap_to_ns_per_byte),
    }
    cuts = {axis: best_of(3, lambda a=axis, e=ends: solve_along(graph, fabric, a, *e)) for axis, ends in along.items()}
    joint_seconds, joint = best_of(3, lambda: find_planes(graph, fabric, box))
    engine_peak = peak_bytes()
    certified_seconds, envelope = best_of(1, lambda: solve(graph, fabric, box))
    assert envelope.certificate is not None
    return {
        "method": method,
        "vertices": graph.vertices,
        "edges": graph.edges,
        "csr": csr_bytes(graph),
        "graph_seconds": signature_seconds + graph_seconds,
        "latency_seconds": cuts["messages"][0],
        "latency_pieces": len(cuts["messages"][1]),
        "gap_seconds": cuts["bytes"][0],
        "gap_pieces": len(cuts["bytes"][1]),
        "joint_seconds": joint_seconds,
        "planes": len(joint.planes),
        "engine_peak": engine_peak,
        "certified_seconds": certified_seconds,
        "certificate": envelope.certificate.status.partition(":")[0],
        "peak": peak_bytes(),
    }


STEPS: dict[str, Callable[[int, Path], Found]] = {
    "build": build_stencil,
    "build-random": partial(build_stencil, message_bytes=RANDOM_BYTES),
    "solve": solve_stencil,
    "ring": solve_ring,
}


def run(step: str, size: int, file: Path) -> Found:
    """One step on one size in a fresh process."""
    return in_fresh_process(__file__, "--step", step, "--size", size, "--file", file)


def stencils(build: str, sizes: Sequence[int], folder: Path, judged: bool) -> None:
    """Measure and print the stencils that the step *build* makes."""
    file = folder / "graph.npy"
    run("build", TINY["build"], folder / "tiny.npy")  # for the processes that only solve
    rows, found = [], []
    for size in sizes:
        built = run(build, size, file)
        solved = run("solve", size, file)
        found.append((built, solved))
        edges, csr = built["edges"], solved["csr"]
        rows.append(
            (
                *(f"{built['vertices']:,}", f"{edges:,}", f"{built['costs']:,}", in_bytes(csr)),
                *(in_seconds(built["seconds"]), f"{built['seconds'] / edges * 1e9:.0f} ns"),
                *(in_bytes(built["peak"]), f"{built['peak'] / csr:.1f}"),
                *(in_seconds(solved["seconds"]), f"{solved['seconds'] / edges * 1e9:.1f} ns"),
                *(in_bytes(solved["peak"]), f"{solved['peak'] / csr:.2f}"),
            )
        )
    headers = (
        "vertices",
        "edges",
        "costs",
        "CSR",
        "build",
        "per edge",
        "peak",
        "/ CSR",
        "longest path",
        "per edge",
        "peak",
    )
    show((*headers, "/ CSR"), rows)
    _stencil_claims(found, judged)


def _stencil_claims(found: list[tuple[Found, Found]], judged: bool) -> None:
    edges = [built["edges"] for built, _ in found]
    large = [i for i, count in enumerate(edges) if MILLION <= count <= 10.1 * MILLION]
    first, last = (large[0], large[-1]) if len(large) > 1 else (0, -1)
    for what, side in (("building", 0), ("one longest path", 1)):
        times = [pair[side]["seconds"] for pair in found]
        print(f"- {what}: time grows like edges to the power {exponent(edges, times):.2f}")
        ratio = times[last] / edges[last] / (times[first] / edges[first])
        claim(
            f"{what}: time per edge, {edges[last]:,} edges to {edges[first]:,} edges: ratio {ratio:.2f} < {GROWTH}",
            ratio < GROWTH,
            judged,
        )
    peaks = [solved["peak"] / solved["csr"] for built, solved in found if built["edges"] >= MILLION]
    worst = max(peaks or [found[-1][1]["peak"] / found[-1][1]["csr"]])
    which = "a million edges and more" if peaks else "the largest graph"
    claim(f"peak of solving / CSR, {which}: ratio at most {worst:.2f} <= {MEMORY}", worst <= MEMORY, judged)


def rings(sizes: Sequence[int], folder: Path, judged: bool) -> None:
    """Measure and print the rings."""
    file = folder / "unused"
    found = [run("ring", ranks, file) for ranks in sizes]
    headers = ("ranks", "method", "vertices", "edges", "graph", "T(L)", "pieces", "T(G)", "pieces", "T(L, G)", "planes")
    show(
        (*headers, "peak", "/ CSR", "with HiGHS", "solver check", "peak"),
        [
            (
                *(f"{ranks:,}", f["method"], f"{f['vertices']:,}", f"{f['edges']:,}", in_seconds(f["graph_seconds"])),
                *(in_seconds(f["latency_seconds"]), f["latency_pieces"]),
                *(in_seconds(f["gap_seconds"]), f["gap_pieces"], in_seconds(f["joint_seconds"]), f["planes"]),
                *(in_bytes(f["engine_peak"]), f"{f['engine_peak'] / f['csr']:.1f}"),
                *(in_seconds(f["certified_seconds"]), f["certificate"], in_bytes(f["peak"])),
            )
            for ranks, f in zip(sizes, found, strict=True)
        ],
    )
    for what in ("vertices", "graph_seconds", "latency_seconds"):
        power = exponent(sizes, [f[what] for f in found])
        print(f"- rings: {what.replace('_', ' ')} grow like ranks to the power {power:.2f}")
    last = found[-1]
    total = sum(last[f"{part}_seconds"] for part in ("graph", "latency", "gap", "certified"))
    good = total < RING_SECONDS and last["start"] + last["peak"] < RING_BYTES
    claim(
        f"{sizes[-1]:,} ranks x 16 channels: graph, T(L), T(G) and T(L, G) in {in_seconds(total)} < {RING_SECONDS} s, "
        f"and {in_bytes(last['start'] + last['peak'])} < {in_bytes(RING_BYTES)} for the whole process",
        good,
        judged,
    )


@click.command(help=__doc__)
@click.option("--quick", is_flag=True, help="Small graphs.")
@click.option("--largest", type=int, default=STENCILS[-1], show_default=True, help="Vertices of the largest stencil.")
@click.option("--step", type=click.Choice(list(STEPS)), hidden=True)
@click.option("--size", type=int, hidden=True)
@click.option("--file", type=click.Path(path_type=Path), hidden=True)
def main(quick: bool, largest: int, step: str | None, size: int, file: Path) -> None:
    if step is not None:
        STEPS[step](TINY[step], file.with_name("tiny.npy"))
        start = start_bytes()
        found = STEPS[step](size, file)
        above = {key: value - start for key, value in found.items() if key.endswith("peak")}
        print(json.dumps({**found, **above, "start": start}))
        return
    with tempfile.TemporaryDirectory() as name:
        kinds = {"build": STENCILS} if quick else {"build": STENCILS, "build-random": RANDOM_STENCILS}
        for build, sizes in kinds.items():
            print(f"Stencils, messages of {'random' if build == 'build-random' else 'equal'} sizes:", end="\n\n")
            stencils(
                build, (1_000, 3_000) if quick else [size for size in sizes if size <= largest], Path(name), not quick
            )
            print()
        print("Rings:", end="\n\n")
        rings((8, 16) if quick else RINGS, Path(name), not quick)


if __name__ == "__main__":
    main()
