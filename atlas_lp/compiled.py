"""Compiled kernels: numba, with what it compiled kept for the next run where there is a place for it."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, TypeVar

from numba import njit

Kernel = TypeVar("Kernel", bound=Callable[..., Any])


class NotKept(RuntimeWarning):
    """Compiled kernels find no place to be kept in, so that every run compiles them anew."""


_told: list[bool] = []


def compiled(function: Kernel) -> Kernel:
    """Compile *function* when it is first called.

    Compiled code is kept beside the module, or in the user's cache folder.  In a container with neither (a read-only
    installation, a user without a home) it is compiled by every run, which is said once.
    """
    try:
        kept: Any = njit(cache=True)(function)
    except RuntimeError:
        if not _told:
            _told.append(True)
            words = (
                "compiled kernels cannot be kept, so each run takes seconds longer: name a folder in NUMBA_CACHE_DIR"
            )
            warnings.warn(words, NotKept, stacklevel=2)
        kept = njit(function)
    return kept  # type: ignore[no-any-return]
