"""Files that anybody may have made: bounded memory, bounded time, and one sentence for what is refused."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from helpers import ROOT, bombs
from helpers.jobs import two_ranks

from atlas_lp.errors import AtlasError
from atlas_lp.fabrics.fabric import load_fabric
from atlas_lp.goal.text import read_goal
from atlas_lp.signatures.costs import load_costs
from atlas_lp.traces.companions.assumptions import read_assumptions
from atlas_lp.traces.companions.debug_log import read_logs
from atlas_lp.traces.companions.profiler_dump import read_dumps
from atlas_lp.traces.reading.read import read_trace

MEMORY_BYTES = 4 << 30
"""Of addresses, of which libraries take more than one GB before anything is read."""
SECONDS = 300
"""For all of a list, making the files included; a square of a length would take hours."""

SAID = {
    "a line of 10 GB": "line 1: longer than 1048576 characters",
    "10 GB of empty lines": "more lines than a file of its size holds",
    "a number of 20 M digits": "line 3: longer than 1048576 characters",
    "a statement and a million blanks": "line 3, column 1000008: unexpected 'x'",
    "a label of a million letters": "line 3, column 1: unexpected 'aaaaa",
    "512 MB of blanks in JSON": "grows to more than 100 times its size",
    "JSON of any depth": "nested too deeply",
    "a number of 20 M digits in JSON": "longer than 16777216 characters",
    "a text of 20 MB in JSON": "longer than 16777216 characters",
    "ranks of any depth": "not in the process group",
    "a shape of many dimensions": "bytes are unknown",
    "four million ranks for 3,000 kernels": "read: Trace",
    "a key of 400,000 parts": "a key of more than 16 parts",
    "lists of any depth": "nested too deeply",
    "tables of any depth": "nested too deeply",
    "a number of 5,000 digits": "of more digits than anything has",
    "a number with a large exponent": "of more digits than anything has",
    "a TOML file of 5 MB": "more than 4194304 bytes",
    "exponents as text": "points must be pairs",
    "exponents in a summary": "must map bytes to lists of ns",
    "a log line that is one word": "read: DebugLog",
    "a log line of colons": "read: DebugLog",
    "a log line of hosts": "read: DebugLog",
    "a log line of beginnings": "read: DebugLog",
    "a log line of channels": "read: DebugLog",
    "a log line of ids": "read: DebugLog",
    "a log line of trees": "read: DebugLog",
    "a log line of counts": "read: DebugLog",
    "a log line of 3 MB": "line 1: longer than 1048576 characters",
    "a log of 20,000 hosts": "read: DebugLog",
    "beginnings of events": "no collective of NCCL's profiler plugin",
    "a dump of 300 MB": "more than 268435456 bytes",
    "20,000 texts of one id": "StringIds has 20001 texts with id",
    "a payload of 2 MB": "a text of 2000000 bytes",
    "a payload of 100 KB": "a payload of more than 65536 bytes",
    "a payload of any depth": "the payload is not a JSON object",
    "a binary payload of 10 MB": "a payload of more than 65536 bytes",
    "a name of 2 MB": "a text of 2000004 bytes",
    "a stream of 10 MB": "a value is not a number of 64 bits",
    "what a program printed, 20 MB": "read: Trace",
    "an entry of 128 MB": "trace.json is larger than anything in a file of this size",
    "a description of any depth": "nested too deeply",
    "a table of 3 GB": "a table is larger than anything in a file of this size",
    "a table in 10,000 pieces": "a table is in 10000 pieces",
}

SLOW = {
    "a value of 300 MB": "a row of more than 268435456 bytes",
    "10 GB of a comment": "grows to more than 300 times its size",
    "events of two characters": "more events than a file of its size holds",
    "a wide JSON value": "longer than 16777216 characters",
    "keys of 15 parts": "needs scale_out",
    "a wide description": "not JSON",
}


def outcomes(folder, names):
    """What a process of its own, which is short of memory, says to each of them."""
    command = [sys.executable, "-m", "helpers.bombs", str(folder), str(MEMORY_BYTES), *names]
    path = os.pathsep.join([str(ROOT), str(ROOT / "tests")])
    result = subprocess.run(
        command, env={**os.environ, "PYTHONPATH": path}, capture_output=True, timeout=SECONDS, check=False
    )
    assert result.returncode == 0, result.stderr.decode()[-2000:]
    return json.loads(result.stdout)


@pytest.fixture(scope="module")
def said(tmp_path_factory):
    return outcomes(tmp_path_factory.mktemp("bombs"), list(SAID))


@pytest.mark.parametrize("name", SAID)
def test_what_is_large_to_read_is_refused_in_one_sentence(said, name):
    assert SAID[name] in said[name]
    assert len(said[name].splitlines()) == 1
    assert len(said[name]) < 600


@pytest.mark.slow
def test_what_takes_seconds_to_refuse(tmp_path):
    said = outcomes(tmp_path, list(SLOW))
    assert {name: words for name, words in said.items() if SLOW[name] not in words} == {}


def test_every_bomb_is_tried():
    assert {*bombs.FILES, *bombs.EDITS, *bombs.PARTS} == {*SAID, *SLOW}


READERS = {
    "x.goal": read_goal,
    "x.goal.zst": read_goal,
    "x.sqlite": lambda path: read_trace([path]),
    "x.json": lambda path: read_trace([path]),
    "x.json.gz": lambda path: read_trace([path]),
    "x.atlas": lambda path: read_trace([path]),
    "x.nsys-rep": lambda path: read_trace([path]),
    "fabric.toml": lambda path: load_fabric(str(path)),
    "costs.toml": load_costs,
    "costs.json": load_costs,
    "assumed.toml": read_assumptions,
    "nccl.log": lambda path: read_logs([path]),
    "dump": lambda path: read_dumps([path]),
}


@pytest.mark.parametrize("what", ["a pipe", "a device or a socket"])
@pytest.mark.parametrize("name", READERS)
def test_pipes_and_devices_are_no_files(tmp_path, monkeypatch, name, what):
    """A pipe that nobody writes to would be waited for, and /dev/zero never ends."""
    tool = tmp_path / "bin" / "nsys"
    tool.parent.mkdir()
    tool.write_text("#!/bin/sh\nexec cat\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tool.parent), prepend=os.pathsep)
    path = tmp_path / name
    if what == "a pipe":
        os.mkfifo(path)
    else:
        path.symlink_to("/dev/zero")
    with pytest.raises(AtlasError, match=f"{name}: is {what}, not a file"):
        READERS[name](path)


@pytest.mark.parametrize("name", READERS)
def test_folders_are_no_files(tmp_path, name):
    (tmp_path / name).mkdir()
    with pytest.raises(AtlasError) as refused:
        READERS[name](tmp_path / name)
    assert name in str(refused.value)


def test_a_placement_may_be_no_pipe(tmp_path):
    os.mkfifo(tmp_path / "nodes")
    (tmp_path / "traces").mkdir()
    two_ranks(tmp_path / "traces")
    words = ["inspect", str(tmp_path / "traces"), "--placement", str(tmp_path / "nodes")]
    result = subprocess.run(
        [sys.executable, "-m", "atlas_lp", *words], capture_output=True, text=True, timeout=60, cwd=ROOT, check=False
    )
    assert result.returncode == 2
    assert result.stderr.startswith(f"Error: {tmp_path / 'nodes'}: is a pipe")


def test_limits_are_far_from_what_is_real(tmp_path, data_dir):
    """The most lines, events and bytes that real files have, in the measure of the limits."""
    real = data_dir / "kineto/rank0_of_2_nccl2.17.json.gz"
    assert read_trace([real], allow_missing=True).operations.num_rows
    log = next((data_dir / "nccl_logs").iterdir())
    assert max(map(len, Path(log).read_text("utf-8", errors="replace").splitlines())) < 1 << 10
