"""Plain strings of a report, made from a summary: what the template prints and nothing it has to compute."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from atlas_lp.analysis.regimes import BANDS, REGIMES, THRESHOLD, regime_map
from atlas_lp.report.page.curves import DRAWN, LAYOUTS, Curve, DrawnPiece, is_flat, pieces_along, time_at
from atlas_lp.report.words import (
    PARTS,
    Part,
    at,
    box_end,
    compared,
    counted,
    hop_words,
    payers,
    replayed,
    share,
    signature_names,
    signed,
    solver_check,
    to_gbps,
)
from atlas_lp.solver.axis import AXES, Axis
from atlas_lp.units import format_size, format_time

Summary = Mapping[str, Any]

MOST_ROWS = 25
"""Rows of a table that are always visible; the others open on demand."""

MOST_PLANES = 6000
"""Planes embedded for reading the map under the pointer; beyond, the map is a picture."""

_PART_CLASSES = {
    "compute_and_idle_ns": "compute",
    "reduce_copy_ns": "reduce",
    "latency_ns": "latency2",
    "bandwidth_ns": "bandwidth2",
    "overhead_ns": "overhead",
    "scale_up_ns": "up",
    "other_fabrics_ns": "other",
}

_PERCENT = 100 * THRESHOLD

REGIME_NAMES = {
    "near": f"near native or faster: T at most +{_PERCENT:g} %",
    "latency": f"latency: moving L alone back to native would win more than {_PERCENT:g} % of native T",
    "bandwidth": f"bandwidth: moving G alone back to native would win more than {_PERCENT:g} % of native T",
    "both": "both: each of them would, or only the two together",
}

NOTHING = "\N{EN DASH}"

_MARKED = {"element_bytes": "size", "split": "size", "topology": "ranks"}
_LETTERS = "abcdefghijklmnopqrstuvwxyz"


def cards(summary: Summary) -> list[dict[str, str]]:
    """Key numbers: a name, a value and a line that says what it means."""
    native, percent = summary["native"], f"+{summary['tolerance']['percent']:g} %"
    rows = [
        (
            "Native point",
            ", ".join(axis.show(native[axis.key]) for axis in AXES),
            f"L and bandwidth of fabric {summary['fabric']['name']}; G = {native['gap_ns_per_byte']:.4g} ns/B",
        ),
        ("T at the native point", format_time(summary["makespan_ns"]), "the model's time of the recorded schedule"),
        ("Measured", format_time(summary["measured_ns"]), compared(summary)),
        ("Replay", format_time(summary["replay_ns"]), replayed(summary)),
        *((f"{axis.quantity.capitalize()} for at most {percent}", *_reach(summary, axis)) for axis in AXES),
    ]
    return [{"name": name, "value": value, "note": note} for name, value, note in rows]


def _reach(summary: Summary, axis: Axis) -> tuple[str, str]:
    """How far the quantity may go, and what that is against its native value."""
    limit, native = summary["tolerance"][axis.key], summary["native"][axis.key]
    held = f"at {at(axis.other, summary['native'][axis.other.key])}"
    if limit is None:
        end = axis.show(box_end(summary["box"], axis, "to"))
        return f"any {'down' if axis.inverted else 'up'} to {end}", f"the whole analysed range stays within, {held}"
    if axis.inverted:
        part = f"{100 * native / limit:.3g} % of native"
        return f"≥ {axis.show(limit)}", f"{part}, {axis.symbol} ≤ {limit:.4g} ns/B, {held}"
    times = f"{limit / native:.3g} times native, {held}" if native else held
    return f"{axis.symbol} ≤ {axis.show(limit)}", times


def curves(summary: Summary) -> list[dict[str, Any]]:
    """T(L) and T(G): heading, figures in every layout, table of pieces; or the words for a flat one."""
    return [_curve(Curve.of(summary, drawn), summary) for drawn in DRAWN]


def _curve(curve: Curve, summary: Summary) -> dict[str, Any]:
    axis, pieces = curve.drawn.axis, curve.pieces
    flat = is_flat(pieces)
    first, last = pieces[0].start, pieces[-1].stop
    return {
        "kind": axis.name,
        "symbol": axis.symbol,
        "heading": f"T against {axis.quantity}, at {at(axis.other, summary['native'][axis.other.key])}",
        "flat": flat,
        "what": axis.heading,
        "held": axis.component.removesuffix("s"),
        "level": format_time(curve.native_ns),
        "range": f"{axis.show(first)} to {axis.show(last)}",
        "at_start": f"T at {axis.show(first)} is {format_time(time_at(pieces, first))}",
        "bands": "; ".join(band.name for band in curve.drawn.bands),
        "figures": [] if flat else [curve.draw(layout, summary["box"]) for layout in LAYOUTS],
        "slope_name": axis.component,
        "pieces": [
            {**_piece(axis, piece, curve.native_ns), "payers": paid, "hops": hops}
            for piece, (paid, hops) in zip(pieces, _payers(summary, curve), strict=True)
        ],
    }


def _payers(summary: Summary, curve: Curve) -> list[tuple[str, str]]:
    """The collectives that carry most of the slope of each piece, and the phases and ranks inside them.

    Empty where the summary does not say.
    """
    axis = curve.drawn.axis
    rows = summary.get("attribution", {}).get(axis.name, [])
    if len(rows) != len(curve.pieces):
        return [("", "")] * len(curve.pieces)
    names = signature_names(summary)
    result = []
    for row in rows:
        hops = hop_words(row, axis.component) if "phases" in row else ""
        paid = map(_unbroken, payers(row, axis.component, names))
        result.append((", ".join(paid), "; ".join(map(_unbroken, hops.split("; ")))))
    return result


def _unbroken(words: str) -> str:
    """The words with spaces at which a browser does not break the line."""
    return words.replace(" ", "\N{NO-BREAK SPACE}")


_INSIDE_QUANTITY = re.compile(r"(?<=\d) (?=(?:%|[num]?s|[MGT]bps|[KMGT]iB|ns/B)(?![\w/]))|(?<=[=≤≥]) | (?=[=≤≥])")


def keep_quantities(words: str) -> str:
    r"""The words, with no line break between a number, its unit and the sign before it.

    >>> keep_quantities("G ≤ 0.04 ns/B, at L = 3.7 us").split(" ")
    ['G\xa0≤\xa00.04\xa0ns/B,', 'at', 'L\xa0=\xa03.7\xa0us']
    >>> keep_quantities("from 64 KiB up").split(" ")
    ['from', '64\xa0KiB', 'up']
    """
    return _INSIDE_QUANTITY.sub("\N{NO-BREAK SPACE}", words)


def _piece(axis: Axis, piece: DrawnPiece, native_ns: float) -> dict[str, str]:
    def end(x: float) -> str:
        shown = _unbroken(axis.show(x))
        return f"{_unbroken(f'{x:.4g} ns/B')} ({shown})" if axis.inverted else shown

    return {
        "start": end(piece.start),
        "stop": end(piece.stop),
        "slope": f"{piece.slope:,}",
        "time": format_time(piece.at(piece.start)),
        "change": signed(100 * (piece.at(piece.start) / native_ns - 1), 1),
    }


def numbers(summary: Summary) -> dict[str, Any]:
    """The map at round values: a table of slowdowns with the class of each cell."""
    box = summary["box"]
    latency, gap = (summary["native"][axis.key] for axis in AXES)
    rates = [rate for rate in (10, 25, 50, 100, 200, 400, 800, 1600, 3200) if rate <= 8 * to_gbps(gap)]
    gaps = _around([8 / rate for rate in rates], gap, box["gap_from_ns_per_byte"], box["gap_to_ns_per_byte"])
    latencies = _around([1e3, 1e4, 5e4, 1e5, 5e5, 1e6], latency, box["latency_from_ns"], box["latency_to_ns"])
    grid = regime_map(summary["joint"], (latency, gap), latencies, gaps)
    return {
        "columns": [f"{x / 1e3:.4g}" for x in latencies],
        "rows": [
            {
                "name": f"{to_gbps(g):.5g}",
                "cells": [
                    {
                        "text": signed(100 * grid.slowdowns[i, j], 0).removesuffix(" %"),
                        "class": _cell_class(grid.regimes[i, j], grid.bands[i, j]),
                        "regime": REGIMES[grid.regimes[i, j]],
                        "native": bool(x == latency and g == gap),
                    }
                    for j, x in enumerate(latencies)
                ],
            }
            for i, g in enumerate(gaps)
        ],
    }


def _around(values: Sequence[float], native: float, low: float, high: float) -> list[float]:
    """*values* inside low..high with *native* in the place of any within 30 % of it."""
    apart = [v for v in values if low <= v <= high and not 1 / 1.3 < (v / native if native else 2) < 1.3]
    return sorted([*apart, native])


def _cell_class(regime: int, band: int) -> str:
    name = REGIMES[regime]
    return name if name == "near" else f"{name}{band}"


def legend() -> list[dict[str, Any]]:
    """Rows of the legend of the map."""
    return [
        {
            "name": REGIME_NAMES[name],
            "classes": ["near"] if name == "near" else [f"{name}{i}" for i in range(len(BANDS))],
        }
        for name in REGIMES
    ]


def breakdown(summary: Summary) -> list[dict[str, str]]:
    """Parts of the critical path at the native point, none left out."""
    total = summary["makespan_ns"]
    rows = []
    amounts = summary["breakdown"]
    for key in sorted(amounts, key=[*PARTS, *amounts].index):
        value = amounts[key]
        percent = 100 * value / total if total else 0.0
        rows.append(
            {
                "name": PARTS.get(key, Part(key, key)).listed,
                "class": _PART_CLASSES.get(key, "overhead"),
                "time": format_time(value),
                "share": share(percent),
                "width": f"{percent:.3f}",
            }
        )
    return rows


def signatures(summary: Summary) -> dict[str, Any]:
    """Rows of the table of signatures, and the sources their marks stand for."""
    marks: dict[str, str] = {}
    rows = [_signature(signature, marks) for signature in summary["signatures"]]
    return {
        "visible": rows[:MOST_ROWS],
        "hidden": rows[MOST_ROWS:],
        "sources": [{"mark": mark, "text": text} for text, mark in marks.items()],
    }


def _signature(signature: Mapping[str, Any], marks: dict[str, str]) -> dict[str, Any]:
    noted: dict[str, list[str]] = {}
    for field, source in sorted(signature["sources"].items()):
        if not source.startswith("recorded"):
            text = f"{field.replace('_', ' ')}: {source}"
            mark = marks.setdefault(text, _mark(len(marks)))
            noted.setdefault(_MARKED.get(field, field), []).append(mark)
    on_path = signature["on_path"]
    return {
        "key": signature["key"],
        "type": signature["type"],
        "size": format_size(signature["size_bytes"]),
        "algorithm": signature["algorithm"],
        "protocol": signature["protocol"],
        "channels": signature["channels"],
        "ranks": f"{signature['ranks']} on {signature['nodes']} node{'s' if signature['nodes'] > 1 else ''}",
        "count": signature["count"],
        "on_path": "" if on_path == signature["count"] else f"({on_path} on path)",
        "time": format_time(signature["time_ns"]),
        "bound": "at most " if signature.get("method") == "bracket" else "",
        "share": share(100 * signature["share"]),
        "messages": f"{signature['messages']:,}" if on_path else NOTHING,
        "bytes": format_size(signature["bytes"]) if on_path else NOTHING,
        "notes": {field: sorted(notes) for field, notes in noted.items()},
    }


def _mark(number: int) -> str:
    """``a`` .. ``z``, then ``a1`` and on."""
    turn, letter = divmod(number, len(_LETTERS))
    return _LETTERS[letter] + (str(turn) if turn else "")


def check(summary: Summary) -> str:
    """What the solver check found, as a sentence below a heading of that name."""
    return solver_check(summary["certificate"]).removeprefix("solver check: ") + "."


def provenance(summary: Summary) -> list[tuple[str, str]]:
    """Names and values of where the numbers come from."""
    tool, trace, fabric, box = (summary[k] for k in ("tool", "trace", "fabric", "box"))
    return [
        ("tool", f"{tool['name']} {tool['version']}, model version {tool['model']}"),
        ("NCCL version", trace["nccl"]),
        ("placement", trace["placement"]),
        ("trace", _counts(trace)),
        ("fabric", ", ".join(f"{key} {fabric[key]}" for key in sorted(fabric, key=lambda key: (key != "name", key)))),
        ("analysed range", "; ".join(f"{axis.heading} {_range(box, axis)}" for axis in AXES)),
        ("exact on it", f"{len(summary['joint']):,} planes of T(L, G)"),
        ("schema", f"{summary['schema']} version {summary['version']}"),
    ]


def _counts(trace: Summary) -> str:
    named = [("ranks", "GPUs"), *((n, n) for n in ("nodes", "processes", "communicators", "operations", "instances"))]
    return ", ".join(counted(trace[key], name) for key, name in named)


def _range(box: Summary, axis: Axis) -> str:
    """The range of the quantity, lower end first."""
    ends = [axis.show(box_end(box, axis, end)) for end in ("from", "to")]
    return " to ".join(reversed(ends) if axis.inverted else ends)


def subtitle(summary: Summary) -> str:
    """What was analysed, in one line."""
    trace = summary["trace"]
    return (
        f"{trace['ranks']:,} GPUs on {trace['nodes']:,} node{'s' if trace['nodes'] > 1 else ''}, "
        f"{trace['instances']:,} NCCL calls of {len(summary['signatures']):,} signatures, NCCL {trace['nccl']}, "
        f"fabric {summary['fabric']['name']}"
    )


def has_map(summary: Summary) -> bool:
    """Whether T depends on L or G anywhere in the analysed range."""
    return any(plane["messages"] or plane["bytes"] for plane in summary["joint"])


def script_data(summary: Summary) -> str:
    """Pieces and planes for reading values under the pointer, as JSON that is safe inside HTML."""
    planes = summary["joint"] if len(summary["joint"]) <= MOST_PLANES else []
    data = {
        "native": [summary["makespan_ns"], *(summary["native"][axis.key] for axis in AXES)],
        "threshold": THRESHOLD,
        **{axis.name: [[p.constant, p.slope] for p in pieces_along(summary, axis)] for axis in AXES},
        "planes": [[round(p["constant_ns"], 2), p["messages"], p["bytes"]] for p in planes],
    }
    return json.dumps(data, separators=(",", ":")).replace("<", "\\u003c")
