"""Records that an Nsight export lacks, by what must be there in pairs: a CUDA call, and what came of it.

CUPTI records a call (table RUNTIME) and what the call started or waited for (an activity) apart, under one correlation
id; a call without its activity, or an activity without its call, was lost.  Not so near the ends of a recording, which
cut pairs in two; nor for calls that failed, or that a stream capture recorded instead of running.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from atlas_lp.traces.lost import before_end
from atlas_lp.traces.nsight.export import Export
from atlas_lp.traces.nsight.kernels import KERNELS, RUNTIME
from atlas_lp.traces.nsight.work import CUDA_EVENTS, NO_EVENT, SYNCHRONIZATION, Calls
from atlas_lp.traces.processes import THREAD_BITS, pid_of
from atlas_lp.traces.records import Loss
from atlas_lp.traces.work import Ints, WorkRows

Mask = NDArray[np.bool_]

_COPIES, _SETS, _GRAPHS = (f"CUPTI_ACTIVITY_KIND_{kind}" for kind in ("MEMCPY", "MEMSET", "GRAPH_TRACE"))
_ACTIVITIES = (KERNELS, _COPIES, _SETS, _GRAPHS, CUDA_EVENTS, SYNCHRONIZATION)


@dataclass(frozen=True)
class _Pair:
    """Calls by name (GLOB, after ``cuda`` or ``cu``), and the tables of which one has a row for each of them."""

    code: str
    calls: tuple[str, ...]
    tables: tuple[str, ...]


# Names end in a version (cudaLaunchKernel_v7000); those with Ex, Async, Peer and the like do the same.
_PAIRS = (
    _Pair(
        "lost-work", ("LaunchKernel*", "Launch_v*", "LaunchCooperativeKernel", "LaunchCooperativeKernel_*"), (KERNELS,)
    ),
    _Pair("lost-work", ("Memcpy*",), (_COPIES,)),
    _Pair("lost-work", ("Memset*",), (_SETS,)),
    _Pair("lost-work", ("GraphLaunch*",), (_GRAPHS, KERNELS, _COPIES, _SETS)),
    _Pair("lost-events", ("EventRecord*",), (CUDA_EVENTS,)),
    _Pair("lost-waits", ("StreamWaitEvent*",), (SYNCHRONIZATION,)),
    _Pair(
        "lost-synchronization",
        tuple(f"{what}Synchronize*" for what in ("Stream", "Event", "Device", "Ctx", "Thread")),
        (SYNCHRONIZATION,),
    ),
)
_BEGIN_CAPTURE, _END_CAPTURE = ("StreamBeginCapture*",), ("StreamEndCapture*",)


def read_losses(
    export: Export, processes: Iterable[int], calls: Calls | None, work: WorkRows | None
) -> tuple[tuple[Loss, ...], tuple[str, ...]]:
    """What is missing of one export, and what nsys says is missing of its *processes*.

    Losses come per kind and process, some with a count of 0.  *calls* and *work* are those of the export, None where
    they were not recorded.  Cost O(n log n).
    """
    collected = _collected(export)
    losses = [*_nameless(export), *_short(collected)]
    if calls is not None and len(calls.start) > 1:
        origins = [_Origins.of(export, calls, table) for table in _ACTIVITIES]
        losses += [*_without_activity(export, calls, origins, work), *_without_call(calls, origins)]
        losses += _unknown_events(export)
    return tuple(losses), _warnings(export, set(processes), collected)


@dataclass(frozen=True)
class _Origins:
    """Where the rows of a *table* come from: process, correlation id, position of the call (-1: none), CUDA graph."""

    table: str
    process: Ints
    correlation: Ints
    call: Ints
    in_graph: Mask

    @classmethod
    def of(cls, export: Export, calls: Calls, table: str) -> _Origins:
        node = "graphNodeId" if export.has(table, "graphNodeId") else "NULL"
        process, correlation, number = _keys(export, table, "globalPid", "correlationId", node)
        return cls(table, process, correlation, calls.find(process, correlation), (number >= 0) | (table == _GRAPHS))


def _without_activity(
    export: Export, calls: Calls, origins: Sequence[_Origins], work: WorkRows | None
) -> Iterator[Loss]:
    """Calls that started or waited for something of which there is no record."""
    asked = (calls.returned <= 0) & ~_captured(export, calls, origins)
    asked[-1] = False
    asked[1:-1] &= (calls.process[1:-1] != calls.process[:-2]) | (calls.correlation[1:-1] != calls.correlation[:-2])
    started = {rows.table: rows.call for rows in origins}
    for pair in _PAIRS:
        mine = asked & np.isin(calls.name, _ids(export, pair.calls))
        lacking = mine.copy()
        for table in pair.tables:
            lacking[started[table]] = False
        at = np.flatnonzero(lacking)
        inside = _inside(calls, work, at)
        yield from _by_process(
            pair.code, pair.tables[0], calls.process[mine], calls.process[at[inside]], calls.process[at[~inside]]
        )


def _by_process(code: str, table: str, all_of: Ints, lost: Ints, cut: Ints) -> Iterator[Loss]:
    """One loss per process in *all_of*; the arrays have the process of every record."""
    of, count, missing = (Counter(column.tolist()) for column in (all_of, lost, cut))
    for process in sorted(of):
        yield Loss(code, process, table, of[process], count[process], missing[process])


def _keys(export: Export, table: str, *names: str, where: str = "1") -> list[Ints]:
    """Columns of a table that say whose record each row is, empty where it lacks the first two of them."""
    if not export.has(table, *names[:2]):
        return [np.zeros(0, dtype=np.int64)] * len(names)
    given = " AND ".join(f"{name} IS NOT NULL" for name in names[:2])
    rows = export.columns(f"SELECT {', '.join(names)} FROM {table} WHERE {given} AND {where}", names)
    return [rows[name] for name in names]


def _ids(export: Export, globs: Sequence[str]) -> list[int]:
    """Ids of the names of calls that have one of the forms."""
    if not export.has("StringIds", "id", "value"):
        return []
    condition = " OR ".join(f"value GLOB '{api}{glob}'" for api in ("cuda", "cu") for glob in globs)
    return [number for (number,) in export.rows(f"SELECT id FROM StringIds WHERE {condition} ORDER BY id")]


def _captured(export: Export, calls: Calls, origins: Sequence[_Origins]) -> Mask:
    """Calls that a stream capture may have put into a CUDA graph, so that they started nothing.

    Those made while their process captured; all of a process that launches graphs whose capture was not recorded.
    """
    begins, ends = (np.isin(calls.name, _ids(export, globs)) for globs in (_BEGIN_CAPTURE, _END_CAPTURE))
    capturing = np.unique(calls.process[begins | ends])
    launching = np.unique(np.concatenate([rows.process[rows.in_graph] for rows in origins]))
    result = np.isin(calls.process, np.setdiff1d(launching, capturing))
    for process in capturing.tolist():
        mine = np.flatnonzero(calls.process == process)
        mine = mine[np.argsort(calls.start[mine], kind="stable")]
        depth = np.cumsum(begins[mine].astype(np.int64) - ends[mine])
        result[mine] = depth > min(0, depth.min())  # a capture that ends but never begins began before the recording
    return result


def _inside(calls: Calls, work: WorkRows | None, at: Ints) -> Mask:
    """Which calls, by position, the end of the recording of their process cannot have cut."""
    known = np.zeros(0, dtype=np.int64) if work is None else np.flatnonzero(work.work.call_ns >= 0)
    result = np.zeros(len(at), dtype=np.bool_)
    for process in np.unique(calls.process[at]).tolist():
        mine = np.flatnonzero(calls.process == process)
        call, done = [calls.start[mine]], [calls.start[mine]]
        if work is not None:
            own = known[work.process[known] == process]
            call.append(work.work.call_ns[own])
            done.append(work.work.end_ns[own])
        asked = np.flatnonzero(calls.process[at] == process)
        result[asked] = before_end(np.concatenate(call), np.concatenate(done), calls.start[at[asked]])
    return result


def _without_call(calls: Calls, origins: Sequence[_Origins]) -> Iterator[Loss]:
    """Activities whose call is missing; ids ascend, so one below the first recorded call was made before it."""
    processes, first = np.unique(calls.process[:-1], return_index=True)
    last = np.append(first[1:], len(calls.process) - 1) - 1
    lowest, highest = calls.correlation[first], calls.correlation[last]
    process, correlation, call = (
        np.concatenate([getattr(rows, name)[~rows.in_graph] for rows in origins])
        for name in ("process", "correlation", "call")
    )
    lacking = call < 0
    place = np.minimum(np.searchsorted(processes, process), len(processes) - 1)
    known = processes[place] == process
    inside = lacking & known & (correlation > lowest[place]) & (correlation < highest[place])
    yield from _by_process("lost-calls", RUNTIME, process, process[inside], process[lacking & ~inside])


def _unknown_events(export: Export) -> Iterator[Loss]:
    """Waits that name a record of an event which is not there; ids ascend, so one below the first is older."""
    names = ("globalPid", "eventSyncId")
    if not export.has(SYNCHRONIZATION, "syncType"):
        return
    process, sync = _keys(export, SYNCHRONIZATION, *names, where=f"syncType IN (1, 2) AND eventSyncId != {NO_EVENT}")
    owner, known = _keys(export, CUDA_EVENTS, *names)
    for one in np.unique(process).tolist():
        wanted, there = sync[process == one], known[owner == one]
        lacking = ~np.isin(wanted, there)
        inside = lacking & (wanted > there.min(initial=NO_EVENT))
        yield Loss(
            "unknown-events",
            one,
            CUDA_EVENTS,
            len(wanted),
            int(np.count_nonzero(inside)),
            int(np.count_nonzero(lacking & ~inside)),
        )


def _nameless(export: Export) -> Iterator[Loss]:
    """Rows whose name is an id that StringIds lacks."""
    events = export.table("NVTX_EVENTS") or ""
    for table, owner, name in (
        (RUNTIME, "globalTid", "nameId"),
        (KERNELS, "globalPid", "demangledName"),
        (events, "globalTid", "textId"),
    ):
        if not export.has("StringIds", "id") or not export.has(table, owner, name):
            continue
        lacking = _rows_of(export, (table, owner), where=f"{name} NOT IN (SELECT id FROM StringIds)")
        named = _rows_of(export, (table, owner), where=f"{name} IS NOT NULL") if lacking else lacking
        yield from (Loss("lost-names", process, table, named[process], lacking[process]) for process in sorted(lacking))


# --- what nsys says itself ---------------------------------------------------------------------------------------

_DIAGNOSTICS = "DIAGNOSTIC_EVENT"
_WARNING, _ERROR = 2, 3
_LONGEST_TEXT = 1000
_COLLECTED = re.compile(r"Number of (CUDA|NVTX) events collected:\s*(\d{1,15})\.?")
_NVTX_DOUBT = re.compile(r"Not all NVTX events might have been collected")
_LOSS = re.compile(
    r"\b(?:los[ts]|losing|drop(?:s|ped)?|miss(?:ed|ing)|discard|truncat|overflow|overr[ua]n|incomplete|fail|exceed|"
    r"exhaust|not all|no \w+ events|not (?:be|been|have been)|could not|cannot|unable|insufficient|out of)",
    re.IGNORECASE,
)
_ABOUT_RECORDS = re.compile(r"events?\b|record|buffer|trace|tracing|profil|collect|CUPTI|NVTX|CUDA", re.IGNORECASE)


_Collected = dict[tuple[int, str], tuple[int, int]]
"""By process, and CUDA or NVTX: rows there are, and records nsys says it collected."""


def _warnings(export: Export, ours: set[int], collected: _Collected) -> tuple[str, ...]:
    """What nsys says was lost of *ours*, or of no process: its errors, and its warnings about records.

    Its doubt about NVTX events, which it has of most processes, is answered where all that it collected is there: were
    a call of NCCL missing, its kernel would be left over.
    """
    if not export.has(_DIAGNOSTICS, "severity", "text", "globalPid"):
        return ()
    whole = {process for (process, kind), (there, of) in collected.items() if kind == "NVTX" and there >= of}
    rows = export.rows(
        f"SELECT severity, substr(text, 1, {_LONGEST_TEXT}), globalPid FROM {_DIAGNOSTICS} "
        f"WHERE severity IN ({_WARNING}, {_ERROR}) AND typeof(text) = 'text' ORDER BY 2, 3, 1"
    )
    return tuple(
        _plain(text)
        for severity, text, process in rows
        if process in ours or not isinstance(process, int) or not pid_of(process)
        if severity == _ERROR or (_LOSS.search(text) and _ABOUT_RECORDS.search(text))
        if not (process in whole and _NVTX_DOUBT.match(text))
    )


def _plain(text: str) -> str:
    """Text of a report on one line, without paths, which may name people and places."""
    words = ("..." if "/" in word.strip("/") else word for word in text.split())
    return "".join(c for c in " ".join(words) if c.isprintable())[:160]


def _short(collected: _Collected) -> Iterator[Loss]:
    """Fewer records than nsys says it collected."""
    for (process, kind), (there, of) in sorted(collected.items()):
        if there < of:
            yield Loss("short-export", process, RUNTIME if kind == "CUDA" else "NVTX_EVENTS", of, of - there)


def _collected(export: Export) -> _Collected:
    """What nsys says it collected, of CUDA (calls and work, not events and waits) and of NVTX, and what is there."""
    if not export.has(_DIAGNOSTICS, "text", "globalPid"):
        return {}
    rows = export.rows(
        f"SELECT globalPid, substr(text, 1, {_LONGEST_TEXT}) FROM {_DIAGNOSTICS} "
        "WHERE text GLOB 'Number of * events collected:*' AND typeof(globalPid) = 'integer' ORDER BY 1, 2"
    )
    found = {(process, match[1]): int(match[2]) for process, text in rows if (match := _COLLECTED.match(text))}
    work = ((table, "globalPid") for table in (KERNELS, _COPIES, _SETS, _GRAPHS))
    tables = {"CUDA": ((RUNTIME, "globalTid"), *work), "NVTX": ((export.table("NVTX_EVENTS") or "", "globalTid"),)}
    there = {kind: _rows_of(export, *tables[kind]) for kind in {kind for _, kind in found}}
    return {(process, kind): (there[kind][process], of) for (process, kind), of in found.items()}


def _rows_of(export: Export, *tables: tuple[str, str], where: str = "1") -> Counter[int]:
    """Rows of each process in all of the tables, given with their column of an id."""
    counts: Counter[int] = Counter()
    for table, column in tables:
        if export.has(table, column):
            process = f"{column} & ~{THREAD_BITS}"
            condition = f"typeof({column}) = 'integer' AND {where}"
            counts.update(dict(export.rows(f"SELECT {process}, count(*) FROM {table} WHERE {condition} GROUP BY 1")))
    return counts
