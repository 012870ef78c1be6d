"""Writing files: whole or not at all, by one way for everything that is written.

A file is written beside its place under a name that nobody can guess, flushed to the disk and renamed, so that whoever
reads it finds the old one or the new one.  Where a name is a symbolic link, the file that it points to is replaced and
the link stays.  Devices, pipes and sockets (``/dev/stdout``) are written to and never replaced.
"""

from __future__ import annotations

import errno
import json
import os
import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

from atlas_lp.errors import InputError, OutputError
from atlas_lp.texts import plain_json

_PREFIX = ".atlas-lp-"


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
    with _refusals(path):
        if (number := _descriptor(path)) is not None:
            with os.fdopen(os.dup(number), "wb") as file:
                yield file
        elif _is_special(path):
            with path.open("wb") as file:
                yield file
        else:
            with replacement(path) as temporary, temporary.open("r+b") as file:
                yield file


@contextmanager
def replacement(path: Path) -> Iterator[Path]:
    """Yield the name of an empty file with the ending of *path*, for libraries that open files themselves.

    At the end of the block it is flushed to the disk and renamed to *path*; it is swept if the block is left early.

    Raises :class:`~atlas_lp.errors.OutputError` for whatever the system refuses, and for a device or a pipe.
    """
    with _refusals(path):
        target = _behind_links(path)
        if target.is_dir() or _is_special(target):
            raise OutputError(path, "it is a folder" if target.is_dir() else "it is no regular file")
        temporary = _new_file(target.parent, target.suffix[:16])
        try:
            yield temporary
            with temporary.open("r+b") as file:
                os.fsync(file.fileno())
            temporary.replace(target)
        finally:
            with suppress(OSError):  # gone after the rename
                temporary.unlink()


def check_free(path: Path, force: bool) -> None:
    """Refuse, before any work is done, a *path* that cannot be written, or exists and may not be replaced (*force*).

    Raises :class:`~atlas_lp.errors.InputError`.
    """
    with _refusals(path):
        if path.is_dir():
            raise OutputError(path, "it is a folder: give the name of a file")
        if _descriptor(path) is not None or _is_special(path):
            return
        if path.exists() and not force:
            raise InputError(f"{path}: exists already; overwrite with -f or choose another with -o")
        target = _behind_links(path)
        if not target.parent.is_dir():
            raise OutputError(path, f"there is no folder {path.parent}")
        _check_names(target)
        _new_file(target.parent).unlink()


def check_folder(folder: Path) -> None:
    """Refuse, before any work is done, a *folder* that is none and cannot be made.

    Raises :class:`~atlas_lp.errors.InputError`.
    """
    with _refusals(folder, "cannot be made"):
        whole = Path(os.path.realpath(folder))
        there = next(place for place in (whole, *whole.parents) if place.exists())
        if not there.is_dir():
            raise InputError(f"{there}: exists and is not a folder; choose another with -o")
        _check_names(whole)
        _new_file(there).unlink()


def make_folder(folder: Path) -> None:
    """Make *folder* and those above it, where they are missing; raises :class:`~atlas_lp.errors.OutputError`."""
    with _refusals(folder, "cannot be made"):
        folder.mkdir(parents=True, exist_ok=True)


def _behind_links(path: Path) -> Path:
    """The place that *path* leads to; raises OSError for links that lead in a circle."""
    target = Path(os.path.realpath(path))
    if target.is_symlink():
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
    return target


def _new_file(folder: Path, ending: str = "") -> Path:
    """Make an empty file with a name that nobody can guess, with the permissions that the user's mask allows."""
    path = folder / f"{_PREFIX}{secrets.token_hex(8)}{ending}"
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666))
    return path


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
def _refusals(path: Path, what: str = "cannot be written") -> Iterator[None]:
    """Turn what the system refuses into one sentence about *path*."""
    if "\0" in str(path):
        raise OutputError(str(path).replace("\0", "?"), "its name holds a zero byte", what)
    try:
        yield
    except OSError as error:
        raise OutputError(path, error.strerror or str(error), what) from None
