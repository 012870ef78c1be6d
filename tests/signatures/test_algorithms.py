"""The table of algorithms: complete, what the command line offers, and keys that must not change by accident."""

import click
import pytest

from atlas_lp.cli.verbs.goal import goal
from atlas_lp.errors import InputError, UnsupportedError
from atlas_lp.signatures.algorithms.algorithm import Parameters
from atlas_lp.signatures.algorithms.assumed import assumed_signature, build
from atlas_lp.signatures.algorithms.table import ALGORITHMS, WITH_SCHEDULE, algorithm
from atlas_lp.signatures.nccl import codes
from atlas_lp.signatures.nccl.protocols import Protocol
from atlas_lp.signatures.topology import TREE_PATTERNS

PLACES = {True: [rank // 4 for rank in range(16)], False: list(range(16))}
ONE_NODE = [0, 0, 0, 0]

KEYS = {
    ("AllReduce", "ring"): "761a7fdf59857b2a18a310bf36fbb97b3b56d04e08e98f37bd1b3113d64f3024",
    ("AllGather", "ring"): "75d622e0ab7e773d847a917c478cc47b5c26ff7797bc0804343b03f59670d0c9",
    ("ReduceScatter", "ring"): "20dc460434225268fff3d0321cdc721b7583099779bec51fb0807adde9ae2344",
    ("Broadcast", "ring"): "a94a8d88965473cf79fdf7c64e2abc4723ed1bf58aaab94dc7fec058ed52aa1c",
    ("Reduce", "ring"): "be619797bcf45b224f2e5d9a34254b4da0ce56d8e010d9ef1c11da675da292ad",
    ("AllReduce", "tree"): "6aa9a9d42e05d455e608fa04c6e8b3552a65e5116f67e86d02809968a57cc211",
    ("AllToAll", "p2p"): "498b721c742f24b87bbd01bd6a3d457a531426cb34d8a89112eaa0f037897ab7",
    ("AllGather", "pat"): "e13b9b123f3dceece251f309771686db517b37a20a1cffd16db15ca6b3008a15",
    ("ReduceScatter", "pat"): "43932812a1bec6d3f2412333895abe2831d4cca90a6b6b49ec0ec8e510e77c95",
    ("AllReduce", "nvls"): "2ea228a726c4ccabf9a23f04c86bb3341ab14c2cee943239aef10903a2ff1742",
    ("AllReduce", "nvls_tree"): "5b4ab0d799d4d420236d4728fcbab46916b4a43309101ce1e7074a419abd69ef",
    ("AllReduce", "collnet_chain"): "9fd2045ae1add3634699c2415a9e5e2df0b930d483488cdf50a1fccc499e56cd",
    ("AllReduce", "collnet_direct"): "e2d18fcdeb7bf2849570e3e52df11cff3f9deb0b74059e5fc673666660e4fc3c",
}


def parameters(collective: str, name: str) -> Parameters:
    nodes = ONE_NODE if name == "nvls" else PLACES[name != "pat"]
    return Parameters(collective, 1 << 20, nodes, "2.28", name, channels=4)


def test_the_command_line_offers_what_the_table_has() -> None:
    offered = {p.name: list(p.type.choices) for p in goal.commands["expand"].params if isinstance(p.type, click.Choice)}
    assert offered["algorithm"] == list(ALGORITHMS)
    assert offered["kind"] == [name.lower() for name in WITH_SCHEDULE]
    assert offered["protocol"] == [protocol.value for protocol in Protocol]
    assert offered["tree_pattern"] == list(TREE_PATTERNS)
    assert offered["dtype"] == list(codes.DATATYPES)


def test_nccl_names_the_same_algorithms_and_protocols() -> None:
    assert {*codes.ALGORITHMS, "p2p"} == {*ALGORITHMS}
    assert {*codes.PROTOCOLS} == {protocol.value for protocol in Protocol}


@pytest.mark.parametrize(
    ("collective", "name"), [(c, row.name) for row in ALGORITHMS.values() for c in row.collectives]
)
def test_keys_are_those_of_the_first_version(collective: str, name: str) -> None:
    """Equal keys find solved envelopes again: a new field of a signature must be left out where it says nothing."""
    built = build(parameters(collective, name))
    assert collective in ALGORITHMS[name].collectives
    assert built.signature.key() == KEYS[collective, name]
    assert sorted(built.ranks) == list(range(built.signature.ranks))
    assert built.signature.algorithm == name


def test_what_is_assumed_is_said_unless_it_was_recorded() -> None:
    asked = Parameters("AllReduce", 64, [0, 1], "2.28")
    assert assumed_signature(asked)[1] == [
        "rings are assumed, not recorded: node after node, turned by one GPU per channel"
    ]
    recorded = build(Parameters("AllReduce", 64, [0, 1], "2.28", rings=[[0, 1]]))
    assert (recorded.assumed, recorded.source) == ("", "")
    assert recorded.signature == build(asked).signature


def test_what_an_algorithm_does_not_do() -> None:
    with pytest.raises(UnsupportedError, match="tree does AllReduce, not Broadcast"):
        build(parameters("Broadcast", "tree"))
    with pytest.raises(InputError, match="pat runs the Simple protocol only"):
        build(Parameters("AllGather", 64, [0, 1], "2.28", "pat", Protocol.LL))
    with pytest.raises(UnsupportedError, match="Gather has no schedule; there are schedules for AllReduce"):
        build(parameters("Gather", "ring"))
    with pytest.raises(UnsupportedError, match="mesh has no schedule; there are schedules for ring, tree"):
        algorithm("mesh")
