"""Writing files: whole or not at all, and refused before any work where that can be known."""

import errno
import os
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from click.testing import CliRunner
from helpers import ROOT
from helpers.jobs import two_ranks

from atlas_lp import files
from atlas_lp.cli import main
from atlas_lp.errors import InputError, OutputError
from atlas_lp.files import (
    check_folder,
    check_free,
    remove,
    replacement,
    replacing,
    sweep,
    temporary,
    write_file,
)

COLLECTIVE = ("--type", "allreduce", "--size", "4KiB", "--ranks", "2")


def names(folder):
    return sorted(p.name for p in folder.iterdir())


def test_a_file_is_replaced_as_a_whole(tmp_path):
    path = tmp_path / "x"
    write_file(path, b"old")
    with replacing(path) as file:
        file.write(b"new")
        assert path.read_bytes() == b"old"
        assert len(names(tmp_path)) == 2
    assert path.read_bytes() == b"new"
    assert names(tmp_path) == ["x"]


@pytest.mark.parametrize("failure", [KeyboardInterrupt, ValueError, OSError("No space left on device")])
def test_whatever_happens_in_the_middle_leaves_the_old_file_alone(tmp_path, failure):
    path = tmp_path / "x"
    write_file(path, b"old")

    def interrupted():
        with replacing(path) as file:
            file.write(b"half")
            raise failure

    with pytest.raises((KeyboardInterrupt, ValueError, OutputError)):
        interrupted()
    assert path.read_bytes() == b"old"
    assert names(tmp_path) == ["x"]


def test_names_of_temporary_files_are_not_taken_from_others(tmp_path, monkeypatch):
    """Where the name is there already, as nobody could have guessed, it is left alone."""
    monkeypatch.setattr(files.secrets, "token_hex", lambda _: "guessed")
    (tmp_path / ".atlas-lp-guessed.txt").write_text("of somebody else")
    with pytest.raises(OutputError, match="File exists"):
        write_file(tmp_path / "x.txt", b"")
    assert (tmp_path / ".atlas-lp-guessed.txt").read_text() == "of somebody else"
    assert names(tmp_path) == [".atlas-lp-guessed.txt"]


LEFT = f".atlas-lp-{'0123456789abcdef'}.txt"


def test_what_a_killed_writer_left_is_swept_by_the_next(tmp_path):
    (tmp_path / LEFT).write_text("half")
    (tmp_path / LEFT[:-4]).mkdir()
    (tmp_path / LEFT[:-4] / "half").write_text("half")
    mine = [".atlas-lp-notes", LEFT[1:], LEFT.replace("a", "A"), f"{LEFT[:-4]}-journal"]
    for name in mine:
        (tmp_path / name).write_text("kept")
    assert sweep(tmp_path) == 2
    assert sweep(tmp_path) == sweep(tmp_path / "missing") == sweep(tmp_path / mine[0]) == 0
    (tmp_path / LEFT).write_text("half")
    write_file(tmp_path / "x", b"")
    assert names(tmp_path) == sorted([*mine, "x"])


def test_what_a_writer_holds_is_not_swept_by_others(tmp_path):
    with replacing(tmp_path / "x") as file:
        file.write(b"slow")
        (held,) = names(tmp_path)
        write_file(tmp_path / "y", b"fast")
        assert names(tmp_path) == [held, "y"]
        code = (
            "import sys; from pathlib import Path; from atlas_lp.files import sweep; sys.exit(sweep(Path(sys.argv[1])))"
        )
        assert subprocess.run([sys.executable, "-c", code, str(tmp_path)], cwd=ROOT, check=False).returncode == 0
    assert names(tmp_path) == ["x", "y"]
    assert (tmp_path / "x").read_bytes() == b"slow"


def test_without_locks_what_is_older_than_a_day_is_swept(tmp_path, monkeypatch):
    def no_locks(*_):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(files.fcntl, "flock", no_locks)
    write_file(tmp_path / "x", b"written all the same")
    (tmp_path / LEFT).write_text("half")
    assert sweep(tmp_path) == 0
    yesterday = time.time() - 25 * 3600
    os.utime(tmp_path / LEFT, (yesterday, yesterday))
    assert sweep(tmp_path) == 1
    assert names(tmp_path) == ["x"]


def test_sweeping_follows_no_link_and_waits_for_no_pipe(tmp_path):
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "file").write_text("kept")
    (tmp_path / LEFT).symlink_to("kept")
    os.mkfifo(tmp_path / LEFT.replace("txt", "pipe"))
    assert sweep(tmp_path) == 1
    assert names(tmp_path) == [LEFT, "kept"]
    assert (tmp_path / "kept" / "file").read_text() == "kept"


@pytest.mark.parametrize("swept", ["file", "folder"])
def test_a_name_that_is_swept_before_it_is_locked_is_made_anew(tmp_path, monkeypatch, swept):
    flock, seen = files.fcntl.flock, []

    def late(descriptor, how):
        if not seen:
            seen.extend(names(tmp_path))
            remove(tmp_path / seen[0])
        flock(descriptor, how)

    monkeypatch.setattr(files.fcntl, "flock", late)
    with temporary(tmp_path, is_folder=swept == "folder") as made:
        assert names(tmp_path) == [made.name] != seen
    assert names(tmp_path) == []


@pytest.mark.parametrize("mask", [0o022, 0o002, 0o077])
def test_the_mask_of_the_user_decides_who_may_read(tmp_path, mask):
    before = os.umask(mask)
    try:
        write_file(tmp_path / "x", b"")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "x").stat().st_mode) == 0o666 & ~mask


def test_a_link_stays_and_its_file_is_replaced(tmp_path):
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "real").write_bytes(b"old")
    (tmp_path / "link").symlink_to("there/real")
    write_file(tmp_path / "link", b"new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "there" / "real").read_bytes() == b"new"
    assert names(tmp_path / "there") == ["real"]


def test_devices_and_pipes_are_written_to_and_never_replaced(tmp_path):
    write_file(Path(os.devnull), b"gone")
    assert stat.S_ISCHR(os.stat(os.devnull).st_mode)
    os.mkfifo(tmp_path / "pipe")
    read = []
    reader = threading.Thread(target=lambda: read.append((tmp_path / "pipe").read_bytes()))
    reader.start()
    check_free(tmp_path / "pipe", force=False)
    write_file(tmp_path / "pipe", b"through")
    reader.join(timeout=10)
    assert read == [b"through"]
    assert stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode)
    with pytest.raises(OutputError, match="no regular file"), replacement(tmp_path / "pipe"):
        pass


@pytest.mark.parametrize("name", ["/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"])
def test_a_redirected_output_is_written_on_and_not_replaced(tmp_path, name):
    arguments = ["goal", "expand", *COLLECTIVE, "-o", name]
    with (tmp_path / "all.txt").open("w") as file:
        subprocess.run([sys.executable, "-m", "atlas_lp", *arguments], stdout=file, check=True, cwd=ROOT)
    said = (tmp_path / "all.txt").read_text()
    assert "num_ranks 2" in said
    assert f"{name}: 2 GOAL ranks" in said


def test_a_circle_of_links_is_one_sentence(tmp_path):
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    for attempt in (lambda: check_free(tmp_path / "a", force=True), lambda: write_file(tmp_path / "a", b"")):
        with pytest.raises(OutputError, match="symbolic links"):
            attempt()
    with pytest.raises(OutputError, match="File name too long"):
        check_folder(tmp_path / "new" / ("x" * 300))


def test_an_analysis_is_not_begun_where_a_folder_has_the_name_of_its_page(tmp_path, monkeypatch):
    monkeypatch.setenv("ATLAS_LP_CACHE", str(tmp_path / "cache"))
    (tmp_path / "traces").mkdir()
    two_ranks(tmp_path / "traces")
    (tmp_path / "out" / "report.html").mkdir(parents=True)
    result = CliRunner().invoke(main, ["analyze", str(tmp_path / "traces"), "-f", "-o", str(tmp_path / "out")])
    assert result.exit_code == 2
    assert "report.html: cannot be written (it is a folder" in result.stderr
    assert not (tmp_path / "cache").exists()
    assert names(tmp_path / "out") == ["report.html"]


def unwritable(folder):
    """Names that no file can have, by what is in the way."""
    (folder / "file").write_text("kept")
    return {
        "no folder": folder / "missing" / "x",
        "a folder": folder,
        "below a file": folder / "file" / "x",
        "too long": folder / ("x" * 300),
        "a zero byte": folder / "x\0y",
    }


@pytest.mark.parametrize("what", ["no folder", "a folder", "below a file", "too long", "a zero byte"])
def test_what_cannot_be_written_is_one_sentence_before_and_while_writing(tmp_path, what):
    path = unwritable(tmp_path)[what]
    for attempt in (lambda: check_free(path, force=True), lambda: write_file(path, b"x")):
        with pytest.raises(InputError) as refused:
            attempt()
        assert "\n" not in str(refused.value)
        assert str(refused.value).startswith(str(tmp_path))
    assert names(tmp_path) == ["file"]
    assert (tmp_path / "file").read_text() == "kept"


def test_what_is_there_is_replaced_only_on_request(tmp_path):
    write_file(tmp_path / "x", b"")
    with pytest.raises(InputError, match="exists already; overwrite with -f"):
        check_free(tmp_path / "x", force=False)
    check_free(tmp_path / "x", force=True)
    check_folder(tmp_path / "new" / "below")
    with pytest.raises(InputError, match="not a folder"):
        check_folder(tmp_path / "x" / "below")
    assert names(tmp_path) == ["x"]


VERBS = {
    "analyze": (("analyze", "TRACE", "-o"), ""),
    "demo": (("demo", "-o"), ""),
    "path": (("path", "TRACE", "-o"), ".svg"),
    "path as a graph": (("path", "TRACE", "--graph"), ".graphml"),
    "pack": (("pack", "TRACE", "-o"), ".atlas"),
    "goal expand": (("goal", "expand", *COLLECTIVE, "-o"), ".goal"),
    "goal expand, compressed": (("goal", "expand", *COLLECTIVE, "-o"), ".goal.zst"),
    "goal draw": (("goal", "draw", *COLLECTIVE, "-o"), ".svg"),
    "goal export": (("goal", "export", "TRACE", "-o"), ".goal"),
    "the LP": (("goal", "expand", *COLLECTIVE, "--solve", "--write-lp"), ".lp"),
}

WAYS = ["below a file", "too long", "no folder", "a folder of that name"]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_says_in_one_line_that_it_cannot_write(tmp_path, monkeypatch, verb, way):
    """Exit code 2, one line with the path, nothing left behind, and nothing solved in vain."""
    words, ending = VERBS[verb]
    is_folder = not ending
    if is_folder and way in ("no folder", "a folder of that name"):
        pytest.skip("folders are made where they are missing, and used where they are there")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ATLAS_LP_CACHE", str(tmp_path / "cache"))
    (tmp_path / "traces").mkdir()
    two_ranks(tmp_path / "traces")
    (tmp_path / "file").write_text("kept")
    (tmp_path / f"folder{ending or '.d'}").mkdir()
    target = {
        "below a file": f"file/x{ending}",
        "too long": "x" * 300 + ending,
        "no folder": f"missing/x{ending}",
        "a folder of that name": f"folder{ending}",
    }[way]
    before = names(tmp_path)
    arguments = ["traces" if word == "TRACE" else word for word in words]
    result = CliRunner().invoke(main, [*arguments, target])
    assert result.exit_code == 2, result.output
    assert result.stdout == ""
    (line,) = result.stderr.splitlines()
    assert line.startswith("Error: ")
    assert target[:20] in line or str(tmp_path / target.split("/")[0]) in line or target.split("/")[0] in line
    assert names(tmp_path) == before
    assert (tmp_path / "file").read_text() == "kept"


EMPTY = {
    **{verb: (*words, "") for verb, (words, _) in VERBS.items()},
    "inspect": ("inspect", ""),
    "sweep": ("sweep", "", "--latency", "0:1us"),
    "goal solve": ("goal", "solve", ""),
    "cache ls": ("cache", "ls", "--cache", ""),
    "a cache": ("validate", "TRACE", "--cache", ""),
    "costs": ("validate", "TRACE", "--costs", ""),
    "a placement": ("inspect", "TRACE", "--placement", ""),
}


@pytest.mark.parametrize("verb", EMPTY)
def test_an_empty_name_is_refused_and_not_taken_for_the_working_folder(tmp_path, monkeypatch, verb):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ATLAS_LP_CACHE", str(tmp_path / "cache"))
    (tmp_path / "traces").mkdir()
    two_ranks(tmp_path / "traces")
    two_ranks(tmp_path)
    before = names(tmp_path)
    result = CliRunner().invoke(main, ["traces" if word == "TRACE" else word for word in EMPTY[verb]])
    assert result.exit_code == 2, result.output
    assert result.stderr.splitlines()[-1].endswith("the name is empty; the working folder is '.'")
    assert names(tmp_path) == before
