"""Two readings of what the operations of a trace waited for.

*streams*: on every GPU an operation follows, on each stream, the last operation that had ended when it started,
unless another one ran in between; the gap is the time since the last operation of the GPU ended.  All that lies between
is taken as a fixed wait, as in the paper (:mod:`~atlas_lp.program.dependencies.stream_links`).

*events*: every piece of GPU work is a vertex of its own.  It follows the work before it on its stream, the work behind
an event that its stream waited for, and the host's call, which follows the work that the host had waited for.  What is
left between the last of these and its start is a fixed delay.  An operation that waited for a gradient thus depends on
the compute that made it and not on the operation before it: when the network slows, that slack is used up before the
step grows (:mod:`~atlas_lp.program.dependencies.event_links`).
"""

from __future__ import annotations

from fractions import Fraction

from atlas_lp.errors import InputError
from atlas_lp.program.dependencies.event_links import event_links
from atlas_lp.program.dependencies.links import Links
from atlas_lp.program.dependencies.stream_links import stream_links
from atlas_lp.traces.lost import is_lost, refuse_lost, was_recorded
from atlas_lp.traces.signing.signed_trace import SignedTrace
from atlas_lp.traces.trace import Trace

DEPENDENCIES = ("events", "streams")
"""Readings of a trace: by recorded events and host calls, or by the order of streams."""


def records_events(trace: Trace) -> bool:
    """Whether the trace says what GPU work waited for: some event wait or synchronisation was recorded."""
    return trace.work is not None and bool(len(trace.work.before) or (trace.work.synced >= 0).any())


def possible_readings(signed: SignedTrace) -> tuple[str, ...]:
    """Readings that *signed* allows, the one that is used by default first; none that :func:`find_links` refuses."""
    allowed = signed.trace.allow_lost
    return tuple(reading for reading in _recorded(signed) if allowed or not is_lost(signed.all_gaps, reading))


def _recorded(signed: SignedTrace) -> tuple[str, ...]:
    """Readings for which something was recorded; by events first, unless the capture did without all of one kind."""
    if not records_events(signed.trace):
        return ("streams",)
    return DEPENDENCIES if was_recorded(signed.all_gaps, "events") else DEPENDENCIES[::-1]


def find_links(signed: SignedTrace, dependencies: str | None = None, compute: Fraction = Fraction(1)) -> Links:
    """Links by *dependencies*, one of :data:`DEPENDENCIES`; None takes events where the trace recorded them.

    *compute* is a factor on measured compute time.

    Raises :class:`~atlas_lp.errors.InputError` when events are asked for and were not recorded, and
    :class:`~atlas_lp.errors.TraceError` when more was lost than :mod:`~atlas_lp.traces.lost` grants.
    """
    used = dependencies or _recorded(signed)[0]
    if not signed.trace.allow_lost:
        refuse_lost(signed.all_gaps, used)
    if used == "streams":
        return stream_links(signed.timeline, compute)
    if signed.trace.work is None:
        raise InputError("the trace records no CUDA calls or streams: use --dependencies streams")
    return event_links(signed.timeline, signed.trace.work, compute)
