"""Who did something: processes and GPUs as all readers name them, and the 64-bit ids that Nsight Systems gives them."""

ProcessKey = tuple[str, int]
"""Host and process (``globalPid`` in Nsight exports): one pid may occur on several hosts."""

GpuKey = tuple[ProcessKey, int]
"""A process and the CUDA device it drives."""

MACHINE_SHIFT, PID_SHIFT = 48, 24
"""Where the machine and the pid begin in an id; the thread is below (``globalTid``), or 0 (``globalPid``)."""

THREAD_BITS = (1 << PID_SHIFT) - 1
"""The thread of an id: ``globalTid & ~THREAD_BITS`` is its ``globalPid``."""

_PID_BITS = THREAD_BITS


def global_pid(machine: int, pid: int) -> int:
    """Return the id of a process, whose pid the operating system counts in 24 bits at most."""
    return (machine << MACHINE_SHIFT) + ((pid & _PID_BITS) << PID_SHIFT)


def pid_of(identity: int) -> int:
    """Return the pid of a ``globalPid`` or ``globalTid``."""
    return (identity >> PID_SHIFT) & _PID_BITS
