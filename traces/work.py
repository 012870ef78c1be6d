"""GPU work of a whole trace, and what each piece of it waited for."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

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
