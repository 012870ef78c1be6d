"""The files of one job, read once: a :class:`Recording`, and the traces it gives."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
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
from atlas_lp.traces.records import FileRecords
from atlas_lp.traces.selection import Selection, keep_windows, select_window
from atlas_lp.traces.trace import Trace

Progress = Callable[[str, int, int], None]
"""Called with a stage, how much of it is done, and how much there is (0: not known)."""


@dataclass(frozen=True)
class Recording:
    """The files of one job, read once: gives the trace of all iterations, and that of each alone.

    *files* are as they were read, before anything is selected; *hosts_recorded* is False for Kineto traces, whose ranks
    are put on hosts here.  *packed* is, in place of files, one that was packed, and the trace in it.  *place* puts the
    GPUs of every trace on other nodes than the recorded ones.
    """

    files: tuple[FileRecords, ...]
    selection: Selection
    allow_missing: bool = False
    allow_lost: bool = False
    companions: Companions | None = None
    hosts_recorded: bool = True
    packed: tuple[Path, Trace] | None = None
    place: Callable[[Trace], Trace] | None = None

    def trace(self, iteration: int | None = None) -> Trace:
        """Return the trace that was selected, or one *iteration* of it alone, as if no other had been recorded.

        Raises what :func:`read_trace` raises where files do not fit together, and
        :class:`~atlas_lp.errors.TraceError` for an iteration of a packed trace.
        """
        selection = self.selection if iteration is None else replace(self.selection, iteration=iteration)
        if self.packed is None:
            trace = self._joined(selection)
        else:
            path, trace = self.packed
            _check_whole(path, selection)
        trace = replace(trace, allow_lost=self.allow_lost)
        if self.companions is not None:
            trace = self.companions.add_to(trace)
        return trace if self.place is None else self.place(trace)

    def _joined(self, selection: Selection) -> Trace:
        files = [keep_windows(file, selection.iteration) for file in self.files]
        if not self.hosts_recorded:
            files = kineto.place(files)
        return merge(select_window(files, selection), self.allow_missing)


def read_trace(
    names: Sequence[str | Path],
    *,
    selection: Selection | None = None,
    allow_missing: bool = False,
    allow_lost: bool = False,
    companions: Companions | None = None,
    progress: Progress | None = None,
) -> Trace:
    """Read the files of one job (files, folders or globs) into a :class:`Trace`.

    *selection* says which part; *allow_missing* reads on when ranks of a communicator are missing, which is named as a
    gap; *allow_lost* allows answers from readings that lost many records; *companions* fill what the trace lacks;
    *progress* is told the megabytes of the files that are done.

    Raises :class:`~atlas_lp.errors.TraceError` (unreadable, cut, missing ranks), :class:`~atlas_lp.errors.PayloadError`
    (no bytes), :class:`~atlas_lp.errors.NoNcclError` and :class:`~atlas_lp.errors.MismatchError` (ranks disagree, two
    files of one rank); each names the file and the fix.
    """
    return read_recording(
        names,
        selection=selection,
        allow_missing=allow_missing,
        allow_lost=allow_lost,
        companions=companions,
        progress=progress,
    ).trace()


def read_recording(
    names: Sequence[str | Path],
    *,
    selection: Selection | None = None,
    allow_missing: bool = False,
    allow_lost: bool = False,
    companions: Companions | None = None,
    progress: Progress | None = None,
) -> Recording:
    """Read the files of one job once, for as many traces of it as are wanted; see :func:`read_trace`."""
    chosen = selection or Selection()
    files: list[FileRecords] = []
    kineto_files: list[FileRecords] = []
    with exports_of(names) as paths:
        packed = [path for path in paths if path.suffix == PACKED]
        if packed:
            whole = _packed(packed, len(paths), chosen)
            return Recording((), chosen, allow_missing, allow_lost, companions, packed=whole)
        for path in _told(paths, progress):
            if path.name.endswith(kineto.SUFFIXES):
                kineto_files.append(kineto.read_records(path, chosen))
                continue
            with open_export(path) as export:
                reader = annotated if annotated.present(export) else nsight
                files.append(reader.read_records(export, chosen))
    if files and kineto_files:
        raise TraceError(f"{files[0].path} and {kineto_files[0].path} are of different tools: give those of one")
    together = (*files, *kineto_files)
    return Recording(together, chosen, allow_missing, allow_lost, companions, hosts_recorded=not kineto_files)


def _packed(packed: Sequence[Path], files: int, selection: Selection) -> tuple[Path, Trace]:
    """Read the one packed trace asked for, which is whole."""
    if files > 1:
        raise TraceError(f"{packed[0]} is a whole job: give it alone, or the exports it was packed from")
    _check_whole(packed[0], selection)
    return packed[0], read_packed(packed[0])


def _check_whole(packed: Path, selection: Selection) -> None:
    if selection != Selection():
        raise TraceError(f"{packed} is packed: choose ranges, iterations and times when packing the exports")


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
