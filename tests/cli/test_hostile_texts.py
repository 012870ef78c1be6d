"""Every verb on inputs whose every text is hostile: nothing of them acts on a terminal, a page or a parser."""

import json
import os
import signal
import sqlite3
import subprocess
import sys
from collections import Counter
from contextlib import closing
from html.parser import HTMLParser
from xml.etree import ElementTree as ET

import click
import pytest
from helpers import ROOT
from helpers.hostile import FILE_NAME, MANY_DIGITS, SURROGATE, TEXT, kineto, nsight

from atlas_lp import cli
from atlas_lp.texts import acts, plain

TYPED = TEXT.replace("\0", "")
"""What can be typed: no argument of a program holds a NUL."""

NCCL = f"2.28 {TYPED}"
COMMENT = "".join(c for c in TYPED if c.isascii() and c not in "\r\n")
COLLECTIVE = ("--type", "allreduce", "--size", "1MiB", "--ranks", "4", "--gpus-per-node", "2")
GOAL = "num_ranks 2\nrank 0 {\na: calc 5\nb: send 100b to 1\nb requires a\n}\nrank 1 {\nc: recv 100b from 0\n}\n"

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="file names that are no UTF-8")


@pytest.fixture(autouse=True)
def _signals():
    """Signals as they were: the command changes what they do."""
    numbers = (signal.SIGTERM, signal.SIGHUP)
    before = [signal.getsignal(number) for number in numbers]
    yield
    for number, handler in zip(numbers, before, strict=True):
        signal.signal(number, handler)


@pytest.fixture
def run(monkeypatch, capfdbinary):
    """Run the command as a shell does: its code, stdout and stderr, of which nothing acts on a terminal."""

    def ran(*words, codes=(0,)):
        capfdbinary.readouterr()
        monkeypatch.setattr(sys, "argv", ["atlas-lp", *map(str, words)])
        with pytest.raises(SystemExit) as ended:
            cli.run()
        out, err = (stream.decode() for stream in capfdbinary.readouterr())
        assert {c for c in out + err if acts(c)} <= {"\n"}
        assert (ended.value.code or 0) in codes, out + err
        return out, err

    return ran


@pytest.fixture(scope="module")
def hostile(tmp_path_factory):
    return nsight(tmp_path_factory.mktemp("hostile") / FILE_NAME, TEXT, FILE_NAME)


@pytest.fixture(scope="module")
def clean(tmp_path_factory):
    return nsight(tmp_path_factory.mktemp("clean"))


@pytest.fixture(scope="module")
def kineto_files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("kineto") / FILE_NAME
    return kineto(
        folder, name=f"ncclDevKernel_AllReduce{TEXT}", nccl_version=f"2.21.5 {TEXT}", **{"Process Group Name": TEXT}
    )


@pytest.fixture
def texts(tmp_path):
    """Files beside a trace whose texts are hostile."""
    escaped = "".join(f"\\U{ord(c):08x}" for c in TEXT)
    fabric = (ROOT / "atlas_lp/fabrics/alps.toml").read_text().replace('"alps"', f'"{escaped}"')
    costs = (ROOT / "signatures/costs_gh200.toml").read_text().replace('= "', f'= "{escaped}')
    contents = {
        "fabric": fabric,
        "costs": costs,
        "placement": "\n".join((TYPED.partition("\r")[0], "other")),
        "assume": '[[collective]]\ntype = "AllReduce"\nalgorithm = "ring"\nprotocol = "simple"\n',
        "log": f"{TYPED}\nnode0:100:100 [0] NCCL INFO NCCL version 2.20.5{TYPED}\n",
        "schedule": f"// {COMMENT}\n{GOAL}",
    }
    paths = {}
    for name, content in contents.items():
        paths[name] = tmp_path / f"{FILE_NAME}.{name}"
        paths[name].write_text(content, newline="")
    return paths


VERBS = {
    "inspect": ("inspect", "TRACES", "--placement", "placement"),
    "analyze": ("analyze", "TRACES", "-o", "OUT", "--fabric", "fabric", "--costs", "costs", "--nccl-log", "log"),
    "path": ("path", "TRACES", "-o", "OUT.svg", "--graph", "OUT.graphml", "--fabric", "fabric"),
    "pack": ("pack", "TRACES", "-o", "OUT.atlas", "--assume", "assume"),
    "validate": ("validate", "TRACES", "--fabric", "fabric"),
    "export": ("goal", "export", "TRACES", "-o", "OUT.goal"),
    "expand": ("goal", "expand", *COLLECTIVE, "--solve", "-o", "OUT.goal", "--nccl", NCCL, "--fabric", "fabric"),
    "draw": ("goal", "draw", *COLLECTIVE, "-o", "OUT.svg", "--nccl", NCCL),
    "solve": ("goal", "solve", "schedule", "--write-lp", "OUT.lp", "--fabric", "fabric"),
    "sweep": ("goal", "solve", "schedule", "--solver", "sweep", "--points", "3"),
    "along": ("goal", "solve", "schedule", "--along", "compute=0.5:2"),
    "cache": ("cache", "ls", "--cache", "OUT"),
}
"""A command per verb; TRACES, OUT and the names of :func:`texts` stand for files."""

PRINTS_JSON = ("inspect", "analyze", "path", "validate", "expand", "solve", "sweep", "along", "cache")


def words_of(verb, traces, texts, folder, *more):
    """The command of a verb, with files in place of their names."""
    for word in (*VERBS[verb], *more):
        if word == "TRACES":
            yield from traces
        else:
            yield texts[word] if word in texts else word.replace("OUT", str(folder / FILE_NAME))


ON = [(verb, source) for verb in VERBS for source in ("hostile", "kineto_files")[: 1 + ("TRACES" in VERBS[verb])]]


@pytest.mark.parametrize(("verb", "source"), ON)
def test_every_verb_prints_texts_as_they_can_be_seen(verb, source, run, texts, tmp_path, request):
    traces = request.getfixturevalue(source)
    run(*words_of(verb, traces, texts, tmp_path))
    if verb in PRINTS_JSON:
        out, _ = run(*words_of(verb, traces, texts, tmp_path, "--json", *(["-f"] if "-o" in VERBS[verb] else [])))
        strict = json.loads(out, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
        assert json.dumps(strict, ensure_ascii=False).encode(), "no half a pair of UTF-16"


def test_what_is_shown_is_what_was_recorded(run, hostile, tmp_path):
    listed = json.loads(run("inspect", *hostile, "--json")[0])
    assert [clock["host"] for clock in listed["clocks"]] == [f"node{n}{TEXT}" for n in (0, 1)]
    assert all(name.endswith("\\xff\x1b[31m\\x9b\n<b>[red]'\".sqlite") for name in listed["trace"]["files"])
    assert plain(TEXT)[:60] in run("inspect", *hostile)[0].replace("\n", "")
    packed = tmp_path / f"{FILE_NAME}.atlas"
    run("pack", *hostile, "-o", packed)
    assert json.loads(run("inspect", packed, "--json")[0]) == listed


class Elements(HTMLParser):
    """Elements of a page with the names of their attributes, and the text outside of scripts and styles."""

    def __init__(self, page):
        super().__init__(convert_charrefs=True)
        self.found, self.words, self.inside = Counter(), [], []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag, attributes):
        self.inside = [tag]
        self.found[tag, *sorted(name for name, _ in attributes)] += 1

    def handle_endtag(self, tag):
        self.inside = []

    def handle_data(self, data):
        if self.inside not in (["script"], ["style"]):
            self.words.append(data)


def test_the_page_has_the_elements_of_a_clean_one(run, hostile, clean, texts, tmp_path):
    pages = []
    for traces, folder, fabric in ((hostile, FILE_NAME, texts["fabric"]), (clean, "clean", "alps")):
        run("analyze", *traces, "-o", tmp_path / folder, "--fabric", fabric)
        pages.append((tmp_path / folder / "report.html").read_bytes().decode())
    assert {c for c in pages[0] if acts(c)} == {"\n"}
    mine, theirs = (Elements(page) for page in pages)
    assert mine.found == theirs.found
    assert sum(theirs.found.values()) > 100
    assert plain(TEXT).strip() in "".join(mine.words).replace("\N{NO-BREAK SPACE}", " ")
    out, _ = run("sweep", tmp_path / FILE_NAME, "--latency", "0:20us:3", "--json")
    assert [row["time_ns"] for row in json.loads(out)["rows"]]


def test_pictures_and_graphs_are_xml_without_markup_of_texts(run, hostile, tmp_path):
    run("path", *hostile, "-o", tmp_path / "path.svg", "--graph", tmp_path / "path.graphml")
    run("goal", "draw", *COLLECTIVE, "-o", tmp_path / "draw.svg", "--nccl", NCCL)
    for name in ("path.svg", "path.graphml", "draw.svg"):
        tree = ET.parse(tmp_path / name)
        assert not {element.tag.rpartition("}")[2] for element in tree.iter()} & {"script", "img"}
    assert plain(TYPED).split("[")[0] in (tmp_path / "draw.svg").read_text()


@pytest.mark.parametrize(
    "words",
    [
        (FILE_NAME,),
        ("inspect", FILE_NAME),
        ("inspect", f"--{FILE_NAME}"),
        ("inspect", "TRACES", "--range", FILE_NAME),
        ("inspect", "TRACES", "--range", TYPED),
        ("inspect", "TRACES", "--gpus-per-node", TYPED),
        ("inspect", "TRACES", "--from", TYPED),
        ("analyze", "TRACES", "--json", "--free", FILE_NAME),
        ("analyze", "TRACES", "--json", "--fabric", TYPED),
        ("analyze", "TRACES", "--json", "--fabric-of", TYPED),
        ("analyze", "TRACES", "--json", "--latency-box", TYPED),
        ("goal", "expand", *COLLECTIVE, "--solve", "--nccl", TYPED),
        ("goal", "expand", *COLLECTIVE, "--solve", "--along", TYPED),
        ("goal", "expand", *COLLECTIVE, "--solve", "--dtype", FILE_NAME),
        ("goal", "export", "TRACES", "-o", "x.goal", "--signature", TYPED),
        ("goal", "solve", FILE_NAME),
        ("sweep", FILE_NAME, "--latency", "0:1us"),
    ],
)
def test_refusals_quote_what_was_typed_as_it_can_be_seen(words, run, clean):
    out, err = run(*(part for word in words for part in (clean if word == "TRACES" else [word])), codes=(2,))
    assert out == ""
    assert "Error: " in err


def test_a_defect_shows_its_lines_without_what_acts(run, monkeypatch):
    def broken():
        raise KeyError(TEXT) from ValueError(TEXT)

    monkeypatch.setitem(cli.main.commands, "odd", click.Command("odd", callback=broken))
    _, err = run("odd", codes=(70,))
    assert "\nKeyError: " in err


def test_long_texts_do_not_fill_the_screen(run):
    _, err = run("goal", "expand", *COLLECTIVE, "--solve", "--nccl", "x" * 100_000, codes=(2,))
    assert len(err) < 300
    for words in (
        ["inspect", "x/" * 50_000],
        ["sweep", "x" * 50_000, "--latency", "0:1us"],
        ["goal", "solve", "x" * 300],
    ):
        _, err = run(*words, codes=(2,))
        assert len(err) < 3_000
        assert "File name too long" in err


def test_a_kineto_trace_that_says_too_little_is_refused_for_that(run, tmp_path):
    said = [run(verb, *kineto(tmp_path, dtype="²"), "--json", codes=(2,)) for verb in ("inspect", "analyze")]
    assert said[0] == said[1]
    assert "bytes are unknown" in said[0][1]


def test_half_a_pair_in_a_payload_is_written_out(run, clean, tmp_path):
    copies = [tmp_path / path.name for path in clean]
    for path, copy in zip(clean, copies, strict=True):
        copy.write_bytes(path.read_bytes())
        with closing(sqlite3.connect(copy)) as db, db:
            changed = "replace(jsonText, '\"Sum\"', '\"\\ud800\"')"
            done = db.execute(f"UPDATE NVTX_EVENTS SET jsonText = {changed} WHERE jsonText LIKE '%\"Sum\"%'")
            assert done.rowcount == 2
    assert run("inspect", *copies)[0] == run("inspect", *clean)[0]
    run("pack", *copies, "-o", tmp_path / "x.atlas")


FIELDS = {"name": "ncclDevKernel_AllReduce", "nccl_version": "2.21.5", "Collective name": "allreduce"}
ANYTHING = (TEXT, SURROGATE, MANY_DIGITS, "²", [], {}, None, 1e308, True, 10**4000)
FIELDS |= {"dtype": "Float", "Process Group Name": "0", "Process Group Ranks": "[0, 1]"}


@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize(
    "value", [TEXT, SURROGATE, MANY_DIGITS, "²", [], {}, None, 1e308, True, 10**4000], ids=range(10)
)
def test_every_text_of_kineto_may_be_anything(field, value, run, tmp_path):
    files = kineto(tmp_path, **{field: FIELDS[field] + value if isinstance(value, str) else value})
    run("inspect", *files, codes=(0, 2))
    run("analyze", *files, "-o", tmp_path / "out", "--no-cache", codes=(0, 2))
    run("pack", *files, "-o", tmp_path / "x.atlas", codes=(0, 2))


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp437"])
def test_a_terminal_without_the_signs_gets_what_it_can_show(encoding, clean, tmp_path):
    environment = {**os.environ, "PYTHONIOENCODING": encoding}
    for more, read in (((), encoding), (("--json",), "utf-8")):
        words = ["atlas_lp", "analyze", *clean, "-o", tmp_path / f"{encoding}{len(more)}", *more]
        command = [sys.executable, "-m", *map(str, words)]
        done = subprocess.run(command, capture_output=True, check=False, cwd=ROOT, env=environment)
        assert (done.returncode, done.stderr) == (0, b"")
        said = done.stdout.decode(read)
        assert json.loads(said)["schema"] if more else "AllReduce" in said
