"""From a signature to a GOAL schedule, by the algorithm that the table names."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from atlas_lp.errors import UnsupportedError
from atlas_lp.goal.schedule import Schedule
from atlas_lp.signatures.algorithms.table import algorithm_of
from atlas_lp.signatures.costs import CostTable, load_costs
from atlas_lp.signatures.signature import Signature
from atlas_lp.signatures.slices import Slices

Ints = NDArray[np.int64]

MODEL_VERSION = "4"
"""Changes whenever any rule changes that alters the graph of some signature; part of every cache key."""

MAX_OPERATIONS = 60_000_000
"""Operations expanded at most: about 10 GB of columns while the graph is built."""


def operation_count(signature: Signature) -> int:
    """Number of operations of the schedule (an upper estimate for ``p2p``), without expanding it."""
    return algorithm_of(signature).operations(signature)


def slices(signature: Signature, reduce_copy: str | CostTable = "gh200", labels: Ints | None = None) -> Slices:
    """Return the slices of the ranks *labels* (default: all), without any check of their number."""
    chosen = np.arange(signature.ranks) if labels is None else np.asarray(labels, dtype=np.int64)
    return algorithm_of(signature).slices(signature, load_costs(reduce_copy), chosen)


def expand(signature: Signature, reduce_copy: str | CostTable = "gh200", credits: str = "local") -> Schedule:
    """Expand *signature* into its schedule; GOAL ranks are its labels, cpus its channels.

    *reduce_copy* is a cost table or the name of a built-in one.  Raises
    :class:`~atlas_lp.errors.UnsupportedError` above :data:`MAX_OPERATIONS`.
    """
    count = operation_count(signature)
    if count > MAX_OPERATIONS:
        raise UnsupportedError(
            f"{signature.collective} on {signature.ranks} ranks expands to {count:.3g} operations; "
            f"the limit is {MAX_OPERATIONS:.2g}"
        )
    nodes, nics = np.array(signature.nodes), np.array(signature.nics)
    return slices(signature, reduce_copy).schedule(nodes, nics, credits)
