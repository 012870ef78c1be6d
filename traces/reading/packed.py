"""A trace as one small file: what analyses need, without the exports it was read from.

A zip archive of ``trace.json`` and an Arrow table (IPC, zstd) per part of a :class:`Trace`; its comment is a checksum
of the whole.  It holds no kernel, host call or event but those of NCCL and, where recorded, when each piece of GPU work
ran and what it waited for.
"""

from __future__ import annotations

import io
import json
import os
import zipfile
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from atlas_lp.checksum import LINE_BYTES, check, with_checksum
from atlas_lp.errors import DamageError, TraceError, VersionError
from atlas_lp.inputs import open_input, parse_json
from atlas_lp.schemas import PACKED_TRACE
from atlas_lp.signatures.nccl.collectives import known_as
from atlas_lp.traces.reading.archive import DAMAGE, read_parts, read_table, room
from atlas_lp.traces.reading.packed_check import TABLES, check_about, check_tables, schema_of
from atlas_lp.traces.trace import Gap, Sourced, Topology, Trace
from atlas_lp.traces.work import Work

# 0.1.0 wrote AllToAll as NCCL does, AlltoAll: names are read as known_as says.  Its files have no checksum but those
# of zip, and are read all the same: the exports may be gone.
_SCHEMA, _FORMAT = PACKED_TRACE.name, PACKED_TRACE.version
_WITHOUT_CHECKSUM = 1
_NO_COMMENT = b"PK\5\6"
"""How the last 22 bytes of a zip archive begin if it has no comment; they end in its length, 0."""
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
        "gaps": [[*gap.as_json().values(), *([gap.of] if gap.of else [])] for gap in trace.gaps],
        "synthetic": trace.synthetic,
        "placement": trace.placement,
        "topologies": [[t.rings, t.trees, t.source, t.p2p_channels] for t in trace.topologies],
    }
    tables = {name: getattr(trace, name) for name in _TABLES}
    if trace.work is not None:
        columns = {f.name: getattr(trace.work, f.name) for f in fields(Work)}
        tables["waits"] = pa.table({name: columns.pop(name) for name in _PAIRS})
        tables["work"] = pa.table(columns)
    parts = {f"{name}.arrow": _arrow(table) for name, table in sorted(tables.items())}
    return archived({"trace.json": json.dumps(about, sort_keys=True).encode(), **parts})


def archived(parts: Mapping[str, bytes]) -> bytes:
    """The file that holds *parts* by name, in that order, with its checksum."""
    sink = io.BytesIO()
    with zipfile.ZipFile(sink, "w") as archive:
        for name, content in parts.items():
            archive.writestr(zipfile.ZipInfo(name, _EPOCH), content)
        archive.comment = bytes(LINE_BYTES)
    return with_checksum(sink.getvalue()[:-LINE_BYTES], PACKED_TRACE)


def read_packed(path: Path) -> Trace:
    """Read what :func:`packed_bytes` made.

    Raises :class:`~atlas_lp.errors.TraceError` for a file that is missing, damaged, of another version, or holds what
    no trace does.
    """
    try:
        version = _version(path)
        parts = read_parts(path, {_ABOUT, *(f"{name}.arrow" for name in TABLES)})
        about = parse_json(parts.pop(_ABOUT), _ABOUT, ValueError)
        if (about["schema"], about["version"]) != (_SCHEMA, version):
            raise VersionError
        return _trace(about, _tables(parts, room(path)))
    except VersionError:
        what = "packed by another version of atlas-lp, or changed by another program"
        raise TraceError(f"{path}: {what}; pack the trace again") from None
    except OSError as error:
        raise TraceError(f"{path}: cannot be read ({error.strerror or error})") from None
    except (DamageError, *DAMAGE) as error:
        raise TraceError(f"{path}: no packed trace, or damaged ({str(error)[:300]}); pack the trace again") from None


def _version(path: Path) -> int:
    """The version of a file, by what stands at its end: no part of it is read before its checksum is known to be right.

    Raises :class:`~atlas_lp.errors.DamageError`, and OSError.
    """
    with open_input(path) as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - len(_NO_COMMENT) - 18))
        end = file.read()
        if end.startswith(_NO_COMMENT) and end.endswith(b"\0\0"):
            return _WITHOUT_CHECKSUM
        check(file, PACKED_TRACE)
    return _FORMAT


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
