"""Damage to what atlas-lp stores itself: members of archives, columns of Arrow files, and whole traces packed anew."""

import io
import json
import tempfile
import warnings
import zipfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import fields, replace
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa

from atlas_lp import schemas
from atlas_lp.checksum import LINE_BYTES, with_checksum
from atlas_lp.traces.reading.packed import packed_bytes, read_packed
from atlas_lp.traces.trace import Trace
from fuzz.damage import cut, flipped, shifted, wild_value

# --- archives -------------------------------------------------------------------------------------------------------


def members_changed(data: bytes, draw: Random) -> bytes:
    """A zip archive with a member that is missing, repeated, renamed, exchanged, damaged or compressed otherwise."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        members = [(name, archive.read(name)) for name in archive.namelist()]
    at, other = draw.randrange(len(members)), draw.randrange(len(members))
    name, content = members[at]
    method = zipfile.ZIP_STORED
    kind = draw.choice(("missing", "repeated", "renamed", "exchanged", "damaged", "values", "compressed"))
    if kind == "missing":
        del members[at]
    elif kind == "repeated":
        members.append((name, flipped(content, draw)))
    elif kind == "renamed":
        members[at] = (draw.choice(("../x", "", "x.arrow", "\u202e.json", name.upper())), content)
    elif kind == "exchanged":
        members[at], members[other] = (name, members[other][1]), (members[other][0], content)
    elif kind == "damaged":
        members[at] = (name, flipped(content, draw))
    elif kind == "values":
        members = [(n, _values(c, draw) if n.endswith(".json") else c) for n, c in members]
    else:
        method = draw.choice((zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA))
    sink = io.BytesIO()
    with zipfile.ZipFile(sink, "w", method) as archive, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a name that stands twice is meant
        for name, content in members:
            archive.writestr(zipfile.ZipInfo(name), content, method)
    return sink.getvalue()


def _values(content: bytes, draw: Random) -> bytes:
    document = json.loads(content)
    wild_value(document, draw)
    return json.dumps(document, sort_keys=True).encode()


# --- Arrow ----------------------------------------------------------------------------------------------------------

NUMBERS = (-1, 0, 1, 2, 63, 1000, 2**31 - 1, 2**31, 2**53, 2**62, 2**63 - 1, -(2**63))
TEXTS = ("", "x", "\x1b[31m", "\u202e", "AllReduce", "Send", "ring", "ll", "a" * 3000)


def _wild_column(column: pa.ChunkedArray, draw: Random) -> Any:
    """The same rows with some other values, or all of them of another type."""
    values = column.to_pylist()
    if not values:
        return column
    kind = draw.choice(("values", "values", "values", "nulls", "exchanged", "type"))
    places = draw.sample(range(len(values)), draw.choice((1, 1, (len(values) + 1) // 2, len(values))))
    if kind == "type":
        return pa.array(values).cast(draw.choice((pa.string(), pa.int8(), pa.float64(), pa.uint64(), pa.bool_())))
    if kind == "exchanged":
        for place, value in zip(places, [values[p] for p in [*places[1:], *places[:1]]], strict=True):
            values[place] = value
    else:
        wild = None if kind == "nulls" else draw.choice(TEXTS if pa.types.is_string(column.type) else NUMBERS)
        for place in places:
            values[place] = wild
    return pa.array(values, type=column.type)


def wild_table(table: pa.Table, draw: Random) -> pa.Table:
    """A table with other values, rows or columns."""
    kind = draw.choice(("column", "column", "column", "rows", "no rows", "names", "repeated"))
    number = draw.randrange(max(1, table.num_columns))
    name = table.column_names[number]
    if kind == "column":
        return table.set_column(number, name, _wild_column(table.column(number), draw))
    if kind == "rows":
        rows = draw.sample(range(table.num_rows), draw.randint(0, table.num_rows))
        return table.take(pa.array(rows, pa.int64()))
    if kind == "no rows":
        return table.slice(0, 0)
    if kind == "names":
        return table.drop_columns([name])
    return pa.concat_tables([table, table])


def _rewritten(data: bytes, draw: Random) -> bytes:
    """An Arrow stream with other columns, or other values in the JSON of its metadata."""
    with pa.ipc.open_stream(data) as reader:
        table = reader.read_all()
    metadata = dict(table.schema.metadata)
    if draw.random() < 0.7:
        key = draw.choice(sorted(metadata))
        metadata[key] = _values(metadata[key], draw)
    else:
        with suppress(pa.ArrowException, OverflowError):
            table = wild_table(table, draw)
    table = table.replace_schema_metadata(metadata)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()  # type: ignore[no-any-return]


def arrow_rewritten(data: bytes, draw: Random) -> bytes:
    """What an analysis or an entry of the cache holds is written anew, the checksum as it was."""
    return _rewritten(data[:-LINE_BYTES], draw) + data[-LINE_BYTES:]


def arrow_forged(data: bytes, draw: Random) -> bytes:
    """The same, with a checksum that is right."""
    return _summed(_rewritten(data[:-LINE_BYTES], draw), data)


def members_forged(data: bytes, draw: Random) -> bytes:
    """A packed trace with damaged members, and a checksum that is right."""
    return _summed(members_changed(data[:-LINE_BYTES], draw), data)


def bytes_forged(data: bytes, draw: Random) -> bytes:
    """A file with other bytes, and a checksum that is right."""
    return _summed(draw.choice((flipped, shifted, cut))(data[:-LINE_BYTES], draw), data)


def _summed(content: bytes, data: bytes) -> bytes:
    """*content* as a file of the same kind as *data*."""
    name = data[-LINE_BYTES:].split()[0].decode()
    kind = next(kind for kind in vars(schemas).values() if isinstance(kind, schemas.Document) and kind.name == name)
    return with_checksum(content, kind)


# --- traces ---------------------------------------------------------------------------------------------------------


def packed_anew(data: bytes, draw: Random) -> bytes:
    """A trace that says something else, packed as atlas-lp does it: no checksum tells."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "x.atlas"
        path.write_bytes(data)
        trace = read_packed(path)
    with suppress(pa.ArrowException, OverflowError, ValueError, TypeError):
        for _ in range(draw.choice((1, 1, 3))):
            trace = draw.choice((_table_changed, _table_changed, _work_changed, _about_changed))(trace, draw)
        return packed_bytes(trace)
    return data


def _table_changed(trace: Trace, draw: Random) -> Trace:
    name = draw.choice(("gpus", "communicators", "members", "operations", "operations"))
    return replace(trace, **{name: wild_table(getattr(trace, name), draw)})


def _work_changed(trace: Trace, draw: Random) -> Trace:
    if trace.work is None:
        return trace
    name = draw.choice([field.name for field in fields(trace.work)])
    values: Any = getattr(trace.work, name)
    if draw.random() < 0.2:
        values = values[: draw.randrange(len(values) + 1)]
    elif len(values):
        values = values.copy()
        places = draw.sample(range(len(values)), draw.choice((1, 1, len(values))))
        fits = [
            n for n in NUMBERS if values.dtype == bool or np.iinfo(values.dtype).min <= n <= np.iinfo(values.dtype).max
        ]
        values[places] = draw.choice(fits)
    return replace(trace, work=replace(trace.work, **{name: values}))


def _about_changed(trace: Trace, draw: Random) -> Trace:
    changes: tuple[Callable[[], Trace], ...] = (
        lambda: replace(trace, files=()),
        lambda: replace(trace, files=("\x1b[31m\u202e",)),
        lambda: replace(trace, placement="\x1b]0;x\x07"),
        lambda: replace(trace, nccl_version=replace(trace.nccl_version, value=draw.choice(TEXTS))),
        lambda: replace(trace, gaps=tuple(replace(gap, count=-(2**70)) for gap in trace.gaps)),
        lambda: replace(trace, topologies=trace.topologies[1:]),
        lambda: replace(trace, topologies=tuple(replace(t, rings=((0, 2**62),)) for t in trace.topologies)),
        lambda: replace(trace, topologies=tuple(replace(t, trees=(((0, (0, 7)),),)) for t in trace.topologies)),
    )
    return draw.choice(changes)()
