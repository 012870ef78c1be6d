"""Peak memory of a part of a run, where the system tells (Linux)."""

from __future__ import annotations

import resource
import sys
from pathlib import Path

_STATUS, _RESET = Path("/proc/self/status"), Path("/proc/self/clear_refs")

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


def _counted() -> int:
    """Most memory since the count was last restarted, 0 where the system does not count."""
    lines = _STATUS.read_text("ascii").splitlines() if _STATUS.exists() else []
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:"))
