"""The benchmarks run, their graphs are what they say, and costs grow as promised; nothing here looks at a clock."""

import importlib
import re
import subprocess
import sys
from fractions import Fraction

import numpy as np
import pytest
from helpers import ROOT
from helpers.graphs import assert_same_schedule

from atlas_lp.collectives.signature_graph import signature_graph
from atlas_lp.fabrics.fabric import load_fabric
from atlas_lp.goal import CALC, RECV, SEND, event_graph, parse_goal
from atlas_lp.solver.longest_path import Evaluator
from atlas_lp.solver.solve import solve_along

BENCHMARKS = ROOT / "benchmarks"
FAKE_COMPILER = '#!/bin/sh\ncp "$2" "$4"\n'
FAKE_SIMULATOR = """#!/bin/sh
operations=$(grep -cE '(calc|send|recv) ' "$2")
messages=$(grep -c 'send ' "$2")
echo "PERFORMANCE: Processes: 2 Events: $((operations + messages - {lost})) Time: 0 s"
echo "Maximum finishing time at host 1: 6700 (6.7e-06 s)"
"""


@pytest.fixture
def load(monkeypatch):
    """Imports a script of the folder, which is no package."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module


def run(script, *words):
    command = [sys.executable, str(BENCHMARKS / script), *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    "script",
    [
        "engine_vs_sweep.py",
        "joint.py",
        "moe.py",
        pytest.param("composite.py", marks=pytest.mark.slow),
        pytest.param("growth.py", marks=pytest.mark.slow),
    ],
)
def test_every_script_runs_and_prints_a_ratio(script):
    result = run(script, "--quick")
    assert result.returncode == 0, result.stderr
    assert "ratio" in result.stdout
    verdicts = re.findall(r"\*\*(.+?)\*\*", result.stdout)
    assert verdicts
    assert set(verdicts) <= {"holds", "not judged"}


def test_joint_envelope_equals_the_longest_path_at_random_points():
    result = run("joint.py", "--quick", "--points", 50)
    assert result.stdout.count("at 50 random points: 0 differ: **holds**") == 2
    assert "does not hold" not in result.stdout


def programs(folder, lost=0):
    """A compiler that copies and a simulator that always says the same, as options."""
    options = []
    for option, text in (("--compiler", FAKE_COMPILER), ("--simulator", FAKE_SIMULATOR.format(lost=lost))):
        path = folder / option.strip("-")
        path.write_text(text, "ascii")
        path.chmod(0o755)
        options += [option, path]
    return options


def test_loggopsim_is_skipped_where_it_is_not_installed():
    result = run("loggopsim.py", "--quick", "--simulator", "no-such-program")
    assert result.returncode == 0
    assert result.stdout.startswith("skipped")


def test_loggopsim_is_compared(tmp_path):
    result = run("loggopsim.py", "--quick", "--points", 3, *programs(tmp_path))
    assert result.returncode == 0, result.stderr
    assert "ratio" in result.stdout
    assert result.stdout.count("6,700") == 6


def test_loggopsim_that_stops_early_is_refused(tmp_path):
    result = run("loggopsim.py", "--quick", "--points", 2, *programs(tmp_path, lost=1))
    assert result.returncode == 1
    assert "LogGOPSim stopped after" in result.stderr


def test_page_holds_the_output_of_every_script(load, monkeypatch):
    performance = load("performance")
    monkeypatch.setattr(performance, "output", lambda script, words: f"{script.name} {' '.join(words)}")
    page = "\n".join(performance.page(True, [("fork", "sim")], "comp"))
    for line in ("engine_vs_sweep.py", "growth.py", "joint.py", "composite.py", "moe.py", "loggopsim.py"):
        assert f"\n{line} --quick" in page
    assert "--simulator sim --compiler comp" in page
    assert "Run:" not in page


def stencil_text(schedule, ranks, iterations):
    """The stencil as a person would write it; times and sizes are those of *schedule*."""
    calcs = schedule.size[schedule.kind == CALC].reshape(ranks, -1).tolist()
    sends = schedule.size[schedule.kind == SEND].reshape(ranks, iterations, 2).tolist()
    lines = [f"num_ranks {ranks}"]
    for rank in range(ranks):
        left, right = (rank - 1) % ranks, (rank + 1) % ranks
        lines.append(f"rank {rank} {{")
        for i in range(iterations):
            lines += [
                f"calc{i}: calc {calcs[rank][i]}",
                f"a{i}: send {sends[rank][i][0]}b to {left} tag 1",
                f"b{i}: send {sends[rank][i][1]}b to {right} tag 0",
                f"c{i}: recv {sends[left][i][1]}b from {left} tag 0",
                f"d{i}: recv {sends[right][i][0]}b from {right} tag 1",
            ]
            lines += [f"{name}{i} requires calc{i}" for name in "abcd"]
            if i:
                lines += [f"calc{i} requires {name}{i - 1}" for name in ("calc", *"abcd")]
        lines.append("last: calc 0")
        lines += [f"last requires {name}{iterations - 1}" for name in ("calc", *"abcd")]
        lines.append("}")
    return "\n".join(lines)


@pytest.mark.parametrize(("ranks", "iterations"), [(3, 1), (4, 3), (5, 2)])
def test_stencil_is_what_goal_text_says(load, ranks, iterations):
    graphs = load("graphs")
    schedule = graphs.stencil(ranks, iterations, seed=5, message_bytes=graphs.RANDOM_BYTES)
    assert_same_schedule(parse_goal(stencil_text(schedule, ranks, iterations)), schedule)
    assert len(np.unique(schedule.size[schedule.kind == SEND])) > 1


def test_stencil_depends_on_its_seed_alone(load):
    graphs = load("graphs")
    one, again, other = (graphs.stencil(4, 3, seed) for seed in (1, 1, 2))
    assert_same_schedule(one, again)
    assert not np.array_equal(one.size, other.size)


def test_size_of_a_stencil_is_linear(load):
    graphs = load("graphs")
    for ranks, iterations in ((3, 2), (4, 7), (64, 312)):
        schedule = graphs.stencil(ranks, iterations)
        assert len(schedule) == ranks * (5 * iterations + 1)
        assert len(schedule.after) == 9 * ranks * iterations
        assert schedule.count(RECV) == 2 * ranks * iterations
    graph = event_graph(schedule, None, load_fabric().port_rule)
    assert graph.vertices == len(schedule) + 1 == 99_905
    assert abs(len(graphs.stencil_of(10_000)) - 10_000) <= 5 * 64


def test_quotient_of_a_ring_is_linear_in_ranks(load):
    graphs, fabric = load("graphs"), load_fabric()
    found = [signature_graph(graphs.ring(ranks, 2, ranks << 14, 4), fabric) for ranks in (8, 16, 24, 32)]
    assert {one.method for one in found} == {"quotient"}
    assert len(set(np.diff([one.in_order().vertices for one in found]).tolist())) == 1


def counted(monkeypatch):
    """Counts longest paths from here on."""
    asked = []
    at = Evaluator.at
    monkeypatch.setattr(Evaluator, "at", lambda self, where: asked.append(where) or at(self, where))
    return asked


@pytest.mark.parametrize("seed", range(4))
def test_pieces_cost_two_longest_paths_each(load, monkeypatch, seed):
    graphs, fabric = load("graphs"), load_fabric()
    graph = event_graph(graphs.stencil(16, 40, seed, graphs.RANDOM_BYTES), None, fabric.port_rule)
    asked = counted(monkeypatch)
    pieces = solve_along(graph, fabric, "messages", Fraction(0), Fraction(100_000))
    assert len(pieces) >= 3
    assert len(asked) <= 2 * len(pieces) + 1


def test_planes_cost_one_longest_path_each_and_one_a_corner(load, monkeypatch):
    graphs, joint, fabric = load("graphs"), load("joint"), load_fabric()
    graph = event_graph(graphs.stencil(16, 40, 1, graphs.RANDOM_BYTES), None, fabric.port_rule)
    asked = counted(monkeypatch)
    found = joint.find_planes(graph, fabric)
    assert len(found.planes) >= 10
    assert len(asked) == found.evaluations <= len(found.planes) + found.corners


def test_exponents_and_words(load):
    measuring = load("measuring")
    assert measuring.exponent([1, 10, 100], [3, 300, 30_000]) == pytest.approx(2)
    assert [measuring.in_seconds(x) for x in (12.34, 0.9996, 1e-7)] == ["12.3 s", "1000 ms", "0.1 us"]
    assert [measuring.in_bytes(x) for x in (0, 1500, 2.5e9)] == ["0 kB", "1.5 kB", "2.5 GB"]
    assert list(measuring.table(("a", "b"), [("x", 1)])) == ["| a   |   b |", "| --- | --: |", "| x   |   1 |"]
