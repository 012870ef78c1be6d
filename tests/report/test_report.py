"""The report: self-contained, well-formed, complete, and the same bytes each time."""

import copy
import doctest
import json
import re
from html.parser import HTMLParser

import pytest

from atlas_lp.report import words
from atlas_lp.report.page import render_report, svg, view
from atlas_lp.report.page.curves import LAYOUTS

KEYS = ["a" * 64, "b" * 64]


def signature(key, **changes):
    return {
        "key": key,
        "type": "AllReduce",
        "algorithm": "ring",
        "protocol": "simple",
        "size_bytes": 1 << 20,
        "ranks": 4,
        "nodes": 2,
        "channels": 2,
        "sources": {
            "protocol": "inferred: block of 544 threads",
            "topology": "assumed: rings",
            "channels": "recorded: log",
        },
        "method": "full",
        "count": 3,
        "on_path": 3,
        "time_ns": 1000,
        "path_ns": 3000,
        "share": 0.03,
        "messages": 6,
        "bytes": 1 << 20,
    } | changes


@pytest.fixture
def summary():
    """T = max(90,000 + 2 L + 25,000 G, 80,000 + 6 L + 25,000 G); native T = 103,200 ns."""
    return {
        "schema": "atlas-lp/summary",
        "version": 1,
        "tool": {"name": "atlas-lp", "version": "0.1.0", "model": "1"},
        "trace": {
            "ranks": 4,
            "nodes": 2,
            "processes": 4,
            "communicators": 1,
            "operations": 24,
            "instances": 6,
            "nccl": "2.28",
            "placement": "recorded & <kept>",
            "synthetic": False,
        },
        "fabric": {"name": "alps", "port_rule": "port", "gpus_per_nic": 1},
        "what_if": [],
        "native": {"latency_ns": 3700, "gap_ns_per_byte": 0.04, "bandwidth_gbps": 200.0},
        "box": {
            "latency_from_ns": 0,
            "latency_to_ns": 1000000,
            "gap_from_ns_per_byte": 0.0008,
            "gap_to_ns_per_byte": 0.8,
        },
        "makespan_ns": 103200,
        "measured_ns": 104000,
        "replay_ns": 104000,
        "breakdown": {
            "compute_and_idle_ns": 70000,
            "reduce_copy_ns": 10000,
            "latency_ns": 22200,
            "bandwidth_ns": 1000,
            "overhead_ns": 0,
            "scale_up_ns": 0,
        },
        "tolerance": {
            "percent": 5,
            "latency_ns": 4560,
            "gap_ns_per_byte": 0.2464,
            "bandwidth_gbps": 32.4675,
        },
        "envelopes": {
            "latency": [
                {"from_ns": 0, "to_ns": 2500, "constant_ns": 91000, "messages": 2},
                {"from_ns": 2500, "to_ns": 1000000, "constant_ns": 81000, "messages": 6},
            ],
            "gap": [{"from_ns_per_byte": 0.0008, "to_ns_per_byte": 0.8, "constant_ns": 102200, "bytes": 25000}],
        },
        "joint": [
            {"constant_ns": 90000, "messages": 2, "bytes": 25000},
            {"constant_ns": 80000, "messages": 6, "bytes": 25000},
        ],
        "signatures": [
            signature(KEYS[0]),
            signature(KEYS[1], type="Reduce", on_path=0, share=0.0, messages=0, bytes=0),
        ],
        "certificate": {
            "solver": "HiGHS 1.16.0",
            "status": "optimal",
            "points": 9,
            "points_of_interest": 12,
            "pivots": 0,
            "largest_relative_difference": 1e-15,
        },
        "assumptions": ["port rule port: all sends queue", "an <odd> & unusual one"],
        "gaps": [{"code": "clock-skew", "count": 2, "message": "two hosts & no common clock"}],
        "cache": {"hits": 1, "misses": 0},
    }


@pytest.fixture
def flat(summary):
    """A job on one node: no plane depends on L or G."""
    summary["joint"] = [{"constant_ns": 103200, "messages": 0, "bytes": 0}]
    summary["envelopes"]["latency"] = [{"from_ns": 0, "to_ns": 1000000, "constant_ns": 103200, "messages": 0}]
    summary["envelopes"]["gap"] = [
        {"from_ns_per_byte": 0.0008, "to_ns_per_byte": 0.8, "constant_ns": 103200, "bytes": 0}
    ]
    summary["tolerance"] = {"percent": 5, "latency_ns": None, "gap_ns_per_byte": None, "bandwidth_gbps": None}
    summary["gaps"] = [{"code": "one-node", "count": 6, "message": "no message leaves a node"}]
    return summary


class Checked(HTMLParser):
    """Collects text, ids and attributes; refuses unbalanced tags."""

    VOID = frozenset({"meta", "br", "link", "img", "input", "hr"})

    def __init__(self, html):
        super().__init__()
        self.open, self.ids, self.attributes, self.words, self.tags = [], [], [], [], []
        self.feed(html)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.handle_startendtag(tag, attrs)
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs
        self.ids += [value for name, value in attrs if name == "id"]

    def handle_endtag(self, tag):
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.words.append(data)

    @property
    def text(self):
        return " ".join(self.words).replace("\N{NO-BREAK SPACE}", " ")


@pytest.fixture(params=["full", "flat"])
def either(request, summary):
    return request.getfixturevalue("flat") if request.param == "flat" else summary


def test_is_well_formed_and_ids_are_unique(either):
    page = Checked(render_report(either))
    assert len(page.ids) == len(set(page.ids))
    referred = [v for name, v in page.attributes if name in {"aria-labelledby", "aria-describedby"}]
    referred += [v.removeprefix("#") for name, v in page.attributes if name == "href"]
    referred += re.findall(r"url\(#([^)]+)\)", str(page.attributes))
    assert set(referred) <= set(page.ids)


def test_opens_offline(either):
    html = render_report(either)
    assert not re.search(r"https?:|//[a-z]|@import|url\((?!#)|<link|<img|<iframe| src=", html)


def test_same_summary_same_bytes(either):
    untouched = copy.deepcopy(either)
    assert render_report(either) == render_report(json.loads(json.dumps(either, sort_keys=True)))
    assert either == untouched


def test_parts_of_the_path_are_listed_in_one_order(summary):
    names = [row["name"] for row in view.breakdown(summary)]
    summary["breakdown"] = dict(sorted(summary["breakdown"].items())) | {"of_a_later_version_ns": 0}
    assert [row["name"] for row in view.breakdown(summary)] == [*names, "of_a_later_version_ns"]


def test_nothing_of_the_cache_is_told(summary):
    other = copy.deepcopy(summary)
    other["cache"] = {"hits": 0, "misses": 7}
    assert render_report(summary) == render_report(other)


def test_names_everything_assumed_missing_and_found(either):
    html = render_report(either)
    page = Checked(html)
    for key in KEYS:
        assert key in html
    for text in either["assumptions"]:
        assert text in page.text
    for gap in either["gaps"]:
        assert gap["code"] in page.text
        assert gap["message"] in page.text
    for text in ("protocol: inferred: block of 544 threads", "topology: assumed: rings"):
        assert text in page.text
    assert "recorded: log" not in page.text
    assert either["trace"]["placement"] in page.text
    for text in ("HiGHS 1.16.0", "9 of 12 points", "atlas-lp 0.1.0", "model version 1", "2.28"):
        assert text in page.text


def test_shows_what_the_curves_are_made_of(summary):
    page = Checked(render_report(summary))
    hints = " ".join(page.words)
    assert "breakpoint at 2.5 us, T 96 us: 2 messages below, 6 messages above in L" in hints
    assert page.tags.count("svg") == 3 * len(LAYOUTS) + 6  # two curves and the map, and six glyphs of legends
    assert "+5 % at 4.56 us" in hints
    assert "+5 % at 32.47 Gbps" in hints


def test_pieces_name_who_pays_where_the_summary_does(summary):
    assert "paid by" not in Checked(render_report(summary)).text
    paid = {"signatures": [{"key": KEYS[0], "messages": 2}], "phases": [{"key": "copy", "messages": 2}], "pairs": []}
    summary["attribution"] = {"latency": [{"messages": 2, **paid}, {"messages": 0, **paid, "signatures": []}]}
    text = Checked(render_report(summary)).text
    assert text.count("paid by") == 1
    assert "paid by AllReduce 1 MiB 100 %; by phase copy 100 %" in text


@pytest.mark.parametrize(("gpus", "words"), [(1, "GPU 0 ends elsewhere than recorded: 2 us later"), (2, "2 GPUs end")])
def test_gpus_that_end_elsewhere_are_counted(summary, gpus, words):
    summary["replay_apart"] = [{"gpu": g, "replay_ns": 5000, "measured_ns": 3000} for g in range(gpus)]
    assert words in Checked(render_report(summary)).text


def test_flat_says_so_and_plots_nothing(flat):
    page = Checked(render_report(flat))
    assert "svg" not in page.tags
    assert "T does not depend on L here" in page.text
    assert "T does not depend on bandwidth here" in page.text
    assert "any up to 1 ms" in page.text
    assert "The map in numbers" not in page.text


def test_synthetic_is_said_at_the_top(summary):
    assert "SYNTHETIC" not in render_report(summary)
    summary["trace"]["synthetic"] = True
    html = render_report(summary)
    assert html.index("SYNTHETIC") < html.index("<h1>")


def test_what_was_changed_is_said_at_the_top(summary):
    assert "WHAT IF" not in render_report(summary)
    summary["what_if"] = ["AllGather takes no time"]
    page = render_report(summary)
    assert page.index("<strong>WHAT IF</strong> AllGather takes no time.") < page.index("<h1>")


def test_a_solver_check_says_what_it_left_out(summary):
    found = summary["certificate"]
    assert (
        "HiGHS 1.16.0 confirms T at 9 of 12 points, largest relative difference 1.0e-15, 0 pivots."
        in Checked(render_report(summary)).text
    )
    found["status"] = "partial: 1 of 3 graphs skipped: too large"
    assert "0 pivots; partial: 1 of 3 graphs skipped: too large." in Checked(render_report(summary)).text
    found |= {"status": "skipped: too large", "points": 0}
    assert "HiGHS 1.16.0 confirms T at none of 12 points; skipped: too large." in Checked(render_report(summary)).text


def test_markup_in_names_stays_text(summary):
    summary["trace"]["placement"] = "</script><b>x</b>"
    html = render_report(summary)
    assert "<b>x</b>" not in html
    assert "</script><b>x</b>" in Checked(html).text


def test_embedded_data_is_the_summary(summary):
    html = render_report(summary)
    data = json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', html).group(1))
    assert data["native"] == [103200, 3700, 0.04]
    assert data["latency"] == [[91000, 2], [81000, 6]]
    assert data["gap"] == [[102200, 25000]]
    assert data["planes"] == [[90000, 2, 25000], [80000, 6, 25000]]


def test_numbers_of_the_map(summary):
    table = view.numbers(summary)
    assert table["columns"] == ["1", "3.7", "10", "50", "100", "500", "1000"]
    row = next(row for row in table["rows"] if row["name"] == "200")
    cells = [(cell["text"], cell["class"], cell["native"]) for cell in row["cells"]]
    assert cells[1] == ("0", "near", True)
    # L = 10 us, 200 Gbps: 80,000 + 60,000 + 1,000 = 141,000 ns, 36.6 % above 103,200.
    assert cells[2] == ("+37", "latency1", False)
    # L = 1 us: 90,000 + 2,000 + 1,000 = 93,000 ns.
    assert cells[0] == ("−10", "near", False)  # noqa: RUF001


def test_times_of_a_bracket_are_upper_bounds(summary):
    assert "at most 1 us" not in Checked(render_report(summary)).text
    summary["signatures"][0]["method"] = "bracket"
    assert "at most 1 us" in Checked(render_report(summary)).text


def test_many_signatures_fold(summary):
    summary["signatures"] = [signature(f"{i:064x}") for i in range(view.MOST_ROWS + 5)]
    html = render_report(summary)
    assert "<summary>5 more</summary>" in html
    assert f"{view.MOST_ROWS + 4:064x}" in html


@pytest.mark.parametrize("native", [0, 1000000])
def test_native_latency_at_the_ends_of_the_box(summary, native):
    summary["native"]["latency_ns"] = native
    summary["makespan_ns"] = max(p["constant_ns"] + p["messages"] * native + 1000 for p in summary["joint"])
    page = Checked(render_report(summary))
    assert f"L = {'0 ns' if native == 0 else '1 ms'}" in page.text


def test_axis_never_leaves_the_analysed_range(summary):
    summary["box"] |= {"latency_from_ns": 3000, "latency_to_ns": 5000}
    summary["envelopes"]["latency"] = [{"from_ns": 3000, "to_ns": 5000, "constant_ns": 81000, "messages": 6}]
    axes = re.findall(r'data-kind="latency" data-axis="([\d.]+) ([\d.]+) ', render_report(summary))
    assert axes == [("3.0", "5.0")] * len(LAYOUTS)


@pytest.mark.parametrize("module", [svg, view, words])
def test_examples(module):
    assert doctest.testmod(module).failed == 0
