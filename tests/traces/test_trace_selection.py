"""Parts of a trace: NVTX ranges and iterations, windows of time, marks of the application; schema drift."""

import pytest
from click.testing import CliRunner
from helpers.exports import BASE, KIB, STEP_NS, content, edit, edited, gaps, job, operations, rank, read

from atlas_lp.cli import main
from atlas_lp.errors import MismatchError, TraceError
from atlas_lp.traces.selection import Selection
from atlas_lp.traces.synthetic.writer import ExportWriter

STEPS = [("AllReduce", KIB * (1 + n)) for n in range(6)]


def stepped(tmp_path, *, ranges=((0, 1), (2, 4))):
    """Six collectives, one per millisecond; NVTX ranges called step around the calls of some."""
    export = ExportWriter()
    for number in range(2):
        process = rank(export, number, STEPS)
        for first, last in ranges:
            process.user_range("step", (2 + first) * STEP_NS - 100_000, (2 + last) * STEP_NS + 100_000)
        process.user_range("other", 100, 200)
    return export.write(tmp_path / "steps.sqlite")


def sizes(trace):
    return [size // KIB - 1 for size, number in operations(trace, "size_bytes", "rank") if number == 0]


def test_instances_of_a_range_are_iterations(tmp_path):
    trace = read(stepped(tmp_path), selection=Selection(range_name="step"))
    assert operations(trace, "size_bytes", "iteration")[:5] == [
        (KIB, 0),
        (2 * KIB, 0),
        (3 * KIB, 1),
        (4 * KIB, 1),
        (5 * KIB, 1),
    ]
    assert trace.iterations == 2
    assert gaps(trace) == {"outside-selection": 2}


def test_one_instance_of_a_range(tmp_path):
    trace = read(stepped(tmp_path), selection=Selection(range_name="step", iteration=1))
    assert sizes(trace) == [2, 3, 4]
    lengths = trace.column("gpus", "last_ns") - trace.column("gpus", "first_ns")
    assert all(2.0 * STEP_NS < length < 2.7 * STEP_NS for length in lengths)


def test_a_range_that_is_not_there_is_refused_with_those_that_are(tmp_path):
    with pytest.raises(TraceError, match=r"process 4100 has no NVTX range 'train'.* 'step' \(2\), 'other' \(1\)"):
        read(stepped(tmp_path), selection=Selection(range_name="train"))


def test_an_iteration_that_one_rank_lacks_is_refused(tmp_path):
    path = stepped(tmp_path)
    edit(path, "DELETE FROM NVTX_EVENTS WHERE text = 'step' AND start > 3000000 AND globalTid & 1 = 0")
    with pytest.raises(MismatchError, match="iteration 1"):
        read(path, selection=Selection(range_name="step"))


def test_windows_of_time_count_from_the_first_activity(tmp_path):
    path = stepped(tmp_path)
    assert sizes(read(path, selection=Selection(from_ns=STEP_NS // 2, to_ns=3 * STEP_NS))) == [1, 2]
    with pytest.raises(TraceError, match="no NCCL operation starts in the window"):
        read(path, selection=Selection(from_ns=10**12))


def test_marks_of_the_application_limit_the_trace(tmp_path):
    mark = "INSERT INTO NVTX_EVENTS (start, eventType, text, globalTid, domainId) SELECT {}, 34, '{}', globalTid, 0 "
    mark += "FROM NVTX_EVENTS WHERE eventType = 75"
    path = edit(
        stepped(tmp_path),
        mark.format(3 * STEP_NS - 100_000, "nsys profiling start, pid 1"),
        mark.format(5 * STEP_NS - 100_000, "nsys profiling stopped, pid 1"),
    )
    assert sizes(read(path)) == [1, 2]
    assert sizes(read(path, selection=Selection(marks=False))) == list(range(6))


def test_options_of_the_command_line(tmp_path):
    path = str(stepped(tmp_path))
    for arguments, count in (
        (["--range", "step"], 10),
        (["--range", "step", "--iteration", "0"], 4),
        (["--from", "500us", "--to", "3ms"], 4),
        (["--gpus-per-node", "1"], 12),
    ):
        result = CliRunner().invoke(main, ["inspect", path, "--json", *arguments])
        assert result.exit_code == 0, result.output
        assert result.stdout.count('"count": 2') * 2 >= count
    refused = CliRunner().invoke(main, ["inspect", path, "--iteration", "0"])
    assert refused.exit_code == 2
    assert "name it with --range" in refused.stderr


# --- exports from 2022 to 2026 ------------------------------------------------------------------------


def drop(tmp_path, table, *columns):
    return edited(tmp_path, *(f"ALTER TABLE {table} DROP COLUMN {c}" for c in columns), name=f"{table}.sqlite")


@pytest.mark.parametrize(
    ("table", "columns"),
    [
        ("CUPTI_ACTIVITY_KIND_KERNEL", ("greenContextId", "graphId", "graphNodeId", "clusterX", "mangledName")),
        ("CUPTI_ACTIVITY_KIND_SYNCHRONIZATION", ()),
        ("NVTX_EVENTS", ("jsonTextId", "binaryData", "rangeId", "endGlobalTid")),
    ],
)
def test_columns_added_later_are_optional(tmp_path, table, columns):
    base = content(read(job().write(tmp_path / "base.sqlite")))
    assert content(read(drop(tmp_path, table, *columns))) == base


@pytest.mark.parametrize(
    "statement",
    [
        "ALTER TABLE META_DATA_EXPORT RENAME TO EXPORT_META_DATA",
        "DROP TABLE META_DATA_CAPTURE",
        "DROP TABLE TARGET_INFO_GPU",
        "DROP TABLE PROCESSES",
        "ALTER TABLE NVTX_EVENTS ADD COLUMN eventId INTEGER",
        "DROP TABLE NVTX_PAYLOAD_ENUM_ENTRIES",
    ],
)
def test_tables_and_columns_of_other_versions(tmp_path, statement):
    base = content(read(job().write(tmp_path / "base.sqlite")))
    assert content(read(edited(tmp_path, statement))) == base


@pytest.mark.parametrize(
    ("table", "column"),
    [
        ("CUPTI_ACTIVITY_KIND_KERNEL", "correlationId"),
        ("CUPTI_ACTIVITY_KIND_KERNEL", "globalPid"),
        ("CUPTI_ACTIVITY_KIND_RUNTIME", "correlationId"),
        ("NVTX_EVENTS", "domainId"),
        ("NVTX_EVENTS", "globalTid"),
    ],
)
def test_columns_that_are_needed_are_named(tmp_path, table, column):
    with pytest.raises(TraceError, match=f"{table} lacks the columns? {column}"):
        read(drop(tmp_path, table, column))


def test_without_a_host_name_every_file_is_a_node(tmp_path):
    export = [ExportWriter(), ExportWriter()]
    for number in range(2):
        rank(export[number], number, BASE, pid=1)
    files = [e.write(tmp_path / f"{n}.sqlite", omit_tables=["TARGET_INFO_SYSTEM_ENV"]) for n, e in enumerate(export)]
    trace = read(*files)
    assert content(trace) == content(read(*files[::-1]))
    assert (trace.nodes, gaps(trace)) == (2, {"no-host": 2})
