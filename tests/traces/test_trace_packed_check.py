"""Packed traces that anybody may have made: every column of every table, every way to put parts into an archive.

A longer run (seeds from 0 to that number): ``PYTHONPATH=tests python tests/traces/test_trace_packed_check.py 20000``.
"""

import random
import sys
import tempfile
import zipfile
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from helpers.exports import content, group, job, rank
from helpers.packs import damaged, parts_of, table_of, with_column, with_rows, with_value, zipped
from helpers.programs import overlapped_gradients

from atlas_lp.analysis.analyze import analyze
from atlas_lp.collectives.solver import CollectiveSolver
from atlas_lp.errors import AtlasError, TraceError
from atlas_lp.fabrics.fabric import load_fabric
from atlas_lp.traces.reading.packed import packed_bytes, read_packed
from atlas_lp.traces.reading.packed_check import TABLES
from atlas_lp.traces.reading.read import read_trace
from atlas_lp.traces.trace import Gap, Topology

FABRIC = load_fabric()
ROUNDS = 120
COLUMNS = [(table, column) for table, columns in TABLES.items() for column in columns]
NUMBERS = [(table, column) for table, column in COLUMNS if not pa.types.is_string(TABLES[table][column].type)]
TYPES = (
    *(pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint64(), pa.float64(), pa.bool_(), pa.timestamp("ns")),
    *(pa.string(), pa.large_string(), pa.binary(), pa.dictionary(pa.int32(), pa.string()), pa.list_(pa.int32())),
)
WILD = (-(2**63), -(2**31), -2, -1, 0, 1, 2, 3, 64, 1000, 2**16, 2**22, 2**30, 2**31 - 1, 2**40, 2**62, 2**63 - 1)


def made(folder):
    """Two traces: with collectives, messages, parts and a topology, and with work that waits."""
    export = job()
    for number in range(2):
        process = rank(export, number, [], init=False)
        calls = [
            (f"nccl{kind}", {"NCCL communicator ID": 0xC0FFEE, "Message size [bytes]": 64, "Peer rank": 1 - number})
            for kind in ("Send", "Recv")
        ]
        kernel = {"stream": 17, "start_ns": 7_100_000, "end_ns": 7_200_000, "grid": 2, "block": 640}
        group(process, calls, at_ns=7_000_000, kernels=[kernel])
    trace = read_trace([export.write(folder / "whole.sqlite")])
    parts = pa.array([[64, 8, 64, 8]] * trace.operations.num_rows, type=pa.list_(pa.int64()))
    topology = Topology(rings=((0, 1), (0, 1)), trees=(((-1, (1,)), (0, ())),), source="recorded", p2p_channels=(2, 1))
    (folder / "work").mkdir()
    overlapped_gradients(folder / "work")
    first = replace(with_column(trace, "operations", "parts", parts), topologies=(topology,), gaps=(Gap("x", 1, "y"),))
    return first, read_trace([folder / "work"])


@pytest.fixture(scope="module")
def traces(tmp_path_factory):
    return made(tmp_path_factory.mktemp("packs"))


@pytest.fixture
def said(tmp_path):
    """What reading the bytes of a file says: nothing where it is read."""

    def read(data):
        path = tmp_path / "step.atlas"
        path.write_bytes(data)
        words = ""
        try:
            read_packed(path)
        except TraceError as error:
            words = str(error)
        assert not words or words.startswith(f"{path}: ")
        assert len(words.splitlines()) <= 1
        return words

    return read


def test_every_column_is_checked(traces):
    for trace in traces:
        for table, columns in TABLES.items():
            assert table_of(trace, table).column_names == list(columns)


def test_what_is_written_is_read(traces, tmp_path):
    for trace in traces:
        (tmp_path / "step.atlas").write_bytes(packed_bytes(trace))
        again = read_packed(tmp_path / "step.atlas")
        assert content(again) == content(trace)
        assert packed_bytes(again) == packed_bytes(trace)


@pytest.mark.parametrize(("table", "column"), COLUMNS)
def test_a_column_of_another_type_is_refused(traces, said, table, column):
    own = TABLES[table][column].type
    old = table_of(traces[1], table).column(column)
    for other in TYPES:
        try:
            values = pa.nulls(len(old), other) if other == own else old.cast(other, safe=False)
        except pa.ArrowException:
            values = pa.nulls(len(old), other)
        words = "a value is missing" if other == own and len(old) else "a table has other columns or types"
        assert words in said(packed_bytes(with_column(traces[1], table, column, values))), other


@pytest.mark.parametrize(("table", "column"), NUMBERS)
def test_a_number_out_of_its_range_is_refused(traces, said, table, column):
    wanted = TABLES[table][column]
    is_list = pa.types.is_list(wanted.type)
    tried = 0
    for trace in traces:
        high = table_of(trace, wanted.of).num_rows if wanted.of else wanted.high
        for wrong in (wanted.low - 1, high, *WILD):
            if wanted.low <= wrong < high:
                continue
            try:
                changed = with_value(trace, table, column, 0, [wrong, wrong] if is_list else wrong)
            except (OverflowError, pa.ArrowException, IndexError):
                continue
            tried += 1
            assert f"table {table}, column {column}: {wrong} " in said(packed_bytes(changed)), wrong
    assert tried or (wanted.low == 0 and wanted.high == 2**64) or wanted.low < -(2**62)


WORDS = [(table, column) for table, column in COLUMNS if pa.types.is_string(TABLES[table][column].type)]


@pytest.mark.parametrize(("table", "column"), WORDS)
def test_a_text_that_is_too_long_or_no_known_word_is_refused(traces, said, table, column):
    assert "a text of 70000 bytes" in said(packed_bytes(with_value(traces[0], table, column, 0, "x" * 70_000)))
    expected = "'Ring' is not one of" if TABLES[table][column].words else ""
    assert expected in said(packed_bytes(with_value(traces[0], table, column, 0, "Ring")))
    assert bool(expected) == bool(said(packed_bytes(with_value(traces[0], table, column, 0, "Ring"))))


@pytest.mark.parametrize("table", TABLES)
def test_rows_taken_out_put_twice_or_in_another_order_are_refused(traces, said, table):
    """All but pieces of work, which nothing counts and of which two may be alike."""
    trace = traces[1]
    count = table_of(trace, table).num_rows
    every = list(range(count))
    if count > 1:
        assert said(packed_bytes(with_rows(trace, table, every[::-1]))) or table == "gpus"
    assert said(packed_bytes(with_rows(trace, table, every + every[-1:]))) or table == "work"
    for row in every if table not in ("work", "waits") else ():
        kept = every[:row] + every[row + 1 :]
        last = table == "operations" and row in (count - 1, count // 2 - 1)  # the last of a rank: ranks then differ
        assert said(packed_bytes(with_rows(trace, table, kept))) or last, row


RELATIONS = {
    "a rank that its communicator does not have": ("operations", "rank", 2, "not one of its communicator"),
    "an operation on the GPU of another rank": ("operations", "gpu", 1, "is not that of its rank"),
    "two ranks on one GPU": ("members", "gpu", 1, "a GPU is that of no rank"),
    "a rank twice": ("members", "rank", 1, "has a row twice"),
    "more ranks than are there": ("communicators", "ranks", 3, "ranks are missing that no gap names"),
    "an operation that ends before it starts": ("operations", "end_ns", 0, "lies before the start"),
    "an operation outside of what was recorded": ("operations", "start_ns", 0, "lies before all that its GPU did"),
    "work that ends before it starts": ("work", "end_ns", 0, "lies before the start"),
    "a sequence that is none": ("operations", "sequence", 1, "does not follow"),
    "an issue that is none": ("operations", "issue", 1, "does not follow"),
    "a message without its peer": ("operations", "type", "Send", "fits no operation of its type"),
    "a GPU that ended before it began": ("gpus", "last_ns", 0, "lies before the first"),
}


@pytest.mark.parametrize("what", RELATIONS)
def test_columns_that_do_not_fit_together_are_refused(traces, said, what):
    table, column, value, words = RELATIONS[what]
    assert words in said(packed_bytes(with_value(traces[1], table, column, 0, value)))


DESCRIPTIONS = {
    "files": {"files": (1,)},
    "placement": {"placement": 3},
    "synthetic": {"synthetic": "no"},
    "gaps": {"gaps": (Gap("x", "1", "y"),)},
    "too many topologies": {"topologies": (Topology(), Topology())},
    "a ring of others": {"topologies": (Topology(rings=((0, 5),)),)},
    "a ring that is cut": {"topologies": (Topology(rings=((0,),)),)},
    "a child that is none": {"topologies": (Topology(trees=(((-1, (7,)), (0, ())),)),)},
    "many channels": {"topologies": (Topology(p2p_channels=(2**30, 1)),)},
}


@pytest.mark.parametrize("what", DESCRIPTIONS)
def test_descriptions_that_are_none_are_refused(traces, said, what):
    assert "pack the trace again" in said(packed_bytes(replace(traces[1], **DESCRIPTIONS[what])))


def changed_headers(data, **fields):
    """The archive with other bytes at a place of each of its headers (local, central)."""
    changed = bytearray(data)
    for mark, places in ((b"PK\3\4", {"flags": 6, "method": 8}), (b"PK\1\2", {"flags": 8, "method": 10})):
        at = changed.find(mark)
        while at >= 0:
            for name, value in fields.items():
                changed[at + places[name]] |= value
            at = changed.find(mark, at + 4)
    return bytes(changed)


def test_archives_in_other_ways_are_read_or_refused_by_name(traces, said):
    parts = parts_of(traces[1])
    stored, deflated = zipped(parts.items()), zipped(parts.items(), zipfile.ZIP_DEFLATED)
    assert said(stored) == said(deflated) == ""
    for method in (zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA):
        assert f"by a method other than deflate (number {method})" in said(zipped(parts.items(), method))
    assert "by a method other than deflate (number 9)" in said(changed_headers(deflated, method=9))
    assert "is encrypted" in said(changed_headers(stored, flags=1))
    extra = parts["gpus.arrow"]
    for name in ("../gpus.arrow", "/etc/gpus.arrow", "more.arrow", "gpus.arrow/"):
        assert "it should not hold" in said(zipped([*parts.items(), (name, extra)]))
    with pytest.warns(UserWarning, match="Duplicate name"):
        twice = zipped([*parts.items(), ("gpus.arrow", extra)])
    assert "it holds twice 'gpus.arrow'" in said(twice)
    start = deflated.find(b"PK\3\4") + 80
    assert "Error -3 while decompressing" in said(deflated[:start] + b"\xff" * 8 + deflated[start + 8 :])
    for size, words in ((2**32 - 16, "is larger than anything"), (3, "Bad CRC-32")):
        lying = bytearray(stored)
        at = lying.find(b"PK\1\2") + 24
        lying[at : at + 4] = size.to_bytes(4, "little")
        assert words in said(bytes(lying))


def test_tables_that_are_no_arrow_files_are_refused(traces, said):
    parts = parts_of(traces[1])
    assert "is no Arrow file" in said(zipped({**parts, "gpus.arrow": b"x"}.items()))
    assert "not enough values" in said(zipped({**parts, "gpus.arrow": b"ARROW1\0\0"}.items()))
    whole = parts["gpus.arrow"]
    assert said(zipped({**parts, "gpus.arrow": whole[: len(whole) // 2]}.items()))
    without = {name: part for name, part in parts.items() if name != "waits.arrow"}
    assert "there is no table waits" in said(zipped(without.items()))


def outcome(trace, data, path):
    """Read and analyze what the bytes hold: equal to *trace*, refused, or another answer."""
    path.write_bytes(data)
    try:
        found = read_trace([path])
        analyze(found, CollectiveSolver(FABRIC))
    except AtlasError:
        return "refused"
    return "equal" if packed_bytes(found) == packed_bytes(trace) else "read"


def mutation(trace, draw):
    """The bytes of a packed trace with a wild number, a change in a part, or another way to compress it."""
    way = draw.choice(("number", "number", "part", "part", "zip"))
    if way == "number":
        table, column = draw.choice(NUMBERS)
        value = draw.choice(WILD)
        try:
            rows = table_of(trace, table).num_rows
            value = [value, value] if column == "parts" else value
            return way, packed_bytes(with_value(trace, table, column, draw.randrange(rows or 1), value))
        except (OverflowError, pa.ArrowException, IndexError):
            return way, packed_bytes(trace)
    parts = parts_of(trace)
    if way == "part":
        name = draw.choice(sorted(parts))
        return way, zipped({**parts, name: damaged(parts[name], draw)}.items())
    return way, damaged(zipped(parts.items(), draw.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED))), draw)


def test_mutations_are_refused_or_analyzed(traces, tmp_path):
    outcomes = Counter()
    for seed in range(ROUNDS):
        draw = random.Random(seed)
        trace = draw.choice(traces)
        way, data = mutation(trace, draw)
        outcomes[way, outcome(trace, data, tmp_path / "t.atlas")] += 1
    assert min(outcomes[way, "refused"] for way in ("number", "part", "zip")) >= ROUNDS // 20, outcomes
    assert outcomes["number", "read"], outcomes


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        samples = made(Path(folder))
        counts: Counter[tuple[str, str]] = Counter()
        for seed in range(int(sys.argv[1])):
            draw = random.Random(seed)
            trace = draw.choice(samples)
            way, data = mutation(trace, draw)
            try:
                counts[way, outcome(trace, data, Path(folder) / "t.atlas")] += 1
            except Exception as error:
                sys.stderr.write(f"seed {seed}: {error!r}\n")
        sys.stderr.write(f"{dict(sorted(counts.items()))}\n")
