"""Which NCCL a job ran: what was recorded, or what the payload schemas of its ranges give away."""

from __future__ import annotations

from atlas_lp.traces.nvtx import STATIC_SCHEMA
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
"""By the number of the schema of reductions among those of NCCL: the version to take, and those that it fits."""


def nccl_version(reduction_schema: int | None, recorded: str | None = None) -> Sourced:
    """Return the recorded NCCL version, or the one the id of the reduction enum gives away (it moved often)."""
    if recorded is not None:
        return Sourced(recorded, "recorded")
    if reduction_schema is not None:
        known = _REDUCTION_SCHEMA.get(reduction_schema - STATIC_SCHEMA)
        if known is not None:
            return Sourced(known[0], f"inferred: NVTX reduction schema {reduction_schema} is NCCL {known[1]}")
    return Sourced("2.28", "assumed: the trace has no NVTX schema that names a version")
