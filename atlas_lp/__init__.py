"""atlas-lp: how long would a recorded NCCL schedule take on another network?  Exactly, as a function.

The names of :mod:`atlas_lp.api` are names of this package, imported when they are first used::

    >>> import atlas_lp
    >>> ring = atlas_lp.collective("AllReduce", "128MiB", 64, gpus_per_node=4, channels=8)
    >>> answer = atlas_lp.solve(ring)
    >>> round(answer.T("23.7us", "400Gbps"))
    1536452
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from atlas_lp.api import *

__version__ = "0.1.0"

__all__ = [
    "Analysis",
    "Answer",
    "AtlasError",
    "Box",
    "Envelope",
    "Fabric",
    "Schedule",
    "Signature",
    "Tolerance",
    "Trace",
    "WhatIf",
    "__version__",
    "analyze",
    "collective",
    "expand",
    "fabric",
    "load",
    "read",
    "solve",
]


def __getattr__(name: str) -> Any:
    if name in __all__:
        from atlas_lp import api

        return getattr(api, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
