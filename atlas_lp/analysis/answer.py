"""T(L, G) as people ask for it in Python: quantities as text or numbers, arrays broadcast, tables as Arrow."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from atlas_lp.errors import InputError
from atlas_lp.solver.axis import AXES, Axis
from atlas_lp.solver.envelope import Envelope, tolerances
from atlas_lp.units import gbps

if TYPE_CHECKING:
    import pyarrow as pa

Quantity = str | float | Fraction
"""``"3.7us"`` or ``"200Gbps"``; or a number: of ns for a latency, of Gbit/s for a bandwidth."""

Quantities = Quantity | Sequence[Quantity] | NDArray[Any]


@dataclass(frozen=True)
class Tolerance:
    """How far one parameter may go, the other at its native value, until T is *percent* above the native time.

    None where T stays within that in the whole range that was solved.
    """

    percent: float
    latency_ns: float | None
    bandwidth_gbps: float | None


@dataclass(frozen=True)
class Answer:
    """T(L, G) of one graph: its exact *envelope*, and the *native* point (L in ns, G in ns per byte)."""

    envelope: Envelope
    native: tuple[Fraction, Fraction]

    def T(  # noqa: N802
        self, latency: Quantities | None = None, bandwidth: Quantities | None = None
    ) -> float | NDArray[np.float64]:
        """T in ns at a latency and a bandwidth, native where not given; arrays of them broadcast.

        A single point is computed exactly and rounded once; arrays in 64-bit floats.

        Raises :class:`~atlas_lp.errors.UnitError` for text without a unit, and
        :class:`~atlas_lp.errors.InputError` for a point outside the range that was solved.
        """
        values: list[Any] = [
            self.native[axis.index] if asked is None else _exact_values(asked, axis)
            for axis, asked in zip(AXES, (latency, bandwidth), strict=True)
        ]
        if not any(isinstance(value, np.ndarray) for value in values):
            return float(self.envelope.time_ns(*values))
        latencies, gaps = np.broadcast_arrays(*values)
        if latencies.size:
            for x in (latencies.min(), latencies.max()):
                self.envelope.box.check(x, gaps.flat[0])
            for y in (gaps.min(), gaps.max()):
                self.envelope.box.check(latencies.flat[0], y)
        x, y = latencies.astype(np.float64), gaps.astype(np.float64)
        times = np.full(x.shape, -np.inf)
        for constant, messages, size in self.envelope.planes():
            np.maximum(times, float(constant) + messages * x + size * y, out=times)
        return times

    def tolerance(self, percent: float = 5) -> Tolerance:
        """Return the largest latency and the smallest bandwidth, each alone, that keep T within *percent* of native."""
        if not 0 <= percent < float("inf"):
            raise InputError(f"a tolerance of {percent} percent is not a number of 0 or more")
        latency, gap = tolerances(self.envelope, self.native, Fraction(str(percent)))
        return Tolerance(percent, None if latency is None else float(latency), None if gap is None else gbps(gap))

    def pieces(self, along: str = "latency") -> pa.Table:
        """Pieces of T(L) at the native bandwidth, or along ``"bandwidth"`` of T(G) at the native latency.

        Columns are ``from``, ``to`` and ``constant`` with their units in the name, and the slope: ``messages`` or
        ``bytes``; ``T = constant_ns + slope * x`` on each piece.
        """
        import pyarrow as pa

        names = {axis.quantity: axis for axis in AXES}
        if along not in names:
            raise InputError(f"T has pieces along {' or '.join(names)}, not along {along!r}")
        axis = names[along]
        found = self.envelope.along(axis, axis.other.of(self.native))
        return pa.table(
            {
                f"from_{axis.unit}": pa.array([float(p.start) for p in found], pa.float64()),
                f"to_{axis.unit}": pa.array([float(p.stop) for p in found], pa.float64()),
                "constant_ns": pa.array([float(p.constant_ns) for p in found], pa.float64()),
                axis.component: pa.array([p.slope for p in found], pa.int64()),
            }
        )

    @property
    def planes(self) -> pa.Table:
        """All planes of T(L, G) = max of ``constant_ns + messages * L + bytes * G``, L in ns, G in ns per byte."""
        import pyarrow as pa

        constant, messages, size = zip(*sorted(self.envelope.planes()), strict=True)
        return pa.table(
            {
                "constant_ns": pa.array([float(c) for c in constant], pa.float64()),
                "messages": pa.array(messages, pa.int64()),
                "bytes": pa.array(size, pa.int64()),
            }
        )


def exact(asked: Quantity, axis: Axis) -> Fraction:
    """One value along *axis*, of text with a unit or of a number: ns, and Gbit/s for a bandwidth.

    Raises :class:`~atlas_lp.errors.UnitError` for text, and :class:`~atlas_lp.errors.InputError` for a number that is
    not above 0 (a latency may be 0).
    """
    if isinstance(asked, str):
        return axis.parse(asked)
    if not np.isfinite(float(asked)) or asked < 0 or (axis.inverted and not asked):
        raise InputError(f"{asked} is no {axis.quantity}: give a number above 0, or text with a unit")
    value = Fraction(asked) if isinstance(asked, int | Fraction) else Fraction(repr(float(asked)))
    return Fraction(8) / value if axis.inverted else value


def _exact_values(asked: Quantities, axis: Axis) -> Fraction | NDArray[Any]:
    """One value, or an object array of them."""
    if isinstance(asked, str | int | float | Fraction | np.number):
        return exact(asked, axis)
    values = np.asarray(asked, dtype=object)
    result = np.empty(values.shape, dtype=object)
    for place, value in enumerate(values.flat):
        result.flat[place] = exact(value, axis)
    return result
