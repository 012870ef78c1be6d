"""PAT, NVLS, NVLSTree and CollNet, approximations: what they promise on symbolic data, counts, and that they say so."""

from collections import Counter, defaultdict

import numpy as np
import pytest
from helpers.schedules import check, link_of, nodes_of, run
from hypothesis import given
from hypothesis import strategies as st

from atlas_lp.errors import InputError, UnsupportedError
from atlas_lp.goal import CALC, SEND
from atlas_lp.signatures.algorithms.collnet import collnet_chain_signature, collnet_direct_signature
from atlas_lp.signatures.algorithms.expand import slices
from atlas_lp.signatures.algorithms.nvls import nvls_signature, nvls_tree_signature
from atlas_lp.signatures.algorithms.pat import blocks_per_message, pat_signature, pat_steps
from atlas_lp.signatures.algorithms.table import ALGORITHMS, approximation
from atlas_lp.signatures.nccl.protocols import Protocol
from atlas_lp.signatures.signature import Signature, ring_signature
from atlas_lp.signatures.topology import assumed_rings

KIB, MIB = 1 << 10, 1 << 20


def pat(collective: str, size: int, ranks: int, channels: int = 1, nccl: str = "2.26") -> Signature:
    return pat_signature(collective, size, range(ranks), channels=channels, nccl=nccl, element_bytes=1)


def test_every_approximation_says_so() -> None:
    models = [
        pat("AllGather", 8, 4),
        nvls_signature(8, [0, 0], nccl="2.26"),
        nvls_tree_signature(8, [0, 0, 1, 1], channels=2, nccl="2.26"),
        collnet_chain_signature(8, [0, 0, 1, 1], channels=1, nccl="2.26"),
        collnet_direct_signature(8, [0, 0, 1, 1], nccl="2.26"),
    ]
    for model in models:
        assert "is an approximation: " in approximation(model)
    assert {model.algorithm for model in models} | {"ring", "tree", "p2p"} == set(ALGORITHMS)
    ring = ring_signature("AllReduce", Protocol.LL, 8, assumed_rings([0, 1], 1), [0, 1], nccl="2.26")
    assert approximation(ring) == ""


@given(
    st.sampled_from(["AllGather", "ReduceScatter"]),
    st.integers(2, 20),
    st.integers(1, 3),
    st.sampled_from([1, 7, 1000, 65_536, 700_000]) | st.integers(1, 300_000),
    st.integers(0, 99),
)
def test_pat_on_symbolic_data(collective: str, ranks: int, channels: int, size: int, seed: int) -> None:
    signature = pat(collective, size, ranks, channels)
    schedule = check(signature)
    scatter = collective == "ReduceScatter"
    packed = {part.channel: blocks_per_message(signature, part) for part in signature.parts}
    behind = {
        int(b): int(a)
        for b, a in zip(schedule.before, schedule.after, strict=True)
        if schedule.kind[b] == CALC and schedule.kind[a] == SEND
    }
    # Per (rank, channel) and block: who contributed (ReduceScatter), or whether it is here (AllGather).
    held: dict[tuple[int, int, int], dict[int, int]] = defaultdict(dict)
    sent: Counter[tuple[int, int, int]] = Counter()
    received_on: Counter[tuple[int, int, int]] = Counter()

    def state(rank: int, channel: int, loop: int) -> dict[int, int]:
        return held.setdefault((rank, channel, loop), dict.fromkeys(range(ranks), 1 << rank) if scatter else {rank: 1})

    def distances(link: int, number: int, g: int) -> tuple[int, list[int]]:
        """The loop and the distances that message *number* of a dimension carries."""
        own = list(range(1 << link, ranks, 2 << link))
        messages = -(-len(own) // g)
        return number // messages, own[number % messages * g : number % messages * g + g]

    def work(operation: int, received: list[tuple[int, object]]) -> object:
        rank, channel = int(schedule.rank[operation]), int(schedule.cpu[operation])
        if operation in behind:
            link = link_of(schedule, behind[operation])
            key = rank, channel, link
            loop, blocks = distances(link, sent[key], packed[channel])
            sent[key] += 1
            mine = state(rank, channel, loop)
            if scatter:
                return {(rank + d) % ranks: mine[(rank + d) % ranks] for d in blocks}
            return {(rank + d - (1 << link)) % ranks: mine[(rank + d - (1 << link)) % ranks] for d in blocks}
        ((recv, value),) = received
        key = rank, channel, link_of(schedule, recv)
        loop, blocks = distances(key[2], received_on[key], packed[channel])
        received_on[key] += 1
        mine = state(rank, channel, loop)
        assert len(value) == len(blocks)  # type: ignore[arg-type]
        for block, contribution in value.items():  # type: ignore[attr-defined]
            assert not mine.get(block, 0) & contribution
            mine[block] = mine.get(block, 0) | contribution
        return None

    run(schedule, work, seed)
    loops = {(channel, loop) for _, channel, loop in held}
    for channel, loop in loops:
        for rank in range(ranks):
            mine = held[rank, channel, loop]
            assert (mine[rank] == (1 << ranks) - 1) if scatter else (len(mine) == ranks)
    for part in signature.parts:
        chunk = part.chunk_bytes
        assert len([c for c, _ in loops if c == part.channel]) == -(-part.count // chunk)
    assert int(schedule.size[schedule.kind == SEND].sum()) == ranks * (ranks - 1) * size


@pytest.mark.parametrize(
    ("size", "messages", "chunk"), [(KIB, 6, 65_536), (64 * KIB, 32, 131_072), (MIB, 126, 524_288)]
)
def test_pat_messages_of_the_specification(size: int, messages: int, chunk: int) -> None:
    signature = pat("AllGather", size, 64)
    assert [part.chunk_bytes for part in signature.parts] == [chunk]
    assert len(slices(signature, labels=np.array([5])).sends.slice) == messages


@given(st.sampled_from(["AllGather", "ReduceScatter"]), st.integers(2, 200), st.sampled_from([1, 2, 4, 32]))
def test_pat_sends_every_block_once(collective: str, ranks: int, packed: int) -> None:
    steps = pat_steps(collective, ranks, packed)
    assert int(steps.blocks.sum()) == ranks - 1
    assert np.all(steps.needs < np.arange(len(steps.needs)))
    assert sorted(set(steps.dimension.tolist())) == list(range((ranks - 1).bit_length()))


def test_pat_has_log_depth() -> None:
    """With all blocks in one message per dimension, a message needs the one before it and nothing else."""
    assert pat_steps("AllGather", 64, 32).needs.tolist() == [-1, 0, 1, 2, 3, 4]
    assert pat_steps("ReduceScatter", 64, 32).needs.tolist() == [-1, 0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("AllReduce", 8, 4), "PAT does AllGather and ReduceScatter, not AllReduce"),
        (("AllGather", 8, 4, 1, "2.22"), r"NCCL 2\.22 has no PAT"),
        (("AllGather", 8, 1), "on 1 ranks"),
    ],
)
def test_pat_refusals(arguments: tuple[str, int, int], said: str) -> None:
    with pytest.raises(InputError, match=said):
        pat(*arguments)
    with pytest.raises(UnsupportedError, match="every node has one GPU"):
        pat_signature("AllGather", 8, [0, 0], channels=1, nccl="2.26")


def test_nvls_is_a_barrier_and_one_calc() -> None:
    signature = nvls_signature(8 * MIB, [0] * 8, nccl="2.26")
    schedule = check(signature)
    assert schedule.count(SEND) == 8 * 7
    assert int(schedule.size[schedule.kind == SEND].sum()) == 0
    heard: dict[int, set[int]] = {}

    def work(operation: int, received: list[tuple[int, object]]) -> object:
        rank = int(schedule.rank[operation])
        if received:
            heard[rank] = {rank, *(value for _, value in received)}  # type: ignore[misc]
        return rank

    run(schedule, work)
    assert heard == {rank: set(range(8)) for rank in range(8)}
    (longest,) = set(schedule.size[schedule.kind == CALC].tolist()) - {0}
    assert longest == 3000 + round(9 * MIB / 450)


@pytest.mark.parametrize(("nodes", "per_node", "channels"), [(2, 1, 1), (2, 4, 2), (5, 2, 3), (4, 8, 1)])
def test_nvls_tree_sums_over_the_nodes_for_each_head(nodes: int, per_node: int, channels: int) -> None:
    signature = nvls_tree_signature(MIB + 4, nodes_of(nodes, per_node), channels=channels, nccl="2.20")
    schedule = check(signature)
    total: dict[tuple[int, int], list[int]] = defaultdict(list)
    p = slices(signature)
    share = -(-(MIB // 4 + 1) // per_node) * 4
    chunks = {part.channel: 0 for part in signature.parts}
    sent = Counter(
        (rank, channel) for rank, channel, chain in zip(p.rank, p.channel, p.chain, strict=True) if chain == -1
    )
    for (_, channel), count in sent.items():
        chunks[channel] = count
    assert sum(part.count for part in signature.parts) * 4 == share
    for operation in np.flatnonzero(schedule.kind == SEND):
        total[int(schedule.rank[operation]), int(schedule.peer[operation])].append(int(schedule.size[operation]))
    assert all(signature.nodes[a] != signature.nodes[b] for a, b in total)
    assert schedule.count(SEND) == 2 * (nodes - 1) * per_node * sum(chunks.values())
    assert sum(map(sum, total.values())) == 2 * (nodes - 1) * per_node * share
    everyone: dict[tuple[int, int], set[int]] = defaultdict(set)

    def work(operation: int, received: list[tuple[int, object]]) -> object:
        rank, channel = int(schedule.rank[operation]), int(schedule.cpu[operation])
        found = {rank}.union(*(value for _, value in received))  # type: ignore[arg-type]
        everyone[rank, channel] |= found
        return found

    run(schedule, work)
    for (rank, channel), found in everyone.items():
        assert len({signature.nodes[other] for other in found}) == nodes, (rank, channel)
        assert len(found) == nodes


def test_collnet_chain_sums_each_node_and_ignores_the_fabric() -> None:
    signature = collnet_chain_signature(3 * MIB, nodes_of(3, 4), channels=2, nccl="2.26")
    schedule = check(signature)
    nodes = np.array(signature.nodes)
    sends = schedule.kind == SEND
    assert np.all(nodes[schedule.rank[sends]] == nodes[schedule.peer[sends]])
    assert schedule.count(SEND) == 3 * 3 * 2 * 12  # nodes, hops, up and down, chunks
    roots = [rank for rank, parent in enumerate(signature.trees[0].parents) if parent < 0]
    assert len(roots) == 3
    top: dict[tuple[int, int], int] = {}

    def work(operation: int, received: list[tuple[int, object]]) -> object:
        rank, channel = int(schedule.rank[operation]), int(schedule.cpu[operation])
        downwards = {link_of(schedule, recv) % 2 for recv, _ in received} == {1}
        mask = 0 if downwards else 1 << rank
        for _, value in received:
            assert not mask & value  # type: ignore[operator]
            mask |= value  # type: ignore[operator]
        top[rank, channel] = mask
        return mask

    run(schedule, work)
    for (rank, _), mask in top.items():
        if mask.bit_count() == 4:
            assert {signature.nodes[r] for r in range(12) if mask >> r & 1} == {signature.nodes[rank]}
    assert all(top[root, 0].bit_count() == 4 for root in roots)


def test_collnet_direct_scatters_and_gathers() -> None:
    signature = collnet_direct_signature(4 * MIB, nodes_of(2, 4), nccl="2.26")
    schedule = check(signature)
    assert schedule.count(SEND) == 8 * 3 * 2 * 4  # ranks, peers, scatter and gather, loops of 4 x 256 KiB
    assert int(schedule.size[schedule.kind == SEND].sum()) == 8 * 3 * 2 * MIB
    got: dict[int, set[int]] = defaultdict(set)

    def work(operation: int, received: list[tuple[int, object]]) -> object:
        rank = int(schedule.rank[operation])
        found = {rank}.union(*(value for _, value in received))  # type: ignore[arg-type]
        got[rank] |= found
        return found

    run(schedule, work)
    for rank, found in got.items():
        assert {signature.nodes[other] for other in found} == {signature.nodes[rank]}
        assert len(found) == 4


@pytest.mark.parametrize("build", [collnet_chain_signature, nvls_tree_signature])
def test_models_between_nodes_need_nodes(build: object) -> None:
    with pytest.raises(UnsupportedError):
        build(8, [0, 0], channels=1, nccl="2.26")  # type: ignore[operator]
    with pytest.raises(UnsupportedError):
        build(8, [0, 1], channels=1, nccl="2.19")  # type: ignore[operator]
    with pytest.raises(InputError):
        build(6, [0, 1], channels=1, nccl="2.26")  # type: ignore[operator]


def test_other_refusals() -> None:
    with pytest.raises(UnsupportedError, match="inside one node"):
        nvls_signature(8, [0, 1], nccl="2.26")
    with pytest.raises(UnsupportedError, match="equally many"):
        nvls_tree_signature(8, [0, 0, 1], channels=1, nccl="2.26")
    with pytest.raises(UnsupportedError, match="2 to 8 GPUs"):
        collnet_direct_signature(8, [0, 1], nccl="2.26")
