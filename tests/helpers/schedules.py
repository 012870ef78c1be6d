"""Runs schedules on symbolic data, in random but possible orders, and checks what all schedules must satisfy."""

import random
from collections.abc import Sequence

import numpy as np
from oracles import execution
from oracles.matching import matched

from atlas_lp.goal import RECV, SEND, Schedule, event_graph
from atlas_lp.signatures.algorithms.expand import expand, operation_count
from atlas_lp.signatures.signature import Signature
from helpers.graphs import operations_of

CREDITS = ("local", "acknowledged", "none")


def nodes_of(nodes: int, per_node: int) -> list[int]:
    return [rank // per_node for rank in range(nodes * per_node)]


def link_of(schedule: Schedule, operation: int) -> int:
    return int(schedule.tag[operation]) >> 6


def run(schedule: Schedule, work: execution.Work, seed: int = 0) -> None:
    """Execute *schedule* in a random possible order: sends carry what their calc made, receives what was sent."""
    found = operations_of(schedule)
    order = [(before, after) for before, after, _ in found.dependencies]
    execution.run(found.kind, order, matched(found.kind, found.rank, found.peer, found.tag), work, seed)


def check(signature: Signature) -> Schedule:
    """Expand with all kinds of credits: no deadlock, all messages matched, counted right, in an order to write."""
    nodes = np.array(signature.nodes)
    for credits in CREDITS:
        schedule = expand(signature, credits=credits)
        event_graph(schedule, nodes)  # refuses unmatched messages and cycles
        assert np.all(schedule.before < schedule.after)
        assert np.all(schedule.rank[schedule.before] == schedule.rank[schedule.after])
    plain = expand(signature)
    assert plain.count(SEND) == plain.count(RECV)
    if signature.algorithm == "p2p":
        assert len(plain) <= operation_count(signature)
    else:
        assert len(plain) == operation_count(signature)
    return plain


def moved(values: Sequence[int], rng: random.Random) -> list[int]:
    """The same values under other, distinct names."""
    names = dict(zip(sorted(set(values)), rng.sample(range(1000), len(set(values))), strict=True))
    return [names[value] for value in values]
