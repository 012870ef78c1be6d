"""What operations waited for: slack that is used up first, hosts that synchronise, events and streams compared."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from helpers.jobs import COMMUNICATOR, processes, write
from helpers.programs import MS, all_reduce, overlapped_gradients
from helpers.solving import FABRIC, GAP, composed, reduction_ns, replay_ns

from atlas_lp.analysis.analyze import analyze
from atlas_lp.collectives.solver import CollectiveSolver
from atlas_lp.errors import InputError
from atlas_lp.program.what_if import WhatIf
from atlas_lp.solver.axis import LATENCY
from atlas_lp.solver.envelope import Box
from atlas_lp.traces.reading.read import read_trace
from atlas_lp.traces.signing.sign import sign


@pytest.mark.parametrize("latency", [0, 3700, 50_000, 150_000, 300_000, 10**6])
def test_slack_is_used_up_before_the_step_grows(tmp_path, latency):
    overlapped_gradients(tmp_path)
    envelope = analyze(read_trace([tmp_path]), CollectiveSolver(FABRIC)).envelope
    one = reduction_ns(tmp_path, Fraction(latency))
    assert envelope.time_ns(Fraction(latency), GAP) == 5 * MS + max(5 * MS, one) + one + 2 * MS


def test_the_breakpoint_is_where_the_slack_ends(tmp_path):
    """T(L) grows with one reduction until that takes 5 ms, and with two from there on."""
    overlapped_gradients(tmp_path)
    box = Box(latency_to_ns=Fraction(10 * MS))
    trace = read_trace([tmp_path])
    pieces = analyze(trace, CollectiveSolver(FABRIC, box)).envelope.along(LATENCY, GAP)
    signed, _ = sign(trace)
    one = CollectiveSolver(FABRIC, box).solve(signed[0].signature)
    breaks = [p for p in pieces if one.time_ns(p.start, GAP) == 5 * MS]
    assert len(breaks) == 1
    (begin,) = breaks
    before = next(p for p in pieces if p.stop == begin.start)
    assert begin.slope == 2 * before.slope


def test_without_events_all_time_between_reductions_is_fixed(tmp_path):
    overlapped_gradients(tmp_path)
    trace = read_trace([tmp_path])
    one = reduction_ns(tmp_path, Fraction(10**6))
    streams = analyze(trace, CollectiveSolver(FABRIC), dependencies="streams").envelope
    assert streams.time_ns(Fraction(10**6), GAP) == 5 * MS + one + 4 * MS + one + 2 * MS


def test_the_summary_says_which_reading_was_used_and_how_far_apart_they_are(tmp_path):
    overlapped_gradients(tmp_path)
    trace = read_trace([tmp_path])
    summary = analyze(trace, CollectiveSolver(FABRIC)).summary
    assert summary["dependencies"]["used"] == "events"
    other = analyze(trace, CollectiveSolver(FABRIC), dependencies="streams").summary
    assert other["dependencies"]["used"] == "streams"
    assert summary["dependencies"]["makespan_ns"]["streams"] == other["makespan_ns"]
    assert other["dependencies"]["makespan_ns"]["events"] == summary["makespan_ns"]


def test_events_replay_to_the_nanosecond(tmp_path):
    overlapped_gradients(tmp_path)
    trace = read_trace([tmp_path])
    for dependencies in ("events", "streams"):
        assert replay_ns(trace, dependencies) == (13 * MS, 13 * MS)


def test_real_trace_replays_both_ways(data_dir):
    trace = read_trace([data_dir / "nsys" / "ddp_2gpu_nccl2.28_nsys2026.3.sqlite"])
    for dependencies in ("events", "streams"):
        time, measured = replay_ns(trace, dependencies)
        assert abs(time - measured) / measured < 1e-3


def synchronising_host(folder, *, synchronise):
    """A reduction, then the host waits for it (or not) and calls the next compute 1 ms after it ended."""
    exports, ranks = processes(2, 1)
    for process in ranks:
        at = 1 * MS
        all_reduce(process, at, at + 2 * MS, at - 10_000)
        if synchronise:
            process.synchronize(17, at + 5_000, at + 2 * MS + 10_000)
        process.kernel("next", stream=7, start_ns=at + 3 * MS, end_ns=at + 5 * MS, call_ns=at + 3 * MS - 10_000)
    write(exports, folder)


def test_a_host_that_waited_passes_the_delay_on(tmp_path):
    synchronising_host(tmp_path, synchronise=True)
    envelope = analyze(read_trace([tmp_path]), CollectiveSolver(FABRIC)).envelope
    latency = Fraction(10**6)
    assert envelope.time_ns(latency, GAP) == reduction_ns(tmp_path, latency) + 1 * MS + 2 * MS


def test_a_host_that_did_not_wait_calls_when_it_called(tmp_path):
    synchronising_host(tmp_path, synchronise=False)
    trace = read_trace([tmp_path])
    envelope = analyze(trace, CollectiveSolver(FABRIC), dependencies="events").envelope
    assert envelope.time_ns(Fraction(0), GAP) == max(5 * MS, reduction_ns(tmp_path, Fraction(0)))


def test_events_cannot_be_asked_for_where_they_were_not_recorded(tmp_path):
    overlapped_gradients(tmp_path)
    trace = read_trace([tmp_path])
    with pytest.raises(InputError, match="--dependencies streams"):
        composed(replace(trace, work=None), dependencies="events")


def test_one_kernel_may_carry_several_operations():
    from atlas_lp.program.dependencies.event_links import event_links
    from atlas_lp.program.dependencies.links import START
    from atlas_lp.traces.work import Work

    class Times:
        gpu = stream = np.zeros(3, dtype=np.int64)
        instance = np.arange(3)
        start_ns, end_ns = np.array([10, 10, 30]), np.array([20, 20, 40])
        offset_ns = first_ns = np.zeros(1, dtype=np.int64)
        origin_ns, gaps = 0, ()

    none = np.zeros(0, dtype=np.int64)
    start, end = np.array([10, 30]), np.array([20, 40])
    work = Work(*[np.zeros(2, dtype=np.int64)] * 2, start, end, np.full(2, -1), np.full(2, -1), none, none)
    links = event_links(Times(), work)
    edges = set(zip(links.sources.tolist(), links.targets.tolist(), links.costs_ns.tolist(), strict=True))
    # Both operations of the first kernel begin at 10; the third begins 10 after both are done.
    assert edges == {(START, 0, 10), (START, 1, 10), (0, 2, 10), (1, 2, 10)}


def test_each_piece_names_who_pays_for_it(tmp_path):
    """Before the slack is used up one reduction is on the path, after it two: one more enters there."""
    overlapped_gradients(tmp_path)
    box = Box(latency_to_ns=Fraction(10 * MS))
    summary = analyze(read_trace([tmp_path]), CollectiveSolver(FABRIC, box)).summary
    rows = summary["attribution"]["latency"]
    (key,) = [s["key"] for s in summary["signatures"]]
    for row in rows:
        assert row["signatures"] == [{"key": key, "messages": row["messages"]}]
        assert row["communicators"] == [{"key": f"{COMMUNICATOR:#x}", "messages": row["messages"]}]
        assert row["streams"] == [{"key": 17, "messages": row["messages"]}]
        assert sum(phase["messages"] for phase in row["phases"]) == row["messages"]
        assert sum(pair["messages"] for pair in row["pairs"]) + row["other_pairs"]["messages"] == row["messages"]
        assert {(pair["from_gpu"], pair["to_gpu"]) for pair in row["pairs"]} <= {(0, 1), (1, 0)}
    entered = [row["entered"] for row in rows]
    assert entered[-1] == [{"key": key, "instances": 1}]
    assert all(change == [] for change in entered[:-1])
    assert all(row["left"] == [] for row in rows)
    assert [row["messages"] for row in rows] == [p["messages"] for p in summary["envelopes"]["latency"]]


@pytest.mark.parametrize("factor", ["0.125", "0.5", "1", "2.125"])
def test_compute_scaled_moves_the_slack_with_it(tmp_path, factor):
    """Gradients and optimizer take the factor of their time; reductions and what the host does stay as they are."""
    overlapped_gradients(tmp_path)
    latency, factor = Fraction(300_000), Fraction(factor)
    trace = read_trace([tmp_path])
    envelope = analyze(trace, CollectiveSolver(FABRIC), what_if=WhatIf(factor)).envelope
    one = reduction_ns(tmp_path, latency)
    assert envelope.time_ns(latency, GAP) == 5 * MS * factor + max(5 * MS * factor, one) + one + 2 * MS * factor


def test_without_events_everything_between_collectives_is_scaled(tmp_path):
    overlapped_gradients(tmp_path, events=False)
    trace = read_trace([tmp_path])
    half = analyze(trace, CollectiveSolver(FABRIC), dependencies="streams", what_if=WhatIf(Fraction(1, 2)))
    one = reduction_ns(tmp_path, Fraction(0))
    assert half.envelope.time_ns(Fraction(0), GAP) == (5 * MS + 4 * MS + 2 * MS) // 2 + 2 * one


@pytest.mark.parametrize("name", ["AllReduce", "allreduce", "key"])
def test_a_free_collective_takes_no_time(tmp_path, name):
    overlapped_gradients(tmp_path)
    trace = read_trace([tmp_path])
    key = sign(trace)[0][0].signature.key()
    what_if = WhatIf(free=(key[:12] if name == "key" else name,))
    analysis = analyze(trace, CollectiveSolver(FABRIC), what_if=what_if)
    assert analysis.envelope.time_ns(Fraction(10**6), GAP) == 12 * MS
    assert [s["time_ns"] for s in analysis.summary["signatures"]] == [0]
    assert f"what if: {what_if.free[0]} takes no time" in analysis.summary["assumptions"]


def test_what_cannot_be_is_refused(tmp_path):
    overlapped_gradients(tmp_path)
    trace = read_trace([tmp_path])
    with pytest.raises(InputError, match="no collective 'Broadcast' in this trace: it has AllReduce"):
        analyze(trace, CollectiveSolver(FABRIC), what_if=WhatIf(free=("Broadcast",)))
    for factor in (Fraction(-1), Fraction(101), Fraction(1, 1001)):
        with pytest.raises(InputError, match="at most three decimals"):
            WhatIf(factor)
