"""PyTorch Kineto traces (``.json``, ``.json.gz``), one per rank, to the records of a file.

Since PyTorch 2.1 the kernel of a collective carries its name, elements, datatype and process group.  Older ones are
joined, by the thread and time of their launch, with the ``nccl:*`` annotation around it, whose recorded shapes give the
bytes; their group is then the world.  Kineto has no host, root or reduction: that is named.
"""

from __future__ import annotations

import hashlib
import io
import json
import zlib
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeGuard

import numpy as np

from atlas_lp.errors import NoNcclError, PayloadError, TraceError
from atlas_lp.inputs import most_records, open_input
from atlas_lp.signatures.nccl.collectives import COLLECTIVES
from atlas_lp.traces.kineto.json_stream import JsonStream
from atlas_lp.traces.lost import before_end
from atlas_lp.traces.processes import GpuKey, ProcessKey, global_pid
from atlas_lp.traces.records import INIT, STREAM_BITS, Call, Choice, FileRecords, Kernel, Loss, Membership, Window
from atlas_lp.traces.selection import Selection

SUFFIXES = (".json", ".json.gz")

_COLLECTIVES = {
    "allreduce": "AllReduce",
    "allgather": "AllGather",
    "allgatherbase": "AllGather",
    "allgatherintotensor": "AllGather",
    "reducescatter": "ReduceScatter",
    "reducescatterbase": "ReduceScatter",
    "reducescattertensor": "ReduceScatter",
    "broadcast": "Broadcast",
    "reduce": "Reduce",
    "alltoall": "AllToAll",
    "alltoallv": "AllToAll",
    "alltoallbase": "AllToAll",
    "gather": "Gather",
    "scatter": "Scatter",
    "barrier": "AllReduce",
    "send": "Send",
    "recv": "Recv",
}
"""Operations by the name PyTorch gives them, without underscores and the suffix ``coalesced``."""

_DTYPE_BYTES = {"float": 4, "half": 2, "bfloat16": 2, "double": 8, "long": 8, "long int": 8, "int": 4, "short": 2}
_DTYPE_BYTES |= {"char": 1, "byte": 1, "bool": 1, "signed char": 1, "unsigned char": 1, "c10::half": 2}
_DTYPE_BYTES |= {"c10::bfloat16": 2, "float8_e4m3fn": 1, "float8_e5m2": 1}

_GPU_WORK = ("kernel", "gpu_memcpy", "gpu_memset")
_LAUNCHES = ("cuda_runtime", "cuda_driver")
_MOST_RANKS = 2**22
_EVENTS_PER_BYTE = 0.25
"""Measured: 0.05, compressed."""


@dataclass
class _File:
    """What is kept of one file while its events stream by."""

    information: dict[str, Any] = field(default_factory=dict)
    base_ns: int = 0
    kernels: list[dict[str, Any]] = field(default_factory=list)
    launches: dict[int, tuple[str, int]] = field(default_factory=dict)
    kernel_launches: dict[int, int] = field(default_factory=dict)
    work: dict[int, int] = field(default_factory=dict)
    annotations: defaultdict[str, list[tuple[int, int, str, dict[str, Any]]]] = field(
        default_factory=lambda: defaultdict(list)
    )
    activity: dict[int, tuple[int, int]] = field(default_factory=dict)
    windows: list[Window] = field(default_factory=list)
    pid: int = 0


def read_records(path: Path, selection: Selection) -> FileRecords:
    """Read all of the trace of one rank, and where the range of *selection* lies.

    Raises :class:`~atlas_lp.errors.TraceError` (no JSON, cut, no rank), :class:`~atlas_lp.errors.NoNcclError`, and
    :class:`~atlas_lp.errors.PayloadError` when kernels say neither what nor how much they moved.
    """
    file = _read(path, selection.range_name)
    if not file.kernels:
        raise NoNcclError(f"{path}: no NCCL kernel in this Kineto trace (or it is none)")
    rank, world = _rank(path, file)
    process: ProcessKey = ("", global_pid(rank, file.pid))
    counts: Counter[str] = Counter()
    members: dict[tuple[int, int], Membership] = {}
    calls: list[Call] = []
    by_id: dict[str, Call] = {}
    groups: dict[tuple[str, ...], _Group] = {}
    for launch, (order, kernel, arguments) in enumerate(_described(file, counts)):
        named = tuple(str(arguments.get(name)) for name in _GROUP)
        group = groups.get(named) or groups.setdefault(named, _group(path, arguments, rank, world))
        made = Membership(INIT, process, 0, group.identity, len(group.ranks), group.ranks.index(rank), kernel.device)
        members[group.identity, kernel.device] = made
        known = by_id.get(str(arguments.get("External id")))
        if known is not None and known.communicator == group.identity:
            known.kernels.append(kernel)
            continue
        for call in _calls(path, arguments, group, counts):
            call.process, call.order, call.kernels, call.launch = process, (order, launch), [kernel], launch
            calls.append(call)
            if arguments.get("Collective name") and arguments.get("External id"):
                by_id[str(arguments["External id"])] = call
    if not calls:
        raise PayloadError(
            f"{path}: {len(file.kernels)} NCCL kernels, but neither they nor annotations say what they moved; record "
            "with PyTorch 2.1 or newer, or with record_shapes=True"
        )
    if selection.range_name is not None and not file.windows:
        raise TraceError(f"{path}: no annotation {selection.range_name!r}")
    version = file.information.get("nccl_version")
    return FileRecords(
        path=path,
        host="",
        host_known=True,
        calls=calls,
        members=[members[key] for key in sorted(members)],
        activity={(process, device): span for device, span in file.activity.items()},
        processes=[process[1]],
        counts=dict(counts),
        recorded_version=version if isinstance(version, str) else None,
        windows={process[1]: sorted(file.windows)} if file.windows else {},
        losses=_losses(file, process[1]),
    )


def _losses(file: _File, process: int) -> tuple[Loss, ...]:
    """Kernels that were launched and left no record, unless other launches say that graphs may have taken them."""
    if len(file.launches) > len(file.kernel_launches):
        return ()
    lacking = [start for correlation, start in file.kernel_launches.items() if correlation not in file.work]
    known = [
        (file.launches[correlation][1], end) for correlation, end in file.work.items() if correlation in file.launches
    ]
    call, done = np.array(known, dtype=np.int64).reshape(-1, 2).T
    lost = int(np.count_nonzero(before_end(call, done, np.array(lacking, dtype=np.int64))))
    of = len(file.kernel_launches)
    return (Loss("lost-work", process, "the category kernel", of, lost, len(lacking) - lost),) if of else ()


def place(files: Sequence[FileRecords]) -> list[FileRecords]:
    """Put ranks on hosts, which Kineto does not record: in order of ranks, until a device number comes again."""
    result = []
    host, devices = 0, set[int]()
    for file in sorted(files, key=lambda one: one.processes):
        mine = {device for _, device in file.activity}
        if devices & mine:
            host, devices = host + 1, set()
        devices |= mine
        result.append(_on_host(file, f"host {host}"))
    return result


def _on_host(file: FileRecords, host: str) -> FileRecords:
    process = (host, file.processes[0])
    calls = [replace(call, process=process) for call in file.calls]
    members = [replace(member, process=process) for member in file.members]
    activity: dict[GpuKey, tuple[int, int]] = {(process, d): span for (_, d), span in file.activity.items()}
    counts = {**file.counts, "hosts-inferred": 1}
    return replace(file, host=host, calls=calls, members=members, activity=activity, counts=counts)


def _read(path: Path, range_name: str | None) -> _File:
    kept = _File()
    try:
        with open_input(path, TraceError) as raw, io.TextIOWrapper(raw, encoding="utf-8") as file:
            for name, value in JsonStream(file, most_records(path, _EVENTS_PER_BYTE)).members("traceEvents"):
                if name == "traceEvents" and isinstance(value, dict):
                    _take(kept, value, range_name)
                elif name == "distributedInfo" and isinstance(value, dict):
                    kept.information = value
                elif name == "baseTimeNanoseconds" and isinstance(value, int):
                    kept.base_ns = _base(value)
    except FileNotFoundError:
        raise TraceError(f"{path}: no such file") from None
    except (OSError, EOFError, zlib.error, ValueError, ArithmeticError) as error:
        raise TraceError(f"{path}: is no whole Kineto trace ({error})") from None
    return kept


def _take(kept: _File, event: dict[str, Any], range_name: str | None) -> None:
    """Keep one event, if it is about the GPU, a launch or an annotation."""
    category, name = str(event.get("cat", "")).lower(), str(event.get("name", ""))
    arguments = event.get("args")
    if event.get("ph") != "X" or not isinstance(arguments, dict | None):
        return
    arguments = arguments or {}
    start = _nanoseconds(event.get("ts"))
    end = start + _nanoseconds(event.get("dur", 0))
    if category in _GPU_WORK:
        device = arguments.get("device")
        if _is_number(device):
            first, last = kept.activity.get(device, (start, end))
            kept.activity[device] = (min(first, start), max(last, end))
        correlation = arguments.get("correlation")
        if isinstance(correlation, int):
            kept.work[correlation] = max(end, kept.work.get(correlation, end))
        if category == "kernel" and name.lower().startswith("nccl"):
            kept.kernels.append({**arguments, "name": name, "start": start, "end": end})
    elif category in _LAUNCHES and "aunch" in name and isinstance(arguments.get("correlation"), int):
        kept.launches[arguments["correlation"]] = (str(event.get("tid")), start)
        if "LaunchKernel" in name:
            kept.kernel_launches[arguments["correlation"]] = start
    elif category == "user_annotation":
        if name.startswith("nccl:"):
            kept.annotations[str(event.get("tid"))].append((start, end, name, arguments))
        if name == range_name:
            kept.windows.append((start, end))
    if category == "cpu_op" and isinstance(event.get("pid"), int):
        kept.pid = event["pid"]


def _is_number(value: Any) -> TypeGuard[int]:
    """Whether *value* can be the number of a device, a stream, a block or a thread."""
    return isinstance(value, int) and 0 <= value < 2**31


def _base(value: int) -> int:
    """Time from which a file counts; with all that is added it must fit into 64 bits."""
    if not 0 <= value < 2**62:
        raise ValueError(f"baseTimeNanoseconds {value} is no time")
    return value


def _nanoseconds(value: Any) -> int:
    """Kineto's microseconds as nanoseconds."""
    if not isinstance(value, int | Decimal) or not 0 <= value < 2**51:
        raise ValueError(f"{value!r:.80} is no time")
    return int(value * 1000)


def _rank(path: Path, file: _File) -> tuple[int, int]:
    rank, world = file.information.get("rank"), file.information.get("world_size")
    if not isinstance(rank, int) or not isinstance(world, int) or not 0 <= rank < world <= _MOST_RANKS:
        raise TraceError(f"{path}: distributedInfo gives no rank and world_size; was torch.distributed initialized?")
    return rank, world


def _described(file: _File, counts: Counter[str]) -> list[tuple[int, Kernel, dict[str, Any]]]:
    """Issue time, kernel and what is known of every NCCL kernel, in issue order; others are counted."""
    for mine in file.annotations.values():
        mine.sort(key=lambda one: one[:3])
    starts = {tid: [one[0] for one in mine] for tid, mine in file.annotations.items()}
    streams: dict[tuple[int, int], dict[int, int]] = {}
    found = []
    for raw in sorted(file.kernels, key=lambda k: (k["start"], k["end"], str(k.get("stream")))):
        correlation = raw.get("correlation")
        unknown: tuple[str, int | None] = ("", None)
        tid, launch = file.launches.get(correlation, unknown) if isinstance(correlation, int) else unknown
        arguments = raw
        if "Collective name" not in raw:
            annotation = _around(file.annotations.get(tid, []), starts.get(tid, []), launch)
            if annotation is None:
                counts["unattributed-kernels"] += 1
                continue
            arguments = {**annotation[3], "annotation": annotation[2], "External id": None}
        kernel = _kernel(raw, streams, file.base_ns)
        found.append((raw["start"] if launch is None else launch, kernel, arguments))
    return sorted(found, key=lambda one: one[:2])


def _around(
    annotations: list[tuple[int, int, str, dict[str, Any]]], starts: list[int], time: int | None
) -> tuple[int, int, str, dict[str, Any]] | None:
    """Annotation of a thread around *time*."""
    if time is None:
        return None
    number = bisect_right(starts, time) - 1
    return annotations[number] if number >= 0 and annotations[number][1] >= time else None


def _kernel(raw: dict[str, Any], streams: dict[tuple[int, int], dict[int, int]], base_ns: int) -> Kernel:
    device, context, stream = (raw.get(name) for name in ("device", "context", "stream"))
    grid, block = raw.get("grid"), raw.get("block")
    if not _is_number(device) or not _is_number(stream):
        raise TraceError(f"an NCCL kernel at {raw['start']} ns names no device and stream")
    if raw["end"] + base_ns >= 2**62:
        raise TraceError(
            f"an NCCL kernel ends {raw['end'] + base_ns} ns after 1970: baseTimeNanoseconds or ts is no time"
        )
    known = streams.setdefault((device, stream), {})
    position = known.setdefault(context if isinstance(context, int) else 0, len(known))
    return Kernel(
        raw["start"] + base_ns,
        raw["end"] + base_ns,
        device,
        stream + (position << STREAM_BITS),
        grid[0] if isinstance(grid, list) and grid and _is_number(grid[0]) else 0,
        block[0] if isinstance(block, list) and block and _is_number(block[0]) else 0,
        raw["name"].split("(")[0],
    )


_GROUP = ("Process Group Ranks", "Group size", "Process Group Name")


@dataclass(frozen=True)
class _Group:
    identity: int
    ranks: Sequence[int]


def _group(path: Path, arguments: dict[str, Any], rank: int, world: int) -> _Group:
    """Process group of a collective: its id is made of its name and ranks, which all members know."""
    ranks: Any = range(world)
    text = arguments.get("Process Group Ranks")
    if text:
        ranks = _listed(text)
    if arguments.get("Group size") == world and (not ranks or "..." in str(text)):
        ranks = range(world)
    name = str(arguments.get("Process Group Name", ""))
    if not _are_ranks(ranks) or rank not in ranks:
        raise TraceError(
            f"{path}: rank {rank} is not in the process group {name[:80]!r} of one of its collectives: {str(text)[:80]}"
        )
    written = _written(len(ranks)) if isinstance(ranks, range) else json.dumps(ranks)
    digest = hashlib.blake2b(f"[{json.dumps(name)}, {written}]".encode(), digest_size=8).digest()
    return _Group(int.from_bytes(digest, "big"), ranks)


def _are_ranks(ranks: Any) -> bool:
    if isinstance(ranks, range):
        return True
    if not isinstance(ranks, list) or not all(_is_number(rank) for rank in ranks):
        return False
    return len(set(ranks)) == len(ranks) <= _MOST_RANKS


@lru_cache(maxsize=1)
def _written(world: int) -> str:
    """All ranks as JSON."""
    return json.dumps(list(range(world)))


def _calls(path: Path, arguments: dict[str, Any], group: _Group, counts: Counter[str]) -> list[Call]:
    """Calls that one kernel carried out; an uneven all-to-all is a set of sends and receives."""
    name = str(arguments.get("Collective name") or str(arguments.get("annotation", "")).removeprefix("nccl:"))
    kind = _COLLECTIVES.get(name.lower().replace("_", "").removesuffix("coalesced"))
    if kind is None:
        raise TraceError(f"{path}: an NCCL kernel carries out {name[:80]!r}, which is no operation known here")
    elements, unit = _amount(path, name, kind, arguments)
    if COLLECTIVES[kind].rooted and not isinstance(arguments.get("Root rank"), int):
        counts["no-root"] += 1
    if kind == "AllToAll":
        uneven = _splits(arguments, elements * unit, len(group.ranks))
        if uneven:
            pairs = [("Send", uneven[0]), ("Recv", uneven[1])]
            return [_call(k, group, size, unit, peer) for k, sizes in pairs for peer, size in enumerate(sizes)]
        elements //= len(group.ranks)
    peer = -1
    if COLLECTIVES[kind].point_to_point:
        target = arguments.get("Dst Rank" if kind == "Send" else "Src Rank")
        if not isinstance(target, int):
            raise TraceError(f"{path}: a {name} kernel does not name its peer")
        peer = group.ranks.index(target) if target in group.ranks else target
    root = arguments.get("Root rank")
    call = _call(kind, group, elements * unit, unit, peer)
    call.root = root if isinstance(root, int) else (0 if COLLECTIVES[kind].rooted else -1)
    if not (-1 <= call.root <= _MOST_RANKS and -1 <= peer <= _MOST_RANKS):
        raise TraceError(f"{path}: a {name} kernel has an impossible root or peer: {call.root}, {peer}")
    return [call]


def _call(kind: str, group: _Group, size_bytes: int, unit: int, peer: int) -> Call:
    choice = Choice("recorded: Kineto", element_bytes=unit)
    return Call(("", 0), kind, (0, 0), group.identity, size_bytes, peer=peer, choice=choice)


def _amount(path: Path, name: str, kind: str, arguments: dict[str, Any]) -> tuple[int, int]:
    """Elements as NCCL counts them (sent by AllGather, received by ReduceScatter) and bytes of an element."""
    if "Collective name" in arguments:
        elements = arguments.get("Out msg nelems" if kind in ("ReduceScatter", "Recv") else "In msg nelems")
        dtype = str(arguments.get("dtype", ""))
    else:
        shapes, types = arguments.get("Input Dims"), arguments.get("Input type")
        elements, dtype = None, ""
        if isinstance(shapes, list) and shapes and isinstance(types, list) and types:
            elements, dtype = _product(shapes[0]), str(types[0])
    unit = _DTYPE_BYTES.get(dtype.lower(), 0)
    if not isinstance(elements, int) or not 0 <= elements < 2**60 or not unit:
        raise PayloadError(
            f"{path}: {name} of {str(elements)[:40]} elements of type {dtype[:40]!r}: bytes are unknown; record with "
            "PyTorch 2.1 or newer, or with record_shapes=True"
        )
    return elements, unit


def _listed(value: Any) -> Any:
    """What Kineto wrote as a list, or as the text of one; an empty list where the text is none."""
    try:
        return json.loads(value) if isinstance(value, str) else value
    except (ValueError, RecursionError):
        return []


def _product(shape: Any) -> int | None:
    """Elements of a tensor; None for what is no shape: PyTorch has at most 64 dimensions."""
    if not isinstance(shape, list) or len(shape) > 64 or not all(isinstance(n, int) and 0 <= n < 2**60 for n in shape):
        return None
    result = 1
    for n in shape:
        result *= n
    return result


def _splits(arguments: dict[str, Any], size_bytes: int, ranks: int) -> tuple[list[int], list[int]] | None:
    """Bytes to and from every rank of an uneven all-to-all, None where it is even or unknown."""
    sizes = []
    for name in ("In split size", "Out split size"):
        split = _listed(arguments.get(name))
        if (
            not isinstance(split, list)
            or len(split) != ranks
            or not all(isinstance(n, int) and 0 <= n < 2**60 for n in split)
        ):
            return None
        sizes.append(split)
    if len(set(sizes[0])) == len(set(sizes[1])) == 1 or not sum(sizes[0]):
        return None
    row = size_bytes // sum(sizes[0])
    return [n * row for n in sizes[0]], [n * row for n in sizes[1]]
