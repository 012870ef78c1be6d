"""Which damage is done to which sample, and what is promised of the outcome.

Whatever is done, the outcome is an answer or a refusal in one line: no traceback, no hang, no large memory.  Beyond
that some damage must change nothing, or nothing in silence: see :class:`Promise`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from functools import partial
from random import Random

from fuzz import damage, stored
from fuzz.damage import Damage
from fuzz.samples import Files, Sample


class Promise(Enum):
    """What may come of a damaged input, beside a refusal."""

    ANY = "any answer"
    NAMED = "the same answer, or another one with more gaps, or from another reading, than the whole input gives"
    KEPT = "the same answer"
    SAME = "the same answer, and no refusal"


@dataclass(frozen=True)
class Attack:
    """One kind of damage to one sample."""

    sample: str
    name: str
    damage: Callable[[Sample, Random], Files]
    promise: Promise

    @property
    def key(self) -> str:
        """Name for people, and for the list of those that are not withstood yet."""
        return f"{self.sample}: {self.name}"


def _one(change: Damage, sample: Sample, draw: Random) -> Files:
    """Damage to one of the files."""
    name = draw.choice(sample.targets)
    return sample.files | {name: change(sample.files[name], draw)}


def _all(change: Damage, sample: Sample, draw: Random) -> Files:
    """The same damage, as far as chance goes, to all of the files."""
    seed = draw.random()
    return sample.files | {name: change(sample.files[name], Random(seed)) for name in sample.targets}


def _exchanged(sample: Sample, draw: Random) -> Files:
    """Files under each other's names."""
    names = list(sample.targets)
    turned = draw.sample(names, len(names))
    return sample.files | {name: sample.files[other] for name, other in zip(names, turned, strict=True)}


def _missing(sample: Sample, draw: Random) -> Files:
    gone = draw.choice(sample.targets)
    return {name: content for name, content in sample.files.items() if name != gone}


def _repeated(sample: Sample, draw: Random) -> Files:
    """A file under a second name beside it."""
    name = draw.choice(sample.targets)
    return sample.files | {f"{name.rpartition('/')[0]}/copy.{name.partition('.')[2]}".strip("/"): sample.files[name]}


_FOREIGN = (b"", b"\0" * 100, b"{}", b"[]", b"null", b"PK\5\6" + b"\0" * 18, b"SQLite format 3\0", b"ARROW1\0\0", b"\n")
_FOREIGN += (b"\x1f\x8b\x08\0", b"\x28\xb5\x2f\xfd", b"num_ranks 1\nrank 0 {\n}\n", b"\xef\xbb\xbf{}", b"[" * 100_000)
_FOREIGN += (b'{"a":' * 100_000, b"9" * 100_000, b"a" * 10**6, b"[[" * 50_000 + b"]]" * 50_000, b"x = " + b"9" * 50_000)


def _foreign(data: bytes, draw: Random) -> bytes:
    """Something else than what belongs here."""
    return draw.choice(_FOREIGN)


_BYTES: dict[str, Damage] = {
    "cut": damage.cut,
    "bytes flipped": damage.flipped,
    "bytes moved": damage.shifted,
    "foreign content": _foreign,
}
_TEXT = _BYTES | {"words": damage.words, "lines": damage.lines}

Rows = dict[str, tuple[Damage, Promise]]
_CELLS: Rows = {
    "cells": (damage.cells, Promise.ANY),
    "cells exchanged": (damage.cells_exchanged, Promise.ANY),
    "columns changed": (damage.columns_changed, Promise.ANY),
    "rows repeated": (damage.rows_repeated, Promise.ANY),
}
_ROWS: Rows = {
    "rows deleted": (damage.rows_deleted, Promise.NAMED),
    "tables dropped": (damage.tables_dropped, Promise.NAMED),
    "rows shuffled": (damage.rows_shuffled, Promise.SAME),
    "rows exchanged": (damage.rows_exchanged, Promise.SAME),
}
_EVENTS: Rows = {
    "values": (damage.json_values, Promise.ANY),
    "events deleted": (damage.events_deleted, Promise.NAMED),
    "events repeated": (damage.events_repeated, Promise.ANY),
    "events shuffled": (damage.events_shuffled, Promise.SAME),
}
_FILES: dict[str, tuple[Callable[[Sample, Random], Files], Promise]] = {
    "files exchanged": (_exchanged, Promise.SAME),
    "file missing": (_missing, Promise.NAMED),
    "file repeated": (_repeated, Promise.NAMED),
}


def _with(promise: Promise, changes: dict[str, Damage]) -> Rows:
    return {name: (change, promise) for name, change in changes.items()}


_ANY_BYTES, _ANY_TEXT = _with(Promise.ANY, _BYTES), _with(Promise.ANY, _TEXT)
_FORGED = {"bytes forged": stored.bytes_forged}
_ARCHIVE = _with(Promise.ANY, _FORGED | {"forged": stored.members_forged, "packed anew": stored.packed_anew})
_ARROW = _with(Promise.ANY, _FORGED | {"forged": stored.arrow_forged})

_ONE: dict[str, Rows] = {
    "step": _ROWS,
    "gradients": {**_ANY_BYTES, **_CELLS, **_ROWS},
    "streams": {**_ANY_BYTES, **_CELLS, **_ROWS},
    "groups": {**_ANY_BYTES, **_CELLS, **_ROWS},
    "annotated": {**_ANY_BYTES, **_CELLS, "rows shuffled": _ROWS["rows shuffled"]},
    "kineto": {**_ANY_TEXT, **_EVENTS},
    "kineto.gz": {**_ANY_BYTES, **_EVENTS},
    **dict.fromkeys(("log", "dump", "assumptions", "placement", "together", "fabric", "costs"), _ANY_TEXT),
    "npkit": {**_ANY_TEXT, "values": _EVENTS["values"]},
    **dict.fromkeys(("goal tree", "goal random"), _ANY_TEXT),
    "goal.zst": _ANY_BYTES,
    "packed": {**_with(Promise.KEPT, _BYTES | {"members": stored.members_changed}), **_ARCHIVE},
    "analysis": {**_with(Promise.KEPT, _BYTES | {"rewritten": stored.arrow_rewritten}), **_ARROW},
    "cache": {**_with(Promise.SAME, _BYTES | {"rewritten": stored.arrow_rewritten}), **_ARROW},
}
_HOST = {**_CELLS, "rows deleted": _ROWS["rows deleted"]}
_RANK = {"events deleted": _EVENTS["events deleted"]}
_EVERYWHERE = {"step": _HOST, "gradients": _HOST, "streams": _HOST, "kineto": _RANK, "kineto.gz": _RANK}
_OF_FILES = ("step", "gradients", "streams", "annotated", "kineto", "kineto.gz")


def attacks() -> list[Attack]:
    """Every kind of damage to every sample."""
    found = [
        Attack(sample, name, partial(_one, change), promise)
        for sample, changes in _ONE.items()
        for name, (change, promise) in changes.items()
    ]
    found += [
        Attack(sample, f"{name} in all files", partial(_all, change), promise)
        for sample, changes in _EVERYWHERE.items()
        for name, (change, promise) in changes.items()
    ]
    found += [Attack(sample, name, change, p) for sample in _OF_FILES for name, (change, p) in _FILES.items()]
    return found


NOT_YET = frozenset({"analysis: forged", "analysis: bytes forged", "cache: forged"})
"""Keys of attacks that are known not to be withstood yet: the suite leaves them out, the script tries them all.

Whoever computes a checksum over other words in an analysis or an entry still gets a traceback from ``sweep`` and
``cache ls``: checksums tell damage, not malice.
"""

CHECK_TEXTS = False
"""Whether control characters in what is printed are a finding."""
