"""Annotated NCCL (ATLAHS): the reader probe's base input and its thirteen variants, and full annotations."""

import pytest
from helpers.exports import annotated, content, gaps, operations, read

from atlas_lp.errors import TraceError
from atlas_lp.traces.signing.sign import sign

KERNEL = (1, 120, 170, 0)
CHOICE = (
    "collType 4 root 0 redOp 0 algo 1 proto 2 {where} data_size {size} type_size 4 chunkSize 1 chunkCount 1 "
    "chunkSteps 1 sliceSteps 1 stepSize 1 pid {pid}"
)


def init(pid=1, *, rank=None, ranks=2, handle="0xaa", at=10, commid="0xc1"):
    rank = pid - 1 if rank is None else rank
    return (pid, at, at + 5, f"commHash {handle} commId {commid} rank {rank} nranks {ranks} pid {pid}")


def call(pid=1, *, at=100, size=1024, handle="0xaa", launched=True):
    where = f"commHash {handle} stream 0x1"
    lines = [
        (
            at,
            at + 5,
            f"ncclAllReduce(): commHash {handle}, stream 0x1, data_size {size}, type_size 4, red_op 0, pid {pid}",
        ),
        (
            at + 5,
            at + 6,
            CHOICE.format(where=where, size=size, pid=pid),
        ),
    ]
    if launched:
        part = f"nWarps 1 count {size} chunkCount 1 workCount {size // 4} lastChunkCount 1 workOffset 0 sendbuff 1 "
        lines += [(at + 6, at + 7, f"{part}recvbuff 2 pid {pid}"), (at + 7, at + 8, f"ncclLaunchKernel(): pid {pid}")]
    return [(pid, *line) for line in lines]


def files(tmp_path, *ranks, **options):
    """One file per rank; each is (lines, kernels)."""
    tmp_path.mkdir(exist_ok=True)
    names = ["nsys_report_nodeA.1.sqlite", "nsys_report_nodeB.2.sqlite"]
    return [annotated(tmp_path / n, *r, **options) for n, r in zip(names, ranks, strict=False)]


def base(pid=1):
    return [init(pid), *call(pid)], [(pid, 120, 170, pid - 1)]


@pytest.fixture
def probe(tmp_path):
    return read(*files(tmp_path, base(1), base(2)))


def essence(trace):
    return operations(trace, "rank", "sequence", "type", "size_bytes", "algorithm", "protocol", "start_ns")


def test_base_input_is_read_with_what_nccl_chose(probe):
    assert essence(probe) == [(r, 0, "AllReduce", 1024, "ring", "simple", 120) for r in (0, 1)]
    assert probe.nccl_version.value == "2.20.5"
    ((signed, *_), _) = sign(probe)
    assert {f: s for f, s in signed.sources if f != "topology"} == dict.fromkeys(
        ("algorithm", "protocol", "channels", "element_bytes", "split"), "recorded: NCCL annotation"
    )


def test_1_two_processes_in_one_file(tmp_path, probe):
    (first, kernels), (second, others) = base(1), base(2)
    trace = read(annotated(tmp_path / "one.sqlite", first + second, kernels + others))
    assert essence(trace) == essence(probe)


def test_2_zero_byte_send(tmp_path):
    ranks = []
    for pid in (1, 2):
        name, peer = ("ncclSend", "receiver_rank 1") if pid == 1 else ("ncclRecv", "sender_rank 0")
        text = f"{name}(): commHash 0xaa, stream 0x1, data_size 0, type_size 4, {peer}, pid {pid}"
        lines = [init(pid), (pid, 100, 105, text), (pid, 107, 108, f"ncclLaunchKernel(): pid {pid}")]
        ranks.append((lines + call(pid, at=200), [(pid, 120, 130, 0), (pid, 220, 270, 0)]))
    trace = read(*files(tmp_path, *ranks))
    assert operations(trace, "type", "size_bytes", "peer") == [
        ("Send", 0, 1),
        ("AllReduce", 1024, -1),
        ("Recv", 0, 0),
        ("AllReduce", 1024, -1),
    ]


def test_3_communicator_made_twice(tmp_path):
    ranks = []
    for pid in (1, 2):
        again = [init(pid, handle="0xcc", at=500), *call(pid, at=600, handle="0xcc")]
        ranks.append((base(pid)[0] + again, [(pid, 120, 170, 0), (pid, 620, 670, 0)]))
    trace = read(*files(tmp_path, *ranks))
    assert trace.communicators["generation"].to_pylist() == [0, 1]
    assert [i.communicator for i in trace.instances()] == [0, 1]


def test_4_registered_strings(tmp_path, probe):
    assert content(read(*files(tmp_path / "again", base(1), base(2), registered=True))) == content(probe)


def test_5_other_file_names(tmp_path, probe):
    names = [annotated(tmp_path / f"rank{pid}.sqlite", *base(pid)) for pid in (2, 1)]
    assert content(read(*names)) == content(probe)


def test_6_user_text(tmp_path, probe):
    (lines, kernels) = base(1)
    text = (1, 90, 300, "load worker pid 777")
    trace = read(annotated(tmp_path / "a.sqlite", [*lines, text], kernels), annotated(tmp_path / "b.sqlite", *base(2)))
    assert content(trace) == content(probe)


def test_7_one_process_drives_two_gpus(tmp_path):
    lines = [init(rank=0), init(rank=1, handle="0xbb", at=20), *call(), *call(at=110, handle="0xbb")]
    trace = read(annotated(tmp_path / "two.sqlite", lines, [KERNEL, (1, 130, 170, 1)]))
    assert essence(trace) == [
        (0, 0, "AllReduce", 1024, "ring", "simple", 120),
        (1, 0, "AllReduce", 1024, "ring", "simple", 130),
    ]
    assert trace.gpus["device"].to_pylist() == [0, 1]


def test_8_rows_out_of_order(tmp_path):
    ranks = [([init(p), *call(p, at=200, size=2048), *call(p)], [(p, 220, 270, 0), (p, 120, 170, 0)]) for p in (1, 2)]
    trace = read(*files(tmp_path, *ranks))
    assert operations(trace, "sequence", "size_bytes", "start_ns")[:2] == [(0, 1024, 120), (1, 2048, 220)]


def test_9_missing_rank(tmp_path):
    path = annotated(tmp_path / "one.sqlite", [init(ranks=4), *call()], [KERNEL])
    with pytest.raises(TraceError, match=r"3 of 4 ranks are missing \(1, 2, 3\)"):
        read(path)
    assert gaps(read(path, allow_missing=True))["missing-ranks"] == 3


def test_10_cuda_graphs(tmp_path):
    with pytest.raises(TraceError, match="--cuda-graph-trace=node"):
        read(*files(tmp_path, (base(1)[0], []), (base(2)[0], [])))


def test_11_symmetric_kernels(tmp_path, probe):
    name = "ncclSymkDevKernel_AllReduce_AGxLL_R_sum_f32(ncclSymkDevWorkArgs4K)"
    assert essence(read(*files(tmp_path / "again", base(1), base(2), name=name))) == essence(probe)


def test_12_cut_after_the_second_call(tmp_path, probe):
    ranks = [(base(pid)[0] + call(pid, at=300, launched=False), base(pid)[1]) for pid in (1, 2)]
    trace = read(*files(tmp_path / "again", *ranks))
    assert essence(trace) == essence(probe)
    assert gaps(trace)["unlaunched-operations"] == 2


def test_13_equal_process_ids_on_two_hosts(tmp_path):
    ranks = [([init(rank=rank), *call()], [KERNEL]) for rank in (0, 1)]
    for order in (1, -1):
        paths = [
            annotated(tmp_path / f"{order}_{host}.sqlite", *rank, host=host)
            for host, rank in zip(("nodeA", "nodeB")[::order], ranks, strict=True)
        ]
        trace = read(*paths[::order])
        assert trace.gpus["host"].to_pylist() == ["nodeA", "nodeB"][::order]
        assert trace.nodes == 2


def test_rings_trees_parts_and_marks(tmp_path):
    ranks = []
    for pid in (1, 2, 3):
        rank = pid - 1
        lines = [init(pid, ranks=3)]
        counts = "2 coll channels, 0 nvls channels, 4 p2p channels, 2 p2p channels per peer"
        lines.append((pid, 13, 13, f"{counts}, pid {pid}"))
        for channel, step in ((0, 1), (1, 2)):
            before, after = (rank - step) % 3, (rank + step) % 3
            lines.append((pid, 12, 12, f"commHash 0xaa Rings [{channel}] {before}->{rank}->{after} pid {pid}"))
            up, down = (rank - 1, rank + 1 if rank < 2 else -1)
            lines.append((pid, 12, 12, f"commHash 0xaa Trees [{channel}] {down}/-1/-1->{rank}->{up} pid {pid}"))
        lines += [*call(pid, at=100), (pid, 150, 150, f"nsys profiling start, pid {pid}")]
        work = call(pid, at=200, size=4096)
        part = (
            "nWarps 16 count 1024 chunkCount 4 workCount {} lastChunkCount 4 workOffset 0 sendbuff 1 recvbuff 2 pid {}"
        )
        work[2:3] = [(pid, 206, 206, part.format(600, pid)), (pid, 207, 207, part.format(424, pid))]
        kernels = [(pid, 120, 140, 0), (pid, 220, 270, 0), (pid, 320, 370, 0)]
        stop = (pid, 250, 250, f"nsys profiling stopped, pid {pid}")
        ranks.append(([*lines, *work, stop, *call(pid, at=300)], kernels))
    paths = [annotated(tmp_path / f"{n}.sqlite", *r) for n, r in enumerate(ranks)]
    trace = read(*paths)
    assert trace.topologies[0].rings == ((0, 1, 2), (0, 2, 1))
    assert trace.topologies[0].p2p_channels == (4, 2)
    assert trace.topologies[0].trees[0] == ((-1, (1,)), (0, (2,)), (1, ()))
    assert operations(trace, "size_bytes", "channels") == [(4096, 2)] * 3
    assert gaps(trace)["outside-selection"] == 6
    (signed,), _ = sign(trace)
    assert [(p.count, p.last_chunk) for p in signed.signature.parts] == [(600, 4), (424, 4)]
    assert all(source == "recorded: NCCL annotation" for _, source in signed.sources)


def test_groups_take_choices_in_the_order_of_the_plan(tmp_path):
    ranks = []
    for pid in (1, 2):
        small, large = call(pid, at=210, size=1024), call(pid, at=220, size=8192)
        plan = [(p, 240 + i, 240 + i, t) for i, (p, _, _, t) in enumerate([*large[1:3], *small[1:3]])]
        lines = [init(pid), (pid, 200, 201, f"ncclGroupStart(): pid {pid}"), small[0], large[0]]
        lines += [
            (pid, 230, 260, f"ncclGroupEnd(): pid {pid}"),
            *plan,
            (pid, 250, 251, f"ncclLaunchKernel(): pid {pid}"),
        ]
        ranks.append((lines, [(pid, 300, 400, 0)]))
    trace = read(*files(tmp_path, *ranks))
    assert operations(trace, "size_bytes", "algorithm", "start_ns", "group")[:2] == [
        (1024, "ring", 300, 0),
        (8192, "ring", 300, 0),
    ]


def test_a_call_before_its_communicator_is_refused(tmp_path):
    with pytest.raises(TraceError, match="its creation was not recorded"):
        read(annotated(tmp_path / "a.sqlite", call(), [KERNEL]))
