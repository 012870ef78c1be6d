"""The checksum that every file has which atlas-lp keeps for itself: entries of the cache, analyses, packed traces.

The last :data:`LINE_BYTES` bytes of such a file are a line of text: the kind and the version of the file, and a BLAKE2b
digest of every byte before it and of these words.  A bit that flipped anywhere, an end that is missing, bytes that were
added, a file of another kind: nothing of it is believed.  What stands before the line is a whole file of its format (an
Arrow IPC stream, a zip archive), whose readers stop where it ends.
"""

from __future__ import annotations

import hashlib
import io
import os
import re
from typing import BinaryIO

from atlas_lp.errors import DamageError, VersionError
from atlas_lp.schemas import Document

LINE_BYTES = 128
"""Bytes of the line at the end of a file."""

_DIGEST_BYTES = 32
_WORDS_BYTES = LINE_BYTES - 2 * _DIGEST_BYTES - 1
_WORDS = re.compile(rb"\n(\S+) (\d+) blake2b ")
_AT_ONCE_BYTES = 1 << 20


def with_checksum(content: bytes, kind: Document) -> bytes:
    """*content* and the line that says that it is a whole file of *kind*."""
    words = _words(kind.name, kind.version)
    return content + _line(words, _digest(io.BytesIO(content), len(content)))


def check(file: BinaryIO, kind: Document) -> None:
    """Refuse a *file* that is not, to the last bit, what was written as *kind*; afterwards it stands at its beginning.

    Raises :class:`~atlas_lp.errors.VersionError` for a whole file that another version wrote, and
    :class:`~atlas_lp.errors.DamageError` for any other.
    """
    end = file.seek(0, os.SEEK_END) - LINE_BYTES
    if end < 0:
        raise DamageError("it is too short")
    file.seek(0)
    digest = _digest(file, end)
    line = file.read(LINE_BYTES)
    file.seek(0)
    words = line[:_WORDS_BYTES]
    said = _WORDS.fullmatch(words.rstrip(b" ") + b" ")
    if said is None:
        raise DamageError("its end, with the checksum, is missing or changed")
    if line != _line(words, digest):
        raise DamageError("its checksum is that of other content")
    if words == _words(kind.name, kind.version):
        return
    name, version = said[1].decode("ascii", "replace"), int(said[2])
    if name != kind.name:
        raise DamageError(f"it is a file of another kind, {name}")
    raise VersionError(f"its version is {version}, this one reads {kind.version}")


def _words(name: str, version: int) -> bytes:
    return f"\n{name} {version} blake2b ".ljust(_WORDS_BYTES).encode()


def _digest(file: BinaryIO, length: int) -> hashlib.blake2b:
    """The digest of the next *length* bytes of *file*, which is read piece by piece: it may be large."""
    digest = hashlib.blake2b(digest_size=_DIGEST_BYTES)
    while length > 0 and (piece := file.read(min(length, _AT_ONCE_BYTES))):
        digest.update(piece)
        length -= len(piece)
    return digest


def _line(words: bytes, digest: hashlib.blake2b) -> bytes:
    digest = digest.copy()
    digest.update(words)
    return words + digest.hexdigest().encode() + b"\n"
