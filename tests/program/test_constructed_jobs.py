"""Jobs whose critical path is known by construction: pipelines, stragglers, shared ranks, experts."""

import importlib
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
from helpers import ROOT
from helpers.jobs import COMMUNICATOR, SIMPLE, processes, write
from helpers.programs import MS, PAIR_B, straggler
from helpers.solving import FABRIC, POINTS, replay_ns, solved, time_ns

from atlas_lp.goal.event_graph import COMPONENTS
from atlas_lp.traces.reading.read import read_trace


def between(job, number, where):
    """Times from every class of an instance to every other one at a point, as a matrix (None: does not wait)."""
    theta = {**FABRIC.theta(), "messages": where[0], "bytes": where[1]}
    collective = job.collectives[number]
    matrix = [[None] * collective.count for _ in range(collective.count)]
    for arriving, ending, vectors in collective.planes:
        matrix[arriving][ending] = max(sum(x * theta[c] for x, c in zip(v, COMPONENTS, strict=True)) for v in vectors)
    return matrix, collective.of_rank


# --- pipeline ------------------------------------------------------------------------------------------------

STAGES, MICROBATCHES, SIZE = 4, 6, 4 << 20


def pipeline(folder, compute_ns):
    """Forward passes of a pipeline, a stage per node: every stage receives, computes and sends each microbatch."""
    exports, ranks = processes(STAGES, 1)
    now = [1 * MS] * STAGES
    took = 300_000
    for _ in range(MICROBATCHES):
        for stage, process in enumerate(ranks):
            if stage:
                start = (now[stage - 1], now[stage])
                end = max(start) + took
                for s, (rank, kind, peer) in zip(
                    start, ((stage - 1, "Send", stage), (stage, "Recv", stage - 1)), strict=True
                ):
                    ranks[rank].collective(
                        kind,
                        size_bytes=SIZE,
                        communicator=COMMUNICATOR,
                        stream=17,
                        start_ns=s,
                        end_ns=end,
                        channels=2,
                        threads=SIMPLE,
                        peer=peer,
                    )
                now[stage - 1] = now[stage] = end
            process.kernel("forward", stream=7, start_ns=now[stage], end_ns=now[stage] + compute_ns)
            now[stage] += compute_ns
    write(exports, folder)


@pytest.mark.parametrize("compute_ns", [50_000, 2 * MS])
def test_a_pipeline_has_its_bubbles(tmp_path, compute_ns):
    """T is the recurrence of a pipeline whose stages wait for the microbatch and for their own last send."""
    pipeline(tmp_path, compute_ns)
    job = solved(read_trace([tmp_path]))
    for where in POINTS:
        matrix, of_rank = between(job, 0, where)
        sender, receiver = of_rank
        now = [Fraction(0)] * STAGES
        for _ in range(MICROBATCHES):
            for stage in range(STAGES):
                if stage:
                    a, b = now[stage - 1], now[stage]
                    ends = [
                        max(t + matrix[c][e] for t, c in ((a, sender), (b, receiver)) if matrix[c][e] is not None)
                        for e in (sender, receiver)
                    ]
                    now[stage - 1], now[stage] = ends
                now[stage] += compute_ns
        assert time_ns(job, where) == max(now)


def test_a_pipeline_that_computes_crosses_from_stage_to_stage_once(tmp_path):
    """With long computations the first stage is never held up, nor is the last: bubbles are stages - 1 computations."""
    pipeline(tmp_path, 2 * MS)
    steps = solved(read_trace([tmp_path])).critical_path(*POINTS[0])
    work = [step for step in steps if step.gpu is not None]
    assert sum(step.duration_ns for step in work) == (MICROBATCHES + STAGES - 1) * 2 * MS
    gpus = [step.gpu for step in work]
    assert gpus == sorted(gpus)
    assert set(gpus) == set(range(STAGES))


# --- a straggler, and two communicators that share ranks ----------------------------------------------------------


@pytest.mark.parametrize("late_ns", [0, 400_000, 1 * MS, 3 * MS])
def test_only_lateness_beyond_the_slack_counts(tmp_path, late_ns):
    straggler(tmp_path, late_ns)
    job = solved(read_trace([tmp_path]))
    sizes = Counter(s.signature.ranks for s in job.signed.instances)
    assert sizes == {4: 2, 2: 2}
    by_ranks = {s.signature.ranks: job.envelopes[s.signature.key()] for s in job.signed.instances}
    for where in POINTS:
        all_four, pair = (by_ranks[n].time_ns(*where) for n in (4, 2))
        assert time_ns(job, where) == 1 * MS + all_four + pair + max(2 * MS, 1 * MS + late_ns) + all_four


def test_the_straggler_is_on_the_path_with_its_three_milliseconds(tmp_path):
    straggler(tmp_path, 3 * MS)
    job = solved(read_trace([tmp_path]))
    steps = job.critical_path(*POINTS[0])
    assert max((step.duration_ns, step.gpu) for step in steps if step.gpu is not None) == (3 * MS, 3)
    owners = [
        hex(job.trace.communicators["id"][job.signed.instances[s.instance].instance.communicator].as_py())
        for s in steps
        if s.gpu is None
    ]
    assert owners == [hex(COMMUNICATOR), hex(PAIR_B), hex(COMMUNICATOR)]


# --- experts -------------------------------------------------------------------------------------------------------


@pytest.fixture
def moe(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return importlib.import_module("moe")


def test_experts_of_one_stage_follow_each_other(moe):
    """Even ranks: every forward and backward is its collectives and its computations, one after the other."""
    shape = moe.Shape(data=2, expert=4, pipeline=1, tensor=2, microbatches=2, layers=3)
    job = solved(moe.moe_trace(shape, uneven=False))
    counts = Counter(s.signature.key() for s in job.signed.instances)
    groups = {"AllToAll": 4, "AllGather": None, "ReduceScatter": None}
    assert {s.signature.collective for s in job.signed.instances} == set(groups)
    compute = 2 * 3 * (600 + 800 + 1200 + 1600) * 1000 + 2 * 3 * 200_000
    total = shape.gpus
    for where in POINTS:
        spent = sum(
            count * next(s.signature.ranks for s in job.signed.instances if s.signature.key() == key)
            * job.envelopes[key].time_ns(*where)
            for key, count in counts.items()
        )  # fmt: skip
        # Every GPU takes part in total / GPUs of all collectives, each as long for all; it starts at 1 ms.
        assert time_ns(job, where) == 1 * MS + compute + Fraction(spent, total) + 100_000


@pytest.mark.parametrize("uneven", [False, True])
def test_a_step_with_four_dimensions_replays_to_the_nanosecond(moe, uneven):
    trace = moe.moe_trace(moe.Shape(2, 2, 3, 2, microbatches=3, layers=2), uneven=uneven)
    time, measured = replay_ns(trace)
    assert time == measured


def test_one_forward_one_backward_keeps_its_promises(moe):
    """Every block once; a stage has at most as many microbatches under way as stages behind it, and itself."""
    stages, microbatches = 4, 7
    order = list(moe.one_forward_one_backward(stages, microbatches))
    assert len(set(order)) == len(order) == 2 * stages * microbatches
    under_way = np.zeros(stages, dtype=int)
    for stage, kind, m in order:
        under_way[stage] += 1 if kind == "F" else -1
        assert 0 <= under_way[stage] <= stages - stage
        if stage and kind == "F":
            assert order.index((stage - 1, "F", m)) < order.index((stage, "F", m))
