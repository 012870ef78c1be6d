"""Recorded jobs: readers that turn trace files into one :class:`Trace`.

Each reader turns one file into a part: :mod:`~atlas_lp.traces.nsight` stock Nsight Systems exports,
:mod:`~atlas_lp.traces.annotated` those of annotated NCCL.  :mod:`~atlas_lp.traces.merge` makes a trace of the parts,
:mod:`~atlas_lp.traces.infer` says what they do not, :mod:`~atlas_lp.traces.signing` gives every collective its
signature, and :mod:`~atlas_lp.traces.synthetic` writes exports for examples and tests.
"""

from atlas_lp.traces.companions import Companions
from atlas_lp.traces.read import Progress, read_trace
from atlas_lp.traces.selection import Selection
from atlas_lp.traces.signing import SignedInstance, sign
from atlas_lp.traces.trace import Gap, Instance, Sourced, Topology, Trace

__all__ = [
    "Companions",
    "Gap",
    "Instance",
    "Progress",
    "Selection",
    "SignedInstance",
    "Sourced",
    "Topology",
    "Trace",
    "read_trace",
    "sign",
]
