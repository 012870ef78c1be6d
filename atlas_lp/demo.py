"""A synthetic job to try things on: one data-parallel training step of a Llama-8B-like model.

`write_demo` writes what Nsight Systems would have exported on each node. No such job ran. The sizes
are those of a real layer table; the times come from a model simple enough to check by hand:

* Attention, norms and biases are replicated: their gradients are reduced by AllReduce, in buckets.
  The MLP, the embedding and the head are sharded over all ranks: parameters are gathered once, a layer
  ahead of their use, and gradients reduced by ReduceScatter. All ranks form one communicator.
* Compute runs on stream 7, collectives on stream 17, ordered by recorded CUDA events as PyTorch does.
  A matrix product takes its floating-point operations at 400 Tflop/s, everything else its bytes at
  3 TB/s. Each rank is a little faster or slower than the next, and each kernel varies.
* A collective of S bytes among n ranks on N nodes of k GPUs is a ring that leaves each node once per
  channel, through the NIC of GPU (channel mod k). It ends, on all ranks within 10 us,
  ``hops * alpha + rounds * S * w / (n * m * B)`` after its last rank has arrived. B is 25 GB/s,
  m = min(channels, k) is the number of NICs its channels use, w is 2 for protocol LL (which sends
  a flag with every word) and 1 for Simple, and alpha is the mean latency of a hop: 3.7 us between nodes,
  0.9 us inside one. On a single node B is 150 GB/s per channel, up to 450 GB/s.
* The clocks of the nodes differ by milliseconds, their reports start at different times, and the same
  pids occur on all of them.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from atlas_lp.errors import InputError
from atlas_lp.traces.synthetic import CALL_NS, Event, Export, Process

__all__ = ["write_demo"]

HIDDEN, MLP, KEY_VALUE, VOCABULARY, LAYERS = 4096, 14336, 1024, 128256, 32
TOKENS = 2048
BF16, FP32 = 2, 4

COMPUTE_STREAM, NCCL_STREAM = 7, 17
FLOPS_PER_NS = 400_000
MEMORY_BYTES_PER_NS = 3_000
"""What a GPU computes, and moves to and from its memory, in one ns."""

SCALE_OUT_BYTES_PER_NS, SCALE_UP_BYTES_PER_NS = 25, 150
SCALE_OUT_LATENCY_NS, SCALE_UP_LATENCY_NS = 3_700, 900

FIRST_PID = 4_100
SESSION_UTC_NS = 1_767_225_600_000_000_000
LAUNCH_NS = 5_000
"""Time from the call of the host to the next one, and from a call to the earliest start of its work."""


@dataclass(frozen=True)
class Phase:
    """From here on the host is in the range *name*, and *thread* (0 is the main one) makes the calls."""

    name: str
    thread: int


@dataclass(frozen=True)
class Copy:
    """The batch is copied to the device."""

    size_bytes: int


@dataclass(frozen=True)
class Compute:
    """A kernel on the compute stream."""

    name: str
    duration_ns: int


@dataclass(frozen=True)
class Collective:
    """A collective on the NCCL stream; protocol Simple unless it has a single channel."""

    operation: str
    size_bytes: int
    channels: int = 8
    dtype: str = "bf16"
    reduction: str | None = None

    @property
    def is_ll(self) -> bool:
        """Whether the protocol is LL."""
        return self.channels == 1


@dataclass(frozen=True)
class Record:
    """Record event *name* behind all that is on *stream*."""

    name: str
    stream: int


@dataclass(frozen=True)
class Wait:
    """What comes next on *stream* waits for event *name*."""

    name: str
    stream: int


Step = Phase | Copy | Compute | Collective | Record | Wait


def write_demo(
    folder: Path, *, seed: int = 0, nodes: int = 4, gpus_per_node: int = 4, overwrite: bool = False
) -> list[Path]:
    """Write one synthetic export per node into *folder* and return their paths, in order of the ranks.

    *seed* decides the jitter, the clocks and the id of the communicator; the same arguments give the
    same bytes. The folder is made if it does not exist.

    Raises `InputError` for fewer than two ranks, or when a file exists and *overwrite* is not set.
    """
    ranks = nodes * gpus_per_node
    if nodes < 1 or ranks < 2:
        raise InputError(f"{nodes} nodes of {gpus_per_node} GPUs: a collective takes two ranks or more")
    folder.mkdir(parents=True, exist_ok=True)
    job = _Job(seed, nodes, gpus_per_node)
    for step in training_step(ranks):
        job.run(step)
    job.finish()
    return [
        export.write(folder / f"{export.hostname}.sqlite", overwrite=overwrite) for export in job.exports
    ]


def training_step(ranks: int) -> Iterator[Step]:
    """Return what every one of *ranks* ranks does in one step, in the order its host asks for it."""
    yield Phase("data", 0)
    yield Copy(TOKENS * 8)
    yield Collective("Broadcast", 4096, channels=1)
    yield from _sync("batch", NCCL_STREAM, COMPUTE_STREAM)
    yield Phase("forward", 0)
    yield from _forward(ranks)
    yield Phase("backward", 131)
    yield from _backward(ranks)
    yield Phase("optimizer", 0)
    yield Collective("AllReduce", FP32, channels=1, dtype="f32", reduction="Sum")
    yield Collective("AllReduce", 1, channels=1, dtype="u8", reduction="Max")
    yield from _sync("gradients", NCCL_STREAM, COMPUTE_STREAM)
    owned = _attention_elements() * LAYERS + 3 * HIDDEN * MLP * LAYERS // ranks
    yield _elementwise("multi_tensor_adamw", owned * 14)
    yield from _sync("metrics", COMPUTE_STREAM, NCCL_STREAM)
    yield Collective("Reduce", 309 * FP32, channels=1, dtype="f32", reduction="Sum")


def _forward(ranks: int) -> Iterator[Step]:
    gate_up, down, vocabulary = _shards(ranks)
    yield from _gather("embedding", vocabulary)
    yield from _gather("gate_up.0", gate_up)
    yield from _gather("down.0", down)
    yield Wait("embedding", COMPUTE_STREAM)
    yield _elementwise("embedding_kernel", 2 * TOKENS * HIDDEN * BF16)
    for layer in range(LAYERS):
        yield from _sync(f"ahead.{layer}", COMPUTE_STREAM, NCCL_STREAM)
        if layer + 1 < LAYERS:
            yield from _gather(f"gate_up.{layer + 1}", gate_up)
            yield from _gather(f"down.{layer + 1}", down)
        else:
            yield from _gather("head", vocabulary)
        yield from _attention_forward()
        yield Wait(f"gate_up.{layer}", COMPUTE_STREAM)
        yield _matmul("gemm_gate_up", HIDDEN, 2 * MLP)
        yield _elementwise("silu_mul_kernel", 3 * TOKENS * MLP * BF16)
        yield Wait(f"down.{layer}", COMPUTE_STREAM)
        yield _matmul("gemm_down", MLP, HIDDEN)
    yield Wait("head", COMPUTE_STREAM)
    yield _matmul("gemm_head", HIDDEN, VOCABULARY)
    yield _elementwise("cross_entropy_kernel", 2 * TOKENS * VOCABULARY * BF16)
    yield from _sync("loss", COMPUTE_STREAM, NCCL_STREAM)
    yield Collective("AllReduce", FP32, channels=1, dtype="f32", reduction="Avg")


def _attention_forward() -> Iterator[Step]:
    yield _elementwise("rms_norm_kernel", 2 * TOKENS * HIDDEN * BF16)
    yield _matmul("gemm_qkv", HIDDEN, HIDDEN + 2 * KEY_VALUE)
    yield Compute("flash_fwd_kernel", 2 * TOKENS * TOKENS * HIDDEN // FLOPS_PER_NS)
    yield _matmul("gemm_out", HIDDEN, HIDDEN)
    yield _elementwise("rms_norm_kernel", 2 * TOKENS * HIDDEN * BF16)


def _backward(ranks: int) -> Iterator[Step]:
    gate_up, down, vocabulary = _shards(ranks)
    yield from _matmul_backward("head", HIDDEN, VOCABULARY)
    yield from _reduce("head", Collective("ReduceScatter", vocabulary * FP32 // BF16, 8, "f32", "Avg"))
    yield from _reduce("bias", Collective("AllReduce", VOCABULARY * FP32, 4, "f32", "Avg"))
    for layer in reversed(range(LAYERS)):
        yield from _matmul_backward("down", MLP, HIDDEN)
        yield from _reduce(f"down.{layer}", Collective("ReduceScatter", down, reduction="Avg"))
        yield _elementwise("silu_mul_backward_kernel", 5 * TOKENS * MLP * BF16)
        yield from _matmul_backward("gate_up", HIDDEN, 2 * MLP)
        yield from _reduce(f"gate_up.{layer}", Collective("ReduceScatter", gate_up, reduction="Avg"))
        yield from _attention_backward(layer)
    yield _elementwise("embedding_backward_kernel", 2 * TOKENS * HIDDEN * BF16)
    yield from _reduce("embedding", Collective("ReduceScatter", vocabulary, reduction="Avg"))


def _attention_backward(layer: int) -> Iterator[Step]:
    qkv_bytes = HIDDEN * (HIDDEN + 2 * KEY_VALUE) * BF16
    norms_bytes = 2 * HIDDEN * FP32
    norms_layers = 8
    yield _elementwise("rms_norm_backward_kernel", 3 * TOKENS * HIDDEN * BF16)
    yield from _matmul_backward("out", HIDDEN, HIDDEN)
    yield from _reduce(f"out.{layer}", Collective("AllReduce", HIDDEN * HIDDEN * BF16, reduction="Avg"))
    yield Compute("flash_bwd_kernel", 5 * TOKENS * TOKENS * HIDDEN // FLOPS_PER_NS)
    yield from _matmul_backward("qkv", HIDDEN, HIDDEN + 2 * KEY_VALUE)
    yield from _reduce(f"qkv.{layer}", Collective("AllReduce", qkv_bytes, reduction="Avg"))
    yield _elementwise("rms_norm_backward_kernel", 3 * TOKENS * HIDDEN * BF16)
    if layer % norms_layers == 0:
        bucket = Collective("AllReduce", norms_layers * norms_bytes, 4, "f32", "Avg")
        yield from _reduce(f"norms.{layer}", bucket)


def _shards(ranks: int) -> tuple[int, int, int]:
    """Return the bytes one rank owns of gate and up, of down, and of the embedding or the head."""
    whole = (2 * HIDDEN * MLP, MLP * HIDDEN, VOCABULARY * HIDDEN)
    gate_up, down, vocabulary = (-(-elements // ranks) * BF16 for elements in whole)
    return gate_up, down, vocabulary


def _attention_elements() -> int:
    return 2 * HIDDEN * (HIDDEN + KEY_VALUE)


def _gather(name: str, shard_bytes: int) -> Iterator[Step]:
    yield Collective("AllGather", shard_bytes)
    yield Record(name, NCCL_STREAM)


def _reduce(name: str, collective: Collective) -> Iterator[Step]:
    yield from _sync(f"gradient.{name}", COMPUTE_STREAM, NCCL_STREAM)
    yield collective


def _sync(name: str, behind: int, before: int) -> Iterator[Step]:
    yield Record(name, behind)
    yield Wait(name, before)


def _matmul(name: str, inner: int, outer: int) -> Compute:
    return Compute(name, 2 * TOKENS * inner * outer // FLOPS_PER_NS)


def _matmul_backward(name: str, inner: int, outer: int) -> Iterator[Step]:
    yield _matmul(f"gemm_{name}_dgrad", inner, outer)
    yield _matmul(f"gemm_{name}_wgrad", inner, outer)


def _elementwise(name: str, moved_bytes: int) -> Compute:
    return Compute(name, 2_000 + moved_bytes // MEMORY_BYTES_PER_NS)


def collective_ns(collective: Collective, nodes: int, gpus_per_node: int) -> int:
    """Return how long *collective* takes once its last rank has arrived (see the module's docstring)."""
    ranks = nodes * gpus_per_node
    rounds = {"AllReduce": 2 * (ranks - 1), "Broadcast": ranks, "Reduce": ranks}.get(
        collective.operation, ranks - 1
    )
    whole_bytes = collective.size_bytes
    if collective.operation in ("AllGather", "ReduceScatter"):
        whole_bytes *= ranks
    if nodes == 1:
        latency_ns: float = SCALE_UP_LATENCY_NS
        bytes_per_ns = SCALE_UP_BYTES_PER_NS * min(collective.channels, 3)
    else:
        inside = ranks - nodes
        latency_ns = (nodes * SCALE_OUT_LATENCY_NS + inside * SCALE_UP_LATENCY_NS) / ranks
        bytes_per_ns = SCALE_OUT_BYTES_PER_NS * min(collective.channels, gpus_per_node)
    wire_bytes = whole_bytes * (2 if collective.is_ll else 1)
    return round(rounds * (latency_ns + wire_bytes / (ranks * bytes_per_ns)))
