"""What a notebook needs, with quantities as people write them; see docs/python.md.

Every name is also one of :mod:`atlas_lp` itself, which imports this module when it is first asked for one.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from atlas_lp.analysis.analyze import Analysis
from atlas_lp.analysis.analyze import analyze as analyze_trace
from atlas_lp.analysis.answer import Answer, Quantity, Tolerance, exact
from atlas_lp.analysis.folder import read_analysis
from atlas_lp.cache.store import Store, default_folder
from atlas_lp.collectives.solver import CollectiveSolver
from atlas_lp.errors import AtlasError, InputError
from atlas_lp.fabrics.fabric import Fabric, load_fabric
from atlas_lp.goal import read_goal
from atlas_lp.goal.schedule import Schedule
from atlas_lp.program.what_if import WhatIf
from atlas_lp.signatures.algorithms.algorithm import Parameters
from atlas_lp.signatures.algorithms.assumed import assumed_signature
from atlas_lp.signatures.algorithms.expand import expand as expand_signature
from atlas_lp.signatures.nccl.protocols import Protocol
from atlas_lp.signatures.signature import Signature
from atlas_lp.solver.axis import AXES
from atlas_lp.solver.envelope import Box, Envelope
from atlas_lp.solver.port_order import solve_messages
from atlas_lp.traces.reading.read import read_trace
from atlas_lp.traces.selection import Selection
from atlas_lp.traces.trace import Trace
from atlas_lp.units import parse_size_bytes

__all__ = [
    "Analysis",
    "Answer",
    "AtlasError",
    "Box",
    "Envelope",
    "Fabric",
    "Schedule",
    "Signature",
    "Tolerance",
    "Trace",
    "WhatIf",
    "analyze",
    "collective",
    "expand",
    "fabric",
    "load",
    "read",
    "solve",
]

Names = str | Path | Sequence[str | Path]


def read(
    traces: Names,
    *,
    gpus_per_node: int | None = None,
    allow_missing: bool = False,
    allow_lost: bool = False,
    range_name: str | None = None,
) -> Trace:
    """Read the files of one job: files, folders or globs.

    *gpus_per_node* places the GPUs on nodes of that many instead of the recorded hosts; *allow_missing* reads on when
    ranks are missing, *allow_lost* when many records are, which the answer names; *range_name* keeps the calls inside
    NVTX ranges of that name.

    Raises :class:`AtlasError` as :func:`~atlas_lp.traces.reading.read.read_trace` does.
    """
    names = [traces] if isinstance(traces, str | Path) else list(traces)
    selection = Selection(range_name=range_name)
    trace = read_trace(names, selection=selection, allow_missing=allow_missing, allow_lost=allow_lost)
    return trace if gpus_per_node is None else trace.placed(gpus_per_node)


def fabric(name: str | Path = "alps", *, latency: Quantity | None = None, bandwidth: Quantity | None = None) -> Fabric:
    """Return a preset by name or the fabric of a TOML file, at another native point where one is given.

    >>> fabric("alps", latency="5us", bandwidth="400Gbps").native
    (Fraction(5000, 1), Fraction(1, 50))
    """
    asked = zip((latency, bandwidth), AXES, strict=True)
    latency_ns, gap_ns_per_byte = (None if value is None else exact(value, axis) for value, axis in asked)
    return load_fabric(str(name)).at(latency_ns=latency_ns, gap_ns_per_byte=gap_ns_per_byte)


def analyze(
    traces: Names | Trace,
    network: str | Path | Fabric = "alps",
    *,
    cache: Path | str | bool = True,
    box: Box | None = None,
    dependencies: str | None = None,
    gpu: int | None = None,
    what_if: WhatIf | None = None,
    contention: bool = False,
) -> Analysis:
    """Solve *traces* (names as for :func:`read`, or what it returned) on a *network*: exact T(L, G) over *box*.

    Solved collectives are kept in the user's *cache*, in another folder, or (False) not at all.  *dependencies* is
    ``"events"`` or ``"streams"``, by default what was recorded; *gpu* asks for what one GPU alone saw; *what_if*
    changes the job; with *contention* collectives that overlap share their NICs.

    Raises :class:`AtlasError`.
    """
    trace = traces if isinstance(traces, Trace) else read(traces)
    where = default_folder() if cache is True else None if cache is False else Path(cache)
    chosen = network if isinstance(network, Fabric) else fabric(network)
    solver = CollectiveSolver(chosen, box, Store(where))
    return analyze_trace(
        trace, solver, dependencies=dependencies, gpu=gpu, what_if=what_if or WhatIf(), contention=contention
    )


def load(folder: str | Path) -> Analysis:
    """Return the analysis that ``atlas-lp analyze TRACE -o FOLDER`` wrote.

    Raises :class:`AtlasError` when there is none, or another version wrote it.
    """
    return read_analysis(Path(folder))


def collective(
    kind: str,
    size: str | int,
    ranks: int,
    *,
    gpus_per_node: int = 1,
    algorithm: str = "ring",
    protocol: str = "simple",
    channels: int | None = None,
    nccl: str = "2.28",
    element_bytes: int = 4,
    root: int = 0,
) -> Signature:
    """Return the signature of one collective such as ``"AllReduce"``, its topology as NCCL would build it.

    *size* is that of the NCCL call, such as ``"128MiB"`` (per pair of ranks for ``"AllToAll"``).

    Raises :class:`AtlasError` for what NCCL does not do.
    """
    if ranks < 2 or gpus_per_node < 1 or ranks % gpus_per_node:
        raise InputError(f"{ranks} ranks do not fill nodes of {gpus_per_node} GPUs")
    if protocol not in [p.value for p in Protocol]:
        raise InputError(f"{protocol!r} is not one of {', '.join(p.value for p in Protocol)}")
    parameters = Parameters(
        collective=kind,
        size_bytes=parse_size_bytes(size) if isinstance(size, str) else size,
        node_of_rank=[rank // gpus_per_node for rank in range(ranks)],
        nccl=nccl,
        algorithm=algorithm,
        protocol=Protocol(protocol),
        channels=channels,
        element_bytes=element_bytes,
        root=root,
    )
    return assumed_signature(parameters)[0]


def expand(signature: Signature, network: str | Path | Fabric = "alps") -> Schedule:
    """Return the GOAL schedule of *signature*; its ranks are the labels of the signature."""
    chosen = network if isinstance(network, Fabric) else fabric(network)
    return expand_signature(signature, chosen.reduce_copy, chosen.credits)


def solve(
    what: Signature | Schedule | str | Path,
    network: str | Path | Fabric = "alps",
    *,
    gpus_per_node: int = 1,
    box: Box | None = None,
) -> Answer:
    """Return exact T(L, G) of a signature, of a schedule, or of a GOAL file, on a *network*.

    Consecutive GOAL ranks share nodes of *gpus_per_node*, which a signature knows by itself.

    Raises :class:`AtlasError`.
    """
    chosen = network if isinstance(network, Fabric) else fabric(network)
    if isinstance(what, Signature):
        return Answer(CollectiveSolver(chosen, box).solve(what), chosen.native)
    schedule = what if isinstance(what, Schedule) else read_goal(Path(what))
    nodes = np.arange(schedule.ranks) // gpus_per_node
    return Answer(solve_messages(chosen.messages(schedule, nodes), chosen, box)[1], chosen.native)
