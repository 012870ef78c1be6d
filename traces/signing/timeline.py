"""When the operations of a signed trace ran, the clocks of all hosts aligned."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from atlas_lp.traces.join.clocks import host_offsets
from atlas_lp.traces.signing.sign import SignedInstance
from atlas_lp.traces.trace import Trace

Ints = NDArray[np.integer[Any]]


class Timeline:
    """Starts and ends of all operations of the *signed* instances of *trace*.

    Operations are numbered instance by instance, by rank; ``instance``, ``gpu``, ``stream``, ``start_ns`` and
    ``end_ns`` have one entry each.  ``rows`` are those of the trace, per instance.  ``offset_ns`` is added to the clock
    of each GPU's host, ``first_ns`` and ``last_ns`` span its recorded activity, which begins at ``origin_ns`` on the
    first of them and lasts ``measured_ns`` in all.  ``gaps`` names hosts whose clocks no collective aligns.
    """

    def __init__(self, trace: Trace, signed: Sequence[SignedInstance]) -> None:
        instances = [s.instance for s in signed]
        self._labels = [s.labels for s in signed]
        self.offset_ns, gaps = host_offsets(trace, instances)
        self.gaps = tuple(gaps)
        self.rows = [instance.rows for instance in instances]
        row = np.concatenate(self.rows)
        self.instance = np.repeat(np.arange(len(instances)), [len(r) for r in self.rows])
        self.gpu = trace.column("operations", "gpu")[row].astype(np.int64)
        self.stream = trace.column("operations", "stream")[row]
        self.start_ns = trace.column("operations", "start_ns")[row] + self.offset_ns[self.gpu]
        self.end_ns = trace.column("operations", "end_ns")[row] + self.offset_ns[self.gpu]
        self.first_ns = trace.column("gpus", "first_ns") + self.offset_ns
        self.last_ns = trace.column("gpus", "last_ns") + self.offset_ns
        seen = np.unique(self.gpu)
        self.origin_ns = int(self.first_ns[seen].min())
        self.measured_ns = int(self.last_ns[seen].max()) - self.origin_ns

    def by_label(self, values: Sequence[Ints]) -> Ints:
        """Spread the values of every instance, one row per label of its signature, over its operations; 0 for none."""
        result = np.zeros((len(self.instance), *values[0].shape[1:]), dtype=np.int64)
        begin = 0
        for labels, rows, own in zip(self._labels, self.rows, values, strict=True):
            if len(own):
                result[begin : begin + len(rows)] = own[list(labels)]
            begin += len(rows)
        return result

    def durations_ns(self) -> tuple[Ints, Ints]:
        """Per instance: from the last arrival to the last end (at least 0), and the arrival skew: first to last."""
        first_start = np.full(len(self.rows), np.iinfo(np.int64).max)
        last_start, last_end = (np.full(len(self.rows), np.iinfo(np.int64).min) for _ in range(2))
        np.minimum.at(first_start, self.instance, self.start_ns)
        np.maximum.at(last_start, self.instance, self.start_ns)
        np.maximum.at(last_end, self.instance, self.end_ns)
        return np.maximum(last_end - last_start, 0), last_start - first_start
