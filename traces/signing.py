"""Give every collective of a trace its signature, and every field of it a source."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from atlas_lp.errors import AtlasError, UnsupportedError
from atlas_lp.signatures import COLLECTIVES, Signature, assumed_rings, label_order, ring_signature
from atlas_lp.traces import infer
from atlas_lp.traces.trace import POINT_TO_POINT, Gap, Instance, Trace


@dataclass(frozen=True)
class SignedInstance:
    """A collective with its signature.

    ``ranks`` gives the communicator rank of every label of the signature, ``sources`` says per field where its value
    comes from.
    """

    instance: Instance
    signature: Signature
    ranks: tuple[int, ...]
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
            f"{count} nccl{kind} operations: there is no schedule for {why} yet; supported are {', '.join(COLLECTIVES)}"
        )


class _Signer:
    """Remembers what was built for equal collectives."""

    def __init__(self, trace: Trace, gpus_per_nic: int) -> None:
        self.trace = trace
        self.fewer_channels = 0
        names = ("type", "size_bytes", "root", "channels", "threads", "kernel")
        self.columns = {name: trace.column("operations", name) for name in names}
        node_of_gpu, nic_of_gpu = trace.column("gpus", "node"), trace.nic_of_gpu(gpus_per_nic)
        of_member, gpu = trace.column("members", "communicator"), trace.column("members", "gpu")
        gpus = [gpu[of_member == c] for c in range(trace.communicators.num_rows)]
        self.nodes = [node_of_gpu[g].tolist() for g in gpus]
        self.nics = [nic_of_gpu[g].tolist() for g in gpus]
        self.known: dict[tuple[object, ...], tuple[SignedInstance, bool]] = {}

    def sign(self, instance: Instance) -> SignedInstance:
        row = int(instance.rows[0])
        kind, size, root, channels, threads, kernel = (self.columns[name][row] for name in self.columns)
        key = (instance.communicator, kind, size, root, channels, threads, kernel)
        if key not in self.known:
            try:
                self.known[key] = self._build(
                    instance,
                    str(kind),
                    int(size),
                    max(int(root), 0),
                    int(channels),
                    int(threads),
                    str(kernel),
                )
            except AtlasError as error:
                place = f"collective {instance.sequence + 1} of communicator number {instance.communicator}"
                raise type(error)(f"{place} ({kind} of {size} B): {error}") from None
        signed, fewer = self.known[key]
        self.fewer_channels += fewer
        return replace(signed, instance=instance)

    def _build(
        self, instance: Instance, kind: str, size: int, root: int, channels: int, threads: int, kernel: str
    ) -> tuple[SignedInstance, bool]:
        algorithm, algorithm_source = infer.algorithm(kernel)
        if algorithm != "ring":
            raise UnsupportedError(f"kernel {kernel} runs a {algorithm}; only rings have a schedule yet")
        protocol, protocol_source = infer.protocol(threads)
        element_bytes, element_source = infer.element_bytes(kind, kernel)
        nodes = self.nodes[instance.communicator]
        rings = assumed_rings(nodes, channels)
        signature = ring_signature(
            kind,
            protocol,
            size,
            rings,
            nodes,
            nccl=self.trace.nccl_version.value,
            element_bytes=element_bytes,
            root=root,
            nic_of_rank=self.nics[instance.communicator],
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
        ranks = tuple(label_order(kind, rings[0], root))
        signed = SignedInstance(instance, signature, ranks, tuple(sources.items()))
        return signed, signature.channels < channels
