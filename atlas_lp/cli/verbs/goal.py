"""``goal``: schedules from parameters or from a trace, and envelopes of GOAL files."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

import click

from atlas_lp.cli.shared.options import (
    NAME,
    SIZE,
    Whole,
    box_options,
    fabric_options_here,
    force_option,
    gathered,
    json_option,
    model_options,
    output_file_option,
    stats_option,
    traces_argument,
)
from atlas_lp.cli.shared.output import Stats, say
from atlas_lp.cli.shared.solving import Problem, SolveOptions, deliver, solve_options
from atlas_lp.cli.shared.trace_options import TraceOptions, load_trace, trace_options
from atlas_lp.errors import InputError
from atlas_lp.files import check_free
from atlas_lp.signatures.nccl.codes import DATATYPES
from atlas_lp.signatures.topology import TREE_PATTERNS
from atlas_lp.units import format_size

if TYPE_CHECKING:
    from collections.abc import Sequence

    from atlas_lp.fabrics.fabric import Fabric
    from atlas_lp.goal import Schedule
    from atlas_lp.signatures.algorithms.algorithm import Built
    from atlas_lp.signatures.signature import Signature
    from atlas_lp.solver.envelope import Box

# The table of algorithms needs numpy, which help must not load: a test holds these equal to it.
_COLLECTIVES = ("AllReduce", "AllGather", "ReduceScatter", "Broadcast", "Reduce", "AllToAll")
_ALGORITHMS = ("ring", "tree", "p2p", "pat", "nvls", "nvls_tree", "collnet_chain", "collnet_direct")
_PROTOCOLS = ("simple", "ll", "ll128")
_MOST_RANKS = 2**22
_TYPES = {name.lower(): name for name in _COLLECTIVES}


@dataclass(frozen=True)
class _Asked:
    """One collective as typed."""

    kind: str
    algorithm: str
    protocol: str
    size: int
    ranks: int
    gpus_per_node: int
    channels: int | None
    channels_per_peer: int
    dtype: str
    nccl: str
    root: int
    threads: int | None
    tree_pattern: str

    def signature(self, gpus_per_nic: int) -> tuple[Signature, list[str]]:
        """Return its signature and what that assumes."""
        from atlas_lp.signatures.algorithms.table import approximation

        built = self.built(gpus_per_nic)
        assumed = built.assumed, approximation(built.signature)
        return built.signature, [sentence for sentence in assumed if sentence]

    def built(self, gpus_per_nic: int) -> Built:
        """Return its signature with the rank of every label."""
        from atlas_lp.signatures.algorithms.algorithm import Parameters
        from atlas_lp.signatures.algorithms.assumed import build
        from atlas_lp.signatures.nccl.protocols import Protocol
        from atlas_lp.signatures.placement import shared_nics

        if self.ranks % self.gpus_per_node:
            raise InputError(f"{self.ranks} ranks do not fill nodes of {self.gpus_per_node} GPUs")
        if self.root >= self.ranks:
            raise InputError(f"root {self.root} is not one of {self.ranks} ranks")
        nodes = [rank // self.gpus_per_node for rank in range(self.ranks)]
        return build(
            Parameters(
                collective=_TYPES[self.kind.lower()],
                size_bytes=self.size,
                node_of_rank=nodes,
                nccl=self.nccl,
                algorithm=self.algorithm.lower(),
                protocol=Protocol(self.protocol.lower()),
                channels=self.channels,
                element_bytes=DATATYPES[self.dtype],
                root=self.root,
                nic_of_rank=shared_nics(nodes, gpus_per_nic),
                threads=self.threads,
                tree_pattern=self.tree_pattern.lower(),
                per_peer=self.channels_per_peer,
            )
        )

    def title(self, signature: Signature) -> str:
        """Return a line that names it."""
        channels = f"{signature.channels} channel{'s' if signature.channels > 1 else ''}"
        return (
            f"{signature.collective} {signature.algorithm} {signature.protocol.value} {format_size(self.size)}, "
            f"{self.ranks} ranks, {self.gpus_per_node} per node, {channels}, NCCL {self.nccl}"
        )


_collective_options = gathered(
    "asked",
    _Asked,
    click.option("--type", "kind", required=True, type=click.Choice(list(_TYPES), case_sensitive=False)),
    click.option(
        "--algorithm",
        type=click.Choice(_ALGORITHMS, case_sensitive=False),
        default="ring",
        show_default=True,
        help="alltoall is always p2p.",
    ),
    click.option(
        "--protocol",
        type=click.Choice(_PROTOCOLS, case_sensitive=False),
        default="simple",
        show_default=True,
    ),
    click.option(
        "--size",
        required=True,
        type=SIZE,
        help="Bytes of the NCCL call: sent per rank for allgather, received per rank for reducescatter, per pair for "
        "alltoall.",
    ),
    click.option("--ranks", required=True, type=Whole(2, _MOST_RANKS), help="Number of GPUs."),
    click.option("--gpus-per-node", type=Whole(min=1), default=1, show_default=True),
    click.option("--channels", type=Whole(1, 64), help="Channels NCCL chose [1; alltoall 32]."),
    click.option("--channels-per-peer", type=Whole(1, 64), default=2, show_default=True, help="For alltoall."),
    click.option("--dtype", type=click.Choice(list(DATATYPES)), default="float32", show_default=True),
    click.option("--nccl", default="2.28", show_default=True, help="NCCL version whose rules hold."),
    click.option("--root", type=Whole(min=0), default=0, show_default=True),
    click.option("--threads", type=Whole(32, 640), help="Threads per block; matter before NCCL 2.22."),
    click.option(
        "--tree-pattern", type=click.Choice(TREE_PATTERNS, case_sensitive=False), default="balanced", show_default=True
    ),
)


per_node_option = click.option(
    "--per-node", is_flag=True, help="One GOAL rank per node, as LogGOPSim expects; else one per GPU."
)


@click.group()
def goal() -> None:
    """Write schedules as GOAL text, and solve any GOAL file.

    \b
    Example:
      atlas-lp goal expand --type allreduce --size 1MiB --ranks 8 --gpus-per-node 4 -o allreduce.goal
      atlas-lp goal solve allreduce.goal --gpus-per-node 4
    """


@goal.command()
@_collective_options
@fabric_options_here
@box_options
@click.option("--solve", "solve_it", is_flag=True, help="Print the envelope; with -o, write the text too.")
@solve_options
@per_node_option
@output_file_option
@force_option
@json_option
@stats_option
def expand(
    asked: _Asked,
    fabric: Fabric,
    box: Box,
    solve_it: bool,
    per_node: bool,
    output: Path | None,
    force: bool,
    as_json: bool,
    stats: bool,
    **how: Unpack[SolveOptions],
) -> None:
    """Expand one collective from its parameters, no trace needed.

    Topology is assumed, as NCCL builds it: rings go node after node, ranks ascending inside a node, turned by one GPU
    per channel; trees are double binary trees over the nodes with a chain inside each. pat, nvls, nvls_tree and
    collnet are approximations and say so.

    \b
    Example:
      atlas-lp goal expand --type allreduce --size 128MiB --ranks 64 --gpus-per-node 4 --channels 8 --solve
      atlas-lp goal expand --type allreduce --algorithm tree --size 64KiB --protocol ll --ranks 16 -o tree.goal
      atlas-lp goal expand --type alltoall --size 1MiB --ranks 16 --gpus-per-node 4 --per-node -o alltoall.goal.zst
    """
    record = Stats(stats)
    signature, assumed = asked.signature(fabric.gpus_per_nic)
    if output is None and not solve_it:
        raise InputError("nothing to do: write text with -o FILE.goal, or print the envelope with --solve")
    if output is not None:
        check_free(output, force)
        with record.stage("expand"):
            built = asked.built(fabric.gpus_per_nic)
            schedule, nodes = _by_rank(built.signature, built.ranks, fabric)
        written = _write(schedule, nodes, output, record, fabric if per_node else None)
        if not (solve_it and as_json):  # whose output is one document
            say(written)
    if solve_it:
        deliver(_problem(signature, fabric, box, assumed, how), how, as_json, record)
    else:
        record.write()


@goal.command()
@_collective_options
@fabric_options_here
@output_file_option
@force_option
def draw(
    asked: _Asked,
    fabric: Fabric,
    output: Path | None,
    force: bool,
) -> None:
    """Draw a small collective: ranks from top to bottom, time at the native point from left to right.

    Up to 40 ranks and some thousand operations are readable. The ending of the file says what it is: .svg, .png, .pdf.

    \b
    Example:
      atlas-lp goal draw --type allreduce --algorithm tree --size 1MiB --ranks 8 --gpus-per-node 2 -o tree.svg
    """
    from atlas_lp.collectives.signature_graph import all_ranks
    from atlas_lp.files import write_file
    from atlas_lp.report.figures.schedule import draw_schedule
    from atlas_lp.report.figures.style import check_kind
    from atlas_lp.solver.axis import point
    from atlas_lp.solver.longest_path import Evaluator

    if output is None:
        raise InputError("no file to write: give one with -o FILE.svg, .png or .pdf")
    check_kind(output)
    check_free(output, force)
    signature, _ = asked.signature(fabric.gpus_per_nic)
    found = all_ranks(signature, fabric)
    schedule, graph = found.schedule, found.in_order()
    end_ns = Evaluator(graph, fabric.theta()).times_ns(point(*fabric.native))[graph.vertex]
    write_file(output, draw_schedule(schedule, signature.nodes, end_ns, asked.title(signature), output.suffix[1:]))
    say(f"{output}: {schedule.ranks} ranks, {len(schedule)} operations")


@goal.command()
@traces_argument
@click.option("--signature", "key", help="Key of a signature, or its beginning, as inspect prints it.")
@model_options
@trace_options
@per_node_option
@output_file_option
@force_option
@stats_option
def export(
    traces: tuple[str, ...],
    key: str | None,
    fabric: Fabric,
    per_node: bool,
    output: Path | None,
    force: bool,
    stats: bool,
    **options: Unpack[TraceOptions],
) -> None:
    """Write one signature of a trace, or the whole trace, as GOAL text; one GOAL rank per GPU, or per node.

    A whole trace has its measured gaps as calcs between the collectives.

    \b
    Example:
      atlas-lp goal export traces/ --signature 3fa9 -o allreduce.goal
      atlas-lp goal export traces/ -o step.goal.zst
    """
    from atlas_lp.program.dependencies.readings import find_links
    from atlas_lp.program.message_graph import message_graph
    from atlas_lp.traces.signing.signed_trace import SignedTrace

    if output is None:
        raise InputError("no file to write: give one with -o FILE.goal or -o FILE.goal.zst")
    check_free(output, force)
    record = Stats(stats)
    with record.stage("read"):
        trace = load_trace(traces, **options)
        signed = SignedTrace.of(trace, fabric.gpus_per_nic)
    with record.stage("expand"):
        if key is None:
            schedule = message_graph(signed, fabric, find_links(signed, "streams"))
            nodes = trace.column("gpus", "node").tolist()
        else:
            signature = _find(key, signed.signatures)
            first = next(instance for instance in signed.instances if instance.signature == signature)
            schedule, nodes = _by_rank(signature, first.ranks, fabric)
    say(_write(schedule, nodes, output, record, fabric if per_node else None))
    record.write()


@goal.command()
@click.argument("file", type=NAME)
@click.option(
    "--gpus-per-node",
    type=Whole(min=1),
    default=1,
    show_default=True,
    help="Consecutive GOAL ranks that share a node: messages between them are scale-up.",
)
@click.option(
    "--cpu-order",
    type=click.Choice(["requires", "program"]),
    default="requires",
    show_default=True,
    help="program: operations of one (rank, cpu) also run in the order of the file.",
)
@fabric_options_here
@box_options
@solve_options
@json_option
@stats_option
def solve(
    file: Path,
    gpus_per_node: int,
    cpu_order: str,
    fabric: Fabric,
    box: Box,
    as_json: bool,
    stats: bool,
    **how: Unpack[SolveOptions],
) -> None:
    """Solve any GOAL file (.goal or .goal.zst, MPI too) to its exact envelope.

    \b
    Example:
      atlas-lp goal solve stencil.goal --latency 1us --bandwidth 100Gbps
      atlas-lp goal solve step.goal.zst --gpus-per-node 4 --json
      atlas-lp goal solve stencil.goal --along compute=0.5:2
      atlas-lp goal solve stencil.goal --solver sweep --points 101 --write-lp stencil.mps
    """
    import numpy as np

    from atlas_lp.goal import read_goal
    from atlas_lp.goal.schedule import with_program_order
    from atlas_lp.solver.port_order import solve_messages

    record = Stats(stats)
    with record.stage("read"):
        schedule = read_goal(file)
        if schedule.ranks % gpus_per_node:
            raise InputError(f"{file}: {schedule.ranks} ranks do not fill nodes of {gpus_per_node}")
        if cpu_order == "program":
            schedule = with_program_order(schedule)
    nodes = [rank // gpus_per_node for rank in range(schedule.ranks)]
    order = (
        "operations of one rank are ordered by requires and irequires alone"
        if cpu_order == "requires"
        else "operations of one (rank, cpu) run in the order of the file"
    )
    with record.stage("graph"):
        messages = fabric.messages(schedule, np.array(nodes))
    problem = Problem(
        lambda: (messages.graph(messages.served(fabric.theta_at(fabric.order_at))), "full"),
        partial(solve_messages, messages, fabric, box),
        fabric,
        box,
        {"ranks": schedule.ranks},
        [order],
    )
    deliver(problem, how, as_json, record)


def _problem(signature: Signature, fabric: Fabric, box: Box, assumed: list[str], how: SolveOptions) -> Problem:
    """What there is to solve of a signature, by the cheapest exact way."""
    from atlas_lp.collectives.limits import Limits
    from atlas_lp.collectives.solver import CollectiveSolver

    limits = Limits(memory_bytes=how["memory"])
    solver = CollectiveSolver(fabric, box, use_symmetry=not how["no_quotient"], limits=limits)
    about = {"signature": signature.key(), "ranks": signature.ranks, "channels": signature.channels}
    graph, solve = partial(solver.graph, signature), partial(solver.solved, signature)
    return Problem(graph, solve, fabric, box, about, assumed)


def _by_rank(signature: Signature, ranks: Sequence[int], fabric: Fabric) -> tuple[Schedule, list[int]]:
    """Expand *signature* and number its labels as *ranks*; return the schedule, and the node of every rank."""
    import numpy as np

    from atlas_lp.goal.schedule import with_ranks
    from atlas_lp.signatures.algorithms.expand import expand as expand_signature
    from atlas_lp.signatures.placement import by_first_appearance

    nodes = np.empty(signature.ranks, dtype=np.int64)
    nodes[np.array(ranks)] = signature.nodes
    schedule = with_ranks(expand_signature(signature, fabric.reduce_copy, fabric.credits), np.array(ranks))
    return schedule, list(by_first_appearance(nodes.tolist()))


def _find(key: str, signatures: dict[str, Any]) -> Any:
    """Return the one signature whose key begins with *key*."""
    found = sorted(full for full in signatures if full.startswith(key.lower()))
    if len(found) != 1:
        what = "no signature" if not found else f"{len(found)} signatures"
        raise InputError(f"{what} of this trace begin with {key!r}; list them with: atlas-lp inspect TRACE")
    return signatures[found[0]]


def _write(schedule: Schedule, nodes: list[int], output: Path, record: Stats, merge: Fabric | None) -> str:
    """Write a schedule, and say what it is; with *merge* one rank per node, scale-up messages taking its times."""
    import numpy as np

    from atlas_lp.goal import RECV, SEND, write_goal
    from atlas_lp.goal.per_node import numbered, per_node

    each = f"one per GPU, {len(set(nodes))} nodes"
    with record.stage("write"):
        if merge is not None:
            each = f"one per node, {len(nodes)} GPUs"
            _, node = np.unique(nodes, return_inverse=True)
            schedule = numbered(per_node(schedule, node, merge.up_latency_ns, merge.up_gap_ns_per_byte))
        write_goal(schedule, output)
    return (
        f"{output}: {schedule.ranks} GOAL ranks ({each}), {len(schedule)} operations: "
        f"{schedule.count(SEND)} sends, {schedule.count(RECV)} recvs, {schedule.count(0)} calcs"
    )
