"""Fabrics: the preset, files, and every way a file can be wrong."""

from fractions import Fraction
from pathlib import Path

import pytest

from atlas_lp.errors import FabricError
from atlas_lp.fabrics.fabric import PRESETS, load_fabric, parse_fabric
from atlas_lp.goal import COMPONENTS, PortRule

COMPLETE = """
name = "lab"

[scale_out]
latency = "5us"
overhead = "0.2us"
message_gap = "0"
bandwidth = "25GB/s"

[scale_up]
latency = "1us"
bandwidth = "150GB/s"
"""


def test_alps_holds_the_values_of_its_sources() -> None:
    alps = load_fabric("alps")
    assert alps.theta() == {
        "calc_ns": 1,
        "messages": 3700,
        "bytes": Fraction(1, 25),
        "overheads": 200,
        "gaps": 5,
        "up_messages": 500,
        "up_bytes": Fraction(1, 150),
    }
    assert (alps.gpus_per_nic, alps.port_rule) == (1, PortRule.PORT)
    assert (alps.reduce_copy, alps.credits) == ("gh200", "local")
    assert load_fabric() == alps


@pytest.mark.parametrize("preset", PRESETS)
def test_presets_load_and_describe_themselves(preset: str) -> None:
    fabric = load_fabric(preset)
    assert fabric.name == preset
    assert tuple(fabric.theta()) == COMPONENTS
    assert f"fabric {preset}: scale-out L " in fabric.describe()


def test_description_names_every_value() -> None:
    assert load_fabric("alps").describe() == (
        "fabric alps: scale-out L 3.7 us, 200 Gbps (G 0.04 ns/B), o 200 ns, g 5 ns, one NIC per GPU; "
        "scale-up L 500 ns, 1.2 Tbps"
    )


def test_model_and_gpus_per_nic_are_optional() -> None:
    fabric = parse_fabric(COMPLETE)
    assert (fabric.latency_ns, fabric.overhead_ns, fabric.message_gap_ns) == (5000, 200, 0)
    assert (fabric.gpus_per_nic, fabric.port_rule, fabric.credits) == (1, PortRule.PORT, "local")
    shared = parse_fabric(COMPLETE.replace("[scale_up]", "gpus_per_nic = 4\n[scale_up]"))
    assert shared.gpus_per_nic == 4
    assert "one NIC per 4 GPUs" in shared.describe()


def test_model_choices() -> None:
    text = COMPLETE + '[model]\nport_rule = "destination"\nreduce_copy = "none"\ncredits = "acknowledged"\n'
    fabric = parse_fabric(text)
    assert fabric.port_rule is PortRule.DESTINATION
    assert (fabric.reduce_copy, fabric.credits) == ("none", "acknowledged")


def test_a_file(tmp_path: Path) -> None:
    path = tmp_path / "lab.toml"
    path.write_text(COMPLETE)
    assert load_fabric(str(path)) == parse_fabric(COMPLETE)


def test_another_native_point_keeps_the_rest() -> None:
    alps = load_fabric()
    moved = alps.at(latency_ns=Fraction(1), gap_ns_per_byte=Fraction(2))
    assert (moved.latency_ns, moved.gap_ns_per_byte) == (1, 2)
    assert moved.fixed() == alps.fixed()
    assert alps.at() == alps


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('overhead = "0.2us"', 'overhead = "0.3us"'),
        ('message_gap = "0"', 'message_gap = "1ns"'),
        ('latency = "1us"', 'latency = "2us"'),
        ('bandwidth = "150GB/s"', 'bandwidth = "151GB/s"'),
        ("[scale_up]", '[model]\nport_rule = "none"\n[scale_up]'),
        ("[scale_up]", '[model]\nreduce_copy = "none"\n[scale_up]'),
        ("[scale_up]", '[model]\ncredits = "none"\n[scale_up]'),
    ],
)
def test_everything_but_the_native_point_decides_an_envelope(old: str, new: str) -> None:
    assert old in COMPLETE
    assert parse_fabric(COMPLETE.replace(old, new)).fixed() != parse_fabric(COMPLETE).fixed()


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('name = "lab"', "", "[top level] needs name"),
        ('name = "lab"', 'name = "lab"\ncolour = "red"', "[top level] has unknown keys: colour"),
        ("[scale_out]", "[scaleout]", "[top level] needs scale_out"),
        ("[scale_up]", "[up]", "[top level] needs scale_up"),
        ('latency = "5us"', "", "[scale_out] needs latency"),
        ('message_gap = "0"', "", "[scale_out] needs message_gap"),
        ('latency = "5us"', 'latency = "5 parsec"', "[scale_out] latency: '5 parsec' is not a time"),
        ('latency = "5us"', "latency = 5", "[scale_out] latency: '5' is not a time"),
        ('latency = "5us"', 'latency = "-5us"', "[scale_out] latency: '-5us' is not a time"),
        ('bandwidth = "25GB/s"', 'bandwidth = "0GB/s"', "[scale_out] bandwidth: '0GB/s': a bandwidth of zero"),
        ('bandwidth = "25GB/s"', 'bandwidth = "25GB"', "[scale_out] bandwidth: '25GB' is not a bandwidth"),
        ('bandwidth = "25GB/s"', 'bandwidth = "25GB/s"\nx = 1\na = 2', "[scale_out] has unknown keys: a, x"),
        ('bandwidth = "25GB/s"', 'bandwidth = "25GB/s"\ngpus_per_nic = 0', "gpus_per_nic must be a whole"),
        ('bandwidth = "25GB/s"', 'bandwidth = "25GB/s"\ngpus_per_nic = "2"', "gpus_per_nic must be a whole"),
        ('bandwidth = "25GB/s"', 'bandwidth = "25GB/s"\ngpus_per_nic = true', "gpus_per_nic must be a whole"),
        ("[scale_up]", "[model]\nport_rule = 'x'\n[scale_up]", "port_rule = 'x' is not one of port, destination"),
        ("[scale_up]", "[model]\nreduce_copy = 'x'\n[scale_up]", "reduce_copy = 'x' is not one of gh200, none"),
        ("[scale_up]", "[model]\ncredits = 'x'\n[scale_up]", "credits = 'x' is not one of local"),
        ("[scale_up]", "[model]\nx = 1\n[scale_up]", "[model] has unknown keys: x"),
        ('name = "lab"', "name = ", "not TOML"),
        ('name = "lab"', 'name = "lab"\nscale_out = 3', "not TOML"),
        ('name = "lab"', 'name = "lab"\nmodel = 3', "[model] must be a table"),
    ],
)
def test_wrong_files_name_table_and_key(old: str, new: str, said: str) -> None:
    assert old in COMPLETE
    with pytest.raises(FabricError) as caught:
        parse_fabric(COMPLETE.replace(old, new, 1), "lab.toml")
    assert str(caught.value).startswith("lab.toml: ")
    assert said in str(caught.value)


def test_neither_preset_nor_file(tmp_path: Path) -> None:
    with pytest.raises(FabricError, match=r"nowhere: neither a preset \(alps\) nor a readable file"):
        load_fabric("nowhere")
    with pytest.raises(FabricError, match="neither a preset"):
        load_fabric(str(tmp_path))
    binary = tmp_path / "x.toml"
    binary.write_bytes(b"\xff\xfe")
    with pytest.raises(FabricError, match="UnicodeDecodeError"):
        load_fabric(str(binary))
