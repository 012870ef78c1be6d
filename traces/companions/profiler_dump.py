"""Dumps of NCCL's example profiler plugin (2.23 .. 2.30): algorithm, protocol and channels of every collective.

The files are no strict JSON: datatypes may be bare words, and the array may end open.  One regular expression per
event reads them all.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from atlas_lp.errors import TraceError
from atlas_lp.inputs import read_text
from atlas_lp.signatures.nccl import codes
from atlas_lp.texts import integer
from atlas_lp.traces.companions.debug_log import Decision

SOURCE = "companion: NCCL profiler plugin"

_MOST_CHANNELS = 1 << 10
_MOST_BYTES = 1 << 28
# No event is looked for again inside of another one, so that the time is in proportion to the text.
_EVENT = re.compile(
    r'"name"\s*:\s*"(?P<name>\w+)"\s*,\s*"cat"\s*:\s*"COLL"\s*,\s*"ph"\s*:\s*"b"'
    r'(?:(?!"name")[^{}])*\{(?P<args>[^{}]{0,4096})\}'
)
_ARGUMENT = re.compile(r'"(\w+)"\s*:\s*"?([\w.]+)', re.ASCII)


def read_dumps(paths: Iterable[Path]) -> list[Decision]:
    """Read the dumps of one job: one decision per collective and communicator, in their order.

    Raises :class:`~atlas_lp.errors.TraceError` for a file that cannot be read or holds no collective.
    """
    found: dict[tuple[int, str, int], Decision] = {}
    for path in sorted(paths):
        try:
            text = read_text(path, TraceError, _MOST_BYTES, errors="replace")
        except OSError as error:
            raise TraceError(f"{path}: cannot be read ({error.strerror})") from None
        before = len(found)
        events = 0
        for event in _EVENT.finditer(text):
            events += 1
            decision = _decision(event["name"], dict(_ARGUMENT.findall(event["args"])))
            if decision is not None:
                number, one = decision
                found.setdefault((one.communicator or 0, one.type or "", number), one)
        if not events or (len(found) == before and not found):
            raise TraceError(f"{path}: no collective of NCCL's profiler plugin (NCCL_PROFILE_EVENT_MASK without COLL?)")
    return [found[key] for key in sorted(found)]


def _decision(name: str, arguments: dict[str, str]) -> tuple[int, Decision] | None:
    algorithm = codes.algorithm(arguments.get("Algorithm", ""))
    protocol = codes.protocol(arguments.get("Protocol", ""))
    channels = integer(arguments.get("nChannels", arguments.get("nMaxChannels", "0")))
    identity, number, count = (integer(arguments.get(name, "")) for name in ("CommHash", "SeqNum", "Count"))
    if identity is None or number is None or count is None or channels is None:
        return None
    unit = codes.datatype_bytes(arguments.get("Datatype", ""))
    if algorithm is None or protocol is None or not unit or not 0 <= channels <= _MOST_CHANNELS:
        return None
    return number, Decision(identity % 2**64, name, count * unit, algorithm, protocol, channels, unit)
