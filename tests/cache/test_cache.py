"""The store of solved envelopes: hits, misses with reasons, damage, equal results with and without."""

import json
from fractions import Fraction

import pytest
from helpers.jobs import two_ranks

from atlas_lp.cache import Miss, Store, default_folder
from atlas_lp.collectives.solver import envelope_key, solve_cached
from atlas_lp.errors import CacheError
from atlas_lp.fabrics.fabric import load_fabric
from atlas_lp.program.job import solve_job
from atlas_lp.program.what_if import WhatIf
from atlas_lp.signatures.nccl.protocols import Protocol
from atlas_lp.signatures.signature import ring_signature
from atlas_lp.signatures.topology import assumed_rings
from atlas_lp.solver.envelope import Box
from atlas_lp.traces.reading.read import read_trace

FABRIC = load_fabric()
NODES = [0, 0, 1, 1]


def signature(size=1 << 20):
    return ring_signature("AllReduce", Protocol.SIMPLE, size, assumed_rings(NODES, 2), NODES, nccl="2.28")


def test_second_look_up_hits_and_gives_the_same_envelope(tmp_path):
    first, second = Store(tmp_path), Store(tmp_path)
    solved = solve_cached(signature(), FABRIC, Box(), first)
    again = solve_cached(signature(), FABRIC, Box(), second)
    assert (first.hits, first.misses) == (0, 1)
    assert (second.hits, second.misses) == (1, 0)
    assert again == solved == solve_cached(signature(), FABRIC, Box(), Store(None))


def test_a_program_is_solved_once(tmp_path):
    trace_folder, cache = tmp_path / "traces", tmp_path / "cache"
    trace_folder.mkdir()
    two_ranks(trace_folder)
    trace = read_trace([trace_folder])
    store = Store(cache)
    job = solve_job(trace, FABRIC, Box(), store)
    solved = job.solve(Box(), store)
    assert job.solve(Box(), store) == solved
    assert (store.hits, store.misses) == (1, 2)
    # Another native point asks HiGHS elsewhere; another job or box is another program.
    for other, box in (
        (solve_job(trace, FABRIC.at(latency_ns=Fraction(5)), Box(), store), Box()),
        (solve_job(trace, FABRIC, Box(), store, what_if=WhatIf(Fraction(2))), Box()),
        (job, Box(latency_to_ns=Fraction(10**5))),
    ):
        misses = store.misses
        other.solve(box, store)
        assert store.misses == misses + 1
    assert [entry.about["type"] for entry in store.entries()].count("program") == 4


def test_planes_between_classes_of_ranks_are_kept(tmp_path):
    chain = ring_signature("Broadcast", Protocol.SIMPLE, 1 << 20, assumed_rings(NODES, 2), NODES, nccl="2.28")
    solved = solve_cached(chain, FABRIC, Box(), Store(tmp_path))
    assert solved.classes.count == 4
    assert solve_cached(chain, FABRIC, Box(), Store(tmp_path)) == solved


def test_misses_have_reasons(tmp_path):
    store = Store(tmp_path)
    key = envelope_key(signature(), FABRIC, Box())
    assert Store(None).get(key) is Miss.DISABLED
    assert store.get(key) is Miss.ABSENT
    solve_cached(signature(), FABRIC, Box(), store)
    path = next(tmp_path.glob("??/*.arrow"))
    path.write_bytes(path.read_bytes()[:200])
    assert store.get(key) is Miss.DAMAGED


def test_a_damaged_entry_is_solved_again_and_mended(tmp_path):
    solved = solve_cached(signature(), FABRIC, Box(), Store(tmp_path))
    path = next(tmp_path.glob("??/*.arrow"))
    whole = path.read_bytes()
    path.write_bytes(b"not arrow")
    assert solve_cached(signature(), FABRIC, Box(), Store(tmp_path)) == solved
    assert path.read_bytes() == whole


def test_an_entry_under_another_key_is_not_believed(tmp_path):
    store = Store(tmp_path)
    solve_cached(signature(), FABRIC, Box(), store)
    path = next(tmp_path.glob("??/*.arrow"))
    other = envelope_key(signature(2 << 20), FABRIC, Box())
    (tmp_path / other[:2]).mkdir(exist_ok=True)
    (tmp_path / other[:2] / f"{other}.arrow").write_bytes(path.read_bytes())
    assert store.get(other) is Miss.DAMAGED


def test_the_key_holds_all_that_the_envelope_depends_on():
    box = Box()
    base = envelope_key(signature(), FABRIC, box)
    assert base == envelope_key(signature(), FABRIC.at(latency_ns=Fraction(1)), box)  # the native point is not in it
    others = [
        envelope_key(signature(2 << 20), FABRIC, box),
        envelope_key(signature(), FABRIC, Box(latency_to_ns=Fraction(5))),
        envelope_key(signature(), FABRIC, box, use_symmetry=False),
        *(
            envelope_key(signature(), FABRIC.__class__(**{**FABRIC.__dict__, name: value}), box)
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
    solve_cached(signature(), FABRIC, Box(), Store(tmp_path))
    assert [p.suffix for p in tmp_path.rglob("*") if p.is_file()] == [".arrow"]


def test_a_folder_that_cannot_be_written_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(CacheError, match=r"cannot be written .* choose another with --cache"):
        solve_cached(signature(), FABRIC, Box(), Store(tmp_path / "file"))


def test_entries_are_listed_by_key(tmp_path):
    store = Store(tmp_path)
    for size in (1 << 20, 1 << 10):
        solve_cached(signature(size), FABRIC, Box(), store)
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
