"""The store of solved envelopes: hits, misses with reasons, damage, equal results with and without."""

import json
import os
from dataclasses import replace
from fractions import Fraction
from itertools import chain

import pyarrow as pa
import pytest
from click.testing import CliRunner
from helpers.damage import cut_or_grown, flipped
from helpers.jobs import two_ranks

from atlas_lp.cache import Miss, Store, default_folder
from atlas_lp.cache.codec import decoded, encoded, opened
from atlas_lp.checksum import LINE_BYTES, with_checksum
from atlas_lp.cli import main
from atlas_lp.collectives.limits import Limits
from atlas_lp.collectives.solver import CollectiveSolver
from atlas_lp.errors import DamageError
from atlas_lp.fabrics.fabric import load_fabric
from atlas_lp.files import temporary
from atlas_lp.program.job import solve_job
from atlas_lp.program.what_if import WhatIf
from atlas_lp.schemas import ANALYSIS_FILE, CACHE_ENTRY
from atlas_lp.signatures.nccl.protocols import Protocol
from atlas_lp.signatures.signature import ring_signature
from atlas_lp.signatures.topology import assumed_rings
from atlas_lp.solver.envelope import Box, Envelope
from atlas_lp.solver.highs import CheckLimits
from atlas_lp.traces.reading.read import read_trace

FABRIC = load_fabric()
NODES = [0, 0, 1, 1]


def signature(size=1 << 20):
    return ring_signature("AllReduce", Protocol.SIMPLE, size, assumed_rings(NODES, 2), NODES, nccl="2.28")


def test_second_look_up_hits_and_gives_the_same_envelope(tmp_path):
    first, second = Store(tmp_path), Store(tmp_path)
    solved = CollectiveSolver(FABRIC, store=first).envelope(signature())
    again = CollectiveSolver(FABRIC, store=second).envelope(signature())
    assert (first.hits, first.misses) == (0, 1)
    assert (second.hits, second.misses) == (1, 0)
    assert again == solved == CollectiveSolver(FABRIC).envelope(signature())


def test_a_program_is_solved_once(tmp_path):
    trace_folder, cache = tmp_path / "traces", tmp_path / "cache"
    trace_folder.mkdir()
    two_ranks(trace_folder)
    trace = read_trace([trace_folder])
    store = Store(cache)
    solver = CollectiveSolver(FABRIC, store=store)
    job = solve_job(trace, solver)
    solved = job.solve()
    assert job.solve() == solved
    assert (store.hits, store.misses) == (1, 2)
    # Another native point asks HiGHS elsewhere; another job or box is another program.
    for other in (
        solve_job(trace, solver.at(FABRIC.at(latency_ns=Fraction(5)), Box())),
        solve_job(trace, solver, what_if=WhatIf(Fraction(2))),
        solve_job(trace, solver.at(FABRIC, Box(latency_to_ns=Fraction(10**5)))),
    ):
        misses = store.misses
        other.solve()
        assert store.misses == misses + 1
    assert [entry.about["type"] for entry in store.entries()].count("program") == 4


def test_planes_between_classes_of_ranks_are_kept(tmp_path):
    chain = ring_signature("Broadcast", Protocol.SIMPLE, 1 << 20, assumed_rings(NODES, 2), NODES, nccl="2.28")
    solved = CollectiveSolver(FABRIC, store=Store(tmp_path)).envelope(chain)
    assert solved.classes.count == 4
    assert CollectiveSolver(FABRIC, store=Store(tmp_path)).envelope(chain) == solved


def test_misses_have_reasons(tmp_path):
    store = Store(tmp_path)
    key = CollectiveSolver(FABRIC).key(signature())
    assert Store(None).get(key) is Miss.DISABLED
    assert store.get(key) is Miss.ABSENT
    CollectiveSolver(FABRIC, store=store).envelope(signature())
    path = next(tmp_path.glob("??/*.arrow"))
    whole = path.read_bytes()
    path.write_bytes(whole[:200])
    assert store.get(key) is Miss.DAMAGED
    for older in (b"ARROW1\0\0" + whole[:-LINE_BYTES] + b"ARROW1", of_version(CACHE_ENTRY.version + 1, whole)):
        path.write_bytes(older)
        assert store.get(key) is Miss.VERSION
    assert store.reasons == {Miss.ABSENT: 2, Miss.DAMAGED: 1, Miss.VERSION: 2}
    assert store.unusable == {"damaged": 1, "of another version": 2}
    assert (store.hits, store.misses) == (0, 5)


def of_version(version, content):
    """The entry *content* as another version would write it."""
    return with_checksum(content[:-LINE_BYTES], replace(CACHE_ENTRY, version=version))


@pytest.fixture(scope="module")
def entry(tmp_path_factory):
    """A store with one entry, its key and its file."""
    folder = tmp_path_factory.mktemp("cache")
    solver = CollectiveSolver(FABRIC, store=Store(folder))
    solver.envelope(signature(1 << 10))
    (path,) = folder.glob("??/*.arrow")
    return solver.store, path.stem, path


def test_no_entry_that_was_changed_is_another_envelope(entry):
    """Each bit of it flipped, each part of it missing or doubled."""
    _, key, path = entry
    content = path.read_bytes()
    assert opened(content, CACHE_ENTRY)[1]["key"] == key
    tried = 0
    for changed in chain(flipped(content), cut_or_grown(content)):
        tried += 1
        with pytest.raises(DamageError):
            opened(changed, CACHE_ENTRY)
    assert tried > 12 * len(content)


def test_an_entry_that_was_changed_is_a_miss(entry):
    store, key, path = entry
    content = path.read_bytes()
    store.reasons.clear()
    changes = list(chain(flipped(content, every=211), cut_or_grown(content, every=97)))
    for changed in changes:
        path.write_bytes(changed)
        assert store.get(key) is Miss.DAMAGED
    path.write_bytes(content)
    assert isinstance(store.get(key), Envelope)
    assert store.unusable == {"damaged": len(changes)}


def test_files_of_other_kinds_are_misses(entry):
    """An analysis in the place of an entry, an Arrow file of anybody, and columns that no envelope has."""
    store, key, path = entry
    content = path.read_bytes()
    table, about = opened(content, CACHE_ENTRY)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.drop_columns(["messages"]).schema) as writer:
        writer.write_table(table.drop_columns(["messages"]))
    others = [
        encoded(decoded(table, about), ANALYSIS_FILE, about),
        content[:-LINE_BYTES],
        with_checksum(sink.getvalue().to_pybytes(), CACHE_ENTRY),
        with_checksum(b"", CACHE_ENTRY),
        encoded(decoded(table, about), CACHE_ENTRY, {"key": "of another"}),
    ]
    for other in others:
        path.write_bytes(other)
        assert store.get(key) is Miss.DAMAGED
    path.write_bytes(content)


def test_the_answer_says_what_was_damaged_or_older(tmp_path):
    (tmp_path / "traces").mkdir()
    two_ranks(tmp_path / "traces")
    command = [
        "analyze",
        str(tmp_path / "traces"),
        "--cache",
        str(tmp_path / "cache"),
        "-f",
        "-o",
        str(tmp_path / "out"),
    ]
    first = CliRunner().invoke(main, command)
    damaged, older = sorted((tmp_path / "cache").glob("??/*.arrow"))
    damaged.write_bytes(next(flipped(damaged.read_bytes())))
    older.write_bytes(of_version(1, older.read_bytes()))
    second, third = CliRunner().invoke(main, command), CliRunner().invoke(main, command)
    assert "misses; solved again: 1 damaged, 1 of another version\n" in second.stdout
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert summary["cache"] == {"hits": 1, "misses": 0}
    lines = [[line for line in run.stdout.splitlines() if "cache:" not in line] for run in (first, second, third)]
    assert lines[0] == lines[1] == lines[2]


def test_what_killed_writers_left_is_swept_and_counted_by_who_writes(tmp_path):
    store = Store(tmp_path)
    CollectiveSolver(FABRIC, store=store).envelope(signature())
    assert store.swept == 0
    left = [tmp_path / "ab" / f".atlas-lp-{'0' * 16}.arrow", tmp_path / "cd" / f".atlas-lp-{'1' * 16}.arrow"]
    kept = tmp_path / "ab" / ".atlas-lp-mine"
    for path in (*left, kept):
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"half")
    assert len(store.entries()) == 1
    again = Store(tmp_path)
    CollectiveSolver(FABRIC, store=again).envelope(signature())
    assert (again.swept, left[0].exists()) == (0, True)  # it only read
    with temporary(tmp_path / "ab", ".arrow") as held:  # of a writer that is alive
        CollectiveSolver(FABRIC, store=again).envelope(signature(2 << 20))
        assert held.exists()
    assert again.swept == 2
    assert not any(path.exists() for path in left)
    assert kept.exists()


def test_a_damaged_entry_is_solved_again_and_mended(tmp_path):
    solved = CollectiveSolver(FABRIC, store=Store(tmp_path)).envelope(signature())
    path = next(tmp_path.glob("??/*.arrow"))
    whole = path.read_bytes()
    path.write_bytes(b"not arrow")
    assert CollectiveSolver(FABRIC, store=Store(tmp_path)).envelope(signature()) == solved
    assert path.read_bytes() == whole


def test_an_entry_under_another_key_is_not_believed(tmp_path):
    store = Store(tmp_path)
    CollectiveSolver(FABRIC, store=store).envelope(signature())
    path = next(tmp_path.glob("??/*.arrow"))
    other = CollectiveSolver(FABRIC).key(signature(2 << 20))
    (tmp_path / other[:2]).mkdir(exist_ok=True)
    (tmp_path / other[:2] / f"{other}.arrow").write_bytes(path.read_bytes())
    assert store.get(other) is Miss.DAMAGED


def test_the_key_holds_all_that_the_envelope_depends_on():
    box = Box()
    base = CollectiveSolver(FABRIC, box).key(signature())
    # The native point is not in it, because nothing in an entry depends on it.
    assert base == CollectiveSolver(FABRIC.at(latency_ns=Fraction(1)), box).key(signature())
    others = [
        CollectiveSolver(FABRIC, box).key(signature(2 << 20)),
        CollectiveSolver(FABRIC, Box(latency_to_ns=Fraction(5))).key(signature()),
        CollectiveSolver(FABRIC, box, use_symmetry=False).key(signature()),
        *(
            CollectiveSolver(FABRIC, box, limits=Limits(**{name: value})).key(signature())
            for name, value in (
                ("full_operations", 1),
                ("classes", 1),
                ("class_width", 0.5),
                ("class_edges", 1),
                ("class_planes", 1),
                ("ranks", 1),
                ("rank_edges", 1),
                ("check", CheckLimits.nothing()),
            )
        ),
        *(
            CollectiveSolver(FABRIC.__class__(**{**FABRIC.__dict__, name: value}), box).key(signature())
            for name, value in (
                ("overhead_ns", Fraction(1)),
                ("message_gap_ns", Fraction(1)),
                ("up_latency_ns", Fraction(1)),
                ("up_gap_ns_per_byte", Fraction(1)),
                ("reduce_copy", "none"),
                ("credits", "none"),
            )
        ),
    ]
    assert len({base, *others}) == len(others) + 1


def test_no_temporary_files_stay(tmp_path):
    CollectiveSolver(FABRIC, store=Store(tmp_path)).envelope(signature())
    assert [p.suffix for p in tmp_path.rglob("*") if p.is_file()] == [".arrow"]


@pytest.mark.parametrize("what", ["file", "missing/below/file", "\0"])
def test_a_folder_that_cannot_be_written_denies_no_answer(tmp_path, what):
    (tmp_path / "file").write_text("kept")
    folder = tmp_path / ("file/cache" if "file" in what else what)
    store = Store(folder)
    solver = CollectiveSolver(FABRIC, store=store)
    assert solver.envelope(signature()) == CollectiveSolver(FABRIC).envelope(signature())
    assert store.refused
    assert (tmp_path / "file").read_text() == "kept"
    again = solver.envelope(signature())
    assert (store.hits, store.misses) == (0, 2)
    assert again == CollectiveSolver(FABRIC).envelope(signature())


def test_the_answer_says_that_nothing_was_kept(tmp_path, monkeypatch):
    two_ranks(tmp_path)
    (tmp_path / "file").write_text("")
    command = ["analyze", str(tmp_path), "--cache", str(tmp_path / "file" / "cache"), "-o", str(tmp_path / "out")]
    result = CliRunner().invoke(main, command)
    assert result.exit_code == 0, result.output
    assert f"misses; nothing could be kept ({tmp_path}/file/cache: Not a directory)" in result.stdout


@pytest.mark.parametrize("thing", ["folder", "pipe"])
def test_what_is_no_file_is_a_miss(tmp_path, thing):
    solver = CollectiveSolver(FABRIC, store=Store(tmp_path))
    path = solver.store._path(tmp_path, solver.key(signature()))
    path.parent.mkdir()
    path.mkdir() if thing == "folder" else os.mkfifo(path)
    assert solver.store.get(solver.key(signature())) is Miss.DAMAGED
    assert solver.envelope(signature()) == CollectiveSolver(FABRIC).envelope(signature())


def test_entries_are_listed_by_key(tmp_path):
    store = Store(tmp_path)
    for size in (1 << 20, 1 << 10):
        CollectiveSolver(FABRIC, store=store).envelope(signature(size))
    (tmp_path / "ab").mkdir(exist_ok=True)
    (tmp_path / "ab" / "abcd.arrow").write_text("junk")
    entries = store.entries()
    assert [e.key for e in entries] == sorted(e.key for e in entries)
    assert sorted(e.about.get("size_bytes", -1) for e in entries) == [-1, 1 << 10, 1 << 20]
    assert json.dumps([dict(e.about) for e in entries])


def test_folder_comes_from_the_environment(monkeypatch, tmp_path):
    monkeypatch.setenv("ATLAS_LP_CACHE", str(tmp_path / "x"))
    assert default_folder() == tmp_path / "x"
    monkeypatch.delenv("ATLAS_LP_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert default_folder() == tmp_path / "atlas-lp"
