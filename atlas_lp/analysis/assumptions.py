"""What an answer assumes, as sentences for people; they stand next to every number."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from fractions import Fraction

from atlas_lp.fabrics.fabric import Fabric
from atlas_lp.program.job import Job
from atlas_lp.signatures.algorithms.table import approximation
from atlas_lp.signatures.costs import load_costs
from atlas_lp.solver.envelope import Envelope, PortOrder
from atlas_lp.units import format_bandwidth, format_time

_SHARED = (
    "contention: collectives that overlap on a NIC share it; each ends no earlier than all bodies sent until then can "
    "pass, in the recorded order"
)

_COMPOSITION = {
    "events": (
        "composition: GPU work follows its stream, the events its stream waited for, and the host's calls; other "
        "delays are as measured"
    ),
    "streams": (
        "composition: gaps between operations are as measured; operations of one GPU that did not overlap keep their "
        "order (stream order, streams merged where they do not overlap)"
    ),
}

_PERSPECTIVE = "perspective: GPU {} alone; it never waits for a late rank"

_CREDITS = {
    "local": "FIFO credits return without network latency",
    "acknowledged": "each FIFO slot is acknowledged over the network before it is used again",
    "none": "FIFO credits are ignored",
}

_TOLD = 1e-4
"""Relative difference of T by the order on a port that is told."""

_PORT_RULES = {
    "port": "all sends of one NIC queue behind each other",
    "destination": "sends of one rank to one destination queue behind each other",
    "none": "sends never queue",
}


def model_assumptions(fabric: Fabric) -> list[str]:
    """What the LogGP model leaves out or fixes, as sentences."""
    return [
        fabric.describe(),
        "LogGP: no congestion, no routing; the recorded schedule, number of ranks and NCCL's choices stay as they are",
        f"port rule {fabric.port_rule.value}: {_PORT_RULES[fabric.port_rule.value]}"
        + ("; messages queue at the receiving NIC, too" if fabric.ingress else ""),
    ]


def order_of_ports(envelope: Envelope) -> list[str]:
    """In which order the ports of a graph serve, where it matters, and what first come, first served would change."""
    order = envelope.order
    if order is None:
        return []
    words = f"order on a port: as messages become ready at {_at(order.at)}"
    if order.difference >= _TOLD:
        words += f"; {differs(order)}"
    return [words]


def orders_of_ports(envelopes: Iterable[Envelope]) -> list[str]:
    """The same for all signatures of a job: the points whose order was taken."""
    points = sorted({envelope.order.at for envelope in envelopes if envelope.order is not None})
    return [f"order on a port: as messages become ready at {' or '.join(map(_at, points))}"] if points else []


def differs(order: PortOrder) -> str:
    """How far T is from ports that serve first come, first served wherever they are asked."""
    return (
        f"T differs by up to {100 * order.difference:.2g} % from first come, first served at each point "
        f"(most at {_at(order.worst_at)})"
    )


def _at(where: tuple[Fraction, Fraction]) -> str:
    return f"L {format_time(where[0])}, {format_bandwidth(where[1])}"


def job_assumptions(job: Job) -> list[str]:
    """What the answer for *job* assumes, as sentences."""
    told = {pair for s in job.signed.instances for pair in s.sources}
    sources = sorted(f"{field}: {source}" for field, source in told if not source.startswith("recorded"))
    return [
        *model_assumptions(job.fabric),
        *orders_of_ports(job.envelopes.values()),
        load_costs(job.fabric.reduce_copy).assumption,
        _CREDITS[job.fabric.credits],
        _COMPOSITION[job.dependencies],
        _held_together(job),
        *([_SHARED] if job.contention else []),
        *(_PERSPECTIVE.format(gpu) for gpu in [job.signed.gpu] if gpu is not None),
        *(f"what if: {sentence}" for sentence in job.what_if.sentences(job.dependencies)),
        f"placement: {job.trace.placement}",
        *sources,
        *sorted({approximation(s.signature) for s in job.signed.instances} - {""}),
    ]


def _held_together(job: Job) -> str:
    """Which ranks of a collective wait for each other until the last one arrives or ends."""
    counts = Counter(collective.count for collective in job.collectives)
    several = sum(counts.values()) - counts[1]
    if not several:
        return "collectives: each starts when its last rank arrives and ends on all ranks at once"
    width = max(collective.width for collective in job.collectives)
    alike = f"at most {100 * width:.2g} % of the collective apart" if width else "alike"
    return (
        f"collectives: {several} of {sum(counts.values())} by classes of ranks that start and end {alike}: each "
        "class starts when its last rank arrives and ends at once; in the others, all ranks do"
    )
