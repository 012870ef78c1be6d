"""``pack``: a trace as one small file."""

from __future__ import annotations

from pathlib import Path
from typing import Unpack

import click

from atlas_lp.cli.shared.options import NAME, force_option, stats_option, traces_argument
from atlas_lp.cli.shared.output import Stats, say
from atlas_lp.cli.shared.trace_options import TraceOptions, load_trace, trace_options
from atlas_lp.errors import InputError
from atlas_lp.files import check_free
from atlas_lp.units import format_size


@click.command()
@traces_argument
@click.option("-o", "--output", type=NAME, help="File to write, such as step.atlas.")
@force_option
@trace_options
@stats_option
def pack(
    traces: tuple[str, ...], output: Path | None, force: bool, stats: bool, **options: Unpack[TraceOptions]
) -> None:
    """Read the exports of a job once and keep what analyses need in one small file.

    The file stands for the exports wherever a TRACE is asked for: keep it, or give it away, instead of gigabytes of
    exports. It names hosts, files and NCCL's kernels, nothing else of the program.

    \b
    Example:
      atlas-lp pack traces/ -o step.atlas
      atlas-lp analyze step.atlas -o out
    """
    from atlas_lp.files import write_file
    from atlas_lp.traces.reading.files import PACKED
    from atlas_lp.traces.reading.packed import packed_bytes

    if output is None or output.suffix != PACKED:
        raise InputError(f"no file to write: give one with -o FILE{PACKED}")
    check_free(output, force)
    record = Stats(stats)
    with record.stage("read"):
        trace = load_trace(traces, **options)
    if trace.iterations > 1:
        raise InputError(f"a packed trace is one piece: choose one of {trace.iterations} iterations with --iteration")
    with record.stage("write"):
        content = packed_bytes(trace)
        write_file(output, content)
    record.write()
    work = "" if trace.work is None else f", {len(trace.work)} pieces of GPU work"
    say(
        f"{output}: {trace.gpus.num_rows} GPUs, {trace.operations.num_rows} operations{work}, "
        f"{format_size(len(content))}"
    )
