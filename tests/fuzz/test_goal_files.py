"""Random GOAL files, read and solved, against a brute force that shares no code with what it judges."""

from fractions import Fraction
from pathlib import Path
from random import Random

import numpy as np
import pytest
from helpers.graphs import fabric
from oracles import first_ready
from oracles.loggp import Network

from atlas_lp.fabrics.fabric import Fabric
from atlas_lp.goal import PortRule, read_goal
from atlas_lp.solver.envelope import Box, Envelope
from atlas_lp.solver.port_order import solve_messages
from fuzz.goal_files import GoalFile, random_goal

BOX = Box(Fraction(0), Fraction(10**6), Fraction(0), Fraction(2))
Where = tuple[Fraction, Fraction]


def fabric_of(file: GoalFile) -> Fabric:
    n = file.network
    up = {"up_latency_ns": n.up_latency, "up_gap_ns_per_byte": n.up_gap_per_byte}
    more = {"port_rule": PortRule(file.rule), "ingress": file.ingress}
    return fabric(n.latency, n.gap_per_byte, n.overhead, n.message_gap, **up, **more)


def network_at(file: GoalFile, where: Where) -> Network:
    n = file.network
    return Network(*where, n.overhead, n.message_gap, n.up_latency, n.up_gap_per_byte)


def points(draw: Random) -> list[Where]:
    """The corners of the box, and points inside it."""
    latencies = BOX.latency_from_ns, BOX.latency_to_ns, Fraction(draw.randrange(10**6))
    gaps = BOX.gap_from_ns_per_byte, BOX.gap_to_ns_per_byte, Fraction(draw.randrange(8, 8000), 10**4)
    return [(latency, gap) for latency in latencies for gap in gaps]


def check(file: GoalFile, envelope: Envelope, draw: Random) -> None:
    """At every point T is that of ports that keep the order of the point that is named, and so is the difference."""
    native = file.network.latency, file.network.gap_per_byte
    at = native if envelope.order is None else envelope.order.at
    case = file.operations, file.nodes, file.rule
    order = first_ready.run(*case, network_at(file, at), file.ingress)
    for where in points(draw):
        expected = first_ready.in_order(order, *case, network_at(file, where), file.ingress)
        assert envelope.time_ns(*where) == expected, where
    served = first_ready.run(*case, file.network, file.ingress).makespan
    assert first_ready.in_order(order, *case, file.network, file.ingress) == served, "the native point"
    if envelope.order is not None:
        there = network_at(file, envelope.order.worst_at)
        first_come = first_ready.run(*case, there, file.ingress).makespan
        kept = first_ready.in_order(order, *case, there, file.ingress)
        difference = abs(kept - first_come) / first_come if first_come else 0
        assert envelope.order.difference == pytest.approx(float(difference))


@pytest.mark.parametrize("files", [60, pytest.param(2000, marks=pytest.mark.slow)])
def test_goal_files_against_a_brute_force(files: int, tmp_path: Path) -> None:
    counts = {"files": 0, "orders": 0, "differ": 0, "planes": 0}
    for seed in range(files):
        draw = Random(f"goal {seed}")
        file = random_goal(draw)
        path = tmp_path / "random.goal"
        path.write_text(file.text)
        chosen = fabric_of(file)
        _, envelope = solve_messages(chosen.messages(read_goal(path), np.array(file.nodes)), chosen, BOX)
        try:
            check(file, envelope, draw)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}") from error
        counts["files"] += 1
        counts["orders"] += envelope.order is not None
        counts["differ"] += envelope.order is not None and envelope.order.difference > 0
        counts["planes"] += len(envelope.vectors)
    print(f"GOAL files: {counts}")  # noqa: T201
    assert counts["differ"] > 0, "some must be served in another order elsewhere, or nothing was tried"
