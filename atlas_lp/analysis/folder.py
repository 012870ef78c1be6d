"""An analysis on disk: ``analysis.arrow`` for later verbs, ``summary.json``, and ``report.html`` for people."""

from __future__ import annotations

import json
import os
import tempfile
from fractions import Fraction
from pathlib import Path
from typing import Any

import pyarrow as pa

from atlas_lp.analysis.analyze import Analysis
from atlas_lp.errors import InputError
from atlas_lp.goal.event_graph import COMPONENTS
from atlas_lp.report.page import render_report
from atlas_lp.schemas import ANALYSIS_FILE
from atlas_lp.solver.envelope import Box, Envelope

FILES = ("analysis.arrow", "summary.json", "report.html")

_METADATA_KEY = b"atlas-lp"
_SCHEMA, _FORMAT = ANALYSIS_FILE.name, ANALYSIS_FILE.version


def json_text(value: Any) -> str:
    """Plain *value* as JSON, keys sorted, one trailing newline: equal values give equal bytes."""
    return json.dumps(value, sort_keys=True, indent=1, ensure_ascii=False) + "\n"


def write_file(path: Path, content: bytes) -> None:
    """Write *content* beside *path* and rename it into place.

    Raises :class:`~atlas_lp.errors.InputError` when the place cannot be written.
    """
    try:
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        mask = os.umask(0)
        os.umask(mask)
        os.chmod(name, 0o666 & ~mask)
        os.replace(name, path)
    except OSError as error:
        raise InputError(f"{path}: cannot be written ({error.strerror})") from None


def check_output(folder: Path, force: bool) -> None:
    """Refuse to overwrite an analysis unless *force*, and any path that is no folder."""
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder}: exists and is not a folder; choose another with -o")
    present = [name for name in FILES if (folder / name).exists()]
    if present and not force:
        raise InputError(f"{folder}: holds {present[0]} already; overwrite with -f or choose another with -o")


def write_analysis(folder: Path, analysis: Analysis) -> None:
    """Write the three files of *analysis* into *folder*, made if needed.

    Everything is rendered before the first byte is written.
    """
    contents = (
        _arrow_bytes(analysis),
        json_text(analysis.summary).encode(),
        render_report(analysis.summary).encode(),
    )
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{folder}: cannot be made ({error.strerror})") from None
    for name, content in zip(FILES, contents, strict=True):
        write_file(folder / name, content)


def _arrow_bytes(analysis: Analysis) -> bytes:
    envelope = analysis.envelope
    table = pa.table(
        {
            name: pa.array([vector[i] for vector in envelope.vectors], type=pa.int64())
            for i, name in enumerate(COMPONENTS)
        }
    )
    metadata = {
        "schema": _SCHEMA,
        "version": _FORMAT,
        "fixed": [str(value) for value in envelope.fixed],
        "box": envelope.box.canonical(),
        "native": [str(value) for value in analysis.native],
        "summary": {key: value for key, value in analysis.summary.items() if key != "cache"},
    }
    table = table.replace_schema_metadata({_METADATA_KEY: json.dumps(metadata, sort_keys=True)})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, table.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()  # type: ignore[no-any-return]


def read_analysis(folder: Path) -> Analysis:
    """Read back the analysis in *folder* (its summary without cache counters).

    Raises :class:`~atlas_lp.errors.InputError` when there is none, or another version wrote it.
    """
    path = folder / FILES[0] if folder.is_dir() else folder
    try:
        with pa.OSFile(str(path)) as file, pa.ipc.open_file(file) as reader:
            table = reader.read_all()
        metadata = json.loads(table.schema.metadata[_METADATA_KEY])
    except FileNotFoundError:
        raise InputError(f"{folder}: no analysis here; make one with: atlas-lp analyze TRACE -o {folder}") from None
    except (OSError, pa.ArrowException, ValueError, KeyError, TypeError):
        raise InputError(f"{path}: not an analysis file, or a damaged one; run atlas-lp analyze again") from None
    if metadata.get("schema") != _SCHEMA or metadata.get("version") != _FORMAT:
        raise InputError(f"{path}: written by another version of atlas-lp; run atlas-lp analyze again")
    columns = [table.column(name).to_pylist() for name in COMPONENTS]
    envelope = Envelope(
        vectors=tuple(zip(*columns, strict=True)),
        fixed=tuple(Fraction(value) for value in metadata["fixed"]),
        box=Box(*(Fraction(value) for value in metadata["box"])),
    )
    latency, gap = (Fraction(value) for value in metadata["native"])
    return Analysis(envelope, (latency, gap), metadata["summary"])
