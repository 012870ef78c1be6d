"""A whole trace as one GOAL schedule: every message of every collective, between measured gaps.

The composition of :mod:`~atlas_lp.compose` with its instances expanded: per operation two calcs of 0 ns mark begin and
end, measured gaps are calcs between them.  Unlike in the composition, ranks are not held together at the end of a
collective.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from atlas_lp.errors import UnsupportedError
from atlas_lp.goal.schedule import CALC, Ints, Schedule
from atlas_lp.links import START, OperationTimes
from atlas_lp.parameters import Fabric
from atlas_lp.signatures import expand, operation_count
from atlas_lp.signatures.expand import MAX_OPERATIONS
from atlas_lp.traces import SignedInstance, Trace

# Tags of one schedule fit 32 bits; the communicator goes above them until all are numbered anew.
_TAG_BITS = 32

# Place of an operation inside the GOAL block of its GPU: gap calcs, begin, messages, end.
_GAP, _BEGIN, _BODY, _END = range(4)


def monolithic(trace: Trace, signed: Sequence[SignedInstance], fabric: Fabric) -> Schedule:
    """Expand all instances of *trace* into one schedule whose ranks are the GPUs.

    Raises :class:`~atlas_lp.errors.UnsupportedError` when that needs more than the limit of operations, before
    anything is expanded, and when ranks are missing.
    """
    total = sum(operation_count(s.signature) for s in signed)
    if total > MAX_OPERATIONS:
        raise UnsupportedError(
            f"the whole trace expands to about {total:.2g} operations; the limit is {MAX_OPERATIONS:.2g}: "
            "export one signature with --signature"
        )
    builder = _Builder(trace, signed, fabric)
    builder.add_gaps()
    expanded: dict[str, Schedule] = {}
    for number, instance in enumerate(signed):
        key = instance.signature.key()
        if key not in expanded:
            expanded[key] = expand(instance.signature, fabric.reduce_copy, fabric.credits)
        builder.add_instance(number, instance, expanded[key])
    return builder.schedule()


class _Builder:
    """Collects operations with the keys that sort them into blocks, and dependencies between them."""

    def __init__(self, trace: Trace, signed: Sequence[SignedInstance], fabric: Fabric) -> None:
        self.times = OperationTimes(trace, signed)
        self.gpus = trace.gpus.num_rows
        self.nic_of_gpu = trace.nic_of_gpu(fabric.gpus_per_nic)
        self.columns: list[Ints] = []
        self.dependencies: list[tuple[Ints, Ints]] = []
        self.count = 0
        operations = len(self.times.gpu)
        order = np.lexsort((np.arange(operations), self.times.end_ns, self.times.start, self.times.gpu))
        self.turn = np.empty(operations, dtype=np.int64)
        self.turn[order] = np.arange(operations)
        zero = np.zeros(operations, dtype=np.int64)
        self.begin = self._add(self.times.gpu, self.turn, zero + _BEGIN)
        self.end = self._add(self.times.gpu, self.turn, zero + _END)
        self.first = np.cumsum([0, *(len(rows) for rows in self.times.rows)])

    def _add(
        self,
        gpu: Ints,
        turn: Ints,
        place: Ints,
        kind: Ints | int = CALC,
        size: Ints | int = 0,
        peer: Ints | int = -1,
        tag: Ints | int = 0,
        cpu: Ints | int = 0,
        nic: Ints | int = 0,
    ) -> Ints:
        """Append operations; return their numbers."""
        block = np.empty((9, len(gpu)), dtype=np.int64)
        for row, values in enumerate((gpu, turn, place, kind, size, peer, tag, cpu, nic)):
            block[row] = values
        self.columns.append(block)
        numbers = np.arange(self.count, self.count + len(gpu))
        self.count += len(gpu)
        return numbers

    def add_gaps(self) -> None:
        """Add a calc per measured gap, between the end of one operation and the begin of the next."""
        before, after, cost = self.times.gap_edges()
        inside = after >= 0
        gpu = np.where(inside, self.times.gpu[after], -1 - after)
        turn = np.where(inside, self.turn[after], len(self.turn))
        gap = self._add(gpu, turn, np.full(len(gpu), _GAP), size=cost)
        follows = before != START
        self.dependencies.append((self.end[before[follows]], gap[follows]))
        self.dependencies.append((gap[inside], self.begin[after[inside]]))

    def add_instance(self, number: int, instance: SignedInstance, schedule: Schedule) -> None:
        """Add the messages and calcs of one instance, from begin to end on each of its GPUs."""
        positions = np.array(instance.positions)
        if (positions < 0).any():
            raise UnsupportedError("ranks are missing, so their messages have no place: export single signatures")
        operation_of_label = self.first[number] + positions
        gpu_of_label = self.times.gpu[operation_of_label]
        operation = operation_of_label[schedule.rank]
        gpu = gpu_of_label[schedule.rank]
        is_calc = schedule.kind == CALC
        tags = schedule.tag + (instance.instance.communicator << _TAG_BITS)
        own = self._add(
            gpu,
            self.turn[operation],
            np.full(len(gpu), _BODY),
            kind=schedule.kind.astype(np.int64),
            size=schedule.size,
            peer=np.where(is_calc, -1, gpu_of_label[schedule.peer]),
            tag=np.where(is_calc, 0, tags),
            cpu=schedule.cpu,
            nic=np.where(is_calc, 0, self.nic_of_gpu[gpu]),
        )
        has_before, has_after = np.zeros(len(own), dtype=bool), np.zeros(len(own), dtype=bool)
        has_before[schedule.after] = True
        has_after[schedule.before] = True
        self.dependencies += [
            (own[schedule.before], own[schedule.after]),
            (self.begin[operation[~has_before]], own[~has_before]),
            (own[~has_after], self.end[operation[~has_after]]),
        ]
        # A rank without any message of its own still ends no earlier than it begins.
        idle = np.setdiff1d(operation_of_label, operation)
        self.dependencies.append((self.begin[idle], self.end[idle]))

    def schedule(self) -> Schedule:
        """Sort everything into the blocks of the GPUs."""
        columns = np.concatenate(self.columns, axis=1)
        self.columns.clear()
        order = np.lexsort((np.arange(self.count), columns[2], columns[1], columns[0]))
        place = np.empty(self.count, dtype=np.int64)
        place[order] = np.arange(self.count)
        before, after = (place[np.concatenate(ends)] for ends in zip(*self.dependencies, strict=True))
        gpu, _, _, kind, size, peer, tag, cpu, nic = columns[:, order]
        _, tag = np.unique(tag, return_inverse=True)
        return Schedule(
            ranks=self.gpus,
            kind=kind.astype(np.int8),
            rank=gpu,
            size=size,
            peer=peer,
            tag=tag,
            cpu=cpu,
            nic=nic,
            before=before,
            after=after,
            on_start=np.zeros(len(before), dtype=np.bool_),
        )
