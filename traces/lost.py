"""Records that a capture, or its export, lost: what kinds there are, which reading each weakens, how much is too much.

A reading is one of :data:`~atlas_lp.program.dependencies.readings.DEPENDENCIES`.  What was lost is a gap of the trace;
a reading that lost more than the largest share of something is refused, unless it is asked for all the same.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from atlas_lp.errors import TraceError
from atlas_lp.traces.advice import LOST_ADVICE, UNEQUAL_ADVICE
from atlas_lp.traces.trace import Gap
from atlas_lp.traces.work import Ints

LARGEST_SHARE = Fraction(1, 20)
"""Of what one process, or the job, has of a kind: a reading that lost more of it is refused."""

_LARGEST_DIFFERENCE = Fraction(1, 2)
"""The same for GPUs that have less than their peers, which need not be a loss."""

_END_SHARE = 10
"""The last tenth of a recording is its end: what was still to come there may have been cut."""

_EVENTS, _BOTH = ("events",), ("events", "streams")


@dataclass(frozen=True)
class Kind:
    """What a gap counts, where ``{}`` is a table; what that leaves unknown; the readings that need it; the way out."""

    what: str
    unknown: str
    weakens: tuple[str, ...] = _EVENTS
    largest_share: Fraction = LARGEST_SHARE
    advice: str = LOST_ADVICE

    @property
    def effect(self) -> str:
        """What is unknown, and for which reading."""
        whose = {_EVENTS: " (for the reading by events)", _BOTH: " (for every reading)"}
        return self.unknown + whose.get(self.weakens, "")


_COMPUTE, _ORDER = "compute between collectives is missing", "what streams waited for is unknown"
_HOST, _SIGNATURES = "what the host waited for is unknown", "signatures are uncertain"

KINDS = {
    "lost-work": Kind("calls that start GPU work without a record in {}", _COMPUTE),
    "lost-events": Kind("records of CUDA events missing from {}", _ORDER),
    "lost-waits": Kind("waits of streams for an event missing from {}", _ORDER),
    "unknown-events": Kind("waits for an event that has no record in {}", _ORDER),
    "lost-synchronization": Kind("synchronisations of the host missing from {}", _HOST),
    "lost-calls": Kind("GPU records whose CUDA call is missing from {}", _HOST),
    "lost-names": Kind("records in {} whose name is missing from StringIds", "what they are is unknown", _BOTH),
    "short-export": Kind("records that nsys collected and that are missing from {}", "what they are is unknown", ()),
    "unlike-peers": Kind(
        "{} fewer than its peers that ran the same collectives",
        "some may be lost",
        largest_share=_LARGEST_DIFFERENCE,
        advice=UNEQUAL_ADVICE,
    ),
    "disagreeing-ranks": Kind("collectives whose ranks differ", _SIGNATURES, _BOTH, advice=UNEQUAL_ADVICE),
    "contradicting-kernels": Kind(
        "collectives whose kernel contradicts the call", _SIGNATURES, _BOTH, advice=UNEQUAL_ADVICE
    ),
}
"""Every kind of loss, by the code of its gaps."""

NOT_RECORDED = {
    "lost-events": "not-recorded-events",
    "unknown-events": "not-recorded-events",
    "lost-waits": "not-recorded-waits",
    "lost-synchronization": "not-recorded-synchronization",
}
"""What a capture may do without, and the code of the gap where a job has no record of it at all."""


def before_end(call: Ints, done: Ints, moment: Ints) -> NDArray[np.bool_]:
    """Whether all that had been called until each *moment* was over well before the end of the recording.

    *call* and *done* say when each piece of work was called, and when it was over.  Work of one stream ends in the
    order of its calls, so what was called at such a moment was over too, and its record should be there; later, the end
    of the recording may have cut it.  Cost O(n log n).
    """
    if not len(call):
        return np.zeros(len(moment), dtype=np.bool_)
    order = np.lexsort((done, call))
    call, over = call[order], np.maximum.accumulate(done[order])
    first, last = int(call[0]), int(over[-1])
    place = np.maximum(np.searchsorted(call, moment, side="right") - 1, 0)
    return np.asarray(np.maximum(over[place], moment) < last - (last - first) // _END_SHARE)


def _is_refused(gap: Gap, reading: str) -> bool:
    """Whether what a *gap* counts is more than *reading* may lose."""
    if gap.code in NOT_RECORDED.values():
        return reading in _EVENTS
    kind = KINDS.get(gap.code)
    return kind is not None and reading in kind.weakens and gap.count > kind.largest_share * gap.of > 0


def is_lost(gaps: Iterable[Gap], reading: str) -> bool:
    """Whether *reading* lost too much of something for its answer to stand."""
    return any(_is_refused(gap, reading) for gap in gaps)


def was_recorded(gaps: Iterable[Gap], reading: str) -> bool:
    """Whether the capture recorded at least some of everything that *reading* needs."""
    return not any(gap.code in NOT_RECORDED.values() and _is_refused(gap, reading) for gap in gaps)


def refuse_lost(gaps: Iterable[Gap], reading: str) -> None:
    """Raise :class:`~atlas_lp.errors.TraceError` when *reading* lost more than the largest share of something."""
    refused = [gap for gap in gaps if _is_refused(gap, reading)]
    if not refused:
        return
    worst = max(refused, key=lambda gap: (gap.code != "unlike-peers", Fraction(gap.count, gap.of or gap.count)))
    kind = KINDS.get(worst.code, KINDS["lost-events"])
    others = len(refused) - 1
    more = f" (and {others} more such {'gaps' if others > 1 else 'gap'}, which inspect lists)" if others else ""
    streams = "" if is_lost(refused, "streams") else "take --dependencies streams, which needs no such records, "
    raise TraceError(
        f"{worst.count} {worst.message}{more}; more than {float(100 * kind.largest_share):g} % is too much for the "
        f"reading by {reading}: {kind.advice}, {streams}or go on with --allow-lost"
    )
