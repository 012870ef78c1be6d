"""Write what is generated in the documentation: whole pages, and the parts between two marks of others.

``python docs/reference.py`` writes all of it; ``tests/test_docs.py`` checks that it is current.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click

from atlas_lp.cli import main
from atlas_lp.schemas import DOCUMENTS, FILES, Document

HERE = Path(__file__).parent
ROOT = HERE.parent

# --- docs/cli.md ---------------------------------------------------------------------------------------------

_COMMAND_LINE = """# Command line

Generated from the help texts by `python docs/reference.py`; do not edit.

Exit codes: 0 an answer; 1 a threshold given by the user is exceeded; 2 refused or bad input, with one line that says
what and how to fix it; 3 withdrawn by a validation gate; 70 a defect of atlas-lp, with
the lines to report; 130 interrupted; 141 nobody reads the output; 143 ended by SIGTERM.
"""


def commands(command: click.Command, path: str) -> Iterator[tuple[str, click.Command]]:
    """All commands below *command*, itself first, in alphabetical order."""
    yield path, command
    if isinstance(command, click.Group):
        for name in sorted(command.commands):
            yield from commands(command.commands[name], f"{path} {name}")


def command_line() -> str:
    """The page of all verbs, from their own help texts."""
    blocks = [_COMMAND_LINE]
    for path, command in commands(main, "atlas-lp"):
        context = click.Context(
            command, info_name=path, terminal_width=100, max_content_width=100, help_option_names=["-h", "--help"]
        )
        blocks.append(f"## {path}\n\n```text\n{command.get_help(context)}\n```\n")
    return "\n".join(blocks)


# --- docs/json.md --------------------------------------------------------------------------------------------

_JSON = """# JSON: every key of every document

Generated from `atlas_lp/schemas.py` by `python docs/reference.py`; do not edit.

Every document begins with `"schema"`, its name, and `"version"`. A key that is added keeps the version; one that is
renamed, removed or means something else raises it. Equal inputs give equal bytes, but for `atlas-lp/stats`.

Keys are given as paths: `signatures[].key` is a key of every item of a list, `sources.*` stands for names that depend
on the input. A key marked with ? may be missing where it would stand, with all that is below it. Times are in ns, sizes
in bytes, G in ns per byte; a number that is no integer is the nearest floating-point number to the exact ratio.
"""


def _document(document: Document) -> str:
    optional = document.optional()
    rows = [f"| `{path}`{' ?' if path in optional else ''} | {words} |" for path, words in document.described().items()]
    history = "; ".join(f"{version}: {words}" for version, words in document.history.items())
    return "\n".join(
        [
            f"## {document.name}, version {document.version}\n",
            f"{document.purpose}\n",
            f"- written by {document.written_by}\n- versions: {history}\n",
            "| key | meaning |\n|---|---|",
            *rows,
            "",
        ]
    )


def json_keys() -> str:
    """The page of all JSON documents, from the place that defines them."""
    files = [
        f"| `{file.name}` | {file.version} | {file.purpose} | "
        f"{'; '.join(f'{version}: {words}' for version, words in file.history.items())} |"
        for file in FILES
    ]
    inside = [
        "## Inside binary files\n",
        "Documents that only atlas-lp itself reads. It refuses a file of another version, or makes it anew.\n",
        "| schema | version | file | versions |\n|---|---|---|---|",
        *files,
        "",
    ]
    contents = [f"- [{d.name}](#{d.name.replace('/', '')}-version-{d.version}): {d.purpose}" for d in DOCUMENTS]
    return "\n".join([_JSON, *contents, "", *map(_document, DOCUMENTS), *inside])


# --- docs/index.md -------------------------------------------------------------------------------------------

_INDEX = """# Documentation

Generated from the first lines of the pages by `python docs/reference.py`; do not edit.

"""

_ORDER = ("capture", "fabrics", "model", "schedules", "cli", "json", "python", "support_matrix", "performance")
_LAST = ("architecture", "glossary", "references")


def index() -> str:
    """The page of all pages, one line each: those for users first."""
    names = {page.stem for page in HERE.glob("*.md")} - {"index"}
    known = [name for name in (*_ORDER, *sorted(names - {*_ORDER, *_LAST}), *_LAST) if name in names]
    return _INDEX + "".join(f"- [{title(name)}]({name}.md)\n" for name in known)


def title(name: str) -> str:
    """The heading of a page."""
    text = {"json": _JSON, "cli": _COMMAND_LINE}.get(name) or (HERE / f"{name}.md").read_text("utf-8")
    return text.partition("\n")[0].removeprefix("# ")


# --- rooms ---------------------------------------------------------------------------------------------------


def rooms() -> dict[str, dict[str, Any]]:
    """The rooms of ``docs/rooms.toml`` by name, lowest floor first."""
    return {room["name"]: room for room in tomllib.loads((HERE / "rooms.toml").read_text("utf-8"))["room"]}


def may_import(name: str) -> set[str]:
    """All rooms that the room *name* may import: those it names, what they may import, and itself."""
    found = {name}
    for below in rooms()[name]["may_import"]:
        found |= may_import(below)
    return found


def _folder(room: dict[str, Any]) -> str:
    if "files" in room:
        return ", ".join(f"`atlas_lp/{file}.py`" for file in room["files"] if (ROOT / f"atlas_lp/{file}.py").exists())
    owned = room["folder"].split("/")[0] in ("goal", "signatures", "traces", "cache")
    return f"`{'' if owned else 'atlas_lp/'}{room['folder']}/`"


def room_table() -> str:
    """The table of who may import whom, lowest floor first."""
    lines = ["| room | holds | may import |", "|---|---|---|"]
    for room in rooms().values():
        below = ", ".join(f"`{name}`" if name != "ground" else "the ground" for name in room["may_import"])
        lines.append(f"| {_folder(room)} | {room['sentence']} | {below or 'nothing'} |")
    lines += ["", "A room may also import all that the rooms it names may import. Beside the package:", ""]
    beside = tomllib.loads((HERE / "rooms.toml").read_text("utf-8"))["beside"]
    lines += [f"- `{place['folder']}/`: {place['sentence']}" for place in beside]
    return "\n".join(lines)


# --- all -----------------------------------------------------------------------------------------------------

PAGES: dict[Path, Callable[[], str]] = {
    HERE / "cli.md": command_line,
    HERE / "json.md": json_keys,
    HERE / "index.md": index,
}
"""Pages that are generated as a whole."""

PARTS: dict[tuple[Path, str], Callable[[], str]] = {
    (ROOT / "CONTRIBUTING.md", "rooms"): room_table,
    (HERE / "architecture.md", "rooms"): room_table,
}
"""Parts of pages, between ``<!-- NAME: ... -->`` and ``<!-- end of NAME -->``."""


def with_part(text: str, name: str, part: str) -> str:
    """Put *part* between the two marks of *name* in *text*."""
    marked = re.compile(rf"(<!-- {name}: [^\n]*-->\n)(.*)(<!-- end of {name} -->)", re.DOTALL)
    result, count = marked.subn(lambda found: f"{found[1]}\n{part}\n\n{found[3]}", text)
    if count != 1:
        raise ValueError(f"no marks of {name}")
    return result


def generated() -> dict[Path, str]:
    """What every generated page, and every page with a generated part, should hold."""
    texts = {path: make() for path, make in PAGES.items()}
    for (path, name), make in PARTS.items():
        texts[path] = with_part(path.read_text("utf-8"), name, make())
    return texts


if __name__ == "__main__":
    for _path, _text in generated().items():
        _path.write_text(_text, "utf-8")
