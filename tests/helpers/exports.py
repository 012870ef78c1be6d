"""Small traces for tests of the readers: one base job, and edits that make the variants of the field reports."""

import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from atlas_lp.traces.reading.read import read_trace
from atlas_lp.traces.synthetic.export_tables import write_database
from atlas_lp.traces.synthetic.writer import ExportWriter, ProcessWriter
from atlas_lp.traces.trace import Trace

COMMUNICATOR = 0xC0FFEE
KIB, MIB = 1 << 10, 1 << 20
STEP_NS = 1_000_000
ID, SIZE, RANKS, RANK, DEVICE = (
    "NCCL communicator ID",
    "Message size [bytes]",
    "No. of ranks",
    "Rank",
    "CUDA device",
)
KERNEL = "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<(unsigned long)4096>)"

Steps = Sequence[tuple[str, int]]
BASE: Steps = (("AllReduce", MIB), ("AllGather", 4 * KIB))


def rank(
    export: ExportWriter,
    number: int,
    steps: Steps = BASE,
    *,
    ranks: int = 2,
    communicator: int = COMMUNICATOR,
    late_ns: int = 0,
    device: int | None = None,
    pid: int | None = None,
    init: bool = True,
    first_step: int = 0,
) -> ProcessWriter:
    """One process of a job: it joins the communicator and runs *steps*, one per millisecond, ends in common."""
    pid = 4100 + number if pid is None else pid
    made = [process for process in export._processes if process.pid == pid]
    process = made[0] if made else export.process(pid, number if device is None else device)
    if init:
        process.init_communicator(communicator, ranks=ranks, rank=number, at_ns=500_000, duration_ns=1_000)
    for position, (operation, size) in enumerate(steps, start=first_step):
        start = (2 + position) * STEP_NS + 7 * position**2
        process.collective(
            operation,
            size_bytes=size,
            communicator=communicator,
            stream=17,
            start_ns=start + late_ns,
            end_ns=start + 500_000 + 10 * number,
            channels=4,
            threads=544,
        )
    return process


def job(*, ranks: int = 2, steps: Steps = BASE, hostname: str = "node0") -> ExportWriter:
    """All ranks of the base job on one host."""
    export = ExportWriter(hostname)
    for number in range(ranks):
        rank(export, number, steps, ranks=ranks)
    return export


def edit(path: Path, *statements: str) -> Path:
    """Run SQL on a file."""
    with closing(sqlite3.connect(path)) as connection, connection:
        for statement in statements:
            connection.execute(statement)
    return path


def edited(tmp_path: Path, *statements: str, name: str = "edited.sqlite", export: ExportWriter | None = None) -> Path:
    """The base job with SQL run on it."""
    return edit((export or job()).write(tmp_path / name), *statements)


def content(trace: Trace) -> dict[str, Any]:
    """All of a trace that is not the names of its files."""
    tables = ("gpus", "communicators", "members", "operations")
    values: dict[str, Any] = {table: getattr(trace, table).to_pydict() for table in tables}
    return values | {"gaps": trace.gaps, "nccl": trace.nccl_version, "topologies": trace.topologies}


def operations(trace: Trace, *names: str) -> list[tuple[Any, ...]]:
    """Chosen columns of all operations."""
    columns = [trace.operations.column(name).to_pylist() for name in names]
    return list(zip(*columns, strict=True))


def gaps(trace: Trace) -> dict[str, int]:
    """Counts of gaps by code."""
    return {gap.code: gap.count for gap in trace.gaps}


def read(*paths: Path, **options: Any) -> Trace:
    """Read exports."""
    return read_trace(paths, **options)


def group(
    process: ProcessWriter,
    calls: Sequence[tuple[str, dict[str, int | str]]],
    *,
    at_ns: int,
    kernels: Sequence[dict[str, Any]] = (),
    nested: bool = False,
) -> None:
    """A group of calls; *kernels* (arguments of ``ProcessWriter.kernel``, and ``on``) start inside its ncclGroupEnd."""
    time = at_ns
    for _ in range(2 if nested else 1):
        process.nccl_call("ncclGroupStart", start_ns=time, end_ns=time + 100)
        time += 200
    for function, payload in calls:
        process.nccl_call(function, payload, start_ns=time, end_ns=time + 100)
        time += 200
    if nested:
        process.nccl_call("ncclGroupEnd", start_ns=time, end_ns=time + 100)
        time += 200
    process.nccl_call("ncclGroupEnd", start_ns=time, end_ns=time + 20_000 * (1 + len(kernels)))
    for number, kernel in enumerate(kernels):
        kernel = dict(kernel)
        view = process.on(device=kernel.pop("device", process.device))
        view.kernel(kernel.pop("name", KERNEL), call_ns=time + 1_000 + 10_000 * number, **kernel)


def payload(size: int, communicator: int = COMMUNICATOR, **more: int | str) -> dict[str, int | str]:
    """Payload of a collective or, with ``peer``, of a send or receive."""
    values: dict[str, int | str] = {ID: communicator, SIZE: size}
    return values | {"Peer rank" if name == "peer" else name: value for name, value in more.items()}


def annotated(
    path: Path,
    lines: Sequence[tuple[int, int, int, str]],
    kernels: Sequence[tuple[int, int, int, int]],
    *,
    registered: bool = False,
    name: str = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevComm*)",
    host: str | None = None,
) -> Path:
    """The minimal file of the ATLAHS reader probe.

    *lines* are (pid, start, end, text), *kernels* (pid, start, end, device); nothing else is in the file, except
    the name of the *host* where one is given.
    """
    texts = {name: 0}
    for _, _, _, text in lines:
        texts.setdefault(text, len(texts))
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("CREATE TABLE NVTX_EVENTS (start, end, eventType, text, textId, globalTid)")
        db.execute("CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT)")
        db.execute("CREATE TABLE PROCESSES (globalPid, pid, name)")
        db.execute("CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start, end, streamId, globalPid, demangledName, deviceId)")
        db.executemany("INSERT INTO StringIds VALUES (?, ?)", [(number, text) for text, number in texts.items()])
        for pid, start, end, text in lines:
            words = (None, texts[text]) if registered else (text, None)
            db.execute("INSERT INTO NVTX_EVENTS VALUES (?, ?, 59, ?, ?, ?)", (start, end, *words, (pid << 24) + pid))
        for pid, start, end, device in kernels:
            db.execute(
                "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (?, ?, 7, ?, 0, ?)", (start, end, pid << 24, device)
            )
        if host is not None:
            db.execute("CREATE TABLE TARGET_INFO_SYSTEM_ENV (name, value)")
            db.execute("INSERT INTO TARGET_INFO_SYSTEM_ENV VALUES ('Hostname', ?)", (host,))
    return path


def rewrite(path: Path, target: Path, change: Callable[[str, dict[str, Any]], dict[str, Any] | None]) -> Path:
    """Copy a synthetic export row by row through *change* (None drops the row)."""
    from atlas_lp.traces.synthetic.export_tables import TABLES

    rows: dict[str, list[Any]] = {}
    with closing(sqlite3.connect(path)) as db:
        db.row_factory = sqlite3.Row
        for (table,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name").fetchall():
            for row in db.execute(f"SELECT * FROM {table}"):
                changed = change(table, dict(row))
                if changed is not None:
                    rows.setdefault(table, []).append(changed)
    write_database(target, TABLES, rows)
    return target


def annotated_broadcast():
    """What annotations of NCCL say of one Broadcast of two ranks, with the time of each."""
    where = "commHash 0xaa"
    return [
        (10, f"{where} commId 0xc1 rank 0 nranks 2 pid 1"),
        (12, f"{where} Rings [0] 1->0->1 pid 1"),
        (100, f"ncclBroadcast(): {where}, stream 0x1, data_size 64, type_size 4, root 0, pid 1"),
        (
            105,
            f"collType 0 root 0 redOp 0 algo 1 proto 2 {where} stream 0x1 data_size 64 type_size 4 chunkSize 1 pid 1",
        ),
        (106, "nWarps 1 count 64 chunkCount 1 workCount 64 lastChunkCount 1 workOffset 0 sendbuff 1 recvbuff 2 pid 1"),
        (107, "ncclLaunchKernel(): pid 1"),
    ]
