"""``demo``: a synthetic trace, written and analyzed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from atlas_lp.cli.shared.options import build_box, build_fabric, cache_options, force_option, stats_option
from atlas_lp.cli.shared.output import Stats, print_blocks, say
from atlas_lp.cli.shared.trace_options import load_recording
from atlas_lp.cli.verbs.analyze import run

if TYPE_CHECKING:
    from atlas_lp.cache import Store


@click.command()
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    default=Path("atlas-lp-demo"),
    show_default=True,
    help="Folder for the trace and its analysis.",
)
@force_option
@cache_options
@stats_option
def demo(output: Path, force: bool, store: Store, stats: bool) -> None:
    """Write a small synthetic multi-node trace and analyze it.

    The trace is a data-parallel training step of 4 nodes with 4 GPUs, about 200 collectives per GPU, in the format
    that Nsight Systems exports. Nothing in it was measured.

    \b
    Example:
      atlas-lp demo -o demo
      atlas-lp inspect demo/traces
    """
    from atlas_lp.analysis.folder import check_output
    from atlas_lp.collectives.solver import CollectiveSolver
    from atlas_lp.report import terminal
    from atlas_lp.traces.synthetic.demo import write_demo

    check_output(output, force)
    record = Stats(stats)
    with record.stage("write trace"):
        write_demo(output / "traces", overwrite=force)
    summary = run(
        lambda: load_recording((str(output / "traces"),)),
        output,
        force,
        CollectiveSolver(build_fabric("alps"), build_box(), store),
        record,
    )
    print_blocks(terminal.analysis(summary))
    say(f"trace:  {output}/traces")
    say(f"report: {output}/report.html")
