"""Ports serve first come, first served: the kernel, the graph and an event simulation agree."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from helpers.graphs import fabric, operations_of, schedules
from hypothesis import given
from hypothesis import strategies as st
from oracles import first_ready
from oracles.loggp import Network

from atlas_lp.errors import CycleError
from atlas_lp.fabrics.fabric import Fabric
from atlas_lp.goal import COMPONENTS, SEND, PortRule, Schedule, parse_goal
from atlas_lp.solver.axis import point
from atlas_lp.solver.longest_path import Evaluator

SPREAD = fabric(97, Fraction(5, 3), o=11, g=7, up_latency_ns=13, up_gap_ns_per_byte=Fraction(1, 2))
TIES = fabric(10, 1, up_latency_ns=10)
ZERO = fabric()


def first_come(schedule: Schedule, nodes: list[int], f: Fabric) -> first_ready.Run:
    network = Network(
        f.latency_ns, f.gap_ns_per_byte, f.overhead_ns, f.message_gap_ns, f.up_latency_ns, f.up_gap_ns_per_byte
    )
    return first_ready.run(operations_of(schedule), nodes, f.port_rule.value, network, f.ingress)


def by_port(schedule: Schedule, sends: list[int], nodes: list[int], rule: PortRule) -> dict[tuple[int, int], list[int]]:
    """Scale-out sends in the order in which each port takes them."""
    ports: dict[tuple[int, int], list[int]] = {}
    for send in sends:
        rank, peer = int(schedule.rank[send]), int(schedule.peer[send])
        if nodes[rank] != nodes[peer]:
            port = (nodes[rank], int(schedule.nic[send])) if rule is PortRule.PORT else (rank, peer)
            ports.setdefault(port, []).append(send)
    return ports


@given(
    schedules(on_start=False),
    st.lists(st.integers(0, 1), min_size=3, max_size=3),
    st.sampled_from(PortRule),
    st.booleans(),
    st.sampled_from([SPREAD, TIES, ZERO]),
)
def test_graph_and_kernel_are_the_simulation(
    schedule: Schedule, nodes: list[int], rule: PortRule, ingress: bool, f: Fabric
) -> None:
    f = replace(f, port_rule=rule, ingress=ingress)
    judge = first_come(schedule, nodes, f)
    messages = f.messages(schedule, np.array(nodes))
    served = messages.served(f.theta())
    assert served.end_ns == judge.makespan
    assert Evaluator(messages.graph(served), f.theta()).at(point(*f.native)).time_ns == judge.makespan
    if rule is not PortRule.NONE:
        place = messages.place(served)
        sends = np.flatnonzero(schedule.kind == SEND)
        ours = sends[np.argsort(place[sends], kind="stable")].tolist()
        assert by_port(schedule, ours, nodes, rule) == by_port(schedule, judge.sends, nodes, rule)


READY_BEHIND_UNREADY = """
num_ranks 3
rank 0 {
a: calc 1000000
b: send 1b to 1
b requires a
c: recv 1b from 2
d: send 1b to 2
d requires c
e: recv 1b from 2 tag 1
}
rank 1 {
recv 1b from 0
}
rank 2 {
f: send 1b to 0
g: recv 1b from 0
h: calc 1000000
h requires g
i: send 1b to 0 tag 1
i requires h
}
"""


def test_a_ready_message_does_not_wait_for_one_that_is_not() -> None:
    """By depth the answer to rank 2, third in its chain, would wait 1 ms for the send behind the calc."""
    schedule, f = parse_goal(READY_BEHIND_UNREADY), fabric(1000, 1, o=100, g=10)
    messages = f.messages(schedule)
    by_depth, ready = (messages.graph(messages.served(theta)) for theta in (None, f.theta()))
    times = [Evaluator(graph, f.theta()).at(point(*f.native)).time_ns for graph in (by_depth, ready)]
    assert times == [1_000_100 + 10 + 1100 + 1_000_000 + 1200, 3 * 1200 + 1_000_000]
    assert first_come(schedule, [0, 1, 2], f).makespan == times[1]


def test_without_parameters_messages_go_by_depth_place_and_rank() -> None:
    schedule = parse_goal(READY_BEHIND_UNREADY)
    messages = fabric().messages(schedule)
    place = messages.place(messages.served())
    assert place[1] < place[3], "b is the second of its chain, d the third"


@given(schedules(on_start=False), st.integers(1, 10**9), st.sampled_from([SPREAD, TIES]))
def test_turns_come_before_readiness(schedule: Schedule, seed: int, f: Fabric) -> None:
    """An order given as turns is kept, and served again it is what it was."""
    messages = f.messages(schedule)
    turn = messages.place(messages.served(f.theta()))
    in_turn = f.messages(replace(schedule, turn=turn))
    elsewhere = {name: Fraction(seed % (97 + i)) for i, name in enumerate(COMPONENTS)}
    assert np.array_equal(in_turn.place(in_turn.served(elsewhere)), turn)


def test_turns_that_contradict_dependencies_are_named() -> None:
    sends = "a: send 1b to 1\nb: send 1b to 1\nb requires a\n"
    text = f"num_ranks 2\nrank 0 {{\n{sends}}}\nrank 1 {{\nrecv 1b from 0\nrecv 1b from 0\n}}"
    schedule = replace(parse_goal(text), turn=np.array([1, 0, 0, 0]))
    with pytest.raises(CycleError, match=r"rank 0 operation 1 .* -> rank 0 operation 2 "):
        SPREAD.graph(schedule)


def test_sums_beyond_61_bits_are_served_in_coarser_units() -> None:
    """The order of whole seconds is right although nothing exact fits."""
    f = fabric(Fraction(1, 3), Fraction(1, 7), o=Fraction(1, 11), g=Fraction(1, 13))
    text = (
        f"num_ranks 2\nrank 0 {{\na: calc {10**16}\nb: send 5b to 1\nb requires a\nc: send 5b to 1 tag 1\n}}\n"
        "rank 1 {\nrecv 5b from 0\nrecv 5b from 0 tag 1\n}"
    )
    messages = f.messages(parse_goal(text))
    served = messages.served(f.theta())
    assert messages.place(served).tolist() == [0, 1, 0, 0, 0]
    assert abs(served.end_ns - Evaluator(messages.graph(served), f.theta()).at(point(*f.native)).time_ns) < 1
