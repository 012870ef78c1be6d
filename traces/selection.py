"""Which part of a trace: an NVTX range and its instances, a time window, or the application's profiling marks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from atlas_lp.errors import TraceError
from atlas_lp.traces.nsight.export import Export
from atlas_lp.traces.nsight.ranges import THREAD_BITS, events_table, text_sql
from atlas_lp.traces.records import Call, GpuKey, Part

_RANGE_TYPES = (59, 60, 70, 71)
_MARK_START, _MARK_STOP = "nsys profiling start, pid *", "nsys profiling stopped, pid *"

Window = tuple[int, int]


@dataclass(frozen=True)
class Selection:
    """What to read of a trace; the default is all of it.

    *range_name* keeps the calls made inside NVTX ranges of that name, its instances being iterations from 0;
    *iteration* keeps one of them.  *from_ns* and *to_ns* keep operations by the start of their kernels, counted on
    every host from its first GPU activity.  *marks* heeds ``nsys profiling start`` and ``stopped`` marks.
    """

    range_name: str | None = None
    iteration: int | None = None
    from_ns: int | None = None
    to_ns: int | None = None
    marks: bool = True

    @property
    def is_timed(self) -> bool:
        """Whether a window of time is asked for."""
        return self.from_ns is not None or self.to_ns is not None


def select_calls(export: Export, part: Part, selection: Selection, shift: int) -> Part:
    """Keep the calls inside the ranges or marks asked for, and clip the GPU activity to them."""
    windows: dict[int, list[Window]] = {}
    if selection.range_name is not None:
        windows = _named(export, selection.range_name)
        lacking = [p for p in part.processes if p not in windows]
        if lacking:
            raise TraceError(_no_range(export, selection.range_name, lacking[0]))
    elif selection.marks:
        windows = _marked(export)
    return keep_windows(part, windows, selection, shift) if windows else part


def keep_windows(part: Part, windows: dict[int, list[Window]], selection: Selection, shift: int) -> Part:
    """Keep the calls issued inside the *windows* of their process, whose instances are iterations."""
    kept: list[Call] = []
    for call in part.calls:
        for number, (start, end) in enumerate(windows.get(call.process[1], [])):
            if start <= call.order[0] <= end and selection.iteration in (None, number):
                call.iteration = number if selection.iteration is None else 0
                kept.append(call)
                break
    spans: dict[GpuKey, tuple[int, int]] = {}
    for (process, device), (first, last) in part.activity.items():
        chosen = windows.get(process[1], [])
        if selection.iteration is not None:
            chosen = chosen[selection.iteration : selection.iteration + 1]
        if chosen:
            low, high = max(first, chosen[0][0] + shift), min(last, chosen[-1][1] + shift)
            spans[process, device] = (low, max(low, high))
    counts = {**part.counts, "outside-selection": len(part.calls) - len(kept)}
    return replace(part, calls=kept, activity=spans, counts=counts)


def select_window(parts: Sequence[Part], selection: Selection) -> list[Part]:
    """Keep the operations whose kernels start inside the window of time, on the clock of each host."""
    if not selection.is_timed:
        return list(parts)
    origin: dict[str, int] = {}
    for part in parts:
        for first, _ in part.activity.values():
            origin[part.host] = min(first, origin.get(part.host, first))
    result = []
    for part in parts:
        begin = origin.get(part.host, 0)
        low = begin + (selection.from_ns or 0)
        high = begin + selection.to_ns if selection.to_ns is not None else 2**63 - 1
        kept = [call for call in part.calls if call.kernels and low <= min(call.kernels).start_ns < high]
        spans = {
            gpu: (min(max(first, low), last), min(last, high))
            for gpu, (first, last) in part.activity.items()
            if first < high and last > low
        }
        counts = {**part.counts, "outside-selection": len(part.calls) - len(kept)}
        result.append(replace(part, calls=kept, activity=spans, counts=counts))
    if not any(part.calls for part in result):
        raise TraceError("no NCCL operation starts in the window asked for; times count from the first GPU activity")
    return result


def _named(export: Export, name: str) -> dict[int, list[Window]]:
    table = events_table(export)
    text, join = text_sql(export, table)
    types = ", ".join(map(str, _RANGE_TYPES))
    rows = export.rows(
        f"SELECT n.globalTid & ~{THREAD_BITS}, n.start, n.end FROM {table} n {join} WHERE n.eventType IN ({types}) "
        f"AND {text} = ? AND typeof(n.start) = 'integer' AND typeof(n.end) = 'integer' ORDER BY 1, 2, 3",
        (name,),
    )
    windows: dict[int, list[Window]] = {}
    for process, start, end in rows:
        mine = windows.setdefault(process, [])
        if not mine or start >= mine[-1][1]:  # an instance inside another one is part of it
            mine.append((start, end))
    return windows


def _no_range(export: Export, name: str, process: int) -> str:
    table = events_table(export)
    text, join = text_sql(export, table)
    rows = export.rows(
        f"SELECT {text}, count(*) FROM {table} n {join} WHERE n.eventType IN (59, 60) AND {text} NOT GLOB 'nccl*' "
        f"AND n.globalTid & ~{THREAD_BITS} = ? GROUP BY 1 ORDER BY 2 DESC, 1 LIMIT 5",
        (process,),
    )
    others = ", ".join(f"{str(word)[:40]!r} ({count})" for word, count in rows) or "none"
    pid = (process >> 24) & THREAD_BITS
    return f"{export.path}: process {pid} has no NVTX range {name!r}; its most frequent ranges are: {others}"


def _marked(export: Export) -> dict[int, list[Window]]:
    """Window between the marks an application wrote, per process; an open one lasts to the end."""
    table = events_table(export)
    text, join = text_sql(export, table)
    rows = export.rows(
        f"SELECT n.globalTid & ~{THREAD_BITS}, n.start, {text} GLOB '{_MARK_START}' FROM {table} n {join} "
        f"WHERE {text} GLOB '{_MARK_START}' OR {text} GLOB '{_MARK_STOP}' ORDER BY 1, 2, 3"
    )
    windows: dict[int, list[Window]] = {}
    for process, time, starts in rows:
        first, last = windows.get(process, [(0, 2**62)])[0]
        windows[process] = [(time, last)] if starts else [(first, min(last, time))]
    return windows
