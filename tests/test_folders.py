"""Folders that are replaced as one thing: by writers that are killed, have a full disk, are two, or cannot exchange."""

import json
import os
import random
import signal
import stat
import subprocess
import sys
import time

import pytest
from helpers import ROOT, killed
from helpers.killed import OWN, seen, write

from atlas_lp import folders
from atlas_lp.errors import InputError, OutputError
from atlas_lp.files import temporary
from atlas_lp.folders import check_replaceable, replacing_folder


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def started(way, folder, *more):
    """The program of ``helpers/killed.py``, running."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, killed.__file__, way, str(folder), *map(str, more)]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def told(way, folder, *more):
    """What the program says at its end."""
    said, wrong = started(way, folder, *more).communicate(timeout=300)
    return json.loads(said), wrong


LINES = pytest.mark.parametrize("step", [7, pytest.param(1, marks=pytest.mark.slow)])


@LINES
def test_a_writer_that_is_killed_at_any_line_leaves_the_old_folder_or_the_new_one(tmp_path, step):
    (tmp_path / "out").mkdir()
    found, _ = told("every_moment", tmp_path / "out", step)
    assert set(found["states"]) == {"old", "new"}
    assert found["lines"] > 200
    assert found["left"] == ["a", "b", "out", "sub"]


@LINES
def test_a_writer_that_is_killed_at_any_line_leaves_no_folder_or_a_whole_one(tmp_path, step):
    found, _ = told("every_moment", tmp_path / "out", step)
    assert set(found["states"]) == {"nothing", "new"}
    assert found["left"] == ["a", "b", "out", "sub"]


@LINES
def test_a_writer_that_is_killed_at_any_line_leaves_the_old_file_or_the_new_one(tmp_path, step):
    found, _ = told("file_at_every_moment", tmp_path / "x", step)
    assert set(found["states"]) == {"old", "new"}
    assert found["left"] == ["x"]


@LINES
def test_a_folder_with_other_things_keeps_them_whenever_the_writer_is_killed(tmp_path, step):
    """There the files are renamed one by one: between these renames alone, old ones stand beside new ones."""
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "notes").write_text("kept")
    found, _ = told("every_moment", tmp_path / "out", step)
    mixed = sum(count for state, count in found["states"].items() if "+" in state)
    assert found["states"]["old"] > 20 * mixed
    assert found["left"] == ["a", "b", "notes", "out", "sub"]
    assert (tmp_path / "out" / "notes").read_text() == "kept"


def test_a_full_disk_leaves_the_folder_of_before(tmp_path):
    found, said = told("full", tmp_path / "out")
    assert found == {"states": {"old": 4}, "ended": [0], "left": ["out", "said"]}
    assert set(said.splitlines()) == {f"{tmp_path / 'out'}: cannot be written (File too large)"}


@pytest.mark.parametrize("times", [8, pytest.param(60, marks=pytest.mark.slow)])
def test_writers_that_are_killed_at_any_time_leave_one_whole_folder(tmp_path, times):
    when = random.Random(times)
    for _ in range(times):
        writer = started("for_ever", tmp_path / "out")
        assert writer.stdout.readline() == "ready\n"
        time.sleep(when.uniform(0, 0.05))
        writer.send_signal(signal.SIGKILL)
        writer.communicate(timeout=60)
        assert seen(tmp_path / "out") in ("nothing", "one" * 20_000, "two" * 20_000)
    write(tmp_path / "out", "last")
    assert seen(tmp_path / "out") == "last"
    assert names(tmp_path) == ["out"]


def test_two_writers_leave_the_folder_of_one_and_readers_see_whole_ones(tmp_path):
    out = tmp_path / "out"
    writers = [started("often", out) for _ in range(2)]
    pids = {str(writer.pid) * 500 for writer in writers}
    looked = 0
    while any(writer.poll() is None for writer in writers):
        try:
            assert seen(out) in {"nothing", *pids}
            looked += 1
        except FileNotFoundError:
            continue  # the folder that was opened is an old one by now, and half removed
    assert looked > 10
    assert [writer.communicate()[1] for writer in writers] == ["", ""]
    assert seen(out) in pids
    assert names(tmp_path) == ["out"]


@pytest.mark.parametrize("refuse", ["exchange", "make", "working folder"])
def test_where_folders_cannot_be_exchanged_files_are(tmp_path, monkeypatch, refuse):
    """A file system that does not know how or a mount point, a folder of somebody else's, where a shell stands."""
    out, made = tmp_path / "out", folders.temporary
    write(out, "old")
    number = out.stat().st_ino
    if refuse == "exchange":
        monkeypatch.setattr(folders, "_exchange", no)
    elif refuse == "make":
        monkeypatch.setattr(
            folders, "temporary", lambda place, **kind: no() if place == tmp_path else made(place, **kind)
        )
    else:
        monkeypatch.chdir(out / "sub")
    write(out, "new")
    assert seen(out) == "new"
    assert out.stat().st_ino == number
    assert (names(tmp_path), names(out)) == (["out"], ["a", "b", "sub"])
    monkeypatch.undo()
    write(out, "newer")
    assert seen(out) == "newer"
    assert out.stat().st_ino != number


def no(*_, **__):
    raise PermissionError(1, "Operation not permitted")


@pytest.mark.parametrize("thing", ["file", "folder", "link", "pipe"])
def test_what_else_is_in_a_folder_stays_there(tmp_path, thing):
    out = tmp_path / "out"
    write(out, "old")
    for place in (out, out / "sub"):
        other = place / "other"
        if thing == "file":
            other.write_text("kept")
        elif thing == "folder":
            other.mkdir()
            (other / "below").write_text("kept")
        elif thing == "link":
            other.symlink_to("nowhere")
        else:
            os.mkfifo(other)
        before = other.lstat()
        check_replaceable(out, OWN, force=True)
        write(out, "new")
        assert seen(out) == "new"
        after = other.lstat()
        assert (after.st_ino, after.st_mode, after.st_mtime_ns) == (before.st_ino, before.st_mode, before.st_mtime_ns)
        write(out, "old")


def test_what_comes_at_the_last_moment_stays_too(tmp_path, monkeypatch):
    out = tmp_path / "out"
    write(out, "old")
    exchange = folders._exchange

    def late(one, other):
        (other / "late").write_text("kept")
        (other / "sub" / "late").write_text("kept")
        exchange(one, other)

    monkeypatch.setattr(folders, "_exchange", late)
    write(out, "new")
    assert seen(out) == "new"
    assert (out / "late").read_text() == (out / "sub" / "late").read_text() == "kept"
    assert names(tmp_path) == ["out"]


def test_a_link_to_a_folder_stays_and_that_is_replaced(tmp_path):
    (tmp_path / "there" / "real").mkdir(parents=True)
    (tmp_path / "link").symlink_to("there/real")
    write(tmp_path / "link", "new")
    assert (tmp_path / "link").is_symlink()
    assert seen(tmp_path / "there" / "real") == "new"
    assert names(tmp_path / "there") == ["real"]


@pytest.mark.parametrize("mode", [0o700, 0o755, 0o2775])
def test_who_may_read_a_folder_stays_the_same(tmp_path, mode):
    out = tmp_path / "out"
    out.mkdir()
    out.chmod(mode)
    write(out, "new")
    assert stat.S_IMODE(out.stat().st_mode) == mode


def test_a_block_that_is_left_early_changes_nothing(tmp_path):
    write(tmp_path / "out", "old")
    for failure in (KeyboardInterrupt, ValueError, OSError(28, "No space left on device")):
        with pytest.raises((KeyboardInterrupt, ValueError, OutputError)):
            left_early(tmp_path / "out", failure)
        assert seen(tmp_path / "out") == "old"
        assert names(tmp_path) == ["out"]


def left_early(folder, failure):
    with replacing_folder(folder, OWN) as new:
        (new / "a").write_text("half")
        raise failure


@pytest.mark.parametrize("what", ["a folder", "a link", "a pipe", "a file for a folder"])
def test_what_cannot_be_replaced_is_found_before_any_work(tmp_path, what):
    out = tmp_path / "out"
    out.mkdir()
    if what == "a folder":
        (out / "a").mkdir()
    elif what == "a link":
        (out / "a").symlink_to("b")
    elif what == "a pipe":
        os.mkfifo(out / "a")
    else:
        (out / "sub").write_text("kept")
    words = {"a folder": "it is a folder", "a file for a folder": "it is no folder"}.get(what, "it is no regular file")
    for attempt in (lambda: check_replaceable(out, OWN, force=True), lambda: write(out, "new")):
        with pytest.raises(OutputError, match=words):
            attempt()
    assert len(names(out)) == 1
    assert names(tmp_path) == ["out"]


def test_what_is_there_is_replaced_only_on_request(tmp_path):
    check_replaceable(tmp_path / "out", OWN, force=False)
    assert names(tmp_path) == []
    write(tmp_path / "out", "old")
    check_replaceable(tmp_path / "out", OWN, force=True)
    (tmp_path / "out" / "a").unlink()
    with pytest.raises(InputError, match="out: holds b already; overwrite with -f or choose another with -o"):
        check_replaceable(tmp_path / "out", OWN, force=False)


def test_a_folder_that_is_being_written_is_not_swept(tmp_path):
    with temporary(tmp_path, is_folder=True) as held:
        write(tmp_path / "out", "new")
        assert held.exists()
    assert names(tmp_path) == ["out"]
