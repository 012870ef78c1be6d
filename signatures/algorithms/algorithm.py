"""What is known of one algorithm: a row of the table, and what goes into a signature and comes out of it.

A new algorithm is one new file beside this one, which defines its :class:`Algorithm`, and one line in
:mod:`~atlas_lp.signatures.algorithms.table`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from atlas_lp.signatures.costs import CostTable
from atlas_lp.signatures.nccl.protocols import Protocol
from atlas_lp.signatures.signature import RecordedParts, Signature
from atlas_lp.signatures.slices import Slices
from atlas_lp.signatures.topology import Tree

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Parameters:
    """What one collective is, as typed or as recorded: *size_bytes* is per pair for AllToAll, else of the NCCL call.

    *channels* None means one, or NCCL's usual number of point-to-point channels for AllToAll, as does *per_peer*.
    *rings* and *trees* (one per channel) and *parts* are what a trace records; without them the topology is what NCCL
    would build for nodes of alike GPUs, and NCCL's rule splits the bytes.
    """

    collective: str
    size_bytes: int
    node_of_rank: Sequence[int]
    nccl: str
    algorithm: str = "ring"
    protocol: Protocol = Protocol.SIMPLE
    channels: int | None = None
    element_bytes: int = 4
    root: int = 0
    nic_of_rank: Sequence[int] | None = None
    threads: int | None = None
    tree_pattern: str = "balanced"
    per_peer: int | None = None
    rings: Sequence[Sequence[int]] = ()
    trees: Sequence[Tree] = ()
    parts: RecordedParts | None = None


@dataclass(frozen=True)
class Built:
    """A signature, the communicator rank of each of its labels, and what was assumed for it.

    *assumed* is a sentence about the topology for who typed the parameters, *source* the same for who recorded
    the rest; both are empty where nothing had to be assumed.
    """

    signature: Signature
    ranks: Sequence[int]
    assumed: str = ""
    source: str = ""


@dataclass(frozen=True)
class Loops:
    """Full loops of a schedule, all alike: *count* of every channel, each *steps* of the column ``step`` long.

    ``units`` are the work units of one loop for every part of the signature.
    """

    count: int
    steps: int
    units: tuple[int, ...]

    def without(self, signature: Signature, loops: int) -> Signature:
        """The same *signature* with so many full loops less on every channel."""
        parts = (replace(p, count=p.count - loops * u) for p, u in zip(signature.parts, self.units, strict=True))
        return replace(signature, parts=tuple(parts))


def _no_loops(signature: Signature) -> Loops | None:
    """Loops of an algorithm that has none, or whose loops are not alike."""
    return None


def _unequal(signature: Signature) -> list[Ints] | None:
    """Links of an algorithm whose ranks run unequal programs: none to compare them by."""
    return None


@dataclass(frozen=True)
class Algorithm:
    """One row of the table.

    ``build`` makes a signature from parameters; ``slices`` are what the ranks of a signature with the given labels
    do, at the costs of a table; ``operations`` counts the operations of the whole schedule (exactly, but for an upper
    estimate of ``p2p``); ``links`` gives the peer of every rank (-1: none) per link and direction, by which ranks are
    found to be alike, or None where they run unequal programs; ``loops`` are those that repeat.  ``follows`` is the
    recorded topology that ``build`` takes, ``rings`` or ``trees``, if any.  ``approximation`` says, in a sentence for
    whoever reads a result, what a schedule leaves out that is a proposal rather than NCCL's own sequence.
    """

    name: str
    collectives: tuple[str, ...]
    protocols: tuple[Protocol, ...]
    build: Callable[[Parameters], Built]
    slices: Callable[[Signature, CostTable, Ints], Slices]
    operations: Callable[[Signature], int]
    links: Callable[[Signature], list[Ints] | None] = _unequal
    loops: Callable[[Signature], Loops | None] = _no_loops
    follows: str = ""
    approximation: str = ""
