"""Loops that are left out change nothing; what would not fit is refused before it is built."""

import re
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from atlas_lp.collectives.limits import Limits
from atlas_lp.collectives.signature_graph import signature_graph
from atlas_lp.collectives.solver import CollectiveSolver
from atlas_lp.errors import UnsupportedError
from atlas_lp.fabrics.fabric import Fabric, load_fabric
from atlas_lp.signatures.algorithms.algorithm import Parameters
from atlas_lp.signatures.algorithms.assumed import assumed_signature
from atlas_lp.signatures.algorithms.table import ALGORITHMS, algorithm_of
from atlas_lp.signatures.nccl.protocols import Protocol
from atlas_lp.signatures.signature import Signature
from atlas_lp.solver.folding import NotPeriodic, fold_at
from atlas_lp.solver.longest_path import Evaluator

ALPS = load_fabric()
EXPANDED = Limits(loop_operations=10**12)
LEFT_OUT = Limits(loop_operations=0)


def signature(name: str, algorithm: str, size: int, ranks: int, per_node: int = 1, **more: object) -> Signature:
    nodes = [rank // per_node for rank in range(ranks)]
    return assumed_signature(Parameters(name, size, nodes, algorithm=algorithm, **{"nccl": "2.28", **more}))[0]  # type: ignore[arg-type]


def left_out(monkeypatch: pytest.MonkeyPatch, of: Signature, f: Fabric) -> tuple[int, object]:
    """How many loops were left out when *of* was solved, and its envelope with classes."""
    tried = []
    solved = CollectiveSolver._solved
    monkeypatch.setattr(
        CollectiveSolver, "_solved", lambda self, s, out, *a, **k: tried.append(out) or solved(self, s, out, *a, **k)
    )
    envelope = CollectiveSolver(f, limits=LEFT_OUT).solve(of, by_class=True)
    return tried[-1].loops * tried[-1].steps, envelope


CASES = [
    ("AllReduce", "ring", 640 << 20, 4, 1, {}),
    ("AllReduce", "ring", (1280 << 20) + 49_380, 4, 2, {"channels": 2}),
    ("AllGather", "ring", 512 << 20, 4, 2, {"channels": 2}),
    ("ReduceScatter", "ring", 256 << 20, 6, 2, {"channels": 2}),
    ("AllReduce", "ring", 64 << 20, 4, 1, {"protocol": Protocol.LL}),
    ("AllGather", "pat", 512 << 20, 4, 1, {"channels": 2}),
    ("ReduceScatter", "pat", 256 << 20, 5, 1, {}),
]


@pytest.mark.parametrize(("name", "algorithm", "size", "ranks", "per_node", "more"), CASES)
def test_planes_classes_and_loads_are_those_of_all_loops(monkeypatch, name, algorithm, size, ranks, per_node, more):
    of = signature(name, algorithm, size, ranks, per_node, **more)
    whole = CollectiveSolver(ALPS, limits=EXPANDED).solve(of, by_class=True)
    loops, envelope = left_out(monkeypatch, of, ALPS)
    assert loops > 0
    assert sorted(envelope.planes()) == sorted(whole.planes())
    assert (envelope.classes, envelope.sent, envelope.method) == (whole.classes, whole.sent, whole.method)
    assert envelope.certificate.status.startswith("skipped: ")


@settings(max_examples=8)
@given(
    name=st.sampled_from(["AllReduce", "AllGather", "ReduceScatter"]),
    loops=st.integers(30, 120),
    rest=st.integers(0, 250_000),
    nodes=st.integers(2, 4),
    per_node=st.sampled_from([1, 2]),
    channels=st.integers(1, 3),
    credits=st.sampled_from(["local", "acknowledged", "none"]),
)
def test_any_ring(name, loops, rest, nodes, per_node, channels, credits):
    ranks = nodes * per_node
    loop = (2 << 20) * (ranks if name == "AllReduce" else 1)
    of = signature(name, "ring", (loops * loop + 4 * rest) * channels, ranks, per_node, channels=channels)
    f = replace(ALPS, credits=credits)
    whole, short = (CollectiveSolver(f, limits=limits).solve(of) for limits in (EXPANDED, LEFT_OUT))
    assume(short.certificate.status != "optimal")
    assert sorted(short.planes()) == sorted(whole.planes())


@pytest.mark.parametrize(
    ("name", "algorithm", "size", "ranks"),
    [("AllReduce", "ring", 1 << 40, 4), ("AllGather", "ring", 1 << 40, 8), ("ReduceScatter", "pat", 1 << 40, 8)],
)
def test_a_tebibyte_is_solved_by_some_loops(name, algorithm, size, ranks):
    envelope = CollectiveSolver(ALPS).solve(signature(name, algorithm, size, ranks))
    sent = sum(
        count
        for _, count, _ in CollectiveSolver(ALPS).solve(signature(name, algorithm, size, ranks), by_class=True).sent
    )
    assert sent > 10**6
    steps = {"AllReduce": 2 * (ranks - 1) / ranks, "AllGather": ranks - 1, "ReduceScatter": ranks - 1}[name]
    least = steps * size * ALPS.gap_ns_per_byte
    assert 1 < float(envelope.time_ns(*ALPS.native)) / float(least) < 4


def test_loops_are_counted_without_listing_them():
    for name, row in ALGORITHMS.items():
        if "AllReduce" in row.collectives and name not in ("nvls", "collnet_direct"):
            small, large = (signature("AllReduce", name, size, 8, 2, channels=2) for size in (1 << 30, 1 << 50))
            counts = [algorithm_of(s).operations(s) for s in (small, large)]
            assert 2**18 < counts[1] / counts[0] < 2**22


def test_loops_that_are_not_alike_are_refused():
    """One vertex that takes longer each time is enough."""
    chain = signature("Broadcast", "ring", 64 << 20, 4)
    found = signature_graph(chain, ALPS)
    graph = found.in_order()
    time = Evaluator(graph, ALPS.theta()).exact_times((3700 * 25, 1, 25))
    assert fold_at(graph, found.schedule, 1, 5, time).missing == 5
    with pytest.raises(NotPeriodic):
        fold_at(graph, found.schedule, 1, 5, time + np.arange(len(time)) ** 2)
    with pytest.raises(NotPeriodic, match="no loop takes time"):
        fold_at(graph, found.schedule, 1, 5, np.zeros_like(time))
    assert algorithm_of(chain).loops(chain) is None


@pytest.mark.parametrize(
    ("name", "algorithm", "size", "ranks", "words"),
    [
        ("AllReduce", "tree", 10**15, 8, "AllReduce of 909.5 TiB on 8 ranks expands to 8.2e+10 operations"),
        ("AllToAll", "p2p", 1 << 42, 4, "AllToAll of 4 TiB on 4 ranks expands to 5.37e+08 operations"),
        ("Broadcast", "ring", 1 << 42, 64, "Broadcast of 4 TiB on 64 ranks expands to 1.59e+09 operations"),
    ],
)
def test_what_would_not_fit_is_refused_before_it_is_built(name, algorithm, size, ranks, words):
    solver = CollectiveSolver(ALPS, limits=Limits(memory_bytes=8 << 30))
    with pytest.raises(UnsupportedError, match=re.escape(words)) as caught:
        solver.solve(signature(name, algorithm, size, ranks))
    assert "8 GiB may be used" in str(caught.value)
    assert "--memory" in str(caught.value)


def test_memory_decides_no_result():
    small = signature("AllReduce", "ring", 4, 2)
    keys = [CollectiveSolver(ALPS, limits=Limits(memory_bytes=most)).key(small) for most in (None, 1, 1 << 40)]
    assert len(set(keys)) == 1
