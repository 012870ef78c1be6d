"""Ring schedules executed on symbolic data, and counted against the closed forms.

Values are sets of contributing ranks (bit r = rank r), so a contribution that is missing or counted twice shows.
"""

from collections import Counter, defaultdict

import numpy as np
import pytest
from helpers.graphs import fabric, operations_of
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles.matching import matched
from oracles.ring_data import Machine, Piece

from atlas_lp.errors import UnsupportedError
from atlas_lp.goal import CALC, RECV, SEND, Schedule, event_graph
from atlas_lp.signatures.algorithms.expand import expand, operation_count
from atlas_lp.signatures.algorithms.ring import PRIMITIVES, ring_steps
from atlas_lp.signatures.nccl.collectives import WITH_KERNEL
from atlas_lp.signatures.nccl.protocols import Protocol
from atlas_lp.signatures.signature import Signature, ring_signature
from atlas_lp.signatures.topology import assumed_rings
from atlas_lp.solver.axis import point
from atlas_lp.solver.longest_path import Evaluator

KIB, MIB = 1 << 10, 1 << 20
VERSIONS = ("2.20.5", "2.22.3", "2.23.4", "2.26.2", "2.29.1")
STEP = {Protocol.SIMPLE: 512 * KIB, Protocol.LL: 32 * KIB, Protocol.LL128: 576_000}


def signature_of(
    collective: str,
    protocol: Protocol,
    size_bytes: int,
    ranks: int,
    per_node: int,
    channels: int,
    nccl: str = "2.20.5",
    **options: int,
) -> Signature:
    nodes = [rank // per_node for rank in range(ranks)]
    return ring_signature(collective, protocol, size_bytes, assumed_rings(nodes, channels), nodes, nccl=nccl, **options)


@st.composite
def signatures(draw: st.DrawFn, collective: str) -> Signature:
    """Rings of up to 16 ranks; sizes from one element to a few loops, rarely divisible by anything."""
    ranks = draw(st.sampled_from([2, 3, 4, 5, 8, 16]))
    per_node = draw(st.sampled_from([k for k in (1, 2, 4, 8, ranks) if ranks % k == 0]))
    channels = draw(st.integers(1, 4))
    protocol, nccl = draw(st.sampled_from(Protocol)), draw(st.sampled_from(VERSIONS))
    element = draw(st.sampled_from([1, 2, 4, 8]))
    rooted = collective in ("Broadcast", "Reduce")
    loop = STEP[protocol] * (4 if protocol is Protocol.SIMPLE and not rooted else 1)
    loop *= ranks if collective == "AllReduce" else 1
    elements = draw(
        st.sampled_from([1, 7, ranks, loop // element])
        | st.integers(1, 3 * loop // element)
        | st.integers(1, 3).map(lambda loops: loops * channels * loop // element)
    )
    root = draw(st.integers(0, ranks - 1)) if rooted else 0
    return signature_of(
        collective, protocol, elements * element, ranks, per_node, channels, nccl, element_bytes=element, root=root
    )


def pieces(signature: Signature) -> dict[tuple[int, int], list[Piece]]:
    """What every (rank, channel) works on, in order."""
    found: dict[tuple[int, int], list[Piece]] = defaultdict(list)
    for part in signature.parts:
        steps = ring_steps(signature, part)
        columns = steps.index, steps.primitive, steps.chunk, steps.elements
        for index, primitive, chunk, elements in zip(*(c.tolist() for c in columns), strict=True):
            mine = found[signature.rings[part.ring][index], part.channel]
            name = PRIMITIVES[primitive].name
            again = bool(mine) and (mine[-1].primitive, mine[-1].chunk) == (name, chunk)
            mine.append(Piece(name, chunk, mine[-1].number + 1 if again else 0, elements))
    return found


def piece_of_operation(signature: Signature, schedule: Schedule) -> list[Piece]:
    """The piece that every operation serves; receive, calc and send of a piece stand in this order."""
    found: list[Piece] = []
    waiting = {
        where: [(kind, piece) for piece in mine for kind in kinds_of(piece)][::-1]
        for where, mine in pieces(signature).items()
    }
    columns = schedule.rank, schedule.cpu, schedule.kind
    for rank, channel, kind in zip(*(column.tolist() for column in columns), strict=True):
        expected, piece = waiting[rank, channel].pop()
        assert kind == expected
        found.append(piece)
    assert not any(waiting.values())
    return found


def kinds_of(piece: Piece) -> list[int]:
    kinds = [RECV] if piece.primitive.startswith("RECV") else []
    return kinds + [CALC] + ([SEND] if piece.primitive.endswith("SEND") else [])


def machine_of(signature: Signature, schedule: Schedule) -> Machine:
    found = operations_of(schedule)
    return Machine(
        found.kind,
        found.rank,
        schedule.cpu.tolist(),
        [(before, after) for before, after, _ in found.dependencies],
        matched(found.kind, found.rank, found.peer, found.tag),
        piece_of_operation(signature, schedule),
        reduces=signature.collective in ("AllReduce", "ReduceScatter", "Reduce"),
    )


def expected_output(signature: Signature, ring: tuple[int, ...], rank: int, chunk: int) -> int | None:
    """Contributions that *rank* must hold of *chunk* in the end; None when the chunk is not its own to hold."""
    everyone = (1 << signature.ranks) - 1
    match signature.collective:
        case "AllReduce":
            return everyone
        case "AllGather":
            return 1 << ring[chunk % signature.ranks]
        case "ReduceScatter":
            return everyone if ring[chunk % signature.ranks] == rank else None
        case "Broadcast":
            return 1
        case _:
            return everyone if rank == 0 else None


@pytest.mark.parametrize("collective", WITH_KERNEL)
@settings(max_examples=60)
@given(data=st.data())
def test_the_data_are_right(collective: str, data: st.DataObject) -> None:
    signature = data.draw(signatures(collective))
    n = signature.ranks
    machine = machine_of(signature, expand(signature))
    assert machine.most_held <= signature.fifo_slices
    lengths: dict[int, dict[tuple[int, int], int]] = defaultdict(dict)
    for (_, channel), mine in pieces(signature).items():
        for piece in mine:
            assert lengths[channel].setdefault(piece.key, piece.elements) == piece.elements
    for part in signature.parts:
        ring, whole = signature.rings[part.ring], lengths[part.channel]
        for rank in range(n):
            wanted = {key: expected_output(signature, ring, rank, key[0]) for key in whole}
            assert machine.output[rank, part.channel] == {k: v for k, v in wanted.items() if v is not None}
        # The chunks cover the part: of the whole, or of every rank's block.
        if collective in ("AllGather", "ReduceScatter"):
            for block in range(n):
                assert sum(v for (chunk, _), v in whole.items() if chunk % n == block) == part.count
        else:
            assert sum(whole.values()) == part.count
    assert sum(part.count for part in signature.parts) * signature.element_bytes == signature.size_bytes


def wire(protocol: Protocol, data_bytes: int) -> int:
    if protocol is Protocol.LL:
        return 16 * ((data_bytes + 7) // 8)  # 8 bytes of data and 8 of flags a line
    if protocol is Protocol.LL128:
        return 2048 * ((data_bytes + 1919) // 1920)  # a warp moves 16 lines of 120 + 8 bytes
    return data_bytes


@pytest.mark.parametrize("collective", WITH_KERNEL)
@settings(max_examples=20)
@given(data=st.data())
def test_messages_carry_their_bytes_around_the_ring(collective: str, data: st.DataObject) -> None:
    signature = data.draw(signatures(collective))
    schedule = expand(signature)
    following = {
        (rank, part.channel): ring[(i + 1) % signature.ranks]
        for part in signature.parts
        for ring in [signature.rings[part.ring]]
        for i, rank in enumerate(ring)
    }
    for operation, piece in enumerate(piece_of_operation(signature, schedule)):
        rank, channel, peer = (int(column[operation]) for column in (schedule.rank, schedule.cpu, schedule.peer))
        if schedule.kind[operation] != CALC:
            assert schedule.size[operation] == wire(signature.protocol, piece.elements * signature.element_bytes)
            ends = (rank, peer) if schedule.kind[operation] == SEND else (peer, rank)
            assert following[ends[0], channel] == ends[1]
            assert schedule.nic[operation] == signature.nics[rank]


def slices_of(signature: Signature, elements: int) -> int:
    """Non-empty slices of a chunk (facts: 1.3)."""
    if signature.protocol is not Protocol.SIMPLE:
        return min(elements, 1)
    count = 1 if signature.collective in ("Broadcast", "Reduce") else 2
    floor = (16 * KIB if count == 1 else 32 * KIB) // signature.element_bytes
    first = max(16 * -(-elements // (16 * count)), floor)
    return min(count, -(-elements // first))


def last_chunk(signature: Signature, left: int) -> int:
    """Chunk of the last loop of AllReduce (facts: 1.4)."""
    if signature.split == "2.20":
        grain = {
            Protocol.SIMPLE: 4096 // signature.element_bytes,
            Protocol.LL: 8 // signature.element_bytes * signature.threads,
            Protocol.LL128: 480 // signature.element_bytes * (signature.threads // 32),
        }[signature.protocol]
    else:
        grain = max(1, 16 // signature.element_bytes)
    each = -(-left // signature.ranks)
    return -(-each // grain) * grain


def chunk_slices(signature: Signature) -> int:
    """M of AllReduce, Q of the others, summed over channels (facts: 7)."""
    n, total = signature.ranks, 0
    rooted = signature.collective in ("Broadcast", "Reduce")
    whole = STEP[signature.protocol] * (4 if signature.protocol is Protocol.SIMPLE and not rooted else 1)
    chunk = whole // signature.element_bytes
    for part in signature.parts:
        left = part.count
        while left > 0:
            if signature.collective == "AllReduce":
                k = chunk if left >= n * chunk else last_chunk(signature, left)
                filled = min(n, left // k)
                rest = left - filled * k if filled < n else 0
                total += filled * slices_of(signature, k) + slices_of(signature, rest)
                left -= n * chunk
            else:
                total += slices_of(signature, min(chunk, left))
                left -= chunk
    return total


def closed_form(signature: Signature) -> tuple[int, int]:
    """Sends and calcs; a calc stands for every slice, also of the first send and of the last receive."""
    n, slices = signature.ranks, chunk_slices(signature)
    return {
        "AllReduce": (2 * (n - 1) * slices, (2 * n - 1) * slices),
        "AllGather": (n * (n - 1) * slices, n * n * slices),
        "ReduceScatter": (n * (n - 1) * slices, n * n * slices),
        "Broadcast": ((n - 1) * slices, n * slices),
        "Reduce": ((n - 1) * slices, n * slices),
    }[signature.collective]


@pytest.mark.parametrize("collective", WITH_KERNEL)
@given(data=st.data())
def test_counts_are_the_closed_forms(collective: str, data: st.DataObject) -> None:
    signature = data.draw(signatures(collective))
    schedule = expand(signature)
    sends, calcs = closed_form(signature)
    assert [schedule.count(kind) for kind in (SEND, RECV, CALC)] == [sends, sends, calcs]
    assert operation_count(signature) >= len(schedule)


def test_equal_chunks_send_the_optimum_of_bytes() -> None:
    signature = signature_of("AllReduce", Protocol.SIMPLE, 32 * MIB, ranks=8, per_node=4, channels=2)
    schedule = expand(signature)
    for part in signature.parts:
        for rank in range(8):
            mine = (schedule.rank == rank) & (schedule.cpu == part.channel) & (schedule.kind == SEND)
            assert schedule.size[mine].sum() == 2 * 7 * part.count * 4 // 8


LL, LL128, SIMPLE = Protocol.LL, Protocol.LL128, Protocol.SIMPLE
ROWS = [
    ("AllReduce", SIMPLE, 128 * MIB, 1, "2.20.5", 16_128, 4_032),
    ("AllReduce", SIMPLE, 128 * MIB, 1, "2.29.1", 16_128, 4_032),
    ("AllReduce", SIMPLE, 128 * MIB, 8, "2.20.5", 129_024, 32_256),
    ("AllReduce", SIMPLE, 128 * MIB, 8, "2.29.1", 129_024, 32_256),
    ("AllReduce", LL, MIB, 8, "2.20.5", 30_366, 7_591),
    ("AllReduce", LL128, MIB, 8, "2.20.5", 16_254, 4_063),
    ("AllReduce", SIMPLE, 64 * KIB, 1, "2.20.5", 2_016, 504),
    ("AllReduce", SIMPLE, 64 * KIB, 1, "2.22.3", 8_064, 2_016),
    # Sizes of AllGather and ReduceScatter are those of one rank: 2 MiB are 128 MiB in all.
    ("AllGather", SIMPLE, 2 * MIB, 1, "2.20.5", 8_064, 2_016),
    ("AllGather", SIMPLE, 2 * MIB, 8, "2.20.5", 64_512, 16_128),
    ("ReduceScatter", SIMPLE, 2 * MIB, 1, "2.20.5", 8_064, 2_016),
    ("ReduceScatter", SIMPLE, 2 * MIB, 8, "2.20.5", 64_512, 16_128),
    # 256 chunks along a chain that leaves a node 15 times, and once more to come back to the root.
    ("Broadcast", SIMPLE, 128 * MIB, 1, "2.20.5", 16_128, 15 * 256),
    ("Broadcast", SIMPLE, 128 * MIB, 8, "2.20.5", 16_128, None),
    ("Reduce", SIMPLE, 128 * MIB, 1, "2.20.5", 16_128, 16 * 256),
    ("Reduce", SIMPLE, 128 * MIB, 8, "2.20.5", 16_128, None),
]


@pytest.mark.parametrize(("collective", "protocol", "size", "channels", "nccl", "sends", "inter_node"), ROWS)
def test_published_counts_of_64_ranks(
    collective: str, protocol: Protocol, size: int, channels: int, nccl: str, sends: int, inter_node: int | None
) -> None:
    signature = signature_of(collective, protocol, size, 64, 4, channels, nccl, threads=544)
    schedule = expand(signature)
    assert (schedule.count(SEND), schedule.count(RECV)) == (sends, sends)
    assert closed_form(signature)[0] == sends
    assert schedule.count(CALC) == closed_form(signature)[1]
    is_send = schedule.kind == SEND
    leaves = schedule.rank[is_send] // 4 != schedule.peer[is_send] // 4
    if inter_node is not None:
        # The count of a ring with a short chunk depends on where that chunk starts.
        assert abs(np.count_nonzero(leaves) - inter_node) <= 1


def test_each_rank_of_the_first_row_sends_252_times() -> None:
    schedule = expand(signature_of("AllReduce", Protocol.SIMPLE, 128 * MIB, 64, 4, 1))
    assert set(Counter(schedule.rank[schedule.kind == SEND].tolist()).values()) == {252}
    assert set(Counter(schedule.rank[schedule.kind == CALC].tolist()).values()) == {254}


def test_small_payloads_leave_chunks_empty() -> None:
    """Facts 2.4: chunks and how many of them hold anything, one channel, fp32 Simple, 64 ranks."""
    for nccl, size, chunk, filled in [
        ("2.20.5", 4 * KIB, 4096, 1),
        ("2.22.3", 4 * KIB, 64, 64),
        ("2.20.5", 64 * KIB, 4096, 16),
        ("2.22.3", 64 * KIB, 1024, 64),
        ("2.20.5", MIB, 16_384, 64),
        ("2.20.5", 100_000_000, 1_564_672, 64),
        ("2.22.3", 100_000_000, 1_562_512, 64),
    ]:
        signature = signature_of("AllReduce", Protocol.SIMPLE, size, 64, 4, 1, nccl)
        lengths: Counter[int] = Counter()
        for (number, _), elements in {p.key: p.elements for mine in pieces(signature).values() for p in mine}.items():
            lengths[number] += elements * 4
        assert max(lengths.values()) == chunk
        assert len(lengths) == filled


@pytest.mark.parametrize("collective", WITH_KERNEL)
@settings(max_examples=15)
@given(data=st.data())
def test_credits_only_delay(collective: str, data: st.DataObject) -> None:
    signature = data.draw(signatures(collective))
    chosen = fabric(5000, 1, o=10, g=1, up_latency_ns=100, up_gap_ns_per_byte=1)
    times = []
    for credits in ("none", "local", "acknowledged"):
        graph = event_graph(expand(signature, credits=credits), np.array(signature.nodes))
        times.append(Evaluator(graph, chosen.theta()).at(point(chosen.latency_ns, chosen.gap_ns_per_byte)).time_ns)
    assert times == sorted(times)


def test_acknowledgements_bound_a_chain_to_its_slots_per_round_trip() -> None:
    signature = signature_of("Broadcast", Protocol.SIMPLE, 64 * 512 * KIB, 2, 1, 1)
    far = fabric(10**9)
    graphs = {c: event_graph(expand(signature, "none", c)) for c in ("local", "acknowledged")}
    at = point(far.latency_ns, far.gap_ns_per_byte)
    trips = {c: Evaluator(graph, far.theta()).at(at).vector[1] for c, graph in graphs.items()}
    # 64 slices, 8 slots: seven round trips before the last eight slices, and their own way.
    assert trips == {"local": 1, "acknowledged": 15}


def test_costs_stand_in_the_calcs() -> None:
    signature = signature_of("AllReduce", Protocol.SIMPLE, 4 * MIB, 4, 2, 1)
    free = expand(signature, "none")
    assert free.size[free.kind == CALC].tolist() == [0] * free.count(CALC)
    costly = expand(signature)
    assert costly.size[costly.kind == CALC].min() > 0


def test_too_large_to_expand() -> None:
    signature = signature_of("AllReduce", Protocol.SIMPLE, 128 * MIB, 4096, 4, 1)
    assert operation_count(signature) >= 100_634_624
    with pytest.raises(UnsupportedError, match="AllReduce on 4096 ranks expands to"):
        expand(signature)
