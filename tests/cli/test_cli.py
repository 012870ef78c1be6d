"""The command line: the words people see, exit codes, JSON contracts, nothing written on a refusal."""

import json
import re
from fractions import Fraction
from pathlib import Path

import pytest
from click.testing import CliRunner
from helpers.jobs import COMMUNICATOR, SIMPLE, processes, two_ranks, write

from atlas_lp.cli import main

VERBS = ["inspect", "analyze", "sweep", "path", "validate", "goal", "cache", "demo"]


@pytest.fixture
def run(monkeypatch, tmp_path):
    """Run a command line with its own cache; return the result."""
    monkeypatch.setenv("ATLAS_LP_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)

    def invoke(*words):
        return CliRunner().invoke(main, [str(word) for word in words], catch_exceptions=False)

    return invoke


@pytest.fixture
def job(tmp_path):
    folder = tmp_path / "job"
    folder.mkdir()
    two_ranks(folder)
    return folder


def files(folder):
    return sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file())


@pytest.mark.parametrize("verb", VERBS)
def test_help_of_every_verb_has_an_example(run, verb):
    result = run(verb, "--help")
    assert result.exit_code == 0
    assert f"atlas-lp {verb}" in result.output.split("Example:")[1]


def test_version(run):
    assert run("--version").output.startswith("atlas-lp, version 0.")


def test_analyze_prints_the_answer_and_names_the_report(run, job):
    result = run("analyze", job, "-o", "out")
    lines = result.output.splitlines()
    assert result.exit_code == 0
    assert lines[0] == "SYNTHETIC TRACE: no cluster was measured."
    assert lines[1].startswith("At L = 3.7 us and 200 Gbps the recorded schedule takes ")
    assert lines[-1] == "report: out/report.html"
    assert "cache: 0 hits, 1 misses" in lines


def test_analyze_json_is_the_summary_file(run, job, tmp_path):
    result = run("analyze", job, "-o", "out", "--json")
    assert json.loads(result.output) == json.loads((tmp_path / "out" / "summary.json").read_text())


def test_analyze_needs_somewhere_to_put_the_result(run, job):
    result = run("analyze", job)
    assert result.exit_code == 2
    assert result.stderr == "Error: nowhere to put the result: give a folder with -o, or --json\n"


def test_analyze_does_not_overwrite_without_force(run, job, tmp_path):
    assert run("analyze", job, "-o", "out").exit_code == 0
    before = {p: (tmp_path / "out" / p).read_bytes() for p in files(tmp_path / "out")}
    result = run("analyze", job, "-o", "out")
    assert result.exit_code == 2
    assert result.stderr == ("Error: out: holds analysis.arrow already; overwrite with -f or choose another with -o\n")
    assert {p: (tmp_path / "out" / p).read_bytes() for p in files(tmp_path / "out")} == before
    assert run("analyze", job, "-o", "out", "-f").exit_code == 0


@pytest.mark.parametrize("verb", ["inspect", "analyze"])
def test_a_missing_file_is_one_line(run, verb, tmp_path):
    extra = ["-o", "out"] if verb == "analyze" else []
    result = run(verb, "nosuch.sqlite", *extra)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.count("\n") == 1
    assert "nosuch.sqlite: no such file" in result.stderr
    assert files(tmp_path) == []


def test_native_point_can_be_set(run, job):
    native = json.loads(run("analyze", job, "--json", "--latency", "10us", "--bandwidth", "400Gbps").output)["native"]
    assert native == {"latency_ns": 10_000, "gap_ns_per_byte": 0.02, "bandwidth_gbps": 400.0}


def test_native_point_outside_the_box(run, job):
    result = run("analyze", job, "-o", "out", "--latency", "2ms")
    assert result.exit_code == 2
    assert "outside the analysed range 0 ns .. 1 ms; solve again with a wider --latency-box" in result.stderr
    assert run("analyze", job, "-o", "out", "--latency", "2ms", "--latency-box", "0:5ms").exit_code == 0


@pytest.mark.parametrize(
    ("option", "value", "words"),
    [
        ("--latency", "4", "'4' is not a time: 'no unit' is not one of"),
        ("--latency", "4 parsecs", "'parsecs' is not one of"),
        ("--bandwidth", "0Gbps", "a bandwidth of zero"),
        ("--latency-box", "0", "write LO:HI or LO:HI:N"),
    ],
)
def test_quantities_are_explained(run, job, option, value, words):
    result = run("analyze", job, "-o", "out", option, value)
    assert result.exit_code == 2
    assert words in result.stderr


def test_stats_are_one_line_of_json_on_stderr(run, job):
    result = run("analyze", job, "-o", "out", "--stats")
    stats = json.loads(result.stderr)
    assert stats["schema"] == "atlas-lp/stats"
    assert set(stats["seconds"]) == {"read", "solve", "write"}
    assert stats["peak_memory_mb"] > 0
    assert "seconds" not in result.stdout


def test_sweep_points_lie_on_the_envelope(run, job):
    from atlas_lp.analysis.folder import read_analysis

    run("analyze", job, "-o", "out")
    rows = json.loads(run("sweep", "out", "--latency", "0:100us:6", "--json").output)["rows"]
    analysis = read_analysis(job.parent / "out")
    assert [row["latency_ns"] for row in rows] == [0, 20_000, 40_000, 60_000, 80_000, 100_000]
    for row in rows:
        exact = analysis.envelope.time_ns(Fraction(row["latency_ns"]), Fraction(1, 25))
        assert row["time_ns"] == pytest.approx(float(exact), rel=1e-12)


def test_sweep_of_bandwidth_takes_equal_steps_of_bandwidth(run, job):
    run("analyze", job, "-o", "out")
    rows = json.loads(run("sweep", "out", "--bandwidth", "100Gbps:400Gbps:4", "--json").output)["rows"]
    assert [round(8 / row["gap_ns_per_byte"]) for row in rows] == [100, 200, 300, 400]


def test_sweep_without_a_number_gives_the_pieces(run, job):
    run("analyze", job, "-o", "out")
    result = json.loads(run("sweep", "out", "--latency", "1us:1ms", "--json").output)
    assert result["kind"] == "pieces"
    assert (result["rows"][0]["from_latency_ns"], result["rows"][-1]["to_latency_ns"]) == (1000, 10**6)
    assert [r["messages"] for r in result["rows"]] == sorted({r["messages"] for r in result["rows"]})


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "give one of --latency LO:HI[:N] and --bandwidth LO:HI[:N]"),
        (("--latency", "0:1us", "--bandwidth", "1Gbps:2Gbps"), "give one of --latency"),
        (("--latency", "0:2ms:3"), "outside the analysed range 0 ns .. 1 ms"),
        (("--bandwidth", "1Gbps:100Gbps"), "outside the analysed range 10 Gbps .. 10 Tbps"),
    ],
)
def test_sweep_refusals(run, job, words, message):
    run("analyze", job, "-o", "out")
    result = run("sweep", "out", *words)
    assert (result.exit_code, result.stdout) == (2, "")
    assert message in result.stderr


def test_a_range_of_one_point_is_that_point(run, job):
    run("analyze", job, "-o", "out")
    for option, key, value in (("--latency", "23.7us", 23_700), ("--bandwidth", "400Gbps", 0.02)):
        found = json.loads(run("sweep", "out", option, f"{key}:{key}", "--json").output)
        (row,) = found["rows"]
        assert found["kind"] == "points"
        assert row["latency_ns" if option == "--latency" else "gap_ns_per_byte"] == value
        assert run("sweep", "out", option, f"{key}:{key}").exit_code == 0


@pytest.mark.parametrize("number", ["nan", "inf"])
@pytest.mark.parametrize(
    "words",
    [
        ("sweep", "out", "--latency", "0:1us", "--at-most"),
        ("validate", "out", "--tolerance"),
        ("goal", "solve", "x.goal", "--tolerance"),
    ],
)
def test_a_threshold_is_a_finite_number(run, words, number):
    result = run(*words, number)
    assert result.exit_code == 2
    assert "not a finite number" in result.stderr or "not in the range" in result.stderr


def test_sweep_of_nothing(run):
    result = run("sweep", "nowhere", "--latency", "0:1us")
    assert result.stderr == ("Error: nowhere: no analysis here; make one with: atlas-lp analyze TRACE -o nowhere\n")


def test_expand_then_solve_the_file_is_expand_solve(run):
    options = ["--type", "allreduce", "--size", "1MiB", "--ranks", "8", "--gpus-per-node", "4", "--channels", "2"]
    assert run("goal", "expand", *options, "-o", "a.goal.zst").exit_code == 0
    from_file = json.loads(run("goal", "solve", "a.goal.zst", "--gpus-per-node", "4", "--json").output)
    direct = json.loads(run("goal", "expand", *options, "--solve", "--json").output)
    assert from_file["schema"] == direct["schema"] == "atlas-lp/envelope"
    for key in ("envelopes", "joint", "native", "makespan_ns", "tolerance"):
        assert from_file[key] == direct[key]


def test_expand_writes_the_file_and_solves(run):
    options = ["--type", "allreduce", "--size", "1MiB", "--ranks", "8", "--gpus-per-node", "4"]
    assert run("goal", "expand", *options, "-o", "alone.goal").exit_code == 0
    solved = run("goal", "expand", *options, "--solve")
    both = run("goal", "expand", *options, "--solve", "-o", "both.goal")
    assert both.stdout.splitlines()[0].startswith("both.goal: 8 GOAL ranks (one per GPU, 2 nodes), ")
    assert both.stdout.splitlines()[1:] == solved.stdout.splitlines()
    assert Path("both.goal").read_bytes() == Path("alone.goal").read_bytes()
    refused = run("goal", "expand", *options, "--solve", "-o", "both.goal")
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert refused.stderr == "Error: both.goal: exists already; overwrite with -f or choose another with -o\n"
    as_json = run("goal", "expand", *options, "--solve", "--json", "-f", "-o", "both.goal", "--per-node")
    assert json.loads(as_json.stdout) == json.loads(run("goal", "expand", *options, "--solve", "--json").stdout)
    assert Path("both.goal").read_text().startswith("num_ranks 2\n")


def test_export_of_a_whole_trace_solves_to_the_program(run, job):
    """Two collectives one after the other on two ranks: the message graph and the composition agree."""
    assert run("goal", "export", job, "-o", "step.goal").exit_code == 0
    whole = json.loads(run("goal", "solve", "step.goal", "--json").output)
    composed = json.loads(run("analyze", job, "--json").output)
    assert whole["makespan_ns"] == pytest.approx(composed["makespan_ns"], rel=1e-3)
    assert whole["makespan_ns"] <= composed["makespan_ns"]


def test_export_of_one_signature(run, job):
    key = json.loads(run("inspect", job, "--json").output)["signatures"][0]["key"]
    assert run("goal", "export", job, "--signature", key[:10], "-o", "one.goal").exit_code == 0
    result = run("goal", "export", job, "--signature", "zz", "-o", "two.goal")
    assert result.exit_code == 2
    assert "no signature of this trace begin with 'zz'" in result.stderr


def test_goal_files_of_other_tools(run, data_dir):
    arguments = ["--latency", "1us", "--bandwidth", "1GB/s", "--bandwidth-box", "0.5GB/s:10GB/s", "--json"]
    result = json.loads(run("goal", "solve", data_dir / "goal" / "binary_tree_32.goal", *arguments).output)
    assert result["graph"]["ranks"] == 32
    assert result["envelopes"]["latency"][-1]["messages"] == 5


def test_goal_syntax_error_names_line_and_column(run, tmp_path):
    (tmp_path / "bad.goal").write_text("num_ranks 1\nrank 0 {\nl1: clac 5\n}\n")
    result = run("goal", "solve", "bad.goal")
    assert result.exit_code == 2
    assert "bad.goal, line 3, column 5" in result.stderr


def test_cache_ls(run, job):
    assert run("cache", "ls").output.startswith("0 entries, 0 B in ")
    run("analyze", job, "-o", "out")
    listed = json.loads(run("cache", "ls", "--json").output)
    assert listed["schema"] == "atlas-lp/cache"
    assert sorted(entry["type"] for entry in listed["entries"]) == ["AllReduce", "program"]
    assert " program " in run("cache", "ls").output


def test_demo_writes_trace_and_report(run, tmp_path):
    result = run("demo", "-o", "demo")
    assert result.exit_code == 0
    assert result.output.splitlines()[-2:] == ["trace:  demo/traces", "report: demo/report.html"]
    assert files(tmp_path / "demo" / "traces") == [f"node{n}.sqlite" for n in range(4)]
    assert run("demo", "-o", "demo").exit_code == 2
    (tmp_path / "demo" / "traces" / "notes").write_text("kept")
    for again in (("demo", "-f", "-o", "demo"), ("analyze", "demo/traces", "-f", "-o", "demo")):
        assert run(*again).exit_code == 0
        traces = [*(f"traces/node{n}.sqlite" for n in range(4)), "traces/notes"]
        assert files(tmp_path / "demo") == ["analysis.arrow", "report.html", "summary.json", *traces]


def test_nothing_but_errors_of_the_project_reach_the_user(run, tmp_path):
    """A folder that cannot be written is a refusal, too."""
    (tmp_path / "file").write_text("")
    result = run("demo", "-o", "file")
    assert result.exit_code == 2
    assert "exists and is not a folder" in result.stderr


def steps_of_unequal_length(folder, measured, late=0):
    """A reduction per step of 10 ms, inside an NVTX range "step" of its own; the compute before it differs.

    Rank 1 computes *late* ns longer.
    """
    exports, ranks = processes(2, 1)
    for rank, process in enumerate(ranks):
        at = 1_000_000
        for length in measured:
            arrives = at + length - 2_000_000 + rank * late
            process.user_range("step", at, at + length)
            process.kernel("compute", stream=7, start_ns=at + 10_000, end_ns=arrives, call_ns=at + 2_000)
            process.collective(
                "AllReduce",
                size_bytes=1 << 20,
                communicator=COMMUNICATOR,
                stream=17,
                start_ns=arrives,
                end_ns=at + length - 1_000_000,
                channels=2,
                threads=SIMPLE,
                reduction="Sum",
                call_ns=at + 5_000,
            )
            at += length
    write(exports, folder)


def test_iterations_are_reported_with_their_spread(run, tmp_path):
    (tmp_path / "steps").mkdir()
    steps_of_unequal_length(tmp_path / "steps", [20_000_000, 10_000_000, 11_000_000])
    result = run("analyze", "steps", "--range", "step", "--json")
    rows = json.loads(result.output)["iterations"]
    assert len(rows) == 3
    assert rows[0]["makespan_ns"] > rows[2]["makespan_ns"] >= rows[1]["makespan_ns"]
    printed = run("analyze", "steps", "--range", "step", "-o", "out").output
    assert "Iterations at the native point (spread " in printed
    alone = run("analyze", "steps", "--range", "step", "--iteration", "1", "--json")
    assert "iterations" not in json.loads(alone.output)
    assert json.loads(alone.output)["makespan_ns"] == rows[1]["makespan_ns"]


def test_iterations_of_one_rank_are_what_that_rank_saw(run, tmp_path):
    (tmp_path / "steps").mkdir()
    steps_of_unequal_length(tmp_path / "steps", [20_000_000, 10_000_000], late=900_000)
    step = ("analyze", "steps", "--range", "step", "--json")
    every = json.loads(run(*step).output)["iterations"]
    seen = json.loads(run(*step, "--rank", "0").output)["iterations"]
    assert len(seen) == len(every) == 2
    for k, row in enumerate(seen):
        assert row["makespan_ns"] < every[k]["makespan_ns"]
        alone = json.loads(run(*step, "--rank", "0", "--iteration", str(k)).output)
        assert row["makespan_ns"] == alone["makespan_ns"]


SOLVE = ["goal", "expand", "--type", "allreduce", "--size", "1MiB", "--ranks", "8", "--gpus-per-node", "4", "--solve"]


def test_quotient_and_full_expansion_print_the_same_envelope(run):
    small, full = (json.loads(run(*SOLVE, "--json", *extra).output) for extra in ([], ["--no-quotient"]))
    assert (small["graph"]["method"], full["graph"]["method"]) == ("quotient", "full")
    assert full["graph"]["vertices"] > small["graph"]["vertices"]
    assert (small["joint"], small["envelopes"]) == (full["joint"], full["envelopes"])


def test_a_tolerance_is_kept_and_reported(run):
    result = json.loads(run(*SOLVE, "--tolerance", "5", "--json").output)
    exact = json.loads(run(*SOLVE, "--json").output)
    assert 0 < result["tolerance_reached"] <= 0.05
    assert len(result["joint"]) < len(exact["joint"])
    assert any("stopped early: T lies at most" in line for line in result["assumptions"])


def test_the_sweep_is_the_reference_on_its_grid(run):
    sweep = json.loads(run(*SOLVE, "--solver", "sweep", "--points", "5", "--json").output)
    exact = json.loads(run(*SOLVE, "--json").output)["envelopes"]["latency"]
    assert sweep["schema"] == "atlas-lp/lp-sweep"
    for piece in sweep["latency"]:
        x = piece["to_ns"]
        true = max(p["constant_ns"] + p["messages"] * x for p in exact)
        assert piece["constant_ns"] + piece["messages"] * x == pytest.approx(true, rel=1e-9)


def test_other_directions_and_lp_export(run, tmp_path):
    result = json.loads(run(*SOLVE, "--along", "compute=0.5:2", "--write-lp", "x.mps", "--json").output)
    assert (result["component"], result["pieces"][0]["from"], result["pieces"][-1]["to"]) == ("calc_ns", 0.5, 2)
    assert (tmp_path / "x.mps").read_text().startswith("* The least time T of a LogGP graph")
    assert (tmp_path / "x.mps").read_text().splitlines()[4].startswith("NAME")
    for wrong in ("speed=1:2", "compute=1", "compute=a:b", "overhead=1:2"):
        refused = run(*SOLVE, "--along", wrong)
        assert refused.exit_code == 2
        assert f"--along '{wrong}'" in refused.stderr


def test_costs_can_be_replaced(run, tmp_path):
    (tmp_path / "npkit_Simple.json").write_text(json.dumps({"NPKIT_EVENT_GPU_SEND": {"65536": [999_000]}}))
    base = json.loads(run(*SOLVE, "--json").output)["makespan_ns"]
    slow = json.loads(run(*SOLVE, "--costs", "npkit_Simple.json", "--json").output)["makespan_ns"]
    assert slow > base + 900_000
    refused = run(*SOLVE, "--costs", "nosuch.toml")
    assert (refused.exit_code, refused.stderr.count("\n")) == (2, 1)


def test_what_if_is_said_first_by_every_verb(run, job):
    as_recorded = json.loads(run("analyze", job, "--json").output)
    result = run("analyze", job, "--compute", "2", "--free", "allreduce", "-o", "out")
    said = result.output.splitlines()[1:3]
    assert said[0].startswith("WHAT IF ")
    assert said[0].endswith(" takes 2 times as long as measured.")
    assert said[1] == "WHAT IF allreduce takes no time."
    assert run("sweep", "out", "--latency", "0:10us").output.splitlines()[1:3] == said
    changed = json.loads(run("analyze", job, "--compute", "2", "--free", "allreduce", "--json").output)
    assert as_recorded["what_if"] == []
    assert changed["measured_ns"] == as_recorded["measured_ns"]
    assert changed["breakdown"]["compute_and_idle_ns"] == changed["makespan_ns"]
    assert changed["tolerance"]["latency_ns"] is None


def test_what_if_refuses_what_it_cannot_read(run, job):
    result = run("analyze", job, "--compute", "half", "--json")
    assert result.exit_code == 2
    assert "'half' is not a factor: write a number, such as 0.5 or 1.25x" in result.stderr
    result = run("analyze", job, "--free", "Broadcast", "--json")
    assert result.exit_code == 2
    assert result.stderr == (
        "Error: no collective 'Broadcast' in this trace: it has AllReduce; "
        "`atlas-lp inspect` lists keys and communicators\n"
    )


def test_path_prints_the_steps_and_writes_the_picture(run, job, tmp_path):
    makespan = json.loads(run("analyze", job, "--json").output)["makespan_ns"]
    result = run("path", job, "-o", "path.svg", "--top", "1")
    lines = result.output.splitlines()
    assert lines[0] == "SYNTHETIC TRACE: no cluster was measured."
    assert lines[1].startswith("Critical path at L = 3.7 us, 200 Gbps: T = ")
    assert lines[2].startswith("The 1 longest of ")
    assert lines[-4].startswith("the other ")
    assert lines[-3] == "2 messages: copy 100 %; GPU 1 to 0 100 %"
    assert lines[-1] == "picture: path.svg"
    assert (tmp_path / "path.svg").read_text().startswith("<?xml")
    found = json.loads(run("path", job, "--json").output)
    assert found["makespan_ns"] == makespan == sum(step["duration_ns"] for step in found["steps"])
    for slope in ("messages", "bytes"):
        assert found["hops"][slope][slope] == sum(step.get(slope, 0) for step in found["steps"])
    assert run("path", job, "-o", "path.svg").stderr.startswith("Error: path.svg: exists already; overwrite with -f")
    assert run("path", job, "-o", "path.txt").exit_code == 2


def test_path_answers_outside_the_usual_range(run, job):
    found = json.loads(run("path", job, "--latency", "1s", "--bandwidth", "1Mbps", "--json").output)
    assert (found["latency_ns"], found["gap_ns_per_byte"]) == (10**9, 8000)
    assert found["makespan_ns"] > 10**9


@pytest.mark.parametrize(
    ("option", "good", "bad", "words"),
    [
        ("--latency", "0:4us", "0:1ms", r"at 1 ms, more than 1 %: latency may rise to \d"),
        ("--bandwidth", "190Gbps:1Tbps", "10Gbps:1Tbps", r"at 10 Gbps, more than 1 %: bandwidth may fall to \d"),
    ],
)
def test_a_threshold_that_is_exceeded_is_exit_code_one(run, job, option, good, bad, words):
    assert run("analyze", job, "-o", "out").exit_code == 0
    assert run("sweep", "out", option, good, "--at-most", "1").exit_code == 0
    result = run("sweep", "out", option, bad, "--at-most", "1")
    assert result.exit_code == 1
    assert re.search(words, result.stderr)
    assert result.output.startswith("SYNTHETIC TRACE")
    reach = result.stderr.split(" to ")[-1].strip().replace(" ", "")
    value = f"0:{reach}" if option == "--latency" else f"{reach}:1Tbps"
    assert run("sweep", "out", option, value, "--at-most", "1.1").exit_code == 0
