"""GOAL text: every rule of the grammar, errors with line and column, and the files of the reference tools."""

from fractions import Fraction
from pathlib import Path

import pytest
import zstandard
from helpers.graphs import assert_same_schedule, dependencies_of, fabric, schedule_of, schedules
from hypothesis import given, settings

from atlas_lp.errors import CycleError, GoalError, OutputError
from atlas_lp.goal import CALC, RECV, SEND, Schedule, event_graph, parse_goal, read_goal, write_goal
from atlas_lp.goal.text import goal_lines
from atlas_lp.solver.axis import point
from atlas_lp.solver.longest_path import Evaluator

HEAD = "num_ranks 2\nrank 0 {\n"
TAIL = "}\nrank 1 {\n}\n"


def in_block(*lines: str) -> str:
    """A file of two ranks; *lines* fill the block of rank 0 and start at line 3."""
    return HEAD + "".join(line + "\n" for line in lines) + TAIL


def makespan(schedule: Schedule, latency: int, o: int, g: int, gap: int) -> Fraction:
    chosen = fabric(latency, gap, o, g)
    return Evaluator(event_graph(schedule), chosen.theta()).at(point(chosen.latency_ns, chosen.gap_ns_per_byte)).time_ns


EXAMPLE = """\
num_ranks 2
rank 0 {
l1: calc 1000
l2: send 4b to 1 tag 7 cpu 1 nic 2
l2 requires l1
l3: calc 0 cpu 3
l3 irequires l2
}
rank 1 {
l1: recv 4b from 0 tag 7 cpu 0 nic 0
}
"""


def test_the_columns_of_an_example() -> None:
    schedule = parse_goal(EXAMPLE)
    rows = [
        (0, CALC, 1000, -1, 0, 0, 0),
        (0, SEND, 4, 1, 7, 1, 2),
        (0, CALC, 0, -1, 0, 3, 0),
        (1, RECV, 4, 0, 7, 0, 0),
    ]
    assert_same_schedule(schedule, schedule_of(2, rows, [(0, 1, False), (1, 2, True)]))
    assert [schedule.count(kind) for kind in (CALC, SEND, RECV)] == [2, 1, 1]
    assert schedule.block_position().tolist() == [0, 1, 2, 0]
    assert schedule.name(1) == "rank 0 operation 2 (send 4b to 1 tag 7)"
    assert schedule.name(3) == "rank 1 operation 1 (recv 4b from 0 tag 7)"


def test_the_writer_writes_the_example() -> None:
    written = "".join(goal_lines(parse_goal(EXAMPLE)))
    assert written == EXAMPLE.replace("calc 1000\n", "calc 1000 cpu 0\n")


@pytest.mark.parametrize(
    ("line", "row"),
    [
        ("calc 5", (0, CALC, 5, -1, 0, 0, 0)),
        ("calc 5 cpu 255", (0, CALC, 5, -1, 0, 255, 0)),
        ("calc\t5\tcpu\t1\t ", (0, CALC, 5, -1, 0, 1, 0)),
        ("calc 0005", (0, CALC, 5, -1, 0, 0, 0)),
        ("send 4b to 1", (0, SEND, 4, 1, 0, 0, 0)),
        ("send 4 b to 1", (0, SEND, 4, 1, 0, 0, 0)),
        ("send 4b to 1 tag 7", (0, SEND, 4, 1, 7, 0, 0)),
        ("send 4b to 1 cpu 2", (0, SEND, 4, 1, 0, 2, 0)),
        ("send 4b to 1 nic 3", (0, SEND, 4, 1, 0, 0, 3)),
        ("send 4b to 1 tag 7 nic 3", (0, SEND, 4, 1, 7, 0, 3)),
        ("send 4b to 1 tag 7 cpu 2 nic 3", (0, SEND, 4, 1, 7, 2, 3)),
        ("recv 4b from 1 tag 7 cpu 2 nic 3", (0, RECV, 4, 1, 7, 2, 3)),
        ("send 0b to 0", (0, SEND, 0, 0, 0, 0, 0)),
        ("send 4294967297b to 1", (0, SEND, 2**32 + 1, 1, 0, 0, 0)),
        ("send 9223372036854775807b to 1", (0, SEND, 2**63 - 1, 1, 0, 0, 0)),
        ("send 4b to 1 tag 4294967295", (0, SEND, 4, 1, 2**32 - 1, 0, 0)),
        ("l1: calc 5", (0, CALC, 5, -1, 0, 0, 0)),
        ("l1:calc 5", (0, CALC, 5, -1, 0, 0, 0)),
        ("l1 \t: \tcalc 5", (0, CALC, 5, -1, 0, 0, 0)),
        ("rank1: calc 5", (0, CALC, 5, -1, 0, 0, 0)),
        ("sendx: calc 5", (0, CALC, 5, -1, 0, 0, 0)),
        ("A_9_z: calc 5", (0, CALC, 5, -1, 0, 0, 0)),
    ],
)
def test_operations(line: str, row: tuple[int, ...]) -> None:
    assert_same_schedule(parse_goal(in_block(line)), schedule_of(2, [row]))


@pytest.mark.parametrize(
    "text",
    [
        in_block("", "calc 5", "", ""),
        in_block("// calc 6", "calc 5", "//"),
        in_block("/* calc 6 */", "calc 5", "/* several", "calc 7", "lines */"),
        "// first\n\n" + in_block("calc 5"),
        in_block("calc 5").replace("\n", "\r\n"),
        in_block("calc 5").rstrip("\n"),
        in_block("calc 5").replace("rank 1 {", "\n\nrank 1{"),
        in_block("calc 5").replace("num_ranks 2", "num_ranks\t2  "),
    ],
)
def test_lines_that_say_nothing(text: str) -> None:
    assert_same_schedule(parse_goal(text), schedule_of(2, [(0, CALC, 5, -1, 0, 0, 0)]))


def test_labels_belong_to_one_block() -> None:
    schedule = parse_goal("num_ranks 2\nrank 0 {\na: calc 1\n}\nrank 1 {\na: calc 2\nb: calc 3\nb requires a\n}\n")
    assert dependencies_of(schedule) == {(1, 2, False)}


@pytest.mark.parametrize(
    ("lines", "line", "column", "said"),
    [
        # where a statement starts
        ([" l1: calc 5"], 3, 1, "starts in column 1"),
        (["\tcalc 5"], 3, 1, "starts in column 1"),
        (["calc 1", "  l1: calc 5"], 4, 1, "starts in column 1"),
        # one statement a line, no comment after it
        (["l1: calc 5 }"], 3, 12, "'}'"),
        (["calc 5 calc 6"], 3, 8, "'calc'"),
        (["calc 5 // five"], 3, 8, "'//'"),
        (["calc 5 /* five */"], 3, 8, "'/*'"),
        (["/* five */ calc 5"], 3, 11, "a statement after a comment"),
        # numbers
        (["calc 1.5"], 3, 7, "'.5'"),
        (["calc -5"], 3, 6, "'-5'"),
        (["calc x"], 3, 6, "'x'"),
        (["send -4b to 1"], 3, 6, "'-4b'"),
        (["send 4 to 1"], 3, 8, "'to'"),
        (["send 4b to 1 tag x"], 3, 18, "'x'"),
        (["calc 9223372036854775808"], 3, 1, "9223372036854775808 does not fit 64 bits"),
        (["send 4b to 1 tag 4294967296"], 3, 18, "tag 4294967296 does not fit 32 bits"),
        # the order of fields
        (["calc 5 nic 1"], 3, 8, "'nic'"),
        (["send 4b to 1 nic 0 cpu 0"], 3, 20, "'cpu'"),
        (["l1: send 4b to 1 cpu 0 tag 3"], 3, 24, "'tag'"),
        (["send 4b to 1 tag 1 tag 2"], 3, 20, "'tag'"),
        (["send 4b to 1 bus 1"], 3, 14, "'bus'"),
        # partners
        (["send 4b from 1"], 3, 9, "send takes 'to'"),
        (["recv 4b to 1"], 3, 9, "recv takes 'from'"),
        (["recv 4b from -1"], 3, 14, "a wildcard (-1) has no fixed partner"),
        (["send 4b to -1"], 3, 12, "a wildcard (-1) has no fixed partner"),
        (["recv 4b from 1 tag -1"], 3, 20, "a wildcard (-1) has no fixed partner"),
        (["send 4b to 2"], 3, 12, "rank 2 does not exist: num_ranks is 2"),
        # labels and dependencies
        (["1l: calc 5"], 3, 1, "'1l:'"),
        (["_l: calc 5"], 3, 1, "'_l:'"),
        (["a: calc 5", "a : calc 6"], 4, 1, "label a is defined twice"),
        (["a: calc 5", "a requires b"], 4, 12, "label b is not defined above"),
        (["a requires b", "b: calc 5"], 3, 1, "label a is not defined above"),
        (["a: calc 5", "b  irequires a"], 4, 1, "label b is not defined above"),
        (["calc: calc 5"], 3, 1, "calc"),
        (["send: calc 5"], 3, 1, "send"),
        (["requires: calc 5"], 3, 1, "requires"),
        (["a: calc 5", "a requires a b"], 4, 14, "'b'"),
        # no statement at all
        (["compute 5"], 3, 1, "'compute'"),
        (["calc5"], 3, 1, "'calc5'"),
        (["rank 1 {"], 3, 1, "'rank'"),
        (["num_ranks 2"], 3, 1, "'num_ranks'"),
        # comments that hide a statement or never end
        (["/* two", "lines */ a: calc 5", "/* x */", "calc 1"], 4, 9, "a statement after a comment"),
    ],
)
def test_errors_in_a_block(lines: list[str], line: int, column: int, said: str) -> None:
    with pytest.raises(GoalError) as caught:
        parse_goal(in_block(*lines), "x.goal")
    assert str(caught.value).startswith(f"x.goal, line {line}, column {column}: ")
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("text", "line", "column", "said"),
    [
        ("", 1, 1, "no 'num_ranks N' line"),
        ("hello\n", 1, 1, "'hello'"),
        ("num_ranks two\n", 1, 11, "'two'"),
        ("num_ranks -1\n", 1, 11, "'-1'"),
        ("rank 0 {\n}\n", 1, 1, "'num_ranks N' must come before"),
        ("num_ranks 1\nnum_ranks 1\n", 2, 1, "'num_ranks'"),
        ("num_ranks 1\n rank 0 {\n", 2, 1, "starts in column 1"),
        ("num_ranks 1\nrank 0 {\ncalc 1\n }\n", 4, 1, "starts in column 1"),
        ("num_ranks 1\nrank 0 { calc 1\n}\n", 2, 10, "'calc'"),
        ("num_ranks 2\nrank 1 {\ncalc 1\n}\n", 2, 6, "expected the block of rank 0 of 2, found rank 1"),
        ("num_ranks 2\nrank 0 {\n}\nrank 0 {\n}\n", 4, 6, "expected the block of rank 1 of 2, found rank 0"),
        ("num_ranks 1\nrank 0 {\n}\nrank 1 {\n}\n", 4, 6, "expected the block of rank 1 of 1, found rank 1"),
        ("num_ranks 2\nrank 0 {\ncalc 1\n}\n", 5, 1, "num_ranks is 2, but the last block is of rank 0"),
        ("num_ranks 1\nrank 0 {\ncalc 1\n", 4, 1, "the block of rank 0 is not closed"),
        ("num_ranks 1\nrank 0 {\n}\n", 4, 1, "no operations"),
        ("num_ranks 0\n", 2, 1, "no operations"),
        ("num_ranks 1\nrank 0 {\ncalc 1\n}\n/* cut", 6, 1, "comment"),
    ],
)
def test_errors_around_blocks(text: str, line: int, column: int, said: str) -> None:
    with pytest.raises(GoalError) as caught:
        parse_goal(text, "x.goal")
    assert str(caught.value).startswith(f"x.goal, line {line}, column {column}: ")
    assert said in str(caught.value)


@pytest.mark.parametrize("line", ["calc", "calc 5 cpu", "send 4b to", "send 4b to 1 tag", "a:", "a requires", "a"])
def test_statements_that_end_too_early(line: str) -> None:
    with pytest.raises(GoalError, match=r"^x\.goal, line 4, column .*expected an operation"):
        parse_goal(in_block("a0: calc 5", line), "x.goal")


@pytest.mark.parametrize("line", ["num_ranks", "rank", "rank 0"])
def test_block_lines_that_end_too_early(line: str) -> None:
    with pytest.raises(GoalError, match=r"^x\.goal, line 1, column .*expected 'num_ranks N' or 'rank R \{'"):
        parse_goal(line + "\n{\n}\n", "x.goal")


def test_cycles_are_left_to_the_graph() -> None:
    schedule = parse_goal(in_block("a: calc 1", "b: calc 1", "b requires a", "a requires b"))
    with pytest.raises(CycleError):
        event_graph(schedule)


def test_an_operation_may_require_a_later_one() -> None:
    schedule = parse_goal(in_block("a: calc 1", "b: calc 1", "a requires b"))
    assert dependencies_of(schedule) == {(1, 0, False)}
    assert_same_schedule(parse_goal("".join(goal_lines(schedule))), schedule)


@given(schedules())
def test_what_is_written_reads_back(schedule: Schedule) -> None:
    assert_same_schedule(parse_goal("".join(goal_lines(schedule))), schedule)


@given(schedules())
@settings(max_examples=10)
def test_files_and_compressed_files(tmp_path_factory: pytest.TempPathFactory, schedule: Schedule) -> None:
    folder = tmp_path_factory.mktemp("goal")
    for name in ("x.goal", "x.goal.zst"):
        write_goal(schedule, folder / name)
        assert_same_schedule(read_goal(folder / name), schedule)
    assert sorted(path.name for path in folder.iterdir()) == ["x.goal", "x.goal.zst"]
    plain = zstandard.ZstdDecompressor().stream_reader((folder / "x.goal.zst").read_bytes()).read()
    assert plain == (folder / "x.goal").read_bytes()


def test_compressed_files_may_have_several_frames(tmp_path: Path) -> None:
    half = len(EXAMPLE) // 2
    frames = [zstandard.compress(part.encode()) for part in (EXAMPLE[:half], EXAMPLE[half:])]
    (tmp_path / "x.goal.zst").write_bytes(b"".join(frames))
    assert_same_schedule(read_goal(tmp_path / "x.goal.zst"), parse_goal(EXAMPLE))


def test_files_that_are_no_goal_text(tmp_path: Path) -> None:
    compressed = zstandard.compress(EXAMPLE.encode() * 100)
    for name, content, said in [
        ("binary.goal", b"\x7f\x10\x00\xff", "not GOAL text"),
        ("plain.goal.zst", EXAMPLE.encode(), "not a complete zstd file"),
        ("cut.goal.zst", compressed[: len(compressed) // 2], ""),
    ]:
        path = tmp_path / name
        path.write_bytes(content)
        with pytest.raises(GoalError) as caught:
            read_goal(path)
        assert str(caught.value).startswith(str(path))
        assert said in str(caught.value)
    with pytest.raises(GoalError, match="cannot be read"):
        read_goal(tmp_path / "missing.goal")
    with pytest.raises(OutputError, match="cannot be written"):
        write_goal(parse_goal(EXAMPLE), tmp_path / "nowhere" / "x.goal")


def one_message(*sends: str, then: str = "") -> Schedule:
    """Rank 0 sends, rank 1 receives in the same order and then computes."""
    receives = [s.replace("send", "recv").replace("to 1", "from 0") for s in sends]
    after = [f"c: calc {then}", "c requires r0"] if then else []
    rank_1 = [f"r{i}: {line}" for i, line in enumerate(receives)] + after
    return parse_goal("\n".join(["num_ranks 2", "rank 0 {", *sends, "}", "rank 1 {", *rank_1, "}"]))


@pytest.mark.parametrize(
    ("schedule", "parameters", "ns"),
    [
        (one_message("send 101b to 1", then="7"), (1000, 0, 0, 1), 1107),
        (one_message("send 101b to 1"), (1000, 200, 5, 3), 1700),
        (one_message("send 101b to 1", "send 101b to 1"), (1000, 0, 5, 3), 1605),
        (one_message("send 101b to 1", "send 101b to 1"), (1000, 0, 0, 1), 1200),
        (one_message("send 5000000000b to 1"), (1000, 0, 0, 1), 5_000_000_999),
        # LogGOPSim says 2200: its receiver's cpu is busy for (s-1) G of the first message (facts: 9.2).
        (one_message("send 101b to 1", "send 101b to 1"), (1000, 200, 5, 3), 2005),
    ],
)
def test_messages_of_the_reference_simulator(
    schedule: Schedule, parameters: tuple[int, int, int, int], ns: int
) -> None:
    assert makespan(schedule, *parameters) == ns


DEFAULTS = (2500, 1500, 1000, 6)
"""L, o, g, G of LogGOPSim."""


@pytest.mark.parametrize(
    ("name", "parameters", "ns"),
    [
        ("binary_tree_32.goal", (1000, 0, 0, 1), 5000),
        ("binary_tree_32.goal", DEFAULTS, 27_500),
        # LogGOPSim says 5003: its receive starts when the cpu is free and then takes (s-1) G = 3 ns more, even
        # though the message came long before.  As LogGP is published, the body is in the message alone.
        ("blocking.goal", (1000, 0, 0, 1), 5000),
        ("blocking.goal", DEFAULTS, 8518),
        ("non_blocking.goal", (1000, 0, 0, 1), 7000),
        ("non_blocking.goal", DEFAULTS, 8518),
    ],
)
def test_files_of_the_reference_tools(
    data_dir: Path, name: str, parameters: tuple[int, int, int, int], ns: int
) -> None:
    assert makespan(read_goal(data_dir / "goal" / name), *parameters) == ns


def test_real_files_read_back(data_dir: Path, tmp_path: Path) -> None:
    files = sorted((data_dir / "goal").glob("*.goal"))
    assert len(files) == 3
    for path in files:
        schedule = read_goal(path)
        write_goal(schedule, tmp_path / path.name)
        assert_same_schedule(read_goal(tmp_path / path.name), schedule)
