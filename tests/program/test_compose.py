"""The program of a trace: known gaps, late ranks, clocks, overlapping streams."""

from fractions import Fraction

import pytest
from helpers.jobs import COMMUNICATOR, SIMPLE, processes, two_ranks, write
from helpers.solving import composed, replay_ns

from atlas_lp.analysis.analyze import analyze
from atlas_lp.collectives.solver import CollectiveSolver
from atlas_lp.errors import InputError
from atlas_lp.fabrics.fabric import load_fabric
from atlas_lp.solver.axis import point
from atlas_lp.solver.longest_path import Evaluator
from atlas_lp.traces.reading.read import read_trace
from atlas_lp.traces.signing.sign import sign
from atlas_lp.traces.signing.signed_trace import SignedTrace

FABRIC = load_fabric()
POINTS = [(Fraction(0), Fraction(1, 25)), (Fraction(3700), Fraction(1, 25)), (Fraction(10**6), Fraction(4, 5))]


def analysis_of(folder):
    return analyze(read_trace([folder]), CollectiveSolver(FABRIC), dependencies="streams")


def collective_ns(folder, where):
    signed, _ = sign(read_trace([folder]))
    return CollectiveSolver(FABRIC).solve(signed[0].signature).time_ns(*where)


@pytest.mark.parametrize("where", POINTS)
def test_the_program_is_its_gaps_and_its_collectives(tmp_path, where):
    two_ranks(tmp_path)
    analysis = analysis_of(tmp_path)
    assert analysis.envelope.time_ns(*where) == 10_000_000 + 2 * collective_ns(tmp_path, where)


@pytest.mark.parametrize("late", [1, 3_300_000])
def test_a_late_rank_moves_the_result_by_its_lateness(tmp_path, late):
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    two_ranks(tmp_path / "a")
    two_ranks(tmp_path / "b", late=late)
    for where in POINTS:
        difference = analysis_of(tmp_path / "b").envelope.time_ns(*where) - analysis_of(
            tmp_path / "a"
        ).envelope.time_ns(*where)
        assert difference == late


@pytest.mark.parametrize("offset", [-700_000_000, 3_000_000, 10**12])
def test_shifting_the_clock_of_a_host_changes_nothing(tmp_path, offset):
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    two_ranks(tmp_path / "a", late=1234)
    two_ranks(tmp_path / "b", late=1234, offset=offset)
    assert analysis_of(tmp_path / "a").summary == analysis_of(tmp_path / "b").summary


def test_waiting_inside_a_kernel_is_no_cost(tmp_path):
    """Rank 0 waits 3.3 ms inside its second kernel; only the lateness of rank 1 counts, once."""
    two_ranks(tmp_path, late=3_300_000)
    assert analysis_of(tmp_path).summary["breakdown"]["compute_and_idle_ns"] == 13_300_000


@pytest.mark.parametrize("late", [0, 500_000])
def test_replaying_measured_durations_gives_the_measured_span(tmp_path, late):
    two_ranks(tmp_path, late=late)
    replayed, measured = replay_ns(read_trace([tmp_path]))
    assert replayed == measured == 12_000_000 + late


def test_replay_of_a_real_trace_is_the_measured_span_up_to_end_skew(data_dir):
    replayed, measured = replay_ns(read_trace([data_dir / "nsys" / "ddp_2gpu_nccl2.28_nsys2026.3.sqlite"]))
    assert abs(replayed - measured) / measured < 2e-4


def ends_apart(folder, late_end):
    """Two reductions; rank 1 ends the first one later than rank 0, and both start the second one 1 ms after their end.

    Both GPUs are of one host.  The first lasts from the arrival to the later end, so rank 0 is replayed *late_end*
    later from there on.
    """
    exports, ranks = processes(1, 2)
    for number, process in enumerate(ranks):
        process.kernel("work", stream=7, start_ns=1_000_000, end_ns=2_000_000)
        for start, end in ((2_000_000, 3_000_000), (4_000_000, 5_000_000)):
            shift = late_end * number
            process.collective(
                "AllReduce",
                size_bytes=1 << 20,
                communicator=COMMUNICATOR,
                stream=1,
                start_ns=start + shift * (start > 2_000_000),
                end_ns=end + shift,
                channels=1,
                threads=SIMPLE,
                reduction="Sum",
            )
    write(exports, folder)


@pytest.mark.parametrize("late_end", [0, 5_000])
def test_a_replay_names_the_ranks_that_ended_a_collective_before_others(tmp_path, late_end):
    ends_apart(tmp_path, late_end)
    trace = read_trace([tmp_path])
    analysis = analyze(trace, CollectiveSolver(FABRIC), dependencies="streams")
    assert analysis.summary["replay_ns"] == analysis.summary["measured_ns"] == 4_000_000 + late_end
    apart = [(row["gpu"], row["replay_ns"] - row["measured_ns"]) for row in analysis.summary["replay_apart"]]
    assert apart == ([(0, late_end)] if late_end else [])


def test_a_replay_of_a_real_trace_is_the_span_to_the_nanosecond(data_dir):
    trace = read_trace([data_dir / "nsys" / "ddp_2gpu_nccl2.28_nsys2026.3.sqlite"])
    summary = analyze(trace, CollectiveSolver(FABRIC)).summary
    assert summary["replay_ns"] == summary["measured_ns"]
    (row,) = summary["replay_apart"]
    assert (row["gpu"], row["replay_ns"]) == (0, summary["measured_ns"])
    assert 0 < row["replay_ns"] - row["measured_ns"] < 100_000


def overlapping(folder, second_start):
    """A long collective on stream 1 and a short one on stream 2 that starts at *second_start*, then a third."""
    exports, ranks = processes(2, 1)
    for process in ranks:
        process.kernel("compute", stream=7, start_ns=2_000_000, end_ns=3_000_000)
        for stream, start, end, size in (
            (1, 3_000_000, 6_000_000, 1 << 24),
            (2, second_start, second_start + 100_000, 1 << 10),
            (1, 8_000_000, 8_500_000, 1 << 20),
        ):
            process.collective(
                "AllReduce",
                size_bytes=size,
                communicator=COMMUNICATOR,
                stream=stream,
                start_ns=start,
                end_ns=end,
                channels=1,
                threads=SIMPLE,
                reduction="Sum",
            )
    write(exports, folder)


def test_overlapping_streams_run_side_by_side(tmp_path):
    overlapping(tmp_path, second_start=4_000_000)
    trace = read_trace([tmp_path])
    program = composed(trace, [(10_000_000 * (i == 0), 0, 0, 0, 0, 0, 0) for i in range(3)])
    longest = Evaluator(program.graph, FABRIC.theta()).at(point(Fraction(0), Fraction(0)))
    # 1 ms before, 10 ms of the first, 2 ms to the third: the second is not on the path.
    assert longest.time_ns == 13_000_000


def test_streams_that_do_not_overlap_are_merged(tmp_path):
    overlapping(tmp_path, second_start=7_000_000)
    trace = read_trace([tmp_path])
    signed, _ = sign(trace)
    by_size = {s.signature.size_bytes: i for i, s in enumerate(signed)}
    times = [0, 0, 0]
    times[by_size[1 << 24]], times[by_size[1 << 10]] = 10_000_000, 20_000_000
    program = composed(trace, [(t, 0, 0, 0, 0, 0, 0) for t in times])
    longest = Evaluator(program.graph, FABRIC.theta()).at(point(Fraction(0), Fraction(0)))
    # 1 ms, first 10 ms, 1 ms gap, second 20 ms, 0.9 ms gap, third; the third is no fixed cost after the second.
    assert longest.time_ns == 32_900_000


def test_a_collective_in_between_is_no_cost_of_the_operation_before_it(tmp_path):
    """Whatever the collectives take, only gaps remain: 1 + 1 + 0.9 ms."""
    overlapping(tmp_path, second_start=7_000_000)
    trace = read_trace([tmp_path])
    program = composed(trace)
    assert Evaluator(program.graph, FABRIC.theta()).at((0, 0, 1)).time_ns == 2_900_000


def test_one_rank_never_waits_for_a_late_one(tmp_path):
    two_ranks(tmp_path, late=3_300_000)
    trace = read_trace([tmp_path])
    alone = [analyze(trace, CollectiveSolver(FABRIC), dependencies="streams", gpu=gpu) for gpu in (0, 1)]
    for where in POINTS:
        one = collective_ns(tmp_path, where)
        assert alone[0].envelope.time_ns(*where) == 10_000_000 + 2 * one
        assert alone[1].envelope.time_ns(*where) == 13_300_000 + 2 * one
    assert alone[1].summary["trace"]["perspective"] == "GPU 1"
    assert any(line.startswith("perspective: GPU 1 alone") for line in alone[1].summary["assumptions"])
    with pytest.raises(InputError, match="GPU 2 ran no collective: the trace has GPUs 0 to 1"):
        analyze(trace, CollectiveSolver(FABRIC), gpu=2)


def test_skew_and_duration_are_told_apart(tmp_path):
    """Rank 1 is 3.3 ms late once: that is skew; the reduction itself took 1 ms from then on."""
    two_ranks(tmp_path, late=3_300_000)
    trace = read_trace([tmp_path])
    durations, skews = SignedTrace.of(trace).timeline.durations_ns()
    assert skews.tolist() == [0, 3_300_000]
    assert durations.tolist() == [1_000_000, 1_000_000]
