"""What the user knows and the trace does not say: a TOML file of assumptions.

::

    [[collective]]                  # each key but those below the line narrows what the entry is about
    communicator = "0xc0ffee"
    type = "AllReduce"
    from_size = "1MiB"              # inclusive
    to_size = "1GiB"                # exclusive
    # ---
    algorithm = "ring"
    protocol = "simple"
    channels = 8
    element_bytes = 2

    [[topology]]
    communicator = "0xc0ffee"
    rings = [[0, 1, 2, 3], [0, 3, 2, 1]]

The first entry that fits an operation counts.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from atlas_lp.errors import InputError
from atlas_lp.inputs import MOST_TOML, parse_toml, read_text
from atlas_lp.signatures.nccl import codes
from atlas_lp.signatures.nccl.collectives import known_as
from atlas_lp.texts import integer, quoted
from atlas_lp.units import parse_size_bytes

SOURCE = "assumed by the user"

_NARROWING = {"communicator", "type", "from_size", "to_size"}
_FACTS = {"algorithm", "protocol", "channels", "element_bytes"}


@dataclass(frozen=True)
class AssumedCollective:
    """One entry: what it is about, and what it says (empty or 0: nothing)."""

    communicator: int | None
    type: str | None
    from_bytes: int
    to_bytes: int
    algorithm: str
    protocol: str
    channels: int
    element_bytes: int

    def fits(self, communicator: int, kind: str, size_bytes: int) -> bool:
        """Whether the entry is about such an operation."""
        return (
            self.communicator in (None, communicator)
            and self.type in (None, kind)
            and self.from_bytes <= size_bytes < self.to_bytes
        )


@dataclass(frozen=True)
class Assumptions:
    """A file of assumptions."""

    collectives: tuple[AssumedCollective, ...]
    rings: dict[int, tuple[tuple[int, ...], ...]]


def read_assumptions(path: Path) -> Assumptions:
    """Read and check the file; raises :class:`~atlas_lp.errors.InputError` naming entry and key."""
    try:
        document = parse_toml(read_text(path, most=MOST_TOML), str(path))
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from None
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not TOML: {error}") from None
    unknown = sorted(set(document) - {"collective", "topology"})
    if unknown:
        raise InputError(f"{path}: unknown table {unknown[0]!r}; there are [[collective]] and [[topology]]")
    entries = [_collective(f"{path}: collective {n}", e) for n, e in _entries(document, "collective", path)]
    rings = dict(_topology(f"{path}: topology {n}", e) for n, e in _entries(document, "topology", path))
    return Assumptions(tuple(entries), rings)


def _entries(document: dict[str, Any], name: str, path: Path) -> list[tuple[int, dict[str, Any]]]:
    entries = document.get(name, [])
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise InputError(f"{path}: {name} must be written as [[{name}]]")
    return list(enumerate(entries, start=1))


def _collective(place: str, entry: dict[str, Any]) -> AssumedCollective:
    unknown = sorted(set(entry) - _NARROWING - _FACTS)
    if unknown or not _FACTS & set(entry):
        problem = f"unknown key {unknown[0]!r}" if unknown else "it says nothing"
        raise InputError(f"{place}: {problem}; it can say {', '.join(sorted(_FACTS))}")
    algorithm, protocol = entry.get("algorithm", ""), entry.get("protocol", "")
    if algorithm and codes.algorithm(str(algorithm)) is None:
        raise InputError(f"{place}: unknown algorithm {algorithm!r}; there are {', '.join(codes.ALGORITHMS)}")
    if protocol and codes.protocol(str(protocol)) is None:
        raise InputError(f"{place}: unknown protocol {protocol!r}; there are {', '.join(codes.PROTOCOLS)}")
    return AssumedCollective(
        communicator=_identity(place, entry["communicator"]) if "communicator" in entry else None,
        type=known_as(str(entry["type"])) if "type" in entry else None,
        from_bytes=int(parse_size_bytes(str(entry.get("from_size", 0)))),
        to_bytes=int(parse_size_bytes(str(entry["to_size"]))) if "to_size" in entry else 2**63,
        algorithm=codes.algorithm(str(algorithm)) or "" if algorithm else "",
        protocol=codes.protocol(str(protocol)) or "" if protocol else "",
        channels=_count(place, entry, "channels"),
        element_bytes=_count(place, entry, "element_bytes"),
    )


def _topology(place: str, entry: dict[str, Any]) -> tuple[int, tuple[tuple[int, ...], ...]]:
    rings = entry.get("rings")
    if set(entry) != {"communicator", "rings"} or not isinstance(rings, list) or not rings:
        raise InputError(f"{place}: needs communicator and rings, a list of lists of ranks")
    for ring in rings:
        if not isinstance(ring, list) or sorted(map(str, ring)) != sorted(map(str, range(len(rings[0])))):
            raise InputError(f"{place}: every ring must name each rank from 0 on once: {ring}")
    return _identity(place, entry["communicator"]), tuple(tuple(int(rank) for rank in ring) for ring in rings)


def _identity(place: str, value: Any) -> int:
    found = integer(str(value))
    if found is None:
        raise InputError(f"{place}: communicator {quoted(str(value))} is no number of 64 bits")
    return found % 2**64


def _count(place: str, entry: dict[str, Any], key: str) -> int:
    value = entry.get(key, 0)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= 1024:
        raise InputError(f"{place}: {key} must be a whole number up to 1024, not {value!r}")
    return value
