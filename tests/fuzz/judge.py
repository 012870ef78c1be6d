"""One case: damaged files, a command on them, and what came of it."""

import json
import shutil
import traceback
import unicodedata
import warnings
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from click.testing import CliRunner, Result

from atlas_lp.cli import main
from fuzz.attacks import CHECK_TEXTS, Attack, Promise, attacks
from fuzz.samples import Command, Files, Sample, samples

ANSWER, REFUSED, WITHDRAWN = 0, 2, 3
ATTACKS = attacks()
LATENCIES_NS, GAPS_NS_PER_BYTE = (0, 3700, 20_000, 1_000_000), (0.0008, 0.04, 0.8)


@dataclass(frozen=True)
class Case:
    """The *number*-th case of a *seed*; attacks take turns."""

    seed: int
    number: int

    @property
    def attack(self) -> Attack:
        """What is done in it."""
        return ATTACKS[self.number % len(ATTACKS)]


@dataclass(frozen=True)
class Verdict:
    """*outcome* in a word; a *finding* is what should not be, with all that one needs to see why."""

    outcome: str
    finding: str = ""


@dataclass(frozen=True)
class Answer:
    """T at some points, or whatever else is asked for; how often each gap is counted; and which reading it rests on."""

    values: tuple[Any, ...]
    gaps: Counter[str]
    reading: str


class Judge:
    """Runs cases in a folder of its own; knows the answer to every sample before any damage."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.cache = folder / "case", folder / "cache"
        self.samples: dict[str, Sample] = samples()
        self.whole: dict[str, Answer] = {}

    def verdict(self, case: Case) -> Verdict:
        """Damage a sample, run a command on it, and judge."""
        attack = case.attack
        sample = self.samples[attack.sample]
        draw = Random(f"{case.seed} {case.number} {attack.key}")
        files = attack.damage(sample, draw)
        command = sample.commands[0]
        if attack.promise is Promise.ANY and draw.random() < 0.4:
            command = draw.choice(sample.commands)
        original = self.original(attack.sample)
        return self._judged(self.run(files, command), command, attack, original)

    def original(self, name: str) -> Answer:
        """The answer to a sample as it is."""
        if name not in self.whole:
            sample = self.samples[name]
            result = self.run(sample.files, sample.commands[0])
            assert result.exit_code == 0, f"{name}: {result.output}"
            self.whole[name] = answer_of(result.stdout)
        return self.whole[name]

    def run(self, files: Files, command: Command) -> Result:
        """Write *files* and run a command on them, warnings being errors."""
        shutil.rmtree(self.folder, ignore_errors=True)
        for name, content in files.items():
            path = self.folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        self.folder.mkdir(parents=True, exist_ok=True)
        words = [word.replace("@", str(self.folder)).replace("%", str(self.cache)) for word in command]
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            return CliRunner().invoke(main, words)

    def _judged(self, result: Result, command: Command, attack: Attack, original: Answer) -> Verdict:
        told = f"{' '.join(command)}\n"
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            lines = traceback.format_exception(result.exception)
            return Verdict("traceback", told + "".join(lines[-12:]))
        if CHECK_TEXTS and (wild := _wild(result.output)):
            return Verdict("control characters", f"{told}{wild}: {result.output[:500]!r}")
        if result.exit_code in (REFUSED, WITHDRAWN):
            if not result.stderr.strip():
                return Verdict("refused without a word", told)
            if attack.promise is Promise.SAME:
                return Verdict("refused in vain", told + result.stderr)
            return Verdict("refused")
        if result.exit_code != ANSWER:
            return Verdict(f"exit {result.exit_code}", told + result.output[-1000:])
        if "--json" not in command:
            return Verdict("answered")
        try:
            answer = answer_of(result.stdout)
        except (ValueError, KeyError) as error:
            return Verdict("no JSON", f"{told}{error!r}: {result.stdout[:500]}")
        return _compared(answer, original, attack.promise, told)


def _compared(answer: Answer, original: Answer, promise: Promise, told: str) -> Verdict:
    if answer.values == original.values:
        return Verdict("same answer")
    if promise is Promise.ANY:
        return Verdict("another answer")
    if promise is Promise.NAMED and (answer.gaps - original.gaps or answer.reading != original.reading):
        return Verdict("another answer, named")
    words = f"{told}was {original.values}\nis  {answer.values}\ngaps {dict(answer.gaps)} after {dict(original.gaps)}"
    return Verdict("another answer in silence", words)


def answer_of(text: str) -> Answer:
    """The answer in a JSON document."""
    document = json.loads(text, parse_constant=_no_number)
    if "rows" in document:
        return Answer((json.dumps(document["rows"], sort_keys=True),), Counter(), "")
    planes = [(plane["constant_ns"], plane["messages"], plane["bytes"]) for plane in document["joint"]]
    points = [(latency, gap) for latency in LATENCIES_NS for gap in GAPS_NS_PER_BYTE]
    times = [max(c + m * latency + size * gap for c, m, size in planes) for latency, gap in points]
    gaps: Counter[str] = Counter()
    for gap in document.get("gaps", ()):
        gaps[gap["code"]] += gap["count"]
    reading = "".join(line for line in document["assumptions"] if line.startswith("composition: "))
    return Answer((document["makespan_ns"], *times), gaps, reading)


def _no_number(word: str) -> Any:
    raise ValueError(f"{word} is no JSON")


def _wild(text: str) -> str:
    """The first character that acts on a terminal instead of standing on it."""
    return next((hex(ord(c)) for c in text if unicodedata.category(c) == "Cc" and c not in "\n\t"), "")
