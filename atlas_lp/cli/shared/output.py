"""What verbs print: tables and JSON on stdout, progress and statistics on stderr."""

from __future__ import annotations

import json
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from atlas_lp.files import json_text
from atlas_lp.peak_memory import whole_peak_bytes
from atlas_lp.schemas import STATS
from atlas_lp.texts import plain

if TYPE_CHECKING:
    from rich.console import Console

    from atlas_lp.report.terminal import Block

_WIDTH_OFF_TERMINAL = 200
_BEGINNINGS = "0123456789+-∞"


def say(line: str) -> None:
    """Print one line; whatever input it quotes, nothing in it acts on the terminal."""
    click.echo(plain(line))


def print_json(value: Any) -> None:
    """Print plain *value* as JSON with sorted keys, in UTF-8 whatever the terminal uses."""
    click.echo(json_text(value).encode(), nl=False)


def print_table(title: str, header: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print a table; columns whose cells all start with a digit or sign are aligned right."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    # The title is printed by itself: a table would fold it to its own width.
    click.secho(plain(title), bold=True)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for i, name in enumerate(header):
        cells = [str(row[i]) for row in rows]
        numeric = bool(cells) and all(cell[:1] in _BEGINNINGS for cell in cells)
        table.add_column(Text(plain(name)), justify="right" if numeric else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(plain(str(cell))) for cell in row))  # text, where rich would read marks of its own
    console = _console()
    with console.capture() as capture:
        console.print(table)
    click.echo("\n".join(line.rstrip() for line in capture.get().splitlines()))


def _console(stderr: bool = False) -> Console:
    """What rich writes on, as large as Python says: rich itself would take COLUMNS=² for a number."""
    from rich.console import Console

    columns, lines = shutil.get_terminal_size()
    width = columns if stderr or sys.stdout.isatty() else _WIDTH_OFF_TERMINAL
    return Console(stderr=stderr, width=width, height=lines, highlight=False, soft_wrap=False)


def print_list(title: str, items: Sequence[str]) -> None:
    """Print a heading and one line per item."""
    if items:
        say(title)
        for item in items:
            say(f"  - {item}")


def print_blocks(blocks: Sequence[Block]) -> None:
    """Print what the report stage wrote for a terminal."""
    from atlas_lp.report.terminal import Listing, Table

    for block in blocks:
        if isinstance(block, Table):
            print_table(block.title, block.header, block.rows)
        elif isinstance(block, Listing):
            print_list(block.title, block.items)
        else:
            say(block)


class Stats:
    """Seconds per stage and peak memory, written to stderr as one JSON line when asked for."""

    def __init__(self, enabled: bool) -> None:
        self.enabled = enabled
        self.seconds: dict[str, float] = {}

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Time one stage."""
        begin = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - begin

    def write(self) -> None:
        """Write the line, if statistics were asked for."""
        if self.enabled:
            record = {
                **STATS.head(),
                "seconds": {name: round(value, 3) for name, value in self.seconds.items()},
                "peak_memory_mb": round(whole_peak_bytes() / (1 << 20)),
            }
            click.echo(json.dumps(record), err=True)


@contextmanager
def progress() -> Iterator[Callable[[str, int, int], None] | None]:
    """Yield a callback that draws a bar on stderr, or None when stderr is no terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=_console(stderr=True), transient=True) as bar:
        tasks: dict[str, Any] = {}

        def report(stage: str, done: int, total: int) -> None:
            if stage not in tasks:
                tasks[stage] = bar.add_task(stage, total=total or None)
            bar.update(tasks[stage], completed=done)

        yield report
