"""The Python API: what docs/python.md shows runs, quantities are read alike, arrays broadcast, imports are lazy."""

import doctest
import re
import subprocess
import sys
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest
from helpers import ROOT
from helpers.jobs import two_ranks

import atlas_lp
from atlas_lp import api
from atlas_lp.analysis.answer import exact
from atlas_lp.solver.axis import GAP, LATENCY


@pytest.fixture(scope="module")
def ring():
    return atlas_lp.solve(atlas_lp.collective("AllReduce", "8MiB", 8, gpus_per_node=2, channels=2))


@pytest.fixture(scope="module")
def traces(tmp_path_factory):
    folder = tmp_path_factory.mktemp("traces")
    two_ranks(folder)
    return folder


def test_the_page_runs_as_it_stands(tmp_path, monkeypatch):
    """Line by line, on two ranks in the place of the demo."""
    (tmp_path / "demo" / "traces").mkdir(parents=True)
    two_ranks(tmp_path / "demo" / "traces")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ATLAS_LP_CACHE", str(tmp_path / "cache"))
    (code,) = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "python.md").read_text("utf-8"), flags=re.S)
    assert len(code.splitlines()) <= 13
    names: dict[str, object] = {}
    exec(code, names)
    assert names["a"].T("23.7us", "400Gbps") > 0
    assert names["ring"].ranks == 64


def test_the_docstring_is_true():
    assert doctest.testmod(atlas_lp).failed == doctest.testmod(api).failed == 0


def test_every_name_is_there_and_the_page_names_it():
    page = (ROOT / "docs" / "python.md").read_text("utf-8")
    assert sorted({*atlas_lp.__all__} - {"__version__"}) == sorted(api.__all__)
    for name in api.__all__:
        assert getattr(atlas_lp, name) is getattr(api, name)
        assert re.search(rf"\b{name}\b", page), name
    assert {*atlas_lp.__all__} <= {*dir(atlas_lp)}
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        atlas_lp.nothing  # noqa: B018


def test_import_loads_nothing_heavy():
    code = "import sys, atlas_lp; print(sorted({m.split('.')[0] for m in sys.modules} & {'numpy', 'numba', 'pyarrow'}))"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert result.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("asked", "axis", "value"),
    [
        ("4us", LATENCY, 4000),
        (4000, LATENCY, 4000),
        (3.7, LATENCY, Fraction(37, 10)),
        (np.float64(0.5), LATENCY, Fraction(1, 2)),
        (0, LATENCY, 0),
        ("200Gbps", GAP, Fraction(1, 25)),
        ("25GB/s", GAP, Fraction(1, 25)),
        (200, GAP, Fraction(1, 25)),
        (np.int64(200), GAP, Fraction(1, 25)),
        (Fraction(800, 3), GAP, Fraction(3, 100)),
    ],
)
def test_quantities(asked, axis, value):
    assert exact(asked, axis) == value


@pytest.mark.parametrize(
    ("latency", "bandwidth", "words"),
    [
        ("4", None, "no unit"),
        ("4 parsec", None, "parsec"),
        (-1, None, "-1 is no latency"),
        (float("nan"), None, "nan is no latency"),
        (None, 0, "0 is no bandwidth"),
        (None, float("inf"), "inf is no bandwidth"),
        ("2ms", None, "outside the analysed range"),
        (["4us", "2ms"], None, "outside the analysed range"),
        (None, [[1.0], [100]], "outside the analysed range"),
    ],
)
def test_what_is_no_quantity_is_refused(ring, latency, bandwidth, words):
    with pytest.raises(atlas_lp.AtlasError, match=words):
        ring.T(latency, bandwidth)


def test_arrays_are_the_exact_values_rounded(ring):
    latencies, bandwidths = ["0", "3.7us", 50_000, "1ms"], [[10], ["200Gbps"], [6400.0]]
    found = ring.T(latencies, bandwidths)
    assert found.shape == (3, 4)
    for row, (bandwidth,) in zip(found, bandwidths, strict=True):
        for value, latency in zip(row, latencies, strict=True):
            assert value == pytest.approx(ring.T(latency, bandwidth), rel=1e-14)
    assert ring.T([]).shape == (0,)


def test_tables_say_what_the_function_is(ring):
    pieces = ring.pieces("latency").to_pylist()
    for piece in pieces:
        for latency in (piece["from_ns"], piece["to_ns"]):
            assert ring.T(latency) == pytest.approx(piece["constant_ns"] + piece["messages"] * latency)
    assert ring.pieces("bandwidth").column_names == ["from_ns_per_byte", "to_ns_per_byte", "constant_ns", "bytes"]
    at = [row["constant_ns"] + 4000 * row["messages"] + row["bytes"] / 25 for row in ring.planes.to_pylist()]
    assert max(at) == pytest.approx(ring.T("4us", "200Gbps"))
    with pytest.raises(atlas_lp.AtlasError, match="latency or bandwidth, not along 'gap'"):
        ring.pieces("gap")


def test_the_tolerance_is_where_t_reaches_it(ring):
    found = ring.tolerance(percent=5)
    assert ring.T(found.latency_ns) == pytest.approx(1.05 * ring.T())
    assert ring.T(bandwidth=found.bandwidth_gbps) == pytest.approx(1.05 * ring.T())
    assert ring.tolerance(10_000_000) == atlas_lp.Tolerance(10_000_000, None, None)
    with pytest.raises(atlas_lp.AtlasError, match="not a number of 0 or more"):
        ring.tolerance(-1)


def test_an_analysis_has_tables_and_words(traces):
    found = atlas_lp.analyze(traces, cache=False)
    assert isinstance(found, atlas_lp.Answer)
    assert found.T() == found.summary["makespan_ns"]
    assert isinstance(found.signatures, pa.Table)
    assert found.signatures["count"].to_pylist() == [row["count"] for row in found.summary["signatures"]]
    assert found.gaps.to_pylist() == found.summary["gaps"]
    assert found.assumptions == found.summary["assumptions"]
    again = atlas_lp.analyze(atlas_lp.read(traces, gpus_per_node=2), atlas_lp.fabric(latency="9us"), cache=False)
    assert again.native == (9000, Fraction(1, 25))
    assert again.gaps["code"].to_pylist() == ["one-node"]


def test_schedules_and_files_are_solved_alike(ring, tmp_path):
    from atlas_lp.goal import write_goal

    signature = atlas_lp.collective("AllReduce", "8MiB", 8, gpus_per_node=2, channels=2)
    schedule = atlas_lp.expand(signature)
    write_goal(schedule, tmp_path / "ring.goal")
    for what in (schedule, tmp_path / "ring.goal"):
        found = atlas_lp.solve(what, gpus_per_node=2)
        for where in (("0", "200Gbps"), ("1ms", "10Gbps")):
            assert found.T(*where) == ring.T(*where)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"ranks": 6, "gpus_per_node": 4}, "do not fill nodes"),
        ({"protocol": "fast"}, "'fast' is not one of"),
        ({"size": "8"}, ""),
        ({"algorithm": "tree", "kind": "AllGather"}, "tree does AllReduce"),
    ],
)
def test_what_nccl_does_not_do_is_refused(arguments, words):
    given = {"kind": "AllReduce", "size": "8MiB", "ranks": 8, **arguments}
    if not words:
        assert atlas_lp.collective(**given).size_bytes == 8
        return
    with pytest.raises(atlas_lp.AtlasError, match=words):
        atlas_lp.collective(**given)
