"""One GOAL rank per node: the same times as one rank per GPU, in a form that LogGOPSim can read."""

from fractions import Fraction

import numpy as np
import pytest
from helpers.graphs import assert_same_schedule, fabric
from helpers.schedules import nodes_of
from hypothesis import given
from hypothesis import strategies as st

from atlas_lp.errors import GoalError
from atlas_lp.goal import CALC, SEND, PortRule, Schedule, event_graph, parse_goal
from atlas_lp.goal.per_node import MOST_CPUS, per_node
from atlas_lp.goal.text import goal_lines
from atlas_lp.signatures.algorithms.expand import expand
from atlas_lp.signatures.algorithms.point_to_point import all_to_all_signature
from atlas_lp.signatures.algorithms.tree import tree_signature
from atlas_lp.signatures.nccl.protocols import Protocol
from atlas_lp.signatures.placement import shared_nics
from atlas_lp.signatures.signature import Signature, ring_signature
from atlas_lp.signatures.topology import assumed_rings, assumed_trees
from atlas_lp.solver.axis import point
from atlas_lp.solver.longest_path import Evaluator

UP_LATENCY, UP_GAP = Fraction(700), Fraction(1)


def signatures() -> list[Signature]:
    nodes = nodes_of(3, 4)
    rings, trees = assumed_rings(nodes, 3), assumed_trees(nodes, 3)
    nics = shared_nics(nodes, 2)
    return [
        ring_signature("AllReduce", Protocol.SIMPLE, 1 << 20, rings, nodes, nccl="2.26"),
        ring_signature("Broadcast", Protocol.LL, 300_000, rings, nodes, nccl="2.20", nic_of_rank=nics),
        tree_signature(Protocol.LL128, 3_000_000, trees, nodes, nccl="2.26", nic_of_rank=nics),
        all_to_all_signature(100_000, nodes, nics, nccl="2.26", channels=4),
    ]


def time(schedule: Schedule, nodes: np.ndarray | None, latency: int, gap: Fraction, rule: PortRule) -> Fraction:
    given_fabric = fabric(latency, gap, 200, 5, up_latency_ns=UP_LATENCY, up_gap_ns_per_byte=UP_GAP)
    graph = event_graph(schedule, nodes, rule)
    return Evaluator(graph, given_fabric.theta()).at(point(Fraction(latency), gap)).time_ns


@pytest.mark.parametrize("number", range(4))
@pytest.mark.parametrize("credits", ["local", "acknowledged"])
@given(st.integers(0, 50_000), st.fractions(0, 1, max_denominator=40), st.sampled_from([PortRule.PORT, PortRule.NONE]))
def test_times_stay(number: int, credits: str, latency: int, gap: Fraction, rule: PortRule) -> None:
    signature = signatures()[number]
    nodes = np.array(signature.nodes)
    schedule = expand(signature, credits=credits)
    merged = per_node(schedule, nodes, UP_LATENCY, UP_GAP)
    assert time(merged, None, latency, gap, rule) == time(schedule, nodes, latency, gap, rule)


def test_ports_cpus_and_messages() -> None:
    signature = signatures()[2]
    nodes = np.array(signature.nodes)
    schedule = expand(signature)
    merged = per_node(schedule, nodes, UP_LATENCY, UP_GAP)
    assert merged.ranks == 3
    assert set(merged.cpu.tolist()) == set(range(4 * 3))
    assert set(merged.nic[merged.kind == SEND].tolist()) == {0, 1}
    out = (schedule.kind == SEND) & (nodes[schedule.rank] != nodes[schedule.peer])
    assert merged.count(SEND) == int(out.sum())
    assert sorted(merged.size[merged.kind == SEND]) == sorted(schedule.size[out])
    assert int(merged.tag.max()) < 2**16
    inside = (schedule.kind == SEND) & ~out
    ns = int(merged.size[merged.kind == CALC].sum()) - int(schedule.size[schedule.kind == CALC].sum())
    assert ns == int((UP_LATENCY + schedule.size[inside] * UP_GAP).sum())


def test_text_reads_back() -> None:
    signature = signatures()[3]
    merged = per_node(expand(signature), np.array(signature.nodes), UP_LATENCY, UP_GAP)
    lines = list(goal_lines(merged))
    assert_same_schedule(parse_goal("".join(lines)), merged)
    labels: set[str] = set()
    for line in lines:  # LogGOPSim wants a label above its uses
        if line.startswith("rank"):
            labels = set()
        elif " requires " in line:
            assert set(line.split()[::2]) <= labels
        elif line.startswith("l"):
            labels.add(line.partition(":")[0])


def test_up_times_round_to_whole_ns() -> None:
    nodes = [0, 0]
    signature = ring_signature("Broadcast", Protocol.SIMPLE, 3, assumed_rings(nodes, 1), nodes, nccl="2.26")
    schedule = expand(signature, "none")
    merged = per_node(schedule, np.array(nodes), Fraction(1, 2), Fraction(1))
    assert sorted(merged.size.tolist()) == [0, 0, 0, 4]


def test_more_cpus_than_the_format_has() -> None:
    nodes = nodes_of(1, 8)
    signature = ring_signature("AllReduce", Protocol.SIMPLE, 1 << 22, assumed_rings(nodes, 32), nodes, nccl="2.20")
    with pytest.raises(GoalError, match=r"needs 256 cpus.*8 bits") as caught:
        per_node(expand(signature), np.array(nodes), UP_LATENCY, UP_GAP)
    assert MOST_CPUS == 255
    assert "one rank per GPU" in str(caught.value)
