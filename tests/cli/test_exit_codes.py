"""What ends the command, and the code it ends with; 1 is a threshold and nothing else."""

import os
import signal
import subprocess
import sys

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
