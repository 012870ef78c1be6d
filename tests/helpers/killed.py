"""A program that writes a folder of three files and is killed: ``python killed.py WAY FOLDER [STEP]``.

Its children die by themselves, without a word, after every single line that the writing executes (or one in STEP): it
tells of every moment in which a writer can be killed.  Prints what was found then, as JSON.
"""

import json
import os
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from atlas_lp import files, folders
from atlas_lp.errors import OutputError

OWN = ("a", "b", "sub/c")
KILLED = 9


def write(folder: Path, text: str, size: int = 1) -> None:
    """Make *text*, *size* times, the content of every file of *folder*."""
    with folders.replacing_folder(folder, OWN) as new:
        (new / "sub").mkdir()
        for name in OWN:
            (new / name).write_bytes(text.encode() * size)


def seen(folder: Path) -> str:
    """What the files of *folder* hold now: one text, if it is whole, else all of them."""
    try:
        inside = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except FileNotFoundError:
        return "nothing"
    try:
        found = set()
        for name in OWN:
            with open(os.open(name, os.O_RDONLY, dir_fd=inside), encoding="ascii") as file:
                found.add(file.read())
        return "+".join(sorted(found))
    finally:
        os.close(inside)


def killed_after(lines: int, job: Callable[[], None]) -> bool:
    """Whether a child that does *job* is killed after that many lines of the code that writes, or came to its end."""
    child = os.fork()
    if child == 0:
        left = lines

        def step(frame, event, _):  # type: ignore[no-untyped-def]
            nonlocal left
            if frame.f_code.co_filename not in (files.__file__, folders.__file__):
                return None
            left -= event == "line"
            if left < 0:
                os._exit(KILLED)
            return step

        sys.settrace(step)
        job()
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == KILLED


def every_moment(folder: Path, step: int) -> dict[str, object]:
    """What is in *folder* after a kill at every line, and what is left beside it and in it after the next writer."""
    os.fsync = lambda _: None  # of thousands of folders, which nobody wants to keep
    states: Counter[str] = Counter()
    left: set[str] = set()
    others = {path.name for path in folder.iterdir()} if folder.exists() else None
    lines = 0
    while True:
        if others is not None:
            write(folder, "old")
        was_killed = killed_after(lines, lambda: write(folder, "new"))
        states[seen(folder)] += 1
        if not was_killed:
            break
        lines += step
        write(folder, "next")
        left |= {path.name for place in (folder, folder.parent) for path in place.iterdir()}
        if others is None:
            for name in OWN:
                (folder / name).unlink()
            (folder / "sub").rmdir()
            folder.rmdir()
    return {"states": states, "lines": lines, "left": sorted(left)}


def file_at_every_moment(path: Path, step: int) -> dict[str, object]:
    """What is in the file *path* after a kill at every line, and what is left beside it after the next writer."""
    states: Counter[str] = Counter()
    lines, was_killed = 0, True
    while was_killed:
        files.write_file(path, b"old")
        was_killed = killed_after(lines, lambda: files.write_file(path, b"new"))
        states[path.read_text()] += 1
        lines += step
    files.write_file(path, b"last")
    return {"states": states, "left": sorted(beside.name for beside in path.parent.iterdir())}


def full(folder: Path) -> dict[str, object]:
    """What is in *folder* when the disk takes no more than so many bytes of a file, and what is said."""
    import resource

    write(folder, "old")
    states, said = Counter(), set()
    for most in (0, 1, 4096, 9999):
        child = os.fork()
        if child == 0:
            resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
            try:
                write(folder, "new", 10_000)
            except OutputError as error:
                (folder.parent / "said").touch()
                os.write(2, f"{error}\n".encode())
                os._exit(0)
            os._exit(1)
        said.add(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        states[seen(folder)] += 1
    return {"states": states, "ended": sorted(said), "left": sorted(path.name for path in folder.parent.iterdir())}


def say(words: str) -> None:
    """Tell whoever started this."""
    sys.stdout.write(words)
    sys.stdout.flush()


def for_ever(folder: Path) -> None:
    """Write *folder* again and again, until somebody puts an end to it."""
    say("ready\n")
    while True:
        for text in ("one", "two"):
            write(folder, text, 20_000)


def often(folder: Path) -> None:
    """Write *folder* many times, with a text that is the writer's own."""
    for _ in range(60):
        write(folder, str(os.getpid()), 500)


if __name__ == "__main__":
    ways = (every_moment, file_at_every_moment, full, for_ever, often)
    way = next(way for way in ways if way.__name__ == sys.argv[1])
    say(json.dumps(way(Path(sys.argv[2]), *map(int, sys.argv[3:]))))
