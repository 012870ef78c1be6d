"""``demo``: a synthetic trace, written and analyzed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from atlas_lp.cli.shared.options import NAME, build_box, build_fabric, cache_options, force_option, stats_option
from atlas_lp.cli.shared.output import Stats, print_blocks, say
from atlas_lp.cli.shared.trace_options import load_recording
from atlas_lp.cli.verbs.analyze import run

if TYPE_CHECKING:
    from atlas_lp.cache import Store


@click.command()
@click.option(
    "-o",
    "--output",
    type=NAME,
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
    from atlas_lp.analysis.folder import FILES, write_files
    from atlas_lp.collectives.solver import CollectiveSolver
    from atlas_lp.folders import check_replaceable, replacing_folder
    from atlas_lp.report import terminal
    from atlas_lp.report.page import render_report
    from atlas_lp.traces.synthetic.demo import demo_files, write_demo

    files = (*FILES, *(f"traces/{name}" for name in demo_files()))
    check_replaceable(output, files, force)
    record = Stats(stats)
    solver = CollectiveSolver(build_fabric("alps"), build_box(), store)
    with replacing_folder(output, files) as new:
        with record.stage("write trace"):
            write_demo(new / "traces")
        analysis = run(lambda: load_recording((str(new / "traces"),)), solver, record)
        with record.stage("write"):
            write_files(new, analysis, render_report(analysis.summary))
    record.write()
    print_blocks(terminal.analysis(analysis.summary))
    say(f"trace:  {output}/traces")
    say(f"report: {output}/report.html")
