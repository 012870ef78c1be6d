"""Nsight Systems SQLite exports of stock NCCL (2.25 and newer) to a :class:`Trace`.

A collective is an NVTX range of the domain NCCL with a JSON payload; the CUDA launch inside the range on the
same thread leads, by (process, correlation id), to its kernel.  The rank of a process on a communicator is in
the payload of the range that made or destroyed the communicator.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from atlas_lp.errors import MismatchError, NoNcclError, TraceError, UnsupportedError
from atlas_lp.traces.convert import exports_of
from atlas_lp.traces.export import CAPTURE_FLAGS, EXPORT_COMMAND, Export, open_export
from atlas_lp.traces.infer import nccl_version
from atlas_lp.traces.trace import POINT_TO_POINT, Gap, Trace, operation_table

Ints = NDArray[np.int64]

_THREAD_BITS = 0xFFFFFF
_PUSH_POP, _START_END, _DOMAIN = 59, 60, 75

COLLECTIVE_CALLS = {
    "ncclAllReduce": "AllReduce",
    "ncclAllGather": "AllGather",
    "ncclReduceScatter": "ReduceScatter",
    "ncclBroadcast": "Broadcast",
    "ncclBcast": "Broadcast",
    "ncclReduce": "Reduce",
    "ncclAlltoAll": "AlltoAll",
    "ncclGather": "Gather",
    "ncclScatter": "Scatter",
}
CALLS = {**COLLECTIVE_CALLS, "ncclSend": "Send", "ncclRecv": "Recv"}
_MEMBERSHIP_CALLS = (
    "ncclCommInitRank",
    "ncclCommInitRankConfig",
    "ncclCommInitRankScalable",
    "ncclCommDestroy",
    "ncclCommAbort",
)
_GROUP_END = "ncclGroupEnd"

_ID, _SIZE, _OLD_SIZE = "NCCL communicator ID", "Message size [bytes]", "Bytes"
_RANKS, _RANK, _DEVICE = "No. of ranks", "Rank", "CUDA device"
_ROOT, _REDUCTION = "Root", "Reduction operation"


@dataclass
class _Call:
    """One NCCL call of one process, with its kernel once that is found."""

    process: tuple[str, int]
    type: str
    start_ns: int
    payload: dict[str, Any]
    kernels: list[_Kernel]
    in_group: bool


@dataclass(frozen=True, order=True)
class _Kernel:
    """One NCCL kernel, times on the clock of its host."""

    start_ns: int
    end_ns: int
    device: int
    stream: int
    channels: int
    threads: int
    name: str


@dataclass
class _Part:
    """What one file holds."""

    path: Path
    host: str
    host_known: bool
    calls: list[_Call]
    members: list[tuple[tuple[str, int], dict[str, Any]]]
    activity: dict[tuple[tuple[str, int], int], tuple[int, int]]
    processes: list[int]
    reduction_schema: int | None
    unattributed: int
    synthetic: bool


def read_trace(names: Sequence[str | Path]) -> Trace:
    """Read the exports of one job (files, folders or globs) into a :class:`Trace`.

    Raises :class:`~atlas_lp.errors.TraceError` (unreadable, no NVTX, no payloads, missing ranks),
    :class:`~atlas_lp.errors.NoNcclError`, :class:`~atlas_lp.errors.MismatchError` (two files of one
    process) and :class:`~atlas_lp.errors.UnsupportedError` (grouped calls); each names the file and the fix.
    """
    parts = []
    with exports_of(names) as paths:
        for path in paths:
            with open_export(path) as export:
                parts.append(_read_part(export))
    return _merge(parts)


def _read_part(export: Export) -> _Part:
    events = export.table("NVTX_EVENTS")
    if events is None:
        raise TraceError(f"{export.path}: no NVTX events, so no NCCL calls; capture with: {CAPTURE_FLAGS}")
    needed = ("start", "end", "eventType", "globalTid", "domainId")
    export.require(events, needed, f"export again with a current nsys: {EXPORT_COMMAND}")
    host, known = _host(export)
    shift = _session_start(export)
    ranges = _nccl_ranges(export, events)
    kernels, kernel_process, kernel_thread, kernel_launch = _kernels(export, shift)
    calls, members, unattributed = _attach(export, host, ranges, kernels, kernel_thread, kernel_launch, shift)
    if not calls:
        raise NoNcclError(f"{export.path}: NVTX events, but no NCCL operation in them; was NCCL_NVTX_DISABLE set?")
    return _Part(
        path=export.path,
        host=host,
        host_known=known,
        calls=calls,
        members=members,
        activity=_activity(export, host, shift),
        processes=sorted(set(kernel_process)),
        reduction_schema=_reduction_schema(export),
        unattributed=unattributed,
        synthetic="ATLAS_LP_SYNTHETIC" in export.metadata(),
    )


def _host(export: Export) -> tuple[str, bool]:
    """Host name as recorded, or else a name made of the start time of the session."""
    if export.has("TARGET_INFO_SYSTEM_ENV", "name", "value"):
        rows = export.rows("SELECT value FROM TARGET_INFO_SYSTEM_ENV WHERE name = 'Hostname' ORDER BY value")
        if rows and rows[0][0]:
            return str(rows[0][0]), True
    return f"host of session {_session_start(export)}", False


def _session_start(export: Export) -> int:
    """UTC start of the session in ns: puts files of one host on one clock."""
    if export.has("TARGET_INFO_SESSION_START_TIME", "utcEpochNs"):
        rows = export.rows("SELECT utcEpochNs FROM TARGET_INFO_SESSION_START_TIME ORDER BY utcEpochNs")
        if rows and rows[0][0] is not None:
            return int(rows[0][0])
    return 0


def _reduction_schema(export: Export) -> int | None:
    """Id of the enum of reduction operations, which tells NCCL versions apart."""
    if not export.has("NVTX_PAYLOAD_SCHEMA_ENTRIES", "name", "type"):
        return None
    rows = export.rows(
        "SELECT DISTINCT type FROM NVTX_PAYLOAD_SCHEMA_ENTRIES WHERE name = ? ORDER BY type", (_REDUCTION,)
    )
    return int(rows[0][0]) if rows else None


def _text(export: Export, table: str) -> str:
    """SQL of an event's text: inline, or registered in StringIds."""
    inline = "n.text" if export.has(table, "text") else "NULL"
    if export.has(table, "textId") and export.has("StringIds", "id", "value"):
        return f"coalesce({inline}, (SELECT value FROM StringIds WHERE id = n.textId))"
    return inline


def _payload(export: Export, table: str) -> str:
    """SQL of an event's JSON payload."""
    inline = "n.jsonText" if export.has(table, "jsonText") else "NULL"
    if export.has(table, "jsonTextId") and export.has("StringIds", "id", "value"):
        return f"coalesce({inline}, (SELECT value FROM StringIds WHERE id = n.jsonTextId))"
    return inline


def _nccl_ranges(export: Export, table: str) -> list[tuple[Any, ...]]:
    """Ranges of the domain NCCL as (thread, start, end, name, payload), sorted so that parents come first."""
    text = _text(export, table)
    domains = export.rows(
        f"SELECT DISTINCT n.globalTid & ~{_THREAD_BITS}, n.domainId FROM {table} n "
        f"WHERE n.eventType = {_DOMAIN} AND {text} = 'NCCL' ORDER BY 1, 2"
    )
    inside = "n.domainId IS NOT NULL AND n.domainId != 0"
    if domains:
        pairs = ", ".join(f"({process}, {domain})" for process, domain in domains)
        inside = f"(n.globalTid & ~{_THREAD_BITS}, n.domainId) IN (VALUES {pairs})"
    rows = export.rows(
        f"SELECT n.globalTid, n.start, n.end, {text} AS name, {_payload(export, table)} AS payload "
        f"FROM {table} n WHERE n.eventType = {_PUSH_POP} AND {inside} AND name LIKE 'nccl%' "
        "ORDER BY n.globalTid, n.start, n.end DESC, name, payload"
    )
    if rows:
        return rows
    total = export.rows(f"SELECT count(*) FROM {table}")[0][0]
    if total == 0:
        raise TraceError(f"{export.path}: the NVTX table is empty; capture with: {CAPTURE_FLAGS}")
    asynchronous = export.rows(f"SELECT count(*) FROM {table} n WHERE n.eventType = {_START_END} AND {inside}")
    if asynchronous[0][0]:
        raise TraceError(
            f"{export.path}: NCCL ranges are of type {_START_END} (start/end) only; "
            f"push/pop ranges (type {_PUSH_POP}) are needed"
        )
    raise NoNcclError(
        f"{export.path}: {total} NVTX events, but none of NCCL; NCCL 2.25 or newer is needed, without NCCL_NVTX_DISABLE"
    )


def _kernels(export: Export, shift: int) -> tuple[list[_Kernel], list[int], Ints, Ints]:
    """NCCL kernels with their process, and the thread and time of their launch (-1 where unknown)."""
    table = "CUPTI_ACTIVITY_KIND_KERNEL"
    names = ("start", "end", "deviceId", "streamId", "correlationId", "globalPid", "gridX", "blockX", "demangledName")
    export.require(table, names, f"no kernels were recorded; capture with: {CAPTURE_FLAGS}")
    export.require("StringIds", ("id", "value"), f"export again: {EXPORT_COMMAND}")
    ours = "demangledName IN (SELECT id FROM StringIds WHERE value LIKE 'nccl%')"
    rows = export.columns(
        f"SELECT {', '.join(names)} FROM {table} WHERE {ours} ORDER BY globalPid, start, deviceId, streamId, "
        "end, correlationId",
        names,
    )
    words = dict(export.rows("SELECT id, value FROM StringIds WHERE value LIKE 'nccl%'"))
    kernels = [
        _Kernel(start + shift, end + shift, device, stream, grid, block, words[name].split("(")[0])
        for start, end, device, stream, grid, block, name in zip(
            *(rows[c].tolist() for c in ("start", "end", "deviceId", "streamId", "gridX", "blockX", "demangledName")),
            strict=True,
        )
    ]
    if not kernels and export.has("CUPTI_ACTIVITY_KIND_GRAPH_TRACE"):
        raise TraceError(
            f"{export.path}: CUDA graphs were traced as a whole, so their kernels are missing; "
            "capture with --cuda-graph-trace=node"
        )
    thread, launch = _launches(export, ours, rows["globalPid"], rows["correlationId"])
    return kernels, rows["globalPid"].tolist(), thread, launch


def _launches(export: Export, ours: str, process: Ints, correlation: Ints) -> tuple[Ints, Ints]:
    """Thread and start of the CUDA call of each kernel, joined on (process, correlation id)."""
    names = ("globalTid", "correlationId", "start")
    export.require("CUPTI_ACTIVITY_KIND_RUNTIME", names, f"no CUDA calls were recorded; capture with: {CAPTURE_FLAGS}")
    calls = export.columns(
        f"SELECT {', '.join(names)} FROM CUPTI_ACTIVITY_KIND_RUNTIME WHERE correlationId IN "
        f"(SELECT correlationId FROM CUPTI_ACTIVITY_KIND_KERNEL WHERE {ours}) "
        "ORDER BY globalTid, correlationId, start",
        names,
    )
    by_key: dict[tuple[int, int], tuple[int, int]] = {}
    for thread, number, start in zip(*(calls[name].tolist() for name in names), strict=True):
        by_key.setdefault((thread & ~_THREAD_BITS, number), (thread, start))
    found = [by_key.get(key, (-1, -1)) for key in zip(process.tolist(), correlation.tolist(), strict=True)]
    pairs = np.array(found, dtype=np.int64).reshape(-1, 2)
    return pairs[:, 0], pairs[:, 1]


def _attach(
    export: Export,
    host: str,
    ranges: list[tuple[Any, ...]],
    kernels: list[_Kernel],
    kernel_thread: Ints,
    kernel_launch: Ints,
    shift: int,
) -> tuple[list[_Call], list[tuple[tuple[str, int], dict[str, Any]]], int]:
    """Turn ranges into calls and hang every kernel onto the innermost range around its launch."""
    parsed = {text: _parse(export, text) for text in {row[4] for row in ranges} if text is not None}
    calls: dict[int, _Call] = {}
    members = []
    parents = _parents(ranges)
    for number, (thread, start, _, name, text) in enumerate(ranges):
        process = (host, int(thread) & ~_THREAD_BITS)
        if name in CALLS:
            payload = parsed.get(text, {})
            calls[number] = _Call(process, CALLS[name], start + shift, payload, [], False)
        elif name in _MEMBERSHIP_CALLS and _RANK in parsed.get(text, {}):
            members.append((process, parsed[text]))
    if calls and not any(call.payload for call in calls.values()):
        raise TraceError(_no_payload(export))
    unattributed, grouped = 0, 0
    for kernel, number in zip(kernels, _innermost(ranges, parents, kernel_thread, kernel_launch), strict=True):
        while number >= 0 and number not in calls and ranges[number][3] != _GROUP_END:
            number = parents[number]
        if number in calls:
            calls[number].kernels.append(kernel)
        elif number >= 0:
            grouped += 1
        else:
            unattributed += 1
    if grouped:
        raise UnsupportedError(
            f"{export.path}: {grouped} NCCL kernels were launched by ncclGroupEnd; grouped calls are not read yet"
        )
    return list(calls.values()), members, unattributed


def _parse(export: Export, text: str) -> dict[str, Any]:
    try:
        payload = json.loads(text)
    except ValueError:
        payload = None
    if not isinstance(payload, dict):
        raise TraceError(f"{export.path}: the payload of an NCCL range is not a JSON object: {text[:80]!r}")
    return payload


def _no_payload(export: Export) -> str:
    metadata = export.metadata()
    flags = ", ".join(
        f"{name} = {metadata[name]}"
        for name in ("EXPORT_PARAM_INCLUDE_JSON", "EXPORT_PARAM_INCLUDE_BLOBS")
        if name in metadata
    )
    return (
        f"{export.path}: NCCL calls without payloads, so no bytes and no communicators"
        f"{f' ({flags})' if flags else ''}; export the report again: {EXPORT_COMMAND}"
    )


def _parents(ranges: list[tuple[Any, ...]]) -> list[int]:
    """Enclosing range of every range on its thread, -1 for none; ranges are sorted parents first."""
    parents: list[int] = []
    stack: list[int] = []
    for number, (thread, start, end, _, _) in enumerate(ranges):
        while stack and (
            ranges[stack[-1]][0] != thread or (ranges[stack[-1]][2] is not None and ranges[stack[-1]][2] < start)
        ):
            stack.pop()
        parents.append(stack[-1] if stack else -1)
        if end is None or end >= start:
            stack.append(number)
    return parents


def _innermost(ranges: list[tuple[Any, ...]], parents: list[int], thread: Ints, launch: Ints) -> list[int]:
    """Number of the innermost range around each launch, -1 where none is."""
    threads = np.array([row[0] for row in ranges], dtype=np.int64)
    starts = np.array([row[1] for row in ranges], dtype=np.int64)
    result = np.full(len(launch), -1, dtype=np.int64)
    for one in np.unique(thread[thread >= 0]):
        low, high = np.searchsorted(threads, [one, one + 1])
        mine = np.flatnonzero(thread == one)
        result[mine] = low + np.searchsorted(starts[low:high], launch[mine], side="right") - 1
        result[mine[result[mine] < low]] = -1
    found = result.tolist()
    for i, time in enumerate(launch.tolist()):
        while found[i] >= 0 and ranges[found[i]][2] is not None and ranges[found[i]][2] < time:
            found[i] = parents[found[i]]
    return found


def _activity(export: Export, host: str, shift: int) -> dict[tuple[tuple[str, int], int], tuple[int, int]]:
    """First start and last end of any kernel, copy or set of each (process, device)."""
    spans: dict[tuple[tuple[str, int], int], tuple[int, int]] = {}
    for kind in ("KERNEL", "MEMCPY", "MEMSET"):
        table = f"CUPTI_ACTIVITY_KIND_{kind}"
        if not export.has(table, "start", "end", "globalPid", "deviceId"):
            continue
        for process, device, first, last in export.rows(
            f"SELECT globalPid, deviceId, min(start), max(end) FROM {table} GROUP BY globalPid, deviceId "
            "ORDER BY globalPid, deviceId"
        ):
            key = ((host, process), device)
            before = spans.get(key, (first + shift, last + shift))
            spans[key] = (min(before[0], first + shift), max(before[1], last + shift))
    return spans


# --- several files, one job ---------------------------------------------------------------------------


def _merge(parts: list[_Part]) -> Trace:
    """Number GPUs, communicators and operations of all files by content alone."""
    _check_processes(parts)
    calls = [call for part in parts for call in part.calls]
    launched, gaps = _launched(calls)
    ids = sorted({_communicator_id(call) for call in launched})
    rank_of, size_of = _membership(parts, launched, ids)
    gpu_keys = _gpu_order(rank_of, size_of)
    gpu_number = {key: number for number, key in enumerate(gpu_keys)}
    operations = _operations(launched, ids, rank_of, gpu_number)
    activity = {key: span for part in parts for key, span in part.activity.items()}
    unattributed = sum(part.unattributed for part in parts)
    if unattributed:
        gaps.append(Gap("unattributed-kernels", unattributed, "NCCL kernels outside of any NCCL call: left out"))
    nameless = sum(not part.host_known for part in parts)
    if nameless:
        gaps.append(Gap("no-host", nameless, "files without a host name: each is taken for a node of its own"))
    members = sorted(
        (ids.index(identity), rank, gpu_number[(process, device)])
        for (identity, process, device), rank in rank_of.items()
    )
    schemas = sorted({part.reduction_schema for part in parts if part.reduction_schema is not None})
    return Trace(
        files=tuple(str(part.path) for part in parts),
        gpus=_gpu_table(gpu_keys, activity),
        communicators=pa.table(
            {
                "id": pa.array(ids, type=pa.uint64()),
                "ranks": pa.array([size_of[i] for i in ids], type=pa.int32()),
            }
        ),
        members=pa.table(
            {
                name: pa.array([row[i] for row in members], type=pa.int32())
                for i, name in enumerate(("communicator", "rank", "gpu"))
            }
        ),
        operations=operations,
        nccl_version=nccl_version(schemas[-1] if schemas else None),
        gaps=tuple(sorted(gaps)),
        synthetic=any(part.synthetic for part in parts),
    )


_GpuKey = tuple[tuple[str, int], int]


def _check_processes(parts: list[_Part]) -> None:
    owner: dict[tuple[str, int], Path] = {}
    for part in parts:
        for process in part.processes:
            other = owner.setdefault((part.host, process), part.path)
            if other != part.path:
                pid = (process >> 24) & _THREAD_BITS
                raise MismatchError(f"{other} and {part.path} both hold process {pid} of {part.host}: give one")


def _launched(calls: list[_Call]) -> tuple[list[_Call], list[Gap]]:
    """Keep the calls that ran a kernel; say why the others did not."""
    launched: list[_Call] = []
    gaps: list[Gap] = []
    empty = Counter[str]()
    for call in calls:
        if call.kernels:
            launched.append(call)
        else:
            nothing = call.payload.get(_SIZE, call.payload.get(_OLD_SIZE)) == 0
            empty["empty-operations" if nothing else "unlaunched-operations"] += 1
    words = {
        "empty-operations": "NCCL calls of 0 bytes launch nothing: left out",
        "unlaunched-operations": "NCCL calls without a kernel (one rank, copy engine, or cut): left out",
    }
    gaps.extend(Gap(code, count, words[code]) for code, count in empty.items())
    if not launched:
        raise NoNcclError(f"{len(calls)} NCCL calls, but no NCCL kernel belongs to one; capture with: {CAPTURE_FLAGS}")
    return launched, gaps


def _communicator_id(call: _Call) -> int:
    identity = call.payload.get(_ID)
    if identity is None:
        raise TraceError(
            f"an nccl{call.type} payload has no communicator id: NCCL 2.25 or newer is needed (PyTorch 2.7 or newer)"
        )
    return int(identity) % 2**64


def _membership(
    parts: list[_Part], launched: list[_Call], ids: list[int]
) -> tuple[dict[tuple[int, tuple[str, int], int], int], dict[int, int]]:
    """Rank of every (communicator, process, device), and ranks per communicator; complete or refused."""
    wanted = set(ids)
    rank_of: dict[tuple[int, tuple[str, int], int], int] = {}
    size_of: dict[int, int] = {}
    for part in parts:
        for process, payload in part.members:
            identity = int(payload.get(_ID, 0)) % 2**64
            if identity not in wanted:
                continue
            size = size_of.setdefault(identity, int(payload[_RANKS]))
            rank = rank_of.setdefault((identity, process, int(payload[_DEVICE])), int(payload[_RANK]))
            if size != payload[_RANKS] or rank != payload[_RANK]:
                raise MismatchError(f"communicator {identity:#x}: two ranges disagree on ranks or rank of a process")
    for identity in ids:
        if identity not in size_of:
            raise TraceError(
                f"communicator {identity:#x}: neither its creation nor its end was recorded, so ranks are unknown; "
                "start the capture before ncclCommInit"
            )
        _check_complete(identity, size_of[identity], [r for (i, _, _), r in rank_of.items() if i == identity])
    return rank_of, size_of


def _check_complete(identity: int, size: int, ranks: list[int]) -> None:
    missing = sorted(set(range(size)) - set(ranks))
    if missing:
        names = ", ".join(map(str, missing[:8])) + (", ..." if len(missing) > 8 else "")
        raise TraceError(
            f"communicator {identity:#x}: {len(missing)} of {size} ranks are missing ({names}); "
            "give the files of all processes"
        )
    if len(ranks) != size:
        raise MismatchError(f"communicator {identity:#x}: {len(ranks)} processes claim its {size} ranks")


def _gpu_order(rank_of: dict[tuple[int, tuple[str, int], int], int], size_of: dict[int, int]) -> list[_GpuKey]:
    """Number GPUs by their rank in the largest communicator, the others after them by host, process, device."""
    largest = min(size_of, key=lambda identity: (-size_of[identity], identity))
    first = {(p, d): rank for (identity, p, d), rank in rank_of.items() if identity == largest}
    keys = {(process, device) for _, process, device in rank_of}
    return sorted(keys, key=lambda key: (first.get(key, len(keys)), key))


def _gpu_table(keys: list[_GpuKey], activity: dict[_GpuKey, tuple[int, int]]) -> pa.Table:
    hosts: dict[str, int] = {}
    columns: dict[str, list[Any]] = {name: [] for name in ("host", "process", "device", "node")}
    for (host, process), device in keys:
        columns["host"].append(host)
        columns["process"].append((process >> 24) & _THREAD_BITS)
        columns["device"].append(device)
        columns["node"].append(hosts.setdefault(host, len(hosts)))
    table = pa.table({**columns, "node": pa.array(columns["node"], type=pa.int32())})
    for i, name in enumerate(("first_ns", "last_ns")):
        table = table.append_column(name, pa.array([activity[key][i] for key in keys], type=pa.int64()))
    return table


def _operations(
    launched: list[_Call],
    ids: list[int],
    rank_of: dict[tuple[int, tuple[str, int], int], int],
    gpu_number: dict[_GpuKey, int],
) -> pa.Table:
    number_of = {identity: number for number, identity in enumerate(ids)}
    seen: Counter[tuple[int, int]] = Counter()
    columns: dict[str, list[Any]] = {}
    for call in sorted(launched, key=lambda c: (c.start_ns, c.process, min(c.kernels))):
        identity = _communicator_id(call)
        first, last = min(call.kernels), max(kernel.end_ns for kernel in call.kernels)
        rank = rank_of.get((identity, call.process, first.device))
        if rank is None:
            raise MismatchError(
                f"communicator {identity:#x}: an operation ran on device {first.device} of {call.process[0]}, "
                "which never joined it"
            )
        size = call.payload.get(_SIZE, call.payload.get(_OLD_SIZE))
        if not isinstance(size, int) or size < 0:
            raise TraceError(f"an nccl{call.type} payload has no size: {call.payload}")
        counted = call.type not in POINT_TO_POINT
        row = {
            "communicator": number_of[identity],
            "rank": rank,
            "sequence": seen[number_of[identity], rank] if counted else -1,
            "gpu": gpu_number[(call.process, first.device)],
            "type": call.type,
            "size_bytes": size,
            "root": int(call.payload.get(_ROOT, -1)),
            "reduction": str(call.payload.get(_REDUCTION, "")),
            "stream": first.stream,
            "start_ns": first.start_ns,
            "end_ns": last,
            "channels": first.channels,
            "threads": first.threads,
            "kernel": first.name,
        }
        seen[number_of[identity], rank] += counted
        for name, value in row.items():
            columns.setdefault(name, []).append(value)
    return operation_table(columns)


def total_operations(trace: Trace) -> Iterable[tuple[str, int, int]]:
    """(type, size_bytes, count) of all operations of a trace, sorted."""
    counts = Counter(zip(trace.operations["type"].to_pylist(), trace.operations["size_bytes"].to_pylist(), strict=True))
    return [(kind, size, counts[kind, size]) for kind, size in sorted(counts)]
