"""Time of the reduce and copy loops of one slice, the calc of a schedule, as tables of data.

A :class:`CostTable` has one curve per protocol and primitive.  The default table is ``costs_gh200.toml`` beside this
module; :func:`load_costs` reads others: TOML of the same shape, or an NPKit summary (JSON: event -> data bytes -> list
of ns).  What a file leaves out comes from the default table, and the assumption of the table says so.
"""

from __future__ import annotations

import hashlib
import json
import re
import statistics
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from fractions import Fraction
from functools import lru_cache
from importlib import resources
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from atlas_lp.errors import InputError
from atlas_lp.inputs import parse_json, parse_toml, read_text
from atlas_lp.signatures.nccl.protocols import Protocol
from atlas_lp.texts import integer

Ints = NDArray[np.int64]

_MOST = 2**30
"""Larger numbers are refused, so that a time of a slice, which is their product with its bytes, fits into 64 bits."""

REDUCE_COPY_MODELS = {
    "gh200": "reduce/copy times are fits of NPKit measurements on GH200 (within 4 % from 64 KiB up)",
    "none": "reduce/copy loops cost nothing",
}
"""Names of the built-in cost tables and what each assumes."""


class Primitive(Enum):
    """Primitives of a ring, as the device code names them; (receives, sends)."""

    SEND = (False, True)
    RECV_REDUCE_SEND = (True, True)
    RECV_REDUCE_COPY_SEND = (True, True, "copy")
    RECV_COPY_SEND = (True, True, "no reduce")
    RECV_REDUCE_COPY = (True, False)
    RECV = (True, False, "no reduce")

    @property
    def receives(self) -> bool:
        """Whether it takes a slice from the ring."""
        return bool(self.value[0])

    @property
    def sends(self) -> bool:
        """Whether it passes a slice on."""
        return bool(self.value[1])

    @property
    def reduces(self) -> bool:
        """Whether it adds the slice that it takes to its own."""
        return self.receives and "no reduce" not in self.value


NPKIT_EVENTS = {
    "NPKIT_EVENT_GPU_SEND": (Primitive.SEND,),
    "NPKIT_EVENT_GPU_RECV_REDUCE_SEND": (Primitive.RECV_REDUCE_SEND, Primitive.RECV_REDUCE_COPY),
    "NPKIT_EVENT_GPU_DIRECT_RECV_REDUCE_COPY_SEND": (Primitive.RECV_REDUCE_COPY_SEND,),
    "NPKIT_EVENT_GPU_DIRECT_RECV_COPY_SEND": (Primitive.RECV_COPY_SEND,),
    "NPKIT_EVENT_GPU_DIRECT_RECV": (Primitive.RECV,),
}
"""Events of an NPKit summary and the primitives they time; other events of a file are left alone."""


@dataclass(frozen=True)
class Fit:
    """``t(b) = max(least, offset + b / rate)`` ns, each rounded half up; ``small_ns`` below ``small_bytes``."""

    least_ns: int
    offset_ns: int
    bytes_per_ns: Fraction
    small_bytes: int = 0
    small_ns: int = 0

    def time_ns(self, data_bytes: Ints) -> Ints:
        """Time in whole ns for each of *data_bytes*."""
        over, under = self.bytes_per_ns.numerator, self.bytes_per_ns.denominator
        time = np.maximum(self.least_ns, self.offset_ns + (2 * under * data_bytes + over) // (2 * over))
        return np.where(data_bytes < self.small_bytes, self.small_ns, time).astype(np.int64)


@dataclass(frozen=True)
class Points:
    """Measured medians ``ns`` at ascending ``sizes`` in bytes.

    Linear between two sizes; below the first and above the last the nearest two are extended, never below 0;
    a single size is a constant.  Rounded half up.
    """

    sizes: tuple[int, ...]
    ns: tuple[Fraction, ...]

    def time_ns(self, data_bytes: Ints) -> Ints:
        """Time in whole ns for each of *data_bytes*."""
        twice = np.array([int(2 * value) for value in self.ns], dtype=np.int64)
        if len(twice) == 1:
            return np.full(data_bytes.shape, (twice[0] + 1) // 2, dtype=np.int64)
        sizes = np.array(self.sizes, dtype=np.int64)
        at = np.clip(np.searchsorted(sizes, data_bytes, side="right") - 1, 0, len(sizes) - 2)
        width = sizes[at + 1] - sizes[at]
        rise = (twice[at + 1] - twice[at]) * (data_bytes - sizes[at])
        time: Ints = np.maximum((twice[at] * width + rise + width) // (2 * width), 0)
        return time


Curve = Fit | Points


@dataclass(frozen=True)
class CostTable:
    """Costs of all primitives by protocol, of the switches of approximations, and what using them assumes."""

    name: str
    assumption: str
    curves: Mapping[tuple[str, str], Curve]

    def time_ns(self, primitive: Primitive, protocol: Protocol, data_bytes: Ints) -> Ints:
        """Time in whole ns of *primitive* on slices of *data_bytes*."""
        return self._at(protocol.value, primitive.name.lower(), data_bytes)

    def switch_ns(self, kind: str, data_bytes: Ints) -> Ints:
        """Time of *data_bytes* through the ``nvlink`` switch or the reducer in the ``network``."""
        return self._at("switch", kind, data_bytes)

    def _at(self, group: str, name: str, data_bytes: Ints) -> Ints:
        if not self.curves:
            return np.zeros_like(data_bytes)
        return self.curves[group, name].time_ns(data_bytes)

    @property
    def digest(self) -> str:
        """SHA-256 of all curves: tables of equal digest give equal graphs, whatever their names."""
        rows = sorted((*key, repr(curve)) for key, curve in self.curves.items())
        return hashlib.sha256(json.dumps(rows).encode()).hexdigest()


def load_costs(source: str | Path | CostTable = "gh200") -> CostTable:
    """Return a built-in table by name, or read one from a TOML file or an NPKit summary (``.json``).

    A summary holds one protocol, taken from ``LL128``, ``LL`` or ``Simple`` in the name of the file (else Simple);
    several go together in a TOML file as ``[npkit]`` with ``simple``, ``ll`` and ``ll128`` naming files beside it.

    Raises :class:`~atlas_lp.errors.InputError` naming the file and the entry that is wrong.
    """
    if isinstance(source, CostTable):
        return source
    if str(source) in REDUCE_COPY_MODELS:
        return _built_in(str(source))
    path = Path(source)
    if path.suffix == ".json":
        return _completed(path.name, "", _npkit_curves(path, _protocol_in(path.name)))
    return _toml_table(_read(path), str(path), path.parent)


@lru_cache
def _built_in(name: str) -> CostTable:
    if name == "none":
        return CostTable("none", REDUCE_COPY_MODELS["none"], {})
    text = resources.files("atlas_lp.signatures").joinpath(f"costs_{name}.toml").read_text("utf-8")
    return _toml_table(text, name, Path())


def _completed(name: str, assumption: str, curves: dict[tuple[str, str], Curve]) -> CostTable:
    """Fill what *curves* lack from the default table, and say so."""
    default = _built_in("gh200")
    missing = sorted({group for group, _ in default.curves.keys() - curves.keys()})
    text = assumption or f"reduce/copy times are those of {name}, linear between and beyond the measured sizes"
    if missing:
        text += f"; what it leaves out ({', '.join(missing)}) is taken from GH200"
    return CostTable(name, text, {**default.curves, **curves})


def _read(path: Path) -> str:
    try:
        return read_text(path)
    except (OSError, UnicodeDecodeError) as error:
        known = ", ".join(REDUCE_COPY_MODELS)
        raise InputError(
            f"{path}: neither a cost table ({known}) nor a readable TOML or JSON file ({error.__class__.__name__})"
        ) from None


_GROUPS = {
    **{protocol.value: tuple(primitive.name.lower() for primitive in Primitive) for protocol in Protocol},
    "switch": ("nvlink", "network"),
}


def _toml_table(text: str, where: str, folder: Path) -> CostTable:
    data = parse_toml(text, where, parse_float=Fraction)
    name, assumption = str(data.pop("name", where)), str(data.pop("assumption", ""))
    curves: dict[tuple[str, str], Curve] = {}
    summaries = data.pop("npkit", {})
    for protocol, file in sorted(summaries.items() if isinstance(summaries, dict) else ()):
        if protocol not in {p.value for p in Protocol}:
            raise InputError(f"{where}: [npkit] {protocol} is no protocol: simple, ll or ll128")
        curves |= _npkit_curves(folder / str(file), Protocol(protocol))
    for group, entries in data.items():
        for entry, values in entries.items() if isinstance(entries, dict) else ():
            if entry not in _GROUPS.get(group, ()):
                raise InputError(f"{where}: [{group}.{entry}] is no cost; groups are {', '.join(_GROUPS)}")
            curves[group, entry] = _curve(values, f"{where}: [{group}.{entry}]")
        if group not in _GROUPS or not isinstance(entries, dict):
            raise InputError(f"{where}: [{group}] is no group of costs; groups are {', '.join(_GROUPS)}")
    if where == "gh200":
        return CostTable(name, assumption, curves)
    if not curves:
        raise InputError(f"{where}: holds no costs; see docs/schedules.md for a complete file")
    return _completed(name, assumption, curves)


def _curve(values: object, where: str) -> Curve:
    """Read ``points = [[bytes, ns], ..]``, or a fit."""
    if not isinstance(values, dict):
        raise InputError(f"{where} must be a table")
    if set(values) == {"points"}:
        try:
            measured = {_whole(size): _exactly(ns) for size, ns in values["points"]}
        except (TypeError, ValueError):
            raise InputError(f"{where} points must be pairs [bytes, ns]") from None
        return _points(measured, where)
    known = {"least_ns": int, "offset_ns": int, "bytes_per_ns": Fraction, "small_bytes": int, "small_ns": int}
    needed = {"least_ns", "offset_ns", "bytes_per_ns"}
    if not needed <= set(values) <= set(known):
        raise InputError(f"{where} needs {', '.join(sorted(needed))} (and may have small_bytes, small_ns), or points")
    for key, value in values.items():
        if isinstance(value, bool) or not isinstance(value, int | known[key]):
            raise InputError(f"{where} {key} = {value} is not a whole number")
    fit = Fit(**{**values, "bytes_per_ns": Fraction(values["bytes_per_ns"])})
    if fit.bytes_per_ns <= 0 or min(fit.least_ns, fit.small_ns, fit.small_bytes) < 0:
        raise InputError(f"{where}: the rate must be positive, times and sizes 0 or more")
    numbers = (fit.least_ns, abs(fit.offset_ns), fit.small_bytes, fit.small_ns, *fit.bytes_per_ns.as_integer_ratio())
    if max(numbers) > _MOST:
        raise InputError(f"{where} has a number of more digits than is exact here: none, as a fraction, over {_MOST}")
    return fit


def _whole(size: object) -> int:
    """A number of bytes, which is text where it is a name of JSON."""
    found = integer(size) if isinstance(size, str) else size
    if not isinstance(found, int) or isinstance(found, bool):
        raise TypeError(f"{size!r} is no whole number")
    return found


def _exactly(value: object) -> Fraction:
    """A number of a document; text would be read as one too, and "1e999999999" takes minutes."""
    if not isinstance(value, int | float | Fraction):
        raise TypeError(f"{value!r} is no number")
    return Fraction(value)


def _points(measured: Mapping[int, Fraction], where: str) -> Points:
    if not measured or min(measured) < 0 or min(measured.values()) < 0:
        raise InputError(f"{where} needs at least one size, sizes and times 0 or more")
    if max(measured) > _MOST or max(measured.values()) > _MOST:
        raise InputError(f"{where} has a size or a time of more than {_MOST}, which no slice has")
    sizes = tuple(sorted(measured))
    return Points(sizes, tuple(Fraction(round(2 * measured[size]), 2) for size in sizes))


def _protocol_in(name: str) -> Protocol:
    found = re.search(r"LL128|LL", name)
    return Protocol(found[0].lower()) if found else Protocol.SIMPLE


def _npkit_curves(path: Path, protocol: Protocol) -> dict[tuple[str, str], Curve]:
    """Medians per event and size of one NPKit summary."""
    summary = parse_json(_read(path), str(path))
    curves: dict[tuple[str, str], Curve] = {}
    for event, primitives in NPKIT_EVENTS.items():
        sizes = summary.get(event) if isinstance(summary, dict) else None
        if sizes is None:
            continue
        try:
            measured = {_whole(size): statistics.median(map(_exactly, samples)) for size, samples in sizes.items()}
        except (AttributeError, TypeError, ValueError, OverflowError, statistics.StatisticsError):
            raise InputError(f"{path}: {event} must map bytes to lists of ns, none of them empty") from None
        for primitive in primitives:
            curves[protocol.value, primitive.name.lower()] = _points(measured, f"{path}: {event}")
    if not curves:
        raise InputError(f"{path}: no NPKit summary: it has none of the events {', '.join(NPKIT_EVENTS)}")
    return curves
