"""Changes of a recorded job that keep its schedule: faster or slower GPUs, collectives that take no time.

The answer stays exact: measured times are scaled to whole ns, and a collective made free is a bound on what any
improvement of it could give.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

from atlas_lp.errors import InputError
from atlas_lp.goal.schedule import Ints
from atlas_lp.signatures import Signature


@dataclass(frozen=True)
class WhatIf:
    """What is changed: *compute* is a factor on measured compute time, *free* names collectives that take no time.

    A name in *free* is a collective such as ``AllReduce``, in any case, or the beginning of a signature's key.
    """

    compute: Fraction = Fraction(1)
    free: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not 0 <= self.compute <= 100 or self.compute.denominator > 1000:
            raise InputError(
                f"compute can be scaled by 0 to 100, with at most three decimals, not by {float(self.compute):g}"
            )

    def scaled(self, times_ns: Ints) -> Ints:
        """Measured compute times times the factor, in whole ns (halves up)."""
        if self.compute == 1:
            return times_ns
        over, under = self.compute.as_integer_ratio()
        scaled: Ints = (2 * over * times_ns + under) // (2 * under)
        return scaled

    def freed(self, signatures: Mapping[str, Signature]) -> frozenset[str]:
        """Keys of *signatures* (by key) that take no time.

        Raises :class:`~atlas_lp.errors.InputError` for a name that fits none.
        """
        found: set[str] = set()
        for name in self.free:
            fits = {
                key
                for key, s in signatures.items()
                if s.collective.casefold() == name.casefold() or (len(name) >= 4 and key.startswith(name))
            }
            if not fits:
                kinds = ", ".join(sorted({s.collective for s in signatures.values()}))
                raise InputError(f"no collective {name!r} in this trace: it has {kinds}; `atlas-lp inspect` lists keys")
            found |= fits
        return frozenset(found)

    def sentences(self, dependencies: str) -> list[str]:
        """The changes in words, none when nothing is changed; what counts as compute depends on *dependencies*."""
        words = []
        if self.compute != 1:
            words.append(f"{_COMPUTE[dependencies]} takes {float(self.compute):g} times as long as measured")
        if self.free:
            words.append(f"{', '.join(self.free)} {'takes' if len(self.free) == 1 else 'take'} no time")
        return words


_COMPUTE = {
    "events": "GPU work outside collectives, not what the host needs to call it,",
    "streams": "all time between collectives",
}

AS_RECORDED = WhatIf()
