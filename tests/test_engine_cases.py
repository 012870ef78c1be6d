"""Inputs that an independent brute force and simulators found wrong in 0.1, each with the value that is right."""

import json
import os
from pathlib import Path

import pytest
from click.testing import CliRunner

from atlas_lp.cli import main

DATA = os.environ.get("ATLAS_LP_DATA")
pytestmark = pytest.mark.skipif(not DATA, reason="ATLAS_LP_DATA names no folder of real inputs")
CASES = Path(DATA or ".") / "cases" / "engine"


def solved(*arguments: object) -> dict:
    found = CliRunner().invoke(main, ["goal", *map(str, arguments), "--json"], catch_exceptions=False)
    assert found.exit_code == 0, found.output
    return json.loads(found.output)


def expanded(words: str, *more: object) -> dict:
    return solved("expand", *words.split(), "--solve", *more)


def test_a_ready_message_does_not_wait():
    assert solved("solve", CASES / "order_tree" / "min.goal")["makespan_ns"] == 1_004_100


@pytest.mark.parametrize(("latency", "microseconds"), [("3.7us", 100), ("20us", 133), ("100us", 452)])
def test_a_tree_whose_ports_serve_who_is_ready(latency, microseconds):
    tree = "--type allreduce --algorithm tree --protocol ll128 --size 1MiB --ranks 3"
    assert round(expanded(tree, "--latency", latency)["makespan_ns"] / 1000) == microseconds


def test_a_bracket_is_one():
    result = expanded("--type allreduce --size 18870760 --ranks 512 --gpus-per-node 4 --channels 8")
    assert result["graph"]["method"] == "bracket"
    assert result["makespan_ns"] >= 3_184_920


@pytest.mark.parametrize(
    ("words", "nics"),
    [
        ("--type alltoall --size 4KiB --ranks 8 --gpus-per-node 4 --channels 1 --channels-per-peer 1", 2),
        ("--type alltoall --size 100000 --ranks 15 --gpus-per-node 3 --channels 8", 1),
    ],
)
def test_classes_with_ingress_are_exact(words, nics):
    fabric = CASES / "quotient_ingress" / f"ingress_nic{nics}.toml"
    small, full = (expanded(words, "--fabric", fabric, *more) for more in ([], ["--no-quotient"]))
    assert small["graph"]["vertices"] < full["graph"]["vertices"]
    assert small["envelopes"] == full["envelopes"]


def test_thousands_of_planes():
    assert len(solved("solve", CASES / "planes_explosion" / "stage_200.goal")["joint"]) == 4_865


def test_a_message_of_a_petabyte():
    assert solved("solve", CASES / "message_1e15_bytes" / "x.goal")["certificate"]["status"] == "optimal"


def test_a_written_lp_has_its_optimum_in_ns(tmp_path):
    solved("solve", CASES / "write_lp_scaled" / "x.goal", "--write-lp", tmp_path / "x.lp")
    assert "+1000000" in (tmp_path / "x.lp").read_text("ascii")
