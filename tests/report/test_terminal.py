"""What verbs print, from plain values alone."""

import subprocess
import sys

import pytest
from helpers import ROOT

from atlas_lp.report import terminal
from atlas_lp.report.terminal import Listing, Table


def test_the_report_stage_solves_nothing():
    code = (
        "import sys; from atlas_lp.report import page, terminal, words; "
        "print([m for m in ('numba', 'highspy', 'pyarrow', 'rich') if m in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert result.stdout.strip() == "[]"


def test_spread_is_relative_to_the_median():
    assert terminal.spread([90, 100, 120]) == 0.3


@pytest.fixture
def validation():
    """Two points; the second method was not run, the third at the first point only."""
    return {
        "points": [{"latency_ns": 1000, "gap_ns_per_byte": 0.04}, {"latency_ns": 0, "gap_ns_per_byte": 0.08}],
        "methods": [
            {"name": "composite", "times_ns": [2000, 1000], "vertices": 10, "note": ""},
            {"name": "loggopsim", "times_ns": [], "vertices": 0, "note": "not on PATH"},
            {"name": "lp", "times_ns": [2020], "vertices": 10, "note": ""},
        ],
        "measured_ns": 1000,
        "dependencies": "events",
    }


def test_methods_stand_beside_the_first_one(validation):
    table, dependencies, note, why = terminal.validation(validation, [(1.0, 1 << 20), (0.0, 0), (2.0, None)])
    assert table.header == ["method", "1 us, 200 Gbps", "0 ns, 100 Gbps", "vertices", "time", "peak"]
    assert table.rows == [
        ["composite", "2 us", "1 us", 10, "1.00 s", "1 MiB"],
        ["loggopsim", "-", "-", 0, "0.00 s", "-"],
        ["lp", "2.02 us (+1.000 %)", "-", 10, "2.00 s", "-"],
        ["measured", "1 us (-50.000 %)", "-", "-", "-", "-"],
    ]
    assert (dependencies, note) == ("dependencies: from events", "loggopsim: not on PATH")
    assert why.startswith("composite holds ranks")


@pytest.fixture
def envelope():
    """One piece each way: T = 1,000 + L + 1,024 G."""
    return {
        "graph": {"ranks": 2, "vertices": 4, "edges": 3, "method": "quotient"},
        "native": {"latency_ns": 500, "gap_ns_per_byte": 0.5, "bandwidth_gbps": 16.0},
        "makespan_ns": 2012,
        "envelopes": {
            "latency": [{"from_ns": 0, "to_ns": 1000, "constant_ns": 1512, "messages": 1}],
            "gap": [{"from_ns_per_byte": 0.25, "to_ns_per_byte": 1, "constant_ns": 1500, "bytes": 1024}],
        },
        "joint": [{"constant_ns": 1000, "messages": 1, "bytes": 1024}],
        "certificate": {
            "solver": "HiGHS 1.16.0",
            "status": "optimal",
            "points": 3,
            "points_of_interest": 3,
            "pivots": 0,
            "largest_relative_difference": 0.0,
        },
        "assumptions": ["one"],
    }


def test_an_envelope_names_ends_times_and_slopes(envelope):
    graph, time, along_latency, along_gap, planes, assumptions = terminal.envelope(envelope)
    assert graph == "graph: 2 ranks, 4 vertices, 3 edges"
    assert time == "T = 2.012 us at L = 500 ns, 16 Gbps"
    assert along_latency == Table(
        "T(L) at 16 Gbps",
        ("from L", "to L", "T from", "T to", "dT/dL (messages)"),
        [["0 ns", "1 us", "1.512 us", "2.512 us", 1]],
    )
    assert along_gap == Table(
        "T(G) at L = 500 ns",
        ("from G (ns/B)", "to G (ns/B)", "from", "to", "T from", "T to", "dT/dG (bytes)"),
        [["0.25", "1", "32 Gbps", "8 Gbps", "1.756 us", "2.524 us", "1024 (1 KiB)"]],
    )
    assert planes == (
        "T(L, G): 1 plane; solver check: HiGHS 1.16.0 confirms T at 3 points, largest relative difference 0.0e+00, "
        "0 pivots; one rank per class of equal ranks (exact)"
    )
    assert assumptions == Listing("Assumptions", ["one"])


def test_a_step_on_the_path_is_a_collective_or_the_work_of_a_gpu():
    collective = {"type": "AllReduce", "size_bytes": 1024, "ranks": 4, "communicator": "0x1", "messages": 2, "bytes": 9}
    found = {
        "trace": {"synthetic": True},
        "what_if": ["AllGather takes no time"],
        "dependencies": "events",
        "latency_ns": 1000,
        "gap_ns_per_byte": 0.04,
        "makespan_ns": 100,
        "steps": [
            {"begin_ns": 0, "duration_ns": 20, "gpu": 3},
            {"begin_ns": 20, "duration_ns": 70, **collective},
            {"begin_ns": 90, "duration_ns": 10, "gpu": 3},
        ],
        "hops": {},
    }
    synthetic, what_if, title, table, rest = terminal.path(found, 2)
    assert synthetic.startswith("SYNTHETIC TRACE")
    assert what_if == "WHAT IF AllGather takes no time."
    assert title == "Critical path at L = 1 us, 200 Gbps: T = 100 ns, dependencies from events"
    assert table.rows == [
        ("0 ns", "20 ns", "20.0 %", "GPU work and idle time", "GPU 3", "-", "-"),
        ("20 ns", "70 ns", "70.0 %", "AllReduce 1 KiB", "4 ranks, communicator 0x1", "2", "9"),
    ]
    assert rest == "the other 1 steps take 10 ns; see all with --top or --json"
