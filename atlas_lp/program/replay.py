"""Replay: the program with every collective at its measured duration should give the measured span.

Each collective takes the time from its last arrival to its last end.  Where its ranks ended it at different times, a
GPU ends earlier or later than recorded; by how much is said per GPU.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from atlas_lp.fabrics.fabric import Fabric
from atlas_lp.goal.event_graph import COMPONENTS
from atlas_lp.goal.schedule import Ints
from atlas_lp.program.compose import Program, compose
from atlas_lp.program.links import OperationTimes
from atlas_lp.solver.envelope import RankClasses
from atlas_lp.solver.longest_path import Evaluator
from atlas_lp.traces.signing.sign import SignedInstance
from atlas_lp.traces.trace import Trace


@dataclass(frozen=True)
class Replay:
    """Length of the replay, and (GPU, replayed ns, measured ns) of all whose last activity it puts elsewhere."""

    time_ns: int
    apart: tuple[tuple[int, int, int], ...]


def replay(trace: Trace, signed: Sequence[SignedInstance], program: Program, fabric: Fabric) -> Replay:
    """Put the measured durations of *program* through the same dependencies."""
    rest = (0,) * (len(COMPONENTS) - 1)
    durations = [RankClasses.alike(((duration, *rest),)) for duration in program.durations_ns.tolist()]
    replayed = compose(trace, signed, durations, program.dependencies)
    evaluator = Evaluator(replayed.graph, fabric.theta())
    times = OperationTimes(trace, signed)
    ends = _last_per_gpu(replayed, times, evaluator.times_ns((0, 0, 1)))
    measured = times.last - times.origin
    seen = np.unique(times.gpu).tolist()
    apart = [(gpu, int(ends[gpu]), int(measured[gpu])) for gpu in seen if ends[gpu] != measured[gpu]]
    return Replay(int(max(ends[seen])), tuple(apart))


def _last_per_gpu(program: Program, times: OperationTimes, at: Ints) -> Ints:
    """When the last piece of work of each GPU, collectives among it, ends; *at* is the time of every vertex."""
    graph = program.graph
    ends = np.zeros(len(times.last), dtype=np.int64)
    np.maximum.at(ends, times.gpu, at[graph.vertex[program.ends.done]])
    between = program.owner[graph.cost] < 0
    gpu = -1 - program.owner[graph.cost[between]]
    np.maximum.at(ends, gpu, at[graph.source[between]] + graph.costs[graph.cost[between], 0])
    return ends
