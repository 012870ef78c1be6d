"""The parts of a packed trace, out of an archive that anybody may have made: nothing its headers say is believed.

What is read is bounded before and while it is read, by the size of the file: a zip entry and an Arrow buffer may each
say that it is of any size, and hold a thousand times what it takes in the file.
"""

from __future__ import annotations

import struct
import zipfile
import zlib
from collections.abc import Collection
from pathlib import Path

import pyarrow as pa

from atlas_lp.errors import TraceError
from atlas_lp.inputs import open_input

DAMAGE = (
    zipfile.BadZipFile,
    zlib.error,
    pa.ArrowException,
    struct.error,
    ValueError,
    KeyError,
    TypeError,
    IndexError,
    EOFError,
    OverflowError,
    NotImplementedError,
)
"""What reading an archive raises that is none of ours, or damaged; beside OSError."""

_READABLE = {zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED}
_ENCRYPTED = 1
_MOST_EXPANSION = 100  # measured: 5
_FREE_BYTES = 1 << 24
_MOST_BATCHES = 1 << 10  # written: 1


def read_parts(path: Path, names: Collection[str]) -> dict[str, bytes]:
    """Read the entries of a zip archive, which must be among *names*.

    Raises :class:`~atlas_lp.errors.TraceError` for a device or a pipe, OSError, and one of :data:`DAMAGE`.
    """
    with open_input(path, TraceError) as file, zipfile.ZipFile(file) as archive:
        left = room(path)
        parts: dict[str, bytes] = {}
        for entry in archive.infolist():
            name = entry.filename
            if name not in names or name in parts:
                raise ValueError(f"{'it holds twice' if name in parts else 'it should not hold'} {name[:80]!r}")
            if entry.flag_bits & _ENCRYPTED:
                raise ValueError(f"{name} is encrypted")
            if entry.compress_type not in _READABLE:
                raise ValueError(f"{name} is compressed by a method other than deflate (number {entry.compress_type})")
            with archive.open(entry) as part:
                parts[name] = part.read(left + 1) if entry.file_size <= left else b""
            left -= max(len(parts[name]), entry.file_size)
            if left < 0:
                raise ValueError(f"{name} is larger than anything in a file of this size")
    return parts


def room(path: Path) -> int:
    """Bytes that a file may hold once it is decompressed: far more than any that was packed."""
    return max(_FREE_BYTES, _MOST_EXPANSION * path.stat().st_size)


def read_table(content: bytes, schema: pa.Schema, most: int) -> pa.Table:
    """Read an Arrow IPC file of *schema*, of at most *most* bytes in memory, and check that it is sound.

    Raises one of :data:`DAMAGE`.
    """
    try:
        return _read_table(content, schema, most)
    except OSError as error:  # of Arrow, about bytes that are here already
        raise ValueError(" ".join(str(error).split())) from None


def _read_table(content: bytes, schema: pa.Schema, most: int) -> pa.Table:
    if not content.startswith(b"ARROW1\0\0"):
        raise ValueError("a table is no Arrow file")
    # The stream inside of the file, message by message: a size is known before its buffers are decompressed.
    first, *messages = pa.ipc.MessageReader.open_stream(pa.BufferReader(pa.py_buffer(content).slice(8)))
    if first.type != "schema":  # which read_schema takes for granted
        raise ValueError("a table has no columns")
    found = pa.ipc.read_schema(first)
    if not found.equals(schema):
        raise ValueError(f"a table has other columns or types: {found.to_string(show_schema_metadata=False)[:200]!r}")
    if len(messages) > _MOST_BATCHES:
        raise ValueError(f"a table is in {len(messages)} pieces")
    batches = []
    for message in messages:
        if message.type != "record batch":
            raise ValueError(f"a table holds a {message.type}")
        most -= _decompressed_bytes(message)
        if most < 0:
            raise ValueError("a table is larger than anything in a file of this size")
        batches.append(pa.ipc.read_record_batch(message, schema))
    table = pa.Table.from_batches(batches, schema)
    table.validate(full=True)
    return table.combine_chunks()


def _decompressed_bytes(message: pa.Message) -> int:
    """Bytes of the buffers of a record batch.

    Source: Apache Arrow ``format/Message.fbs``: a message is a flatbuffer with a RecordBatch (field 2), which lists
    (offset, length) of its buffers (field 2) and how they are compressed (field 3); a compressed buffer begins with its
    length, -1 where it is stored as it is.
    """
    head, body = memoryview(message.metadata), memoryview(message.body)
    batch = _reached(head, _root(head), 2)
    if batch is None:
        raise ValueError("a batch of rows has no content")
    vector = _reached(head, batch, 2)
    if vector is None or _field(head, batch, 3) is None:
        return len(body)
    (count,) = struct.unpack_from("<I", head, vector)
    total = 0
    for offset, length in struct.iter_unpack("<qq", head[vector + 4 : vector + 4 + 16 * count]):
        if length:
            (said,) = struct.unpack_from("<q", body, offset)
            total += length if said == -1 else said
            if said < -1:
                raise ValueError("a buffer has an impossible length")
    return total


def _root(head: memoryview) -> int:
    return int(struct.unpack_from("<I", head, 0)[0])


def _field(head: memoryview, table: int, number: int) -> int | None:
    """Place of a field of a flatbuffer table, None where it is left out."""
    fields = table - struct.unpack_from("<i", head, table)[0]
    (size,) = struct.unpack_from("<H", head, fields)
    entry = 4 + 2 * number
    (offset,) = struct.unpack_from("<H", head, fields + entry) if entry < size else (0,)
    return table + offset if offset else None


def _reached(head: memoryview, table: int, number: int) -> int | None:
    """Place that a field of a flatbuffer table refers to."""
    at = _field(head, table, number)
    return None if at is None else at + struct.unpack_from("<I", head, at)[0]
