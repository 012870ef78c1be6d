"""The support matrix: every row names the tests that hold it, and ``docs/support_matrix.md`` is generated from here.

Write the page with ``python tests/traces/test_trace_support.py``.
"""

import ast

import pytest
from helpers import ROOT

PAGE = ROOT / "docs" / "support_matrix.md"

ANSWER, NAMED, REFUSED = "read", "read, named as a gap", "refused, with the fix"

MATRIX = {
    "Inputs": [
        ("Nsight Systems SQLite, one file or many, folders, globs", ANSWER, "inputs::t06", "golden::rows_names"),
        (".nsys-rep", "exported when nsys is on PATH, else the command is printed", "refusals::reports_without_nsys"),
        ("PyTorch Kineto .json and .json.gz, one file per rank", ANSWER, "kineto::collectives", "kineto::real_set"),
        ("NCCL debug log (--nccl-log)", "fills what the trace lacks", "companions::real_log"),
        ("profiler-plugin dump (--profiler-dump)", "fills what the trace lacks", "companions::profiler_dumps_are"),
        ("TOML of assumptions (--assume)", "stands in for inference", "companions::assumptions_stand"),
        ("half-written, cut or damaged files", REFUSED, "refusals::refused_in_one_line", "fuzz::damaged_exports"),
    ],
    "Nsight Systems versions": [
        (
            "2022.4 to 2023.2 (EXPORT_META_DATA, fewer columns)",
            ANSWER,
            "selection::tables_and",
            "selection::columns_added",
        ),
        ("2023.3 to 2026.3", ANSWER, "golden::operations_join"),
        ("2026.4 (NVTX_EVENTS.eventId, documentation only)", ANSWER, "selection::tables_and"),
        ("NVTX_EVENTS_V2 and later", "newest version read", "inputs::t02_versioned"),
        ("rows in any order (2025.6 and later)", ANSWER, "inputs::t06", "golden::rows_names"),
        ("ranges of type 60 only", REFUSED, "inputs::t02_start_end"),
        ("advanced NCCL tracing (-t nccl)", "not read: no such export has been seen", ""),
    ],
    "NCCL versions": [
        ("up to 2.15: no payloads", REFUSED, "inputs::t04_nccl_without_payloads"),
        (
            "2.16 to 2.24: no communicator id",
            "read with one communicator, else refused",
            "inputs::t04_nccl_without_ids",
        ),
        ("2.25 and later", ANSWER, "golden::operations_join"),
        ("annotated 2.20.5 (ATLAHS)", "read, nothing inferred", "annotated::rings_trees", "annotated::base_input"),
    ],
    "Payloads": [
        ("jsonText, jsonTextId", ANSWER, "inputs::t04_payloads_in_string_ids"),
        ("binaryData as bytes or hex, both readings of the header", ANSWER, "inputs::t04_binary"),
        ("not exported", "counted by inspect, refused by analyze", "inputs::t03", "inspect::send_and_receive"),
        ("unknown schema, cut blob", "refused, with range and schema", "inputs::t04_unknown"),
    ],
    "Communicators": [
        ("CommInitRank, Config, Scalable; CommDestroy", ANSWER, "golden::operations_join"),
        ("made inside a group (id 0)", "matched where only one fits, else refused", "inputs::t05_id_zero"),
        ("CommInitAll", "ranks in the order of devices", "inputs::t05_init_all"),
        ("CommSplit, CommShrink", ANSWER, "inputs::t05_split", "inputs::t05_shrink"),
        ("made again with the same id or members", "kept apart", "inputs::t05_made_again", "inputs::t05_equal"),
        ("ids above 2^63", ANSWER, "inputs::t05_ids"),
    ],
    "Operations": [
        ("AllReduce, AllGather, ReduceScatter, Broadcast, Reduce", ANSWER, "golden::signatures"),
        ("AllToAll, Send, Recv", ANSWER, "inputs::all_to_all", "inputs::t08_grouped_sends"),
        (
            "groups: several operations in one kernel, nested, empty",
            ANSWER,
            "inputs::t08_operations",
            "inputs::t08_empty",
        ),
        ("groups on several communicators", ANSWER, "inputs::t08_two"),
        ("0 bytes, one rank", NAMED, "inputs::t09_empty", "inputs::t09_one_rank"),
        ("copy engines", "kept; no schedule", "inputs::t09_copy_engine"),
        ("kernels outside of any call", NAMED, "inputs::t01_kernels"),
        ("several GPUs per process", ANSWER, "inputs::t07_calls", "annotated::7_one"),
        ("CUDA graphs as a whole", REFUSED, "inputs::t10_graphs"),
        ("CUDA graphs by node", "replays expanded", "inputs::t10_node"),
    ],
    "Ranks and time": [
        ("a missing rank", "refused, or --allow-missing", "inputs::t11_missing", "kineto::real_file"),
        ("one rank twice", REFUSED, "inputs::t11_one_rank"),
        ("ranks that did different things", "refused, with the place", "inputs::t11_different"),
        ("a window that cuts ranks differently", NAMED, "inputs::t11_ranks_that", "inputs::t11_equal"),
        ("clocks of hosts that differ", "no influence", "inputs::t12_host_clocks", "golden::a_shift"),
        ("equal process ids on two hosts", ANSWER, "annotated::13_equal"),
        ("--range, --iteration, --from, --to, profiling marks", ANSWER, "selection::instances", "selection::windows"),
    ],
}


def known_tests():
    """All tests of the readers as ``file::function``, without the prefixes."""
    found = set()
    for path in (*ROOT.glob("tests/traces/test_trace_*.py"), ROOT / "tests/cli/test_inspect.py"):
        module = path.stem.removeprefix("test_").removeprefix("trace_")
        for node in ast.parse(path.read_text("utf-8")).body:
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                found.add(f"{module}::{node.name.removeprefix('test_')}")
    return found


def page():
    lines = [
        "# What traces atlas-lp reads",
        "",
        "Generated by `python tests/traces/test_trace_support.py`; every row is held by the tests it names.",
    ]
    known = known_tests()
    for title, rows in MATRIX.items():
        lines += ["", f"## {title}", "", "| trace | outcome | tests |", "|---|---|---|"]
        for what, outcome, *prefixes in rows:
            names = sorted(name for prefix in prefixes if prefix for name in known if name.startswith(prefix))
            lines.append(f"| {what} | {outcome} | {', '.join(f'`{name}`' for name in names) or '-'} |")
    return "\n".join(lines) + "\n"


def test_page_is_current():
    assert PAGE.read_text("utf-8") == page(), "run: python tests/traces/test_trace_support.py"


@pytest.mark.parametrize("title", MATRIX)
def test_every_row_names_tests_that_exist(title):
    known = known_tests()
    for what, _, *prefixes in MATRIX[title]:
        for prefix in prefixes:
            assert not prefix or any(name.startswith(prefix) for name in known), (what, prefix)


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
