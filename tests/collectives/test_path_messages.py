"""Between which ranks, and in which phase, the messages of a path are."""

from collections import Counter
from dataclasses import replace
from fractions import Fraction

import pytest
from helpers.programs import overlapping, straggler
from hypothesis import given
from hypothesis import strategies as st

from atlas_lp.analysis.analyze import analyze
from atlas_lp.analysis.attribution import UNKNOWN
from atlas_lp.collectives import path_messages as hops
from atlas_lp.collectives.path_messages import Passage, find_hops
from atlas_lp.collectives.solver import CollectiveSolver
from atlas_lp.fabrics.fabric import load_fabric
from atlas_lp.goal import PortRule
from atlas_lp.report.words import hop_words
from atlas_lp.signatures.algorithms.point_to_point import all_to_all_signature
from atlas_lp.signatures.algorithms.tree import tree_signature
from atlas_lp.signatures.nccl.protocols import Protocol
from atlas_lp.signatures.signature import ring_signature
from atlas_lp.signatures.topology import assumed_rings, assumed_trees
from atlas_lp.solver.axis import point
from atlas_lp.solver.longest_path import BYTES, MESSAGES
from atlas_lp.traces.reading.read import read_trace

FABRIC = load_fabric()
LATENCY_BOUND = Fraction(10**6), Fraction(1, 1250)
BANDWIDTH_BOUND = Fraction(0), Fraction(4, 5)


def ring(kind="AllReduce", nodes=(0, 1, 2, 3), size=4 << 10):
    return ring_signature(kind, Protocol.LL, size, assumed_rings(list(nodes), 1), list(nodes), nccl="2.28")


def walked(signature, where, fabric=FABRIC):
    """Hops of the plane that is the highest at *where*, by class; and its vector."""
    solved = CollectiveSolver(fabric).solve(signature, by_class=True)
    theta = {**fabric.theta(), "messages": where[0], "bytes": where[1]}
    times = [
        (sum(n * value for n, value in zip(vector, theta.values(), strict=True)), arriving, ending, vector)
        for arriving, ending, vectors in solved.by_class.planes
        for vector in vectors
    ]
    _, arriving, ending, vector = max(times)
    count = solved.by_class.count
    passage = Passage(signature.key(), count, arriving, ending, vector)
    classes = {(passage.key, count): solved.by_class}
    found = find_hops({passage: point(*where)}, {passage.key: signature}, classes, fabric)
    return found[passage], vector


def test_a_ring_reduces_all_the_way_round_and_then_copies():
    """Four nodes of one GPU: six hops, each to the next rank, the first three into a sum."""
    found, vector = walked(ring(), LATENCY_BOUND)
    assert vector[MESSAGES] == 6
    assert Counter(hop.phase for hop in found for _ in range(found[hop][0])) == {"reduce": 3, "copy": 3}
    assert all(hop.target == (hop.source + 1) % 4 for hop in found)


@pytest.mark.parametrize(("kind", "phase"), [("AllGather", "copy"), ("ReduceScatter", "reduce"), ("Broadcast", "copy")])
def test_other_rings_have_one_phase(kind, phase):
    found, vector = walked(ring(kind, size=1 << 10), LATENCY_BOUND)
    assert {hop.phase for hop in found} == {phase}
    assert sum(messages for messages, _ in found.values()) == vector[MESSAGES] == 3


def test_a_tree_reduces_up_and_copies_down():
    nodes = [0, 1, 2, 3]
    trees = assumed_trees(nodes, 1)
    signature = tree_signature(Protocol.LL, 1 << 10, trees, nodes, nccl="2.28")
    found, vector = walked(signature, LATENCY_BOUND)
    phases = Counter(hop.phase for hop in found for _ in range(found[hop][0]))
    assert phases["reduce"] == phases["copy"] == vector[MESSAGES] // 2 > 0
    parents = signature.trees[0].parents
    for hop in found:
        up = parents[hop.source] == hop.target
        assert up != (parents[hop.target] == hop.source)
        assert up == (hop.phase == "reduce")


@given(
    st.sampled_from(["AllReduce", "AllGather", "ReduceScatter", "Broadcast", "Reduce", "AllToAll"]),
    st.sampled_from([(0, 1, 2), (0, 0, 1, 1), (0, 0, 1, 1, 2)]),
    st.sampled_from([1 << 10, 1 << 20]),
    st.sampled_from([LATENCY_BOUND, BANDWIDTH_BOUND, (Fraction(3700), Fraction(1, 25))]),
    st.sampled_from([PortRule.PORT, PortRule.DESTINATION]),
    st.booleans(),
)
def test_hops_add_up_to_the_path(kind, nodes, size, where, rule, ingress):
    """Messages and bytes of all hops are those of the vector, whatever waits for which port."""
    fabric = replace(FABRIC, port_rule=rule, ingress=ingress)
    if kind == "AllToAll":
        signature = all_to_all_signature(size, list(nodes), [0] * len(nodes), nccl="2.28")
    else:
        signature = ring(kind, nodes, size)
    found, vector = walked(signature, where, fabric)
    of_node = dict(enumerate(signature.nodes))
    for component, place in ((MESSAGES, 0), (BYTES, 1)):
        assert sum(amounts[place] for amounts in found.values()) == vector[component]
    assert all(of_node[hop.source] != of_node[hop.target] for hop in found)


def test_schedules_that_are_too_large_are_not_expanded(monkeypatch):
    monkeypatch.setattr(hops, "OPERATIONS", 10)
    passage = Passage(ring().key(), 1, 0, 0, (0,) * 7)
    assert find_hops({passage: (0, 0, 1)}, {passage.key: ring()}, {}, FABRIC) == {}


def test_every_piece_of_a_job_names_ranks_by_their_gpus(tmp_path):
    """Rank 3 is late, so the pair (2, 3) is on the path; the GPUs 2 and 3 carry its messages."""
    straggler(tmp_path, 3_000_000)
    summary = analyze(read_trace([tmp_path]), CollectiveSolver(FABRIC), dependencies="streams").summary
    for name, slope in (("latency", "messages"), ("gap", "bytes")):
        for row in summary["attribution"][name]:
            assert sum(phase[slope] for phase in row["phases"]) == row[slope]
            assert sum(pair[slope] for pair in row["pairs"]) + row["other_pairs"][slope] == row[slope]
            assert (hop_words(row, slope) != "") == (row[slope] > 0)
    # The ring of all four goes 0, 1, 2, 3; only that of the late pair sends back from 3 to 2.
    pairs = {(pair["from_gpu"], pair["to_gpu"]) for pair in summary["attribution"]["latency"][-1]["pairs"]}
    assert (3, 2) in pairs
    assert (1, 0) not in pairs


def test_what_waits_for_a_shared_nic_is_not_looked_into(tmp_path):
    overlapping(tmp_path)
    trace = read_trace([tmp_path])
    summary = analyze(trace, CollectiveSolver(FABRIC), contention=True).summary
    row = summary["attribution"]["gap"][-1]
    assert row["phases"] == [{"key": UNKNOWN, "bytes": row["bytes"]}]
    assert row["pairs"] == []
    assert hop_words(row, "bytes") == "not looked into 100 %"


def test_words_for_hops():
    row = {
        "messages": 10,
        "phases": [{"key": "copy", "messages": 8}, {"key": "reduce", "messages": 2}],
        "pairs": [
            {"from_gpu": 3, "to_gpu": 4, "messages": 6},
            {"from_gpu": 1, "to_gpu": None, "messages": 4},
        ],
    }
    assert hop_words(row, "messages") == "copy 80 %, reduce 20 %; GPU 3 to 4 60 %"
    assert hop_words(row, "messages", 2).endswith("GPU 3 to 4 60 %, GPU 1 to ? 40 %")
    assert hop_words({**row, "messages": 0}, "messages") == ""
