"""Collectives that overlap on one NIC: all that they send must pass it, which bounds how soon they can end.

The composition gives every collective the whole of its NICs.  Where some run at the same time, the bodies of all their
messages still pass the port one after the other: with the collectives in the order of their recorded starts, the one
that ended last is done no earlier than the first was ready plus (m - 1) G + g for each message of all (but one body,
which may be the last on its way).  These bounds are rows of the program like any other; they hold as long as the
recorded order does, and say nothing of how a NIC shares itself.  Source: the interval (energetic) bound of scheduling
theory, with the port of docs/model.md#loggp as the machine.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from atlas_lp.goal.event_graph import COMPONENTS
from atlas_lp.goal.kernels import topological_order
from atlas_lp.goal.schedule import Ints
from atlas_lp.program.vertices import Vertices
from atlas_lp.solver.envelope import Envelope
from atlas_lp.traces.signing.signed_trace import SignedTrace
from atlas_lp.traces.signing.timeline import Timeline

WINDOW = 64
"""Operations of one NIC looked at together, at most."""


@dataclass(frozen=True)
class PortLoads:
    """What instances put on NICs: per instance the rows ``sent`` of its envelope, one per label; and a port per GPU."""

    sent: Sequence[Ints]
    port_of_gpu: Ints

    @classmethod
    def of(
        cls, signed: SignedTrace, envelopes: Mapping[str, Envelope], gpus_per_nic: int, without: Collection[int]
    ) -> PortLoads:
        """What every instance puts on the NICs of its ranks; nothing for those *without*."""
        sent = {key: np.array(envelope.sent, dtype=np.int64).reshape(-1, 3) for key, envelope in envelopes.items()}
        none = np.zeros((0, 3), dtype=np.int64)
        nic, node = signed.trace.nic_of_gpu(gpus_per_nic), signed.trace.column("gpus", "node")
        own = [none if number in without else sent[key] for number, key in enumerate(signed.keys)]
        return cls(own, node * (int(nic.max()) + 1) + nic)


@dataclass(frozen=True)
class Rows:
    """Edges of a program that belong to instances: from vertices, to vertices, cost vectors, and whose they are.

    ``instances`` counts those that overlap another one on a NIC.
    """

    sources: Ints
    targets: Ints
    vectors: Ints
    owners: Ints
    instances: int = 0


def shared_ports(timeline: Timeline, vertices: Vertices, loads: PortLoads) -> Rows:
    """Bound the end of operations that overlap on a port; the row belongs to the instance that ends later for it.

    Cost O(n log n) for sorting, and O(n x :data:`WINDOW`).
    """
    sent, port = timeline.by_label(loads.sent), loads.port_of_gpu[timeline.gpu]
    busy = _Busy(timeline, sent, port)
    rows = []
    for ahead in range(1, WINDOW):
        i, latest, load, mixed = busy.window(ahead)
        if not len(i):
            break
        rows.append(tuple(column[mixed] for column in (vertices.ready[i], vertices.done[latest], *load)))
    none = np.zeros(0, dtype=np.int64)
    columns = [np.concatenate(column) for column in zip((none,) * 4, *rows, strict=True)]
    order = np.lexsort((columns[3], columns[2], columns[1], columns[0]))
    source, target, size, messages = (column[order] for column in columns)
    last = np.append((source[1:] != source[:-1]) | (target[1:] != target[:-1]), True)[: len(order)]
    vectors = np.zeros((int(np.count_nonzero(last)), len(COMPONENTS)), dtype=np.int64)
    vectors[:, COMPONENTS.index("bytes")] = size[last]
    vectors[:, COMPONENTS.index("gaps")] = messages[last]
    owners = np.searchsorted(vertices.first, target[last], side="right") - 1
    return Rows(source[last], target[last], vectors, owners, busy.overlapping())


def without_cycles(vertices: int, sources: Ints, targets: Ints, bounds: int) -> Ints:
    """Edges to keep so that those from number *bounds* on close no cycle; the others must have none.

    A bound is dropped when both its ends lie on or behind a cycle: ranks that recorded the ends of collectives at
    slightly different times can contradict the order that it assumes.  Cost O(V + E).
    """
    order, _ = topological_order(vertices, sources, targets, np.zeros(0, dtype=np.int32))
    left = np.ones(vertices, dtype=bool)
    left[order] = False
    kept = ~(left[sources] & left[targets])
    kept[:bounds] = True
    return np.flatnonzero(kept)


class _Busy:
    """Operations that send, by port and start, in busy periods; windows over them that grow by one at a time."""

    def __init__(self, timeline: Timeline, sent: Ints, port: Ints) -> None:
        sending = np.flatnonzero(sent[:, 1] > 0)
        order = np.lexsort((sending, timeline.end_ns[sending], timeline.start_ns[sending], port[sending]))
        self.operation = sending[order]
        self.end = timeline.end_ns[self.operation]
        self.instance = timeline.instance[self.operation]
        self.sent = sent[self.operation]
        self.period = busy_periods(port[self.operation], timeline.start_ns[self.operation], self.end)
        # Per operation: which one of its window ends last, the window's load, and whether it holds two instances.
        self.latest = np.arange(len(order))
        self.load = self.sent.copy()
        self.mixed = np.zeros(len(order), dtype=bool)

    def window(self, ahead: int) -> tuple[Ints, Ints, tuple[Ints, Ints], Ints]:
        """Windows of *ahead* + 1 operations: first and latest operation, (bytes, messages), whether instances mix."""
        first = np.flatnonzero(self.period[: len(self.period) - ahead] == self.period[ahead:])
        following = first + ahead
        later = self.end[following] >= self.end[self.latest[first]]
        self.latest[first] = np.where(later, following, self.latest[first])
        self.load[first, :2] += self.sent[following, :2]
        self.load[first, 2] = np.maximum(self.load[first, 2], self.sent[following, 2])
        self.mixed[first] |= self.instance[following] != self.instance[first]
        size, messages, largest = self.load[first].T
        latest = self.operation[self.latest[first]]
        return self.operation[first], latest, (size - largest, messages - 1), self.mixed[first]

    def overlapping(self) -> int:
        """How many instances share a busy period with another one."""
        both = np.unique(np.stack([self.period, self.instance]), axis=1)
        _, place, count = np.unique(both[0], return_inverse=True, return_counts=True)
        return len(np.unique(both[1][count[place] > 1]))


def busy_periods(port: Ints, start: Ints, end: Ints) -> Ints:
    """Number of the busy period of every operation; they are sorted by port and start.  One ends where nothing runs."""
    if not len(port):
        return port
    span = int(end.max() - start.min()) + 1
    _, number = np.unique(port, return_inverse=True)
    begin, stop = (column - start.min() + number * span for column in (start, end))
    idle = begin[1:] >= np.maximum.accumulate(stop)[:-1]
    return np.concatenate([[0], np.cumsum(idle)])
