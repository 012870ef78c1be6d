"""The critical path at a point: its steps add up to T, name who did what, and make a picture that never changes."""

import io
from fractions import Fraction
from pathlib import Path
from xml.etree import ElementTree

import networkx
import pytest
from helpers.jobs import COMMUNICATOR
from helpers.programs import MS, overlapped_gradients
from helpers.solving import FABRIC, GAP, reduction_ns

from atlas_lp.analysis.as_json import steps_json
from atlas_lp.analysis.path_graph import check_graph_name, graphml
from atlas_lp.collectives.solver import CollectiveSolver
from atlas_lp.errors import InputError
from atlas_lp.program.job import solve_job
from atlas_lp.report.figures.critical_path import draw_timeline
from atlas_lp.report.figures.style import check_kind
from atlas_lp.solver.envelope import Box
from atlas_lp.traces.reading.read import read_trace


@pytest.fixture
def job(tmp_path):
    overlapped_gradients(tmp_path)
    box = Box(latency_to_ns=Fraction(10 * MS))
    return solve_job(read_trace([tmp_path]), CollectiveSolver(FABRIC, box))


def named(job, latency):
    steps = job.critical_path(Fraction(latency), GAP)
    return steps, [(row.get("type", "GPU work"), row["duration_ns"]) for row in steps_json(job, steps)]


def test_while_there_is_slack_one_reduction_is_on_the_path(job, tmp_path):
    one = reduction_ns(tmp_path, Fraction(3700))
    steps, words = named(job, 3700)
    assert words == [("GPU work", 10 * MS), ("AllReduce", one), ("GPU work", 2 * MS)]
    assert steps[-1].end_ns == 12 * MS + one


def test_without_slack_both_are(job, tmp_path):
    steps, words = named(job, 10 * MS)
    assert [name for name, _ in words] == ["GPU work", "AllReduce", "AllReduce", "GPU work"]
    assert words[0][1] == 5 * MS
    assert steps[1].messages == steps[2].messages > 0


def test_steps_follow_each_other_and_say_where(job):
    steps, _ = named(job, 50_000)
    now = 0
    for step, row in zip(steps, steps_json(job, steps), strict=True):
        assert step.begin_ns == now
        now = step.end_ns
        assert (step.gpu is None) == ("communicator" in row)
        assert row.get("communicator", f"{COMMUNICATOR:#x}") == f"{COMMUNICATOR:#x}"
        assert row.get("gpu", 0) in (0, 1)


def test_a_late_gpu_is_named(tmp_path):
    """What one GPU alone saw is on that GPU."""
    overlapped_gradients(tmp_path)
    job = solve_job(read_trace([tmp_path]), CollectiveSolver(FABRIC), gpu=1)
    assert {step.gpu for step in job.critical_path(Fraction(0), GAP)} == {None, 1}


def test_the_picture_is_well_formed_and_always_the_same(job):
    rows = steps_json(job, job.critical_path(Fraction(10 * MS), GAP))
    picture = draw_timeline(rows, "T")
    assert ElementTree.fromstring(picture).tag.endswith("svg")
    assert picture == draw_timeline(rows, "T")
    assert draw_timeline(rows, "T", "png") == draw_timeline(rows, "T", "png")
    assert draw_timeline([], "nothing")


def test_many_gpus_and_communicators_share_lanes():
    from atlas_lp.report.figures.critical_path import _lanes, _place

    rows = [{"begin_ns": i, "duration_ns": 1 + i, "gpu": i} for i in range(20)]
    rows += [
        {"begin_ns": i, "duration_ns": 1 + i, "type": "AllReduce", "ranks": 2, "communicator": hex(i)}
        for i in range(20)
    ]
    names = sorted(set(_lanes(rows)), key=_place)
    assert names[:8] == [*(f"GPU {i}" for i in range(13, 20)), "GPUs, others"]
    assert names[8:] == [*sorted(f"2 ranks, {hex(i)}" for i in range(13, 20)), "other communicators"]


def test_only_pictures_are_written(tmp_path):
    with pytest.raises(InputError, match=r"path\.txt: not the name of a picture; end it in \.svg, \.png or \.pdf"):
        check_kind(tmp_path / "path.txt")


def test_the_path_is_a_graph_to_take_away(job, tmp_path):
    rows = steps_json(job, job.critical_path(Fraction(10 * MS), GAP))
    (tmp_path / "path.graphml").write_bytes(graphml(rows))
    graph = networkx.read_graphml(tmp_path / "path.graphml", node_type=int)
    assert list(graph.nodes) == list(range(len(rows)))
    assert list(graph.edges) == [(i, i + 1) for i in range(len(rows) - 1)]
    for number, row in enumerate(rows):
        node = graph.nodes[number]
        assert node["begin_ns"] == pytest.approx(row["begin_ns"])
        assert node["duration_ns"] == pytest.approx(row["duration_ns"])
        assert node.get("gpu") == row.get("gpu")
        assert node.get("communicator") == row.get("communicator")
        assert node["what"] == row.get("type", "GPU work and idle time")
        if number:
            assert graph.edges[number - 1, number]["messages"] == row.get("messages", 0)
            assert graph.edges[number - 1, number]["bytes"] == row.get("bytes", 0)
    assert graphml(rows) == graphml(rows)
    assert networkx.read_graphml(io.BytesIO(graphml([]))).number_of_nodes() == 0
    with pytest.raises(InputError, match=r"end it in \.graphml"):
        check_graph_name(Path("path.dot"))
