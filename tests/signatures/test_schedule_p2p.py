"""Grouped Send/Recv and AllToAll(v): who gets what, in which batches, parts and chunks (facts/nccl_schedules.md 4)."""

import random
from collections import Counter, defaultdict

import numpy as np
import pytest
from helpers.schedules import check, link_of, moved, nodes_of, run
from hypothesis import given
from hypothesis import strategies as st

from atlas_lp.errors import InputError, UnsupportedError
from atlas_lp.goal import CALC, RECV, SEND, event_graph
from atlas_lp.signatures.algorithms.expand import expand, operation_count, slices
from atlas_lp.signatures.algorithms.point_to_point import (
    all_to_all_signature,
    point_to_point_order,
    point_to_point_signature,
)
from atlas_lp.signatures.nccl.protocols import Protocol
from atlas_lp.signatures.nccl.transfers import Transfers, channel_of_part, cut_parts, peer_rounds
from atlas_lp.signatures.nccl.versions import P2P_RULES, p2p_rule
from atlas_lp.signatures.signature import Signature, ring_signature
from atlas_lp.signatures.topology import assumed_rings

KIB, MIB = 1 << 10, 1 << 20
VERSIONS = ("2.20.5", "2.22.3", "2.26.2", "2.28.3", "2.28.9", "2.29.1")

Message = tuple[int, int, int]


def delivered(signature: Signature, seed: int = 0) -> Counter[tuple[int, int]]:
    """Run a group of calls; return the chunks that every pair exchanged, each seen in order on its channel."""
    schedule = check(signature)
    got: dict[tuple[int, int, int, int], list[object]] = defaultdict(list)
    sent: Counter[tuple[int, int, int, int]] = Counter()
    # A calc that sends makes the next chunk for its peer, whom the send behind it names.
    behind = {
        int(b): int(a)
        for b, a in zip(schedule.before, schedule.after, strict=True)
        if schedule.kind[b] == CALC and schedule.kind[a] == SEND
    }

    def work(operation: int, received: list[tuple[int, object]]) -> object:
        rank, channel = int(schedule.rank[operation]), int(schedule.cpu[operation])
        for recv, value in received:
            got[int(schedule.peer[recv]), rank, channel, link_of(schedule, recv)].append(value)
        if operation not in behind:
            return None
        send = behind[operation]
        key = rank, int(schedule.peer[send]), channel, link_of(schedule, send)
        sent[key] += 1
        return (*key, sent[key])

    run(schedule, work, seed)
    for key, values in got.items():
        assert values == [(*key, number) for number in range(1, sent[key] + 1)]
    assert set(got) == set(sent)
    total: Counter[tuple[int, int]] = Counter()
    for (source, destination, _, _), values in got.items():
        total[source, destination] += len(values)
    return total


def bytes_between(signature: Signature) -> Counter[tuple[int, int]]:
    schedule = expand(signature)
    total: Counter[tuple[int, int]] = Counter()
    for operation in np.flatnonzero(schedule.kind == SEND):
        total[int(schedule.rank[operation]), int(schedule.peer[operation])] += int(schedule.size[operation])
    return total


@given(
    st.integers(1, 4),
    st.sampled_from([1, 2, 3, 4]),
    st.sampled_from(VERSIONS),
    st.sampled_from([1, 2, 4, 16]),
    st.sampled_from([1, 2, 4]),
    st.sampled_from([1, 7, 1000, 20_000, 65_536, 100_000, 1_048_577]) | st.integers(1, 700_000),
)
def test_everybody_receives_from_everybody(
    nodes: int, per_node: int, nccl: str, channels: int, per_peer: int, size: int
) -> None:
    if nodes * per_node == 1:
        per_node = 2
    places = nodes_of(nodes, per_node)
    signature = all_to_all_signature(size, places, nccl=nccl, channels=channels, per_peer=min(per_peer, channels))
    n = len(places)
    pairs = {(a, b) for a in range(n) for b in range(n) if a != b}
    chunks = delivered(signature)
    assert set(chunks) == pairs
    for pair, moved_bytes in bytes_between(signature).items():
        # Simple; or, inside a node, LL: lines of 8 bytes and 8 of flags, the last of every chunk perhaps not full.
        flagged = places[pair[0]] == places[pair[1]] and moved_bytes % 16 == 0
        assert moved_bytes == size or (flagged and 0 <= moved_bytes - 2 * size < 16 * chunks[pair])


@given(st.data(), st.sampled_from(VERSIONS))
def test_any_messages_arrive(data: st.DataObject, nccl: str) -> None:
    places = data.draw(st.lists(st.integers(0, 3), min_size=2, max_size=9))
    rank = st.integers(0, len(places) - 1)
    messages: list[Message] = data.draw(
        st.lists(st.tuples(rank, rank, st.just(0) | st.integers(0, 300_000)), min_size=1, max_size=12)
    )
    if all(a == b for a, b, _ in messages):
        messages.append((0, 1, 5))
    signature = point_to_point_signature(messages, places, nccl=nccl, channels=8)
    order = point_to_point_order(messages, places)
    wanted = {(a, b) for a, b, _ in messages if a != b}
    assert {(order[a], order[b]) for a, b in delivered(signature)} == wanted
    expected: Counter[tuple[int, int]] = Counter()
    for a, b, size in messages:
        expected[a, b] += size
    for (a, b), size in bytes_between(signature).items():
        if signature.nodes[a] != signature.nodes[b]:
            assert size == expected[order[a], order[b]]


@pytest.mark.parametrize("nccl", VERSIONS)
@pytest.mark.parametrize(("nodes", "per_node"), [(1, 4), (3, 4), (5, 1), (2, 8)])
def test_all_to_all_is_its_messages(nccl: str, nodes: int, per_node: int) -> None:
    places = nodes_of(nodes, per_node)
    n = len(places)
    messages = [(a, b, 200_000) for a in range(n) for b in range(n)]
    one = expand(all_to_all_signature(200_000, places, nccl=nccl))
    other = expand(point_to_point_signature(messages, places, nccl=nccl))
    for name in ("kind", "rank", "size", "peer", "tag", "cpu", "nic"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))


def test_counts_of_the_specification() -> None:
    places = nodes_of(16, 4)
    signature = all_to_all_signature(MIB, places, nccl="2.20.5", channels=32, per_peer=2)
    schedule = expand(signature)
    nodes = np.array(signature.nodes)
    sends = schedule.kind == SEND
    out = nodes[schedule.rank[sends]] != nodes[schedule.peer[sends]]
    assert (int(out.sum()), int((~out).sum())) == (61_440, 1536)


@pytest.mark.parametrize("nccl", VERSIONS)
@pytest.mark.parametrize(("nodes", "per_node"), [(2, 1), (1, 2), (1, 7), (3, 1), (2, 3), (5, 4)])
@pytest.mark.parametrize("size", [1, 7, 16_385, 100_003, 3 * MIB + 1])
def test_counts_equal_the_closed_form(nodes: int, per_node: int, size: int, nccl: str) -> None:
    """Per pair the sum over its parts of ceil(part / chunk) messages."""
    places = nodes_of(nodes, per_node)
    signature = all_to_all_signature(size, places, nccl=nccl, channels=8)
    rule = signature.split
    chunk = (128 if nodes > 1 else 512) * KIB
    inside, outside = nodes * per_node * (per_node - 1), nodes * (nodes - 1) * per_node**2
    messages = 0
    for pairs, network in ((inside, False), (outside, True)):
        transfers = Transfers(rule, 8, 2, chunk, len(places), nodes)
        parts = cut_parts(transfers, np.array([size]), np.array([network]))
        rows = zip(parts.bytes.tolist(), parts.chunk.tolist(), strict=True)
        messages += pairs * sum(-(-part // of) for part, of in rows)
    schedule = expand(signature)
    assert schedule.count(SEND) == schedule.count(RECV) == messages
    barriers = schedule.count(CALC) - 2 * messages - len(places)
    assert 0 <= barriers <= len(places) * 8 * (len(places) // 8 + 1)


def test_thousands_of_ranks_are_counted_without_expansion() -> None:
    signature = all_to_all_signature(1024, nodes_of(1024, 4), nccl="2.26")
    assert operation_count(signature) >= 4 * 4096**2
    with pytest.raises(UnsupportedError, match="the limit is"):
        expand(signature)
    # One rank alone is small: a send, a receive, a slice of each and at most one barrier per peer.
    alone = slices(signature, labels=np.array([17]))
    assert len(alone.sends.slice) == len(alone.receives.slice) == 4095


def test_a_few_ranks_can_be_expanded_alone() -> None:
    signature = all_to_all_signature(300_000, nodes_of(3, 4), nccl="2.26", channels=4)
    whole = slices(signature)
    for rank in (0, 7):
        alone = slices(signature, labels=np.array([rank]))
        for one, all_of in ((alone.sends, whole.sends), (alone.receives, whole.receives)):
            mine = whole.rank[all_of.slice] == rank
            assert Counter(zip(one.peer, one.link, one.wire, strict=True)) == Counter(
                zip(all_of.peer[mine], all_of.link[mine], all_of.wire[mine], strict=True)
            )
        mine = whole.rank == rank
        assert Counter(zip(alone.channel, alone.chain, alone.step, alone.cost_ns, strict=True)) == Counter(
            zip(*(column[mine] for column in (whole.channel, whole.chain, whole.step, whole.cost_ns)), strict=True)
        )
        assert len(alone.waits[0]) == int(np.count_nonzero(whole.rank[whole.waits[0]] == rank))


@pytest.mark.parametrize("nccl", VERSIONS)
def test_batches_of_a_channel_run_one_after_the_other(nccl: str) -> None:
    signature = all_to_all_signature(100_000, nodes_of(5, 4), nccl=nccl, channels=2)
    schedule = expand(signature)
    latest: dict[tuple[int, int], int] = defaultdict(int)
    ranks = set()

    def work(operation: int, received: list[tuple[int, object]]) -> object:
        where = int(schedule.rank[operation]), int(schedule.cpu[operation])
        for recv, _ in received:
            batch = link_of(schedule, recv) // 8
            assert batch >= latest[where]
            latest[where] = batch
            ranks.add(where)
        return None

    for seed in range(3):
        latest.clear()
        run(schedule, work, seed)
    assert len(ranks) == 40
    assert max(latest.values()) >= 1


def test_members_of_a_batch_do_not_wait_for_each_other() -> None:
    # Two nodes of one GPU: the send of a rank and its receive are independent, so T is one message.
    schedule = expand(point_to_point_signature([(0, 1, 100), (1, 0, 100)], [0, 1], nccl="2.26"))
    by_rank = [set(schedule.before[schedule.rank[schedule.before] == rank].tolist()) for rank in (0, 1)]
    assert len(schedule) == 8
    assert all(len(before) == 2 for before in by_rank)


@pytest.mark.parametrize("rule", P2P_RULES)
@pytest.mark.parametrize("nodes", [1, 2, 3, 5, 7, 8, 16, 39])
@pytest.mark.parametrize("per_node", [1, 2, 3, 4, 8, 10])
def test_rounds_are_permutations(rule: str, nodes: int, per_node: int) -> None:
    places = np.array(nodes_of(nodes, per_node))
    n = len(places)
    rounds = peer_rounds(rule, places)
    source = np.repeat(np.arange(n), n)
    destination = np.tile(np.arange(n), n)
    number, _ = rounds.of(source, destination)
    for rank in {0, n // 2, n - 1}:
        assert len(set(number[source == rank].tolist())) == n  # one peer a round
        assert len(set(number[destination == rank].tolist())) == n
    assert int(number.min()) == 0
    assert int(number.max()) < len(rounds.group_round) * rounds.width
    assert np.all(number[source == destination] == 0)


@pytest.mark.parametrize(
    ("rule", "nodes", "order"),
    [
        ("2.20", 8, [0, 4, 1, 7, 3, 5, 2, 6]),
        ("2.20", 16, [0, 8, 1, 15, 7, 9, 2, 14, 6, 10, 3, 13, 5, 11, 4, 12]),
        ("2.22", 16, [0, 1, 3, 6, 10, 15, 5, 12, 4, 13, 7, 2, 14, 11, 9, 8]),
    ],
)
def test_order_of_peers(rule: str, nodes: int, order: list[int]) -> None:
    rounds = peer_rounds(rule, np.arange(nodes))
    number, _ = rounds.of(np.zeros(nodes, dtype=np.int64), np.arange(nodes))
    assert np.argsort(number).tolist() == order


@pytest.mark.parametrize("nccl", ["2.22.3", "2.28.3"])
def test_unequal_nodes_are_walked_as_one(nccl: str) -> None:
    rounds = peer_rounds(p2p_rule(nccl), np.array([0, 0, 0, 1, 1, 2]))
    source, destination = np.repeat(np.arange(6), 6), np.tile(np.arange(6), 6)
    number, base = rounds.of(source, destination)
    # Distances 0, 1, 3, 6, 2, 7, 5, 4 modulo 8, without 6 and 7.
    assert number[:6].tolist() == [0, 1, 3, 2, 5, 4]
    assert base[:6].tolist() == [0, 0, 1, 0, 1, 1]  # sets of channels still go by the largest node
    for places in ([0, 0, 0, 1, 1, 2], [0, 1, 0, 2, 1, 0]):
        messages = [(a, b, 9000) for a in range(6) for b in range(6)]
        one = expand(all_to_all_signature(9000, places, nccl=nccl))
        other = expand(point_to_point_signature(messages, places, nccl=nccl))
        np.testing.assert_array_equal(one.tag, other.tag)
        assert delivered(all_to_all_signature(9000, places, nccl=nccl)).total() > 0


def test_groups_take_the_place_of_nodes_since_2287() -> None:
    rounds = peer_rounds("2.28.7", np.array(nodes_of(2, 12)))
    assert (rounds.width, len(rounds.group_round)) == (4, 6)
    number, base = rounds.of(np.zeros(4, dtype=np.int64), np.arange(4))
    assert number.tolist() == [0, 1, 2, 3]
    assert base.tolist() == [0, 0, 0, 0]


def plan(
    rule: str, size: int, nodes: int, per_peer: int = 2, channels: int = 32, peers: int = 64, network: bool = True
) -> list[tuple[int, int, bool]]:
    """Parts of one message as (bytes, chunk, LL)."""
    transfers = Transfers(rule, channels, per_peer, 128 * KIB if nodes > 1 else 512 * KIB, peers, nodes)
    parts = cut_parts(transfers, np.array([size]), np.array([network]))
    return list(zip(parts.bytes.tolist(), parts.chunk.tolist(), parts.ll.tolist(), strict=True))


@pytest.mark.parametrize(
    ("size", "parts"),
    [
        (1000, [(1000, 32_768)]),
        (65_536, [(65_536, 32_768)]),
        (100_000, [(100_000, 32_768)]),
        (MIB, [(524_288, 65_536)] * 2),
        (4 * MIB, [(2_097_152, 131_072)] * 2),
        (64 * MIB, [(33_554_432, 131_072)] * 2),
        (0, [(0, 32_768)]),
    ],
)
def test_parts_of_220(size: int, parts: list[tuple[int, int]]) -> None:
    assert plan("2.20", size, 16) == [(*part, False) for part in parts]


def test_parts_since_222_are_multiples_of_a_page() -> None:
    assert plan("2.22", 3 * MIB + 5, 16) == [(1_576_960, 131_072, False), (1_568_773, 131_072, False)]
    assert plan("2.22", 1_000_000, 16) == [(503_808, 65_536, False), (496_192, 65_536, False)]
    assert plan("2.29", 10_000, 16) == [(10_000, 32_768, False)]


def test_one_node_has_wide_limits() -> None:
    assert plan("2.20", 8 * MIB, 1, network=False, peers=8) == [(4 * MIB, 512 * KIB, False)] * 2
    assert plan("2.22", 100_000, 1, network=False, peers=8) == [(53_248, 512 * KIB, False), (46_752, 512 * KIB, False)]


def test_few_channels_for_many_peers() -> None:
    assert len(plan("2.20", 8 * MIB, 1, per_peer=4, channels=8, peers=8, network=False)) == 1
    assert len(plan("2.20", 8 * MIB, 1, per_peer=4, channels=8, peers=2, network=False)) == 4


@pytest.mark.parametrize(
    ("rule", "size", "ll"),
    [
        ("2.20", 16_384, True),
        ("2.20", 16_385, False),
        ("2.22", 32_768, True),
        ("2.22", 32_769, False),
        ("2.29", 16_384, True),
        ("2.29", 16_385, False),
    ],
)
def test_ll_inside_a_node_only(rule: str, size: int, ll: bool) -> None:
    assert {row[2] for row in plan(rule, size, 2, network=False)} == {ll}
    assert {row[2] for row in plan(rule, size, 2, network=True)} == {False}


def test_ll_messages_have_flags_on_the_wire() -> None:
    schedule = expand(point_to_point_signature([(0, 1, 1001)], [0, 0], nccl="2.26"))
    assert schedule.size[schedule.kind == SEND].tolist() == [int(Protocol.LL.wire_bytes(np.array([1001]))[0])]


@given(st.sampled_from(P2P_RULES), st.integers(1, 1 << 28), st.booleans(), st.sampled_from([1, 2, 4, 8]), st.booleans())
def test_parts_cover_the_message(rule: str, size: int, one_node: bool, per_peer: int, network: bool) -> None:
    rows = plan(rule, size, 1 if one_node else 4, per_peer, peers=8, network=network and not one_node)
    assert sum(row[0] for row in rows) == size
    assert min(row[0] for row in rows) > 0
    assert len(rows) <= per_peer


@pytest.mark.parametrize("rule", P2P_RULES)
def test_parts_of_a_message_have_channels_of_their_own(rule: str) -> None:
    transfers = Transfers(rule, 16, 8, 128 * KIB, 64, 16)
    for base in range(40):
        channels = channel_of_part(transfers, np.full(8, base), np.arange(8)).tolist()
        assert len(set(channels)) == 8
        assert set(channels) <= set(range(16))


def test_channels_by_version() -> None:
    base, number = np.full(2, 3), np.arange(2)
    bits = {rule: channel_of_part(Transfers(rule, 8, 2, 128 * KIB, 8, 2), base, number).tolist() for rule in P2P_RULES}
    assert bits == {"2.20": [6, 7], "2.22": [3, 7], "2.28.3": [6, 7], "2.28.7": [6, 7], "2.29": [6, 7]}


def test_versions() -> None:
    shown = {v: p2p_rule(v) for v in ("2.20.5", "2.21", "2.27.7", "2.28", "2.28.3", "2.28.7", "2.28.9", "2.30.7")}
    assert list(shown.values()) == ["2.20", "2.20", "2.22", "2.28.7", "2.28.3", "2.28.7", "2.28.7", "2.29"]
    for wrong in ("2.19", "2.31", "new"):
        with pytest.raises(UnsupportedError):
            p2p_rule(wrong)


def test_messages_of_zero_bytes_have_latency_only() -> None:
    schedule = expand(point_to_point_signature([(0, 1, 0)], [0, 1], nccl="2.26"))
    assert schedule.count(SEND) == schedule.count(RECV) == 1
    assert int(schedule.size[schedule.kind == SEND][0]) == 0
    event_graph(schedule)


def test_a_message_to_self_is_a_copy() -> None:
    schedule = expand(point_to_point_signature([(0, 0, 1 << 20), (0, 1, 8)], [0, 1], nccl="2.26"))
    assert schedule.count(SEND) == 1
    assert int(schedule.size[schedule.kind == CALC].sum()) > 20_000


def test_two_calls_to_one_peer_follow_each_other() -> None:
    signature = point_to_point_signature([(0, 1, 5), (0, 1, 9), (1, 0, 3)], [0, 1], nccl="2.26")
    schedule = expand(signature)
    mine = (schedule.kind == SEND) & (schedule.rank == 0)
    assert schedule.size[mine].tolist() == [5, 9]
    assert len({(int(t), int(c)) for t, c in zip(schedule.tag[mine], schedule.cpu[mine], strict=True)}) == 1


def test_stages_of_a_pipeline_share_a_signature() -> None:
    """Neighbours at equal distance, both across the network: idle ranks do not show."""
    places = nodes_of(4, 2)
    keys = {point_to_point_signature([(a, a + 2, 4096)], places, nccl="2.26").key() for a in range(6)}
    assert len(keys) == 1


@given(st.integers(0, 999), st.lists(st.tuples(*[st.integers(0, 7)] * 2, st.integers(0, 5000)), min_size=1, max_size=9))
def test_signature_of_other_gpus_is_the_same(seed: int, messages: list[Message]) -> None:
    messages = [*messages, (0, 3, 10)]
    rng, places = random.Random(seed), nodes_of(4, 2)
    one = point_to_point_signature(messages, places, nccl="2.22")
    other = point_to_point_signature(messages, moved(places, rng), nccl="2.22")
    assert one == other
    assert one.key() == other.key()
    # Ranks dealt to nodes round robin: rank r was the GPU r mod 2 of node r div 2, now of node r mod 4.
    dealt = {rank: rank % 2 * 4 + rank // 2 for rank in range(8)}
    third = point_to_point_signature(
        [(dealt[a], dealt[b], size) for a, b, size in messages], [rank % 4 for rank in range(8)], nccl="2.22"
    )
    assert third.key() == one.key()


def test_what_changes_the_graph_changes_the_key() -> None:
    places = nodes_of(2, 2)
    plain = point_to_point_signature([(0, 2, 10)], places, nccl="2.26")
    others = [
        point_to_point_signature([(0, 2, 11)], places, nccl="2.26"),
        point_to_point_signature([(0, 2, 10), (2, 0, 10)], places, nccl="2.26"),
        point_to_point_signature([(0, 2, 10)], places, nccl="2.29"),
        point_to_point_signature([(0, 2, 10)], places, nccl="2.26", channels=8),
        point_to_point_signature([(0, 1, 10)], places, nccl="2.26"),
        all_to_all_signature(10, places, nccl="2.26"),
        ring_signature("Broadcast", Protocol.SIMPLE, 10, assumed_rings(places, 1), places, nccl="2.26"),
    ]
    assert len({signature.key() for signature in [plain, *others]}) == 8


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"messages": []}, "without messages"),
        ({"messages": [(0, 0, 5)]}, "nothing is exchanged"),
        ({"messages": [(0, 4, 5)]}, "outside 0 to 3"),
        ({"messages": [(0, 1, -1)]}, "negative size"),
        ({"channels": 3}, "powers of two"),
        ({"channels": 1}, "2 channels per peer of 1"),
        ({"chunk_bytes": 1}, "p2p chunk of 1 bytes"),
        ({"nic_of_rank": [0]}, "1 NICs for 4 ranks"),
    ],
)
def test_refusals(changes: dict[str, object], said: str) -> None:
    plain = {"messages": [(0, 1, 5)], "node_of_rank": nodes_of(2, 2), "nccl": "2.26"}
    with pytest.raises(InputError, match=said):
        point_to_point_signature(**{**plain, **changes})  # type: ignore[arg-type]


def test_refusals_of_all_to_all() -> None:
    with pytest.raises(InputError, match="on 1 rank"):
        all_to_all_signature(5, [0], nccl="2.26")
    with pytest.raises(InputError, match="moves nothing"):
        all_to_all_signature(0, [0, 1], nccl="2.26")
