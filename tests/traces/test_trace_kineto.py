"""PyTorch Kineto traces: real files, and small ones for what those do not have."""

import gzip
import json
import tarfile

import pytest
from helpers.exports import content, gaps, operations, read

from atlas_lp.errors import NoNcclError, PayloadError, TraceError

KERNEL = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(x)"


def kernel(start, *, name=KERNEL, stream=20, device=0, correlation=1, **arguments):
    known = {"device": device, "context": 1, "stream": stream, "correlation": correlation}
    known |= {"grid": [4, 1, 1], "block": [544, 1, 1]}
    return {"ph": "X", "cat": "kernel", "name": name, "ts": start, "dur": 50.5, "args": known | arguments}


def collective(name="allreduce", elements=256, *, ranks=(0, 1), out=None, dtype="Float", **more):
    return {
        "Collective name": name,
        "In msg nelems": elements,
        "Out msg nelems": elements if out is None else out,
        "Group size": len(ranks),
        "dtype": dtype,
        "Process Group Name": "0",
        "Process Group Ranks": str(list(ranks)),
    } | more


def write(path, events, *, rank=0, world=2, last=False):
    information = {"backend": "nccl", "rank": rank, "world_size": world, "nccl_version": "2.21.5"}
    document = {"schemaVersion": 1, "distributedInfo": information, "traceEvents": events}
    if last:
        document["distributedInfo"] = document.pop("distributedInfo")
    with gzip.open(path, "wt") if path.suffix == ".gz" else path.open("w") as file:
        json.dump(document, file)
    return path


def job(tmp_path, events, **options):
    """The same events on two ranks, or what a function of the rank gives."""
    return [
        write(tmp_path / f"{9 - r}.json", events(r) if callable(events) else events, rank=r, **options) for r in (0, 1)
    ]


def test_collectives_carry_type_bytes_group_and_shape(tmp_path):
    def events(rank):
        return [
            kernel(100.125, device=rank, **collective()),
            kernel(200, device=rank, **collective("_allgather_base", 64, out=128, dtype="BFloat16")),
            kernel(300, device=rank, **collective("reduce_scatter_tensor_coalesced", 64, out=32, dtype="Half")),
        ]

    trace = read(*job(tmp_path, events))
    assert operations(trace, "type", "size_bytes", "element_bytes", "channels", "threads")[:3] == [
        ("AllReduce", 1024, 4, 4, 544),
        ("AllGather", 128, 2, 4, 544),
        ("ReduceScatter", 64, 2, 4, 544),
    ]
    assert (trace.nodes, trace.nccl_version.value) == (1, "2.21.5")
    assert operations(trace, "start_ns", "end_ns")[0] == (100_125, 150_625)
    packed = [write(tmp_path / f"{r}.json.gz", events(r), rank=r, last=True) for r in (0, 1)]
    assert content(read(*packed)) == content(trace)
    assert content(read(tmp_path / "8.json", tmp_path / "9.json")) == content(trace)


def test_device_numbers_that_come_again_are_another_host(tmp_path):
    trace = read(*job(tmp_path, [kernel(100, **collective())]))
    assert trace.gpus["host"].to_pylist() == ["host 0", "host 1"]


def test_uneven_all_to_all_is_a_set_of_messages(tmp_path):
    def events(rank):
        out, into = ([1, 3], [1, 2]) if rank == 0 else ([2, 2], [3, 2])
        more = {"In split size": str(out), "Out split size": str(into)}
        return [kernel(100, device=rank, **collective("all_to_allv", 4, **more))]

    (instance,) = read(*job(tmp_path, events)).instances()
    assert [(m.source, m.target, m.size_bytes) for m in instance.messages] == [
        (0, 0, 4),
        (0, 1, 12),
        (1, 0, 8),
        (1, 1, 8),
    ]


def test_sends_name_their_peer(tmp_path):
    def events(rank):
        name, more = ("send", {"Dst Rank": 1}) if rank == 0 else ("recv", {"Src Rank": 0})
        return [kernel(100, device=rank, **collective(name, 16, **more))]

    assert operations(read(*job(tmp_path, events)), "type", "peer", "size_bytes") == [("Send", 1, 64), ("Recv", 0, 64)]


def test_old_traces_are_joined_with_annotations(tmp_path):
    note = {"ph": "X", "cat": "user_annotation", "name": "nccl:all_reduce", "tid": 7, "ts": 10, "dur": 20}
    shapes = {"Input Dims": [[8, 4]], "Input type": ["float"]}
    launch = {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "tid": 7, "ts": 15, "dur": 2}
    events = [note | {"args": shapes}, launch | {"args": {"correlation": 1}}, kernel(100), kernel(300, correlation=2)]
    trace = read(*job(tmp_path, events))
    assert operations(trace, "type", "size_bytes") == [("AllReduce", 128)] * 2
    assert gaps(trace)["unattributed-kernels"] == 2


def test_annotations_select_iterations(tmp_path):
    step = {"ph": "X", "cat": "user_annotation", "name": "step", "tid": 7, "dur": 90, "args": {}}
    events = [kernel(100 * n + 10, **collective(elements=n + 1)) for n in range(3)] + [
        step | {"ts": t} for t in (100, 200)
    ]
    from atlas_lp.traces.selection import Selection

    trace = read(*job(tmp_path, events), selection=Selection(range_name="step"))
    assert operations(trace, "size_bytes", "iteration")[:2] == [(8, 0), (12, 1)]
    with pytest.raises(TraceError, match="no annotation 'x'"):
        read(*job(tmp_path, events), selection=Selection(range_name="x"))


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        (lambda d: d.pop("distributedInfo"), TraceError, "no rank and world_size"),
        (lambda d: d["traceEvents"].clear(), NoNcclError, "no NCCL kernel"),
        (
            lambda d: [d["traceEvents"][0]["args"].pop(k) for k in ("Collective name",)],
            PayloadError,
            "neither they nor",
        ),
        (lambda d: d["traceEvents"][0]["args"].update({"Collective name": "x"}), TraceError, "no operation known"),
        (lambda d: d["traceEvents"][0]["args"].update({"dtype": "x"}), PayloadError, "bytes are unknown"),
        (lambda d: d["traceEvents"][0]["args"].update({"Process Group Ranks": "[1]"}), TraceError, "rank 0 is not in"),
        (lambda d: d["traceEvents"][0].update({"ts": "x"}), TraceError, "no time"),
    ],
)
def test_what_is_lacking_is_named(tmp_path, change, error, words):
    path = write(tmp_path / "a.json", [kernel(100, **collective(ranks=(0,)))], world=1)
    document = json.loads(path.read_text())
    change(document)
    path.write_text(json.dumps(document))
    with pytest.raises(error, match=words):
        read(path)


def test_cut_and_foreign_files_are_refused(tmp_path):
    path = write(tmp_path / "a.json", [kernel(100, **collective())])
    whole = path.read_bytes()
    for cut in (0, 1, 60, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:cut])
        with pytest.raises(TraceError, match="no whole Kineto trace"):
            read(path)
    packed = tmp_path / "a.json.gz"
    packed.write_bytes(gzip.compress(whole)[:-20])
    with pytest.raises(TraceError, match="no whole Kineto trace"):
        read(packed)


def test_real_file_of_one_rank_of_two(data_dir):
    path = data_dir / "kineto/rank0_of_2_nccl2.17.json.gz"
    with pytest.raises(TraceError, match=r"1 of 2 ranks are missing \(1\)"):
        read(path)
    trace = read(path, allow_missing=True)
    assert trace.operations.num_rows == 21
    assert gaps(trace) == {"missing-ranks": 1, "hosts-inferred": 1, "no-root": 6}
    assert ("AllReduce", 4 * 6563840) in operations(trace, "type", "size_bytes")
    assert trace.nccl_version.value == "2.17.1"


def test_real_set_of_eight_ranks(data_dir, tmp_path):
    with tarfile.open(data_dir / "kineto/dlrm_8ranks_v100.tar.gz") as archive:
        archive.extractall(tmp_path, filter="data")
    trace = read(tmp_path / "dlrm_kineto")
    assert (trace.gpus.num_rows, trace.nodes, trace.operations.num_rows) == (8, 1, 64)
    assert operations(trace, "type", "size_bytes")[:8] == [
        ("AllToAll", 3072),
        ("AllToAll", 24),
        ("AllToAll", 192),
        ("AllToAll", 1696),
        ("AllReduce", 4 * 394241),
        ("AllToAll", 3072),
        ("AllReduce", 448),
        ("AllReduce", 4 * 226960),
    ]
    assert len(trace.instances()) == 8
    assert gaps(trace) == {"hosts-inferred": 8}
