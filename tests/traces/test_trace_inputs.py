"""The twelve inputs of the field reports (T01 to T12): what users met, and the right outcome of each variant."""

import json
import struct

import pytest
from helpers.exports import (
    BASE,
    COMMUNICATOR,
    DEVICE,
    ID,
    KIB,
    MIB,
    RANK,
    RANKS,
    STEP_NS,
    content,
    edit,
    edited,
    gaps,
    group,
    job,
    operations,
    payload,
    rank,
    read,
)

from atlas_lp.errors import MismatchError, NoNcclError, PayloadError, TraceError, UnsupportedError
from atlas_lp.traces.signing.sign import sign
from atlas_lp.traces.signing.signed_trace import SignedTrace
from atlas_lp.traces.synthetic.writer import ExportWriter

NVTX, RUNTIME = "NVTX_EVENTS", "CUPTI_ACTIVITY_KIND_RUNTIME"
KERNELS = "CUPTI_ACTIVITY_KIND_KERNEL"


@pytest.fixture
def base(tmp_path):
    return read(job().write(tmp_path / "base.sqlite"))


# --- T01: strings -------------------------------------------------------------------------------------


def test_t01_inline_registered_and_without_text_ids_are_equal(tmp_path, base):
    inline = job().write(tmp_path / "inline.sqlite", text="inline")
    no_ids = job().write(tmp_path / "no_ids.sqlite", text="inline", omit_columns=["NVTX_EVENTS.textId"])
    assert content(read(inline)) == content(read(no_ids)) == content(base)


def test_t01_user_text_is_never_a_call(tmp_path, base):
    export = job()
    process = rank(export, 0, [], pid=4100, init=False)
    process.user_range("pid 777", 1_900_000, 3_500_000)
    process.user_range("ncclAllReduce", 1_900_000, 3_500_000)
    process.user_range("ncclAllReduce my note", 1_900_000, 3_500_000)
    trace = read(export.write(tmp_path / "user.sqlite"))
    assert content(trace)["operations"] == content(base)["operations"]


def test_t01_kernels_outside_of_any_range_are_counted(tmp_path, base):
    export = job()
    rank(export, 0, [], pid=4100, init=False).kernel(
        "ncclDevKernel_SendRecv()", stream=9, start_ns=9_000_000, end_ns=9_100_000
    )
    trace = read(export.write(tmp_path / "loose.sqlite"))
    assert content(trace)["operations"] == content(base)["operations"]
    assert [gap.message for gap in trace.gaps] == ["unattributed NCCL kernel outside of any NCCL call: left out"]
    assert gaps(trace) == {"unattributed-kernels": 1}


# --- T02: the NVTX table ------------------------------------------------------------------------------


def test_t02_absent_and_empty_tables_are_refused_differently(tmp_path):
    absent = job().write(tmp_path / "absent.sqlite", omit_tables=[NVTX])
    with pytest.raises(TraceError, match="no NVTX events"):
        read(absent)
    with pytest.raises(TraceError, match="the NVTX table is empty"):
        read(edited(tmp_path, f"DELETE FROM {NVTX}"))


def test_t02_versioned_tables_newest_first(tmp_path, base):
    renamed = edited(tmp_path, f"ALTER TABLE {NVTX} RENAME TO NVTX_EVENTS_V2", name="v2.sqlite")
    assert content(read(renamed)) == content(base)
    both = edited(
        tmp_path,
        f"ALTER TABLE {NVTX} RENAME TO NVTX_EVENTS_V10",
        "CREATE TABLE NVTX_EVENTS_V3 AS SELECT * FROM NVTX_EVENTS_V10 WHERE 0",
        name="both.sqlite",
    )
    assert content(read(both)) == content(base)


@pytest.mark.parametrize("ending", ["²", "٣", "9" * 5000, "-1", "", "1e3", " 3", "3; DROP TABLE StringIds"])
def test_what_only_looks_like_a_version_of_a_table_is_none(ending, tmp_path, base):
    odd = edited(tmp_path, f'CREATE TABLE "NVTX_EVENTS_V{ending}" AS SELECT * FROM {NVTX} WHERE 0', name="odd.sqlite")
    assert content(read(odd)) == content(base)
    alone = edited(tmp_path, f'ALTER TABLE {NVTX} RENAME TO "NVTX_EVENTS_V{ending}"', name="alone.sqlite")
    with pytest.raises(TraceError, match="no NVTX events"):
        read(alone)


def test_tables_may_have_names_that_sql_quotes(tmp_path, base):
    names = ('x"y', "a'b", "c;d", "[e]", "`f`", "g\nh", "²")
    tables = [f'CREATE TABLE "{name.replace(chr(34), chr(34) * 2)}" ("a""b")' for name in names]
    assert content(read(edited(tmp_path, *tables))) == content(base)


def test_t02_other_event_types_are_ignored(tmp_path, base):
    others = edited(
        tmp_path,
        f"INSERT INTO {NVTX} (start, end, eventType, text, globalTid, domainId) SELECT start, NULL, 75, 'CCCL', "
        f"globalTid, 2 FROM {NVTX} WHERE eventType = 75",
        f"INSERT INTO {NVTX} (start, eventType, text, globalTid, domainId) VALUES (5, 34, 'mark', 0, 1), "
        "(6, 33, 'category', 0, 1)",
    )
    assert content(read(others)) == content(base)


def test_t02_start_end_ranges_are_refused_by_type(tmp_path):
    with pytest.raises(TraceError, match="NCCL ranges are of type 60 only"):
        read(edited(tmp_path, f"UPDATE {NVTX} SET eventType = 60 WHERE eventType = 59"))


def test_t02_a_process_whose_domain_was_named_before_the_capture(tmp_path, base):
    cut = edited(tmp_path, f"DELETE FROM {NVTX} WHERE eventType = 75 AND globalTid & 1 = 1")
    assert content(read(cut)) == content(base)


# --- T03: values not exported -------------------------------------------------------------------------


def test_t03_values_not_exported(tmp_path):
    path = job().write(tmp_path / "bare.sqlite", payloads=None)
    with pytest.raises(PayloadError, match=r"EXPORT_PARAM_INCLUDE_JSON = false.*nsys export --type sqlite.*blobs=true"):
        read(path)


# --- T04: generations of payloads ---------------------------------------------------------------------

NO_SCHEMAS = ["NVTX_PAYLOAD_SCHEMAS", "NVTX_PAYLOAD_SCHEMA_ENTRIES"]


def old_payloads(path, communicators=1):
    """Turn payloads into those of NCCL 2.16 .. 2.24: no id; sizes of Broadcast, Send and Recv called Bytes."""
    without = f"UPDATE {NVTX} SET jsonText = json_remove(jsonText, '$.\"{ID}\"') WHERE jsonText IS NOT NULL"
    return edit(path, without)


def test_t04_nccl_without_payloads(tmp_path):
    path = job().write(tmp_path / "old.sqlite", payloads=None, omit_tables=NO_SCHEMAS)
    with pytest.raises(PayloadError, match=r"NCCL 2\.15 and older"):
        read(path)


def test_t04_nccl_without_ids_and_one_communicator(tmp_path, base):
    trace = read(old_payloads(edited(tmp_path)))
    assert operations(trace, "type", "size_bytes", "rank") == operations(base, "type", "size_bytes", "rank")
    assert trace.communicators["id"].to_pylist() == [0]
    assert gaps(trace) == {"communicators": 1}


def test_t04_nccl_without_ids_and_two_communicators(tmp_path):
    export = job()
    for number in range(2):
        process = rank(export, number, [], init=False)
        process.init_communicator(7, ranks=2, rank=number, at_ns=600_000, duration_ns=1_000)
    with pytest.raises(TraceError, match=r"NCCL < 2\.25 has no communicator id"):
        read(old_payloads(export.write(tmp_path / "two.sqlite")))


def test_t04_bytes_is_another_word_for_the_size(tmp_path):
    path = edited(tmp_path, f"""UPDATE {NVTX} SET jsonText = replace(jsonText, 'Message size [bytes]', 'Bytes')""")
    assert operations(read(path), "size_bytes")[:2] == [(MIB,), (4 * KIB,)]


def blobs(path, *, hex_text=False, reading="total", cut=0, schema=None):
    """Encode the JSON payloads of a synthetic export as binary, in one of the two public readings of the header."""
    import sqlite3
    from contextlib import closing

    schemas = {"ncclAllReduce": (5, "<QQi4x"), "ncclAllGather": (4, "<QQ"), "ncclCommInitRankConfig": (11, "<Qiii4x")}
    with closing(sqlite3.connect(path)) as db, db:
        rows = db.execute(
            f"SELECT n.rowid, s.value, n.jsonText FROM {NVTX} n JOIN StringIds s ON s.id = n.textId "
            "WHERE n.jsonText IS NOT NULL"
        ).fetchall()
        for row, name, text in rows:
            number, layout = schemas[name]
            values = [0 if value == "Sum" else value for value in json.loads(text).values()]
            data = struct.pack(layout, *values)
            last = 32 + len(data) if reading == "total" else 32
            blob = struct.pack("<QQQQ", 1, schema or (1 << 24) + number, len(data), last) + data
            blob = blob[: len(blob) - cut]
            value = blob.hex() if hex_text else blob
            db.execute(f"UPDATE {NVTX} SET jsonText = NULL, binaryData = ? WHERE rowid = ?", (value, row))
    return path


@pytest.mark.parametrize("reading", ["total", "offset"])
@pytest.mark.parametrize("hex_text", [False, True])
def test_t04_binary_payloads_equal_json(tmp_path, base, hex_text, reading):
    assert content(read(blobs(edited(tmp_path), hex_text=hex_text, reading=reading))) == content(base)


def test_t04_payloads_in_string_ids(tmp_path, base):
    path = edited(
        tmp_path,
        f"INSERT INTO StringIds SELECT 1000 + rowid, jsonText FROM {NVTX} WHERE jsonText IS NOT NULL",
        f"UPDATE {NVTX} SET jsonTextId = 1000 + rowid, jsonText = NULL WHERE jsonText IS NOT NULL",
    )
    assert content(read(path)) == content(base)


def test_t04_unknown_schemas_and_cut_blobs_are_errors_with_their_place(tmp_path):
    with pytest.raises(
        TraceError, match=r"ncclCommInitRankConfig at 500000 ns of process 4100.*schema 99 .*no entries"
    ):
        read(blobs(edited(tmp_path), schema=99))
    with pytest.raises(TraceError, match=r"at 500000 ns of process 4100: the binary payload of schema \d+ is cut"):
        read(blobs(edited(tmp_path, name="cut.sqlite"), cut=4))


def test_t04_a_range_without_payload_among_others_is_an_error(tmp_path):
    path = edited(tmp_path, f"UPDATE {NVTX} SET jsonText = NULL WHERE jsonText LIKE '%:4096%' AND globalTid & 1 = 0")
    with pytest.raises(PayloadError, match="1 of 4 NCCL calls have no payload, first ncclAllGather"):
        read(path)


# --- T05: identity of communicators -------------------------------------------------------------------


def nameless_init(path, *, processes="1"):
    """Make the communicator inside a group: its own payload says id 0."""
    return edit(
        path,
        f"UPDATE {NVTX} SET jsonText = replace(jsonText, '{COMMUNICATOR}', '0') "
        f"WHERE jsonText LIKE '%No. of ranks%' AND {processes}",
    )


def test_t05_id_zero_in_a_group(tmp_path, base):
    trace = read(nameless_init(edited(tmp_path)))
    assert content(trace)["members"] == content(base)["members"]
    assert gaps(trace) == {"communicators": 1}
    one_known = read(nameless_init(edited(tmp_path, name="one.sqlite"), processes="globalTid & 1 = 0"))
    assert content(one_known)["members"] == content(base)["members"]


def test_t05_id_zero_twice_is_refused_with_the_id(tmp_path):
    export = job()
    for number in range(2):
        process = rank(export, number, [], init=False)
        process.init_communicator(0, ranks=2, rank=1 - number, at_ns=600_000, duration_ns=1_000)
    with pytest.raises(TraceError, match=f"communicator {COMMUNICATOR:#x}: .*ranks are unknown"):
        read(nameless_init(export.write(tmp_path / "twice.sqlite")))


def split_job(*, ranks=4):
    """Split of four ranks into even and odd ones, by reversed key."""
    export = ExportWriter()
    for number in range(ranks):
        process = rank(export, number, [("AllReduce", MIB)], ranks=ranks)
        made = {ID: 100 + number % 2, "Parent NCCL communicator ID": COMMUNICATOR, RANKS: ranks, RANK: number}
        made |= {DEVICE: number, "Color": number % 2, "Key": -number}
        process.nccl_call("ncclCommSplit", made, start_ns=3_000_000, end_ns=3_100_000)
        process.collective(
            "AllGather", size_bytes=64, communicator=100 + number % 2, stream=18, start_ns=4_000_000, end_ns=4_100_000
        )
    return export


def test_t05_split_does_not_take_the_parents_numbers(tmp_path):
    trace = read(split_job().write(tmp_path / "split.sqlite"))
    assert trace.communicators.to_pylist() == [
        {"id": 100, "ranks": 2, "generation": 0},
        {"id": 101, "ranks": 2, "generation": 0},
        {"id": COMMUNICATOR, "ranks": 4, "generation": 0},
    ]
    assert [tuple(row.values()) for row in trace.members.to_pylist()[:4]] == [
        (0, 0, 2),
        (0, 1, 0),
        (1, 0, 3),
        (1, 1, 1),
    ]


def test_t05_grow_names_the_new_communicator(tmp_path):
    export = ExportWriter()
    for number in range(2):
        process = rank(export, number, [], init=False)
        process.nccl_call("ncclCommInitRank", {ID: 5, RANKS: 2, RANK: number, DEVICE: number}, start_ns=1, end_ns=2)
        process.collective("AllReduce", size_bytes=64, communicator=5, stream=17, start_ns=4_000_000, end_ns=4_100_000)
    path = edited(
        tmp_path, "UPDATE StringIds SET value = 'ncclCommGrow' WHERE value = 'ncclCommInitRank'", export=export
    )
    assert read(path).communicators["ranks"].to_pylist() == [2]


def test_t05_shrink_keeps_the_order_of_the_parent(tmp_path):
    export = ExportWriter()
    for number in range(3):
        process = rank(export, number, [("AllReduce", MIB)], ranks=3)
        if number == 1:
            continue
        shrunk = {ID: COMMUNICATOR, RANKS: 3, RANK: number, DEVICE: number, "num_exclude": 1}
        process.nccl_call("ncclCommShrink", shrunk, start_ns=3_000_000, end_ns=3_100_000)
        process.collective("AllReduce", size_bytes=64, communicator=5, stream=18, start_ns=4_000_000, end_ns=4_100_000)
    trace = read(export.write(tmp_path / "shrink.sqlite"))
    assert trace.communicators["ranks"].to_pylist() == [2, 3]
    assert [tuple(row.values()) for row in trace.members.to_pylist()[:2]] == [(0, 0, 0), (0, 1, 2)]


def test_t05_init_all_is_one_row_for_all_devices(tmp_path):
    export = ExportWriter()
    process = export.process(pid=1)
    process.nccl_call("ncclCommInitAll", {ID: 5, "No. of devices": 2}, start_ns=1_000, end_ns=2_000)
    for device in range(2):
        process.on(device=device, tid=10 + device).collective(
            "AllReduce", size_bytes=64, communicator=5, stream=17, start_ns=4_000_000, end_ns=4_100_000
        )
    trace = read(export.write(tmp_path / "all.sqlite"))
    assert trace.communicators["ranks"].to_pylist() == [2]
    assert operations(trace, "rank", "gpu") == [(0, 0), (1, 1)]


def two_lives(second):
    export = ExportWriter()
    for number in range(2):
        process = rank(export, number, [("AllReduce", MIB)])
        end = {ID: COMMUNICATOR, RANKS: 2, RANK: number, DEVICE: number}
        process.nccl_call("ncclCommDestroy", end, start_ns=3_000_000, end_ns=3_100_000)
        process.init_communicator(second, ranks=2, rank=number, at_ns=3_200_000, duration_ns=1_000)
        process.collective(
            "AllReduce", size_bytes=64, communicator=second, stream=17, start_ns=4_000_000, end_ns=4_100_000
        )
    return export


@pytest.mark.parametrize("second", [COMMUNICATOR, 7])
def test_t05_made_again_is_another_communicator(tmp_path, second):
    trace = read(two_lives(second).write(tmp_path / "again.sqlite"))
    assert trace.communicators.num_rows == 2
    assert len({i.communicator for i in trace.instances()}) == 2


def test_t05_ids_are_unsigned(tmp_path):
    large = 0xFA93DAEA854B060B
    export = ExportWriter()
    for number in range(2):
        rank(export, number, communicator=large)
    trace = read(export.write(tmp_path / "large.sqlite"))
    assert trace.communicators["id"].to_pylist() == [large]
    signed = edited(
        tmp_path, f"UPDATE {NVTX} SET jsonText = replace(jsonText, '{large}', '{large - 2**64}')", export=export
    )
    assert read(signed).communicators["id"].to_pylist() == [large]


def test_t05_equal_members_are_not_merged(tmp_path):
    export = job()
    for number in range(2):
        process = rank(export, number, [], init=False)
        process.init_communicator(7, ranks=2, rank=number, at_ns=600_000, duration_ns=1_000)
        process.collective("AllReduce", size_bytes=64, communicator=7, stream=18, start_ns=8_000_000, end_ns=8_100_000)
    assert read(export.write(tmp_path / "same.sqlite")).communicators["id"].to_pylist() == [7, COMMUNICATOR]


# --- T06: several ranks in one file -------------------------------------------------------------------


def test_t06_one_file_shuffled_and_two_files_are_equal(tmp_path, base):
    shuffled = job().write(tmp_path / "z.sqlite", shuffle_seed=3)
    assert content(read(shuffled)) == content(base)
    files = []
    for number in range(2):
        export = ExportWriter("node0")
        rank(export, number)
        files.append(export.write(tmp_path / f"{'ba'[number]}.sqlite", shuffle_seed=number))
    assert content(read(*files)) == content(read(*files[::-1])) == content(base)


# --- T07: one process, several GPUs -------------------------------------------------------------------


def test_t07_calls_of_one_thread_go_to_devices_in_launch_order(tmp_path):
    export = ExportWriter()
    process = export.process(pid=1)
    for device in range(4):
        process.on(device=device).init_communicator(5, ranks=4, rank=device, at_ns=1_000 * device, duration_ns=500)
    kernels = [
        {"device": d, "stream": 17, "start_ns": 4_100_000 + d, "end_ns": 4_200_000, "grid": 2, "block": 544}
        for d in range(4)
    ]
    group(process, [("ncclAllReduce", payload(MIB, 5))] * 4, at_ns=4_000_000, kernels=kernels)
    trace = read(export.write(tmp_path / "four.sqlite"))
    assert operations(trace, "rank", "gpu", "start_ns") == [(d, d, trace.gpus["first_ns"][d].as_py()) for d in range(4)]
    assert len(trace.instances()) == 1
    assert trace.gpus["device"].to_pylist() == [0, 1, 2, 3]


def test_t07_streams_of_two_contexts_are_two(tmp_path):
    path = edited(
        tmp_path,
        f"UPDATE {KERNELS} SET contextId = 9 WHERE rowid IN (SELECT max(rowid) FROM {KERNELS} GROUP BY globalPid)",
    )
    assert len(set(operations(read(path), "stream"))) == 2


# --- T08: groups --------------------------------------------------------------------------------------


def grouped(tmp_path, calls, kernels, **options):
    export = ExportWriter()
    for number in range(2):
        process = rank(export, number, [])
        process.init_communicator(7, ranks=2, rank=number, at_ns=600_000, duration_ns=1_000)
        group(process, calls(number) if callable(calls) else calls, at_ns=4_000_000, kernels=kernels, **options)
    return read(export.write(tmp_path / "group.sqlite"))


ONE = {"stream": 17, "start_ns": 4_100_000, "end_ns": 4_200_000, "grid": 4, "block": 544}
THREE_CALLS = [
    ("ncclAllReduce", payload(MIB)),
    ("ncclAllReduce", payload(2 * MIB)),
    ("ncclAllGather", payload(KIB)),
]


@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize(
    "name",
    [
        "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(x)",
        "ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(x)",
        "ncclDevKernel_Generic(x)",
        "ncclSymkDevKernel_AllReduce_AGxLL_R_sum_f32(x)",
        "NCCLDevKernel_Broadcast(x)",
    ],
)
def test_t08_operations_of_a_group_are_kept_with_one_launch(tmp_path, name, nested):
    trace = grouped(tmp_path, THREE_CALLS, [ONE | {"name": name}], nested=nested)
    assert operations(trace, "type", "size_bytes", "group")[:3] == [
        ("AllReduce", MIB, 0),
        ("AllReduce", 2 * MIB, 0),
        ("AllGather", KIB, 0),
    ]
    assert set(operations(trace, "start_ns")) == {(trace.operations["start_ns"][0].as_py(),)}
    assert "share" in trace.operations["channel_source"][0].as_py()
    assert {gap.code for gap in sign(trace)[1]} >= {"shared-kernels"}


def test_t08_two_communicators_two_kernels(tmp_path):
    calls = [("ncclAllReduce", payload(MIB)), ("ncclAllReduce", payload(KIB, 7))]
    kernels = [ONE, ONE | {"stream": 18, "start_ns": 4_110_000}]
    trace = grouped(tmp_path, calls, kernels)
    assert operations(trace, "communicator", "size_bytes", "stream")[::2] == [(0, KIB, 18), (1, MIB, 17)]


def test_t08_empty_groups_and_groups_before_any_communicator(tmp_path, base):
    export = job()
    process = rank(export, 0, [], pid=4100, init=False)
    process.nccl_call("ncclGroupStart", start_ns=100_000, end_ns=100_100)
    process.nccl_call("ncclGroupEnd", start_ns=100_200, end_ns=100_300)
    assert content(read(export.write(tmp_path / "empty.sqlite"))) == content(base)


def exchange(number):
    """Two sends and two receives: to self and to the other rank, as an all-to-all does."""
    return [
        (f"nccl{kind}", payload(KIB * (1 + number if kind == "Send" else 1 + peer), peer=peer))
        for peer in range(2)
        for kind in ("Send", "Recv")
    ]


def test_t08_grouped_sends_and_receives_are_one_instance(tmp_path):
    trace = grouped(tmp_path, exchange, [ONE])
    assert operations(trace, "type", "peer", "size_bytes", "sequence")[:4] == [
        ("Send", 0, KIB, -1),
        ("Recv", 0, KIB, -1),
        ("Send", 1, KIB, -1),
        ("Recv", 1, 2 * KIB, -1),
    ]
    (instance,) = trace.instances()
    assert instance.kind == "SendRecv"
    assert [(m.source, m.target, m.size_bytes) for m in instance.messages] == [
        (0, 0, KIB),
        (0, 1, KIB),
        (1, 0, 2 * KIB),
        (1, 1, 2 * KIB),
    ]
    assert len(instance.rows) == instance.launches == 2
    (signed,), _ = sign(trace)
    assert signed.signature.collective == "SendRecv"
    assert signed.signature.size_bytes == 6 * KIB


def test_all_to_all_and_trees_have_signatures(tmp_path):
    export = ExportWriter()
    for number in range(2):
        process = rank(export, number, [("AllToAll", KIB)])
        process.collective(
            "AllReduce",
            size_bytes=MIB,
            communicator=COMMUNICATOR,
            stream=17,
            start_ns=9_000_000,
            end_ns=9_100_000,
            channels=2,
            threads=640,
            kernel_name="ncclDevKernel_AllReduce_Sum_f32_TREE_LL(x)",
        )
    signed, _ = sign(read(export.write(tmp_path / "tree.sqlite")))
    assert [(s.signature.collective, s.signature.algorithm) for s in signed][1] == ("AllReduce", "tree")
    assert dict(signed[1].sources)["topology"].startswith("assumed: balanced double binary trees")
    assert signed[0].signature.size_bytes == KIB


def test_t08_messages_match_in_order_and_sizes_must_agree(tmp_path):
    def unequal(number):
        kind, peer = ("Send", 1) if number == 0 else ("Recv", 0)
        return [(f"nccl{kind}", payload(KIB * (1 + number), peer=peer))]

    with pytest.raises(MismatchError, match="sent as 1024 B and received as 2048 B"):
        grouped(tmp_path, unequal, [ONE])


# --- T09: nothing to send -----------------------------------------------------------------------------


def test_t09_empty_collectives_launch_nothing(tmp_path, base):
    export = job()
    for number in range(2):
        process = rank(export, number, [], init=False)
        process.nccl_call("ncclAllReduce", payload(0), start_ns=1_500_000, end_ns=1_501_000)
    trace = read(export.write(tmp_path / "empty.sqlite"))
    assert content(trace)["operations"] == content(base)["operations"]
    assert gaps(trace) == {"empty-operations": 2}


def test_t09_empty_sends_are_kept(tmp_path):
    trace = grouped(tmp_path, lambda n: [("ncclSend" if n == 0 else "ncclRecv", payload(0, peer=1 - n))], [ONE])
    assert operations(trace, "type", "size_bytes") == [("Send", 0), ("Recv", 0)]
    assert [m.size_bytes for m in trace.instances()[0].messages] == [0]


def test_t09_one_rank_has_no_messages(tmp_path, base):
    export = job()
    process = rank(export, 0, [], pid=4100, init=False)
    process.init_communicator(9, ranks=1, rank=0, at_ns=700_000, duration_ns=1_000)
    process.nccl_call("ncclAllReduce", payload(64, 9), start_ns=1_500_000, end_ns=1_501_000)
    process.nccl_call("ncclAllGather", payload(64, 9), start_ns=1_600_000, end_ns=1_610_000)
    process.memcpy(64, stream=17, start_ns=1_620_000, end_ns=1_621_000, kind="DtoD", call_ns=1_602_000)
    trace = read(export.write(tmp_path / "one.sqlite"))
    assert content(trace)["operations"] == content(base)["operations"]
    assert gaps(trace) == {"one-rank-operations": 1, "one-rank-copies": 1, "copy-engine-operations": 1}


def test_t09_copy_engine_collectives_are_kept_and_have_no_schedule(tmp_path):
    export = job()
    for number in range(2):
        process = rank(export, number, [], init=False)
        process.nccl_call("ncclAllGather", payload(64), start_ns=6_000_000, end_ns=6_010_000)
        process.memcpy(64, stream=17, start_ns=6_020_000, end_ns=6_030_000, kind="PtoP", call_ns=6_002_000)
    trace = read(export.write(tmp_path / "copies.sqlite"))
    assert operations(trace, "type", "size_bytes", "kernel")[2] == ("AllGather", 64, "memcpy")
    assert gaps(trace) == {"copy-engine-operations": 2}
    with pytest.raises(UnsupportedError, match="2 operations were carried out by copy engines"):
        sign(trace)


# --- T10: CUDA graphs ---------------------------------------------------------------------------------

GRAPHS = (
    "CREATE TABLE CUPTI_ACTIVITY_KIND_GRAPH_TRACE (start, end, deviceId, correlationId, globalPid)",
    "INSERT INTO CUPTI_ACTIVITY_KIND_GRAPH_TRACE VALUES (9000000, 9100000, 0, 1, 1)",
)


def test_t10_graphs_as_a_whole_are_refused_with_the_flag(tmp_path):
    for number, lost in enumerate(("1", "start > 2500000")):  # all kernels, or those of the second collective
        path = edited(tmp_path, *GRAPHS, f"DELETE FROM {KERNELS} WHERE {lost}", name=f"{number}.sqlite")
        with pytest.raises(TraceError, match="--cuda-graph-trace=node"):
            read(path)


def replayed_job(*, replays=5, launched=True):
    """Three collectives captured into a graph and replayed: kernels share the correlation id of the launch."""
    export = ExportWriter()
    statements = []
    for number in range(2):
        process = rank(export, number, [])
        for position, size in enumerate((KIB, 2 * KIB, 3 * KIB)):
            at = 1_000_000 + position * 10_000
            process.nccl_call("ncclAllReduce", payload(size), start_ns=at, end_ns=at + 5_000)
        for replay in range(replays):
            at = 2_000_000 * (1 + replay)
            for node in range(3):
                process.kernel(
                    "ncclDevKernel_Generic()",
                    stream=17,
                    start_ns=at + 100_000 * node,
                    end_ns=at + 100_000 * node + 50_000,
                    call_ns=at - 50_000 + node * 5_000,
                )
            kernels = f"globalPid >> 24 & 16777215 = {4100 + number} AND start >= {at} AND start < {at + 300_000}"
            first = f"(SELECT min(correlationId) FROM {KERNELS} WHERE {kernels})"
            node = f"graphNodeId = 70 + (start - {at}) / 100000, graphId = 1"
            statements.append(f"UPDATE {KERNELS} SET {node} WHERE {kernels}")
            statements.append(f"UPDATE {KERNELS} SET correlationId = {first} WHERE {kernels}")
            if replay == 0 and not launched:
                statements.append(
                    f"DELETE FROM {RUNTIME} WHERE globalTid >> 24 & 16777215 = {4100 + number} AND correlationId = "
                    f"(SELECT min(correlationId) FROM {KERNELS} WHERE {kernels})"
                )
    return export, statements


def test_t10_node_level_replays_are_expanded(tmp_path):
    export, statements = replayed_job()
    trace = read(edited(tmp_path, *statements, export=export))
    assert operations(trace, "size_bytes")[:15] == [(KIB,), (2 * KIB,), (3 * KIB,)] * 5
    assert len(trace.instances()) == 15
    assert gaps(trace) == {"captured-calls": 6}


def test_t10_kernels_before_the_first_launch_are_a_cut(tmp_path):
    export, statements = replayed_job(launched=False)
    trace = read(edited(tmp_path, *statements, export=export))
    assert len(trace.instances()) == 12
    assert gaps(trace) == {"captured-calls": 6, "headless-kernels": 6}


# --- T11: cut and missing -----------------------------------------------------------------------------

STEPS = [("AllReduce", MIB), ("AllGather", 4 * KIB), ("AllReduce", 2 * MIB), ("AllReduce", MIB), ("AllGather", KIB)]


def test_t11_ranks_that_start_later_are_aligned(tmp_path):
    export = ExportWriter()
    rank(export, 0, STEPS)
    rank(export, 1, STEPS[2:], first_step=2)
    trace = read(export.write(tmp_path / "late.sqlite"))
    assert operations(trace, "size_bytes")[:3] == [(size,) for _, size in STEPS[2:]]
    assert [gap.message for gap in trace.gaps] == [
        f"operations not recorded on all ranks of communicator {COMMUNICATOR:#x}: 2 of rank 0"
    ]


@pytest.mark.parametrize("first", [0, 1, 2])
def test_t11_equal_operations_are_aligned_by_their_ends(tmp_path, first):
    export = ExportWriter()
    rank(export, 0, [("AllReduce", MIB)] * 34)
    rank(export, 1, [("AllReduce", MIB)] * 32, first_step=first)
    trace = read(export.write(tmp_path / "same.sqlite"))
    instances = trace.instances()
    assert len(instances) == 32
    assert gaps(trace) == {"cut": 2}
    ends = trace.column("operations", "end_ns")
    assert all(abs(ends[i.rows[0]] - ends[i.rows[1]]) < 100 for i in instances)


def test_t11_grouped_messages_are_aligned_by_their_ends(tmp_path):
    export = ExportWriter()
    for number, count in enumerate((34, 32)):
        process = rank(export, number, [])
        for position in range(34 - count, 34):
            at = 4_000_000 + STEP_NS * position + 7 * position**2
            kernel = ONE | {"start_ns": at + 100_000, "end_ns": at + 200_000}
            group(
                process,
                [(f"nccl{k}", payload(KIB, peer=1 - number)) for k in ("Send", "Recv")],
                at_ns=at,
                kernels=[kernel],
            )
    trace = read(export.write(tmp_path / "groups.sqlite"))
    assert len(trace.instances()) == 32
    assert gaps(trace) == {"cut": 4}


def test_t11_an_open_call_is_dropped(tmp_path, base):
    export = job()
    rank(export, 0, [], pid=4100, init=False).nccl_call("ncclAllReduce", payload(64), start_ns=8_000_000, end_ns=None)
    trace = read(export.write(tmp_path / "open.sqlite"))
    assert content(trace)["operations"] == content(base)["operations"]
    assert gaps(trace) == {"unlaunched-operations": 1}


def test_t11_missing_members_are_refused_or_named(tmp_path):
    export = ExportWriter()
    for number in range(3):
        rank(export, number, ranks=4)
    path = export.write(tmp_path / "three.sqlite")
    with pytest.raises(TraceError, match=r"1 of 4 ranks are missing \(3\).*--allow-missing"):
        read(path)
    trace = read(path, allow_missing=True)
    assert gaps(trace) == {"missing-ranks": 1}
    assert [len(i.rows) for i in trace.instances()] == [3, 3]
    signed, _ = sign(trace)
    assert {s.signature.ranks for s in signed} == {4}
    assert signed[0].ranks == (0, 1, 2, 3)
    assert signed[0].positions == (0, 1, 2, -1)


def test_t11_one_rank_in_two_files(tmp_path):
    files = [job().write(tmp_path / f"{name}.sqlite") for name in "ab"]
    with pytest.raises(MismatchError, match=r"a\.sqlite and .*b\.sqlite both hold process 4100 of node0"):
        read(*files)
    other = ExportWriter("node1")
    rank(other, 1)
    with pytest.raises(MismatchError, match=r"rank 1 is in .*a\.sqlite and in .*c\.sqlite"):
        read(files[0], other.write(tmp_path / "c.sqlite"))


@pytest.mark.parametrize("others", [[], [("AllReduce", MIB)] * 6])
def test_t11_different_operations_are_refused_with_their_place(tmp_path, others):
    export = ExportWriter()
    rank(export, 0, [("AllReduce", MIB), *others])
    rank(export, 1, [("AllReduce", 2 * MIB), *others])
    with pytest.raises(MismatchError, match=r"collective 1: rank 0 did AllReduce of 1048576 B.*rank 1 did .*2097152 B"):
        read(export.write(tmp_path / "differ.sqlite"))


def test_t11_a_file_without_cuda_rows_is_refused(tmp_path):
    path = job().write(tmp_path / "host.sqlite", omit_tables=[KERNELS, RUNTIME])
    with pytest.raises(TraceError, match="no table CUPTI_ACTIVITY_KIND_KERNEL"):
        read(path)
    with pytest.raises(NoNcclError, match="no NCCL kernel belongs to one"):
        read(edited(tmp_path, f"DELETE FROM {KERNELS}"))


# --- T12: time ----------------------------------------------------------------------------------------


def two_hosts(tmp_path, shift_ns=0, late_ns=0):
    files = []
    for number in range(2):
        export = ExportWriter(f"node{number}", session_utc_ns=10**18 + shift_ns * number)
        rank(export, number, late_ns=late_ns * number)
        files.append(export.write(tmp_path / f"{number}_{shift_ns}.sqlite"))
    return read(*files)


def test_t12_host_clocks_do_not_matter(tmp_path):
    plain, shifted = two_hosts(tmp_path), two_hosts(tmp_path, shift_ns=3_000_000)
    assert [s.signature for s in sign(plain)[0]] == [s.signature for s in sign(shifted)[0]]
    one, other = SignedTrace.of(plain).timeline, SignedTrace.of(shifted).timeline
    assert one.measured_ns == other.measured_ns
    assert (one.durations_ns()[0] == other.durations_ns()[0]).all()


def test_t12_drift_moves_gaps_by_its_own_size_alone(tmp_path):
    """20 ppm: what all ranks agree on stays, times differ by 20 ns per ms."""
    plain = two_hosts(tmp_path)
    drifted = [tmp_path / "0_0.sqlite", tmp_path / "1_0.sqlite"]
    tables = ("CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_RUNTIME", "NVTX_EVENTS")
    edit(drifted[1], *(f"UPDATE {t} SET start = start + start / 50000, end = end + end / 50000" for t in tables))
    trace = read(*drifted)
    names = ("rank", "sequence", "type", "size_bytes", "channels")
    assert operations(trace, *names) == operations(plain, *names)
    assert [s.signature for s in sign(trace)[0]] == [s.signature for s in sign(plain)[0]]


def test_t12_a_late_rank_is_arrival_not_transfer(tmp_path):
    trace = two_hosts(tmp_path, late_ns=300_000)
    starts = trace.column("operations", "start_ns")
    assert [int(starts[i.rows[1]] - starts[i.rows[0]]) for i in trace.instances()] == [300_000, 300_000]


def test_t12_a_kernel_before_its_launch_is_still_its_own(tmp_path, base):
    path = edited(tmp_path, f"UPDATE {KERNELS} SET start = start - 17000 WHERE start > 2900000")
    assert len(read(path).instances()) == len(base.instances()) == len(BASE)


def test_t12_a_broadcast_does_not_align_clocks(tmp_path):
    from atlas_lp.traces.join.clocks import host_offsets

    files = []
    for number in range(2):
        export = ExportWriter(f"node{number}")
        process = rank(export, number, [])
        for kind, at, end in (("Broadcast", 1, 100_000 + 400_000 * number), ("AllReduce", 2, 500_000)):
            process.collective(
                kind,
                size_bytes=KIB,
                communicator=COMMUNICATOR,
                stream=17,
                start_ns=at * STEP_NS,
                end_ns=at * STEP_NS + end,
            )
        files.append(export.write(tmp_path / f"{number}.sqlite"))
    trace = read(*files)
    assert host_offsets(trace, trace.instances())[0].tolist() == [0, 0]


def test_communication_without_nccl_is_named(tmp_path):
    export = job()
    rank(export, 0, [], init=False).kernel(
        "vllm::cross_device_reduce_1stage", stream=7, start_ns=8_000_000, end_ns=8_100_000
    )
    assert gaps(read(export.write(tmp_path / "custom.sqlite"))) == {"other-communication": 1}


def test_messages_between_some_ranks_know_their_rows(tmp_path):
    export = ExportWriter()
    for number in range(3):
        process = rank(export, number, [], ranks=3)
        if number:
            call = ("ncclSend" if number == 1 else "ncclRecv", payload(KIB, peer=3 - number))
            group(process, [call], at_ns=4_000_000, kernels=[ONE])
    (signed,), _ = sign(read(export.write(tmp_path / "some.sqlite")))
    assert (signed.instance.ranks, signed.ranks, signed.positions) == ((1, 2), (1, 2), (0, 1))
