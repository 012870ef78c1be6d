"""What the files of a job lost, as gaps with their place: within each process, and against ranks that did the same."""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from fractions import Fraction

import numpy as np

from atlas_lp.traces.lost import KINDS, LARGEST_SHARE, NOT_RECORDED
from atlas_lp.traces.processes import GpuKey, ProcessKey, pid_of
from atlas_lp.traces.records import FileRecords, Loss
from atlas_lp.traces.trace import Gap, Trace
from atlas_lp.traces.work import Ints, Work

_NAMED = 4
"""Places that get a gap of their own, those that lost most; the others share one."""

_FEWEST_PEERS = 3

_CUT = (
    "CUDA calls and GPU records near an end of the recording without their counterpart: the capture may have cut them"
)
_WARNED = "nsys says of the capture: {}"

_Place = tuple[str, int, int, str]
"""Where, how many are lost, of how many, and from which tables."""


def lost_gaps(files: Sequence[FileRecords], gpus: Mapping[GpuKey, int], trace: Trace) -> list[Gap]:
    """Gaps for what the *files* of a *trace* lost of the processes that drive *gpus*.

    Those are what each file lacks, what its tool says that it lost, and what GPUs have less of than their peers.
    """
    numbers: defaultdict[ProcessKey, list[int]] = defaultdict(list)
    for (process, _), number in sorted(gpus.items(), key=lambda item: item[1]):
        numbers[process].append(number)
    ours = [
        (file, loss)
        for file in files
        for loss in file.losses
        if loss.process in file.processes and (file.host, loss.process) in numbers
    ]
    lossy = {gpu for file, loss in ours if loss.count for gpu in numbers[file.host, loss.process]}
    said = Counter(text for file in files for text in file.warnings)
    return [
        *_loss_gaps(ours, numbers),
        *(Gap("nsys-warning", count, _WARNED.format(text)) for text, count in sorted(said.items())),
        *peer_gaps(trace, lossy),
    ]


def _loss_gaps(ours: Sequence[tuple[FileRecords, Loss]], numbers: Mapping[ProcessKey, Sequence[int]]) -> Iterator[Gap]:
    by_code: defaultdict[str, list[tuple[FileRecords, Loss]]] = defaultdict(list)
    for file, loss in ours:
        by_code[loss.code].append((file, loss))
    cut = 0
    unrecorded: dict[str, Gap] = {}
    for code, losses in sorted(by_code.items()):
        total = sum(loss.of for _, loss in losses)
        if code in NOT_RECORDED and total == sum(loss.count + loss.cut for _, loss in losses):
            unrecorded[NOT_RECORDED[code]] = _not_recorded(code, total, losses[0][1].table)
        else:
            cut += sum(loss.cut for _, loss in losses)
            yield from _lost(code, _places(losses, numbers))
    yield from unrecorded.values()
    if cut:
        yield Gap("cut-records", cut, _CUT)


def _not_recorded(code: str, count: int, table: str) -> Gap:
    kind = KINDS[code]
    return Gap(NOT_RECORDED[code], count, f"{kind.what.format(table)}, in all files: {kind.effect}", count)


def _places(losses: Iterable[tuple[FileRecords, Loss]], numbers: Mapping[ProcessKey, Sequence[int]]) -> list[_Place]:
    """What was lost of one kind, process by process."""
    of_process: defaultdict[tuple[str, ProcessKey], list[Loss]] = defaultdict(list)
    for file, loss in losses:
        of_process[str(file.path), (file.host, loss.process)].append(loss)
    places = []
    for (path, process), mine in of_process.items():
        gpus = numbers[process]
        words = f"GPU{'s' * (len(gpus) > 1)} {', '.join(map(str, gpus))}"
        where = f"{words} ({process[0]}, process {pid_of(process[1])}, {path})"
        tables = " and ".join(sorted({loss.table for loss in mine if loss.count}))
        places.append((where, sum(loss.count for loss in mine), sum(loss.of for loss in mine), tables))
    return [place for place in places if place[1]]


def _lost(code: str, places: Sequence[_Place]) -> list[Gap]:
    """Gaps of one kind: the worst places one by one, all others together."""
    kind = KINDS[code]
    places = sorted(places, key=lambda place: (-Fraction(place[1], place[2]), place[0]))
    named, others = places[:_NAMED], places[_NAMED:]
    if others:
        tables = " and ".join(sorted({place[3] for place in others}))
        count, of = sum(place[1] for place in others), sum(place[2] for place in others)
        named.append((f"{len(others)} more, which lost less", count, of, tables))
    return [
        Gap(code, count, f"{kind.what.format(tables)}, of {of} of {where}: {kind.effect}", of)
        for where, count, of, tables in named
    ]


def lost_words(files: Iterable[FileRecords]) -> str:
    """What the process that lost most of something lost, to end the words of an error that it may explain."""
    losses = [
        (Fraction(loss.count, loss.of), str(file.path), loss) for file in files for loss in file.losses if loss.count
    ]
    if not losses:
        return ""
    _, path, worst = max(losses, key=lambda one: one[:2])
    what = KINDS[worst.code].what.format(worst.table)
    return f"; {path} lost records: {worst.count} {what}, of {worst.of} of process {pid_of(worst.process)}"


def peer_gaps(trace: Trace, lossy: Collection[int]) -> list[Gap]:
    """Gaps for GPUs with less work or fewer waits than most of those that ran the same collectives.

    Programs of many ranks do the same on each (SPMD), so a rank that lacks what its peers have may have lost it.
    Nothing is said of *lossy* GPUs, of which that is known, nor of fewer than three peers, or where they differ among
    themselves.  Cost O(operations + work).
    """
    if trace.work is None:
        return []
    peers: defaultdict[bytes, list[int]] = defaultdict(list)
    for gpu, sequence in sorted(_sequences(trace).items()):
        peers[sequence].append(gpu)
    hosts = trace.gpus["host"].to_pylist()
    gaps = []
    for what, column in _counts(trace.work, trace.gpus.num_rows).items():
        usual = {gpu: _usual(column[group]) for group in peers.values() for gpu in group}
        lacking = {gpu: count - int(column[gpu]) for gpu, count in usual.items() if gpu not in lossy}
        gaps += _lost(
            "unlike-peers",
            [
                (f"GPU {gpu} ({hosts[gpu]})", count, usual[gpu], what)
                for gpu, count in lacking.items()
                if count > LARGEST_SHARE * usual[gpu]
            ],
        )
    return gaps


def _counts(work: Work, gpus: int) -> dict[str, Ints]:
    """What each GPU has of each kind of record."""
    synced = np.flatnonzero(work.synced >= 0)
    moments = np.unique(np.stack([work.gpu[synced], work.synced[synced]]), axis=1)[0]
    return {
        "pieces of GPU work": np.bincount(work.gpu, minlength=gpus),
        "waits for events": np.bincount(work.gpu[work.after], minlength=gpus),
        "waits of the host": np.bincount(moments, minlength=gpus),
    }


def _usual(counts: Ints) -> int:
    """What most of some peers have, 0 where there are few, or where most of them differ from it."""
    usual = int(np.median(counts))
    alike = np.count_nonzero(np.abs(counts - usual) <= float(LARGEST_SHARE) * usual)
    return usual if len(counts) >= _FEWEST_PEERS and 2 * alike > len(counts) else 0


def _sequences(trace: Trace) -> dict[int, bytes]:
    """For every GPU, what it ran on each of its communicators, as one digest."""
    names = ("communicator", "gpu", "type", "size_bytes")
    communicator, gpu, kind, size = (trace.column("operations", name) for name in names)
    _, kind = np.unique(kind, return_inverse=True)
    changes = np.flatnonzero((np.diff(communicator) != 0) | (np.diff(gpu) != 0)) + 1
    runs: defaultdict[int, list[bytes]] = defaultdict(list)
    for low, high in zip([0, *changes.tolist()], [*changes.tolist(), len(gpu)], strict=True):
        content = np.stack([kind.reshape(-1)[low:high], size[low:high]]).astype(np.int64)
        runs[int(gpu[low])].append(hashlib.sha256(content.tobytes()).digest())
    return {one: b"".join(sorted(mine)) for one, mine in runs.items()}
