"""The critical path of a program at one point (L, G): what determined T, step by step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import groupby

from atlas_lp.goal.event_graph import COMPONENTS
from atlas_lp.solver.longest_path import BYTES, MESSAGES, PathVector


@dataclass(frozen=True)
class Step:
    """A stretch of the critical path: one collective, or measured time of one GPU between collectives.

    ``instance`` is None for the latter; ``gpu`` is None for the former.
    """

    begin_ns: Fraction
    duration_ns: Fraction
    instance: int | None
    gpu: int | None
    messages: int
    bytes: int

    @property
    def end_ns(self) -> Fraction:
        """When the next step begins."""
        return self.begin_ns + self.duration_ns


def steps_of(path: Sequence[tuple[int, PathVector]], theta: Mapping[str, Fraction]) -> list[Step]:
    """Steps of a *path*, given as (owner, cost) of its edges, at *theta*; those that take no time are left out.

    Consecutive work of one GPU is one step.
    """
    steps = []
    now = Fraction(0)
    for owner, group in groupby(path, key=lambda edge: edge[0]):
        total = [sum(column) for column in zip(*(vector for _, vector in group), strict=True)]
        duration = sum((n * theta[c] for c, n in zip(COMPONENTS, total, strict=True)), Fraction(0))
        instance, gpu = (owner, None) if owner >= 0 else (None, -1 - owner)
        if duration:
            steps.append(Step(now, duration, instance, gpu, total[MESSAGES], total[BYTES]))
        now += duration
    return steps
