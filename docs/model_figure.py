"""Draw docs/images/model/three_ranks.svg, the figure of docs/model.md, from docs/three_ranks.goal.

Run ``python docs/model_figure.py``; two runs give the same bytes.
"""

from __future__ import annotations

from fractions import Fraction
from io import BytesIO
from pathlib import Path

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

HERE = Path(__file__).parent
PICTURE = HERE / "images" / "model" / "three_ranks.svg"

OVERHEAD_NS, GAP_NS_PER_BYTE, LATENCY_NS = 200, Fraction(1, 25), 3_700
BODY_NS = 65_535 * GAP_NS_PER_BYTE
CALC_NS = (5_000, 9_000, 2_000)
COLOURS = ("tab:gray", "tab:blue", "tab:red")


def message_ns(latency_ns: Fraction) -> Fraction:
    """One message of 65,536 bytes that waits for no other."""
    return 2 * OVERHEAD_NS + latency_ns + BODY_NS


def end_ns(rank: int, latency_ns: Fraction) -> Fraction:
    """When *rank* is done: equation (2) of docs/model.md."""
    if rank == 0:
        return Fraction(OVERHEAD_NS + CALC_NS[0])
    return rank * message_ns(latency_ns) + CALC_NS[rank]


def breakpoint_ns() -> Fraction:
    """The latency at which rank 2 begins to be last: equation (3) of docs/model.md."""
    return CALC_NS[1] - CALC_NS[2] - 2 * OVERHEAD_NS - BODY_NS


def _draw_time(axes: Axes) -> None:
    """Ranks from top to bottom, time from left to right."""
    latency = Fraction(LATENCY_NS)
    for rank in range(3):
        begin = end_ns(rank, latency) - CALC_NS[rank]
        axes.barh(rank, CALC_NS[rank] / 1000, 0.36, float(begin) / 1000, color=COLOURS[rank], alpha=0.75)
        axes.text(float(begin) / 1000 + 0.15, rank, f"{CALC_NS[rank] / 1000:g} us", va="center", fontsize=8)
    for rank in range(2):
        sent = rank * message_ns(latency) + OVERHEAD_NS
        ends = [float(x) / 1000 for x in (sent, (rank + 1) * message_ns(latency))]
        axes.annotate("", (ends[1], rank + 0.8), (ends[0], rank + 0.2), arrowprops={"arrowstyle": "->"})
        axes.text(sum(ends) / 2 + 0.3, rank + 0.45, "message", fontsize=8)
    axes.set(xlabel="time (us)", yticks=range(3), ylim=(2.5, -0.5), xlim=(0, 17))
    axes.set_yticklabels(["rank 0", "rank 1", "rank 2"])
    axes.set_title("L = 3.7 us, 200 Gbps", fontsize=9)


def _draw_lines(axes: Axes) -> None:
    """T(L) as the greatest of three lines."""
    ends = [Fraction(0), Fraction(8_000)]
    for rank in range(3):
        values = [float(end_ns(rank, x)) / 1000 for x in ends]
        axes.plot([float(x) / 1000 for x in ends], values, "--", color=COLOURS[rank], label=f"rank {rank}")
    corners = [ends[0], breakpoint_ns(), ends[1]]
    tops = [float(max(end_ns(rank, x) for rank in range(3))) / 1000 for x in corners]
    axes.plot([float(x) / 1000 for x in corners], tops, color="black", linewidth=2, label="T(L)")
    axes.axvline(float(breakpoint_ns()) / 1000, color="black", linewidth=0.6, linestyle=":")
    axes.text(float(breakpoint_ns()) / 1000 + 0.15, 1, "19,893/5 ns", fontsize=8)
    axes.set(xlabel="L (us)", ylabel="us", xlim=(0, 8), ylim=(0, 26))
    axes.set_title("the greatest of three lines", fontsize=9)
    axes.legend(fontsize=8, loc="upper left")


def picture() -> bytes:
    """The figure as SVG, with text as text."""
    with mpl.rc_context({"svg.hashsalt": "three ranks", "svg.fonttype": "none", "font.size": 9}):
        figure = Figure(figsize=(8, 2.8), layout="constrained")
        left, right = figure.subplots(1, 2)
        _draw_time(left)
        _draw_lines(right)
        target = BytesIO()
        figure.savefig(target, format="svg", metadata={"Date": None, "Creator": None})
    return b"\n".join(line.rstrip() for line in target.getvalue().splitlines()) + b"\n"


if __name__ == "__main__":
    PICTURE.parent.mkdir(parents=True, exist_ok=True)
    PICTURE.write_bytes(picture())
