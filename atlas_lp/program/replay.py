"""Replay: the program with every collective at its measured duration should give the measured span.

Each collective takes the time from its last arrival to its last end.  Where its ranks ended it at different times, a
GPU ends earlier or later than recorded; by how much is said per GPU.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from atlas_lp.goal.event_graph import COMPONENTS
from atlas_lp.goal.schedule import Ints
from atlas_lp.program.compose import Program, compose
from atlas_lp.program.dependencies.links import Links
from atlas_lp.solver.envelope import RankClasses
from atlas_lp.solver.longest_path import Evaluator
from atlas_lp.traces.signing.signed_trace import SignedTrace
from atlas_lp.traces.signing.timeline import Timeline


@dataclass(frozen=True)
class Replay:
    """Length of the replay, and (GPU, replayed ns, measured ns) of all whose last activity it puts elsewhere."""

    time_ns: int
    apart: tuple[tuple[int, int, int], ...]


def replay(signed: SignedTrace, links: Links) -> Replay:
    """Put the measured durations of *signed* through *links*; no parameter of a network plays a part."""
    timeline = signed.timeline
    durations_ns, _ = timeline.durations_ns()
    rest = (0,) * (len(COMPONENTS) - 1)
    program = compose(signed, [RankClasses.alike(((ns, *rest),)) for ns in durations_ns.tolist()], links)
    measured_alone = dict.fromkeys(COMPONENTS, Fraction(0)) | {"calc_ns": Fraction(1)}
    ends = _last_per_gpu(program, timeline, Evaluator(program.graph, measured_alone).times_ns((0, 0, 1)))
    measured = timeline.last_ns - timeline.origin_ns
    seen = np.unique(timeline.gpu).tolist()
    apart = [(gpu, int(ends[gpu]), int(measured[gpu])) for gpu in seen if ends[gpu] != measured[gpu]]
    return Replay(int(max(ends[seen])), tuple(apart))


def _last_per_gpu(program: Program, timeline: Timeline, at: Ints) -> Ints:
    """When the last piece of work of each GPU, collectives among it, ends; *at* is the time of every vertex."""
    graph = program.graph
    ends = np.zeros(len(timeline.last_ns), dtype=np.int64)
    np.maximum.at(ends, timeline.gpu, at[graph.vertex[program.vertices.done]])
    between = program.owner[graph.cost] < 0
    gpu = -1 - program.owner[graph.cost[between]]
    np.maximum.at(ends, gpu, at[graph.source[between]] + graph.costs[graph.cost[between], 0])
    return ends
