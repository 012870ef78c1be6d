"""Collective signatures and the NCCL schedules they decide.

A :class:`Signature` is everything that fixes the graph of a collective, in canonical labels;
:func:`expand` turns it into a GOAL :class:`~atlas_lp.goal.Schedule`.  The rules are those of NCCL
2.20 .. 2.30, each module naming the source file and version of what it implements.
"""

from atlas_lp.signatures.costs import REDUCE_COPY_MODELS, reduce_copy_ns
from atlas_lp.signatures.expand import expand, operation_count
from atlas_lp.signatures.protocols import Protocol
from atlas_lp.signatures.signature import (
    COLLECTIVES,
    Signature,
    assumed_rings,
    label_order,
    ring_signature,
)
from atlas_lp.signatures.splits import SPLIT_RULES, split_rule

__all__ = [
    "COLLECTIVES",
    "REDUCE_COPY_MODELS",
    "SPLIT_RULES",
    "Protocol",
    "Signature",
    "assumed_rings",
    "expand",
    "label_order",
    "operation_count",
    "reduce_copy_ns",
    "ring_signature",
    "split_rule",
]
