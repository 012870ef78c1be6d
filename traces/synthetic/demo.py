"""A synthetic job to try things on: one data-parallel training step of a Llama-8B-like model.

`write_demo` writes what Nsight Systems would have exported on each node. No such job ran. The sizes
are those of a real layer table; the times come from a model simple enough to check by hand:

* Attention, norms and biases are replicated: their gradients are reduced by AllReduce, in buckets.
  The MLP, the embedding and the head are sharded over all ranks: parameters are gathered once, a layer
  ahead of their use, and gradients reduced by ReduceScatter. All ranks form one communicator.
* Compute runs on stream 7, collectives on stream 17, ordered by recorded CUDA events as PyTorch does.
  A matrix product takes its floating-point operations at 330 Tflop/s, everything else its bytes at
  3 TB/s. Each rank is a little faster or slower than the next, and each kernel varies.
* A collective on n ranks is a ring that leaves each node once per channel, through the NIC of GPU
  (channel mod GPUs per node). It ends, on all ranks within 10 us, ``r * (alpha + S * w / (n * m * B))``
  after its last rank has arrived: r rounds (n - 1 for AllGather and ReduceScatter, twice that for
  AllReduce, n for Broadcast and Reduce) of S bytes in all. B is 25 GB/s and m the number of NICs its
  channels use; w is 2 for protocol LL, which sends a flag with every word, and 1 for Simple; alpha is
  the mean latency of a hop, 3.7 us between nodes and 0.9 us inside one. On a single node there are no
  NICs: B is 150 GB/s and m the number of channels, at most 3.
* The clocks of the nodes differ by milliseconds, their reports start at different times, and the same
  pids occur on all of them. Their hosts run ahead of their GPUs.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from atlas_lp.errors import InputError
from atlas_lp.files import make_folder
from atlas_lp.traces.synthetic.writer import CALL_NS, Event, ExportWriter, ProcessWriter

__all__ = ["write_demo"]

HIDDEN, MLP, KEY_VALUE, VOCABULARY, LAYERS = 4096, 14336, 1024, 128256, 32
TOKENS = 2048
BF16, FP32 = 2, 4

COMPUTE_STREAM, NCCL_STREAM = 7, 17
FLOPS_PER_NS = 330_000
MEMORY_BYTES_PER_NS = 3_000
"""What a GPU computes, and moves to and from its memory, in one ns."""

SCALE_OUT_BYTES_PER_NS, SCALE_UP_BYTES_PER_NS = 25, 150
SCALE_OUT_LATENCY_NS, SCALE_UP_LATENCY_NS = 3_700, 900

FIRST_PID = 4_100
AUTOGRAD_THREAD = 131
SESSION_UTC_NS = 1_767_225_600_000_000_000
LAUNCH_NS, EVENT_NS = 5_000, 1_500
"""Time the host spends on a launch or a copy, and on recording an event or waiting for one."""
START_NS = 3_000
"""Time from the end of a call to the earliest start of its work."""
GAP_NS = 1_200
"""Time between two kernels of a stream."""


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
class CollectiveStep:
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


Step = Phase | Copy | Compute | CollectiveStep | Record | Wait


def demo_files(nodes: int = 4) -> tuple[str, ...]:
    """Names of the files that :func:`write_demo` writes."""
    return tuple(f"node{node}.sqlite" for node in range(nodes))


def write_demo(
    folder: Path, *, seed: int = 0, nodes: int = 4, gpus_per_node: int = 4, overwrite: bool = False
) -> list[Path]:
    """Write one synthetic export per node into *folder* and return their paths, in order of the ranks.

    *seed* decides the jitter, the clocks and the id of the communicator; the same arguments give the
    same bytes. The folder is made if it does not exist.

    Raises `InputError` for fewer than two ranks, for a folder that cannot be made, or when a file exists
    and *overwrite* is not set.
    """
    ranks = nodes * gpus_per_node
    if nodes < 1 or ranks < 2:
        raise InputError(f"{nodes} nodes of {gpus_per_node} GPUs: a collective takes two ranks or more")
    make_folder(folder)
    job = _DemoWriter(seed, nodes, gpus_per_node)
    for step in training_step(ranks):
        job.run(step)
    job.finish()
    exports = zip(demo_files(nodes), job.exports, strict=True)
    return [export.write(folder / name, overwrite=overwrite) for name, export in exports]


def training_step(ranks: int) -> Iterator[Step]:
    """Return what every one of *ranks* ranks does in one step, in the order its host asks for it."""
    yield Phase("data", 0)
    yield Copy(TOKENS * 8)
    yield CollectiveStep("Broadcast", 4096, channels=1)
    yield from _sync("batch", NCCL_STREAM, COMPUTE_STREAM)
    yield Phase("forward", 0)
    yield from _forward(ranks)
    yield Phase("backward", AUTOGRAD_THREAD)
    yield from _backward(ranks)
    yield Phase("optimizer", 0)
    yield from _optimizer(ranks)


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
    yield CollectiveStep("AllReduce", FP32, channels=1, dtype="f32", reduction="Avg")


def _attention_forward() -> Iterator[Step]:
    yield _elementwise("rms_norm_kernel", 2 * TOKENS * HIDDEN * BF16)
    yield _matmul("gemm_qkv", HIDDEN, HIDDEN + 2 * KEY_VALUE)
    yield Compute("flash_fwd_kernel", 2 * TOKENS * TOKENS * HIDDEN // FLOPS_PER_NS)
    yield _matmul("gemm_out", HIDDEN, HIDDEN)
    yield _elementwise("rms_norm_kernel", 2 * TOKENS * HIDDEN * BF16)


def _backward(ranks: int) -> Iterator[Step]:
    gate_up, down, vocabulary = _shards(ranks)
    yield from _matmul_backward("head", HIDDEN, VOCABULARY)
    yield from _reduce("head", CollectiveStep("ReduceScatter", vocabulary * FP32 // BF16, 8, "f32", "Avg"))
    yield from _reduce("bias", CollectiveStep("AllReduce", VOCABULARY * FP32, 4, "f32", "Avg"))
    for layer in reversed(range(LAYERS)):
        yield from _matmul_backward("down", MLP, HIDDEN)
        yield from _reduce(f"down.{layer}", CollectiveStep("ReduceScatter", down, reduction="Avg"))
        yield _elementwise("silu_mul_backward_kernel", 5 * TOKENS * MLP * BF16)
        yield from _matmul_backward("gate_up", HIDDEN, 2 * MLP)
        yield from _reduce(f"gate_up.{layer}", CollectiveStep("ReduceScatter", gate_up, reduction="Avg"))
        yield from _attention_backward(layer)
    yield _elementwise("embedding_backward_kernel", 2 * TOKENS * HIDDEN * BF16)
    yield from _reduce("embedding", CollectiveStep("ReduceScatter", vocabulary, reduction="Avg"))


def _attention_backward(layer: int) -> Iterator[Step]:
    qkv_bytes = HIDDEN * (HIDDEN + 2 * KEY_VALUE) * BF16
    norms_bytes = 2 * HIDDEN * FP32
    norms_layers = 8
    yield _elementwise("rms_norm_backward_kernel", 3 * TOKENS * HIDDEN * BF16)
    yield from _matmul_backward("out", HIDDEN, HIDDEN)
    yield from _reduce(f"out.{layer}", CollectiveStep("AllReduce", HIDDEN * HIDDEN * BF16, reduction="Avg"))
    yield Compute("flash_bwd_kernel", 5 * TOKENS * TOKENS * HIDDEN // FLOPS_PER_NS)
    yield from _matmul_backward("qkv", HIDDEN, HIDDEN + 2 * KEY_VALUE)
    yield from _reduce(f"qkv.{layer}", CollectiveStep("AllReduce", qkv_bytes, reduction="Avg"))
    yield _elementwise("rms_norm_backward_kernel", 3 * TOKENS * HIDDEN * BF16)
    if layer % norms_layers == 0:
        bucket = CollectiveStep("AllReduce", norms_layers * norms_bytes, 4, "f32", "Avg")
        yield from _reduce(f"norms.{layer}", bucket)


def _optimizer(ranks: int) -> Iterator[Step]:
    """Clip and apply the gradients this rank owns; collect what is logged on rank 0."""
    attention = 2 * HIDDEN * (HIDDEN + KEY_VALUE)
    owned = LAYERS * attention + (LAYERS * 3 * HIDDEN * MLP + 2 * VOCABULARY * HIDDEN) // ranks
    yield from _sync("gradients", NCCL_STREAM, COMPUTE_STREAM)
    yield _elementwise("multi_tensor_l2norm_kernel", owned * BF16)
    yield from _sync("norm", COMPUTE_STREAM, NCCL_STREAM)
    yield CollectiveStep("AllReduce", FP32, channels=1, dtype="f32", reduction="Sum")
    yield CollectiveStep("AllReduce", 1, channels=1, dtype="u8", reduction="Max")
    yield from _sync("clipping", NCCL_STREAM, COMPUTE_STREAM)
    yield _elementwise("multi_tensor_adamw_kernel", owned * (BF16 + 3 * FP32))
    yield from _sync("metrics", COMPUTE_STREAM, NCCL_STREAM)
    yield CollectiveStep("Reduce", 309 * FP32, channels=1, dtype="f32", reduction="Sum")


def _shards(ranks: int) -> tuple[int, int, int]:
    """Return the bytes one rank owns of gate and up, of down, and of the embedding or the head."""
    whole = (2 * HIDDEN * MLP, MLP * HIDDEN, VOCABULARY * HIDDEN)
    gate_up, down, vocabulary = (-(-elements // ranks) * BF16 for elements in whole)
    return gate_up, down, vocabulary


def _gather(name: str, shard_bytes: int) -> Iterator[Step]:
    yield CollectiveStep("AllGather", shard_bytes)
    yield Record(name, NCCL_STREAM)


def _reduce(name: str, collective: CollectiveStep) -> Iterator[Step]:
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


def collective_ns(collective: CollectiveStep, nodes: int, gpus_per_node: int) -> int:
    """Return how long *collective* takes once its last rank has arrived (see the module's docstring)."""
    ranks = nodes * gpus_per_node
    rounds = {"AllReduce": 2 * (ranks - 1), "Broadcast": ranks, "Reduce": ranks}.get(collective.operation, ranks - 1)
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


class _DemoWriter:
    """All ranks of the job, step by step, in true time: 0 is when the step begins."""

    def __init__(self, seed: int, nodes: int, gpus_per_node: int) -> None:
        clocks = random.Random(f"clocks {seed}")
        self.nodes, self.gpus_per_node = nodes, gpus_per_node
        self.communicator = 1 << 63 | clocks.getrandbits(63)
        self.exports: list[ExportWriter] = []
        self.gpus: list[_Gpu] = []
        for node in range(nodes):
            begin_ns = clocks.randrange(2 * 10**9, 6 * 10**9)  # of the step, on the clock of the report
            error_ns = clocks.randrange(-5_000_000, 5_000_000)
            export = ExportWriter(f"node{node}", session_utc_ns=SESSION_UTC_NS - begin_ns + error_ns)
            self.exports.append(export)
            for device in range(gpus_per_node):
                process = export.process(FIRST_PID + device, device)
                jitter = random.Random(f"rank {len(self.gpus)} {seed}")
                self.gpus.append(_Gpu(process, begin_ns, jitter))
        for rank, gpu in enumerate(self.gpus):
            gpu.join(self.communicator, len(self.gpus), rank)

    def run(self, step: Step) -> None:
        if isinstance(step, CollectiveStep):
            self._run_collective(step)
        else:
            for gpu in self.gpus:
                gpu.run(step)

    def _run_collective(self, step: CollectiveStep) -> None:
        """Start everywhere as soon as each rank can, end everywhere when the last one is done."""
        duration_ns = collective_ns(step, self.nodes, self.gpus_per_node)
        calls_ns = [gpu.call(CALL_NS) for gpu in self.gpus]
        starts_ns = [
            gpu.start(NCCL_STREAM, call_ns + CALL_NS) for gpu, call_ns in zip(self.gpus, calls_ns, strict=True)
        ]
        for gpu, call_ns, start_ns in zip(self.gpus, calls_ns, starts_ns, strict=True):
            gpu.take_part(step, self.communicator, call_ns, start_ns, max(starts_ns) + duration_ns)

    def finish(self) -> None:
        """Let every host wait for its GPU."""
        for gpu in self.gpus:
            gpu.finish()


class _Gpu:
    """One rank: where its host and its streams are, in true ns, and the process that records it."""

    def __init__(self, process: ProcessWriter, begin_ns: int, jitter: random.Random) -> None:
        self.main = self.caller = process
        self.begin_ns = begin_ns
        self.jitter = jitter
        self.slowness = jitter.uniform(0.996, 1.004)
        self.host_ns = jitter.randrange(200_000)
        self.idle_from_ns = {COMPUTE_STREAM: 0, NCCL_STREAM: 0}
        self.events: dict[str, tuple[Event, int]] = {}
        self.phase = ("", 0)

    def local(self, true_ns: int) -> int:
        """Return *true_ns* as the clock of this node's report shows it."""
        return true_ns + self.begin_ns

    def join(self, communicator: int, ranks: int, rank: int) -> None:
        at_ns = self.local(self.jitter.randrange(-360_000_000, -340_000_000))
        self.main.init_communicator(communicator, ranks=ranks, rank=rank, at_ns=at_ns)

    def call(self, length_ns: int) -> int:
        """Let the host call something for *length_ns*; return when."""
        call_ns = self.host_ns
        self.host_ns += length_ns + self.jitter.randrange(500, 2_000)
        return call_ns

    def start(self, stream: int, called_ns: int) -> int:
        """Return when work asked for until *called_ns* starts on *stream*."""
        return max(called_ns + START_NS, self.idle_from_ns[stream] + GAP_NS)

    def run(self, step: Phase | Copy | Compute | Record | Wait) -> None:
        match step:
            case Phase():
                self._enter(step)
            case Copy():
                self._copy(step)
            case Compute():
                self._compute(step)
            case Record(name, stream):
                call_ns = self.call(EVENT_NS)
                event = self.caller.record_event(stream, call_ns=self.local(call_ns))
                self.events[name] = (event, max(call_ns, self.idle_from_ns[stream]))
            case Wait(name, stream):
                event, done_ns = self.events[name]
                self.caller.wait_event(event, stream, call_ns=self.local(self.call(EVENT_NS)))
                self.idle_from_ns[stream] = max(done_ns, self.idle_from_ns[stream])

    def _enter(self, phase: Phase) -> None:
        self._leave()
        self.phase = (phase.name, self.host_ns)
        self.caller = self.main.on(tid=self.main.pid + phase.thread)

    def _leave(self) -> None:
        name, since_ns = self.phase
        if name:
            self.main.user_range(name, self.local(since_ns), self.local(self.host_ns))

    def _copy(self, step: Copy) -> None:
        call_ns = self.call(LAUNCH_NS)
        start_ns = self.start(COMPUTE_STREAM, call_ns + LAUNCH_NS)
        end_ns = self.idle_from_ns[COMPUTE_STREAM] = start_ns + 2_000
        self.caller.memcpy(
            step.size_bytes,
            stream=COMPUTE_STREAM,
            start_ns=self.local(start_ns),
            end_ns=self.local(end_ns),
            call_ns=self.local(call_ns),
        )

    def _compute(self, step: Compute) -> None:
        call_ns = self.call(LAUNCH_NS)
        start_ns = self.start(COMPUTE_STREAM, call_ns + LAUNCH_NS)
        factor = self.slowness * max(0.97, self.jitter.gauss(1, 0.01))
        end_ns = self.idle_from_ns[COMPUTE_STREAM] = start_ns + round(step.duration_ns * factor)
        self.caller.kernel(
            step.name,
            stream=COMPUTE_STREAM,
            start_ns=self.local(start_ns),
            end_ns=self.local(end_ns),
            call_ns=self.local(call_ns),
        )

    def take_part(self, step: CollectiveStep, communicator: int, call_ns: int, start_ns: int, end_ns: int) -> None:
        """Call *step* at *call_ns*; its kernel starts here at *start_ns* and ends about *end_ns*."""
        end_ns = self.idle_from_ns[NCCL_STREAM] = end_ns + self.jitter.randrange(8_000)
        self.caller.collective(
            step.operation,
            size_bytes=step.size_bytes,
            communicator=communicator,
            stream=NCCL_STREAM,
            start_ns=self.local(start_ns),
            end_ns=self.local(end_ns),
            channels=step.channels,
            threads=128 if step.is_ll else 544,
            reduction=step.reduction,
            dtype=step.dtype,
            call_ns=self.local(call_ns),
        )

    def finish(self) -> None:
        """Wait for both streams and close the last range."""
        for stream, idle_from_ns in self.idle_from_ns.items():
            call_ns = self.call(EVENT_NS)
            self.host_ns = max(self.host_ns, idle_from_ns + START_NS)
            self.main.synchronize(stream, self.local(call_ns), self.local(self.host_ns))
        self._leave()
