"""``python -m tests.fuzz --mutations 20000 --seed 1``: attack every format, print counts and findings.

``--case N`` runs the N-th case of the seed alone, in this process, and keeps its files with ``--keep FOLDER``.
"""

import argparse
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable
from itertools import count, islice
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from fuzz.judge import ATTACKS, Case, Judge, Verdict
from fuzz.workers import run


def main() -> int:
    """Run what the command line asks for; 1 when something was found."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--mutations", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--only", default="", help="attacks whose name, such as 'packed: cut', contains this")
    parser.add_argument("--case", type=int, help="one case alone")
    parser.add_argument("--keep", type=Path, help="folder for the files of --case")
    asked = parser.parse_args()
    if asked.case is not None:
        return _alone(Case(asked.seed, asked.case), asked.keep)
    turns = (Case(asked.seed, number) for number in count())
    cases = islice((case for case in turns if asked.only in case.attack.key), asked.mutations)
    return _many(cases, asked.workers)


def _alone(case: Case, keep: Path | None) -> int:
    with tempfile.TemporaryDirectory() as folder:
        verdict = Judge(keep or Path(folder)).verdict(case)
        sys.stdout.write(f"{case.attack.key}: {verdict.outcome}\n{verdict.finding}\n")
    return bool(verdict.finding)


def _many(cases: Iterable[Case], workers: int) -> int:
    """Judge *cases*; print findings as they come, and counts at the end."""
    counts: dict[str, Counter[str]] = {attack.key: Counter() for attack in ATTACKS}
    findings = 0
    start = time.monotonic()

    def tell(case: Case, verdict: Verdict) -> None:
        nonlocal findings
        counts[case.attack.key][verdict.outcome] += 1
        if case.number % len(ATTACKS) == 0:
            sys.stderr.write(f"\r{case.number} ")
        if verdict.finding:
            findings += 1
            sys.stdout.write(f"--- case {case.number}, {case.attack.key}: {verdict.outcome}\n{verdict.finding}\n")
            sys.stdout.flush()

    run(cases, workers, tell)
    for key, outcomes in counts.items():
        if outcomes:
            words = ", ".join(f"{many} {outcome}" for outcome, many in sorted(outcomes.items()))
            sys.stdout.write(f"{key:40} {words}\n")
    total = sum(sum(outcomes.values()) for outcomes in counts.values())
    sys.stdout.write(f"{total} mutations, {findings} findings, {time.monotonic() - start:.0f} s\n")
    return findings > 0


if __name__ == "__main__":
    sys.exit(main())
