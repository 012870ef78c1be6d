"""What stock Nsight exports do not say and has to be inferred, each answer with its source.

Rules and their limits: kernel names say ``LL`` and ``Sum`` for every protocol and reduction (NCCL 2.19 .. 2.30), so
nothing is taken from them but RING/TREE and, for reductions, the datatype.
"""

from __future__ import annotations

import re

from atlas_lp.signatures.nccl.collectives import COLLECTIVES
from atlas_lp.signatures.nccl.protocols import Protocol

_ELEMENT_BYTES = {"8": 1, "16": 2, "32": 4, "64": 8}


def protocol(threads: int) -> tuple[Protocol, str]:
    """Protocol of a ring kernel from the threads of its block: Simple adds a warp to synchronise."""
    if threads in (544, 288):
        return Protocol.SIMPLE, f"inferred: block of {threads} threads = {threads - 32} + 32 to synchronise"
    if threads <= 512:
        return Protocol.LL, f"inferred: block of {threads} threads (at most 512, no extra warp)"
    return Protocol.LL128, f"inferred, ambiguous: block of {threads} threads (LL128, or Simple of a tree)"


def algorithm(kernel: str) -> tuple[str, str]:
    """Algorithm from the kernel name: TREE only for tree; NVLS, CollNet and PAT also appear as RING."""
    if "_TREE" in kernel:
        return "tree", "inferred: kernel name says TREE"
    if "_RING" in kernel:
        return "ring", "inferred: kernel name says RING (NVLS, CollNet and PAT do so too)"
    return "ring", "assumed: the kernel name does not say"


def element_bytes(collective: str, kernel: str) -> tuple[int, str]:
    """Bytes of an element, from the type suffix in the names of reduction kernels."""
    if COLLECTIVES[collective].byte_counted:
        return 1, "recorded: NCCL counts this collective in bytes"
    match = re.search(r"_(?:Sum|Prod|MinMax|PreMulSum|SumPostDiv)_[a-z]*([0-9]+)", kernel)
    if match is not None and match[1] in _ELEMENT_BYTES:
        return _ELEMENT_BYTES[match[1]], "inferred: type suffix of the kernel name"
    return 4, "assumed: 4 bytes per element, the kernel name does not say"
