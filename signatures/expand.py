"""From a signature to a GOAL schedule: the one place that knows which algorithm is expanded where."""

from __future__ import annotations

import numpy as np

from atlas_lp.errors import UnsupportedError
from atlas_lp.goal.schedule import Schedule
from atlas_lp.signatures.ring import ring_program
from atlas_lp.signatures.signature import Signature
from atlas_lp.signatures.splits import ceil_div

MODEL_VERSION = "1"
"""Changes whenever any rule changes that alters the graph of some signature; part of every cache key."""

MAX_OPERATIONS = 60_000_000
"""Operations expanded at most: about 10 GB of columns while the graph is built."""


def operation_count(signature: Signature) -> int:
    """Upper estimate of the operations of the schedule, without expanding it."""
    n = signature.ranks
    total = 0
    for part in signature.parts:
        chunk = signature.chunk_bytes // signature.element_bytes
        if signature.collective == "AllReduce":
            slices, primitives = ceil_div(part.count, n * chunk) * signature.slices, 2 * n - 1
        elif signature.collective in ("AllGather", "ReduceScatter"):
            slices, primitives = ceil_div(part.count, chunk) * signature.slices, n
        else:
            slices, primitives = ceil_div(part.count, chunk) * signature.slices, 1
        total += 3 * n * slices * primitives
    return total


def expand(signature: Signature, reduce_copy: str = "gh200", credits: str = "local") -> Schedule:
    """Expand *signature* into its schedule; GOAL ranks are its labels, cpus its channels.

    Raises :class:`~atlas_lp.errors.UnsupportedError` above :data:`MAX_OPERATIONS`.
    """
    estimate = operation_count(signature)
    if estimate > MAX_OPERATIONS:
        raise UnsupportedError(
            f"{signature.collective} on {signature.ranks} ranks expands to about {estimate:.2g} operations; "
            f"the limit is {MAX_OPERATIONS:.2g}"
        )
    program = ring_program(signature, reduce_copy, np.arange(signature.ranks))
    return program.schedule(signature.ranks, np.array(signature.nodes), np.array(signature.nics), credits)
