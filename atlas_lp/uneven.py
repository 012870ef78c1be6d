"""Which collectives get a class for every rank: those whose ranks arrived far apart, as long as that is affordable.

Where all ranks arrive together, classes of ranks that do alike lose nothing.  Where they do not, who waits for whom
matters, and the planes between every two ranks say it exactly.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from atlas_lp.cache.store import Store
from atlas_lp.collective import solve_by_rank
from atlas_lp.envelope import Envelope, RankClasses
from atlas_lp.links import OperationTimes
from atlas_lp.parameters import Fabric
from atlas_lp.rank_classes import can_solve_by_rank
from atlas_lp.traces import Progress, SignedInstance, Trace

SKEW = 1 / 8
"""Ranks that arrived further apart than this, relative to the native time of their collective, are far apart."""

PROGRAM_PLANES = 1_000_000
"""Planes that classes for every rank may add to a program."""

PROGRAM_PAIRS = 1 << 16
"""Pairs of ranks whose planes are looked for in one program, at most: each is about a millisecond, once."""


def split_uneven(
    trace: Trace,
    signed: Sequence[SignedInstance],
    envelopes: Mapping[str, Envelope],
    without: Collection[int],
    fabric: Fabric,
    store: Store,
    use_symmetry: bool,
    progress: Progress | None = None,
) -> dict[int, RankClasses]:
    """Instances, by number, that get a class for every rank; the furthest apart first.

    *envelopes* are by signature; instances *without* stay as they are.
    """
    signatures = {
        key: signature
        for key, signature in {s.signature.key(): s.signature for s in signed}.items()
        if envelopes[key].by_class.count < signature.ranks and can_solve_by_rank(signature, len(envelopes[key].vectors))
    }
    solved: dict[str, RankClasses] = {}
    result: dict[int, RankClasses] = {}
    pairs, planes = PROGRAM_PAIRS, PROGRAM_PLANES
    for number in _furthest_apart(trace, signed, {key: envelopes[key] for key in signatures}, without, fabric):
        key = signed[number].signature.key()
        if key not in solved:
            pairs -= signatures[key].ranks ** 2
            if pairs < 0:
                break
            if progress is not None:
                progress("signatures of uneven ranks", len(solved), 0)
            solved[key] = solve_by_rank(signatures[key], envelopes[key], fabric, store, use_symmetry)
        planes -= sum(len(vectors) for _, _, vectors in solved[key].planes)
        if planes < 0:
            break
        result[number] = solved[key]
    return result


def _furthest_apart(
    trace: Trace,
    signed: Sequence[SignedInstance],
    envelopes: Mapping[str, Envelope],
    without: Collection[int],
    fabric: Fabric,
) -> list[int]:
    """Instances of the signatures of *envelopes* whose ranks arrived far apart, by how far."""
    if not envelopes:
        return []
    _, skews = OperationTimes(trace, signed).durations()
    native = {key: float(e.time_ns(fabric.latency_ns, fabric.gap_ns_per_byte)) for key, e in envelopes.items()}
    found = []
    for number, (s, skew) in enumerate(zip(signed, skews.tolist(), strict=True)):
        time = native.get(s.signature.key())
        complete = len(s.instance.rows) == s.signature.ranks
        if time is not None and complete and number not in without and skew > SKEW * time:
            found.append((-skew / time, number))
    return [number for _, number in sorted(found)]
