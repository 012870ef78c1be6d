"""Collectives that overlap on a NIC: bounds against a plain reading of the rule, and against every message."""

from fractions import Fraction
from types import SimpleNamespace

import numpy as np
import pytest
from click.testing import CliRunner
from helpers.jobs import COMMUNICATOR, SIMPLE, processes, write
from helpers.programs import overlapping
from hypothesis import given
from hypothesis import strategies as st

from atlas_lp.analysis.analyze import analyze
from atlas_lp.cli import main
from atlas_lp.collectives.solver import CollectiveSolver
from atlas_lp.fabrics.fabric import load_fabric
from atlas_lp.goal.event_graph import COMPONENTS
from atlas_lp.program.job import solve_job
from atlas_lp.program.nic_sharing import WINDOW, PortLoads, shared_ports, without_cycles
from atlas_lp.program.vertices import Vertices
from atlas_lp.solver.axis import point
from atlas_lp.solver.longest_path import Evaluator
from atlas_lp.traces.reading.read import read_trace
from atlas_lp.validation.validate import default_points, validate

FABRIC = load_fabric()
BYTES, GAPS = COMPONENTS.index("bytes"), COMPONENTS.index("gaps")


def times_both_ways(job, where):
    shared, apart = job.composed(contention=True), job.composed(contention=False)
    return [Evaluator(p.graph, FABRIC.theta()).at(point(*where)).time_ns for p in (shared, apart)]


def test_all_bodies_pass_the_nic_one_after_the_other(tmp_path):
    """Two equal reductions at the same time: the port is busy with both, but for the last body."""
    overlapping(tmp_path)
    job = solve_job(read_trace([tmp_path]), CollectiveSolver(FABRIC), dependencies="streams")
    size, messages, largest = np.max(next(iter(job.envelopes.values())).sent, axis=0).tolist()
    for latency, gap in default_points(FABRIC):
        theta = FABRIC.at(latency_ns=latency, gap_ns_per_byte=gap).theta()
        shared, apart = times_both_ways(job, (latency, gap))
        assert shared == (2 * size - largest) * theta["bytes"] + (2 * messages - 1) * theta["gaps"]
        assert apart < shared


def test_with_shared_nics_the_program_comes_close_to_every_message(tmp_path):
    overlapping(tmp_path)
    trace = read_trace([tmp_path])
    found = validate(trace, CollectiveSolver(FABRIC))
    apart, whole, _, shared = (m.times_ns for m in found.methods)
    assert found.methods[3].name == "composite, NICs shared"
    # Whole is in the order of the native point; a port that serves who comes first at each point may be faster there.
    job = solve_job(trace, CollectiveSolver(FABRIC))
    messages = FABRIC.messages(job.message_graph(), trace.column("gpus", "node"))
    first_come = [float(messages.served(FABRIC.theta_at(where)).end_ns) for where in default_points(FABRIC)]
    assert first_come[0] == whole[0]
    for a, w, s, f in zip(apart, whole, shared, first_come, strict=True):
        assert a < s <= w
        assert s > 0.95 * f


def side_by_side(folder):
    """Two communicators of two ranks each, on the first and the second GPUs of two nodes, that reduce at once."""
    exports, ranks = processes(2, 2)
    for number, process in enumerate(ranks):
        own = COMMUNICATOR + 1 + number % 2
        process.init_communicator(own, ranks=2, rank=number // 2, at_ns=2_000)
        process.collective(
            "AllReduce",
            size_bytes=64 << 20,
            communicator=own,
            stream=1,
            start_ns=3_000_000,
            end_ns=9_000_000,
            channels=4,
            threads=SIMPLE,
            reduction="Sum",
        )
    write(exports, folder)


@pytest.mark.parametrize(("gpus_per_nic", "sharing"), [(1, 0), (2, 2)])
def test_a_nic_is_shared_by_the_gpus_behind_it(tmp_path, gpus_per_nic, sharing):
    from dataclasses import replace

    side_by_side(tmp_path)
    fabric = replace(FABRIC, gpus_per_nic=gpus_per_nic)
    job = solve_job(read_trace([tmp_path]), CollectiveSolver(fabric), dependencies="streams")
    assert job.composed(contention=True).sharing == sharing
    shared, apart = times_both_ways(job, (FABRIC.latency_ns, FABRIC.gap_ns_per_byte))
    assert shared > 1.9 * apart if sharing else shared == apart


operations = st.lists(
    st.tuples(
        st.integers(0, 3),  # instance
        st.integers(0, 1),  # GPU, which is its port
        st.integers(0, 20),  # start
        st.integers(1, 10),  # duration
        st.tuples(st.integers(0, 50), st.integers(0, 3)),  # bodies, messages
    ),
    min_size=1,
    max_size=12,
)


@given(operations)
def test_bounds_are_the_loads_of_windows_in_order_of_start(rows):
    rows.sort(key=lambda row: row[0])
    instance, gpu, start, duration = (np.array([row[i] for row in rows]) for i in range(4))
    size = np.array([row[4][0] * bool(row[4][1]) for row in rows])
    sent = np.stack([size, [row[4][1] for row in rows], size // 2], axis=1)
    _, instance = np.unique(instance, return_inverse=True)
    times = SimpleNamespace(
        instance=instance, gpu=gpu, start_ns=start, end_ns=start + duration, by_label=lambda values: values
    )
    count = int(instance.max()) + 1
    first = 1 + 2 * np.arange(count)
    ends = Vertices(first[instance], first[instance] + 1, first, np.ones(count, dtype=np.int64))
    found = shared_ports(times, ends, PortLoads(sent, np.array([5, 3])))

    wanted: dict[tuple[int, int], tuple[int, int]] = {}
    overlapping = set()
    end = start + duration
    for port in (0, 1):
        own = [i for i in range(len(rows)) if gpu[i] == port and sent[i, 1] > 0]
        own.sort(key=lambda i: (start[i], end[i], i))
        # A busy period is over where nothing sent so far still runs.
        breaks = [n for n in range(1, len(own)) if start[own[n]] >= max(end[i] for i in own[:n])]
        for low, high in zip([0, *breaks], [*breaks, len(own)], strict=True):
            for a in range(low, high):
                for b in range(a + 2, high + 1):
                    window = own[a:b]
                    if len({instance[i] for i in window}) < 2:
                        continue
                    overlapping |= {instance[i] for i in window}
                    latest = max(window, key=lambda i: (end[i], own.index(i)))
                    load = sent[window, 0].sum() - sent[window, 2].max(), sent[window, 1].sum() - 1
                    pair = ends.ready[own[a]], ends.done[latest]
                    wanted[pair] = max(wanted.get(pair, load), load)
    vectors = found.vectors[:, [BYTES, GAPS]].tolist()
    assert dict(zip(zip(found.sources, found.targets, strict=True), map(tuple, vectors), strict=True)) == wanted
    assert found.instances == len(overlapping)
    assert found.owners.tolist() == [(t - 1) // 2 for t in found.targets]


def test_windows_are_bounded():
    """Work is linear in the operations: rows per operation do not grow with the length of a busy period."""
    for count in (200, 2000):
        times = SimpleNamespace(
            instance=np.arange(count),
            gpu=np.zeros(count, dtype=np.int64),
            start_ns=np.arange(count),
            end_ns=np.arange(count) + 10 * count,
            by_label=lambda values: values,
        )
        first = 1 + 2 * np.arange(count)
        ends = Vertices(first, first + 1, first, np.ones(count, dtype=np.int64))
        sent = np.tile([100, 1, 100], (count, 1))
        found = shared_ports(times, ends, PortLoads(sent, np.zeros(1, dtype=np.int64)))
        assert len(found.sources) < count * WINDOW
        assert found.instances == count


def test_bounds_that_close_a_cycle_are_left_out():
    sources, targets = np.array([0, 1, 2, 2, 0]), np.array([1, 2, 3, 1, 3])
    assert without_cycles(4, sources, targets, 3).tolist() == [0, 1, 2, 4]
    assert without_cycles(4, sources[[0, 1, 2, 4]], targets[[0, 1, 2, 4]], 3).tolist() == [0, 1, 2, 3]


def test_the_summary_says_what_sharing_would_cost(tmp_path):
    overlapping(tmp_path)
    trace = read_trace([tmp_path])
    off, on = (analyze(trace, CollectiveSolver(FABRIC), contention=used) for used in (False, True))
    assert off.summary["contention"]["makespan_ns"] == on.summary["contention"]["makespan_ns"]
    assert off.summary["makespan_ns"] == off.summary["contention"]["makespan_ns"]["not_shared"]
    assert on.summary["makespan_ns"] == on.summary["contention"]["makespan_ns"]["shared"]
    assert [off.summary["contention"][k] for k in ("used", "instances")] == [False, 2]
    (gap,) = [gap for gap in off.summary["gaps"] if gap["code"] == "contention"]
    assert "at least 95 % longer: --contention" in gap["message"]
    assert not [gap for gap in on.summary["gaps"] if gap["code"] == "contention"]
    assert any(line.startswith("contention: collectives that overlap") for line in on.summary["assumptions"])
    # Who waits for the NIC pays for all bytes that passed it.
    (row,) = on.summary["attribution"]["latency"][:1]
    assert row["messages"] == 0
    assert on.envelope.time_ns(Fraction(3700), Fraction(1, 25)) == on.summary["makespan_ns"]


def test_analyze_and_validate_on_the_command_line(tmp_path):
    overlapping(tmp_path)
    run = CliRunner()
    words = ["analyze", str(tmp_path), "--no-cache", "--json"]
    apart, shared = (run.invoke(main, [*words, *more], catch_exceptions=False) for more in ([], ["--contention"]))
    assert apart.exit_code == shared.exit_code == 0
    assert '"used": true' in shared.output
    assert "composite, NICs shared" in run.invoke(main, ["validate", str(tmp_path), "--no-cache"]).output
