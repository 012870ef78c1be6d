"""``cache``: look at the store of solved signatures."""

from __future__ import annotations

from pathlib import Path

import click

from atlas_lp.cli.shared.options import NAME, json_option
from atlas_lp.cli.shared.output import print_json, print_table, say
from atlas_lp.schemas import CACHE
from atlas_lp.units import format_size


@click.group()
def cache() -> None:
    """Look at the store of solved collectives.

    \b
    Example:
      atlas-lp cache ls
    """


@cache.command()
@click.option("--cache", "cache_folder", type=NAME, help="Folder of solved signatures.")
@json_option
def ls(cache_folder: Path | None, as_json: bool) -> None:
    """List the solved collectives and programs in the cache.

    The folder is $ATLAS_LP_CACHE, else atlas-lp in the user's cache folder.

    \b
    Example:
      atlas-lp cache ls --json
    """
    from atlas_lp.cache import Store, default_folder

    folder = cache_folder or default_folder()
    entries = Store(folder).entries()
    if as_json:
        rows = [{"key": e.key, "file_bytes": e.size_bytes, "planes": e.planes, **dict(e.about)} for e in entries]
        print_json({**CACHE.head(), "folder": str(folder), "entries": rows})
        return
    say(f"{len(entries)} entries, {format_size(sum(e.size_bytes for e in entries))} in {folder}")
    if entries:
        print_table(
            "Entries",
            ("key", "collective", "size", "protocol", "ranks", "nodes", "channels", "planes", "file"),
            [
                (
                    e.key[:12],
                    e.about.get("type", "damaged"),
                    format_size(e.about["size_bytes"]) if "size_bytes" in e.about else "-",
                    f"{e.about.get('algorithm', '-')} {e.about.get('protocol', '')}",
                    e.about.get("ranks", "-"),
                    e.about.get("nodes", "-"),
                    e.about.get("channels", "-"),
                    e.planes,
                    format_size(e.size_bytes),
                )
                for e in entries
            ],
        )
