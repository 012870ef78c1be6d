"""Reading files that anybody may have made: in bounded memory, and refused in one sentence where that is not possible.

An input is a regular file: a device never ends and a pipe may never begin.  How large a file may be is nobody's
business here, but what has to be held at once is bounded: a line, a document that is read as a whole, how deep it is
nested, and how much a compressed file grows, which no file of its kind comes near (measured: GOAL text 92, Kineto 13).
"""

from __future__ import annotations

import errno
import gzip
import io
import json
import os
import re
import stat
import tomllib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, BinaryIO

from atlas_lp.errors import InputError

LONGEST_LINE = 1 << 20
"""Characters of a line of text."""

MOST_DOCUMENT = 1 << 26
"""Bytes of a document that is read as a whole."""

MOST_TOML = 1 << 22
"""Bytes of a TOML document, whose parser takes a second for two million."""

MOST_EXPANSION = {".zst": 300, ".gz": 100}
"""Times that a compressed file may grow once it is more than :data:`MOST_DOCUMENT`, by what compressed it."""

_LINES_PER_BYTE = 10
_FEW_RECORDS = 1 << 20
_DECOMPRESS = "if it is what it should be, decompress it and name the result"

_MOST_DOTS = 16
_MOST_DIGITS = 400
_MOST_BITS = 64
_DOTTED = re.compile(rf"(?:\.[^.,\n\[\]{{}}=]+){{{_MOST_DOTS}}}")

Refusal = Callable[[str], Exception]
"""The error that a reader raises, made of a sentence."""


def check_regular(path: Path, refusal: Refusal = InputError) -> None:
    """Refuse a device, a pipe or a socket; for libraries that open *path* themselves.

    Raises *refusal*, and OSError where there is nothing.
    """
    _check_mode(path, path.stat().st_mode, refusal)


@contextmanager
def open_input(path: Path, refusal: Refusal = InputError) -> Iterator[BinaryIO]:
    """Open a regular file to read; ``.gz`` and ``.zst`` are decompressed, and refused where they grow beyond measure.

    Raises *refusal*; OSError, EOFError, ``zlib.error`` and ``zstandard.ZstdError`` for what the system and the
    compression say.
    """
    # Without O_NONBLOCK, opening a pipe that nobody writes to waits for ever.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb", closefd=True) as raw:
        found = os.fstat(descriptor)
        _check_mode(path, found.st_mode, refusal)
        if path.suffix == ".gz":
            with gzip.open(raw) as stream:
                yield _bounded(stream, path, found.st_size, refusal)
        elif path.suffix == ".zst":
            import zstandard

            decompressor = zstandard.ZstdDecompressor()
            with decompressor.stream_reader(raw, read_across_frames=True, closefd=False) as stream:
                yield _bounded(stream, path, found.st_size, refusal)
        else:
            yield raw


def bounded_lines(file: IO[str], path: Path, refusal: Refusal = InputError) -> Iterator[str]:
    """Yield the lines of *file*, which was opened from *path*, without their ends.

    Raises *refusal* for a line that is longer than :data:`LONGEST_LINE`, and for more lines than a file of that size
    holds, of which a compressed one may have thousands in a byte.
    """
    count, most, line = 0, most_records(path, _LINES_PER_BYTE), ""
    while chunk := file.read(LONGEST_LINE):
        end, *lines = chunk.split("\n")
        line += end
        if len(line) > LONGEST_LINE:
            place = f"{path}, line {count + 1}"
            raise refusal(f"{place}: longer than {LONGEST_LINE} characters, as no line of such a file is; leave it out")
        count += len(lines)
        if count > most:
            raise refusal(f"{path}: more lines than a file of its size holds; {_DECOMPRESS}")
        if lines:
            yield line
            line = lines.pop()
            yield from lines
    if line:
        yield line


def most_records(path: Path, per_byte: float) -> int:
    """Most records (lines, events) of a file on the disk: reading each takes time, however well it was compressed."""
    return max(_FEW_RECORDS, int(per_byte * path.stat().st_size))


def read_bytes(path: Path, refusal: Refusal = InputError, most: int = MOST_DOCUMENT) -> bytes:
    """Read the whole of a file that may have *most* bytes; raises *refusal*, and OSError as opening does."""
    with open_input(path, refusal) as file:
        content = file.read(most + 1)
    if len(content) > most:
        raise refusal(f"{path}: more than {most} bytes, which no file of its kind has; is it the right one?")
    return content


def read_text(path: Path, refusal: Refusal = InputError, most: int = MOST_DOCUMENT, errors: str = "strict") -> str:
    """Read the whole of a UTF-8 text as :func:`read_bytes` does, any end of line as one newline."""
    return io.TextIOWrapper(io.BytesIO(read_bytes(path, refusal, most)), encoding="utf-8", errors=errors).read()


def parse_toml(
    text: str, where: str, refusal: Refusal = InputError, parse_float: Callable[[str], Any] = float
) -> dict[str, Any]:
    """Read a TOML document; raises *refusal* where it is none, or too large or too deep to be read in a moment."""
    if len(text) > MOST_TOML:
        raise refusal(f"{where}: more than {MOST_TOML} characters, which no TOML file of its kind has")
    # The parser takes the square of the number of dots in a key.
    if _DOTTED.search(text):
        raise refusal(f"{where}: a key of more than {_MOST_DOTS} parts; no key is nested so deeply")

    def bounded(number: str) -> Any:
        """Refuse what takes minutes as an exact number, such as 1e999999999."""
        exponent = number.lower().partition("e")[2]
        if len(number) > _MOST_DIGITS or abs(int(exponent or 0)) > _MOST_DIGITS:
            raise ValueError
        return parse_float(number)

    with _document(where, "TOML", refusal):
        document = tomllib.loads(text, parse_float=bounded)
        _check_integers(document)
        return document


def parse_json(text: str | bytes, where: str, refusal: Refusal = InputError) -> Any:
    """Read a JSON document; raises *refusal* where it is none, or nested too deeply."""
    with _document(where, "JSON", refusal):
        document = json.loads(text)
        _check_integers(document)
        return document


def _check_integers(document: Any) -> None:
    """Raise ValueError for a document with an integer of more than 64 bits."""
    rest = [document]
    while rest:
        value = rest.pop()
        if isinstance(value, dict):
            rest.extend(value.values())
        elif isinstance(value, list):
            rest.extend(value)
        elif isinstance(value, int) and value.bit_length() > _MOST_BITS:
            raise ValueError


@contextmanager
def _document(where: str, language: str, refusal: Refusal) -> Iterator[None]:
    """Turn what a parser raises into one sentence."""
    try:
        yield
    except RecursionError:
        raise refusal(f"{where}: nested too deeply; no {language} file of its kind is") from None
    except ValueError as error:
        # Beside the syntax numbers raise it: of more digits than Python reads, or infinite where exact ones are needed.
        is_syntax = isinstance(error, tomllib.TOMLDecodeError | json.JSONDecodeError)
        said = str(error) if is_syntax else "a number that is infinite, or of more digits than anything has"
        raise refusal(f"{where}: not {language}: {said}") from None


def _check_mode(path: Path, mode: int, refusal: Refusal) -> None:
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    if not stat.S_ISREG(mode):
        what = "a pipe" if stat.S_ISFIFO(mode) else "a device or a socket"
        raise refusal(f"{path}: is {what}, not a file; write what it gives into a file and name that")


def _bounded(stream: Any, path: Path, compressed: int, refusal: Refusal) -> BinaryIO:
    return io.BufferedReader(_Bounded(stream, path, compressed, refusal), 1 << 17)


class _Bounded(io.RawIOBase):
    """What *stream* gives, until it has grown to more than any such file does."""

    def __init__(self, stream: Any, path: Path, compressed: int, refusal: Refusal) -> None:
        self._stream, self._path, self._refusal = stream, path, refusal
        self._times = MOST_EXPANSION[path.suffix]
        self._most = max(MOST_DOCUMENT, self._times * compressed)
        self._given = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        chunk = self._stream.read(len(buffer))
        self._given += len(chunk)
        if self._given > self._most:
            raise self._refusal(
                f"{self._path}: grows to more than {self._times} times its size when decompressed, which no file of "
                f"its kind does; {_DECOMPRESS}"
            )
        buffer[: len(chunk)] = chunk
        return len(chunk)
