"""Every sentence and every way to write a number that the page and the terminal share, each in one place.

All take plain values, as the JSON documents hold them (``docs/json.md``).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from atlas_lp.solver.axis import AXES, GAP, LATENCY, Axis
from atlas_lp.units import format_size, format_time

Document = Mapping[str, Any]
"""A summary, or another JSON document."""

MINUS = "\N{MINUS SIGN}"


# --- numbers ------------------------------------------------------------------------------------------------


def to_gbps(gap: float) -> float:
    """Bandwidth in Gbps of G in ns per byte."""
    return 8 / gap if gap else float("inf")


def signed(percent: float, digits: int) -> str:
    """Write a change: ``+5 %``, ``−5 %`` with a true minus, ``0 %`` without a sign.

    >>> signed(12.34, 1), signed(-0.2, 0)
    ('+12.3 %', '0 %')
    """
    text = f"{percent:+,.{digits}f}".replace("-", MINUS)
    return f"{text if float(f'{percent:.{digits}f}') else '0'} %"


def change(value: float, reference: float, digits: int = 2) -> str:
    """Write how far *value* is from *reference* in plain characters, for a terminal.

    >>> change(99, 100), change(100, 100, 3)
    ('-1.00 %', '+0.000 %')
    """
    return f"{100 * (value / reference - 1):+.{digits}f} %"


def share(percent: float) -> str:
    """Write a part of a whole; a small one is not rounded to nothing.

    >>> share(0), share(0.01), share(12.34)
    ('0 %', '< 0.1 %', '12.3 %')
    """
    if percent == 0:
        return "0 %"
    return f"{percent:.1f} %" if percent >= 0.05 else "< 0.1 %"


def difference(value: float, reference: float) -> str:
    """How far *value* lies from *reference*: ``0.6 % below``.

    >>> difference(99, 100), difference(100, 100)
    ('1 % below', 'equal to')
    """
    if value == reference or not reference:
        return "equal to" if value == reference else "not comparable to"
    percent = 100 * (value / reference - 1)
    amount = f"{abs(percent):.2g}" if abs(percent) < 10 else f"{abs(percent):,.0f}"
    return f"{amount} % {'above' if percent > 0 else 'below'}"


def at(axis: Axis, value: float) -> str:
    """A place on *axis*: ``L = 3.7 us``, or ``200 Gbps``, whose unit says what it is."""
    return axis.show(value) if axis.inverted else f"{axis.symbol} = {axis.show(value)}"


def at_point(latency_ns: float, gap_ns_per_byte: float, between: str = ", ") -> str:
    """A place in the plane: ``L = 3.7 us, 200 Gbps``."""
    return between.join(at(axis, x) for axis, x in zip(AXES, (latency_ns, gap_ns_per_byte), strict=True))


def box_end(box: Document, axis: Axis, end: str) -> float:
    """One *end*, ``from`` or ``to``, of the range of *axis* that was analysed."""
    return float(box[f"{axis.name}_{end}_{axis.unit}"])


# --- what kind of answer it is ------------------------------------------------------------------------------


def nature(document: Document) -> list[str]:
    """Say what must be known first: of a synthetic trace, or of a job other than the recorded one."""
    synthetic = ["SYNTHETIC TRACE: no cluster was measured."] if document["trace"]["synthetic"] else []
    return [*synthetic, *(f"WHAT IF {sentence}." for sentence in document["what_if"])]


def headline(summary: Document) -> str:
    """The answer in one sentence: native point, time there, what dominates, tolerances."""
    native, tolerance = summary["native"], summary["tolerance"]
    largest, amount = max(summary["breakdown"].items(), key=lambda item: item[1])
    part = 100 * amount / summary["makespan_ns"] if summary["makespan_ns"] else 0.0
    latency, bandwidth = (_reach(axis, tolerance[axis.key], summary["box"]) for axis in AXES)
    return (
        f"At {at_point(native[LATENCY.key], native[GAP.key], ' and ')} the recorded schedule "
        f"takes {format_time(summary['makespan_ns'])}; {PARTS[largest].name}: {part:.0f} % of it; it stays within "
        f"+{tolerance['percent']} % for {latency}, or for {bandwidth}."
    )


def _reach(axis: Axis, limit: float | None, box: Document) -> str:
    """How far the quantity may go: ``L up to 86.81 us``; with ``any`` where the whole range is good enough."""
    any_, end = ("any ", box_end(box, axis, "to")) if limit is None else ("", limit)
    return f"{any_}{axis.heading} {'down' if axis.inverted else 'up'} to {axis.show(end)}"


class Part(NamedTuple):
    """A part of the critical path: its name in a sentence, and in a list of all parts."""

    name: str
    listed: str


PARTS = {
    "compute_and_idle_ns": Part("compute and idle time", "compute and idle between collectives"),
    "reduce_copy_ns": Part("reduce and copy loops inside collectives", "reduce and copy inside collectives"),
    "latency_ns": Part("scale-out latency", "scale-out latency (L of each message)"),
    "bandwidth_ns": Part("scale-out bandwidth", "scale-out bandwidth (G of each byte)"),
    "overhead_ns": Part("message overheads", "message overheads (o, g)"),
    "scale_up_ns": Part("scale-up transfers", "scale-up transfers"),
    "other_fabrics_ns": Part("collectives on fabrics of their own", "collectives on fabrics of their own"),
}
"""The keys of ``breakdown``."""


# --- against the measurement, the other reading, the other solver -------------------------------------------


def measured(summary: Document) -> str:
    """What the recording took, and how far T is from it; T of a changed job is no prediction of that recording."""
    what = "with the change" if summary["what_if"] else "predicted"
    apart = change(summary["makespan_ns"], summary["measured_ns"])
    return f"measured: {format_time(summary['measured_ns'])} ({apart} {what} at the native point)"


def compared(summary: Document) -> str:
    """The same beside a number that is already shown."""
    return f"span of the recording; T is {difference(summary['makespan_ns'], summary['measured_ns'])} it"


def replayed(summary: Document) -> str:
    """What the dependencies alone make of the recorded durations."""
    apart = difference(summary["replay_ns"], summary["measured_ns"])
    words = f"recorded durations put through the dependencies: {apart} measured"
    gpus = summary.get("replay_apart", [])
    if gpus:
        worst = max(gpus, key=lambda row: (abs(row["replay_ns"] - row["measured_ns"]), -row["gpu"]))
        by = worst["replay_ns"] - worst["measured_ns"]
        several = f"{len(gpus)} GPUs end elsewhere than recorded, GPU {worst['gpu']} most: "
        words += "; " + (several if len(gpus) > 1 else f"GPU {worst['gpu']} ends elsewhere than recorded: ")
        words += f"{format_time(abs(by))} {'later' if by > 0 else 'earlier'}"
    return words


def dependencies(summary: Document) -> str:
    """Which reading of the trace the answer rests on, and how far the other one is from it."""
    used, times = summary["dependencies"]["used"], summary["dependencies"]["makespan_ns"]
    others = [
        f"{name} would give {format_time(time)} ({change(time, times[used])})"
        for name, time in sorted(times.items())
        if name != used
    ]
    return "; ".join([f"dependencies: from {used}", *others])


def solver_check(found: Document) -> str:
    """What the solver check is and what it found; for a graph that was too large for it, that too.

    >>> solver_check(
    ...     {
    ...         "solver": "HiGHS 1.16.0",
    ...         "status": "optimal",
    ...         "points": 7,
    ...         "points_of_interest": 9,
    ...         "pivots": 0,
    ...         "largest_relative_difference": 2e-16,
    ...     }
    ... )
    'solver check: HiGHS 1.16.0 confirms T at 7 of 9 points, largest relative difference 2.0e-16, 0 pivots'
    """
    name, points, of = found["solver"], found["points"], found["points_of_interest"]
    where = f"{points:,} points" if points == of else f"{points:,} of {of:,} points"
    confirmed = (
        f"{name} confirms T at {where}, largest relative difference {found['largest_relative_difference']:.1e}, "
        f"{found['pivots']:,} pivots"
    )
    if not points:
        confirmed = f"{name} confirms T at none of {of:,} points"
    return f"solver check: {confirmed}" + ("" if found["status"] == "optimal" else f"; {found['status']}")


# --- who pays -----------------------------------------------------------------------------------------------


def signature_name(signature: Document) -> str:
    """Name a signature by what people know of it: ``AllGather 14 MiB``."""
    return f"{signature['type']} {format_size(signature['size_bytes'])}"


def signature_names(summary: Document) -> dict[str, str]:
    """Name of every signature by its key."""
    return {signature["key"]: signature_name(signature) for signature in summary["signatures"]}


def payers(row: Document, slope: str, names: Mapping[str, str], most: int = 2) -> list[str]:
    """The *most* signatures that carry a slope, and how many more do: ``AllGather 14 MiB 37 %``, ``9 more``."""
    words = [f"{names[s['key']]} {100 * s[slope] / row[slope]:.0f} %" for s in row["signatures"][:most]]
    more = len(row["signatures"]) - len(words)
    return [*words, f"{more} more"] if more else words


def hop_words(row: Document, slope: str, most: int = 1) -> str:
    """The phases, and *most* of the rank pairs, that carry a slope: ``copy 84 %, reduce 16 %; GPU 15 to 0 84 %``."""
    if not row[slope]:
        return ""
    phases = [f"{phase['key']} {100 * phase[slope] / row[slope]:.0f} %" for phase in row["phases"]]
    ends = [["?" if gpu is None else gpu for gpu in (p["from_gpu"], p["to_gpu"])] for p in row["pairs"][:most]]
    pairs = [
        f"GPU {a} to {b} {100 * p[slope] / row[slope]:.0f} %" for (a, b), p in zip(ends, row["pairs"], strict=False)
    ]
    return "; ".join(", ".join(words) for words in (phases, pairs) if words)


def counted(number: int, plural: str) -> str:
    """A number of things: ``1 piece``, ``1,024 pieces``.

    >>> counted(1, "processes"), counted(2, "pieces"), counted(1, "pieces")
    ('1 process', '2 pieces', '1 piece')
    """
    if number == 1:
        plural = plural.removesuffix("es") if plural.endswith("sses") else plural.removesuffix("s")
    return f"{number:,} {plural}"
