"""Which network parameter matters where: T over a grid of (L, G), told apart by regime and by slowdown.

Everything here is computed from the exact joint planes of T(L, G), so a cell sees latency and bandwidth act
together.  The paper's maps combine two one-dimensional sweeps through the native point instead.

Units: L and T in ns, G in ns per byte.  Grids have shape ``(len(gaps), len(latencies_ns))``: one row per G, one
column per L.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from atlas_lp.errors import InputError

Floats = NDArray[np.float64]
Joint = Sequence[Mapping[str, float]]
"""Planes as in ``summary["joint"]``: ``constant_ns``, ``messages`` and ``bytes`` of each."""

NEAR, LATENCY, BANDWIDTH, BOTH = range(4)
REGIMES = ("near", "latency", "bandwidth", "both")

BAND_EDGES = (0.25, 0.5, 1.0)
BANDS = ("0-25 %", "25-50 %", "50-100 %", ">100 %")

THRESHOLD = 0.05
"""Share of T(native) from which a change of T counts."""

_BLOCK_VALUES = 1 << 21  # values held at once while planes are compared: 16 MiB


@dataclass(frozen=True)
class RegimeMap:
    """T and its classification on a grid of (L, G).

    *times_ns*, *slowdowns*, *regimes* and *bands* have shape ``(len(gaps), len(latencies_ns))``.
    *slowdowns* is ``T / T(native) - 1``; *regimes* holds indices into :data:`REGIMES`, *bands* into :data:`BANDS`.
    """

    latencies_ns: Floats
    gaps: Floats
    native_ns: float
    times_ns: Floats
    slowdowns: Floats
    regimes: NDArray[np.int8]
    bands: NDArray[np.int8]


def planes_array(joint: Joint) -> Floats:
    """Return the planes as rows (constant in ns, messages, bytes), shape ``(len(joint), 3)``."""
    if not joint:
        raise InputError("no planes of T(L, G): a joint envelope has at least one")
    return np.array([[plane[c] for c in ("constant_ns", "messages", "bytes")] for plane in joint], float)


def time_grid(joint: Joint, latencies_ns: ArrayLike, gaps: ArrayLike) -> Floats:
    """T in ns at every (G, L) of a grid: the largest plane there.

    Cost is planes times cells; memory stays at the grid and one block of 16 MiB however many planes there are.

    Parameters
    ----------
    joint
        Planes of T, ``T = constant_ns + messages * L + bytes * G`` each.
    latencies_ns
        L of the columns in ns, shape ``(columns,)``.
    gaps
        G of the rows in ns per byte, shape ``(rows,)``.

    Returns
    -------
    Times in ns, shape ``(rows, columns)``.

    Examples
    --------
    >>> planes = [
    ...     {"constant_ns": 100, "messages": 0, "bytes": 10},
    ...     {"constant_ns": 0, "messages": 2, "bytes": 0},
    ... ]
    >>> time_grid(planes, [0, 100], [1, 5]).tolist()
    [[110.0, 200.0], [150.0, 200.0]]

    """
    columns, rows = np.atleast_1d(np.asarray(latencies_ns, float)), np.atleast_1d(np.asarray(gaps, float))
    planes = planes_array(joint)
    times = np.full((rows.size, columns.size), -np.inf)
    block = max(1, _BLOCK_VALUES // max(1, times.size))
    for start in range(0, len(planes), block):
        constant, messages, size = planes[start : start + block].T
        at_rows = constant[:, None] + np.outer(size, rows)
        values = at_rows[:, :, None] + np.outer(messages, columns)[:, None, :]
        np.maximum(times, values.max(axis=0), out=times)
    return times


def regime_map(
    joint: Joint,
    native: tuple[float, float],
    latencies_ns: ArrayLike,
    gaps: ArrayLike,
    threshold: float = THRESHOLD,
) -> RegimeMap:
    """Classify every cell of a grid against T0 = T(native).

    A cell is ``near`` when T(L, G) <= (1 + threshold) T0, faster ones included.  Otherwise latency is substantial
    when moving L alone back to native, at this G, wins more than threshold * T0; bandwidth likewise with G.  A
    cell is ``latency`` or ``bandwidth`` when one of them is substantial alone, and ``both`` when both are or when
    neither is, so that only the two together slow the job.

    Parameters
    ----------
    joint, latencies_ns, gaps
        As in :func:`time_grid`.
    native
        (L0 in ns, G0 in ns per byte).
    threshold
        Share of T0 from which a change counts.

    Raises
    ------
    InputError
        When T0 is not positive.

    """
    latency, gap = native
    columns, rows = np.atleast_1d(np.asarray(latencies_ns, float)), np.atleast_1d(np.asarray(gaps, float))
    native_ns = float(time_grid(joint, latency, gap)[0, 0])
    if native_ns <= 0:
        raise InputError("T at the native point is not positive, so no cell can be compared to it")
    times = time_grid(joint, columns, rows)
    by_latency = times - time_grid(joint, latency, rows) > threshold * native_ns
    by_bandwidth = times - time_grid(joint, columns, gap) > threshold * native_ns
    regimes = np.full(times.shape, BOTH, np.int8)
    regimes[by_latency & ~by_bandwidth] = LATENCY
    regimes[by_bandwidth & ~by_latency] = BANDWIDTH
    regimes[times <= (1 + threshold) * native_ns] = NEAR
    return RegimeMap(
        latencies_ns=columns,
        gaps=rows,
        native_ns=native_ns,
        times_ns=times,
        slowdowns=times / native_ns - 1,
        regimes=regimes,
        bands=slowdown_bands(times, native_ns),
    )


def slowdown_bands(times_ns: ArrayLike, native_ns: float) -> NDArray[np.int8]:
    """Index into :data:`BANDS` of each time; an edge belongs to the band below it.

    >>> slowdown_bands([90, 125, 130, 200, 210], 100).tolist()
    [0, 0, 1, 2, 3]
    """
    edges = (1 + np.array(BAND_EDGES)) * native_ns
    return np.searchsorted(edges, np.asarray(times_ns, float), side="left").astype(np.int8)


def gap_limits(joint: Joint, latencies_ns: ArrayLike, limits_ns: ArrayLike) -> Floats:
    """Largest G with T(L, G) <= limit at each L: where T crosses a level, exactly and without a grid.

    Parameters
    ----------
    latencies_ns
        L in ns, shape ``(n,)``.
    limits_ns
        One level for all or one for each L, in ns.

    Returns
    -------
    G in ns per byte, shape ``(n,)``; ``inf`` where no G exceeds the limit, ``-inf`` where no G keeps it.

    """
    constant, messages, size = planes_array(joint).T
    return _limits(constant, messages, size, latencies_ns, limits_ns)


def latency_limits(joint: Joint, gaps: ArrayLike, limits_ns: ArrayLike) -> Floats:
    """Largest L with T(L, G) <= limit at each G; the mirror image of :func:`gap_limits`, in ns."""
    constant, messages, size = planes_array(joint).T
    return _limits(constant, size, messages, gaps, limits_ns)


def _limits(constant: Floats, fixed: Floats, moved: Floats, at: ArrayLike, limits: ArrayLike) -> Floats:
    """Largest y with ``constant + fixed * x + moved * y <= limit`` for all planes, at each x of *at*."""
    places, levels = np.broadcast_arrays(np.asarray(at, float), np.asarray(limits, float))
    result = np.empty(places.shape)
    for i, (x, level) in enumerate(zip(places, levels, strict=True)):
        room = level - constant - fixed * x
        flat = moved == 0
        best = np.min(room[~flat] / moved[~flat], initial=np.inf)
        result[i] = -np.inf if np.any(room[flat] < 0) else best
    return result
