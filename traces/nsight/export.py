"""One Nsight Systems SQLite export, opened read-only and checked before anything is believed."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from atlas_lp.errors import TraceError
from atlas_lp.inputs import open_input
from atlas_lp.traces.advice import EXPORT_COMMAND

_VERSION = re.compile(r"[0-9]{1,9}")
_MAGIC = b"SQLite format 3\x00"
_DAMAGE = (sqlite3.Error, UnicodeDecodeError)  # sqlite3 decodes its own messages, which may quote damaged text

LONGEST_TEXT = 1 << 20
"""Bytes of one text that is read: a name, or a payload as JSON."""

_LONGEST_VALUE = 1 << 28
"""Bytes of a row that is looked at; what a program printed may be one text."""


class Export:
    """An open export; :meth:`columns` reads, :meth:`has` asks which tables and columns exist.

    Use :func:`open_export`.  Every read error of SQLite becomes a
    :class:`~atlas_lp.errors.TraceError` that names the file.
    """

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        self.path = path
        self._connection = connection
        connection.text_factory = self._text
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _LONGEST_VALUE)
        self._tables: dict[str, list[str]] = {}
        query = (
            "SELECT t.name, c.name FROM sqlite_master t, pragma_table_info(t.name) c WHERE t.type = 'table' "
            "ORDER BY t.name, c.cid"
        )
        for table, column in self.rows(query):
            self._tables.setdefault(table, []).append(column)
        self._check_strings()

    def rows(self, query: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """All rows of a query."""
        try:
            return self._connection.execute(query, parameters).fetchall()
        except _DAMAGE as error:
            raise self._damaged(error) from None

    def stream(self, query: str) -> Iterator[tuple[Any, ...]]:
        """Rows of a query, one after another, in bounded memory."""
        try:
            for row in self._connection.execute(query):  # noqa: UP028  # which would close the cursor, too late
                yield row
        except _DAMAGE as error:
            raise self._damaged(error) from None

    def columns(self, query: str, names: Sequence[str]) -> dict[str, NDArray[np.int64]]:
        """Columns of integers of a query whose select list matches *names*; NULL becomes -1."""
        try:
            rows = self._connection.execute(query)
            values = np.fromiter((-1 if x is None else x for row in rows for x in row), dtype=np.int64)
        except _DAMAGE as error:
            raise self._damaged(error) from None
        except (OverflowError, ValueError, TypeError):
            raise TraceError(f"{self.path}: a value is not a number of 64 bits in the result of: {query}") from None
        table = values.reshape(-1, len(names))
        return {name: table[:, i] for i, name in enumerate(names)}

    def has(self, table: str, *columns: str) -> bool:
        """Whether *table* exists and has all *columns*."""
        return table in self._tables and all(column in self._tables[table] for column in columns)

    def table(self, name: str) -> str | None:
        """Return the table of that name, or its newest version (``NAME_V10`` before ``NAME_V3``)."""
        if name in self._tables:
            return name
        versions = [t for t in self._tables if t.startswith(f"{name}_V") and _VERSION.fullmatch(t, len(name) + 2)]
        return max(versions, key=lambda t: int(t[len(name) + 2 :]), default=None)

    def require(self, table: str, columns: Sequence[str], hint: str) -> None:
        """Raise :class:`~atlas_lp.errors.TraceError` with *hint* unless the table and columns exist."""
        if table not in self._tables:
            raise TraceError(f"{self.path}: no table {table}: {hint}")
        missing = [column for column in columns if column not in self._tables[table]]
        if missing:
            raise TraceError(f"{self.path}: table {table} lacks the columns {', '.join(missing)}: {hint}")

    def metadata(self) -> dict[str, str]:
        """Name and value pairs that the exporter recorded (EXPORT_META_DATA up to nsys 2023.2)."""
        for table in ("META_DATA_EXPORT", "EXPORT_META_DATA"):
            if self.has(table, "name", "value"):
                rows = self.rows(f"SELECT name, value FROM {table} ORDER BY name, value")
                return {str(name): str(value) for name, value in rows}
        return {}

    def _text(self, text: bytes) -> str:
        """A text of the database, which need not be one of UTF-8."""
        if len(text) > LONGEST_TEXT:
            raise TraceError(
                f"{self.path}: a text of {len(text)} bytes where names and payloads have less than {LONGEST_TEXT}; "
                f"export again: {EXPORT_COMMAND}"
            )
        return text.decode("utf-8", "replace")

    def _check_strings(self) -> None:
        """Refuse two texts with one id: every event with that id would be as many events."""
        if not self.has("StringIds", "id", "value"):
            return
        if [row[1] for row in self.rows("PRAGMA table_info(StringIds)") if row[5]] == ["id"]:
            return  # its primary key
        twice = self.rows("SELECT id, count(*) FROM StringIds GROUP BY id HAVING count(*) > 1 ORDER BY id LIMIT 1")
        if twice:
            raise TraceError(
                f"{self.path}: table StringIds has {twice[0][1]} texts with id {twice[0][0]}, and one is meant; export "
                f"again: {EXPORT_COMMAND}"
            )

    def _damaged(self, error: Exception) -> TraceError:
        if isinstance(error, sqlite3.DataError):
            return TraceError(
                f"{self.path}: a row of more than {_LONGEST_VALUE} bytes ({error}); export again: {EXPORT_COMMAND}"
            )
        return TraceError(
            f"{self.path}: the database cannot be read ({error}); is the export complete? Run again: {EXPORT_COMMAND}"
        )


def host_of(export: Export) -> tuple[str, bool]:
    """Host name as recorded, or else a name made of the start time of the session."""
    if export.has("TARGET_INFO_SYSTEM_ENV", "name", "value"):
        rows = export.rows("SELECT value FROM TARGET_INFO_SYSTEM_ENV WHERE name = 'Hostname' ORDER BY value")
        if rows and rows[0][0]:
            return str(rows[0][0]), True
    return "unnamed host", False


def session_start(export: Export) -> int:
    """UTC start of the session in ns: puts files of one host on one clock."""
    table = "TARGET_INFO_SESSION_START_TIME"
    if export.has(table, "utcEpochNs"):
        rows = export.columns(f"SELECT utcEpochNs FROM {table} ORDER BY utcEpochNs", ("utc",))["utc"]
        if len(rows) and 0 <= rows[0] < 2**61:
            return int(rows[0])
    return 0


@contextmanager
def open_export(path: Path) -> Iterator[Export]:
    """Open *path* read-only, after checking that it is a whole SQLite database.

    Raises :class:`~atlas_lp.errors.TraceError` for a missing file, another file type, or a cut one.
    """
    _check_file(path)
    connection = sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro&immutable=1", uri=True)
    try:
        yield Export(path, connection)
    finally:
        connection.close()


def _check_file(path: Path) -> None:
    """Compare the header of the file with its size: a half-written export is shorter than it says."""
    try:
        with open_input(path, TraceError) as file:
            header = file.read(100)
        size = path.stat().st_size
    except FileNotFoundError:
        raise TraceError(f"{path}: no such file") from None
    except OSError as error:
        raise TraceError(f"{path}: cannot be read ({error.strerror})") from None
    if not header.startswith(_MAGIC):
        what = "is empty" if size == 0 else "is not a SQLite database"
        raise TraceError(f"{path}: the file {what}; export the report with: {EXPORT_COMMAND}")
    page_size = int.from_bytes(header[16:18], "big")
    expected = (65_536 if page_size == 1 else page_size) * int.from_bytes(header[28:32], "big")
    if len(header) < 100 or size < expected:
        raise TraceError(f"{path}: half-written: {size} of {expected} bytes; export the report again: {EXPORT_COMMAND}")
    for suffix in ("-journal", "-wal"):
        unfinished = path.with_name(path.name + suffix)
        if unfinished.exists() and unfinished.stat().st_size:
            raise TraceError(f"{path}: {unfinished.name} exists: the export has not finished; wait or run it again")
