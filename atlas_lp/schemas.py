"""Every JSON document atlas-lp writes: its name, its version and what changed, and what each key means.

Writers begin a document with ``**DOCUMENT.head()``.  ``docs/json.md`` is generated from here, and a test holds the keys
to what is really written.  A key is a path: ``signatures[].key`` is a key of every item of a list, ``sources.*`` stands
for names that depend on the input.  A path that ends in ``?`` may be missing where it would stand, with all
that is below it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Document:
    """One kind of JSON document: ``name`` and ``version`` stand in it, ``keys`` says what everything else means."""

    name: str
    version: int
    purpose: str
    written_by: str
    history: Mapping[int, str]
    keys: Mapping[str, str] = field(repr=False)

    def head(self) -> dict[str, str | int]:
        """Return the first two keys, which tell a reader what the rest means."""
        return {"schema": self.name, "version": self.version}

    def described(self) -> dict[str, str]:
        """Return the words of every key, those of :meth:`head` first, without the mark of keys that may be missing."""
        head = {"schema": "Name of the document.", "version": "Version of the document, see its history."}
        return head | {path.removesuffix("?"): words for path, words in self.keys.items()}

    def optional(self) -> set[str]:
        """Return the keys that may be missing."""
        return {path[:-1] for path in self.keys if path.endswith("?")}


def _under(prefix: str, keys: Mapping[str, str]) -> dict[str, str]:
    """Return *keys* as keys of *prefix*."""
    return {f"{prefix}.{path}": words for path, words in keys.items()}


def _optional(keys: Mapping[str, str], also: str = "") -> dict[str, str]:
    """Return *keys*, those of the outermost level, and those called *also*, marked as ones that may be missing."""
    return {
        f"{path.removesuffix('?')}?" if path.rpartition(".")[2] == also or "." not in path else path: words
        for path, words in keys.items()
    }


_FIRST = {1: "0.1.0, first"}
_SYNTHETIC = "True for a trace that no cluster was measured for, such as the demo."
_PLACEMENT = "Where the nodes of GPUs come from: `recorded`, or the option that placed them."
_WHAT_IF = "Changes of the recorded job that were asked for, as sentences; empty without."
_ASSUMPTIONS = "What the answer assumes, as sentences."
_SIGNATURE_KEY = "Key of the signature: SHA-256 of everything that decides its messages, in hexadecimal."

_POINT = {"latency_ns": "L in ns.", "gap_ns_per_byte": "G in ns per byte."}
_NATIVE = {
    "native": "The operating point that tolerances are measured from.",
    "native.latency_ns": "L in ns.",
    "native.gap_ns_per_byte": "G in ns per byte.",
    "native.bandwidth_gbps": "8/G: bandwidth of one NIC in Gbit/s.",
}
_BOX = {
    "box": "The range of L and G on which the planes are exact.",
    "box.latency_from_ns": "Smallest L in ns.",
    "box.latency_to_ns": "Largest L in ns.",
    "box.gap_from_ns_per_byte": "Smallest G in ns per byte.",
    "box.gap_to_ns_per_byte": "Largest G in ns per byte.",
}
_TOLERANCE = {
    "tolerance": "How far L may rise, or bandwidth fall, before T is `percent` above its native value.",
    "tolerance.percent": "The percentage asked for.",
    "tolerance.latency_ns": "Largest L in ns at native bandwidth; null beyond the box.",
    "tolerance.gap_ns_per_byte": "Largest G in ns per byte at native latency; null beyond the box.",
    "tolerance.bandwidth_gbps": "The same as a bandwidth in Gbit/s; null beyond the box.",
}
_LATENCY_PIECES = {
    "from_ns": "Where the piece begins: L in ns.",
    "to_ns": "Where it ends: L in ns.",
    "constant_ns": "T of the line of this piece at L = 0, in ns.",
    "messages": "Slope dT/dL: scale-out messages on the critical path.",
}
_GAP_PIECES = {
    "from_ns_per_byte": "Where the piece begins: G in ns per byte.",
    "to_ns_per_byte": "Where it ends: G in ns per byte.",
    "constant_ns": "T of the line of this piece at G = 0, in ns.",
    "bytes": "Slope dT/dG: bytes of scale-out bodies on the critical path.",
}
_ENVELOPES = {
    "envelopes": "The pieces of T through the native point.",
    "envelopes.latency": "Pieces of T(L) at native bandwidth, in rising L.",
    **_under("envelopes.latency[]", _LATENCY_PIECES),
    "envelopes.gap": "Pieces of T(G) at native latency, in rising G.",
    **_under("envelopes.gap[]", _GAP_PIECES),
    "joint": "All planes of T(L, G) = max over planes of constant + messages L + bytes G.",
    "joint[].constant_ns": "Time of the path that is neither latency nor bandwidth, in ns.",
    "joint[].messages": "Scale-out messages on the path.",
    "joint[].bytes": "Bytes of their bodies, (m-1) for each message of m bytes.",
}
_SOLVER_CHECK = {
    "certificate": "The solver check: HiGHS asked again from the basis of the critical path.",
    "certificate.solver": "Name and version of the LP solver.",
    "certificate.status": "`optimal`: HiGHS confirmed every point it was asked; else what was not asked, and why.",
    "certificate.points": "Points (L, G) that HiGHS was asked.",
    "certificate.points_of_interest": "Points there are: native, breakpoints and between them.",
    "certificate.pivots": "Simplex pivots HiGHS needed: 0 where the basis was optimal.",
    "certificate.largest_relative_difference": "Largest |HiGHS - exact| / exact over the points asked.",
}
_SIGNATURE = {
    "key": _SIGNATURE_KEY,
    "type": "Collective, as NCCL names it.",
    "algorithm": "NCCL's algorithm.",
    "protocol": "NCCL's protocol: `simple`, `ll` or `ll128`.",
    "size_bytes": "Payload in bytes, as NCCL counts it for this collective.",
    "ranks": "Ranks of the communicator.",
    "nodes": "Nodes they are on.",
    "channels": "Channels.",
    "sources": "Where the fields that NCCL does not always record come from, each as a sentence.",
    "sources.*": "`recorded`, `inferred` or `assumed`, and from what.",
}
_GAPS = {
    "gaps": "What the trace lacked or what was left out, most of it with a way to fix it.",
    "gaps[].code": "Kind of gap.",
    "gaps[].count": "How many operations or ranks it concerns.",
    "gaps[].message": "A sentence for people.",
}


def _payers(slope: str) -> dict[str, str]:
    """Return who carries a slope: signatures, communicators, streams, phases and pairs of GPUs."""
    keys: dict[str, str] = {}
    for name, one in (("signatures", "signature"), ("communicators", "communicator"), ("streams", "CUDA stream")):
        keys[name] = f"The slope by {one}, largest first."
        keys[f"{name}[].key"] = f"The {one}."
        keys[f"{name}[].{slope}"] = f"Its {slope}."
    return keys | _hops(slope)


def _hops(slope: str) -> dict[str, str]:
    """Return what the messages inside collectives add: phases and pairs of GPUs."""
    return {
        "phases": f"The {slope} by phase, largest first.",
        "phases[].key": "`reduce`, `copy`, or `not looked into`.",
        f"phases[].{slope}": f"Its {slope}.",
        "pairs": f"The ten pairs of GPUs with most {slope}.",
        "pairs[].from_gpu": "GPU that sends; null where it was not recorded.",
        "pairs[].to_gpu": "GPU that receives; null where it was not recorded.",
        f"pairs[].{slope}": f"Its {slope}.",
        "other_pairs": "All other pairs.",
        "other_pairs.pairs": "How many.",
        f"other_pairs.{slope}": f"Their {slope}.",
    }


_CHANGES = {
    "entered": "Instances that enter the critical path at the start of the piece.",
    "entered[].key": "Signature.",
    "entered[].instances": "How many more instances of it.",
    "left": "Instances that leave it there.",
    "left[].key": "Signature.",
    "left[].instances": "How many fewer instances of it.",
}

SUMMARY = Document(
    name="atlas-lp/summary",
    version=1,
    purpose="The answer of an analysis with everything a report says; equal inputs give equal bytes.",
    written_by="`atlas-lp analyze -o DIR` (as `summary.json`), `analyze --json`",
    history=_FIRST,
    keys={
        "tool": "What wrote it.",
        "tool.name": "`atlas-lp`.",
        "tool.version": "Version of the package.",
        "tool.model": "Version of the schedules; it rises when the graph of any signature changes.",
        "trace": "What was recorded.",
        "trace.ranks": "GPUs.",
        "trace.nodes": "Nodes.",
        "trace.processes": "Processes.",
        "trace.communicators": "Communicators.",
        "trace.operations": "NCCL calls, each rank's counted.",
        "trace.instances": "Collectives: one for the calls of all ranks that belong together.",
        "trace.nccl": "Version of NCCL; empty where unknown.",
        "trace.placement": _PLACEMENT,
        "trace.synthetic": _SYNTHETIC,
        "trace.perspective": "`all ranks`, or the GPU whose view was asked for.",
        "fabric": "The parameters that are not variables of the answer.",
        "fabric.name": "Name of the preset or file.",
        "fabric.port_rule": "`port`, `destination` or `none`: which messages queue before they enter the network.",
        "fabric.ingress": "`true` when messages queue at the receiving NIC, too.",
        "fabric.order_at": "L in ns, G in ns per byte: ports serve messages as they become ready there.",
        "fabric.credits": "`local`, `acknowledged` or `none`: what a full FIFO costs.",
        "fabric.reduce_copy": "Digest of the table of reduce and copy times.",
        "fabric.overhead_ns": "o in ns, as a decimal or a ratio of integers.",
        "fabric.message_gap_ns": "g in ns, as a decimal or a ratio of integers.",
        "fabric.up_latency_ns": "L of the scale-up network in ns, as a decimal or a ratio of integers.",
        "fabric.up_gap_ns_per_byte": "G of the scale-up network in ns per byte, as a decimal or a ratio of integers.",
        "fabric.gpus_per_nic": "Consecutive GPUs of a node that share a NIC.",
        "what_if": _WHAT_IF,
        **_NATIVE,
        **_BOX,
        "makespan_ns": "T at the native point, in ns.",
        "measured_ns": "Measured span of the job, in ns.",
        "replay_ns": "T of the program with every collective at its measured duration, in ns.",
        "replay_apart": "GPUs that the replay ends elsewhere than recorded.",
        "replay_apart[].gpu": "The GPU.",
        "replay_apart[].replay_ns": "When the replay ends on it, in ns.",
        "replay_apart[].measured_ns": "When it ended, in ns.",
        "dependencies": "Which reading of the order of work was used.",
        "dependencies.used": "`events` or `streams`.",
        "dependencies.makespan_ns": "T at the native point by every reading that the trace allows, in ns.",
        "dependencies.makespan_ns.streams": "By the order of streams.",
        "dependencies.makespan_ns.events?": "By recorded events and host calls, where they were recorded.",
        "contention": "NIC contention between collectives.",
        "contention.used": "Whether it is part of the answer.",
        "contention.instances": "Collectives that overlap another one on a NIC.",
        "contention.makespan_ns": "T at the native point both ways, in ns.",
        "contention.makespan_ns.shared": "With NICs shared.",
        "contention.makespan_ns.not_shared": "With NICs that each collective has to itself.",
        "breakdown": "Where the time of the critical path at the native point goes.",
        "breakdown.compute_and_idle_ns": "Measured time between collectives, in ns.",
        "breakdown.reduce_copy_ns": "Reduce and copy loops inside collectives, in ns.",
        "breakdown.latency_ns": "L times messages, in ns.",
        "breakdown.bandwidth_ns": "G times bytes, in ns.",
        "breakdown.overhead_ns": "o and g of messages, in ns.",
        "breakdown.scale_up_ns": "Transfers inside nodes, in ns.",
        "breakdown.other_fabrics_ns?": "Collectives on fabrics of their own, in ns; with `--fabric-of` only.",
        **_TOLERANCE,
        **_ENVELOPES,
        "attribution": "Who carries the slope of every piece.",
        "attribution.latency": "Of T(L): one row per piece of `envelopes.latency`.",
        **_under(
            "attribution.latency[]",
            {k: v for k, v in _LATENCY_PIECES.items() if k != "constant_ns"} | _payers("messages") | _CHANGES,
        ),
        "attribution.gap": "Of T(G): one row per piece of `envelopes.gap`.",
        **_under(
            "attribution.gap[]",
            {k: v for k, v in _GAP_PIECES.items() if k != "constant_ns"} | _payers("bytes") | _CHANGES,
        ),
        "signatures": "One row per signature, the one with most time on the critical path first.",
        **_under("signatures[]", _SIGNATURE),
        "signatures[].method": "How it was solved: `full`, `quotient` (one rank per class, exact) or `bracket`.",
        "signatures[].rank_classes": "Classes of ranks that pass time on alike.",
        "signatures[].count": "Instances.",
        "signatures[].on_path": "Instances on the critical path at the native point.",
        "signatures[].time_ns": "Time of one instance at the native point, last arrival to last end, in ns.",
        "signatures[].measured_ns": "Median of the measured times, last arrival to end, in ns.",
        "signatures[].arrival_skew_ns": "Median over instances of the time between first and last arrival, in ns.",
        "signatures[].path_ns": "Time on the critical path at the native point, in ns.",
        "signatures[].share": "The same over T.",
        "signatures[].messages": "Scale-out messages on the critical path.",
        "signatures[].bytes": "Bytes of their bodies.",
        **_SOLVER_CHECK,
        "cache": "How this run was solved; not kept in `analysis.arrow`.",
        "cache.hits": "Envelopes found in the cache.",
        "cache.misses": "Envelopes solved.",
        "cache.refused?": "Why nothing that was solved could be kept.",
        "cache.unusable?": "Entries, the program's too, that were there and had to be solved again, by reason.",
        "cache.unusable.*": "How many were `damaged` or `of another version`.",
        "cache.swept?": "Files that writers left when they were killed, and that this run removed.",
        "assumptions": _ASSUMPTIONS,
        **_GAPS,
    },
)

_SWEEP_PIECE = {
    "from_latency_ns?": "Pieces of T(L): where one begins, L in ns.",
    "to_latency_ns?": "Pieces of T(L): where it ends, L in ns.",
    "from_gap_ns_per_byte?": "Pieces of T(G): where one begins, G in ns per byte.",
    "to_gap_ns_per_byte?": "Pieces of T(G): where it ends, G in ns per byte.",
    "from_time_ns?": "Pieces: T where it begins, in ns.",
    "to_time_ns?": "Pieces: T where it ends, in ns.",
    "messages?": "Pieces of T(L): slope dT/dL.",
    "bytes?": "Pieces of T(G): slope dT/dG.",
}
_SWEEP_POINT = {
    "latency_ns?": "Points of T(L): L in ns.",
    "gap_ns_per_byte?": "Points of T(G): G in ns per byte.",
    "time_ns?": "Points: T in ns.",
    "relative?": "Points: T over native T.",
    "messages_left?": "Points of T(L): dT/dL below the point.",
    "messages_right?": "Points of T(L): dT/dL above it; it differs at a breakpoint.",
    "bytes_left?": "Points of T(G): dT/dG below the point.",
    "bytes_right?": "Points of T(G): dT/dG above it; it differs at a breakpoint.",
}


SWEEP = Document(
    name="atlas-lp/sweep",
    version=1,
    purpose="T along latency or bandwidth, the other at its native value: points, or pieces and who carries them.",
    written_by="`atlas-lp sweep --json`",
    history=_FIRST,
    keys={
        "what_if": _WHAT_IF,
        **_NATIVE,
        "native.time_ns": "T there, in ns.",
        "kind": "`points` or `pieces`.",
        "rows": "One row per point or piece.",
        **_under(
            "rows[]",
            {
                **_SWEEP_POINT,
                **_SWEEP_PIECE,
                **_optional(_payers("messages"), "messages"),
                **_optional(_payers("bytes"), "bytes"),
                **_optional(_CHANGES),
            },
        ),
    },
)

PATH = Document(
    name="atlas-lp/path",
    version=1,
    purpose="The critical path at one point (L, G), step by step.",
    written_by="`atlas-lp path --json`",
    history=_FIRST,
    keys={
        "trace": "What was recorded.",
        "trace.synthetic": _SYNTHETIC,
        "what_if": _WHAT_IF,
        "dependencies": "Which reading of the order of work was used: `events` or `streams`.",
        **_POINT,
        "makespan_ns": "T there, in ns.",
        "steps": "Steps in order of time.",
        "steps[].begin_ns": "When it begins, in ns from the start of the program.",
        "steps[].duration_ns": "How long it takes, in ns.",
        "steps[].gpu?": "Measured time between collectives: of which GPU.",
        "steps[].type?": "A collective: its type.",
        "steps[].size_bytes?": "A collective: its payload in bytes.",
        "steps[].key?": "A collective: its signature.",
        "steps[].communicator?": "A collective: its communicator, in hexadecimal.",
        "steps[].ranks?": "A collective: its ranks.",
        "steps[].messages?": "A collective: its scale-out messages on the path.",
        "steps[].bytes?": "A collective: bytes of their bodies.",
        "hops": "Messages and bytes of the whole path, by phase and by pair of GPUs.",
        "hops.messages": "Messages.",
        "hops.messages.messages": "All of them: dT/dL.",
        **_under("hops.messages", _hops("messages")),
        "hops.bytes": "Bytes.",
        "hops.bytes.bytes": "All of them: dT/dG.",
        **_under("hops.bytes", _hops("bytes")),
    },
)

_GRAPH = {
    "graph": "The graph that was solved.",
    "graph.ranks": "Ranks of the schedule.",
    "graph.vertices": "Vertices; of a bracket those of the bound from above.",
    "graph.edges": "Edges; of a bracket those of the bound from above.",
    "graph.signature?": "From parameters: key of the signature.",
    "graph.channels?": "From parameters: channels.",
    "graph.method?": "From parameters: `full`, `quotient` (one rank per class, exact) or `bracket`.",
}

ENVELOPE = Document(
    name="atlas-lp/envelope",
    version=1,
    purpose="The exact envelope of one schedule.",
    written_by="`atlas-lp goal solve --json`, `goal expand --solve --json`",
    history=_FIRST,
    keys={
        **_GRAPH,
        **_NATIVE,
        **_BOX,
        "makespan_ns": "T at the native point, in ns.",
        **_TOLERANCE,
        "tolerance_reached": "How far T may lie above the planes, relative: 0 when exact.",
        **_ENVELOPES,
        **_SOLVER_CHECK,
        "assumptions": _ASSUMPTIONS,
    },
)

LP_SWEEP = Document(
    name="atlas-lp/lp-sweep",
    version=1,
    purpose="The paper's own way: a grid of warm-started linear programs, as a reference.",
    written_by="`atlas-lp goal solve --solver sweep --json`, `goal expand --solve --solver sweep --json`",
    history=_FIRST,
    keys={
        **_GRAPH,
        **_NATIVE,
        "points": "Grid points per parameter.",
        "pivots": "Simplex pivots of all of them.",
        "latency": "Pieces of T(L), breakpoints on the grid.",
        **_under("latency[]", _LATENCY_PIECES),
        "gap": "Pieces of T(G), breakpoints on the grid.",
        **_under("gap[]", _GAP_PIECES),
        "assumptions": _ASSUMPTIONS,
    },
)

ALONG = Document(
    name="atlas-lp/along",
    version=1,
    purpose="T along another parameter than L and G.",
    written_by="`atlas-lp goal solve --along NAME=LO:HI --json`, `goal expand --solve --along NAME=LO:HI --json`",
    history=_FIRST,
    keys={
        **_GRAPH,
        **_NATIVE,
        "component": "Which part of path vectors the parameter multiplies.",
        "pieces": "Pieces of T in rising order of the parameter.",
        "pieces[].from": "Where the piece begins: a factor, ns, or ns per byte.",
        "pieces[].to": "Where it ends.",
        "pieces[].from_time_ns": "T where it begins, in ns.",
        "pieces[].to_time_ns": "T where it ends, in ns.",
        "pieces[].slope": "dT over the parameter.",
        "assumptions": _ASSUMPTIONS,
    },
)

VALIDATION = Document(
    name="atlas-lp/validation",
    version=1,
    purpose="The time of one trace by several methods.",
    written_by="`atlas-lp validate --json`",
    history=_FIRST,
    keys={
        "points": "Points (L, G) that all methods were asked.",
        **_under("points[]", _POINT),
        "methods": "One row per method.",
        "methods[].name": "Its name.",
        "methods[].times_ns": "T at every point, in ns; empty where `note` says why.",
        "methods[].vertices": "Vertices of its graph.",
        "methods[].against_ns?": "Composite by the reading that this method was given, at every point, in ns.",
        "methods[].note": "Why it was left out, or what to know; empty without.",
        "measured_ns": "Measured span, in ns.",
        "dependencies": "Which reading of the order of work was used: `events` or `streams`.",
        "difference": "Largest relative difference of composite and monolithic; null where one is missing.",
        "tolerance": "What was allowed, relative; beyond it the exit code is 3.",
    },
)

INSPECTION = Document(
    name="atlas-lp/inspect",
    version=1,
    purpose="What a trace holds, what it lacks, what was inferred; or what was counted in one that analyses refuse.",
    written_by="`atlas-lp inspect --json`",
    history=_FIRST,
    keys={
        "trace?": "What was recorded. This and all keys down to `gaps` are missing for a trace that analyses refuse.",
        "trace.files": "Names of the files read.",
        "trace.ranks": "GPUs.",
        "trace.nodes": "Nodes.",
        "trace.processes": "Processes.",
        "trace.placement": _PLACEMENT,
        "trace.synthetic": _SYNTHETIC,
        "trace.nccl": "Version of NCCL.",
        "trace.nccl.version": "The version; empty where unknown.",
        "trace.nccl.source": "Where it comes from.",
        "communicators?": "Communicators.",
        "communicators[].id": "Its id, in hexadecimal.",
        "communicators[].ranks": "Its ranks.",
        "communicators[].generation": "0, or how many communicators had the same id before.",
        "clocks?": "Clocks of hosts; empty for one node.",
        "clocks[].host": "The host.",
        "clocks[].offset_ns": "How far its clock is ahead, in ns: a diagnostic, no result rests on it.",
        "iterations?": "Iterations that were selected.",
        "operations?": "Operations of all ranks, by type and size.",
        "operations[].type": "Type.",
        "operations[].size_bytes": "Payload in bytes.",
        "operations[].count": "How many.",
        "signatures?": "One row per signature.",
        **_under("signatures[]", _SIGNATURE),
        "signatures[].count": "Instances.",
        **_optional(_GAPS),
        "files?": "Refused: names of the files counted.",
        "nsys?": "Refused: versions of Nsight Systems that wrote them.",
        "processes?": "Refused: what was counted, per process.",
        "processes[].host": "The host.",
        "processes[].pid": "The process id.",
        "processes[].calls": "NCCL calls by name.",
        "processes[].calls.*": "How many.",
        "processes[].groups": "Launch groups.",
        "processes[].kernels": "NCCL kernels by name.",
        "processes[].kernels.*": "How many.",
        "processes[].devices": "Devices they ran on.",
        "processes[].kernels_without_launch": "Kernels whose launch was not recorded.",
        "refused?": "Refused: what is missing and how to fix it.",
    },
)

CACHE = Document(
    name="atlas-lp/cache",
    version=1,
    purpose="What the cache of solved collectives and programs holds.",
    written_by="`atlas-lp cache ls --json`",
    history=_FIRST,
    keys={
        "folder": "Its folder.",
        "entries": "One row per entry, by key.",
        "entries[].key": "Key of the entry: SHA-256 of everything that decides what it holds.",
        "entries[].file_bytes": "Size of its file in bytes.",
        "entries[].planes": "Planes in it.",
        "entries[].damaged?": "True for a file that cannot be read; the keys below are missing then.",
        "entries[].signature?": "A collective: its signature.",
        **_under(
            "entries[]",
            _optional({k: v for k, v in _SIGNATURE.items() if k != "key" and not k.startswith("sources")}),
        ),
    },
)

STATS = Document(
    name="atlas-lp/stats",
    version=1,
    purpose="Seconds per stage and peak memory of one run; on stderr, never part of a result.",
    written_by="`--stats` of every verb that has it",
    history=_FIRST,
    keys={
        "seconds": "Seconds by stage.",
        "seconds.*": "Seconds.",
        "peak_memory_mb": "Most memory of the process, in MiB.",
    },
)


def _file(name: str, version: int, purpose: str, history: Mapping[int, str]) -> Document:
    return Document(name, version, purpose, "atlas-lp, for itself", history, {})


ANALYSIS_FILE = _file(
    "atlas-lp/analysis",
    3,
    "`analysis.arrow`: the planes of an analysis and its summary.",
    _FIRST | {2: "the envelope as entries of the cache have it", 3: "a checksum"},
)
CACHE_ENTRY = _file(
    "atlas-lp/cache-entry",
    4,
    "An entry of the cache: the planes of one solved collective or program.",
    _FIRST
    | {
        2: "0.1.0, planes between classes of ranks, what each rank sends",
        3: "what is said of the envelope is kept together, as in an analysis",
        4: "a checksum",
    },
)
PACKED_TRACE = _file(
    "atlas-lp/trace",
    2,
    "What `atlas-lp pack` writes: a trace as one small file; version 1 is read, too.",
    _FIRST | {2: "a checksum"},
)

DOCUMENTS = (SUMMARY, SWEEP, PATH, ENVELOPE, LP_SWEEP, ALONG, VALIDATION, INSPECTION, CACHE, STATS)
"""All documents for people and programs, in the order of ``docs/json.md``."""

FILES = (ANALYSIS_FILE, CACHE_ENTRY, PACKED_TRACE)
"""Binary files with a document inside that only atlas-lp reads: another version refuses the file or makes it anew."""
