"""The summary of an analysis: everything a report or a later verb wants to know, as plain values.

It depends only on content, so equal inputs give equal bytes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from fractions import Fraction
from statistics import median
from typing import Any

import atlas_lp
from atlas_lp.analysis.as_json import box_json, envelopes_json, joint_json, native_json, signature_json, tolerance_json
from atlas_lp.analysis.assumptions import differs, job_assumptions
from atlas_lp.analysis.attribution import Attribution
from atlas_lp.collectives.rank_classes import times_ns
from atlas_lp.goal.event_graph import COMPONENTS
from atlas_lp.program.dependencies.readings import possible_readings
from atlas_lp.program.job import Job
from atlas_lp.schemas import SUMMARY
from atlas_lp.signatures.algorithms.expand import MODEL_VERSION
from atlas_lp.solver.axis import AXES
from atlas_lp.solver.envelope import Envelope
from atlas_lp.solver.highs import Certificate
from atlas_lp.solver.longest_path import BYTES, MESSAGES
from atlas_lp.solver.port_order import TOLERATED
from atlas_lp.traces.trace import Gap
from atlas_lp.units import number

TOLERANCE_PERCENT = 5

_NOTHING = [0] * len(COMPONENTS)

_ONE_NODE = (
    "collectives whose ranks all share a node: no message uses the scale-out network, so T does not depend on L or G; "
    "ask about another placement with --gpus-per-node"
)

_STOPPED = "graphs have more planes than were looked for: T may lie up to {} % above what is said; see --tolerance"

_NOT_SHARED = (
    "collectives that overlap another one on a NIC, which each has to itself here; sharing it makes T at the native "
    "point at least {} % longer: --contention"
)


class Summary:
    """Collects the plain values of a summary."""

    def __init__(self, job: Job, envelope: Envelope) -> None:
        self.job, self.envelope = job, envelope
        self.trace, self.fabric, self.signed = job.trace, job.fabric, job.signed
        self.envelopes, self.what_if, self.longest = job.envelopes, job.what_if, job.native
        self.contention = self._contention()
        self.replay = job.replay()
        self.path = job.program.path(self.longest)

    def build(self) -> dict[str, Any]:
        """Return all values; see ``docs/model.md`` for what they mean."""
        trace, envelope = self.trace, self.envelope
        certificates = [e.certificate for e in (*self.envelopes.values(), envelope)]
        return {
            **SUMMARY.head(),
            "tool": {"name": "atlas-lp", "version": atlas_lp.__version__, "model": MODEL_VERSION},
            "trace": {
                "ranks": trace.gpus.num_rows,
                "nodes": trace.nodes,
                "processes": len(set(zip(*(trace.gpus[c].to_pylist() for c in ("host", "process")), strict=True))),
                "communicators": trace.communicators.num_rows,
                "operations": trace.operations.num_rows,
                "instances": len(self.signed.instances),
                "nccl": trace.nccl_version.value,
                "placement": trace.placement,
                "synthetic": trace.synthetic,
                "perspective": "all ranks" if self.signed.gpu is None else f"GPU {self.signed.gpu}",
            },
            "fabric": {
                "name": self.fabric.name,
                **self.fabric.fixed(),
                "gpus_per_nic": self.fabric.gpus_per_nic,
            },
            "what_if": self.what_if.sentences(self.job.dependencies),
            "native": native_json(self.fabric),
            "box": box_json(envelope.box),
            "makespan_ns": number(self.longest.time_ns),
            "measured_ns": self.signed.timeline.measured_ns,
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
            "assumptions": job_assumptions(self.job),
            "gaps": [gap.as_json() for gap in sorted([*self.job.gaps, *self._own_gaps()])],
        }

    def _attribution(self) -> dict[str, Any]:
        """Who pays on every piece of T(L) and T(G) through the native point."""
        attribution = Attribution(self.job)
        native = self.fabric.native
        return {axis.name: attribution.along(axis, self.envelope.along(axis, axis.other.of(native))) for axis in AXES}

    def _dependencies(self) -> dict[str, Any]:
        """Which reading of the trace was used, and the native time by each that is possible."""
        possible = possible_readings(self.signed)
        times = {reading: number(self.job.native_ns(reading)) for reading in {self.job.dependencies, *possible}}
        return {"used": self.job.dependencies, "makespan_ns": times}

    def _contention(self) -> dict[str, Any]:
        """How many collectives overlap another one on a NIC, and the native time with NICs shared and not."""
        job = self.job
        return {
            "used": job.contention,
            "instances": job.composed(contention=True).sharing,
            "makespan_ns": {
                "shared": number(job.native_ns(contention=True)),
                "not_shared": number(job.native_ns(contention=False)),
            },
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
                key = self.signed.keys[owner]
                on_path[key] += 1
                totals[key] = [a + b for a, b in zip(totals.get(key, _NOTHING), vector, strict=True)]
        rows = []
        first = dict(zip(reversed(self.signed.keys), reversed(self.signed.instances), strict=True))
        instances: dict[str, list[int]] = {}
        for place, key in enumerate(self.signed.keys):
            instances.setdefault(key, []).append(place)
        durations_ns, skews_ns = self.signed.timeline.durations_ns()
        for key, s in first.items():
            distinct = dict.fromkeys(self.job.collectives[place] for place in instances[key])
            time = max(max(times_ns(collective, theta)) for collective in distinct)
            total = totals.get(key, _NOTHING)
            path_ns = sum((n * theta[c] for c, n in zip(COMPONENTS, total, strict=True)), Fraction(0))
            rows.append(
                {
                    **signature_json(s),
                    "method": self.envelopes[key].method,
                    "rank_classes": self.envelopes[key].by_class.count,
                    "count": len(instances[key]),
                    "on_path": on_path[key],
                    "time_ns": number(time),
                    "measured_ns": median(durations_ns[instances[key]].tolist()),
                    "arrival_skew_ns": median(skews_ns[instances[key]].tolist()),
                    "path_ns": number(path_ns),
                    "share": float(path_ns / self.longest.time_ns),
                    "messages": total[MESSAGES],
                    "bytes": total[BYTES],
                }
            )
        return sorted(rows, key=lambda row: (-row["path_ns"], row["key"]))

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
        early = [e.tolerance_reached for e in (self.envelope, *self.envelopes.values()) if e.tolerance_reached]
        if early:
            gaps.append(Gap("stopped-early", len(early), _STOPPED.format(f"{100 * max(early):.2g}")))
        orders = [e.order for e in self.envelopes.values() if e.order is not None and e.order.difference > TOLERATED]
        if orders:
            worst = max(orders, key=lambda order: (order.difference, order.worst_at))
            gaps.append(Gap("port-order", len(orders), f"signatures whose {differs(worst)}"))
        count, times = self.contention["instances"], self.contention["makespan_ns"]
        if count and not self.job.contention:
            more = 100 * (times["shared"] / times["not_shared"] - 1)
            gaps.append(Gap("contention", count, _NOT_SHARED.format(f"{more:.2g}")))
        if not any(s.signature.leaves_node for s in self.signed.instances):
            gaps.append(Gap("one-node", len(self.signed.instances), _ONE_NODE))
        return gaps


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
