"""NCCL debug logs (``NCCL_DEBUG=INFO``, 2.16 .. 2.30): rings, trees, communicators, and what NCCL chose.

Lines of the subsystems INIT, GRAPH, COLL and TUNING are read, in the wording of every version; only choices name no
communicator, so they take that of the call their thread logged before.
"""

from __future__ import annotations

import io
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from atlas_lp.errors import TraceError
from atlas_lp.inputs import bounded_lines, open_input
from atlas_lp.signatures.nccl import codes
from atlas_lp.texts import integer

SOURCE = "companion: NCCL log"

# A host begins where its word does: looking for it inside of a long word takes the square of the word's length.
# Numbers have as many digits as NCCL gives them at most: others are no lines of NCCL.
_PREFIX = re.compile(
    r"(?<![\w.-])(?P<host>[\w.-]{1,255}):(?P<pid>[0-9]+):(?P<tid>[0-9]+) \[(?P<device>-?[0-9]+)\] NCCL INFO "
    r"(?P<rest>.*)"
)
_VERSION = re.compile(r"NCCL version (\d{1,6}\.\d{1,6}(?:\.\d{1,6})?)", re.ASCII)
_INIT = re.compile(
    r"(?:\[Rank \d+\] )?(?:\w+ )?comm (?P<comm>0x\w+) rank (?P<rank>\d+) nranks (?P<ranks>\d{1,7}) .*?"
    r"(?:commId (?P<id>0x[0-9a-f]{1,16}) ?)?- Init (?:START|COMPLETE)",
    re.ASCII,
)
_RING = re.compile(r"Ring (\d{1,4}) : (\d{1,7}) -> (\d{1,7}) -> (\d{1,7})$", re.ASCII)
_CHANNEL = re.compile(r"Channel (\d{1,4})/\d+ :((?:\s+\d{1,7})+)\s*$", re.ASCII)
_TREES = re.compile(r"\[(\d{1,4})\] (-?\d{1,7})/(-?\d{1,7})/(-?\d{1,7})->(\d{1,7})->(-?\d{1,7})", re.ASCII)
_COUNTS = re.compile(r"(\d{1,4}) coll channels,.* (\d{1,4}) p2p channels, (\d{1,4}) p2p channels per peer", re.ASCII)
_CALL = re.compile(
    r"(?P<name>\w+): opCount \w+ sendbuff \S+ recvbuff \S+ count (?P<count>\d{1,18}) datatype (?P<datatype>\d+) op \d+ "
    r"root \d+ comm (?P<comm>0x\w+) \[nranks=\d+\] stream",
    re.ASCII,
)
_CHOICE = re.compile(
    r"(?:(?P<name>\w+): )?(?P<bytes>\d{1,18}) Bytes -> Algo (?P<algorithm>\w+) proto (?P<protocol>\w+)"
    r"(?: time \S+)?(?: channel\{Lo\.\.Hi\}=\{(?P<low>\d{1,4})\.\.(?P<high>\d{1,4})\})?\s*$",
    re.ASCII,
)
_OTHER_CHOICE = re.compile(r"\w+ \[(?P<kind>[\w ]+)\]: \d+ Bytes -> ", re.ASCII)


@dataclass(frozen=True, slots=True)
class Decision:
    """What NCCL chose for one collective; *communicator* and *type* are None, *channels* 0 where nothing says."""

    communicator: int | None
    type: str | None
    size_bytes: int
    algorithm: str
    protocol: str
    channels: int
    element_bytes: int = 0


@dataclass
class LoggedCommunicator:
    """A communicator as its ranks logged it; channel counts are 0 where they are not logged."""

    ranks: int
    next_rank: set[tuple[int, int, int]] = field(default_factory=set)
    trees: set[tuple[int, int, int, tuple[int, ...]]] = field(default_factory=set)
    channels: int = 0
    p2p_channels: int = 0
    p2p_channels_per_peer: int = 0


@dataclass
class DebugLog:
    """All that was read of one or several logs of a job."""

    version: str | None = None
    communicators: dict[int, LoggedCommunicator] = field(default_factory=dict)
    decisions: list[Decision] = field(default_factory=list)
    others: Counter[str] = field(default_factory=Counter)
    """Choices of another kind than algorithm and protocol: symmetric kernels, copy engines."""


@dataclass
class _Threads:
    """What the thread of a line was doing, by (host, pid, device) and (host, pid, tid)."""

    making: dict[tuple[str, str, str], int] = field(default_factory=dict)
    made: dict[tuple[str, str, str], int] = field(default_factory=dict)
    calls: dict[tuple[str, str, str], re.Match[str]] = field(default_factory=dict)
    hosts: set[str] = field(default_factory=set)


def read_logs(paths: Iterable[Path]) -> DebugLog:
    """Read the logs of one job, in one pass each.

    Raises :class:`~atlas_lp.errors.TraceError` for a file that cannot be read or has no line of NCCL.
    """
    log = DebugLog()
    for path in sorted(paths):
        threads, lines = _Threads(), 0
        try:
            with open_input(path, TraceError) as raw, io.TextIOWrapper(raw, "utf-8", errors="replace") as file:
                for line in bounded_lines(file, path, TraceError):
                    found = _PREFIX.search(line)
                    version = _VERSION.search(line)
                    if version:
                        log.version = version[1]
                    if found:
                        lines += 1
                        _take(log, threads, found, at_start=found.start() == 0)
        except OSError as error:
            raise TraceError(f"{path}: cannot be read ({error.strerror})") from None
        if not lines:
            raise TraceError(f"{path}: no line of NCCL's log; write one with NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=ALL")
    return log


def _take(log: DebugLog, threads: _Threads, line: re.Match[str], at_start: bool) -> None:
    host = line["host"]
    if at_start:
        threads.hosts.add(host)
    elif host not in threads.hosts:  # a program may have written the start of the line before NCCL did
        host = min(threads.hosts.intersection(host[at:] for at in range(len(host))), default=host)
    of_device = (host, line["pid"], line["device"])
    of_thread = (host, line["pid"], line["tid"])
    rest = line["rest"]
    if init := _INIT.match(rest):
        _take_init(log, threads, init, of_device)
    elif call := _CALL.match(rest):
        threads.calls[of_thread] = call
    elif choice := _CHOICE.match(rest):
        _take_choice(log, threads, choice, of_thread)
    elif other := _OTHER_CHOICE.match(rest):
        log.others[other["kind"].lower()] += 1
    elif of_device in threads.making:
        _take_topology(log.communicators[threads.making[of_device]], rest)


def _take_init(log: DebugLog, threads: _Threads, init: re.Match[str], of_device: tuple[str, str, str]) -> None:
    pointer = (of_device[0], of_device[1], init["comm"])
    identity = integer(init["id"] or "")
    if identity is None:
        threads.making.pop(of_device, None)  # a split without an id: what follows belongs to no known communicator
        return
    log.communicators.setdefault(identity, LoggedCommunicator(int(init["ranks"])))
    threads.making[of_device] = threads.made[pointer] = identity


def _take_topology(communicator: LoggedCommunicator, rest: str) -> None:
    if ring := _RING.match(rest):
        channel, _, rank, following = map(int, ring.groups())
        communicator.next_rank.add((channel, rank, following))
    elif channels := _CHANNEL.match(rest):
        ranks = [int(rank) for rank in channels[2].split()]
        if len(ranks) == communicator.ranks and sorted(ranks) == list(range(len(ranks))):
            turned = [*ranks[1:], ranks[0]]
            communicator.next_rank.update((int(channels[1]), a, b) for a, b in zip(ranks, turned, strict=True))
    elif rest.startswith("Trees "):
        for channel, a, b, c, rank, parent in (map(int, found.groups()) for found in _TREES.finditer(rest)):
            communicator.trees.add((channel, rank, parent, tuple(child for child in (a, b, c) if child >= 0)))
    elif counts := _COUNTS.match(rest):
        communicator.channels, communicator.p2p_channels, communicator.p2p_channels_per_peer = map(int, counts.groups())


def _take_choice(log: DebugLog, threads: _Threads, choice: re.Match[str], of_thread: tuple[str, str, str]) -> None:
    algorithm, protocol = codes.algorithm(choice["algorithm"]), codes.protocol(choice["protocol"])
    if algorithm is None or protocol is None:
        log.others[f"algorithm {choice['algorithm']}, protocol {choice['protocol']}"] += 1
        return
    call = threads.calls.get(of_thread)
    communicator, kind, element_bytes = None, choice["name"], 0
    if call is not None and kind in (None, call["name"]):
        communicator = threads.made.get((*of_thread[:2], call["comm"]))
        kind = call["name"]
        unit = codes.datatype_bytes(call["datatype"])
        element_bytes = unit if int(call["count"]) * unit == int(choice["bytes"]) else 0
    channels = 0 if choice["low"] is None else int(choice["high"]) - int(choice["low"]) + 1
    log.decisions.append(
        Decision(communicator, kind, int(choice["bytes"]), algorithm, protocol, max(channels, 0), element_bytes)
    )
