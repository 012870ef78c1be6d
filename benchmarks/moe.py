"""A mixture-of-experts training step on thousands of GPUs: from a packed trace to the joint map T(L, G).

Four parallel dimensions: tensor parallel ranks inside a node (AllGather and ReduceScatter), experts (AllToAll), data
parallel ranks (ReduceScatter of gradients, AllGather of weights) and pipeline stages (Send and Recv, one forward one
backward).  Compute times differ from GPU to GPU, so ranks arrive with skew and stages wait for each other.  Peer: the
same step on an eighth of the GPUs, in the same run; ratios are per operation.

Run: ``python benchmarks/moe.py`` (about two minutes, 4 GB), ``--quick`` for small sizes.
"""

from __future__ import annotations

import itertools
import json
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Any

import click
import numpy as np
import pyarrow as pa
from measuring import claim, in_bytes, in_fresh_process, in_seconds, show, start_bytes
from numpy.typing import NDArray

from atlas_lp.collectives.solver import CollectiveSolver
from atlas_lp.peak_memory import peak_bytes
from atlas_lp.traces.trace import OPERATION_COLUMNS, Sourced, Trace, operation_table

Ints = NDArray[np.int64]

MS, US = 1_000_000, 1_000
_DATA, _EXPERT, _PIPELINE, _TENSOR = range(4)


@dataclass(frozen=True)
class Shape:
    """Sizes of the four dimensions, microbatches of a step and layers of a stage."""

    data: int
    expert: int
    pipeline: int
    tensor: int
    microbatches: int = 8
    layers: int = 6

    @property
    def grid(self) -> tuple[int, int, int, int]:
        """The dimensions from the outermost to the innermost (GPUs of a node are tensor parallel)."""
        return self.data, self.expert, self.pipeline, self.tensor

    @property
    def gpus(self) -> int:
        """Number of GPUs."""
        return int(np.prod(self.grid))


@dataclass
class _Step:
    """Clocks of all GPUs as a grid, and the operations so far as columns."""

    shape: Shape
    random: np.random.Generator
    uneven: bool
    now: Ints = field(init=False)
    columns: list[dict[str, Any]] = field(default_factory=list)
    calls: Ints = field(init=False)
    issued: Ints = field(init=False)

    def __post_init__(self) -> None:
        self.now = np.full(self.shape.grid, 1 * MS, dtype=np.int64)
        self.gpu = np.arange(self.shape.gpus).reshape(self.shape.grid)
        self.calls, self.issued = (np.zeros((4, *self.shape.grid), dtype=np.int64) for _ in range(2))

    def compute(self, stage: int, nanoseconds: int) -> None:
        """Compute on the GPUs of a stage, up to 2 % longer on each where they are uneven."""
        now = self.now[:, :, stage]
        now += nanoseconds + self.uneven * self.random.integers(0, nanoseconds // 50, now.shape)

    def collective(self, stage: int, axis: int, kind: str, size: int, nanoseconds: int, channels: int) -> None:
        """Run a collective of the ranks along *axis*: it ends *nanoseconds* after the last arrival."""
        start = self.now[:, :, stage].copy()
        along = axis if axis < _PIPELINE else axis - 1
        end = np.broadcast_to(start.max(axis=along, keepdims=True) + nanoseconds, start.shape)
        self.now[:, :, stage] = end
        self._record(stage, axis, kind, size, start, end, channels, -1, self.calls[axis])

    def send(self, stage: int, to: int, size: int, nanoseconds: int) -> None:
        """Send from every GPU of a stage to that of another, which waits for it."""
        start = [self.now[:, :, s].copy() for s in (stage, to)]
        end = np.maximum(*start) + nanoseconds
        for s, peer, kind, begin in ((stage, to, "Send", start[0]), (to, stage, "Recv", start[1])):
            self.now[:, :, s] = end
            self._record(s, _PIPELINE, kind, size, begin, end, 2, peer, None)

    def _record(
        self, stage: int, axis: int, kind: str, size: int, start: Ints, end: Ints, channels: int, peer: int, calls: Any
    ) -> None:
        gpu = self.gpu[:, :, stage].reshape(-1)
        index = np.unravel_index(gpu, self.shape.grid)
        others = [n for n in range(4) if n != axis]
        group = np.ravel_multi_index([index[n] for n in others], [self.shape.grid[n] for n in others])
        first = sum(self.shape.gpus // self.shape.grid[n] for n in range(axis))
        sequence = np.full(len(gpu), -1) if calls is None else calls[:, :, stage].reshape(-1).copy()
        issue = self.issued[axis][:, :, stage].reshape(-1).copy()
        if calls is not None:
            calls[:, :, stage] += 1
        self.issued[axis][:, :, stage] += 1
        self.columns.append(
            {
                "communicator": first + group,
                "rank": index[axis],
                "sequence": sequence,
                "gpu": gpu,
                "type": kind,
                "size_bytes": size,
                "start_ns": start.reshape(-1),
                "end_ns": end.reshape(-1),
                "channels": channels,
                "issue": issue,
                "peer": peer,
                "group": len(self.columns),
            }
        )

    def trace(self) -> Trace:
        """Return the operations as a trace."""
        count = [len(column["gpu"]) for column in self.columns]
        same = {
            "root": -1, "reduction": "", "stream": 7, "threads": 544, "kernel": "ncclDevKernel_RING", "iteration": 0,
            "algorithm": "", "protocol": "", "element_bytes": 2, "choice_source": "", "channel_source": "constructed",
            "element_source": "constructed",
        }  # fmt: skip
        table: dict[str, Any] = {"parts": pa.array([[]] * sum(count), type=pa.list_(pa.int64()))}
        for name in OPERATION_COLUMNS:
            if name in same:
                table[name] = pa.repeat(same[name], sum(count))
            elif name != "parts":
                table[name] = _joined([column[name] for column in self.columns], count)
        return Trace(
            files=("constructed",),
            gpus=self._gpus(),
            **self._communicators(),
            operations=operation_table(table),
            nccl_version=Sourced("2.28.9", "constructed"),
            synthetic=True,
        )

    def _gpus(self) -> pa.Table:
        node = np.arange(self.shape.gpus) // self.shape.tensor
        columns = {
            "host": pa.array([f"node{n}" for n in node]),
            "process": pa.array(np.arange(self.shape.gpus), type=pa.int64()),
            "device": pa.array(np.arange(self.shape.gpus) % self.shape.tensor, type=pa.int64()),
            "node": pa.array(node, type=pa.int32()),
            "first_ns": pa.array(np.zeros(self.shape.gpus, dtype=np.int64)),
            "last_ns": pa.array(self.now.reshape(-1) + 100 * US),
        }
        return pa.table(columns)

    def _communicators(self) -> dict[str, pa.Table]:
        ranks, members = [], []
        for axis, size in enumerate(self.shape.grid):
            rows = np.moveaxis(self.gpu, axis, -1).reshape(-1, size)
            ranks += [size] * len(rows)
            members.append(rows)
        number = np.repeat(np.arange(len(ranks)), ranks)
        rank = np.concatenate([np.tile(np.arange(rows.shape[1]), len(rows)) for rows in members])
        ids = pa.array(np.arange(len(ranks)) + (1 << 40), type=pa.uint64())
        generation = pa.array(np.zeros(len(ranks)), type=pa.int32())
        return {
            "communicators": pa.table({"id": ids, "ranks": pa.array(ranks, type=pa.int32()), "generation": generation}),
            "members": pa.table(
                {
                    "communicator": pa.array(number, type=pa.int32()),
                    "rank": pa.array(rank, type=pa.int32()),
                    "gpu": pa.array(np.concatenate([rows.reshape(-1) for rows in members]), type=pa.int32()),
                }
            ),
        }


def _joined(values: Sequence[Any], count: Sequence[int]) -> Any:
    if isinstance(values[0], str):
        codes, words = np.unique(values, return_inverse=True)[::-1]
        return pa.DictionaryArray.from_arrays(pa.array(np.repeat(codes, count)), pa.array(words)).cast(pa.string())
    return np.concatenate([np.broadcast_to(v, (n,)) for v, n in zip(values, count, strict=True)])


def one_forward_one_backward(stages: int, microbatches: int) -> Iterator[tuple[int, str, int]]:
    """(stage, F or B, microbatch) in an order in which all that a block needs comes before it (Narayanan 2019)."""
    order = []
    for stage in range(stages):
        ahead = min(stages - 1 - stage, microbatches)
        blocks = [("F", m) for m in range(ahead)]
        for m in range(microbatches):
            blocks += [("F", m + ahead)] if m + ahead < microbatches else []
            blocks.append(("B", m))
        order.append(blocks)
    done: set[tuple[int, str, int]] = set()
    place = [0] * stages
    while any(place[s] < len(order[s]) for s in range(stages)):
        for stage in range(stages):
            if place[stage] == len(order[stage]):
                continue
            kind, m = order[stage][place[stage]]
            needs = (stage - 1, "F", m) if kind == "F" else (stage + 1, "B", m)
            if 0 <= needs[0] < stages and needs not in done:
                continue
            done.add((stage, kind, m))
            place[stage] += 1
            yield stage, kind, m


def moe_trace(shape: Shape, *, uneven: bool = True) -> Trace:
    """Build the trace of one training step, all GPUs computing for as long or not."""
    step = _Step(shape, np.random.default_rng(1), uneven)
    last = shape.pipeline - 1
    for stage, kind, _ in one_forward_one_backward(shape.pipeline, shape.microbatches):
        forward = kind == "F"
        before = stage - 1 if forward else stage + 1
        if 0 <= before <= last:
            step.send(before, stage, 16 << 20, 700 * US)
        for _ in range(shape.layers):
            step.collective(stage, _TENSOR, "AllGather", 4 << 20, 140 * US, 8)
            step.compute(stage, 600 * US if forward else 1200 * US)
            step.collective(stage, _TENSOR, "ReduceScatter", 4 << 20, 120 * US, 8)
            step.collective(stage, _EXPERT, "AllToAll", 2 << 20, 610 * US, 8)
            step.compute(stage, 800 * US if forward else 1600 * US)
            step.collective(stage, _EXPERT, "AllToAll", 2 << 20, 610 * US, 8)
    for stage in range(shape.pipeline):
        for kind, _ in itertools.product(("ReduceScatter", "AllGather"), range(shape.layers)):
            step.collective(stage, _DATA, kind, 8 << 20, 2400 * US, 4)
            step.compute(stage, 200 * US)
    return step.trace()


def measure(shape: Shape, file: Path) -> dict[str, Any]:
    """Read the packed trace, solve and compose it, and find all planes of T(L, G); time and memory of a process."""
    from atlas_lp.fabrics.fabric import load_fabric
    from atlas_lp.program.job import solve_job
    from atlas_lp.solver.envelope import Box
    from atlas_lp.solver.solve import solve
    from atlas_lp.traces.reading.read import read_trace

    fabric = load_fabric()
    seconds = {}
    begin = perf_counter()
    trace = read_trace([file])
    seconds["read"] = perf_counter() - begin
    job = solve_job(trace, CollectiveSolver(fabric))
    seconds["program"] = perf_counter() - begin - seconds["read"]
    envelope = solve(job.program.graph, fabric, Box())
    total = perf_counter() - begin
    native = envelope.time_ns(fabric.latency_ns, fabric.gap_ns_per_byte)
    return {
        "gpus": shape.gpus,
        "operations": trace.operations.num_rows,
        "instances": len(job.signed.instances),
        "edges": job.program.graph.edges,
        "signatures": len(job.envelopes),
        "planes": len(envelope.vectors),
        "native_ms": float(native) / MS,
        "measured_ms": job.signed.timeline.measured_ns / MS,
        **seconds,
        "joint": total - sum(seconds.values()),
        "total": total,
        "peak": peak_bytes(),
    }


SHAPES = Shape(4, 4, 8, 4), Shape(8, 8, 8, 8)
QUICK = Shape(2, 2, 2, 2, 2, 1), Shape(2, 2, 2, 4, 2, 1)
SECONDS, BYTES, GROWTH = 60, 4e9, 2


def report(shapes: Sequence[Shape], judged: bool) -> None:
    """Measure every shape in a fresh process and print what it took."""
    from atlas_lp.traces.reading.packed import packed_bytes

    rows, found = [], []
    with tempfile.TemporaryDirectory() as folder:
        for number, shape in enumerate(shapes):
            file = Path(folder) / "step.atlas"
            content = packed_bytes(moe_trace(shape))
            file.write_bytes(content)
            one = in_fresh_process(__file__, "--shape", number, "--file", file, *([] if judged else ["--quick"]))
            found.append(one)
            rows.append(
                (
                    *("x".join(map(str, shape.grid)), f"{one['gpus']:,}", f"{one['operations']:,}"),
                    *(in_bytes(len(content)), f"{one['instances']:,}", one["signatures"], f"{one['edges']:,}"),
                    *(in_seconds(one["read"]), in_seconds(one["program"]), in_seconds(one["joint"]), one["planes"]),
                    *(in_seconds(one["total"]), in_bytes(one["peak"])),
                )
            )
    headers = ("data x expert x pipeline x tensor", "GPUs", "operations", "packed", "collectives", "signatures")
    show((*headers, "edges", "read", "program", "T(L, G)", "planes", "total", "peak"), rows)
    small, large = found[0], found[-1]
    growth = large["total"] / large["operations"] / (small["total"] / small["operations"])
    claim(
        f"time per operation, {large['gpus']:,} GPUs to {small['gpus']:,}: ratio {growth:.2f} < {GROWTH}",
        growth < GROWTH,
        judged,
    )
    claim(
        f"{large['gpus']:,} GPUs, {large['operations'] / large['gpus']:.0f} operations each: from the packed trace to "
        f"T(L, G) in {in_seconds(large['total'])} < {SECONDS} s and {in_bytes(large['peak'])} < {in_bytes(BYTES)}",
        large["total"] < SECONDS and large["peak"] < BYTES,
        judged,
    )


@click.command(help=__doc__)
@click.option("--quick", is_flag=True, help="Small sizes.")
@click.option("--shape", type=int, hidden=True)
@click.option("--file", type=click.Path(path_type=Path), hidden=True)
def main(quick: bool, shape: int | None, file: Path) -> None:
    shapes = QUICK if quick else SHAPES
    if shape is not None:
        start_bytes()
        print(json.dumps(measure(shapes[shape], file)))
        return
    report(shapes, not quick)


if __name__ == "__main__":
    main()
