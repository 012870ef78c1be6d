"""What a packed trace must hold: every column of every table with its type and range, and how they fit together.

Later stages take numbers of GPUs, ranks, operations and work for indices, some in compiled code that looks at nothing;
so what comes from a file is checked here, once.  Everything that readers of recordings hand over passes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, get_type_hints

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from atlas_lp.signatures.nccl.codes import ALGORITHMS, PROTOCOLS
from atlas_lp.signatures.nccl.collectives import COLLECTIVES, POINT_TO_POINT
from atlas_lp.traces.trace import Gap

_LONGEST_TEXT = 1 << 16
_MOST_RANKS = 1 << 22
_MOST_RANKS_OF_ALL = 1 << 24
_MOST_CHANNELS = 1 << 10


@dataclass(frozen=True)
class Column:
    """A column: its type; numbers from *low* up to but without *high*, or rows of table *of*; or its *words*."""

    type: pa.DataType
    low: int = 0
    high: int = 2**63
    of: str = ""
    words: tuple[str, ...] = ()


def _rows(type_: pa.DataType, of: str, low: int = 0) -> Column:
    """Numbers of rows of another table; with *low* -1 there may be none."""
    return Column(type_, low, of=of)


_TEXT = Column(pa.string())
_TIME = Column(pa.int64(), -(2**62), 2**62)
_COUNT, _NUMBER = Column(pa.int32(), 0, 2**31), Column(pa.int32(), -1, 2**31)
_RANK = Column(pa.int32(), 0, _MOST_RANKS)
_OTHER_RANK = Column(pa.int32(), -1, _MOST_RANKS + 1)
_STREAM = Column(pa.int64(), -1, 2**62)

TABLES: Mapping[str, Mapping[str, Column]] = {
    "gpus": {
        "host": _TEXT,
        "process": Column(pa.int64(), 0, 2**24),
        "device": Column(pa.int64(), -1, 2**31),
        "node": _rows(pa.int32(), "gpus"),
        "first_ns": _TIME,
        "last_ns": _TIME,
    },
    "communicators": {
        "id": Column(pa.uint64(), 0, 2**64),
        "ranks": Column(pa.int32(), 1, _MOST_RANKS + 1),
        "generation": _COUNT,
    },
    "members": {
        "communicator": _rows(pa.int32(), "communicators"),
        "rank": _RANK,
        "gpu": _rows(pa.int32(), "gpus"),
    },
    "operations": {
        "communicator": _rows(pa.int32(), "communicators"),
        "rank": _RANK,
        "sequence": _rows(pa.int64(), "operations", -1),
        "gpu": _rows(pa.int32(), "gpus"),
        "type": Column(pa.string(), words=tuple(COLLECTIVES)),
        "size_bytes": Column(pa.int64()),
        "root": _OTHER_RANK,
        "reduction": _TEXT,
        "stream": _STREAM,
        "start_ns": _TIME,
        "end_ns": _TIME,
        "channels": _COUNT,
        "threads": _COUNT,
        "kernel": _TEXT,
        "issue": _rows(pa.int32(), "operations"),
        "peer": _OTHER_RANK,
        "group": _rows(pa.int32(), "operations"),
        "iteration": _COUNT,
        "algorithm": Column(pa.string(), words=("", *ALGORITHMS)),
        "protocol": Column(pa.string(), words=("", *PROTOCOLS)),
        "element_bytes": Column(pa.int32(), 0, 2**22),
        "choice_source": _TEXT,
        "channel_source": _TEXT,
        "element_source": _TEXT,
        "parts": Column(pa.list_(pa.int64()), 0, 2**62 + 1),
    },
    "work": {
        "gpu": _rows(pa.int64(), "gpus"),
        "stream": _STREAM,
        "start_ns": _TIME,
        "end_ns": _TIME,
        "call_ns": _TIME,
        "synced": _rows(pa.int64(), "work", -1),
    },
    "waits": {"before": _rows(pa.int64(), "work"), "after": _rows(pa.int64(), "work")},
}
"""All tables, and the columns of each in their order; the last two are there or not together."""

_NEEDED = ("gpus", "communicators", "members", "operations")

_KEYS = {"communicators": ("id", "generation"), "members": ("communicator", "rank"), "waits": ("before", "after")}
"""What the rows of a table are sorted by, none twice."""

_SHAPE: Mapping[str, Any] = {
    "files": [str],
    "nccl_version": (str, str),
    "synthetic": bool,
    "placement": str,
    "gaps": [list],
    "topologies": [([[int]], [[(int, [int])]], str, (int, int))],
}
"""What stands beside the tables: a list of one shape, a tuple of several."""

_GAP = tuple(get_type_hints(Gap).values())


def schema_of(table: str) -> pa.Schema:
    """Columns and types of a table; raises KeyError for a name that is none."""
    return pa.schema([(name, column.type) for name, column in TABLES[table].items()])


def check_tables(tables: Mapping[str, pa.Table]) -> None:
    """Check tables of :func:`schema_of`; raises ValueError naming table, row and column of what is wrong."""
    missing = [name for name in _NEEDED if name not in tables] or [n for n in ("work", "waits") if n not in tables]
    if missing and missing != ["work", "waits"]:
        raise ValueError(f"there is no table {missing[0]}")
    for name in _NEEDED:
        if not tables[name].num_rows:
            raise ValueError(f"table {name} is empty")
    for name, table in tables.items():
        for column, wanted in TABLES[name].items():
            _check_column(f"table {name}, column {column}", table.column(column), wanted, tables)
    for name in _KEYS.keys() & tables.keys():
        _check_sorted(name, _numbers(tables[name], *_KEYS[name]), strictly=True)
    if "work" in tables:
        _check_sorted("work", _numbers(tables["work"], "gpu", "start_ns", "end_ns", "stream"))
    _check_ranks(tables)
    _check_operations(tables["operations"])
    _check_times(tables)


def check_about(about: Mapping[str, Any], tables: Mapping[str, pa.Table]) -> None:
    """Check what stands beside *tables*; raises ValueError naming what is wrong."""
    for key, shape in _SHAPE.items():
        if not _fits(about.get(key), shape):
            raise ValueError(f"{key} is not what it should be")
    for gap in about["gaps"]:
        if not _fits(gap, _GAP[: len(gap)]):
            raise ValueError("a gap is not what it should be")
    ranks = tables["communicators"]["ranks"].to_pylist()
    unseen = sum(gap[1] for gap in about["gaps"] if gap[0] == "missing-ranks")
    if sum(ranks) - tables["members"].num_rows > unseen:
        raise ValueError("ranks are missing that no gap names")
    topologies = about["topologies"]
    if topologies and len(topologies) != len(ranks):
        raise ValueError(f"{len(topologies)} topologies of {len(ranks)} communicators")
    for number, (rings, trees, _, p2p_channels) in enumerate(topologies):
        everyone = list(range(ranks[number]))
        whole = all(sorted(ring) == everyone for ring in rings) and all(len(tree) == len(everyone) for tree in trees)
        known = all(-1 <= r < len(everyone) for tree in trees for parent, below in tree for r in (parent, *below))
        if not whole or not known or not all(0 <= n <= _MOST_CHANNELS for n in p2p_channels):
            raise ValueError(f"the topology of communicator number {number} does not fit its {len(everyone)} ranks")


def _fits(value: Any, shape: Any) -> bool:
    if isinstance(shape, list):
        return isinstance(value, list) and all(_fits(one, shape[0]) for one in value)
    if isinstance(shape, tuple):
        return isinstance(value, list) and len(value) == len(shape) and all(map(_fits, value, shape))
    return type(value) is shape and (shape is not str or len(value) <= _LONGEST_TEXT)


def _check_column(place: str, column: pa.ChunkedArray, wanted: Column, tables: Mapping[str, pa.Table]) -> None:
    if column.null_count:
        raise ValueError(f"{place}: a value is missing")
    if pa.types.is_string(wanted.type):
        longest = pc.max(pc.binary_length(column)).as_py() or 0
        if longest > _LONGEST_TEXT:
            raise ValueError(f"{place}: a text of {longest} bytes")
        unknown = sorted(set(pc.unique(column).to_pylist()) - set(wanted.words)) if wanted.words else []
        if unknown:
            raise ValueError(f"{place}: {unknown[0][:40]!r} is not one of {', '.join(map(repr, wanted.words))}")
        return
    if pa.types.is_list(wanted.type):
        if (pc.list_value_length(column).to_numpy() % 2).any():
            raise ValueError(f"{place}: a number without the other of its pair")
        column = pc.list_flatten(column)
        if column.null_count:
            raise ValueError(f"{place}: a value is missing")
    high = tables[wanted.of].num_rows if wanted.of else wanted.high
    least, most = (pc.min_max(column)[side].as_py() for side in ("min", "max"))
    if least is not None and not wanted.low <= least <= most < high:
        wrong = least if least < wanted.low else most
        row = pc.index(column, wrong).as_py()
        whose = f", as there are {high} {wanted.of}" if wanted.of else ""
        raise ValueError(f"{place}: {wrong} (the value number {row}) is not from {wanted.low} to {high - 1}{whose}")


def _check_ranks(tables: Mapping[str, pa.Table]) -> None:
    """A rank is one of its communicator, and runs its operations on its GPU; every GPU is that of a rank."""
    members = _numbers(tables["members"], "communicator", "rank", "gpu")
    ran = _numbers(tables["operations"], "communicator", "rank", "gpu")
    ranks = _numbers(tables["communicators"], "ranks")[0]
    if ranks.sum() > _MOST_RANKS_OF_ALL:
        raise ValueError(f"communicators have {ranks.sum()} ranks in all, which no job has")
    for name, (communicator, rank) in (("members", members[:2]), ("operations", ran[:2])):
        _refuse(rank >= ranks[communicator], name, "rank", rank, "is not one of its communicator")
    if len(np.unique(members[2])) < tables["gpus"].num_rows:
        raise ValueError("a GPU is that of no rank")
    known = set(zip(*(column.tolist() for column in members), strict=True))
    elsewhere = np.array([row not in known for row in zip(*(column.tolist() for column in ran), strict=True)])
    _refuse(elsewhere, "operations", "gpu", ran[2], "is not that of its rank")


def _check_sorted(table: str, keys: Sequence[NDArray[Any]], strictly: bool = False) -> None:
    """Rows are in the order of *keys*; *strictly*: no two are equal."""
    in_order = np.lexsort(keys[::-1]) == np.arange(len(keys[0]))
    twice = np.logical_and.reduce([key[1:] == key[:-1] for key in keys])
    if not in_order.all() or (strictly and twice.any()):
        raise ValueError(f"table {table} is not in its order, or has a row twice")


def _check_operations(operations: pa.Table) -> None:
    """Operations are numbered without a gap, in their order: none was taken out."""
    communicator, rank, sequence, issue = _numbers(operations, "communicator", "rank", "sequence", "issue")
    messages = np.isin(operations.column("type").to_numpy(zero_copy_only=False), POINT_TO_POINT)
    _refuse(messages != (sequence < 0), "operations", "sequence", sequence, "fits no operation of its type")
    begins = np.append(True, (communicator[1:] != communicator[:-1]) | (rank[1:] != rank[:-1]))
    place = communicator.astype(np.int64) * _MOST_RANKS + rank
    _check_sorted("operations", [place])
    first = np.maximum.accumulate(np.where(begins, np.arange(len(place)), 0))
    before: NDArray[np.int64] = np.cumsum(messages) - messages  # messages of a rank come before its collectives
    number = np.arange(len(place)) - first - np.cumsum(messages) + before[first]
    _refuse(~messages & (sequence != number), "operations", "sequence", sequence, "does not follow the one before")
    issued = issue[np.lexsort((issue, place))]
    _refuse(issued != np.arange(len(place)) - first, "operations", "issue", issued, "does not follow the one before")


def _check_times(tables: Mapping[str, pa.Table]) -> None:
    """Nothing ends before it starts, and nothing runs outside of what was recorded of its GPU."""
    first, last = _numbers(tables["gpus"], "first_ns", "last_ns")
    _refuse(last < first, "gpus", "last_ns", last, "lies before the first")
    for name in ("operations", "work"):
        if name in tables:
            gpu, start, end = _numbers(tables[name], "gpu", "start_ns", "end_ns")
            _refuse(end < start, name, "end_ns", end, "lies before the start")
            _refuse(start < first[gpu], name, "start_ns", start, "lies before all that its GPU did")
            _refuse(end > last[gpu], name, "end_ns", end, "lies behind all that its GPU did")


def _numbers(table: pa.Table, *names: str) -> Sequence[NDArray[Any]]:
    return [table.column(name).to_numpy() for name in names]


def _refuse(wrong: NDArray[np.bool_], table: str, column: str, values: NDArray[Any], words: str) -> None:
    rows = np.flatnonzero(wrong)
    if len(rows):
        raise ValueError(f"table {table}, column {column}: {values[rows[0]]} (row {rows[0]}) {words}")
