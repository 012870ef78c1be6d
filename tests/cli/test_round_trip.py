"""What ``goal expand`` writes solves to what ``goal expand --solve`` answers: GOAL ranks are GPU ranks."""

import itertools
import json
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from click.testing import CliRunner

from atlas_lp.cli import main
from atlas_lp.collectives.solver import CollectiveSolver
from atlas_lp.fabrics.fabric import load_fabric
from atlas_lp.goal import parse_goal
from atlas_lp.goal.per_node import per_node
from atlas_lp.goal.schedule import with_ranks
from atlas_lp.signatures.algorithms.algorithm import Parameters
from atlas_lp.signatures.algorithms.assumed import build
from atlas_lp.signatures.algorithms.expand import expand
from atlas_lp.signatures.algorithms.table import ALGORITHMS
from atlas_lp.signatures.nccl.protocols import Protocol
from atlas_lp.signatures.placement import by_first_appearance
from atlas_lp.solver.axis import point
from atlas_lp.solver.longest_path import Evaluator

# Scale-up times in whole ns, as one rank per node needs them.
WHOLE = replace(load_fabric(), up_latency_ns=Fraction(500), up_gap_ns_per_byte=Fraction(1))
POINTS = [
    WHOLE.native,
    (Fraction(0), Fraction(1, 25)),
    (Fraction(10**5), Fraction(1, 25)),
    (Fraction(3700), Fraction(1, 2)),
]


def cases():
    between_nodes = {name: row for name, row in ALGORITHMS.items() if name != "nvls"}
    for name, row in between_nodes.items():
        for collective in row.collectives:
            roots = range(4) if collective in ("Broadcast", "Reduce") else (0,)
            nodes = ([0, 1, 2, 3], [0]) if name == "pat" else ([0, 0, 1, 1], [0, 0, 0, 1, 1, 1])
            for placement, root, size in itertools.product(nodes, roots, (4096, 300_000)):
                if len(set(placement)) > 1:
                    yield pytest.param(
                        collective,
                        name,
                        placement,
                        root,
                        size,
                        id=f"{collective}-{name}-{len(placement)}-{root}-{size}",
                    )


@pytest.mark.parametrize(("collective", "name", "placement", "root", "size"), list(cases()))
def test_every_algorithm_and_root_in_both_layouts(collective, name, placement, root, size):
    built = build(
        Parameters(
            collective,
            size,
            placement,
            nccl="2.28",
            algorithm=name,
            channels=2,
            root=root,
            protocol=Protocol.SIMPLE,
            nic_of_rank=[r % (1 + max(placement.count(0), 1)) for r in range(len(placement))],
        )
    )
    ranks = np.array(built.ranks)
    written = with_ranks(expand(built.signature), ranks)
    nodes = np.empty(len(ranks), dtype=np.int64)
    nodes[ranks] = built.signature.nodes
    nodes = np.array(by_first_appearance(nodes.tolist()))
    assert nodes.tolist() == placement
    merged = per_node(written, nodes, WHOLE.up_latency_ns, WHOLE.up_gap_ns_per_byte)
    graphs = (
        WHOLE.graph(expand(built.signature), np.array(built.signature.nodes)),
        WHOLE.graph(written, nodes),
        WHOLE.graph(merged),
    )
    alone, per_gpu, by_node = (
        [Evaluator(g, WHOLE.theta()).at(point(*where)).time_ns for where in POINTS] for g in graphs
    )
    assert alone == per_gpu == by_node


COMMANDS = [
    "--type broadcast --size 4KiB --ranks 4 --gpus-per-node 2 --root 1",
    "--type reduce --size 4KiB --ranks 4 --gpus-per-node 2 --root 3",
    "--type allreduce --algorithm nvls_tree --size 4KiB --ranks 4 --gpus-per-node 2",
    "--type allreduce --algorithm nvls_tree --size 64KiB --ranks 8 --gpus-per-node 2",
    "--type allreduce --algorithm tree --size 1MiB --ranks 8 --gpus-per-node 2 --channels 2",
    "--type alltoall --size 64KiB --ranks 4 --gpus-per-node 2",
]


@pytest.mark.parametrize("words", COMMANDS)
def test_commands(tmp_path, words):
    def run(*arguments: str) -> str:
        found = CliRunner().invoke(main, ["goal", *arguments], catch_exceptions=False)
        assert found.exit_code == 0, found.output
        return found.output

    asked = words.split()
    solved = json.loads(run("expand", *asked, "--solve", "--json"))
    run("expand", *asked, "-o", str(tmp_path / "x.goal"))
    again = json.loads(run("solve", str(tmp_path / "x.goal"), "--gpus-per-node", "2", "--json"))
    assert again["makespan_ns"] == solved["makespan_ns"]
    assert again["envelopes"] == solved["envelopes"]
    run("expand", *asked, "--per-node", "-o", str(tmp_path / "n.goal"))
    merged = json.loads(run("solve", str(tmp_path / "n.goal"), "--json"))
    assert merged["makespan_ns"] == pytest.approx(solved["makespan_ns"], rel=1e-3)


def test_ranks_are_renamed_and_nothing_else():
    sends = "a: calc 5\nb: send 8b to 1 tag 3 nic 1\nb requires a\n"
    text = f"num_ranks 2\nrank 0 {{\n{sends}}}\nrank 1 {{\nrecv 8b from 0 tag 3\n}}"
    schedule = parse_goal(text)
    swapped = with_ranks(schedule, np.array([1, 0]))
    assert swapped.rank.tolist() == [0, 1, 1]
    assert swapped.peer.tolist() == [1, -1, 0]
    assert swapped.size.tolist() == [8, 5, 8]
    assert (swapped.before.tolist(), swapped.after.tolist()) == ([1], [2])
    assert CollectiveSolver(WHOLE).fabric.graph(swapped).edges == WHOLE.graph(schedule).edges
