"""The tables that the writer of synthetic traces writes: an Nsight Systems SQLite export of one version.

Readers do not use them: they take what they find in exports of all versions. Here stand the columns of schema 3.27.0
(nsys 2026.3) in their order, as far as NCCL needs them, the enumerations that a reader may join with, and the payload
schemas that NCCL 2.28.9 registers in its NVTX domain. Labels and numbers of CUPTI are written down again on purpose: a
word that only one side spells wrongly fails a test. What is put into the tables is the business of
`atlas_lp.traces.synthetic.writer`.
"""

import os
import sqlite3
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass

from atlas_lp.errors import InputError
from atlas_lp.signatures.nccl.collectives import COLLECTIVES, SEND_RECV
from atlas_lp.traces.nvtx import (
    DOMAIN_CREATE,
    PUSH_POP,
    START_END,
    STATIC_SCHEMA,
    TASK_PUSH_POP,
    TASK_START_END,
)
from atlas_lp.traces.processes import MACHINE_SHIFT

Value = int | float | str | None
Row = dict[str, Value]
"""One row of a table, by column; a column left out is NULL."""

NCCL_DOMAIN = 1
"""domainId of NCCL in an export where it is the first domain a process creates."""
STREAM_WAIT_EVENT = 2
STREAM_SYNCHRONIZE = 3
"""syncType of a stream waiting for an event, and of the host waiting for a stream."""
NO_EVENT = 0xFFFFFFFF
"""eventId of a synchronisation that waits for a stream rather than for an event."""
VM = 1 << MACHINE_SHIFT
"""globalVid of the machine: the VM byte of every serialised id."""


@dataclass(frozen=True)
class Column:
    """One column as SQLite declares it."""

    name: str
    type: str
    not_null: bool
    primary_key: bool

    def __str__(self) -> str:
        """Return the column as a line of CREATE TABLE."""
        parts = (f'"{self.name}"', self.type, "NOT NULL" * self.not_null, "PRIMARY KEY" * self.primary_key)
        return " ".join(part for part in parts if part)


def _columns(notation: str) -> tuple[Column, ...]:
    """Read ``name[:TYPE][!][#]`` words: INTEGER unless a type is given, ! is NOT NULL, # the key."""
    columns = []
    for word in notation.split():
        name, _, declared = word.rstrip("!#").partition(":")
        columns.append(Column(name, declared or "INTEGER", "!" in word, "#" in word))
    return tuple(columns)


_ENUM = "id!# name:TEXT label:TEXT"

_NOTATION = {
    "StringIds": "id!# value:TEXT!",
    "NVTX_PAYLOAD_SCHEMAS": "domainId schemaId name:TEXT type flags numEntries payloadSize alignTo",
    "NVTX_PAYLOAD_SCHEMA_ENTRIES": """
        domainId! schemaId! idx! flags type name:TEXT description:TEXT arrayOrUnionDetail offset""",
    "NVTX_PAYLOAD_ENUMS": "domainId schemaId name:TEXT numEntries size",
    "NVTX_PAYLOAD_ENUM_ENTRIES": "domainId! schemaId! idx! name:TEXT value isFlag",
    "TARGET_INFO_SYSTEM_ENV": "globalVid devStateName:TEXT! name:TEXT! nameEnum! value:TEXT!",
    "TARGET_INFO_SESSION_START_TIME": "utcEpochNs utcTime:TEXT localTime:TEXT systemClockNs",
    "PROCESSES": "globalPid pid name:TEXT",
    "CUPTI_ACTIVITY_KIND_RUNTIME": """
        start! end! eventClass! globalTid correlationId nameId! returnValue! callchainId""",
    "CUPTI_ACTIVITY_KIND_CUDA_EVENT": """
        timestamp deviceId! contextId! greenContextId streamId! correlationId globalPid eventId!
        eventSyncId""",
    "CUPTI_ACTIVITY_KIND_KERNEL": """
        start! end! deviceId! contextId! greenContextId streamId! correlationId globalPid demangledName!
        shortName! mangledName launchType cacheConfig registersPerThread! gridX! gridY! gridZ! blockX!
        blockY! blockZ! staticSharedMemory! dynamicSharedMemory! localMemoryPerThread! localMemoryTotal!
        gridId! sharedMemoryExecuted graphNodeId sharedMemoryLimitConfig qmdBulkReleaseDone
        qmdPreexitDone qmdLastCtaDone graphId clusterX clusterY clusterZ clusterSchedulingPolicy
        maxPotentialClusterSize maxActiveClusters sharedMemoryRequestedPercentage
        tensorSizeMinusOneElements:TEXT!""",
    "CUPTI_ACTIVITY_KIND_MEMCPY": """
        start! end! deviceId! contextId! greenContextId streamId! correlationId globalPid bytes! copyKind!
        deprecatedSrcId srcKind dstKind srcDeviceId srcContextId dstDeviceId dstContextId migrationCause
        graphNodeId virtualAddress copyCount""",
    "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION": """
        start! end! deviceId! contextId! greenContextId streamId! correlationId globalPid
        deprecatedSyncType syncType! eventId! eventSyncId""",
    "NVTX_EVENTS": """
        start! end eventType! rangeId category color text:TEXT globalTid endGlobalTid textId domainId
        uint64Value int64Value doubleValue:REAL uint32Value int32Value floatValue:REAL jsonTextId
        jsonText:TEXT binaryData:TEXT""",
    "ThreadNames": "nameId! priority globalTid",
    "TARGET_INFO_GPU": """
        vmId! id! name:TEXT busLocation:TEXT isDiscrete l2CacheSize totalMemory memoryBandwidth clockRate
        smCount pwGpuId uuid:TEXT luid chipName:TEXT cuDevice ctxswDevPath:TEXT ctrlDevPath:TEXT revision
        nodeMask constantMemory maxIPC maxRegistersPerBlock maxShmemPerBlock maxShmemPerBlockOptin
        maxShmemPerSm maxRegistersPerSm threadsPerWarp asyncEngines maxWarpsPerSm maxBlocksPerSm
        maxThreadsPerBlock maxBlockDimX maxBlockDimY maxBlockDimZ maxGridDimX maxGridDimY maxGridDimZ
        computeMajor computeMinor smMajor smMinor""",
    "TARGET_INFO_CUDA_DEVICE": "gpuId cudaId! pid! uuid:TEXT numMultiprocessors",
    "TARGET_INFO_CUDA_CONTEXT_INFO": """
        nullStreamId! hwId! vmId! processId! deviceId! contextId! parentContextId isGreenContext
        numMultiprocessors numTpcs tpcMask:TEXT workqueueResourceId workqueueConcurrencyLimit
        workqueueSharingScope""",
    "TARGET_INFO_CUDA_STREAM": "streamId! hwId! vmId! processId! contextId! priority! flag!",
    "ENUM_NSYS_EVENT_TYPE": _ENUM,
    "ENUM_NSYS_EVENT_CLASS": _ENUM,
    "ENUM_CUDA_MEMCPY_OPER": _ENUM,
    "ENUM_CUDA_MEM_KIND": _ENUM,
    "ENUM_CUPTI_STREAM_TYPE": _ENUM,
    "ENUM_CUPTI_SYNC_TYPE": _ENUM,
    "META_DATA_CAPTURE": "name:TEXT! value:TEXT",
    "META_DATA_EXPORT": "name:TEXT! value:TEXT",
}

TABLES = {table: _columns(notation) for table, notation in _NOTATION.items()}
"""Columns of every table, in the order nsys writes tables and columns."""

ENUMS: dict[str, tuple[tuple[int, str, str], ...]] = {
    "ENUM_NSYS_EVENT_TYPE": (
        (33, "NvtxCategory", "NvtxCategory"),
        (34, "NvtxMark", "NvtxMark"),
        (PUSH_POP, "NvtxPushPopRange", "NvtxPushPopRange"),
        (START_END, "NvtxStartEndRange", "NvtxStartEndRange"),
        (TASK_PUSH_POP, "NvtxtPushPopRange", "NvtxtPushPopRange"),
        (TASK_START_END, "NvtxtStartEndRange", "NvtxtStartEndRange"),
        (DOMAIN_CREATE, "NvtxDomainCreate", "NvtxDomainCreate"),
        (76, "NvtxDomainDestroy", "NvtxDomainDestroy"),
    ),
    "ENUM_NSYS_EVENT_CLASS": (
        (0, "TRACE_PROCESS_EVENT_CUDA_RUNTIME", "CUDA runtime"),
        (1, "TRACE_PROCESS_EVENT_CUDA_DRIVER", "CUDA driver"),
    ),
    "ENUM_CUDA_MEMCPY_OPER": (
        (0, "CUDA_MEMCPY_KIND_UNKNOWN", "Unknown"),
        (1, "CUDA_MEMCPY_KIND_HTOD", "Host-to-Device"),
        (2, "CUDA_MEMCPY_KIND_DTOH", "Device-to-Host"),
        (8, "CUDA_MEMCPY_KIND_DTOD", "Device-to-Device"),
        (10, "CUDA_MEMCPY_KIND_PTOP", "Peer-to-Peer"),
    ),
    "ENUM_CUDA_MEM_KIND": (
        (0, "CUDA_MEMOPR_MEMORY_KIND_PAGEABLE", "Pageable"),
        (1, "CUDA_MEMOPR_MEMORY_KIND_PINNED", "Pinned"),
        (2, "CUDA_MEMOPR_MEMORY_KIND_DEVICE", "Device"),
    ),
    "ENUM_CUPTI_STREAM_TYPE": (
        (0, "CUPTI_ACTIVITY_STREAM_CREATE_FLAG_UNKNOWN", "Unknown stream type"),
        (1, "CUPTI_ACTIVITY_STREAM_CREATE_FLAG_DEFAULT", "Default stream"),
        (2, "CUPTI_ACTIVITY_STREAM_CREATE_FLAG_NON_BLOCKING", "Non-blocking stream"),
        (3, "CUPTI_ACTIVITY_STREAM_CREATE_FLAG_NULL", "Null stream"),
    ),
    "ENUM_CUPTI_SYNC_TYPE": (
        (0, "CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_UNKNOWN", "Unknown"),
        (1, "CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_EVENT_SYNCHRONIZE", "Event sync"),
        (2, "CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_STREAM_WAIT_EVENT", "Stream wait sync"),
        (3, "CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_STREAM_SYNCHRONIZE", "Stream sync"),
        (4, "CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_CONTEXT_SYNCHRONIZE", "Context sync"),
    ),
}
"""Rows of the enumerations a reader of NCCL events may join with."""

META_DATA_EXPORT = {
    "EXPORT_PRODUCT_NAME": "NVIDIA Nsight Systems",
    "EXPORT_PRODUCT_VERSION": "2026.3.1.157",
    "EXPORT_SCHEMA_VERSION": "3.27.0",
    "EXPORT_SCHEMA_VERSION_MAJOR": "3",
    "EXPORT_SCHEMA_VERSION_MINOR": "27",
    "EXPORT_SCHEMA_VERSION_MICRO": "0",
    "EXPORT_PLATFORM": "linux-desktop",
    "EXPORT_ARCH": "x64",
    "EXPORT_PARAM_EXPORT_TYPE": "SQLite",
    "EXPORT_PARAM_LAZY": "true",
    "EXPORT_PARAM_INCLUDE_BLOBS": "false",
    "EXPORT_PARAM_TIME_NORMALIZE": "false",
    "EXPORT_PARAM_TIME_SHIFT": "0",
}
META_DATA_CAPTURE = (
    ("DEVICE_ID", "Local (CLI)"),
    ("CAPTURE_EVENT_TYPE", "NvtxEvents"),
    ("CAPTURE_EVENT_TYPE", "Cuda"),
    ("CUDA_GRAPH_TRACE_OPTIONS:MODE", "Graph"),
    ("PROCESS_0:COMMAND", "synthetic"),
)
"""What an export says about itself and about the capture, as far as it is the same for all."""

GPU: Row = {
    "vmId": VM,
    "name": "Synthetic GPU",
    "isDiscrete": 1,
    "totalMemory": 80 << 30,
    "memoryBandwidth": 3_350_000_000_000,
    "smCount": 132,
    "chipName": "SYNTHETIC",
    "threadsPerWarp": 32,
    "computeMajor": 9,
    "computeMinor": 0,
}
"""Columns of TARGET_INFO_GPU that all devices share."""

_KERNEL: Row = {
    "launchType": 0,
    "cacheConfig": 0,
    "localMemoryPerThread": 0,
    "localMemoryTotal": 0,
    "clusterX": 0,
    "clusterY": 0,
    "clusterZ": 0,
    "clusterSchedulingPolicy": 0,
    "maxPotentialClusterSize": 0,
    "maxActiveClusters": 0,
    "tensorSizeMinusOneElements": "[]",
}
NCCL_KERNEL: Row = _KERNEL | {
    "registersPerThread": 96,
    "staticSharedMemory": 7_104,
    "dynamicSharedMemory": 82_240,
    "sharedMemoryExecuted": 102_400,
    "sharedMemoryLimitConfig": 1,
}
COMPUTE_KERNEL: Row = _KERNEL | {
    "registersPerThread": 128,
    "staticSharedMemory": 0,
    "dynamicSharedMemory": 0,
    "sharedMemoryExecuted": 16_384,
    "sharedMemoryLimitConfig": 0,
}
"""Columns of CUPTI_ACTIVITY_KIND_KERNEL that all kernels of a kind share."""

MANGLED_ARGUMENTS = "24ncclDevKernelArgsStorageILm4096EE"
"""End of the mangled name of an NCCL kernel."""

COPY_KINDS = {"HtoD": (1, 1, 2), "DtoH": (2, 2, 1), "DtoD": (8, 2, 2), "PtoP": (10, 2, 2)}
"""copyKind, srcKind and dstKind of a memory copy (host memory is pinned)."""


_UINT64, _SIZE, _INT = 18, 22, 5
REDUCTION_ENUM = STATIC_SCHEMA + 20
"""Id of the enum of reductions; its value betrays NCCL 2.28.7 to 2.28.9."""
REDUCTIONS = ("Sum", "Product", "Max", "Min", "Avg")

COMMUNICATOR = "NCCL communicator ID"
SIZE = "Message size [bytes]"
REDUCTION = "Reduction operation"
ROOT = "Root"
PEER = "Peer rank"
RANKS = "No. of ranks"
RANK = "Rank"
DEVICE = "CUDA device"


@dataclass(frozen=True)
class PayloadEntry:
    """One labelled field of a payload, at *offset* bytes from its start."""

    label: str
    type: int
    offset: int


@dataclass(frozen=True)
class PayloadSchema:
    """The payload one NCCL function attaches to its range."""

    schema_id: int
    entries: tuple[PayloadEntry, ...]

    @property
    def labels(self) -> tuple[str, ...]:
        """Labels of the entries, in order."""
        return tuple(entry.label for entry in self.entries)

    @property
    def size_bytes(self) -> int:
        """Size of the C struct: the entries, padded to 8 bytes."""
        last = self.entries[-1]
        return -(-(last.offset + _width_bytes(last.type)) // 8) * 8


def _width_bytes(entry_type: int) -> int:
    return 8 if entry_type in (_UINT64, _SIZE) else 4


def _schema(number: int, *fields: tuple[str, int]) -> PayloadSchema:
    """Lay out *fields* one after another; the communicator id always comes first."""
    entries = []
    offset = 0
    for label, entry_type in ((COMMUNICATOR, _UINT64), *fields):
        entries.append(PayloadEntry(label, entry_type, offset))
        offset += _width_bytes(entry_type)
    return PayloadSchema(STATIC_SCHEMA + number, tuple(entries))


_SIZE_FIELD = (SIZE, _SIZE)
_REDUCTION_FIELD = (REDUCTION, REDUCTION_ENUM)
_ROOT_FIELD = (ROOT, _INT)
_PEER_FIELD = (PEER, _INT)
_MEMBERSHIP = ((RANKS, _INT), (RANK, _INT), (DEVICE, _INT))

NCCL_PAYLOADS = {
    "ncclCommInitRank": _schema(0, *_MEMBERSHIP),
    "ncclCommInitAll": _schema(1, ("No. of devices", _INT)),
    "ncclCommDestroy": _schema(2, *_MEMBERSHIP),
    "ncclCommAbort": _schema(3, *_MEMBERSHIP),
    "ncclAllGather": _schema(4, _SIZE_FIELD),
    "ncclAllReduce": _schema(5, _SIZE_FIELD, _REDUCTION_FIELD),
    "ncclBroadcast": _schema(6, _SIZE_FIELD, _ROOT_FIELD),
    "ncclReduceScatter": _schema(7, _SIZE_FIELD, _REDUCTION_FIELD),
    "ncclReduce": _schema(8, _SIZE_FIELD, _ROOT_FIELD, _REDUCTION_FIELD),
    "ncclSend": _schema(9, _SIZE_FIELD, _PEER_FIELD),
    "ncclRecv": _schema(10, _SIZE_FIELD, _PEER_FIELD),
    "ncclCommInitRankConfig": _schema(11, *_MEMBERSHIP),
    "ncclCommInitRankScalable": _schema(12, *_MEMBERSHIP),
    "ncclCommSplit": _schema(
        13, ("Parent NCCL communicator ID", _UINT64), *_MEMBERSHIP, ("Color", _INT), ("Key", _INT)
    ),
    "ncclCommFinalize": _schema(14),
    "ncclCommShrink": _schema(15, *_MEMBERSHIP, ("num_exclude", _INT)),
    "ncclAlltoAll": _schema(16, _SIZE_FIELD),
    "ncclGather": _schema(17, _SIZE_FIELD, _ROOT_FIELD),
    "ncclScatter": _schema(18, _SIZE_FIELD, _ROOT_FIELD),
}
"""Payload of each function that has one (NCCL 2.28.9); the others, such as ncclGroupStart, have none."""


def check_has_payload(function: str) -> None:
    """Raise `InputError` if NCCL attaches no payload to the ranges of *function*."""
    if function not in NCCL_PAYLOADS:
        known = ", ".join(sorted(NCCL_PAYLOADS))
        raise InputError(f"{function}: no NCCL function with a payload is called so; there are {known}")


def collective_payload(
    function: str,
    communicator: int,
    size_bytes: int,
    reduction: str | None,
    root: int | None,
    peer: int | None,
) -> dict[str, int | str]:
    """Return the payload of a collective or point-to-point call, in the order of its schema."""
    check_has_payload(function)
    labels = NCCL_PAYLOADS[function].labels
    if SIZE not in labels:
        raise InputError(f"{function}: moves no data, so it is no collective; use nccl_call")
    given = {REDUCTION: reduction, ROOT: root, PEER: peer}
    for label, value in given.items():
        if value is not None and label not in labels:
            raise InputError(f"{function}: its payload has no {label!r}; leave it out")
    values: dict[str, int | str] = {
        COMMUNICATOR: communicator,
        SIZE: size_bytes,
        REDUCTION: reduction or "Sum",
        ROOT: root or 0,
        PEER: peer or 0,
    }
    return {label: values[label] for label in labels}


def nccl_kernel_name(operation: str, dtype: str) -> str:
    """Return the kernel of NCCL 2.28: it says Sum and LL whatever the reduction and the protocol are."""
    if COLLECTIVES[operation].by_messages:
        name = SEND_RECV
    elif COLLECTIVES[operation].byte_counted:
        name = f"{operation}_RING_LL"
    else:
        name = f"{operation}_Sum_{dtype}_RING_LL"
    return f"ncclDevKernel_{name}(ncclDevKernelArgsStorage<(unsigned long)4096>)"


def payload_tables(functions: Iterable[str]) -> dict[str, list[Row]]:
    """Return the payload schemas one process registers when it calls *functions*.

    An offset of 0 and an enum value of 0 are exported as NULL.
    """
    schemas = [NCCL_PAYLOADS[function] for function in functions]
    tables: dict[str, list[Row]] = {
        "NVTX_PAYLOAD_SCHEMAS": [
            {
                "domainId": NCCL_DOMAIN,
                "schemaId": schema.schema_id,
                "type": 1,
                "numEntries": len(schema.entries),
                "payloadSize": schema.size_bytes,
            }
            for schema in schemas
        ],
        "NVTX_PAYLOAD_SCHEMA_ENTRIES": [
            {
                "domainId": NCCL_DOMAIN,
                "schemaId": schema.schema_id,
                "idx": idx,
                "type": entry.type,
                "name": entry.label,
                "offset": entry.offset or None,
            }
            for schema in schemas
            for idx, entry in enumerate(schema.entries)
        ],
    }
    if any(REDUCTION in schema.labels for schema in schemas):
        enum: Row = {"domainId": NCCL_DOMAIN, "schemaId": REDUCTION_ENUM}
        tables["NVTX_PAYLOAD_ENUMS"] = [{**enum, "numEntries": len(REDUCTIONS), "size": 4}]
        tables["NVTX_PAYLOAD_ENUM_ENTRIES"] = [
            {**enum, "idx": idx, "name": name, "value": idx or None} for idx, name in enumerate(REDUCTIONS)
        ]
    return tables


def kept_columns(omit_tables: Collection[str], omit_columns: Collection[str]) -> dict[str, tuple[Column, ...]]:
    """Return the columns to write of each table, without what is to be omitted."""
    known = {f"{table}.{column.name}" for table, columns in TABLES.items() for column in columns}
    for unknown in sorted(set(omit_tables) - TABLES.keys()) + sorted(set(omit_columns) - known):
        raise InputError(f"{unknown}: a synthetic export has no such table or column to omit")
    return {
        table: tuple(column for column in columns if f"{table}.{column.name}" not in omit_columns)
        for table, columns in TABLES.items()
        if table not in omit_tables
    }


def write_database(
    path: str | os.PathLike[str],
    columns: Mapping[str, Sequence[Column]],
    rows: Mapping[str, Sequence[Row]],
) -> None:
    """Create the database *path* with the tables of *columns* that have rows, in that order."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode = OFF")
        connection.execute("PRAGMA synchronous = OFF")
        connection.execute("BEGIN")
        for table, declared in columns.items():
            if not rows.get(table):
                continue
            definition = ",\n    ".join(map(str, declared))
            connection.execute(f"CREATE TABLE {table} (\n    {definition}\n)")
            places = ", ".join("?" * len(declared))
            values = ([row.get(column.name) for column in declared] for row in rows[table])
            connection.executemany(f"INSERT INTO {table} VALUES ({places})", values)
        connection.execute("COMMIT")
