"""Envelopes as bytes: the one way to keep one, in the cache and in the folder of an analysis.

An Arrow IPC stream (zstd) with a row per plane; what is said of the whole stands in the metadata of its schema, as
JSON; a checksum over all of it stands at the end.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from fractions import Fraction
from typing import Any

import pyarrow as pa

from atlas_lp.checksum import check, with_checksum
from atlas_lp.errors import DamageError, VersionError
from atlas_lp.goal.event_graph import COMPONENTS
from atlas_lp.schemas import Document
from atlas_lp.solver.envelope import Box, Envelope, PortOrder, RankClasses
from atlas_lp.solver.highs import Certificate

_METADATA_KEY = b"atlas-lp"
_COLUMNS = pa.schema([("arriving", pa.int32()), ("ending", pa.int32()), *((name, pa.int64()) for name in COMPONENTS)])
_ARROW_FILE = b"ARROW1"
"""How files begin and end that were written before there were checksums."""


def encoded(envelope: Envelope, kind: Document, about: Mapping[str, Any]) -> bytes:
    """The file of *envelope*, of *kind*; plain values *about* it are kept beside it."""
    metadata = {**about, "envelope": _described(envelope)}
    table = _table(envelope).replace_schema_metadata({_METADATA_KEY: json.dumps(metadata, sort_keys=True)})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
        writer.write_table(table)
    return with_checksum(sink.getvalue().to_pybytes(), kind)


def opened(content: bytes, kind: Document) -> tuple[pa.Table, dict[str, Any]]:
    """The table of a file of *kind*, and what is kept beside it.

    Raises :class:`~atlas_lp.errors.VersionError` for what another version wrote, and
    :class:`~atlas_lp.errors.DamageError` for what is no such file, or not the whole of it.
    """
    if content.startswith(_ARROW_FILE) and content.endswith(_ARROW_FILE):
        raise VersionError("it has no checksum")
    check(io.BytesIO(content), kind)
    with _damage(), pa.ipc.open_stream(content) as reader:
        table = reader.read_all()
        table.validate(full=True)
        if not table.schema.equals(_COLUMNS):
            raise ValueError("it has other columns")
        metadata = json.loads(table.schema.metadata[_METADATA_KEY])
        if not isinstance(metadata, dict):
            raise ValueError("what is said of it is no object")
        return table, metadata


def decoded(table: pa.Table, about: Mapping[str, Any]) -> Envelope:
    """The envelope of what :func:`opened` gave; raises :class:`~atlas_lp.errors.DamageError`."""
    with _damage():
        return _envelope(about["envelope"], _planes(table))


def _planes(table: pa.Table) -> dict[tuple[int, int], list[tuple[int, ...]]]:
    """Path vectors by the classes of ranks that they lie between."""
    pairs = zip(table.column("arriving").to_pylist(), table.column("ending").to_pylist(), strict=True)
    vectors = zip(*(table.column(name).to_pylist() for name in COMPONENTS), strict=True)
    planes: dict[tuple[int, int], list[tuple[int, ...]]] = {}
    for pair, vector in zip(pairs, vectors, strict=True):
        planes.setdefault(pair, []).append(vector)
    return planes


def _envelope(said: Mapping[str, Any], planes: dict[tuple[int, int], list[tuple[int, ...]]]) -> Envelope:
    whole = tuple(planes.pop((-1, -1)))
    classes = None
    if said["classes"] is not None:
        between = tuple((arriving, ending, tuple(own)) for (arriving, ending), own in planes.items())
        classes = RankClasses(tuple(said["classes"]), between, said["class_width"])
    certificate = said["certificate"]
    if not whole or len(said["fixed"]) != len(COMPONENTS) - 2:
        raise ValueError("planes or parameters are missing")
    return Envelope(
        vectors=whole,
        fixed=tuple(Fraction(value) for value in said["fixed"]),
        box=Box(*(Fraction(value) for value in said["box"])),
        certificate=None if certificate is None else Certificate(**certificate),
        method=said["method"],
        bracket_width=said["bracket_width"],
        tolerance_reached=said["tolerance_reached"],
        classes=classes,
        sent=tuple(tuple(row) for row in said["sent"]),
        order=_order(said["order"]),
    )


@contextmanager
def _damage() -> Iterator[None]:
    """Turn what reading raises into the one error for it."""
    try:
        yield
    except (pa.ArrowException, ValueError, KeyError, TypeError, ZeroDivisionError) as error:
        raise DamageError(f"what it holds is no envelope: {error}") from None


def _table(envelope: Envelope) -> pa.Table:
    """One row per plane: of the whole (classes -1), then between two classes of ranks."""
    rows = [(-1, -1, vector) for vector in envelope.vectors]
    if envelope.classes is not None:
        rows += [(arriving, ending, v) for arriving, ending, vectors in envelope.classes.planes for v in vectors]
    columns = [[row[0] for row in rows], [row[1] for row in rows]]
    columns += [[row[2][i] for row in rows] for i in range(len(COMPONENTS))]
    return pa.table(columns, schema=_COLUMNS)


def _described(envelope: Envelope) -> dict[str, Any]:
    return {
        "fixed": [str(value) for value in envelope.fixed],
        "box": envelope.box.canonical(),
        "certificate": None if envelope.certificate is None else envelope.certificate.as_json(),
        "method": envelope.method,
        "bracket_width": envelope.bracket_width,
        "tolerance_reached": envelope.tolerance_reached,
        "classes": None if envelope.classes is None else list(envelope.classes.of_rank),
        "sent": envelope.sent,
        "order": _order_described(envelope.order),
        "class_width": 0.0 if envelope.classes is None else envelope.classes.width,
    }


def _order_described(order: PortOrder | None) -> dict[str, Any] | None:
    if order is None:
        return None
    return {
        "at": [str(value) for value in order.at],
        "difference": order.difference,
        "worst_at": [str(value) for value in order.worst_at],
    }


def _order(said: Mapping[str, Any] | None) -> PortOrder | None:
    if said is None:
        return None
    (at_l, at_g), (worst_l, worst_g) = (map(Fraction, said[name]) for name in ("at", "worst_at"))
    return PortOrder((at_l, at_g), said["difference"], (worst_l, worst_g))
