"""Tree AllReduce on symbolic data, its counts, chunks and timelines (facts/nccl_schedules.md 3, 7, 8.2, 9.3)."""

import random
from collections import Counter, defaultdict

import numpy as np
import pytest
from helpers.schedules import check, link_of, moved, nodes_of, run
from hypothesis import given
from hypothesis import strategies as st
from oracles.trees import BYTES, EventModel, Rows

from atlas_lp.errors import InputError, UnsupportedError
from atlas_lp.goal import CALC, RECV, SEND
from atlas_lp.signatures.algorithms.expand import expand, operation_count, slices
from atlas_lp.signatures.algorithms.tree import chunk_lengths, shrunk_ll128_chunk, tree_order, tree_signature
from atlas_lp.signatures.nccl.protocols import Protocol
from atlas_lp.signatures.signature import Signature, ring_signature
from atlas_lp.signatures.topology import TREE_PATTERNS, Tree, assumed_rings, assumed_trees

KIB, MIB = 1 << 10, 1 << 20
VERSIONS = ("2.18.5", "2.19.3", "2.20.5", "2.22.3", "2.23.4", "2.26.2", "2.29.1")


def signature_of(
    protocol: Protocol,
    size_bytes: int,
    nodes: int,
    per_node: int,
    channels: int = 1,
    nccl: str = "2.20.5",
    pattern: str = "balanced",
    element_bytes: int = 4,
) -> Signature:
    places = nodes_of(nodes, per_node)
    trees = assumed_trees(places, channels, pattern)
    return tree_signature(protocol, size_bytes, trees, places, nccl=nccl, element_bytes=element_bytes)


def interpret(signature: Signature, seed: int = 0) -> None:
    """Every rank must end with every chunk summed over all ranks, none counted twice, in order."""
    schedule = check(signature)
    everyone = (1 << signature.ranks) - 1
    roots = {part.channel: signature.trees[part.ring].parents.index(-1) for part in signature.parts}
    chunk_of: Counter[tuple[int, int, str]] = Counter()
    output: dict[tuple[int, int], list[int]] = defaultdict(list)

    def work(operation: int, received: list[tuple[int, object]]) -> object:
        rank, channel = int(schedule.rank[operation]), int(schedule.cpu[operation])
        downwards = {link_of(schedule, recv) % 2 for recv, _ in received} == {1}
        where = (rank, channel, "down" if downwards else "up")
        chunk, total = chunk_of[where], 0 if downwards else 1 << rank
        chunk_of[where] += 1
        for _, value in received:
            number, mask = value  # type: ignore[misc]
            assert number == chunk
            assert not mask & total
            total |= mask
        if downwards or rank == roots[channel]:
            output[rank, channel].append(total)
        return chunk, total

    run(schedule, work, seed)
    for part in signature.parts:
        lengths = chunk_lengths(signature, part)
        assert int(lengths.sum()) == part.count
        for rank in range(signature.ranks):
            assert output[rank, part.channel] == [everyone] * len(lengths)


@given(
    st.sampled_from(Protocol),
    st.integers(1, 6),
    st.integers(1, 4),
    st.integers(1, 4),
    st.sampled_from(VERSIONS),
    st.sampled_from(TREE_PATTERNS),
    st.sampled_from([1, 2, 4, 8]),
    st.sampled_from([1, 7, 1000, 8192, 100_003, 524_288]) | st.integers(1, 400_000),
)
def test_all_ranks_hold_the_sum(
    protocol: Protocol,
    nodes: int,
    per_node: int,
    channels: int,
    nccl: str,
    pattern: str,
    element_bytes: int,
    elements: int,
) -> None:
    if nodes * per_node == 1:
        nodes = 2
    interpret(signature_of(protocol, elements * element_bytes, nodes, per_node, channels, nccl, pattern, element_bytes))


def test_many_chunks_keep_their_order_through_the_fifo() -> None:
    interpret(signature_of(Protocol.LL, 700 * KIB, 3, 2))


def test_a_recorded_tree_of_any_shape() -> None:
    places = nodes_of(2, 3)
    tree = Tree.of_children([[3], [0, 5, 2], [], [4], [], []])
    interpret(tree_signature(Protocol.SIMPLE, MIB + 4, [tree], places, nccl="2.22"))


@pytest.mark.parametrize(
    ("protocol", "size", "channels", "nodes", "sends"),
    [
        (Protocol.SIMPLE, 128 * MIB, 1, 16, 32_256),
        (Protocol.SIMPLE, 128 * MIB, 8, 16, 32_256),
        (Protocol.LL, 64 * KIB, 2, 16, 252),
    ],
)
def test_counts_of_the_specification(protocol: Protocol, size: int, channels: int, nodes: int, sends: int) -> None:
    schedule = expand(signature_of(protocol, size, nodes, 4, channels))
    leaves = nodes
    chunks = sends // (2 * (4 * nodes - 1))
    assert schedule.count(SEND) == schedule.count(RECV) == sends
    # The specification counts no work for the first send and the last receive of a leaf; here both have a cost.
    n = 4 * nodes
    assert schedule.count(CALC) - 2 * leaves * chunks == ((n - leaves) + (n - leaves - 1)) * chunks


@pytest.mark.parametrize("nccl", VERSIONS)
@pytest.mark.parametrize("protocol", list(Protocol))
@pytest.mark.parametrize(("nodes", "per_node"), [(2, 1), (1, 2), (1, 5), (3, 1), (2, 3), (5, 4), (7, 2)])
def test_counts_equal_the_closed_form(nodes: int, per_node: int, protocol: Protocol, nccl: str) -> None:
    n = nodes * per_node
    for size, channels in ((1, 1), (7, 2), (100_003, 1), (3 * MIB + 1, 4)):
        signature = signature_of(protocol, 2 * size, nodes, per_node, channels, nccl, element_bytes=2)
        expected = 0
        for part in signature.parts:
            chunk = (part.chunk_bytes or signature.chunk_bytes) // 2
            leaves = sum(not own for own in signature.trees[part.ring].children())
            # One rank alone on its node or at the end of the chain of GPUs; alone at the root it still works.
            per_chunk = 4 * (n - 1) + 2 * (n - leaves) - 1 + 2 * leaves
            expected += -(-part.count // chunk) * per_chunk
        assert len(expand(signature)) == expected == operation_count(signature)
        assert sum(part.count for part in signature.parts) == size


def test_counts_of_thousands_of_ranks_need_no_expansion() -> None:
    n, leaves, chunks = 4096, 1024, 256
    signature = signature_of(Protocol.SIMPLE, 128 * MIB, 1024, 4)
    assert operation_count(signature) == (4 * (n - 1) + 2 * (n - leaves) - 1 + 2 * leaves) * chunks


def test_one_gpu_per_node_has_half_the_ranks_as_leaves() -> None:
    for nodes in (2, 3, 7, 16, 33):
        (tree,) = signature_of(Protocol.SIMPLE, 4, nodes, 1).trees
        assert sum(not own for own in tree.children()) == nodes // 2


@pytest.mark.parametrize("protocol", list(Protocol))
def test_bytes_on_the_wire(protocol: Protocol) -> None:
    signature = signature_of(protocol, 1_000_004, 3, 2, 2, "2.26")
    schedule = check(signature)
    expected = sum(int(protocol.wire_bytes(chunk_lengths(signature, part) * 4).sum()) for part in signature.parts)
    assert int(schedule.size[schedule.kind == SEND].sum()) == 2 * (signature.ranks - 1) * expected
    up = (schedule.kind == SEND) & ((schedule.tag >> 6) % 2 == 0)
    assert int(schedule.size[up].sum()) == (signature.ranks - 1) * expected


def test_ll128_chunks_shrink_until_the_tree_is_full() -> None:
    sequence = [shrunk_ll128_chunk(size, 1, 64, 16) for size in (1 << 30, 64 * MIB, 32 * MIB, 8 * MIB, MIB, 1)]
    assert sequence == sorted(sequence, reverse=True)
    assert set(sequence) <= {576_000 >> shift for shift in range(6)}
    assert (sequence[0], sequence[-1]) == (576_000, 18_000)
    # 16 nodes of 4: s = 1 + 4 + 0.4; first loop below 86.4 chunks, second below 21.6.
    assert shrunk_ll128_chunk(87 * 576_000, 1, 64, 16) == 576_000
    assert shrunk_ll128_chunk(87 * 576_000 - 1, 1, 64, 16) == 288_000
    assert shrunk_ll128_chunk(87 * 576_000 * 8, 8, 64, 16) == 576_000


def test_ll128_chunks_by_version() -> None:
    old = signature_of(Protocol.LL128, 16 * MIB, 4, 4, 2, "2.20.5")
    assert {part.chunk_bytes for part in old.parts} == {0}
    new = signature_of(Protocol.LL128, 1_000_000, 4, 4, 4, "2.22.3")
    assert new.chunk_bytes % 1920 == 0
    parts = signature_of(Protocol.LL128, 9 * MIB + 123_456, 16, 2, 3, "2.22.3").parts
    assert sum(part.count for part in parts) == (9 * MIB + 123_456) // 4


def test_chunks_of_219_are_divided_over_the_channels() -> None:
    signature = signature_of(Protocol.SIMPLE, MIB, 2, 4, 4, "2.19.3")
    grain = (640 - 64) * 64
    assert signature.chunk_bytes == -(-(MIB // 4) // grain) * grain
    assert sum(part.count for part in signature.parts) == MIB // 4


def test_signature_of_other_gpus_is_the_same() -> None:
    @given(st.integers(0, 999), st.integers(2, 4), st.integers(1, 3), st.integers(1, 4))
    def renaming(seed: int, nodes: int, per_node: int, channels: int) -> None:
        rng, places = random.Random(seed), nodes_of(nodes, per_node)
        trees = assumed_trees(places, channels)
        n = len(places)
        to = rng.sample(range(n), n)
        back = {new: old for old, new in enumerate(to)}

        def renamed(tree: Tree) -> Tree:
            parents = [tree.parents[back[rank]] for rank in range(n)]
            return Tree(
                tuple(to[parent] if parent >= 0 else -1 for parent in parents),
                tuple(tree.slots[back[rank]] for rank in range(n)),
            )

        names = moved(places, rng)
        one = tree_signature(Protocol.LL, 4096, trees, places, nccl="2.26")
        other = tree_signature(
            Protocol.LL, 4096, [renamed(t) for t in trees], [names[back[rank]] for rank in range(n)], nccl="2.26"
        )
        assert one == other
        assert one.key() == other.key()
        assert [to[rank] for rank in tree_order(trees)] == tree_order([renamed(t) for t in trees])

    renaming()


@pytest.mark.parametrize(
    "changes",
    [
        {"protocol": Protocol.LL},
        {"size_bytes": MIB + 4},
        {"pattern": "split"},
        {"channels": 2},
        {"nodes": 8, "per_node": 2},
    ],
)
def test_what_changes_the_graph_changes_the_key(changes: dict[str, object]) -> None:
    plain = {"protocol": Protocol.SIMPLE, "size_bytes": MIB, "nodes": 4, "per_node": 4}
    assert signature_of(**{**plain, **changes}).key() != signature_of(**plain).key()  # type: ignore[arg-type]


def test_a_tree_is_no_ring() -> None:
    places = nodes_of(2, 1)
    ring = ring_signature("AllReduce", Protocol.SIMPLE, 8, assumed_rings(places, 1), places, nccl="2.20")
    assert ring.key() != signature_of(Protocol.SIMPLE, 8, 2, 1).key()


def test_recorded_parts_win() -> None:
    places = nodes_of(2, 2)
    trees = assumed_trees(places, 4)
    given_parts = tree_signature(Protocol.LL, 4096, trees, places, nccl="2.20", parts=[(1, 1000), (3, 24)])
    assert [(part.channel, part.count) for part in given_parts.parts] == [(1, 1000), (3, 24)]
    with pytest.raises(InputError, match="hold 1000 of 1024"):
        tree_signature(Protocol.LL, 4096, trees, places, nccl="2.20", parts=[(1, 1000)])


def test_a_few_ranks_can_be_expanded_alone() -> None:
    signature = signature_of(Protocol.SIMPLE, 3 * MIB, 5, 3, 2)
    whole = slices(signature)
    for rank in range(signature.ranks):
        alone = slices(signature, labels=np.array([rank]))
        mine = whole.rank == rank
        assert Counter(zip(alone.channel, alone.chain, alone.step, alone.cost_ns, strict=True)) == Counter(
            zip(*(column[mine] for column in (whole.channel, whole.chain, whole.step, whole.cost_ns)), strict=True)
        )
        for one, all_of in ((alone.sends, whole.sends), (alone.receives, whole.receives)):
            owned = whole.rank[all_of.slice] == rank
            assert Counter(zip(one.peer, one.link, one.wire, strict=True)) == Counter(
                zip(all_of.peer[owned], all_of.link[owned], all_of.wire[owned], strict=True)
            )


@pytest.mark.parametrize(
    ("changes", "error", "said"),
    [
        ({"trees": []}, InputError, "at least one channel"),
        ({"trees": [Tree((-1, 0), (0, 0))]}, InputError, "join all 4 ranks"),
        ({"size_bytes": 0}, InputError, "moves nothing"),
        ({"size_bytes": 6}, InputError, "whole number of 4-byte"),
        ({"element_bytes": 3}, InputError, "no datatype"),
        ({"nccl": "2.17"}, UnsupportedError, r"2\.17"),
    ],
)
def test_refusals(changes: dict[str, object], error: type[InputError], said: str) -> None:
    places = nodes_of(2, 2)
    plain = {"protocol": Protocol.LL, "size_bytes": 8, "trees": assumed_trees(places, 1), "nccl": "2.20"}
    with pytest.raises(error, match=said):
        tree_signature(node_of_rank=places, **{**plain, **changes})  # type: ignore[arg-type]


def rows_of(signature: Signature) -> tuple[Rows, Rows, Rows]:
    """The slices of a tree as the simulation wants it: slices, receives, sends."""
    p = slices(signature)
    columns = [(p.rank, p.chain, p.step), *((ends.slice, ends.peer, ends.link) for ends in (p.receives, p.sends))]
    own, receives, sends = (list(zip(*(c.tolist() for c in three), strict=True)) for three in columns)
    return own, receives, sends


def timelines(nodes: int, pattern: str, chunks: int, shared: bool) -> tuple[int, int, int]:
    """Classes of equal timelines: up, down, both; the root has one line for the two."""
    signature = signature_of(Protocol.SIMPLE, chunks * BYTES, nodes, 4, pattern=pattern)
    model = EventModel(*rows_of(signature), signature.nodes, shared)
    lines: dict[int, dict[int, tuple[float, ...]]] = {0: {}, 1: {}}
    for first in range(0, len(model.rank), chunks):
        line = tuple(round(time, 4) for time in model.end[first : first + chunks])
        lines[model.chain[first]][model.rank[first]] = line
    up, down = lines[0], {**lines[0], **lines[1]}
    return len(set(up.values())), len(set(down.values())), len({(up[r], down[r]) for r in up})


@pytest.mark.parametrize(
    ("nodes", "pattern", "chunks", "shared", "classes"),
    [
        (16, "tree", 1, False, (8, 20, 20)),
        (16, "tree", 8, False, (8, 20, 20)),
        (16, "tree", 8, True, (8, 44, 44)),
        (16, "tree", 9, True, (10, 44, 44)),
        (16, "tree", 32, False, (17, 20, 20)),
        (16, "tree", 32, True, (20, 64, 64)),
        (16, "balanced", 4, False, (11, 32, 44)),
        (16, "balanced", 4, True, (11, 32, 44)),
        (16, "balanced", 32, False, (21, 32, 46)),
        (16, "balanced", 32, True, (26, 64, 64)),
        (64, "tree", 8, True, (10, 88, 88)),
        (64, "tree", 32, False, (25, 28, 28)),
        (64, "balanced", 4, False, (15, 58, 88)),
        (14, "tree", 8, True, (8, 40, 40)),
        (100, "tree", 8, True, (11, 104, 105)),
    ],
)
def test_classes_of_equal_timelines(
    nodes: int, pattern: str, chunks: int, shared: bool, classes: tuple[int, int, int]
) -> None:
    assert timelines(nodes, pattern, chunks, shared) == classes
