"""Which part of a trace: an NVTX range and its instances, a time window, or the application's profiling marks."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

from atlas_lp.errors import TraceError
from atlas_lp.traces.processes import GpuKey
from atlas_lp.traces.records import Call, FileRecords, Window


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


def keep_windows(file: FileRecords, iteration: int | None = None) -> FileRecords:
    """Keep the calls issued inside the windows of their process, and clip the GPU activity to them.

    Windows are iterations from 0; *iteration* keeps one of them, as if it were the only one.  Without windows all is
    kept.  Nothing is changed in place, so the same records can be selected from again.
    """
    if not file.windows:
        return file
    chosen = {process: _chosen(windows, iteration) for process, windows in file.windows.items()}
    latest_end = {process: list(accumulate((end for _, end in mine), max)) for process, mine in chosen.items()}
    kept: list[Call] = []
    for call in file.calls:
        process, time = call.process[1], call.order[0]
        number = bisect_left(latest_end.get(process, ()), time)
        # Windows are sorted, so the first that ends late enough is the first around the call, or none is.
        if number < len(chosen.get(process, ())) and chosen[process][number][0] <= time:
            kept.append(replace(call, iteration=number))
    spans: dict[GpuKey, tuple[int, int]] = {}
    for (process_key, device), (first, last) in file.activity.items():
        mine = chosen.get(process_key[1], ())
        if mine:
            low, high = max(first, mine[0][0] + file.shift_ns), min(last, mine[-1][1] + file.shift_ns)
            spans[process_key, device] = (low, max(low, high))
    counts = {**file.counts, "outside-selection": len(file.calls) - len(kept)}
    return replace(file, calls=kept, activity=spans, counts=counts)


def _chosen(windows: Sequence[Window], iteration: int | None) -> Sequence[Window]:
    return windows if iteration is None else windows[iteration : iteration + 1]


def select_window(files: Sequence[FileRecords], selection: Selection) -> list[FileRecords]:
    """Keep the operations whose kernels start inside the window of time, on the clock of each host."""
    if not selection.is_timed:
        return list(files)
    origin: dict[str, int] = {}
    for file in files:
        for first, _ in file.activity.values():
            origin[file.host] = min(first, origin.get(file.host, first))
    result = []
    for file in files:
        begin = origin.get(file.host, 0)
        low = begin + (selection.from_ns or 0)
        high = begin + selection.to_ns if selection.to_ns is not None else 2**63 - 1
        kept = [call for call in file.calls if call.kernels and low <= min(call.kernels).start_ns < high]
        spans = {
            gpu: (min(max(first, low), last), min(last, high))
            for gpu, (first, last) in file.activity.items()
            if first < high and last > low
        }
        counts = {**file.counts, "outside-selection": len(file.calls) - len(kept)}
        result.append(replace(file, calls=kept, activity=spans, counts=counts))
    if not any(file.calls for file in result):
        raise TraceError("no NCCL operation starts in the window asked for; times count from the first GPU activity")
    return result
