"""A JSON object read member by member, and its long array event by event, in bounded memory."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from decimal import Decimal
from typing import IO, Any

_BLANKS = re.compile(r"[ \t\r\n]*")
_CHUNK = 1 << 20
LONGEST_VALUE = 1 << 24
"""Longest single value that is read, in characters: an event, or one of the other members, as objects 40 times that."""


class JsonStream:
    """Reads one JSON object from a text file; numbers with a fraction stay exact.

    Raises ValueError where the text is no JSON, ends too early, or has more than *most* values.
    """

    def __init__(self, file: IO[str], most: int) -> None:
        self._file = file
        self._left = most
        self._text = ""
        self._at = 0
        self._ended = False
        self._decoder = json.JSONDecoder(parse_float=Decimal, parse_constant=str)

    def members(self, array: str) -> Iterator[tuple[str, Any]]:
        """Yield (name, value) of all members; those of the list *array* come one by one under its name."""
        self._expect("{")
        if self._peek() == "}":
            return
        while True:
            name = self._value()
            if not isinstance(name, str):
                raise ValueError("a name is not a string")
            self._expect(":")
            if name == array and self._peek() == "[":
                yield from ((name, value) for value in self._elements())
            else:
                yield name, self._value()
            if self._next() == "}":
                return

    def _elements(self) -> Iterator[Any]:
        self._expect("[")
        if self._peek() == "]":
            self._at += 1
            return
        while True:
            yield self._value()
            if self._next() == "]":
                return

    def _next(self) -> str:
        found = self._peek()
        if found not in tuple(",]}"):
            raise ValueError(f"{found!r} where a comma or an end should be")
        self._at += 1
        return found

    def _expect(self, character: str) -> None:
        found = self._peek()
        if found != character:
            raise ValueError(f"{found!r} where {character!r} should be")
        self._at += 1

    def _peek(self) -> str:
        while True:
            self._at = _BLANKS.match(self._text, self._at).end()  # type: ignore[union-attr]  # it always matches
            if self._at < len(self._text):
                return self._text[self._at]
            if not self._more(_CHUNK):
                raise ValueError("the file ends too early")

    def _value(self) -> Any:
        self._peek()
        self._left -= 1
        if self._left < 0:
            raise ValueError("more events than a file of its size holds; if it is what it should be, decompress it")
        size = _CHUNK
        while True:
            try:
                value, end = self._decoder.raw_decode(self._text, self._at)
            except RecursionError:
                raise ValueError("a value is nested too deeply") from None
            except ValueError:
                if len(self._text) - self._at > LONGEST_VALUE:
                    raise ValueError(f"a value is no JSON, or longer than {LONGEST_VALUE} characters") from None
                if not self._more(size):
                    raise ValueError("a value is cut or is no JSON") from None
                size *= 4
                continue
            if end == len(self._text) and self._more(size):  # a number may go on
                continue
            self._at = end
            return value

    def _more(self, size: int) -> bool:
        """Drop what was read and append *size* characters; False at the end of the file."""
        if self._ended:
            return False
        chunk = self._file.read(size)
        self._ended = not chunk
        self._text = self._text[self._at :] + chunk
        self._at = 0
        return bool(chunk)
