"""Signatures: canonical labels, and a key that is equal for equal graphs only."""

import random
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from helpers.graphs import assert_same_schedule
from hypothesis import given
from hypothesis import strategies as st

from atlas_lp.errors import InputError, UnsupportedError
from atlas_lp.signatures.algorithms.expand import expand
from atlas_lp.signatures.nccl.collectives import WITH_KERNEL
from atlas_lp.signatures.nccl.protocols import Protocol
from atlas_lp.signatures.signature import Signature, ring_signature
from atlas_lp.signatures.topology import assumed_rings

SIMPLE = Protocol.SIMPLE

PLAIN: dict[str, Any] = {
    "collective": "AllReduce",
    "protocol": SIMPLE,
    "size_bytes": 1 << 20,
    "rings": assumed_rings([0, 0, 1, 1], 2),
    "node_of_rank": [0, 0, 1, 1],
    "nccl": "2.20.5",
}


def signature(**changes: Any) -> Signature:
    return ring_signature(**{**PLAIN, **changes})


def test_labels_follow_the_first_ring_from_rank_0() -> None:
    s = signature(rings=[[2, 0, 3, 1], [0, 1, 2, 3]], node_of_rank=[7, 9, 9, 7], nic_of_rank=[5, 4, 5, 5])
    # Labels: rank 0 -> 0, 3 -> 1, 1 -> 2, 2 -> 3.
    assert s.rings == ((0, 1, 2, 3), (0, 2, 3, 1))
    assert s.nodes == (0, 0, 1, 1)
    assert s.nics == (0, 0, 0, 1)
    assert s.leaves_node
    assert s.channels == 2


@pytest.mark.parametrize("collective", ["Broadcast", "Reduce"])
def test_labels_of_a_rooted_collective_start_at_the_root(collective: str) -> None:
    s = signature(collective=collective, rings=[[0, 1, 2, 3]], root=3, node_of_rank=[0, 0, 0, 1])
    assert s.nodes == (0, 1, 1, 1)
    turned = signature(collective=collective, rings=[[1, 2, 3, 0]], root=0, node_of_rank=[1, 0, 0, 0])
    assert turned.key() == s.key()


def test_the_root_of_other_collectives_does_not_matter() -> None:
    assert signature(root=3).key() == signature().key()


def test_each_gpu_has_its_nic_unless_told_otherwise() -> None:
    assert signature().nics == (0, 1, 0, 1)
    assert signature(nic_of_rank=[8, 8, 8, 8]).nics == (0, 0, 0, 0)


def test_byte_collectives_count_bytes() -> None:
    gathered = signature(collective="AllGather", size_bytes=4097)
    assert gathered.element_bytes == 1
    assert sum(part.count for part in gathered.parts) == 4097
    assert gathered.key() == signature(collective="AllGather", size_bytes=4097, element_bytes=2).key()
    reduced = signature(collective="ReduceScatter", size_bytes=4096)
    assert (reduced.element_bytes, sum(part.count for part in reduced.parts)) == (4, 1024)


@st.composite
def communicators(draw: st.DrawFn) -> dict[str, Any]:
    """A communicator of up to four nodes of one size with its rings."""
    nodes, per_node = draw(st.integers(1, 4)), draw(st.integers(1, 4))
    ranks = nodes * per_node
    node_of_rank = [rank // per_node for rank in range(ranks)]
    if ranks < 2:
        node_of_rank, ranks = [0, 0], 2
    rings = assumed_rings(node_of_rank, draw(st.integers(1, 3)))
    if draw(st.booleans()):
        rings = [draw(st.permutations(range(ranks))) for _ in rings]
    collective = draw(st.sampled_from(WITH_KERNEL))
    return {
        "collective": collective,
        "protocol": draw(st.sampled_from(Protocol)),
        "size_bytes": 4 * draw(st.integers(1, 1 << 16)),
        "rings": rings,
        "node_of_rank": node_of_rank,
        "nic_of_rank": [draw(st.integers(0, 2)) for _ in range(ranks)],
        "nccl": draw(st.sampled_from(["2.20.5", "2.23.4", "2.28.9", "2.29.2"])),
        "root": draw(st.integers(0, ranks - 1)) if collective in ("Broadcast", "Reduce") else 0,
    }


def renamed(values: Sequence[int], names: dict[int, int]) -> list[int]:
    return [names[value] for value in values]


@given(communicators(), st.integers(0, 999))
def test_renaming_nodes_nics_and_ranks_keeps_the_key(arguments: dict[str, Any], seed: int) -> None:
    rng = random.Random(seed)
    ranks = len(arguments["node_of_rank"])
    first = arguments["root"]
    others = [rank for rank in range(ranks) if rank != first]
    # The rank that labels start from keeps its part: rank 0, or the root, which may be any rank.
    targets = list(range(ranks))
    home = rng.choice(targets) if arguments["collective"] in ("Broadcast", "Reduce") else 0
    targets.remove(home)
    rng.shuffle(targets)
    to = {first: home, **dict(zip(others, targets, strict=True))}
    back = {new: old for old, new in to.items()}
    node_names = dict(zip(range(ranks), rng.sample(range(100), ranks), strict=True))
    nic_names = dict(zip(range(3), rng.sample(range(100), 3), strict=True))
    moved = {
        **arguments,
        "rings": [turned(renamed(ring, to), rng) for ring in arguments["rings"]],
        "node_of_rank": [node_names[arguments["node_of_rank"][back[rank]]] for rank in range(ranks)],
        "nic_of_rank": [nic_names[arguments["nic_of_rank"][back[rank]]] for rank in range(ranks)],
        "root": home,
    }
    assert ring_signature(**moved) == ring_signature(**arguments)
    assert ring_signature(**moved).key() == ring_signature(**arguments).key()


def turned(ring: list[int], rng: random.Random) -> list[int]:
    """The same ring written down from another rank on."""
    at = rng.randrange(len(ring))
    return ring[at:] + ring[:at]


@pytest.mark.parametrize(
    "changes",
    [
        {"collective": "Reduce"},
        {"collective": "ReduceScatter"},
        {"protocol": Protocol.LL},
        {"protocol": Protocol.LL128},
        {"size_bytes": (1 << 20) + 4},
        {"element_bytes": 2},
        {"nccl": "2.29.1"},
        {"rings": assumed_rings([0, 0, 1, 1], 1)},
        {"rings": [[0, 1, 2, 3], [0, 1, 2, 3]]},
        {"rings": [[0, 1, 2, 3], [0, 2, 1, 3]]},
        {"node_of_rank": [0, 1, 0, 1]},
        {"node_of_rank": [0, 0, 0, 0]},
        {"node_of_rank": [0, 1, 2, 3]},
        {"nic_of_rank": [0, 0, 0, 1]},
        {"rings": assumed_rings([0, 0, 1, 1, 2, 2], 2), "node_of_rank": [0, 0, 1, 1, 2, 2]},
    ],
)
def test_whatever_changes_the_graph_changes_the_key(changes: dict[str, Any]) -> None:
    assert signature(**changes).key() != signature().key()


def test_threads_matter_where_they_round_parts() -> None:
    assert signature(protocol=Protocol.LL, threads=256).key() != signature(protocol=Protocol.LL, threads=512).key()
    new = {"protocol": Protocol.LL, "nccl": "2.22.3"}
    assert signature(**new, threads=256).key() == signature(**new, threads=512).key()


def test_the_root_matters_where_there_is_one() -> None:
    uneven = {"collective": "Broadcast", "node_of_rank": [0, 0, 0, 1]}
    assert signature(**uneven, root=0).key() != signature(**uneven, root=3).key()


@given(communicators(), communicators(), st.data())
def test_equal_keys_mean_equal_graphs(one: dict[str, Any], other: dict[str, Any], data: st.DataObject) -> None:
    # Mix the arguments of two communicators of equal size, so that many differ in little.
    mixed = dict(one)
    if len(one["node_of_rank"]) == len(other["node_of_rank"]):
        for name in data.draw(st.sets(st.sampled_from(sorted(one)))):
            mixed[name] = other[name]
    first, second = ring_signature(**one), ring_signature(**mixed)
    same = first.key() == second.key()
    assert same == (first == second)
    if same:
        assert_same_schedule(expand(first), expand(second))
    schedules = expand(first), expand(second)
    alike = len(schedules[0]) == len(schedules[1]) and all(
        np.array_equal(getattr(schedules[0], name), getattr(schedules[1], name))
        for name in ("kind", "rank", "size", "peer", "tag", "nic", "before", "after")
    )
    if not alike or first.nodes != second.nodes:
        assert not same


def test_the_canonical_form_is_plain_and_complete() -> None:
    plain = signature().canonical()
    assert set(plain) == {
        "collective", "algorithm", "protocol", "size_bytes", "element_bytes", "ranks", "split", "threads",
        "chunk_bytes", "slices", "fifo_slices", "parts", "rings", "nodes", "nics",
    }  # fmt: skip
    assert plain["protocol"] == "simple"
    assert plain["parts"] == [[0, 131_072, 0], [1, 131_072, 1]]
    assert len(signature().key()) == 64


def test_assumed_rings_rotate_inside_nodes() -> None:
    assert assumed_rings([0, 0, 0, 1, 1, 1], 4) == [
        [0, 1, 2, 3, 4, 5],
        [1, 2, 0, 4, 5, 3],
        [2, 0, 1, 5, 3, 4],
        [0, 1, 2, 3, 4, 5],
    ]
    assert assumed_rings([5, 3, 5, 3], 1) == [[0, 2, 1, 3]]


@pytest.mark.parametrize(
    ("changes", "error", "said"),
    [
        ({"collective": "AllToAll"}, UnsupportedError, "AllToAll has no schedule"),
        ({"nccl": "2.31.1"}, UnsupportedError, "NCCL 2.31.1"),
        ({"node_of_rank": [0], "rings": [[0]]}, InputError, "on 1 rank"),
        ({"size_bytes": 0}, InputError, "of 0 bytes moves nothing"),
        ({"size_bytes": 5}, InputError, "not a whole number of 4-byte elements"),
        ({"element_bytes": 3}, InputError, "no datatype has 3 bytes"),
        ({"rings": []}, InputError, "at least one channel"),
        ({"rings": [[0, 1, 2, 2]]}, InputError, "must visit each of the 4 ranks once"),
        ({"rings": [[0, 1, 2]]}, InputError, "must visit each of the 4 ranks once"),
        ({"collective": "Reduce", "root": 4}, InputError, "root"),
        ({"nic_of_rank": [0, 0, 0]}, InputError, "NIC"),
    ],
)
def test_impossible_arguments(changes: dict[str, Any], error: type[InputError], said: str) -> None:
    with pytest.raises(error) as caught:
        signature(**changes)
    assert said in str(caught.value)
