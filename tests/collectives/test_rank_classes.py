"""Classes of ranks: planes between them against brute force, and a program by ranks against every message."""

from fractions import Fraction

import networkx as nx
import numpy as np
import pytest
from helpers.graphs import fabric, graphs, in_edges, path_time
from helpers.programs import EVERY_RANK, random_collectives
from hypothesis import given
from hypothesis import strategies as st
from oracles.paths import paths_between

from atlas_lp.collectives import solver as collective
from atlas_lp.collectives.limits import Limits
from atlas_lp.collectives.rank_classes import choose_classes, planes_between
from atlas_lp.collectives.signature_graph import signature_graph
from atlas_lp.collectives.solver import CollectiveSolver
from atlas_lp.fabrics.fabric import load_fabric
from atlas_lp.goal import event_graph
from atlas_lp.program.job import solve_job
from atlas_lp.signatures.algorithms.point_to_point import point_to_point_signature
from atlas_lp.signatures.nccl.protocols import Protocol
from atlas_lp.signatures.signature import ring_signature
from atlas_lp.signatures.topology import assumed_rings
from atlas_lp.solver.axis import point
from atlas_lp.solver.envelope import Box, RankClasses
from atlas_lp.solver.longest_path import Evaluator, PathVector
from atlas_lp.traces.reading.read import read_trace
from atlas_lp.validation.validate import default_points

FABRIC = load_fabric()
POINTS = [(Fraction(0), Fraction(4, 5)), (Fraction(10**6), Fraction(1, 1250)), (Fraction(77_777), Fraction(1, 25))]


def broadcast(size=1 << 20, nodes=(0, 0, 1, 1), kind="Broadcast"):
    return ring_signature(kind, Protocol.SIMPLE, size, assumed_rings(list(nodes), 1), list(nodes), nccl="2.28")


@given(graph=graphs(vertices=6), data=st.data())
def test_planes_are_the_longest_paths_from_one_class_to_another(graph, data):
    classes = np.array([-1, *data.draw(st.lists(st.integers(-1, 2), min_size=5, max_size=5))])[: graph.vertices]
    theta = fabric(1000, 2, o=100, g=10).theta()
    found = {
        (a, e): vectors for a, e, vectors in planes_between(graph, classes, 3, Evaluator(graph, theta), Box().corners())
    }
    wanted: dict[tuple[int, int], list[PathVector]] = {}
    for first, last, vector in paths_between(in_edges(graph)):
        wanted.setdefault((int(classes[first]), int(classes[last])), []).append(vector)
    wanted = {pair: vectors for pair, vectors in wanted.items() if min(pair) >= 0}
    alone = {(c, c) for c in range(3)} - {(a, a) for a, _ in wanted}
    assert set(found) - alone == set(wanted)
    for latency, gap in POINTS:
        at = {**theta, "messages": latency, "bytes": gap}
        for pair, vectors in wanted.items():
            assert max(path_time(v, at) for v in found[pair]) == max(path_time(v, at) for v in vectors)


@given(graph=graphs(vertices=7), data=st.data())
def test_what_lies_between_is_on_some_path(graph, data):
    flags = st.lists(st.booleans(), min_size=graph.vertices, max_size=graph.vertices)
    first, last = (np.array(data.draw(flags)) for _ in range(2))
    edges = nx.DiGraph()
    edges.add_nodes_from(range(graph.vertices))
    target = np.repeat(np.arange(graph.vertices), np.diff(graph.in_start))
    edges.add_edges_from((s, t) for s, t in zip(graph.source.tolist(), target.tolist(), strict=True) if s or first[t])
    reached = nx.descendants(edges, 0)
    ends = {v for v in reached if last[v]}
    kept = {v for v in reached if v in ends or nx.descendants(edges, v) & ends}
    part = graph.between(first, last)
    if not kept:
        assert part is None
    else:
        assert set(np.flatnonzero(part.vertex >= 0).tolist()) == kept | {0}
        own = part.source.tolist(), np.repeat(np.arange(part.vertices), np.diff(part.in_start)).tolist()
        names = np.flatnonzero(part.vertex >= 0)
        assert {(names[s], names[t]) for s, t in zip(*own, strict=True)} == set(edges.subgraph(kept | {0}).edges)


def test_the_end_of_the_whole_is_that_of_the_last_class():
    found = CollectiveSolver(FABRIC).solve(broadcast(), by_class=True)
    whole, classes = found, found.classes
    assert classes.count == 4
    assert classes.of_rank == (0, 1, 2, 3)
    assert classes.width == 0
    theta = FABRIC.theta()
    for latency, gap in POINTS:
        at = {**theta, "messages": latency, "bytes": gap}
        assert max(path_time(v, at) for _, _, own in classes.planes for v in own) == whole.time_ns(latency, gap)


def test_in_a_broadcast_the_root_ends_first_and_waits_for_nobody():
    classes = CollectiveSolver(FABRIC).solve(broadcast(), by_class=True).classes
    pairs = {(arriving, ending) for arriving, ending, _ in classes.planes}
    assert pairs == {(a, e) for a in range(4) for e in range(a, 4)}
    at = {**FABRIC.theta(), "messages": Fraction(10_000), "bytes": Fraction(1, 25)}
    ends = [
        max(path_time(v, at) for a, e, own in classes.planes if (a, e) == (0, end) for v in own) for end in range(4)
    ]
    assert ends == sorted(ends)
    assert len(set(ends)) == 4


def test_a_rank_without_messages_ends_when_it_arrives():
    """Only the first two of four ranks exchange something in this AllToAllv: nobody waits for the others."""
    nodes = [0, 1, 2, 3]
    messages = [(0, 1, 1 << 20), *((r, r, 0) for r in range(4))]
    signature = point_to_point_signature(messages, nodes, [0] * 4, nccl="2.28")
    classes = CollectiveSolver(FABRIC).solve(signature, by_class=True).by_class
    assert classes.of_rank == (0, 1, 2, 2)
    assert {(arriving, ending) for arriving, ending, _ in classes.planes} == {(0, 0), (0, 1), (1, 1), (2, 2)}


def test_ranks_that_start_and_end_alike_share_a_class():
    """Eight nodes of one GPU: every rank of an AllReduce does the same."""
    nodes = list(range(8))
    signature = ring_signature("AllReduce", Protocol.SIMPLE, 8 << 20, assumed_rings(nodes, 2), nodes, nccl="2.28")
    for use_symmetry in (True, False):
        found = CollectiveSolver(FABRIC, use_symmetry=use_symmetry).solve(signature, by_class=True)
        assert found.classes is None
        assert found.by_class == RankClasses.alike(found.vectors)


@pytest.mark.parametrize("limit", ["classes", "class_edges", "class_planes"])
def test_large_collectives_get_fewer_classes_and_say_how_wide_they_are(limit):
    found = signature_graph(broadcast(nodes=[r // 2 for r in range(16)]), FABRIC)
    graph, theta = found.in_order(), [FABRIC.theta()]
    ranks = found.rank_of_vertex(graph)
    every, width = choose_classes(graph, ranks, 16, theta, 4, Limits())
    assert len(set(every.tolist())) == 16
    assert width == 0
    tight = {"classes": 5, "class_edges": 22 * graph.edges, "class_planes": 100}
    limits = Limits(**{limit: tight[limit]})
    few, width = choose_classes(graph, ranks, 16, theta, 4, limits)
    assert len(set(few.tolist())) == 5
    assert 0 < width < 1
    assert few[0] == 0
    assert np.all(np.diff([few.tolist().index(c) for c in range(5)]) > 0)


def by_rank(monkeypatch):
    """Let every rank be a class of its own."""

    def each(graph, rank_of_vertex, ranks, *_):
        return np.arange(ranks), 0.0

    monkeypatch.setattr(collective, "choose_classes", each)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_a_program_by_ranks_is_every_message_of_the_trace(tmp_path, monkeypatch, seed):
    """With a class per rank nothing is lost: T of the program is T of the graph of all messages, as a fraction."""
    by_rank(monkeypatch)
    kinds = (*EVERY_RANK, "Broadcast", "Reduce")
    random_collectives(tmp_path, seed, kinds, uneven=True, nodes=3, gpus_per_node=2, count=6, channels=1)
    trace = read_trace([tmp_path])
    job = solve_job(trace, CollectiveSolver(FABRIC, use_symmetry=False), dependencies="streams")
    whole = event_graph(job.message_graph(), trace.column("gpus", "node"), FABRIC.port_rule)
    evaluator = Evaluator(whole, FABRIC.theta())
    for where in default_points(FABRIC):
        assert job.at(point(*where)).time_ns == evaluator.at(point(*where)).time_ns


def test_a_missing_rank_is_taken_to_arrive_with_the_others(tmp_path):
    """Without the root's file nothing is known of its arrival: all start and end together, with the whole time."""
    random_collectives(tmp_path, 0, ("Broadcast",), uneven=True, nodes=3, gpus_per_node=1, count=1, channels=1)
    (tmp_path / "node0.sqlite").unlink()
    trace = read_trace([tmp_path], allow_missing=True)
    job = solve_job(trace, CollectiveSolver(FABRIC), dependencies="streams")
    (envelope,) = job.envelopes.values()
    assert envelope.by_class.count == 3
    assert [collective.count for collective in job.collectives] == [1]
    last = int((trace.column("operations", "start_ns") - trace.column("gpus", "first_ns")).max())
    for where in default_points(FABRIC):
        assert job.at(point(*where)).time_ns == last + envelope.time_ns(*where)
