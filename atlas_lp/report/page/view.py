"""Plain strings of a report, made from a summary: what the template prints and nothing it has to compute."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from atlas_lp.analysis.regimes import BANDS, REGIMES, THRESHOLD, regime_map
from atlas_lp.report.page.curves import (
    GAP,
    LATENCY,
    LAYOUTS,
    Curve,
    Parameter,
    Piece,
    gap_pieces,
    is_flat,
    latency_pieces,
    time_at,
)
from atlas_lp.report.words import (
    PARTS,
    Part,
    compared,
    hop_words,
    payers,
    replayed,
    share,
    show_bandwidth,
    signature_names,
    signed,
    to_gbps,
)
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
    native, tolerance, box = summary["native"], summary["tolerance"], summary["box"]
    latency, bandwidth = format_time(native["latency_ns"]), show_bandwidth(native["gap_ns_per_byte"])
    percent = f"+{tolerance['percent']:g} %"
    rows = [
        (
            "Native point",
            f"{latency}, {bandwidth}",
            f"L and bandwidth of fabric {summary['fabric']['name']}; G = {native['gap_ns_per_byte']:.4g} ns/B",
        ),
        ("T at the native point", format_time(summary["makespan_ns"]), "the model's time of the recorded schedule"),
        ("Measured", format_time(summary["measured_ns"]), compared(summary)),
        ("Replay", format_time(summary["replay_ns"]), replayed(summary)),
        (f"Latency for at most {percent}", *_latency_tolerance(tolerance, native, box)),
        (f"Bandwidth for at most {percent}", *_bandwidth_tolerance(tolerance, native, box)),
    ]
    return [{"name": name, "value": value, "note": note} for name, value, note in rows]


def _latency_tolerance(tolerance: Summary, native: Summary, box: Summary) -> tuple[str, str]:
    at = f"at {show_bandwidth(native['gap_ns_per_byte'])}"
    if tolerance["latency_ns"] is None:
        return f"any up to {format_time(box['latency_to_ns'])}", f"the whole analysed range stays within, {at}"
    latency = tolerance["latency_ns"]
    times = f"{latency / native['latency_ns']:.3g} times native, {at}" if native["latency_ns"] else at
    return f"L ≤ {format_time(latency)}", times


def _bandwidth_tolerance(tolerance: Summary, native: Summary, box: Summary) -> tuple[str, str]:
    at = f"at L = {format_time(native['latency_ns'])}"
    gap = tolerance["gap_ns_per_byte"]
    if gap is None:
        least = show_bandwidth(box["gap_to_ns_per_byte"])
        return f"any down to {least}", f"the whole analysed range stays within, {at}"
    part = 100 * native["gap_ns_per_byte"] / gap
    return f"≥ {show_bandwidth(gap)}", f"{part:.3g} % of native, G ≤ {gap:.4g} ns/B, {at}"


def curves(summary: Summary) -> list[dict[str, Any]]:
    """T(L) and T(G): heading, figures in every layout, table of pieces; or the words for a flat one."""
    native, tolerance = summary["native"], summary["tolerance"]
    latency = Curve(
        LATENCY,
        latency_pieces(summary),
        native["latency_ns"],
        summary["makespan_ns"],
        tolerance["latency_ns"],
        tolerance["percent"],
    )
    gap = Curve(
        GAP,
        gap_pieces(summary),
        native["gap_ns_per_byte"],
        summary["makespan_ns"],
        tolerance["gap_ns_per_byte"],
        tolerance["percent"],
    )
    at_gap, at_latency = show_bandwidth(native["gap_ns_per_byte"]), format_time(native["latency_ns"])
    return [
        _curve(latency, summary, f"T against latency, at {at_gap}"),
        _curve(gap, summary, f"T against bandwidth, at L = {at_latency}"),
    ]


def _curve(curve: Curve, summary: Summary, heading: str) -> dict[str, Any]:
    parameter, pieces = curve.parameter, curve.pieces
    flat = is_flat(pieces)
    first, last = pieces[0].start, pieces[-1].stop
    return {
        "kind": parameter.kind,
        "symbol": parameter.symbol,
        "heading": heading,
        "flat": flat,
        "what": "L" if parameter is LATENCY else "bandwidth",
        "held": "message" if parameter is LATENCY else "byte",
        "level": format_time(curve.native_ns),
        "range": f"{parameter.show(first)} to {parameter.show(last)}",
        "at_start": f"T at {parameter.show(first)} is {format_time(time_at(pieces, first))}",
        "bands": "; ".join(band.name for band in parameter.bands),
        "figures": [] if flat else [curve.draw(layout, summary["box"]) for layout in LAYOUTS],
        "slope_name": "messages" if parameter is LATENCY else "bytes",
        "pieces": [
            {**_piece(parameter, piece, curve.native_ns), "payers": payers, "hops": hops}
            for piece, (payers, hops) in zip(pieces, _payers(summary, curve), strict=True)
        ],
    }


def _payers(summary: Summary, curve: Curve) -> list[tuple[str, str]]:
    """The collectives that carry most of the slope of each piece, and the phases and ranks inside them.

    Empty where the summary does not say.
    """
    rows = summary.get("attribution", {}).get("latency" if curve.parameter is LATENCY else "gap", [])
    if len(rows) != len(curve.pieces):
        return [("", "")] * len(curve.pieces)
    slope = "messages" if curve.parameter is LATENCY else "bytes"
    names = signature_names(summary)
    result = []
    for row in rows:
        hops = hop_words(row, slope) if "phases" in row else ""
        paid = map(_unbroken, payers(row, slope, names))
        result.append((", ".join(paid), "; ".join(map(_unbroken, hops.split("; ")))))
    return result


def _unbroken(words: str) -> str:
    """The words with spaces at which a browser does not break the line."""
    return words.replace(" ", "\N{NO-BREAK SPACE}")


def _piece(parameter: Parameter, piece: Piece, native_ns: float) -> dict[str, str]:
    def end(x: float) -> str:
        shown = _unbroken(parameter.show(x))
        return shown if parameter is LATENCY else f"{_unbroken(f'{x:.4g} ns/B')} ({shown})"

    return {
        "start": end(piece.start),
        "stop": end(piece.stop),
        "slope": f"{piece.slope:,}",
        "time": format_time(piece.at(piece.start)),
        "change": signed(100 * (piece.at(piece.start) / native_ns - 1), 1),
    }


def numbers(summary: Summary) -> dict[str, Any]:
    """The map at round values: a table of slowdowns with the class of each cell."""
    native, box = summary["native"], summary["box"]
    latency, gap = native["latency_ns"], native["gap_ns_per_byte"]
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
    for key, value in summary["breakdown"].items():
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
        "on_path": "" if on_path == signature["count"] else f"{on_path} on path",
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


def certificate(summary: Summary) -> dict[str, Any]:
    """What the independent solver said, and whether that is all that can be asked."""
    found = summary["certificate"]
    return {
        "good": found["status"] == "optimal",
        "status": found["status"],
        "text": (
            f"{found['solver']}, an independent LP solver, confirmed {_points(found)} of the solved graphs. "
            f"Started from the critical paths it needed {found['pivots']:,} pivots (0: optimal at once); times "
            f"differ by at most {found['largest_relative_difference']:.2g} of their value."
        ),
    }


def _points(found: Mapping[str, Any]) -> str:
    points, of = found["points"], found.get("points_of_interest", found["points"])
    return f"{points:,} points" if points == of else f"{points:,} of {of:,} points"


def provenance(summary: Summary) -> list[tuple[str, str]]:
    """Names and values of where the numbers come from."""
    tool, trace, fabric, box = (summary[k] for k in ("tool", "trace", "fabric", "box"))
    return [
        ("tool", f"{tool['name']} {tool['version']}, model version {tool['model']}"),
        ("NCCL version", trace["nccl"]),
        ("placement", trace["placement"]),
        ("trace", _counts(trace)),
        ("fabric", ", ".join(f"{key} {value}" for key, value in fabric.items())),
        ("analysed range", f"L {_range(box, LATENCY)}; bandwidth {_range(box, GAP)}"),
        ("exact on it", f"{len(summary['joint']):,} planes of T(L, G)"),
        ("schema", f"{summary['schema']} version {summary['version']}"),
    ]


def _counts(trace: Summary) -> str:
    named = [("ranks", "GPUs"), *((n, n) for n in ("nodes", "processes", "communicators", "operations", "instances"))]
    return ", ".join(f"{trace[key]:,} {name}" for key, name in named)


def _range(box: Summary, parameter: Parameter) -> str:
    low, high = (
        ("latency_from_ns", "latency_to_ns") if parameter is LATENCY else ("gap_to_ns_per_byte", "gap_from_ns_per_byte")
    )
    return f"{parameter.show(box[low])} to {parameter.show(box[high])}"


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
    native = summary["native"]
    planes = summary["joint"] if len(summary["joint"]) <= MOST_PLANES else []
    data = {
        "native": [summary["makespan_ns"], native["latency_ns"], native["gap_ns_per_byte"]],
        "threshold": THRESHOLD,
        "latency": [[p.constant, p.slope] for p in latency_pieces(summary)],
        "gap": [[p.constant, p.slope] for p in gap_pieces(summary)],
        "planes": [[round(p["constant_ns"], 2), p["messages"], p["bytes"]] for p in planes],
    }
    return json.dumps(data, separators=(",", ":")).replace("<", "\\u003c")
