"""Parts of several files to one :class:`Trace`, numbered by content alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from atlas_lp.errors import MismatchError
from atlas_lp.traces.join.communicators import Key, Memberships, gpu_of, key_of
from atlas_lp.traces.join.cuts import common_runs, issue_key
from atlas_lp.traces.join.job_calls import Job, job_of
from atlas_lp.traces.nsight.work import merge_work
from atlas_lp.traces.records import Call, GpuKey, Part, Process
from atlas_lp.traces.signing.infer import nccl_version
from atlas_lp.traces.topology import topology_of
from atlas_lp.traces.trace import OPERATION_COLUMNS, Gap, Trace, operation_table
from atlas_lp.traces.work import Work

_PID_BITS = 0xFFFFFF


def merge(parts: Sequence[Part], allow_missing: bool = False) -> Trace:
    """Put the files of one job together.

    Raises :class:`~atlas_lp.errors.MismatchError` and :class:`~atlas_lp.errors.TraceError` for two files of one rank,
    missing ranks (unless *allow_missing*), and ranks that did different things.
    """
    parts = _named_hosts(sorted(parts, key=_content_key))
    _check_processes(parts)
    job = job_of(parts, allow_missing)
    kept = common_runs(job)
    keys = sorted({key_of(call) for call in kept})
    number_of = {key: number for number, key in enumerate(keys)}
    gpu_keys = _gpu_order(job.members, keys)
    gpu_number = {gpu: number for number, gpu in enumerate(gpu_keys)}
    rings = [rings for part in parts for rings in part.rings]
    members = sorted(
        (number_of[key], rank, gpu_number[gpu]) for (key, gpu), rank in job.members.rank_of.items() if key in number_of
    )
    gpus = _gpu_table(gpu_keys, {gpu: span for part in parts for gpu, span in part.activity.items()}, kept)
    return Trace(
        files=tuple(str(part.path) for part in parts),
        gpus=gpus,
        communicators=pa.table(
            {
                "id": pa.array([key[0] for key in keys], type=pa.uint64()),
                "ranks": pa.array([job.members.size_of[key] for key in keys], type=pa.int32()),
                "generation": pa.array([key[1] for key in keys], type=pa.int32()),
            }
        ),
        members=pa.table(
            {
                name: pa.array([row[i] for row in members], type=pa.int32())
                for i, name in enumerate(("communicator", "rank", "gpu"))
            }
        ),
        operations=_operations(job, kept, number_of, gpu_number),
        nccl_version=nccl_version(
            _newest(part.reduction_schema for part in parts), _newest(part.recorded_version for part in parts)
        ),
        gaps=tuple(sorted([*job.gaps, *_file_gaps(parts)])),
        synthetic=any(part.synthetic for part in parts),
        placement=_placement(parts),
        topologies=tuple(topology_of(rings, key[0], job.members.size_of[key]) for key in keys),
        work=_work(parts, gpu_number, gpus),
    )


def _work(parts: Sequence[Part], gpu_number: dict[GpuKey, int], gpus: pa.Table) -> Work | None:
    """GPU work inside the recorded (or selected) span of each GPU."""
    work = merge_work([(part.host, part.work) for part in parts], gpu_number)
    if work is None:
        return None
    first, last = (gpus[name].to_numpy()[work.gpu] for name in ("first_ns", "last_ns"))
    outside = (work.start_ns < first) | (work.end_ns > last)
    return replace(work, gpu=np.where(outside, -1, work.gpu)).only_numbered()


def _newest(values: Iterable[Any]) -> Any:
    return max((value for value in values if value is not None), default=None)


def _placement(parts: Sequence[Part]) -> str:
    """Where the nodes of GPUs come from."""
    if any("hosts-inferred" in part.counts for part in parts):
        return "inferred: ranks fill hosts until a device number comes again"
    if not all(part.host_known for part in parts):
        return "assumed: files without a host name are nodes of their own"
    return "recorded"


def _content_key(part: Part) -> tuple[Any, ...]:
    """Sort key that depends on nothing but what was recorded."""
    members = sorted((m.communicator, m.rank, m.ranks, m.device, m.process[1], m.time_ns) for m in part.members)
    first = sorted((c.order, c.type, c.size_bytes) for c in part.calls[:8])
    return (part.host if part.host_known else "", part.processes, members, first, sorted(part.activity.values()))


def _named_hosts(parts: Sequence[Part]) -> list[Part]:
    """Give files without a host name one of their own, so that equal process ids in two of them do not meet."""
    result = []
    for number, part in enumerate(parts):
        result.append(part if part.host_known else _moved(part, f"{part.host} {number + 1}"))
    return result


def _moved(part: Part, host: str) -> Part:
    def at(process: Process) -> Process:
        return (host, process[1])

    for call in part.calls:
        call.process = at(call.process)
    members = [replace(member, process=at(member.process)) for member in part.members]
    activity = {(at(process), device): span for (process, device), span in part.activity.items()}
    return replace(part, host=host, members=members, activity=activity)


def _check_processes(parts: Sequence[Part]) -> None:
    owner: dict[Process, Path] = {}
    for part in parts:
        for process in part.processes:
            other = owner.setdefault((part.host, process), part.path)
            if other != part.path:
                pid = (process >> 24) & _PID_BITS
                raise MismatchError(f"{other} and {part.path} both hold process {pid} of {part.host}: give one")


def _file_gaps(parts: Sequence[Part]) -> list[Gap]:
    words = {
        "unattributed-kernels": "{} outside of any NCCL call: left out",
        "headless-kernels": "{} whose launch the capture cut: left out",
        "captured-calls": "NCCL calls captured into CUDA graphs: counted once per replay",
        "other-communication": "kernels that communicate without NCCL and have no model: left in the gaps",
        "hosts-inferred": "files of Kineto, which records no host: ranks fill hosts until a device number comes again",
        "no-root": "Broadcast and Reduce kernels of Kineto, which records no root: rank 0 is assumed",
        "outside-selection": "NCCL calls outside of what was asked for: left out",
    }
    counts: Counter[str] = Counter()
    for part in parts:
        counts.update(part.counts)
    gaps = []
    for code, count in counts.items():
        if count:
            kernels = "unattributed NCCL kernel" if code == "unattributed-kernels" else "NCCL kernel"
            gaps.append(Gap(code, count, words.get(code, code).format(kernels + "s" * (count > 1))))
    nameless = sum(not part.host_known for part in parts)
    if nameless:
        gaps.append(Gap("no-host", nameless, "files without a host name: each is taken for a node of its own"))
    return gaps


def _gpu_order(members: Memberships, keys: Sequence[Key]) -> list[GpuKey]:
    """Number GPUs by their rank in the largest communicator, the others after them by host, process, device."""
    wanted = set(keys)
    largest = min(keys, key=lambda key: (-members.size_of[key], key))
    first = {gpu: rank for (key, gpu), rank in members.rank_of.items() if key == largest}
    gpus = {gpu for key, gpu in members.rank_of if key in wanted}
    return sorted(gpus, key=lambda gpu: (first.get(gpu, 2**31), gpu))


def _gpu_table(keys: list[GpuKey], activity: dict[GpuKey, tuple[int, int]], kept: list[Call]) -> pa.Table:
    spans: dict[GpuKey, tuple[int, int]] = {}
    for call in kept:
        gpu = gpu_of(call)
        first, last = spans.get(gpu, activity.get(gpu, (call.kernels[0].start_ns, call.kernels[0].end_ns)))
        spans[gpu] = (min(first, call.kernels[0].start_ns), max(last, *(k.end_ns for k in call.kernels)))
    hosts: dict[str, int] = {}
    columns: dict[str, list[Any]] = {name: [] for name in ("host", "process", "device", "node")}
    for (host, process), device in keys:
        columns["host"].append(host)
        columns["process"].append((process >> 24) & _PID_BITS)
        columns["device"].append(device)
        columns["node"].append(hosts.setdefault(host, len(hosts)))
    table = pa.table({**columns, "node": pa.array(columns["node"], type=pa.int32())})
    for i, name in enumerate(("first_ns", "last_ns")):
        values = [spans.get(key, activity.get(key, (0, 0)))[i] for key in keys]
        table = table.append_column(name, pa.array(values, type=pa.int64()))
    return table


def _operations(job: Job, kept: list[Call], number_of: dict[Key, int], gpu_number: dict[GpuKey, int]) -> pa.Table:
    shared = Counter((call.process, tuple(call.kernels)) for call in kept)
    sequence: Counter[tuple[int, int]] = Counter()
    issue: Counter[tuple[int, int]] = Counter()
    groups: dict[tuple[int, int], dict[tuple[Process, int], int]] = {}
    columns: dict[str, list[Any]] = {name: [] for name in OPERATION_COLUMNS}
    for call in sorted(kept, key=lambda c: (c.process, issue_key(c))):
        place = (number_of[key_of(call)], job.rank(call))
        mine = groups.setdefault(place, {})
        row = {
            "communicator": place[0],
            "rank": place[1],
            "sequence": -1 if call.is_point_to_point else sequence[place],
            "gpu": gpu_number[gpu_of(call)],
            "issue": issue[place],
            "group": mine.setdefault((call.process, call.launch), len(mine)),
            **_values(call, shared[call.process, tuple(call.kernels)]),
        }
        sequence[place] += not call.is_point_to_point
        issue[place] += 1
        for name, value in row.items():
            columns[name].append(value)
    return operation_table(columns)


def _values(call: Call, shared: int) -> dict[str, Any]:
    """Columns that depend on nothing but the call."""
    first = min(call.kernels)
    channels, channel_source = max(first.channels, 1), "inferred: grid of the kernel"
    if shared > 1:
        channel_source = "inferred: grid of a kernel that several operations share (an upper bound)"
    if first.name == "memcpy":
        channels, channel_source = 0, "recorded: copy engine, no kernel"
    elif not first.channels:
        channel_source = "assumed: one channel, the trace has no grid of the kernel"
    choice = call.choice
    if choice is not None and choice.channels:
        channels, channel_source = choice.channels, choice.source
    return {
        "type": call.type,
        "size_bytes": call.size_bytes,
        "root": call.root,
        "reduction": call.reduction,
        "stream": first.stream,
        "start_ns": first.start_ns,
        "end_ns": max(kernel.end_ns for kernel in call.kernels),
        "channels": channels,
        "threads": first.threads,
        "kernel": first.name,
        "peer": call.peer,
        "iteration": call.iteration,
        "algorithm": choice.algorithm if choice else "",
        "protocol": choice.protocol if choice else "",
        "element_bytes": choice.element_bytes if choice else 0,
        "choice_source": choice.source if choice and choice.algorithm else "",
        "channel_source": channel_source,
        "element_source": choice.source if choice and choice.element_bytes else "",
        "parts": [number for part in choice.parts for number in part] if choice else [],
    }
