"""Recorded jobs: readers that turn trace files into one :class:`Trace`.

:mod:`~atlas_lp.traces.nsight` reads Nsight Systems SQLite exports, :mod:`~atlas_lp.traces.infer` says
what they do not, :mod:`~atlas_lp.traces.signing` gives every collective its signature, and
:mod:`~atlas_lp.traces.synthetic` writes exports for examples and tests.
"""

from atlas_lp.traces.nsight import read_trace
from atlas_lp.traces.signing import SignedInstance, sign
from atlas_lp.traces.trace import Gap, Instance, Sourced, Trace

__all__ = ["Gap", "Instance", "SignedInstance", "Sourced", "Trace", "read_trace", "sign"]
