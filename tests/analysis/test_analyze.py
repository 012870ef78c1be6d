"""The main job through the library: contracts of the summary, caching, determinism, gaps named."""

import json
from copy import deepcopy
from fractions import Fraction
from itertools import pairwise

import pytest
from helpers.jobs import two_ranks

from atlas_lp.analysis.analyze import analyze
from atlas_lp.analysis.as_json import tolerance_json
from atlas_lp.analysis.folder import FILES, json_text, read_analysis, write_analysis
from atlas_lp.cache import Store
from atlas_lp.collectives.solver import CollectiveSolver
from atlas_lp.errors import InputError
from atlas_lp.fabrics.fabric import load_fabric
from atlas_lp.report.words import headline
from atlas_lp.solver.envelope import Box
from atlas_lp.traces.reading.read import read_trace

FABRIC = load_fabric()


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """Folder of the cache that the analysis of the demo fills."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def analysis(demo, store):
    """The demo, solved."""
    return run([demo], store=Store(store))


@pytest.fixture
def summary(analysis):
    """The summary of the demo, for this test alone."""
    return deepcopy(analysis.summary)


def run(names, *, store=None, gpus_per_node=None, fabric=FABRIC, box=None):
    trace = read_trace(names)
    if gpus_per_node:
        trace = trace.placed(gpus_per_node)
    return analyze(trace, CollectiveSolver(fabric, box or Box(), store or Store(None)))


def test_summary_keeps_its_contract(summary):
    assert (summary["schema"], summary["version"]) == ("atlas-lp/summary", 1)
    assert summary["native"] == {"latency_ns": 3700, "gap_ns_per_byte": 0.04, "bandwidth_gbps": 200.0}
    assert {"makespan_ns", "measured_ns", "envelopes", "joint", "certificate", "cache", "assumptions", "gaps"} <= set(
        summary
    )
    assert set(summary["envelopes"]["latency"][0]) == {"from_ns", "to_ns", "constant_ns", "messages"}
    assert set(summary["envelopes"]["gap"][0]) == {"from_ns_per_byte", "to_ns_per_byte", "constant_ns", "bytes"}
    assert set(summary["joint"][0]) == {"constant_ns", "messages", "bytes"}
    certificate = summary["certificate"]
    assert certificate["status"] == "optimal"
    assert certificate["pivots"] == 0
    assert certificate["largest_relative_difference"] <= 1e-9
    assert summary["trace"]["synthetic"] is True
    json.dumps(summary)


def test_pieces_join_and_cover_the_box(summary):
    pieces = summary["envelopes"]["latency"]
    assert (pieces[0]["from_ns"], pieces[-1]["to_ns"]) == (0, 10**6)
    for left, right in pairwise(pieces):
        assert left["to_ns"] == right["from_ns"]
        assert left["messages"] < right["messages"]
        here = [p["constant_ns"] + p["messages"] * left["to_ns"] for p in (left, right)]
        assert here[0] == pytest.approx(here[1], rel=1e-12)


def test_breakdown_and_shares_add_up_to_the_makespan(summary):
    assert sum(summary["breakdown"].values()) == pytest.approx(summary["makespan_ns"], rel=1e-12)
    inside = sum(summary["breakdown"].values()) - summary["breakdown"]["compute_and_idle_ns"]
    assert sum(s["path_ns"] for s in summary["signatures"]) == pytest.approx(inside, rel=1e-12)


def test_native_time_is_near_what_the_synthetic_job_measured(summary):
    assert summary["makespan_ns"] == pytest.approx(summary["measured_ns"], rel=0.02)
    assert summary["replay_ns"] == pytest.approx(summary["measured_ns"], rel=1e-3)


def test_second_run_hits_and_is_byte_identical_but_for_the_counters(demo, store, summary):
    first, second = summary, run([demo], store=Store(store)).summary
    assert second["cache"] == {"hits": len(second["signatures"]), "misses": 0}
    assert first["cache"] == {"hits": 0, "misses": len(second["signatures"])}
    for summary in (first, second):
        del summary["cache"]
    assert json_text(first) == json_text(second)


def test_shuffled_rows_and_renamed_files_change_nothing(summary, store, tmp_path):
    """Not even a key: every collective is found in the cache that the files in order have filled."""
    from atlas_lp.traces.synthetic.demo import _DemoWriter, training_step

    job = _DemoWriter(0, 4, 4)
    for step in training_step(16):
        job.run(step)
    job.finish()
    for number, export in enumerate(job.exports):
        export.write(tmp_path / f"{9 - number}-renamed.sqlite", shuffle_seed=number)
    shuffled = run([tmp_path], store=Store(store)).summary
    assert shuffled.pop("cache") == {"hits": len(summary["signatures"]), "misses": 0}
    del summary["cache"]
    assert shuffled == summary


def test_analysis_reads_back_as_written(analysis, tmp_path):
    write_analysis(tmp_path / "out", analysis, "a page")
    again = read_analysis(tmp_path / "out")
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == sorted(FILES)
    assert again.envelope.vectors == analysis.envelope.vectors
    assert again.native == (3700, Fraction(1, 25))
    where = Fraction(12345), Fraction(1, 30)
    assert again.envelope.time_ns(*where) == analysis.envelope.time_ns(*where)
    assert json.loads((tmp_path / "out" / "summary.json").read_text()) == json.loads(json_text(analysis.summary))


@pytest.mark.parametrize("content", [b"", b"junk", b"ARROW1\0\0"])
def test_damaged_analysis_is_refused(tmp_path, content):
    (tmp_path / "analysis.arrow").write_bytes(content)
    with pytest.raises(InputError, match="damaged"):
        read_analysis(tmp_path)


def test_one_node_is_flat_and_says_why(tmp_path):
    two_ranks(tmp_path, nodes=1)
    summary = run([tmp_path]).summary
    assert [p["messages"] for p in summary["envelopes"]["latency"]] == [0]
    assert [gap["code"] for gap in summary["gaps"]] == ["one-node"]
    assert "--gpus-per-node" in summary["gaps"][0]["message"]
    spread = run([tmp_path], gpus_per_node=1).summary
    assert spread["gaps"] == []
    assert spread["envelopes"]["latency"][-1]["messages"] > 0


def test_real_trace_placed_on_two_nodes(data_dir):
    path = data_dir / "nsys" / "ddp_2gpu_nccl2.28_nsys2026.3.sqlite"
    flat, spread = run([path]).summary, run([path], gpus_per_node=1).summary
    assert [p["messages"] for p in flat["envelopes"]["latency"]] == [0]
    assert [gap["code"] for gap in flat["gaps"]] == ["one-node"]
    assert all(p["messages"] > 0 for p in spread["envelopes"]["latency"])
    assert flat["makespan_ns"] == pytest.approx(flat["measured_ns"], rel=0.05)


def test_every_inferred_field_is_among_the_assumptions(summary):
    assumptions = "\n".join(summary["assumptions"])
    for words in ("no congestion", "o 200 ns", "topology: assumed", "protocol: inferred", "GH200", "last rank arrives"):
        assert words in assumptions


def test_tolerance_is_exact(analysis):
    envelope = analysis.envelope
    native = envelope.time_ns(Fraction(3700), Fraction(1, 25))
    found = tolerance_json(envelope, FABRIC, 5)
    for latency, gap in ((found["latency_ns"], 0.04), (3700, found["gap_ns_per_byte"])):
        assert float(envelope.time_ns(Fraction(latency), Fraction(gap)) / native) == pytest.approx(1.05, rel=1e-9)


def test_headline_is_one_sentence_with_units(summary):
    text = headline(summary)
    assert text.count(". ") == 0
    for words in ("L = 3.7 us", "200 Gbps", " ms", "+5 %"):
        assert words in text


def test_native_point_outside_the_box_is_refused_before_any_work(demo, tmp_path):
    store = Store(tmp_path)
    with pytest.raises(InputError, match="--latency-box"):
        run([demo], store=store, fabric=FABRIC.at(latency_ns=Fraction(10**7)))
    assert (store.hits, store.misses) == (0, 0)


def test_reading_tells_how_far_it_is(demo):
    told = []
    read_trace([demo], progress=lambda *now: told.append(now))
    files = list(demo.glob("*.sqlite"))
    total = sum(file.stat().st_size for file in files) >> 20
    assert total > 0
    assert len(told) == len(files) + 1
    assert (told[0], told[-1]) == (("reading (MB)", 0, total), ("reading (MB)", total, total))
    assert told == sorted(told)
