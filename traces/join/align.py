"""Cut traces: the longest run of operations that all ranks of a communicator recorded.

A capture window cuts every rank at another operation, so ranks hold windows of one sequence.  Contents decide where
they overlap; where contents repeat, the ends of the kernels do, because ranks end a collective together.  Only the
spread of the differences of ends counts, so clocks of hosts may differ.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from atlas_lp.errors import MismatchError
from atlas_lp.traces.records import Call

Ints = NDArray[np.int64]
Token = tuple[str, int, int]

_MOST_CANDIDATES = 64
"""So many shifts are compared by time, those of the largest overlap first."""

_PRIME, _BASE = 2**61 - 1, 1_000_003

_CLEAR = 0.5
"""The best shift must spread less than this part of the second best to be believed."""


def content(call: Call) -> Token:
    """What must be equal on all ranks of a collective."""
    return (call.type, call.size_bytes, call.root)


def common_run(calls: Mapping[int, Sequence[Call]], name: str) -> dict[int, tuple[int, int]]:
    """Return, per rank, the first and one past the last of its *calls* that belong to the common run.

    Raises :class:`~atlas_lp.errors.MismatchError` when contents differ at a place that no cut explains, or when
    several shifts explain them equally well.
    """
    ranks = sorted(calls)
    base = ranks[0]
    tokens = {rank: [content(call) for call in calls[rank]] for rank in ranks}
    if all(tokens[rank] == tokens[base] for rank in ranks):
        return {rank: (0, len(calls[rank])) for rank in ranks}
    base = max(ranks, key=lambda rank: (len(calls[rank]), -rank))
    shift = dict.fromkeys(ranks, 0)
    for rank in ranks:
        if rank != base and tokens[rank] != tokens[base]:
            shift[rank] = _shift(tokens[base], tokens[rank], _ends(calls[base]), _ends(calls[rank]), name, (base, rank))
    first = max(shift.values())
    last = min(len(calls[rank]) + shift[rank] for rank in ranks)
    if last <= first:
        raise MismatchError(f"{name}: no collective was recorded on all ranks; capture the same steps on every rank")
    return {rank: (first - shift[rank], last - shift[rank]) for rank in ranks}


def _ends(calls: Sequence[Call]) -> Ints:
    return np.array([max(kernel.end_ns for kernel in call.kernels) for call in calls], dtype=np.int64)


def _shift(
    a: list[Token],
    b: list[Token],
    ends_a: Ints,
    ends_b: Ints,
    name: str,
    ranks: tuple[int, int],
) -> int:
    """Position in *a* of the first of *b*."""
    hash_a, hash_b = _prefix_hashes(a), _prefix_hashes(b)
    candidates = [d for d in range(1 - len(b), len(a)) if _agrees(hash_a, hash_b, d)]
    if not candidates:
        raise MismatchError(_difference(a, b, name, ranks))
    candidates = sorted(candidates, key=lambda d: (-_overlap(a, b, d), abs(d)))[:_MOST_CANDIDATES]
    spreads = {d: _spread(ends_a, ends_b, d) for d in candidates}
    best = min(candidates, key=lambda d: (spreads[d], -_overlap(a, b, d), abs(d)))
    # Equal positions with other contents, but together in time: that is a mismatch, no cut.
    if len(a) == len(b) and len(a) > 1 and _spread(ends_a, ends_b, 0) <= spreads[best]:
        raise MismatchError(_difference(a, b, name, ranks))
    rivals = [d for d in candidates if d != best and _overlap(a, b, d) * 2 >= _overlap(a, b, best)]
    if rivals and spreads[best] > _CLEAR * min(spreads[d] for d in rivals):
        raise MismatchError(
            f"{name}: rank {ranks[0]} has {len(a)} collectives, rank {ranks[1]} has {len(b)}, and {len(rivals) + 1} "
            "ways to pair them fit equally well; capture the same steps on every rank"
        )
    return best


def _prefix_hashes(tokens: list[Token]) -> list[int]:
    """Polynomial hash of every prefix, so that a run is compared in constant time."""
    result = [0]
    for token in tokens:
        result.append((result[-1] * _BASE + zlib.crc32(repr(token).encode()) + 1) % _PRIME)
    return result


def _agrees(a: list[int], b: list[int], d: int) -> bool:
    """Whether all of the overlap agrees, and it is more than half of the shorter sequence."""
    low, high = max(0, d), min(len(a) - 1, d + len(b) - 1)
    if (high - low) * 2 <= min(len(a), len(b)) - 1:
        return False
    power = pow(_BASE, high - low, _PRIME)
    return (a[high] - a[low] * power - b[high - d] + b[low - d] * power) % _PRIME == 0


def _overlap(a: list[Token], b: list[Token], d: int) -> int:
    return min(len(a), d + len(b)) - max(0, d)


def _spread(ends_a: Ints, ends_b: Ints, d: int) -> float:
    """Mean distance of the differences of ends from their median."""
    low, high = max(0, d), min(len(ends_a), d + len(ends_b))
    difference = ends_a[low:high] - ends_b[low - d : high - d]
    return float(np.abs(difference - np.median(difference)).mean())


def _difference(a: list[Token], b: list[Token], name: str, ranks: tuple[int, int]) -> str:
    at = next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
    words = [f"rank {r} did {_words(s[at]) if at < len(s) else 'nothing'}" for r, s in zip(ranks, (a, b), strict=True)]
    return f"{name}, collective {at + 1}: {', '.join(words)}"


def _words(token: Token) -> str:
    return f"{token[0]} of {token[1]} B (root {token[2]})"
