"""Give every collective of a trace its signature, and every field of it a source."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from atlas_lp.errors import AtlasError, UnsupportedError
from atlas_lp.signatures.algorithms.algorithm import Parameters
from atlas_lp.signatures.algorithms.assumed import build
from atlas_lp.signatures.algorithms.point_to_point import (
    USUAL_CHANNELS,
    point_to_point_order,
    point_to_point_signature,
)
from atlas_lp.signatures.algorithms.table import ALGORITHMS, WITH_SCHEDULE
from atlas_lp.signatures.nccl.collectives import COLLECTIVES, POINT_TO_POINT, SEND_RECV
from atlas_lp.signatures.nccl.protocols import Protocol
from atlas_lp.signatures.signature import Signature
from atlas_lp.signatures.topology import Tree
from atlas_lp.traces.signing import infer
from atlas_lp.traces.signing.disagreements import disagreements
from atlas_lp.traces.trace import Gap, Instance, Topology, Trace


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

    @property
    def positions(self) -> tuple[int, ...]:
        """Position among the rows of the instance of every label, -1 for a rank whose files are missing."""
        position = {rank: number for number, rank in enumerate(self.instance.ranks)}
        return tuple(position.get(rank, -1) for rank in self.ranks)

    @property
    def labels(self) -> tuple[int, ...]:
        """Label of every row of the instance."""
        label = {rank: number for number, rank in enumerate(self.ranks)}
        return tuple(label[rank] for rank in self.instance.ranks)


def sign(trace: Trace, gpus_per_nic: int = 1) -> tuple[list[SignedInstance], list[Gap]]:
    """Return the signed instances of *trace* in its order, and gaps found on the way.

    Raises :class:`~atlas_lp.errors.UnsupportedError` for operations without a schedule, naming them, and what
    :meth:`Trace.instances` raises.
    """
    _refuse_unsupported(trace)
    signer = _Signer(trace, gpus_per_nic)
    instances = trace.instances()
    signed = [signer.sign(instance) for instance in instances]
    gaps = disagreements(trace, instances)
    if signer.shared:
        gaps.append(
            Gap(
                "shared-kernels",
                signer.shared,
                "collectives that share a kernel with others of their group: modelled one after another",
            )
        )
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
    supported = (*WITH_SCHEDULE, *POINT_TO_POINT)
    for kind in sorted(set(kinds) - set(supported)):
        count = int(np.count_nonzero(kinds == kind))
        raise UnsupportedError(
            f"{count} nccl{kind} operations have no schedule yet; supported are {', '.join(supported)}"
        )
    copied = int(np.count_nonzero(trace.column("operations", "kernel") == "memcpy"))
    if copied:
        raise UnsupportedError(f"{copied} operations were carried out by copy engines, for which there is no schedule")


_MOST_CHANNELS = 1 << 10


@dataclass(frozen=True)
class _Operation:
    """What decides the signature of a collective, as recorded on its first rank."""

    type: str
    size_bytes: int
    root: int
    channels: int
    threads: int
    kernel: str
    algorithm: str
    protocol: str
    element_bytes: int
    choice_source: str
    channel_source: str
    element_source: str
    parts: tuple[int, ...]

    def recorded_parts(self, element_bytes: int) -> list[tuple[int, int, int]] | None:
        """Parts (channel, count, last chunk) as recorded, None where they do not add up to the collective."""
        unit = 1 if COLLECTIVES[self.type].byte_counted else element_bytes
        if not self.parts or sum(self.parts[::2]) * unit != self.size_bytes:
            return None
        pairs = zip(self.parts[::2], self.parts[1::2], strict=True)
        return [(channel, count, last) for channel, (count, last) in enumerate(pairs) if count]


@dataclass(frozen=True)
class _Chosen:
    """What NCCL chose, each with its source."""

    algorithm: str
    algorithm_source: str
    protocol: Protocol
    protocol_source: str
    element_bytes: int
    element_source: str

    def sources(self, channels: str, topology: str, split: str) -> tuple[tuple[str, str], ...]:
        """Sources by field, with those of the fields that are not chosen per collective."""
        return (
            ("algorithm", self.algorithm_source),
            ("protocol", self.protocol_source),
            ("channels", channels),
            ("element_bytes", self.element_source),
            ("topology", topology),
            ("split", split),
        )


class _Signer:
    """Remembers what was built for equal collectives."""

    def __init__(self, trace: Trace, gpus_per_nic: int) -> None:
        self.trace = trace
        self.nccl = trace.nccl_version.value
        self.fewer_channels = 0
        self.shared = 0
        self.columns = {name: trace.column("operations", name) for name in _Operation.__dataclass_fields__}
        node_of_gpu, nic_of_gpu = trace.column("gpus", "node"), trace.nic_of_gpu(gpus_per_nic)
        of_member = trace.column("members", "communicator")
        rank, gpu = trace.column("members", "rank"), trace.column("members", "gpu")
        self.nodes: list[list[int]] = []
        self.nics: list[list[int]] = []
        for c, ranks in enumerate(trace.communicators["ranks"].to_pylist()):
            gpu_of_rank = dict(zip(rank[of_member == c].tolist(), gpu[of_member == c].tolist(), strict=True))
            # A rank whose files are missing is taken for a node of its own.
            self.nodes.append([int(node_of_gpu[gpu_of_rank[r]]) if r in gpu_of_rank else -1 - r for r in range(ranks)])
            self.nics.append([int(nic_of_gpu[gpu_of_rank[r]]) if r in gpu_of_rank else 0 for r in range(ranks)])
        self.known: dict[tuple[object, ...], tuple[SignedInstance, bool]] = {}

    def sign(self, instance: Instance) -> SignedInstance:
        if instance.kind == SEND_RECV:
            return self._sign_messages(instance)
        row = int(instance.rows[0])
        values = {name: column[row] for name, column in self.columns.items()}
        operation = _Operation(**{**values, "parts": tuple(values["parts"].tolist())})
        key = (instance.communicator, operation)
        if key not in self.known:
            try:
                self.known[key] = self._build(instance, operation)
            except AtlasError as error:
                place = f"collective {instance.sequence + 1} of communicator number {instance.communicator}"
                what = f"{operation.type} of {operation.size_bytes} B"
                raise type(error)(f"{place} ({what}): {error}") from None
        signed, fewer = self.known[key]
        self.fewer_channels += fewer
        self.shared += "share" in operation.channel_source
        return replace(signed, instance=instance)

    def _sign_messages(self, instance: Instance) -> SignedInstance:
        """Sign a set of sends and receives."""
        place = f"sends and receives of communicator number {instance.communicator}"
        if instance.launches > len(instance.rows):
            raise UnsupportedError(f"{place}: a rank takes part in one exchange with several launches")
        nodes, nics = self.nodes[instance.communicator], self.nics[instance.communicator]
        messages = [(m.source, m.target, m.size_bytes) for m in instance.messages]
        key = (instance.communicator, tuple(messages))
        if key not in self.known:
            try:
                channels, channel_source = self._p2p_channels(instance.communicator)
                signature = point_to_point_signature(messages, nodes, nics, nccl=self.nccl, **channels)
            except AtlasError as error:
                raise type(error)(f"{place}: {error}") from None
            ranks = tuple(point_to_point_order(messages, nodes))
            sources = (
                ("messages", "recorded"),
                ("channels", channel_source),
                ("split", self.trace.nccl_version.source),
            )
            self.known[key] = (SignedInstance(instance, signature, ranks, sources), False)
        return replace(self.known[key][0], instance=instance)

    def _build(self, instance: Instance, operation: _Operation) -> tuple[SignedInstance, bool]:
        if COLLECTIVES[operation.type].by_messages:
            return self._by_messages(instance, operation)
        chosen = self._chosen(operation)
        row = ALGORITHMS.get(chosen.algorithm)
        if row is None or operation.type not in row.collectives:
            raise UnsupportedError(
                f"{operation.type} by {chosen.algorithm} ({chosen.algorithm_source}) has no schedule yet"
            )
        topology, channels = self._topology(instance.communicator), int(operation.channels)
        if channels > _MOST_CHANNELS:
            raise UnsupportedError(f"a kernel on {channels} channels, of which NCCL has 64 at most: is it NCCL's?")
        # An approximation knows nothing of the parts of channels.
        parts = None if row.approximation else operation.recorded_parts(chosen.element_bytes)
        built = build(
            replace(
                self._parameters(instance, operation),
                algorithm=chosen.algorithm,
                protocol=chosen.protocol,
                channels=channels,
                element_bytes=chosen.element_bytes,
                root=max(int(operation.root), 0),
                threads=int(operation.threads) or None,
                parts=parts,
                **_recorded(topology, row.follows, channels),
            )
        )
        topology_source = f"assumed: {row.approximation}" if row.approximation else built.source or topology.source
        split = operation.choice_source if parts else self.trace.nccl_version.source
        sources = chosen.sources(operation.channel_source, topology_source, split)
        signed = SignedInstance(instance, built.signature, tuple(built.ranks), sources)
        return signed, not row.approximation and built.signature.channels < channels

    def _parameters(self, instance: Instance, operation: _Operation) -> Parameters:
        """What is known of a collective before anything was chosen for it."""
        return Parameters(
            collective=operation.type,
            size_bytes=int(operation.size_bytes),
            node_of_rank=self.nodes[instance.communicator],
            nccl=self.nccl,
            nic_of_rank=self.nics[instance.communicator],
        )

    def _chosen(self, operation: _Operation) -> _Chosen:
        """Algorithm, protocol and element size: of a source that says, else inferred from the kernel."""
        algorithm, algorithm_source = infer.algorithm(operation.kernel)
        if operation.algorithm:
            algorithm, algorithm_source = operation.algorithm, operation.choice_source
        protocol, protocol_source = infer.protocol(operation.threads)
        if operation.protocol:
            protocol, protocol_source = Protocol(operation.protocol), operation.choice_source
        element_bytes, element_source = infer.element_bytes(operation.type, operation.kernel)
        if operation.element_bytes and not element_source.startswith("recorded"):
            element_bytes, element_source = int(operation.element_bytes), operation.element_source
        return _Chosen(algorithm, algorithm_source, protocol, protocol_source, element_bytes, element_source)

    def _by_messages(self, instance: Instance, operation: _Operation) -> tuple[SignedInstance, bool]:
        """AllToAll (NCCL 2.28+): the bytes of the call go from every rank to every rank."""
        channels, channel_source = self._p2p_channels(instance.communicator)
        built = build(replace(self._parameters(instance, operation), **channels))
        sources = (("channels", channel_source), ("split", self.trace.nccl_version.source))
        return SignedInstance(instance, built.signature, tuple(built.ranks), sources), False

    def _topology(self, communicator: int) -> Topology:
        return self.trace.topologies[communicator] if self.trace.topologies else Topology()

    def _p2p_channels(self, communicator: int) -> tuple[dict[str, Any], str]:
        """Arguments for channels of point-to-point, none where nothing says."""
        topology = self._topology(communicator)
        channels, per_peer = topology.p2p_channels
        if channels and per_peer:
            return {"channels": channels, "per_peer": per_peer}, topology.source
        return {}, USUAL_CHANNELS


def _recorded(topology: Topology, follows: str, channels: int) -> dict[str, Any]:
    """One recorded ring or tree per channel, used again from the first where the kernel had more channels."""
    shapes: Sequence[Any] = ()
    if follows == "rings":
        shapes = [list(ring) for ring in topology.rings]
    elif follows == "trees":
        shapes = [Tree.of_children([children for _, children in tree]) for tree in topology.trees]
    return {follows: [shapes[channel % len(shapes)] for channel in range(channels)]} if shapes else {}
