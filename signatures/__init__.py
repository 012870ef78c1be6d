"""Collective signatures and the NCCL schedules they decide.

A :class:`Signature` is everything that fixes the graph of a collective, in canonical labels;
:func:`expand` turns it into a GOAL :class:`~atlas_lp.goal.Schedule`.  The rules are those of NCCL
2.18 .. 2.30, each module naming the source file and version of what it implements: one module per algorithm
(:mod:`ring`, :mod:`tree`, :mod:`point_to_point`, :mod:`pat`, :mod:`nvls`, :mod:`collnet`), :mod:`topology` for who
neighbours whom, :mod:`splits` and :mod:`transfers` for how bytes are spread, :mod:`costs` for reduce and copy.
"""

from atlas_lp.signatures.collnet import collnet_chain_signature, collnet_direct_signature
from atlas_lp.signatures.costs import REDUCE_COPY_MODELS, CostTable, load_costs, reduce_copy_ns
from atlas_lp.signatures.expand import ALGORITHMS, expand, operation_count
from atlas_lp.signatures.nvls import nvls_signature, nvls_tree_signature
from atlas_lp.signatures.pat import pat_signature
from atlas_lp.signatures.point_to_point import (
    all_to_all_signature,
    node_order,
    point_to_point_order,
    point_to_point_signature,
)
from atlas_lp.signatures.protocols import Protocol
from atlas_lp.signatures.signature import COLLECTIVES, Part, Signature, label_order, ring_signature
from atlas_lp.signatures.splits import SPLIT_RULES, split_rule
from atlas_lp.signatures.topology import (
    TREE_PATTERNS,
    Tree,
    assumed_rings,
    assumed_trees,
    permuted_rings,
    ring_from_neighbours,
    ring_lines,
    rotated_nics,
    shared_nics,
    tree_from_neighbours,
    tree_lines,
)
from atlas_lp.signatures.tree import tree_order, tree_signature

__all__ = [
    "ALGORITHMS",
    "COLLECTIVES",
    "REDUCE_COPY_MODELS",
    "SPLIT_RULES",
    "TREE_PATTERNS",
    "CostTable",
    "Part",
    "Protocol",
    "Signature",
    "Tree",
    "all_to_all_signature",
    "assumed_rings",
    "assumed_trees",
    "collnet_chain_signature",
    "collnet_direct_signature",
    "expand",
    "label_order",
    "load_costs",
    "node_order",
    "nvls_signature",
    "nvls_tree_signature",
    "operation_count",
    "pat_signature",
    "permuted_rings",
    "point_to_point_order",
    "point_to_point_signature",
    "reduce_copy_ns",
    "ring_from_neighbours",
    "ring_lines",
    "ring_signature",
    "rotated_nics",
    "shared_nics",
    "split_rule",
    "tree_from_neighbours",
    "tree_lines",
    "tree_order",
    "tree_signature",
]
