"""Inputs whose every text tries to act on whoever shows or reads it, and the same inputs with harmless ones."""

import json
import os
import sqlite3
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

from helpers.jobs import two_ranks

SURROGATE = "\ud800"
TEXT = (
    "\x1b[31m\x1b]0;owned\x07\x9b2J\x85\u2028\u202e\u2066\u200b\ufeff\ufffe\U000e0001\x00\x7f\r\n\t"
    "[/red] \\[/red] [link=x] :smile: </style></script><script>alert(1)</script><img src=x onerror=y> {{ 7*7 }} ]]>"
    "\"'`;--&quot;$\\frac{$ %s {0} \u00b2 "
)
"""Escape sequences, C1 controls, marks of direction, ends of lines, NUL; markup of rich, HTML, Jinja, XML and TeX."""

IDENTIFIERS = ('x"y', "a'b; --", "NVTX_EVENTS_V\u00b2", "NVTX_EVENTS_V" + "9" * 5000, "NVTX_EVENTS_V-1", f"z{TEXT[:9]}")
"""Names of tables that are no plain identifiers of SQL, or end in what only looks like a number."""

FILE_NAME = os.fsdecode(b"out\xff\x1b[31m\x9b\n<b>[red]'\"")
"""The name of a file that is no UTF-8."""

MANY_DIGITS = "9" * (sys.get_int_max_str_digits() + 1)
"""More digits than Python turns into a number."""


_AMID = "substr(value, 1, instr(value, '(') - 1) || ? || '('"
"""SQL: the name of a kernel with a text before its arguments."""


def nsight(folder: Path, text: str = "", file_name: str = "") -> list[Path]:
    """Exports of two hosts; *text* is put into every text that need not be what it is, and into tables of its own."""
    plain = folder / "plain"
    plain.mkdir(parents=True)
    paths = []
    for path in two_ranks(plain):
        with closing(sqlite3.connect(path)) as db, db:
            db.execute(f"UPDATE StringIds SET value = {_AMID} WHERE value LIKE 'ncclDev%(%'", (text,))
            db.execute("UPDATE StringIds SET value = ? || value WHERE value NOT LIKE 'nccl%'", (text,))
            db.execute("UPDATE TARGET_INFO_SYSTEM_ENV SET value = value || ? WHERE name = 'Hostname'", (text,))
            db.execute("UPDATE META_DATA_EXPORT SET value = value || ?", (text,))
            db.execute("UPDATE META_DATA_CAPTURE SET value = value || ?", (text,))
            db.execute("UPDATE NVTX_PAYLOAD_ENUM_ENTRIES SET name = name || ?", (text,))
            db.execute("UPDATE NVTX_PAYLOAD_SCHEMAS SET name = name || ?", (text,))
            db.execute("UPDATE NVTX_PAYLOAD_SCHEMA_ENTRIES SET description = ?", (text,))
            for name in IDENTIFIERS if text else ():
                quoted = name.replace('"', '""').replace("\0", "")
                db.execute(f'CREATE TABLE "{quoted}" ("start" INTEGER, "{quoted}" TEXT)')
        paths.append(path.rename(folder / (path.stem + file_name + path.suffix)))
    return paths


def kineto(folder: Path, **texts: Any) -> list[Path]:
    """Kineto traces of two ranks; *texts* are put into what is written of a kernel, its file, or both."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for rank in range(2):
        arguments = {
            "device": rank,
            "context": 1,
            "stream": 20,
            "correlation": 1,
            "grid": [4, 1, 1],
            "block": [544, 1, 1],
            "Collective name": "allreduce",
            "In msg nelems": 1 << 18,
            "Out msg nelems": 1 << 18,
            "Group size": 2,
            "dtype": "Float",
            "Process Group Name": "0",
            "Process Group Ranks": "[0, 1]",
        }
        event = {"ph": "X", "cat": "kernel", "name": "ncclDevKernel_AllReduce_Sum_f32_RING_LL(x)", "ts": 100, "dur": 50}
        information = {"backend": "nccl", "rank": rank, "world_size": 2, "nccl_version": "2.21.5"}
        for target in (arguments, event, information):
            target.update({name: value for name, value in texts.items() if name in target})
        noted = {"ph": "X", "cat": "user_annotation", "name": "step", "ts": 90, "dur": 80, "pid": 1, "tid": 1}
        document = {"distributedInfo": information, "traceEvents": [{**event, "args": arguments}, noted]}
        path = folder / f"{rank}.json"
        path.write_text(json.dumps(document))
        paths.append(path)
    return paths
