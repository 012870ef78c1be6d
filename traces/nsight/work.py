"""GPU work of an Nsight export, and what each piece of it waited for.

A kernel, copy or set starts after the work before it on its stream; after the work that a recorded event stood for,
when its stream was told to wait for that event; and after the host called it, which in turn had waited for earlier
work if it synchronised.  The host's own order is that of the CUDA calls of one thread.

Source: Nsight Systems tables CUPTI_ACTIVITY_KIND_{KERNEL, MEMCPY, MEMSET, RUNTIME, CUDA_EVENT, SYNCHRONIZATION}, schema
3.17 .. 3.28; ``eventSyncId`` joins a wait to its record, without it the latest record of the event before the wait.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from atlas_lp.traces.nsight.export import Export
from atlas_lp.traces.nsight.kernels import RUNTIME, check_numbers, check_times
from atlas_lp.traces.processes import THREAD_BITS
from atlas_lp.traces.records import STREAM_BITS
from atlas_lp.traces.work import Ints, Work, WorkRows

_WORK_TABLES = tuple(f"CUPTI_ACTIVITY_KIND_{kind}" for kind in ("KERNEL", "MEMCPY", "MEMSET"))
CUDA_EVENTS, SYNCHRONIZATION = "CUPTI_ACTIVITY_KIND_CUDA_EVENT", "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION"
_EVENT_SYNC, _EVENT_WAIT, _STREAM_SYNC, _CONTEXT_SYNC = 1, 2, 3, 4
NO_EVENT = 0xFFFFFFFF
_CORRELATION_BITS = 33

Contexts = Mapping[tuple[int, int, int], int]


def read_work(export: Export, shift: int, contexts: Contexts, calls: Calls | None) -> WorkRows | None:
    """Read the work of one export; None when CUDA *calls* or streams were not recorded.

    *shift* is added to all times; *contexts* numbers contexts as for the streams of operations.  Cost O(n log n).
    """
    names = ("globalPid", "start", "end", "deviceId", "contextId", "streamId", "correlationId")
    tables = [table for table in _WORK_TABLES if export.has(table, *names)]
    if not tables or calls is None:
        return None
    select = " UNION ALL ".join(f"SELECT {', '.join(names)} FROM {table}" for table in tables)
    rows = export.columns(f"{select} ORDER BY 1, 2, 3, 4, 5, 6, 7", names)
    at = calls.find(rows["globalPid"], rows["correlationId"])
    stream = _streams(rows, contexts)
    lanes = _Lanes(rows["globalPid"], rows["deviceId"], stream, calls.start[at], rows["end"] + shift)
    records = _records(export, contexts, calls, lanes)
    before, after = _event_waits(export, contexts, calls, lanes, records)
    check_times(export, rows["start"], rows["end"])
    check_numbers(export, rows, ("deviceId", "contextId", "streamId"))
    called = calls.start[at][at >= 0] - shift
    check_times(export, called, called)
    work = Work(
        gpu=np.full(len(stream), -1, dtype=np.int64),
        stream=stream,
        start_ns=rows["start"] + shift,
        end_ns=rows["end"] + shift,
        call_ns=calls.start[at],
        synced=_synced(export, contexts, calls, lanes, records, calls.thread[at], shift),
        before=before,
        after=after,
    )
    return WorkRows(rows["globalPid"], rows["deviceId"], work)


def _streams(rows: Mapping[str, Ints], contexts: Contexts) -> Ints:
    """Stream numbers as :func:`~atlas_lp.traces.nsight.kernels.stream_number` gives them, for columns."""
    position = np.zeros(len(rows["streamId"]), dtype=np.int64)
    for (process, device, context), place in contexts.items():
        if place:
            mine = (rows["globalPid"] == process) & (rows["deviceId"] == device) & (rows["contextId"] == context)
            position[mine] = place
    return rows["streamId"] + (position << STREAM_BITS)


class Calls:
    """CUDA calls by (process, correlation id): thread, start, end, id of their name, and what they returned.

    Each array ends with a -1, so that position -1, a call that was not recorded, reads as such.
    """

    def __init__(self, export: Export, shift: int) -> None:
        names = ("globalTid", "correlationId", "start", "end", "nameId", "returnValue")
        select = ", ".join(name if export.has(RUNTIME, name) else "NULL" for name in names)
        rows = export.columns(
            f"SELECT {select} FROM {RUNTIME} WHERE correlationId IS NOT NULL ORDER BY 1, 2, 3, 4", names
        )
        self._processes, number = np.unique(rows["globalTid"] & ~THREAD_BITS, return_inverse=True)
        key = (number.reshape(-1) << _CORRELATION_BITS) + rows["correlationId"]
        order = np.lexsort((rows["start"], key))
        self._keys = key[order]
        self.process = np.append(self._processes[number.reshape(-1)][order], -1)
        self.thread = np.append(rows["globalTid"][order], -1)
        self.correlation = np.append(rows["correlationId"][order], -1)
        self.name = np.append(rows["nameId"][order], -1)
        self.returned = np.append(rows["returnValue"][order], -1)
        self.start = np.append(rows["start"][order] + shift, -1)
        self.end = np.append(rows["end"][order] + shift, -1)

    @classmethod
    def of(cls, export: Export, shift: int) -> Calls | None:
        """The calls of an export, None where they were not recorded."""
        return cls(export, shift) if export.has(RUNTIME, "globalTid", "correlationId", "start", "end") else None

    def find(self, process: Ints, correlation: Ints) -> Ints:
        """Position of the first call of each (process, correlation id), -1 where there is none."""
        if not len(self._keys):
            return np.full(len(process), -1, dtype=np.int64)
        number = np.minimum(np.searchsorted(self._processes, process), len(self._processes) - 1)
        key = (number << _CORRELATION_BITS) + correlation
        at = np.minimum(np.searchsorted(self._keys, key), len(self._keys) - 1)
        return np.where((self._processes[number] == process) & (self._keys[at] == key), at, -1)


class _Lanes:
    """Work by stream in the order in which it was called, to ask what came last before a moment of the host."""

    def __init__(self, process: Ints, device: Ints, stream: Ints, call: Ints, end: Ints) -> None:
        self._names, lane = np.unique(np.stack([process, device, stream]), axis=1, return_inverse=True)
        lane = lane.reshape(-1)
        called = np.flatnonzero(call >= 0)
        self._order = called[np.lexsort((end[called], call[called], lane[called]))]
        self._lane, self._call = lane[self._order], call[self._order]
        self.process, self.call, self.end = process, call, end

    def lane_of(self, process: Ints, device: Ints, stream: Ints) -> Ints:
        """Number of each (process, device, stream), -1 where it ran nothing."""
        known = {name: number for number, name in enumerate(zip(*self._names.tolist(), strict=True))}
        asked = zip(process.tolist(), device.tolist(), stream.tolist(), strict=True)
        return np.array([known.get(name, -1) for name in asked], dtype=np.int64)

    def _neighbour(self, lane: Ints, moment: Ints, step: int) -> Ints:
        """Work called on *lane* just before (*step* -1) or after (0) *moment*, -1 for none."""
        result = np.full(len(lane), -1, dtype=np.int64)
        for one in np.unique(lane[lane >= 0]):
            low, high = np.searchsorted(self._lane, [one, one + 1])
            mine = np.flatnonzero(lane == one)
            at = np.searchsorted(self._call[low:high], moment[mine], side="left") + step
            inside = (at >= 0) & (at < high - low)
            result[mine[inside]] = self._order[low + at[inside]]
        return result

    def last_before(self, lane: Ints, moment: Ints) -> Ints:
        """Last work called on *lane* before *moment*, -1 for none."""
        return self._neighbour(lane, moment, -1)

    def first_after(self, lane: Ints, moment: Ints) -> Ints:
        """First work called on *lane* after *moment*, -1 for none."""
        return self._neighbour(lane, moment, 0)

    def latest_of_process(self, process: Ints, moment: Ints) -> Ints:
        """Work of a process called before *moment* that ended last: what a device synchronisation waited for."""
        result = np.full(len(process), -1, dtype=np.int64)
        for one in np.unique(process):
            rows = np.flatnonzero((self.call >= 0) & (self.process == one))
            rows = rows[np.lexsort((self.end[rows], self.call[rows]))]
            if len(rows):
                is_latest = self.end[rows] == np.maximum.accumulate(self.end[rows])
                latest = rows[np.maximum.accumulate(np.where(is_latest, np.arange(len(rows)), 0))]
                mine = np.flatnonzero(process == one)
                at = np.searchsorted(self.call[rows], moment[mine], side="left") - 1
                result[mine] = np.where(at >= 0, latest[at], -1)
        return result


@dataclass(frozen=True)
class _Records:
    """Event records: process, event, the id that joins waits, host time, and the last work before them."""

    process: Ints
    event: Ints
    sync: Ints
    call: Ints
    last: Ints

    def of(self, process: Ints, event: Ints, sync: Ints, moment: Ints) -> Ints:
        """Last work behind the record that each wait (or synchronisation) means, -1 for none."""
        by_sync = {key: i for i, key in enumerate(zip(self.process.tolist(), self.sync.tolist(), strict=True))}
        by_event: dict[tuple[int, int], list[int]] = {}
        for i in np.argsort(self.call, kind="stable").tolist():
            by_event.setdefault((int(self.process[i]), int(self.event[i])), []).append(i)
        result = np.full(len(process), -1, dtype=np.int64)
        wanted = zip(process.tolist(), event.tolist(), sync.tolist(), moment.tolist(), strict=True)
        for i, (one, number, joined, when) in enumerate(wanted):
            if joined not in (-1, NO_EVENT):
                record = by_sync.get((one, joined), -1)
            else:
                record = max((r for r in by_event.get((one, number), ()) if self.call[r] < when), default=-1,
                             key=lambda r: self.call[r])  # fmt: skip
            result[i] = self.last[record] if record >= 0 else -1
        return result


def _records(export: Export, contexts: Contexts, calls: Calls, lanes: _Lanes) -> _Records:
    names = ("globalPid", "deviceId", "contextId", "streamId", "correlationId", "eventId")
    if not export.has(CUDA_EVENTS, *names):
        return _Records(*[np.zeros(0, dtype=np.int64)] * 5)
    sync = "eventSyncId" if export.has(CUDA_EVENTS, "eventSyncId") else "NULL"
    rows = export.columns(
        f"SELECT {', '.join(names)}, {sync} FROM {CUDA_EVENTS} ORDER BY 1, 5, 6, 2, 3, 4", (*names, "eventSyncId")
    )
    call = calls.start[calls.find(rows["globalPid"], rows["correlationId"])]
    lane = lanes.lane_of(rows["globalPid"], rows["deviceId"], _streams(rows, contexts))
    return _Records(rows["globalPid"], rows["eventId"], rows["eventSyncId"], call, lanes.last_before(lane, call))


def _synchronizations(export: Export, kinds: Sequence[int]) -> dict[str, Ints]:
    """Rows of the synchronisation table of some *kinds* (before 2026 the column was ``syncType``, too)."""
    names = ("globalPid", "deviceId", "contextId", "streamId", "correlationId", "eventId", "start", "end", "syncType")
    if not export.has(SYNCHRONIZATION, *names):
        return {name: np.zeros(0, dtype=np.int64) for name in (*names, "eventSyncId")}
    sync = "eventSyncId" if export.has(SYNCHRONIZATION, "eventSyncId") else "NULL"
    chosen = ", ".join(map(str, kinds))
    return export.columns(
        f"SELECT {', '.join(names)}, {sync} FROM {SYNCHRONIZATION} WHERE syncType IN ({chosen}) "
        "ORDER BY 1, 7, 8, 5, 2, 3, 4, 6",
        (*names, "eventSyncId"),
    )


def _event_waits(
    export: Export, contexts: Contexts, calls: Calls, lanes: _Lanes, records: _Records
) -> tuple[Ints, Ints]:
    """Pairs (work behind a recorded event, first work called on the stream that waits for it)."""
    rows = _synchronizations(export, [_EVENT_WAIT])
    call = calls.start[calls.find(rows["globalPid"], rows["correlationId"])]
    lane = lanes.lane_of(rows["globalPid"], rows["deviceId"], _streams(rows, contexts))
    before = records.of(rows["globalPid"], rows["eventId"], rows["eventSyncId"], call)
    after = lanes.first_after(lane, call)
    known = (before >= 0) & (after >= 0) & (call >= 0)
    pairs = np.unique(np.stack([before[known], after[known]]), axis=1)
    return pairs[0], pairs[1]


def _synced(
    export: Export,
    contexts: Contexts,
    calls: Calls,
    lanes: _Lanes,
    records: _Records,
    thread: Ints,
    shift: int,
) -> Ints:
    """Per piece of work, what the thread that called it had last waited for, -1 for none."""
    rows = _synchronizations(export, [_EVENT_SYNC, _STREAM_SYNC, _CONTEXT_SYNC])
    blocking = (rows["syncType"] != _EVENT_SYNC) | _is_event_synchronize(export, rows)
    rows = {name: column[blocking] for name, column in rows.items()}
    at = calls.find(rows["globalPid"], rows["correlationId"])
    start, end = rows["start"] + shift, rows["end"] + shift
    lane = lanes.lane_of(rows["globalPid"], rows["deviceId"], _streams(rows, contexts))
    waited = lanes.last_before(lane, start)
    whole = rows["syncType"] == _CONTEXT_SYNC
    waited[whole] = lanes.latest_of_process(rows["globalPid"][whole], start[whole])
    event = rows["syncType"] == _EVENT_SYNC
    waited[event] = records.of(*(c[event] for c in (rows["globalPid"], rows["eventId"], rows["eventSyncId"], start)))
    known = (waited >= 0) & (at >= 0)
    return _last_on_thread(calls.thread[at[known]], end[known], waited[known], thread, lanes.call)


def _is_event_synchronize(export: Export, rows: Mapping[str, Ints]) -> NDArray[np.bool_]:
    """Which rows are cudaEventSynchronize, which blocks, and not cudaEventQuery, which does not."""
    if not len(rows["globalPid"]) or not export.has(RUNTIME, "nameId") or not export.has("StringIds", "id", "value"):
        return np.zeros(len(rows["globalPid"]), dtype=np.bool_)
    names = ("globalTid", "correlationId")
    found = export.columns(
        f"SELECT {', '.join(names)} FROM {RUNTIME} WHERE correlationId IS NOT NULL AND nameId IN "
        "(SELECT id FROM StringIds WHERE value LIKE '%EventSynchronize%') ORDER BY 1, 2",
        names,
    )
    keys = set(zip((found["globalTid"] & ~THREAD_BITS).tolist(), found["correlationId"].tolist(), strict=True))
    asked = zip(rows["globalPid"].tolist(), rows["correlationId"].tolist(), strict=True)
    return np.array([key in keys for key in asked], dtype=np.bool_)


def _last_on_thread(sync_thread: Ints, sync_end: Ints, waited: Ints, thread: Ints, call: Ints) -> Ints:
    """Value of *waited* of the last synchronisation of each *thread* that ended before *call*."""
    result = np.full(len(thread), -1, dtype=np.int64)
    order = np.lexsort((waited, sync_end, sync_thread))
    sync_thread, sync_end, waited = sync_thread[order], sync_end[order], waited[order]
    for one in np.unique(sync_thread):
        low, high = np.searchsorted(sync_thread, [one, one + 1])
        mine = np.flatnonzero((thread == one) & (call >= 0))
        at = np.searchsorted(sync_end[low:high], call[mine], side="right") - 1
        result[mine] = np.where(at >= 0, waited[low:high][at], -1)
    return result
