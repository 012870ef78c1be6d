"""Options of all verbs that read a trace, and the reading."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

import click

from atlas_lp.cli.shared.options import TIME, Named, Whole
from atlas_lp.cli.shared.output import progress

if TYPE_CHECKING:
    from atlas_lp.traces.reading.read import Recording
    from atlas_lp.traces.trace import Trace


class TraceOptions(TypedDict, total=False):
    """What the options of :func:`trace_options` give, under the names of :func:`load_trace`."""

    gpus_per_node: int | None
    placement: Path | None
    allow_missing: bool
    allow_lost: bool
    range_name: str | None
    iteration: int | None
    from_time: Fraction | None
    to_time: Fraction | None
    nccl_logs: tuple[Path, ...]
    profiler_dumps: tuple[Path, ...]
    assumptions: Path | None


_FILE = Named(path_type=Path, dir_okay=False)

_OPTIONS: tuple[Callable[[Any], Any], ...] = (
    click.option(
        "--gpus-per-node",
        type=Whole(min=1),
        help="Place the GPUs on nodes of N instead of the recorded hosts.",
    ),
    click.option(
        "--placement",
        type=_FILE,
        help="Place the GPUs as a file says: the name of a node per line, in the order of the GPUs' numbers.",
    ),
    click.option("--allow-missing", is_flag=True, help="Read on when ranks are missing; they are listed."),
    click.option("--allow-lost", is_flag=True, help="Go on when records were lost or disagree; they are listed."),
    click.option("--range", "range_name", metavar="NAME", help="Only calls inside NVTX ranges of that name."),
    click.option("--iteration", type=Whole(min=0), help="Only the N-th instance of --range, counted from 0."),
    click.option("--from", "from_time", type=TIME, help="Only kernels from then on, counted from the first activity."),
    click.option("--to", "to_time", type=TIME, help="Only kernels that start before then."),
    click.option(
        "--nccl-log", "nccl_logs", type=_FILE, multiple=True, help="NCCL_DEBUG log of the same job (repeatable)."
    ),
    click.option(
        "--profiler-dump",
        "profiler_dumps",
        type=_FILE,
        multiple=True,
        help="Dump of NCCL's profiler plugin (repeatable).",
    ),
    click.option("--assume", "assumptions", type=_FILE, help="TOML file of what you know and the trace does not say."),
)


def trace_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options; the function passes them on as ``**options`` to :func:`load_trace`."""
    for option in reversed(_OPTIONS):
        function = option(function)
    return function


def load_trace(names: tuple[str, ...], **options: Unpack[TraceOptions]) -> Trace:
    """Read the trace that the options of :func:`trace_options` ask for."""
    return load_recording(names, **options).trace()


def load_recording(
    names: tuple[str, ...],
    gpus_per_node: int | None = None,
    placement: Path | None = None,
    allow_missing: bool = False,
    allow_lost: bool = False,
    range_name: str | None = None,
    iteration: int | None = None,
    from_time: Fraction | None = None,
    to_time: Fraction | None = None,
    nccl_logs: tuple[Path, ...] = (),
    profiler_dumps: tuple[Path, ...] = (),
    assumptions: Path | None = None,
) -> Recording:
    """Read, once, the files whose trace and iterations the options of :func:`trace_options` ask for."""
    from atlas_lp.errors import InputError
    from atlas_lp.traces.companions.companions import Companions
    from atlas_lp.traces.reading.read import read_recording
    from atlas_lp.traces.selection import Selection

    if gpus_per_node is not None and placement is not None:
        raise InputError("--gpus-per-node and --placement both place the GPUs: give one")
    if iteration is not None and range_name is None:
        raise InputError("--iteration counts the instances of an NVTX range: name it with --range")
    selection = Selection(
        range_name=range_name,
        iteration=iteration,
        from_ns=None if from_time is None else int(from_time),
        to_ns=None if to_time is None else int(to_time),
    )
    companions = Companions(nccl_logs, profiler_dumps, assumptions)
    with progress() as report:
        recording = read_recording(
            names,
            selection=selection,
            allow_missing=allow_missing,
            allow_lost=allow_lost,
            companions=companions,
            progress=report,
        )
    if placement is not None:
        nodes, words = _nodes(placement), f"nodes of {placement.name}"
        return replace(recording, place=lambda trace: trace.on_nodes(nodes, words))
    if gpus_per_node is not None:
        return replace(recording, place=lambda trace: trace.placed(gpus_per_node))
    return recording


def _nodes(placement: Path) -> list[int]:
    """Node numbers of a placement file, in the order in which its names first appear."""
    from atlas_lp.errors import InputError
    from atlas_lp.inputs import read_text

    try:
        names = [line.strip() for line in read_text(placement).split("\n") if line.strip()]
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{placement}: cannot be read ({error.__class__.__name__})") from None
    number = {name: place for place, name in enumerate(dict.fromkeys(names))}
    return [number[name] for name in names]
