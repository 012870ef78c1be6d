"""Pictures of schedules, those of docs/schedules.md among them, and the ``goal`` verbs that describe a collective."""

import json
import os
import re
import shlex
import subprocess
import sys
import xml.etree.ElementTree as ET
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from helpers import ROOT
from helpers.graphs import fabric
from helpers.schedules import nodes_of
from matplotlib.colors import to_rgb
from matplotlib.image import imread

from atlas_lp.cli import main
from atlas_lp.errors import GoalError
from atlas_lp.goal import SEND, event_graph, read_goal
from atlas_lp.report.figures.schedule import MESSAGES, WORK, draw_schedule
from atlas_lp.signatures.algorithms.expand import expand
from atlas_lp.signatures.nccl.protocols import Protocol
from atlas_lp.signatures.signature import ring_signature
from atlas_lp.signatures.topology import assumed_rings
from atlas_lp.solver.axis import point
from atlas_lp.solver.longest_path import Evaluator

PAGE = ROOT / "docs" / "schedules.md"
PICTURES = dict(re.findall(r"^\$ (atlas-lp goal draw .* -o (\S+\.svg))$", PAGE.read_text("utf-8"), re.MULTILINE))


SVG = "{http://www.w3.org/2000/svg}"


def content(text: str | bytes) -> tuple[dict[str, int], list[str]]:
    """What a picture shows, whatever version of matplotlib drew it: shapes by kind, and its texts but for numbers."""
    root = ET.fromstring(text)
    kinds = [words for words, *_ in (*WORK.values(), *MESSAGES.values())]
    shapes = {
        group.get("id", ""): sum(element.tag in (f"{SVG}path", f"{SVG}use") for element in group.iter())
        - sum(element.tag == f"{SVG}path" for defs in group.iter(f"{SVG}defs") for element in defs.iter())
        for group in root.iter(f"{SVG}g")
        if group.get("id") in kinds
    }
    texts = sorted(element.text or "" for element in root.iter(f"{SVG}text"))
    return shapes, [text for text in texts if not re.fullmatch(r"[\d.]+", text)]


@pytest.mark.parametrize("command", PICTURES, ids=PICTURES.get)
def test_pictures_of_the_documentation_are_current(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    name = PICTURES[command]
    assert CliRunner().invoke(main, shlex.split(command)[1:]).exit_code == 0
    kept = ROOT / "docs" / "images" / "schedules" / name
    found = content(Path(name).read_text("utf-8"))
    assert found == content(kept.read_text("utf-8")), f"run in docs/images/schedules: {command} -f"
    assert sum(found[0].values()) > 10
    assert f"images/schedules/{name})" in PAGE.read_text("utf-8")


def test_no_picture_is_left_over() -> None:
    assert {p.name for p in (ROOT / "docs" / "images" / "schedules").iterdir()} == set(PICTURES.values())


def small(ranks: int = 4) -> tuple[object, ...]:
    nodes = nodes_of(ranks // 2, 2)
    signature = ring_signature("AllReduce", Protocol.SIMPLE, 4096, assumed_rings(nodes, 1), nodes, nccl="2.26")
    return expand(signature), np.array(signature.nodes)


def drawn(kind: str = "svg", title: str = "a < b", ranks: int = 4) -> tuple[bytes, object]:
    schedule, nodes = small(ranks)
    graph = event_graph(schedule, nodes)  # type: ignore[arg-type]
    end_ns = Evaluator(graph, fabric(1000, 1).theta()).times_ns(point(Fraction(1000), Fraction(1)))[graph.vertex]
    return draw_schedule(schedule, nodes.tolist(), end_ns, title, kind), schedule  # type: ignore[arg-type, attr-defined]


def test_a_picture_shows_every_calc_and_message_once() -> None:
    text, schedule = drawn()
    shapes, texts = content(text)
    work = {words for words, _ in WORK.values()}
    assert sum(count for words, count in shapes.items() if words in work) == schedule.count(0)  # type: ignore[attr-defined]
    assert sum(count for words, count in shapes.items() if words not in work) == schedule.count(SEND)  # type: ignore[attr-defined]
    assert {"a < b", "time (us)", *shapes} <= set(texts)
    assert [text for text in texts if text.startswith("node")] == ["node 0   0", "node 1   2"]


@pytest.mark.parametrize(("kind", "begins"), [("svg", b"<?xml"), ("png", b"\x89PNG"), ("pdf", b"%PDF")])
def test_equal_schedules_are_equal_bytes_in_every_format(kind: str, begins: bytes) -> None:
    first, second = drawn(kind)[0], drawn(kind)[0]
    assert first.startswith(begins)
    assert first == second


def test_work_of_almost_no_time_is_seen(run: object) -> None:
    """What GPUs of an NVLS AllReduce take to send is next to nothing beside what they take to receive."""
    options = ["--type", "allreduce", "--algorithm", "nvls", "--size", "1MiB", "--ranks", "4", "--gpus-per-node", "4"]
    assert run("draw", *options, "-o", "nvls.png").exit_code == 0  # type: ignore[operator]
    pixels = imread("nvls.png")[..., :3]
    _, color = WORK[(False, True)]
    rows, _ = np.nonzero(np.abs(pixels - np.array(to_rgb(color))).max(axis=2) < 0.05)
    legend = 1
    assert np.count_nonzero(np.diff(np.unique(rows)) > 1) + 1 == 4 + legend


def test_a_schedule_that_takes_no_time_can_be_drawn() -> None:
    schedule, nodes = small()
    zeros = np.zeros(len(schedule), dtype=np.int64)  # type: ignore[arg-type]
    assert b"nan" not in draw_schedule(schedule, nodes.tolist(), zeros)  # type: ignore[arg-type, attr-defined]


def test_too_large_to_be_read() -> None:
    with pytest.raises(GoalError, match=r"42 ranks and .* do not fit a picture"):
        drawn(ranks=42)


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> object:
    monkeypatch.chdir(tmp_path)
    return lambda *words: CliRunner().invoke(main, ["goal", *words])


@pytest.mark.parametrize(
    ("kind", "algorithm", "extra", "assumed"),
    [
        ("allreduce", "tree", ["--protocol", "ll128", "--tree-pattern", "split"], "pattern split"),
        ("allreduce", "nvls_tree", [], "NVLSTree is an approximation"),
        ("allreduce", "collnet_chain", [], "CollNetChain is an approximation"),
        ("allreduce", "collnet_direct", [], "CollNetDirect is an approximation"),
        ("alltoall", "ring", [], "32 channels, 2 per peer"),
        ("alltoall", "p2p", ["--channels", "4", "--channels-per-peer", "1"], "4 channels, 1 per peer"),
        ("reduce", "ring", ["--root", "3", "--dtype", "float16"], "rings are assumed"),
        ("allreduce", "ring", ["--nccl", "2.19.3", "--channels", "3"], "rings are assumed"),
    ],
)
def test_expand_solves_every_algorithm(run: object, kind: str, algorithm: str, extra: list[str], assumed: str) -> None:
    options = ["--type", kind, "--algorithm", algorithm, "--size", "64KiB", "--ranks", "8", "--gpus-per-node", "4"]
    result = run("expand", *options, *extra, "--solve", "--json")  # type: ignore[operator]
    assert result.exit_code == 0, result.output
    found = json.loads(result.output)
    assert found["makespan_ns"] > 0
    assert any(assumed in text for text in found["assumptions"])


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--type", "broadcast", "--algorithm", "tree"], "tree does AllReduce, not Broadcast"),
        (["--type", "alltoall", "--protocol", "ll"], "p2p runs the Simple protocol only"),
        (["--type", "allreduce", "--algorithm", "p2p"], "p2p does AllToAll, not AllReduce"),
        (["--type", "allgather", "--algorithm", "pat", "--gpus-per-node", "2"], "every node has one GPU"),
        (["--type", "allreduce", "--gpus-per-node", "3"], "do not fill nodes of 3 GPUs"),
        (["--type", "reduce", "--root", "9"], "root 9 is not one of 4 ranks"),
        (["--type", "allreduce"], "nothing to do"),
    ],
)
def test_expand_refuses(run: object, options: list[str], said: str) -> None:
    result = run("expand", *options, "--size", "64KiB", "--ranks", "4")  # type: ignore[operator]
    assert result.exit_code == 2
    assert said in result.stderr


def test_one_rank_per_node(run: object) -> None:
    options = ["--type", "allreduce", "--algorithm", "tree", "--size", "1MiB", "--ranks", "8", "--gpus-per-node", "4"]
    assert run("expand", *options, "--per-node", "-o", "node.goal").exit_code == 0  # type: ignore[operator]
    assert read_goal(Path("node.goal")).ranks == 2
    assert run("expand", *options, "-o", "gpu.goal").exit_code == 0  # type: ignore[operator]
    fewer = json.loads(run("solve", "node.goal", "--json").output)  # type: ignore[operator]
    whole = json.loads(run("solve", "gpu.goal", "--gpus-per-node", "4", "--json").output)  # type: ignore[operator]
    assert fewer["makespan_ns"] == pytest.approx(whole["makespan_ns"], rel=1e-4)
    slopes = [[row["messages"] for row in found["envelopes"]["latency"]] for found in (fewer, whole)]
    assert slopes[0] == slopes[1]


def test_draw_needs_a_file(run: object) -> None:
    result = run("draw", "--type", "allreduce", "--size", "1KiB", "--ranks", "2")  # type: ignore[operator]
    assert (result.exit_code, "give one with -o FILE.svg, .png or .pdf" in result.stderr) == (2, True)
    result = run("draw", "--type", "allreduce", "--size", "1KiB", "--ranks", "2", "-o", "x.gif")  # type: ignore[operator]
    assert result.exit_code == 2
    assert result.stderr == "Error: x.gif: not the name of a picture; end it in .svg, .png or .pdf\n"


SETTINGS = "text.usetex: True\nfont.size: 40\nbackend: nonsense\n"


@pytest.mark.parametrize("kind", ["svg", "png", "pdf"])
def test_pictures_do_not_depend_on_the_settings_of_matplotlib(kind: str, tmp_path: Path) -> None:
    (tmp_path / "matplotlibrc").write_text(SETTINGS)
    words = ["goal", "draw", "--type", "allreduce", "--size", "1KiB", "--ranks", "2", "-o"]
    names = [tmp_path / f"{name}.{kind}" for name in ("mine", "theirs")]
    for name, more in zip(names, ({}, {"MPLBACKEND": "²", "MATPLOTLIBRC": str(tmp_path)}), strict=True):
        environment = {k: v for k, v in os.environ.items() if not k.startswith(("MPLB", "MATPLOTLIB"))} | more
        command = [sys.executable, "-m", "atlas_lp", *words, str(name)]
        done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout.split(", ")[0]) == (0, f"{name}: 2 ranks"), done.stderr
    assert names[0].read_bytes() == names[1].read_bytes()


def test_settings_that_cannot_be_read_are_a_refusal(tmp_path: Path) -> None:
    (tmp_path / "matplotlibrc").write_bytes(b"font.size: \xff\xfe\n")
    words = ["goal", "draw", "--type", "allreduce", "--size", "1KiB", "--ranks", "2", "-o", "x.svg"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "atlas_lp", *words]
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].startswith("Error: matplotlib, which draws the picture, does not start ")
