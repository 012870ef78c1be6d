"""Numbers as this report writes them, beyond :mod:`atlas_lp.units`."""

from __future__ import annotations

from fractions import Fraction

from atlas_lp.units import format_bandwidth

MINUS = "\N{MINUS SIGN}"


def to_gbps(gap: float) -> float:
    """Bandwidth in Gbps of G in ns per byte."""
    return 8 / gap if gap else float("inf")


def show_bandwidth(gap: float) -> str:
    """Write G in ns per byte as bandwidth."""
    return format_bandwidth(Fraction(gap))


def signed(percent: float, digits: int) -> str:
    """Write a change: ``+5 %``, ``−5 %`` with a true minus, ``0 %`` without a sign.

    >>> signed(12.34, 1), signed(-0.2, 0)
    ('+12.3 %', '0 %')
    """
    text = f"{percent:+,.{digits}f}".replace("-", MINUS)
    return f"{text if float(f'{percent:.{digits}f}') else '0'} %"


def share(percent: float) -> str:
    """Write a part of a whole; a small one is not rounded to nothing.

    >>> share(0), share(0.01), share(12.34)
    ('0 %', '< 0.1 %', '12.3 %')
    """
    if percent == 0:
        return "0 %"
    return f"{percent:.1f} %" if percent >= 0.05 else "< 0.1 %"


def difference(value: float, reference: float) -> str:
    """How far *value* lies from *reference*: ``0.6 % below``.

    >>> difference(99, 100), difference(100, 100)
    ('1 % below', 'equal to')
    """
    if value == reference or not reference:
        return "equal to" if value == reference else "not comparable to"
    percent = 100 * (value / reference - 1)
    amount = f"{abs(percent):.2g}" if abs(percent) < 10 else f"{abs(percent):,.0f}"
    return f"{amount} % {'above' if percent > 0 else 'below'}"
