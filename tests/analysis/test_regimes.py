"""Regimes of the (L, G) plane against cells worked out by hand and against plain Python."""

import doctest
from itertools import product

import numpy as np
import pytest
from oracles import regimes as oracle

from atlas_lp.analysis import regimes
from atlas_lp.analysis.regimes import (
    BANDWIDTH,
    BOTH,
    LATENCY,
    NEAR,
    gap_limits,
    latency_limits,
    regime_map,
    slowdown_bands,
    time_grid,
)
from atlas_lp.errors import InputError

# T = max(80 + L + 10 G, 4 L, 60 G); at the native point T = 100.
PLANES = [
    {"constant_ns": 80, "messages": 1, "bytes": 10},
    {"constant_ns": 0, "messages": 4, "bytes": 0},
    {"constant_ns": 0, "messages": 0, "bytes": 60},
]
NATIVE = (10.0, 1.0)
LATENCIES = [10, 14, 15, 16, 31.25, 50, 60]
GAPS = [0.1, 1, 1.4, 1.6, 2]


def time_ns(latency, gap):
    return oracle.time_ns(PLANES, latency, gap)


@pytest.mark.parametrize(
    ("latency", "gap", "time", "regime", "band"),
    [
        (10, 1, 100, NEAR, 0),
        (10, 0.1, 91, NEAR, 0),  # faster
        (15, 1, 105, NEAR, 0),  # the threshold itself
        (16, 1, 106, LATENCY, 0),
        (10, 1.6, 106, BANDWIDTH, 0),
        (16, 1.6, 112, BOTH, 0),  # each alone would win 6
        (14, 1.4, 108, BOTH, 0),  # each alone would win only 4
        (31.25, 1, 125, LATENCY, 0),  # an edge belongs to the band below
        (50, 1, 200, LATENCY, 2),
        (60, 1, 240, LATENCY, 3),
        (60, 2, 240, LATENCY, 3),  # G may double for nothing there
        (10, 3, 180, BANDWIDTH, 2),
    ],
)
def test_cells_worked_out_by_hand(latency, gap, time, regime, band):
    found = regime_map(PLANES, NATIVE, [latency], [gap])
    assert found.native_ns == 100
    assert found.times_ns.tolist() == [[time]]
    assert found.slowdowns[0, 0] == pytest.approx(time / 100 - 1)
    assert (found.regimes[0, 0], found.bands[0, 0]) == (regime, band)


WORDS = {NEAR: "near", LATENCY: "latency", BANDWIDTH: "bandwidth", BOTH: "both"}


@pytest.mark.parametrize("threshold", [0.05, 0.2])
def test_rows_are_gaps_columns_latencies_and_threshold_counts(threshold):
    found = regime_map(PLANES, NATIVE, LATENCIES, GAPS, threshold)
    assert found.regimes.shape == (len(GAPS), len(LATENCIES))
    for (i, gap), (j, latency) in product(enumerate(GAPS), enumerate(LATENCIES)):
        assert found.times_ns[i, j] == time_ns(latency, gap)
        assert WORDS[found.regimes[i, j]] == oracle.regime(PLANES, NATIVE, latency, gap, threshold), (latency, gap)


def test_blocks_of_planes_give_the_same_grid(monkeypatch):
    planes = [{"constant_ns": 1000 - m * m, "messages": 10 * m, "bytes": 30 - m} for m in range(30)]
    whole = time_grid(planes, LATENCIES, GAPS)
    monkeypatch.setattr(regimes, "_BLOCK_VALUES", 1)
    assert np.array_equal(time_grid(planes, LATENCIES, GAPS), whole)


def test_limits_are_where_t_crosses_the_level():
    limits = gap_limits(PLANES, [10, 20, 40, 60], 200)
    assert limits[:2].tolist() == pytest.approx([200 / 60, 200 / 60])
    assert limits[3] == -np.inf  # 4 L alone is 240
    for latency, gap in zip([10, 20, 40], limits, strict=False):
        assert time_ns(latency, gap) == pytest.approx(200)
    across = latency_limits(PLANES, [1, 2, 10], [200, 130, 200])
    assert across.tolist() == pytest.approx([50, 30, -np.inf])


def test_limits_without_bytes_are_infinite():
    assert gap_limits([{"constant_ns": 5, "messages": 1, "bytes": 0}], [1], 10).tolist() == [np.inf]


def test_limits_agree_with_the_regimes_on_both_sides():
    columns = np.array([10.0, 12, 14, 20, 30])
    border = gap_limits(PLANES, columns, 105)
    assert border[-1] == -np.inf  # 4 L alone is more than 105
    for latency, gap in zip(columns[:-1], border[:-1], strict=True):
        assert regime_map(PLANES, NATIVE, latency, gap * 0.999).regimes[0, 0] == NEAR
        assert regime_map(PLANES, NATIVE, latency, gap * 1.001).regimes[0, 0] != NEAR


def test_bands_hold_their_upper_edge():
    assert slowdown_bands([[100, 125, 150], [200, 126, 201]], 100).tolist() == [[0, 0, 1], [2, 1, 3]]


def test_nothing_to_compare_with_is_refused():
    with pytest.raises(InputError, match="no planes"):
        time_grid([], [1], [1])
    with pytest.raises(InputError, match="not positive"):
        regime_map([{"constant_ns": 0, "messages": 0, "bytes": 0}], NATIVE, [1], [1])


def test_examples():
    assert doctest.testmod(regimes).failed == 0
