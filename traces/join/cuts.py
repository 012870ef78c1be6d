"""What all ranks of a communicator recorded: the rest of a cut trace is dropped, and named per rank."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import replace
from typing import Any

from atlas_lp.errors import MismatchError
from atlas_lp.signatures.nccl.collectives import SEND_RECV
from atlas_lp.traces.join.align import common_run
from atlas_lp.traces.join.communicators import Key, key_of
from atlas_lp.traces.join.job_calls import JobCalls
from atlas_lp.traces.point_to_point import Half, match
from atlas_lp.traces.records import Call
from atlas_lp.traces.trace import Gap


def common_runs(job: JobCalls) -> list[Call]:
    """Calls of all communicators that all their ranks recorded; what a cut drops is named per rank."""
    by_rank: defaultdict[Key, defaultdict[tuple[int, int], list[Call]]] = defaultdict(lambda: defaultdict(list))
    for call in job.calls:
        by_rank[key_of(call)][call.iteration, job.rank(call)].append(call)
    kept: list[Call] = []
    for key in sorted(by_rank):
        name = f"communicator {key[0]:#x}"
        iterations = sorted({iteration for iteration, _ in by_rank[key]})
        _check_iterations(by_rank[key], iterations, name)
        dropped: Counter[int] = Counter()
        for iteration in iterations:
            of_rank = {r: sorted(c, key=issue_key) for (i, r), c in by_rank[key].items() if i == iteration}
            for rank, calls in _kept_collectives(of_rank, name).items():
                kept.extend(calls)
                dropped[rank] += sum(not c.is_point_to_point for c in of_rank[rank]) - len(calls)
            for rank, calls in _kept_messages(of_rank, name, key in job.incomplete).items():
                kept.extend(calls)
                dropped[rank] += sum(c.is_point_to_point for c in of_rank[rank]) - len(calls)
        lost = {rank: count for rank, count in sorted(dropped.items()) if count}
        if lost:
            words = ", ".join(f"{count} of rank {rank}" for rank, count in lost.items())
            job.gaps.append(Gap("cut", sum(lost.values()), f"operations not recorded on all ranks of {name}: {words}"))
    return kept


def _check_iterations(calls: dict[tuple[int, int], list[Call]], iterations: list[int], name: str) -> None:
    """Refuse collectives of an iteration that only some ranks have."""
    active = {rank for (_, rank), mine in calls.items() if any(not call.is_point_to_point for call in mine)}
    for iteration in iterations:
        there = {r for (i, r), mine in calls.items() if i == iteration and any(not c.is_point_to_point for c in mine)}
        if there and there != active:
            lacking = min(active - there)
            raise MismatchError(
                f"{name}: iteration {iteration} has no collective on rank {lacking}, but on {min(there)}"
            )


def issue_key(call: Call) -> tuple[Any, ...]:
    """Sort key of calls of one process in the order they were issued, total for what differs."""
    return (call.order, call.launch, call.type, call.size_bytes, call.root, min(call.kernels))


def _kept_collectives(of_rank: dict[int, list[Call]], name: str) -> dict[int, list[Call]]:
    collectives = {rank: [c for c in calls if not c.is_point_to_point] for rank, calls in of_rank.items()}
    if not any(collectives.values()):
        return collectives
    runs = common_run(collectives, name)
    return {rank: calls[slice(*runs[rank])] for rank, calls in collectives.items()}


def _kept_messages(of_rank: dict[int, list[Call]], name: str, incomplete: bool) -> dict[int, list[Call]]:
    """Sends and receives that match; where they do not, launches are aligned as the collectives are."""
    calls = {rank: [c for c in mine if c.is_point_to_point] for rank, mine in of_rank.items()}
    problem = _mismatch(calls, name) if any(calls.values()) else None
    if problem is None:
        return calls
    launches = {rank: _by_launch(mine) for rank, mine in calls.items()}
    if incomplete or not all(launches.values()):
        raise MismatchError(problem)
    try:
        runs = common_run({rank: [_token(launch) for launch in mine] for rank, mine in launches.items()}, name)
    except MismatchError:
        raise MismatchError(problem) from None
    result = {rank: [c for launch in mine[slice(*runs[rank])] for c in launch] for rank, mine in launches.items()}
    still = _mismatch(result, name)
    if still is not None:
        raise MismatchError(still)
    return result


def _mismatch(calls: dict[int, list[Call]], name: str) -> str | None:
    """Why the sends and receives do not match, None where they do."""
    halves = [
        Half(0, rank, call.peer, call.type == "Send", call.size_bytes, call.launch)
        for rank, mine in calls.items()
        for call in mine
    ]
    try:
        match(halves, name)
    except MismatchError as error:
        return str(error)
    return None


def _by_launch(calls: list[Call]) -> list[list[Call]]:
    launches: dict[int, list[Call]] = {}
    for call in calls:
        launches.setdefault(call.launch, []).append(call)
    return list(launches.values())


def _token(launch: list[Call]) -> Call:
    """One call that stands for all of a launch: its bytes are their sum."""
    return replace(launch[0], type=SEND_RECV, size_bytes=sum(call.size_bytes for call in launch), root=len(launch))
