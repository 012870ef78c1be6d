"""What-ifs that keep the schedule: names, fabrics of their own, placements, scale-up networks; each by construction."""

import json
from dataclasses import replace
from fractions import Fraction

import pytest
from click.testing import CliRunner
from helpers.jobs import COMMUNICATOR, SIMPLE, processes, two_ranks, write
from helpers.programs import MS, PAIR_A, PAIR_B, straggler
from helpers.solving import POINTS, solved, time_ns

from atlas_lp.analysis.analyze import analyze
from atlas_lp.cli import main
from atlas_lp.collectives.solver import CollectiveSolver
from atlas_lp.errors import InputError
from atlas_lp.fabrics.fabric import load_fabric
from atlas_lp.program.what_if import WhatIf, named
from atlas_lp.solver.axis import LATENCY
from atlas_lp.traces.reading.read import read_trace

FABRIC = load_fabric()
SLOW = replace(FABRIC.at(latency_ns=Fraction(20_000), gap_ns_per_byte=Fraction(1, 3)), name="slow")


def run(*words):
    return CliRunner().invoke(main, [*map(str, words)], catch_exceptions=False)


def one_reduction(folder, nodes, gpus_per_node, **what):
    """An AllReduce of all GPUs."""
    exports, ranks = processes(nodes, gpus_per_node)
    for process in ranks:
        process.collective(
            "AllReduce",
            communicator=COMMUNICATOR,
            stream=1,
            start_ns=2 * MS,
            end_ns=8 * MS,
            threads=SIMPLE,
            reduction="Sum",
            **what,
        )
    write(exports, folder)


def parts(job):
    """Envelope of the reduction of four ranks, and of that of two."""
    by_ranks = {s.signature.ranks: job.envelopes[s.signature.key()] for s in job.signed.instances}
    return by_ranks[4], by_ranks[2]


def whole(time):
    return (time + Fraction(1, 2)).__floor__()


@pytest.mark.parametrize("where", POINTS)
def test_one_communicator_on_another_fabric_takes_what_it_takes_there(tmp_path, where):
    """Pair B is on the path (its rank 3 is late), so its time is that of the slow fabric, whatever L and G are."""
    straggler(tmp_path, 3 * MS)
    what_if = WhatIf(fabrics=((f"{PAIR_B:#x}", SLOW),))
    job = solved(read_trace([tmp_path]), what_if=what_if)
    all_four, pair = parts(job)
    there = whole(pair.time_ns(SLOW.latency_ns, SLOW.gap_ns_per_byte))
    fast = pair.time_ns(*where)
    slow_side = 3 * MS + there + 1 * MS
    fast_side = fast + 2 * MS
    assert time_ns(job, where) == 1 * MS + 2 * all_four.time_ns(*where) + max(slow_side, fast_side)
    assert len(job.changed) == 1


def test_all_collectives_elsewhere_leave_nothing_to_vary(tmp_path):
    two_ranks(tmp_path)
    trace = read_trace([tmp_path])
    analysis = analyze(trace, CollectiveSolver(FABRIC), what_if=WhatIf(fabrics=(("allreduce", SLOW),)))
    pieces = analysis.envelope.along(LATENCY, FABRIC.gap_ns_per_byte)
    assert [piece.slope for piece in pieces] == [0]
    (row,) = analysis.summary["signatures"]
    one = whole(solved(trace).envelopes[row["key"]].time_ns(SLOW.latency_ns, SLOW.gap_ns_per_byte))
    assert row["time_ns"] == one
    assert analysis.summary["breakdown"]["other_fabrics_ns"] == 2 * one
    assert analysis.summary["breakdown"]["reduce_copy_ns"] == 0
    assert analysis.summary["what_if"] == [
        "allreduce runs on fabric slow (L 20 us, 24 Gbps), whatever L and bandwidth are here"
    ]


def test_a_fabric_whose_nics_are_shared_has_signatures_of_its_own(tmp_path):
    one_reduction(tmp_path, 2, 2, size_bytes=64 << 20, channels=4)
    trace = read_trace([tmp_path])
    shared = replace(SLOW, gpus_per_nic=2)
    apart, together = (
        time_ns(solved(trace, what_if=WhatIf(fabrics=(("AllReduce", fabric),))), POINTS[0]) for fabric in (SLOW, shared)
    )
    assert together > 1.5 * apart


def test_names_are_collectives_keys_and_communicators(tmp_path):
    straggler(tmp_path, 0)
    job = solved(read_trace([tmp_path]))
    ids = job.trace.communicators["id"].to_pylist()
    of = {name: [job.signed.instances[i] for i in named(name, job.signed)] for name in ("AllReduce", f"{PAIR_A:#X}")}
    assert len(of["AllReduce"]) == 4
    assert [ids[s.instance.communicator] for s in of[f"{PAIR_A:#X}"]] == [PAIR_A]
    key = job.signed.instances[0].signature.key()
    assert {job.signed.instances[i].signature.key() for i in named(key[:8], job.signed)} == {key}
    for name in ("Broadcast", "0x", "0xc0f", key[:3], "0xdeadbeef"):
        with pytest.raises(InputError, match="lists keys and communicators"):
            named(name, job.signed)


def test_a_free_communicator_is_not_on_the_path(tmp_path):
    straggler(tmp_path, 3 * MS)
    job = solved(read_trace([tmp_path]), what_if=WhatIf(free=(f"{COMMUNICATOR:#x}", f"{PAIR_B:#x}")))
    assert time_ns(job, POINTS[0]) == 1 * MS + 3 * MS + 1 * MS


def test_what_is_elsewhere_shares_no_nic(tmp_path):
    from helpers.programs import overlapping

    overlapping(tmp_path)
    trace = read_trace([tmp_path])
    both = solved(trace, contention=True)
    away = solved(trace, contention=True, what_if=WhatIf(fabrics=(("AllReduce", SLOW),)))
    assert both.program.sharing == 2
    assert away.program.sharing == 0


@pytest.mark.parametrize("gpu", [0, 1])
def test_one_gpu_sees_the_other_fabric_too(tmp_path, gpu):
    two_ranks(tmp_path)
    job = solved(read_trace([tmp_path]), gpu=gpu, what_if=WhatIf(fabrics=(("AllReduce", SLOW),)))
    (envelope,) = job.envelopes.values()
    assert time_ns(job, POINTS[0]) == 10 * MS + 2 * whole(envelope.time_ns(SLOW.latency_ns, SLOW.gap_ns_per_byte))


def test_placement_from_a_file_is_that_of_the_hosts(tmp_path):
    """Four ranks recorded on two hosts, put on one, on four, and on the hosts again."""
    (tmp_path / "t").mkdir()
    one_reduction(tmp_path / "t", 2, 2, size_bytes=1 << 20, channels=1)

    def answer(*words):
        result = run("analyze", tmp_path / "t", "--no-cache", "--json", *words)
        assert result.exit_code == 0
        return json.loads(result.output)

    recorded = answer()
    times = {}
    for name, nodes in {"same": "aabb", "one": "aaaa", "four": "abcd", "cyclic": "abab"}.items():
        (tmp_path / name).write_text("\n".join(nodes) + "\n", "utf-8")
        found = answer("--placement", tmp_path / name)
        assert found["trace"]["placement"] == f"assumed: nodes of {name}"
        times[name] = found["makespan_ns"]
    assert times["same"] == recorded["makespan_ns"]
    assert times["one"] == answer("--gpus-per-node", 4)["makespan_ns"]
    assert times["four"] == answer("--gpus-per-node", 1)["makespan_ns"]
    assert times["one"] < times["same"] < times["four"]
    few = run("analyze", tmp_path / "t", "--json", "--placement", tmp_path / "few")
    assert few.exit_code == 2
    (tmp_path / "few").write_text("a\nb\n")
    assert "a placement names 2 GPUs, and the trace has 4" in run(
        "analyze", tmp_path / "t", "--json", "--placement", tmp_path / "few"
    ).stderr  # fmt: skip
    both = run("analyze", tmp_path / "t", "--json", "--placement", tmp_path / "one", "--gpus-per-node", 2)
    assert "give one" in both.stderr


def test_scale_up_hops_can_be_changed(tmp_path):
    one_reduction(tmp_path, 1, 2, size_bytes=8 << 20, channels=1)
    trace = read_trace([tmp_path])
    slower = FABRIC.at(up_latency_ns=Fraction(2000), up_gap_ns_per_byte=Fraction(1, 50))
    result = json.loads(
        run("analyze", tmp_path, "--no-cache", "--json", "--up-latency", "2us", "--up-bandwidth", "50GB/s").output
    )
    (signed,) = solved(trace).signed.instances
    assert result["signatures"][0]["time_ns"] == float(
        CollectiveSolver(slower).solve(signed.signature).time_ns(*POINTS[0])
    )
    assert "scale-up L 2 us, 400 Gbps" in result["assumptions"][0]


def test_what_cannot_be_read_is_refused(tmp_path):
    two_ranks(tmp_path)
    for text in ("AllReduce", "=alps", "AllReduce="):
        refused = run("analyze", tmp_path, "--json", "--fabric-of", text)
        assert refused.exit_code == 2
        assert "write NAME=FABRIC" in refused.stderr
    assert "neither a preset" in run("analyze", tmp_path, "--json", "--fabric-of", "AllReduce=nowhere").stderr
