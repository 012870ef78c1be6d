"""``sweep``: T along latency or bandwidth, from an analysis folder."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from atlas_lp.cli.shared.options import BANDWIDTH_RANGE, LATENCY_RANGE, NAME, Finite, Interval, json_option
from atlas_lp.cli.shared.output import print_blocks, print_json
from atlas_lp.errors import InputError, ThresholdError
from atlas_lp.schemas import SWEEP
from atlas_lp.solver.axis import GAP, LATENCY, Axis
from atlas_lp.units import number

if TYPE_CHECKING:
    from atlas_lp.solver.envelope import Piece


@click.command()
@click.argument("analysis", type=NAME)
@click.option("--latency", type=LATENCY_RANGE, help="LO:HI[:N], such as 0:100us:11.")
@click.option("--bandwidth", type=BANDWIDTH_RANGE, help="LO:HI[:N], such as 50Gbps:800Gbps:16.")
@click.option(
    "--at-most",
    type=Finite(0),
    metavar="PERCENT",
    help="Exit code 1 when T in the range is more than this above the native time.",
)
@json_option
def sweep(
    analysis: Path, latency: Interval | None, bandwidth: Interval | None, at_most: float | None, as_json: bool
) -> None:
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
    from atlas_lp.report import terminal

    if (latency is None) == (bandwidth is None):
        raise InputError("give one of --latency LO:HI[:N] and --bandwidth LO:HI[:N]")
    axis, asked = (LATENCY, latency) if latency is not None else (GAP, bandwidth)
    assert asked is not None
    found = read_analysis(analysis)
    envelope = found.envelope
    held = axis.other.of(found.native)
    base = envelope.time_ns(*found.native)
    pieces = envelope.along(axis, held)
    for x in (asked.low, asked.high):
        envelope.box.check(*axis.pair(x, held))
    by_pieces = asked.points is None and asked.low != asked.high
    if by_pieces:
        rows = _pieces(pieces, found.summary["attribution"][axis.name], asked, axis)
    else:
        xs = [asked.low] if asked.points is None else axis.spaced(asked.low, asked.high, asked.points)
        rows = _points(pieces, xs, base, axis)
    result = {
        **SWEEP.head(),
        "what_if": found.summary["what_if"],
        "native": {**found.summary["native"], "time_ns": number(base)},
        "kind": "pieces" if by_pieces else "points",
        "rows": rows,
    }
    if as_json:
        print_json(result)
    else:
        print_blocks(terminal.sweep(result, found.summary, axis))
    if at_most is not None:
        _check(pieces, max(asked.low, asked.high), base, at_most, axis)


def _check(pieces: list[Piece], worst: Fraction, base: Fraction, percent: float, axis: Axis) -> None:
    """Raise :class:`~atlas_lp.errors.ThresholdError` when T at *worst* is too long, and say how far one may go."""
    from atlas_lp.solver.envelope import furthest

    limit = base * (1 + Fraction(percent) / 100)
    time = max(piece.at(worst) for piece in pieces)
    if time > limit:
        reach = furthest(pieces, limit)
        assert reach is not None
        raise ThresholdError(
            f"T is {100 * float(time / base - 1):.3g} % above native at {axis.show(worst)}, more than {percent:g} %: "
            f"{axis.quantity} may {axis.worsens} to {axis.show(reach)}"
        )


_PAYERS = ("signatures", "communicators", "streams", "phases", "pairs", "other_pairs", "entered", "left")


def _pieces(pieces: list[Piece], payers: list[dict[str, Any]], asked: Interval, axis: Axis) -> list[dict[str, Any]]:
    """Rows of the pieces inside the range *asked*, with who pays for each."""
    low, high = sorted([asked.low, asked.high])
    rows = []
    for piece, paid in zip(pieces, payers, strict=True):
        start, stop = max(piece.start, low), min(piece.stop, high)
        if start < stop:
            rows.append(
                {
                    f"from_{axis.key}": number(start),
                    f"to_{axis.key}": number(stop),
                    "from_time_ns": number(piece.at(start)),
                    "to_time_ns": number(piece.at(stop)),
                    axis.component: piece.slope,
                    **{key: paid[key] for key in _PAYERS},
                }
            )
    return rows


def _points(pieces: list[Piece], xs: list[Fraction], base: Fraction, axis: Axis) -> list[dict[str, Any]]:
    """Rows of the points *xs*; at a breakpoint slopes to the left and right differ."""
    from atlas_lp.solver.envelope import slopes_at

    rows = []
    for x in xs:
        time = max(piece.at(x) for piece in pieces)
        left, right = slopes_at(pieces, x)
        rows.append(
            {
                axis.key: number(x),
                "time_ns": number(time),
                "relative": float(time / base),
                f"{axis.component}_left": left,
                f"{axis.component}_right": right,
            }
        )
    return rows
