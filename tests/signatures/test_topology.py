"""Rings and trees as NCCL builds them."""

import networkx as nx
import pytest
from helpers.schedules import nodes_of
from hypothesis import given
from hypothesis import strategies as st

from atlas_lp.errors import InputError
from atlas_lp.signatures.topology import (
    TREE_PATTERNS,
    Tree,
    assumed_rings,
    assumed_trees,
    double_binary_tree,
)

FOURTEEN = {0: [8], 2: [1, 3], 4: [2, 6], 6: [5, 7], 8: [4, 12], 10: [9, 11], 12: [10, 13]}


def depth(tree: Tree) -> int:
    found = 0
    for rank in range(len(tree.parents)):
        hops = 0
        while tree.parents[rank] >= 0:
            rank, hops = tree.parents[rank], hops + 1
        found = max(found, hops)
    return found


def test_binary_tree_of_fourteen_nodes() -> None:
    tree = double_binary_tree([[node] for node in range(14)], 0, "tree")
    assert tree.children() == [FOURTEEN.get(node, []) for node in range(14)]


def test_second_tree_is_mirrored_or_shifted() -> None:
    even = double_binary_tree([[node] for node in range(14)], 1, "tree")
    assert even.children()[13] == [13 - 8]
    assert even.children()[5] == [13 - 4, 13 - 12]
    odd = double_binary_tree([[node] for node in range(5)], 1, "tree")
    assert odd.parents[1] == -1
    assert odd.children()[1] == [0]  # node 0 plays 4, the only child of the root


@pytest.mark.parametrize(
    ("pattern", "depths"), [("tree", (4, 5, 7, 8, 9, 11, 13)), ("balanced", (4, 6, 10, 12, 14, 18, 22))]
)
def test_depth_in_hops(pattern: str, depths: tuple[int, ...]) -> None:
    for nodes, expected in zip((2, 4, 16, 17, 64, 256, 1024), depths, strict=True):
        assert [depth(tree) for tree in assumed_trees(nodes_of(nodes, 4), 2, pattern)] == [expected, expected]


@given(st.integers(1, 70), st.sampled_from([1, 2, 3, 4, 8]), st.sampled_from(TREE_PATTERNS), st.integers(1, 8))
def test_trees_join_all_ranks(nodes: int, per_node: int, pattern: str, channels: int) -> None:
    trees = assumed_trees(nodes_of(nodes, per_node), channels, pattern)
    assert len(trees) == channels
    for tree in trees:
        graph = nx.DiGraph((parent, rank) for rank, parent in enumerate(tree.parents) if parent >= 0)
        graph.add_nodes_from(range(nodes * per_node))
        assert nx.is_arborescence(graph)
        children = tree.children()
        assert max(len(own) for own in children) <= 3
        assert len(children[tree.parents.index(-1)]) <= 2
        assert sorted(tree.preorder()) == list(range(nodes * per_node))


@pytest.mark.parametrize(("pattern", "first", "second"), [("tree", 0, 0), ("balanced", 1, 0), ("split", 1, 1)])
def test_gpu_that_receives_a_child_node(pattern: str, first: int, second: int) -> None:
    (tree,) = assumed_trees(nodes_of(14, 4), 1, pattern)
    # Node 4 has children 2 (first, smaller) and 6.
    assert (tree.parents[8], tree.parents[24]) == (16 + first, 16 + second)
    # The only child of the root has a larger number, so it counts as second.
    assert tree.parents[32] == second
    assert tree.children()[16][0] == 17  # the chain inside the node comes first


def test_channels_of_a_half_turn_gpus_and_halves_share_them() -> None:
    trees = assumed_trees(nodes_of(4, 4), 4)
    assert [tree.parents.index(-1) for tree in trees] == [0, 1, 12, 13]


def test_unknown_pattern() -> None:
    with pytest.raises(InputError, match="'star' is no tree pattern: choose one of tree, balanced, split"):
        assumed_trees([0, 1], 1, "star")


def test_rings_turn_inside_nodes() -> None:
    assert assumed_rings([0, 0, 1, 1, 0], 2) == [[0, 1, 4, 2, 3], [1, 4, 0, 3, 2]]


@pytest.mark.parametrize(
    ("children", "said"),
    [
        ([[1], [0]], "cycle"),
        ([[1, 1], []], "rank 1 twice"),
        ([[2], []], "or it does not exist"),
    ],
)
def test_broken_trees(children: list[list[int]], said: str) -> None:
    with pytest.raises(InputError, match=said):
        Tree.of_children(children)
