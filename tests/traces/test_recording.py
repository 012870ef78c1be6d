"""One reading, many traces: those of a recording are equal to those that reading again for each would give."""

import json
import os
import sqlite3
from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest
from click.testing import CliRunner
from helpers.exports import COMMUNICATOR, DEVICE, ID, KIB, RANK, RANKS, STEP_NS, annotated, job, rank

from atlas_lp.cli import main
from atlas_lp.errors import TraceError
from atlas_lp.traces.companions.companions import Companions
from atlas_lp.traces.reading.packed import packed_bytes
from atlas_lp.traces.reading.read import read_recording, read_trace
from atlas_lp.traces.selection import Selection
from atlas_lp.traces.synthetic.writer import ExportWriter

STEPS = [("AllReduce", KIB * (1 + n)) for n in range(6)]
EVERY = Selection(range_name="step")
RANGES = ((0, 1), (2, 4), (5, 5))


def exports(folder, *, named=True):
    """Three ranges of six collectives in two files; the communicator ends and is made again before the third."""
    paths = []
    for number in range(2):
        writer = ExportWriter(f"node{number}", session_utc_ns=10**18 + 5_000 * number)
        process = rank(writer, number, STEPS, pid=4100, device=0)
        for first, last in RANGES:
            process.user_range("step", (2 + first) * STEP_NS - 100_000, (2 + last) * STEP_NS + 700_000)
        at_ns = 6 * STEP_NS + 750_000
        payload = {ID: COMMUNICATOR, RANKS: 2, RANK: number, DEVICE: 0}
        process.nccl_call("ncclCommDestroy", payload, start_ns=at_ns, end_ns=at_ns + 1_000)
        process.init_communicator(COMMUNICATOR, ranks=2, rank=number, at_ns=at_ns + 2_000, duration_ns=1_000)
        path = folder / f"{number}.sqlite"
        paths.append(writer.write(path, omit_tables=() if named else ["TARGET_INFO_SYSTEM_ENV"]))
    return paths


def unnamed_exports(folder):
    return exports(folder, named=False)


def annotated_exports(folder):
    """Two ranges around calls of the annotated NCCL, which gives rings and sizes in its lines."""
    paths = []
    for number in range(2):
        lines = [
            (7, 10, 20, f"commHash 0xa{number} commId 0xc0 rank {number} nranks 2 pid 7"),
            (7, 90, 290, "step"),
            (7, 300, 390, "step"),
        ]
        for n in range(3):
            words = (
                f"ncclAllReduce(): commHash 0xa{number}, stream 0x1, data_size {KIB << n}, type_size 4, red_op 0, pid 7"
            )
            lines += [(7, 100 * (n + 1) + 10, 100 * (n + 1) + 50, words)]
            lines += [(7, 100 * (n + 1) + 20, 100 * (n + 1) + 30, "ncclLaunchKernel(): pid 7")]
        kernels = [(7, 1_000 * (n + 1), 1_000 * (n + 1) + 500, 0) for n in range(3)]
        paths.append(annotated(folder / f"{number}.sqlite", lines, kernels, host=f"node{number}"))
    return paths


def kineto_files(folder):
    """Two ranges of three collectives on one GPU per host, which Kineto does not name."""
    paths = []
    for number in range(2):
        events = []
        for n in range(3):
            values = {"Collective name": "allreduce", "In msg nelems": n + 1, "Out msg nelems": n + 1, "Group size": 2}
            values |= {"dtype": "Float", "Process Group Name": "0", "Process Group Ranks": "[0, 1]"}
            values |= {
                "device": 0,
                "context": 1,
                "stream": 20,
                "correlation": n,
                "grid": [4, 1, 1],
                "block": [544, 1, 1],
            }
            kernel = {"ph": "X", "cat": "kernel", "name": "ncclDevKernel_AllReduce_Sum_f32_RING_LL(x)"}
            events.append(kernel | {"ts": 100 * n + 10, "dur": 50, "args": values})
        for start, length in ((0, 90), (100, 190)):
            note = {"ph": "X", "cat": "user_annotation", "name": "step", "tid": 7, "args": {}}
            events.append(note | {"ts": start, "dur": length})
        document = {"distributedInfo": {"rank": number, "world_size": 2}, "traceEvents": events}
        path = folder / f"{number}.json"
        path.write_text(json.dumps(document))
        paths.append(path)
    return paths


@pytest.fixture
def opened(monkeypatch):
    """How often each file was opened by SQLite, or by its path to be read whole."""
    counts = Counter()
    connect, open_path = sqlite3.connect, os.open

    def connected(name, *arguments, **options):
        counts[Path(str(name).partition("?")[0]).name] += 1
        return connect(name, *arguments, **options)

    def path_opened(path, *arguments, **options):
        if isinstance(path, Path) and path.suffix != ".sqlite":  # whose header is looked at before SQLite opens it
            counts[path.name] += 1
        return open_path(path, *arguments, **options)

    monkeypatch.setattr(sqlite3, "connect", connected)
    monkeypatch.setattr(os, "open", path_opened)
    return counts


@pytest.mark.parametrize("write", [exports, unnamed_exports, annotated_exports, kineto_files])
def test_traces_of_a_recording_equal_those_of_reading_again(tmp_path, opened, write):
    paths = write(tmp_path)
    every = read_trace(paths, selection=EVERY)
    numbers = range(every.iterations)
    again = [read_trace(paths, selection=Selection(range_name="step", iteration=k)) for k in numbers]
    opened.clear()
    recording = read_recording(paths, selection=EVERY)
    # Backwards and twice: what one trace is made of does not depend on those made before.
    for k in [*reversed(numbers), *numbers]:
        assert packed_bytes(recording.trace(k)) == packed_bytes(again[k])
        assert packed_bytes(recording.trace()) == packed_bytes(every)
    assert len(numbers) >= 2
    assert len({packed_bytes(trace) for trace in [every, *again]}) == 1 + len(numbers)
    assert opened == {path.name: 1 for path in paths}


def test_the_communicator_that_was_made_again_is_another_one(tmp_path):
    recording = read_recording(exports(tmp_path), selection=EVERY)
    assert recording.trace().communicators["generation"].to_pylist() == [0, 1]
    assert [recording.trace(k).communicators["generation"].to_pylist() for k in range(3)] == [[0], [0], [1]]


def test_companions_are_read_once(tmp_path, opened):
    paths = exports(tmp_path)
    log = tmp_path / "nccl.log"
    log.write_text(
        "".join(
            f"node{n}:4100:4100 [0] NCCL INFO ncclCommInitRank comm 0x7f{n} rank {n} nranks 2 cudaDev 0 nvmlDev 0 "
            f"busId 1000 commId {COMMUNICATOR:#x} - Init START\n"
            f"node{n}:4100:4100 [0] NCCL INFO Ring 00 : {1 - n} -> {n} -> {1 - n}\n"
            for n in range(2)
        )
    )
    opened.clear()
    recording = read_recording(paths, selection=EVERY, companions=Companions(nccl_logs=[log]))
    assert all(recording.trace(k).topologies[0].rings == ((0, 1),) for k in range(3))
    assert opened == {"0.sqlite": 1, "1.sqlite": 1, "nccl.log": 1}


def test_an_iteration_beyond_the_last_is_empty_and_refused(tmp_path):
    recording = read_recording(exports(tmp_path), selection=EVERY)
    with pytest.raises(TraceError) as error:
        recording.trace(3)
    with pytest.raises(type(error.value)) as other:
        read_trace(sorted(tmp_path.glob("*.sqlite")), selection=Selection(range_name="step", iteration=3))
    assert str(error.value) == str(other.value)


def test_an_iteration_that_one_rank_lacks_leaves_the_others(tmp_path):
    paths = exports(tmp_path)
    with closing(sqlite3.connect(paths[1])) as database, database:
        database.execute("DELETE FROM NVTX_EVENTS WHERE text = 'step' AND start > 6800000")
    recording = read_recording(paths, selection=EVERY)
    with pytest.raises(TraceError, match="1 of 2 ranks are missing"):
        recording.trace(2)
    assert recording.trace(1).operations.num_rows == 6


def test_a_packed_trace_has_no_iterations(tmp_path):
    path = tmp_path / "job.atlas"
    path.write_bytes(packed_bytes(read_trace([job().write(tmp_path / "job.sqlite")])))
    recording = read_recording([path])
    assert packed_bytes(recording.trace()) == path.read_bytes()
    with pytest.raises(TraceError, match=r"job\.atlas is packed: choose ranges, iterations and times"):
        recording.trace(0)


def test_analyze_opens_every_file_once(tmp_path, opened):
    """Two iterations are solved alone, beside the trace of both."""
    folder = tmp_path / "traces"
    folder.mkdir()
    exports(folder)
    opened.clear()
    arguments = ["analyze", str(folder), "--range", "step", "--gpus-per-node", "1", "--no-cache", "--json"]
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 0, result.output
    assert len(json.loads(result.stdout)["iterations"]) == 3
    assert {name: count for name, count in opened.items() if name.endswith(".sqlite")} == {"0.sqlite": 1, "1.sqlite": 1}
