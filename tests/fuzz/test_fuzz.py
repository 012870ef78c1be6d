"""Damaged inputs of every format: an answer, an answer with its gaps named, or a refusal; see the package for more."""

from collections import Counter
from itertools import count, islice

import pytest

from fuzz.attacks import NOT_YET
from fuzz.judge import ATTACKS, Case, Verdict
from fuzz.workers import run

EVERY_ATTACK_ONCE = len(ATTACKS)


@pytest.mark.parametrize(
    ("seed", "mutations", "workers"), [(0, EVERY_ATTACK_ONCE, 1), pytest.param(1, 300, 2, marks=pytest.mark.slow)]
)
def test_damaged_inputs_are_answered_or_refused(seed: int, mutations: int, workers: int) -> None:
    outcomes: Counter[str] = Counter()
    found = []

    def tell(case: Case, verdict: Verdict) -> None:
        outcomes[verdict.outcome] += 1
        if verdict.finding:
            found.append(f"--case {case.number}, {case.attack.key}: {verdict.outcome}\n{verdict.finding}")

    turns = (Case(seed, number) for number in count())
    run(islice((case for case in turns if case.attack.key not in NOT_YET), mutations), workers, tell)
    print(f"fuzz: {dict(sorted(outcomes.items()))}")  # noqa: T201
    assert not found, f"python -m tests.fuzz --seed {seed} ...\n" + "\n".join(found)
    assert min(outcomes[word] for word in ("refused", "same answer", "another answer")) > 0, outcomes


def test_what_is_not_withstood_yet_is_tried_at_all() -> None:
    assert {attack.key for attack in ATTACKS} >= NOT_YET
