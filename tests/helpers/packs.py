"""Packed traces that nobody packed: tables with other values, and parts put into an archive in other ways."""

import io
import json
import random
import zipfile
from collections.abc import Iterable
from dataclasses import fields, replace
from typing import Any

import pyarrow as pa

from atlas_lp.traces.reading.packed import packed_bytes
from atlas_lp.traces.trace import Trace
from atlas_lp.traces.work import Work

PAIRS = ("before", "after")


def parts_of(trace: Trace) -> dict[str, bytes]:
    """The parts of a packed trace as 0.1.0 wrote them, with no checksum over all."""
    with zipfile.ZipFile(io.BytesIO(packed_bytes(trace))) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    return {**parts, "trace.json": json.dumps({**json.loads(parts["trace.json"]), "version": 1}).encode()}


def zipped(parts: Iterable[tuple[str, bytes]], method: int = zipfile.ZIP_STORED) -> bytes:
    """An archive of *parts*, which may have a name twice."""
    sink = io.BytesIO()
    with zipfile.ZipFile(sink, "w") as archive:
        for name, content in parts:
            archive.writestr(zipfile.ZipInfo(name), content, compress_type=method)
    return sink.getvalue()


def table_of(trace: Trace, name: str) -> pa.Table:
    """The table of that name in a packed trace."""
    if name not in ("work", "waits"):
        return getattr(trace, name)
    assert trace.work is not None
    mine = [f.name for f in fields(Work) if (f.name in PAIRS) == (name == "waits")]
    return pa.table({column: getattr(trace.work, column) for column in mine})


def with_table(trace: Trace, name: str, table: pa.Table) -> Trace:
    """The trace with another table of that *name*, whose columns may be of any type."""
    if name not in ("work", "waits"):
        return replace(trace, **{name: table})
    assert trace.work is not None
    return replace(trace, work=replace(trace.work, **{n: table.column(n) for n in table.column_names}))


def with_column(trace: Trace, name: str, column: str, values: pa.Array) -> Trace:
    """The trace with other *values* in a column, of their own type."""
    table = table_of(trace, name)
    return with_table(trace, name, table.set_column(table.schema.get_field_index(column), column, values))


def with_value(trace: Trace, name: str, column: str, row: int, value: Any) -> Trace:
    """The trace with another *value* in a column; raises what Arrow does where the type does not hold it."""
    old = table_of(trace, name).column(column)
    values = old.to_pylist()
    values[row] = value
    return with_column(trace, name, column, pa.array(values, type=old.type))


def with_rows(trace: Trace, name: str, rows: list[int]) -> Trace:
    """The trace with chosen rows of a table, in that order."""
    return with_table(trace, name, table_of(trace, name).take(pa.array(rows, type=pa.int64())))


def damaged(content: bytes, draw: random.Random) -> bytes:
    """Some bytes changed, as happens by chance or on purpose: lengths and offsets among them."""
    changed = bytearray(content)
    for _ in range(draw.choice((1, 1, 4, 32))):
        at = draw.randrange(len(changed))
        if draw.random() < 0.6:
            changed[at] = draw.randrange(256)
        else:
            size = draw.choice((4, 8))
            value = draw.choice((0, 1000, 2**31 - 1, 2 ** (8 * size) - 1, 2 ** (8 * size - 2)))
            changed[at : at + size] = value.to_bytes(size, "little")
    return bytes(changed)
