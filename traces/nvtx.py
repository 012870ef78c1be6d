"""Numbers of NVTX 3 (nvToolsExt.h, nvtxPayload.h) as Nsight Systems exports them."""

PUSH_POP, START_END = 59, 60
"""Event types of ranges: nested on one thread, or free to end on another."""

TASK_PUSH_POP, TASK_START_END = 70, 71
"""Event types of the same ranges where Nsight calls them ``NvtxtPushPopRange`` and ``NvtxtStartEndRange``."""

RANGE_TYPES = (PUSH_POP, START_END, TASK_PUSH_POP, TASK_START_END)

DOMAIN_CREATE = 75
"""Event type of the row that names a domain; its end is NULL."""

STATIC_SCHEMA = 1 << 24
"""First payload schema id that a program may choose; an entry type from here on is another schema or enum."""
