"""Collectives whose ranks, or whose call and kernel, contradict each other: which signature they have is uncertain.

NCCL decides the kernel of a collective, its grid and its block from what all ranks know, so all launch the same
(NVIDIA/nccl ``enqueue.cc``).  A kernel that carries several operations is launched for all of them: not compared.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from atlas_lp.signatures.nccl.collectives import COLLECTIVES, SEND_RECV, WITH_KERNEL, known_as
from atlas_lp.traces.lost import KINDS
from atlas_lp.traces.signing import infer
from atlas_lp.traces.trace import Gap, Instance, Trace

_WORDS = {
    "channels": "channels",
    "threads": "block",
    "kernel": "kernel",
    "reduction": "reduction",
    "algorithm": "algorithm",
    "protocol": "protocol",
    "element_bytes": "bytes of an element",
}
"""Columns of operations that all ranks of a collective share, and what people call them."""

_OF_KERNELS = ("channels", "threads", "kernel")


def disagreements(trace: Trace, instances: Sequence[Instance]) -> list[Gap]:
    """Gaps for collectives whose ranks disagree, and for those whose kernel contradicts their call.

    Cost O(operations) in columns, and a look at every distinct pair of call and kernel.
    """
    collectives = [one for one in instances if one.kind != SEND_RECV]
    if not collectives:
        return []
    columns = {name: trace.column("operations", name) for name in (*_WORDS, "type", "size_bytes", "channel_source")}
    columns["shared"] = np.array(["share" in source for source in columns["channel_source"].tolist()], dtype=np.bool_)
    gaps = []
    for code, found in (
        ("disagreeing-ranks", _differing(columns, collectives)),
        ("contradicting-kernels", dict(_contradicting(columns, collectives))),
    ):
        if found:
            first, of, kind = min(found), len(collectives), KINDS[code]
            words = (
                f"{kind.what}, of {of}: {_name(trace, collectives[first], columns)} has {found[first]}; {kind.effect}"
            )
            gaps.append(Gap(code, len(found), words, of))
    return gaps


def _name(trace: Trace, instance: Instance, columns: Mapping[str, NDArray[Any]]) -> str:
    row, identity = int(instance.rows[0]), trace.communicators["id"][instance.communicator].as_py()
    what = f"{columns['type'][row]} of {columns['size_bytes'][row]} B"
    return f"{what} (collective {instance.sequence + 1} of communicator {identity:#x})"


def _differing(columns: Mapping[str, NDArray[Any]], collectives: Sequence[Instance]) -> dict[int, str]:
    """Number of each collective whose ranks differ in something, and in what; what is unknown differs from nothing."""
    rows = np.concatenate([one.rows for one in collectives])
    ranks = np.array([len(one.rows) for one in collectives])
    begin = np.cumsum(ranks) - ranks
    owner = np.repeat(np.arange(len(collectives)), ranks)
    first = rows[begin][owner]
    alone = ~np.isin(owner, owner[columns["shared"][rows]])
    alike = columns["channel_source"][rows] == columns["channel_source"][first]
    found: dict[int, str] = {}
    for name, words in _WORDS.items():
        here, there = columns[name][rows], columns[name][first]
        known = (here != there) & here.astype(np.bool_) & there.astype(np.bool_)
        if name in _OF_KERNELS:
            known &= alone
        if name == "channels":
            known &= alike
        numbers, at = np.unique(owner[known], return_index=True)
        for number, place in zip(numbers.tolist(), np.flatnonzero(known)[at].tolist(), strict=True):
            of_rank = collectives[number].ranks
            says = (
                f"{words} {there[place]} on rank {of_rank[0]}, {here[place]} on rank {of_rank[place - begin[number]]}"
            )
            found.setdefault(number, says)
    return found


def _contradicting(columns: Mapping[str, NDArray[Any]], collectives: Sequence[Instance]) -> Iterator[tuple[int, str]]:
    """Number of each collective whose kernel is named after something else, and what is wrong."""
    known: dict[tuple[Any, ...], str] = {}
    names = ("type", "kernel", "threads", "algorithm", "protocol", "element_bytes")
    for number, one in enumerate(collectives):
        row = int(one.rows[0])
        if columns["shared"][row]:
            continue
        content = tuple(columns[name][row] for name in names)
        if content not in known:
            known[content] = _contradiction(*content)
        if known[content]:
            yield number, known[content]


def _contradiction(kind: str, kernel: str, threads: int, algorithm: str, protocol: str, element_bytes: int) -> str:
    """What the name of a *kernel* says otherwise than the call, or than what was recorded or inferred of it."""
    named = re.match(r"nccl(?:Symk?)?(?:Dev)?Kernel_([A-Za-z]+)", kernel)
    carries = known_as(named[1]) if named else ""
    expected = (kind, SEND_RECV) if COLLECTIVES[kind].by_messages else (kind,)
    if carries in (*WITH_KERNEL, SEND_RECV) and carries not in expected:
        return f"{kernel}, the kernel of {carries}"
    unit, source = infer.element_bytes(kind, kernel)
    if source.startswith("inferred") and element_bytes not in (0, unit):
        return f"{kernel}, with elements of {unit} B where another source says {element_bytes}"
    says = re.search(r"_(LL128|SIMPLE)(?:_|$)", kernel)
    inferred, source = infer.protocol(threads)
    used = protocol or ("" if "ambiguous" in source or not threads else inferred.value)
    if says and used and says[1].lower() != used and not COLLECTIVES[kind].by_messages:
        return f"{kernel}, but a block of {threads} threads, or another source, says {used}"
    if "_TREE" in kernel and algorithm == "ring":
        return f"{kernel}, but another source says ring"
    return ""
