"""What a signature carries beside its algorithm: NICs, recorded parts, the loops of NCCL 2.19."""

from collections import Counter

import numpy as np
import pytest
from helpers.schedules import check, nodes_of
from hypothesis import given
from hypothesis import strategies as st

from atlas_lp.errors import InputError
from atlas_lp.goal import SEND
from atlas_lp.signatures.algorithms.expand import expand
from atlas_lp.signatures.algorithms.ring import ring_steps
from atlas_lp.signatures.nccl.collectives import WITH_KERNEL
from atlas_lp.signatures.nccl.protocols import Protocol
from atlas_lp.signatures.nccl.splits import Task, interleaved_lengths, interleaved_parts
from atlas_lp.signatures.placement import shared_nics
from atlas_lp.signatures.signature import Signature, ring_signature
from atlas_lp.signatures.topology import assumed_rings

KIB, MIB = 1 << 10, 1 << 20


def ring(
    collective: str = "AllReduce",
    protocol: Protocol = Protocol.SIMPLE,
    size: int = MIB,
    nodes: int = 2,
    per_node: int = 2,
    channels: int = 2,
    nccl: str = "2.20.5",
    **options: object,
) -> Signature:
    places = nodes_of(nodes, per_node)
    return ring_signature(
        collective,
        protocol,
        size,
        assumed_rings(places, channels),
        places,
        nccl=nccl,
        **options,  # type: ignore[arg-type]
    )


def ports(signature: Signature) -> set[tuple[int, int, int]]:
    """(node, channel, nic) of all sends between nodes."""
    schedule, nodes = expand(signature), np.array(signature.nodes)
    out = (schedule.kind == SEND) & (nodes[schedule.rank] != nodes[schedule.peer])
    columns = nodes[schedule.rank[out]], schedule.cpu[out], schedule.nic[out]
    return set(zip(*(column.tolist() for column in columns), strict=True))


def test_channels_leave_a_node_through_different_gpus() -> None:
    assert ports(ring()) == {(0, 0, 1), (0, 1, 0), (1, 0, 1), (1, 1, 0)}


def test_gpus_may_share_a_nic() -> None:
    assert {nic for _, _, nic in ports(ring(nic_of_rank=shared_nics(nodes_of(2, 2), 2)))} == {0}


def test_recorded_parts_win_over_the_split() -> None:
    count = MIB // 4
    signature = ring(parts=[(1, count)])
    assert [(part.channel, part.count) for part in signature.parts] == [(1, count)]
    assert signature.split == "2.20"
    assert set(check(signature).cpu.tolist()) == {1}
    # The rule's own parts, when recorded, are the same signature.
    own = ring()
    assert ring(parts=[(part.channel, part.count) for part in own.parts]).key() == own.key()


def test_recorded_last_chunk() -> None:
    signature = ring(size=4000, parts=[(0, 1000, 512)], channels=1)
    assert signature.split == "recorded"
    steps = ring_steps(signature, signature.parts[0])
    assert Counter(steps.elements.tolist()) == {512: 2 * 4 - 1, 488: 2 * 4 - 1}


@pytest.mark.parametrize(("parts", "said"), [([(0, 5)], "hold 5 of 262144"), ([(2, MIB // 4)], "channel 2 of 2")])
def test_impossible_parts(parts: list[tuple[int, int]], said: str) -> None:
    with pytest.raises(InputError, match=said):
        ring(parts=parts)


@given(
    st.sampled_from(WITH_KERNEL),
    st.sampled_from(Protocol),
    st.integers(1, 5),
    st.sampled_from([1, 2, 4]),
    st.sampled_from([2, 3, 8]),
    st.integers(1, 3_000_000),
)
def test_loops_of_219_cover_everything_once(
    collective: str, protocol: Protocol, channels: int, element: int, ranks: int, count: int
) -> None:
    task = Task(collective, protocol, count, element, channels, protocol.default_threads)
    chunk = (2 * MIB if protocol is Protocol.SIMPLE else protocol.step_bytes) // element
    chunks = ranks if collective == "AllReduce" else 1
    total = 0
    for channel in range(channels):
        for lengths in interleaved_lengths(task, chunk, chunks, channel):
            assert len(lengths) == chunks
            assert 0 <= int(lengths.min()) <= int(lengths.max()) <= chunk
            total += int(lengths.sum())
    assert total == count
    parts = interleaved_parts(task, chunk, chunks)
    assert sum(part for _, part in parts) == count


@pytest.mark.parametrize("collective", WITH_KERNEL)
@pytest.mark.parametrize("protocol", list(Protocol))
@pytest.mark.parametrize("size", [1, 7, 100_000, 9 * MIB + 5])
def test_schedules_of_219(collective: str, protocol: Protocol, size: int) -> None:
    signature = ring(collective, protocol, 4 * size, 2, 2, 3, "2.19.3")
    check(signature)
    assert signature.split == "2.19"
    carried = sum(int(ring_steps(signature, part).elements.sum()) for part in signature.parts)
    work = {"AllReduce": 7, "AllGather": 4 * 4, "ReduceScatter": 4 * 4, "Broadcast": 4, "Reduce": 4}[collective]
    assert carried == work * 4 * size // signature.element_bytes


def test_last_loop_of_219_shares_what_is_left() -> None:
    # 64 KiB over 2 channels and 4 ranks: 8 KiB each, a whole number of (544 - 32) x 8 bytes.
    (first, _) = (ring(size=64 * KIB, nccl="2.19.3").parts[c] for c in (0, 1))
    assert first.count == 8192
    signature = ring(size=64 * KIB, nccl="2.19.3")
    assert set(ring_steps(signature, first).elements.tolist()) == {2048}
    assert signature.key() != ring(size=64 * KIB, nccl="2.20.5").key()
