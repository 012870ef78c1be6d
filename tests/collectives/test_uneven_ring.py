"""Bounds of rings whose chunks differ hold the graph of all ranks, whatever slices cost."""

import itertools
from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from atlas_lp.collectives.limits import Limits
from atlas_lp.collectives.signature_graph import UnevenRing, signature_graph
from atlas_lp.collectives.solver import CollectiveSolver
from atlas_lp.fabrics.fabric import Fabric, load_fabric
from atlas_lp.goal import PortRule
from atlas_lp.signatures.algorithms.algorithm import Parameters
from atlas_lp.signatures.algorithms.assumed import assumed_signature
from atlas_lp.signatures.algorithms.expand import operation_count
from atlas_lp.signatures.nccl.protocols import Protocol
from atlas_lp.signatures.signature import Signature
from atlas_lp.solver.axis import point
from atlas_lp.solver.longest_path import Evaluator
from atlas_lp.solver.solve import solve

ALPS = load_fabric()
POINTS = list(itertools.product(map(Fraction, (0, 3700, 10**6)), (Fraction(8, 10**4), Fraction(1, 25), Fraction(4, 5))))


def all_reduce(size: int, nodes: int, per_node: int, share: int = 1, **more: object) -> Signature:
    ranks = nodes * per_node
    placement, nics = [r // per_node for r in range(ranks)], [r % per_node // share for r in range(ranks)]
    parameters = Parameters("AllReduce", size, placement, nic_of_rank=nics, **{"nccl": "2.28", **more})  # type: ignore[arg-type]
    return assumed_signature(parameters)[0]


@settings(max_examples=60)
@given(
    size=st.integers(1, 2000) | st.integers(1000, 200_000) | st.integers(10**5, 4 * 10**6),
    nodes=st.integers(2, 5),
    per_node=st.sampled_from([1, 2, 4]),
    share=st.sampled_from([1, 2]),
    channels=st.integers(1, 5),
    nccl=st.sampled_from(["2.19", "2.20", "2.22", "2.28"]),
    protocol=st.sampled_from(Protocol),
    credits=st.sampled_from(["local", "acknowledged", "none"]),
    ingress=st.booleans(),
    rule=st.sampled_from(PortRule),
    latency=st.sampled_from([0, 3700, 50_000]),
)
def test_bounds_hold_the_graph_of_all_ranks(
    size, nodes, per_node, share, channels, nccl, protocol, credits, ingress, rule, latency
):
    signature = all_reduce(4 * size, nodes, per_node, share, channels=channels, nccl=nccl, protocol=protocol)
    assume(operation_count(signature) < 100_000)
    f = replace(ALPS, credits=credits, ingress=ingress, port_rule=rule, latency_ns=Fraction(latency))
    uneven = UnevenRing.of(signature, f)
    assume(uneven is not None)
    held_by_bounds(uneven, f)


def held_by_bounds(uneven: UnevenRing, f: Fabric) -> None:
    whole = uneven.in_order(signature_graph(uneven.signature, f, use_symmetry=False), f)
    graphs = uneven.in_order(uneven.below, f), whole, uneven.above
    below, all_ranks, above = (Evaluator(found.in_order(), f.theta()) for found in graphs)
    least = solve(uneven.in_order(uneven.below, f).in_order(), f)
    for where in POINTS:
        low, time, high = (each.at(point(*where)).time_ns for each in (below, all_ranks, above))
        assert low <= uneven.least_ns(least, where, f) <= time <= high


def test_costs_that_fall_with_bytes():
    """On GH200 a copy of 4,096 bytes and more takes less than one of 4,095: the largest chunk is not the worst one."""
    signature = all_reduce(18_870_760, 8, 4, channels=8)
    held_by_bounds(UnevenRing.of(signature, ALPS), ALPS)


@pytest.mark.parametrize("size", [400, 18_870_760, 33 * 2**20 + 3996])
def test_a_bracket_says_how_wide_it_is(size):
    signature = all_reduce(size, 8, 2, channels=2)
    exact = CollectiveSolver(ALPS).solve(signature)
    bracket = CollectiveSolver(ALPS, limits=Limits(full_operations=0)).solve(signature)
    assert (exact.method, bracket.method) == ("full", "bracket")
    for latency, gap in POINTS:
        time, high = exact.time_ns(latency, gap), bracket.time_ns(latency, gap)
        assert high * (1 - Fraction(bracket.bracket_width + 1e-12)) <= time <= high
    assert bracket.bracket_width < 0.05


def test_empty_chunks_leave_the_journey_of_a_full_one():
    """Two of sixteen chunks hold all: no loop has all of its slices, and the bracket is narrow all the same."""
    signature = all_reduce(32, 8, 2)
    bracket = CollectiveSolver(ALPS, limits=Limits(full_operations=0)).solve(signature)
    assert bracket.method == "bracket"
    assert bracket.bracket_width < 0.01


def test_rings_of_unlike_ranks_have_no_bounds():
    chain = assumed_signature(Parameters("Broadcast", 1001, [0, 0, 1, 1], nccl="2.28"))[0]
    unlike = assumed_signature(Parameters("AllReduce", 4 * 1001, [0, 0, 1], nccl="2.28"))[0]
    assert UnevenRing.of(chain, ALPS) is None
    assert UnevenRing.of(unlike, ALPS) is None
    assert CollectiveSolver(ALPS, limits=Limits(full_operations=0)).solve(unlike).method == "full"
