"""Vertices of a program: where instances begin and end, class by class, and all that lies between them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from atlas_lp.goal.schedule import Ints
from atlas_lp.program.dependencies.links import Links
from atlas_lp.solver.envelope import RankClasses
from atlas_lp.traces.signing.timeline import Timeline


@dataclass(frozen=True)
class Vertices:
    """A vertex *ready* and a vertex *done* for every class of ranks of each instance; vertex 0 is the start.

    ``ready`` and ``done`` have an entry per operation of the :class:`~atlas_lp.traces.signing.timeline.Timeline`;
    ``first`` is the vertex where class 0 of each instance is ready, ``classes`` how many it has.  Class c of an
    instance of k classes is ready at ``first + c`` and done at ``first + k + c``.
    """

    ready: Ints
    done: Ints
    first: Ints
    classes: Ints

    @classmethod
    def of(cls, timeline: Timeline, collectives: Sequence[RankClasses]) -> Vertices:
        """Number the vertices of the instances of *timeline*, instance by instance, from 1 on."""
        classes = np.array([c.count for c in collectives], dtype=np.int64)
        of_rank = [np.array(collective.of_rank, dtype=np.int64) for collective in collectives]
        first = 1 + 2 * (np.cumsum(classes) - classes)
        ready = first[timeline.instance] + timeline.by_label(of_rank)
        return cls(ready, ready + classes[timeline.instance], first, classes)

    @property
    def end(self) -> int:
        """The first vertex behind those of all instances."""
        return 1 + 2 * int(self.classes.sum())

    def ends_of(self, links: Links) -> tuple[Ints, Ints]:
        """Sources and targets of *links*, whose places do not know of classes, as vertices."""
        behind = self.end + np.arange(links.others)
        # Place -1, the start, is the last entry of each table: vertex 0.
        ends, begins = (np.concatenate([own, behind, [0]]) for own in (self.done, self.ready))
        return ends[links.sources], begins[links.targets]

    def instance(self, vertex: int) -> int:
        """The instance that *vertex* belongs to."""
        return int(np.searchsorted(self.first, vertex, side="right")) - 1

    def pair(self, instance: int, vertices: tuple[int, int]) -> tuple[int, int] | None:
        """Arriving and ending class of an edge between two *vertices* of *instance*; None where it is of two."""
        arriving, ending = vertices[0] - int(self.first[instance]), vertices[1] - int(self.first[instance])
        count = int(self.classes[instance])
        return (arriving, ending - count) if 0 <= arriving < count <= ending < 2 * count else None
