"""GOAL operations as columns: what one GOAL file, or one expanded collective, says."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from atlas_lp.errors import GoalError

CALC, SEND, RECV = 0, 1, 2
KIND_NAMES = ("calc", "send", "recv")

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Schedule:
    """The operations of all ranks, rank by rank in the order of their block, and their dependencies.

    Arrays of length n (operations): ``kind`` (:data:`CALC`, :data:`SEND`, :data:`RECV`), ``rank``, ``size``
    (ns of a calc, bytes of a message), ``peer`` (-1 for a calc), ``tag``, ``cpu``, ``nic``.
    ``scale_out`` says which messages cross the scale-out network where node numbers cannot (in a quotient by symmetry,
    one rank stands for many); usually it is None.
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

        Returns the operation numbers of all sends and of their receives, in the order of the sends' keys.
        Raises :class:`~atlas_lp.errors.GoalError` for an unmatched operation or unequal sizes.
        Cost O(n log n).
        """
        sends, send_keys = self._ends(SEND, self.rank, self.peer)
        recvs, recv_keys = self._ends(RECV, self.peer, self.rank)
        if send_keys.shape != recv_keys.shape or not np.array_equal(send_keys, recv_keys):
            raise GoalError(self._unmatched(sends, send_keys, recvs, recv_keys))
        unequal = np.flatnonzero(self.size[sends] != self.size[recvs])
        if len(unequal):
            first = unequal[0]
            raise GoalError(f"{self.name(sends[first])} is matched by {self.name(recvs[first])}: the sizes differ")
        return sends, recvs

    def _ends(self, kind: int, source: Ints, destination: Ints) -> tuple[Ints, Ints]:
        operations = np.flatnonzero(self.kind == kind)
        keys = np.stack([source[operations], destination[operations], self.tag[operations]])
        order = np.lexsort((operations, keys[2], keys[1], keys[0]))
        return operations[order], keys[:, order]

    def _unmatched(self, sends: Ints, send_keys: Ints, recvs: Ints, recv_keys: Ints) -> str:
        """Name the first operation whose (source, destination, tag) has no partner."""
        both = min(len(sends), len(recvs))
        differ = np.any(send_keys[:, :both] != recv_keys[:, :both], axis=0)
        at = int(np.argmax(differ)) if differ.any() else both
        lonely_send = at < len(sends) and (at >= len(recvs) or tuple(send_keys[:, at]) < tuple(recv_keys[:, at]))
        operation, partner = (sends[at], "receive") if lonely_send else (recvs[at], "send")
        return f"{self.name(operation)} has no matching {partner}: every message needs both ends"


def with_program_order(schedule: Schedule) -> Schedule:
    """Add program order: each operation of one (rank, cpu) also waits for the one before it.

    For GOAL files that leave the order of a cpu to the simulator (DESIGN section 4, ``--cpu-order program``).
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
