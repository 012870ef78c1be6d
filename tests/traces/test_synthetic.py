"""The writer of synthetic exports, and the demo job written with it."""

import json
import os
import sqlite3
from collections import Counter
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from atlas_lp.errors import InputError
from atlas_lp.traces.records import SYNTHETIC
from atlas_lp.traces.synthetic.demo import CollectiveStep, collective_ns, write_demo
from atlas_lp.traces.synthetic.writer import ExportWriter

COMMUNICATOR = 0xFA93DAEA854B060B  # > 2^63

JOIN = """
    SELECT n.globalTid >> 24 & 0xFFFFFF, s.value, n.jsonText, k.start, k.end, k.gridX, k.blockX, r.start
    FROM NVTX_EVENTS n
    JOIN StringIds s ON s.id = n.textId
    LEFT JOIN CUPTI_ACTIVITY_KIND_RUNTIME r
      ON r.globalTid = n.globalTid AND r.start >= n.start AND r.end <= n.end
    LEFT JOIN CUPTI_ACTIVITY_KIND_KERNEL k
      ON k.globalPid = r.globalTid & ~0xFFFFFF AND k.correlationId = r.correlationId
    WHERE n.domainId = 1 AND n.eventType = 59 AND s.value <> 'ncclCommInitRankConfig'
    ORDER BY n.globalTid >> 24, n.start
"""


def query(path: Path, sql: str) -> list[Any]:
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(sql).fetchall()


def names(path: Path) -> set[str]:
    return {name for (name,) in query(path, "SELECT name FROM sqlite_master")}


def columns(path: Path, table: str) -> list[Any]:
    return query(path, f"SELECT name, type, \"notnull\", pk FROM pragma_table_info('{table}')")


def two_ranks() -> ExportWriter:
    """Two processes of one host: an AllReduce and an AllGather each, a kernel, a copy, a wait."""
    export = ExportWriter("host")
    for rank in range(2):
        process = export.process(pid=4100 + rank, device=rank)
        process.init_communicator(COMMUNICATOR, ranks=2, rank=rank, at_ns=1_000_000, duration_ns=10_000)
        process.user_range("pid 777", 1_900_000, 3_000_000)
        process.memcpy(4096, stream=7, start_ns=1_950_000, end_ns=1_960_000)
        process.kernel("gemm", stream=7, start_ns=2_000_000, end_ns=2_100_000)
        event = process.record_event(7, call_ns=2_010_000)
        process.wait_event(event, 17, call_ns=2_012_000)
        process.collective(
            "AllReduce",
            size_bytes=1 << 20,
            communicator=COMMUNICATOR,
            stream=17,
            start_ns=2_100_000 + rank,
            end_ns=2_104_000,
            channels=4,
            threads=544,
            reduction="Avg",
        )
        process.collective(
            "AllGather",
            size_bytes=4096,
            communicator=COMMUNICATOR,
            stream=17,
            start_ns=2_105_000,
            end_ns=2_210_000,
        )
        process.synchronize(17, 2_205_000, 2_212_000)
    return export


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    return two_ranks().write(tmp_path / "trace.sqlite")


@pytest.fixture(name="demo")
def demo_files(demo: Path) -> list[Path]:
    """Its files, in order of the nodes."""
    return sorted(demo.iterdir())


def test_each_collective_joins_to_its_kernel(trace: Path) -> None:
    rows = query(trace, JOIN)
    assert [row[:2] + row[3:7] for row in rows] == [
        (4100, "ncclAllReduce", 2_100_000, 2_104_000, 4, 544),
        (4100, "ncclAllGather", 2_105_000, 2_210_000, 1, 128),
        (4101, "ncclAllReduce", 2_100_001, 2_104_000, 4, 544),
        (4101, "ncclAllGather", 2_105_000, 2_210_000, 1, 128),
    ]


def test_a_join_without_the_process_is_ambiguous(trace: Path) -> None:
    kernels = "SELECT correlationId FROM CUPTI_ACTIVITY_KIND_KERNEL"
    collisions = f"SELECT count(*) FROM ({kernels} GROUP BY 1 HAVING count(*) > 1)"
    assert query(trace, collisions) == [(3,)]


def test_payload_is_json_with_an_unsigned_id(trace: Path) -> None:
    texts = query(trace, "SELECT jsonText FROM NVTX_EVENTS WHERE jsonText IS NOT NULL ORDER BY globalTid, start")
    init, all_reduce, all_gather = [text for (text,) in texts[:3]]
    communicator = f'{{"NCCL communicator ID":{COMMUNICATOR},'
    assert init == f'{communicator}"No. of ranks":2,"Rank":0,"CUDA device":0}}'
    assert all_reduce == f'{communicator}"Message size [bytes]":1048576,"Reduction operation":"Avg"}}'
    assert all_gather == f'{communicator}"Message size [bytes]":4096}}'


def test_payload_schemas_repeat_per_process(trace: Path) -> None:
    schemas = query(trace, "SELECT schemaId - (1 << 24), numEntries, payloadSize FROM NVTX_PAYLOAD_SCHEMAS")
    assert schemas == [(11, 4, 24), (5, 3, 24), (4, 2, 16)] * 2
    entries = query(
        trace,
        "SELECT DISTINCT idx, type, name, offset FROM NVTX_PAYLOAD_SCHEMA_ENTRIES"
        " WHERE schemaId = 16777221 ORDER BY idx",
    )
    assert entries == [
        (0, 18, "NCCL communicator ID", None),
        (1, 22, "Message size [bytes]", 8),
        (2, 16777236, "Reduction operation", 16),
    ]
    reductions = query(trace, "SELECT DISTINCT name, value FROM NVTX_PAYLOAD_ENUM_ENTRIES ORDER BY idx")
    assert reductions == [("Sum", None), ("Product", 1), ("Max", 2), ("Min", 3), ("Avg", 4)]


def test_the_domain_is_created_once_per_process(trace: Path) -> None:
    sql = 'SELECT domainId, text, "end", globalTid >> 24 & 0xFFFFFF FROM NVTX_EVENTS WHERE eventType = 75'
    assert query(trace, sql) == [(1, "NCCL", None, 4100), (1, "NCCL", None, 4101)]


def test_a_wait_names_the_event_it_waits_for(trace: Path) -> None:
    sql = """
        SELECT e.streamId, s.streamId FROM CUPTI_ACTIVITY_KIND_CUDA_EVENT e
        JOIN CUPTI_ACTIVITY_KIND_SYNCHRONIZATION s USING (globalPid, eventId, eventSyncId)
        WHERE s.syncType = 2 AND e.correlationId < s.correlationId
    """
    assert query(trace, sql) == [(7, 17), (7, 17)]


def test_files_say_that_they_are_synthetic(trace: Path) -> None:
    assert len(query(trace, f"SELECT value FROM META_DATA_EXPORT WHERE name = '{SYNTHETIC}'")) == 1
    assert query(trace, "SELECT DISTINCT name FROM PROCESSES") == [("synthetic",)]


def test_calls_of_one_thread_do_not_overlap_when_left_to_the_writer(trace: Path) -> None:
    spans = query(
        trace,
        'SELECT start, "end" FROM NVTX_EVENTS WHERE domainId = 1 AND eventType = 59'
        " AND globalTid & 0xFFFFFF = 4100 ORDER BY start",
    )
    assert all(end <= start for (_, end), (start, _) in pairwise(spans))


def test_same_calls_same_bytes(tmp_path: Path) -> None:
    first = two_ranks().write(tmp_path / "first.sqlite")
    export = two_ranks()
    export.write(tmp_path / "shuffled.sqlite", shuffle_seed=1, payloads=None, text="inline")
    second = export.write(tmp_path / "second.sqlite")
    assert first.read_bytes() == second.read_bytes()


def test_shuffling_changes_the_order_of_rows_and_nothing_else(trace: Path, tmp_path: Path) -> None:
    shuffled = two_ranks().write(tmp_path / "shuffled.sqlite", shuffle_seed=1)
    assert names(shuffled) == names(trace)
    for table in names(trace):
        select = f"SELECT * FROM {table}"
        assert Counter(query(shuffled, select)) == Counter(query(trace, select))
    starts = "SELECT start FROM NVTX_EVENTS"
    assert query(shuffled, starts) != query(trace, starts)


def test_without_payloads_only_their_schemas_remain(tmp_path: Path) -> None:
    path = two_ranks().write(tmp_path / "trace.sqlite", payloads=None)
    assert query(path, "SELECT count(*) FROM NVTX_EVENTS WHERE jsonText IS NOT NULL") == [(0,)]
    assert query(path, "SELECT count(*) FROM NVTX_PAYLOAD_SCHEMAS") == [(6,)]
    included = "SELECT value FROM META_DATA_EXPORT WHERE name = 'EXPORT_PARAM_INCLUDE_JSON'"
    assert query(path, included) == [("false",)]


def test_inline_text_survives_without_text_ids(tmp_path: Path) -> None:
    path = two_ranks().write(tmp_path / "t.sqlite", text="inline", omit_columns=["NVTX_EVENTS.textId"])
    assert "textId" not in [name for name, *_ in columns(path, "NVTX_EVENTS")]
    texts = {text for (text,) in query(path, "SELECT text FROM NVTX_EVENTS")}
    assert texts == {"NCCL", "ncclCommInitRankConfig", "ncclAllReduce", "ncclAllGather", "pid 777"}


def test_tables_can_be_omitted_and_empty_ones_are(tmp_path: Path) -> None:
    path = two_ranks().write(tmp_path / "omitted.sqlite", omit_tables=["NVTX_EVENTS"])
    assert "NVTX_EVENTS" not in names(path)
    export = ExportWriter()
    export.process(pid=1).kernel("gemm", stream=7, start_ns=10_000, end_ns=20_000)
    lazy = export.write(tmp_path / "lazy.sqlite")
    assert not {"NVTX_EVENTS", "NVTX_PAYLOAD_SCHEMAS", "CUPTI_ACTIVITY_KIND_MEMCPY"} & names(lazy)


def test_one_process_drives_two_gpus(tmp_path: Path) -> None:
    export = ExportWriter()
    process = export.process(pid=1, device=0)
    for device in range(2):
        process.on(device=device).kernel("gemm", stream=17, start_ns=10_000, end_ns=20_000)
    path = export.write(tmp_path / "trace.sqlite")
    kernels = "SELECT deviceId, contextId, streamId FROM CUPTI_ACTIVITY_KIND_KERNEL"
    assert query(path, kernels) == [(0, 1, 17), (1, 2, 17)]


def test_a_group_launches_its_kernel_at_the_end(tmp_path: Path) -> None:
    export = ExportWriter()
    process = export.process(pid=1)
    payload = {"NCCL communicator ID": 1, "Message size [bytes]": 8, "Peer rank": 1}
    process.nccl_call("ncclGroupStart", start_ns=1_000_000, end_ns=1_001_000)
    process.nccl_call("ncclSend", payload, start_ns=1_002_000, end_ns=1_003_000)
    process.nccl_call("ncclGroupEnd", start_ns=1_004_000, end_ns=1_020_000)
    process.kernel("ncclDevKernel_SendRecv()", stream=7, start_ns=1_030_000, end_ns=1_040_000, call_ns=1_005_000)
    process.nccl_call("ncclGroupStart", start_ns=1_050_000, end_ns=None)
    path = export.write(tmp_path / "trace.sqlite")
    assert [(row[1], row[3]) for row in query(path, JOIN)] == [
        ("ncclGroupStart", None),
        ("ncclSend", None),
        ("ncclGroupEnd", 1_030_000),
        ("ncclGroupStart", None),
    ]


def test_existing_files_are_not_overwritten(trace: Path) -> None:
    before = trace.read_bytes()
    with pytest.raises(InputError, match="exists already"):
        ExportWriter("other").write(trace)
    assert trace.read_bytes() == before
    ExportWriter("other").write(trace, overwrite=True)
    assert trace.read_bytes() != before
    assert os.listdir(trace.parent) == [trace.name]


def test_an_unwritable_place_is_refused(trace: Path) -> None:
    for path in (trace.parent / "no" / "such" / "folder.sqlite", trace / "below-a-file.sqlite"):
        with pytest.raises(InputError, match="cannot be written"):
            ExportWriter().write(path)
    with pytest.raises(InputError, match="cannot be made"):
        write_demo(trace)


@pytest.mark.parametrize(
    ("operation", "options", "message"),
    [
        ("AllReduces", {}, "no NCCL function"),
        ("CommSplit", {}, "moves no data"),
        ("AllGather", {"reduction": "Sum"}, "Reduction operation"),
        ("AllReduce", {"root": 0}, "Root"),
    ],
)
def test_impossible_calls_are_refused(operation: str, options: dict[str, Any], message: str) -> None:
    process = ExportWriter().process(pid=1)
    with pytest.raises(InputError, match=message):
        process.collective(operation, size_bytes=1, communicator=1, stream=7, start_ns=0, end_ns=1, **options)


@pytest.mark.parametrize("options", [{"omit_tables": ["NVTX"]}, {"omit_columns": ["NVTX_EVENTS.name"]}])
def test_unknown_omissions_are_refused(tmp_path: Path, options: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="no such table or column"):
        ExportWriter().write(tmp_path / "trace.sqlite", **options)


@pytest.mark.skipif("ATLAS_LP_DATA" not in os.environ, reason="ATLAS_LP_DATA does not name the sample data")
def test_columns_are_those_of_a_real_export(trace: Path) -> None:
    real = Path(os.environ["ATLAS_LP_DATA"]) / "nsys" / "ddp_2gpu_nccl2.28_nsys2026.3.sqlite"
    assert len(names(trace)) == 27
    for table in names(trace):
        assert columns(trace, table) == columns(real, table), table
        if table.startswith("ENUM_"):
            assert set(query(trace, f"SELECT * FROM {table}")) <= set(query(real, f"SELECT * FROM {table}"))


def test_demo_has_about_200_collectives_of_15_kinds_per_gpu(demo: list[Path]) -> None:
    for path in demo:
        rows = query(path, JOIN)
        assert all(row[3] is not None for row in rows)
        assert Counter(row[0] for row in rows) == dict.fromkeys(range(4100, 4104), 206)
        kinds = {(row[1], json.loads(row[2])["Message size [bytes]"], row[5], row[6]) for row in rows}
        assert len(kinds) == 15


def test_demo_ranks_agree(demo: list[Path]) -> None:
    """All ranks do the same in the same order, and leave each collective within 10 us of each other."""
    ranks = []
    for path in demo:
        rows = query(path, JOIN)
        ranks += [[row for row in rows if row[0] == pid] for pid in range(4100, 4104)]
    assert len({tuple(row[1:3] for row in rank) for rank in ranks}) == 1
    for path, first in zip(demo, range(0, 16, 4), strict=True):
        for calls in zip(*ranks[first : first + 4], strict=True):
            ends = [row[4] for row in calls]
            assert max(ends) - min(ends) < 10_000, path
            assert all(row[3] > row[7] for row in calls)  # no kernel starts before its launch


def test_demo_step_lasts_some_hundred_milliseconds_on_different_clocks(demo: list[Path]) -> None:
    first, last = zip(
        *(query(path, 'SELECT min(start), max("end") FROM CUPTI_ACTIVITY_KIND_KERNEL')[0] for path in demo),
        strict=True,
    )
    assert all(300e6 < end - start < 600e6 for start, end in zip(first, last, strict=True))
    assert max(first) - min(first) > 10_000_000


def test_demo_streams_do_one_thing_at_a_time(demo: list[Path]) -> None:
    sql = 'SELECT globalPid, streamId, start, "end" FROM CUPTI_ACTIVITY_KIND_KERNEL ORDER BY 1, 2, 3'
    rows = query(demo[0], sql)
    for before, after in pairwise(rows):
        assert before[:2] != after[:2] or before[3] <= after[2]


def test_demo_is_reproducible_and_follows_the_seed(demo: list[Path], tmp_path: Path) -> None:
    again = write_demo(tmp_path / "again")
    other = write_demo(tmp_path / "other", seed=1)
    assert [path.read_bytes() for path in again] == [path.read_bytes() for path in demo]
    assert all(a.read_bytes() != b.read_bytes() for a, b in zip(again, other, strict=True))
    assert sum(path.stat().st_size for path in demo) < 25e6


def test_demo_needs_two_ranks_and_an_empty_place(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="two ranks"):
        write_demo(tmp_path, nodes=1, gpus_per_node=1)
    assert len(write_demo(tmp_path, nodes=2, gpus_per_node=1)) == 2
    with pytest.raises(InputError, match="exists already"):
        write_demo(tmp_path, nodes=2, gpus_per_node=1)
    write_demo(tmp_path, nodes=2, gpus_per_node=1, overwrite=True)


def test_duration_of_a_collective_by_hand() -> None:
    """16 ranks on 4 nodes: 15 hops of 1.6 us each, and 15/16 of 16 MB through four NICs of 25 GB/s."""
    assert collective_ns(CollectiveStep("AllGather", 1_000_000), 4, 4) == 15 * 1_600 + 15 * 10_000
    assert collective_ns(CollectiveStep("AllReduce", 0, channels=1), 1, 8) == 14 * 900
