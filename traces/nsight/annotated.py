"""Text annotations of the patched NCCL 2.20.5 of the ATLAHS tool chain (ZhiyiHu1999/nccl_nvtx_v2.20.5-1 9b3fd8c).

Every line is an NVTX event of the default domain and ends in ``pid <pid>``.  They give rings, trees, algorithm,
protocol and the work of every channel, so nothing is inferred.  ``commHash`` is a handle of one rank; ranks share
``commId``, and the same ``commId`` made again is another communicator.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

from atlas_lp.errors import NoNcclError, TraceError
from atlas_lp.signatures.nccl.codes import ALGORITHMS, PROTOCOLS, REDUCTIONS
from atlas_lp.signatures.nccl.collectives import CALLS
from atlas_lp.texts import integer
from atlas_lp.traces.advice import GRAPH_ADVICE
from atlas_lp.traces.nsight.export import Export, host_of, session_start
from atlas_lp.traces.nsight.kernels import (
    KernelRows,
    activity,
    context_positions,
    read_kernels,
    refuse_whole_graphs,
)
from atlas_lp.traces.nsight.launches import Unit, distribute
from atlas_lp.traces.nsight.lost import read_losses
from atlas_lp.traces.nsight.ranges import events_table, text_sql
from atlas_lp.traces.nsight.selection import selected_windows
from atlas_lp.traces.nsight.work import Calls
from atlas_lp.traces.processes import THREAD_BITS, ProcessKey
from atlas_lp.traces.records import INIT, SYNTHETIC, Call, Choice, FileRecords, Membership, Rings
from atlas_lp.traces.selection import Selection

SOURCE = "recorded: NCCL annotation"
VERSION = "2.20.5"

_PATTERNS = {
    "init": r"commHash (?P<hash>\S+) commId (?P<id>\S+) rank (?P<rank>\d+) nranks (?P<ranks>\d+) pid \d+",
    "ring": r"commHash (?P<hash>\S+) Rings \[(?P<channel>\d+)\] \d+->(?P<rank>\d+)->(?P<next>\d+) pid \d+",
    "tree": r"commHash (?P<hash>\S+) Trees \[(?P<channel>\d+)\] (?P<a>-?\d+)/(?P<b>-?\d+)/(?P<c>-?\d+)->(?P<rank>-?\d+)"
    r"->(?P<up>-?\d+) pid \d+",
    "call": r"(?P<name>nccl[A-Z]\w+)\(\): commHash (?P<hash>\S+), stream (?P<stream>\S+), data_size (?P<size>\d+), "
    r"type_size (?P<type_size>\d+),?(?: red_op (?P<red_op>\d+),)?(?: root (?P<root>\d+),)?"
    r"(?: (?:receiver|sender)_rank (?P<peer>\d+),)? pid \d+",
    "channels": r"\d+ coll channels, \d+ nvls channels, (?P<p2p>\d+) p2p channels, "
    r"(?P<peer>\d+) p2p channels per peer, pid \d+",
    "group-start": r"ncclGroupStart\(\): pid \d+",
    "group-end": r"ncclGroupEnd\(\): pid \d+",
    "launch": r"ncclLaunchKernel\(\): pid \d+",
    "choice": r"collType \d+ root \d+ redOp \d+ algo (?P<algo>\d+) proto (?P<proto>\d+) commHash (?P<hash>\S+) "
    r"stream \S+ data_size (?P<size>\d+) type_size (?P<type_size>\d+) chunkSize (?P<chunk>\d+) .*pid \d+",
    "part": r"nWarps (?P<warps>\d+) count \d+ chunkCount \d+ workCount (?P<work>\d+) "
    r"lastChunkCount (?P<last>\d+) .*pid \d+",
    "alone": r"Not executed in ncclkernel: comm->nRanks == 1 pid \d+",
}
_EXPRESSIONS = {kind: re.compile(pattern, re.ASCII) for kind, pattern in _PATTERNS.items()}
_GLOBS = (
    "commHash *",
    "nccl[A-Z]*(): *pid *",
    "collType *",
    "nWarps *",
    "[0-9]* coll channels, *",
    "Not executed in ncclkernel: *",
)


@dataclass(frozen=True, slots=True)
class Line:
    """One recognised line: its kind, fields, thread and times."""

    thread: int
    start: int
    end: int
    kind: str
    fields: dict[str, str | None]


@dataclass
class _Handle:
    """A communicator as one rank knows it."""

    identity: int
    rank: int
    ranks: int
    process: ProcessKey
    time_ns: int
    made_ns: int
    device: int = -1


@dataclass
class _Reader:
    """State of one file while its lines are read in order of time, thread by thread."""

    host: str
    handles: dict[tuple[int, int], list[_Handle]] = field(default_factory=dict)
    units: list[Unit] = field(default_factory=list)
    handle_of: dict[Call, _Handle] = field(default_factory=dict)
    launches: list[tuple[int, int, int]] = field(default_factory=list)
    """(process, time, number of the unit)."""
    next_rank: defaultdict[int, set[tuple[int, int, int]]] = field(default_factory=lambda: defaultdict(set))
    trees: defaultdict[int, set[tuple[int, int, int, tuple[int, ...]]]] = field(
        default_factory=lambda: defaultdict(set)
    )
    p2p_channels: dict[int, tuple[int, int]] = field(default_factory=dict)
    alone: set[Call] = field(default_factory=set)
    _depth: int = 0
    _chosen: Call | None = None


def present(export: Export) -> bool:
    """Whether the export has a call or a communicator in the format of the annotations."""
    table = export.table("NVTX_EVENTS")
    if table is None or not export.has(table, "start", "end", "globalTid"):
        return False
    globs = ("commHash 0x* commId 0x* rank * nranks * pid *", "nccl[A-Z]*(): commHash *")
    return bool(export.rows(f"SELECT 1 FROM {table} n WHERE {_matches(export, table, globs)} LIMIT 1"))


def _matches(export: Export, table: str, globs: tuple[str, ...]) -> str:
    """SQL condition: the text, inline or registered, has one of the forms."""
    parts = []
    if export.has(table, "text"):
        parts += [f"n.text GLOB '{glob}'" for glob in globs]
    if export.has(table, "textId") and export.has("StringIds", "id", "value"):
        inner = " OR ".join(f"value GLOB '{glob}'" for glob in globs)
        parts.append(f"n.textId IN (SELECT id FROM StringIds WHERE {inner})")
    return f"({' OR '.join(parts) or '0'})"


def read_records(export: Export, selection: Selection) -> FileRecords:
    """Read all of one annotated export, and where the ranges or marks of *selection* lie.

    Raises :class:`~atlas_lp.errors.TraceError` when calls were launched but no kernels were recorded.
    """
    host, known = host_of(export)
    reader = _Reader(host)
    inits = sorted(_lines(export), key=lambda line: line.kind != "init")
    for line in inits:
        _take(reader, line, export)
    if not reader.units:
        raise NoNcclError(f"{export.path}: NCCL communicators were annotated, but no call")
    shift = session_start(export)
    rows = _kernels(export, shift, bool(reader.launches))
    counts = _attach(reader, rows)
    members = [
        Membership(INIT, h.process, h.time_ns, h.identity, h.ranks, h.rank, h.device)
        for mine in reader.handles.values()
        for h in mine
        if h.device >= 0 or h.ranks == 1
    ]
    for number, unit in enumerate(reader.units):
        for call in unit.calls:
            call.launch = number
    calls = [call for unit in reader.units for call in unit.calls]
    processes = sorted(set(rows.process.tolist()) | {call.process[1] for call in calls})
    losses, warnings = read_losses(export, processes, Calls.of(export, shift), None)
    return FileRecords(
        path=export.path,
        host=host,
        host_known=known,
        calls=calls,
        members=members,
        activity=activity(export, host, shift),
        processes=processes,
        counts=counts,
        rings=[
            Rings(
                identity,
                tuple(sorted(reader.next_rank[identity])),
                tuple(sorted(reader.trees[identity])),
                SOURCE,
                reader.p2p_channels.get(identity, (0, 0)),
            )
            for identity in sorted({*reader.next_rank, *reader.trees, *reader.p2p_channels})
        ],
        recorded_version=VERSION,
        synthetic=SYNTHETIC in export.metadata(),
        windows=selected_windows(export, processes, selection),
        losses=losses,
        warnings=warnings,
        shift_ns=shift,
    )


def _lines(export: Export) -> Iterator[Line]:
    table = events_table(export)
    text, join = text_sql(export, table)
    inside = "(n.domainId IS NULL OR n.domainId = 0)" if export.has(table, "domainId") else "1"
    rows = export.stream(
        f"SELECT n.globalTid, n.start, n.end, {text} AS line FROM {table} n {join} WHERE {inside} "
        f"AND {_matches(export, table, _GLOBS)} ORDER BY n.globalTid, n.start, n.end IS NOT NULL, n.end DESC, line"
    )
    for thread, start, end, words in rows:
        if not (isinstance(thread, int) and isinstance(start, int) and isinstance(words, str)):
            raise TraceError(f"{export.path}: table {table}: an annotation has no readable thread, time or text")
        for kind, expression in _EXPRESSIONS.items():
            found = expression.fullmatch(words)
            if found:
                yield Line(thread, start, end if isinstance(end, int) else start, kind, found.groupdict())
                break


def _number(line: Line, name: str) -> int:
    text = line.fields.get(name)
    if text is None:
        return -1
    found = integer(text)
    return 2**62 if found is None else min(found, 2**62)


def _take(reader: _Reader, line: Line, export: Export) -> None:
    """Add one line to what the file holds."""
    process = line.thread & ~THREAD_BITS
    kind = line.kind
    if kind in _TAKERS:
        _TAKERS[kind](reader, line, export)
    elif kind == "group-start":
        reader._depth += 1
        if reader._depth == 1:
            reader.units.append(Unit([]))
    elif kind == "group-end":
        reader._depth = max(reader._depth - 1, 0)
    elif kind == "launch" and reader.units:
        reader.launches.append((process, line.start, len(reader.units) - 1))
    elif kind == "alone" and reader.units:
        reader.alone.update(reader.units[-1].calls)


def _take_init(reader: _Reader, line: Line, export: Export) -> None:
    process = line.thread & ~THREAD_BITS
    ranks, rank = _number(line, "ranks"), _number(line, "rank")
    if not 0 <= rank < ranks <= 2**22:
        raise TraceError(f"{export.path}: a communicator annotation says rank {rank} of {ranks}")
    handle = _Handle(_hex(line, "id", export), rank, ranks, (reader.host, process), line.start, line.end)
    reader.handles.setdefault((process, _hex(line, "hash", export)), []).append(handle)


def _take_channels(reader: _Reader, line: Line, _: Export) -> None:
    """Channel counts name no communicator: they lie inside the range that made it."""
    for handle in (h for mine in reader.handles.values() for h in mine):
        if handle.process[1] == line.thread & ~THREAD_BITS and handle.time_ns <= line.start <= handle.made_ns:
            reader.p2p_channels[handle.identity] = (_number(line, "p2p"), _number(line, "peer"))


def _take_part(reader: _Reader, line: Line, _: Export) -> None:
    """Channel parts follow the choice they belong to."""
    call = reader._chosen
    if call is not None and call.choice is not None:
        parts = (*call.choice.parts, (_number(line, "work"), _number(line, "last")))
        call.choice = replace(call.choice, channels=len(parts), parts=parts)


def _hex(line: Line, name: str, export: Export) -> int:
    found = integer(f"0x{(line.fields[name] or '').removeprefix('0x')}")
    if found is None:
        raise TraceError(f"{export.path}: the annotation at {line.start} ns has no readable {name}")
    return found


def _handle(reader: _Reader, line: Line, export: Export) -> _Handle:
    """Newest communicator of that handle made before the line."""
    key = (line.thread & ~THREAD_BITS, _hex(line, "hash", export))
    made = [h for h in reader.handles.get(key, []) if h.time_ns <= line.start]
    if not made:
        raise TraceError(
            f"{export.path}: communicator {key[1]:#x} is used at {line.start} ns, but its creation was not recorded; "
            "start the capture before ncclCommInit"
        )
    return made[-1]


def _take_topology(reader: _Reader, line: Line, export: Export) -> None:
    key = (line.thread & ~THREAD_BITS, _hex(line, "hash", export))
    for handle in reader.handles.get(key, [])[:1]:
        channel, rank = _number(line, "channel"), _number(line, "rank")
        if line.kind == "ring":
            reader.next_rank[handle.identity].add((channel, rank, _number(line, "next")))
        else:
            children = tuple(c for c in (_number(line, n) for n in "abc") if c >= 0)
            reader.trees[handle.identity].add((channel, rank, _number(line, "up"), children))


def _take_call(reader: _Reader, line: Line, export: Export) -> None:
    if line.fields["name"] not in CALLS:
        return
    handle = _handle(reader, line, export)
    if max(_number(line, name) for name in ("root", "peer", "type_size")) >= 2**22:
        raise TraceError(f"{export.path}: an annotation at {line.start} ns has an impossible root, peer or type size")
    reduction = _number(line, "red_op")
    call = Call(
        process=handle.process,
        type=CALLS[line.fields["name"] or ""],
        order=(line.start, 0),
        communicator=handle.identity,
        size_bytes=_number(line, "size"),
        root=_number(line, "root"),
        peer=_number(line, "peer"),
        reduction=REDUCTIONS[reduction] if 0 <= reduction < len(REDUCTIONS) else "",
    )
    call.choice = Choice(SOURCE, element_bytes=_number(line, "type_size"))
    reader.handle_of[call] = handle
    if reader._depth:
        reader.units[-1].calls.append(call)
    else:
        reader.units.append(Unit([call]))


def _take_choice(reader: _Reader, line: Line, export: Export) -> None:
    """Give the line to the first call of the unit that fits: in groups lines come in the order of NCCL's plan."""
    algorithm, protocol = _number(line, "algo"), _number(line, "proto")
    if algorithm >= len(ALGORITHMS) or protocol >= len(PROTOCOLS):
        raise TraceError(f"{export.path}: unknown algorithm {algorithm} or protocol {protocol} at {line.start} ns")
    handle, size = _handle(reader, line, export), _number(line, "size")
    reader._chosen = None
    for call in reader.units[-1].calls if reader.units else []:
        fits = reader.handle_of[call] is handle and call.size_bytes == size
        if fits and call.choice is not None and not call.choice.algorithm:
            call.choice = replace(call.choice, algorithm=ALGORITHMS[algorithm], protocol=PROTOCOLS[protocol])
            reader._chosen = call
            return


_TAKERS: dict[str, Callable[[_Reader, Line, Export], None]] = {
    "init": _take_init,
    "channels": _take_channels,
    "ring": _take_topology,
    "tree": _take_topology,
    "call": _take_call,
    "choice": _take_choice,
    "part": _take_part,
}


def _kernels(export: Export, shift: int, launched: bool) -> KernelRows:
    refuse_whole_graphs(export)
    rows = read_kernels(export, shift, context_positions(export), with_launches=False)
    if launched and not rows.kernels:
        raise TraceError(f"{export.path}: NCCL launched kernels, but none was recorded; {GRAPH_ADVICE}")
    return rows


def _attach(reader: _Reader, rows: KernelRows) -> dict[str, int]:
    """Pair launches and kernels of each process in order; a missing head is taken from the front of the kernels."""
    counts = {"headless-kernels": 0}
    waiting: defaultdict[int, list[int]] = defaultdict(list)
    order = rows.launch if (rows.launch >= 0).all() else None
    for number in sorted(
        range(len(rows.kernels)), key=lambda n: (int(order[n]) if order is not None else 0, rows.kernels[n], n)
    ):
        waiting[int(rows.process[number])].append(number)
    for process in sorted(waiting):
        launches = sorted(launch for launch in reader.launches if launch[0] == process)
        kernels = waiting[process]
        surplus = max(len(kernels) - len(launches), 0)
        counts["headless-kernels"] += surplus
        for (_, _, unit), number in zip(launches, kernels[surplus:], strict=False):
            reader.units[unit].kernels.append(rows.kernels[number])
    distribute(reader.units, lambda call: not call.discarded and call not in reader.alone)
    for one in reader.units:
        for call in one.calls:
            if call.kernels:
                reader.handle_of[call].device = call.kernels[0].device
    return counts
