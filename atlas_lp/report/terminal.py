"""What each verb says on a terminal: lines, tables and lists of plain values, which the command line prints."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from atlas_lp.report.words import (
    Document,
    at,
    at_point,
    change,
    counted,
    dependencies,
    headline,
    hop_words,
    measured,
    nature,
    payers,
    signature_name,
    signature_names,
    solver_check,
)
from atlas_lp.solver.axis import AXES, GAP, LATENCY, Axis
from atlas_lp.units import format_size, format_time

NOTHING = "-"


@dataclass(frozen=True)
class Table:
    """Rows of cells under a title and a header."""

    title: str
    header: Sequence[str]
    rows: Sequence[Sequence[object]]


@dataclass(frozen=True)
class Listing:
    """One line per item under a title; nothing at all without items."""

    title: str
    items: Sequence[str]


Block = str | Table | Listing
"""A line of text, a table or a list."""


# --- analyze, demo ------------------------------------------------------------------------------------------


def analysis(summary: Document) -> list[Block]:
    """An analysis: the answer, signatures, solver check, assumptions and gaps."""
    envelopes, cache = summary["envelopes"], summary["cache"]
    return [
        *nature(summary),
        headline(summary),
        measured(summary),
        dependencies(summary),
        *([_iterations(summary["iterations"])] if "iterations" in summary else []),
        _signatures(summary["signatures"]),
        (
            f"T(L): {counted(len(envelopes['latency']), 'pieces')}, T(G): {counted(len(envelopes['gap']), 'pieces')}, "
            f"T(L, G): {counted(len(summary['joint']), 'planes')}"
        ),
        solver_check(summary["certificate"]),
        _cache(cache),
        Listing("Assumptions", summary["assumptions"]),
        _gaps(summary),
    ]


def _cache(cache: Document) -> str:
    """What the cache had, what in it was of no use, and what it could not keep."""
    unusable = [f"{count} {reason}" for reason, count in sorted(cache.get("unusable", {}).items())]
    return (
        f"cache: {cache['hits']} hits, {cache['misses']} misses"
        + (f"; solved again: {', '.join(unusable)}" if unusable else "")
        + (f"; nothing could be kept ({cache['refused']})" if "refused" in cache else "")
    )


def _iterations(iterations: Sequence[Document]) -> Table:
    """What each iteration takes at the native point, and how far apart they are."""
    predicted, recorded = ([row[name] for row in iterations] for name in ("makespan_ns", "measured_ns"))
    return Table(
        f"Iterations at the native point (spread {100 * spread(predicted):.2g} % predicted, "
        f"{100 * spread(recorded):.2g} % measured)",
        ("iteration", "predicted", "measured"),
        [(k, format_time(p), format_time(m)) for k, (p, m) in enumerate(zip(predicted, recorded, strict=True))],
    )


def spread(times: Sequence[float]) -> float:
    """Largest minus smallest of *times*, relative to their median."""
    return (max(times) - min(times)) / median(times)


def _signatures(signatures: Sequence[Document]) -> Table:
    return Table(
        "Signatures by share of the critical path",
        ("type", "size", "protocol", "channels", "ranks", "count", "time each", "measured", "arrival skew", "share"),
        [
            (
                s["type"],
                format_size(s["size_bytes"]),
                f"{s['algorithm']} {s['protocol']}",
                s["channels"],
                s["ranks"],
                s["count"],
                *(format_time(s[key]) for key in ("time_ns", "measured_ns", "arrival_skew_ns")),
                f"{100 * s['share']:.2f} %",
            )
            for s in signatures
        ],
    )


def _gaps(document: Document) -> Listing:
    return Listing("Gaps", [f"{gap['count']} x {gap['message']}" for gap in document["gaps"]])


# --- sweep --------------------------------------------------------------------------------------------------


def sweep(result: Document, summary: Document, axis: Axis) -> list[Block]:
    """T along *axis* at points or by pieces, of the analysis that *summary* describes."""
    native = result["native"]
    table = _sweep_pieces if result["kind"] == "pieces" else _sweep_points
    return [
        *nature(summary),
        (
            f"native point: {at(LATENCY, native[LATENCY.key])}, {native['bandwidth_gbps']:.4g} Gbps, "
            f"T = {format_time(native['time_ns'])}"
        ),
        table(result["rows"], signature_names(summary), axis),
        "no congestion; recorded schedule, ranks and NCCL's choices as they are",
    ]


def _sweep_title(axis: Axis) -> str:
    return f"T({axis.symbol}), {axis.other.quantity} native"


def _sweep_pieces(rows: Sequence[Document], names: dict[str, str], axis: Axis) -> Table:
    return Table(
        _sweep_title(axis),
        ("from", "to", "T from", "T to", axis.slope_title, "paid by", "in phase; between"),
        [
            (
                *(axis.show_exactly(row[f"{end}_{axis.key}"]) for end in ("from", "to")),
                *(format_time(row[f"{end}_time_ns"], 6) for end in ("from", "to")),
                axis.show_slope(row[axis.component]),
                ", ".join(payers(row, axis.component, names)) or "nothing",
                hop_words(row, axis.component),
            )
            for row in rows
        ],
    )


def _sweep_points(rows: Sequence[Document], _: dict[str, str], axis: Axis) -> Table:
    return Table(
        _sweep_title(axis),
        (axis.heading, "T", "T / native", axis.slope_title),
        [
            (
                axis.show_exactly(row[axis.key]),
                format_time(row["time_ns"], 6),
                f"{row['relative']:.4f}",
                _slopes(row, axis),
            )
            for row in rows
        ],
    )


def _slopes(row: Document, axis: Axis) -> str:
    """The slope, or both at a breakpoint."""
    left, right = (axis.show_slope(row[f"{axis.component}_{side}"]) for side in ("left", "right"))
    return left if left == right else f"{left} .. {right}"


# --- path ---------------------------------------------------------------------------------------------------


def path(result: Document, top: int) -> list[Block]:
    """The critical path at one point: its *top* longest steps, and the hops that carry its messages and bytes."""
    hops = (f"{row[slope]:,} {slope}: {hop_words(row, slope, 3)}".rstrip(": ") for slope, row in result["hops"].items())
    return [
        *nature(result),
        f"{path_title(result)}, dependencies from {result['dependencies']}",
        *_steps(result["steps"], top, result["makespan_ns"]),
        *hops,
    ]


def path_title(result: Document) -> str:
    """Where the path was asked for and what it takes; also the title of its picture."""
    where = at_point(result[LATENCY.key], result[GAP.key])
    return f"Critical path at {where}: T = {format_time(result['makespan_ns'], 6)}"


def _steps(steps: Sequence[Document], top: int, makespan: float) -> list[Block]:
    longest = sorted(range(len(steps)), key=lambda i: (-steps[i]["duration_ns"], i))[:top]
    shown = [steps[i] for i in sorted(longest)]
    table = Table(
        f"The {len(shown)} longest of {len(steps)} steps, in order of time",
        ("begins at", "takes", "share", "what", "where", "messages", "bytes"),
        [_step(step, makespan) for step in shown],
    )
    if len(shown) == len(steps):
        return [table]
    rest = sum(step["duration_ns"] for step in steps) - sum(step["duration_ns"] for step in shown)
    return [
        table,
        f"the other {len(steps) - len(shown)} steps take {format_time(rest)}; see all with --top or --json",
    ]


def _step(step: Document, makespan: float) -> tuple[object, ...]:
    when = (
        format_time(step["begin_ns"]),
        format_time(step["duration_ns"]),
        f"{100 * step['duration_ns'] / makespan:.1f} %",
    )
    if "gpu" in step:
        return (*when, "GPU work and idle time", f"GPU {step['gpu']}", NOTHING, NOTHING)
    where = f"{step['ranks']} ranks, communicator {step['communicator']}"
    return (*when, signature_name(step), where, f"{step['messages']:,}", f"{step['bytes']:,}")


# --- goal solve, goal expand --solve ------------------------------------------------------------------------

_METHODS = {
    "full": "",
    "quotient": "; one rank per class of equal ranks (exact)",
    "bracket": "; upper side of a bracket",
}


def envelope(result: Document) -> list[Block]:
    """The exact envelope of one graph."""
    graph, native = result["graph"], result["native"]
    size = f"{graph['vertices']} vertices, {graph['edges']} edges"
    method = _METHODS[graph.get("method", "full")]
    return [
        f"graph: {graph['ranks']} ranks, {size}",
        f"T = {format_time(result['makespan_ns'], 6)} at {at_point(native[LATENCY.key], native[GAP.key])}",
        *(_pieces(result["envelopes"][axis.name], axis, native) for axis in AXES),
        f"T(L, G): {counted(len(result['joint']), 'planes')}; {solver_check(result['certificate'])}{method}",
        Listing("Assumptions", result["assumptions"]),
    ]


def _pieces(rows: Sequence[Document], axis: Axis, native: Document) -> Table:
    return Table(
        f"T({axis.symbol}) at {at(axis.other, native[axis.other.key])}",
        (*_piece_header(axis), "T from", "T to", axis.slope_title),
        [_piece(row, axis) for row in rows],
    )


def _piece_header(axis: Axis) -> list[str]:
    symbols = [f"{end} {axis.symbol}" for end in ("from", "to")]
    return [*(f"{words} (ns/B)" for words in symbols), "from", "to"] if axis.inverted else symbols


def _piece(row: Document, axis: Axis) -> list[object]:
    ends, slope = [row[f"{end}_{axis.unit}"] for end in ("from", "to")], row[axis.component]
    return [
        *([f"{x:.6g}" for x in ends] if axis.inverted else []),
        *(axis.show(x, 4 if axis.inverted else 6) for x in ends),
        *(format_time(row["constant_ns"] + slope * x, 6) for x in ends),
        f"{slope} ({axis.show_slope(slope)})" if axis.inverted else slope,
    ]


def lp_sweep(result: Document) -> list[Block]:
    """The paper's grid of LPs."""
    graph = result["graph"]
    return [
        (
            f"graph: {graph['vertices']} vertices, {graph['edges']} edges; {result['points']} points per axis, "
            "as the paper does it"
        ),
        *(_grid(result[axis.name], axis) for axis in AXES),
        f"{result['pivots']} pivots; breakpoints are grid points, pieces shorter than a step are missed",
    ]


def _grid(rows: Sequence[Document], axis: Axis) -> Table:
    keys = (f"from_{axis.unit}", f"to_{axis.unit}", "constant_ns", axis.component)
    unit = axis.unit.replace("_per_byte", "/B")
    header = (f"from ({unit})", f"to ({unit})", "constant (ns)", axis.component)
    return Table(f"T({axis.symbol}) on the grid", header, [[f"{row[key]:.6g}" for key in keys] for row in rows])


def along(result: Document, name: str, words: str) -> list[Block]:
    """T along another parameter than L or G: *name* as it was asked for, *words* for what it is."""
    table = Table(
        f"T along {name} ({words}), L and G native",
        ("from", "to", "T from", "T to", f"slope ({result['component']})"),
        [
            (
                *(f"{row[end]:.6g}" for end in ("from", "to")),
                *(format_time(row[f"{end}_time_ns"], 6) for end in ("from", "to")),
                row["slope"],
            )
            for row in result["pieces"]
        ],
    )
    return [table]


# --- validate -----------------------------------------------------------------------------------------------

Cost = tuple[float, int | None]
"""Seconds that a method took, and its peak memory in bytes where that is known."""

_WHY_NOT_BELOW = (
    "composite holds ranks that do alike together until the last is done, so it is not below monolithic unless "
    "collectives overlap on a NIC, or one begins while the last body of another is on its way out"
)


def validation(result: Document, costs: Sequence[Cost]) -> list[Block]:
    """The same trace by every method, relative to the first; *costs* are those of the methods in order."""
    points, methods = result["points"], result["methods"]
    base = methods[0]["times_ns"]
    header = [f"{LATENCY.show(point[LATENCY.key])}, {GAP.show(point[GAP.key])}" for point in points]
    rows: list[list[object]] = []
    for method, (seconds, peak) in zip(methods, costs, strict=True):
        beside = None if method is methods[0] else (method.get("against_ns") or base)
        cells = _times(method["times_ns"], beside, len(points))
        size = format_size(peak) if peak else NOTHING
        rows.append([method["name"], *cells, method["vertices"], f"{seconds:.2f} s", size])
    rows.append(["measured", *_times([result["measured_ns"]], base, len(points)), *[NOTHING] * 3])
    return [
        Table(
            "Time at five points (L, bandwidth), relative to composite",
            ["method", *header, "vertices", "time", "peak"],
            rows,
        ),
        f"dependencies: from {result['dependencies']}",
        *(f"{method['name']}: {method['note']}" for method in methods if method["note"]),
        _WHY_NOT_BELOW,
    ]


def _times(times: Sequence[float], base: Sequence[float] | None, points: int) -> list[str]:
    """A cell for each point, with the change against *base* (None: this is the base); a dash where there is none."""
    cells = [format_time(time, 6) for time in times]
    if base is not None:
        cells = [f"{cell} ({change(t, b, 3)})" for cell, t, b in zip(cells, times, base, strict=False)]
    return [*cells, *[NOTHING] * (points - len(cells))]


# --- inspect ------------------------------------------------------------------------------------------------


def inspection(summary: Document) -> list[Block]:
    """What a trace holds and lacks."""
    trace = summary["trace"]
    synthetic = " (SYNTHETIC)" if trace["synthetic"] else ""
    clocks = [(clock["host"], format_time(clock["offset_ns"])) for clock in summary["clocks"]]
    return [
        (
            f"{trace['ranks']} ranks on {trace['nodes']} nodes ({trace['placement']}), {trace['processes']} processes, "
            f"{len(trace['files'])} files{synthetic}"
        ),
        f"NCCL {trace['nccl']['version']} ({trace['nccl']['source']})",
        Table("Communicators", ("id", "ranks"), [(c["id"], c["ranks"]) for c in summary["communicators"]]),
        Table(
            "Operations (all ranks)",
            ("type", "size", "bytes", "count"),
            [(o["type"], format_size(o["size_bytes"]), o["size_bytes"], o["count"]) for o in summary["operations"]],
        ),
        *(_signed(summary["signatures"]) if summary["signatures"] else []),
        *([Table("Clock offsets", ("host", "ahead by"), clocks)] if clocks else []),
        _gaps(summary),
    ]


def _signed(signatures: Sequence[dict[str, Any]]) -> list[Block]:
    """The signatures of a trace, and where their fields come from."""
    plain = ("algorithm", "protocol", "channels", "ranks", "nodes", "count")
    rows = [(s["key"][:12], s["type"], format_size(s["size_bytes"]), *(s[name] for name in plain)) for s in signatures]
    sources = sorted({f"{field}: {source}" for s in signatures for field, source in s["sources"].items()})
    return [
        Table("Signatures", ("key", "type", "size", *plain), rows),
        Listing("Where signature fields come from", sources),
    ]


def survey(summary: Document) -> list[Block]:
    """What was counted in exports that analyze refuses."""
    processes = summary["processes"]
    return [
        f"{len(processes)} processes, {len(summary['files'])} files; nsys {', '.join(summary['nsys'])}",
        Table(
            "NCCL calls and kernels",
            ("host", "process", "what", "name", "count"),
            [
                (p["host"], p["pid"], what, name, count)
                for p in processes
                for what, counts in (("call", p["calls"]), ("kernel", p["kernels"]))
                for name, count in counts.items()
            ],
        ),
        Table(
            "Groups and cuts",
            ("host", "process", "groups", "kernels", "kernels without launch"),
            [
                (p["host"], p["pid"], p["groups"], sum(p["kernels"].values()), p["kernels_without_launch"])
                for p in processes
            ],
        ),
        Listing("Not enough for analyze", [summary["refused"]]),
    ]
