"""A content-addressed store of solved envelopes: one Arrow IPC file (zstd) per entry.

The key is a SHA-256 over everything the envelope depends on, so an entry never goes stale: another model version,
fabric or box is another key.  Files are written beside their place and renamed, so readers and writers of several
processes may share a folder.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

import pyarrow as pa

from atlas_lp.cache.codec import DAMAGE, decoded, encoded, read_about
from atlas_lp.errors import OutputError
from atlas_lp.files import make_folder, write_file
from atlas_lp.schemas import CACHE_ENTRY
from atlas_lp.solver.envelope import Envelope

_SCHEMA, _FORMAT = CACHE_ENTRY.name, CACHE_ENTRY.version


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

    :attr:`hits` and :attr:`misses` count look-ups; :attr:`refused` says why nothing can be kept, where that is so.
    """

    def __init__(self, folder: Path | None) -> None:
        self.folder = folder
        self.hits = 0
        self.misses = 0
        self.refused = ""

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
        try:
            if not path.exists():
                return Miss.ABSENT
            if not path.is_file():
                return Miss.DAMAGED
            table, metadata = _read(path)
            return decoded(table, metadata) if metadata["key"] == key else Miss.DAMAGED
        except DAMAGE:
            return Miss.DAMAGED

    def solved(
        self, key: str, solve: Callable[[], Envelope], about: Mapping[str, Any], counted: bool = True
    ) -> Envelope:
        """Return the envelope of *key*: the one in the store, else what *solve* gives, which is stored.

        *about* is shown by ``cache ls``.  Raises what *solve* raises.
        """
        found = self.get(key, counted)
        if not isinstance(found, Envelope):
            found = solve()
            self.put(key, found, about)
        return found

    def put(self, key: str, envelope: Envelope, about: Mapping[str, Any]) -> None:
        """Store *envelope* under *key*; *about* is shown by ``cache ls``.

        A folder that cannot be written denies no answer: :attr:`refused` says why nothing is kept from then on.
        """
        if self.folder is None or self.refused:
            return
        path = self._path(self.folder, key)
        content = encoded(envelope, {"schema": _SCHEMA, "version": _FORMAT, "key": key, "about": about})
        if os.path.exists(path) and not os.path.isfile(path):
            return  # somebody put a folder or a pipe there: it is left alone, and the entry solved by every run
        try:
            make_folder(path.parent)
            write_file(path, content)
        except OutputError as error:
            self.refused = f"{self.folder}: {error.reason}"

    def entries(self) -> list[Entry]:
        """All readable entries, by key."""
        if self.folder is None or not self.folder.is_dir():
            return []
        result = []
        for path in sorted(self.folder.glob("??/*.arrow")):
            if not path.is_file():
                result.append(Entry(path.stem, 0, 0, {"damaged": True}))
                continue
            try:
                table, metadata = _read(path)
                result.append(Entry(metadata["key"], path.stat().st_size, table.num_rows, metadata["about"]))
            except DAMAGE:
                result.append(Entry(path.stem, path.stat().st_size, 0, {"damaged": True}))
        return result


def _read(path: Path) -> tuple[pa.Table, dict[str, Any]]:
    table, about = read_about(path)
    if (about["schema"], about["version"]) != (_SCHEMA, _FORMAT):
        raise ValueError("another format")
    return table, about
