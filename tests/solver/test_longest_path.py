"""Exact longest paths against every path there is, with numbers small and huge."""

import random
from fractions import Fraction

import networkx as nx
import numpy as np
import pytest
from helpers.graphs import ZERO, all_paths, brute_force, fabric, graph_of, graphs, path_time, random_graph
from hypothesis import given
from hypothesis import strategies as st

from atlas_lp.errors import UnsupportedError
from atlas_lp.fabrics.fabric import Fabric
from atlas_lp.goal import COMPONENTS, EventGraph
from atlas_lp.solver.axis import point, reduced
from atlas_lp.solver.longest_path import Evaluator, Longest

numbers = st.integers(0, 5) | st.fractions(0, 1000, max_denominator=1000)


@st.composite
def fabrics(draw: st.DrawFn, values: st.SearchStrategy[Fraction] = numbers) -> Fabric:
    up = {"up_latency_ns": draw(values), "up_gap_ns_per_byte": draw(values)}
    return fabric(draw(values), draw(values), o=draw(values), g=draw(values), **up)


def evaluate(graph: EventGraph, chosen: Fabric) -> Longest:
    return Evaluator(graph, chosen.theta()).at(point(chosen.latency_ns, chosen.gap_ns_per_byte))


def check(graph: EventGraph, chosen: Fabric) -> None:
    """The time is that of the best path, the vector is that of the tree, and the tree is tight everywhere."""
    found, theta = evaluate(graph, chosen), chosen.theta()
    assert found.time_ns == brute_force(graph, theta) == path_time(found.vector, theta)
    time = [Fraction(0)]
    for v in range(1, graph.vertices):
        edges = range(graph.in_start[v], graph.in_start[v + 1])
        arrivals = {
            e: time[graph.source[e]] + path_time(tuple(graph.costs[graph.cost[e]].tolist()), theta) for e in edges
        }
        time.append(max(arrivals.values()))
        assert arrivals[int(found.tight[v])] == time[v]
    assert found.tight[0] == -1
    assert time[found.end] == max(time) == found.time_ns
    vector, v = ZERO, found.end
    while v:
        edge = int(found.tight[v])
        vector = tuple(a + b for a, b in zip(vector, graph.costs[graph.cost[edge]].tolist(), strict=True))
        v = int(graph.source[edge])
    assert found.vector == vector


@given(graphs(), fabrics())
def test_small_numbers(graph: EventGraph, chosen: Fabric) -> None:
    check(graph, chosen)


exact = st.fractions(0, 10**6, max_denominator=10**9)


@given(graphs(vertices=6, largest=1 << 40), exact, exact)
def test_numbers_that_need_two_limbs(graph: EventGraph, latency: Fraction, gap: Fraction) -> None:
    check(graph, fabric(latency, gap, o=3, g=Fraction(1, 7), up_latency_ns=9, up_gap_ns_per_byte=Fraction(3, 10)))


@given(graphs(vertices=5, largest=1 << 59), st.fractions(0, 1000, max_denominator=9), numbers)
def test_costs_near_the_limit(graph: EventGraph, latency: Fraction, gap: Fraction) -> None:
    check(graph, fabric(latency, gap, o=1, g=1, up_latency_ns=1, up_gap_ns_per_byte=1))


@given(graphs(), fabrics(st.integers(0, 5)), numbers, st.sampled_from([2, 3**20, 1 << 50, 10**25]))
def test_both_kernels_agree(graph: EventGraph, chosen: Fabric, latency: Fraction, factor: int) -> None:
    chosen = chosen.at(latency_ns=Fraction(latency))
    evaluator = Evaluator(graph, chosen.theta())
    x, y, w = point(chosen.latency_ns, chosen.gap_ns_per_byte)
    plain, scaled = evaluator.at((x, y, w)), evaluator.at((x * factor, y * factor, w * factor))
    assert (plain.time_ns, plain.vector, plain.end) == (scaled.time_ns, scaled.vector, scaled.end)
    assert plain.tight.tolist() == scaled.tight.tolist()
    assert evaluator.evaluations == 2


@pytest.mark.parametrize("seed", range(8))
def test_networkx_agrees(seed: int) -> None:
    graph = random_graph(seed, 200)
    chosen = fabric(7, 3, o=2, g=5, up_latency_ns=1, up_gap_ns_per_byte=4)
    theta = [int(value) for value in chosen.theta().values()]
    dag = nx.DiGraph()
    for v in range(graph.vertices):
        for e in range(graph.in_start[v], graph.in_start[v + 1]):
            weight = int(graph.costs[graph.cost[e]] @ np.array(theta))
            known = dag.get_edge_data(int(graph.source[e]), v, {"weight": -1})["weight"]
            dag.add_edge(int(graph.source[e]), v, weight=max(weight, known))
    assert evaluate(graph, chosen).time_ns == nx.dag_longest_path_length(dag, "weight")


@given(graphs(), fabrics())
def test_the_plane_of_a_vector_is_its_scaled_time(graph: EventGraph, chosen: Fabric) -> None:
    evaluator = Evaluator(graph, chosen.theta())
    for vector in set(all_paths(graph)):
        c, m, b = evaluator.plane(vector)
        scaled = c + m * chosen.latency_ns + b * chosen.gap_ns_per_byte
        assert scaled == evaluator.scale * path_time(vector, chosen.theta())


def test_theta_ignores_its_own_latency_and_gap() -> None:
    graph = random_graph(1, 20)
    one, other = fabric(1, 2).theta(), fabric(3, 4).theta()
    assert Evaluator(graph, one).at((5, 6, 7)).time_ns == Evaluator(graph, other).at((5, 6, 7)).time_ns


def test_parallel_edges_count_each_for_itself() -> None:
    graph = graph_of(2, [(0, 1, (5, 1, 0, 0, 0, 0, 0)), (0, 1, (9, 0, 0, 0, 0, 0, 0))])
    assert evaluate(graph, fabric(3)).vector == (9, 0, 0, 0, 0, 0, 0)
    assert evaluate(graph, fabric(4)).time_ns == 9
    assert evaluate(graph, fabric(5)).vector == (5, 1, 0, 0, 0, 0, 0)


def test_a_graph_that_costs_nothing() -> None:
    found = evaluate(graph_of(3, [(0, 1, ZERO), (1, 2, ZERO)]), fabric(10**9, 10**9))
    assert (found.time_ns, found.vector) == (0, ZERO)


def test_a_sum_beyond_64_bits_is_exact() -> None:
    step = ((1 << 61) + 1, 0, 0, 0, 0, 0, 0)
    graph = graph_of(9, [(v, v + 1, step) for v in range(8)])
    assert evaluate(graph, fabric()).time_ns == 8 * ((1 << 61) + 1)
    bytes_ = graph_of(9, [(v, v + 1, (0, 0, (1 << 62) + 3, 0, 0, 0, 0)) for v in range(8)])
    assert evaluate(bytes_, fabric(0, Fraction(1, 3))).vector[COMPONENTS.index("bytes")] == 8 * ((1 << 62) + 3)


@pytest.mark.parametrize("factor", [1, 10**25])
@given(graph=graphs(largest=1))
def test_the_end_is_a_vertex_without_successors(graph: EventGraph, factor: int) -> None:
    # The solver's rows bind T to such vertices only; calcs of 0 may follow the first vertex at the latest time.
    end = Evaluator(graph, fabric(o=1).theta()).at((factor, factor, factor)).end
    assert end not in graph.source.tolist()


def test_what_exact_arithmetic_cannot_hold_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="too large for exact arithmetic"):
        Evaluator(graph_of(2, [(0, 1, (1 << 62, 0, 0, 0, 0, 0, 0))]), fabric().theta())
    graph = graph_of(2, [(0, 1, (1, 1, 1, 0, 0, 0, 0))])
    evaluator = Evaluator(graph, fabric().theta())
    assert evaluator.at((1 << 100, 0, 1)).time_ns == (1 << 100) + 1
    with pytest.raises(UnsupportedError, match="more than 116 bits"):
        evaluator.at((1 << 116, 0, 1))


@given(st.fractions(0, max_denominator=10**6), st.fractions(0, max_denominator=10**6))
def test_points_are_in_lowest_terms(latency: Fraction, gap: Fraction) -> None:
    x, y, w = point(latency, gap)
    assert (Fraction(x, w), Fraction(y, w)) == (latency, gap)
    assert reduced(6 * x, 6 * y, 6 * w) == reduced(x, y, w) == (x, y, w)


def test_random_points_of_a_larger_graph() -> None:
    rng = random.Random(3)
    graph = random_graph(3, 14)
    for _ in range(20):
        check(graph, fabric(Fraction(rng.randint(0, 999), 7), Fraction(rng.randint(0, 99), 11), o=1))
