"""The program of a trace: instances and what lies between them as one event graph (DESIGN section 7).

Each instance has two vertices: *ready*, when its last rank has arrived, and *done*; one edge between them per plane of
its envelope.  How instances follow each other is for :mod:`~atlas_lp.links` to say.  Time inside NCCL kernels is never
a cost, because it contains waiting.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from atlas_lp.errors import InputError
from atlas_lp.goal.event_graph import COMPONENTS, EventGraph
from atlas_lp.goal.schedule import Ints
from atlas_lp.links import Links, OperationTimes, event_links, stream_links
from atlas_lp.longest_path import Longest, PathVector
from atlas_lp.traces import Gap, SignedInstance, Trace
from atlas_lp.what_if import AS_RECORDED, WhatIf

DEPENDENCIES = ("events", "streams")
"""Readings of a trace: by recorded events and host calls, or by the order of streams."""


@dataclass(frozen=True)
class Program:
    """The composition graph.

    ``owner`` gives per cost row the instance it is a plane of, or ``-1 - gpu`` for measured time of a GPU between them.

    ``measured_ns`` is the span from the first to the last recorded GPU activity, ``durations_ns`` the measured
    duration of every instance from the arrival of its last rank on, ``skews_ns`` how long its first rank waited for the
    last; ``dependencies`` says which reading was used.
    """

    graph: EventGraph
    owner: Ints
    measured_ns: int
    durations_ns: Ints
    skews_ns: Ints
    dependencies: str
    gaps: tuple[Gap, ...]

    def path(self, longest: Longest) -> list[tuple[int, PathVector]]:
        """Edges of a critical path from the start on, as (owner, cost)."""
        result = []
        vertex = longest.end
        while longest.tight[vertex] >= 0:
            edge = int(longest.tight[vertex])
            row = int(self.graph.cost[edge])
            result.append((int(self.owner[row]), tuple(self.graph.costs[row].tolist())))
            vertex = int(self.graph.source[edge])
        return result[::-1]


def compose(
    trace: Trace,
    signed: Sequence[SignedInstance],
    planes: Sequence[Sequence[PathVector]],
    dependencies: str | None = None,
    what_if: WhatIf = AS_RECORDED,
) -> Program:
    """Build the program of *trace*; *planes* gives the path vectors of every instance of *signed*.

    *dependencies* is one of :data:`DEPENDENCIES`; None takes events where the trace recorded them.  Collectives that
    *what_if* frees are for the caller, who gives their planes.

    Raises :class:`~atlas_lp.errors.CycleError` when two ranks recorded the same instances in opposite orders, and
    :class:`~atlas_lp.errors.InputError` when events are asked for and were not recorded.
    """
    times = OperationTimes(trace, signed)
    used = dependencies or ("events" if records_events(trace) else "streams")
    if used == "streams":
        links = stream_links(times, what_if)
    elif trace.work is None:
        raise InputError("the trace records no CUDA calls or streams: use --dependencies streams")
    else:
        links = event_links(times, trace.work, what_if)
    graph, owner = _with_instances(links, planes, times)
    durations, skews = times.durations()
    return Program(graph, owner, times.measured_ns, durations, skews, used, links.gaps)


def seen_by(trace: Trace, signed: Sequence[SignedInstance], gpu: int) -> tuple[Trace, list[SignedInstance]]:
    """Return what one GPU saw of a trace: its operations and its work, as in the paper.

    Instances start when this GPU arrives, whatever the others do.  Raises :class:`~atlas_lp.errors.InputError` for a
    GPU that took part in nothing.
    """
    own = trace.column("operations", "gpu")
    rows = [s.instance.rows[own[s.instance.rows] == gpu] for s in signed]
    kept = [replace(s, instance=replace(s.instance, rows=r)) for s, r in zip(signed, rows, strict=True) if len(r)]
    if not kept:
        raise InputError(f"GPU {gpu} ran no collective: the trace has GPUs 0 to {trace.gpus.num_rows - 1}")
    work = trace.work
    if work is not None:
        work = replace(work, gpu=np.where(work.gpu == gpu, gpu, -1)).only_numbered()
    return replace(trace, work=work), kept


def records_events(trace: Trace) -> bool:
    """Whether the trace says what GPU work waited for: some event wait or synchronisation was recorded."""
    return trace.work is not None and bool(len(trace.work.before) or (trace.work.synced >= 0).any())


def _with_instances(
    links: Links, planes: Sequence[Sequence[PathVector]], times: OperationTimes
) -> tuple[EventGraph, Ints]:
    """Add one edge per plane from ready to done of every instance."""
    waits = np.zeros((len(links.costs), len(COMPONENTS)), dtype=np.int64)
    waits[:, COMPONENTS.index("calc_ns")] = links.costs
    instance = np.repeat(np.arange(len(planes)), [len(own) for own in planes])
    vectors = np.array([v for own in planes for v in own], dtype=np.int64).reshape(-1, len(COMPONENTS))
    source, target = (
        np.concatenate(ends).astype(np.int32)
        for ends in ((links.sources, 1 + 2 * instance), (links.targets, 2 + 2 * instance))
    )
    cost = np.arange(len(source), dtype=np.int32)
    graph = EventGraph.from_edges(links.vertices, source, target, cost, np.concatenate([waits, vectors]), times.name)
    return graph, np.concatenate([-1 - links.gpus, instance])
