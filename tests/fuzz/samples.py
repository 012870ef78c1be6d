"""Small inputs of every format, each with the commands that analyse it to the end."""

import gzip
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

from click.testing import CliRunner
from helpers.exports import COMMUNICATOR, annotated, annotated_broadcast, group, job, rank
from helpers.jobs import two_ranks
from helpers.programs import overlapped_gradients

from atlas_lp.cli import main
from atlas_lp.fabrics import fabric as fabrics
from atlas_lp.traces.synthetic import demo
from fuzz.goal_files import random_goal

Files = dict[str, bytes]
Command = tuple[str, ...]


@dataclass(frozen=True)
class Sample:
    """*files* by name, of which the *targets* are damaged; the first of *commands* prints the answer as JSON.

    In commands ``@`` stands for the folder of the files and ``%`` for a cache that all runs share.
    """

    files: Files
    targets: tuple[str, ...]
    commands: tuple[Command, ...]


def _folder(path: Path) -> Files:
    return {str(file.relative_to(path)): file.read_bytes() for file in sorted(path.rglob("*")) if file.is_file()}


def _run(*words: str) -> None:
    result = CliRunner().invoke(main, words, catch_exceptions=False)
    assert result.exit_code == 0, result.output


def _of_trace(files: Files, *targets: str, options: Command = ()) -> Sample:
    """A trace and all verbs that read one."""
    cached = ("--cache", "%")
    return Sample(
        files,
        targets or tuple(files),
        (
            ("analyze", "@", "--json", *cached, *options),
            ("analyze", "@", "-o", "@/out", *cached, *options),
            ("inspect", "@", *options),
            ("path", "@", "--latency", "20us", *cached, *options),
            ("validate", "@", *options),
            ("pack", "@", "-o", "@/x.atlas", *options),
            ("goal", "export", "@", "-o", "@/x.goal", *options),
        ),
    )


# --- Nsight Systems -------------------------------------------------------------------------------------------------


_SMALL = {"LAYERS": 1, "HIDDEN": 1024, "KEY_VALUE": 256, "MLP": 2048, "VOCABULARY": 8192}


def _training_step(folder: Path) -> None:
    """The training step of the demo with a small model of one layer, on two nodes."""
    whole = {name: getattr(demo, name) for name in _SMALL}
    try:
        vars(demo).update(_SMALL)
        demo.write_demo(folder, nodes=2, gpus_per_node=1)
    finally:
        vars(demo).update(whole)


def _groups(folder: Path) -> None:
    """Collectives, a group of messages, copies, ranges and synchronisation on one host."""
    export = job()
    for number in range(2):
        process = rank(export, number, [], init=False)
        process.user_range("step", 1_000_000, 9_000_000)
        process.memcpy(64, stream=7, start_ns=6_900_000, end_ns=6_910_000, kind="DtoD")
        process.synchronize(7, 6_800_000, 6_950_000)
        calls: list[tuple[str, dict[str, int | str]]] = [
            (f"nccl{kind}", {"NCCL communicator ID": COMMUNICATOR, "Message size [bytes]": 64, "Peer rank": 1 - number})
            for kind in ("Send", "Recv")
        ]
        kernel = {"stream": 17, "start_ns": 7_100_000, "end_ns": 7_200_000, "grid": 2, "block": 640}
        group(process, calls, at_ns=7_000_000, kernels=[kernel])
    export.write(folder / "job.sqlite")


def _annotated(folder: Path) -> None:
    texts = annotated_broadcast()
    kernel = "ncclDevKernel_Broadcast_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
    for number in range(2):
        lines = [(1, at, at + 1, text.replace("rank 0", f"rank {number}")) for at, text in texts]
        annotated(folder / f"node{number}.sqlite", lines, [(1, 120, 170, 0)], name=kernel, host=f"node{number}")


# --- Kineto ---------------------------------------------------------------------------------------------------------


def _kineto_events(number: int) -> Iterator[dict[str, Any]]:
    """Compute and collectives of a rank, each launched by a call, inside an annotation per step."""
    work = ("gemm", "AllReduce", "gemm", "AllGather", "gemm", "ReduceScatter") * 2
    nccl = {"AllReduce": ("allreduce", 4096, 4096), "AllGather": ("_allgather_base", 512, 1024)}
    nccl["ReduceScatter"] = ("_reduce_scatter_base", 1024, 512)
    yield {"ph": "X", "cat": "user_annotation", "name": "step", "tid": 7, "ts": 1, "dur": 700, "args": {}}
    for place, what in enumerate(work):
        start, correlation = 100 * place + 10, place + 1
        arguments: dict[str, Any] = {"device": number, "context": 1, "stream": 7, "correlation": correlation}
        name = what
        if what in nccl:
            kind, elements, out = nccl[what]
            name = f"ncclDevKernel_{what}_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
            arguments |= {"stream": 20, "grid": [4, 1, 1], "block": [544, 1, 1], "Collective name": kind}
            arguments |= {"In msg nelems": elements, "Out msg nelems": out, "Group size": 2, "dtype": "Float"}
            arguments |= {"Process Group Name": "0", "Process Group Ranks": "[0, 1]"}
        call = {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "tid": 7, "ts": start - 5, "dur": 2}
        yield call | {"args": {"correlation": correlation}}
        yield {"ph": "X", "cat": "kernel", "name": name, "ts": start, "dur": 60.5 + number, "args": arguments}


def _kineto(packed: bool) -> Files:
    files = {}
    for number in range(2):
        about = {"backend": "nccl", "rank": number, "world_size": 2, "nccl_version": "2.21.5"}
        document = {"schemaVersion": 1, "distributedInfo": about, "traceEvents": list(_kineto_events(number))}
        text = json.dumps(document).encode()
        files[f"rank{number}.json" + ".gz" * packed] = gzip.compress(text, mtime=0) if packed else text
    return files


# --- companions, and files of parameters ----------------------------------------------------------------------------


def _log() -> bytes:
    def line(number: int, rest: str) -> str:
        return f"node0:{4100 + number}:{4200 + number} [{number}] NCCL INFO {rest}\n"

    comm = (
        "ncclCommInitRankConfig comm 0x7f{0} rank {0} nranks 2 cudaDev {0} nvmlDev {0} busId 1000 commId {1:#x} - Init "
    )
    text = line(0, "NCCL version 2.26.2+cuda12.2")
    for number in range(2):
        text += line(number, comm.format(number, COMMUNICATOR) + "START")
        text += "".join(line(number, f"Ring {c:02} : {1 - number} -> {number} -> {1 - number}") for c in range(4))
        text += line(number, f"Trees [0] -1/-1/-1->{number}->{number - 1} [1] 1/-1/-1->{number}->-1")
        text += line(
            number, "4 coll channels, 4 collnet channels, 0 nvls channels, 4 p2p channels, 2 p2p channels per peer"
        )
        text += line(number, comm.format(number, COMMUNICATOR) + "COMPLETE")
    text += line(0, "AllReduce: 1048576 Bytes -> Algo RING proto LL128 channel{Lo..Hi}={2..5}")
    text += line(0, "AllGather: 4096 Bytes -> Algo 1 proto 0 time 12.5")
    return (text + line(0, "AllReduce [Symmetric]: 1048576 Bytes -> Kernel x")).encode()


_EVENT = '{{"name": "{}", "cat": "COLL", "ph": "b", "id": 0, "pid": 1, "tid": 1, "ts": 1.5, "args": {{"SeqNum": {}, '
_EVENT += '"CommHash": {}, "Rank": 0, "Count": {}, "Datatype": "ncclBfloat16", "Algorithm": "RING", '
_EVENT += '"Protocol": "{}", "nChannels": 2}}}},\n'

_ASSUMED = f"""
[[collective]]
type = "AllReduce"
from_size = "1MiB"
to_size = "1GiB"
protocol = "ll128"
algorithm = "ring"
channels = 2
element_bytes = 2

[[topology]]
communicator = "{COMMUNICATOR:#x}"
rings = [[0, 1], [1, 0]]
"""

_COSTS = {"NPKIT_EVENT_GPU_SEND": {"1024": [600, 700, 650], "65536": [1200.5]}, "OTHER": {"1": [1]}}
_COSTS["NPKIT_EVENT_GPU_DIRECT_RECV"] = {"1024": [600], "4096": [900, 1000], "65536": [2000]}


def _companions() -> dict[str, Sample]:
    with TemporaryDirectory() as folder:
        job().write(Path(folder) / "job.sqlite")
        trace = _folder(Path(folder))
    dump = (
        "[\n"
        + "".join(
            _EVENT.format(*row)
            for row in (("AllReduce", 0, COMMUNICATOR, 524288, "LL128"), ("AllGather", 1, COMMUNICATOR, 2048, "LL"))
        )
        + "{}]"
    )
    texts = {
        "log": ("--nccl-log", "nccl.log", _log()),
        "dump": ("--profiler-dump", "dump.txt", dump.encode()),
        "assumptions": ("--assume", "known.toml", _ASSUMED.encode()),
        "placement": ("--placement", "nodes.txt", b"alpha\nbeta\n"),
    }
    samples = {}
    for name, (option, file, content) in texts.items():
        samples[name] = _of_trace({**trace, file: content}, file, options=(option, f"@/{file}"))
    everything = tuple(word for option, file, _ in texts.values() for word in (option, f"@/{file}"))
    files = {file: content for _, file, content in texts.values()}
    samples["together"] = _of_trace({**trace, **files}, *files, options=everything)
    return samples


def _parameters() -> dict[str, Sample]:
    """A fabric and a table of costs, each used by a collective."""
    fabric = (Path(fabrics.__file__).parent / "alps.toml").read_bytes()
    costs = (Path(fabrics.__file__).parent.parent / "signatures" / "costs_gh200.toml").read_bytes()
    small = (
        "goal",
        "expand",
        "--type",
        "allreduce",
        "--size",
        "64KiB",
        "--ranks",
        "4",
        "--gpus-per-node",
        "2",
        "--solve",
    )
    samples = {}
    for name, option, file, content in (
        ("fabric", "--fabric", "fabric.toml", fabric),
        ("costs", "--costs", "costs.toml", costs),
        ("npkit", "--costs", "npkit.json", json.dumps(_COSTS).encode()),
    ):
        command = (*small, option, f"@/{file}")
        samples[name] = Sample({file: content}, (file,), ((*command, "--json"), command))
    return samples


# --- GOAL -----------------------------------------------------------------------------------------------------------


def _goal(text: bytes, name: str) -> Sample:
    solve = ("goal", "solve", f"@/{name}")
    more = (
        ("--json",),
        (),
        ("--cpu-order", "program"),
        ("--solver", "sweep", "--points", "5"),
        ("--along", "compute=0:2"),
    )
    return Sample({name: text}, (name,), tuple((*solve, *words) for words in more))


# --- what atlas-lp stores -------------------------------------------------------------------------------------------


def _stored() -> dict[str, Sample]:
    with TemporaryDirectory() as folder:
        place = Path(folder)
        (place / "traces").mkdir()
        overlapped_gradients(place / "traces")
        traces, out, cache = (str(place / name) for name in ("traces", "out", "cache"))
        _run("pack", traces, "-o", f"{folder}/step.atlas")
        _run("analyze", traces, "-o", out, "--cache", cache)
        packed = {"step.atlas": (place / "step.atlas").read_bytes()}
        analysis = {f"out/{name}": content for name, content in _folder(place / "out").items()}
        kept = {f"cache/{name}": content for name, content in _folder(place / "cache").items()}
        inputs = {f"traces/{name}": content for name, content in _folder(place / "traces").items()}
    sweeps = (("--latency", "0:100us", "--json"), ("--latency", "0:100us"), ("--bandwidth", "50Gbps:400Gbps:4"))
    read = tuple(name for name in analysis if not name.endswith((".html", "summary.json")))
    solve = ("analyze", "@/traces", "--json", "--cache", "@/cache")
    return {
        "packed": _of_trace(packed),
        "analysis": Sample(analysis, read, tuple(("sweep", "@/out", *words) for words in sweeps)),
        "cache": Sample({**inputs, **kept}, tuple(kept), (solve, ("cache", "ls", "--cache", "@/cache"))),
    }


def samples() -> dict[str, Sample]:
    """All samples, by name."""
    found: dict[str, Sample] = {}
    writers = {"step": _training_step, "gradients": overlapped_gradients, "streams": two_ranks}
    for name, write in (writers | {"groups": _groups, "annotated": _annotated}).items():
        with TemporaryDirectory() as folder:
            write(Path(folder))
            found[name] = _of_trace(_folder(Path(folder)), options=("--allow-missing",) if name == "annotated" else ())
    found["kineto"], found["kineto.gz"] = _of_trace(_kineto(packed=False)), _of_trace(_kineto(packed=True))
    found |= _companions() | _parameters()
    with TemporaryDirectory() as folder:
        tree = ("--type", "allreduce", "--algorithm", "tree", "--size", "64KiB", "--ranks", "3")
        _run("goal", "expand", *tree, "-o", f"{folder}/x.goal")
        _run("goal", "expand", *tree, "-o", f"{folder}/x.goal.zst")
        found["goal tree"] = _goal((Path(folder) / "x.goal").read_bytes(), "x.goal")
        found["goal.zst"] = _goal((Path(folder) / "x.goal.zst").read_bytes(), "x.goal.zst")
    found["goal random"] = _goal(random_goal(Random(5)).text.encode(), "x.goal")
    return found | _stored()
