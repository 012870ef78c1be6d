"""Arrival skew: collectives whose ranks arrive far apart get a class for every rank, as long as that is affordable.

Where all ranks arrive together, classes of ranks that do alike lose nothing.  Where they do not, who waits for whom
matters, and the planes between every two ranks say it exactly.  Ranks arrive apart because they were recorded to, or
because the collective before ends on them at different times (a Broadcast), which a replayed trace need not show.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from fractions import Fraction

import numpy as np

from atlas_lp.collectives.rank_classes import times_ns
from atlas_lp.collectives.solver import CollectiveSolver
from atlas_lp.fabrics.fabric import Fabric
from atlas_lp.goal.schedule import Ints
from atlas_lp.solver.envelope import Envelope, RankClasses
from atlas_lp.traces.signing.signed_trace import SignedTrace
from atlas_lp.traces.signing.timeline import Timeline

SKEW = 1 / 8
"""Ranks that arrived further apart than this, relative to the native time of their collective, are far apart."""

PROGRAM_PLANES = 1_000_000
"""Planes that classes for every rank may add to a program."""

PROGRAM_PAIRS = 1 << 16
"""Pairs of ranks whose planes are looked for in one program, at most: each is about a millisecond, once."""


def split_by_rank(
    signed: SignedTrace, envelopes: Mapping[str, Envelope], without: Collection[int], solver: CollectiveSolver
) -> dict[int, RankClasses]:
    """Instances, by number, that get a class for every rank; the furthest apart first.

    *envelopes* are by signature; instances *without* stay as they are.
    """
    signatures = {
        key: signature
        for key, signature in signed.signatures.items()
        if solver.can_solve_by_rank(signature, envelopes[key])
    }
    solved: dict[str, RankClasses] = {}
    result: dict[int, RankClasses] = {}
    pairs, planes = PROGRAM_PAIRS, PROGRAM_PLANES
    for number in _furthest_apart(signed, envelopes, signatures, without, solver.fabric):
        key = signed.keys[number]
        if key not in solved:
            pairs -= signatures[key].ranks ** 2
            if pairs < 0:
                break
            if solver.progress is not None:
                solver.progress("signatures of ranks that arrive apart", len(solved), 0)
            solved[key] = solver.by_rank(signatures[key], envelopes[key])
        planes -= sum(len(vectors) for _, _, vectors in solved[key].planes)
        if planes < 0:
            break
        result[number] = solved[key]
    return result


def _furthest_apart(
    signed: SignedTrace,
    envelopes: Mapping[str, Envelope],
    wanted: Collection[str],
    without: Collection[int],
    fabric: Fabric,
) -> list[int]:
    """Instances of the signatures *wanted* whose ranks arrive far apart, by how far."""
    if not wanted:
        return []
    _, recorded = signed.timeline.durations_ns()
    left = {key: _ends_apart_ns(envelope, fabric) for key, envelope in envelopes.items()}
    apart = np.maximum(recorded, _left_apart(signed.timeline, np.array([left[key] for key in signed.keys])))
    native = {key: float(envelopes[key].time_ns(*fabric.native)) for key in wanted}
    found = []
    for number, (key, skew) in enumerate(zip(signed.keys, apart.tolist(), strict=True)):
        if key in native and signed.is_complete(number) and number not in without and skew > SKEW * native[key]:
            found.append((-skew / native[key], number))
    return [number for _, number in sorted(found)]


def _ends_apart_ns(envelope: Envelope, fabric: Fabric) -> int:
    """How far apart ranks that arrive together end at the native point, in whole ns."""
    ends: dict[int, Fraction] = {}
    for (_, ending, _), time in zip(envelope.by_class.planes, times_ns(envelope.by_class, fabric.theta()), strict=True):
        ends[ending] = max(time, ends.get(ending, time))
    return int(max(ends.values()) - min(ends.values()))


def _left_apart(timeline: Timeline, ends_apart: Ints) -> Ints:
    """Per instance: how far apart the last collectives of its ranks before it end at most."""
    order = np.lexsort((timeline.end_ns, timeline.start_ns, timeline.gpu))
    same = timeline.gpu[order][1:] == timeline.gpu[order][:-1]
    before, after = order[:-1][same], order[1:][same]
    result = np.zeros(len(ends_apart), dtype=np.int64)
    np.maximum.at(result, timeline.instance[after], ends_apart[timeline.instance[before]])
    return result
