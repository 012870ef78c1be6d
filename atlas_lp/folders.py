"""Writing folders: files that belong together, replaced as one thing or not at all.

The new folder is made beside the one that is there, and the two are exchanged in one step.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import stat
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path, PurePath

from atlas_lp.errors import InputError, OutputError
from atlas_lp.files import behind_links, check_folder, flush, make_folder, refusals, sweep, temporary


@contextmanager
def replacing_folder(folder: Path, own: Collection[str]) -> Iterator[Path]:
    """Yield an empty folder to write the files *own* into (relative names); at the end of the block it is *folder*.

    Both are exchanged in one step: whoever looks finds all files of before or all new ones, whenever a writer is killed
    and however many there are.  *folder* stays where it is if it holds anything else, which is left alone, if it is the
    working folder, and if the system cannot exchange it (a mount point, some network file systems).  Then the files are
    renamed into it one after the other, once all of them are on the disk.

    Raises :class:`~atlas_lp.errors.OutputError` for whatever the system refuses; nothing has changed then.
    """
    with refusals(folder):
        target = behind_links(folder)
        make_folder(target.parent)
        with _stage(target) as stage:
            try:
                yield stage
            except OutputError as error:
                raise OutputError(folder, error.reason) from None
            files = _files_below(stage)
            for path in (*files, stage):
                flush(path)
            if not _is_made(stage, target):
                with _one_at_a_time(target):
                    if not _is_exchanged(stage, target, own):
                        _move_in(files, stage, target, own)
            flush(target.parent)


def check_replaceable(folder: Path, own: Collection[str], force: bool) -> None:
    """Refuse, before any work is done, a *folder* that cannot be made, or whose files *own* cannot be replaced.

    Without *force* there may be none of them.  Raises :class:`~atlas_lp.errors.InputError`.
    """
    check_folder(folder)
    present = [name for name in own if os.path.lexists(folder / name)]
    if present and not force:
        raise InputError(f"{folder}: holds {present[0]} already; overwrite with -f or choose another with -o")
    _check_own(folder, own)


def _check_own(folder: Path, own: Collection[str]) -> None:
    """Raise :class:`OutputError` where what bears a name of *own*, or of a folder of those, is none."""
    for name in _parents(own):
        if os.path.lexists(folder / name) and not _is_plain(folder / name, stat.S_ISDIR):
            raise OutputError(folder / name, "it is no folder")
    for name in own:
        if os.path.lexists(folder / name) and not _is_plain(folder / name, stat.S_ISREG):
            raise OutputError(folder / name, "it is a folder" if (folder / name).is_dir() else "it is no regular file")


def _parents(own: Collection[str]) -> set[str]:
    """Names of the folders that hold the files *own*, below the one that holds all."""
    return {str(parent) for name in own for parent in PurePath(name).parents} - {"."}


def _is_plain(path: Path, of_kind: Callable[[int], bool]) -> bool:
    """Whether *path* itself, and no link, is a file or folder as *of_kind* says."""
    return os.path.lexists(path) and of_kind(path.lstat().st_mode)


def _others(folder: Path, own: Collection[str]) -> list[str]:
    """Names, relative to *folder*, of what is neither one of the files *own* nor a folder of those."""
    parents = _parents(own)
    places = [folder, *(folder / name for name in sorted(parents) if _is_plain(folder / name, stat.S_ISDIR))]
    names = [str(path.relative_to(folder)) for place in places for path in place.iterdir()]
    return [
        name
        for name in names
        if not (name in own and _is_plain(folder / name, stat.S_ISREG))
        and not (name in parents and _is_plain(folder / name, stat.S_ISDIR))
    ]


def _files_below(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


@contextmanager
def _stage(target: Path) -> Iterator[Path]:
    """Yield an empty folder beside *target*, or inside of it where nothing can be made beside it."""
    sweep(target.parent)
    sweep(target)
    with ExitStack() as stack:
        try:
            stage = stack.enter_context(temporary(target.parent, is_folder=True))
        except OSError:
            if not target.is_dir():
                raise
            stage = stack.enter_context(temporary(target, is_folder=True))
        yield stage


@contextmanager
def _one_at_a_time(folder: Path) -> Iterator[None]:
    """Wait until no other writer exchanges *folder* or moves files into it; what is exchanged, nobody sweeps then."""
    with ExitStack() as stack:
        with suppress(OSError):  # a file system without locks
            while True:
                descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
                stack.callback(os.close, descriptor)
                fcntl.flock(descriptor, fcntl.LOCK_EX)
                if os.path.samestat(os.fstat(descriptor), folder.stat()):
                    break
                stack.close()  # it was exchanged while we waited
        yield


def _is_made(stage: Path, target: Path) -> bool:
    """Put *stage* where *target* shall be; False where there is one."""
    try:
        if not target.exists():
            stage.rename(target)
            return True
    except OSError:
        if not target.exists():  # else somebody was faster
            raise
    return False


def _is_exchanged(stage: Path, target: Path, own: Collection[str]) -> bool:
    """Put *stage* where *target* is, in one step, and *target* where *stage* was; False where that cannot be."""
    if stage.parent != target.parent or _others(target, own) or _is_working_folder(target):
        return False
    before, now = target.stat(), stage.stat()
    if (before.st_uid, before.st_gid) != (now.st_uid, now.st_gid):
        return False
    stage.chmod(stat.S_IMODE(before.st_mode))
    try:
        _exchange(stage, target)
    except OSError:
        return False
    for name in _others(stage, own):  # which came while we looked
        (stage / name).rename(target / name)
    return True


def _is_working_folder(folder: Path) -> bool:
    """Whether this process works in *folder*, or below it: whoever started it, a shell, does, too."""
    with suppress(OSError):
        return Path.cwd().is_relative_to(folder)
    return False


def _exchange(one: Path, other: Path) -> None:
    """Exchange two paths in one step (``renameat2`` of Linux); raises OSError where that cannot be done."""
    import ctypes

    here, exchange = -100, 2  # AT_FDCWD, RENAME_EXCHANGE
    renameat2 = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if renameat2 is None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    if renameat2(here, os.fsencode(one), here, os.fsencode(other), exchange):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def _move_in(files: Sequence[Path], stage: Path, target: Path, own: Collection[str]) -> None:
    """Make *files* of *stage* those of *target*, one by one, and remove those *own* that are not among them."""
    _check_own(target, own)
    names = [str(path.relative_to(stage)) for path in files]
    with temporary(target, is_folder=True) as inside:
        # Copies: nothing can be renamed into what is mounted there.
        copies = [inside / str(number) for number in range(len(files))]
        for path, copy in zip(files, copies, strict=True):
            shutil.copyfile(path, copy)
            flush(copy)
        for name in sorted(_parents(names)):
            make_folder(target / name)
        for name, copy in zip(names, copies, strict=True):
            copy.replace(target / name)
        for name in set(own) - set(names):
            (target / name).unlink(missing_ok=True)
