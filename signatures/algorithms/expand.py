"""From a signature to a GOAL schedule: the one place that knows which algorithm is expanded where."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from atlas_lp.errors import UnsupportedError
from atlas_lp.goal.schedule import Schedule
from atlas_lp.signatures.algorithms.collnet import collnet_direct_operations, collnet_direct_slices
from atlas_lp.signatures.algorithms.nvls import nvls_operations, nvls_slices, nvls_tree_operations, nvls_tree_slices
from atlas_lp.signatures.algorithms.pat import pat_operations, pat_slices
from atlas_lp.signatures.algorithms.point_to_point import point_to_point_operations, point_to_point_slices
from atlas_lp.signatures.algorithms.ring import ring_operations, ring_slices
from atlas_lp.signatures.algorithms.tree import tree_operations, tree_slices
from atlas_lp.signatures.costs import CostTable, load_costs
from atlas_lp.signatures.signature import Signature
from atlas_lp.signatures.slices import Slices

Ints = NDArray[np.int64]

MODEL_VERSION = "2"
"""Changes whenever any rule changes that alters the graph of some signature; part of every cache key."""

MAX_OPERATIONS = 60_000_000
"""Operations expanded at most: about 10 GB of columns while the graph is built."""


@dataclass(frozen=True)
class _Algorithm:
    """How the schedules of one algorithm are counted and made."""

    slices: Callable[[Signature, CostTable, Ints], Slices]
    operations: Callable[[Signature], int]


_ALGORITHMS = {
    "ring": _Algorithm(ring_slices, ring_operations),
    "tree": _Algorithm(tree_slices, tree_operations),
    "p2p": _Algorithm(point_to_point_slices, point_to_point_operations),
    "pat": _Algorithm(pat_slices, pat_operations),
    "nvls": _Algorithm(nvls_slices, nvls_operations),
    "nvls_tree": _Algorithm(nvls_tree_slices, nvls_tree_operations),
    "collnet_chain": _Algorithm(tree_slices, tree_operations),
    "collnet_direct": _Algorithm(collnet_direct_slices, collnet_direct_operations),
}

ALGORITHMS = tuple(_ALGORITHMS)
"""Names of the algorithms that have a schedule."""


def operation_count(signature: Signature) -> int:
    """Number of operations of the schedule (an upper estimate for ``p2p``), without expanding it."""
    return _ALGORITHMS[signature.algorithm].operations(signature)


def slices(signature: Signature, reduce_copy: str | CostTable = "gh200", labels: Ints | None = None) -> Slices:
    """Return the slices of the ranks *labels* (default: all), without any check of their number."""
    chosen = np.arange(signature.ranks) if labels is None else np.asarray(labels, dtype=np.int64)
    return _ALGORITHMS[signature.algorithm].slices(signature, load_costs(reduce_copy), chosen)


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
