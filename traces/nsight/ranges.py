"""NVTX ranges of NCCL, and how they nest on a thread."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from sys import intern
from typing import Any

import numpy as np
from numpy.typing import NDArray

from atlas_lp.errors import NoNcclError, TraceError
from atlas_lp.traces.advice import CAPTURE_FLAGS, EXPORT_COMMAND
from atlas_lp.traces.nsight.export import Export
from atlas_lp.traces.nsight.payloads import PayloadDecoder
from atlas_lp.traces.nvtx import DOMAIN_CREATE, PUSH_POP, START_END
from atlas_lp.traces.processes import THREAD_BITS, pid_of

Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Range:
    """One NCCL range; *end* is None where the capture ended inside it."""

    thread: int
    start: int
    end: int | None
    name: str
    payload: dict[str, Any]


def events_table(export: Export) -> str:
    """Name of the NVTX table, newest version first; refused where there is none."""
    table = export.table("NVTX_EVENTS")
    if table is None:
        raise TraceError(f"{export.path}: no NVTX events, so no NCCL calls; capture with: {CAPTURE_FLAGS}")
    export.require(table, ("start", "end", "eventType", "globalTid"), f"export with a current nsys: {EXPORT_COMMAND}")
    return table


def text_sql(export: Export, table: str) -> tuple[str, str]:
    """SQL of an event's text, inline or registered in StringIds, and the join it needs."""
    inline = "n.text" if export.has(table, "text") else "NULL"
    if export.has(table, "textId") and export.has("StringIds", "id", "value"):
        return f"coalesce({inline}, s.value)", "LEFT JOIN StringIds s ON s.id = n.textId"
    return inline, ""


def nccl_ranges(export: Export, decoder: PayloadDecoder) -> list[Range]:
    """Push/pop ranges of the NVTX domain NCCL, sorted so that parents come first on each thread.

    Raises :class:`~atlas_lp.errors.NoNcclError` and :class:`~atlas_lp.errors.TraceError` saying why there are none.
    """
    table = events_table(export)
    if not export.has(table, "domainId"):
        raise TraceError(f"{export.path}: table {table} lacks the column domainId: export again: {EXPORT_COMMAND}")
    inside = _inside_nccl(export, table)
    found = list(_select(export, decoder, table, inside))
    if not found:
        raise _why_none(export, table, inside)
    return found


def _inside_nccl(export: Export, table: str) -> str:
    """SQL condition: the event is in a domain called NCCL, or in any but domain 0 where the naming was cut."""
    text, join = text_sql(export, table)
    domains = export.rows(
        f"SELECT DISTINCT n.globalTid & ~{THREAD_BITS}, n.domainId FROM {table} n {join} "
        f"WHERE n.eventType = {DOMAIN_CREATE} AND {text} = 'NCCL' AND typeof(n.globalTid) = 'integer' "
        "AND typeof(n.domainId) = 'integer' ORDER BY 1, 2"
    )
    if not domains:
        return "n.domainId != 0"
    process = f"(n.globalTid & ~{THREAD_BITS})"
    pairs = ", ".join(f"({one}, {domain})" for one, domain in domains)
    named = ", ".join(sorted({str(one) for one, _ in domains}))
    return f"(({process}, n.domainId) IN (VALUES {pairs}) OR ({process} NOT IN ({named}) AND n.domainId != 0))"


def _select(export: Export, decoder: PayloadDecoder, table: str, inside: str) -> Iterator[Range]:
    text, join = text_sql(export, table)
    json_text = "n.jsonText" if export.has(table, "jsonText") else "NULL"
    if export.has(table, "jsonTextId") and export.has("StringIds", "id", "value"):
        json_text = f"coalesce({json_text}, j.value)"
        join += " LEFT JOIN StringIds j ON j.id = n.jsonTextId"
    binary = "n.binaryData" if export.has(table, "binaryData") else "NULL"
    named = "1"
    if " s " in join:
        named = "(n.textId IN (SELECT id FROM StringIds WHERE value GLOB 'nccl*')"
        named += " OR n.text GLOB 'nccl*')" if export.has(table, "text") else ")"
    rows = export.stream(
        f"SELECT n.globalTid, n.start, n.end, {text} AS name, {json_text} AS payload, {binary} AS data "
        f"FROM {table} n {join} WHERE n.eventType = {PUSH_POP} AND {named} AND {inside} AND name GLOB 'nccl*' "
        "ORDER BY n.globalTid, n.start, n.end IS NOT NULL, n.end DESC, name, payload, data"
    )
    for thread, start, end, name, json_value, data in rows:
        if not (isinstance(thread, int) and isinstance(start, int) and isinstance(end, int | None)):
            raise TraceError(f"{export.path}: table {table}: a range of {name} has no readable thread or time")
        place = f"{name} at {start} ns of process {pid_of(thread)}"
        yield Range(thread, start, end, intern(name), decoder.decode(json_value, data, place))


def _why_none(export: Export, table: str, inside: str) -> TraceError:
    total = export.rows(f"SELECT count(*) FROM {table}")[0][0]
    if total == 0:
        return TraceError(f"{export.path}: the NVTX table is empty; capture with: {CAPTURE_FLAGS}")
    text, join = text_sql(export, table)
    others = export.rows(
        f"SELECT DISTINCT n.eventType FROM {table} n {join} WHERE {inside} AND {text} GLOB 'nccl*' "
        f"AND n.eventType != {PUSH_POP} ORDER BY 1"
    )
    if others:
        types = ", ".join(str(kind) for (kind,) in others)
        return TraceError(
            f"{export.path}: NCCL ranges are of type {types} only ({START_END} is start/end); push/pop ranges "
            f"(type {PUSH_POP}) are needed"
        )
    return NoNcclError(
        f"{export.path}: {total} NVTX events, but none of NCCL; NCCL 2.25 or newer is needed, without NCCL_NVTX_DISABLE"
    )


def parents_of(ranges: list[Range]) -> list[int]:
    """Enclosing range of every range on its thread, -1 for none; ranges are sorted parents first."""
    parents: list[int] = []
    stack: list[int] = []
    for number, one in enumerate(ranges):
        while stack and (ranges[stack[-1]].thread != one.thread or _ended(ranges[stack[-1]], one.start)):
            stack.pop()
        parents.append(stack[-1] if stack else -1)
        if one.end is None or one.end >= one.start:
            stack.append(number)
    return parents


def innermost(ranges: list[Range], parents: list[int], thread: Ints, time: Ints) -> list[int]:
    """Number of the innermost range around each (thread, time), -1 where none is; O(n log n)."""
    threads = np.array([one.thread for one in ranges], dtype=np.int64)
    starts = np.array([one.start for one in ranges], dtype=np.int64)
    result = np.full(len(time), -1, dtype=np.int64)
    for one in np.unique(thread[thread >= 0]):
        low, high = np.searchsorted(threads, [one, one + 1])
        mine = np.flatnonzero(thread == one)
        result[mine] = low + np.searchsorted(starts[low:high], time[mine], side="right") - 1
        result[mine[result[mine] < low]] = -1
    found: list[int] = result.tolist()
    for i, at in enumerate(time.tolist()):
        while found[i] >= 0 and _ended(ranges[found[i]], at):
            found[i] = parents[found[i]]
    return found


def _ended(one: Range, time: int) -> bool:
    return one.end is not None and one.end < time
