"""Options and parameter types that verbs share, and what turns them into a fabric, a box and a store."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import wraps
from inspect import signature
from math import isfinite, nan
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from atlas_lp.errors import InputError, UnitError
from atlas_lp.texts import LONGEST_QUOTE, integer, quoted, shortened
from atlas_lp.units import parse_bandwidth, parse_factor, parse_size_bytes, parse_time_ns

if TYPE_CHECKING:
    from atlas_lp.cache import Store
    from atlas_lp.fabrics.fabric import Fabric
    from atlas_lp.program.job import Asked
    from atlas_lp.solver.envelope import Box


MOST_POINTS = 1_000_000
"""Points of a grid: each is a row that is printed."""


class Quantity(click.ParamType):  # type: ignore[type-arg]
    """A quantity with a unit, read exactly."""

    def __init__(self, name: str, parse: Callable[[str], Any]) -> None:
        self.name = name
        self.parse = parse

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Parse text; values that are parsed already pass through."""
        if not isinstance(value, str):
            return value
        try:
            return self.parse(value)
        except UnitError as error:
            self.fail(str(error), param, ctx)


class Whole(click.IntRange):
    """A whole number in a range, written as :func:`~atlas_lp.texts.integer` reads it."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Parse text as a number of the range."""
        found = integer(value) if isinstance(value, str) else value
        if found is None:
            self.fail(f"{quoted(value)} is not a valid integer", param, ctx)
        return super().convert(found, param, ctx)


_DECIMAL = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,3})?")


class Finite(click.FloatRange):
    """A number in a range, without ``nan`` and ``inf``, which no comparison with a threshold survives."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Parse text as a number of the range."""
        is_one = not isinstance(value, str) or _DECIMAL.fullmatch(value)
        number = super().convert(value, param, ctx) if is_one else nan
        if not isfinite(number):
            self.fail(f"{shortened(str(value), LONGEST_QUOTE)} is not a finite number", param, ctx)
        return number


class Named(click.Path):
    """A path with a name: an empty one, of a variable that is not set, would be the working folder."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Refuse the empty name."""
        if value == "":
            self.fail("the name is empty; the working folder is '.'", param, ctx)
        return super().convert(value, param, ctx)


@dataclass(frozen=True)
class Interval:
    """``LO:HI`` or ``LO:HI:N`` as typed; *points* is None without N."""

    low: Fraction
    high: Fraction
    points: int | None


def _range(parse: Callable[[str], Fraction], example: str) -> Callable[[str], Interval]:
    def read(text: str) -> Interval:
        ends = text.split(":")
        if len(ends) not in (2, 3):
            raise UnitError(f"{quoted(text)} is not a range: write LO:HI or LO:HI:N, such as {example}")
        points = None
        if len(ends) == 3:
            points = integer(ends[2])
            if points is None or not 2 <= points <= MOST_POINTS:
                raise UnitError(f"{quoted(text)}: the number of points must be a whole number of 2 to {MOST_POINTS:,}")
        return Interval(parse(ends[0]), parse(ends[1]), points)

    return read


def _point(text: str) -> tuple[Fraction, Fraction]:
    latency, comma, bandwidth = text.partition(",")
    if not comma:
        raise UnitError(f"{quoted(text)} is no point: write a latency and a bandwidth, such as 3.7us,200Gbps")
    return parse_time_ns(latency), parse_bandwidth(bandwidth)


TIME = Quantity("time", parse_time_ns)
BANDWIDTH = Quantity("bandwidth", parse_bandwidth)
SIZE = Quantity("size", parse_size_bytes)
FACTOR = Quantity("factor", parse_factor)
POINT = Quantity("point", _point)
NAME = Named(path_type=Path)
LATENCY_RANGE = Quantity("range", _range(parse_time_ns, "0:100us:11"))
BANDWIDTH_RANGE = Quantity("range", _range(parse_bandwidth, "50Gbps:800Gbps:16"))


def gathered(
    name: str, build: Callable[..., Any], *options: Callable[[Any], Any]
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Options whose values a verb gets as one argument *name*: what *build* makes of them."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def wrapped(**values: Any) -> Any:
            own = {parameter: values.pop(parameter) for parameter in signature(build).parameters}
            return function(**values, **{name: build(**own)})

        for option in reversed(options):
            wrapped = option(wrapped)
        return wrapped

    return decorate


traces_argument = click.argument("traces", type=Named(), nargs=-1, required=True, metavar="TRACE...")

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON instead of tables.")

stats_option = click.option(
    "--stats", is_flag=True, help="Write seconds per stage and peak memory to stderr, as one JSON line."
)

output_file_option = click.option("-o", "--output", type=NAME, help="File to write; .zst compresses.")

force_option = click.option("-f", "--force", is_flag=True, help="Overwrite what is there.")

memory_option = click.option(
    "--memory", type=SIZE, help="Memory that graphs may take, such as 16GiB (default: four fifths of what is free)."
)

tolerance_option = click.option(
    "--tolerance",
    type=Finite(0, 100),
    default=0.0,
    show_default=True,
    help="Percent that T may lie above the planes found: stops early, says how far it got. Irregular schedules of "
    "a million operations have thousands of planes; 1 is quick.",
)

quotient_option = click.option(
    "--no-quotient", is_flag=True, help="Expand every rank, also where one per class of ranks would be exact."
)


def build_fabric(
    fabric_name: str,
    costs_file: Path | None = None,
    latency: Fraction | None = None,
    bandwidth: Fraction | None = None,
    up_latency: Fraction | None = None,
    up_bandwidth: Fraction | None = None,
    order_at: tuple[Fraction, Fraction] | None = None,
) -> Fabric:
    """Return the fabric named, with the cost table, the native point and the scale-up network asked for.

    Ports serve in the order of the native point of the fabric itself, so that what was solved serves other points, too.
    """
    from atlas_lp.fabrics.fabric import load_fabric
    from atlas_lp.signatures.costs import load_costs

    fabric = load_fabric(fabric_name).at(
        latency_ns=latency, gap_ns_per_byte=bandwidth, up_latency_ns=up_latency, up_gap_ns_per_byte=up_bandwidth
    )
    if order_at is not None:
        fabric = fabric.in_order_of(order_at)
    return fabric if costs_file is None else replace(fabric, reduce_copy=load_costs(costs_file))


def build_fabric_here(
    fabric_name: str,
    costs_file: Path | None,
    latency: Fraction | None,
    bandwidth: Fraction | None,
    up_latency: Fraction | None,
    up_bandwidth: Fraction | None,
    order_at: tuple[Fraction, Fraction] | None,
) -> Fabric:
    """The same for what is solved once and not kept: ports serve in the order of the native point asked for."""
    fabric = build_fabric(fabric_name, costs_file, latency, bandwidth, up_latency, up_bandwidth)
    return fabric.in_order_of(order_at or fabric.native)


def build_model(fabric_name: str, costs_file: Path | None) -> Fabric:
    """Return the fabric named, with its own native point."""
    return build_fabric(fabric_name, costs_file)


def build_box(latency_box: Interval | None = None, bandwidth_box: Interval | None = None) -> Box:
    """Return the box asked for, the default range where nothing was asked."""
    from atlas_lp.solver.envelope import Box

    default = Box()
    latency = (default.latency_from_ns, default.latency_to_ns)
    gap = (default.gap_from_ns_per_byte, default.gap_to_ns_per_byte)
    if latency_box is not None:
        latency = (latency_box.low, latency_box.high)
    if bandwidth_box is not None:
        gap = (min(bandwidth_box.low, bandwidth_box.high), max(bandwidth_box.low, bandwidth_box.high))
    return Box(*latency, *gap)


def build_store(cache_folder: Path | None, no_cache: bool) -> Store:
    """Return the store of solved signatures."""
    from atlas_lp.cache import Store, default_folder

    return Store(None if no_cache else cache_folder or default_folder())


def build_asked(
    dependencies: str,
    gpu: int | None,
    contention: bool,
    compute: Fraction,
    free: tuple[str, ...],
    elsewhere: tuple[str, ...],
) -> Asked:
    """Return what is asked of a trace."""
    from atlas_lp.fabrics.fabric import load_fabric
    from atlas_lp.program.what_if import WhatIf

    fabrics = []
    for text in elsewhere:
        name, equals, fabric = text.partition("=")
        if not (name and equals and fabric):
            raise InputError(f"--fabric-of {text}: write NAME=FABRIC, such as AllToAll=ethernet.toml")
        fabrics.append((name, load_fabric(fabric)))
    return {
        "dependencies": None if dependencies == "auto" else dependencies,
        "gpu": gpu,
        "contention": contention,
        "what_if": WhatIf(compute, free, tuple(fabrics)),
    }


_MODEL = (
    click.option("--fabric", "fabric_name", default="alps", show_default=True, help="Preset or TOML file."),
    click.option(
        "--costs",
        "costs_file",
        type=NAME,
        help="Reduce/copy times: a TOML table, or an NPKit summary (JSON).",
    ),
)

model_options = gathered("fabric", build_model, *_MODEL)
"""For verbs whose result does not depend on L or G."""

_FABRIC = (
    *_MODEL,
    click.option("--latency", type=TIME, help="Native L, such as 3.7us (default: of the fabric)."),
    click.option("--bandwidth", type=BANDWIDTH, help="Native bandwidth per NIC, such as 200Gbps."),
    click.option("--up-latency", type=TIME, help="L of scale-up hops (default: of the fabric)."),
    click.option("--up-bandwidth", type=BANDWIDTH, help="Bandwidth of scale-up hops, such as 450GB/s."),
    click.option(
        "--order-at",
        type=POINT,
        metavar="L,BW",
        help="Ports serve messages as they become ready at this point, such as 20us,200Gbps (default: the native one).",
    ),
)

fabric_options = gathered("fabric", build_fabric, *_FABRIC)
"""For verbs that keep what they solve."""

fabric_options_here = gathered("fabric", build_fabric_here, *_FABRIC)
"""For verbs that solve one graph."""

box_options = gathered(
    "box",
    build_box,
    click.option("--latency-box", type=LATENCY_RANGE, help="Range of L to solve exactly [0:1ms]."),
    click.option("--bandwidth-box", type=BANDWIDTH_RANGE, help="Range of bandwidth to solve exactly [10Gbps:10Tbps]."),
)

cache_options = gathered(
    "store",
    build_store,
    click.option("--cache", "cache_folder", type=NAME, help="Folder of solved signatures."),
    click.option("--no-cache", is_flag=True, help="Neither read nor write solved signatures."),
)

dependencies_option = click.option(
    "--dependencies",
    type=click.Choice(["auto", "events", "streams"]),
    default="auto",
    show_default=True,
    help="What operations waited for: recorded events and host calls, or the order of streams.",
)

job_options = gathered(
    "asked",
    build_asked,
    dependencies_option,
    click.option("--rank", "gpu", type=Whole(min=0), help="What this GPU alone saw (default: all ranks)."),
    click.option(
        "--contention",
        is_flag=True,
        help="NIC contention: collectives that overlap on a NIC share it; lower bounds, in recorded order.",
    ),
    click.option(
        "--compute",
        type=FACTOR,
        default="1",
        help="What if GPU work took this factor of its measured time, such as 0.5.",
    ),
    click.option(
        "--free",
        multiple=True,
        help="What if these took no time: AllReduce, a signature's key, a communicator's id (0x...).  Repeatable.",
    ),
    click.option(
        "--fabric-of",
        "elsewhere",
        multiple=True,
        metavar="NAME=FABRIC",
        help="What if these ran on a fabric of their own, at its native point.  Names as for --free.  Repeatable.",
    ),
)
