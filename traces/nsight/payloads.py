"""NVTX payloads of NCCL ranges to labels and values, by the schema tables of the export.

Three encodings exist (nsys user guide 2026.4): ``jsonText``, ``jsonTextId`` into StringIds, and ``binaryData``, which
needs the schema of the payload.  No offset and no schema id is built in, because both moved between NCCL versions.
"""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass
from typing import Any

from atlas_lp.errors import TraceError
from atlas_lp.texts import integer
from atlas_lp.traces.advice import EXPORT_COMMAND
from atlas_lp.traces.nsight.export import Export
from atlas_lp.traces.nvtx import STATIC_SCHEMA

_FORMATS = {
    1: "b",
    2: "B",
    3: "h",
    4: "H",
    5: "i",
    6: "I",
    7: "q",
    8: "Q",
    9: "q",
    10: "Q",
    11: "b",
    12: "B",
    13: "h",
    14: "H",
    15: "i",
    16: "I",
    17: "q",
    18: "Q",
    22: "Q",
    23: "Q",
}
"""struct formats of the integer entry types of NVTX 3 (nvtxPayload.h); INT 5, UINT64 18 and SIZE 22 are NCCL's."""

_LONGEST = 1 << 16
_MOST_ENTRIES = 1024

_HEADER = struct.Struct("<QQQQ")


@dataclass(frozen=True)
class _Entry:
    label: str
    type: int
    offset: int


class PayloadDecoder:
    """Decodes the payloads of one export; equal texts are decoded once."""

    def __init__(self, export: Export) -> None:
        self.path = export.path
        self._schemas = _schemas(export)
        self._sizes = _sizes(export)
        self._enums = _enums(export)
        self._known: dict[str, dict[str, Any]] = {}

    @property
    def has_schemas(self) -> bool:
        """Whether the program registered payloads at all: NCCL 2.15 and older did not."""
        return bool(self._schemas)

    def decode(self, text: object, binary: object, place: str) -> dict[str, Any]:
        """Labels and values of a payload, empty where the range has none; *place* names the range in errors."""
        if any(isinstance(one, str | bytes) and len(one) > _LONGEST for one in (text, binary)):
            raise TraceError(
                f"{self.path}: {place}: a payload of more than {_LONGEST} bytes, where NCCL's have hundreds"
            )
        if text is not None:
            if not isinstance(text, str):
                raise TraceError(f"{self.path}: {place}: the payload is not text: {text!r:.60}")
            if text not in self._known:
                self._known[text] = self._json(text, place)
            return self._known[text]
        if binary is not None and binary not in ("", b""):
            return self._blob(binary, place)
        return {}

    def _json(self, text: str, place: str) -> dict[str, Any]:
        try:
            payload = json.loads(text)
        except (ValueError, RecursionError):
            payload = None
        if not isinstance(payload, dict):
            raise TraceError(f"{self.path}: {place}: the payload is not a JSON object: {text[:80]!r}")
        # NCCL's are flat; what else there is would be kept for nothing.
        return {label: value for label, value in payload.items() if not isinstance(value, list | dict)}

    def _blob(self, binary: object, place: str) -> dict[str, Any]:
        data = self._bytes(binary, place)
        if len(data) < _HEADER.size:
            raise TraceError(f"{self.path}: {place}: the binary payload has {len(data)} bytes, no header fits")
        domain, schema, size, last = _HEADER.unpack_from(data)
        # Two public readings of the header differ in its last word: the total size, or the offset of the payload.
        start = _HEADER.size if last == _HEADER.size + size else last
        entries = self._schemas.get((domain & 0xFFFFFFFF, schema & 0xFFFFFFFF))
        if entries is None:
            raise TraceError(f"{self.path}: {place}: payload schema {schema} of domain {domain} has no entries")
        expected = self._sizes.get((domain & 0xFFFFFFFF, schema & 0xFFFFFFFF)) or size
        if start < _HEADER.size or start + size > len(data) or size != expected:
            raise TraceError(
                f"{self.path}: {place}: the binary payload of schema {schema} is cut: {len(data)} bytes, header says "
                f"{size} from {start}, schema says {expected}"
            )
        return {entry.label: self._value(entry, data[start : start + size], place) for entry in entries}

    def _bytes(self, binary: object, place: str) -> bytes:
        if isinstance(binary, bytes):
            return binary
        if isinstance(binary, str):
            try:
                return bytes.fromhex(binary.removeprefix("0x").removeprefix("\\x"))
            except ValueError:
                pass
        raise TraceError(f"{self.path}: {place}: the binary payload is neither bytes nor hex text: {binary!r:.60}")

    def _value(self, entry: _Entry, data: bytes, place: str) -> int | str:
        code = "i" if entry.type >= STATIC_SCHEMA else _FORMATS.get(entry.type)
        if code is None:
            raise TraceError(f"{self.path}: {place}: payload entry {entry.label!r} has the unknown type {entry.type}")
        try:
            value: int = struct.unpack_from(f"<{code}", data, entry.offset)[0]
        except struct.error:
            raise TraceError(f"{self.path}: {place}: payload entry {entry.label!r} lies behind the payload") from None
        return self._enums.get((entry.type, value), value)


def _schemas(export: Export) -> dict[tuple[int, int], list[_Entry]]:
    """Entries by (domain, schema); the tables repeat once per process."""
    table = "NVTX_PAYLOAD_SCHEMA_ENTRIES"
    if not export.has(table, "domainId", "schemaId", "idx", "type", "name", "offset"):
        return {}
    result: dict[tuple[int, int], list[_Entry]] = {}
    for domain, schema, _, kind, name, offset in export.rows(
        f"SELECT DISTINCT domainId, schemaId, idx, type, name, offset FROM {table} ORDER BY 1, 2, 3, 4, 5, 6"
    ):
        if isinstance(kind, int) and isinstance(name, str) and isinstance(offset, int | None):
            entries = result.setdefault((domain, schema), [])
            entries.append(_Entry(name, kind, offset or 0))
            if len(entries) > _MOST_ENTRIES:
                raise TraceError(f"{export.path}: payload schema {schema} has more than {_MOST_ENTRIES} entries")
    return result


def _sizes(export: Export) -> dict[tuple[int, int], int]:
    """Payload size by (domain, schema), 0 where it is not fixed."""
    if not export.has("NVTX_PAYLOAD_SCHEMAS", "domainId", "schemaId", "payloadSize"):
        return {}
    rows = export.rows("SELECT DISTINCT domainId, schemaId, payloadSize FROM NVTX_PAYLOAD_SCHEMAS ORDER BY 1, 2, 3")
    return {(domain, schema): size for domain, schema, size in rows if isinstance(size, int)}


def _enums(export: Export) -> dict[tuple[int, int], str]:
    """Words by (enum schema, value)."""
    if not export.has("NVTX_PAYLOAD_ENUM_ENTRIES", "schemaId", "name", "value"):
        return {}
    rows = export.rows("SELECT DISTINCT schemaId, value, name FROM NVTX_PAYLOAD_ENUM_ENTRIES ORDER BY 1, 2, 3")
    return {(schema, value or 0): str(name) for schema, value, name in rows}


def whole(payload: dict[str, Any], label: str, place: str, low: int = 0, high: int = 2**63 - 1) -> int:
    """Return the integer under *label*, refused with its *place* when it is missing, no integer or out of range."""
    value = payload.get(label)
    if isinstance(value, str):
        value = integer(value)
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise TraceError(f"{place}: {label!r} is {payload.get(label)!r}, not a number from {low} to {high}")
    return value


def communicator_id(payload: dict[str, Any], label: str, place: str) -> int:
    """Return an id as the unsigned 64 bits it is; SQLite and some tools show it signed."""
    return whole(payload, label, place, -(2**63), 2**64 - 1) % 2**64


def no_payload_words(export: Export, decoder: PayloadDecoder) -> str:
    """Say why an export has NCCL calls without payloads, and how to get them."""
    metadata = export.metadata()
    if not decoder.has_schemas:
        return (
            f"{export.path}: NCCL calls without bytes: NCCL 2.15 and older put none into NVTX; NCCL 2.25 or newer is "
            "needed (PyTorch 2.7 or newer)"
        )
    names = ("EXPORT_PARAM_INCLUDE_JSON", "EXPORT_PARAM_INCLUDE_BLOBS")
    flags = ", ".join(f"{name} = {metadata[name]}" for name in names if name in metadata)
    return (
        f"{export.path}: NCCL calls without payloads, so no bytes and no communicators"
        f"{f' ({flags})' if flags else ''}; export the report again: {EXPORT_COMMAND} (or --include-blobs=true)"
    )
