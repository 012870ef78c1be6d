"""What lies between the collectives of a trace, as edges that do not depend on how these pass time on."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from atlas_lp.goal.schedule import Ints
from atlas_lp.program.vertices import Vertices
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

    def on(self, vertices: Vertices) -> tuple[Ints, Ints]:
        """Return sources and targets as *vertices* of a program."""
        behind = vertices.end + np.arange(self.others)
        # Place -1, the start, is the last entry of each table: vertex 0.
        ends, begins = (np.concatenate([own, behind, [0]]) for own in (vertices.done, vertices.ready))
        return ends[self.sources], begins[self.targets]
