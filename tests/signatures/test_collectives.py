"""The table of collectives: what later code relies on, and that words of others are understood."""

from atlas_lp.signatures.nccl.collectives import (
    CALLS,
    COLLECTIVES,
    POINT_TO_POINT,
    SYNCHRONISING,
    WITH_KERNEL,
    known_as,
)


def test_every_row_has_its_name_and_functions_of_its_own() -> None:
    assert all(name == row.name and row.calls for name, row in COLLECTIVES.items())
    assert len(CALLS) == sum(len(row.calls) for row in COLLECTIVES.values())
    assert CALLS["ncclBcast"] == CALLS["ncclBroadcast"] == "Broadcast"


def test_what_is_true_of_which() -> None:
    assert WITH_KERNEL == ("AllReduce", "AllGather", "ReduceScatter", "Broadcast", "Reduce")
    assert SYNCHRONISING == ("AllReduce", "AllGather", "ReduceScatter")
    assert POINT_TO_POINT == ("Send", "Recv")
    assert [name for name in WITH_KERNEL if COLLECTIVES[name].rooted] == ["Broadcast", "Reduce"]
    assert [name for name in WITH_KERNEL if COLLECTIVES[name].byte_counted] == ["AllGather", "Broadcast"]


def test_words_of_nccl_and_of_older_packed_traces() -> None:
    assert known_as("AlltoAll") == "AllToAll"
    assert known_as("Bcast") == "Broadcast"
    assert all(known_as(name) == name for name in (*COLLECTIVES, "SendRecv", "something else"))
