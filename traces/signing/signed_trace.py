"""A trace whose collectives have signatures: what every later stage starts from."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from atlas_lp.errors import InputError
from atlas_lp.signatures.signature import Signature
from atlas_lp.traces.signing.sign import SignedInstance, sign
from atlas_lp.traces.signing.timeline import Timeline
from atlas_lp.traces.trace import Gap, Trace


@dataclass(frozen=True, eq=False)
class SignedTrace:
    """A *trace*, its *instances* with their signatures in the order of the trace, and *gaps* found on the way.

    With *gpu* it is what that GPU alone saw.  The timeline is computed once, when it is asked for.
    """

    trace: Trace
    instances: tuple[SignedInstance, ...]
    gaps: tuple[Gap, ...] = ()
    gpu: int | None = None

    @classmethod
    def of(cls, trace: Trace, gpus_per_nic: int = 1) -> SignedTrace:
        """Sign *trace*, whose GPUs share a NIC by *gpus_per_nic*; raises what :func:`sign` does."""
        instances, gaps = sign(trace, gpus_per_nic)
        return cls(trace, tuple(instances), tuple(gaps))

    @cached_property
    def timeline(self) -> Timeline:
        """When everything ran, host clocks aligned."""
        return Timeline(self.trace, self.instances)

    @cached_property
    def signatures(self) -> dict[str, Signature]:
        """The unique signatures by key, in the order of their keys."""
        unique = {s.signature.key(): s.signature for s in self.instances}
        return dict(sorted(unique.items()))

    @cached_property
    def keys(self) -> tuple[str, ...]:
        """Key of the signature of every instance."""
        return tuple(s.signature.key() for s in self.instances)

    @property
    def all_gaps(self) -> tuple[Gap, ...]:
        """What the trace lacked, and what was found in signing it."""
        return (*self.trace.gaps, *self.gaps)

    def is_complete(self, number: int) -> bool:
        """Whether all ranks of an instance were recorded, and are seen."""
        signed = self.instances[number]
        return len(signed.instance.rows) == signed.signature.ranks

    def communicator(self, number: int) -> str:
        """Id of the communicator of an instance, as people write it."""
        return f"{self.communicator_ids[self.instances[number].instance.communicator]:#x}"

    @cached_property
    def communicator_ids(self) -> tuple[int, ...]:
        """Ids of all communicators of the trace."""
        return tuple(self.trace.communicators["id"].to_pylist())

    def seen_by(self, gpu: int) -> SignedTrace:
        """Return what one GPU saw: its operations and its work, as in the paper.

        Instances start when this GPU arrives, whatever the others do.  Raises :class:`~atlas_lp.errors.InputError` for
        a GPU that took part in nothing.
        """
        trace = self.trace
        own = trace.column("operations", "gpu")
        rows = [s.instance.rows[own[s.instance.rows] == gpu] for s in self.instances]
        kept = tuple(_alone(s, r) for s, r in zip(self.instances, rows, strict=True) if len(r))
        if not kept:
            raise InputError(f"GPU {gpu} ran no collective: the trace has GPUs 0 to {trace.gpus.num_rows - 1}")
        work = trace.work
        if work is not None:
            work = replace(work, gpu=np.where(work.gpu == gpu, gpu, -1)).only_numbered()
        return SignedTrace(replace(trace, work=work), kept, self.gaps, gpu)


def _alone(signed: SignedInstance, rows: NDArray[np.int64]) -> SignedInstance:
    """The instance with only *rows* of its own."""
    ranks = np.array(signed.instance.ranks)[np.isin(signed.instance.rows, rows)]
    return replace(signed, instance=replace(signed.instance, rows=rows, ranks=tuple(ranks.tolist())))
