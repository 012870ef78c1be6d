"""The tree of errors: everything atlas-lp refuses to do, and the exit code it means.

::

    AtlasError (2)                  base: what, where, how to fix, in one line
    ├── InputError                  an argument or a file that cannot be used as it is
    │   ├── UnitError               a quantity that cannot be read (``4 bananas``)
    │   ├── FabricError             a fabric file with a missing or impossible value
    │   ├── TraceError              a trace that is not one, is cut, or lacks what is needed
    │   │   ├── NoNcclError         a readable trace without NCCL operations
    │   │   ├── PayloadError        NCCL calls without bytes: exported without payloads, or too old
    │   │   └── MismatchError       ranks disagree on what they did together
    │   ├── GoalError               GOAL text: syntax, unknown label, unmatched message
    │   │   └── CycleError          a graph that is no DAG; the cycle is named
    │   ├── OutputError             a file or folder that cannot be written, with the reason
    │   ├── DamageError             a file of atlas-lp itself that is cut, changed, or none
    │   │   └── VersionError        a whole one that another version wrote
    │   └── UnsupportedError        understood, but no schedule or rule exists for it
    ├── SolveError                  the LP solver disagrees with the longest path
    ├── ThresholdError (1)          a threshold given by the user is exceeded
    └── GateError (3)               withdrawn: two ways to a result differ by more than was allowed

The library raises these and nothing else for bad input; it never prints and never exits. The
command line turns the message into one line on stderr and ``exit_code`` into the exit code.
"""


class AtlasError(Exception):
    """Base of all errors; the message says what, where and how to fix it."""

    exit_code = 2


class InputError(AtlasError):
    """An argument or a file cannot be used as it is."""


class UnitError(InputError):
    """A quantity with an unknown unit, a wrong sign or no number."""


class FabricError(InputError):
    """A fabric description lacks a value or holds an impossible one."""


class TraceError(InputError):
    """A trace file is unreadable, cut, or lacks a table or column that is needed."""


class NoNcclError(TraceError):
    """The trace is readable but holds no NCCL operations."""


class PayloadError(TraceError):
    """NCCL calls were recorded without bytes and communicators."""


class MismatchError(TraceError):
    """Ranks of one communicator disagree on the operations they did together."""


class GoalError(InputError):
    """GOAL text or a schedule is malformed."""


class CycleError(GoalError):
    """A dependency graph has a cycle; the message names it."""


class OutputError(InputError):
    """A file or folder cannot be written, for a *reason* of the system or because something is in its place."""

    def __init__(self, path: object, reason: str, what: str = "cannot be written") -> None:
        super().__init__(f"{path}: {what} ({reason})")
        self.reason = reason


class DamageError(InputError):
    """A file that atlas-lp keeps for itself is cut, changed, or none: why, to be said with its name."""


class VersionError(DamageError):
    """A file that atlas-lp keeps for itself was written by another version."""


class UnsupportedError(InputError):
    """The request is understood, but there is no schedule or rule for it."""


class SolveError(AtlasError):
    """The LP solver and the longest path disagree: a defect, never a property of the input."""


class ThresholdError(AtlasError):
    """A threshold given by the user is exceeded."""

    exit_code = 1


class GateError(AtlasError):
    """A validation gate withdraws a result: two ways to it differ by more than was allowed."""

    exit_code = 3
