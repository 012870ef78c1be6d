"""How much faster is the exact T(L) than the sweep of the paper, on the same graph?

Peer: ``atlas_lp.solver.lp_sweep``, one linear program that HiGHS re-solves by warm dual simplex at 101 values of L from
0 to 100 us (the first solve cold, with presolve).  The engine finds all pieces on the same range by ``solve_along``.
Building the graph is needed by both and counted in neither.

Run: ``python benchmarks/engine_vs_sweep.py`` (minutes, nearly all of it the sweep; ``--quick``: seconds).
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from time import perf_counter

import click
from graphs import EQUAL_BYTES, RANDOM_BYTES, ring, ring_graph, stencil
from measuring import best_of, claim, in_seconds, show

from atlas_lp.fabrics.fabric import Fabric, load_fabric
from atlas_lp.goal import EventGraph, event_graph
from atlas_lp.solver.axis import LATENCY
from atlas_lp.solver.envelope import Piece
from atlas_lp.solver.lp_sweep import SweepPoint, pieces_of, sweep
from atlas_lp.solver.solve import solve_along

LATEST_NS = 100_000
POINTS = 101
TARGET = 100


@dataclass(frozen=True)
class Comparison:
    """One graph, solved both ways; times in seconds."""

    name: str
    graph: EventGraph
    build: float
    exact: float
    pieces: list[Piece]
    cold: float
    warm: float
    points: list[SweepPoint]

    @property
    def ratio(self) -> float:
        """Sweep over engine."""
        return (self.cold + self.warm) / self.exact

    def difference(self) -> float:
        """Largest relative difference of the two times at a grid point."""
        return max(abs(p.time_ns / float(_at(self.pieces, p.x)) - 1) for p in self.points)

    def invisible(self) -> int:
        """Pieces that hold no grid point inside and so cannot be seen by a sweep."""
        return sum(not any(piece.start < p.x < piece.stop for p in self.points) for piece in self.pieces)


def _at(pieces: list[Piece], x: Fraction) -> Fraction:
    return max(piece.at(x) for piece in pieces)


def graphs(quick: bool, fabric: Fabric) -> dict[str, tuple[float, EventGraph]]:
    """The graphs with their names and the seconds it took to build them."""
    sizes = (8, 2, 4 << 20, 64) if quick else (64, 8, 128 << 20, 312)
    ranks, channels, size, iterations = sizes
    stencils = {"equal": EQUAL_BYTES, "random": RANDOM_BYTES}
    return {
        f"ring {ranks} ranks x {channels} channels x {size >> 20} MiB": best_of(
            1, lambda: ring_graph(ring(ranks, channels, size, 4), fabric)
        ),
        **{
            f"stencil {ranks} ranks x {iterations} iterations, {name} messages": best_of(
                1, lambda b=message_bytes: event_graph(stencil(ranks, iterations, 1, b), None, fabric.port_rule)
            )
            for name, message_bytes in stencils.items()
        },
    }


def compare(name: str, build: float, graph: EventGraph, fabric: Fabric) -> Comparison:
    """Solve *graph* both ways."""
    exact, pieces = best_of(3, lambda: solve_along(graph, fabric, "messages", Fraction(0), Fraction(LATEST_NS)))
    values = [Fraction(LATEST_NS * i, POINTS - 1) for i in range(POINTS)]
    ends = [perf_counter()]
    points = sweep(graph, fabric, LATENCY, values, lambda done: ends.append(perf_counter()))
    return Comparison(name, graph, build, exact, pieces, ends[1] - ends[0], ends[-1] - ends[1], points)


@click.command(help=__doc__)
@click.option("--quick", is_flag=True, help="Small graphs.")
def main(quick: bool) -> None:
    fabric = load_fabric()
    warm_up = event_graph(stencil(3, 2), None, fabric.port_rule)
    solve_along(warm_up, fabric, "messages", Fraction(0), Fraction(LATEST_NS))
    sweep(warm_up, fabric, LATENCY, [Fraction(0), Fraction(1)])
    found = [compare(name, *built, fabric) for name, built in graphs(quick, fabric).items()]
    show(
        ("graph", "vertices", "edges", "build", "exact T(L)", "pieces", "sweep", "cold", "100 warm", "pivots", "ratio"),
        [
            (
                *(
                    c.name,
                    f"{c.graph.vertices:,}",
                    f"{c.graph.edges:,}",
                    in_seconds(c.build),
                    in_seconds(c.exact),
                    len(c.pieces),
                ),
                *(in_seconds(c.cold + c.warm), in_seconds(c.cold), in_seconds(c.warm)),
                *(f"{sum(p.pivots for p in c.points):,}", f"{c.ratio:,.0f}"),
            )
            for c in found
        ],
    )
    for c in found:
        print(
            f"- {c.name}: the sweep shows {len(pieces_of(c.points))} pieces, of {len(c.pieces)} there are "
            f"{c.invisible()} without a grid point inside; largest relative difference of T {c.difference():.1e}"
        )
        claim(f"{c.name}: ratio sweep / exact T(L) = {c.ratio:,.0f} >= {TARGET}", c.ratio >= TARGET, not quick)


if __name__ == "__main__":
    main()
