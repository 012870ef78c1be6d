"""Which calls a kernel launch carried out: single calls, groups, and replays of CUDA graphs.

NCCL launches inside the call, or, for grouped calls, inside the outermost ``ncclGroupEnd`` (``group.cc``): one kernel
per communicator and device, which may carry several operations.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from atlas_lp.errors import MismatchError
from atlas_lp.traces.nsight.kernels import KernelRows
from atlas_lp.traces.nsight.ranges import Range, innermost, parents_of
from atlas_lp.traces.records import GROUP_END, GROUP_START, Call, Kernel


@dataclass(eq=False)
class Unit:
    """Calls issued together, by a thread, and the kernels launched for them in launch order."""

    calls: list[Call]
    members: list[int] = field(default_factory=list)
    kernels: list[Kernel] = field(default_factory=list)


@dataclass
class Joined:
    """Calls with their kernels, and how many kernels belong to none."""

    calls: list[Call]
    unattributed: int = 0
    headless: int = 0
    captured: int = 0


Launches = Callable[[Call], bool]
"""Whether a call launches anything: not when it is empty or alone in its communicator."""


def join(ranges: list[Range], call_of: dict[int, Call], rows: KernelRows, launches: Launches) -> Joined:
    """Hang the kernels of one file onto the calls of its ranges.

    *call_of* gives the call of every range that is one.  Kernels outside of any call are counted as unattributed, or
    as headless when their launch was not recorded.
    """
    parents = parents_of(ranges)
    owner = innermost(ranges, parents, rows.thread, rows.launch)
    own: defaultdict[int, list[int]] = defaultdict(list)
    result = Joined([])
    in_graph: list[int] = []
    for number, at in enumerate(owner):
        while at >= 0 and at not in call_of and ranges[at].name not in (GROUP_END, GROUP_START):
            at = parents[at]
        if rows.node[number] >= 0:
            in_graph.append(number)
        elif at >= 0:
            own[at].append(number)
        elif rows.launch[number] < 0:
            result.headless += 1
        else:
            result.unattributed += 1
    units = _units(ranges, call_of, own)
    for unit in units:
        numbers = sorted((n for at in unit.members for n in own.pop(at, ())), key=lambda n: (rows.launch[n], n))
        unit.kernels = [rows.kernels[n] for n in numbers]
    result.unattributed += sum(map(len, own.values()))
    distribute(units, launches)
    replayed = _replays(units, rows, in_graph, launches, result)
    for launch, unit in enumerate([*units, *replayed]):
        for call in unit.calls:
            call.launch = launch
        result.calls.extend(unit.calls)
    return result


def _units(ranges: list[Range], call_of: dict[int, Call], own: dict[int, list[int]]) -> list[Unit]:
    """Split the calls of every thread into single calls and outermost groups."""
    units: list[Unit] = []
    by_thread: defaultdict[int, list[int]] = defaultdict(list)
    for number, one in enumerate(ranges):
        if number in call_of or one.name in (GROUP_START, GROUP_END):
            by_thread[one.thread].append(number)
    for thread in sorted(by_thread):
        units.extend(_thread_units(ranges, by_thread[thread], call_of, own))
    return units


def _thread_units(
    ranges: list[Range], numbers: Sequence[int], call_of: dict[int, Call], own: dict[int, list[int]]
) -> list[Unit]:
    units: list[Unit] = []
    depth = 0
    pending: list[int] = []  # calls without a kernel of their own: the head of a group cut by the capture, perhaps
    group: Unit | None = None

    def flush() -> None:
        units.extend(Unit([call_of[n]], [n]) for n in pending)
        pending.clear()

    for number in numbers:
        if number in call_of:
            if group is not None:
                group.calls.append(call_of[number])
                group.members.append(number)
            elif number in own:
                flush()
                units.append(Unit([call_of[number]], [number]))
            else:
                pending.append(number)
        elif ranges[number].name == GROUP_START:
            depth += 1
            if group is None:
                flush()
                group = Unit([], [])
            group.members.append(number)
        else:
            depth -= 1
            if group is None:
                group = Unit([call_of[n] for n in pending], list(pending))
                pending.clear()
            group.members.append(number)
            if depth <= 0:
                units.append(group)
                group, depth = None, 0
    flush()
    if group is not None:
        units.append(group)
    return units


def distribute(units: list[Unit], launches: Launches) -> None:
    """Give the kernels of every unit to its calls; streams learnt from clear units decide the unclear ones."""
    streams: dict[tuple[int | None, int], set[int]] = {}
    unclear = []
    for unit in units:
        calls = [call for call in unit.calls if launches(call)]
        shares = _shares(calls, unit.kernels)
        if shares is None:
            unclear.append((unit, calls))
            continue
        for call, kernels in zip(calls, shares, strict=True):
            call.kernels = kernels
            for kernel in kernels:
                streams.setdefault((call.communicator, kernel.device), set()).add(kernel.stream)
    for unit, calls in unclear:
        _by_stream(calls, unit.kernels, streams)


def _shares(calls: list[Call], kernels: list[Kernel]) -> list[list[Kernel]] | None:
    """Kernels of every call of a unit, None where the order of launches does not decide it."""
    if not kernels or not calls:
        return [[] for _ in calls]
    identities = list(dict.fromkeys(call.communicator for call in calls))
    devices = list(dict.fromkeys(kernel.device for kernel in kernels))
    if len(identities) == 1 and len(devices) == 1:
        return [kernels] * len(calls)
    if len(identities) == 1:
        return _over_devices(calls, kernels, devices)
    if len(devices) == 1 and len(kernels) == len(identities):
        return [[kernels[identities.index(call.communicator)]] for call in calls]
    return None


def _over_devices(calls: list[Call], kernels: list[Kernel], devices: list[int]) -> list[list[Kernel]] | None:
    """One thread that drives several GPUs: calls come GPU by GPU, or operation by operation over the GPUs."""
    each, rest = divmod(len(calls), len(devices))
    if rest:
        return None
    of_device = [[k for k in kernels if k.device == device] for device in devices]
    content = [(call.type, call.size_bytes, call.root) for call in calls]
    blocks = [content[i * each : (i + 1) * each] for i in range(len(devices))]
    by_device = all(block == blocks[0] for block in blocks)
    return [of_device[i // each if by_device else i % len(devices)] for i in range(len(calls))]


def _by_stream(calls: list[Call], kernels: list[Kernel], streams: dict[tuple[int | None, int], set[int]]) -> None:
    """Give each communicator the kernels on the streams it used elsewhere; refuse where that is not clear."""
    for kernel in kernels:
        mine = [c for c in calls if kernel.stream in streams.get((c.communicator, kernel.device), ())]
        if len({call.communicator for call in mine}) != 1:
            names = sorted({f"{call.communicator or 0:#x}" for call in calls})
            raise MismatchError(
                f"a group of {len(calls)} calls on communicators {', '.join(names)} launched {len(kernels)} kernels, "
                "and neither their number nor their streams say which belongs to which"
            )
        for call in mine:
            call.kernels = [*call.kernels, kernel]


def _replays(
    units: list[Unit], rows: KernelRows, in_graph: list[int], launches: Launches, result: Joined
) -> list[Unit]:
    """Units of every replay of a CUDA graph: what was captured, with the kernels of one graph launch.

    Node-level traces name the node of every kernel; nodes ascend in the order of capture.  Calls are recorded once,
    at capture, where they run nothing.  Without them, or where numbers differ, kernels stay unattributed.
    """
    if not in_graph:
        return []
    captured: defaultdict[int, list[Unit]] = defaultdict(list)
    for unit in units:
        calls = [call for call in unit.calls if launches(call)]
        if calls and not any(call.kernels for call in calls):
            captured[calls[0].process[1]].append(unit)
    by_replay: defaultdict[tuple[int, int], list[int]] = defaultdict(list)
    for number in in_graph:
        by_replay[int(rows.process[number]), int(rows.replay[number])].append(number)
    positions = _node_positions(rows, in_graph)
    replayed: list[Unit] = []
    used: set[Unit] = set()
    for (process, _), numbers in sorted(by_replay.items(), key=lambda item: (item[0][0], rows.launch[item[1][0]])):
        numbers.sort(key=lambda n: (rows.node[n], n))
        if rows.launch[numbers[0]] < 0:
            result.headless += len(numbers)
            continue
        if len(positions[process]) != len(captured[process]):
            result.unattributed += len(numbers)
            continue
        capture = [captured[process][positions[process][int(rows.node[n])]] for n in numbers]
        used.update(capture)
        replayed.extend(_replay(capture, rows, numbers, launches))
    kept = [unit for unit in units if unit not in used]
    result.captured = sum(len(unit.calls) for unit in units) - sum(len(unit.calls) for unit in kept)
    units[:] = kept
    return replayed


def _node_positions(rows: KernelRows, in_graph: list[int]) -> dict[int, dict[int, int]]:
    """Position of every NCCL node among those of its process, in the order of capture."""
    nodes: defaultdict[int, set[int]] = defaultdict(set)
    for number in in_graph:
        nodes[int(rows.process[number])].add(int(rows.node[number]))
    return {process: {node: i for i, node in enumerate(sorted(mine))} for process, mine in nodes.items()}


def _replay(capture: list[Unit], rows: KernelRows, numbers: list[int], launches: Launches) -> list[Unit]:
    launch = int(rows.launch[numbers[0]])
    units = []
    for position, (unit, number) in enumerate(zip(capture, numbers, strict=True)):
        calls = [replace(call, order=(launch, position), kernels=[]) for call in unit.calls]
        for call in calls:
            if launches(call):
                call.kernels = [rows.kernels[number]]
        units.append(Unit(calls))
    return units
