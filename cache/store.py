"""A content-addressed store of solved envelopes: one Arrow IPC file (zstd) per entry.

The key is a SHA-256 over everything the envelope depends on, so an entry never goes stale: another model version,
fabric or box is another key.  Files are written beside their place and renamed, so readers and writers of several
processes may share a folder.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from fractions import Fraction
from pathlib import Path
from typing import Any

import pyarrow as pa

from atlas_lp.errors import CacheError
from atlas_lp.goal.event_graph import COMPONENTS
from atlas_lp.schemas import CACHE_ENTRY
from atlas_lp.solver.envelope import Box, Envelope, RankClasses
from atlas_lp.solver.highs import Certificate

_SCHEMA, _FORMAT = CACHE_ENTRY.name, CACHE_ENTRY.version
_METADATA_KEY = b"atlas-lp"


class Miss(Enum):
    """Why an envelope was not in the cache; the values are sentences for people."""

    ABSENT = "never solved with these parameters"
    DAMAGED = "the entry cannot be read and is solved again"
    DISABLED = "the cache is switched off"


@dataclass(frozen=True)
class Entry:
    """What ``cache ls`` shows of one entry."""

    key: str
    size_bytes: int
    planes: int
    about: Mapping[str, Any]


def default_folder() -> Path:
    """``$ATLAS_LP_CACHE``, else ``atlas-lp`` in the user's cache folder."""
    named = os.environ.get("ATLAS_LP_CACHE")
    if named:
        return Path(named)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "atlas-lp"


def content_key(content: Mapping[str, Any]) -> str:
    """SHA-256 of plain *content*, independent of the order of its keys."""
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


class Store:
    """Envelopes in *folder*; with ``None`` every look-up misses and nothing is written.

    :attr:`hits` and :attr:`misses` count look-ups.
    """

    def __init__(self, folder: Path | None) -> None:
        self.folder = folder
        self.hits = 0
        self.misses = 0

    def _path(self, folder: Path, key: str) -> Path:
        return folder / key[:2] / f"{key}.arrow"

    def get(self, key: str, counted: bool = True) -> Envelope | Miss:
        """Return the envelope stored under *key*, or why there is none; *counted* as a hit or a miss."""
        found = self._look_up(key)
        if not counted:
            return found
        if isinstance(found, Envelope):
            self.hits += 1
        else:
            self.misses += 1
        return found

    def _look_up(self, key: str) -> Envelope | Miss:
        if self.folder is None:
            return Miss.DISABLED
        path = self._path(self.folder, key)
        if not path.exists():
            return Miss.ABSENT
        try:
            table, metadata = _read(path)
            return _envelope(table, metadata) if metadata["key"] == key else Miss.DAMAGED
        except (OSError, pa.ArrowException, ValueError, KeyError, TypeError):
            return Miss.DAMAGED

    def solved(
        self, key: str, solve: Callable[[], Envelope], about: Mapping[str, Any], counted: bool = True
    ) -> Envelope:
        """Return the envelope of *key*: the one in the store, else what *solve* gives, which is stored.

        *about* is shown by ``cache ls``.  Raises what *solve* and :meth:`put` raise.
        """
        found = self.get(key, counted)
        if not isinstance(found, Envelope):
            found = solve()
            self.put(key, found, about)
        return found

    def put(self, key: str, envelope: Envelope, about: Mapping[str, Any]) -> None:
        """Store *envelope* under *key*; *about* is shown by ``cache ls``.

        Raises :class:`~atlas_lp.errors.CacheError` when the folder cannot be written.
        """
        if self.folder is None:
            return
        path = self._path(self.folder, key)
        table = _table(envelope)
        metadata = {"schema": _SCHEMA, "version": _FORMAT, "key": key, "about": about, **_describe(envelope)}
        table = table.replace_schema_metadata({_METADATA_KEY: json.dumps(metadata, sort_keys=True)})
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            _write(table, path)
        except OSError as error:
            raise CacheError(
                f"{self.folder}: the cache cannot be written ({error.strerror}); choose another with --cache, "
                "or use --no-cache"
            ) from None

    def entries(self) -> list[Entry]:
        """All readable entries, by key."""
        if self.folder is None or not self.folder.is_dir():
            return []
        result = []
        for path in sorted(self.folder.glob("??/*.arrow")):
            try:
                table, metadata = _read(path)
                result.append(Entry(metadata["key"], path.stat().st_size, table.num_rows, metadata["about"]))
            except (OSError, pa.ArrowException, ValueError, KeyError, TypeError):
                result.append(Entry(path.stem, path.stat().st_size, 0, {"damaged": True}))
        return result


def _read(path: Path) -> tuple[pa.Table, dict[str, Any]]:
    with pa.OSFile(str(path)) as file, pa.ipc.open_file(file) as reader:
        table = reader.read_all()
    metadata = json.loads(table.schema.metadata[_METADATA_KEY])
    if metadata["schema"] != _SCHEMA or metadata["version"] != _FORMAT:
        raise ValueError("another format")
    return table, metadata


def _write(table: pa.Table, path: Path) -> None:
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=".part-")
    os.close(handle)
    temporary = Path(name)
    try:
        options = pa.ipc.IpcWriteOptions(compression="zstd")
        with pa.OSFile(name, "wb") as file, pa.ipc.new_file(file, table.schema, options=options) as writer:
            writer.write_table(table)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def _table(envelope: Envelope) -> pa.Table:
    """One row per plane: of the whole (classes -1), then between two classes of ranks."""
    rows = [(-1, -1, vector) for vector in envelope.vectors]
    if envelope.classes is not None:
        rows += [(arriving, ending, v) for arriving, ending, vectors in envelope.classes.planes for v in vectors]
    columns: dict[str, pa.Array] = {
        "arriving": pa.array([row[0] for row in rows], type=pa.int32()),
        "ending": pa.array([row[1] for row in rows], type=pa.int32()),
    }
    for i, name in enumerate(COMPONENTS):
        columns[name] = pa.array([row[2][i] for row in rows], type=pa.int64())
    return pa.table(columns)


def _describe(envelope: Envelope) -> dict[str, Any]:
    box = envelope.box
    return {
        "fixed": [str(value) for value in envelope.fixed],
        "box": box.canonical(),
        "certificate": None if envelope.certificate is None else envelope.certificate.as_json(),
        "method": envelope.method,
        "bracket_width": envelope.bracket_width,
        "tolerance_reached": envelope.tolerance_reached,
        "classes": None if envelope.classes is None else list(envelope.classes.of_rank),
        "sent": envelope.sent,
        "class_width": 0.0 if envelope.classes is None else envelope.classes.width,
    }


def _envelope(table: pa.Table, metadata: Mapping[str, Any]) -> Envelope:
    pairs = zip(table.column("arriving").to_pylist(), table.column("ending").to_pylist(), strict=True)
    vectors = zip(*(table.column(name).to_pylist() for name in COMPONENTS), strict=True)
    planes: dict[tuple[int, int], list[tuple[int, ...]]] = {}
    for pair, vector in zip(pairs, vectors, strict=True):
        planes.setdefault(pair, []).append(vector)
    whole = tuple(planes.pop((-1, -1)))
    classes = None
    if metadata["classes"] is not None:
        between = tuple((arriving, ending, tuple(own)) for (arriving, ending), own in planes.items())
        classes = RankClasses(tuple(metadata["classes"]), between, metadata["class_width"])
    certificate = metadata["certificate"]
    return Envelope(
        vectors=whole,
        fixed=tuple(Fraction(value) for value in metadata["fixed"]),
        box=Box(*(Fraction(value) for value in metadata["box"])),
        certificate=None if certificate is None else Certificate(**certificate),
        method=metadata["method"],
        bracket_width=metadata["bracket_width"],
        tolerance_reached=metadata["tolerance_reached"],
        classes=classes,
        sent=tuple(tuple(row) for row in metadata["sent"]),
    )
