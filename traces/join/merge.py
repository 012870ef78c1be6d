"""Records of several files to one :class:`Trace`, numbered by content alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from atlas_lp.errors import MismatchError, TraceError
from atlas_lp.traces.join.communicators import Key, Memberships, gpu_of, key_of
from atlas_lp.traces.join.cuts import common_runs, issue_key
from atlas_lp.traces.join.job_calls import JobCalls, job_of
from atlas_lp.traces.join.lost import lost_gaps, lost_words
from atlas_lp.traces.nccl_version import nccl_version
from atlas_lp.traces.processes import GpuKey, ProcessKey, pid_of
from atlas_lp.traces.records import Call, FileRecords
from atlas_lp.traces.topology import topology_of
from atlas_lp.traces.trace import OPERATION_COLUMNS, Gap, Trace, operation_table
from atlas_lp.traces.work import Work, merge_work


def merge(files: Sequence[FileRecords], allow_missing: bool = False) -> Trace:
    """Put the files of one job together.

    Raises :class:`~atlas_lp.errors.MismatchError` and :class:`~atlas_lp.errors.TraceError` for two files of one rank,
    missing ranks (unless *allow_missing*), and ranks that did different things.
    """
    files = _named_hosts(sorted(files, key=_content_key))
    _check_processes(files)
    try:
        job = job_of(files, allow_missing)
        kept = common_runs(job)
    except TraceError as error:
        raise type(error)(f"{error}{lost_words(files)}") from None
    keys = sorted({key_of(call) for call in kept})
    number_of = {key: number for number, key in enumerate(keys)}
    gpu_keys = _gpu_order(job.members, keys)
    gpu_number = {gpu: number for number, gpu in enumerate(gpu_keys)}
    rings = [rings for file in files for rings in file.rings]
    members = sorted(
        (number_of[key], rank, gpu_number[gpu]) for (key, gpu), rank in job.members.rank_of.items() if key in number_of
    )
    gpus = _gpu_table(gpu_keys, {gpu: span for file in files for gpu, span in file.activity.items()}, kept)
    trace = Trace(
        files=tuple(str(file.path) for file in files),
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
            _newest(file.reduction_schema for file in files), _newest(file.recorded_version for file in files)
        ),
        gaps=(*job.gaps, *_file_gaps(files)),
        synthetic=any(file.synthetic for file in files),
        placement=_placement(files),
        topologies=tuple(topology_of(rings, key[0], job.members.size_of[key]) for key in keys),
        work=_work(files, gpu_number, gpus),
    )
    return replace(trace, gaps=tuple(sorted([*trace.gaps, *lost_gaps(files, gpu_number, trace)])))


def _work(files: Sequence[FileRecords], gpu_number: dict[GpuKey, int], gpus: pa.Table) -> Work | None:
    """GPU work inside the recorded (or selected) span of each GPU."""
    work = merge_work([(file.host, file.work) for file in files], gpu_number)
    if work is None:
        return None
    first, last = (gpus[name].to_numpy()[work.gpu] for name in ("first_ns", "last_ns"))
    outside = (work.start_ns < first) | (work.end_ns > last)
    return replace(work, gpu=np.where(outside, -1, work.gpu)).only_numbered()


def _newest(values: Iterable[Any]) -> Any:
    return max((value for value in values if value is not None), default=None)


def _placement(files: Sequence[FileRecords]) -> str:
    """Where the nodes of GPUs come from."""
    if any("hosts-inferred" in file.counts for file in files):
        return "inferred: ranks fill hosts until a device number comes again"
    if not all(file.host_known for file in files):
        return "assumed: files without a host name are nodes of their own"
    return "recorded"


def _content_key(file: FileRecords) -> tuple[Any, ...]:
    """Sort key that depends on nothing but what was recorded."""
    members = sorted((m.communicator, m.rank, m.ranks, m.device, m.process[1], m.time_ns) for m in file.members)
    first = sorted((c.order, c.type, c.size_bytes) for c in file.calls[:8])
    return (file.host if file.host_known else "", file.processes, members, first, sorted(file.activity.values()))


def _named_hosts(files: Sequence[FileRecords]) -> list[FileRecords]:
    """Give files without a host name one of their own, so that equal process ids in two of them do not meet."""
    result = []
    for number, file in enumerate(files):
        result.append(file if file.host_known else _moved(file, f"{file.host} {number + 1}"))
    return result


def _moved(file: FileRecords, host: str) -> FileRecords:
    def at(process: ProcessKey) -> ProcessKey:
        return (host, process[1])

    calls = [replace(call, process=at(call.process)) for call in file.calls]
    members = [replace(member, process=at(member.process)) for member in file.members]
    activity = {(at(process), device): span for (process, device), span in file.activity.items()}
    return replace(file, host=host, calls=calls, members=members, activity=activity)


def _check_processes(files: Sequence[FileRecords]) -> None:
    owner: dict[ProcessKey, Path] = {}
    for file in files:
        for process in file.processes:
            other = owner.setdefault((file.host, process), file.path)
            if other != file.path:
                pid = pid_of(process)
                raise MismatchError(f"{other} and {file.path} both hold process {pid} of {file.host}: give one")


def _file_gaps(files: Sequence[FileRecords]) -> list[Gap]:
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
    for file in files:
        counts.update(file.counts)
    gaps = []
    for code, count in counts.items():
        if count:
            kernels = "unattributed NCCL kernel" if code == "unattributed-kernels" else "NCCL kernel"
            gaps.append(Gap(code, count, words.get(code, code).format(kernels + "s" * (count > 1))))
    nameless = sum(not file.host_known for file in files)
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
        columns["process"].append(pid_of(process))
        columns["device"].append(device)
        columns["node"].append(hosts.setdefault(host, len(hosts)))
    table = pa.table({**columns, "node": pa.array(columns["node"], type=pa.int32())})
    for i, name in enumerate(("first_ns", "last_ns")):
        values = [spans.get(key, activity.get(key, (0, 0)))[i] for key in keys]
        table = table.append_column(name, pa.array(values, type=pa.int64()))
    return table


def _operations(job: JobCalls, kept: list[Call], number_of: dict[Key, int], gpu_number: dict[GpuKey, int]) -> pa.Table:
    shared = Counter((call.process, tuple(call.kernels)) for call in kept)
    sequence: Counter[tuple[int, int]] = Counter()
    issue: Counter[tuple[int, int]] = Counter()
    groups: dict[tuple[int, int], dict[tuple[ProcessKey, int], int]] = {}
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
