"""One Nsight Systems SQLite export of stock NCCL to what it holds: calls, kernels, communicators.

A call is an NVTX range of the domain NCCL with a payload; the CUDA launch inside the range on the same thread leads,
by (process, correlation id), to its kernel.
"""

from __future__ import annotations

from typing import Any

from atlas_lp.errors import NoNcclError, PayloadError
from atlas_lp.signatures.nccl.collectives import CALLS
from atlas_lp.traces.nsight.export import Export, host_of, session_start
from atlas_lp.traces.nsight.kernels import (
    KernelRows,
    activity,
    context_positions,
    last_whole_graph,
    other_communication,
    read_copies,
    read_kernels,
    refuse_whole_graphs,
)
from atlas_lp.traces.nsight.launches import join
from atlas_lp.traces.nsight.lost import read_losses
from atlas_lp.traces.nsight.memberships import ID, MEMBERSHIP_CALLS, membership
from atlas_lp.traces.nsight.payloads import PayloadDecoder, communicator_id, no_payload_words, whole
from atlas_lp.traces.nsight.ranges import Range, innermost, nccl_ranges, parents_of
from atlas_lp.traces.nsight.selection import selected_windows
from atlas_lp.traces.nsight.work import Calls, read_work
from atlas_lp.traces.processes import THREAD_BITS, ProcessKey, pid_of
from atlas_lp.traces.records import SYNTHETIC, Call, FileRecords, Membership
from atlas_lp.traces.selection import Selection

SIZE, OLD_SIZE = "Message size [bytes]", "Bytes"
"""Labels of bytes; NCCL 2.16 .. 2.24 says ``Bytes`` for Broadcast, Send and Recv."""

ROOT, PEER, REDUCTION = "Root", "Peer rank", "Reduction operation"


def read_records(export: Export, selection: Selection) -> FileRecords:
    """Read all of one export, and where the ranges or marks of *selection* lie.

    Raises :class:`~atlas_lp.errors.TraceError` (unreadable, no NVTX, cut payloads),
    :class:`~atlas_lp.errors.PayloadError` and :class:`~atlas_lp.errors.NoNcclError`; each names the file and the fix.
    """
    decoder = PayloadDecoder(export)
    ranges = nccl_ranges(export, decoder)
    host, known = host_of(export)
    calls, members = _calls_and_members(export, host, ranges)
    if not calls:
        raise NoNcclError(f"{export.path}: NVTX events, but no NCCL operation in them; was NCCL_NVTX_DISABLE set?")
    if not any(ranges[number].payload for number in calls):
        refuse_whole_graphs(export)
        raise PayloadError(no_payload_words(export, decoder))
    shift = session_start(export)
    contexts = context_positions(export)
    rows = read_kernels(export, shift, contexts)
    alone = {(m.process, m.communicator) for m in members if m.ranks == 1}

    def launches(call: Call) -> bool:
        return not call.discarded and (call.process, call.communicator or 0) not in alone

    joined = join(ranges, calls, rows, launches)
    if any(not call.kernels and not call.discarded for call in joined.calls):
        _attach_copies(ranges, calls, read_copies(export, shift, contexts))
    processes = sorted(set(rows.process.tolist()) | {call.process[1] for call in joined.calls})
    cuda_calls = Calls.of(export, shift)
    work = read_work(export, shift, contexts, cuda_calls)
    losses, warnings = read_losses(export, processes, cuda_calls, work)
    return FileRecords(
        path=export.path,
        host=host,
        host_known=known,
        calls=joined.calls,
        members=members,
        activity=activity(export, host, shift),
        processes=processes,
        counts={
            "unattributed-kernels": joined.unattributed,
            "headless-kernels": joined.headless,
            "captured-calls": joined.captured,
            "other-communication": other_communication(export),
        },
        last_whole_graph_ns=last_whole_graph(export),
        reduction_schema=_reduction_schema(export),
        synthetic=SYNTHETIC in export.metadata(),
        work=work,
        windows=selected_windows(export, processes, selection),
        losses=losses,
        warnings=warnings,
        shift_ns=shift,
    )


def _reduction_schema(export: Export) -> int | None:
    """Id of the enum of reduction operations, which tells NCCL versions apart."""
    if not export.has("NVTX_PAYLOAD_SCHEMA_ENTRIES", "name", "type"):
        return None
    rows = export.rows(
        "SELECT DISTINCT type FROM NVTX_PAYLOAD_SCHEMA_ENTRIES WHERE name = ? ORDER BY type", (REDUCTION,)
    )
    return rows[0][0] if rows and isinstance(rows[0][0], int) else None


def _calls_and_members(export: Export, host: str, ranges: list[Range]) -> tuple[dict[int, Call], list[Membership]]:
    """Calls by number of their range, and what ranges say about communicators."""
    calls: dict[int, Call] = {}
    members: list[Membership] = []
    lacking: list[int] = []
    for number, one in enumerate(ranges):
        process = (host, one.thread & ~THREAD_BITS)
        place = f"{export.path}: {one.name} at {one.start} ns of process {pid_of(one.thread)}"
        if one.name in CALLS:
            calls[number] = _call(process, one, place)
            if not one.payload:
                lacking.append(number)
        elif one.name in MEMBERSHIP_CALLS:
            member = membership(one.name, one.payload, process, one.start, place)
            if member is not None:
                members.append(member)
    if lacking and len(lacking) < len(calls):
        one = ranges[lacking[0]]
        raise PayloadError(
            f"{export.path}: {len(lacking)} of {len(calls)} NCCL calls have no payload, first {one.name} at "
            f"{one.start} ns of process {pid_of(one.thread)}"
        )
    return calls, members


def _call(process: ProcessKey, one: Range, place: str) -> Call:
    payload: dict[str, Any] = one.payload
    size = -1
    if payload:
        size = whole(payload, SIZE if SIZE in payload else OLD_SIZE, place)
    return Call(
        process=process,
        type=CALLS[one.name],
        order=(one.start, 0),
        communicator=communicator_id(payload, ID, place) if ID in payload else None,
        size_bytes=size,
        root=whole(payload, ROOT, place, -1, 2**22) if ROOT in payload else -1,
        peer=whole(payload, PEER, place, -1, 2**22) if PEER in payload else -1,
        reduction=str(payload.get(REDUCTION, "")),
        is_open=one.end is None,
    )


def _attach_copies(ranges: list[Range], calls: dict[int, Call], copies: KernelRows) -> None:
    """Give calls without a kernel the copies launched inside them: copy engines (NCCL 2.28+), or one rank alone."""
    parents = parents_of(ranges)
    for number, at in enumerate(innermost(ranges, parents, copies.thread, copies.launch)):
        while at >= 0 and at not in calls:
            at = parents[at]
        if at >= 0 and all(kernel.name == "memcpy" for kernel in calls[at].kernels):
            calls[at].kernels = [*calls[at].kernels, copies.kernels[number]]
