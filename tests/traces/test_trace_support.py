"""The support matrix: every row names the tests that hold it, and ``docs/support_matrix.md`` is generated from here.

Write the page with ``python tests/traces/test_trace_support.py``.
"""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "support_matrix.md"

ANSWER, NAMED, REFUSED = "read", "read, named as a gap", "refused, with the fix"

MATRIX = {
    "Inputs": [
        (
            "Nsight Systems SQLite, one file or many, folders, globs",
            ANSWER,
            "inputs::t06_one_file_shuffled_and_two_files_are_equal",
            "golden::rows_names_and_splits_change_nothing",
        ),
        (
            ".nsys-rep",
            "exported when nsys is on PATH, else the command is printed",
            "refusals::reports_without_nsys_print_the_command",
        ),
        (
            "PyTorch Kineto .json and .json.gz, one file per rank",
            ANSWER,
            "kineto::collectives_carry_type_bytes_group_and_shape",
            "kineto::real_set_of_eight_ranks",
        ),
        ("NCCL debug log (--nccl-log)", "fills what the trace lacks", "companions::real_log"),
        (
            "profiler-plugin dump (--profiler-dump)",
            "fills what the trace lacks",
            "companions::profiler_dumps_are_not_strict_json",
        ),
        (
            "TOML of assumptions (--assume)",
            "stands in for inference",
            "companions::assumptions_stand_in_for_inference_and_say_so",
        ),
        (
            "half-written, cut or damaged files",
            REFUSED,
            "refusals::refused_in_one_line",
            "fuzz::damaged_exports_are_refused_or_read",
        ),
        (
            "packed traces (atlas-lp pack)",
            "read; every number, size and relation checked first",
            "packed::the_analysis_of_a_packed_trace_is_that_of_its_exports",
            "packed_check::a_column_of_another_type_is_refused",
            "packed_check::a_number_out_of_its_range_is_refused",
            "packed_check::archives_in_other_ways_are_read_or_refused_by_name",
            "packed_check::mutations_are_refused_or_analyzed",
        ),
        (
            "files that grow, nest or repeat without end; pipes and devices",
            REFUSED,
            "untrusted::what_is_large_to_read_is_refused_in_one_sentence",
            "untrusted::pipes_and_devices_are_no_files",
        ),
    ],
    "Nsight Systems versions": [
        (
            "2022.4 to 2023.2 (EXPORT_META_DATA, fewer columns)",
            ANSWER,
            "selection::tables_and_columns_of_other_versions",
            "selection::columns_added_later_are_optional",
        ),
        ("2023.3 to 2026.3", ANSWER, "golden::operations_join_their_kernels"),
        ("2026.4 (NVTX_EVENTS.eventId, documentation only)", ANSWER, "selection::tables_and_columns_of_other_versions"),
        ("NVTX_EVENTS_V2 and later", "newest version read", "inputs::t02_versioned_tables_newest_first"),
        (
            "rows in any order (2025.6 and later)",
            ANSWER,
            "inputs::t06_one_file_shuffled_and_two_files_are_equal",
            "golden::rows_names_and_splits_change_nothing",
        ),
        ("ranges of type 60 only", REFUSED, "inputs::t02_start_end_ranges_are_refused_by_type"),
        ("advanced NCCL tracing (-t nccl)", "not read: no such export has been seen"),
    ],
    "NCCL versions": [
        ("up to 2.15: no payloads", REFUSED, "inputs::t04_nccl_without_payloads"),
        (
            "2.16 to 2.24: no communicator id",
            "read with one communicator, else refused",
            "inputs::t04_nccl_without_ids_and_one_communicator",
            "inputs::t04_nccl_without_ids_and_two_communicators",
        ),
        ("2.25 and later", ANSWER, "golden::operations_join_their_kernels"),
        (
            "annotated 2.20.5 (ATLAHS)",
            "read, nothing inferred",
            "annotated::rings_trees_parts_and_marks",
            "annotated::base_input_is_read_with_what_nccl_chose",
        ),
    ],
    "Payloads": [
        ("jsonText, jsonTextId", ANSWER, "inputs::t04_payloads_in_string_ids"),
        ("binaryData as bytes or hex, both readings of the header", ANSWER, "inputs::t04_binary_payloads_equal_json"),
        (
            "not exported",
            "counted by inspect, refused by analyze",
            "inputs::t03_values_not_exported",
            "inspect::send_and_receive_sample_is_counted",
        ),
        (
            "unknown schema, cut blob",
            "refused, with range and schema",
            "inputs::t04_unknown_schemas_and_cut_blobs_are_errors_with_their_place",
        ),
    ],
    "Communicators": [
        ("CommInitRank, Config, Scalable; CommDestroy", ANSWER, "golden::operations_join_their_kernels"),
        (
            "made inside a group (id 0)",
            "matched where only one fits, else refused",
            "inputs::t05_id_zero_in_a_group",
            "inputs::t05_id_zero_twice_is_refused_with_the_id",
        ),
        ("CommInitAll", "ranks in the order of devices", "inputs::t05_init_all_is_one_row_for_all_devices"),
        (
            "CommSplit, CommShrink",
            ANSWER,
            "inputs::t05_split_does_not_take_the_parents_numbers",
            "inputs::t05_shrink_keeps_the_order_of_the_parent",
        ),
        (
            "made again with the same id or members",
            "kept apart",
            "inputs::t05_made_again_is_another_communicator",
            "inputs::t05_equal_members_are_not_merged",
        ),
        ("ids above 2^63", ANSWER, "inputs::t05_ids_are_unsigned"),
    ],
    "Operations": [
        (
            "AllReduce, AllGather, ReduceScatter, Broadcast, Reduce",
            ANSWER,
            "golden::signatures_say_where_fields_come_from",
        ),
        (
            "AllToAll, Send, Recv",
            ANSWER,
            "inputs::all_to_all_and_trees_have_signatures",
            "inputs::t08_grouped_sends_and_receives_are_one_instance",
        ),
        (
            "groups: several operations in one kernel, nested, empty",
            ANSWER,
            "inputs::t08_operations_of_a_group_are_kept_with_one_launch",
            "inputs::t08_empty_groups_and_groups_before_any_communicator",
        ),
        ("groups on several communicators", ANSWER, "inputs::t08_two_communicators_two_kernels"),
        (
            "0 bytes, one rank",
            NAMED,
            "inputs::t09_empty_collectives_launch_nothing",
            "inputs::t09_empty_sends_are_kept",
            "inputs::t09_one_rank_has_no_messages",
        ),
        ("copy engines", "kept; no schedule", "inputs::t09_copy_engine_collectives_are_kept_and_have_no_schedule"),
        ("kernels outside of any call", NAMED, "inputs::t01_kernels_outside_of_any_range_are_counted"),
        (
            "several GPUs per process",
            ANSWER,
            "inputs::t07_calls_of_one_thread_go_to_devices_in_launch_order",
            "annotated::7_one_process_drives_two_gpus",
        ),
        ("CUDA graphs as a whole", REFUSED, "inputs::t10_graphs_as_a_whole_are_refused_with_the_flag"),
        ("CUDA graphs by node", "replays expanded", "inputs::t10_node_level_replays_are_expanded"),
    ],
    "Ranks and time": [
        (
            "a missing rank",
            "refused, or --allow-missing",
            "inputs::t11_missing_members_are_refused_or_named",
            "kineto::real_file_of_one_rank_of_two",
        ),
        ("one rank twice", REFUSED, "inputs::t11_one_rank_in_two_files"),
        (
            "ranks that did different things",
            "refused, with the place",
            "inputs::t11_different_operations_are_refused_with_their_place",
        ),
        (
            "a window that cuts ranks differently",
            NAMED,
            "inputs::t11_ranks_that_start_later_are_aligned",
            "inputs::t11_equal_operations_are_aligned_by_their_ends",
        ),
        (
            "records that a capture lost, in part",
            "named as a gap; above 5 % refused, or --allow-lost",
            "lost::few_lost_records_are_counted_exactly",
            "lost::a_reading_that_lost_much_is_refused_with_the_place_and_the_way_out",
            "lost::kineto_launches_without_a_kernel_are_named",
            "lost::lost_rows_are_named_refused_or_of_no_consequence",
        ),
        (
            "a capture without events or waits",
            "read by the order of streams, named as a gap",
            "lost::what_a_capture_does_without_leaves_the_other_reading",
        ),
        (
            "ranks with other grids, blocks, kernels or reductions",
            "named as a gap; above 5 % refused, or --allow-lost",
            "lost::ranks_that_disagree_are_refused_by_every_reading",
            "lost::kernels_that_contradict_their_call_are_named",
        ),
        (
            "what nsys says that it lost (DIAGNOSTIC_EVENT)",
            NAMED,
            "lost::diagnostics_of_nsys_are_read",
            "lost::the_counts_of_nsys_are_held_against_the_rows",
        ),
        (
            "clocks of hosts that differ",
            "no influence",
            "inputs::t12_host_clocks_do_not_matter",
            "golden::a_shift_of_one_clock_moves_times_alone",
        ),
        ("equal process ids on two hosts", ANSWER, "annotated::13_equal_process_ids_on_two_hosts"),
        (
            "--range, --iteration, --from, --to, profiling marks",
            ANSWER,
            "selection::instances_of_a_range_are_iterations",
            "selection::windows_of_time_count_from_the_first_activity",
        ),
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
    for title, rows in MATRIX.items():
        lines += ["", f"## {title}", "", "| trace | outcome | tests |", "|---|---|---|"]
        for what, outcome, *names in rows:
            names.sort()
            lines.append(f"| {what} | {outcome} | {', '.join(f'`{name}`' for name in names) or '-'} |")
    return "\n".join(lines) + "\n"


def test_page_is_current():
    assert PAGE.read_text("utf-8") == page(), "run: python tests/traces/test_trace_support.py"


@pytest.mark.parametrize("title", MATRIX)
def test_every_row_names_tests_that_exist(title):
    known = known_tests()
    for what, outcome, *names in MATRIX[title]:
        assert names or outcome.startswith("not read"), what
        assert set(names) <= known, what


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
