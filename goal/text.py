"""GOAL text: the grammar of LogGOPSim's ``txt2bin`` (spcl/LogGOPSim 76451de), read strictly, written plainly.

::

    num_ranks 2
    rank 0 {
    l1: calc 1000
    l2: send 4b to 1 tag 7 cpu 0 nic 0
    l2 requires l1
    }

Where the reference compiler is silent (a label defined twice, leading blanks that swallow a character,
tags beyond 32 bits), this reader refuses and names line and column.  Wildcards are refused: which message
they match depends on timing, so they have no fixed graph.
"""

from __future__ import annotations

import io
import re
from array import array
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import zstandard

from atlas_lp.errors import GoalError
from atlas_lp.files import replacing
from atlas_lp.goal.schedule import CALC, KIND_NAMES, RECV, SEND, Schedule
from atlas_lp.inputs import bounded_lines, open_input
from atlas_lp.texts import shortened

_OPERATION = re.compile(
    r"(?:((?!(?:calc|send|recv|requires|irequires)\b)[A-Za-z]\w*)[ \t]*:[ \t]*)?"
    r"(?:calc[ \t]+(\d{1,19})(?:[ \t]+cpu[ \t]+(\d{1,19}))?"
    r"|(send|recv)[ \t]+(\d{1,19})[ \t]*b[ \t]+(to|from)[ \t]+(-1|\d{1,19})"
    r"(?:[ \t]+tag[ \t]+(-1|\d{1,19}))?(?:[ \t]+cpu[ \t]+(\d{1,19}))?(?:[ \t]+nic[ \t]+(\d{1,19}))?)[ \t]*$",
    re.ASCII,
)
_DEPENDENCY = re.compile(r"([A-Za-z]\w*)[ \t]+(i?requires)[ \t]+([A-Za-z]\w*)[ \t]*$", re.ASCII)
_RANK = re.compile(r"rank[ \t]+(\d{1,19})[ \t]*\{[ \t]*$", re.ASCII)
_NUM_RANKS = re.compile(r"num_ranks[ \t]+(\d{1,19})[ \t]*$", re.ASCII)
_TOO_LONG = re.compile(r"(?<![\w.])\d{20,}", re.ASCII)
_WORD = re.compile(r"\S+")


def _nested(*parts: str) -> re.Pattern[str]:
    """Match as many of *parts*, in order, as a line begins with."""
    pattern = ""
    for part in reversed(parts):
        pattern = f"(?:{part}{pattern})?"
    return re.compile(pattern, re.ASCII)


_LABEL = r"(?!(?:calc|send|recv|requires|irequires|rank|num_ranks)\b)[A-Za-z]\w*"
_BLANK, _BLANKS = r"[ \t]*", r"[ \t]+"
_FIELDS = [rf"(?:{_BLANKS}{name}(?=[ \t]|$){_BLANK}\d*)?" for name in ("tag", "cpu", "nic")]
_PREFIXES = [
    _nested(rf"(?:{_LABEL}{_BLANK}:{_BLANK})?calc(?=[ \t]|$){_BLANK}", r"\d+", _FIELDS[1]),
    _nested(
        rf"(?:{_LABEL}{_BLANK}:{_BLANK})?(?:send|recv)(?=[ \t]|$){_BLANK}",
        rf"\d+{_BLANK}",
        rf"b{_BLANKS}",
        rf"(?:to|from){_BLANKS}",
        r"\d+",
        "".join(_FIELDS),
    ),
    _nested(rf"{_LABEL}{_BLANK}:{_BLANK}"),
    _nested(rf"{_LABEL}{_BLANKS}i?requires(?=[ \t]|$){_BLANK}", _LABEL),
]
_BLOCK_PREFIXES = [
    _nested(rf"num_ranks{_BLANKS}", r"\d+"),
    _nested(rf"rank{_BLANKS}", r"\d+", rf"{_BLANK}\{{"),
]


class _Reader:
    """Turns lines into columns; one instance reads one file."""

    def __init__(self, where: str) -> None:
        self.where = where
        self.line_number = 0
        self.ranks = -1
        self.rank = -1
        self.open = False
        self.in_comment = False
        self.labels: dict[str, int] = {}
        self.columns: dict[str, array[int]] = {
            name: array("q") for name in ("kind", "rank", "size", "peer", "tag", "cpu", "nic")
        }
        self.before, self.after, self.on_start = array("q"), array("q"), array("b")

    def fail(self, message: str, column: int = 1) -> GoalError:
        return GoalError(f"{self.where}, line {self.line_number}, column {column}: {message}")

    def read(self, lines: Iterable[str]) -> Schedule:
        for self.line_number, raw in enumerate(lines, 1):
            line = raw.rstrip("\r\n")
            if line and not self._skip_comment(line):
                self._statement(line)
        self.line_number += 1
        if self.ranks < 0:
            raise self.fail("no 'num_ranks N' line: this is not a GOAL file")
        if self.in_comment:
            raise self.fail("a comment is not closed: add '*/'")
        if self.open:
            raise self.fail(f"the block of rank {self.rank} is not closed: add '}}' (is the file cut?)")
        if self.rank + 1 != self.ranks:
            raise self.fail(f"num_ranks is {self.ranks}, but the last block is of rank {self.rank}")
        if not len(self.columns["kind"]):
            raise self.fail("the file has no operations")
        return self._schedule()

    def _skip_comment(self, line: str) -> bool:
        """Whether *line* is blank or a comment, alone or as part of one over several lines."""
        start = 0
        if not self.in_comment:
            text = line.strip()
            if not text.startswith("/*"):
                return not text or text.startswith("//")
            start = line.index("/*") + 2
        end = line.find("*/", start)
        self.in_comment = end < 0
        if end >= 0 and line[end + 2 :].strip():
            raise self.fail("a statement after a comment: put it on its own line", end + 3)
        return True

    def _statement(self, line: str) -> None:
        if line[0] in " \t":
            raise self.fail("a statement starts in column 1; remove the leading blanks")
        if self.open:
            match = _OPERATION.match(line)
            if match is not None:
                self._operation(match)
            elif (match := _DEPENDENCY.match(line)) is not None:
                self._dependency(match)
            elif line.rstrip() == "}":
                self.open = False
            else:
                raise self._syntax(line)
        elif (match := _RANK.match(line)) is not None:
            self._rank_block(int(match[1]))
        elif self.ranks < 0 and (match := _NUM_RANKS.match(line)) is not None:
            self.ranks = int(match[1])
        else:
            raise self._syntax(line)

    def _rank_block(self, rank: int) -> None:
        if self.ranks < 0:
            raise self.fail("'num_ranks N' must come before the first rank block")
        if rank != self.rank + 1 or rank >= self.ranks:
            raise self.fail(f"expected the block of rank {self.rank + 1} of {self.ranks}, found rank {rank}", 6)
        self.rank, self.open, self.labels = rank, True, {}

    def _operation(self, match: re.Match[str]) -> None:
        label, calc, calc_cpu, message, size, link, peer, tag, cpu, nic = match.groups()
        number = len(self.columns["kind"])
        if label is not None:
            if label in self.labels:
                raise self.fail(f"label {shortened(label, 40)} is defined twice in the block of rank {self.rank}")
            self.labels[label] = number
        if calc is not None:
            values = (CALC, self.rank, int(calc), -1, 0, int(calc_cpu or 0), 0)
        else:
            if (message, link) not in (("send", "to"), ("recv", "from")):
                raise self.fail(f"{message} takes '{'to' if message == 'send' else 'from'}'", match.start(6) + 1)
            kind = SEND if message == "send" else RECV
            values = (kind, self.rank, int(size), int(peer), int(tag or 0), int(cpu or 0), int(nic or 0))
            self._check_message(match, values[3], values[4])
        for column, value in zip(self.columns.values(), values, strict=True):
            try:
                column.append(value)
            except OverflowError:
                raise self.fail(f"{value} does not fit 64 bits") from None

    def _check_message(self, match: re.Match[str], peer: int, tag: int) -> None:
        if peer < 0 or tag < 0:
            column = match.start(7 if peer < 0 else 8) + 1
            raise self.fail("a wildcard (-1) has no fixed partner; write the rank and tag it matched", column)
        if peer >= self.ranks:
            raise self.fail(f"rank {peer} does not exist: num_ranks is {self.ranks}", match.start(7) + 1)
        if tag >= 2**32:
            raise self.fail(f"tag {tag} does not fit 32 bits, as the format demands", match.start(8) + 1)

    def _dependency(self, match: re.Match[str]) -> None:
        ends = []
        for group in (1, 3):
            number = self.labels.get(match[group])
            if number is None:
                raise self.fail(
                    f"label {shortened(match[group], 40)} is not defined above in the block of rank {self.rank}",
                    match.start(group) + 1,
                )
            ends.append(number)
        self.after.append(ends[0])
        self.before.append(ends[1])
        self.on_start.append(match[2] == "irequires")

    def _syntax(self, line: str) -> GoalError:
        """Name the first word that cannot stand at its place."""
        if (number := _TOO_LONG.search(line)) is not None:
            return self.fail("a number of 20 digits or more does not fit 64 bits", number.start() + 1)
        expected = "an operation, a dependency or '}'" if self.open else "'num_ranks N' or 'rank R {'"
        prefixes = _PREFIXES if self.open else _BLOCK_PREFIXES[self.ranks >= 0 :]
        # The longest beginning that some statement has; what follows is what is wrong.
        end = max(match.end() for pattern in prefixes if (match := pattern.match(line)) is not None)
        word = _WORD.search(line, end)
        shown, column = (word[0][:40], word.start() + 1) if word else ("the end of the line", len(line) + 1)
        found = f"'{shown}'" if word else shown
        return self.fail(f"unexpected {found}; expected {expected} (fields in order tag, cpu, nic)", column)

    def _schedule(self) -> Schedule:
        columns = {name: np.array(values, dtype=np.int64) for name, values in self.columns.items()}
        kind = columns.pop("kind").astype(np.int8)
        return Schedule(
            ranks=self.ranks,
            kind=kind,
            rank=columns["rank"],
            size=columns["size"],
            peer=columns["peer"],
            tag=columns["tag"],
            cpu=columns["cpu"],
            nic=columns["nic"],
            before=np.array(self.before, dtype=np.int64),
            after=np.array(self.after, dtype=np.int64),
            on_start=np.array(self.on_start, dtype=np.bool_),
        )


def parse_goal(text: str, where: str = "goal") -> Schedule:
    """Read GOAL *text*; *where* names it in errors.

    Raises :class:`~atlas_lp.errors.GoalError` with line and column.
    """
    return _Reader(where).read(io.StringIO(text))


def read_goal(path: Path) -> Schedule:
    """Read a ``.goal`` or ``.goal.zst`` file, line by line.

    Raises :class:`~atlas_lp.errors.GoalError`, also when the file cannot be opened or decompressed, or when a line, or
    what it is decompressed to, is longer than in any such file.
    """
    try:
        with open_input(path, GoalError) as stream, io.TextIOWrapper(stream, encoding="ascii") as text:
            return _Reader(str(path)).read(bounded_lines(text, path, GoalError))
    except OSError as error:
        raise GoalError(f"{path}: cannot be read ({error.strerror or error})") from None
    except UnicodeDecodeError:
        raise GoalError(f"{path}: not GOAL text (not ASCII); is it a compiled .bin file?") from None
    except zstandard.ZstdError as error:
        raise GoalError(f"{path}: not a complete zstd file ({error})") from None


def goal_lines(schedule: Schedule) -> Iterator[str]:
    """Write *schedule* as lines of GOAL text, each operation labelled ``l<position in its block>``.

    Dependencies stand directly after the later of their two operations, where both labels are known.
    """
    later = np.maximum(schedule.before, schedule.after)
    order = np.lexsort((schedule.on_start, schedule.before, schedule.after, later))
    first = np.searchsorted(later[order], np.arange(len(schedule) + 1)).tolist()
    label = (schedule.block_position() + 1).tolist()
    before, after, on_start = (
        column[order].tolist() for column in (schedule.before, schedule.after, schedule.on_start)
    )
    rows = zip(
        *(c.tolist() for c in (schedule.kind, schedule.rank, schedule.size, schedule.peer, schedule.tag)),
        *(c.tolist() for c in (schedule.cpu, schedule.nic)),
        strict=True,
    )
    yield f"num_ranks {schedule.ranks}\n"
    opened = -1
    for number, (kind, rank, size, peer, tag, cpu, nic) in enumerate(rows):
        while opened < rank:
            yield "}\n" if opened >= 0 else ""
            opened += 1
            yield f"rank {opened} {{\n"
        own = f"l{label[number]}"
        if kind == CALC:
            yield f"{own}: calc {size} cpu {cpu}\n"
        else:
            link = "to" if kind == SEND else "from"
            yield f"{own}: {KIND_NAMES[kind]} {size}b {link} {peer} tag {tag} cpu {cpu} nic {nic}\n"
        for k in range(first[number], first[number + 1]):
            word = "irequires" if on_start[k] else "requires"
            yield f"l{label[after[k]]} {word} l{label[before[k]]}\n"
    while opened < schedule.ranks - 1:
        yield "}\n" if opened >= 0 else ""
        opened += 1
        yield f"rank {opened} {{\n"
    yield "}\n"


def write_goal(schedule: Schedule, path: Path) -> None:
    """Write *schedule* to *path*, compressed when it ends in ``.zst``.

    Raises :class:`~atlas_lp.errors.OutputError` when it cannot be written; what was there is still there then.
    """
    with replacing(path) as raw:
        if path.suffix == ".zst":
            with zstandard.ZstdCompressor(level=10).stream_writer(raw, closefd=False) as stream:
                for line in goal_lines(schedule):
                    stream.write(line.encode("ascii"))
        else:
            raw.writelines(line.encode("ascii") for line in goal_lines(schedule))
