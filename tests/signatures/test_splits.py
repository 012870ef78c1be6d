"""How bytes spread over channels, by NCCL version."""

import pytest
from hypothesis import given, reject
from hypothesis import strategies as st

from atlas_lp.errors import UnsupportedError
from atlas_lp.signatures.nccl.collectives import WITH_KERNEL
from atlas_lp.signatures.nccl.protocols import Protocol
from atlas_lp.signatures.nccl.splits import PartList, Task, split
from atlas_lp.signatures.nccl.versions import SPLIT_RULES, split_rule

SIMPLE, LL = Protocol.SIMPLE, Protocol.LL

EVEN = {
    "128 MiB fp32": (Task("AllReduce", SIMPLE, 1 << 25, 4, 8, 544), [1 << 22] * 8),
    "1 MiB fp32": (Task("AllReduce", SIMPLE, 1 << 18, 4, 8, 544), [1 << 15] * 8),
}
BF16 = Task("AllReduce", SIMPLE, 10_000_000, 2, 8, 544)
SMALL_LL = Task("AllReduce", LL, 4096, 4, 8, 512)


@pytest.mark.parametrize("rule", SPLIT_RULES)
@pytest.mark.parametrize("case", EVEN)
def test_round_sizes_split_evenly(rule: str, case: str) -> None:
    task, counts = EVEN[case]
    assert split(rule, [task], 8, 64) == [list(enumerate(counts))]


@pytest.mark.parametrize(
    ("rule", "task", "counts"),
    [
        ("2.20", BF16, [1_251_328] * 7 + [1_240_704]),
        ("2.22", BF16, [1_250_000] * 8),
        ("2.23", BF16, [1_253_376] * 7 + [1_226_368]),
        ("2.26", BF16, [1_253_376] * 7 + [1_226_368]),
        ("2.29", BF16, [1_253_376] * 7 + [1_226_368]),
        ("2.20", SMALL_LL, [1024] * 4),
        ("2.22", SMALL_LL, [512] * 8),
        ("2.23", SMALL_LL, [2048] * 2),
        ("2.26", SMALL_LL, [512] * 8),
        ("2.29", SMALL_LL, [1024] * 4),
    ],
)
def test_the_published_examples(rule: str, task: Task, counts: list[int]) -> None:
    assert split(rule, [task], 8, 64) == [list(enumerate(counts))]


def test_a_tiny_allgather_on_few_channels_is_refused_under_222() -> None:
    tiny = Task("AllGather", SIMPLE, 26, 1, 2, 544)
    with pytest.raises(UnsupportedError, match=r"NCCL 2\.22 names channel 2 of 2"):
        split("2.22", [tiny], 2, 512)
    assert split("2.23", [tiny], 2, 512) == [[(0, 26)]]


def test_222_may_use_one_channel_more_than_chosen() -> None:
    parts = split("2.22", [Task("AllReduce", SIMPLE, 1001, 1, 1, 544)], 4, 8)[0]
    assert [channel for channel, _ in parts] == [0, 1]
    assert len(split("2.23", [Task("AllReduce", SIMPLE, 1001, 1, 1, 544)], 4, 8)[0]) == 1


def test_operations_of_a_group_lie_end_to_end() -> None:
    big, small = Task("AllReduce", SIMPLE, 1 << 20, 4, 2, 544), Task("AllReduce", SIMPLE, 1 << 19, 4, 2, 544)
    assert split("2.20", [big, small], 4, 8) == [
        [(0, 393_216), (1, 393_216), (2, 262_144)],
        [(2, 131_072), (3, 393_216)],
    ]


@st.composite
def groups(draw: st.DrawFn) -> tuple[list[Task], int, int]:
    """Up to seven operations with the channels and ranks of their communicator."""
    channels = draw(st.integers(1, 32))
    task = st.builds(
        Task,
        st.sampled_from(WITH_KERNEL),
        st.sampled_from(Protocol),
        st.integers(1, 100) | st.integers(1, 1 << 17) | st.integers(1, (1 << 25) + 17),
        st.sampled_from([1, 2, 4, 8]),
        st.integers(1, channels),
        st.sampled_from([96, 256, 512, 544, 640]),
    )
    tasks = draw(st.lists(task, min_size=1, max_size=7))
    return tasks, channels, draw(st.sampled_from([2, 3, 4, 8, 64, 512, 4096]))


def parts_of(rule: str, tasks: list[Task], channels: int, ranks: int) -> list[PartList]:
    """The parts; cases that 2.22 refuses do not count as cases."""
    try:
        return split(rule, tasks, channels, ranks)
    except UnsupportedError:
        assert rule == "2.22"
        reject()


@pytest.mark.parametrize("rule", SPLIT_RULES)
@given(group=groups())
def test_parts_cover_every_operation_on_channels_that_exist(rule: str, group: tuple[list[Task], int, int]) -> None:
    tasks, channels, ranks = group
    for task, parts in zip(tasks, parts_of(rule, tasks, channels, ranks), strict=True):
        numbers, counts = zip(*parts, strict=True)
        assert sum(counts) == task.count
        assert min(counts) > 0
        assert list(numbers) == sorted(set(numbers))
        assert 0 <= numbers[0] <= numbers[-1] < channels


@pytest.mark.parametrize("rule", ["2.20", "2.23", "2.26", "2.29"])
@given(group=groups())
def test_one_operation_uses_no_more_channels_than_chosen(rule: str, group: tuple[list[Task], int, int]) -> None:
    (task, *_), channels, ranks = group
    assert len(split(rule, [task], channels, ranks)[0]) <= task.channels


@given(group=groups())
def test_220_rounds_all_parts_but_the_last_to_its_alignment(group: tuple[list[Task], int, int]) -> None:
    (task, *_), channels, _ = group
    alignment = {
        Protocol.SIMPLE: 4096 // task.element_bytes,
        Protocol.LL: 8 // task.element_bytes * task.threads,
        Protocol.LL128: 480 // task.element_bytes * (task.threads // 32),
    }[task.protocol]
    counts = [count for _, count in split("2.20", [task], channels, 8)[0]]
    assert len(set(counts[:-1])) <= 1
    assert all(count % alignment == 0 for count in counts[:-1])


@pytest.mark.parametrize(
    ("version", "rule"),
    [
        ("2.20", "2.20"),
        ("2.20.5", "2.20"),
        ("2.21.5", "2.20"),
        ("2.22.3", "2.22"),
        ("2.23.4", "2.23"),
        ("2.25.1", "2.23"),
        ("2.26.2", "2.26"),
        ("2.28.9", "2.26"),
        ("2.29.1", "2.29"),
        ("2.30.7-1", "2.29"),
    ],
)
def test_rules_hold_until_the_next(version: str, rule: str) -> None:
    assert split_rule(version) == rule


NONE = ("2.²", "2.28²", "2.28.9²", "²", "9" * 5000, f"2.{'9' * 5000}", f"2.28.{'9' * 5000}")
"""What only looks like a version."""


@pytest.mark.parametrize("version", ["1.3", "2.31.0", "3.0", "2", "", "latest", "v2.20", *NONE])
def test_unknown_versions_are_refused(version: str) -> None:
    with pytest.raises(UnsupportedError, match="NCCL"):
        split_rule(version)
