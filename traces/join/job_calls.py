"""All calls of a job that ran something, who is who, and what was left out."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from atlas_lp.errors import MismatchError, NoNcclError, PayloadError, TraceError
from atlas_lp.traces.advice import CAPTURE_FLAGS, GRAPH_ADVICE
from atlas_lp.traces.join import communicators
from atlas_lp.traces.join.communicators import Key, Memberships, gpu_of, key_of
from atlas_lp.traces.processes import GpuKey, ProcessKey
from atlas_lp.traces.records import INIT, Call, FileRecords
from atlas_lp.traces.trace import Gap


@dataclass
class JobCalls:
    """All calls that ran something, who is who, and the gaps found so far."""

    calls: list[Call]
    members: Memberships
    gaps: list[Gap]
    incomplete: set[Key]

    def rank(self, call: Call) -> int:
        """Rank of a call on its communicator."""
        key, gpu = key_of(call), gpu_of(call)
        rank = self.members.rank_of.get((key, gpu))
        if rank is None:
            raise MismatchError(
                f"communicator {key[0]:#x}: an operation ran on device {gpu[1]} of {gpu[0][0]}, which never joined it"
            )
        return rank


def job_of(files: Sequence[FileRecords], allow_missing: bool) -> JobCalls:
    """Find out who is who, and keep the calls that ran something on more than one rank.

    Raises :class:`~atlas_lp.errors.TraceError` (ranks unknown or missing), :class:`~atlas_lp.errors.NoNcclError` and
    :class:`~atlas_lp.errors.MismatchError` (a rank in two files).
    """
    members = [member for file in files for member in file.members]
    calls, generation_of = communicators.with_generations((call for file in files for call in file.calls), members)
    alone = {(m.process, m.communicator) for m in members if m.api == INIT and m.ranks == 1}
    launched, gaps = _launched(files, calls, alone)
    nameless = sum(call.communicator is None for call in launched)
    if nameless:
        if nameless < len(launched):
            raise PayloadError(f"{nameless} of {len(launched)} NCCL calls have no communicator id, the others do")
        resolved = communicators.resolve_single(launched, members)
    else:
        resolved = communicators.resolve(launched, members, generation_of)
    gaps.extend(Gap("communicators", 1, f"communicator {k[0]:#x}: {w}") for k, w in sorted(resolved.inferred.items()))
    single = {key for key, size in resolved.size_of.items() if size == 1}
    if single:
        count = sum(key_of(call) in single for call in launched)
        gaps.append(Gap("one-rank-copies", count, "NCCL calls of communicators with one rank: no message, left out"))
        launched = [call for call in launched if key_of(call) not in single]
    job = JobCalls(launched, resolved, gaps, set())
    active: defaultdict[Key, set[int]] = defaultdict(set)
    collective: set[Key] = set()
    for call in launched:
        active[key_of(call)].add(job.rank(call))
        if not call.is_point_to_point:
            collective.add(key_of(call))
    claims: defaultdict[Key, list[tuple[int, GpuKey]]] = defaultdict(list)
    for (key, gpu), rank in resolved.rank_of.items():
        claims[key].append((rank, gpu))
    for key in sorted(active):
        # Not every rank needs to send or receive, but every rank runs every collective.
        present = active[key] if key in collective else {rank for rank, _ in claims[key]}
        _check_complete(job, key, present, claims[key], allow_missing, files)
    if not launched:
        raise NoNcclError("all NCCL calls are of communicators with one rank: nothing crosses a network")
    return job


def _launched(
    files: Sequence[FileRecords], calls: list[Call], alone: set[tuple[ProcessKey, int]]
) -> tuple[list[Call], list[Gap]]:
    """Keep the calls that ran something; say, per class, why the others did not."""
    launched: list[Call] = []
    counts: Counter[str] = Counter()
    for call in calls:
        if call.kernels:
            launched.append(call)
        elif call.discarded:
            counts["empty-operations"] += 1
        elif (call.process, call.communicator or 0) in alone:
            counts["one-rank-operations"] += 1
        else:
            counts["unlaunched-operations"] += 1
    copied = sum(call.kernels[0].name == "memcpy" for call in launched)
    if copied:
        counts["copy-engine-operations"] = copied
    words = {
        "empty-operations": "NCCL calls of 0 bytes launch nothing: left out",
        "one-rank-operations": "NCCL calls of communicators with one rank launch nothing: left out",
        "unlaunched-operations": "NCCL calls without a kernel (the capture ended before it, or cut it): left out",
        "copy-engine-operations": "NCCL calls without a kernel that copy engines carried out: kept",
    }
    captured = [_captured_whole(file) for file in files]
    if any(captured):
        raise TraceError(
            f"{files[0].path}: {sum(captured)} NCCL calls without a kernel come before CUDA graphs that were traced as "
            f"a whole, so their kernels are missing; {GRAPH_ADVICE}"
        )
    if not launched:
        raise NoNcclError(
            f"{files[0].path}: {len(calls)} NCCL calls, but no NCCL kernel belongs to one; "
            f"capture with: {CAPTURE_FLAGS}"
        )
    return launched, [Gap(code, count, words[code]) for code, count in sorted(counts.items()) if count]


def _captured_whole(file: FileRecords) -> int:
    """Calls without a kernel that may have been captured into a graph, whose kernels were not traced."""
    waiting = [call for call in file.calls if not call.kernels and not call.discarded and not call.is_open]
    return sum(call.order[0] < file.last_whole_graph_ns for call in waiting)


def _check_complete(
    job: JobCalls,
    key: Key,
    present: set[int],
    claims: list[tuple[int, GpuKey]],
    allow_missing: bool,
    files: Sequence[FileRecords],
) -> None:
    """Refuse a rank that two GPUs claim, and ranks that are not *present*."""
    size = job.members.size_of[key]
    twice = sorted(rank for rank, count in Counter(rank for rank, _ in claims).items() if count > 1)
    if twice:
        where = sorted({_file_of(files, gpu) for rank, gpu in claims if rank == twice[0]})
        raise MismatchError(
            f"communicator {key[0]:#x}: {len(claims)} GPUs claim its {size} ranks; rank {twice[0]} is in "
            f"{' and in '.join(where)}: give one"
        )
    missing = sorted(set(range(size)) - present)
    if not missing:
        return
    names = ", ".join(map(str, missing[:8])) + (", ..." if len(missing) > 8 else "")
    words = f"communicator {key[0]:#x}: {len(missing)} of {size} ranks are missing ({names})"
    if not allow_missing:
        raise TraceError(f"{words}; give the files of all processes, or allow missing ones (--allow-missing)")
    job.incomplete.add(key)
    job.gaps.append(Gap("missing-ranks", len(missing), f"{words}: their arrival and placement are assumed"))


def _file_of(files: Sequence[FileRecords], gpu: GpuKey) -> str:
    return next((str(file.path) for file in files if gpu in file.activity), "?")
