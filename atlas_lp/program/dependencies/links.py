"""What lies between the collectives of a trace, as edges that do not depend on how these pass time on."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from atlas_lp.goal.schedule import Ints
from atlas_lp.traces.trace import Gap

START = -1
"""The place of what has no predecessor: the start of the program."""


@dataclass(frozen=True)
class Links:
    """Edges between instances: from places, to places, cost in ns, and the GPU whose time that is.

    A place is :data:`START`; an operation of the timeline, below *operations*: its end where an edge comes from, its
    beginning where one goes to; or one of *others* behind them: pieces of GPU work, or the end of all.  Places do not
    depend on classes of ranks, so the links of a trace are found once and serve every program of it.
    """

    dependencies: str
    sources: Ints
    targets: Ints
    costs_ns: Ints
    gpus: Ints
    operations: int
    others: int
    gaps: tuple[Gap, ...]


def scaled(times_ns: Ints, factor: Fraction) -> Ints:
    """Measured times of compute times a *factor*, in whole ns (halves up)."""
    if factor == 1:
        return times_ns
    over, under = factor.as_integer_ratio()
    result: Ints = (2 * over * times_ns + under) // (2 * under)
    return result
