"""The documentation is true: its commands run and print what it shows, and every verb and option is documented."""

import importlib.util
import os
import re
import shlex
import subprocess
import sys
import tomllib
from fractions import Fraction
from pathlib import Path

import click
import numpy as np
import pytest
from click.testing import CliRunner
from helpers import ROOT

import atlas_lp
from atlas_lp import errors
from atlas_lp.cli import main
from atlas_lp.fabrics.fabric import load_fabric
from atlas_lp.goal.event_graph import PortRule, event_graph
from atlas_lp.goal.text import parse_goal
from atlas_lp.solver.axis import GAP, LATENCY
from atlas_lp.solver.envelope import Box
from atlas_lp.solver.solve import solve

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
CONSOLE = re.compile(r"```console\n(.*?)```", re.DOTALL)


def steps(page):
    """(command, expected output) of every console block of a page, in order."""
    for block in CONSOLE.findall(page.read_text("utf-8")):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, expected = part.partition("\n")
            yield command, expected


def matches(expected, printed):
    """``...`` stands for any text inside a line, or for any number of whole lines."""
    lines = [
        r"(?s:.*)" if line == "..." else re.escape(line).replace(r"\.\.\.", r"[^\n]*")
        for line in expected.strip("\n").split("\n")
    ]
    return re.fullmatch("\n".join(lines), printed.strip("\n")) is not None


@pytest.mark.parametrize("page", [p for p in PAGES if CONSOLE.search(p.read_text("utf-8"))], ids=lambda p: p.name)
def test_commands_print_what_the_page_shows(page, tmp_path, monkeypatch):
    monkeypatch.setenv("ATLAS_LP_CACHE", str(tmp_path / "cache"))
    for example in (ROOT / "docs").glob("*.goal"):
        (tmp_path / example.name).write_bytes(example.read_bytes())
    for command, expected in steps(page):
        words = shlex.split(command)
        assert words[0] == "atlas-lp", command
        result = subprocess.run(
            [sys.executable, "-m", "atlas_lp", *words[1:]], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert result.returncode == 0, (command, result.stderr)
        assert matches(expected, result.stdout), f"$ {command}\n{result.stdout}"


def load_script(name):
    spec = importlib.util.spec_from_file_location(name, ROOT / "docs" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


reference = load_script("reference")


@pytest.mark.parametrize(("path", "text"), reference.generated().items(), ids=lambda value: getattr(value, "name", ""))
def test_what_is_generated_is_current(path, text):
    assert path.read_text("utf-8") == text, "run: python docs/reference.py"


@pytest.mark.parametrize(("path", "command"), list(reference.commands(main, "atlas-lp")), ids=str)
def test_every_verb_has_an_example_and_every_option_a_meaning(path, command):
    assert "Example:" in command.help, path
    if isinstance(command, click.Group):
        return
    for parameter in command.params:
        if isinstance(parameter, click.Option) and not isinstance(parameter.type, click.Choice):
            assert parameter.help or parameter.show_default, f"{path} {parameter.opts}"


EXIT_CODES = {
    0: "an answer",
    1: "a threshold given by the user",
    2: "refused or bad input",
    3: "a validation gate",
    70: "a defect of atlas-lp",
    130: "interrupted",
    141: "nobody reads the output",
    143: "ended by SIGTERM",
}


def every_error(base=errors.AtlasError):
    yield base
    for derived in base.__subclasses__():
        yield from every_error(derived)


def test_exit_codes_are_documented_with_their_meaning():
    page = (ROOT / "docs" / "cli.md").read_text("utf-8")
    sentence = re.search(r"Exit codes: (.*?)\.\n", page, re.DOTALL)[1]
    meanings = dict(re.match(r"(\d+) (.*)", part.strip(), re.DOTALL).groups() for part in sentence.split(";"))
    assert {int(code) for code in meanings} == set(EXIT_CODES)
    assert {error.exit_code for error in every_error()} == {1, 2, 3}
    for code, words in EXIT_CODES.items():
        assert words in " ".join(meanings[str(code)].split())
    for error in every_error():
        named = re.search(rf"\b{error.__name__} \((\d)\)", errors.__doc__)
        assert error.exit_code == (int(named[1]) if named else error.__base__.exit_code), error


def test_exit_codes_of_an_answer_and_of_a_refusal(tmp_path):
    refused = CliRunner().invoke(main, ["inspect", str(tmp_path / "nosuch.sqlite")])
    assert (CliRunner().invoke(main, ["--version"]).exit_code, refused.exit_code) == (0, 2)


def test_changelog_begins_with_what_is_not_released_or_with_this_version():
    sections = re.findall(
        r"^## \[(.*?)\].*?\n(.*?)(?=^## \[|\Z)", (ROOT / "CHANGELOG.md").read_text("utf-8"), re.M | re.S
    )
    name, entries = sections[0]
    assert re.findall(r"^- \S", entries, re.MULTILINE), f"[{name}] has no entries"
    assert name in ("Unreleased", atlas_lp.__version__)
    released = [name for name, _ in sections if name != "Unreleased"]
    assert not released or released[0] == atlas_lp.__version__
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert project["version"] == atlas_lp.__version__


# --- commands that are shown without their output -----------------------------------------------------------

SHOWN = re.compile(r"^ +(?:\.venv/bin/)?(atlas-lp .*|make .*)|^(?:\.venv/bin/)?(atlas-lp .*|make .*)", re.MULTILINE)


def shown_commands():
    for page in (*PAGES, ROOT / "CONTRIBUTING.md"):
        blocks = re.findall(r"```(?:sh|text)\n(.*?)```", page.read_text("utf-8"), re.DOTALL)
        indented = re.findall(r"^    .*", page.read_text("utf-8"), re.MULTILINE)
        for found in SHOWN.finditer("\n".join([*blocks, *indented])):
            yield page.name, (found[1] or found[2]).partition("#")[0].partition("  ")[0].strip()


@pytest.mark.parametrize(("page", "command"), sorted(set(shown_commands())))
def test_commands_shown_exist(page, command):
    words = shlex.split(command)
    if words[0] == "make":
        assert set(words[1:]) <= set(re.findall(r"^(\w+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
        return
    found, rest = main, words[1:]
    while isinstance(found, click.Group) and rest and not rest[0].startswith("-"):
        assert rest[0] in found.commands, command
        found, rest = found.commands[rest[0]], rest[1:]
    known = {option for parameter in found.params for option in parameter.opts} | {"--help", "-h", "--version"}
    assert {word.partition("=")[0] for word in rest if re.match("--?[a-z]", word)} <= known, command


# --- pages, links, words ------------------------------------------------------------------------------------


def prose(page):
    """A page without code: fenced blocks, indented commands and words between backticks."""
    text = re.sub(r"```.*?```", "", page.read_text("utf-8"), flags=re.DOTALL)
    return re.sub(r"`[^`\n]*`", "`", re.sub(r"^    .*", "", text, flags=re.MULTILINE))


def anchors(page):
    text = page.read_text("utf-8")
    headings = re.findall(r"^#+ (.*)", text, re.MULTILINE)
    return {re.sub(r"[^\w -]", "", h.lower()).replace(" ", "-") for h in headings} | set(
        re.findall(r'<a id="(.*?)"', text)
    )


WRITTEN = [*PAGES, *(ROOT / name for name in ("CONTRIBUTING.md", "CHANGELOG.md", "benchmarks/README.md"))]


@pytest.mark.parametrize("page", WRITTEN, ids=lambda page: page.name)
def test_links_and_paths_lead_somewhere(page):
    text = page.read_text("utf-8")
    for target, anchor in re.findall(r"\]\((?!https?:)([^)#\s]*)#?([^)\s]*)\)", text):
        place = page.parent / target if target else page
        assert place.exists(), target
        assert not anchor or anchor in anchors(place), f"{target}#{anchor}"
    if page.name == "CHANGELOG.md":
        return
    for path in re.findall(
        r"`((?:atlas_lp|goal|signatures|traces|cache|tests|docs|benchmarks|examples)/[\w./]*)`", text
    ):
        assert (ROOT / path).exists(), path


def test_sections_cited_in_the_code_exist():
    listed = subprocess.run(["git", "ls-files", "*.py"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in listed.split():
        text = (ROOT / name).read_text("utf-8")
        assert "DES" + "IGN section" not in text, name
        for page, anchor in re.findall(r"(docs/\w+\.md)(?:#([\w-]+))?", text):
            assert (ROOT / page).exists() or "tmp_path" in text, (name, page)
            assert not anchor or anchor in anchors(ROOT / page), (name, anchor)


def test_every_page_is_in_the_index_and_the_index_in_the_readme():
    listed = re.findall(r"\]\((.*?)\)", (ROOT / "docs" / "index.md").read_text("utf-8"))
    assert {*listed, "index.md"} == {page.name for page in (ROOT / "docs").glob("*.md")}
    assert "(docs/index.md)" in (ROOT / "README.md").read_text("utf-8")


DESIGN_WORDS = """Trace, Operation, Instance, Signature, Schedule, EventGraph, PathVector, Envelope, Fabric, Program,
Axis, Candidate, Variant, Band, Residual"""
FIELD_WORDS = """L, o, g, G, LogGP, GOAL, Channel, Slice, Chunk, Protocol, LL, LL128, Simple, Algorithm, Breakpoint,
Bracket, Priority, Arrival skew, NIC contention, Critical path, Latency sensitivity, Latency tolerance, Rank class,
Solver check, Approximation, Launch group"""


def test_glossary_is_alphabetical_and_complete():
    words = re.findall(r"^- \*\*(.*?)\*\*:", (ROOT / "docs" / "glossary.md").read_text("utf-8"), re.MULTILINE)
    assert [word.casefold() for word in words] == sorted(word.casefold() for word in words)
    assert len(set(words)) == len(words)
    assert set(re.split(r",\s+", f"{DESIGN_WORDS}, {FIELD_WORDS}")) - set(words) == set()


COINED = {"uneven": "arrival skew", "first model": "approximation", "certificate": "solver check"}
SAYS_WHAT_WAS_RENAMED = "CHANGELOG.md"


@pytest.mark.parametrize("page", [p for p in WRITTEN if p.name != SAYS_WHAT_WAS_RENAMED], ids=lambda page: page.name)
def test_prose_uses_the_words_of_the_field(page):
    for coined, word in COINED.items():
        assert coined not in prose(page).lower(), f"write {word}"


def test_paragraphs_of_the_model_are_short():
    for paragraph in re.split(r"\n\s*\n", prose(ROOT / "docs" / "model.md")):
        for item in re.split(r"\n(?=- |\d\. |\|)", paragraph):
            assert len(item.split()) <= 90, item


# --- rooms and the example of the model ---------------------------------------------------------------------


def test_every_folder_with_code_is_a_room_and_rooms_stand_on_lower_ones():
    rooms = reference.rooms()
    package = ROOT / "atlas_lp"
    folders = {
        str(Path(folder).relative_to(package))
        for folder, _, files in os.walk(package, followlinks=True)
        if any(file.endswith(".py") for file in files)
    }
    assert {room["folder"] or "." for room in rooms.values()} == folders
    loose = {path.stem for path in package.glob("*.py")}
    assert loose <= {file for room in rooms.values() for file in room.get("files", ())}
    names = list(rooms)
    for place, room in enumerate(rooms.values()):
        assert set(room["may_import"]) <= set(names[:place]), room["name"]


def test_the_example_of_the_model_is_what_is_computed_by_hand():
    drawn = load_script("model_figure")
    schedule = parse_goal((ROOT / "docs" / "three_ranks.goal").read_text("utf-8"))
    envelope = solve(event_graph(schedule, np.arange(3), PortRule.PORT), load_fabric(), Box())
    below, above = envelope.along(LATENCY, Fraction(1, 25))
    assert (below.constant_ns, below.slope) == (Fraction("12021.4"), 1)
    assert (above.constant_ns, above.slope) == (Fraction("8042.8"), 2)
    assert below.stop == above.start == drawn.breakpoint_ns() == Fraction(19893, 5)
    assert envelope.along(GAP, Fraction(3700))[0].stop == Fraction(580, 13107)
    for latency in (Fraction(0), Fraction(3700), Fraction(10_000)):
        by_hand = max(drawn.end_ns(rank, latency) for rank in range(3))
        assert envelope.time_ns(latency, Fraction(1, 25)) == by_hand


def test_the_figure_of_the_model_is_the_same_twice_and_says_what_it_shows():
    drawn = load_script("model_figure")
    assert drawn.picture() == drawn.picture()
    words = re.compile(rb">([^<>\n]+)</text>")
    assert words.findall(drawn.picture()) == words.findall(drawn.PICTURE.read_bytes()), (
        "run: python docs/model_figure.py"
    )


def test_nothing_committed_names_a_path_of_a_machine():
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in filter(None, listed.split("\0")):
        path = ROOT / name
        if path.is_file() and not path.is_symlink() and path.suffix in (".py", ".md", ".toml", ".html", ""):
            text = path.read_text("utf-8", errors="replace")
            assert "/work/" + "main" not in text, name
            assert "/ro" + "ot/" not in text, name
