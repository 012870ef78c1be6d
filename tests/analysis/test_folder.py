"""An analysis on disk: read as it was written or refused, and replaced as one thing or not at all."""

import random
import subprocess
import sys
import time
from itertools import chain

import pytest
from click.testing import CliRunner
from helpers import ROOT
from helpers.damage import cut_or_grown, flipped
from helpers.jobs import two_ranks

from atlas_lp.analysis import folder as folder_module
from atlas_lp.analysis.analyze import analyze
from atlas_lp.analysis.folder import FILES, read_analysis, write_analysis
from atlas_lp.cache.codec import encoded, opened
from atlas_lp.checksum import LINE_BYTES, with_checksum
from atlas_lp.cli import main
from atlas_lp.collectives.solver import CollectiveSolver
from atlas_lp.errors import DamageError, InputError, OutputError
from atlas_lp.fabrics.fabric import load_fabric
from atlas_lp.schemas import ANALYSIS_FILE, CACHE_ENTRY
from atlas_lp.traces.reading.read import read_trace


@pytest.fixture(scope="module")
def analysis(tmp_path_factory):
    """A small job, solved."""
    traces = tmp_path_factory.mktemp("traces")
    two_ranks(traces)
    return analyze(read_trace([traces]), CollectiveSolver(load_fabric()))


@pytest.fixture
def written(tmp_path, analysis):
    """The file that later verbs read."""
    write_analysis(tmp_path / "out", analysis, "a page")
    return tmp_path / "out" / FILES[0]


def test_no_analysis_that_was_changed_is_another_answer(written, analysis):
    content = written.read_bytes()
    assert read_analysis(written.parent).envelope == analysis.envelope
    tried = 0
    for changed in chain(flipped(content), cut_or_grown(content, every=7)):
        tried += 1
        with pytest.raises(DamageError):
            opened(changed, ANALYSIS_FILE)
    assert tried > 8 * len(content)


def test_an_analysis_that_was_changed_is_refused_with_what_to_do(written):
    content = written.read_bytes()
    for changed in chain(flipped(content, every=1009), cut_or_grown(content, every=503)):
        written.write_bytes(changed)
        with pytest.raises(InputError) as refused:
            read_analysis(written.parent)
        assert str(refused.value).startswith(f"{written}: damaged, or no analysis (")
        assert str(refused.value).endswith("); run atlas-lp analyze again")
    result = CliRunner().invoke(main, ["sweep", str(written.parent), "--latency", "0:1us"])
    assert result.exit_code == 2
    assert "run atlas-lp analyze again" in result.stderr


def test_an_analysis_of_an_older_version_is_refused_as_one(written):
    whole = written.read_bytes()
    written.write_bytes(b"ARROW1\0\0" + whole + b"ARROW1")
    with pytest.raises(
        InputError, match=r"written by another version .*it has no checksum.*; run atlas-lp analyze again"
    ):
        read_analysis(written)


def test_an_entry_of_the_cache_is_no_analysis(written, analysis):
    written.write_bytes(encoded(analysis.envelope, CACHE_ENTRY, {"key": "", "about": {}}))
    with pytest.raises(InputError, match="of another kind, atlas-lp/cache-entry"):
        read_analysis(written)


def test_what_says_too_little_is_refused(written, analysis):
    written.write_bytes(encoded(analysis.envelope, ANALYSIS_FILE, {"summary": {}}))
    with pytest.raises(InputError, match="damaged, or no analysis"):
        read_analysis(written)
    written.write_bytes(with_checksum(written.read_bytes()[: -LINE_BYTES // 2], ANALYSIS_FILE))
    with pytest.raises(InputError, match="damaged, or no analysis"):
        read_analysis(written)


def test_a_full_disk_leaves_the_analysis_of_before(tmp_path, analysis, monkeypatch):
    write_analysis(tmp_path / "out", analysis, "a page")
    before = {name: (tmp_path / "out" / name).read_bytes() for name in FILES}

    def full(path, content):
        if path.name == FILES[-1]:
            raise OutputError(path, "No space left on device")
        path.write_bytes(content)

    monkeypatch.setattr(folder_module, "write_file", full)
    changed = analysis.__class__(analysis.envelope, analysis.native, analysis.summary | {"gaps": ["another"]})
    with pytest.raises(OutputError, match=r"out: cannot be written \(No space left on device\)"):
        write_analysis(tmp_path / "out", changed, "another page")
    assert {name: (tmp_path / "out" / name).read_bytes() for name in FILES} == before
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_no_page_of_an_older_analysis_stays(tmp_path, analysis):
    for place in (tmp_path / "out", tmp_path / "with notes"):
        place.mkdir()
        if "notes" in place.name:
            (place / "notes").write_text("kept")
        write_analysis(place, analysis, "a page")
        write_analysis(place, analysis)
        assert {path.name for path in place.iterdir()} - {"notes"} == set(FILES[:2])
    assert (tmp_path / "with notes" / "notes").read_text() == "kept"


@pytest.mark.parametrize("name", ["", "."])
def test_an_empty_name_is_not_the_working_folder(tmp_path, monkeypatch, name):
    (tmp_path / "traces").mkdir()
    two_ranks(tmp_path / "traces")
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(main, ["analyze", "traces", "--no-cache", "-o", name])
    assert result.exit_code == (0 if name else 2), result.output
    assert (tmp_path / FILES[0]).exists() == bool(name)
    assert "the name is empty" in result.stderr or name
    assert (tmp_path / "traces").is_dir()


@pytest.mark.slow
def test_an_analysis_that_is_killed_leaves_that_of_before(tmp_path):
    """The command itself, at any time of its life: afterwards page, summary and planes are of one and the same run."""
    (tmp_path / "traces").mkdir()
    two_ranks(tmp_path / "traces")
    when = random.Random(11)
    command = [sys.executable, "-m", "atlas_lp", "analyze", str(tmp_path / "traces"), "--no-cache", "-f"]
    command += ["-o", str(tmp_path / "out"), "--latency"]
    wholes = []
    for latency in ("1us", "2us"):
        subprocess.run([*command, latency], check=True, cwd=ROOT, stdout=subprocess.DEVNULL)
        wholes.append([(tmp_path / "out" / name).read_bytes() for name in FILES])
    began = time.monotonic()
    subprocess.run([*command, "2us"], check=True, cwd=ROOT, stdout=subprocess.DEVNULL)
    takes = time.monotonic() - began
    for number in range(5):
        running = subprocess.Popen([*command, "1us" if number % 2 else "2us"], cwd=ROOT, stdout=subprocess.DEVNULL)
        time.sleep(when.uniform(0.7, 1.05) * takes)
        running.kill()
        running.wait()
        assert [(tmp_path / "out" / name).read_bytes() for name in FILES] in wholes
    subprocess.run([*command, "1us"], check=True, cwd=ROOT, stdout=subprocess.DEVNULL)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "traces"]
