"""Envelopes as bytes: the one way to keep one, in the cache and in the folder of an analysis.

An Arrow IPC file (zstd) with a row per plane; what is said of the whole stands in the metadata of its schema, as JSON.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any

import pyarrow as pa

from atlas_lp.goal.event_graph import COMPONENTS
from atlas_lp.solver.envelope import Box, Envelope, PortOrder, RankClasses
from atlas_lp.solver.highs import Certificate

_METADATA_KEY = b"atlas-lp"

DAMAGE = (OSError, pa.ArrowException, ValueError, KeyError, TypeError)
"""What reading a file raises that is none of ours, or damaged."""


def encoded(envelope: Envelope, about: Mapping[str, Any]) -> bytes:
    """The file of *envelope*; plain values *about* it (schema and version among them) are kept beside it."""
    table = _table(envelope)
    metadata = {**about, "envelope": _described(envelope)}
    table = table.replace_schema_metadata({_METADATA_KEY: json.dumps(metadata, sort_keys=True)})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, table.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()  # type: ignore[no-any-return]


def read_about(path: Path) -> tuple[pa.Table, dict[str, Any]]:
    """The table of a file and what is kept beside it; raises one of :data:`DAMAGE`."""
    with pa.OSFile(os.fsencode(path)) as file, pa.ipc.open_file(file) as reader:
        table = reader.read_all()
    metadata = json.loads(table.schema.metadata[_METADATA_KEY])
    if not isinstance(metadata, dict):
        raise ValueError("the metadata is no object")
    return table, metadata


def decoded(table: pa.Table, about: Mapping[str, Any]) -> Envelope:
    """The envelope of what :func:`read_about` gave; raises one of :data:`DAMAGE`."""
    pairs = zip(table.column("arriving").to_pylist(), table.column("ending").to_pylist(), strict=True)
    vectors = zip(*(table.column(name).to_pylist() for name in COMPONENTS), strict=True)
    planes: dict[tuple[int, int], list[tuple[int, ...]]] = {}
    for pair, vector in zip(pairs, vectors, strict=True):
        planes.setdefault(pair, []).append(vector)
    whole = tuple(planes.pop((-1, -1)))
    said = about["envelope"]
    classes = None
    if said["classes"] is not None:
        between = tuple((arriving, ending, tuple(own)) for (arriving, ending), own in planes.items())
        classes = RankClasses(tuple(said["classes"]), between, said["class_width"])
    certificate = said["certificate"]
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


def _table(envelope: Envelope) -> pa.Table:
    """One row per plane: of the whole (classes -1), then between two classes of ranks."""
    rows = [(-1, -1, vector) for vector in envelope.vectors]
    if envelope.classes is not None:
        rows += [(arriving, ending, v) for arriving, ending, vectors in envelope.classes.planes for v in vectors]
    columns: dict[str, pa.Array] = {
        "arriving": pa.array([row[0] for row in rows], type=pa.int32()),
        "ending": pa.array([row[1] for row in rows], type=pa.int32()),
    }
    for i, name in enumerate(COMPONENTS):
        columns[name] = pa.array([row[2][i] for row in rows], type=pa.int64())
    return pa.table(columns)


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
