"""Give every collective of a trace its signature, and every field of it a source."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from atlas_lp.errors import AtlasError, UnsupportedError
from atlas_lp.signatures import COLLECTIVES, Signature, assumed_rings, ring_signature
from atlas_lp.traces import infer
from atlas_lp.traces.trace import POINT_TO_POINT, Gap, Instance, Trace


@dataclass(frozen=True)
class SignedInstance:
    """A collective with its signature and, per inferred field, where the value comes from."""

    instance: Instance
    signature: Signature
    sources: tuple[tuple[str, str], ...]


def sign(trace: Trace, gpus_per_nic: int = 1) -> tuple[list[SignedInstance], list[Gap]]:
    """Return the signed instances of *trace* in its order, and gaps found on the way.

    Raises :class:`~atlas_lp.errors.UnsupportedError` for operations without a schedule, naming them, and what
    :meth:`Trace.instances` raises.
    """
    _refuse_unsupported(trace)
    signer = _Signer(trace, gpus_per_nic)
    signed = [signer.sign(instance) for instance in trace.instances()]
    gaps = []
    if signer.fewer_channels:
        gaps.append(
            Gap(
                "channel-split",
                signer.fewer_channels,
                "collectives whose kernel had more channels than NCCL's split rule fills: the rule was followed",
            )
        )
    return signed, gaps


def _refuse_unsupported(trace: Trace) -> None:
    kinds = trace.column("operations", "type")
    for kind in sorted(set(kinds) - set(COLLECTIVES)):
        count = int(np.count_nonzero(kinds == kind))
        why = "point-to-point calls" if kind in POINT_TO_POINT else "this collective"
        raise UnsupportedError(
            f"{count} nccl{kind} operations: there is no schedule for {why} yet; "
            f"supported are {', '.join(COLLECTIVES)}"
        )


class _Signer:
    """Remembers what was built for equal collectives."""

    def __init__(self, trace: Trace, gpus_per_nic: int) -> None:
        self.trace = trace
        self.fewer_channels = 0
        names = ("type", "size_bytes", "root", "channels", "threads", "kernel")
        self.columns = {name: trace.column("operations", name) for name in names}
        node_of_gpu = trace.column("gpus", "node")
        position = np.zeros(len(node_of_gpu), dtype=np.int64)
        for node in np.unique(node_of_gpu):
            inside = np.flatnonzero(node_of_gpu == node)
            position[inside] = np.arange(len(inside))
        members = [trace.column("members", name) for name in ("communicator", "gpu")]
        gpus = [members[1][members[0] == c] for c in range(trace.communicators.num_rows)]
        self.nodes = [node_of_gpu[g].tolist() for g in gpus]
        self.nics = [(position[g] // gpus_per_nic).tolist() for g in gpus]
        self.known: dict[tuple[object, ...], tuple[Signature, tuple[tuple[str, str], ...], bool]] = {}

    def sign(self, instance: Instance) -> SignedInstance:
        row = int(instance.rows[0])
        kind, size, root, channels, threads, kernel = (self.columns[name][row] for name in self.columns)
        key = (instance.communicator, kind, size, root, channels, threads, kernel)
        if key not in self.known:
            try:
                self.known[key] = self._build(
                    instance.communicator, str(kind), int(size), int(root), int(channels), int(threads), str(kernel)
                )
            except AtlasError as error:
                place = f"collective {instance.sequence + 1} of communicator number {instance.communicator}"
                raise type(error)(f"{place} ({kind} of {size} B): {error}") from None
        signature, sources, fewer = self.known[key]
        self.fewer_channels += fewer
        return SignedInstance(instance, signature, sources)

    def _build(
        self, communicator: int, kind: str, size: int, root: int, channels: int, threads: int, kernel: str
    ) -> tuple[Signature, tuple[tuple[str, str], ...], bool]:
        algorithm, algorithm_source = infer.algorithm(kernel)
        if algorithm != "ring":
            raise UnsupportedError(f"kernel {kernel} runs a {algorithm}; only rings have a schedule yet")
        protocol, protocol_source = infer.protocol(threads)
        element_bytes, element_source = infer.element_bytes(kind, kernel)
        signature = ring_signature(
            kind,
            protocol,
            size,
            assumed_rings(self.nodes[communicator], channels),
            self.nodes[communicator],
            nccl=self.trace.nccl_version.value,
            element_bytes=element_bytes,
            root=max(root, 0),
            nic_of_rank=self.nics[communicator],
            threads=threads,
        )
        sources = {
            "algorithm": algorithm_source,
            "protocol": protocol_source,
            "channels": "inferred: grid of the kernel",
            "element_bytes": element_source,
            "topology": "assumed: rings in rank order, node after node, turned by one GPU per channel",
            "split": self.trace.nccl_version.source,
        }
        return signature, tuple(sources.items()), signature.channels < channels
