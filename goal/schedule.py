"""GOAL operations as columns: what one GOAL file, or one expanded collective, says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from atlas_lp.errors import GoalError
from atlas_lp.goal.kernels import group_by

CALC, SEND, RECV = 0, 1, 2
KIND_NAMES = ("calc", "send", "recv")

Ints = NDArray[np.integer[Any]]


@dataclass(frozen=True)
class Schedule:
    """The operations of all ranks, rank by rank in the order of their block, and their dependencies.

    Arrays of length n (operations): ``kind`` (:data:`CALC`, :data:`SEND`, :data:`RECV`), ``rank``, ``size``
    (ns of a calc, bytes of a message), ``peer`` (-1 for a calc), ``tag``, ``cpu``, ``nic``.
    Columns that are None where there is nothing to say: ``scale_out``, which messages cross the scale-out network where
    node numbers cannot tell (in a quotient by symmetry, one rank stands for many), and ``towards``, which tells their
    ends apart there; ``turn``, which orders the sends of a port before anything else where more is known than
    dependencies say (in a recorded job, what ran before what); ``step``, the slice of its channel that an operation
    belongs to, counted alike on all ranks; ``reduces``, which operations belong to steps that add what they receive to
    their own.
    Arrays of length d (dependencies): operation ``after[i]`` waits until operation ``before[i]`` has
    finished, or only started where ``on_start[i]`` (``irequires``).
    """

    ranks: int
    kind: NDArray[np.int8]
    rank: Ints
    size: Ints
    peer: Ints
    tag: Ints
    cpu: Ints
    nic: Ints
    before: Ints
    after: Ints
    on_start: NDArray[np.bool_]
    scale_out: NDArray[np.bool_] | None = None
    towards: Ints | None = None
    turn: Ints | None = None
    step: Ints | None = None
    reduces: NDArray[np.bool_] | None = None

    def __len__(self) -> int:
        return len(self.kind)

    def count(self, kind: int) -> int:
        """Number of operations of one kind."""
        return int(np.count_nonzero(self.kind == kind))

    def block_position(self) -> Ints:
        """Position of every operation inside the block of its rank, from 0."""
        first = np.searchsorted(self.rank, np.arange(self.ranks))
        return np.arange(len(self), dtype=np.int64) - first[self.rank]

    def name(self, operation: int) -> str:
        """Words for one operation, for error messages."""
        rank = int(self.rank[operation])
        position = operation - int(np.searchsorted(self.rank, rank))
        size = int(self.size[operation])
        kind = int(self.kind[operation])
        if kind == CALC:
            what = f"calc {size}"
        else:
            link = "to" if kind == SEND else "from"
            what = f"{KIND_NAMES[kind]} {size}b {link} {self.peer[operation]} tag {self.tag[operation]}"
        return f"rank {rank} operation {position + 1} ({what})"

    def messages(self) -> tuple[Ints, Ints]:
        """Match sends and receives first in, first out by (source, destination, tag).

        Returns the operation numbers of all sends and of their receives.  Raises
        :class:`~atlas_lp.errors.GoalError` for an unmatched operation or unequal sizes.  Cost O(n).
        """
        ends = [np.flatnonzero(self.kind == kind) for kind in (SEND, RECV)]
        connections, count = self._connections(*ends)
        (send_start, send_order), (recv_start, recv_order) = (group_by(c, count) for c in connections)
        if not np.array_equal(send_start, recv_start):
            raise GoalError(self._unmatched(ends, (send_start, recv_start), (send_order, recv_order)))
        sends, recvs = ends[0][send_order], ends[1][recv_order]
        unequal = np.flatnonzero(self.size[sends] != self.size[recvs])
        if len(unequal):
            first = unequal[sends[unequal].argmin()]
            raise GoalError(f"{self.name(sends[first])} is matched by {self.name(recvs[first])}: the sizes differ")
        return sends, recvs

    def _connections(self, sends: Ints, recvs: Ints) -> tuple[list[Ints], int]:
        """Number the (source, destination, tag) of all sends and receives alike; return their count, too."""
        both = np.concatenate([sends, recvs])
        is_send = np.arange(len(both)) < len(sends)
        rank, peer = self.rank[both], self.peer[both]
        pair = np.where(is_send, rank * self.ranks + peer, peer * self.ranks + rank)
        _, pair_code = encode(pair)
        tags, tag_code = encode(self.tag[both])
        connections, code = encode(pair_code * max(len(tags), 1) + tag_code)
        return [code[: len(sends)], code[len(sends) :]], len(connections)

    def _unmatched(self, ends: Sequence[Ints], starts: tuple[Ints, Ints], members: tuple[Ints, Ints]) -> str:
        """Name the first operation that finds no partner on its connection."""
        counts = [np.diff(start) for start in starts]
        matched = np.minimum(*counts)
        lonely = []
        for operations, start, member, count, partner in zip(
            ends, starts, members, counts, ("receive", "send"), strict=True
        ):
            surplus = np.flatnonzero(count > matched)
            firsts = operations[member[start[surplus] + matched[surplus]]]
            if len(firsts):
                lonely.append((int(firsts.min()), partner))
        operation, partner = min(lonely)
        return f"{self.name(operation)} has no matching {partner}: every message needs both ends"


def encode(values: Ints) -> tuple[Ints, Ints]:
    """Distinct *values* in order of first appearance, and the number of each value among them.  Cost O(n)."""
    encoded = pa.array(values).dictionary_encode()
    return encoded.dictionary.to_numpy(), encoded.indices.to_numpy().astype(np.int64)


def with_ranks(schedule: Schedule, rank_of: Ints) -> Schedule:
    """Number the ranks anew: rank r becomes ``rank_of[r]``, a permutation; blocks keep their order inside."""
    rank_of = np.asarray(rank_of, dtype=np.int64)
    order = np.argsort(rank_of[schedule.rank], kind="stable")
    place = np.empty(len(order), dtype=np.int64)
    place[order] = np.arange(len(order))
    moved = {
        name: column[order]
        for name, column in schedule.__dict__.items()
        if name not in ("ranks", "before", "after", "on_start", "rank", "peer") and column is not None
    }
    is_calc = schedule.kind == CALC
    return replace(
        schedule,
        **moved,
        rank=rank_of[schedule.rank][order],
        peer=np.where(is_calc, -1, rank_of[schedule.peer])[order],
        before=place[schedule.before],
        after=place[schedule.after],
    )


def with_program_order(schedule: Schedule) -> Schedule:
    """Add program order: each operation of one (rank, cpu) also waits for the one before it.

    For GOAL files that leave the order of a cpu to the simulator (docs/model.md#program-order).
    """
    order = np.lexsort((np.arange(len(schedule)), schedule.cpu, schedule.rank))
    same = (schedule.rank[order][1:] == schedule.rank[order][:-1]) & (
        schedule.cpu[order][1:] == schedule.cpu[order][:-1]
    )
    before, after = order[:-1][same], order[1:][same]
    return Schedule(
        **{
            **schedule.__dict__,
            "before": np.concatenate([schedule.before, before]),
            "after": np.concatenate([schedule.after, after]),
            "on_start": np.concatenate([schedule.on_start, np.zeros(len(before), dtype=np.bool_)]),
        }
    )
