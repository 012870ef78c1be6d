"""Which rule an NCCL version follows: for the split over channels, and for the order of point-to-point messages.

The rules themselves are in :mod:`~atlas_lp.signatures.nccl.splits` and :mod:`~atlas_lp.signatures.nccl.transfers`,
with the source files they were read from; here is when each of them came.  A rule is called by its first version.
"""

from __future__ import annotations

import re

from atlas_lp.errors import UnsupportedError
from atlas_lp.texts import quoted

SPLIT_RULES = ("2.19", "2.20", "2.22", "2.23", "2.26", "2.29")
"""First NCCL version of each rule of the split; a rule holds until the next one, the first from 2.18 on."""

P2P_RULES = ("2.20", "2.22", "2.28.3", "2.28.7", "2.29")
"""First NCCL version of each rule of point-to-point; 2.28 without a patch level is taken for 2.28.7."""

_SPLITS_FROM, _P2P_FROM, _UNTIL = (2, 18), (2, 20), (2, 30)
_NO_PATCH_LEVEL = 99
_VERSION = re.compile(r"(?>([0-9]{1,6})\.([0-9]{1,6})(?:\.([0-9]{1,6}))?)(?![0-9]|[^ -~])")


def split_rule(version: str) -> str:
    """Return the rule of the channel split of an NCCL *version* such as ``2.28.9``.

    Raises :class:`~atlas_lp.errors.UnsupportedError` for versions before 2.18 or after 2.30, and for text that is no
    version.
    """
    number = _parsed(version)
    if not _SPLITS_FROM <= number[:2] <= _UNTIL:
        raise UnsupportedError(
            f"NCCL {version}: channel splits are known for 2.18 to 2.30; choose the nearest with --nccl"
        )
    return max((rule for rule in SPLIT_RULES if number_of(rule) <= max(number[:2], (2, 19))), key=number_of)


def p2p_rule(version: str) -> str:
    """Return the rule of point-to-point messages of an NCCL *version*.

    Raises :class:`~atlas_lp.errors.UnsupportedError` for versions before 2.20 or after 2.30, and for text that is no
    version.
    """
    number = _parsed(version)
    if not _P2P_FROM <= number[:2] <= _UNTIL:
        raise UnsupportedError(
            f"NCCL {version}: the order of point-to-point calls is known for 2.20 to 2.30; choose the nearest"
        )
    return max((rule for rule in P2P_RULES if number_of(rule) <= number), key=number_of)


def number_of(rule: str) -> tuple[int, ...]:
    """The version that *rule* is called by, as numbers that compare."""
    return tuple(int(part) for part in rule.split("."))


def _parsed(version: str) -> tuple[int, int, int]:
    match = _VERSION.match(version)
    if match is None:
        raise UnsupportedError(f"{quoted(version)} is no NCCL version: write it as 2.28 or 2.28.9")
    return int(match[1]), int(match[2]), int(match[3] or _NO_PATCH_LEVEL)
