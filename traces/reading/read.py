"""The front door: names on the command line to one :class:`Trace`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate
from pathlib import Path

from atlas_lp.errors import TraceError
from atlas_lp.traces.companions.companions import Companions
from atlas_lp.traces.join.merge import merge
from atlas_lp.traces.kineto import reader as kineto
from atlas_lp.traces.nsight import annotated
from atlas_lp.traces.nsight import reader as nsight
from atlas_lp.traces.nsight.export import open_export
from atlas_lp.traces.reading.files import PACKED, exports_of
from atlas_lp.traces.reading.packed import read_packed
from atlas_lp.traces.records import Part
from atlas_lp.traces.selection import Selection, select_window
from atlas_lp.traces.trace import Trace

Progress = Callable[[str, int, int], None]
"""Called with a stage, how much of it is done, and how much there is (0: not known)."""


def read_trace(
    names: Sequence[str | Path],
    *,
    selection: Selection | None = None,
    allow_missing: bool = False,
    companions: Companions | None = None,
    progress: Progress | None = None,
) -> Trace:
    """Read the files of one job (files, folders or globs) into a :class:`Trace`.

    *selection* says which part; *allow_missing* reads on when ranks of a communicator are missing, which is named as a
    gap; *companions* fill what the trace lacks; *progress* is told the megabytes of the files that are done.

    Raises :class:`~atlas_lp.errors.TraceError` (unreadable, cut, missing ranks), :class:`~atlas_lp.errors.PayloadError`
    (no bytes), :class:`~atlas_lp.errors.NoNcclError` and :class:`~atlas_lp.errors.MismatchError` (ranks disagree, two
    files of one rank); each names the file and the fix.
    """
    chosen = selection or Selection()
    parts: list[Part] = []
    kineto_parts: list[Part] = []
    with exports_of(names) as paths:
        packed = [path for path in paths if path.suffix == PACKED]
        if packed:
            trace = _packed(packed, len(paths), chosen)
            return trace if companions is None else companions.add_to(trace)
        for path in _told(paths, progress):
            if path.name.endswith(kineto.SUFFIXES):
                kineto_parts.append(kineto.read_part(path, chosen))
                continue
            with open_export(path) as export:
                reader = annotated if annotated.present(export) else nsight
                parts.append(reader.read_part(export, chosen))
    if parts and kineto_parts:
        raise TraceError(f"{parts[0].path} and {kineto_parts[0].path} are of different tools: give those of one")
    parts += kineto.place(kineto_parts)
    trace = merge(select_window(parts, chosen), allow_missing)
    return trace if companions is None else companions.add_to(trace)


def _packed(packed: Sequence[Path], files: int, selection: Selection) -> Trace:
    """Read the one packed trace asked for, which is whole."""
    if files > 1:
        raise TraceError(f"{packed[0]} is a whole job: give it alone, or the exports it was packed from")
    if selection != Selection():
        raise TraceError(f"{packed[0]} is packed: choose ranges, iterations and times when packing the exports")
    return read_packed(packed[0])


def _told(paths: Sequence[Path], progress: Progress | None) -> Iterator[Path]:
    """Yield *paths*, telling *progress* before each and after the last."""
    if progress is None:
        yield from paths
        return
    sizes = [path.stat().st_size for path in paths]
    megabytes = [done >> 20 for done in accumulate(sizes, initial=0)]
    for path, done in zip(paths, megabytes, strict=False):
        progress("reading (MB)", done, megabytes[-1])
        yield path
    progress("reading (MB)", megabytes[-1], megabytes[-1])
