"""``sweep``: T along latency or bandwidth, from an analysis folder."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from atlas_lp.cli.options import BANDWIDTH_RANGE, LATENCY_RANGE, Range, json_option
from atlas_lp.cli.output import print_json, print_nature, print_table
from atlas_lp.errors import InputError, ThresholdError
from atlas_lp.schemas import SWEEP
from atlas_lp.units import format_bandwidth, format_size, format_time, number

if TYPE_CHECKING:
    from atlas_lp.solver.envelope import Piece


@click.command()
@click.argument("analysis", type=click.Path(path_type=Path))
@click.option("--latency", type=LATENCY_RANGE, help="LO:HI[:N], such as 0:100us:11.")
@click.option("--bandwidth", type=BANDWIDTH_RANGE, help="LO:HI[:N], such as 50Gbps:800Gbps:16.")
@click.option(
    "--at-most",
    type=click.FloatRange(0),
    metavar="PERCENT",
    help="Exit code 1 when T in the range is more than this above the native time.",
)
@json_option
def sweep(analysis: Path, latency: Range | None, bandwidth: Range | None, at_most: float | None, as_json: bool) -> None:
    """Print T(L) or T(G) of an analysis folder, the other parameter at its native value.

    With N, T at N equally spaced points (of L, or of bandwidth); without, the exact pieces in the range: where they
    begin and end, the slope, which counts messages (of L) or bytes (of G) on the critical path, and the collectives
    that carry it. --json adds communicators and streams, and which instances enter or leave the path at each
    breakpoint.

    \b
    Example:
      atlas-lp sweep out --latency 0:100us:11
      atlas-lp sweep out --bandwidth 50Gbps:800Gbps
      atlas-lp sweep out --latency 0:20us --at-most 5
    """
    from atlas_lp.analysis.folder import read_analysis

    if (latency is None) == (bandwidth is None):
        raise InputError("give one of --latency LO:HI[:N] and --bandwidth LO:HI[:N]")
    found = read_analysis(analysis)
    envelope = found.envelope
    base = envelope.time_ns(found.latency_ns, found.gap_ns_per_byte)
    if latency is not None:
        pieces = envelope.along_latency(found.gap_ns_per_byte)
        for x in (latency.low, latency.high):
            envelope.box.check(x, found.gap_ns_per_byte)
        xs = [latency.low, latency.high] if latency.points is None else latency.values()
        payers = found.summary["attribution"]["latency"]
        rows = _rows(pieces, xs, payers if latency.points is None else None, base, "latency_ns", "messages")
    else:
        assert bandwidth is not None
        pieces = envelope.along_gap(found.latency_ns)
        for x in (bandwidth.low, bandwidth.high):
            envelope.box.check(found.latency_ns, x)
        payers = found.summary["attribution"]["gap"] if bandwidth.points is None else None
        rows = _rows(pieces, _gaps(bandwidth), payers, base, "gap_ns_per_byte", "bytes")
    result = {
        **SWEEP.head(),
        "what_if": found.summary["what_if"],
        "native": {**found.summary["native"], "time_ns": number(base)},
        "kind": "pieces" if (latency or bandwidth).points is None else "points",  # type: ignore[union-attr]
        "rows": rows,
    }
    if as_json:
        print_json(result)
    else:
        _print(result, found.summary)
    if at_most is not None:
        parameter = latency or bandwidth
        assert parameter is not None
        _check(pieces, max(parameter.low, parameter.high), base, at_most, latency is not None)


def _check(pieces: list[Piece], worst: Fraction, base: Fraction, percent: float, is_latency: bool) -> None:
    """Raise :class:`~atlas_lp.errors.ThresholdError` when T at *worst* is too long, and say how far one may go."""
    from atlas_lp.solver.envelope import furthest

    limit = base * (1 + Fraction(percent) / 100)
    time = max(piece.at(worst) for piece in pieces)
    if time > limit:
        reach = furthest(pieces, limit)
        assert reach is not None
        here, far = (format_time(x) if is_latency else format_bandwidth(x) for x in (worst, reach))
        raise ThresholdError(
            f"T is {100 * float(time / base - 1):.3g} % above native at {here}, more than {percent:g} %: "
            f"{'latency may rise' if is_latency else 'bandwidth may fall'} to {far}"
        )


def _gaps(bandwidth: Range) -> list[Fraction]:
    """Gaps per byte of bandwidths equally spaced between the ends; both ends alone without N."""
    if bandwidth.points is None:
        return sorted([bandwidth.low, bandwidth.high])
    ends = Range(1 / bandwidth.low, 1 / bandwidth.high, bandwidth.points)
    return [1 / value for value in ends.values()]


_PAYERS = ("signatures", "communicators", "streams", "phases", "pairs", "other_pairs", "entered", "left")


def _rows(
    pieces: list[Piece],
    xs: list[Fraction],
    payers: list[dict[str, Any]] | None,
    base: Fraction,
    name: str,
    slope: str,
) -> list[dict[str, Any]]:
    """Rows of a sweep: pieces between the two *xs* with their *payers*, or, without them, the points *xs*."""
    from atlas_lp.solver.envelope import slopes_at

    rows = []
    if payers is not None:
        low, high = min(xs), max(xs)
        for piece, paid in zip(pieces, payers, strict=True):
            start, stop = max(piece.start, low), min(piece.stop, high)
            if start < stop:
                rows.append(
                    {
                        f"from_{name}": number(start),
                        f"to_{name}": number(stop),
                        "from_time_ns": number(piece.at(start)),
                        "to_time_ns": number(piece.at(stop)),
                        slope: piece.slope,
                        **{key: paid[key] for key in _PAYERS},
                    }
                )
        return rows
    for x in xs:
        time = max(piece.at(x) for piece in pieces)
        left, right = slopes_at(pieces, x)
        rows.append(
            {
                name: number(x),
                "time_ns": number(time),
                "relative": float(time / base),
                f"{slope}_left": left,
                f"{slope}_right": right,
            }
        )
    return rows


def _print(result: dict[str, Any], summary: dict[str, Any]) -> None:
    from atlas_lp.analysis.attribution import hop_words

    print_nature(summary)
    native = result["native"]
    click.echo(
        f"native point: L = {format_time(native['latency_ns'])}, {native['bandwidth_gbps']:.4g} Gbps, "
        f"T = {format_time(native['time_ns'])}"
    )
    by_latency = any("latency_ns" in key for key in result["rows"][0])
    show = _show_latency if by_latency else _show_gap
    slope = "dT/dL (messages)" if by_latency else "dT/dG (bytes)"
    header: tuple[str, ...]
    rows: list[tuple[object, ...]]
    if result["kind"] == "pieces":
        prefix = "latency_ns" if by_latency else "gap_ns_per_byte"
        header = ("from", "to", "T from", "T to", slope, "paid by", "in phase; between")
        names = {s["key"]: f"{s['type']} {format_size(s['size_bytes'])}" for s in summary["signatures"]}
        rows = [
            (
                show(r[f"from_{prefix}"]),
                show(r[f"to_{prefix}"]),
                format_time(r["from_time_ns"], 6),
                format_time(r["to_time_ns"], 6),
                r["messages"] if by_latency else format_size(r["bytes"]),
                _paid_by(r, "messages" if by_latency else "bytes", names),
                hop_words(r, "messages" if by_latency else "bytes"),
            )
            for r in result["rows"]
        ]
    else:
        header = ("L" if by_latency else "bandwidth", "T", "T / native", slope)
        rows = [_point_row(r, by_latency, show) for r in result["rows"]]
    print_table("T(L), bandwidth native" if by_latency else "T(G), latency native", header, rows)
    click.echo("no congestion; recorded schedule, ranks and NCCL's choices as they are")


def _paid_by(row: dict[str, Any], slope: str, names: dict[str, str]) -> str:
    """The two signatures that carry most of a slope."""
    words = [f"{names[s['key']]} {100 * s[slope] / row[slope]:.0f} %" for s in row["signatures"][:2]]
    more = len(row["signatures"]) - len(words)
    return ", ".join(words) + (f", {more} more" if more > 0 else "") if words else "nothing"


def _point_row(row: dict[str, Any], by_latency: bool, show: Any) -> tuple[object, ...]:
    name, slope = ("latency_ns", "messages") if by_latency else ("gap_ns_per_byte", "bytes")
    left, right = row[f"{slope}_left"], row[f"{slope}_right"]
    words = [str(x) if by_latency else format_size(x) for x in (left, right)]
    both = words[0] if left == right else f"{words[0]} .. {words[1]}"
    return show(row[name]), format_time(row["time_ns"], 6), f"{row['relative']:.4f}", both


def _show_latency(value: float) -> str:
    return format_time(value, 6)


def _show_gap(value: float) -> str:
    return f"{format_bandwidth(Fraction(value).limit_denominator(10**12), 6)} ({value:.6g} ns/B)"
