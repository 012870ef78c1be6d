"""Runs schedules on symbolic data, in random but possible orders, and checks what all schedules must satisfy."""

import random
from collections.abc import Callable, Sequence

import numpy as np

from atlas_lp.goal import CALC, RECV, SEND, Schedule, event_graph
from atlas_lp.signatures.algorithms.expand import expand, operation_count
from atlas_lp.signatures.signature import Signature

CREDITS = ("local", "acknowledged", "none")

Work = Callable[[int, list[tuple[int, object]]], object]
"""What a calc makes of its received (operation, value) pairs; called once per calc, in order of execution."""


def nodes_of(nodes: int, per_node: int) -> list[int]:
    return [rank // per_node for rank in range(nodes * per_node)]


def link_of(schedule: Schedule, operation: int) -> int:
    return int(schedule.tag[operation]) >> 6


def run(schedule: Schedule, work: Work, seed: int = 0) -> None:
    """Execute *schedule* in a random possible order: sends carry what their calc made, receives what was sent."""
    kind = schedule.kind.tolist()
    sends, recvs = schedule.messages()
    source = dict(zip(recvs.tolist(), sends.tolist(), strict=True))
    before: list[list[int]] = [[] for _ in kind]
    behind: list[list[int]] = [[] for _ in kind]
    for first, then in zip(schedule.before.tolist(), schedule.after.tolist(), strict=True):
        before[then].append(first)
        behind[first].append(then)
    for then, first in source.items():
        behind[first].append(then)
    missing = [len(firsts) + (then in source) for then, firsts in enumerate(before)]
    ready = [operation for operation, count in enumerate(missing) if count == 0]
    value: list[object] = [None] * len(kind)
    rng, done = random.Random(seed), 0
    while ready:
        at = rng.randrange(len(ready))
        ready[at], ready[-1] = ready[-1], ready[at]
        operation = ready.pop()
        if kind[operation] == RECV:
            value[operation] = value[source[operation]]
        elif kind[operation] == CALC:
            value[operation] = work(operation, [(b, value[b]) for b in before[operation] if kind[b] == RECV])
        else:
            (value[operation],) = [value[b] for b in before[operation] if kind[b] == CALC]
        done += 1
        for then in behind[operation]:
            missing[then] -= 1
            if missing[then] == 0:
                ready.append(then)
    assert done == len(kind)


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
