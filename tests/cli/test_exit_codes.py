"""What ends the command, and the code it ends with; 1 is a threshold and nothing else."""

import os
import signal
import subprocess
import sys
import time

import pytest
from helpers import ROOT

COMMAND = [sys.executable, "-m", "atlas_lp"]
LONG_HELP = ["goal", "expand", "--help"]


def ended(arguments, code="", **options):
    """Run the command, after some *code* that changes it, in a process of its own."""
    words = [sys.executable, "-c", f"{code}\nfrom atlas_lp.cli import run\nrun()"] if code else COMMAND
    return subprocess.run([*words, *arguments], capture_output=True, text=True, check=False, cwd=ROOT, **options)


def verb_that(body):
    """Code that adds a verb ``odd`` with this body."""
    return f"import click\nfrom atlas_lp.cli import main\n@main.command()\ndef odd():\n    {body}\n"


def test_an_answer_and_a_refusal():
    assert ended(["--version"]).returncode == 0
    refused = ended(["sweep", "nowhere", "--latency", "0:1us"])
    assert (refused.returncode, refused.stdout) == (2, "")
    assert refused.stderr.startswith("Error: nowhere: no analysis here")
    assert ended(["sweep"]).returncode == 2


def test_a_defect_shows_where_and_is_no_threshold():
    broken = ended(["odd"], verb_that("{}['missing']"))
    assert broken.returncode == 70
    assert "KeyError: 'missing'" in broken.stderr
    assert broken.stderr.splitlines()[-1].startswith("Error: this is a defect of atlas-lp")


def test_a_file_that_vanishes_in_the_middle_is_a_defect_with_its_name():
    broken = ended(["odd"], verb_that("open('/nowhere/at/all')"))
    assert broken.returncode == 70
    assert "/nowhere/at/all" in broken.stderr


def test_interrupted():
    body = "print('ready', flush=True); __import__('time').sleep(60)"
    # Started in the background of a script, as by a gate, a process is told to ignore the signal.
    heard = "import signal\nsignal.signal(signal.SIGINT, signal.default_int_handler)\n"
    code = f"{heard}{verb_that(body)}\nfrom atlas_lp.cli import run\nrun()"
    running = subprocess.Popen(
        [sys.executable, "-c", code, "odd"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT
    )
    assert running.stdout.readline() == "ready\n"
    running.send_signal(signal.SIGINT)
    _, said = running.communicate(timeout=30)
    assert (running.returncode, said) == (130, "\ninterrupted\n")


def test_nobody_reads_the_output():
    read, write = os.pipe()
    os.close(read)
    try:
        done = subprocess.run(
            [*COMMAND, *LONG_HELP], stdout=write, stderr=subprocess.PIPE, text=True, check=False, cwd=ROOT
        )
    finally:
        os.close(write)
    assert (done.returncode, done.stderr) == (141, "")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no device that is always full")
def test_the_output_is_full():
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [*COMMAND, *LONG_HELP], stdout=full, stderr=subprocess.PIPE, text=True, check=False, cwd=ROOT
        )
    assert done.returncode == 2
    assert done.stderr == "Error: the output cannot be written (No space left on device)\n"


NSYS = """#!/bin/sh
echo $$ > pids
sleep 300 & echo $! >> pids
while [ "$1" != -o ]; do shift; done
echo half > "$2"
echo ready > ready
wait
"""
"""A program in the place of nsys that has started another one and written half a file."""


def alive(number):
    """Whether a process runs; one that has ended, and was not asked for its code yet, does not."""
    try:
        with open(f"/proc/{number}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.skipif(not os.path.exists("/proc/self/stat"), reason="looks for processes in /proc")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_signal_during_an_export_ends_the_exporter_and_sweeps_its_files(number, tmp_path):
    for folder in ("bin", "tmp"):
        (tmp_path / folder).mkdir()
    (tmp_path / "bin" / "nsys").write_text(NSYS)
    (tmp_path / "bin" / "nsys").chmod(0o755)
    (tmp_path / "-x.nsys-rep").write_text("report")
    environment = {**os.environ, "PATH": f"{tmp_path}/bin:{os.environ['PATH']}", "TMPDIR": f"{tmp_path}/tmp"}
    heard = "import signal, sys; sys.path.insert(0, sys.argv.pop(1))\n"
    heard += f"signal.signal({int(number)}, signal.default_int_handler if {int(number)} == 2 else signal.SIG_DFL)\n"
    words = [sys.executable, "-c", f"{heard}from atlas_lp.cli import run\nrun()", ROOT, "inspect", "."]
    running = subprocess.Popen(words, stderr=subprocess.PIPE, text=True, cwd=tmp_path, env=environment)
    deadline = time.monotonic() + 60
    while not (tmp_path / "ready").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    started = [int(word) for word in (tmp_path / "pids").read_text().split()]
    assert len(started) == 2
    assert all(map(alive, started))
    assert [path.read_text() for path in (tmp_path / "tmp").glob("*/*")] == ["half\n"]
    running.send_signal(number)
    _, said = running.communicate(timeout=30)
    assert (running.returncode, said.strip()) == (128 + number, "interrupted" if number == signal.SIGINT else "")
    while any(map(alive, started)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(map(alive, started))
    assert list((tmp_path / "tmp").iterdir()) == []


def test_nohup_is_heard():
    body = "print(__import__('signal').getsignal(1) == 1, flush=True)"
    done = ended(["odd"], f"import signal\nsignal.signal(signal.SIGHUP, signal.SIG_IGN)\n{verb_that(body)}")
    assert done.stdout == "True\n"


def test_a_warning_is_a_line_without_what_acts():
    done = ended(["odd"], verb_that("__import__('warnings').warn('one\\x1b[31m\\ntwo')"))
    assert (done.returncode, done.stderr) == (0, "Warning: one\\x1b[31m\\ntwo\n")
