"""How ``goal solve`` and ``goal expand --solve`` solve a graph, and what they print of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

import click

from atlas_lp.cli.shared.options import MOST_POINTS, NAME, Whole, memory_option, quotient_option, tolerance_option
from atlas_lp.cli.shared.output import Stats, print_blocks, print_json, progress
from atlas_lp.errors import InputError, UnitError
from atlas_lp.files import check_free
from atlas_lp.schemas import ALONG, ENVELOPE, LP_SWEEP
from atlas_lp.solver.axis import AXES, Axis
from atlas_lp.texts import quoted
from atlas_lp.units import number, parse_bandwidth, parse_factor, parse_time_ns

if TYPE_CHECKING:
    from atlas_lp.fabrics.fabric import Fabric
    from atlas_lp.goal import EventGraph
    from atlas_lp.solver.envelope import Box, Envelope
    from atlas_lp.solver.lp_sweep import SweepPoint


class SolveOptions(TypedDict):
    """What the options of :func:`solve_options` give."""

    tolerance: float
    solver: str
    points: int
    along: str | None
    lp_file: Path | None
    certify_all: bool
    no_quotient: bool
    memory: int | None


_OPTIONS: tuple[Callable[[Any], Any], ...] = (
    tolerance_option,
    click.option(
        "--solver",
        type=click.Choice(["exact", "sweep"]),
        default="exact",
        show_default=True,
        help="sweep: the paper's grid of warm-started LPs, as a reference.",
    ),
    click.option(
        "--points", type=Whole(2, MOST_POINTS), default=101, show_default=True, help="Grid points of the sweep."
    ),
    click.option(
        "--along",
        metavar="NAME=LO:HI",
        help="T along compute, overhead, message-gap, up-latency or up-bandwidth instead of L and G.",
    ),
    click.option(
        "--write-lp",
        "lp_file",
        type=NAME,
        help="Also write the LP at the native point, as .mps or .lp.",
    ),
    click.option(
        "--certify-all", is_flag=True, help="Ask HiGHS at every breakpoint and midpoint, however large the graph."
    ),
    quotient_option,
    memory_option,
)


def solve_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options; the function passes them on as ``**how``."""
    for option in reversed(_OPTIONS):
        function = option(function)
    return function


@dataclass(frozen=True)
class Problem:
    """What to solve, and what to say about it.

    *graph* gives the graph in the order of the native point and how it was made, None where only a bracket is
    affordable; *solve* gives the graph that was solved, in the order that was chosen, and its envelope.
    """

    graph: Callable[[], tuple[EventGraph, str] | None]
    solve: Callable[..., tuple[EventGraph, Envelope]]
    fabric: Fabric
    box: Box
    about: dict[str, Any]
    assumed: list[str]


def deliver(problem: Problem, how: SolveOptions, as_json: bool, record: Stats) -> None:
    """Solve *problem* as asked and print the result."""
    from atlas_lp.solver.highs import check_lp_name

    if how["lp_file"] is not None:
        check_lp_name(how["lp_file"])
        check_free(how["lp_file"], force=True)
        with record.stage("write"):
            _write_lp(_graph(problem)[0], problem.fabric, how["lp_file"])
    if how["along"] is not None:
        _deliver_along(problem, how["along"], as_json, record)
    elif how["solver"] == "sweep":
        _deliver_sweep(problem, how["points"], as_json, record)
    else:
        _deliver_envelope(problem, Fraction(str(how["tolerance"])) / 100, how["certify_all"], as_json, record)
    record.write()


def _graph(problem: Problem) -> tuple[EventGraph, str]:
    found = problem.graph()
    if found is None:
        raise InputError("too many ranks for one graph of this size: only the exact solver can bracket it")
    return found


def _write_lp(graph: EventGraph, fabric: Fabric, path: Path) -> None:
    from atlas_lp.solver.axis import point
    from atlas_lp.solver.highs import LongestPathLP
    from atlas_lp.solver.longest_path import Evaluator

    evaluator = Evaluator(graph, fabric.theta())
    where = point(fabric.latency_ns, fabric.gap_ns_per_byte)
    longest = evaluator.at(where)
    lp = LongestPathLP(evaluator, float(longest.time_ns))
    lp.solve(where, longest)
    lp.write(path)


# --- exact envelopes ---------------------------------------------------------------------------------------

_BRACKET = "chunks differ by rounding: times are upper bounds, at most {percent:.2g} % above the lower ones"
_EARLY = "stopped early: T lies at most {percent:.3g} % above the planes"


def _deliver_envelope(problem: Problem, tolerance: Fraction, certify_all: bool, as_json: bool, record: Stats) -> None:
    from atlas_lp.analysis.assumptions import order_of_ports
    from atlas_lp.report import terminal
    from atlas_lp.solver.highs import CheckLimits

    with record.stage("solve"), progress() as report:
        tell = None if report is None else (lambda planes: report("planes", planes, 0))
        limits = CheckLimits.everything() if certify_all else CheckLimits()
        graph, envelope = problem.solve(limits=limits, progress=tell, tolerance=tolerance)
    assumed = [*problem.assumed, *order_of_ports(envelope)]
    if envelope.method == "bracket":
        assumed.append(_BRACKET.format(percent=100 * envelope.bracket_width))
    if envelope.tolerance_reached:
        assumed.append(_EARLY.format(percent=100 * envelope.tolerance_reached))
    result = _envelope_json(graph, envelope, problem, assumed)
    if as_json:
        print_json(result)
    else:
        print_blocks(terminal.envelope(result))


def _graph_json(problem: Problem, graph: EventGraph, method: str) -> dict[str, Any]:
    how = {"method": method} if "signature" in problem.about else {}
    return {**problem.about, **how, "vertices": graph.vertices, "edges": graph.edges}


def _envelope_json(graph: EventGraph, envelope: Envelope, problem: Problem, assumed: list[str]) -> dict[str, Any]:
    from atlas_lp.analysis.as_json import box_json, envelopes_json, joint_json, native_json, tolerance_json
    from atlas_lp.analysis.assumptions import model_assumptions

    fabric = problem.fabric
    return {
        **ENVELOPE.head(),
        "graph": _graph_json(problem, graph, envelope.method),
        "native": native_json(fabric),
        "box": box_json(envelope.box),
        "makespan_ns": number(envelope.time_ns(fabric.latency_ns, fabric.gap_ns_per_byte)),
        "tolerance": tolerance_json(envelope, fabric, 5),
        "tolerance_reached": envelope.tolerance_reached,
        "envelopes": envelopes_json(envelope, fabric),
        "joint": joint_json(envelope),
        "certificate": None if envelope.certificate is None else envelope.certificate.as_json(),
        "assumptions": [*model_assumptions(fabric), *assumed],
    }


# --- the paper's sweep --------------------------------------------------------------------------------------


def _deliver_sweep(problem: Problem, points: int, as_json: bool, record: Stats) -> None:
    from atlas_lp.analysis.as_json import native_json
    from atlas_lp.analysis.assumptions import model_assumptions
    from atlas_lp.report import terminal
    from atlas_lp.solver.lp_sweep import sweep

    graph, method = _graph(problem)
    found: dict[Axis, list[SweepPoint]] = {}
    with record.stage("sweep"), progress() as report:
        for axis in AXES:
            low, high = problem.box.range(axis)
            values = [low + i * (high - low) / (points - 1) for i in range(points)]
            tell = None if report is None else (lambda done, axis=axis: report(axis.name, done, points))
            found[axis] = sweep(graph, problem.fabric, axis, values, tell)
    result: dict[str, Any] = {
        **LP_SWEEP.head(),
        "graph": _graph_json(problem, graph, method),
        "native": native_json(problem.fabric),
        "points": points,
        "pivots": sum(p.pivots for each in found.values() for p in each),
        **{axis.name: _sweep_json(found[axis], axis) for axis in AXES},
        "assumptions": [*model_assumptions(problem.fabric), *problem.assumed],
    }
    if as_json:
        print_json(result)
    else:
        print_blocks(terminal.lp_sweep(result))


def _sweep_json(points: list[SweepPoint], axis: Axis) -> list[dict[str, Any]]:
    from atlas_lp.solver.lp_sweep import pieces_of

    return [
        {
            f"from_{axis.unit}": number(p.start),
            f"to_{axis.unit}": number(p.stop),
            "constant_ns": p.constant_ns,
            axis.component: p.slope,
        }
        for p in pieces_of(points)
    ]


# --- any other direction -------------------------------------------------------------------------------------

_DIRECTIONS: dict[str, tuple[str, str, Callable[[str], Fraction]]] = {
    "compute": ("calc_ns", "a factor on all compute", parse_factor),
    "overhead": ("overheads", "o in ns", parse_time_ns),
    "message-gap": ("gaps", "g in ns", parse_time_ns),
    "up-latency": ("up_messages", "L of scale-up in ns", parse_time_ns),
    "up-bandwidth": ("up_bytes", "G of scale-up in ns/B", parse_bandwidth),
}


def _direction(text: str) -> tuple[str, str, Fraction, Fraction]:
    """Read ``NAME=LO:HI``: component, words, and the range of its parameter in rising order."""
    name, _, ends = text.partition("=")
    low, _, high = ends.partition(":")
    if name not in _DIRECTIONS or not low or not high:
        raise InputError(f"--along {quoted(text)}: write NAME=LO:HI, NAME one of {', '.join(_DIRECTIONS)}")
    component, words, parse = _DIRECTIONS[name]
    try:
        values = sorted([parse(low), parse(high)])
    except UnitError as error:
        raise InputError(f"--along {quoted(text)}: {error}") from None
    return component, words, values[0], values[1]


def _deliver_along(problem: Problem, text: str, as_json: bool, record: Stats) -> None:
    from atlas_lp.analysis.as_json import native_json
    from atlas_lp.analysis.assumptions import model_assumptions
    from atlas_lp.report import terminal
    from atlas_lp.solver.solve import solve_along

    component, words, low, high = _direction(text)
    with record.stage("solve"):
        graph, method = _graph(problem)
        pieces = solve_along(graph, problem.fabric, component, low, high)
    rows = [
        {
            "from": number(p.start),
            "to": number(p.stop),
            "from_time_ns": number(p.at(p.start)),
            "to_time_ns": number(p.at(p.stop)),
            "slope": p.slope,
        }
        for p in pieces
    ]
    result = {
        **ALONG.head(),
        "graph": _graph_json(problem, graph, method),
        "native": native_json(problem.fabric),
        "component": component,
        "pieces": rows,
        "assumptions": [*model_assumptions(problem.fabric), *problem.assumed],
    }
    if as_json:
        print_json(result)
    else:
        print_blocks(terminal.along(result, text.partition("=")[0], words))
