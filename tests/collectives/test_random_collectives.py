"""Random collectives: one rank per class, and brackets, against the graph of all ranks.

``python tests/collectives/test_random_collectives.py 2000`` tries as many as asked, and prints counts.
"""

import itertools
import random
import sys
from collections import Counter
from dataclasses import replace
from fractions import Fraction

import pytest

from atlas_lp.collectives.signature_graph import UnevenRing, signature_graph
from atlas_lp.errors import AtlasError
from atlas_lp.fabrics.fabric import Fabric, load_fabric
from atlas_lp.goal import PortRule
from atlas_lp.signatures.algorithms.algorithm import Parameters
from atlas_lp.signatures.algorithms.assumed import assumed_signature
from atlas_lp.signatures.algorithms.expand import operation_count
from atlas_lp.signatures.algorithms.symmetry import find_symmetry
from atlas_lp.signatures.algorithms.table import ALGORITHMS
from atlas_lp.signatures.signature import Signature
from atlas_lp.solver.axis import point
from atlas_lp.solver.longest_path import Evaluator

POINTS = list(itertools.product((0, 3700, 10**6), (Fraction(8, 10**4), Fraction(1, 25), Fraction(4, 5))))
CASES = [
    (algorithm, collective, ingress)
    for algorithm in ("ring", "p2p", "pat")
    for collective in ALGORITHMS[algorithm].collectives
    if collective not in ("Broadcast", "Reduce")
    for ingress in (False, True)
]


def drawn(rng: random.Random, algorithm: str, collective: str, ingress: bool) -> tuple[Signature, Fabric] | None:
    """A random collective and fabric; None for what NCCL does not do, or what is too large to try."""
    per_node = 1 if algorithm == "pat" else rng.choice([1, 2, 3, 4])
    ranks, share = per_node * rng.randint(2, 6), rng.choice([1, 1, 2, 4])
    sizes = rng.randint(1, 2000), rng.randint(1000, 200_000), 4096, 65_536, rng.randint(10**5, 3 * 10**6)
    f = replace(
        load_fabric(),
        credits=rng.choice(["local", "acknowledged", "none"]),
        ingress=ingress,
        port_rule=rng.choice(list(PortRule)),
        latency_ns=Fraction(rng.choice([0, 3700, 50_000])),
    )
    try:
        signature, _ = assumed_signature(
            Parameters(
                collective,
                4 * rng.choice(sizes),
                [r // per_node for r in range(ranks)],
                nccl=rng.choice(["2.20", "2.22", "2.28"]),
                algorithm=algorithm,
                protocol=rng.choice(ALGORITHMS[algorithm].protocols),
                channels=rng.randint(1, 6),
                per_peer=rng.choice([None, 1, 2]),
                nic_of_rank=[r % per_node // share for r in range(ranks)],
            )
        )
    except AtlasError:
        return None
    return None if operation_count(signature) > 100_000 else (signature, f)


def judged(signature: Signature, f: Fabric) -> str:
    """``quotient`` or ``bracket``, or what is wrong with it; empty where there is neither."""
    whole = signature_graph(signature, f, use_symmetry=False)
    if find_symmetry(signature) is not None:
        small, full = (Evaluator(g.in_order(), f.theta()) for g in (signature_graph(signature, f), whole))
        for latency, gap in POINTS:
            where = point(Fraction(latency), gap)
            if small.at(where).time_ns != full.at(where).time_ns:
                return f"a quotient differs at {latency} ns, {gap} ns/B"
        return "quotient"
    uneven = UnevenRing.of(signature, f)
    if uneven is None:
        return ""
    sides = uneven.in_order(uneven.below, f), uneven.in_order(whole, f), uneven.above
    below, full, above = (Evaluator(side.in_order(), f.theta()) for side in sides)
    for latency, gap in POINTS:
        where = point(Fraction(latency), gap)
        if not below.at(where).time_ns <= full.at(where).time_ns <= above.at(where).time_ns:
            return f"a bracket does not hold at {latency} ns, {gap} ns/B"
    return "bracket"


def tried(count: int, seed: int) -> Counter[tuple[str, bool, str]]:
    """How often each algorithm, with ingress or without, was judged what."""
    rng, found = random.Random(seed), Counter()
    while sum(found.values()) < count:
        case = rng.choice(CASES)
        some = drawn(rng, *case)
        verdict = "" if some is None else judged(*some)
        if verdict:
            found[case[0], case[2], verdict] += 1
    return found


@pytest.mark.parametrize("seed", range(2))
def test_some(seed):
    assert {verdict for _, _, verdict in tried(12, seed)} <= {"quotient", "bracket"}


@pytest.mark.slow
def test_many():
    found = tried(150, 7)
    assert {verdict for _, _, verdict in found} == {"quotient", "bracket"}


if __name__ == "__main__":
    for key, times in sorted(tried(int(sys.argv[1]), 1).items()):
        sys.stdout.write(f"{' '.join(map(str, key))}: {times}\n")
