"""What was recorded: GPUs, communicators, operations, and the collective instances they form."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from atlas_lp.errors import InputError, MismatchError

Ints = NDArray[np.int64]

POINT_TO_POINT = ("Send", "Recv")

GPU_COLUMNS = ("host", "process", "device", "node", "first_ns", "last_ns")
OPERATION_COLUMNS = (
    "communicator",
    "rank",
    "sequence",
    "gpu",
    "type",
    "size_bytes",
    "root",
    "reduction",
    "stream",
    "start_ns",
    "end_ns",
    "channels",
    "threads",
    "kernel",
)


@dataclass(frozen=True, order=True)
class Gap:
    """Something the trace lacks, or that was left out: a short *code*, how often, and words for people."""

    code: str
    count: int
    message: str

    def as_json(self) -> dict[str, object]:
        """Return the fields as a plain dict."""
        return {"code": self.code, "count": self.count, "message": self.message}


@dataclass(frozen=True)
class Sourced:
    """A value and where it comes from: ``recorded``, ``inferred: ...`` or ``assumed: ...``."""

    value: str
    source: str


@dataclass(frozen=True)
class Trace:
    """A recorded job as Arrow tables, in an order that depends on nothing but its content.

    ``gpus`` has one row per GPU that ran NCCL (its number is the row): :data:`GPU_COLUMNS`, where
    ``first_ns``..``last_ns`` spans its recorded GPU activity on the clock of its host.
    ``communicators`` has ``id`` (unsigned 64 bits) and ``ranks``; ``members`` maps (``communicator``,
    ``rank``) to ``gpu``.  ``operations`` has one row per NCCL call and rank that ran a kernel,
    :data:`OPERATION_COLUMNS`, sorted by (communicator, rank, sequence); ``sequence`` counts the collectives of a
    rank on its communicator, and is -1 for point-to-point calls.
    """

    files: tuple[str, ...]
    gpus: pa.Table
    communicators: pa.Table
    members: pa.Table
    operations: pa.Table
    nccl_version: Sourced
    gaps: tuple[Gap, ...] = ()
    synthetic: bool = False
    placement: str = "recorded"

    def column(self, table: str, name: str) -> NDArray[Any]:
        """One column of a table as a numpy array."""
        return getattr(self, table).column(name).to_numpy(zero_copy_only=False)  # type: ignore[no-any-return]

    @property
    def nodes(self) -> int:
        """Number of nodes."""
        return len(np.unique(self.column("gpus", "node")))

    def nic_of_gpu(self, gpus_per_nic: int = 1) -> Ints:
        """NIC of every GPU within its node, when consecutive GPUs share one."""
        node = self.column("gpus", "node")
        nic = np.zeros(len(node), dtype=np.int64)
        for one in np.unique(node):
            inside = np.flatnonzero(node == one)
            nic[inside] = np.arange(len(inside)) // gpus_per_nic
        return nic

    def placed(self, gpus_per_node: int) -> Trace:
        """Return the trace with its GPUs placed on nodes of *gpus_per_node*, in the order of their numbers.

        Raises :class:`~atlas_lp.errors.InputError` when the number of GPUs is not a multiple.
        """
        count = self.gpus.num_rows
        if gpus_per_node < 1 or count % gpus_per_node:
            raise InputError(f"{count} GPUs do not fill nodes of {gpus_per_node}: choose a divisor of {count}")
        nodes = pa.array(np.arange(count) // gpus_per_node, type=pa.int32())
        gpus = self.gpus.set_column(GPU_COLUMNS.index("node"), "node", nodes)
        words = "GPU" if gpus_per_node == 1 else "GPUs"
        return replace(self, gpus=gpus, placement=f"assumed: {gpus_per_node} {words} per node, as asked for")

    def instances(self) -> list[Instance]:
        """Match the collectives of all ranks of each communicator by their order.

        Returns instances sorted by (communicator, sequence).  Raises
        :class:`~atlas_lp.errors.MismatchError` when ranks differ in what, or how much, they did.
        """
        collective = self.column("operations", "sequence") >= 0
        communicator = self.column("operations", "communicator")
        result: list[Instance] = []
        for number, (identity, ranks) in enumerate(self._communicator_rows()):
            rows = np.flatnonzero((communicator == number) & collective)
            if len(rows):
                result.extend(self._matched(number, identity, ranks, rows))
        return result

    def _communicator_rows(self) -> list[tuple[int, int]]:
        return list(
            zip(
                self.communicators.column("id").to_pylist(),
                self.communicators.column("ranks").to_pylist(),
                strict=True,
            )
        )

    def _matched(self, number: int, identity: int, ranks: int, rows: Ints) -> list[Instance]:
        rank = self.column("operations", "rank")[rows]
        counts = np.bincount(rank, minlength=ranks)
        if counts.min() != counts.max():
            raise MismatchError(
                f"communicator {identity:#x}: rank {int(counts.argmin())} has {counts.min()} collectives, "
                f"rank {int(counts.argmax())} has {counts.max()}; the trace is cut on one of them: "
                "capture the same steps on every rank"
            )
        grid = rows.reshape(ranks, -1)
        for name in ("type", "size_bytes", "root"):
            values = self.column("operations", name)[grid]
            differs = np.argwhere(values != values[:1])
            if len(differs):
                at = differs[np.lexsort((differs[:, 0], differs[:, 1]))][0]
                raise MismatchError(
                    f"communicator {identity:#x}, collective {int(at[1]) + 1}: rank 0 did "
                    f"{self._words(grid[0, at[1]])}, rank {int(at[0])} did {self._words(grid[at[0], at[1]])}"
                )
        return [Instance(number, sequence, grid[:, sequence]) for sequence in range(grid.shape[1])]

    def _words(self, row: int) -> str:
        operation = self.operations.slice(int(row), 1).to_pylist()[0]
        return f"{operation['type']} of {operation['size_bytes']} B (root {operation['root']})"


@dataclass(frozen=True)
class Instance:
    """One collective on all ranks of its communicator; ``rows`` are its operations, by rank."""

    communicator: int
    sequence: int
    rows: Ints


def operation_table(columns: Mapping[str, Sequence[Any]]) -> pa.Table:
    """Build the ``operations`` table of a :class:`Trace` from columns in any order of rows."""
    types = {
        "type": pa.string(),
        "reduction": pa.string(),
        "kernel": pa.string(),
        **dict.fromkeys(("communicator", "rank", "gpu", "root", "channels", "threads"), pa.int32()),
    }
    arrays = {name: pa.array(columns[name], type=types.get(name, pa.int64())) for name in OPERATION_COLUMNS}
    table = pa.table(arrays)
    return table.sort_by(
        [
            ("communicator", "ascending"),
            ("rank", "ascending"),
            ("sequence", "ascending"),
            ("start_ns", "ascending"),
            ("type", "ascending"),
            ("stream", "ascending"),
        ]
    )
