"""The LogGP graph: two and three ranks by hand, the three port rules, and everything that is refused."""

from fractions import Fraction

import numpy as np
import pytest
from helpers.graphs import fabric, graph_of, operations_of, schedule_of, schedules
from hypothesis import given
from hypothesis import strategies as st
from oracles.loggp import Network, makespan

from atlas_lp.errors import CycleError, GoalError
from atlas_lp.fabrics.fabric import Fabric
from atlas_lp.goal import CALC, RECV, SEND, EventGraph, PortRule, Schedule, event_graph, parse_goal
from atlas_lp.goal.schedule import with_program_order
from atlas_lp.solver.axis import point
from atlas_lp.solver.longest_path import Evaluator, PathVector

PORT, DESTINATION, NONE = PortRule.PORT, PortRule.DESTINATION, PortRule.NONE


def goal(*blocks: str) -> Schedule:
    """GOAL text from the blocks of the ranks; statements are separated by semicolons."""
    lines = [f"num_ranks {len(blocks)}"]
    for rank, block in enumerate(blocks):
        lines += [f"rank {rank} {{", *(s.strip() for s in block.split(";") if s.strip()), "}"]
    return parse_goal("\n".join(lines))


def longest(graph: EventGraph, chosen: Fabric) -> tuple[Fraction, PathVector]:
    found = Evaluator(graph, chosen.theta()).at(point(chosen.latency_ns, chosen.gap_ns_per_byte))
    return found.time_ns, found.vector


def time(schedule: Schedule, chosen: Fabric, rule: PortRule = PORT, nodes: list[int] | None = None) -> Fraction:
    return longest(event_graph(schedule, None if nodes is None else np.array(nodes), rule), chosen)[0]


SLOW = fabric(1000, 2, o=100, g=10)
"""L 1000, G 2, o 100, g 10: a message of 51 bytes takes 1300, its port 110."""


@pytest.mark.parametrize(
    ("size", "ns", "vector"),
    [
        (51, 1300, (0, 1, 50, 2, 0, 0, 0)),
        (1, 1200, (0, 1, 0, 2, 0, 0, 0)),
        (0, 1200, (0, 1, 0, 2, 0, 0, 0)),  # latency without bytes, never a negative body
    ],
)
def test_one_message(size: int, ns: int, vector: PathVector) -> None:
    graph = event_graph(goal(f"send {size}b to 1", f"recv {size}b from 0"))
    assert longest(graph, SLOW) == (ns, vector)


def test_calcs_follow_what_they_require_and_nothing_else() -> None:
    block = "a: calc 10; b: calc 20; c: calc 5; c requires a; c requires b; d: calc 24"
    assert time(goal(block), SLOW) == 25
    assert time(goal("a: calc 10 cpu 1; b: calc 20; c: calc 5 cpu 1"), SLOW) == 20


def test_program_order_chains_each_cpu_of_a_rank() -> None:
    schedule = goal("calc 10; calc 20 cpu 1; calc 5", "calc 14")
    assert time(with_program_order(schedule), SLOW) == 20
    assert time(with_program_order(goal("calc 10; calc 20; calc 5", "calc 14")), SLOW) == 35


def test_a_receive_waits_for_what_it_requires() -> None:
    # The message is there at 1300; a receive that starts later costs its overhead alone.
    late = goal("send 51b to 1", "c: calc 5000; r: recv 51b from 0; r requires c")
    assert time(late, SLOW) == 5100
    # calc 1250 ends before the message: the receive ends with the message.
    early = goal("send 51b to 1", "c: calc 1150; r: recv 51b from 0; r requires c")
    assert time(early, SLOW) == 1300


def test_calc_send_recv_calc() -> None:
    schedule = goal("a: calc 7; s: send 51b to 1; s requires a", "r: recv 51b from 0; b: calc 9; b requires r")
    graph = event_graph(schedule)
    assert longest(graph, SLOW) == (1316, (16, 1, 50, 2, 0, 0, 0))


TWO_SENDS = goal("a: send 51b to 1; b: send 51b to 2", "recv 51b from 0", "recv 51b from 0")


@pytest.mark.parametrize(("rule", "ns"), [(PORT, 1300 + 110), (DESTINATION, 1300), (NONE, 1300)])
def test_sends_to_two_ranks(rule: PortRule, ns: int) -> None:
    assert time(TWO_SENDS, SLOW, rule) == ns


@pytest.mark.parametrize(("rule", "ns"), [(PORT, 1300 + 110), (DESTINATION, 1300 + 110), (NONE, 1300)])
def test_sends_to_one_rank(rule: PortRule, ns: int) -> None:
    schedule = goal("send 51b to 1; send 51b to 1", "recv 51b from 0; recv 51b from 0")
    assert time(schedule, SLOW, rule) == ns


def test_each_nic_is_a_port() -> None:
    schedule = goal("send 51b to 1 nic 0; send 51b to 1 nic 1", "recv 51b from 0; recv 51b from 0")
    assert time(schedule, SLOW) == 1300
    assert time(schedule, SLOW, DESTINATION) == 1410


def test_ranks_of_a_node_share_its_nics() -> None:
    schedule = goal("send 51b to 2", "send 51b to 2", "recv 51b from 0; recv 51b from 1")
    assert time(schedule, SLOW, nodes=[0, 0, 1]) == 1410
    assert time(schedule, SLOW, nodes=[0, 1, 2]) == 1300
    assert time(schedule, SLOW, DESTINATION, nodes=[0, 0, 1]) == 1300


def test_ingress_queues_messages_at_the_port_that_receives_them() -> None:
    incast = goal("send 51b to 2", "send 101b to 2", "recv 51b from 0; recv 101b from 1")
    # Last bytes come at 1200 and 1300; the port takes 200 + 10 for the second body.
    assert [longest(event_graph(incast, ingress=on), SLOW)[0] for on in (False, True)] == [1400, 1200 + 210 + 100]
    two_nics = goal("send 51b to 2", "send 101b to 2", "recv 51b from 0; recv 101b from 1 nic 1")
    assert longest(event_graph(two_nics, ingress=True), SLOW)[0] == 1400
    # Sends of one port are further apart than their bodies: nothing to wait for.
    series = goal("send 51b to 1; send 51b to 1", "recv 51b from 0; recv 51b from 0")
    assert longest(event_graph(series, ingress=True), SLOW)[0] == 1410
    assert longest(event_graph(incast, np.array([0, 0, 0]), ingress=True), SLOW)[0] == 0


def test_a_port_is_free_after_the_body_and_the_gap_of_its_last_message() -> None:
    # Sends of 51, 1 and 101 bytes: the third ends 110 + 10 after the first, then L + 200 + o.
    schedule = goal("send 51b to 1; send 1b to 1; send 101b to 1", "recv 51b from 0; recv 1b from 0; recv 101b from 0")
    assert longest(event_graph(schedule), SLOW) == (100 + 120 + 1000 + 200 + 100, (0, 1, 150, 2, 2, 0, 0))


def test_a_port_serves_sends_by_depth_then_position() -> None:
    # b stands first, but waits for two operations; c is ready at once and goes first.
    schedule = goal(
        "b: send 101b to 1; x: calc 1; y: calc 1; y requires x; b requires y; c: send 51b to 2",
        "recv 101b from 0",
        "recv 51b from 0",
    )
    assert time(schedule, SLOW) == 100 + 110 + 1000 + 200 + 100
    # With equal depth the position decides: b first.
    receives = "r: recv 101b from 0; z: calc 500; z requires r", "recv 51b from 0"
    assert time(goal("b: send 101b to 1; c: send 51b to 2", *receives), SLOW) == 1400 + 500
    assert time(goal("c: send 51b to 2; b: send 101b to 1", *receives), SLOW) == 110 + 1400 + 500


def test_depth_counts_messages_too() -> None:
    # Rank 1 forwards after a receive (send, receive before it), and sends a message of its own at once.
    schedule = goal(
        "send 1b to 1",
        "f: send 1b to 2; r: recv 1b from 0; f requires r; m: send 51b to 2 tag 1",
        "recv 1b from 1; recv 51b from 1 tag 1",
    )
    # m first: the port is free at 210, long before the message to forward is there at 1200.
    assert time(schedule, SLOW) == 1200 + 1200


def test_an_irequires_elsewhere_does_not_change_the_order_of_a_port() -> None:
    # One operation before `late` and two before `early`: `late` goes first, though it stands behind.
    block = "early: send 51b to 1; x: calc 0; y: calc 0; y requires x; early requires y; a: calc 0; "
    block += "late: send 101b to 1 tag 1; late requires a"
    receives = "recv 51b from 0; r: recv 101b from 0 tag 1; c: calc 500; c requires r"
    plain = time(goal(block, receives), SLOW)
    assert plain == 1400 + 500
    assert time(goal(block + "; z: calc 0; z irequires a", receives), SLOW) == plain


def test_irequires_waits_for_the_start() -> None:
    assert time(goal("a: calc 10; b: calc 20; b irequires a"), SLOW) == 20
    assert time(goal("p: calc 5; a: calc 10; a requires p; b: calc 20; b irequires a"), SLOW) == 25
    assert time(goal("p: calc 5; a: calc 10; a requires p; b: calc 20; b requires a"), SLOW) == 35
    # A send starts when it is issued, not when its port is free.
    block = "a: send 51b to 1; b: send 51b to 1; b requires a; c: calc 1250; c irequires b"
    assert time(goal(block, "recv 51b from 0; recv 51b from 0"), SLOW) == 100 + 110 + 1300 - 100
    # A receive starts when it is posted, not when its message comes.
    assert time(goal("send 51b to 1", "r: recv 51b from 0; c: calc 1301; c irequires r"), SLOW) == 1301


def test_an_exchange_with_posted_receives_is_no_cycle() -> None:
    block = "r: recv 51b from {0}; s: send 51b to {0}; s irequires r"
    assert time(goal(block.format(1), block.format(0)), SLOW) == 1300


def test_scale_up_hops_have_no_overhead_no_gap_and_no_port() -> None:
    chosen = fabric(1000, 2, o=100, g=10, up_latency_ns=30, up_gap_ns_per_byte=Fraction(1, 2))
    schedule = goal("send 50b to 1; send 50b to 1", "recv 50b from 0; recv 50b from 0")
    graph = event_graph(schedule, np.array([0, 0]))
    assert longest(graph, chosen) == (55, (0, 0, 0, 0, 0, 1, 50))
    # A message to oneself never leaves the node.
    assert time(goal("send 50b to 0; recv 50b from 0"), chosen) == 55


def test_a_path_through_both_networks() -> None:
    chosen = fabric(1000, 2, o=100, g=10, up_latency_ns=30, up_gap_ns_per_byte=1)
    schedule = goal(
        "send 50b to 1",
        "r: recv 50b from 0; s: send 51b to 2; s requires r",
        "recv 51b from 1",
    )
    assert longest(event_graph(schedule, np.array([0, 0, 1])), chosen) == (1380, (0, 1, 50, 2, 0, 1, 50))


def test_messages_match_first_in_first_out_by_source_and_tag() -> None:
    schedule = goal(
        "a: send 5b to 1 tag 3; b: send 9b to 1 tag 4; c: send 7b to 1 tag 3",
        "x: recv 9b from 0 tag 4; y: recv 5b from 0 tag 3; z: recv 7b from 0 tag 3",
    )
    sends, recvs = schedule.messages()
    assert dict(zip(sends.tolist(), recvs.tolist(), strict=True)) == {0: 4, 1: 3, 2: 5}


@pytest.mark.parametrize(
    ("blocks", "said"),
    [
        (("send 5b to 1", ""), r"rank 0 operation 1 \(send 5b to 1 tag 0\) has no matching receive"),
        (("", "calc 1; recv 5b from 0"), r"rank 1 operation 2 \(recv 5b from 0 tag 0\) has no matching send"),
        (("send 5b to 1 tag 1", "recv 5b from 0 tag 2"), r"rank 0 operation 1 \(send 5b to 1 tag 1\) has no"),
        (("send 5b to 1 tag 2", "recv 5b from 0 tag 1"), r"rank 0 operation 1 \(send 5b to 1 tag 2\) has no"),
        (("send 5b to 1; send 5b to 1", "recv 5b from 0"), r"rank 0 operation 2 .* has no matching receive"),
        (("send 5b to 1", "recv 5b from 0; recv 5b from 0"), r"rank 1 operation 2 .* has no matching send"),
        (("send 5b to 1", "recv 6b from 0"), r"rank 0 operation 1 .* is matched by rank 1 operation 1 .*sizes differ"),
    ],
)
def test_unmatched_messages_are_named(blocks: tuple[str, ...], said: str) -> None:
    with pytest.raises(GoalError, match=said):
        event_graph(goal(*blocks))


def test_cycles_are_named() -> None:
    with pytest.raises(CycleError) as caught:
        event_graph(goal("x: calc 1; a: calc 2; b: calc 3; a requires x; b requires a; a requires b"))
    said = str(caught.value)
    assert said.startswith("operations wait for each other in a cycle: ")
    assert "rank 0 operation 2 (calc 2)" in said
    assert "rank 0 operation 3 (calc 3)" in said
    assert "operation 1 (" not in said
    with pytest.raises(CycleError, match=r"cycle: rank 0 operation 1 \(calc 1\) -> rank 0 operation 1 \(calc 1\)$"):
        event_graph(goal("a: calc 1; a requires a"))


@pytest.mark.parametrize("rule", list(PortRule))
def test_a_cycle_through_messages_goes_once_around(rule: PortRule) -> None:
    waits = "r: recv 1b from {0}; s: send 1b to {0}; s requires r"
    with pytest.raises(CycleError) as caught:
        event_graph(goal(waits.format(1), waits.format(0)), port_rule=rule)
    words = str(caught.value).removeprefix("operations wait for each other in a cycle: ").split(" -> ")
    assert words[0] == words[-1]
    assert len(set(words)) == 4
    # Each operation stands before the one that waits for it.
    at = words.index("rank 0 operation 1 (recv 1b from 1 tag 0)")
    assert words[:-1][at - 3] == "rank 0 operation 2 (send 1b to 1 tag 0)"


def test_long_cycles_are_shortened() -> None:
    chain = "; ".join(f"a{i}: calc {i}" for i in range(20))
    chain += "; " + "; ".join(f"a{(i + 1) % 20} requires a{i}" for i in range(20))
    with pytest.raises(CycleError, match=r"\.\.\. 12 more \.\.\."):
        event_graph(goal(chain))


@pytest.mark.parametrize(
    ("rows", "nodes"),
    [
        ([(0, CALC, -1, -1, 0, 0, 0)], [0, 1]),
        ([(0, SEND, -1, 1, 0, 0, 0), (1, RECV, -1, 0, 0, 0, 0)], [0, 0]),
        ([(0, SEND, -1, 1, 0, 0, 0), (1, RECV, -1, 0, 0, 0, 0)], [0, 1]),
    ],
)
def test_negative_times_and_sizes_are_refused(rows: list[tuple[int, ...]], nodes: list[int]) -> None:
    with pytest.raises(GoalError, match="negative"):
        event_graph(schedule_of(2, rows), np.array(nodes))
    with pytest.raises(GoalError, match="negative"):
        graph_of(2, [(0, 1, (0, 0, 0, 0, 0, 0, -1))])


def simulate(schedule: Schedule, nodes: list[int], rule: PortRule, f: Fabric) -> Fraction:
    network = Network(
        f.latency_ns,
        f.gap_ns_per_byte,
        f.overhead_ns,
        f.message_gap_ns,
        f.up_latency_ns,
        f.up_gap_ns_per_byte,
    )
    return makespan(operations_of(schedule), nodes, rule.value, network)


NETWORK = fabric(97, Fraction(5, 3), o=11, g=7, up_latency_ns=13, up_gap_ns_per_byte=Fraction(1, 2))


@given(schedules(on_start=False), st.lists(st.integers(0, 1), min_size=3, max_size=3), st.sampled_from(PortRule))
def test_graphs_agree_with_a_simulation(schedule: Schedule, nodes: list[int], rule: PortRule) -> None:
    assert time(schedule, NETWORK, rule, nodes) == simulate(schedule, nodes, rule, NETWORK)


@given(schedules(), st.lists(st.integers(0, 1), min_size=3, max_size=3))
def test_graphs_with_irequires_agree_with_a_simulation(schedule: Schedule, nodes: list[int]) -> None:
    assert time(schedule, NETWORK, NONE, nodes) == simulate(schedule, nodes, NONE, NETWORK)


@given(schedules(), st.sampled_from(PortRule))
def test_graphs_are_in_topological_order_from_one_source(schedule: Schedule, rule: PortRule) -> None:
    graph = event_graph(schedule, port_rule=rule)
    target = np.repeat(np.arange(graph.vertices), np.diff(graph.in_start))
    assert np.all(graph.source < target)
    assert np.all(np.diff(graph.in_start)[1:] > 0)
    assert graph.in_start[1] == 0
    assert graph.in_start[-1] == graph.edges
    assert len(set(graph.vertex.tolist())) == len(schedule)
    assert graph.costs.min(initial=0) >= 0


# --- ingress: queues at the receiving port ------------------------------------------------------------------


def incast(ingress: bool, rule: PortRule = PortRule.PORT, size: int = 101) -> Fraction:
    """Ranks 1 and 2 send to rank 0 at once; L = 1000, o = 100, g = 10, G = 2."""
    blocks = ["", f"send {size}b to 0", f"send {size}b to 0"]
    blocks[0] = f"a: recv {size}b from 1; b: recv {size}b from 2; c: calc 7; c requires a; c requires b"
    lines = ["num_ranks 3"]
    for rank, block in enumerate(blocks):
        lines += [f"rank {rank} {{", *block.split("; "), "}"]
    graph = event_graph(parse_goal("\n".join(lines)), port_rule=rule, ingress=ingress)
    chosen = fabric(1000, 2, 100, 10)
    return Evaluator(graph, chosen.theta()).at(point(chosen.latency_ns, chosen.gap_ns_per_byte)).time_ns


def test_two_messages_arrive_at_once_without_ingress_and_one_after_the_other_with_it() -> None:
    # o + L + (m-1) G + o, then the calc; the second body takes another (m-1) G + g to come in.
    assert incast(False) == 100 + 1000 + 200 + 100 + 7
    assert incast(True) == 100 + 1000 + 200 + (200 + 10) + 100 + 7


def test_ingress_needs_no_queue_of_senders() -> None:
    assert incast(True, PortRule.NONE) == incast(True)


def test_empty_messages_pass_an_ingress_queue_g_apart() -> None:
    assert incast(True, size=0) == 100 + 1000 + 10 + 100 + 7


def test_one_sender_feels_no_ingress_queue() -> None:
    # The bodies of one sender come (m-1) G + g apart anyway.
    text = "num_ranks 2\nrank 0 {\nsend 101b to 1\nsend 101b to 1\n}\nrank 1 {\nrecv 101b from 0\nrecv 101b from 0\n}\n"
    times = set()
    for ingress in (False, True):
        graph = event_graph(parse_goal(text), ingress=ingress)
        times.add(Evaluator(graph, fabric(1000, 2, 100, 10).theta()).at(point(Fraction(1000), Fraction(2))).time_ns)
    assert times == {100 + 210 + 1000 + 200 + 100}
