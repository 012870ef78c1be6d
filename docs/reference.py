"""Write docs/cli.md, the reference of all verbs, from their own help texts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click

from atlas_lp.cli import main

PAGE = Path(__file__).parent / "cli.md"

_INTRODUCTION = """# Command line

Generated from the help texts by `python docs/reference.py`; do not edit.

Exit codes: 0 an answer; 1 a threshold given by the user is exceeded; 2 refused or bad input, with one line that says
what and how to fix it; 3 withdrawn by a validation gate.
"""


def commands(command: click.Command, path: str) -> Iterator[tuple[str, click.Command]]:
    """All commands below *command*, itself first, in alphabetical order."""
    yield path, command
    if isinstance(command, click.Group):
        for name in sorted(command.commands):
            yield from commands(command.commands[name], f"{path} {name}")


def reference() -> str:
    """The whole page."""
    blocks = [_INTRODUCTION]
    for path, command in commands(main, "atlas-lp"):
        context = click.Context(
            command, info_name=path, terminal_width=100, max_content_width=100, help_option_names=["-h", "--help"]
        )
        blocks.append(f"## {path}\n\n```text\n{command.get_help(context)}\n```\n")
    return "\n".join(blocks)


if __name__ == "__main__":
    PAGE.write_text(reference(), "utf-8")
