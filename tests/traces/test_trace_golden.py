"""The real export of two ranks, and what must never change an answer: row order, names, splits, clocks."""

import shutil
import sqlite3
from collections import Counter
from contextlib import closing

import pytest
from helpers.exports import content, edit, operations, read

from atlas_lp.traces.signing.sign import sign

NAME = "nsys/ddp_2gpu_nccl2.28_nsys2026.3.sqlite"
COMMUNICATOR = 13429301450432826988

CLASSES = {
    ("AllReduce", 1536): (25, 1, 128),
    ("AllReduce", 1179648): (48, 4, 544),
    ("AllReduce", 4718592): (36, 4, 544),
    ("AllReduce", 15360000): (2, 4, 544),
    ("AllReduce", 24): (5, 1, 128),
    ("AllReduce", 4): (3, 1, 128),
    ("Broadcast", 1536): (25, 1, 128),
    ("Broadcast", 1179648): (48, 4, 544),
    ("Broadcast", 4718592): (36, 4, 544),
    ("Broadcast", 15360000): (2, 4, 544),
}
"""Operations of each rank, channels and threads, by type and bytes (facts of the file)."""


@pytest.fixture(scope="module")
def golden(data_dir):
    return read(data_dir / NAME)


def test_operations_join_their_kernels(golden):
    assert golden.operations.num_rows == 460
    assert golden.communicators.to_pylist() == [{"id": COMMUNICATOR, "ranks": 2, "generation": 0}]
    assert [tuple(row.values()) for row in golden.members.to_pylist()] == [(0, 0, 0), (0, 1, 1)]
    assert golden.gaps == ()
    found = Counter(operations(golden, "rank", "type", "size_bytes", "channels", "threads"))
    assert found == {(r, *key, *shape): count for key, (count, *shape) in CLASSES.items() for r in (0, 1)}
    assert len({(row["rank"], row["start_ns"]) for row in golden.operations.to_pylist()}) == 460


def test_reductions_are_those_of_the_payload(golden):
    kernels = {row["kernel"] for row in golden.operations.to_pylist() if row["reduction"] == "Avg"}
    assert kernels == {"ncclDevKernel_AllReduce_Sum_bf16_RING_LL"}


def test_signatures_say_where_fields_come_from(golden):
    signed, _ = sign(golden)
    assert len(signed) == 230
    large = next(s for s in signed if s.signature.size_bytes == 4718592 and s.signature.collective == "AllReduce")
    assert (large.signature.protocol.value, large.signature.channels, large.signature.element_bytes) == ("simple", 4, 2)
    assert {field: source.partition(":")[0] for field, source in large.sources} == {
        "algorithm": "inferred",
        "protocol": "inferred",
        "channels": "inferred",
        "element_bytes": "inferred",
        "topology": "assumed",
        "split": "inferred",
    }
    assert golden.nccl_version.value == "2.28"


def rows_of(path):
    with closing(sqlite3.connect(path)) as db:
        names = [name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name")]
        return {name: db.execute(f'SELECT * FROM "{name}"').fetchall() for name in names}


def shuffled(source, target):
    """Store the rows of every table in reverse."""
    shutil.copy(source, target)
    with closing(sqlite3.connect(target)) as db, db:
        for name in rows_of(source):
            if name not in ("StringIds",) and not name.startswith("ENUM"):
                db.execute(f'CREATE TEMP TABLE old AS SELECT * FROM "{name}"')
                db.execute(f'DELETE FROM "{name}"')
                db.execute(f'INSERT INTO "{name}" SELECT * FROM old ORDER BY rowid DESC')
                db.execute("DROP TABLE old")
    return target


def only(source, target, kept):
    """One process of a file."""
    shutil.copy(source, target)
    tables = {"NVTX_EVENTS": "globalTid", "CUPTI_ACTIVITY_KIND_RUNTIME": "globalTid"}
    tables |= {f"CUPTI_ACTIVITY_KIND_{k}": "globalPid" for k in ("KERNEL", "MEMCPY", "MEMSET", "SYNCHRONIZATION")}
    return edit(target, *(f"DELETE FROM {t} WHERE {c} >> 24 & 16777215 != {kept}" for t, c in tables.items()))


def test_rows_names_and_splits_change_nothing(golden, data_dir, tmp_path):
    assert content(read(shuffled(data_dir / NAME, tmp_path / "nsys_report_x.9.sqlite"))) == content(golden)
    parts = [only(data_dir / NAME, tmp_path / f"{13097 - pid}.sqlite", pid) for pid in (13096, 13097)]
    assert content(read(*parts)) == content(read(*parts[::-1])) == content(golden)


def test_a_shift_of_one_clock_moves_times_alone(golden, data_dir, tmp_path):
    parts = [only(data_dir / NAME, tmp_path / f"{pid}.sqlite", pid) for pid in (13096, 13097)]
    edit(parts[1], "UPDATE TARGET_INFO_SESSION_START_TIME SET utcEpochNs = utcEpochNs + 3000000")
    edit(parts[1], "UPDATE TARGET_INFO_SYSTEM_ENV SET value = 'other' WHERE name = 'Hostname'")
    moved = read(*parts)
    same = [c for c in golden.operations.column_names if c not in ("start_ns", "end_ns")]
    assert operations(moved, *same) == operations(golden, *same)
    assert moved.nodes == 2
