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
    return max(*_earlier, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit)


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
    lines = _STATUS.read_text("ascii").splitlines() if _STATUS.exists() else []
    found = sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:"))
    return found or whole_peak_bytes()
