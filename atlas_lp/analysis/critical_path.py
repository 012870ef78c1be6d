"""The critical path of a job at one point (L, G): what determined T, step by step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import groupby
from typing import Any

from atlas_lp.goal.event_graph import COMPONENTS
from atlas_lp.program.job import Job
from atlas_lp.solver.longest_path import BYTES, MESSAGES, point
from atlas_lp.units import number


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


def critical_path(job: Job, latency_ns: Fraction, gap_ns_per_byte: Fraction) -> list[Step]:
    """Steps of the first critical path of *job* at (L, G), from the start to T; steps that take no time are left out.

    Consecutive work of one GPU is one step.
    """
    theta = {**job.fabric.theta(), "messages": latency_ns, "bytes": gap_ns_per_byte}
    edges = job.program.path(job.at(point(latency_ns, gap_ns_per_byte)))
    steps = []
    now = Fraction(0)
    for owner, group in groupby(edges, key=lambda edge: edge[0]):
        total = [sum(column) for column in zip(*(vector for _, vector in group), strict=True)]
        duration = sum((n * theta[c] for c, n in zip(COMPONENTS, total, strict=True)), Fraction(0))
        instance, gpu = (owner, None) if owner >= 0 else (None, -1 - owner)
        if duration:
            steps.append(Step(now, duration, instance, gpu, total[MESSAGES], total[BYTES]))
        now += duration
    return steps


def steps_json(job: Job, steps: Sequence[Step]) -> list[dict[str, Any]]:
    """Return plain values per step, collectives with type, size, signature and communicator."""
    communicators = job.trace.communicators["id"].to_pylist()
    rows = []
    for step in steps:
        row: dict[str, Any] = {"begin_ns": number(step.begin_ns), "duration_ns": number(step.duration_ns)}
        if step.instance is None:
            row["gpu"] = step.gpu
        else:
            signed = job.signed[step.instance]
            row |= {
                "type": signed.signature.collective,
                "size_bytes": signed.signature.size_bytes,
                "key": signed.signature.key(),
                "communicator": f"{communicators[signed.instance.communicator]:#x}",
                "ranks": signed.signature.ranks,
                "messages": step.messages,
                "bytes": step.bytes,
            }
        rows.append(row)
    return rows
