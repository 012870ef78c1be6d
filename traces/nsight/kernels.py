"""NCCL kernels of an export, their launches, and the GPU activity around them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from atlas_lp.errors import TraceError
from atlas_lp.traces.advice import CAPTURE_FLAGS, EXPORT_COMMAND, GRAPH_ADVICE
from atlas_lp.traces.nsight.export import Export
from atlas_lp.traces.processes import THREAD_BITS, GpuKey
from atlas_lp.traces.records import STREAM_BITS, Kernel

Ints = NDArray[np.int64]

KERNELS, RUNTIME = "CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_RUNTIME"

_TIME_LIMIT = 2**61
"""Of times in a session; its start is below it too, so that sums are below 2**62."""


@dataclass(frozen=True)
class KernelRows:
    """NCCL kernels with, one entry each, their process, CUDA graph node (-1: none) and launch.

    ``thread`` and ``launch`` are those of the CUDA call that launched the kernel, joined on (process, correlation
    id), -1 where the call was not recorded; ``replay`` is the correlation id.
    """

    kernels: list[Kernel]
    process: Ints
    node: Ints
    replay: Ints
    thread: Ints
    launch: Ints


def read_kernels(
    export: Export, shift: int, contexts: dict[tuple[int, int, int], int], with_launches: bool = True
) -> KernelRows:
    """Kernels whose name begins with ``nccl``; the name decides nothing else.

    Without *with_launches*, a trace without CUDA calls or correlation ids is read too.

    Raises :class:`~atlas_lp.errors.TraceError` when kernels or CUDA calls were not recorded.
    """
    hint = f"no kernels were recorded; capture with: {CAPTURE_FLAGS}"
    needed = ("start", "end", "deviceId", "streamId", "globalPid")
    refuse_whole_graphs(export)
    export.require(KERNELS, (*needed, "correlationId") if with_launches else needed, hint)
    with_launches = with_launches or (export.has(RUNTIME) and export.has(KERNELS, "correlationId"))
    export.require("StringIds", ("id", "value"), f"export again: {EXPORT_COMMAND}")
    name = "demangledName" if export.has(KERNELS, "demangledName") else "shortName"
    export.require(KERNELS, (name,), hint)
    ours = f"{name} IN (SELECT id FROM StringIds WHERE value LIKE 'nccl%')"
    optional = ("correlationId", "contextId", "gridX", "blockX", "graphNodeId")
    names = (*needed, *optional, name)
    select = ", ".join(n if n not in optional or export.has(KERNELS, n) else "NULL" for n in names)
    rows = export.columns(
        f"SELECT {select} FROM {KERNELS} WHERE {ours} "
        f"ORDER BY globalPid, start, deviceId, streamId, end, {len(needed) + 1}",
        names,
    )
    check_times(export, rows["start"], rows["end"])
    check_numbers(export, rows, ("deviceId", "streamId", "contextId", "gridX", "blockX"))
    words = dict(export.rows("SELECT id, value FROM StringIds WHERE value LIKE 'nccl%'"))
    short = {number: str(value).split("(")[0] for number, value in words.items()}
    chosen = ("start", "end", "deviceId", "contextId", "streamId", "gridX", "blockX", name, "globalPid")
    kernels = [
        Kernel(
            start + shift,
            end + shift,
            device,
            stream_number(contexts, process, device, context, stream),
            max(grid, 0),
            max(block, 0),
            short[word],
        )
        for start, end, device, context, stream, grid, block, word, process in zip(
            *(rows[c].tolist() for c in chosen), strict=True
        )
    ]
    thread = launch = np.full(len(kernels), -1, dtype=np.int64)
    if with_launches:
        thread, launch = _launches(export, KERNELS, ours, rows["globalPid"], rows["correlationId"])
    node = _original_nodes(export, rows["graphNodeId"])
    return KernelRows(kernels, rows["globalPid"], node, rows["correlationId"], thread, launch)


def _original_nodes(export: Export, node: Ints) -> Ints:
    """Nodes of instantiated graphs to the nodes they were captured as, where the export says so."""
    table = "CUDA_GRAPH_NODE_EVENTS"
    if not export.has(table, "graphNodeId", "originalGraphNodeId"):
        return node
    rows = export.rows(
        f"SELECT graphNodeId, originalGraphNodeId FROM {table} WHERE typeof(graphNodeId) = 'integer' "
        "AND typeof(originalGraphNodeId) = 'integer' ORDER BY 1, 2"
    )
    original = dict(rows)
    return np.array([original.get(n, n) for n in node.tolist()], dtype=np.int64)


def refuse_whole_graphs(export: Export) -> None:
    """Refuse a capture of CUDA graphs as a whole (``--cuda-graph-trace=graph``) when it left no NCCL kernel."""
    table = "CUPTI_ACTIVITY_KIND_GRAPH_TRACE"
    if not export.has(table) or not export.rows(f"SELECT count(*) FROM {table}")[0][0]:
        return
    name = "demangledName" if export.has(KERNELS, "demangledName") else "shortName"
    if export.has(KERNELS, name) and export.rows(
        f"SELECT 1 FROM {KERNELS} WHERE {name} IN (SELECT id FROM StringIds WHERE value LIKE 'nccl%') LIMIT 1"
    ):
        return
    raise TraceError(f"{export.path}: CUDA graphs were traced as a whole, so their kernels are missing; {GRAPH_ADVICE}")


def last_whole_graph(export: Export) -> int:
    """Start of the last CUDA graph that was traced as a whole, -1 where there is none."""
    table = "CUPTI_ACTIVITY_KIND_GRAPH_TRACE"
    if not export.has(table, "start"):
        return -1
    return int(export.columns(f"SELECT max(start) FROM {table}", ("start",))["start"][0])


_OTHERS = ("*cross_device_reduce*", "*nvshmem*", "*rccl*")


def other_communication(export: Export) -> int:
    """Number of kernels that communicate without NCCL, such as custom all-reduces: there is no model for them."""
    name = "demangledName" if export.has(KERNELS, "demangledName") else "shortName"
    if not export.has(KERNELS, name) or not export.has("StringIds", "id", "value"):
        return 0
    globs = " OR ".join(f"value GLOB '{glob}'" for glob in _OTHERS)
    query = f"SELECT count(*) FROM {KERNELS} WHERE {name} IN (SELECT id FROM StringIds WHERE {globs})"
    return int(export.rows(query)[0][0])


def stream_number(
    contexts: dict[tuple[int, int, int], int], process: int, device: int, context: int, stream: int
) -> int:
    """Number of a stream, unique per GPU: the stream id, plus the position of its context among those of the GPU."""
    return stream + (contexts.get((process, device, context), 0) << STREAM_BITS)


def context_positions(export: Export) -> dict[tuple[int, int, int], int]:
    """Position of every (process, device, context) that ran a kernel among the contexts of its GPU."""
    if not export.has(KERNELS, "globalPid", "deviceId", "contextId"):
        return {}
    names = ("globalPid", "deviceId", "contextId")
    rows = export.columns(f"SELECT DISTINCT {', '.join(names)} FROM {KERNELS} ORDER BY 1, 2, 3", names)
    positions: dict[tuple[int, int, int], int] = {}
    seen: dict[tuple[int, int], int] = {}
    for process, device, context in zip(*(rows[name].tolist() for name in names), strict=True):
        positions[process, device, context] = seen.get((process, device), 0)
        seen[process, device] = positions[process, device, context] + 1
    return positions


def _launches(export: Export, table: str, ours: str, process: Ints, correlation: Ints) -> tuple[Ints, Ints]:
    """Thread and start of the CUDA call of each row of *table*, joined on (process, correlation id)."""
    names = ("globalTid", "correlationId", "start")
    export.require(RUNTIME, names, f"no CUDA calls were recorded; capture with: {CAPTURE_FLAGS}")
    calls = export.columns(
        f"SELECT {', '.join(names)} FROM {RUNTIME} WHERE correlationId IN "
        f"(SELECT correlationId FROM {table} WHERE {ours}) ORDER BY globalTid, correlationId, start",
        names,
    )
    by_key: dict[tuple[int, int], tuple[int, int]] = {}
    for thread, number, start in zip(*(calls[name].tolist() for name in names), strict=True):
        by_key.setdefault((thread & ~THREAD_BITS, number), (thread, start))
    found = [by_key.get(key, (-1, -1)) for key in zip(process.tolist(), correlation.tolist(), strict=True)]
    pairs = np.array(found, dtype=np.int64).reshape(-1, 2)
    return pairs[:, 0], pairs[:, 1]


def read_copies(export: Export, shift: int, contexts: dict[tuple[int, int, int], int]) -> KernelRows:
    """Device-to-device and peer copies in the shape of kernels: what copy-engine collectives and single ranks run."""
    table = "CUPTI_ACTIVITY_KIND_MEMCPY"
    names = ("start", "end", "deviceId", "contextId", "streamId", "correlationId", "globalPid", "copyKind")
    ours = "copyKind IN (8, 10)"
    if not export.has(table, *names) or not export.has(RUNTIME, "globalTid", "correlationId", "start"):
        empty = np.zeros(0, dtype=np.int64)
        return KernelRows([], empty, empty, empty, empty, empty)
    rows = export.columns(
        f"SELECT {', '.join(names)} FROM {table} WHERE {ours} "
        "ORDER BY globalPid, start, deviceId, streamId, end, correlationId",
        names,
    )
    check_times(export, rows["start"], rows["end"])
    check_numbers(export, rows, ("deviceId", "streamId", "contextId"))
    chosen = ("start", "end", "deviceId", "contextId", "streamId", "globalPid")
    kernels = [
        Kernel(
            start + shift,
            end + shift,
            device,
            stream_number(contexts, process, device, context, stream),
            0,
            0,
            "memcpy",
        )
        for start, end, device, context, stream, process in zip(*(rows[c].tolist() for c in chosen), strict=True)
    ]
    thread, launch = _launches(export, table, ours, rows["globalPid"], rows["correlationId"])
    none = np.full(len(kernels), -1, dtype=np.int64)
    return KernelRows(kernels, rows["globalPid"], none, rows["correlationId"], thread, launch)


def check_times(export: Export, start: Ints, end: Ints) -> None:
    """Refuse times that no recording has: negative, missing, centuries long, or ends before starts."""
    if len(start) and (start.min() < 0 or max(start.max(), end.max()) >= _TIME_LIMIT or (end < start).any()):
        raise TraceError(f"{export.path}: a GPU activity has an impossible time; export again: {EXPORT_COMMAND}")


def check_numbers(export: Export, rows: dict[str, Ints], names: Sequence[str]) -> None:
    """Refuse numbers of devices, streams and blocks that CUDA does not have."""
    for name in names:
        if len(rows[name]) and not -1 <= rows[name].min() <= rows[name].max() < 2**31:
            raise TraceError(
                f"{export.path}: a kernel or copy has an impossible {name}; export again: {EXPORT_COMMAND}"
            )


def activity(export: Export, host: str, shift: int) -> dict[GpuKey, tuple[int, int]]:
    """First start and last end of any kernel, copy or set of each (process, device)."""
    spans: dict[GpuKey, tuple[int, int]] = {}
    names = ("globalPid", "deviceId", "first", "last")
    for kind in ("KERNEL", "MEMCPY", "MEMSET"):
        table = f"CUPTI_ACTIVITY_KIND_{kind}"
        if not export.has(table, "start", "end", "globalPid", "deviceId"):
            continue
        rows = export.columns(
            f"SELECT globalPid, deviceId, min(start), max(end) FROM {table} GROUP BY globalPid, deviceId "
            "ORDER BY globalPid, deviceId",
            names,
        )
        check_times(export, rows["first"], rows["last"])
        for process, device, first, last in zip(*(rows[name].tolist() for name in names), strict=True):
            key = ((host, process), device)
            before = spans.get(key, (first + shift, last + shift))
            spans[key] = (min(before[0], first + shift), max(before[1], last + shift))
    return spans
