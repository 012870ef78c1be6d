"""Numbers that are none, or of more digits than anything has: in options and in files, an answer or a refusal."""

import json
from fractions import Fraction

import click
import numpy as np
import pytest
from click.testing import CliRunner
from helpers import ROOT
from helpers.hostile import MANY_DIGITS, nsight

from atlas_lp.cli import main
from atlas_lp.signatures.costs import Fit

COLLECTIVE = ("--type", "allreduce", "--size", "1MiB", "--ranks", "4", "--gpus-per-node", "2")
GOAL = """num_ranks 2
rank 0 {
a: calc 5
b: send 100b to 1 tag 3 cpu 4 nic 6
b requires a
}
rank 1 {
c: recv 100b from 0 tag 3
}
"""
MANY_HEX = "0x" + "f" * 5000


def ended(*words, codes=(0, 1, 2, 3)):
    """Run a command that must end in one of the exit codes; what it printed."""
    done = CliRunner().invoke(main, [*map(str, words)])
    assert done.exception is None or isinstance(done.exception, SystemExit), (words[-2:], done.exception)
    assert done.exit_code in codes, (words[-2:], done.output)
    return done


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """What commands are given: traces, an analysis, a schedule, and a place to write."""
    folder = tmp_path_factory.mktemp("files")
    traces = nsight(folder / "traces")
    (folder / "x.goal").write_text(GOAL)
    ended("analyze", *traces, "-o", folder / "analysis", "--no-cache", codes=(0,))
    return {"TRACES": traces, "ANALYSIS": [folder / "analysis"], "GOAL": [folder / "x.goal"], "OUT": [folder / "out"]}


# --- options ------------------------------------------------------------------------------------------------

VALUES = (
    *("nan", "inf", "-inf", "-1", "0", "1e400", "", "²", "٣", " 5", "1_000", "1/0", "9" * 20, MANY_DIGITS),
    *("1e99", "1e99s", "1e-99Gbps", "1e30GB", f"{MANY_DIGITS}us", "2.²", f"2.28.{MANY_DIGITS}", f"²={MANY_DIGITS}"),
    *("0:1e99s", "nan:inf", "1us:1us", "1Gbps:1e99Gbps", "0:1us:²", "0:1us:-1", f"0:1us:{MANY_DIGITS}"),
    *("compute=nan:inf", "compute=1e999999999:2", "compute=1/0:2", "compute=-1:1", "overhead=0:1e99s"),
)

BASES = {
    ("inspect",): ("TRACES",),
    ("analyze",): ("TRACES", "--json", "--no-cache", "--gpus-per-node", "2"),
    ("path",): ("TRACES", "--gpus-per-node", "2"),
    ("validate",): ("TRACES", "--gpus-per-node", "2"),
    ("pack",): ("TRACES", "-f", "-o", "OUT.atlas"),
    ("sweep",): ("ANALYSIS", "--latency", "0:1us"),
    ("goal", "expand"): (*COLLECTIVE, "--solve"),
    ("goal", "draw"): (*COLLECTIVE, "-f", "-o", "OUT.svg"),
    ("goal", "export"): ("TRACES", "-f", "-o", "OUT.goal"),
    ("goal", "solve"): ("GOAL", "--gpus-per-node", "2"),
}
"""A command per verb that each of its options can be added to."""

OF_FILES = ("--output", "--graph", "--write-lp", "--cache", "--placement", "--assume", "--nccl-log", "--profiler-dump")


def command_of(verb):
    """The command that the words of *verb* name."""
    command = main
    for name in verb:
        command = command.commands[name]
    return command


def takes_values(option):
    """Whether anything can be typed behind *option*."""
    return not isinstance(option.type, click.Choice) and not option.is_flag and option.opts[-1] not in OF_FILES


def typed():
    """A verb and one of its options, for all of them; slow where another verb has the same option."""
    seen = set()
    for verb in BASES:
        for option in command_of(verb).params:
            if isinstance(option, click.Option) and takes_values(option):
                name = option.opts[-1]
                marks = [pytest.mark.slow] if name in seen else []
                seen.add(name)
                yield pytest.param(verb, name, id=" ".join((*verb, name)), marks=marks)


@pytest.mark.parametrize(("verb", "option"), list(typed()))
def test_no_value_of_an_option_is_a_defect(verb, option, files):
    base = list(BASES[verb])
    if option in base and verb != ("sweep",):
        del base[base.index(option) : base.index(option) + 2]
    words = [str(part) for word in base for part in files.get(word, [word.replace("OUT", str(files["OUT"][0]))])]
    for value in VALUES:
        done = ended(*verb, *words, option, value)
        assert len(done.stderr) < 3_000, value
        assert "nan" not in done.stdout.lower().split(), value


def test_every_verb_with_options_is_tried():
    verbs = {(name,) for name in main.commands} | {("goal", name) for name in main.commands["goal"].commands}
    assert verbs - set(BASES) == {("goal",), ("cache",), ("demo",)}


@pytest.mark.parametrize("value", ["nan", "inf", "-1", "1e400", "", "²", "1_0", MANY_DIGITS])
@pytest.mark.parametrize(
    "words",
    [
        ("sweep", "ANALYSIS", "--latency", "0:1us", "--at-most"),
        ("validate", "TRACES", "--tolerance"),
        ("goal", "solve", "GOAL", "--tolerance"),
    ],
)
def test_thresholds_are_finite_numbers(words, value, files):
    said = ended(*(part for word in words for part in files.get(word, [word])), value, codes=(2,)).stderr
    assert "is not a finite number" in said or "is not in the range" in said


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--points", "1000001", "--solver", "sweep"), "is not in the range 2<=x<=1000000"),
        (("--along", "compute=1e999999999:2"), "is not a factor"),
        (("--along", "compute=1/0:2"), "is not a factor"),
        (("--nccl", "2.28²"), "is no NCCL version"),
        (("--nccl", "2.28.9²"), "is no NCCL version"),
        (("--nccl", "2.²"), "is no NCCL version"),
        (("--nccl", f"2.28.{MANY_DIGITS}"), "is no NCCL version"),
        (("--ranks", "٤"), "'٤' is not a valid integer"),
        (("--ranks", MANY_DIGITS), "999...' is not a valid integer"),
        (("--size", "1e30GB"), "'1e30GB' is more bytes than 64 bits count"),
        (("--per-node", "--up-latency", "1e99s", "-o", "OUT"), "more than 64 bits hold"),
    ],
)
def test_what_is_refused_and_how(words, said, files):
    words = [str(files["OUT"][0]) if word == "OUT" else word for word in words]
    assert said in ended("goal", "expand", *COLLECTIVE, "--solve", *words, codes=(2,)).stderr


# --- schedules ----------------------------------------------------------------------------------------------

LONG = ("9" * 19, "9" * 20, MANY_DIGITS)


@pytest.mark.parametrize("number", LONG, ids=len)
@pytest.mark.parametrize(
    ("word", "digits", "line"), [("calc", "5", 3), ("send", "100", 4), ("cpu", "4", 4), ("nic", "6", 4)]
)
def test_numbers_of_goal_are_refused_in_their_line(word, digits, line, number, tmp_path):
    (tmp_path / "x.goal").write_text(GOAL.replace(f"{word} {digits}", f"{word} {number}"))
    said = ended("goal", "solve", tmp_path / "x.goal", codes=(2,)).stderr
    assert said.startswith(f"Error: {tmp_path}/x.goal, line {line}, column ")
    assert "does not fit 64 bits" in said
    assert len(said) < 300


@pytest.mark.parametrize("place", ["num_ranks 2", "rank 0 ", "to 1 ", "from 0 ", "tag 3"])
def test_names_of_ranks_and_tags_are_no_long_numbers(place, tmp_path):
    for number in LONG:
        (tmp_path / "x.goal").write_text(GOAL.replace(place, f"{place.split()[0]} {number} "))
        said = ended("goal", "solve", tmp_path / "x.goal", codes=(2,)).stderr
        assert said.startswith(f"Error: {tmp_path}/x.goal, line ")
        assert len(said) < 300


# --- files --------------------------------------------------------------------------------------------------

NUMBERS = (
    *("9" * 19, "9" * 20, MANY_DIGITS, MANY_HEX, "0." + "1" * 300, "1e400", "1e999999999", "nan", "inf", "-inf", "-1"),
    *("²", '"²"', '"nan"', f'"{MANY_DIGITS}"', "true", "[[[[]]]]", "1979-05-27"),
)

COSTS = "[simple.send]\nleast_ns = 1\noffset_ns = 2\nbytes_per_ns = 3\n"
FABRIC = (ROOT / "atlas_lp/fabrics/alps.toml").read_text()
LOG = """node0:1:1 [0] NCCL INFO NCCL version 2.NUMBER
n:NUMBER:1 [NUMBER] NCCL INFO comm 0xNUMBER rank NUMBER nranks NUMBER cudaDev 0 commId 0xNUMBER - Init START
n:NUMBER:1 [NUMBER] NCCL INFO Ring NUMBER : NUMBER -> NUMBER -> NUMBER
n:NUMBER:1 [NUMBER] NCCL INFO AllReduce: NUMBER Bytes -> Algo NUMBER proto NUMBER channel{Lo..Hi}={NUMBER..NUMBER}
"""
DUMP = """[{"name": "AllReduce", "cat": "COLL", "ph": "b", "args": {"SeqNum": NUMBER, "CommHash": NUMBER, "Count":
NUMBER, "Datatype": "NUMBER", "Algorithm": "NUMBER", "Protocol": "NUMBER", "nChannels": NUMBER}}]"""
ASSUMED = '[[collective]]\nprotocol = "ll"\n'

CONTENTS = {
    "gpus of a NIC": ("--fabric", FABRIC.replace("gpus_per_nic = 1", "gpus_per_nic = NUMBER")),
    "latency": ("--fabric", FABRIC.replace('latency = "3.7us"', "latency = NUMBER")),
    "name of a fabric": ("--fabric", FABRIC.replace('"alps"', "NUMBER")),
    "least time": ("--costs", COSTS.replace("= 1", "= NUMBER")),
    "offset": ("--costs", COSTS.replace("= 2", "= NUMBER")),
    "rate": ("--costs", COSTS.replace("= 3", "= NUMBER")),
    "size of a point": ("--costs", "[simple.send]\npoints = [[NUMBER, 5]]\n"),
    "time of a point": ("--costs", "[simple.send]\npoints = [[5, NUMBER]]\n"),
    "size of a summary": ("--costs", '{"NPKIT_EVENT_GPU_SEND": {"NUMBER": [1]}}'),
    "time of a summary": ("--costs", '{"NPKIT_EVENT_GPU_SEND": {"1": [NUMBER]}}'),
    "channels": ("--assume", f"{ASSUMED}channels = NUMBER\n"),
    "communicator": ("--assume", f"{ASSUMED}communicator = NUMBER\n"),
    "size": ("--assume", f"{ASSUMED}from_size = NUMBER\n"),
    "type": ("--assume", f"{ASSUMED}type = NUMBER\n"),
    "code": ("--assume", "[[collective]]\nprotocol = NUMBER\n"),
    "ring": ("--assume", "[[topology]]\ncommunicator = 1\nrings = [[NUMBER, 1]]\n"),
    "log": ("--nccl-log", LOG),
    "dump": ("--profiler-dump", DUMP),
}
"""Option and content of a file that a number is put into."""


@pytest.mark.parametrize("kind", CONTENTS)
def test_no_number_of_a_file_is_a_defect(kind, files, tmp_path):
    option, content = CONTENTS[kind]
    assert "NUMBER" in content
    refused = 0
    for place, number in enumerate(NUMBERS):
        file = tmp_path / f"{place}{'.json' if content.startswith('{') else '.toml'}"
        file.write_text(content.replace("NUMBER", number))
        done = ended("analyze", *files["TRACES"], "--json", "--no-cache", option, file, codes=(0, 2))
        assert len(done.stderr) < 2_200, number
        refused += done.exit_code == 2
    assert refused


@pytest.mark.parametrize("option", ["--fabric", "--costs", "--assume", "--costs of json"])
def test_deep_documents_are_refused(option, files, tmp_path):
    deep, name = 100_000, "x.json" if "json" in option else "x.toml"
    (tmp_path / name).write_text("[" * deep if name.endswith("json") else f"x = {'[' * deep}{']' * deep}")
    said = ended("analyze", *files["TRACES"], "--json", option.split()[0], tmp_path / name, codes=(2,)).stderr
    assert said.startswith(f"Error: {tmp_path}/{name}: nested too deeply")


def test_costs_are_exact_up_to_the_largest_numbers():
    rate, most = Fraction(2**30, 2**30 - 1), np.array([2**30])
    assert Fit(1, 0, rate).time_ns(most).tolist() == [2**30 - 1]


def test_numbers_as_json_are_numbers(files):
    for words in (("analyze", "TRACES", "--json", "--no-cache"), ("sweep", "ANALYSIS", "--latency", "0:1us", "--json")):
        said = ended(*(part for word in words for part in files.get(word, [word])), codes=(0,)).stdout
        assert json.loads(said, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
