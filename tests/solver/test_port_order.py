"""One order for the whole box, and how far first come, first served is from it."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from helpers.graphs import operations_of
from oracles import first_ready
from oracles.loggp import Network

from atlas_lp.collectives.solver import CollectiveSolver
from atlas_lp.fabrics.fabric import Fabric, load_fabric
from atlas_lp.goal import parse_goal
from atlas_lp.signatures.algorithms.algorithm import Parameters
from atlas_lp.signatures.algorithms.assumed import assumed_signature
from atlas_lp.signatures.algorithms.expand import expand
from atlas_lp.signatures.nccl.protocols import Protocol
from atlas_lp.signatures.signature import Signature
from atlas_lp.solver.envelope import Envelope
from atlas_lp.solver.port_order import TOLERATED, solve_messages

ALPS = load_fabric()
ACKNOWLEDGED = replace(ALPS, credits="acknowledged")
TOLD = [Fraction(latency) for latency in (0, 3700, 20_000, 100_000, 1_000_000)]


def collective(name: str, algorithm: str, size: int, ranks: int, per_node: int = 1, **more: object) -> Signature:
    nodes = [rank // per_node for rank in range(ranks)]
    more = {"nccl": "2.28", "protocol": Protocol.SIMPLE, **more}
    return assumed_signature(Parameters(name, size, nodes, algorithm=algorithm, **more))[0]  # type: ignore[arg-type]


def first_come_ns(signature: Signature, f: Fabric, latency: Fraction) -> Fraction:
    """All ranks of *signature* on ports that serve first come, first served at *latency*."""
    schedule = expand(signature, f.reduce_copy, f.credits)
    network = Network(
        latency, f.gap_ns_per_byte, f.overhead_ns, f.message_gap_ns, f.up_latency_ns, f.up_gap_ns_per_byte
    )
    return first_ready.run(
        operations_of(schedule), list(signature.nodes), f.port_rule.value, network, f.ingress
    ).makespan


def differences(envelope: Envelope, signature: Signature, f: Fabric) -> list[float]:
    """Relative difference from first come, first served at each of the latencies told."""
    times = [first_come_ns(signature, f, latency) for latency in TOLD]
    ours = [envelope.time_ns(latency, f.gap_ns_per_byte) for latency in TOLD]
    return [float(abs(our - time) / time) for our, time in zip(ours, times, strict=True)]


def test_a_tree_of_three_ranks() -> None:
    """100, 133 and 452 us at 3.7, 20 and 100 us, at a slope of four messages, where the order by depth has 24."""
    signature = collective("AllReduce", "tree", 1 << 20, 3, protocol=Protocol.LL128)
    envelope = CollectiveSolver(ALPS).solve(signature)
    times = [round(float(envelope.time_ns(Fraction(1000 * us), ALPS.gap_ns_per_byte)) / 1000) for us in (20, 100)]
    assert times == [133, 452]
    assert round(float(envelope.time_ns(*ALPS.native))) == 100_463
    assert max(differences(envelope, signature, ALPS)) == 0


CASES = [
    ("AllReduce", "tree", 1 << 20, 3, 1, {"protocol": Protocol.LL128}, ALPS),
    ("AllReduce", "tree", 3 << 20, 6, 2, {"channels": 2}, ALPS),
    ("AllReduce", "nvls_tree", 1 << 20, 8, 2, {"channels": 2}, ALPS),
    ("AllGather", "pat", 100_000, 8, 1, {"channels": 2}, ALPS),
    ("ReduceScatter", "pat", 70_000, 7, 1, {}, ALPS),
    ("AllToAll", "p2p", 100_000, 6, 2, {"channels": 4}, ALPS),
    ("AllToAll", "p2p", 4096, 6, 3, {"channels": 2, "per_peer": 1, "nic_of_rank": [0, 0, 1, 0, 0, 1]}, ALPS),
    ("AllReduce", "ring", 1 << 20, 4, 2, {"channels": 2}, ACKNOWLEDGED),
    ("AllGather", "ring", 1 << 20, 4, 1, {"channels": 2}, ACKNOWLEDGED),
    ("AllReduce", "ring", 1_000_000, 4, 2, {"channels": 2}, ALPS),
    ("Broadcast", "ring", 1 << 20, 4, 2, {"channels": 2}, ALPS),
]


@pytest.mark.parametrize(("name", "algorithm", "size", "ranks", "per_node", "more", "f"), CASES)
@pytest.mark.parametrize("ingress", [False, True])
def test_native_is_first_come_first_served_and_the_rest_is_named(
    name, algorithm, size, ranks, per_node, more, f, ingress
):
    f = replace(f, ingress=ingress)
    signature = collective(name, algorithm, size, ranks, per_node, **more)
    envelope = CollectiveSolver(f).solve(signature)
    found = differences(envelope, signature, f)
    assert found[TOLD.index(f.latency_ns)] == 0
    named = 0.0 if envelope.order is None else envelope.order.difference
    assert max(found) <= max(named, 0.02)


def test_the_difference_that_is_named_is_there() -> None:
    """T and first come, first served differ by what is named, where it is named."""
    signature = collective("AllReduce", "nvls_tree", 1 << 20, 8, 2, channels=2)
    order = CollectiveSolver(ALPS).solve(signature).order
    assert order.difference > TOLERATED
    latency, gap = order.worst_at
    there = replace(ALPS, gap_ns_per_byte=gap)
    ours = CollectiveSolver(ALPS).solve(signature).time_ns(latency, gap)
    time = first_come_ns(signature, there, latency)
    assert float(abs(ours - time) / time) == pytest.approx(order.difference)


def test_the_order_of_another_point_is_kept_where_it_is_nearer() -> None:
    """The order of long latencies leaves a tree as it is at the native point, and is right at long latencies, too."""
    signature = collective("AllReduce", "tree", 1 << 20, 3, protocol=Protocol.LL128)
    schedule, nodes = expand(signature), np.array(signature.nodes)
    messages = ALPS.messages(schedule, nodes)
    graph, envelope = solve_messages(messages, ALPS)
    assert envelope.order.at != ALPS.native
    alone = ALPS.in_order_of(ALPS.native).graph(schedule, nodes)
    assert graph.edges == alone.edges
    native = solve_messages(
        ALPS.messages(replace(schedule, turn=messages.place(messages.served(ALPS.theta()))), nodes), ALPS
    )[1]
    far = Fraction(10**6), ALPS.gap_ns_per_byte
    assert native.time_ns(*ALPS.native) == envelope.time_ns(*ALPS.native)
    assert native.time_ns(*far) > 2 * envelope.time_ns(*far)


def test_messages_that_never_meet_have_no_order() -> None:
    schedule = parse_goal("num_ranks 2\nrank 0 {\nsend 8b to 1\n}\nrank 1 {\nrecv 8b from 0\n}")
    assert solve_messages(ALPS.messages(schedule), ALPS)[1].order is None


def test_another_native_point_is_the_same_question_and_another_order_is_not() -> None:
    signature = collective("AllReduce", "ring", 1 << 20, 4)
    keys = [
        CollectiveSolver(f).key(signature)
        for f in (
            ALPS,
            ALPS.at(latency_ns=Fraction(9)),
            ALPS.at(latency_ns=Fraction(9)).at(gap_ns_per_byte=Fraction(1)),
            ALPS.in_order_of((Fraction(9), Fraction(1))),
        )
    ]
    assert keys[0] == keys[1] == keys[2] != keys[3]
