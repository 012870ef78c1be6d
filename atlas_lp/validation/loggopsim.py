"""LogGOPSim on a schedule, where it is installed: an independent simulator of LogGP and GOAL.

``LogGOPSim`` and ``txt2bin`` of spcl/LogGOPSim, or of the fork in spcl/atlahs, which knows several cpus and NICs per
rank and G with decimals.  It takes whole ns for L, o and g.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from atlas_lp.errors import InputError, UnsupportedError
from atlas_lp.fabrics.fabric import Fabric
from atlas_lp.goal import SEND, Schedule, write_goal

SIMULATOR, COMPILER = "LogGOPSim", "txt2bin"

DIFFERS = (
    "adds g to every message of a path, truncates (m-1) G to whole ns, and lets the operations of one cpu (a channel "
    "of a GPU) wait for each other, a receive for a calc, too"
)
"""What its model has that ours has not."""

_EAGER = "2000000000"
_FINISH = re.compile(r"Maximum finishing time at host [0-9]+: ([0-9]{1,19})")
_EVENTS = re.compile(r"Events: ([0-9]{1,19})")


@dataclass(frozen=True)
class Simulator:
    """LogGOPSim on one compiled file; *events* is how many it must simulate: operations and messages."""

    program: str
    binary: Path
    events: int

    def time_ns(self, fabric: Fabric) -> int:
        """T in whole ns with the parameters of *fabric*.

        Raises :class:`~atlas_lp.errors.UnsupportedError` when L, o or g is no whole number of ns, and
        :class:`~atlas_lp.errors.InputError` when the simulator fails or stops early, which some forks do in silence.
        """
        values = {"-L": fabric.latency_ns, "-o": fabric.overhead_ns, "-g": fabric.message_gap_ns}
        broken = [option[1:] for option, value in values.items() if value.denominator != 1]
        if broken:
            raise UnsupportedError(f"LogGOPSim takes whole ns for {', '.join(broken)}")
        words = [word for option, value in values.items() for word in (option, str(int(value)))]
        gap = fabric.gap_ns_per_byte
        text = str(gap) if gap.denominator == 1 else f"{float(gap):.12g}"
        command = [self.program, "-f", str(self.binary), "-S", _EAGER, "-b", *words, "-G", text]
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
        found, events = _FINISH.search(done.stdout), _EVENTS.search(done.stdout)
        if done.returncode or found is None or events is None:
            last = (done.stderr or done.stdout).strip().splitlines()[-1:]
            raise InputError(f"LogGOPSim failed at G = {text}: {' '.join(last)} (some forks take whole G only)")
        if int(events[1]) != self.events:
            raise InputError(f"LogGOPSim stopped after {events[1]} of {self.events} events")
        return int(found[1])


def programs(simulator: str = SIMULATOR, compiler: str = COMPILER) -> tuple[str, str] | None:
    """Paths of the simulator and its compiler of GOAL text; None unless both are installed."""
    found = shutil.which(simulator), shutil.which(compiler)
    return None if found[0] is None or found[1] is None else (found[0], found[1])


def compiled(schedule: Schedule, folder: Path, installed: tuple[str, str]) -> Simulator:
    """Write *schedule* (one GOAL rank per node, numbered tags) into *folder* and compile it.

    Raises :class:`~atlas_lp.errors.InputError` when the compiler fails.
    """
    simulator, compiler = installed
    text, binary = folder / "schedule.goal", folder / "schedule.bin"
    write_goal(schedule, text)
    command = [compiler, "-i", str(text), "-o", str(binary)]
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    if done.returncode or not binary.exists():
        last = (done.stderr or done.stdout).strip().splitlines()[-1:]
        raise InputError(f"{compiler} failed: {' '.join(last)}")
    return Simulator(simulator, binary, len(schedule) + schedule.count(SEND))
