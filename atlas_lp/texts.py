"""Texts that anybody may have written: made visible before they are shown, and read as numbers by one rule.

A trace, a file of a user and a command line may hold any character.  Some of them act on whoever shows them: escape
sequences move the cursor, marks of direction turn a line around, bytes that are no UTF-8 cannot be printed at all.
:func:`plain` writes them out.  Digits that only look like ASCII ones, and numbers of thousands of digits, are no
numbers to :func:`integer`, where ``int`` takes the first, raises for the second and is none the wiser about the third.
"""

from __future__ import annotations

import json
import re
import unicodedata

LONGEST_QUOTE = 40
"""Characters of an input that are quoted in a message."""

_NAMED = {"\n": r"\n", "\r": r"\r", "\t": r"\t"}
_SHOWN_SEPARATOR = "Zs"  # spaces of any width: seen, or harmless

_NOT_ASCII = re.compile(r"[^ -~]")
_INTEGER = re.compile(r"-?(?:[0-9]{1,20}|0[xX][0-9a-fA-F]{1,16})")


def acts(character: str) -> bool:
    r"""Whether *character* is not simply seen: a control, a format mark, half a pair, or one that has no meaning yet.

    >>> [acts(c) for c in "a µ\N{NO-BREAK SPACE}\x1b\x9b\u202e\udcff"]
    [False, False, False, False, True, True, True, True]
    """
    return not character.isprintable() and unicodedata.category(character) != _SHOWN_SEPARATOR


def plain(text: str) -> str:
    r"""*text* with every character that acts written out as in Python; a byte that was no UTF-8 as that byte.

    >>> plain("node0\x1b[2J\u202e\udcff")
    'node0\\x1b[2J\\u202e\\xff'
    """
    return _NOT_ASCII.sub(lambda found: _written(found[0]) if acts(found[0]) else found[0], text)


def plain_json(document: str) -> str:
    r"""A JSON *document* of the same values, whose texts act on nobody who looks at it.

    Characters that act get the escapes of JSON.  Half a pair of UTF-16, which most readers refuse in any form, is
    written as :func:`plain` does.

    >>> plain_json('["\x9b", "\udcff"]')
    '["\\u009b", "\\\\xff"]'
    """
    return _NOT_ASCII.sub(lambda found: _in_json(found[0]) if acts(found[0]) else found[0], document)


def _written(character: str) -> str:
    number = ord(character)
    if character in _NAMED:
        return _NAMED[character]
    if 0xDC80 <= number <= 0xDCFF:  # what Python makes of such a byte in the name of a file
        number -= 0xDC00
    return f"\\x{number:02x}" if number < 0x100 else f"\\u{number:04x}" if number < 0x10000 else f"\\U{number:08x}"


def _in_json(character: str) -> str:
    if character == "\n":  # between values: in a text it is escaped already
        return character
    if unicodedata.category(character) == "Cs":
        return _written(character).replace("\\", r"\\")
    return json.dumps(character)[1:-1] if character != "\x7f" else r"\u007f"


def plain_lines(text: str) -> str:
    """*text* as :func:`plain`, but for the ends of its lines."""
    return "\n".join(map(plain, text.split("\n")))


def shortened(text: str, most: int) -> str:
    """*text* without its middle, where it has more than *most* characters.

    >>> shortened("0123456789", 6)
    '012 ... 789'
    """
    return text if len(text) <= most else f"{text[: most - most // 2]} ... {text[-(most // 2) :]}"


def quoted(text: str) -> str:
    """*text* as a message quotes it, its beginning where it is long."""
    return repr(text if len(text) <= LONGEST_QUOTE else f"{text[:LONGEST_QUOTE]}...")


def integer(text: str) -> int | None:
    """The integer that *text* writes in ASCII digits, decimal or as ``0x...``; None for any other text.

    More digits than 64 bits need are none, as are signs but ``-``, blanks and underscores, which ``int`` takes.

    >>> integer("42"), integer("-1"), integer("0xff"), integer("²"), integer("1_000"), integer("9" * 21)
    (42, -1, 255, None, None, None)
    """
    if _INTEGER.fullmatch(text) is None:
        return None
    return int(text, 16) if "x" in text or "X" in text else int(text)
