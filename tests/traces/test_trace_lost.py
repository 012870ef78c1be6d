"""Records that a capture or an export lost: no answer that differs from the whole one without a gap that names why.

A longer run (seeds from FIRST to LAST): ``PYTHONPATH=tests python tests/traces/test_trace_lost.py FIRST LAST``.
"""

import json
import random
import re
import shutil
import sqlite3
import sys
import tempfile
from collections import Counter
from contextlib import closing
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from helpers.exports import COMMUNICATOR, KERNEL, MIB, edit, edited, gaps, group, payload, rank

from atlas_lp.cli import main
from atlas_lp.errors import AtlasError, TraceError
from atlas_lp.program.dependencies.readings import find_links, possible_readings
from atlas_lp.traces.lost import KINDS, LARGEST_SHARE, NOT_RECORDED, before_end
from atlas_lp.traces.nsight.export import open_export
from atlas_lp.traces.nsight.kernels import context_positions
from atlas_lp.traces.nsight.lost import read_losses
from atlas_lp.traces.nsight.work import Calls, read_work
from atlas_lp.traces.reading.packed import packed_bytes, read_packed
from atlas_lp.traces.reading.read import read_trace
from atlas_lp.traces.signing.signed_trace import SignedTrace
from atlas_lp.traces.synthetic import demo as synthetic
from atlas_lp.traces.synthetic.writer import ExportWriter

KERNELS, RUNTIME, EVENTS, SYNCS, COPIES = (
    f"CUPTI_ACTIVITY_KIND_{kind}" for kind in ("KERNEL", "RUNTIME", "CUDA_EVENT", "SYNCHRONIZATION", "MEMCPY")
)
HOSTS = ("node0", "node1", "node2", "node3")
COMPUTE = "demangledName NOT IN (SELECT id FROM StringIds WHERE value LIKE 'nccl%')"
STREAM_WAITS = "nameId IN (SELECT id FROM StringIds WHERE value LIKE 'cudaStreamWaitEvent%')"


def small_demo(folder, nodes=4, gpus_per_node=1):
    """The training step of the demo with two layers instead of 32."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(synthetic, "LAYERS", 2)
        return synthetic.write_demo(folder, nodes=nodes, gpus_per_node=gpus_per_node)


def damaged(paths, folder, statements):
    """Copies of the exports with SQL run on some of them, by host."""
    return [
        edit(Path(shutil.copy(path, folder / path.name)), *statements[path.stem]) if path.stem in statements else path
        for path in paths
    ]


def answer(trace, dependencies=None):
    """All that an answer is computed from, and the gaps on the way."""
    signed = SignedTrace.of(trace)
    links = find_links(signed, dependencies)
    columns = (links.sources, links.targets, links.costs_ns, links.gpus)
    content = (signed.keys, links.dependencies, signed.timeline.measured_ns, *(c.tobytes() for c in columns))
    return content, (*signed.all_gaps, *links.gaps)


def found(gaps_of_answer):
    """Counts by code."""
    counts = Counter()
    for gap in gaps_of_answer:
        counts[gap.code] += gap.count
    return dict(counts)


@pytest.fixture(scope="module")
def paths(tmp_path_factory):
    return small_demo(tmp_path_factory.mktemp("small"))


@pytest.fixture(scope="module")
def whole(paths):
    return {reading: answer(read_trace(paths), reading)[0] for reading in ("events", "streams")}


def test_a_whole_trace_lost_nothing(paths, whole):
    content, said = answer(read_trace(paths))
    assert (content, said) == (whole["events"], ())


# --- the named cases ------------------------------------------------------------------------------------------


def on(hosts, *statements):
    """The same SQL on several hosts."""
    return dict.fromkeys(hosts, statements)


EVERYWHERE = " ".join(HOSTS)
CALLS_OF_COMPUTE = f"correlationId IN (SELECT correlationId FROM {KERNELS} WHERE {COMPUTE})"
LOST_IN_PART = {
    "compute kernels of one host": ("node2", [f"DELETE FROM {KERNELS} WHERE {COMPUTE}"], "lost-work", KERNELS),
    "half of the events": (EVERYWHERE, [f"DELETE FROM {EVENTS} WHERE rowid % 2"], "lost-events", EVENTS),
    "all events of a host": ("node0", [f"DELETE FROM {EVENTS}"], "lost-events", EVENTS),
    "half of the synchronisations": (EVERYWHERE, [f"DELETE FROM {SYNCS} WHERE rowid % 2"], "lost-waits", SYNCS),
    "stream waits of one host": ("node1", [f"DELETE FROM {SYNCS} WHERE syncType = 2"], "lost-waits", SYNCS),
    "calls that record events": (
        "node1",
        [f"DELETE FROM {RUNTIME} WHERE correlationId IN (SELECT correlationId FROM {EVENTS})"],
        "lost-calls",
        RUNTIME,
    ),
    "events and the calls that record them": (
        "node1",
        [f"DELETE FROM {RUNTIME} WHERE correlationId IN (SELECT correlationId FROM {EVENTS})", f"DELETE FROM {EVENTS}"],
        "unlike-peers",
        "waits for events",
    ),
    "stream waits and their calls": (
        "node1",
        [f"DELETE FROM {SYNCS} WHERE syncType = 2", f"DELETE FROM {RUNTIME} WHERE {STREAM_WAITS}"],
        "unlike-peers",
        "waits for events",
    ),
    "calls of compute kernels": ("node3", [f"DELETE FROM {RUNTIME} WHERE {CALLS_OF_COMPUTE}"], "lost-calls", RUNTIME),
    "compute kernels and their calls": (
        "node3",
        [f"DELETE FROM {RUNTIME} WHERE {CALLS_OF_COMPUTE}", f"DELETE FROM {KERNELS} WHERE {COMPUTE}"],
        "unlike-peers",
        "pieces of GPU work",
    ),
}


@pytest.mark.parametrize("name", LOST_IN_PART)
def test_a_reading_that_lost_much_is_refused_with_the_place_and_the_way_out(paths, whole, tmp_path, name):
    hosts, statements, code, table = LOST_IN_PART[name]
    lossy = damaged(paths, tmp_path, on(hosts.split(), *statements))
    trace = read_trace(lossy)
    with pytest.raises(TraceError, match=r"--dependencies streams.*--allow-lost") as refusal:
        answer(trace)
    assert table in str(refusal.value)
    for host in hosts.split():
        said = [gap for gap in trace.gaps if gap.code == code and f"of GPU {host[-1]} ({host}" in gap.message]
        assert any(table in gap.message and gap.count > LARGEST_SHARE * gap.of for gap in said)
    assert possible_readings(SignedTrace.of(trace)) == ("streams",)
    content, gaps_of_streams = answer(trace, "streams")
    assert content == whole["streams"]
    assert code in found(gaps_of_streams)
    content, gaps_of_events = answer(read_trace(lossy, allow_lost=True))
    assert content != whole["events"]
    assert code in found(gaps_of_events)


def test_what_a_capture_does_without_leaves_the_other_reading(paths, whole, tmp_path):
    """Not one record on any host: nothing was lost, and nothing stands on it by default."""
    for number, table in enumerate((EVENTS, SYNCS)):
        (tmp_path / table).mkdir()
        trace = read_trace(damaged(paths, tmp_path / table, on(HOSTS, f"DROP TABLE {table}")))
        content, said = answer(trace)
        assert content == whole["streams"]
        assert (
            set(found(said))
            == ({"not-recorded-events"}, {"not-recorded-waits", "not-recorded-synchronization"})[number]
        )
        assert all(table in gap.message for gap in said)
        with pytest.raises(TraceError, match="by events"):
            answer(trace, "events")


def test_few_lost_records_are_counted_exactly(paths, whole, tmp_path):
    """An answer with a gap: three kernels, and no more, of one process."""
    first = f"(SELECT min(correlationId) FROM {KERNELS} WHERE {COMPUTE})"
    with closing(sqlite3.connect(paths[1])) as db:
        calls = db.execute(f"SELECT count(*) FROM {KERNELS}").fetchone()[0] + 1  # and one copy
    lossy = damaged(
        paths, tmp_path, {"node1": [f"DELETE FROM {KERNELS} WHERE {COMPUTE} AND correlationId < {first} + 3"]}
    )
    content, said = answer(read_trace(lossy))
    assert content != whole["events"]
    (gap,) = said
    assert (gap.code, gap.of) == ("lost-work", calls)
    assert 1 <= gap.count <= 3
    assert f"GPU 1 (node1, process 4100, {tmp_path / 'node1.sqlite'})" in gap.message
    assert "compute between collectives is missing (for the reading by events)" in gap.message


def test_many_places_share_a_gap(tmp_path):
    paths = small_demo(tmp_path, nodes=1, gpus_per_node=8)
    edit(paths[0], f"DELETE FROM {EVENTS} WHERE rowid / 8 % 3 = 0")
    said = [gap for gap in read_trace(paths).gaps if gap.code == "lost-events"]
    assert len(said) == 5
    assert [("4 more" in gap.message, gap.of > 100) for gap in said].count((True, True)) == 1


# --- what is no loss ------------------------------------------------------------------------------------------


def losses(path):
    """What one export lost, as counts and what its ends cut, by code."""
    with open_export(path) as export:
        calls = Calls.of(export, 0)
        found, _ = read_losses(export, (), calls, read_work(export, 0, context_positions(export), calls))
    counts = {code: sum(one.count for one in found if one.code == code) for code in KINDS}
    return {code: count for code, count in counts.items() if count}, sum(one.cut for one in found)


def test_the_real_window_was_cut_and_lost_nothing_but_events(data_dir):
    """A slice of 0.3 s: 24 kernels called before it, 24 calls whose work ends behind it, and no CUDA events at all."""
    lost, cut = losses(data_dir / "nsys/sendrecv_2gpu_nopayload_nsys2026.2.sqlite")
    assert set(lost) == {"lost-events"}
    assert cut > 48


@pytest.mark.parametrize("name", ["ddp_2gpu_nccl2.28_nsys2026.3", "single_gpu_no_nccl_nsys2026.1"])
def test_real_exports_lost_nothing(data_dir, name):
    assert losses(data_dir / f"nsys/{name}.sqlite") == ({}, 0)


def test_a_window_that_cuts_both_ends_is_read(paths, tmp_path):
    """What an export of a slice of time holds: calls and records inside it, pairs cut in two at both ends."""
    statements = {}
    for path in paths:
        with closing(sqlite3.connect(path)) as db:
            calls = [call for (call,) in db.execute(f"SELECT start FROM {RUNTIME} ORDER BY 1")]
            ends = [end for (end,) in db.execute(f"SELECT end FROM {KERNELS} ORDER BY 1")]
        low, high = calls[len(calls) // 20], ends[-len(ends) // 20]
        kept = f"start < {low} OR end > {high}"
        outside = f"correlationId NOT IN (SELECT correlationId FROM {RUNTIME})"
        statements[path.stem] = [
            *(f"DELETE FROM {table} WHERE {kept}" for table in (RUNTIME, KERNELS, COPIES, SYNCS)),
            f"DELETE FROM {EVENTS} WHERE {outside}",
        ]
    content, said = answer(read_trace(damaged(paths, tmp_path, statements)))
    assert content
    assert not [gap for gap in said if gap.code.startswith("lost")]
    assert "cut-records" in found(said)


CAPTURE = (
    f"INSERT INTO {RUNTIME} (start, end, eventClass, globalTid, correlationId, nameId, returnValue) "
    "SELECT {}, {}, 0, globalTid, {}, {}, 0 FROM " + RUNTIME + " GROUP BY globalTid & ~16777215"
)
START_NOTHING = {
    "failed": [
        f"UPDATE {RUNTIME} SET returnValue = 1 WHERE correlationId NOT IN (SELECT correlationId FROM {KERNELS})"
    ],
    "captured": [
        "INSERT INTO StringIds VALUES (900, 'cudaStreamBeginCapture_v1'), (901, 'cudaStreamEndCapture_v1')",
        CAPTURE.format("min(start) - 1", "min(start)", 1, 900),
        CAPTURE.format("max(start)", "max(end)", 9_999_999, 901),
    ],
    "captured from before the recording on": [
        "INSERT INTO StringIds VALUES (901, 'cudaStreamEndCapture_v1')",
        CAPTURE.format("max(start)", "max(end)", 9_999_999, 901),
    ],
    "of graphs": [f"UPDATE {KERNELS} SET graphNodeId = 7 WHERE rowid % 9 = 1"],
}


@pytest.mark.parametrize("what", START_NOTHING)
def test_calls_that_start_nothing_are_no_loss(paths, tmp_path, what):
    lossy = edit(Path(shutil.copy(paths[0], tmp_path)), f"DELETE FROM {KERNELS} WHERE {COMPUTE}")
    assert losses(lossy)[0]["lost-work"] > 10
    assert losses(edit(lossy, *START_NOTHING[what])) == ({}, 0)


@pytest.mark.parametrize("seed", range(40))
def test_what_the_end_cuts_is_never_taken_for_lost(seed):
    """Any streams that work in order: calls whose work the end of the recording cut are told apart."""
    draw = random.Random(seed)
    free, time, pieces = dict.fromkeys(range(draw.randint(1, 4)), 0), 0, []
    longest = draw.choice((5, 20, 100))
    for _ in range(400):
        time += draw.randint(1, draw.choice((2, 12)))
        stream = draw.choice(list(free))
        start = max(time, free[stream])
        free[stream] = start + draw.randint(1, longest)
        pieces.append((time, free[stream]))
    end = draw.randint(20 * longest, max(20 * longest, time))
    called = [(call, done) for call, done in pieces if call <= end]
    recorded = np.array([piece for piece in called if piece[1] <= end])
    cut = np.array([call for call, done in called if done > end], dtype=np.int64)
    assert not before_end(*recorded.T, cut).any()
    early = np.array([call for call, done in called if done <= end // 2])
    assert before_end(*recorded.T, early[: len(early) // 4]).all()


# --- ranks and kernels that contradict each other -----------------------------------------------------------------


CONTRADICTIONS = {
    "grid": (f"UPDATE {KERNELS} SET gridX = 4 WHERE gridX = 8", "channels 8 on rank 0, 4 on rank 3"),
    "block": (f"UPDATE {KERNELS} SET blockX = 640 WHERE blockX = 544", "block 544 on rank 0, 640 on rank 3"),
    "name": (
        "UPDATE StringIds SET value = replace(value, 'Sum_bf16', 'Sum_f32') WHERE value LIKE 'nccl%'",
        "_Sum_bf16_RING_LL on rank 0, ncclDevKernel_ReduceScatter_Sum_f32_RING_LL on rank 3",
    ),
    "reduction": (
        "UPDATE NVTX_EVENTS SET jsonText = replace(jsonText, 'Avg', 'Max')",
        "reduction Avg on rank 0, Max on rank 3",
    ),
}


@pytest.mark.parametrize("what", CONTRADICTIONS)
def test_ranks_that_disagree_are_refused_by_every_reading(paths, tmp_path, what):
    statement, words = CONTRADICTIONS[what]
    lossy = damaged(paths, tmp_path, {"node3": [statement]})
    for reading in ("events", "streams"):
        with pytest.raises(TraceError, match=re.escape(words)) as refusal:
            answer(read_trace(lossy), reading)
        assert "--dependencies streams" not in str(refusal.value)
    _, said = answer(read_trace(lossy, allow_lost=True))
    assert "disagreeing-ranks" in found(said)


def test_the_columns_of_one_collective_are_compared(paths, tmp_path):
    """One of 22 collectives: an answer, and the gap says which and on which rank."""
    one = f"(SELECT min(start) FROM {KERNELS} WHERE gridX = 8)"
    lossy = damaged(paths, tmp_path, {"node2": [f"UPDATE {KERNELS} SET gridX = 2 WHERE start = {one}"]})
    _, said = answer(read_trace(lossy))
    (gap,) = said
    assert (gap.code, gap.count) == ("disagreeing-ranks", 1)
    assert "AllGather of" in gap.message
    assert "channels 8 on rank 0, 2 on rank 2" in gap.message


@pytest.mark.parametrize(
    ("kernel", "words"),
    [
        ("ncclDevKernel_ReduceScatter_Sum_f32_RING_LL(x)", "the kernel of ReduceScatter"),
        ("ncclSymkDevKernel_AllGather_LL(x)", "the kernel of AllGather"),
        ("ncclDevKernel_SendRecv(x)", "the kernel of SendRecv"),
        ("ncclKernel_AllReduce_RING_LL128_Sum_f32(x)", "says simple"),
        ("ncclDevKernel_AllReduce_Sum_bf16_RING_LL(x)", None),
        ("ncclDevKernel_AllReduce_Sum_bf16_TREE_LL(x)", None),
        ("ncclDevKernel_Generic(x)", None),
        ("ncclKernel_AllReduce_RING_SIMPLE_Sum_float(x)", None),
    ],
)
def test_kernels_that_contradict_their_call_are_named(tmp_path, kernel, words):
    export = ExportWriter()
    for number in range(2):
        process = rank(export, number, [("AllGather", MIB)] * 30)
        process.collective(
            "AllReduce", size_bytes=MIB, communicator=COMMUNICATOR, stream=17, start_ns=90_000_000,
            end_ns=90_500_000, channels=4, threads=544, kernel_name=kernel,
        )  # fmt: skip
    said = SignedTrace.of(read_trace([export.write(tmp_path / "t.sqlite")])).all_gaps
    assert [(gap.code, gap.count, gap.of) for gap in said] == ([("contradicting-kernels", 1, 31)] if words else [])
    assert not words or (words in said[0].message and f"{kernel.split('(')[0]}, " in said[0].message)


def test_kernels_that_several_operations_share_are_not_compared(tmp_path):
    export = ExportWriter()
    for number in range(2):
        process = rank(export, number, [])
        calls = [("ncclAllGather", payload(MIB)), ("ncclAllReduce", payload(MIB))]
        kernel = {"name": KERNEL, "stream": 17, "start_ns": 5_000_000, "end_ns": 5_500_000, "grid": 4 + number}
        group(process, calls, at_ns=4_000_000, kernels=[kernel])
    said = SignedTrace.of(read_trace([export.write(tmp_path / "t.sqlite")])).all_gaps
    assert {gap.code for gap in said} == {"shared-kernels"}


# --- what nsys says itself ------------------------------------------------------------------------------------

PROCESS = "(SELECT globalPid FROM PROCESSES ORDER BY 1 LIMIT 1)"


@pytest.mark.parametrize(
    ("severity", "text", "process", "named"),
    [
        (2, "Not all CUDA events might have been collected.", PROCESS, True),
        (2, "Not all NVTX events might have been collected.", PROCESS, True),
        (2, "CUPTI buffer overflow: 12 records were dropped", "NULL", True),
        (3, "Unexpected state of the injection", PROCESS, True),
        (1, "CUPTI buffer overflow: 12 records were dropped", PROCESS, False),
        (4, "CUPTI buffer overflow: 12 records were dropped", PROCESS, False),
        (2, "CUDA device 0: Unified Memory is slow here.", PROCESS, False),
        (2, "No CUDA events collected. Does the process use CUDA?", "281474976710656 + (77 << 24)", False),
        (3, "x'" * 100_000, PROCESS, True),
    ],
)
def test_diagnostics_of_nsys_are_read(tmp_path, severity, text, process, named):
    made = "CREATE TABLE DIAGNOSTIC_EVENT (timestamp, timestampType, source, severity, text, globalPid)"
    quoted = text.replace("'", "''")
    row = f"INSERT INTO DIAGNOSTIC_EVENT VALUES (1, 2, 3, {severity}, '{quoted}', {process})"
    said = [gap for gap in read_trace([edited(tmp_path, made, row)]).gaps if gap.code == "nsys-warning"]
    assert len(said) == named
    assert all(gap.count == 1 and text[:40] in gap.message and len(gap.message) < 200 for gap in said)


def test_texts_of_nsys_are_one_plain_line_without_paths(tmp_path):
    made = "CREATE TABLE DIAGNOSTIC_EVENT (severity, text, globalPid)"
    text = "'lost' || char(10, 27) || '[31m records, see /home/someone/x.log'"
    (gap,) = read_trace([edited(tmp_path, made, f"INSERT INTO DIAGNOSTIC_EVENT VALUES (3, {text}, NULL)")]).gaps
    assert gap.message == "nsys says of the capture: lost [31m records, see ..."


def test_the_counts_of_nsys_are_held_against_the_rows(data_dir, tmp_path):
    """nsys says how many CUDA and NVTX events it collected: the real export has all of them."""
    path = data_dir / "nsys/ddp_2gpu_nccl2.28_nsys2026.3.sqlite"
    assert read_trace([path]).gaps == ()
    lossy = Path(shutil.copy(path, tmp_path / "t.sqlite"))
    lossy.chmod(0o644)
    edit(lossy, f"DELETE FROM {RUNTIME} WHERE nameId = (SELECT id FROM StringIds WHERE value = 'cuInit')")
    said = {gap.code: (gap.count, gap.of) for gap in read_trace([lossy]).gaps}
    assert said in ({"short-export": (5, 14940)}, {"short-export": (5, 14275)})
    edit(lossy, "DELETE FROM NVTX_EVENTS WHERE rowid = (SELECT max(rowid) FROM NVTX_EVENTS)")
    assert "nsys-warning" in gaps(read_trace([lossy]))


# --- what carries it on ---------------------------------------------------------------------------------------


def test_packed_traces_carry_what_was_lost(paths, tmp_path):
    lossy = damaged(paths, tmp_path, {"node2": [f"DELETE FROM {KERNELS} WHERE {COMPUTE}"]})
    trace = read_trace(lossy)
    packed = tmp_path / "step.atlas"
    packed.write_bytes(packed_bytes(trace))
    assert read_packed(packed).gaps == trace.gaps
    with pytest.raises(TraceError, match="--allow-lost"):
        answer(read_trace([packed]))
    assert answer(read_trace([packed], allow_lost=True)) == answer(read_trace(lossy, allow_lost=True))


def test_errors_that_losses_may_explain_say_so(paths, tmp_path):
    """Kernels of collectives lost as well: ranks disagree on what they did together."""
    lossy = damaged(paths, tmp_path, {"node1": [f"DELETE FROM {KERNELS} WHERE rowid % 3"]})
    with pytest.raises(TraceError, match=rf"collective .*; .*node1.sqlite lost records: \d+ calls .* {KERNELS}"):
        read_trace(lossy)


def run(*words):
    return CliRunner().invoke(main, [*map(str, words)], catch_exceptions=False)


def test_the_command_line_refuses_or_lists(tmp_path):
    folder = tmp_path / "traces"
    small_demo(folder, nodes=2)
    edit(folder / "node1.sqlite", f"DELETE FROM {KERNELS} WHERE {COMPUTE}")
    refused = run("path", folder, "--no-cache")
    assert refused.exit_code == 2
    assert "calls that start GPU work without a record" in refused.output
    for more in (["--allow-lost"], ["--dependencies", "streams"]):
        assert run("path", folder, "--no-cache", *more).exit_code == 0
    listed = json.loads(run("inspect", folder, "--json").output)["gaps"]
    assert "lost-work" in [gap["code"] for gap in listed]


def test_kineto_launches_without_a_kernel_are_named(tmp_path):
    """As are kernels whose name has another datatype than the record of their call."""

    def event(category, name, ts, dur, **arguments):
        return {"ph": "X", "cat": category, "name": name, "pid": 1, "tid": 1, "ts": ts, "dur": dur, "args": arguments}

    def write(number, lost):
        described = {"Collective name": "allreduce", "In msg nelems": 256, "Out msg nelems": 256, "dtype": "Float"}
        described |= {"Group size": 2, "Process Group Ranks": "[0, 1]", "grid": [4, 1, 1], "block": [544, 1, 1]}
        events = []
        for i in range(40):
            device = {"device": number, "context": 1, "stream": 7, "correlation": i + 1}
            events.append(event("cuda_runtime", "cudaLaunchKernel", 10 * i, 2, correlation=i + 1))
            if i % 10 == 0:
                name = f"ncclDevKernel_AllReduce_Sum_{'bf16' if i == 20 else 'f32'}_RING_LL"
                events.append(event("kernel", name, 10 * i + 3, 5, **device, **described))
            elif i not in lost:
                events.append(event("kernel", "gemm", 10 * i + 3, 5, **device))
        about = {"rank": number, "world_size": 2}
        path = tmp_path / f"{number}.json"
        path.write_text(json.dumps({"distributedInfo": about, "traceEvents": events}))
        return path

    assert {"lost-work", "cut-records"}.isdisjoint(gaps(read_trace([write(0, ()), write(1, ())])))
    trace = read_trace([write(0, ()), write(1, (3, 17, 39))])
    assert (gaps(trace)["lost-work"], gaps(trace)["cut-records"]) == (2, 1)
    (gap,) = (gap for gap in SignedTrace.of(trace).gaps if gap.code in KINDS)
    assert (gap.code, gap.count, gap.of) == ("contradicting-kernels", 1, 4)
    assert "with elements of 2 B where another source says 4" in gap.message


def test_kinds_of_loss_are_consistent():
    assert set(NOT_RECORDED) <= set(KINDS)
    assert not set(NOT_RECORDED.values()) & set(KINDS)
    assert all(Fraction(0) < kind.largest_share <= Fraction(1, 2) for kind in KINDS.values())


# --- any rows of any table ------------------------------------------------------------------------------------


def lose_rows(path, draw):
    """Delete some rows of a table, or all of it; return the table."""
    with closing(sqlite3.connect(path)) as db, db:
        tables = [name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name")]
        if draw.random() < 0.8:
            tables = [
                name for name in tables if name.startswith(("CUPTI", "NVTX_EVENTS", "StringIds", "TARGET_INFO_S"))
            ]
        table = draw.choice(tables)
        if draw.random() < 0.1:
            db.execute(f"DROP TABLE {table}")
        else:
            share = draw.choice((0, 0.01, 0.03, 0.1, 0.3, 0.5, 0.9, 1))
            rows = [row for (row,) in db.execute(f"SELECT rowid FROM {table} ORDER BY 1")]
            gone = [row for row in rows if draw.random() < share] or [draw.choice(rows)]
            db.executemany(f"DELETE FROM {table} WHERE rowid = ?", [(row,) for row in gone])
    return table


def outcome(paths, folder, expected, seed):
    """Same, named or refused; anything else fails."""
    draw = random.Random(seed)
    victim = draw.choice(paths)
    copy = Path(shutil.copy(victim, folder / victim.name))
    table = lose_rows(copy, draw)
    try:
        content, said = answer(read_trace([copy if path == victim else path for path in paths]))
    except AtlasError:
        return "refused"
    if content == expected:
        return "same"
    assert said, f"seed {seed}: rows of {table} are missing, and another answer says nothing of it"
    return "named"


def outcomes(paths, folder, expected, seeds):
    return Counter(outcome(paths, folder, expected, seed) for seed in seeds)


def test_lost_rows_are_named_refused_or_of_no_consequence(paths, whole, tmp_path):
    counts = outcomes(paths, tmp_path, whole["events"], range(60))
    assert min(counts[word] for word in ("same", "named", "refused")) >= 8, counts


@pytest.mark.slow
def test_many_lost_rows_are_named_refused_or_of_no_consequence(paths, whole, tmp_path):
    counts = outcomes(paths, tmp_path, whole["events"], range(1000, 1300))
    assert min(counts[word] for word in ("same", "named", "refused")) >= 40, counts


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made:
        exports = small_demo(Path(made) / "whole")
        (Path(made) / "lossy").mkdir()
        seeds = range(*map(int, sys.argv[1:3]))
        sys.stdout.write(f"{outcomes(exports, Path(made) / 'lossy', answer(read_trace(exports))[0], seeds)}\n")
