"""Which collectives get a class for every rank: those whose ranks arrived far apart, as long as that is affordable.

Where all ranks arrive together, classes of ranks that do alike lose nothing.  Where they do not, who waits for whom
matters, and the planes between every two ranks say it exactly.  Ranks arrive apart because they were recorded to, or
because the collective before ends on them at different times (a Broadcast), which a replayed trace need not show.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from fractions import Fraction

import numpy as np

from atlas_lp.cache.store import Store
from atlas_lp.collectives.rank_classes import can_solve_by_rank, times_ns
from atlas_lp.collectives.solver import solve_by_rank
from atlas_lp.fabrics.fabric import Fabric
from atlas_lp.goal.schedule import Ints
from atlas_lp.program.links import OperationTimes
from atlas_lp.solver.envelope import Envelope, RankClasses
from atlas_lp.traces.reading.read import Progress
from atlas_lp.traces.signing.sign import SignedInstance
from atlas_lp.traces.trace import Trace

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
    for number in _furthest_apart(trace, signed, envelopes, signatures, without, fabric):
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
    wanted: Collection[str],
    without: Collection[int],
    fabric: Fabric,
) -> list[int]:
    """Instances of the signatures *wanted* whose ranks arrive far apart, by how far."""
    if not wanted:
        return []
    times = OperationTimes(trace, signed)
    _, recorded = times.durations()
    keys = [s.signature.key() for s in signed]
    left = {key: _ends_apart_ns(envelope, fabric) for key, envelope in envelopes.items()}
    apart = np.maximum(recorded, _left_apart(times, np.array([left[key] for key in keys])))
    native = {key: float(envelopes[key].time_ns(fabric.latency_ns, fabric.gap_ns_per_byte)) for key in wanted}
    found = []
    for number, (s, key, skew) in enumerate(zip(signed, keys, apart.tolist(), strict=True)):
        complete = len(s.instance.rows) == s.signature.ranks
        if key in native and complete and number not in without and skew > SKEW * native[key]:
            found.append((-skew / native[key], number))
    return [number for _, number in sorted(found)]


def _ends_apart_ns(envelope: Envelope, fabric: Fabric) -> int:
    """How far apart ranks that arrive together end at the native point, in whole ns."""
    ends: dict[int, Fraction] = {}
    for (_, ending, _), time in zip(envelope.by_class.planes, times_ns(envelope.by_class, fabric.theta()), strict=True):
        ends[ending] = max(time, ends.get(ending, time))
    return int(max(ends.values()) - min(ends.values()))


def _left_apart(times: OperationTimes, ends_apart: Ints) -> Ints:
    """Per instance: how far apart the last collectives of its ranks before it end at most."""
    order = np.lexsort((times.end_ns, times.start, times.gpu))
    same = times.gpu[order][1:] == times.gpu[order][:-1]
    before, after = order[:-1][same], order[1:][same]
    result = np.zeros(len(ends_apart), dtype=np.int64)
    np.maximum.at(result, times.instance[after], ends_apart[times.instance[before]])
    return result
