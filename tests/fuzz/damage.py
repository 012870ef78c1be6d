"""Damage to one file: each function takes its bytes and a source of chance, and gives other bytes.

Bytes, words and lines of texts, values of JSON, and rows, cells and columns of SQLite databases.
"""

import gzip
import json
import re
import sqlite3
from collections.abc import Callable, Iterable
from contextlib import closing, suppress
from functools import partial
from random import Random
from typing import Any

Damage = Callable[[bytes, Random], bytes]

# --- bytes ----------------------------------------------------------------------------------------------------------


def cut(data: bytes, draw: Random) -> bytes:
    """The beginning of a file."""
    return data[: draw.randrange(max(1, len(data)))]


def flipped(data: bytes, draw: Random) -> bytes:
    """One bit or some bytes of another value."""
    changed = bytearray(data or b"\0")
    for _ in range(draw.choice((1, 1, 1, 4, 64))):
        changed[draw.randrange(len(changed))] ^= draw.choice((1 << draw.randrange(8), draw.randrange(1, 256)))
    return bytes(changed)


def shifted(data: bytes, draw: Random) -> bytes:
    """A range of bytes deleted, repeated, blanked or put in."""
    at, length = draw.randrange(len(data) + 1), draw.choice((1, 2, 16, 512))
    part = data[at : at + length]
    new = draw.choice((b"", part * 2, b"\0" * len(part), draw.randbytes(length) + part, b"\xff\xfe" + part))
    return data[:at] + new + data[at + length :]


# --- texts ----------------------------------------------------------------------------------------------------------

NUMBERS = ("0", "-1", "-0", "1", "7", "255", "65537", str(2**31), str(2**32), str(2**62), str(2**63), str(2**64))
NUMBERS += ("9" * 400, "1e308", "1e999", "-1e-300", "nan", "inf", "0x1F", "1_000", "1.5", "0.1", "00007", "1e5")
WORDS = (
    "",
    " ",
    "x",
    "(nil)",
    "\u00b2",
    "\uff11",
    "\u202e",
    "\x1b[31m",
    "\\[/red]",
    "null",
    "true",
    "'",
    '"',
    "-",
    "/",
)
WORDS += ("a" * 3000, "\u0000", "\U0001f600", "{}", "[[[[", "#", "=", "ring", "1us", "-5us", "1e30us", "0Gbps")
_WORD = re.compile(rb"\d+(?:\.\d+)?|\w+|[^\w\s]")


def words(data: bytes, draw: Random) -> bytes:
    """Some words or numbers replaced by others of the file, or by wild ones."""
    found = list(_WORD.finditer(data))
    numbers = [match for match in found if match[0].isdigit()]
    some = {
        draw.choice(draw.choice((numbers, found)) or found) for _ in range(draw.choice((1, 1, 1, 3)) if found else 0)
    }
    for match in sorted(some, key=re.Match.start, reverse=True):
        alike = [other[0] for other in found if other[0].isdigit() == match[0].isdigit()]
        wild = NUMBERS if match[0].isdigit() and draw.random() < 0.9 else WORDS
        new = draw.choice(alike) if draw.random() < 0.4 else draw.choice(wild).encode()
        data = data[: match.start()] + new + data[match.end() :]
    return data


def lines(data: bytes, draw: Random) -> bytes:
    """Lines deleted, repeated, exchanged or broken."""
    all_lines = data.splitlines(keepends=True) or [b"\n"]
    for _ in range(draw.choice((1, 1, 2, 5))):
        at, other = draw.randrange(len(all_lines)), draw.randrange(len(all_lines))
        kind = draw.choice(("delete", "repeat", "exchange", "break"))
        if kind == "delete" and len(all_lines) > 1:
            del all_lines[at]
        elif kind == "repeat":
            all_lines.insert(other, all_lines[at])
        elif kind == "exchange":
            all_lines[at], all_lines[other] = all_lines[other], all_lines[at]
        else:
            half = draw.randrange(len(all_lines[at]) + 1)
            all_lines[at] = all_lines[at][:half] + b"\n" + all_lines[at][half:]
    return b"".join(all_lines)


# --- JSON -----------------------------------------------------------------------------------------------------------

VALUES = (None, -1, 0, 1, 7, 2**31, 2**62, 2**63, 2**70, -(2**64), 1.5, 1e300, True, False, "x", "", "\x1b[31m", "0x1F")
VALUES += ("9" * 400, "[0, 1]", [], {}, [1, 2], [[]], [None], {"a": 1}, float("inf"), float("nan"))


def wild_value(value: Any, draw: Random) -> None:
    """Change or drop one thing inside a list or an object."""
    places = list(value) if isinstance(value, dict) else list(range(len(value)))
    if not places:
        return
    place = draw.choice(places)
    if isinstance(value[place], dict | list) and value[place] and draw.random() < 0.9:
        wild_value(value[place], draw)
    elif draw.random() < 0.25:
        del value[place]
    else:
        value[place] = draw.choice(VALUES)


def _json(change: Callable[[Any, Random], None], data: bytes, draw: Random) -> bytes:
    packed = data[:2] == b"\x1f\x8b"
    document = json.loads(gzip.decompress(data) if packed else data)
    change(document, draw)
    text = json.dumps(document).encode()
    return gzip.compress(text, mtime=0) if packed else text


def _wild(document: Any, draw: Random) -> None:
    for _ in range(draw.choice((1, 1, 2, 8))):
        wild_value(document, draw)


def _some(events: list[Any], draw: Random) -> list[int]:
    """Places of some rows: one, a few, half, those that are alike, a stretch, or all."""
    kind = draw.choice(("one", "one", "few", "half", "stretch", "all"))
    places = range(len(events))
    if kind == "stretch":
        start = draw.randrange(len(events))
        return list(places[start : start + draw.randint(1, len(events))])
    count = {"one": 1, "few": min(5, len(events)), "half": len(events) // 2, "all": len(events)}[kind]
    return sorted(draw.sample(places, count))


def _events_deleted(document: Any, draw: Random) -> None:
    events = document["traceEvents"]
    category = draw.choice(sorted({str(event.get("cat")) for event in events}))
    own = [place for place, event in enumerate(events) if str(event.get("cat")) == category]
    gone = {own[place] for place in _some(own, draw)}
    document["traceEvents"] = [event for place, event in enumerate(events) if place not in gone]


def _events_repeated(document: Any, draw: Random) -> None:
    events = document["traceEvents"]
    events += [events[place] for place in _some(events, draw)]


def _events_shuffled(document: Any, draw: Random) -> None:
    draw.shuffle(document["traceEvents"])


json_values = partial(_json, _wild)
events_deleted, events_repeated, events_shuffled = (
    partial(_json, change) for change in (_events_deleted, _events_repeated, _events_shuffled)
)

# --- SQLite ---------------------------------------------------------------------------------------------------------

CELLS = (None, -1, 0, 1, 7, 2**31, 2**32, 2**53, 2**62, 2**63 - 1, -(2**63), 0.5, 1e300, "x", "", "9" * 400, b"\0\xff")
CELLS += ("\x1b[31m", "\u00b2", '{"a": 1}', "[" * 2000, 10**15)
Row = tuple[Any, ...]


def _database(change: Callable[[sqlite3.Connection, Random], None], data: bytes, draw: Random) -> bytes:
    with closing(sqlite3.connect(":memory:")) as db:
        db.deserialize(data)
        with suppress(sqlite3.IntegrityError):
            change(db, draw)
        db.commit()
        return db.serialize()


_READ = ("NVTX", "CUPTI", "TARGET", "META", "StringIds", "PROCESSES", "DIAGNOSTIC")
"""How the names of tables begin that a reader may look at."""


def _table(db: sqlite3.Connection, draw: Random) -> str:
    """A table with rows, mostly one that a reader may look at."""
    names = [name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name")]
    full = [name for name in names if db.execute(f"SELECT 1 FROM [{name}] LIMIT 1").fetchone()]
    if draw.random() < 0.95:
        full = [name for name in full if name.startswith(_READ)]
    return draw.choice(full)


def _columns(db: sqlite3.Connection, table: str) -> list[str]:
    return [row[1] for row in db.execute(f"PRAGMA table_info([{table}])")]


def _rowids(db: sqlite3.Connection, table: str) -> list[int]:
    return [row for (row,) in db.execute(f"SELECT rowid FROM [{table}] ORDER BY rowid")]


def _rows_deleted(db: sqlite3.Connection, draw: Random) -> None:
    """Some rows of a table, or all that are alike in one column, of all or within a stretch."""
    table = _table(db, draw)
    rows = _rowids(db, table)
    if draw.random() < 0.5:
        column, like = draw.choice(_columns(db, table)), draw.choice(rows)
        same = f"SELECT rowid FROM [{table}] WHERE [{column}] IS (SELECT [{column}] FROM [{table}] WHERE rowid = ?)"
        rows = sorted(row for (row,) in db.execute(same, (like,)))
    _execute_all(db, f"DELETE FROM [{table}] WHERE rowid = ?", ((rows[place],) for place in _some(rows, draw)))


def _execute_all(db: sqlite3.Connection, statement: str, rows: Iterable[Row]) -> None:
    db.executemany(statement, list(rows))


def _reordered(db: sqlite3.Connection, table: str, order: Callable[[list[Row]], list[Row]]) -> None:
    """Write the rows of a table anew, in another order or number."""
    rows = order(list(db.execute(f"SELECT * FROM [{table}] ORDER BY rowid")))
    db.execute(f"DELETE FROM [{table}]")
    marks = ", ".join("?" * len(_columns(db, table)))
    with suppress(sqlite3.IntegrityError):  # a key that may stand once only
        _execute_all(db, f"INSERT INTO [{table}] VALUES ({marks})", rows)


def _rows_shuffled(db: sqlite3.Connection, draw: Random) -> None:
    _reordered(db, _table(db, draw), lambda rows: draw.sample(rows, len(rows)))


def _rows_exchanged(db: sqlite3.Connection, draw: Random) -> None:
    def exchanged(rows: list[Row]) -> list[Row]:
        one, other = draw.randrange(len(rows)), draw.randrange(len(rows))
        rows[one], rows[other] = rows[other], rows[one]
        return rows

    _reordered(db, _table(db, draw), exchanged)


def _rows_repeated(db: sqlite3.Connection, draw: Random) -> None:
    def repeated(rows: list[Row]) -> list[Row]:
        return rows + [rows[place] for place in _some(rows, draw)]

    _reordered(db, _table(db, draw), repeated)


def _cells(db: sqlite3.Connection, draw: Random) -> None:
    """Wild values in some rows of a column."""
    table = _table(db, draw)
    column, rows = draw.choice(_columns(db, table)), _rowids(db, table)
    value = draw.choice(CELLS)
    places = ((value, rows[place]) for place in _some(rows, draw))
    _execute_all(db, f"UPDATE [{table}] SET [{column}] = ? WHERE rowid = ?", places)


def _cells_exchanged(db: sqlite3.Connection, draw: Random) -> None:
    """Values of one column under other rows."""
    table = _table(db, draw)
    column, rows = draw.choice(_columns(db, table)), _rowids(db, table)
    values = [value for (value,) in db.execute(f"SELECT [{column}] FROM [{table}] ORDER BY rowid")]
    places = _some(rows, draw)
    turned = [*places[1:], *places[:1]]
    new = ((values[other], rows[place]) for place, other in zip(places, turned, strict=True))
    _execute_all(db, f"UPDATE [{table}] SET [{column}] = ? WHERE rowid = ?", new)


def _columns_changed(db: sqlite3.Connection, draw: Random) -> None:
    """A column or a table is missing, has another name, or other types."""
    table = _table(db, draw)
    column = draw.choice(_columns(db, table))
    to_text, to_blob = (f"UPDATE [{table}] SET [{column}] = CAST([{column}] AS {kind})" for kind in ("TEXT", "BLOB"))
    renamed = f"ALTER TABLE [{table}] RENAME COLUMN [{column}] TO [{column} {draw.choice(WORDS[:8])}x]"
    dropped = f"ALTER TABLE [{table}] DROP COLUMN [{column}]"
    with suppress(sqlite3.OperationalError):  # the last column of a table, or a key
        db.execute(draw.choice((to_text, to_blob, renamed, dropped)))


def _tables_dropped(db: sqlite3.Connection, draw: Random) -> None:
    db.execute(f"DROP TABLE [{_table(db, draw)}]")


rows_deleted, rows_shuffled, rows_exchanged, rows_repeated, cells, cells_exchanged, columns_changed, tables_dropped = (
    partial(_database, change)
    for change in (
        _rows_deleted,
        _rows_shuffled,
        _rows_exchanged,
        _rows_repeated,
        _cells,
        _cells_exchanged,
        _columns_changed,
        _tables_dropped,
    )
)
