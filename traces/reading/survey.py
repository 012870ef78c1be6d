"""What exports hold that cannot be analyzed: NCCL calls without bytes, counted as far as they were recorded."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from atlas_lp.signatures.nccl.collectives import CALLS
from atlas_lp.traces.nsight.export import Export, host_of, open_export
from atlas_lp.traces.nsight.kernels import KernelRows, context_positions, read_kernels
from atlas_lp.traces.nsight.payloads import PayloadDecoder, no_payload_words
from atlas_lp.traces.nsight.ranges import Range, nccl_ranges
from atlas_lp.traces.processes import THREAD_BITS, pid_of
from atlas_lp.traces.reading.files import exports_of
from atlas_lp.traces.records import GROUP_END, GROUP_START, Call


@dataclass(frozen=True)
class ProcessSurvey:
    """Counts of one process: NCCL functions called, outermost groups, kernels, and kernels whose launch was cut."""

    host: str
    pid: int
    calls: tuple[tuple[str, int], ...]
    groups: int
    kernels: tuple[tuple[str, int], ...]
    devices: tuple[int, ...]
    headless: int

    def as_json(self) -> dict[str, Any]:
        """Return the fields as plain values."""
        return {
            "host": self.host,
            "pid": self.pid,
            "calls": dict(self.calls),
            "groups": self.groups,
            "kernels": dict(self.kernels),
            "devices": list(self.devices),
            "kernels_without_launch": self.headless,
        }


@dataclass(frozen=True)
class Survey:
    """What was counted, by process, and why it is no trace."""

    files: tuple[str, ...]
    nsys: tuple[str, ...]
    processes: tuple[ProcessSurvey, ...]
    reason: str


def survey(names: Sequence[str | Path]) -> Survey:
    """Count what the exports hold, in an order that depends on their content alone.

    Raises :class:`~atlas_lp.errors.TraceError` and :class:`~atlas_lp.errors.NoNcclError` as reading does, but not
    :class:`~atlas_lp.errors.PayloadError`, whose words become the ``reason``.
    """
    files: list[str] = []
    versions: set[str] = set()
    processes: list[ProcessSurvey] = []
    reason = ""
    with exports_of(names) as paths:
        for path in paths:
            with open_export(path) as export:
                files.append(str(path))
                metadata = export.metadata()
                version = metadata.get("EXPORT_PRODUCT_VERSION", "unknown")
                versions.add(f"{version}, schema {metadata.get('EXPORT_SCHEMA_VERSION', 'unknown')}")
                found, problem = _one(export)
                processes.extend(found)
                reason = reason or problem
    processes.sort(key=lambda one: (one.host, one.pid, one.calls, one.kernels))
    return Survey(tuple(files), tuple(sorted(versions)), tuple(processes), reason)


def _one(export: Export) -> tuple[list[ProcessSurvey], str]:
    decoder = PayloadDecoder(export)
    ranges = nccl_ranges(export, decoder)
    rows = read_kernels(export, 0, context_positions(export))
    host, _ = host_of(export)
    calls = {
        number: Call((host, one.thread & ~THREAD_BITS), CALLS[one.name], (one.start, 0), None, 1)
        for number, one in enumerate(ranges)
        if one.name in CALLS
    }
    processes = sorted({one.thread & ~THREAD_BITS for one in ranges} | set(rows.process.tolist()))
    found = [_process(host, process, ranges, rows) for process in processes]
    reason = "" if any(one.payload for one in ranges) else no_payload_words(export, decoder)
    return (found, reason) if calls else (found, "no NCCL call that moves data was recorded")


def _process(host: str, process: int, ranges: list[Range], rows: KernelRows) -> ProcessSurvey:
    mine = [one for one in ranges if one.thread & ~THREAD_BITS == process]
    kernels = [n for n, owner in enumerate(rows.process.tolist()) if owner == process]
    depth: Counter[int] = Counter()
    groups = 0
    for one in mine:
        if one.name == GROUP_START:
            depth[one.thread] += 1
        elif one.name == GROUP_END:
            depth[one.thread] -= 1
            groups += depth[one.thread] <= 0
            depth[one.thread] = max(depth[one.thread], 0)
    return ProcessSurvey(
        host,
        pid_of(process),
        tuple(sorted(Counter(one.name for one in mine).items())),
        groups,
        tuple(sorted(Counter(rows.kernels[n].name for n in kernels).items())),
        tuple(sorted({rows.kernels[n].device for n in kernels})),
        sum(int(rows.launch[n]) < 0 for n in kernels),
    )
