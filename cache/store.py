"""A content-addressed store of solved envelopes: one file with a checksum per entry.

The key is a SHA-256 over everything the envelope depends on, so an entry never goes stale: another model version,
fabric or box is another key.  Files are written beside their place and renamed, so readers and writers of several
processes may share a folder, and nobody waits to read.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

from atlas_lp.cache.codec import decoded, encoded, opened
from atlas_lp.errors import DamageError, OutputError, VersionError
from atlas_lp.files import make_folder, sweep, write_file
from atlas_lp.schemas import CACHE_ENTRY
from atlas_lp.solver.envelope import Envelope


class Miss(Enum):
    """Why an envelope was not in the cache, in words for people."""

    ABSENT = "never solved with these parameters"
    DAMAGED = "damaged"
    VERSION = "of another version"
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

    :attr:`hits` and :attr:`misses` count look-ups, :attr:`reasons` says why those that missed did, the uncounted ones
    too; :attr:`refused` says why nothing can be kept, where that is so, and :attr:`swept` counts files of killed
    writers that were removed.
    """

    def __init__(self, folder: Path | None) -> None:
        self.folder = folder
        self.hits = 0
        self.misses = 0
        self.reasons: Counter[Miss] = Counter()
        self.refused = ""
        self.swept = 0
        self._is_swept = False

    def _path(self, folder: Path, key: str) -> Path:
        return folder / key[:2] / f"{key}.arrow"

    def get(self, key: str, counted: bool = True) -> Envelope | Miss:
        """Return the envelope stored under *key*, or why there is none; *counted* as a hit or a miss."""
        found = self._look_up(key)
        if isinstance(found, Miss):
            self.reasons[found] += 1
            self.misses += counted
        else:
            self.hits += counted
        return found

    def _look_up(self, key: str) -> Envelope | Miss:
        if self.folder is None:
            return Miss.DISABLED
        path = self._path(self.folder, key)
        try:
            if path.exists() and not path.is_file():
                return Miss.DAMAGED
            table, about = opened(path.read_bytes(), CACHE_ENTRY)
            return decoded(table, about) if about.get("key") == key else Miss.DAMAGED
        except (FileNotFoundError, NotADirectoryError, ValueError):  # ValueError: a zero byte, which no name has
            return Miss.ABSENT
        except VersionError:
            return Miss.VERSION
        except (DamageError, OSError):
            return Miss.DAMAGED

    @property
    def unusable(self) -> dict[str, int]:
        """How many entries were there and could not be used, by reason."""
        return {reason.value: self.reasons[reason] for reason in (Miss.DAMAGED, Miss.VERSION) if self.reasons[reason]}

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
        content = encoded(envelope, CACHE_ENTRY, {"key": key, "about": about})
        if os.path.exists(path) and not os.path.isfile(path):
            return  # somebody put a folder or a pipe there: it is left alone, and the entry solved by every run
        try:
            make_folder(path.parent)
            self._sweep(self.folder)
            write_file(path, content)
        except OutputError as error:
            self.refused = f"{self.folder}: {error.reason}"

    def _sweep(self, folder: Path) -> None:
        """Remove what killed writers left, once: whoever writes can, and has the time."""
        if not self._is_swept:
            self._is_swept = True
            self.swept = sum(sweep(place) for place in folder.glob("??"))

    def entries(self) -> list[Entry]:
        """All entries, by key."""
        if self.folder is None or not self.folder.is_dir():
            return []
        return [_entry(path) for path in sorted(self.folder.glob("??/[!.]*.arrow"))]


def _entry(path: Path) -> Entry:
    size_bytes = 0
    try:
        if not path.is_file():
            raise DamageError("no file")
        content = path.read_bytes()
        size_bytes = len(content)
        table, about = opened(content, CACHE_ENTRY)
        return Entry(about["key"], size_bytes, table.num_rows, about["about"])
    except (DamageError, OSError, KeyError):
        return Entry(path.stem, size_bytes, 0, {"damaged": True})
