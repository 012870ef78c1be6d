"""What is affordable when a collective is solved, in one record that is part of every cache key."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field

from atlas_lp.solver.highs import CheckLimits


@dataclass(frozen=True)
class Limits:
    """Every number that decides what a solved collective holds beside signature, fabric and box.

    Schedules without exact symmetry are expanded fully up to *full_operations*, and bracketed beyond it.

    Ranks that start or end further apart than *class_width*, relative to the whole collective, are told apart, in at
    most *classes* classes; edges times planes times classes are at most *class_edges*, because each class costs some
    longest paths; the planes between classes that are expected, each an edge of the program, at most *class_planes*.

    Collectives of more than *ranks* ranks, or with more edges times planes times ranks than *rank_edges*, have no class
    for every rank.  *check* says how much HiGHS is asked.
    """

    full_operations: int = 4_000_000
    classes: int = 64
    class_width: float = 1 / 500
    class_edges: int = 1 << 24
    class_planes: int = 12_000
    ranks: int = 64
    rank_edges: int = 1 << 27
    check: CheckLimits = field(default_factory=CheckLimits)

    def canonical(self) -> dict[str, object]:
        """Plain values, for keys."""
        return asdict(self)
