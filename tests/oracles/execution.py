"""Runs a schedule on data, in a random order that its dependencies and messages allow."""

import random
from collections.abc import Callable, Iterable, Mapping, Sequence

Work = Callable[[int, list[tuple[int, object]]], object]
"""What a calc makes of its received (operation, value) pairs; called once per calc, in order of execution."""


def run(
    kind: Sequence[str],
    dependencies: Iterable[tuple[int, int]],
    receive_of: Mapping[int, int],
    work: Work,
    seed: int = 0,
) -> None:
    """Execute operations of *kind* calc, send or recv: sends carry what their calc made, receives what was sent.

    *dependencies* are (before, after); *receive_of* names the receive of every send.  A deadlock is an AssertionError.
    """
    source = {recv: send for send, recv in receive_of.items()}
    before: list[list[int]] = [[] for _ in kind]
    behind: list[list[int]] = [[] for _ in kind]
    for first, then in dependencies:
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
        if kind[operation] == "recv":
            value[operation] = value[source[operation]]
        elif kind[operation] == "calc":
            value[operation] = work(operation, [(b, value[b]) for b in before[operation] if kind[b] == "recv"])
        else:
            (value[operation],) = [value[b] for b in before[operation] if kind[b] == "calc"]
        done += 1
        for then in behind[operation]:
            missing[then] -= 1
            if missing[then] == 0:
                ready.append(then)
    assert done == len(kind), "deadlock"
