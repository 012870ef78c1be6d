"""Composite against monolithic, LP and measurement; the gate withdraws when they disagree."""

import json
import os
import re
from fractions import Fraction

import pytest
from click.testing import CliRunner
from helpers.jobs import two_ranks
from helpers.programs import EVERY_RANK, overlapped_gradients, overlapping, random_collectives

from atlas_lp.cli import main
from atlas_lp.collectives.solver import CollectiveSolver
from atlas_lp.errors import UnsupportedError
from atlas_lp.fabrics.fabric import load_fabric
from atlas_lp.peak_memory import restart_peak, whole_peak_bytes
from atlas_lp.traces.reading.read import read_trace
from atlas_lp.validation.loggopsim import Simulator
from atlas_lp.validation.validate import validate

FABRIC = load_fabric()


def times(found):
    return {m.name: m.times_ns for m in found.methods}


def test_one_collective_after_the_other_is_the_same_both_ways(tmp_path):
    two_ranks(tmp_path)
    found = validate(read_trace([tmp_path]), CollectiveSolver(FABRIC))
    assert [m.name for m in found.methods] == ["composite", "monolithic", "lp (HiGHS)"]
    assert times(found)["lp (HiGHS)"] == pytest.approx(times(found)["composite"], rel=1e-9)
    assert found.measured_ns == 12_000_000
    for composite, whole in zip(times(found)["composite"], times(found)["monolithic"], strict=True):
        assert composite == pytest.approx(whole, rel=1e-12)


@pytest.mark.slow
def test_a_training_step_of_sixteen_gpus_within_a_thousandth(demo):
    found = validate(read_trace([demo]), CollectiveSolver(FABRIC))
    assert len(found.points) == 5
    assert found.methods[1].vertices > 1_000_000
    assert found.difference < 0.001


@pytest.mark.parametrize("dependencies", ["events", "streams"])
def test_both_readings_are_compared_with_the_messages_between_the_same_dependencies(tmp_path, dependencies):
    """A later reduction that only its host held back is not before an earlier one in the queue of a NIC."""
    overlapped_gradients(tmp_path)
    found = validate(read_trace([tmp_path]), CollectiveSolver(FABRIC), dependencies=dependencies)
    assert found.dependencies == dependencies
    for composite, whole in zip(times(found)["composite"], times(found)["monolithic"], strict=True):
        assert composite == pytest.approx(whole, rel=1e-4)
    other = validate(
        read_trace([tmp_path]), CollectiveSolver(FABRIC), dependencies={"events": "streams"}.get(dependencies)
    )
    assert times(other)["monolithic"] != times(found)["monolithic"]


def test_a_real_trace_by_events_is_every_message(data_dir):
    trace = read_trace([data_dir / "nsys" / "ddp_2gpu_nccl2.28_nsys2026.3.sqlite"]).placed(1)
    found = validate(trace, CollectiveSolver(FABRIC))
    assert found.dependencies == "events"
    assert found.difference < 1e-5
    assert times(found)["composite"][0] == pytest.approx(found.measured_ns, rel=0.001)


def test_points_can_be_chosen_also_outside_the_default_box(tmp_path):
    two_ranks(tmp_path)
    far = (Fraction(5_000_000), Fraction(2))
    found = validate(read_trace([tmp_path]), CollectiveSolver(FABRIC), [far])
    assert found.points == (far,)
    assert found.difference < 0.01


def test_overlapping_collectives_share_a_nic_only_in_the_monolithic_graph(tmp_path):
    overlapping(tmp_path)
    found = validate(read_trace([tmp_path]), CollectiveSolver(FABRIC))
    assert found.difference > 0.3
    assert times(found)["monolithic"][0] > times(found)["composite"][0]


def run(*words):
    return CliRunner().invoke(main, ["validate", *map(str, words), "--no-cache"], catch_exceptions=False)


def test_the_table_and_the_gate(tmp_path):
    two_ranks(tmp_path)
    passed = run(tmp_path)
    assert passed.exit_code == 0
    assert [line.split()[0] for line in passed.output.splitlines()[4:8]] == [
        "composite",
        "monolithic",
        "lp",
        "measured",
    ]
    (tmp_path / "b").mkdir()
    overlapping(tmp_path / "b")
    refused = run(tmp_path / "b")
    assert refused.exit_code == 3
    assert "composite and monolithic differ by" in refused.stderr
    assert run(tmp_path / "b", "--tolerance", 90).exit_code == 0


FAKES = {
    "txt2bin": '#!/bin/sh\ncp "$2" "$4"\n',
    "LogGOPSim": """#!/bin/sh
operations=$(grep -cE '(send|recv|calc) ' "$2"); sends=$(grep -c 'send ' "$2")
echo "Events: $((operations + sends + {lost}))"
echo "Maximum finishing time at host 1: 6700 (6.7e-06 s)"
""",
}


@pytest.mark.parametrize("lost", [0, 1])
def test_loggopsim_is_asked_where_it_is_installed(tmp_path, monkeypatch, lost):
    two_ranks(tmp_path)
    folder = tmp_path / "bin"
    folder.mkdir()
    for name, text in FAKES.items():
        (folder / name).write_text(text.replace("{lost}", str(lost)), "ascii")
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(folder), prepend=os.pathsep)
    found = validate(read_trace([tmp_path]), CollectiveSolver(FABRIC)).methods[-1]
    assert found.name == "LogGOPSim"
    if lost:
        assert found.times_ns == ()
        assert re.fullmatch(r"LogGOPSim stopped after \d+ of \d+ events", found.note)
    else:
        assert found.times_ns == (6700,) * 5
        assert "LogGOPSim: adds g to every message" in run(tmp_path).output


def test_a_fraction_of_a_nanosecond_is_not_for_loggopsim(tmp_path):
    simulator = Simulator("LogGOPSim", tmp_path / "x.bin", 1)
    with pytest.raises(UnsupportedError, match="takes whole ns for L"):
        simulator.time_ns(FABRIC.at(latency_ns=Fraction(7, 2)))


def test_every_method_tells_its_memory(tmp_path):
    """On Linux peaks can be counted anew; no part has more than the whole."""
    two_ranks(tmp_path)
    peaks = [m.peak_bytes for m in validate(read_trace([tmp_path]), CollectiveSolver(FABRIC)).methods]
    assert len(peaks) == 3
    least = 1 if restart_peak() else 0
    assert least <= min(peaks) <= max(peaks) <= whole_peak_bytes()


def test_json_keeps_its_contract(tmp_path):
    two_ranks(tmp_path)
    result = json.loads(run(tmp_path, "--json").output)
    assert result["schema"] == "atlas-lp/validation"
    assert len(result["points"]) == len(result["methods"][0]["times_ns"]) == 5
    assert result["difference"] < result["tolerance"] == 0.01


def test_a_trace_too_large_to_expand_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr("atlas_lp.program.message_graph.MAX_OPERATIONS", 10)
    two_ranks(tmp_path)
    result = run(tmp_path)
    assert result.exit_code == 0
    assert "monolithic: the whole trace expands to about" in result.output


PAPER_SIZES = (16 << 20, (64 << 20) + 1, 4096)
"""16 to 64 MiB, as in section IV.B of the paper."""


EVERY_KIND = (*EVERY_RANK, "Broadcast", "Reduce")


@pytest.mark.parametrize(
    ("kinds", "uneven"),
    [
        (EVERY_RANK, False),
        pytest.param(EVERY_RANK, True, marks=pytest.mark.slow),
        pytest.param(EVERY_KIND, False, marks=pytest.mark.slow),
        pytest.param(EVERY_KIND, True, marks=pytest.mark.slow),
    ],
)
def test_twenty_random_collectives_of_the_paper_within_one_percent(tmp_path, kinds, uneven):
    """64 GPUs on 16 nodes, less than a tenth of the time between collectives."""
    random_collectives(tmp_path, 0, kinds, uneven=uneven, sizes=PAPER_SIZES)
    assert validate(read_trace([tmp_path]), CollectiveSolver(FABRIC)).difference < 0.01


def test_uneven_ranks_of_sixteen_gpus_within_one_percent(tmp_path):
    """The hardest case of the paper's 64 GPUs, on 4 nodes: a class for every rank, rooted collectives among others."""
    random_collectives(tmp_path, 0, EVERY_KIND, uneven=True, nodes=4, sizes=PAPER_SIZES)
    assert validate(read_trace([tmp_path]), CollectiveSolver(FABRIC)).difference < 0.01


# GPUs of a node differ and nodes do not: 4 nodes have the classes of ranks that 16 have.
@pytest.mark.parametrize("nodes", [4, pytest.param(16, marks=pytest.mark.slow)])
@pytest.mark.parametrize(("uneven", "difference"), [(False, 0.003), (True, 1e-9)])
def test_small_collectives(tmp_path, uneven, difference, nodes):
    """Random compute of up to a third of each collective: uneven ranks have a class each, and nothing is lost."""
    random_collectives(tmp_path, 0, EVERY_KIND, uneven=uneven, nodes=nodes)
    found = validate(read_trace([tmp_path]), CollectiveSolver(FABRIC))
    for composite, whole in zip(times(found)["composite"], times(found)["monolithic"], strict=True):
        assert whole <= composite * (1 + 1e-9)
    assert found.difference < difference
