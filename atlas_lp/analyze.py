"""The main job: from a trace to T(L, G) of its program, with everything assumed named.

A summary holds only plain values and depends only on content, so equal inputs give equal bytes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from statistics import median
from typing import Any, Unpack

import atlas_lp
from atlas_lp.attribution import Attribution
from atlas_lp.cache.store import Store
from atlas_lp.certificate import Certificate
from atlas_lp.envelope import Box, Envelope, Piece, furthest
from atlas_lp.goal.event_graph import COMPONENTS
from atlas_lp.job import Asked, Job, solve_job
from atlas_lp.links import DEPENDENCIES, records_events
from atlas_lp.longest_path import BYTES, MESSAGES, Evaluator, point
from atlas_lp.parameters import Fabric
from atlas_lp.rank_classes import times_ns
from atlas_lp.replay import replay
from atlas_lp.signatures.costs import load_costs
from atlas_lp.signatures.expand import MODEL_VERSION
from atlas_lp.traces import Gap, Progress, SignedInstance, Trace
from atlas_lp.units import format_bandwidth, format_time, gbps, number

TOLERANCE_PERCENT = 5

_NOTHING = [0] * len(COMPONENTS)


@dataclass(frozen=True)
class Analysis:
    """What ``analyze`` found: the envelope of the program, the native point, and the plain-value *summary*."""

    envelope: Envelope
    latency_ns: Fraction
    gap_ns_per_byte: Fraction
    summary: dict[str, Any]


def analyze(
    trace: Trace,
    fabric: Fabric,
    box: Box,
    store: Store,
    progress: Progress | None = None,
    **asked: Unpack[Asked],
) -> Analysis:
    """Analyze *trace* on *fabric*: exact over *box*, solved signatures kept in *store*.

    *asked* is as for :func:`~atlas_lp.job.solve_job`.

    Raises what reading, signing, expanding and solving raise; nothing is written but cache entries.
    """
    box.check(fabric.latency_ns, fabric.gap_ns_per_byte)
    job = solve_job(trace, fabric, box, store, progress, **asked)
    signatures = {"hits": store.hits, "misses": store.misses}
    tell = None if progress is None else (lambda planes: progress("program planes", planes, 0))
    envelope = job.solve(box, store, tell)
    summary = _Summary(job, envelope).build()
    summary["cache"] = signatures
    return Analysis(envelope, fabric.latency_ns, fabric.gap_ns_per_byte, summary)


def native_times(trace: Trace, fabric: Fabric, box: Box, store: Store, **asked: Unpack[Asked]) -> dict[str, Any]:
    """Predicted and measured length of *trace* at the native point alone: what one of several iterations took."""
    job = solve_job(trace, fabric, box, store, **asked)
    longest = job.at(point(fabric.latency_ns, fabric.gap_ns_per_byte))
    return {"makespan_ns": number(longest.time_ns), "measured_ns": job.program.measured_ns}


def spread(times: Sequence[float]) -> float:
    """Largest minus smallest of *times*, relative to their median."""
    return (max(times) - min(times)) / median(times)


class _Summary:
    """Collects the plain values of a summary."""

    def __init__(self, job: Job, envelope: Envelope) -> None:
        self.job, self.envelope = job, envelope
        self.trace, self.fabric, self.signed = job.trace, job.fabric, job.signed
        self.envelopes, self.program, self.what_if = job.envelopes, job.program, job.what_if
        self.latency, self.gap = job.fabric.latency_ns, job.fabric.gap_ns_per_byte
        self.longest = job.at(point(self.latency, self.gap))
        self.contention = self._contention()
        self.replay = replay(job.trace, job.signed, job.program, job.fabric)
        self.path = self.program.path(self.longest)

    def build(self) -> dict[str, Any]:
        trace, envelope = self.trace, self.envelope
        certificates = [e.certificate for e in (*self.envelopes.values(), envelope)]
        return {
            "schema": "atlas-lp/summary",
            # History: 1 (0.1.0) first.
            "version": 1,
            "tool": {"name": "atlas-lp", "version": atlas_lp.__version__, "model": MODEL_VERSION},
            "trace": {
                "ranks": trace.gpus.num_rows,
                "nodes": trace.nodes,
                "processes": len(set(zip(*(trace.gpus[c].to_pylist() for c in ("host", "process")), strict=True))),
                "communicators": trace.communicators.num_rows,
                "operations": trace.operations.num_rows,
                "instances": len(self.signed),
                "nccl": trace.nccl_version.value,
                "placement": trace.placement,
                "synthetic": trace.synthetic,
                "perspective": "all ranks" if self.job.gpu is None else f"GPU {self.job.gpu}",
            },
            "fabric": {
                "name": self.fabric.name,
                **self.fabric.fixed(),
                "gpus_per_nic": self.fabric.gpus_per_nic,
            },
            "what_if": self.what_if.sentences(self.program.dependencies),
            "native": native_json(self.fabric),
            "box": box_json(envelope.box),
            "makespan_ns": number(self.longest.time_ns),
            "measured_ns": self.program.measured_ns,
            "replay_ns": self.replay.time_ns,
            "replay_apart": [
                dict(zip(("gpu", "replay_ns", "measured_ns"), row, strict=True)) for row in self.replay.apart
            ],
            "dependencies": self._dependencies(),
            "contention": self.contention,
            "breakdown": self._breakdown(),
            "tolerance": tolerance_json(envelope, self.fabric, TOLERANCE_PERCENT),
            "envelopes": envelopes_json(envelope, self.fabric),
            "attribution": self._attribution(),
            "joint": joint_json(envelope),
            "signatures": self._signatures(),
            "certificate": _merged(certificates).as_json(),
            "assumptions": self._assumptions(),
            "gaps": [gap.as_json() for gap in sorted([*self.job.gaps, *self._own_gaps()])],
        }

    def _attribution(self) -> dict[str, Any]:
        """Who pays on every piece of T(L) and T(G) through the native point."""
        attribution = Attribution(self.job)
        return {
            "latency": attribution.along_latency(self.envelope.along_latency(self.gap)),
            "gap": attribution.along_gap(self.envelope.along_gap(self.latency)),
        }

    def _dependencies(self) -> dict[str, Any]:
        """Which reading of the trace was used, and the native time by each that is possible."""
        times = {self.program.dependencies: number(self.longest.time_ns)}
        for other in DEPENDENCIES:
            if other not in times and (other == "streams" or records_events(self.trace)):
                graph = self.job.composed(other).graph
                native = Evaluator(graph, self.fabric.theta()).at(point(self.latency, self.gap))
                times[other] = number(native.time_ns)
        return {"used": self.program.dependencies, "makespan_ns": times}

    def _contention(self) -> dict[str, Any]:
        """How many collectives overlap another one on a NIC, and the native time with NICs shared and not."""
        other = self.job.composed(contention=not self.job.contention)
        native = Evaluator(other.graph, self.fabric.theta()).at(point(self.latency, self.gap))
        times = {self.job.contention: self.longest.time_ns, not self.job.contention: native.time_ns}
        return {
            "used": self.job.contention,
            "instances": max(self.program.sharing, other.sharing),
            "makespan_ns": {"shared": number(times[True]), "not_shared": number(times[False])},
        }

    def _breakdown(self) -> dict[str, Any]:
        """Where the time of the critical path at the native point goes, in ns."""
        theta = self.fabric.theta()
        inside = _NOTHING
        between = elsewhere = 0
        for owner, vector in self.path:
            if owner < 0:
                between += vector[0]
            elif owner in self.job.changed:
                elsewhere += vector[0]
            else:
                inside = [a + b for a, b in zip(inside, vector, strict=True)]
        cost = {c: n * theta[c] for c, n in zip(COMPONENTS, inside, strict=True)}
        return {
            "compute_and_idle_ns": between,
            "reduce_copy_ns": number(cost["calc_ns"]),
            "latency_ns": number(cost["messages"]),
            "bandwidth_ns": number(cost["bytes"]),
            "overhead_ns": number(cost["overheads"] + cost["gaps"]),
            "scale_up_ns": number(cost["up_messages"] + cost["up_bytes"]),
            **({"other_fabrics_ns": elsewhere} if self.what_if.fabrics else {}),
        }

    def _signatures(self) -> list[dict[str, Any]]:
        theta = self.fabric.theta()
        on_path: Counter[str] = Counter()
        totals: dict[str, list[int]] = {}
        for owner, vector in self.path:
            if owner >= 0:
                key = self.signed[owner].signature.key()
                on_path[key] += 1
                totals[key] = [a + b for a, b in zip(totals.get(key, _NOTHING), vector, strict=True)]
        rows = []
        counts = Counter(s.signature.key() for s in self.signed)
        first = {s.signature.key(): s for s in reversed(self.signed)}
        instances: dict[str, list[int]] = {}
        for place, s in enumerate(self.signed):
            instances.setdefault(s.signature.key(), []).append(place)
        for key, s in first.items():
            time = max(max(times_ns(self.job.collectives[place], theta)) for place in self._distinct(instances[key]))
            total = totals.get(key, _NOTHING)
            path_ns = sum((n * theta[c] for c, n in zip(COMPONENTS, total, strict=True)), Fraction(0))
            rows.append(
                {
                    **signature_json(s),
                    "method": self.envelopes[key].method,
                    "rank_classes": self.envelopes[key].by_class.count,
                    "count": counts[key],
                    "on_path": on_path[key],
                    "time_ns": number(time),
                    "measured_ns": median(self.program.durations_ns[instances[key]].tolist()),
                    "arrival_skew_ns": median(self.program.skews_ns[instances[key]].tolist()),
                    "path_ns": number(path_ns),
                    "share": float(path_ns / self.longest.time_ns),
                    "messages": total[MESSAGES],
                    "bytes": total[BYTES],
                }
            )
        return sorted(rows, key=lambda row: (-row["path_ns"], row["key"]))

    def _distinct(self, places: Sequence[int]) -> list[int]:
        """One of *places* for each way in which their instances pass time on."""
        return list({id(self.job.collectives[place]): place for place in places}.values())

    def _own_gaps(self) -> list[Gap]:
        gaps = []
        widths = [e.bracket_width for e in self.envelopes.values() if e.method == "bracket"]
        if widths:
            gaps.append(
                Gap(
                    "bracket",
                    len(widths),
                    "signatures with unequal chunks on too many ranks to expand: times are upper bounds, at most "
                    f"{100 * max(widths):.2g} % above the lower ones",
                )
            )
        count, times = self.contention["instances"], self.contention["makespan_ns"]
        if count and not self.job.contention:
            more = 100 * (times["shared"] / times["not_shared"] - 1)
            gaps.append(Gap("contention", count, _NOT_SHARED.format(f"{more:.2g}")))
        if not any(s.signature.leaves_node for s in self.signed):
            gaps.append(Gap("one-node", len(self.signed), _ONE_NODE))
        return gaps

    def _assumptions(self) -> list[str]:
        sources = sorted(
            {
                f"{field}: {source}"
                for s in self.signed
                for field, source in s.sources
                if not source.startswith("recorded")
            }
        )
        return [
            *model_assumptions(self.fabric),
            load_costs(self.fabric.reduce_copy).assumption,
            _CREDITS[self.fabric.credits],
            _COMPOSITION[self.program.dependencies],
            self._held_together(),
            *([_SHARED] if self.job.contention else []),
            *(_PERSPECTIVE.format(gpu) for gpu in [self.job.gpu] if gpu is not None),
            *(f"what if: {sentence}" for sentence in self.what_if.sentences(self.program.dependencies)),
            f"placement: {self.trace.placement}",
            *sources,
            *sorted({s.signature.assumption for s in self.signed} - {""}),
        ]

    def _held_together(self) -> str:
        """Which ranks of a collective wait for each other until the last one arrives or ends."""
        counts = Counter(collective.count for collective in self.job.collectives)
        several = sum(counts.values()) - counts[1]
        if not several:
            return "collectives: each starts when its last rank arrives and ends on all ranks at once"
        width = max(collective.width for collective in self.job.collectives)
        alike = f"at most {100 * width:.2g} % of the collective apart" if width else "alike"
        return (
            f"collectives: {several} of {sum(counts.values())} by classes of ranks that start and end {alike}: each "
            "class starts when its last rank arrives and ends at once; in the others, all ranks do"
        )


_ONE_NODE = (
    "collectives whose ranks all share a node: no message uses the scale-out network, so T does not depend on L or G; "
    "ask about another placement with --gpus-per-node"
)

_NOT_SHARED = (
    "collectives that overlap another one on a NIC, which each has to itself here; sharing it makes T at the native "
    "point at least {} % longer: --contention"
)

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

_PORT_RULES = {
    "port": "all sends of one NIC queue behind each other in issue order",
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


def signature_json(signed: SignedInstance) -> dict[str, Any]:
    """Return a signature and the sources of its fields as plain values."""
    signature = signed.signature
    return {
        "key": signature.key(),
        "type": signature.collective,
        "algorithm": signature.algorithm,
        "protocol": signature.protocol.value,
        "size_bytes": signature.size_bytes,
        "ranks": signature.ranks,
        "nodes": len(set(signature.nodes)),
        "channels": signature.channels,
        "sources": dict(signed.sources),
    }


def native_json(fabric: Fabric) -> dict[str, Any]:
    """Return the native operating point."""
    return {
        "latency_ns": number(fabric.latency_ns),
        "gap_ns_per_byte": number(fabric.gap_ns_per_byte),
        "bandwidth_gbps": gbps(fabric.gap_ns_per_byte),
    }


def box_json(box: Box) -> dict[str, Any]:
    """Return the range of parameters an envelope is exact on."""
    return {name: number(value) for name, value in box.__dict__.items()}


def envelopes_json(envelope: Envelope, fabric: Fabric) -> dict[str, Any]:
    """Pieces of T(L) and T(G) through the native point."""

    def row(piece: Piece, unit: str, slope: str) -> dict[str, Any]:
        return {
            f"from_{unit}": number(piece.start),
            f"to_{unit}": number(piece.stop),
            "constant_ns": number(piece.constant_ns),
            slope: piece.slope,
        }

    return {
        "latency": [row(p, "ns", "messages") for p in envelope.along_latency(fabric.gap_ns_per_byte)],
        "gap": [row(p, "ns_per_byte", "bytes") for p in envelope.along_gap(fabric.latency_ns)],
    }


def joint_json(envelope: Envelope) -> list[dict[str, Any]]:
    """Return all planes of T(L, G), sorted."""
    return [
        {"constant_ns": number(c), "messages": m, "bytes": b}
        for c, m, b in sorted(envelope.planes(), key=lambda plane: (plane[1], plane[2], plane[0]))
    ]


def tolerance_json(envelope: Envelope, fabric: Fabric, percent: int) -> dict[str, Any]:
    """Largest L and smallest bandwidth that keep T within *percent* of the native time; null beyond the box."""
    latency, gap = fabric.latency_ns, fabric.gap_ns_per_byte
    limit = envelope.time_ns(latency, gap) * (1 + Fraction(percent, 100))
    most_latency = furthest(envelope.along_latency(gap), limit)
    most_gap = furthest(envelope.along_gap(latency), limit)
    return {
        "percent": percent,
        "latency_ns": None if most_latency is None else number(most_latency),
        "gap_ns_per_byte": None if most_gap is None else number(most_gap),
        "bandwidth_gbps": None if most_gap is None else gbps(most_gap),
    }


def _merged(certificates: Sequence[Certificate | None]) -> Certificate:
    """One certificate for all graphs of an analysis."""
    present = [c for c in certificates if c is not None]
    skipped = [c for c in present if c.status != "optimal"]
    status = "optimal" if not skipped else f"partial: {len(skipped)} of {len(present)} graphs {skipped[0].status}"
    return Certificate(
        solver=present[0].solver,
        status=status,
        points=sum(c.points for c in present),
        points_of_interest=sum(c.points_of_interest for c in present),
        pivots=sum(c.pivots for c in present),
        largest_relative_difference=max(c.largest_relative_difference for c in present),
    )


_DOMINANT = {
    "compute_and_idle_ns": "compute and idle time",
    "reduce_copy_ns": "reduce and copy loops inside collectives",
    "latency_ns": "scale-out latency",
    "bandwidth_ns": "scale-out bandwidth",
    "overhead_ns": "message overheads",
    "scale_up_ns": "scale-up transfers",
    "other_fabrics_ns": "collectives on fabrics of their own",
}


def headline(summary: dict[str, Any]) -> str:
    """The answer in one sentence: native point, time there, what dominates, tolerances."""
    native, tolerance = summary["native"], summary["tolerance"]
    largest, amount = max(summary["breakdown"].items(), key=lambda item: item[1])
    share = 100 * amount / summary["makespan_ns"] if summary["makespan_ns"] else 0.0
    box = summary["box"]
    if tolerance["latency_ns"] is None:
        latency = f"any L up to {format_time(box['latency_to_ns'])}"
    else:
        latency = f"L up to {format_time(tolerance['latency_ns'])}"
    if tolerance["bandwidth_gbps"] is None:
        bandwidth = f"any bandwidth down to {format_bandwidth(Fraction(box['gap_to_ns_per_byte']))}"
    else:
        bandwidth = f"bandwidth down to {format_bandwidth(Fraction(tolerance['gap_ns_per_byte']))}"
    return (
        f"At L = {format_time(native['latency_ns'])} and {format_bandwidth(Fraction(native['gap_ns_per_byte']))} "
        f"the recorded schedule "
        f"takes {format_time(summary['makespan_ns'])}; {_DOMINANT[largest]}: {share:.0f} % of it; it stays within "
        f"+{tolerance['percent']} % for {latency}, or for {bandwidth}."
    )
