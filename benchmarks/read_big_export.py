"""Read a synthetic export of many rows: rows per second and peak memory.

    python benchmarks/read_big_export.py [ROWS] [--nccl-every N] [--keep FILE]

A third of the rows are NVTX ranges, a third kernels, a third their launches; some kernels are NCCL's, and as many
ranges are NCCL calls, the others are the application's.
"""

import argparse
import resource
import sqlite3
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from atlas_lp.traces.reading.read import read_trace
from atlas_lp.traces.signing.sign import sign
from atlas_lp.traces.synthetic.writer import ExportWriter

STEP_NS = 1_000
COMMUNICATOR = 0xC0FFEE
PROCESSES = 2


def skeleton(path: Path) -> Path:
    """An export with one collective per process, whose tables and strings the rows below use."""
    export = ExportWriter()
    for rank in range(PROCESSES):
        process = export.process(pid=100 + rank, device=rank)
        process.init_communicator(COMMUNICATOR, ranks=PROCESSES, rank=rank, at_ns=1_000, duration_ns=1_000)
        process.user_range("aten::linear", 500, 600)
        process.kernel("gemm", stream=7, start_ns=300_000, end_ns=300_500)
        process.collective(
            "AllReduce", size_bytes=1 << 20, communicator=COMMUNICATOR, stream=17, start_ns=500_000, end_ns=600_000
        )
    return export.write(path, overwrite=True)


def fill(path: Path, rows: int, every: int) -> int:
    """Add rows to the skeleton; return how many there are in the tables of ranges, kernels and launches."""
    steps = rows // (3 * PROCESSES)
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA synchronous = OFF")
        db.execute("PRAGMA journal_mode = OFF")
        names = {value: number for number, value in db.execute("SELECT id, value FROM StringIds")}
        payload = db.execute("SELECT jsonText FROM NVTX_EVENTS WHERE jsonText LIKE '%Message size%'").fetchone()[0]
        nccl = next(number for value, number in names.items() if value.startswith("ncclDevKernel_AllReduce"))
        call = names["ncclAllReduce"]
        launch = names["cudaLaunchKernel_v7000"]
        db.executemany(
            "INSERT INTO NVTX_EVENTS (start, end, eventType, text, globalTid, textId, domainId, jsonText) "
            "VALUES (?, ?, 59, ?, ?, ?, ?, ?)",
            ranges(steps, every, call, payload),
        )
        db.executemany(
            "INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME (start, end, globalTid, correlationId, nameId, returnValue, "
            "eventClass) VALUES (?, ?, ?, ?, ?, 0, 0)",
            launches(steps, every, launch),
        )
        zero = "registersPerThread, gridY, gridZ, blockY, blockZ, staticSharedMemory, dynamicSharedMemory, "
        zero += "localMemoryPerThread, localMemoryTotal, gridId, tensorSizeMinusOneElements"
        db.executemany(
            "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL (start, end, deviceId, contextId, streamId, correlationId, "
            f"globalPid, demangledName, shortName, gridX, blockX, {zero}) "
            "VALUES (?, ?, ?, 1, ?, ?, ?, ?, ?, 8, 544, 0, 1, 1, 1, 1, 0, 0, 0, 0, 0, '[]')",
            kernels(steps, every, nccl, names["gemm"]),
        )
        db.commit()
    return 3 * PROCESSES * steps


def processes(steps: int, every: int) -> Iterator[tuple[int, int, int, bool]]:
    """(rank, globalPid, start, whether NCCL) of every step of every process."""
    for step in range(steps):
        for rank in range(PROCESSES):
            yield rank, (1 << 48) + ((100 + rank) << 24), 1_000_000 + step * STEP_NS, step % every == 0


def ranges(steps: int, every: int, call: int, payload: str) -> Iterator[tuple[object, ...]]:
    for rank, pid, start, is_nccl in processes(steps, every):
        tid = pid + 100 + rank
        if is_nccl:
            yield start, start + 400, None, tid, call, 1, payload
        else:
            yield start, start + 400, "aten::linear", tid, None, 0, None


def launches(steps: int, every: int, name: int) -> Iterator[tuple[int, ...]]:
    for number, (rank, pid, start, _) in enumerate(processes(steps, every)):
        yield start + 100, start + 200, pid + 100 + rank, 10_000 + number // PROCESSES, name


def kernels(steps: int, every: int, nccl: int, gemm: int) -> Iterator[tuple[int, ...]]:
    for number, (rank, pid, start, is_nccl) in enumerate(processes(steps, every)):
        name = nccl if is_nccl else gemm
        stream = 17 if is_nccl else 7
        yield start + 300, start + 900, rank, stream, 10_000 + number // PROCESSES, pid, name, name


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("rows", nargs="?", type=int, default=10_000_000)
    parser.add_argument("--nccl-every", type=int, default=100, help="one range and kernel in so many is NCCL's")
    parser.add_argument("--keep", type=Path, help="write the export there and keep it")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = skeleton(options.keep or Path(folder) / "big.sqlite")
        begin = time.perf_counter()
        rows = fill(path, options.rows, options.nccl_every)
        size_mb = path.stat().st_size / 1e6
        print(f"wrote {rows} rows, {size_mb:.0f} MB, in {time.perf_counter() - begin:.1f} s")
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        begin = time.perf_counter()
        trace = read_trace([path])
        seconds = time.perf_counter() - begin
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(f"read {trace.operations.num_rows} operations in {seconds:.1f} s: {rows / seconds:.0f} rows/s")
        print(f"peak memory {peak:.0f} MB ({before:.0f} MB before reading)")
        begin = time.perf_counter()
        signed, _ = sign(trace)
        print(f"signed {len(signed)} collectives in {time.perf_counter() - begin:.1f} s")


if __name__ == "__main__":
    main()
