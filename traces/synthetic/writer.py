"""Write Nsight Systems SQLite exports of jobs that never ran, for the demo, the examples and the tests.

An `ExportWriter` is one report of one host; its processes are told what they did, with the times of the
host's own clock, and `ExportWriter.write` turns that into the tables nsys 2026.3 would have exported for a
job with NCCL 2.28.9. Nothing is checked for sense: tests ask for traces with defects, and what the
methods below cannot express (a column renamed, a row lost) is one SQL statement on the result.

>>> export = ExportWriter("node0")
>>> process = export.process(pid=4100, device=0)
>>> process.init_communicator(0xC0FFEE, ranks=2, rank=0, at_ns=1_000_000)
>>> process.collective("AllReduce", size_bytes=1 << 20, communicator=0xC0FFEE, stream=17,
...                    start_ns=400_000_000, end_ns=400_250_000, channels=4, threads=544)
>>> export.write("node0.sqlite")  # doctest: +SKIP

Every file says that it is synthetic: its META_DATA_EXPORT has a row ``ATLAS_LP_SYNTHETIC``, and its
processes are called ``synthetic``.
"""

import itertools
import json
import os
import random
import sqlite3
import uuid
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from atlas_lp.errors import InputError, OutputError
from atlas_lp.files import replacement
from atlas_lp.signatures.nccl.collectives import COLLECTIVES, known_as
from atlas_lp.traces.nvtx import DOMAIN_CREATE, PUSH_POP
from atlas_lp.traces.processes import PID_SHIFT
from atlas_lp.traces.records import SYNTHETIC
from atlas_lp.traces.synthetic import export_tables
from atlas_lp.traces.synthetic.export_tables import Row, Value

__all__ = ["CALL_NS", "Event", "ExportWriter", "ProcessWriter"]

CALL_NS = 25_000
"""Time a thread spends in one NCCL call, in ns."""

_NCCL_LAUNCH_NS = (13_500, 21_000)  # begin and end of the launch, counted from the begin of the call
_LAUNCH_NS = 5_000
_EVENT_CALL_NS = 1_500
_DOMAIN_NS = 200_000  # from the creation of NCCL's domain to the first call
_FIRST_CORRELATION_ID = 1_000


class ExportWriter:
    """One report: what nsys recorded on the host called *hostname*.

    The clock of the report starts at *session_utc_ns*, in ns since 1970 (UTC) as that host sees it.
    *description* goes, as one line, into the row that marks the file as synthetic.
    """

    def __init__(
        self,
        hostname: str = "node0",
        *,
        session_utc_ns: int = 1_767_225_600_000_000_000,
        description: str = "made by atlas_lp.traces.synthetic.writer; no such job ran",
    ) -> None:
        self.hostname = hostname
        self.session_utc_ns = session_utc_ns
        self.description = description
        self._processes: list[ProcessWriter] = []
        self._rows: defaultdict[str, list[Row]] = defaultdict(list)
        self._strings: dict[str, int] = {}

    def process(self, pid: int, device: int = 0) -> "ProcessWriter":
        """Add a process *pid* that works on CUDA *device*."""
        process = ProcessWriter(pid, device, pid, self, _State())
        process._context()
        self._string("synthetic")
        self._processes.append(process)
        return process

    def write(
        self,
        path: str | os.PathLike[str],
        *,
        payloads: Literal["json"] | None = "json",
        text: Literal["registered", "inline"] = "registered",
        omit_tables: Collection[str] = (),
        omit_columns: Collection[str] = (),
        shuffle_seed: int | None = None,
        overwrite: bool = False,
    ) -> Path:
        """Write the report to *path* and return it; the same calls give the same bytes.

        *payloads* is what ``nsys export --include-json`` decides: with None the values are lost and
        only their schemas remain. *text* puts the names of NCCL functions into StringIds, where NCCL
        puts them, or inline. *omit_tables* (``"NVTX_EVENTS"``) and *omit_columns*
        (``"NVTX_EVENTS.textId"``) leave something out, and *shuffle_seed* stores the rows of each table
        in another order. Tables without rows are not written, as nsys does.

        Raises `InputError` when *path* exists and *overwrite* is not set, when it cannot be written,
        or when a table or column to omit does not exist.
        """
        target = Path(path)
        columns = export_tables.kept_columns(omit_tables, omit_columns)
        if target.exists() and not overwrite:
            raise InputError(f"{target}: exists already; choose another place or allow it to be overwritten")
        tables = self._tables(payloads, text)
        if shuffle_seed is not None:
            shuffle = random.Random(shuffle_seed).shuffle
            for rows in tables.values():
                shuffle(rows)
        try:
            with replacement(target) as temporary:
                export_tables.write_database(temporary, columns, tables)
        except sqlite3.OperationalError as error:
            raise OutputError(target, str(error)) from None
        return target

    def _add(self, table: str, **row: Value) -> None:
        self._rows[table].append(row)

    def _string(self, value: str) -> int:
        """Return the id of *value* in StringIds."""
        return self._strings.setdefault(value, len(self._strings))

    def _tables(self, payloads: str | None, text: str) -> dict[str, list[Row]]:
        tables = defaultdict(list, {table: list(rows) for table, rows in self._rows.items()})
        for process in self._processes:
            for table, rows in process._descriptions().items():
                tables[table] += rows
        tables |= self._host_tables() | self._metadata(payloads)
        for enum, entries in export_tables.ENUMS.items():
            tables[enum] = _rows(("id", "name", "label"), entries)
        names = {number: value for value, number in self._strings.items()}
        tables["StringIds"] = _rows(("id", "value"), names.items())
        tables["NVTX_EVENTS"] = [_as_exported(row, names, payloads, text) for row in tables["NVTX_EVENTS"]]
        return tables

    def _host_tables(self) -> dict[str, list[Row]]:
        """Return the tables about the machine: its name, its clock, its GPUs."""
        start = datetime.fromtimestamp(self.session_utc_ns // 10**9, UTC).strftime("%Y-%m-%dT%H:%M:%S")
        devices = sorted({device for process in self._processes for device in process._state.contexts})
        uuids = {d: str(uuid.uuid5(uuid.NAMESPACE_DNS, f"gpu{d}.{self.hostname}")) for d in devices}
        clock = ("utcEpochNs", "utcTime", "localTime", "systemClockNs")
        variable = ("globalVid", "devStateName", "name", "nameEnum", "value")
        cuda_device = ("gpuId", "cudaId", "pid", "uuid", "numMultiprocessors")
        return {
            "TARGET_INFO_SYSTEM_ENV": _rows(
                variable,
                [
                    (export_tables.VM, "Local (CLI)", "Hostname", 619, self.hostname),
                    (export_tables.VM, "Local (CLI)", "KernelVersion", 882, "synthetic"),
                ],
            ),
            "TARGET_INFO_SESSION_START_TIME": _rows(clock, [(self.session_utc_ns, start, start, 0)]),
            "TARGET_INFO_GPU": [
                {
                    **export_tables.GPU,
                    "id": d,
                    "cuDevice": d,
                    "uuid": uuids[d],
                    "busLocation": f"0000:{d + 16:x}:00.0",
                }
                for d in devices
            ],
            "TARGET_INFO_CUDA_DEVICE": _rows(
                cuda_device,
                [(d, d, p.pid, uuids[d], export_tables.GPU["smCount"]) for p in self._processes for d in devices],
            ),
        }

    def _metadata(self, payloads: str | None) -> dict[str, list[Row]]:
        export = export_tables.META_DATA_EXPORT | {
            SYNTHETIC: self.description,
            "EXPORT_HOST": self.hostname,
            "EXPORT_PARAM_INCLUDE_JSON": "true" if payloads == "json" else "false",
        }
        capture = (*export_tables.META_DATA_CAPTURE, ("DEVICE_DISPLAY_NAME", self.hostname))
        return {
            "META_DATA_EXPORT": _rows(("name", "value"), export.items()),
            "META_DATA_CAPTURE": _rows(("name", "value"), capture),
        }


@dataclass(frozen=True)
class Event:
    """A CUDA event as it was recorded once: its id, and the number of the recording."""

    event_id: int
    sync_id: int


@dataclass
class _State:
    """What the views of one process share; the dictionaries without values are ordered sets."""

    contexts: dict[int, int] = field(default_factory=dict)
    streams: dict[tuple[int, int], None] = field(default_factory=dict)
    threads: dict[int, None] = field(default_factory=dict)
    payloads: dict[str, None] = field(default_factory=dict)
    idle_from_ns: dict[int, int] = field(default_factory=dict)
    has_domain: bool = False
    correlation_ids: Iterator[int] = field(default_factory=lambda: itertools.count(_FIRST_CORRELATION_ID))
    event_ids: Iterator[int] = field(default_factory=lambda: itertools.count(1))
    grid_ids: Iterator[int] = field(default_factory=lambda: itertools.count(1))


@dataclass(frozen=True)
class ProcessWriter:
    """One process of a report, made by `ExportWriter.process`; its methods say what it did, in ns.

    Calls of the host: `init_communicator`, `nccl_call`, `user_range`, `synchronize`.
    Calls that start work on the device: `collective`, `kernel`, `memcpy`.
    Order between streams: `record_event`, then `wait_event`.

    *start_ns* and *end_ns* are those of the work on the device; *call_ns* is when the host asked for
    it. Left out, the call comes as late as possible: just before the work starts, or right after the
    thread's previous call if that is later. Calls are made by the main thread, whose id is the pid,
    for the process's own device; `on` gives a view of the process for another one. Correlation ids
    count up from the same number in every process, so they collide, as they do in reality.
    """

    pid: int
    device: int
    tid: int
    _export: ExportWriter = field(repr=False)
    _state: _State = field(repr=False)

    def on(self, *, device: int | None = None, tid: int | None = None) -> "ProcessWriter":
        """Return the same process as it works on another *device*, from another thread, or both."""
        return replace(
            self,
            device=self.device if device is None else device,
            tid=self.tid if tid is None else tid,
        )

    def init_communicator(
        self, communicator: int, *, ranks: int, rank: int, at_ns: int, duration_ns: int = 300_000_000
    ) -> None:
        """Join *communicator* (unsigned, 64 bits) as *rank* of *ranks*, from *at_ns* on."""
        self._context()
        payload = {
            export_tables.COMMUNICATOR: communicator,
            export_tables.RANKS: ranks,
            export_tables.RANK: rank,
            export_tables.DEVICE: self.device,
        }
        self.nccl_call("ncclCommInitRankConfig", payload, start_ns=at_ns, end_ns=at_ns + duration_ns)

    def collective(
        self,
        operation: str,
        *,
        size_bytes: int,
        communicator: int,
        stream: int,
        start_ns: int,
        end_ns: int,
        channels: int = 1,
        threads: int = 128,
        reduction: str | None = None,
        root: int | None = None,
        peer: int | None = None,
        dtype: str = "bf16",
        kernel_name: str | None = None,
        call_ns: int | None = None,
    ) -> None:
        """Call one NCCL *operation* (``"AllReduce"``, ``"Send"``, ...) and run its kernel.

        *size_bytes* is what NCCL puts into the payload: the bytes a rank passes in (AllGather) or gets
        out (ReduceScatter), the whole buffer elsewhere. *channels* and *threads* become grid and block
        of the kernel. *reduction*, *root* and *peer* default to Sum, 0 and 0 where the operation has
        them. *dtype*, as NCCL spells it, shows in the kernel's name and nowhere else.

        Raises `InputError` for an operation NCCL does not have, or a parameter the operation lacks.
        """
        operation = known_as(operation)
        function = COLLECTIVES[operation].calls[0] if operation in COLLECTIVES else f"nccl{operation}"
        payload = export_tables.collective_payload(function, communicator, size_bytes, reduction, root, peer)
        begin_ns = self._call_ns(call_ns, start_ns - CALL_NS)
        self.nccl_call(function, payload, start_ns=begin_ns, end_ns=begin_ns + CALL_NS)
        launch_ns = (begin_ns + _NCCL_LAUNCH_NS[0], begin_ns + _NCCL_LAUNCH_NS[1])
        name = kernel_name or export_tables.nccl_kernel_name(operation, dtype)
        self._kernel(name, stream, (start_ns, end_ns), launch_ns, channels, threads)

    def nccl_call(
        self,
        function: str,
        payload: Mapping[str, int | str] | None = None,
        *,
        start_ns: int,
        end_ns: int | None,
    ) -> None:
        """Add the range of a call that launches nothing itself, such as one inside a group.

        *payload* maps labels to values (``{"NCCL communicator ID": 7, ...}``). An *end_ns* of None is
        a range still open when the capture ended.

        Raises `InputError` when a payload is given for a function that has none.
        """
        if payload is not None:
            export_tables.check_has_payload(function)
            self._state.payloads.setdefault(function)
        domain = export_tables.NCCL_DOMAIN
        if not self._state.has_domain:
            self._state.has_domain = True
            self._range(DOMAIN_CREATE, max(0, start_ns - _DOMAIN_NS), None, text="NCCL", domainId=domain)
        self._range(
            PUSH_POP,
            start_ns,
            end_ns,
            textId=self._export._string(function),
            domainId=domain,
            jsonText=None if payload is None else json.dumps(payload, separators=(",", ":")),
        )
        self._busy_until(start_ns if end_ns is None else end_ns)

    def user_range(self, text: str, start_ns: int, end_ns: int) -> None:
        """Add a range of the application: any *text*, in the default NVTX domain."""
        self._range(PUSH_POP, start_ns, end_ns, text=text, domainId=0)

    def kernel(
        self,
        name: str,
        *,
        stream: int,
        start_ns: int,
        end_ns: int,
        grid: int = 132,
        block: int = 256,
        call_ns: int | None = None,
    ) -> None:
        """Run a kernel that is not the kernel of one NCCL call: compute, or a group's."""
        begin_ns = self._call_ns(call_ns, start_ns - _LAUNCH_NS)
        self._kernel(name, stream, (start_ns, end_ns), (begin_ns, begin_ns + _LAUNCH_NS), grid, block)

    def memcpy(
        self,
        size_bytes: int,
        *,
        stream: int,
        start_ns: int,
        end_ns: int,
        kind: Literal["HtoD", "DtoH", "DtoD", "PtoP"] = "HtoD",
        call_ns: int | None = None,
    ) -> None:
        """Copy *size_bytes* from or to pinned host memory, or between devices."""
        copy_kind, source, destination = export_tables.COPY_KINDS[kind]
        begin_ns = self._call_ns(call_ns, start_ns - _LAUNCH_NS)
        self._export._add(
            "CUPTI_ACTIVITY_KIND_MEMCPY",
            start=start_ns,
            end=end_ns,
            **self._work(stream, "cudaMemcpyAsync_v3020", (begin_ns, begin_ns + _LAUNCH_NS)),
            bytes=size_bytes,
            copyKind=copy_kind,
            srcKind=source,
            dstKind=destination,
            copyCount=1,
        )

    def record_event(self, stream: int, *, call_ns: int) -> Event:
        """Record an event behind everything put on *stream* so far."""
        number = next(self._state.event_ids)
        event = Event(event_id=number, sync_id=number)
        self._export._add(
            "CUPTI_ACTIVITY_KIND_CUDA_EVENT",
            timestamp=0,
            **self._work(stream, "cudaEventRecord_v3020", (call_ns, call_ns + _EVENT_CALL_NS)),
            eventId=event.event_id,
            eventSyncId=event.sync_id,
        )
        return event

    def wait_event(self, event: Event, stream: int, *, call_ns: int) -> None:
        """Let everything put on *stream* from now on wait for *event*."""
        span_ns = (call_ns, call_ns + _EVENT_CALL_NS)
        self._synchronization("cudaStreamWaitEvent_v3020", export_tables.STREAM_WAIT_EVENT, event, stream, span_ns)

    def synchronize(self, stream: int, start_ns: int, end_ns: int) -> None:
        """Let the host wait for *stream* from *start_ns* to *end_ns*."""
        nothing = Event(export_tables.NO_EVENT, 0)
        span_ns = (start_ns, end_ns)
        self._synchronization("cudaStreamSynchronize_v3020", export_tables.STREAM_SYNCHRONIZE, nothing, stream, span_ns)

    @property
    def _global_pid(self) -> int:
        return export_tables.VM + (self.pid << PID_SHIFT)

    @property
    def _global_tid(self) -> int:
        self._state.threads.setdefault(self.tid)
        return self._global_pid + self.tid

    def _context(self) -> int:
        """Return the context of the device; a process counts its contexts from 1."""
        contexts = self._state.contexts
        return contexts.setdefault(self.device, len(contexts) + 1)

    def _call_ns(self, call_ns: int | None, latest_ns: int) -> int:
        """Return when the thread calls: *call_ns* if it is known, else *latest_ns* or once it is idle."""
        if call_ns is not None:
            return call_ns
        return max(latest_ns, self._state.idle_from_ns.get(self.tid, latest_ns))

    def _busy_until(self, end_ns: int) -> None:
        idle_from_ns = self._state.idle_from_ns
        idle_from_ns[self.tid] = max(end_ns, idle_from_ns.get(self.tid, end_ns))

    def _range(self, event_type: int, start_ns: int, end_ns: int | None, **columns: Value) -> None:
        row: Row = {"start": start_ns, "end": end_ns, "eventType": event_type, "globalTid": self._global_tid}
        self._export._add("NVTX_EVENTS", **row, **columns)

    def _work(self, stream: int, function: str, span_ns: tuple[int, int], driver: bool = False) -> Row:
        """Call *function* of the CUDA runtime or driver; return the columns of what it starts on *stream*."""
        correlation_id = next(self._state.correlation_ids)
        self._export._add(
            "CUPTI_ACTIVITY_KIND_RUNTIME",
            start=span_ns[0],
            end=span_ns[1],
            eventClass=int(driver),
            globalTid=self._global_tid,
            correlationId=correlation_id,
            nameId=self._export._string(function),
            returnValue=0,
        )
        self._busy_until(span_ns[1])
        self._state.streams.setdefault((self.device, stream))
        return {
            "deviceId": self.device,
            "contextId": self._context(),
            "greenContextId": 0,
            "streamId": stream,
            "correlationId": correlation_id,
            "globalPid": self._global_pid,
        }

    def _kernel(
        self,
        name: str,
        stream: int,
        span_ns: tuple[int, int],
        launch_ns: tuple[int, int],
        grid: int,
        block: int,
    ) -> None:
        """Launch a kernel. NCCL calls the driver, compute kernels come from the runtime."""
        is_nccl = name.startswith("nccl")
        launch = "cuLaunchKernelEx" if is_nccl else "cudaLaunchKernel_v7000"
        short_name = name.partition("(")[0]
        mangled_name = f"_Z{len(short_name)}{short_name}" + export_tables.MANGLED_ARGUMENTS * is_nccl
        self._export._add(
            "CUPTI_ACTIVITY_KIND_KERNEL",
            start=span_ns[0],
            end=span_ns[1],
            **self._work(stream, launch, launch_ns, driver=is_nccl),
            demangledName=self._export._string(name),
            shortName=self._export._string(short_name),
            mangledName=self._export._string(mangled_name),
            gridX=grid,
            gridY=1,
            gridZ=1,
            blockX=block,
            blockY=1,
            blockZ=1,
            gridId=next(self._state.grid_ids),
            **(export_tables.NCCL_KERNEL if is_nccl else export_tables.COMPUTE_KERNEL),
        )

    def _synchronization(
        self, function: str, sync_type: int, event: Event, stream: int, span_ns: tuple[int, int]
    ) -> None:
        self._export._add(
            "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION",
            start=span_ns[0],
            end=span_ns[1],
            **self._work(stream, function, span_ns),
            syncType=sync_type,
            eventId=event.event_id,
            eventSyncId=event.sync_id,
        )

    def _descriptions(self) -> dict[str, list[Row]]:
        """Return the rows that describe the process: names, contexts, streams, payload schemas."""
        state = self._state
        name_id = self._export._string("synthetic")
        hardware: Row = {"hwId": 0, "vmId": 1, "processId": self.pid}
        return {
            "PROCESSES": [{"globalPid": self._global_pid, "pid": self.pid, "name": "synthetic"}],
            "ThreadNames": _rows(
                ("nameId", "priority", "globalTid"),
                [(name_id, 20, self._global_pid + tid) for tid in state.threads],
            ),
            "TARGET_INFO_CUDA_CONTEXT_INFO": [
                {**hardware, "nullStreamId": 7, "deviceId": device, "contextId": context, "isGreenContext": 0}
                for device, context in state.contexts.items()
            ],
            "TARGET_INFO_CUDA_STREAM": [
                {
                    **hardware,
                    "streamId": stream,
                    "contextId": state.contexts[device],
                    "priority": 0,
                    "flag": 3 if stream == 7 else 2,
                }
                for device, stream in state.streams
            ],
            **export_tables.payload_tables(state.payloads),
        }


def _rows(columns: tuple[str, ...], values: Iterable[tuple[Value, ...]]) -> list[Row]:
    return [dict(zip(columns, row, strict=True)) for row in values]


def _as_exported(row: Row, strings: Mapping[int, str], payloads: str | None, text: str) -> Row:
    """Return the NVTX *row* as the options of `ExportWriter.write` ask for it."""
    row = dict(row)
    if payloads is None:
        row["jsonText"] = None
    text_id = row.get("textId")
    if text == "inline" and isinstance(text_id, int):
        row["text"] = strings[text_id]
        row["textId"] = None
    return row
