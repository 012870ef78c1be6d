"""Names on the command line to trace files: folders, globs, and reports that ``nsys`` still has to export."""

from __future__ import annotations

import glob
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from atlas_lp.errors import TraceError
from atlas_lp.inputs import check_regular
from atlas_lp.traces.advice import EXPORT_COMMAND

_REPORT = ".nsys-rep"
_KINETO = (".json", ".json.gz")
PACKED = ".atlas"
"""Ending of a packed trace."""


@contextmanager
def exports_of(names: Sequence[str | Path]) -> Iterator[list[Path]]:
    """Yield the exports that *names* mean, in an order that does not depend on theirs.

    Reports (``.nsys-rep``) are exported by ``nsys`` into a temporary folder, which is removed at the end.
    Raises :class:`~atlas_lp.errors.TraceError` for a name that matches nothing, for a folder without exports, and
    for a report when ``nsys`` is not on PATH or fails.
    """
    found = [path for name in names for path in _expand(str(name))]
    unique = sorted({path.resolve(): path for path in found}.values(), key=lambda p: (p.name, str(p)))
    reports = [path for path in unique if path.suffix == _REPORT]
    if not reports:
        yield unique
        return
    with TemporaryDirectory(prefix="atlas-lp-") as folder:
        converted = {path: _convert(path, Path(folder), i) for i, path in enumerate(reports)}
        yield [converted.get(path, path) for path in unique]


def _expand(name: str) -> list[Path]:
    path = Path(name)
    if path.is_dir():
        inside = [p for p in path.iterdir() if p.suffix in (".sqlite", _REPORT)]
        exported = {p.stem for p in inside if p.suffix == ".sqlite"}
        inside = [p for p in inside if p.suffix == ".sqlite" or p.stem not in exported]
        inside = inside or [p for p in path.iterdir() if p.name.endswith(_KINETO)]
        inside = inside or [p for p in path.iterdir() if p.suffix == PACKED]
        if not inside:
            raise TraceError(f"{path}: no .sqlite or .json trace in this folder; export reports with: {EXPORT_COMMAND}")
        return inside
    if not path.exists() and glob.has_magic(name):
        matches = [Path(match) for match in glob.glob(name)]
        if not matches:
            raise TraceError(f"{name}: matches no file")
        return matches
    return [path]


def _convert(report: Path, folder: Path, number: int) -> Path:
    command = ["nsys", "export", "--type", "sqlite", "--include-json", "true"]
    output = folder / f"{number}-{report.stem}.sqlite"
    if not report.exists():
        raise TraceError(f"{report}: no such file")
    check_regular(report, TraceError)
    if shutil.which("nsys") is None:
        shown = " ".join([*command, "-o", f"{report.stem}.sqlite", report.name])
        raise TraceError(f"{report}: nsys is not on PATH to export it; where it is, run: {shown}")
    try:
        code, said = _run([*command, "-o", str(output), str(report.absolute())])
    except OSError as error:
        raise TraceError(f"{report}: nsys cannot be started to export it ({error.strerror})") from None
    if code or not output.exists():
        last = said.strip().splitlines()[-1:] or ["no message"]
        raise TraceError(f"{report}: nsys export failed: {last[0]}")
    return output


def _run(command: Sequence[str]) -> tuple[int, str]:
    """Run a program to its end: its exit code, and what it said of errors, or else at all.

    Where this process is ended first, so is the program, with all that it has started.
    """
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        start_new_session=True,
    ) as program:
        try:
            told, complained = program.communicate()
        except BaseException:
            with suppress(ProcessLookupError):
                os.killpg(program.pid, signal.SIGKILL)
            raise
    return program.returncode, complained or told
