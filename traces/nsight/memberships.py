"""What the payloads of NCCL's ranges say about who is in which communicator.

What NCCL writes (``init.cc``, 2.25 .. 2.30): CommInitRank* and CommDestroy give id, ranks, rank and device, but the id
is 0 when the communicator is made inside a group; CommInitAll gives one row for all devices; CommSplit the new id with
the *parent's* ranks and rank; CommShrink the parent's id.  Before 2.25 there is no id at all.
"""

from __future__ import annotations

from typing import Any

from atlas_lp.errors import TraceError
from atlas_lp.traces.nsight.payloads import communicator_id, whole
from atlas_lp.traces.processes import ProcessKey
from atlas_lp.traces.records import DESTROY, INIT, INIT_ALL, SHRINK, SPLIT, Membership

MEMBERSHIP_CALLS = {
    "ncclCommInitRank": INIT,
    "ncclCommInitRankConfig": INIT,
    "ncclCommInitRankScalable": INIT,
    "ncclCommGrow": INIT,
    "ncclCommInitAll": INIT_ALL,
    "ncclCommDestroy": DESTROY,
    "ncclCommAbort": DESTROY,
    "ncclCommSplit": SPLIT,
    "ncclCommShrink": SHRINK,
}

ID, PARENT = "NCCL communicator ID", "Parent NCCL communicator ID"
RANKS, RANK, DEVICE, DEVICES = "No. of ranks", "Rank", "CUDA device", "No. of devices"

_MOST_RANKS = 2**22


def membership(name: str, payload: dict[str, Any], process: ProcessKey, time_ns: int, place: str) -> Membership | None:
    """Read the payload of a range that makes or ends a communicator; None where it has none."""
    api = MEMBERSHIP_CALLS[name]
    if not payload:
        return None
    identity = communicator_id(payload, ID, place) if ID in payload else 0
    if api == INIT_ALL:
        count = whole(payload, DEVICES, place, 1, _MOST_RANKS)
        return Membership(api, process, time_ns, identity, count, 0, -1)
    ranks = whole(payload, RANKS, place, 1, _MOST_RANKS)
    rank = whole(payload, RANK, place, -1, _MOST_RANKS)
    device = whole(payload, DEVICE, place, -1, 2**16)
    parent = communicator_id(payload, PARENT, place) if PARENT in payload else 0
    if api == SPLIT:
        labels = {label.lower(): label for label in payload}
        color, key = (
            whole(payload, labels[low], place, -(2**31), 2**31) if low in labels else 0 for low in ("color", "key")
        )
        return Membership(api, process, time_ns, identity, ranks, rank, device, parent, color, key)
    if api == SHRINK:
        excluded = whole(payload, "num_exclude", place, 0, ranks) if "num_exclude" in payload else 0
        return Membership(api, process, time_ns, 0, ranks, rank, device, identity, excluded=excluded)
    if not -1 <= rank < ranks:
        raise TraceError(f"{place}: rank {rank} of {ranks} ranks")
    return Membership(api, process, time_ns, identity, ranks, rank, device, parent)
