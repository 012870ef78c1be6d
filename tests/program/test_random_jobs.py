"""Random small jobs: several communicators and streams, uneven ranks; the program against every message, and itself."""

import random
from dataclasses import replace

import pytest
from helpers.jobs import COMMUNICATOR, SIMPLE, processes, write
from helpers.programs import random_collectives

from atlas_lp.analysis.analyze import analyze
from atlas_lp.cache import Store
from atlas_lp.collectives.solver import CollectiveSolver
from atlas_lp.fabrics.fabric import load_fabric
from atlas_lp.program import arrival_skew as uneven
from atlas_lp.program.job import solve_job
from atlas_lp.traces.reading.read import read_trace
from atlas_lp.validation.validate import validate

FABRIC = load_fabric()
KINDS = ("AllReduce", "AllGather", "ReduceScatter", "Broadcast", "Reduce")


def random_job(folder, seed, *, overlap):
    """Up to 8 GPUs in up to three groups that share ranks; with *overlap* each group has a stream of its own.

    Every GPU is late by a random time before each collective, up to about as long as that takes.
    """
    draw = random.Random(seed)
    exports, ranks = processes(draw.randint(2, 4), draw.randint(1, 2))
    groups = [list(range(len(ranks)))]
    for number in range(1, draw.randint(1, 3)):
        groups.append(sorted(draw.sample(range(len(ranks)), draw.randint(2, len(ranks)))))
        for rank, member in enumerate(groups[-1]):
            identity = COMMUNICATOR + number
            ranks[member].init_communicator(identity, ranks=len(groups[-1]), rank=rank, at_ns=1_500 + number)
    now = {(rank, stream): 1_000_000 for rank in range(len(ranks)) for stream in range(3)}
    for turn in range(draw.randint(4, 14)):
        # All ranks take part in the first, so that every file has a collective.
        group = draw.randrange(len(groups)) if turn else 0
        kind, size = draw.choice(KINDS), draw.choice((1 << 10, 1 << 16, 1 << 20, 49_380))
        stream = group if overlap else 0
        start = {rank: now[rank, stream] + draw.randint(1_000, 300_000) for rank in groups[group]}
        end = max(start.values()) + draw.randint(50_000, 400_000)
        for rank in groups[group]:
            ranks[rank].collective(
                kind,
                size_bytes=size,
                communicator=COMMUNICATOR + group,
                stream=1 + stream,
                start_ns=start[rank],
                end_ns=end,
                channels=2,
                threads=SIMPLE,
                **({"reduction": "Sum"} if "Reduce" in kind else {}),
            )
            now[rank, stream] = end
    write(exports, folder)


@pytest.mark.parametrize("seed", range(10))
def test_uneven_ranks_without_overlap_are_exact_on_few_gpus(tmp_path, seed):
    """Ranks that arrive far apart get a class of their own, so only what arrives together is held together."""
    random_job(tmp_path, seed, overlap=False)
    found = validate(read_trace([tmp_path]), CollectiveSolver(FABRIC))
    composite, whole = (method.times_ns for method in found.methods[:2])
    assert len(composite) == 5
    assert composite == pytest.approx(whole, rel=1e-12)


@pytest.mark.parametrize("gpus_per_nic", [1, 2])
@pytest.mark.parametrize("seed", range(6))
def test_bounds_never_shorten_a_job_and_payers_add_up(tmp_path, seed, gpus_per_nic):
    random_job(tmp_path, seed, overlap=True)
    trace = read_trace([tmp_path])
    fabric = replace(FABRIC, gpus_per_nic=gpus_per_nic)
    apart, shared = (
        analyze(trace, CollectiveSolver(fabric), dependencies="streams", contention=used) for used in (False, True)
    )
    assert shared.summary["makespan_ns"] >= apart.summary["makespan_ns"]
    for summary in (apart.summary, shared.summary):
        for name, slope in (("latency", "messages"), ("gap", "bytes")):
            for row in summary["attribution"][name]:
                for payers in ("signatures", "communicators", "streams", "phases"):
                    assert sum(payer[slope] for payer in row[payers]) == row[slope]


def test_a_class_for_every_rank_is_for_uneven_ranks_within_limits(tmp_path, monkeypatch):
    random_job(tmp_path, 3, overlap=False)
    trace = read_trace([tmp_path])

    def split():
        job = solve_job(trace, CollectiveSolver(FABRIC), dependencies="streams")
        ranks = [s.signature.ranks for s in job.signed.instances]
        return sum(c.count == n for c, n in zip(job.collectives, ranks, strict=True)), job.program.graph.edges

    every, edges = split()
    monkeypatch.setattr(uneven, "SKEW", 1000)
    few, fewer_edges = split()
    assert few < every
    assert fewer_edges < edges
    monkeypatch.setattr(uneven, "SKEW", 1 / 8)
    monkeypatch.setattr(uneven, "PROGRAM_PLANES", 0)
    assert split() == (few, fewer_edges)


def test_planes_between_ranks_are_cached(tmp_path):
    random_job(tmp_path, 3, overlap=False)
    trace, cache = read_trace([tmp_path]), tmp_path / "cache"
    first, second = (
        solve_job(trace, CollectiveSolver(FABRIC, store=Store(cache)), dependencies="streams") for _ in range(2)
    )
    assert first.collectives == second.collectives
    store = Store(cache)
    solve_job(trace, CollectiveSolver(FABRIC, store=store), dependencies="streams")
    assert (store.hits, store.misses) == (len(first.envelopes), 0)


@pytest.mark.parametrize("seed", range(3))
def test_ranks_that_a_broadcast_leaves_apart_arrive_apart(tmp_path, monkeypatch, seed):
    """Recorded side by side, but the chain of a Broadcast ends rank by rank: the next collective is split by rank."""
    random_collectives(
        tmp_path,
        seed,
        ("Broadcast", "AllGather"),
        uneven=False,
        nodes=3,
        gpus_per_node=2,
        count=8,
        channels=1,
        sizes=(1 << 12, 1 << 16, 1 << 12),
    )
    trace = read_trace([tmp_path])
    assert validate(trace, CollectiveSolver(FABRIC)).difference < 1e-9
    monkeypatch.setattr(uneven, "_left_apart", lambda times, apart: 0 * apart)
    assert validate(trace, CollectiveSolver(FABRIC)).difference > 0.04
