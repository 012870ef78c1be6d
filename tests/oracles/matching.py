"""Messages as GOAL defines them: the n-th send of a connection meets its n-th receive."""

from collections import defaultdict
from collections.abc import Sequence


def matched(kind: Sequence[str], rank: Sequence[int], peer: Sequence[int], tag: Sequence[int]) -> dict[int, int]:
    """The receive of every send, by (source, destination, tag), in the order they stand in."""
    receives: dict[tuple[int, int, int], list[int]] = defaultdict(list)
    for operation, what in enumerate(kind):
        if what == "recv":
            receives[peer[operation], rank[operation], tag[operation]].append(operation)
    met = {where: iter(operations) for where, operations in receives.items()}
    return {
        operation: next(met[rank[operation], peer[operation], tag[operation]])
        for operation, what in enumerate(kind)
        if what == "send"
    }
