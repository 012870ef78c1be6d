"""Who is in which communicator, from the records of the calls that made and destroyed them.

Calls leave gaps: a communicator made inside a group has no id yet, a split gives ranks of the parent, and before NCCL
2.25 there are no ids at all (:class:`~atlas_lp.traces.records.Membership`); what follows from all rows together is
found here.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from atlas_lp.errors import MismatchError, TraceError
from atlas_lp.traces.processes import GpuKey, ProcessKey
from atlas_lp.traces.records import DESTROY, INIT, INIT_ALL, SHRINK, SPLIT, Call, Membership

Key = tuple[int, int]
"""A communicator: its id, and its generation where the same id was made again."""


@dataclass
class Memberships:
    """Communicators of a job: rank of every GPU in each, number of ranks of each, and what had to be inferred."""

    rank_of: dict[tuple[Key, GpuKey], int]
    size_of: dict[Key, int]
    inferred: dict[Key, str]


def with_generations(calls: Iterable[Call], members: Sequence[Membership]) -> tuple[list[Call], dict[int, int]]:
    """Number the lives of ids that are made again after they ended, per process.

    Returns *calls* with the number of theirs and, by position in *members*, the generation each row speaks of.
    """
    events: defaultdict[tuple[ProcessKey, int, int], list[tuple[int, int, int]]] = defaultdict(list)
    for number, member in enumerate(members):
        if member.communicator and member.api in (INIT, DESTROY):
            key = (member.process, member.communicator, member.device)
            events[key].append((member.time_ns, number, int(member.api == DESTROY)))
    generation_of: dict[int, int] = {}
    starts: defaultdict[tuple[ProcessKey, int], list[tuple[int, int]]] = defaultdict(list)
    for (process, identity, _), rows in events.items():
        generation, alive = 0, False
        ended = False
        for time, number, destroys in sorted(rows):
            if not destroys and (alive or ended):
                generation += 1
                starts[process, identity].append((time, generation))
            alive, ended = not destroys, bool(destroys)
            generation_of[number] = generation
    numbered = []
    for call in calls:
        if call.communicator is not None and (call.process, call.communicator) in starts:
            begun = [g for time, g in starts[call.process, call.communicator] if time <= call.order[0]]
            call = replace(call, generation=max(begun, default=0))
        numbered.append(call)
    return numbered, generation_of


def resolve(calls: Sequence[Call], members: Sequence[Membership], generation_of: dict[int, int]) -> Memberships:
    """Find the rank of every GPU in every communicator the *calls* use.

    *calls* must have kernels (their device is the GPU).  Completeness is not checked here.
    """
    result = Memberships({}, {}, {})
    users: defaultdict[Key, set[GpuKey]] = defaultdict(set)
    for call in calls:
        users[key_of(call)].add(gpu_of(call))
    for number, member in enumerate(members):
        key = (member.communicator, generation_of.get(number, 0))
        if member.api in (INIT, DESTROY) and member.rank >= 0 and member.communicator and key in users:
            _claim(result, key, (member.process, member.device), member.ranks, member.rank)
    _from_init_all(result, users, members)
    _from_splits(result, users, members)
    _from_nameless(result, users, members)
    for key in sorted(users):
        if key not in result.size_of:
            raise TraceError(
                f"communicator {key[0]:#x}: neither its creation nor its end was recorded, so ranks are unknown; "
                "start the capture before ncclCommInit"
            )
    return result


def key_of(call: Call) -> Key:
    """Communicator of a call, which has an id."""
    return (call.communicator or 0, call.generation)


def gpu_of(call: Call) -> GpuKey:
    """GPU of a call that has a kernel."""
    return (call.process, call.kernels[0].device)


def _claim(result: Memberships, key: Key, gpu: GpuKey, ranks: int, rank: int) -> None:
    size = result.size_of.setdefault(key, ranks)
    known = result.rank_of.setdefault((key, gpu), rank)
    if size != ranks or known != rank:
        raise MismatchError(f"communicator {key[0]:#x}: two ranges disagree on ranks or rank of a process")


def _from_init_all(result: Memberships, users: dict[Key, set[GpuKey]], members: Sequence[Membership]) -> None:
    """CommInitAll: ranks follow the devices of the process, in ascending order unless others are seen."""
    for member in members:
        key = (member.communicator, 0)
        if member.api != INIT_ALL or key in result.size_of or key not in users:
            continue
        devices = sorted(device for process, device in users[key] if process == member.process)
        if len(devices) != member.ranks:
            devices = list(range(member.ranks))
        result.inferred[key] = "ranks of ncclCommInitAll: taken in the order of devices"
        for rank, device in enumerate(devices):
            _claim(result, key, (member.process, device), member.ranks, rank)


def _from_splits(result: Memberships, users: dict[Key, set[GpuKey]], members: Sequence[Membership]) -> None:
    """CommSplit: rank by (key, parent rank) among the rows of the new id; complete when all of the parent's are."""
    rows: defaultdict[int, list[Membership]] = defaultdict(list)
    expected: defaultdict[int, int] = defaultdict(int)
    splits: defaultdict[int, list[Membership]] = defaultdict(list)
    for member in members:
        if member.api == SPLIT:
            splits[member.parent].append(member)
            if member.communicator:
                rows[member.communicator].append(member)
                expected[member.parent] = max(expected[member.parent], member.ranks)
    for identity, mine in sorted(rows.items()):
        key = (identity, 0)
        if key in result.size_of or key not in users:
            continue
        parent = mine[0].parent
        seen = {member.rank for member in splits[parent]}
        if len(seen) < expected[parent]:
            missing = sorted(set(range(expected[parent])) - seen)
            raise TraceError(
                f"communicator {identity:#x}: split from {parent:#x}, of whose {expected[parent]} ranks "
                f"{len(missing)} are missing ({', '.join(map(str, missing[:8]))}), so its ranks are unknown; "
                "give the files of all processes"
            )
        for rank, member in enumerate(sorted(mine, key=lambda m: (m.key, m.rank))):
            _claim(result, key, (member.process, member.device), len(mine), rank)


def _from_nameless(result: Memberships, users: dict[Key, set[GpuKey]], members: Sequence[Membership]) -> None:
    """Match ids whose making was recorded as id 0 (in a group, shrunk) with the rows that can have made them."""
    free: defaultdict[GpuKey, list[Membership]] = defaultdict(list)
    for member in members:
        if not member.communicator and member.api in (INIT, SHRINK):
            free[member.process, member.device].append(member)
    pending = {key for key in users if any((key, gpu) not in result.rank_of for gpu in users[key])}
    progress = True
    while pending and progress:
        progress = False
        for key in sorted(pending):
            match = _unique_match(result, key, users[key], free)
            if match is None:
                continue
            for gpu, (member, ranks, rank) in match.items():
                free[gpu].remove(member)
                _claim(result, key, gpu, ranks, rank)
            result.inferred[key] = "ranks: from the only making of a communicator without an id that fits"
            pending.discard(key)
            progress = True


def _unique_match(
    result: Memberships, key: Key, gpus: set[GpuKey], free: dict[GpuKey, list[Membership]]
) -> dict[GpuKey, tuple[Membership, int, int]] | None:
    """Rows that made *key* on the GPUs still without a rank, if there is exactly one choice."""
    open_gpus = sorted(gpu for gpu in gpus if (key, gpu) not in result.rank_of)
    taken = {rank for (other, _), rank in result.rank_of.items() if other == key}
    sizes = [result.size_of[key]] if key in result.size_of else [len(gpus), None]
    for size in sizes:
        options = []
        for gpu in open_gpus:
            fits = [_new_ranks(member) for member in free.get(gpu, ())]
            options.append([(m, n, r) for m, n, r in fits if n == size or (size is None and n >= len(gpus))])
        if all(len(choice) == 1 for choice in options) and options:
            picked = {gpu: choice[0] for gpu, choice in zip(open_gpus, options, strict=True)}
            ranks = [rank for _, _, rank in picked.values()]
            if (
                len(set(ranks)) == len(ranks)
                and not taken & set(ranks)
                and len({n for _, n, _ in picked.values()}) == 1
            ):
                return _closed_up(picked)
    return None


def _closed_up(picked: dict[GpuKey, tuple[Membership, int, int]]) -> dict[GpuKey, tuple[Membership, int, int]]:
    """Ranks of a shrunk communicator: those of the parent without the excluded ones, in order."""
    if not any(member.api == SHRINK for member, _, _ in picked.values()):
        return picked
    order = sorted(picked, key=lambda gpu: picked[gpu][2])
    return {gpu: (picked[gpu][0], picked[gpu][1], rank) for rank, gpu in enumerate(order)}


def _new_ranks(member: Membership) -> tuple[Membership, int, int]:
    """Number of ranks of the communicator a row made, and the rank it speaks of (of the parent when it shrank)."""
    if member.api == SHRINK:
        return member, member.ranks - member.excluded, member.rank
    return member, member.ranks, member.rank


def resolve_single(calls: Sequence[Call], members: Sequence[Membership]) -> Memberships:
    """Memberships of a job on NCCL < 2.25, whose payloads have no id: its only communicator gets the id 0.

    Raises :class:`~atlas_lp.errors.TraceError` unless every GPU made or ended exactly one communicator, of one size.
    """
    old = "NCCL < 2.25 has no communicator id in NVTX"
    rows = [member for member in members if member.api in (INIT, DESTROY)]
    made: defaultdict[GpuKey, int] = defaultdict(int)
    at_rank: defaultdict[int, set[GpuKey]] = defaultdict(set)
    for member in rows:
        made[member.process, member.device] += member.api == INIT
        at_rank[member.rank].add((member.process, member.device))
    one_size = len({member.ranks for member in rows}) == 1 and len(rows) == len(members)
    if not one_size or max(made.values()) > 1 or any(len(gpus) > 1 for gpus in at_rank.values()):
        raise TraceError(
            f"{old}, and not exactly one communicator was recorded, so its {len(calls)} calls cannot be told apart; "
            "NCCL 2.25 or newer is needed (PyTorch 2.7 or newer)"
        )
    result = Memberships({}, {}, {(0, 0): f"{old}: all calls are taken to use the only one recorded"})
    for member in rows:
        _claim(result, (0, 0), (member.process, member.device), member.ranks, member.rank)
    return result
