"""Companions of a trace: sources that fill what it lacks, matched to the operations they describe.

Per field the order is recorded, companion, inferred, assumed; what the user assumes in a file stands in for what
would have been inferred, and says so.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow as pa

from atlas_lp.signatures.nccl.collectives import known_as
from atlas_lp.traces.companions import assumptions, debug_log, profiler_dump
from atlas_lp.traces.companions.assumptions import Assumptions, read_assumptions
from atlas_lp.traces.companions.debug_log import DebugLog, Decision, read_logs
from atlas_lp.traces.companions.profiler_dump import read_dumps
from atlas_lp.traces.records import Rings
from atlas_lp.traces.topology import topology_of
from atlas_lp.traces.trace import Gap, Sourced, Topology, Trace

_Key = tuple[int, str, int]
"""Communicator number, type, bytes."""


@dataclass(frozen=True)
class Companions:
    """Files that belong to a trace: NCCL debug logs, profiler-plugin dumps, assumptions; each is read once."""

    nccl_logs: Sequence[Path] = ()
    profiler_dumps: Sequence[Path] = ()
    assumptions: Path | None = None

    def add_to(self, trace: Trace) -> Trace:
        """Return *trace* with what the files say; raises what reading them raises."""
        if self.nccl_logs:
            trace = _add_log(trace, self._log)
        if self.profiler_dumps:
            trace = _add_decisions(trace, self._dumped, profiler_dump.SOURCE, {})
        if self._assumed is not None:
            trace = _add_assumptions(trace, self._assumed)
        return trace

    @cached_property
    def _log(self) -> DebugLog:
        return read_logs([Path(path) for path in self.nccl_logs])

    @cached_property
    def _dumped(self) -> list[Decision]:
        return read_dumps([Path(path) for path in self.profiler_dumps])

    @cached_property
    def _assumed(self) -> Assumptions | None:
        return None if self.assumptions is None else read_assumptions(self.assumptions)


class _Fields:
    """The columns of operations that companions may fill, as lists; a field that has a source keeps it."""

    NAMES = ("algorithm", "protocol", "choice_source", "channels", "channel_source", "element_bytes", "element_source")

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.columns: dict[str, list[Any]] = {n: trace.operations.column(n).to_pylist() for n in self.NAMES}

    def fill(self, row: int, source: str, algorithm: str, protocol: str, channels: int, element_bytes: int) -> None:
        """Set what a companion says of one operation."""
        columns = self.columns
        if not columns["choice_source"][row] and (algorithm or protocol):
            columns["algorithm"][row], columns["protocol"][row] = algorithm, protocol
            columns["choice_source"][row] = source
        if channels and columns["channel_source"][row].startswith(("inferred", "assumed:")):
            columns["channels"][row], columns["channel_source"][row] = channels, source
        if element_bytes and not columns["element_source"][row]:
            columns["element_bytes"][row], columns["element_source"][row] = element_bytes, source

    def trace_with(self, **changes: Any) -> Trace:
        """Return the trace with the columns as they are now."""
        table = self.trace.operations
        for name, values in self.columns.items():
            place = table.schema.get_field_index(name)
            table = table.set_column(place, name, pa.array(values, type=table.schema.field(name).type))
        return replace(self.trace, operations=table, **changes)


def _add_log(trace: Trace, log: DebugLog) -> Trace:
    number_of = _matched_communicators(trace, log)
    trace = _add_decisions(trace, log.decisions, debug_log.SOURCE, number_of)
    topologies = list(trace.topologies or [Topology()] * trace.communicators.num_rows)
    for identity, number in number_of.items():
        logged = log.communicators[identity]
        p2p = (logged.p2p_channels, logged.p2p_channels_per_peer)
        rings = Rings(identity, tuple(sorted(logged.next_rank)), tuple(sorted(logged.trees)), debug_log.SOURCE, p2p)
        found = topology_of([rings], identity, logged.ranks)
        if (found.rings or found.p2p_channels[0]) and not topologies[number].source:
            topologies[number] = found
    version = trace.nccl_version
    if log.version is not None and not version.source.startswith("recorded"):
        version = Sourced(log.version, debug_log.SOURCE)
    gaps = list(trace.gaps)
    unknown = len(log.communicators) - len(number_of)
    if unknown:
        gaps.append(Gap("log-communicators", unknown, "communicators of the NCCL log that the trace does not have"))
    for kind, count in sorted(log.others.items()):
        gaps.append(Gap("log-choices", count, f"choices of the NCCL log that have no schedule: {kind}"))
    return replace(trace, topologies=tuple(topologies), nccl_version=version, gaps=tuple(sorted(gaps)))


def _matched_communicators(trace: Trace, log: DebugLog) -> dict[int, int]:
    """Number in the trace of every logged communicator: by its id, or as the only one with so many ranks."""
    identities: list[int] = trace.communicators["id"].to_pylist()
    ranks: list[int] = trace.communicators["ranks"].to_pylist()
    matched = {identity: identities.index(identity) for identity in log.communicators if identity in identities}
    free = [number for number in range(len(ranks)) if number not in matched.values()]
    for identity, logged in sorted(log.communicators.items()):
        if identity in matched:
            continue
        fits = [number for number in free if ranks[number] == logged.ranks]
        alike = [i for i, other in log.communicators.items() if i not in matched and other.ranks == logged.ranks]
        if len(fits) == len(alike) == 1:
            matched[identity] = fits[0]
            free.remove(fits[0])
    return matched


def _add_decisions(trace: Trace, decisions: Sequence[Decision], source: str, number_of: dict[int, int]) -> Trace:
    """Match decisions to operations by communicator, type and bytes; in order where they differ."""
    fields = _Fields(trace)
    rows = _rows_by_key(trace)
    identities: list[int] = trace.communicators["id"].to_pylist()
    unmatched = ambiguous = 0
    for (identity, kind, size), mine in _grouped(decisions).items():
        number = number_of.get(identity) if identity is not None else None
        if number is None and identity in identities:
            number = identities.index(identity)
        keys = [
            key for key in rows if key[2] == size and kind in (None, key[1]) and (identity is None or key[0] == number)
        ]
        if not keys:
            unmatched += len(mine)
        elif len(set(mine)) == 1:
            for key in keys:
                for row in (row for instance in rows[key] for row in instance):
                    _fill(fields, row, source, mine[0])
        elif len(keys) == 1 and len(rows[keys[0]]) == len(mine):
            for instance, decision in zip(rows[keys[0]], mine, strict=True):
                for row in instance:
                    _fill(fields, row, source, decision)
        else:
            ambiguous += len(mine)
    gaps = list(trace.gaps)
    if unmatched:
        gaps.append(Gap("companion-unmatched", unmatched, f"choices of the {source} that fit no operation"))
    if ambiguous:
        words = f"choices of the {source} that differ for equal collectives, in another number than recorded: not used"
        gaps.append(Gap("companion-ambiguous", ambiguous, words))
    return fields.trace_with(gaps=tuple(sorted(gaps)))


def _fill(fields: _Fields, row: int, source: str, decision: Decision) -> None:
    fields.fill(row, source, decision.algorithm, decision.protocol, decision.channels, decision.element_bytes)


def _grouped(decisions: Sequence[Decision]) -> dict[tuple[int | None, str | None, int], list[Decision]]:
    grouped: defaultdict[tuple[int | None, str | None, int], list[Decision]] = defaultdict(list)
    for decision in decisions:
        grouped[decision.communicator, decision.type and known_as(decision.type), decision.size_bytes].append(decision)
    return grouped


def _rows_by_key(trace: Trace) -> dict[_Key, list[list[int]]]:
    """Rows of the operations of every instance, by what a decision names."""
    names = ("communicator", "type", "size_bytes", "sequence")
    columns = [trace.operations.column(name).to_pylist() for name in names]
    instances: defaultdict[_Key, dict[int, list[int]]] = defaultdict(dict)
    for row, (communicator, kind, size, sequence) in enumerate(zip(*columns, strict=True)):
        if sequence >= 0:
            instances[communicator, kind, size].setdefault(sequence, []).append(row)
    return {key: [rows for _, rows in sorted(found.items())] for key, found in instances.items()}


def _add_assumptions(trace: Trace, assumed: Assumptions) -> Trace:
    fields = _Fields(trace)
    identities: list[int] = trace.communicators["id"].to_pylist()
    columns = [trace.operations.column(name).to_pylist() for name in ("communicator", "type", "size_bytes")]
    used: set[int] = set()
    for row, (number, kind, size) in enumerate(zip(*columns, strict=True)):
        for position, entry in enumerate(assumed.collectives):
            if entry.fits(identities[number], kind, size):
                used.add(position)
                fields.fill(
                    row, assumptions.SOURCE, entry.algorithm, entry.protocol, entry.channels, entry.element_bytes
                )
                break
    topologies = list(trace.topologies or [Topology()] * len(identities))
    for number, (identity, ranks) in enumerate(zip(identities, trace.communicators["ranks"].to_pylist(), strict=True)):
        rings = assumed.rings.get(identity, ())
        if rings and len(rings[0]) == ranks and not topologies[number].rings:
            topologies[number] = Topology(rings, (), assumptions.SOURCE)
    gaps = list(trace.gaps)
    idle = len(assumed.collectives) - len(used) + len(set(assumed.rings) - set(identities))
    if idle:
        gaps.append(Gap("assumptions-unused", idle, "assumptions that fit nothing in the trace"))
    return fields.trace_with(topologies=tuple(topologies), gaps=tuple(sorted(gaps)))
