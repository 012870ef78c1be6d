"""GPU work of a whole trace, and what each piece of it waited for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from atlas_lp.traces.processes import GpuKey

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Work:
    """Pieces of GPU work (kernels, copies, sets), NCCL kernels among them, one entry each.

    ``gpu`` and ``stream`` (unique per GPU) say where; ``start_ns`` and ``end_ns`` when; ``call_ns`` when the host
    called it (-1: not recorded), on the clock of its host.  ``synced`` is the piece of work that the calling thread had
    last waited for before the call, -1 for none.  Work ``after[i]`` waited for an event recorded behind ``before[i]``.
    """

    gpu: Ints
    stream: Ints
    start_ns: Ints
    end_ns: Ints
    call_ns: Ints
    synced: Ints
    before: Ints
    after: Ints

    def __len__(self) -> int:
        return len(self.start_ns)

    def only_numbered(self) -> Work:
        """Return the work of GPUs with a number (0 or more), dependencies among it renumbered."""
        kept = self.gpu >= 0
        return self._renumbered(np.flatnonzero(kept), np.where(kept, np.cumsum(kept) - 1, -1))

    def in_order(self) -> Work:
        """Return the work sorted by (gpu, start, end, stream), whatever files it came from."""
        order = np.lexsort((self.stream, self.end_ns, self.start_ns, self.gpu))
        place = np.empty_like(order)
        place[order] = np.arange(len(order))
        result = self._renumbered(order, place)
        pairs = np.unique(np.stack([result.before, result.after]), axis=1)
        return replace(result, before=pairs[0], after=pairs[1])

    def _renumbered(self, chosen: Ints, place: Ints) -> Work:
        both = (place[self.before] >= 0) & (place[self.after] >= 0)
        return Work(
            gpu=self.gpu[chosen],
            stream=self.stream[chosen],
            start_ns=self.start_ns[chosen],
            end_ns=self.end_ns[chosen],
            call_ns=self.call_ns[chosen],
            synced=np.where(self.synced >= 0, place[self.synced], -1)[chosen],
            before=place[self.before[both]],
            after=place[self.after[both]],
        )


@dataclass(frozen=True)
class WorkRows:
    """Work of one export: the process and device of each piece, and the rest as a :class:`Work` without GPU numbers."""

    process: Ints
    device: Ints
    work: Work


def merge_work(parts: Sequence[tuple[str, WorkRows | None]], gpus: Mapping[GpuKey, int]) -> Work | None:
    """Join the work of all files (host, rows) on the GPUs numbered in *gpus*; None when some file has none."""
    joined: list[Work] = []
    for host, rows in parts:
        if rows is None:
            return None
        distinct, inverse = np.unique(np.stack([rows.process, rows.device]), axis=1, return_inverse=True)
        number = np.array([gpus.get(((host, process), device), -1) for process, device in distinct.T.tolist()])
        joined.append(replace(rows.work, gpu=number[inverse.reshape(-1)].astype(np.int64)).only_numbered())
    if not joined:
        return None
    base = np.cumsum([0, *(len(work) for work in joined[:-1])]).tolist()

    def column(name: str) -> Ints:
        return np.concatenate([getattr(work, name) for work in joined])

    def references(name: str) -> Ints:
        columns = [getattr(work, name) for work in joined]
        return np.concatenate([np.where(c >= 0, c + b, -1) for c, b in zip(columns, base, strict=True)])

    return Work(
        gpu=column("gpu"),
        stream=column("stream"),
        start_ns=column("start_ns"),
        end_ns=column("end_ns"),
        call_ns=column("call_ns"),
        synced=references("synced"),
        before=references("before"),
        after=references("after"),
    ).in_order()
