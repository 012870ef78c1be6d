"""Where the ranges and marks that a selection asks for lie in an export, process by process."""

from __future__ import annotations

from collections.abc import Sequence

from atlas_lp.errors import TraceError
from atlas_lp.traces.nsight.export import Export
from atlas_lp.traces.nsight.ranges import events_table, text_sql
from atlas_lp.traces.nvtx import PUSH_POP, RANGE_TYPES, START_END
from atlas_lp.traces.processes import THREAD_BITS, pid_of
from atlas_lp.traces.records import Window
from atlas_lp.traces.selection import Selection

_MARK_START, _MARK_STOP = "nsys profiling start, pid *", "nsys profiling stopped, pid *"


def selected_windows(export: Export, processes: Sequence[int], selection: Selection) -> dict[int, list[Window]]:
    """Windows of every process that the range, or else the marks, of *selection* leave; empty where all is wanted.

    Raises :class:`~atlas_lp.errors.TraceError` when one of *processes* has no range of that name.
    """
    if selection.range_name is None:
        return _marked(export) if selection.marks else {}
    windows = _named(export, selection.range_name)
    lacking = [process for process in processes if process not in windows]
    if lacking:
        raise TraceError(_no_range(export, selection.range_name, lacking[0]))
    return windows


def _named(export: Export, name: str) -> dict[int, list[Window]]:
    table = events_table(export)
    text, join = text_sql(export, table)
    types = ", ".join(map(str, RANGE_TYPES))
    rows = export.rows(
        f"SELECT n.globalTid & ~{THREAD_BITS}, n.start, n.end FROM {table} n {join} WHERE n.eventType IN ({types}) "
        f"AND {text} = ? AND typeof(n.start) = 'integer' AND typeof(n.end) = 'integer' ORDER BY 1, 2, 3",
        (name.encode(errors="backslashreplace").decode(),),  # what was typed may be no UTF-8, which no name is
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
        f"SELECT {text}, count(*) FROM {table} n {join} WHERE n.eventType IN ({PUSH_POP}, {START_END}) "
        f"AND {text} NOT GLOB 'nccl*' AND n.globalTid & ~{THREAD_BITS} = ? GROUP BY 1 ORDER BY 2 DESC, 1 LIMIT 5",
        (process,),
    )
    others = ", ".join(f"{str(word)[:40]!r} ({count})" for word, count in rows) or "none"
    return (
        f"{export.path}: process {pid_of(process)} has no NVTX range {name!r}; its most frequent ranges are: {others}"
    )


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
