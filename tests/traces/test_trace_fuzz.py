"""Damaged files: any cut or changed byte gives a sound trace or an AtlasError, never anything else.

Both must occur, or the damage was none.  A longer run (seeds from 0 to that number):
``PYTHONPATH=tests python tests/traces/test_trace_fuzz.py 10000``.
"""

import gzip
import json
import random
import re
import sqlite3
import sys
import tempfile
from collections import Counter
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.exports import annotated, annotated_broadcast, content, edit, job, operations, rank
from helpers.exports import group as grouped

from atlas_lp.errors import AtlasError
from atlas_lp.traces.companions.companions import Companions
from atlas_lp.traces.reading.packed import packed_bytes, read_packed
from atlas_lp.traces.reading.read import read_trace
from atlas_lp.traces.signing.sign import sign
from atlas_lp.traces.synthetic.writer import ExportWriter
from atlas_lp.traces.trace import OPERATION_COLUMNS, Trace

ROUNDS = 60
VALUES = ("NULL", "-1", "0", "9223372036854775807", "'x'", "x'00ff'", "1e300", "7", "-9223372036854775808")


def whole(folder: Path) -> Path:
    """A job with collectives, a group of messages, copies and user ranges, as bytes of one file."""
    export: ExportWriter = job()
    for number in range(2):
        process = rank(export, number, [], init=False)
        process.user_range("step", 1_000_000, 9_000_000)
        process.memcpy(64, stream=7, start_ns=6_900_000, end_ns=6_910_000, kind="DtoD")
        calls = [
            (f"nccl{kind}", {"NCCL communicator ID": 0xC0FFEE, "Message size [bytes]": 64, "Peer rank": 1 - number})
            for kind in ("Send", "Recv")
        ]
        kernel = {"stream": 17, "start_ns": 7_100_000, "end_ns": 7_200_000, "grid": 2, "block": 640}
        grouped(process, calls, at_ns=7_000_000, kernels=[kernel])
    return export.write(folder / "whole.sqlite", overwrite=True)


def damaged(data: bytes, draw: random.Random) -> bytes:
    """Cut the file, or change some of its bytes."""
    if draw.random() < 0.3:
        return data[: draw.randrange(len(data))]
    changed = bytearray(data)
    for _ in range(draw.choice((1, 4, 64))):
        changed[draw.randrange(len(changed))] = draw.randrange(256)
    return bytes(changed)


def wrong_value(path: Path, draw: random.Random) -> tuple[str, str]:
    """Put a value of another kind into some rows of a column; return its table and its name."""
    with closing(sqlite3.connect(path)) as db:
        tables = [t for (t,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name")]
        tables = [t for t in tables if t.startswith(("NVTX", "CUPTI", "TARGET", "META", "StringIds"))]
        table = draw.choice(tables)
        column = draw.choice([row[1] for row in db.execute(f"PRAGMA table_info({table})")])
    value, one = draw.choice(VALUES), draw.randrange(1, 4)
    with suppress(sqlite3.IntegrityError):
        edit(path, f"UPDATE {table} SET {column} = {value} WHERE rowid % {one} = 0")
    return table, column


def attempt(path: Path, *, signed: bool = True, **options: Any) -> Trace | None:
    """Read and sign: a sound trace, None for a refusal, or any other exception."""
    try:
        trace = read_trace([path], allow_missing=True, **options)
        if signed:
            sign(trace)
    except AtlasError:
        return None
    check(trace)
    packed = path.with_name("packed.atlas")
    packed.write_bytes(packed_bytes(trace))
    assert content(read_packed(packed)) == content(trace)
    packed.unlink()
    return trace


def check(trace: Trace) -> None:
    """What every trace keeps, whatever the file said."""
    assert tuple(trace.operations.column_names) == OPERATION_COLUMNS
    communicator, rank, gpu, size, start, end, channels = (
        trace.column("operations", name)
        for name in ("communicator", "rank", "gpu", "size_bytes", "start_ns", "end_ns", "channels")
    )
    assert len(rank) > 0
    assert 0 <= communicator.min() <= communicator.max() < trace.communicators.num_rows
    assert 0 <= gpu.min() <= gpu.max() < trace.gpus.num_rows
    assert np.all(start <= end)
    assert min(rank.min(), size.min(), channels.min()) >= 0
    members = set(zip(*(trace.column("members", name).tolist() for name in ("communicator", "rank")), strict=True))
    assert set(zip(communicator.tolist(), rank.tolist(), strict=True)) <= members


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    return whole(tmp_path_factory.mktemp("fuzz")).read_bytes()


@pytest.fixture(scope="module")
def undamaged(original, tmp_path_factory):
    """The trace of the file before any damage, and the columns that were looked at to get it."""
    seen = set()
    connect = sqlite3.connect

    def watched(*arguments, **options):
        def allow(action, table, column, *_):
            if action == sqlite3.SQLITE_READ:
                seen.add((table, column))
            return sqlite3.SQLITE_OK

        db = connect(*arguments, **options)
        db.set_authorizer(allow)
        return db

    path = tmp_path_factory.mktemp("fuzz") / "t.sqlite"
    path.write_bytes(original)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sqlite3, "connect", watched)
        trace = attempt(path)
    assert trace is not None
    return trace, seen


def test_cut_exports_are_refused(original, tmp_path):
    path = tmp_path / "t.sqlite"
    for seed in range(ROUNDS // 2):
        path.write_bytes(original[: random.Random(seed).randrange(len(original))])
        assert attempt(path) is None, seed


@pytest.mark.parametrize("seed", range(4))
def test_damaged_exports_are_refused_or_read(original, undamaged, tmp_path, seed):
    found = []
    for number in range(ROUNDS // 4):
        path = tmp_path / "t.sqlite"
        path.write_bytes(damaged(original, random.Random(1000 * seed + number)))
        found.append(attempt(path))
    read = [content(trace) for trace in found if trace is not None]
    assert 0 < len(read) < len(found)
    assert content(undamaged[0]) in read  # most of a file is not looked at


def test_wrong_values_are_refused_or_read(original, undamaged, tmp_path):
    """A value that nobody looks at changes nothing."""
    trace, seen = undamaged
    expected = content(trace)
    outcomes = Counter()
    for number in range(2 * ROUNDS):
        path = tmp_path / "t.sqlite"
        path.write_bytes(original)
        where = wrong_value(path, random.Random(number))
        found = attempt(path)
        if where in seen:
            outcomes["refused" if found is None else "read"] += 1
        else:
            assert found is not None, where
            assert content(found) == expected, where
            outcomes["not looked at"] += 1
    assert min(outcomes[word] for word in ("refused", "read", "not looked at")) >= 3, outcomes


def test_damaged_companions_are_refused_or_read(original, undamaged, tmp_path, data_dir):
    """A line that cannot be read is no line; a log without any is refused.  No line changes what ran when."""
    trace, log = tmp_path / "t.sqlite", tmp_path / "nccl.log"
    trace.write_bytes(original)
    text = next((data_dir / "nccl_logs").iterdir()).read_bytes()[:40_000]
    ran = ("communicator", "rank", "type", "size_bytes", "start_ns", "end_ns")
    for seed in range(ROUNDS // 4):
        log.write_bytes(damaged(text, random.Random(seed)))
        found = attempt(trace, companions=Companions(nccl_logs=[log]))
        assert found is not None, seed
        assert operations(found, *ran) == operations(undamaged[0], *ran)
    log.write_bytes(text[:5])
    assert attempt(trace, companions=Companions(nccl_logs=[log])) is None


def test_damaged_kineto_files_are_refused_or_read(tmp_path, data_dir):
    """The checksum of gzip finds what a text alone cannot tell: other digits."""
    data = (data_dir / "kineto/rank0_of_2_nccl2.17.json.gz").read_bytes()
    packed, plain = tmp_path / "t.json.gz", tmp_path / "t.json"
    text, found = gzip.decompress(data), []
    digits = [at.start() for at in re.finditer(rb"(?<=[1-9])\d", text)]
    for seed in range(ROUNDS // 10):
        draw = random.Random(seed)
        packed.write_bytes(damaged(data, draw))
        assert attempt(packed, signed=False) is None, seed
    for seed in range(2):
        draw = random.Random(seed)
        changed = bytearray(text)
        for place in draw.choices(digits, k=64):
            changed[place] = draw.choice(b"0123456789")
        plain.write_bytes(changed)
        found.append(attempt(plain, signed=False))
    assert any(trace is not None for trace in found)


WORDS = ("-1", "0", "99999999999999999999", "x", "", "(nil)", "0xzz")
JSON_VALUES = (None, -1, 0, 2**70, "x", [], {}, [1, 2], 1.5, True, "[0, 1]", "9" * 400)


def mutated(value: Any, draw: random.Random) -> None:
    """Change or drop something inside a JSON value."""
    places = list(value) if isinstance(value, dict) else list(range(len(value)))
    if not places:
        return
    place = draw.choice(places)
    if isinstance(value[place], dict | list) and draw.random() < 0.7:
        mutated(value[place], draw)
    elif isinstance(value, dict) and draw.random() < 0.2:
        del value[place]
    else:
        value[place] = draw.choice(JSON_VALUES)


def test_wrong_values_in_kineto_files_are_refused_or_read(tmp_path):
    arguments = {"device": 0, "context": 1, "stream": 2, "correlation": 5, "grid": [4, 1, 1], "block": [96, 1, 1]}
    arguments |= {"Collective name": "all_to_allv", "In msg nelems": 4, "Out msg nelems": 4, "dtype": "Float"}
    arguments |= {"Group size": 2, "Process Group Ranks": "[0, 1]"}
    arguments |= {"In split size": "[2, 2]", "Out split size": "[2, 2]"}
    kernel = {"ph": "X", "cat": "kernel", "name": "ncclKernel", "ts": 1.5, "dur": 2, "args": arguments}
    document = {"distributedInfo": {"rank": 0, "world_size": 2}, "baseTimeNanoseconds": 5, "traceEvents": [kernel]}
    path = tmp_path / "t.json"
    path.write_text(json.dumps(document))
    assert attempt(path) is not None
    outcomes = Counter()
    for seed in range(4 * ROUNDS):
        changed = json.loads(json.dumps(document))
        mutated(changed, random.Random(seed))
        path.write_text(json.dumps(changed))
        outcomes[attempt(path) is None] += 1
    assert min(outcomes[refused] for refused in (True, False)) >= ROUNDS // 2, outcomes


def test_wrong_words_in_annotations_are_refused_or_read(tmp_path):
    texts = annotated_broadcast()
    outcomes = Counter()
    for seed in range(2 * ROUNDS):
        draw = random.Random(seed)
        number = draw.randrange(len(texts))
        words = texts[number][1].split(" ")
        words[draw.randrange(len(words))] = draw.choice(WORDS)
        lines = [(1, at, at + 1, " ".join(words) if n == number else text) for n, (at, text) in enumerate(texts)]
        path = tmp_path / "t.sqlite"
        path.unlink(missing_ok=True)
        outcomes[attempt(annotated(path, lines, [(1, 120, 170, 0)])) is None] += 1
    assert min(outcomes[refused] for refused in (True, False)) >= ROUNDS // 2, outcomes


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        data = whole(Path(folder)).read_bytes()
        for seed in range(int(sys.argv[1])):
            draw = random.Random(seed)
            path = Path(folder) / "t.sqlite"
            path.write_bytes(damaged(data, draw) if seed % 2 else data)
            if seed % 2 == 0:
                wrong_value(path, draw)
            try:
                attempt(path)
            except Exception as error:
                where = error.__traceback__
                while where and where.tb_next:
                    where = where.tb_next
                line = f"{where.tb_frame.f_code.co_filename}:{where.tb_lineno}" if where else ""
                sys.stderr.write(f"seed {seed}: {error!r} {line}\n")
