"""A trace as one small file: what analyses need, without the exports it was read from.

A zip archive of ``trace.json`` and an Arrow table (IPC, zstd) per part of a :class:`Trace`.  It holds no kernel, host
call or event but those of NCCL and, where recorded, when each piece of GPU work ran and what it waited for.
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from atlas_lp.errors import TraceError
from atlas_lp.inputs import parse_json
from atlas_lp.schemas import PACKED_TRACE
from atlas_lp.signatures.nccl.collectives import known_as
from atlas_lp.traces.reading.archive import DAMAGE, read_parts, read_table, room
from atlas_lp.traces.reading.packed_check import TABLES, check_about, check_tables, schema_of
from atlas_lp.traces.trace import Gap, Sourced, Topology, Trace
from atlas_lp.traces.work import Work

# 0.1.0 wrote AllToAll as NCCL does, AlltoAll: names are read as known_as says.
_SCHEMA, _FORMAT = PACKED_TRACE.name, PACKED_TRACE.version
_TABLES = ("gpus", "communicators", "members", "operations")
_PAIRS = ("before", "after")
_ABOUT = "trace.json"
_EPOCH = (1980, 1, 1, 0, 0, 0)


def packed_bytes(trace: Trace) -> bytes:
    """The file of *trace*: equal traces give equal bytes."""
    about = {
        "schema": _SCHEMA,
        "version": _FORMAT,
        "files": trace.files,
        "nccl_version": [trace.nccl_version.value, trace.nccl_version.source],
        "gaps": [[gap.code, gap.count, gap.message] for gap in trace.gaps],
        "synthetic": trace.synthetic,
        "placement": trace.placement,
        "topologies": [[t.rings, t.trees, t.source, t.p2p_channels] for t in trace.topologies],
    }
    tables = {name: getattr(trace, name) for name in _TABLES}
    if trace.work is not None:
        columns = {f.name: getattr(trace.work, f.name) for f in fields(Work)}
        tables["waits"] = pa.table({name: columns.pop(name) for name in _PAIRS})
        tables["work"] = pa.table(columns)
    sink = pa.BufferOutputStream()
    with zipfile.ZipFile(sink, "w") as archive:
        archive.writestr(zipfile.ZipInfo(_ABOUT, _EPOCH), json.dumps(about, sort_keys=True))
        for name, table in sorted(tables.items()):
            archive.writestr(zipfile.ZipInfo(f"{name}.arrow", _EPOCH), _arrow(table))
    return sink.getvalue().to_pybytes()  # type: ignore[no-any-return]


def read_packed(path: Path) -> Trace:
    """Read what :func:`packed_bytes` made.

    Raises :class:`~atlas_lp.errors.TraceError` for a file that is missing, damaged, of another version, or holds what
    no trace does.
    """
    try:
        parts = read_parts(path, {_ABOUT, *(f"{name}.arrow" for name in TABLES)})
        about = parse_json(parts.pop(_ABOUT), _ABOUT, ValueError)
        if (about["schema"], about["version"]) != (_SCHEMA, _FORMAT):
            raise TraceError(f"{path}: packed by another version of atlas-lp; pack the trace again")
        return _trace(about, _tables(parts, room(path)))
    except OSError as error:
        raise TraceError(f"{path}: cannot be read ({error.strerror or error})") from None
    except DAMAGE as error:
        raise TraceError(f"{path}: no packed trace, or damaged ({str(error)[:300]}); pack the trace again") from None


def _trace(about: dict[str, Any], tables: dict[str, pa.Table]) -> Trace:
    check_tables(tables)
    check_about(about, tables)
    work = None
    if "work" in tables:
        columns = {**_columns(tables["work"]), **_columns(tables["waits"])}
        work = Work(**{f.name: columns[f.name] for f in fields(Work)})
    return Trace(
        files=tuple(about["files"]),
        **{name: tables[name] for name in _TABLES},
        nccl_version=Sourced(*about["nccl_version"]),
        gaps=tuple(Gap(*gap) for gap in about["gaps"]),
        synthetic=about["synthetic"],
        placement=about["placement"],
        topologies=tuple(_topology(*topology) for topology in about["topologies"]),
        work=work,
    )


def _tables(parts: Mapping[str, bytes], most: int) -> dict[str, pa.Table]:
    """The tables of a file, *most* bytes in all, under the names of today."""
    tables = {}
    for part, content in parts.items():
        name = part.removesuffix(".arrow")
        tables[name] = read_table(content, schema_of(name), most)
        most -= tables[name].nbytes
        if name == "operations":
            tables[name] = _known_names(tables[name])
    return tables


def _known_names(operations: pa.Table) -> pa.Table:
    """The operations under the names of today."""
    place = operations.schema.get_field_index("type")
    names = [known_as(name) for name in operations.column("type").to_pylist()]
    return operations.set_column(place, operations.schema.field(place), pa.array(names, type=pa.string()))


def _topology(rings: Any, trees: Any, source: str, p2p_channels: Any) -> Topology:
    """The topology that JSON turned into lists."""
    return Topology(
        rings=tuple(tuple(ring) for ring in rings),
        trees=tuple(tuple((parent, tuple(children)) for parent, children in tree) for tree in trees),
        source=source,
        p2p_channels=tuple(p2p_channels),
    )


def _columns(table: pa.Table) -> dict[str, Any]:
    return {name: np.array(table.column(name)) for name in table.column_names}


def _arrow(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    with pa.ipc.new_file(sink, table.schema, options=options) as writer:
        writer.write_table(table.combine_chunks())
    return sink.getvalue().to_pybytes()  # type: ignore[no-any-return]
