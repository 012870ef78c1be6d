"""The table of algorithms: whatever is done with one by its name goes through here.

The choices of ``goal expand`` are literal there, because help must not load what the rows need; a test holds them equal
to this table.
"""

from __future__ import annotations

from atlas_lp.errors import UnsupportedError
from atlas_lp.signatures.algorithms.algorithm import Algorithm
from atlas_lp.signatures.algorithms.collnet import COLLNET_CHAIN, COLLNET_DIRECT
from atlas_lp.signatures.algorithms.nvls import NVLS, NVLS_TREE
from atlas_lp.signatures.algorithms.pat import PAT
from atlas_lp.signatures.algorithms.point_to_point import P2P
from atlas_lp.signatures.algorithms.ring import RING
from atlas_lp.signatures.algorithms.tree import TREE
from atlas_lp.signatures.nccl.collectives import COLLECTIVES
from atlas_lp.signatures.signature import Signature

ALGORITHMS = {row.name: row for row in (RING, TREE, P2P, PAT, NVLS, NVLS_TREE, COLLNET_CHAIN, COLLNET_DIRECT)}
"""Every algorithm that has a schedule, by name."""

WITH_SCHEDULE = tuple(c for c in COLLECTIVES if any(c in row.collectives for row in ALGORITHMS.values()))
"""Collectives that some algorithm does."""


def algorithm(name: str) -> Algorithm:
    """Return the row of *name*; raises :class:`~atlas_lp.errors.UnsupportedError` where there is none."""
    if name not in ALGORITHMS:
        raise UnsupportedError(f"{name} has no schedule; there are schedules for {', '.join(ALGORITHMS)}")
    return ALGORITHMS[name]


def algorithm_of(signature: Signature) -> Algorithm:
    """Return the row that *signature* was built by."""
    return algorithm(signature.algorithm)


def approximation(signature: Signature) -> str:
    """What to tell a reader where the schedule is an approximation of the algorithm; empty where it is exact."""
    return algorithm_of(signature).approximation
