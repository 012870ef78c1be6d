"""A packed trace stands for its exports: the same analysis from a small file, and refusals that say what to do."""

import json
import zipfile
from dataclasses import replace
from itertools import chain

import pyarrow as pa
import pytest
from click.testing import CliRunner
from helpers.damage import cut_or_grown, flipped
from helpers.jobs import two_ranks
from helpers.programs import overlapped_gradients

from atlas_lp.analysis.analyze import analyze
from atlas_lp.checksum import with_checksum
from atlas_lp.cli import main
from atlas_lp.collectives.solver import CollectiveSolver
from atlas_lp.errors import TraceError
from atlas_lp.fabrics.fabric import load_fabric
from atlas_lp.schemas import PACKED_TRACE
from atlas_lp.traces.reading.packed import archived, packed_bytes, read_packed
from atlas_lp.traces.reading.read import read_trace
from atlas_lp.traces.selection import Selection
from atlas_lp.traces.trace import Gap, Topology

FABRIC = load_fabric()


def run(*words):
    return CliRunner().invoke(main, [*map(str, words)], catch_exceptions=False)


def packed(folder, trace):
    path = folder / "step.atlas"
    path.write_bytes(packed_bytes(trace))
    return path


@pytest.mark.parametrize("job", [two_ranks, overlapped_gradients])
def test_the_analysis_of_a_packed_trace_is_that_of_its_exports(tmp_path, job):
    (tmp_path / "exports").mkdir()
    job(tmp_path / "exports")
    trace = read_trace([tmp_path / "exports"])
    again = read_trace([packed(tmp_path, trace)])
    assert packed_bytes(again) == packed_bytes(trace)
    one, other = (analyze(t, CollectiveSolver(FABRIC)) for t in (trace, again))
    assert one.summary == other.summary
    assert one.envelope == other.envelope


def test_what_companions_and_gaps_say_is_kept(tmp_path):
    two_ranks(tmp_path)
    trace = read_trace([tmp_path])
    topology = Topology(rings=((0, 1), (1, 0)), trees=(((-1, (1,)), (0, ())),), source="recorded", p2p_channels=(2, 1))
    told = replace(trace, topologies=(topology,), gaps=(Gap("overlap", 2, "operations"),), work=None)
    again = read_trace([packed(tmp_path, told)])
    assert (again.topologies, again.gaps, again.work) == ((topology,), (Gap("overlap", 2, "operations"),), None)


def test_the_word_of_the_first_version_for_all_to_all_is_understood(tmp_path):
    two_ranks(tmp_path)
    trace = read_trace([tmp_path])
    names = pa.array(["AlltoAll"] * trace.operations.num_rows)
    place = trace.operations.schema.get_field_index("type")
    older = replace(trace, operations=trace.operations.set_column(place, "type", names))
    assert set(read_packed(packed(tmp_path, older)).operations["type"].to_pylist()) == {"AllToAll"}


def test_real_trace(data_dir, tmp_path):
    export = data_dir / "nsys" / "ddp_2gpu_nccl2.28_nsys2026.3.sqlite"
    result = run("pack", export, "-o", tmp_path / "ddp.atlas")
    assert result.exit_code == 0
    assert "ddp.atlas: 2 GPUs, 460 operations, 5012 pieces of GPU work" in result.output
    assert (tmp_path / "ddp.atlas").stat().st_size < export.stat().st_size / 20
    words = ["analyze", "--no-cache", "--json"]
    assert run(*words, export).output == run(*words, tmp_path / "ddp.atlas").output


def test_pack_on_the_command_line(tmp_path):
    two_ranks(tmp_path)
    path = tmp_path / "step.atlas"
    assert run("pack", tmp_path, "-o", path).output.startswith(f"{path}: 2 GPUs, 4 operations")
    refused = run("pack", tmp_path, "-o", path)
    assert refused.exit_code == 2
    assert "exists already" in refused.stderr
    assert "give one with -o FILE.atlas" in run("pack", tmp_path, "-o", tmp_path / "step.zip").stderr
    assert run("inspect", path).output.startswith("2 ranks on 2 nodes")
    (tmp_path / "only").mkdir()
    (tmp_path / "only" / "step.atlas").write_bytes(path.read_bytes())
    assert run("inspect", tmp_path / "only").output == run("inspect", path).output
    alone = run("analyze", path, path.parent / "node0.sqlite", "--json")
    assert alone.exit_code == 2
    assert "is a whole job: give it alone" in alone.stderr
    with pytest.raises(TraceError, match="when packing the exports"):
        read_trace([path], selection=Selection(from_ns=5))


@pytest.mark.parametrize("every", [149, pytest.param(29, marks=pytest.mark.slow)])
def test_no_packed_trace_that_was_changed_is_another_trace(tmp_path, every):
    two_ranks(tmp_path)
    path = packed(tmp_path, read_trace([tmp_path]))
    content = path.read_bytes()
    tried = 0
    for changed in chain(flipped(content, every), cut_or_grown(content, every)):
        tried += 1
        path.write_bytes(changed)
        with pytest.raises(TraceError, match=r"step.atlas: .*pack the trace again"):
            read_packed(path)
    assert tried > 8 * len(content) // every


def test_a_packed_trace_that_was_changed_by_a_tool_is_refused(tmp_path):
    """Every part is whole by itself, and the archive is: what is missing is the word of who wrote it."""
    two_ranks(tmp_path)
    path = packed(tmp_path, read_trace([tmp_path]))
    rezipped(path, parts_of(path))
    with pytest.raises(TraceError, match=r"or changed by another program; pack the trace again"):
        read_packed(path)
    path.write_bytes(with_checksum(b"", replace(PACKED_TRACE, version=3)))
    with pytest.raises(TraceError, match=r"packed by another version of atlas-lp"):
        read_packed(path)


def test_packed_traces_of_the_first_version_have_no_checksum_and_are_read(tmp_path):
    two_ranks(tmp_path)
    trace = read_trace([tmp_path])
    path = packed(tmp_path, trace)
    parts = parts_of(path)
    parts["trace.json"] = json.dumps({**json.loads(parts["trace.json"]), "version": 1}).encode()
    rezipped(path, parts)
    assert packed_bytes(read_packed(path)) == packed_bytes(trace)


def test_a_packed_trace_is_a_zip_archive(tmp_path):
    two_ranks(tmp_path)
    path = packed(tmp_path, read_trace([tmp_path]))
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None
        assert archive.comment.startswith(b"\natlas-lp/trace 2 blake2b ")


def parts_of(path):
    """What lies in the archive, by name."""
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def rezipped(path, parts):
    """The archive as any other tool writes it."""
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in parts.items():
            archive.writestr(name, content)


@pytest.mark.parametrize("damage", ["empty", "cut", "json", "version", "columns", "missing", "absent"])
def test_what_is_no_packed_trace_is_refused(tmp_path, damage):
    two_ranks(tmp_path)
    path = packed(tmp_path, read_trace([tmp_path]))
    parts = parts_of(path)
    about = json.loads(parts["trace.json"])
    if damage == "json":
        parts["trace.json"] = b"{"
    elif damage == "version":
        parts["trace.json"] = json.dumps({**about, "version": 99}).encode()
    elif damage == "columns":
        parts["operations.arrow"] = parts["gpus.arrow"]
    elif damage == "missing":
        del parts["members.arrow"]
    whole = path.read_bytes()
    path.unlink()
    if damage in ("empty", "cut"):
        path.write_bytes(whole[: 0 if damage == "empty" else len(whole) // 2])
    elif damage != "absent":
        path.write_bytes(archived(parts))
    with pytest.raises(TraceError, match=r"step.atlas: .*(pack the trace again|No such file)"):
        read_trace([path])
