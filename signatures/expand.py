"""From a signature to a GOAL schedule: the one place that knows which algorithm is expanded where."""

from __future__ import annotations

import numpy as np

from atlas_lp.errors import UnsupportedError
from atlas_lp.goal.schedule import Schedule
from atlas_lp.signatures.ring import ring_operations, ring_program
from atlas_lp.signatures.signature import Signature

MODEL_VERSION = "1"
"""Changes whenever any rule changes that alters the graph of some signature; part of every cache key."""

MAX_OPERATIONS = 60_000_000
"""Operations expanded at most: about 10 GB of columns while the graph is built."""


def operation_count(signature: Signature) -> int:
    """Number of operations of the schedule, without expanding it."""
    return ring_operations(signature)


def expand(signature: Signature, reduce_copy: str = "gh200", credits: str = "local") -> Schedule:
    """Expand *signature* into its schedule; GOAL ranks are its labels, cpus its channels.

    Raises :class:`~atlas_lp.errors.UnsupportedError` above :data:`MAX_OPERATIONS`.
    """
    count = operation_count(signature)
    if count > MAX_OPERATIONS:
        raise UnsupportedError(
            f"{signature.collective} on {signature.ranks} ranks expands to {count:.3g} operations; "
            f"the limit is {MAX_OPERATIONS:.2g}"
        )
    program = ring_program(signature, reduce_copy, np.arange(signature.ranks))
    return program.schedule(np.array(signature.nodes), np.array(signature.nics), credits)
