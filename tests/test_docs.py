"""The documentation is true: its commands run and print what it shows, and every verb and option is documented."""

import importlib.util
import re
import shlex
import subprocess
import sys

import click
import pytest
from helpers import ROOT

from atlas_lp.cli import main

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
    for command, expected in steps(page):
        words = shlex.split(command)
        assert words[0] == "atlas-lp", command
        result = subprocess.run(
            [sys.executable, "-m", "atlas_lp", *words[1:]], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert result.returncode == 0, (command, result.stderr)
        assert matches(expected, result.stdout), f"$ {command}\n{result.stdout}"


def load_reference():
    spec = importlib.util.spec_from_file_location("reference", ROOT / "docs" / "reference.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_cli_reference_is_current():
    reference = load_reference()
    assert reference.PAGE.read_text("utf-8") == reference.reference(), "run: python docs/reference.py"


@pytest.mark.parametrize(("path", "command"), list(load_reference().commands(main, "atlas-lp")), ids=str)
def test_every_verb_has_an_example_and_every_option_a_meaning(path, command):
    assert "Example:" in command.help, path
    if isinstance(command, click.Group):
        return
    for parameter in command.params:
        if isinstance(parameter, click.Option) and not isinstance(parameter.type, click.Choice):
            assert parameter.help or parameter.show_default, f"{path} {parameter.opts}"


def test_exit_codes_are_documented():
    text = (ROOT / "docs" / "cli.md").read_text("utf-8")
    assert all(f" {code} " in text for code in (0, 1, 2, 3))


def test_changelog_has_an_unreleased_section():
    assert "## [Unreleased]" in (ROOT / "CHANGELOG.md").read_text("utf-8")


def test_nothing_committed_names_a_path_of_a_machine():
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in filter(None, listed.split("\0")):
        path = ROOT / name
        if path.is_file() and not path.is_symlink() and path.suffix in (".py", ".md", ".toml", ".html", ""):
            text = path.read_text("utf-8", errors="replace")
            assert "/work/" + "main" not in text, name
            assert "/ro" + "ot/" not in text, name
