"""Quotient by symmetry equals full expansion; brackets hold it; the classes are as few as they should be."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from atlas_lp.collectives.limits import Limits
from atlas_lp.collectives.signature_graph import UnevenRing, signature_graph
from atlas_lp.collectives.solver import CollectiveSolver
from atlas_lp.fabrics.fabric import Fabric, load_fabric
from atlas_lp.goal import PortRule
from atlas_lp.signatures.algorithms.pat import pat_signature
from atlas_lp.signatures.algorithms.point_to_point import all_to_all_signature
from atlas_lp.signatures.algorithms.symmetry import find_symmetry
from atlas_lp.signatures.nccl.protocols import Protocol
from atlas_lp.signatures.signature import ring_signature
from atlas_lp.signatures.topology import assumed_rings
from atlas_lp.solver.axis import point
from atlas_lp.solver.longest_path import Evaluator
from atlas_lp.solver.solve import solve

FABRIC = load_fabric()
POINTS = [
    point(Fraction(latency), Fraction(gap))
    for latency, gap in ((0, Fraction(8, 10**4)), (3700, Fraction(1, 25)), (10**6, Fraction(4, 5)), (77777, 0))
]


def build(collective_name, protocol, size, nodes, channels, *, nccl="2.28", nics=None):
    return ring_signature(
        collective_name, protocol, size, assumed_rings(nodes, channels), nodes, nccl=nccl, nic_of_rank=nics
    )


def graphs(signature, fabric):
    small = signature_graph(signature, fabric)
    full = signature_graph(signature, fabric, use_symmetry=False)
    assert small.method == "quotient"
    return small.in_order(), full.in_order()


@given(
    collective_name=st.sampled_from(["AllReduce", "AllGather", "ReduceScatter"]),
    protocol=st.sampled_from(list(Protocol)),
    nodes=st.integers(2, 8),
    gpus=st.sampled_from([1, 2, 4, 8]),
    channels=st.integers(1, 8),
    chunks=st.integers(1, 40),
    share=st.sampled_from([1, 2, 4]),
    rule=st.sampled_from(list(PortRule)),
    credits=st.sampled_from(["local", "acknowledged", "none"]),
)
def test_quotient_equals_full_expansion(collective_name, protocol, nodes, gpus, channels, chunks, share, rule, credits):
    ranks = nodes * gpus
    placement = [r // gpus for r in range(ranks)]
    nics = [r % gpus // share for r in range(ranks)]
    signature = build(collective_name, protocol, 4096 * ranks * chunks, placement, channels, nics=nics)
    assume(find_symmetry(signature) is not None)
    fabric = Fabric(**{**FABRIC.__dict__, "port_rule": rule, "credits": credits})
    small, full = (Evaluator(g, fabric.theta()) for g in graphs(signature, fabric))
    for where in POINTS:
        assert small.at(where).time_ns == full.at(where).time_ns


def test_sixty_four_ranks_have_one_class_per_gpu_of_a_node():
    placement = [r // 4 for r in range(64)]
    signature = build("AllReduce", Protocol.SIMPLE, 128 << 20, placement, 8)
    symmetry = find_symmetry(signature)
    assert symmetry.classes == 4
    assert np.bincount(symmetry.class_of_rank).tolist() == [16] * 4
    small, full = graphs(signature, FABRIC)
    assert (full.vertices - 1) == 16 * (small.vertices - 1)
    assert sorted(CollectiveSolver(FABRIC).solve(signature).planes()) == sorted(
        CollectiveSolver(FABRIC, use_symmetry=False).solve(signature).planes()
    )


def test_one_gpu_per_node_is_one_class_that_sends_to_itself():
    signature = build("AllGather", Protocol.LL, 1 << 16, list(range(8)), 2)
    assert find_symmetry(signature).classes == 1
    small, full = (Evaluator(g, FABRIC.theta()) for g in graphs(signature, FABRIC))
    assert all(small.at(where).time_ns == full.at(where).time_ns for where in POINTS)
    assert small.at(POINTS[1]).vector[1] > 0


@pytest.mark.parametrize("nodes", [[0, 0, 0, 1, 1], [0, 0, 1, 1, 1, 1]])
def test_unlike_nodes_have_no_symmetry(nodes):
    assert find_symmetry(build("AllGather", Protocol.SIMPLE, 1 << 20, nodes, 1)) is None


@pytest.mark.parametrize("nccl", ["2.20", "2.22", "2.28.3", "2.28.9", "2.29"])
@pytest.mark.parametrize(("nodes", "gpus", "share"), [(4, 1, 1), (3, 2, 1), (2, 4, 1), (2, 4, 2), (5, 3, 1), (1, 8, 1)])
@pytest.mark.parametrize("rule", list(PortRule))
def test_all_to_all_needs_one_rank_per_gpu_of_a_node(nodes, gpus, share, nccl, rule):
    placement = [r // gpus for r in range(nodes * gpus)]
    nics = [r % gpus // share for r in range(nodes * gpus)]
    signature = all_to_all_signature(300_000, placement, nics, nccl=nccl, channels=8)
    symmetry = find_symmetry(signature)
    assert symmetry is not None
    assert symmetry.classes <= gpus
    fabric = Fabric(**{**FABRIC.__dict__, "port_rule": rule})
    small, full = (Evaluator(g, fabric.theta()) for g in graphs(signature, fabric))
    assert all(small.at(where).time_ns == full.at(where).time_ns for where in POINTS)


@pytest.mark.parametrize("ranks", [2, 3, 7, 8, 16, 21])
@pytest.mark.parametrize("name", ["AllGather", "ReduceScatter"])
@pytest.mark.parametrize("rule", list(PortRule))
def test_pat_is_one_class(ranks, name, rule):
    signature = pat_signature(name, 70_000, list(range(ranks)), channels=2, nccl="2.28")
    symmetry = find_symmetry(signature)
    assert symmetry.classes == 1
    fabric = Fabric(**{**FABRIC.__dict__, "port_rule": rule})
    small, full = (Evaluator(g, fabric.theta()) for g in graphs(signature, fabric))
    assert all(small.at(where).time_ns == full.at(where).time_ns for where in POINTS)


@pytest.mark.parametrize("name", ["Broadcast", "Reduce"])
def test_chains_have_no_symmetry(name):
    assert find_symmetry(build(name, Protocol.SIMPLE, 1 << 20, [0, 0, 1, 1], 1)) is None


def test_unequal_chunks_have_no_symmetry_but_a_bracket():
    placement = [r // 4 for r in range(16)]
    signature = build("AllReduce", Protocol.SIMPLE, 33 * 1024 * 1024 + 4 * 999, placement, 1)
    assert find_symmetry(signature) is None
    exact = CollectiveSolver(FABRIC).solve(signature)
    assert (exact.method, exact.bracket_width) == ("full", 0.0)
    tight = CollectiveSolver(FABRIC, limits=Limits(full_operations=0))
    upper, below = tight.solve(signature), UnevenRing.of(signature, FABRIC)
    lower = solve(below.in_order(below.below, FABRIC).in_order(), FABRIC)
    assert upper.method == "bracket"
    assert 0 < upper.bracket_width < 0.01
    for latency, gap in ((0, Fraction(1, 1000)), (3700, Fraction(1, 25)), (10**6, Fraction(4, 5))):
        where = Fraction(latency), Fraction(gap)
        assert lower.time_ns(*where) <= exact.time_ns(*where) <= upper.time_ns(*where)


def test_cost_does_not_grow_with_nodes_beyond_the_ring():
    """Vertices of the quotient grow with the length of the ring, not with ranks times length."""
    sizes = []
    for nodes in (16, 64, 256):
        ranks = 4 * nodes
        signature = build("AllGather", Protocol.SIMPLE, 1 << 20, [r // 4 for r in range(ranks)], 1)
        sizes.append(signature_graph(signature, FABRIC).in_order().vertices / ranks)
    assert max(sizes) / min(sizes) < 1.05
