"""What was recorded: GPUs, communicators, operations, and the collective instances they form."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from atlas_lp.errors import InputError, MismatchError
from atlas_lp.signatures.nccl.collectives import SEND_RECV
from atlas_lp.traces.point_to_point import Half, Message, exchanges, match
from atlas_lp.traces.work import Work

Ints = NDArray[np.int64]

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
    "issue",
    "peer",
    "group",
    "iteration",
    "algorithm",
    "protocol",
    "element_bytes",
    "choice_source",
    "channel_source",
    "element_source",
    "parts",
)


@dataclass(frozen=True, order=True)
class Gap:
    """Something the trace lacks, or that was left out: a short *code*, how often, and words for people.

    *of* is how many there should be, 0 where nothing says; see :mod:`~atlas_lp.traces.lost`.
    """

    code: str
    count: int
    message: str
    of: int = 0

    def as_json(self) -> dict[str, object]:
        """Return the fields as a plain dict."""
        return {"code": self.code, "count": self.count, "message": self.message}


@dataclass(frozen=True)
class Topology:
    """Rings and trees of a communicator as recorded, one entry per channel; empty where nothing says.

    ``rings`` list ranks in ring order from rank 0; ``trees`` give, per channel and rank, the parent (-1: none) and
    the children; ``p2p_channels`` are those for point-to-point, in all and per peer (0: unknown).
    """

    rings: tuple[tuple[int, ...], ...] = ()
    trees: tuple[tuple[tuple[int, tuple[int, ...]], ...], ...] = ()
    source: str = ""
    p2p_channels: tuple[int, int] = (0, 0)


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
    ``communicators`` has ``id`` (unsigned 64 bits), ``ranks``, and ``generation``, which counts the lives of an id;
    ``members`` maps (``communicator``, ``rank``) to ``gpu``, without ranks whose files are missing.  ``operations``
    has one row per NCCL call and rank that ran a kernel, :data:`OPERATION_COLUMNS`, sorted by (communicator, rank,
    sequence); ``sequence`` counts the collectives of a rank on its communicator, and is -1 for Send and Recv, which
    have a ``peer``; ``issue`` counts all its calls there.  ``group`` is equal for calls of a rank that share one
    kernel launch.  ``algorithm``, ``protocol`` and ``element_bytes`` are empty (0) unless a source says so; the
    ``*_source`` columns name it.  ``parts`` are recorded elements and last chunks of the channels, one after another.
    ``topologies`` has one entry per communicator.  ``work`` is all GPU work with what it waited for, None where the
    source does not say.  With ``allow_lost`` readings are allowed that lost many of their records
    (:mod:`~atlas_lp.traces.lost`).
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
    topologies: tuple[Topology, ...] = ()
    work: Work | None = None
    allow_lost: bool = False

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
        words = "GPU" if gpus_per_node == 1 else "GPUs"
        return self.on_nodes(np.arange(count) // gpus_per_node, f"{gpus_per_node} {words} per node, as asked for")

    def on_nodes(self, node_of_gpu: Sequence[int] | Ints, words: str) -> Trace:
        """Return the trace with a node number for every GPU; *words* say where they come from.

        Raises :class:`~atlas_lp.errors.InputError` when there are more or fewer than GPUs.
        """
        if len(node_of_gpu) != self.gpus.num_rows:
            raise InputError(f"a placement names {len(node_of_gpu)} GPUs, and the trace has {self.gpus.num_rows}")
        _, nodes = np.unique(node_of_gpu, return_inverse=True)
        column = pa.array(nodes, type=pa.int32())
        gpus = self.gpus.set_column(GPU_COLUMNS.index("node"), "node", column)
        return replace(self, gpus=gpus, placement=f"assumed: {words}")

    @property
    def iterations(self) -> int:
        """Number of iterations, at least 1 (see :class:`~atlas_lp.traces.selection.Selection`)."""
        number = self.column("operations", "iteration")
        return int(number.max()) + 1 if len(number) else 1

    def instances(self) -> list[Instance]:
        """Match the operations of all ranks of each communicator.

        Collectives match by their order, sends and receives first in, first out; launches that exchange messages are
        one instance of type ``SendRecv``.  Returns instances sorted by (communicator, sequence, first row).  Raises
        :class:`~atlas_lp.errors.MismatchError` when ranks differ in what, or how much, they did.
        """
        communicator = self.column("operations", "communicator")
        result: list[Instance] = []
        for number, identity in enumerate(self.communicators.column("id").to_pylist()):
            low, high = np.searchsorted(communicator, [number, number + 1]).tolist()
            mine = self.operations.slice(low, high - low)
            collective = mine.column("sequence").to_numpy() >= 0
            if collective.any():
                result.extend(_matched(number, identity, mine, np.flatnonzero(collective), low))
            if not collective.all():
                result.extend(_exchanges(number, identity, mine, np.flatnonzero(~collective), low))
        return result


def _matched(number: int, identity: int, mine: pa.Table, rows: Ints, offset: int) -> list[Instance]:
    """Collectives of one communicator, whose operations are *mine* and start at row *offset* of the trace."""
    ranks, counts = np.unique(mine.column("rank").to_numpy()[rows], return_counts=True)
    if counts.min() != counts.max():
        raise MismatchError(
            f"communicator {identity:#x}: rank {ranks[counts.argmin()]} has {counts.min()} collectives, "
            f"rank {ranks[counts.argmax()]} has {counts.max()}; the trace is cut on one of them: "
            "capture the same steps on every rank"
        )
    grid = rows.reshape(len(ranks), -1)
    for name in ("type", "size_bytes", "root"):
        values = mine.column(name).to_numpy(zero_copy_only=False)[grid]
        differs = np.argwhere(values != values[:1])
        if len(differs):
            at = differs[np.lexsort((differs[:, 0], differs[:, 1]))][0]
            raise MismatchError(
                f"communicator {identity:#x}, collective {int(at[1]) + 1}: rank {ranks[0]} did "
                f"{_words(mine, grid[0, at[1]])}, rank {ranks[at[0]]} did {_words(mine, grid[at[0], at[1]])}"
            )
    present = tuple(ranks.tolist())
    return [Instance(number, i, grid[:, i] + offset, ranks=present) for i in range(grid.shape[1])]


def _exchanges(number: int, identity: int, mine: pa.Table, rows: Ints, offset: int) -> list[Instance]:
    """Sends and receives of one communicator, by the launches that exchange messages."""
    names = ("type", "rank", "peer", "size_bytes", "group")
    columns = [mine.column(name).to_numpy(zero_copy_only=False)[rows].tolist() for name in names]
    halves = [
        Half(row, rank, peer, kind == "Send", size, group)
        for row, kind, rank, peer, size, group in zip((rows + offset).tolist(), *columns, strict=True)
    ]
    pairs = match(halves, f"communicator {identity:#x}")
    message = {send.row: Message(send.rank, to.rank, send.size_bytes, send.row, to.row) for send, to in pairs}
    result = []
    for sequence, together in enumerate(exchanges(halves, pairs)):
        first: dict[int, int] = {}
        for half in together:
            first[half.rank] = min(half.row, first.get(half.rank, half.row))
        messages = sorted(message[half.row] for half in together if half.is_send)
        launches = len({(half.rank, half.launch) for half in together})
        present = tuple(sorted(first))
        representative = np.array([first[rank] for rank in present], dtype=np.int64)
        result.append(Instance(number, sequence, representative, SEND_RECV, tuple(messages), launches, present))
    return result


def _words(operations: pa.Table, row: int) -> str:
    operation = operations.slice(int(row), 1).to_pylist()[0]
    return f"{operation['type']} of {operation['size_bytes']} B (root {operation['root']})"


@dataclass(frozen=True)
class Instance:
    """One collective on all ranks of its communicator; ``rows`` are its operations, of ``ranks`` in ascending order.

    A set of sends and receives has the ``kind`` ``SendRecv``, one row per rank that takes part (the first of its
    operations), and its ``messages``; ``launches`` is more than the number of rows when a rank takes part twice.
    """

    communicator: int
    sequence: int
    rows: Ints
    kind: str = "collective"
    messages: tuple[Message, ...] = ()
    launches: int = 0
    ranks: tuple[int, ...] = ()


def operation_table(columns: Mapping[str, Sequence[Any]]) -> pa.Table:
    """Build the ``operations`` table of a :class:`Trace` from columns in any order of rows."""
    types = {
        "type": pa.string(),
        "reduction": pa.string(),
        "kernel": pa.string(),
        **dict.fromkeys(("algorithm", "protocol", "choice_source", "channel_source", "element_source"), pa.string()),
        "parts": pa.list_(pa.int64()),
        **dict.fromkeys(("communicator", "rank", "gpu", "root", "channels", "threads"), pa.int32()),
        **dict.fromkeys(("issue", "peer", "group", "iteration", "element_bytes"), pa.int32()),
    }
    table = pa.table({name: _array(columns[name], types.get(name, pa.int64())) for name in OPERATION_COLUMNS})
    return table.sort_by(
        [
            ("communicator", "ascending"),
            ("rank", "ascending"),
            ("sequence", "ascending"),
            ("issue", "ascending"),
        ]
    )


def _array(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """A column; JSON can write half a pair of UTF-16, which no text of Arrow holds: it is written out there."""
    try:
        return pa.array(values, type=kind)
    except UnicodeEncodeError:
        return pa.array([text.encode(errors="backslashreplace").decode() for text in values], type=kind)


def total_operations(trace: Trace) -> list[tuple[str, int, int]]:
    """(type, size_bytes, count) of all operations of a trace, sorted."""
    counts = Counter(zip(trace.operations["type"].to_pylist(), trace.operations["size_bytes"].to_pylist(), strict=True))
    return [(kind, size, counts[kind, size]) for kind, size in sorted(counts)]
