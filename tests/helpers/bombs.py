"""Small files that are large to read, or slow: each is made and read in this process under a limit.

``python -m helpers.bombs FOLDER MEMORY_BYTES NAME...`` prints a JSON object: per name the refusal, or how it was read.
"""

import gzip
import json
import os
import resource
import shutil
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import zstandard

from atlas_lp.errors import AtlasError
from atlas_lp.fabrics.fabric import load_fabric
from atlas_lp.goal.text import read_goal
from atlas_lp.signatures.costs import NPKIT_EVENTS, load_costs
from atlas_lp.traces.companions.assumptions import read_assumptions
from atlas_lp.traces.companions.debug_log import read_logs
from atlas_lp.traces.companions.profiler_dump import read_dumps
from atlas_lp.traces.reading.read import read_trace
from helpers.exports import edited
from helpers.jobs import two_ranks
from helpers.packs import parts_of

MIB = 1 << 20

BLOCK = b"num_ranks 1\nrank 0 {\n"
KERNEL = {"ph": "X", "cat": "kernel", "name": "ncclKernel", "ts": 1, "dur": 1}
ARGUMENTS = {"device": 0, "stream": 1, "Collective name": "allreduce", "In msg nelems": 4, "dtype": "Float"}


def zst(*parts: tuple[bytes, int]) -> bytes:
    """Frames of each content, as often as its number says."""
    return b"".join(zstandard.compress(content) * times for content, times in parts)


def gz(*parts: tuple[bytes, int]) -> bytes:
    """Members of each content, as often as its number says."""
    return b"".join(gzip.compress(content) * times for content, times in parts)


def kineto(world: int = 2, kernels: int = 1, **arguments: object) -> bytes:
    """A trace of some kernels whose *arguments* are special."""
    event = {**KERNEL, "args": {**ARGUMENTS, **arguments}}
    return json.dumps({"distributedInfo": {"rank": 0, "world_size": world}, "traceEvents": [event] * kernels}).encode()


def line(text: str) -> bytes:
    """A log of one line of NCCL that means something, after *text*."""
    return (text + "\nn:1:1 [0] NCCL INFO NCCL version 2.27.3\n").encode()


EVENT = next(iter(NPKIT_EVENTS))
INFO = "n:1:1 [0] NCCL INFO "

FILES: dict[str, tuple[str, Callable[[], bytes]]] = {
    "a line of 10 GB": ("x.goal.zst", lambda: zst((b"a" * 64 * MIB, 160))),
    "10 GB of empty lines": ("x.goal.zst", lambda: zst((b"\n" * 64 * MIB, 160))),
    "10 GB of a comment": ("x.goal.zst", lambda: zst((b"/*\n", 1), (b"a" * MIB + b"\n", 10_000))),
    "a number of 20 M digits": ("x.goal", lambda: BLOCK + b"calc " + b"9" * 20 * MIB + b"\n}\n"),
    "a statement and a million blanks": ("x.goal", lambda: BLOCK + b"calc 5 " + b" " * 10**6 + b"x\n}\n"),
    "a label of a million letters": ("x.goal", lambda: BLOCK + b"a" * 10**6 + b"\n}\n"),
    "512 MB of blanks in JSON": ("x.json.gz", lambda: gz((b" " * 32 * MIB, 16))),
    "events of two characters": ("x.json.gz", lambda: gz((b'{"traceEvents":[', 1), (b"{}," * 20 * MIB, 40))),
    "JSON of any depth": ("x.json", lambda: b'{"traceEvents":[{"a":' + b"[" * 10**6),
    "a wide JSON value": ("x.json", lambda: b'{"a":[' + b"[]," * 20 * MIB),
    "a number of 20 M digits in JSON": ("x.json", lambda: b'{"a":' + b"9" * 20 * MIB),
    "a text of 20 MB in JSON": ("x.json", lambda: b'{"a":"' + b"x" * 20 * MIB),
    "ranks of any depth": ("x.json", lambda: kineto(**{"Process Group Ranks": "[" * 10**5})),
    "a shape of many dimensions": ("x.json", lambda: kineto(**{"In msg nelems": [2**59] * 10**5})),
    "four million ranks for 3,000 kernels": ("x.json", lambda: kineto(2**22, 3000)),
    "a key of 400,000 parts": ("x.toml", lambda: b"a" + b".a" * 400_000 + b" = 1\n"),
    "keys of 15 parts": ("x.toml", lambda: b"\n".join(b"a" + b".b" * 14 + b".c%d = 1" % i for i in range(50_000))),
    "lists of any depth": ("x.toml", lambda: b"a = " + b"[" * 10**5),
    "tables of any depth": ("x.toml", lambda: b"a = " + b"{a=" * 10**5),
    "a number of 5,000 digits": ("x.toml", lambda: b"a = " + b"9" * 5000),
    "a number with a large exponent": ("x.toml", lambda: b"a = 1e999999999"),
    "a TOML file of 5 MB": ("x.toml", lambda: b"# " + b"x" * 5 * MIB),
    "exponents as text": ("x-costs.toml", lambda: b'[simple.send]\npoints = [[1, "1e999999999"]]\n'),
    "exponents in a summary": ("x-costs.json", lambda: json.dumps({EVENT: {"1": ["1e999999999"]}}).encode()),
    "a log line that is one word": ("x.log", lambda: line("a" * 10**6)),
    "a log line of colons": ("x.log", lambda: line("1:" * 500_000)),
    "a log line of hosts": ("x.log", lambda: line("a:1:" * 250_000)),
    "a log line of beginnings": ("x.log", lambda: line(INFO * 50_000)),
    "a log line of channels": ("x.log", lambda: line(f"{INFO}Channel 00/1 :" + " 1" * 500_000 + " x")),
    "a log line of ids": ("x.log", lambda: line(f"{INFO}comm 0x1 rank 0 nranks 1 " + "commId 0x1 " * 90_000)),
    "a log line of trees": ("x.log", lambda: line(f"{INFO}Trees " + "[1] 1/1/" * 120_000)),
    "a log line of counts": ("x.log", lambda: line(f"{INFO}1 coll channels," + " 1 p2p channels, " * 60_000)),
    "a log line of 3 MB": ("x.log", lambda: line("a " * 1_500_000)),
    "a log of 20,000 hosts": (
        "x.log",
        lambda: (
            b"".join(b"n%d:1:1 [0] NCCL INFO x\n" % i for i in range(20_000))
            + b"".join(b"- m%d:1:1 [0] NCCL INFO x\n" % i for i in range(20_000))
        ),
    ),
    "beginnings of events": ("x-dump.json", lambda: b'"name":"x","cat":"COLL","ph":"b" ' * 10**6),
    "a dump of 300 MB": ("x-dump.json", lambda: b" " * 300 * MIB),
}
"""Name and content of a file by what is wrong with it."""

EDITS: dict[str, tuple[str, ...]] = {
    "20,000 texts of one id": (
        "CREATE TABLE Texts (id INTEGER, value TEXT)",
        "INSERT INTO Texts SELECT * FROM StringIds",
        (
            "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 20000) "
            "INSERT INTO Texts SELECT id, value FROM StringIds, n"
        ),
        "DROP TABLE StringIds",
        "ALTER TABLE Texts RENAME TO StringIds",
    ),
    "a payload of 2 MB": ("UPDATE NVTX_EVENTS SET jsonText = hex(zeroblob(1000000))",),
    "a payload of 100 KB": ("UPDATE NVTX_EVENTS SET jsonText = hex(zeroblob(50000))",),
    "a payload of any depth": ("UPDATE NVTX_EVENTS SET jsonText = replace(hex(zeroblob(15000)), '00', '[[')",),
    "a binary payload of 10 MB": ("UPDATE NVTX_EVENTS SET jsonText = NULL, binaryData = zeroblob(10000000)",),
    "a name of 2 MB": ("UPDATE NVTX_EVENTS SET text = 'nccl' || hex(zeroblob(1000000))",),
    "a stream of 10 MB": ("UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET streamId = zeroblob(10000000)",),
    "a value of 300 MB": ("UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET streamId = zeroblob(300000000) WHERE rowid = 1",),
    "what a program printed, 20 MB": ("INSERT INTO StringIds VALUES (999999, hex(zeroblob(10000000)))",),
}
"""SQL on an export by what is wrong with it afterwards."""


def zeros(batches: int, rows: int) -> bytes:
    """The table of waits as so many pieces of so many rows, all zeros."""
    schema = pa.schema([("before", pa.int64()), ("after", pa.int64())])
    column = np.zeros(rows, dtype=np.int64)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
        batch = pa.record_batch([column, column], schema=schema)
        for _ in range(batches):
            writer.write_batch(batch)
    return sink.getvalue().to_pybytes()


PARTS: dict[str, tuple[str, Callable[[], bytes]]] = {
    "an entry of 128 MB": ("trace.json", lambda: b" " * 128 * MIB),
    "a wide description": ("trace.json", lambda: b'{"a":[' + b"[]," * 4 * MIB),
    "a description of any depth": ("trace.json", lambda: b"[" * 10**6),
    "a table of 3 GB": ("waits.arrow", lambda: zeros(48, 4_000_000)),
    "a table in 10,000 pieces": ("waits.arrow", lambda: zeros(10_000, 1)),
}
"""Part of a packed trace by what is wrong with it."""


def made(name: str, folder: Path) -> Path:
    """Make the file of that *name*."""
    if name in EDITS:
        return edited(folder, *EDITS[name])
    if name in PARTS:
        part, content = PARTS[name]
        path = folder / "x.atlas"
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            (folder / "exports").mkdir(exist_ok=True)
            trace = read_trace(two_ranks(folder / "exports"))
            for other, usual in parts_of(trace).items():
                archive.writestr(other, content() if other == part else usual)
            shutil.rmtree(folder / "exports")
        return path
    file, content = FILES[name]
    path = folder / file
    path.write_bytes(content())
    return path


def read(path: Path) -> object:
    """Read a file by its ending as what it may be."""
    if path.name.startswith("x-costs"):
        return load_costs(str(path))
    if path.name.startswith("x-dump"):
        return read_dumps([path])
    if path.suffix == ".toml":
        read_assumptions_or_not(path)
        return load_fabric(str(path))
    if path.suffix == ".log":
        return read_logs([path])
    return read_goal(path) if ".goal" in path.name else read_trace([path], allow_missing=True)


def read_assumptions_or_not(path: Path) -> None:
    """Read *path* as assumptions and as costs, too: they refuse it as the fabric does, or for other reasons."""
    for reader in (read_assumptions, load_costs):
        try:
            reader(path)
        except AtlasError:
            continue


def outcome(name: str, folder: Path) -> str:
    """What reading the file said."""
    path = made(name, folder)
    try:
        return f"read: {type(read(path)).__name__}"
    except AtlasError as error:
        return str(error)
    finally:
        path.unlink()


if __name__ == "__main__":
    place, memory, *names = sys.argv[1:]
    resource.setrlimit(resource.RLIMIT_AS, (int(memory), int(memory)))
    found = {name: outcome(name, Path(place)) for name in names}
    os.write(1, json.dumps(found).encode())
