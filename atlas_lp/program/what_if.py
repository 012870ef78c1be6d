"""Changes of a recorded job that keep its schedule: faster or slower GPUs, collectives that are free or run elsewhere.

The answer stays exact: measured times are scaled to whole ns, a collective made free is a bound on what any improvement
of it could give, and one on a fabric of its own takes what it takes there, in whole ns.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from atlas_lp.errors import InputError
from atlas_lp.fabrics.fabric import Fabric
from atlas_lp.traces.signing.signed_trace import SignedTrace
from atlas_lp.units import format_bandwidth, format_time

_SHORTEST = 4
"""Characters of a key or an id that are enough to name it."""


@dataclass(frozen=True)
class WhatIf:
    """What is changed: *compute* is a factor on measured compute time, *free* names collectives that take no time.

    *fabrics* are pairs of a name and the fabric that these collectives run on instead, at its native point.  A name is
    a collective such as ``AllReduce``, in any case, or the beginning of a signature's key, or that of a communicator's
    id (``0x...``).
    """

    compute: Fraction = Fraction(1)
    free: tuple[str, ...] = ()
    fabrics: tuple[tuple[str, Fabric], ...] = ()

    def __post_init__(self) -> None:
        if not 0 <= self.compute <= 100 or self.compute.denominator > 1000:
            raise InputError(
                f"compute can be scaled by 0 to 100, with at most three decimals, not by {float(self.compute):g}"
            )

    def sentences(self, dependencies: str) -> list[str]:
        """The changes in words, none when nothing is changed; what counts as compute depends on *dependencies*."""
        words = []
        if self.compute != 1:
            words.append(f"{_COMPUTE[dependencies]} takes {float(self.compute):g} times as long as measured")
        if self.free:
            words.append(f"{', '.join(self.free)} {'takes' if len(self.free) == 1 else 'take'} no time")
        for name, fabric in self.fabrics:
            point = f"L {format_time(fabric.latency_ns)}, {format_bandwidth(fabric.gap_ns_per_byte)}"
            words.append(f"{name} runs on fabric {fabric.name} ({point}), whatever L and bandwidth are here")
        return words


_COMPUTE = {
    "events": "GPU work outside collectives, not what the host needs to call it,",
    "streams": "all time between collectives",
}

AS_RECORDED = WhatIf()


def named(name: str, signed: SignedTrace) -> list[int]:
    """Instances that *name* means (see :class:`WhatIf`).

    Raises :class:`~atlas_lp.errors.InputError` for a name that fits none.
    """
    wanted = name.casefold()
    enough = len(wanted.removeprefix("0x")) >= _SHORTEST
    by_id = enough and wanted.startswith("0x")
    fits = {c for c, identity in enumerate(signed.communicator_ids) if by_id and f"{identity:#x}".startswith(wanted)}
    found = [
        number
        for number, s in enumerate(signed.instances)
        if s.instance.communicator in fits
        or s.signature.collective.casefold() == wanted
        or (enough and s.signature.key().startswith(wanted))
    ]
    if not found:
        kinds = ", ".join(sorted({s.signature.collective for s in signed.instances}))
        raise InputError(
            f"no collective {name!r} in this trace: it has {kinds}; `atlas-lp inspect` lists keys and communicators"
        )
    return found
