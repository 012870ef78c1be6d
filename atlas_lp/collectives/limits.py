"""What is affordable when a collective is solved, in one record that is part of every cache key."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from fractions import Fraction

from atlas_lp.errors import UnsupportedError
from atlas_lp.peak_memory import free_bytes
from atlas_lp.solver.highs import CheckLimits
from atlas_lp.units import format_size

BYTES_PER_OPERATION = 320
"""Memory of one operation while its graph is built and solved (measured: 270)."""


@dataclass(frozen=True)
class Limits:
    """Every number that decides what a solved collective holds beside signature, fabric and box.

    Schedules without exact symmetry are expanded fully up to *full_operations*, and bracketed beyond it.  Of those of
    more than *loop_operations* only some loops are expanded, where they are alike.  What would need more than
    *memory_bytes* (None: most of what is free) is refused before it is built; it decides no result.

    Ranks that start or end further apart than *class_width*, relative to the whole collective, are told apart, in at
    most *classes* classes; edges times planes times classes are at most *class_edges*, because each class costs some
    longest paths; the planes between classes that are expected, each an edge of the program, at most *class_planes*.

    Planes that would raise T by less than *tolerance* (relative) are not looked for.

    Collectives of more than *ranks* ranks, or with more edges times planes times ranks than *rank_edges*, have no class
    for every rank.  *check* says how much HiGHS is asked.
    """

    full_operations: int = 4_000_000
    loop_operations: int = 4_000_000
    classes: int = 64
    class_width: float = 1 / 500
    class_edges: int = 1 << 24
    class_planes: int = 12_000
    ranks: int = 64
    rank_edges: int = 1 << 27
    check: CheckLimits = field(default_factory=CheckLimits)
    tolerance: Fraction = Fraction(0)
    memory_bytes: int | None = None

    def canonical(self) -> dict[str, object]:
        """Plain values, for keys."""
        values = {name: value for name, value in asdict(self).items() if name != "memory_bytes"}
        return {**values, "tolerance": str(self.tolerance)}

    def check_memory(self, what: str, operations: int) -> None:
        """Refuse to build the graph of *what*, which has so many *operations*, where it would not fit.

        Raises :class:`~atlas_lp.errors.UnsupportedError`.
        """
        free = free_bytes()
        allowed = self.memory_bytes if self.memory_bytes is not None else None if free is None else free * 4 // 5
        needed = operations * BYTES_PER_OPERATION
        if allowed is not None and needed > allowed:
            raise UnsupportedError(
                f"{what} expands to {operations:.3g} operations, which take about {format_size(needed)} of memory, and "
                f"{format_size(allowed)} may be used: take a smaller one, or say how much with --memory"
            )
