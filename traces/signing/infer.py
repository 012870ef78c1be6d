"""What stock Nsight exports do not say and has to be inferred, each answer with its source.

Rules and their limits: kernel names say ``LL`` and ``Sum`` for every protocol and reduction (NCCL 2.19 .. 2.30), so
nothing is taken from them but RING/TREE and, for reductions, the datatype.
"""

from __future__ import annotations

import re

from atlas_lp.signatures.collectives import COLLECTIVES
from atlas_lp.signatures.nccl.protocols import Protocol
from atlas_lp.traces.nsight.payloads import STATIC_SCHEMA
from atlas_lp.traces.trace import Sourced

_REDUCTION_SCHEMA = {
    11: ("2.22", "2.16 .. 2.22"),
    14: ("2.25", "2.23 .. 2.25"),
    15: ("2.26", "2.26"),
    16: ("2.27", "2.27"),
    19: ("2.28", "2.28.3"),
    20: ("2.28", "2.28.7 .. 2.28.9"),
    24: ("2.29", "2.29 .. 2.30"),
}

_ELEMENT_BYTES = {"8": 1, "16": 2, "32": 4, "64": 8}


def nccl_version(reduction_schema: int | None, recorded: str | None = None) -> Sourced:
    """Return the recorded NCCL version, or the one the id of the reduction enum gives away (it moved often)."""
    if recorded is not None:
        return Sourced(recorded, "recorded")
    if reduction_schema is not None:
        known = _REDUCTION_SCHEMA.get(reduction_schema - STATIC_SCHEMA)
        if known is not None:
            return Sourced(known[0], f"inferred: NVTX reduction schema {reduction_schema} is NCCL {known[1]}")
    return Sourced("2.28", "assumed: the trace has no NVTX schema that names a version")


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
    match = re.search(r"_(?:Sum|Prod|MinMax|PreMulSum|SumPostDiv)_[a-z]*(\d+)", kernel)
    if match is not None and match[1] in _ELEMENT_BYTES:
        return _ELEMENT_BYTES[match[1]], "inferred: type suffix of the kernel name"
    return 4, "assumed: 4 bytes per element, the kernel name does not say"
