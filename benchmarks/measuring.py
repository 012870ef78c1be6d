"""What all benchmarks share: clocks, peak memory of a fresh process, tables, and the words for a claim."""

from __future__ import annotations

import gc
import json
import math
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from time import perf_counter
from typing import Any, TypeVar

from atlas_lp.peak_memory import peak_bytes, restart_peak

Result = TypeVar("Result")


def best_of(repeats: int, function: Callable[[], Result]) -> tuple[float, Result]:
    """Shortest of *repeats* run times in seconds (other work on the machine only ever adds), and the last result."""
    times = []
    for _ in range(repeats):
        result = None  # frees the one before, which would count as memory of the next
        gc.collect()
        begin = perf_counter()
        result = function()
        times.append(perf_counter() - begin)
    return min(times), result  # type: ignore[return-value]


def start_bytes() -> int:
    """Memory this process has now, from where :func:`~atlas_lp.peak_memory.peak_bytes` counts anew.

    Where peaks cannot be reset (not Linux), the most it ever had: then a small peak hides behind that of starting.
    """
    gc.collect()
    restart_peak()
    return peak_bytes()


def in_fresh_process(script: str, *words: object) -> dict[str, Any]:
    """Run *script* with *words* in a process of its own; its last line of output is JSON."""
    command = [sys.executable, script, *map(str, words)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def exponent(xs: Sequence[float], ys: Sequence[float]) -> float:
    """Slope of log y over log x by least squares: y grows like x to that power."""
    logs = [(math.log(x), math.log(y)) for x, y in zip(xs, ys, strict=True)]
    mean_x, mean_y = (sum(column) / len(logs) for column in zip(*logs, strict=True))
    return sum((x - mean_x) * (y - mean_y) for x, y in logs) / sum((x - mean_x) ** 2 for x, _ in logs)


def table(headers: Sequence[str], rows: Sequence[Sequence[object]]) -> Iterator[str]:
    """Lines of a Markdown table, first column to the left, the others to the right."""
    cells = [list(headers), *([str(cell) for cell in row] for row in rows)]
    widths = [max(3, *(len(row[i]) for row in cells)) for i in range(len(headers))]
    rule = ["-" * widths[0], *("-" * (width - 1) + ":" for width in widths[1:])]
    for row in [cells[0], rule, *cells[1:]]:
        first, *rest = zip(row, widths, strict=True)
        yield "| " + " | ".join([first[0].ljust(first[1]), *(cell.rjust(width) for cell, width in rest)]) + " |"


def show(headers: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print a table and an empty line."""
    print(*table(headers, rows), "", sep="\n")


def claim(what: str, holds: bool, judged: bool = True) -> None:
    """Print one claim with its verdict; on tiny graphs it is not judged."""
    verdict = "holds" if holds else "does not hold"
    print(f"- {what}: **{verdict if judged else 'not judged'}**")


def in_seconds(value: float) -> str:
    """Write a time with three digits: ``1.23 ms``."""
    return _scaled(value, {"s": 1.0, "ms": 1e-3, "us": 1e-6})


def in_bytes(value: float) -> str:
    """Write a size with three digits: ``123 MB``."""
    return _scaled(value, {"GB": 1e9, "MB": 1e6, "kB": 1e3})


def _scaled(value: float, units: dict[str, float]) -> str:
    """Write *value* in the first unit that makes it 1 or more, else in the last."""
    unit = next((name for name, size in units.items() if value >= size), list(units)[-1])
    number = value / units[unit]
    return f"{number:.3g} {unit}" if number < 999.5 else f"{number:.0f} {unit}"
