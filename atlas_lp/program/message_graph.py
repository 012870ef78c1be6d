"""A whole trace as one GOAL schedule: every message of every collective, between measured gaps.

The composition of :mod:`~atlas_lp.program.compose` with its instances expanded: per operation two calcs of 0 ns mark
begin and end; what lies between, by either reading of :mod:`~atlas_lp.program.dependencies.readings`, are calcs.
Unlike in the composition, every rank of a collective begins when it arrives and ends with its own last operation.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

import numpy as np

from atlas_lp.collectives.signature_graph import all_ranks
from atlas_lp.errors import UnsupportedError
from atlas_lp.fabrics.fabric import Fabric
from atlas_lp.goal.schedule import CALC, Ints, Schedule
from atlas_lp.program.dependencies.links import Links
from atlas_lp.program.nic_sharing import busy_periods
from atlas_lp.signatures.algorithms.expand import MAX_OPERATIONS, operation_count
from atlas_lp.traces.signing.sign import SignedInstance
from atlas_lp.traces.signing.signed_trace import SignedTrace

# Tags of one schedule fit 32 bits; the communicator goes above them until all are numbered anew.
_TAG_BITS = 32

# Places inside a collective fit 32 bits; the busy period goes above them.
_PLACE_BITS = 32

# Place of an operation inside the GOAL block of its GPU: gap calcs, begin, messages, end.
_GAP, _BEGIN, _BODY, _END = range(4)


def message_graph(
    signed: SignedTrace,
    fabric: Fabric,
    links: Links,
    order_at: Mapping[str, tuple[Fraction, Fraction]] | None = None,
) -> Schedule:
    """Expand all instances of *signed*, which follow each other by *links*, into one schedule whose ranks are the GPUs.

    Where a collective has a NIC to itself, its ports serve in the order of the point that *order_at* names by the key
    of its signature, as when it is solved alone.  Delays of hosts are calcs, too, so that what waits beside
    computation is understood by graphs, and only links by the order of streams by a simulator that runs one calc of a
    cpu at a time.

    Raises :class:`~atlas_lp.errors.UnsupportedError` when that needs more than the limit of operations, before
    anything is expanded, and when ranks are missing.
    """
    total = sum(operation_count(s.signature) for s in signed.instances)
    if total > MAX_OPERATIONS:
        raise UnsupportedError(
            f"the whole trace expands to about {total:.2g} operations; the limit is {MAX_OPERATIONS:.2g}: "
            "export one signature with --signature"
        )
    builder = _Builder(signed, fabric)
    builder.add_links(links)
    expanded: dict[str, Schedule] = {}
    for number, instance in enumerate(signed.instances):
        key = instance.signature.key()
        if key not in expanded:
            serving = fabric.in_order_of((order_at or {}).get(key, fabric.order_at))
            expanded[key] = all_ranks(instance.signature, serving).schedule
        builder.add_instance(number, instance, expanded[key])
    return builder.schedule()


class _Builder:
    """Collects operations with the keys that sort them into blocks, and dependencies between them."""

    def __init__(self, signed: SignedTrace, fabric: Fabric) -> None:
        trace = signed.trace
        self.times = signed.timeline
        self.gpus = trace.gpus.num_rows
        self.nic_of_gpu = trace.nic_of_gpu(fabric.gpus_per_nic)
        self.columns: list[Ints] = []
        self.dependencies: list[tuple[Ints, Ints]] = []
        self.count = 0
        operations = len(self.times.gpu)
        order = np.lexsort((np.arange(operations), self.times.end_ns, self.times.start_ns, self.times.gpu))
        self.turn = np.empty(operations, dtype=np.int64)
        self.turn[order] = np.arange(operations)
        zero = np.zeros(operations, dtype=np.int64)
        self.begin = self._add(self.times.gpu, self.turn, zero + _BEGIN)
        self.end = self._add(self.times.gpu, self.turn, zero + _END)
        self.first = np.cumsum([0, *(len(rows) for rows in self.times.rows)])
        self.period = self._periods(trace.column("gpus", "node"))
        pairs = np.unique(np.stack([self.period, self.times.instance]), axis=1)
        self.alone = np.bincount(pairs[0]) == 1

    def _periods(self, node: Ints) -> Ints:
        """Busy period of the NIC of every operation: what ran before something else also sends before it.

        Where one collective has a NIC to itself, its messages keep the order that they have without all others.
        """
        times = self.times
        port = (node * (int(self.nic_of_gpu.max()) + 1) + self.nic_of_gpu)[times.gpu]
        order = np.lexsort((times.end_ns, times.start_ns, port))
        period = np.empty(len(order), dtype=np.int64)
        period[order] = busy_periods(port[order], times.start_ns[order], times.end_ns[order])
        return period

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
        order: Ints | int = 0,
    ) -> Ints:
        """Append operations; return their numbers."""
        block = np.empty((10, len(gpu)), dtype=np.int64)
        for row, values in enumerate((gpu, turn, place, kind, size, peer, tag, cpu, nic, order)):
            block[row] = values
        self.columns.append(block)
        numbers = np.arange(self.count, self.count + len(gpu))
        self.count += len(gpu)
        return numbers

    def add_links(self, links: Links) -> None:
        """Add a calc per link, between the ends of operations and of other GPU work, which is a calc of 0 ns."""
        # The start, place -1 and thus the last entry, and the end of a GPU in the reading by streams are no operations.
        others: Ints = np.full(links.others, -1, dtype=np.int64)
        turn = np.append(self.turn, np.full(links.others + 1, len(self.turn), dtype=np.int64))
        if links.dependencies == "events":
            gpu = np.zeros(links.operations + links.others, dtype=np.int64)
            gpu[links.targets] = links.gpus
            gpu = gpu[links.operations :]
            others = self._add(gpu, turn[links.operations : -1], np.full(len(gpu), _GAP))
        gap = self._add(links.gpus, turn[links.targets], np.full(len(links.gpus), _GAP), size=links.costs_ns)
        ends, begins = (np.concatenate([own, others, [-1]]) for own in (self.end, self.begin))
        before, after = ends[links.sources], begins[links.targets]
        self.dependencies.append((before[before >= 0], gap[before >= 0]))
        self.dependencies.append((gap[after >= 0], after[after >= 0]))

    def add_instance(self, number: int, instance: SignedInstance, schedule: Schedule) -> None:
        """Add the messages and calcs of one instance, from begin to end on each of its GPUs, in their turn."""
        positions = np.array(instance.positions)
        if (positions < 0).any():
            raise UnsupportedError("ranks are missing, so their messages have no place: export single signatures")
        operation_of_label = self.first[number] + positions
        gpu_of_label = self.times.gpu[operation_of_label]
        operation = operation_of_label[schedule.rank]
        gpu = gpu_of_label[schedule.rank]
        is_calc = schedule.kind == CALC
        place = np.zeros(len(gpu), dtype=np.int64) if schedule.turn is None else schedule.turn
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
            order=(self.period[operation] << _PLACE_BITS) + np.where(self.alone[self.period[operation]], place, 0),
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
        gpu, _, part, kind, size, peer, tag, cpu, nic, turn = columns[:, order]
        # What is no message of a collective has a cpu of its own: a simulator runs one calc of a cpu at a time.
        cpu = np.where(part == _BODY, cpu, cpu.max(initial=-1) + 1)
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
            turn=turn,
        )
