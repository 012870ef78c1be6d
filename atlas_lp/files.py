"""Writing files: whole or not at all, by one way for everything that is written.

A file is written beside its place under a name that nobody can guess, flushed to the disk and renamed, so that whoever
reads it finds the old one or the new one.  Where a name is a symbolic link, the file that it points to is replaced and
the link stays.  Devices, pipes and sockets (``/dev/stdout``) are written to and never replaced.

A writer holds a lock on what it has not renamed yet, which ends with its process: whatever bears such a name without a
lock was left by a writer that was killed, and the next writer removes it.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import re
import secrets
import shutil
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

from atlas_lp.errors import InputError, OutputError
from atlas_lp.texts import plain_json

_PREFIX = ".atlas-lp-"
_TEMPORARY = re.compile(re.escape(_PREFIX) + r"[0-9a-f]{16}(\..*)?", re.DOTALL)
_DAY_SECONDS = 86_400


def json_text(value: Any) -> str:
    """Plain *value* as JSON, keys sorted, one trailing newline: equal values give equal bytes, safe to look at."""
    return plain_json(json.dumps(value, sort_keys=True, indent=1, ensure_ascii=False)) + "\n"


def write_file(path: Path, content: bytes) -> None:
    """Write *content* as the whole of *path*.

    Raises :class:`~atlas_lp.errors.OutputError` when it cannot be written; what was there is still there then.
    """
    with replacing(path) as file:
        file.write(content)


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """Yield a file to write; at the end of the block it is *path*, and nothing has changed if the block is left early.

    Raises :class:`~atlas_lp.errors.OutputError` for whatever the system refuses.
    """
    with refusals(path):
        if (number := _descriptor(path)) is not None:
            with os.fdopen(os.dup(number), "wb") as file:
                yield file
        elif _is_special(path):
            with path.open("wb") as file:
                yield file
        else:
            with replacement(path) as beside, beside.open("r+b") as file:
                yield file


@contextmanager
def replacement(path: Path) -> Iterator[Path]:
    """Yield the name of an empty file with the ending of *path*, for libraries that open files themselves.

    At the end of the block it is flushed to the disk and renamed to *path*; it is removed if the block is left early.

    Raises :class:`~atlas_lp.errors.OutputError` for whatever the system refuses, and for a device or a pipe.
    """
    with refusals(path):
        target = behind_links(path)
        if target.is_dir() or _is_special(target):
            raise OutputError(path, "it is a folder" if target.is_dir() else "it is no regular file")
        sweep(target.parent)
        with temporary(target.parent, target.suffix[:16]) as beside:
            yield beside
            flush(beside)
            beside.replace(target)


def sweep(folder: Path) -> int:
    """Remove from *folder* what writers left when they were killed, and return how many files and folders that were."""
    left: list[Path] = []
    with suppress(OSError, ValueError):
        left = [Path(entry) for entry in os.scandir(folder) if _TEMPORARY.fullmatch(entry.name)]
    return sum(_is_swept(path) for path in left)


def check_free(path: Path, force: bool) -> None:
    """Refuse, before any work is done, a *path* that cannot be written, or exists and may not be replaced (*force*).

    Raises :class:`~atlas_lp.errors.InputError`.
    """
    with refusals(path):
        if path.is_dir():
            raise OutputError(path, "it is a folder: give the name of a file")
        if _descriptor(path) is not None or _is_special(path):
            return
        if path.exists() and not force:
            raise InputError(f"{path}: exists already; overwrite with -f or choose another with -o")
        target = behind_links(path)
        if not target.parent.is_dir():
            raise OutputError(path, f"there is no folder {path.parent}")
        _check_names(target)
        with temporary(target.parent):
            pass


def check_folder(folder: Path) -> None:
    """Refuse, before any work is done, a *folder* that is none and cannot be made.

    Raises :class:`~atlas_lp.errors.InputError`.
    """
    with refusals(folder, "cannot be made"):
        whole = behind_links(folder)
        there = next(place for place in (whole, *whole.parents) if place.exists())
        if not there.is_dir():
            raise InputError(f"{there}: exists and is not a folder; choose another with -o")
        _check_names(whole)
        with temporary(there):
            pass


def make_folder(folder: Path) -> None:
    """Make *folder* and those above it, where they are missing; raises :class:`~atlas_lp.errors.OutputError`."""
    with refusals(folder, "cannot be made"):
        folder.mkdir(parents=True, exist_ok=True)


def behind_links(path: Path) -> Path:
    """The place that *path* leads to; raises OSError for links that lead in a circle."""
    target = Path(os.path.realpath(path))
    if target.is_symlink():
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
    return target


@contextmanager
def temporary(folder: Path, ending: str = "", is_folder: bool = False) -> Iterator[Path]:
    """Yield an empty file or folder that nobody can guess the name of, with the permissions that the mask allows.

    It is locked, and removed at the end if it still has that name.
    """
    descriptor = None
    while descriptor is None:
        path = folder / f"{_PREFIX}{secrets.token_hex(8)}{ending}"
        descriptor = _made(path, is_folder)
    try:
        yield path
    finally:
        remove(path)
        os.close(descriptor)


def _made(path: Path, is_folder: bool) -> int | None:
    """Make *path*, locked where the file system has locks; its descriptor, or None where a sweep came in between."""
    if is_folder:
        path.mkdir()
    how = os.O_RDONLY | os.O_DIRECTORY if is_folder else os.O_RDWR | os.O_CREAT | os.O_EXCL
    try:
        descriptor = os.open(path, how, 0o666)
    except FileNotFoundError:
        if is_folder:
            return None
        raise
    with suppress(OSError):
        fcntl.flock(descriptor, fcntl.LOCK_EX)
    if os.path.lexists(path):
        return descriptor
    os.close(descriptor)
    return None


def _is_swept(path: Path) -> bool:
    """Remove *path* if its writer is gone; where that cannot be told, if it is older than a day."""
    with suppress(OSError), ExitStack() as stack:
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
            stack.callback(os.close, descriptor)
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError:
            if time.time() - path.lstat().st_mtime < _DAY_SECONDS:
                return False
        return remove(path)
    return False


def remove(path: Path) -> bool:
    """Remove a file, or a folder and all in it; whether that was there and is gone."""
    if not os.path.lexists(path):
        return False
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with suppress(OSError):
            path.unlink()
    return not os.path.lexists(path)


def flush(path: Path) -> None:
    """Write what the system holds of *path* to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _check_names(path: Path) -> None:
    """Raise OSError for a part of *path* that is longer than its file system takes."""
    there = next(place for place in path.parents if place.exists())
    longest = os.pathconf(there, "PC_NAME_MAX")
    if any(len(os.fsencode(part)) > longest for part in path.parts):
        raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG))


_STREAMS = {"/dev/stdin": 0, "/dev/stdout": 1, "/dev/stderr": 2}
_NUMBERED = re.compile(r"/(?:dev|proc/self)/fd/([0-9]{1,6})")


def _descriptor(path: Path) -> int | None:
    """The number of an open file that *path* stands for (``/dev/stdout``): it is written on, whatever it leads to."""
    numbered = _NUMBERED.fullmatch(str(path))
    return int(numbered[1]) if numbered else _STREAMS.get(str(path))


def _is_special(path: Path) -> bool:
    """Whether *path* is there and neither a file nor a folder."""
    try:
        return path.exists() and not path.is_file() and not path.is_dir()
    except OSError:
        return False


@contextmanager
def refusals(path: Path, what: str = "cannot be written") -> Iterator[None]:
    """Turn what the system refuses into one sentence about *path*."""
    if "\0" in str(path):
        raise OutputError(str(path).replace("\0", "?"), "its name holds a zero byte", what)
    try:
        yield
    except OSError as error:
        raise OutputError(path, error.strerror or str(error), what) from None
