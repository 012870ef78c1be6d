"""Links by recorded events, streams and host calls: what every piece of GPU work waited for."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from atlas_lp.errors import InputError
from atlas_lp.goal.schedule import Ints
from atlas_lp.program.dependencies.links import START, Links, scaled
from atlas_lp.traces.signing.timeline import Timeline
from atlas_lp.traces.trace import Gap
from atlas_lp.traces.work import Work


def event_links(timeline: Timeline, work: Work, compute: Fraction = Fraction(1)) -> Links:
    """Links by recorded dependencies of every piece of GPU work.  Cost O(n log n) of the work.

    *compute* is a factor on the time of GPU work; launches, calls of the host and delays stay as they are.

    Raises :class:`~atlas_lp.errors.InputError` when an operation's kernel is not among the work.
    """
    return _EventLinks(timeline, work, compute).build()


class _EventLinks:
    """Builds the links of one trace; work is numbered as in *work*, operations as in *timeline*."""

    def __init__(self, timeline: Timeline, work: Work, compute: Fraction) -> None:
        self.timeline, self.work, self.compute = timeline, work, compute
        offset = timeline.offset_ns[work.gpu]
        self.start, self.end = work.start_ns + offset, work.end_ns + offset
        self.called = work.call_ns >= 0
        self.possible = self._possible_start(work.call_ns + offset)
        self.gaps = list(timeline.gaps)
        self.carried = self._carried()

    def _carried(self) -> tuple[Ints, Ints]:
        """(work, operation) of every operation, sorted by work: a kernel may carry several operations."""
        timeline, work = self.timeline, self.work
        keys = np.stack([work.gpu, work.stream, self.start])
        wanted = np.stack([timeline.gpu, timeline.stream, timeline.start_ns])
        _, inverse = np.unique(np.concatenate([keys, wanted], axis=1), axis=1, return_inverse=True)
        inverse = inverse.reshape(-1)
        place = np.full(int(inverse.max()) + 1, -1, dtype=np.int64)
        place[inverse[: len(work)]] = np.arange(len(work))
        found = place[inverse[len(work) :]]
        if (found < 0).any():
            lost = int(np.count_nonzero(found < 0))
            raise InputError(
                f"{lost} operations have no kernel among the recorded GPU work; use --dependencies streams"
            )
        order = np.lexsort((timeline.instance, found))
        return found[order], order

    def build(self) -> Links:
        before, after, available = self._waits()
        delay = np.maximum(self.start - available, 0)
        host, host_cost = self._host(delay)
        carriers = np.zeros(len(self.work), dtype=bool)
        carriers[self.carried[0]] = True
        own = np.where(carriers, 0, scaled(self.end - self.start, self.compute))
        everything = np.arange(len(self.work))
        sources, targets, costs, gpus = (
            np.concatenate(pair)
            for pair in (
                (before, host),
                (after, everything),
                ((delay + own)[after], host_cost + own),
                (self.work.gpu[after], self.work.gpu),
            )
        )
        known = np.append(np.full(len(before), True), host_cost >= 0)
        columns = (column[known] for column in (sources, targets, costs, gpus))
        places = self._places(carriers, *columns)
        return Links("events", *places, len(self.timeline.gpu), len(self.work), tuple(self.gaps))

    def _waits(self) -> tuple[Ints, Ints, Ints]:
        """Pairs (before, after) of streams and events, and when all that each piece waited for was over."""
        previous = self._previous_on_stream()
        follows = np.flatnonzero(previous >= 0)
        self.alone = previous < 0
        self.alone[self.work.after] = False
        before = np.concatenate([previous[follows], self.work.before])
        after = np.concatenate([follows, self.work.after])
        available = np.where(self.called, self.possible, np.iinfo(np.int64).min)
        np.maximum.at(available, after, self.end[before])
        unknown = available == np.iinfo(np.int64).min
        available[unknown] = self.timeline.origin_ns
        return before, after, available

    def _previous_on_stream(self) -> Ints:
        """Last work that had ended on the stream of each piece when it started, -1 for none."""
        work = self.work
        order = np.lexsort((self.end, self.start, work.stream, work.gpu))
        lane = np.stack([work.gpu, work.stream])[:, order]
        first = np.flatnonzero(np.append(True, np.any(lane[:, 1:] != lane[:, :-1], axis=0)))
        result = np.full(len(work), -1, dtype=np.int64)
        overlapping = 0
        for low, high in zip(first, np.append(first[1:], len(order)), strict=True):
            own = order[low:high]
            ends = np.maximum.accumulate(self.end[own])
            latest = np.maximum.accumulate(np.where(self.end[own] == ends, np.arange(len(own)), 0))
            before = np.minimum(np.searchsorted(ends, self.start[own], side="right"), np.arange(len(own))) - 1
            overlapping += int(np.count_nonzero(before < np.arange(len(own)) - 1))
            result[own] = np.where(before >= 0, own[latest[before]], -1)
        if overlapping:
            self.gaps.append(
                Gap("overlap", overlapping, "GPU work that starts before the work before it on its stream ends")
            )
        return result

    def _possible_start(self, call: Ints) -> Ints:
        """When each piece could have started for its call: after the shortest time of its GPU from call to start.

        Never after it did start, whatever the clocks of host and GPU say.
        """
        shortest = np.full(len(self.timeline.first_ns), np.iinfo(np.int64).max)
        np.minimum.at(shortest, self.work.gpu[self.called], (self.start - call)[self.called])
        latency = np.maximum(np.where(shortest == np.iinfo(np.int64).max, 0, shortest), 0)
        possible: Ints = np.minimum(call + latency[self.work.gpu], self.start)
        return possible

    def _host(self, delay: Ints) -> tuple[Ints, Ints]:
        """What the host had waited for before each call (:data:`START`: nothing), and the cost from there on.

        Work without a recorded call starts at a fixed time when nothing else held it; -1 where something did.
        """
        synced = self.work.synced
        since = np.where(synced >= 0, self.end[synced], self.timeline.origin_ns)
        cost = np.maximum(self.possible - since, 0) + delay
        fixed = np.where(self.alone, self.start - self.timeline.origin_ns, -1)
        return synced, np.where(self.called, cost, fixed)

    def _places(
        self, carriers: NDArray[np.bool_], sources: Ints, targets: Ints, costs: Ints, gpus: Ints
    ) -> tuple[Ints, Ints, Ints, Ints]:
        """Replace work by places: those of the operations that an NCCL kernel carried, else its own behind them."""
        carried, operation = self.carried
        for side in range(2):
            work = (sources, targets)[side]
            low = np.searchsorted(carried, work, side="left")
            is_operation = (work >= 0) & carriers[work]
            count = np.where(is_operation, np.searchsorted(carried, work, side="right") - low, 1)
            row = np.repeat(np.arange(len(work)), count)
            within = np.arange(len(row)) - np.repeat(np.cumsum(count) - count, count)
            plain = np.where(work >= 0, len(operation) + work, START)
            at = np.minimum(low[row] + within, len(operation) - 1)
            place = np.where(is_operation[row], operation[at], plain[row])
            sources, targets = (place, targets[row]) if side == 0 else (sources[row], place)
            costs, gpus = costs[row], gpus[row]
        return sources, targets, costs, gpus
