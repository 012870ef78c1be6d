"""The GOAL language and the graph it means.

A :class:`Schedule` holds the operations of a GOAL file as columns, :mod:`~atlas_lp.goal.text` reads and
writes it, and :class:`EventGraph` is the LogGP graph of a schedule: in-edges in topological order with an
integer cost vector each.  This room knows nothing of NCCL, traces or solvers.
"""

from atlas_lp.goal.event_graph import COMPONENTS, EventGraph, PortRule, event_graph
from atlas_lp.goal.schedule import CALC, RECV, SEND, Schedule
from atlas_lp.goal.text import parse_goal, read_goal, write_goal

__all__ = [
    "CALC",
    "COMPONENTS",
    "RECV",
    "SEND",
    "EventGraph",
    "PortRule",
    "Schedule",
    "event_graph",
    "parse_goal",
    "read_goal",
    "write_goal",
]
