"""How many planes has the joint envelope T(L, G) of a hard graph, and what does it cost to have them all?

Peer: the longest path itself, asked at 1,000 random points of the box: the highest plane must equal it exactly.  The
graphs are stencils of 100 thousand vertices, with messages of equal and of random sizes, over 0..1 ms and
10 Gbps..1.6 Tbps.  Every evaluation is one longest path; the envelope needs at most one for each plane and each corner
of its cells.

Run: ``python benchmarks/joint.py`` (seconds; ``--quick``: less).
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from fractions import Fraction

import click
from graphs import EQUAL_BYTES, RANDOM_BYTES, stencil, stencil_of
from measuring import best_of, claim, in_seconds, show

from atlas_lp.fabrics.fabric import Fabric, load_fabric
from atlas_lp.goal import EventGraph, event_graph
from atlas_lp.solver.axis import Point, point
from atlas_lp.solver.envelope import Box
from atlas_lp.solver.highs import Certificate
from atlas_lp.solver.longest_path import Evaluator, Plane
from atlas_lp.solver.solve import solve
from atlas_lp.solver.upper_envelope import explore, height

BOX = Box(Fraction(0), Fraction(10**6), Fraction(8, 1600), Fraction(8, 10))
TARGET_SECONDS = 10


@dataclass(frozen=True)
class Joint:
    """All planes, the corners of their cells, and how many longest paths it took to find them."""

    planes: list[Plane]
    corners: int
    evaluations: int


def find_planes(graph: EventGraph, fabric: Fabric, box: Box = BOX) -> Joint:
    """All planes over *box*."""
    evaluator = Evaluator(graph, fabric.theta())
    found = explore(box.corners(), lambda where: evaluator.plane(evaluator.at(where).vector))
    cells = found.envelope.cells
    return Joint(list(cells), len({corner for cell in cells.values() for corner in cell}), found.evaluations)


def random_points(count: int, seed: int) -> list[Point]:
    """Points of the box with three decimals of a ns and of a ns per kilobyte."""
    rng = random.Random(seed)

    def between(low: Fraction, high: Fraction, steps: int) -> Fraction:
        return Fraction(rng.randint(int(low * steps), int(high * steps)), steps)

    return [
        point(
            between(BOX.latency_from_ns, BOX.latency_to_ns, 10**3),
            between(BOX.gap_from_ns_per_byte, BOX.gap_to_ns_per_byte, 10**6),
        )
        for _ in range(count)
    ]


def different(graph: EventGraph, fabric: Fabric, planes: list[Plane], points: list[Point]) -> int:
    """At how many *points* the highest plane is not exactly the longest path."""
    evaluator = Evaluator(graph, fabric.theta())
    return sum(
        Fraction(max(height(plane, where) for plane in planes), where[2] * evaluator.scale)
        != evaluator.at(where).time_ns
        for where in points
    )


@dataclass(frozen=True)
class Measured:
    """One graph: its joint envelope and the seconds of its parts."""

    name: str
    graph: EventGraph
    joint: Joint
    path: float
    seconds: float
    certified: float
    certificate: Certificate
    wrong: int


def measure(name: str, graph: EventGraph, fabric: Fabric, points: list[Point]) -> Measured:
    """Solve *graph*, without and with certificate, and check it at *points*."""
    evaluator = Evaluator(graph, fabric.theta())
    path, _ = best_of(5, lambda: evaluator.at(BOX.corners()[0]))
    seconds, joint = best_of(1, lambda: find_planes(graph, fabric))
    certified, envelope = best_of(1, lambda: solve(graph, fabric, BOX))
    assert envelope.certificate is not None
    wrong = different(graph, fabric, joint.planes, points)
    return Measured(name, graph, joint, path, seconds, certified, envelope.certificate, wrong)


@click.command(help=__doc__)
@click.option("--quick", is_flag=True, help="Small graphs.")
@click.option("--points", type=int, default=1000, show_default=True, help="Random points to check.")
@click.option("--seed", type=int, default=1, show_default=True)
def main(quick: bool, points: int, seed: int) -> None:
    fabric = load_fabric()
    find_planes(event_graph(stencil(3, 2), None, fabric.port_rule), fabric)  # loads what is compiled
    where = random_points(points, seed)
    found = []
    for name, sizes in (("stencil, equal messages", EQUAL_BYTES), ("stencil, random messages", RANDOM_BYTES)):
        schedule = stencil_of(1_000 if quick else 100_000, message_bytes=sizes)
        found.append(measure(name, event_graph(schedule, None, fabric.port_rule), fabric, where))
    show(
        (
            *("graph", "vertices", "edges", "planes", "corners", "evaluations"),
            *("one longest path", "T(L, G)", "ratio", "with HiGHS"),
        ),
        [
            (
                *(m.name, f"{m.graph.vertices:,}", f"{m.graph.edges:,}", f"{len(m.joint.planes):,}"),
                *(f"{m.joint.corners:,}", f"{m.joint.evaluations:,}", in_seconds(m.path), in_seconds(m.seconds)),
                *(f"{m.seconds / m.path:,.0f}", in_seconds(m.certified)),
            )
            for m in found
        ],
    )
    print("The ratio is that of T(L, G) to one longest path.", end="\n\n")
    for m in found:
        most, asked = len(m.joint.planes) + m.joint.corners, m.certificate
        claim(
            f"{m.name}: evaluations <= planes + corners: {m.joint.evaluations:,} <= {most:,}",
            m.joint.evaluations <= most,
        )
        claim(f"{m.name}: highest plane = longest path at {points:,} random points: {m.wrong} differ", not m.wrong)
        print(
            f"- {m.name}: {asked.solver}, {asked.status} at {asked.points} of {asked.points_of_interest} points of "
            f"interest, {asked.pivots} pivots"
        )
        soon = m.seconds < TARGET_SECONDS
        claim(f"{m.name}: all planes in {in_seconds(m.seconds)} < {TARGET_SECONDS} s", soon, not quick)


if __name__ == "__main__":
    main()
