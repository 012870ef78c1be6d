"""What operations waited for: slack that is used up first, hosts that synchronise, events and streams compared."""

from fractions import Fraction

import numpy as np
import pytest
from helpers.jobs import COMMUNICATOR, alike, processes, write
from helpers.programs import MS, all_reduce, overlapped_gradients
from helpers.solving import FABRIC, GAP, reduction_ns

from atlas_lp.analysis.analyze import analyze
from atlas_lp.cache import Store
from atlas_lp.collectives.solver import solve_signature
from atlas_lp.errors import InputError
from atlas_lp.program.compose import compose
from atlas_lp.program.what_if import WhatIf
from atlas_lp.solver.envelope import Box
from atlas_lp.solver.longest_path import Evaluator
from atlas_lp.traces.reading.read import read_trace
from atlas_lp.traces.signing.sign import sign


@pytest.mark.parametrize("latency", [0, 3700, 50_000, 150_000, 300_000, 10**6])
def test_slack_is_used_up_before_the_step_grows(tmp_path, latency):
    overlapped_gradients(tmp_path)
    envelope = analyze(read_trace([tmp_path]), FABRIC, Box(), Store(None)).envelope
    one = reduction_ns(tmp_path, Fraction(latency))
    assert envelope.time_ns(Fraction(latency), GAP) == 5 * MS + max(5 * MS, one) + one + 2 * MS


def test_the_breakpoint_is_where_the_slack_ends(tmp_path):
    """T(L) grows with one reduction until that takes 5 ms, and with two from there on."""
    overlapped_gradients(tmp_path)
    box = Box(latency_to_ns=Fraction(10 * MS))
    trace = read_trace([tmp_path])
    pieces = analyze(trace, FABRIC, box, Store(None)).envelope.along_latency(GAP)
    signed, _ = sign(trace)
    one = solve_signature(signed[0].signature, FABRIC, box)
    breaks = [p for p in pieces if one.time_ns(p.start, GAP) == 5 * MS]
    assert len(breaks) == 1
    (begin,) = breaks
    before = next(p for p in pieces if p.stop == begin.start)
    assert begin.slope == 2 * before.slope


def test_without_events_all_time_between_reductions_is_fixed(tmp_path):
    overlapped_gradients(tmp_path)
    trace = read_trace([tmp_path])
    one = reduction_ns(tmp_path, Fraction(10**6))
    streams = analyze(trace, FABRIC, Box(), Store(None), dependencies="streams").envelope
    assert streams.time_ns(Fraction(10**6), GAP) == 5 * MS + one + 4 * MS + one + 2 * MS


def test_the_summary_says_which_reading_was_used_and_how_far_apart_they_are(tmp_path):
    overlapped_gradients(tmp_path)
    trace = read_trace([tmp_path])
    summary = analyze(trace, FABRIC, Box(), Store(None)).summary
    assert summary["dependencies"]["used"] == "events"
    other = analyze(trace, FABRIC, Box(), Store(None), dependencies="streams").summary
    assert other["dependencies"]["used"] == "streams"
    assert summary["dependencies"]["makespan_ns"]["streams"] == other["makespan_ns"]
    assert other["dependencies"]["makespan_ns"]["events"] == summary["makespan_ns"]


def test_events_replay_to_the_nanosecond(tmp_path):
    overlapped_gradients(tmp_path)
    trace = read_trace([tmp_path])
    signed, _ = sign(trace)
    for dependencies in ("events", "streams"):
        durations = compose(trace, signed, [alike((0,) * 7)] * 2, dependencies).durations_ns
        replay = compose(trace, signed, [alike((int(d), 0, 0, 0, 0, 0, 0)) for d in durations], dependencies)
        assert Evaluator(replay.graph, FABRIC.theta()).at((0, 0, 1)).time_ns == replay.measured_ns == 13 * MS


def test_real_trace_replays_both_ways(data_dir):
    trace = read_trace([data_dir / "nsys" / "ddp_2gpu_nccl2.28_nsys2026.3.sqlite"])
    signed, _ = sign(trace)
    for dependencies in ("events", "streams"):
        durations = compose(trace, signed, [alike((0,) * 7)] * len(signed), dependencies).durations_ns
        rows = [alike((int(d), 0, 0, 0, 0, 0, 0)) for d in durations]
        replay = compose(trace, signed, rows, dependencies)
        time = Evaluator(replay.graph, FABRIC.theta()).at((0, 0, 1)).time_ns
        assert abs(time - replay.measured_ns) / replay.measured_ns < 1e-3


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
    envelope = analyze(read_trace([tmp_path]), FABRIC, Box(), Store(None)).envelope
    latency = Fraction(10**6)
    assert envelope.time_ns(latency, GAP) == reduction_ns(tmp_path, latency) + 1 * MS + 2 * MS


def test_a_host_that_did_not_wait_calls_when_it_called(tmp_path):
    synchronising_host(tmp_path, synchronise=False)
    trace = read_trace([tmp_path])
    envelope = analyze(trace, FABRIC, Box(), Store(None), dependencies="events").envelope
    assert envelope.time_ns(Fraction(0), GAP) == max(5 * MS, reduction_ns(tmp_path, Fraction(0)))


def test_events_cannot_be_asked_for_where_they_were_not_recorded(tmp_path):
    overlapped_gradients(tmp_path)
    trace = read_trace([tmp_path])
    signed, _ = sign(trace)
    from dataclasses import replace

    with pytest.raises(InputError, match="--dependencies streams"):
        compose(replace(trace, work=None), signed, [alike((0,) * 7)] * 2, "events")


def test_one_kernel_may_carry_several_operations():
    from atlas_lp.program.links import Ends, event_links
    from atlas_lp.traces.work import Work

    class Times:
        gpu = stream = np.zeros(3, dtype=np.int64)
        instance = np.arange(3)
        start, end_ns = np.array([10, 10, 30]), np.array([20, 20, 40])
        offset = first = np.zeros(1, dtype=np.int64)
        origin, gaps = 0, []

    none = np.zeros(0, dtype=np.int64)
    start, end = np.array([10, 30]), np.array([20, 40])
    work = Work(*[np.zeros(2, dtype=np.int64)] * 2, start, end, np.full(2, -1), np.full(2, -1), none, none)
    ends = Ends(np.array([1, 3, 5]), np.array([2, 4, 6]), np.array([1, 3, 5]), np.ones(3, dtype=np.int64))
    links = event_links(Times(), ends, work)
    edges = set(zip(links.sources.tolist(), links.targets.tolist(), links.costs.tolist(), strict=True))
    # Both operations of the first kernel are ready at 10; the third is ready 10 after both are done.
    assert edges == {(0, 1, 10), (0, 3, 10), (2, 5, 10), (4, 5, 10)}


def test_each_piece_names_who_pays_for_it(tmp_path):
    """Before the slack is used up one reduction is on the path, after it two: one more enters there."""
    overlapped_gradients(tmp_path)
    box = Box(latency_to_ns=Fraction(10 * MS))
    summary = analyze(read_trace([tmp_path]), FABRIC, box, Store(None)).summary
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
    envelope = analyze(trace, FABRIC, Box(), Store(None), what_if=WhatIf(factor)).envelope
    one = reduction_ns(tmp_path, latency)
    assert envelope.time_ns(latency, GAP) == 5 * MS * factor + max(5 * MS * factor, one) + one + 2 * MS * factor


def test_without_events_everything_between_collectives_is_scaled(tmp_path):
    overlapped_gradients(tmp_path, events=False)
    trace = read_trace([tmp_path])
    half = analyze(trace, FABRIC, Box(), Store(None), dependencies="streams", what_if=WhatIf(Fraction(1, 2)))
    one = reduction_ns(tmp_path, Fraction(0))
    assert half.envelope.time_ns(Fraction(0), GAP) == (5 * MS + 4 * MS + 2 * MS) // 2 + 2 * one


@pytest.mark.parametrize("name", ["AllReduce", "allreduce", "key"])
def test_a_free_collective_takes_no_time(tmp_path, name):
    overlapped_gradients(tmp_path)
    trace = read_trace([tmp_path])
    key = sign(trace)[0][0].signature.key()
    what_if = WhatIf(free=(key[:12] if name == "key" else name,))
    analysis = analyze(trace, FABRIC, Box(), Store(None), what_if=what_if)
    assert analysis.envelope.time_ns(Fraction(10**6), GAP) == 12 * MS
    assert [s["time_ns"] for s in analysis.summary["signatures"]] == [0]
    assert f"what if: {what_if.free[0]} takes no time" in analysis.summary["assumptions"]


def test_what_cannot_be_is_refused(tmp_path):
    overlapped_gradients(tmp_path)
    trace = read_trace([tmp_path])
    with pytest.raises(InputError, match="no collective 'Broadcast' in this trace: it has AllReduce"):
        analyze(trace, FABRIC, Box(), Store(None), what_if=WhatIf(free=("Broadcast",)))
    for factor in (Fraction(-1), Fraction(101), Fraction(1, 1001)):
        with pytest.raises(InputError, match="at most three decimals"):
            WhatIf(factor)
