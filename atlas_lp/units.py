"""Quantities as people write them, read exactly and written back.

Inside the library times are in ns, sizes in bytes and G in ns per byte; all are integers or
:class:`fractions.Fraction`, so ``3.7us`` is exactly 3700 ns and ``150GB/s`` exactly 1/150 ns per byte.
Nothing here rounds on the way in.
"""

from __future__ import annotations

import re
from fractions import Fraction

from atlas_lp.errors import UnitError
from atlas_lp.texts import quoted

_NUMBER = r"(?P<number>[0-9]+(?:\.[0-9]*)?(?:[eE][+-]?[0-9]{1,2})?|\.[0-9]+(?:[eE][+-]?[0-9]{1,2})?)"
_QUANTITY = re.compile(rf"^\s*{_NUMBER}\s*(?P<unit>[A-Za-zµμ/]*)\s*$")

_MOST_DIGITS = 60
_MOST_BYTES = 2**63

_TIME_NS = {"ns": 1, "us": 10**3, "µs": 10**3, "μs": 10**3, "ms": 10**6, "s": 10**9}
_PREFIX = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
_BINARY = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}
_SIZE_BYTES = {
    "B": 1,
    **{f"{p}B": n for p, n in _PREFIX.items() if p},
    "KB": 10**3,
    **{f"{p}B": n for p, n in _BINARY.items()},
}
_RATE_BITS = {
    **{f"{p}{u}": n for p, n in _PREFIX.items() for u in ("bps", "bit/s", "b/s")},
    **{f"{p}B/s": 8 * n for p, n in {**_PREFIX, **_BINARY}.items()},
}


def _parse(text: str, units: dict[str, int], what: str, example: str) -> Fraction:
    match = _QUANTITY.match(text)
    if match is None:
        raise UnitError(f"{quoted(text)} is not a {what}: write a number and a unit, such as {example}")
    unit = match["unit"]
    if unit not in units:
        known = ", ".join(sorted(filter(None, units), key=lambda u: (units[u], u)))
        raise UnitError(f"{quoted(text)} is not a {what}: {quoted(unit or 'no unit')} is not one of {known}")
    if len(match["number"]) > _MOST_DIGITS:
        raise UnitError(f"{quoted(text)}: a {what} of {len(match['number'])} digits is more than anything has")
    return Fraction(match["number"]) * units[unit]


def parse_time_ns(text: str) -> Fraction:
    """Read a time such as ``4us``; a bare ``0`` needs no unit.

    >>> parse_time_ns("3.7us")
    Fraction(3700, 1)

    Raises :class:`~atlas_lp.errors.UnitError` when *text* has no or another unit.
    """
    return Fraction(0) if text.strip() == "0" else _parse(text, _TIME_NS, "time", "4us")


def parse_size_bytes(text: str) -> int:
    """Read a size such as ``128MiB``; must be a whole number of bytes that fits into 64 bits.

    >>> parse_size_bytes("64KiB")
    65536

    Raises :class:`~atlas_lp.errors.UnitError`.
    """
    size = _parse(text, {**_SIZE_BYTES, "": 1}, "size", "128MiB")
    if size.denominator != 1:
        raise UnitError(f"{quoted(text)} is not a whole number of bytes")
    if size >= _MOST_BYTES:
        raise UnitError(f"{quoted(text)} is more bytes than 64 bits count")
    return int(size)


def parse_bandwidth(text: str) -> Fraction:
    """Read a bandwidth such as ``200Gbps``, ``200Gb/s`` or ``25GB/s`` as G in ns per byte.

    >>> parse_bandwidth("200Gbps")
    Fraction(1, 25)

    Raises :class:`~atlas_lp.errors.UnitError`, also for a bandwidth of zero.
    """
    bits_per_second = _parse(text, _RATE_BITS, "bandwidth", "200Gbps")
    if bits_per_second == 0:
        raise UnitError(f"{quoted(text)}: a bandwidth of zero has no gap per byte")
    return Fraction(8 * 10**9) / bits_per_second


def parse_factor(text: str) -> Fraction:
    """Read a factor such as ``0.5`` or ``1.25x``.

    Raises :class:`~atlas_lp.errors.UnitError`.
    """
    try:
        return _parse(text, {"": 1, "x": 1}, "factor", "0.5")
    except UnitError as error:
        raise UnitError(f"{quoted(text)} is not a factor: write a number, such as 0.5 or 1.25x") from error


def gbps(gap_ns_per_byte: Fraction) -> float:
    """Bandwidth in Gbit/s of a gap per byte (``inf`` for a gap of zero)."""
    return float(8 / gap_ns_per_byte) if gap_ns_per_byte else float("inf")


def _scaled(value: float, steps: list[tuple[float, str]], digits: int) -> str:
    """Print *value* in the largest unit of *steps* (ascending) that leaves at least 1."""
    factor, unit = steps[0]
    for candidate, name in steps:
        # 0.9995 of a unit would print as 1 with four digits: use that unit.
        if abs(value) >= candidate * (1 - 0.5 * 10**-digits):
            factor, unit = candidate, name
    text = f"{value / factor:.{digits}g}"
    if "e" in text:
        text = f"{value / factor:.0f}"
    return f"{text} {unit}"


def format_time(ns: float | Fraction, digits: int = 4) -> str:
    """Write a time with the unit that fits: ``format_time(3700)`` is ``3.7 us``."""
    return _scaled(float(ns), [(1, "ns"), (1e3, "us"), (1e6, "ms"), (1e9, "s")], digits)


def format_size(size_bytes: float | Fraction, digits: int = 4) -> str:
    """Write a size in binary units: ``format_size(1 << 27)`` is ``128 MiB``."""
    steps = [(1.0, "B"), (2**10, "KiB"), (2**20, "MiB"), (2**30, "GiB"), (2**40, "TiB"), (2**50, "PiB")]
    return _scaled(float(size_bytes), steps, digits)


def format_bandwidth(gap_ns_per_byte: Fraction, digits: int = 4) -> str:
    """Write a gap per byte as bandwidth: ``format_bandwidth(Fraction(1, 25))`` is ``200 Gbps``."""
    if not gap_ns_per_byte:
        return "unlimited bandwidth"
    return _scaled(float(8 * 10**9 / gap_ns_per_byte), [(1e6, "Mbps"), (1e9, "Gbps"), (1e12, "Tbps")], digits)


def number(value: Fraction | int) -> int | float:
    """Return *value* for JSON: an int when it is whole, else the nearest float."""
    value = Fraction(value)
    return int(value) if value.denominator == 1 else float(value)
