"""Peak memory of a part of a run, and memory that is free, where the system tells (Linux)."""

from __future__ import annotations

import resource
import sys
from pathlib import Path

from atlas_lp.texts import integer

_STATUS, _RESET = Path("/proc/self/status"), Path("/proc/self/clear_refs")

_MEMORY, _GROUP = Path("/proc/meminfo"), Path("/sys/fs/cgroup")
_CONTAINER = (
    (_GROUP / "memory.max", _GROUP / "memory.current"),
    (_GROUP / "memory" / "memory.limit_in_bytes", _GROUP / "memory" / "memory.usage_in_bytes"),
)

_earlier = [0]


def whole_peak_bytes() -> int:
    """Most memory this process ever had."""
    unit = 1 if sys.platform == "darwin" else 1024
    # The two counters of Linux lag behind each other by some pages.
    return max(*_earlier, _counted(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit)


def restart_peak() -> bool:
    """Count peaks from now on; False where the system cannot."""
    _earlier[0] = whole_peak_bytes()
    try:
        _RESET.write_text("5", "ascii")
    except OSError:
        return False
    return True


def peak_bytes() -> int:
    """Most memory since :func:`restart_peak`, or ever where the system cannot count anew."""
    return _counted() or whole_peak_bytes()


def free_bytes() -> int | None:
    """Memory that can still be had, within what the container allows; None where the system does not tell."""
    known = [_MEMORY.read_text("ascii").split("MemAvailable:")[1].split()[0]] if _MEMORY.exists() else []
    free = [int(kib) * 1024 for kib in known]
    for limit, used in _CONTAINER:
        most = integer(limit.read_text("ascii").strip()) if limit.exists() and used.exists() else None
        if most is not None:  # "max" is none
            free.append(most - int(used.read_text("ascii")))
    return max(min(free), 0) if free else None


def _counted() -> int:
    """Most memory since the count was last restarted, 0 where the system does not count."""
    lines = _STATUS.read_text("ascii").splitlines() if _STATUS.exists() else []
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:"))
