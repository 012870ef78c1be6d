"""Reduce and copy times against the medians they were fitted to (facts/nccl_schedules.md section 6)."""

import json
from collections.abc import Mapping
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from atlas_lp.errors import InputError
from atlas_lp.signatures.algorithms.expand import expand
from atlas_lp.signatures.costs import NPKIT_EVENTS, REDUCE_COPY_MODELS, Points, Primitive, load_costs
from atlas_lp.signatures.nccl.protocols import Protocol
from atlas_lp.signatures.signature import ring_signature
from atlas_lp.signatures.topology import assumed_rings

P = Primitive
ORDER = (P.SEND, P.RECV_REDUCE_SEND, P.RECV_REDUCE_COPY_SEND, P.RECV_COPY_SEND, P.RECV)

SIMPLE = {
    16: (1375, 1648, 1510, 1536, 1542),
    1024: (1030, 1562, 1588, 1470, 1118),
    4096: (1292, 2064, 2444, 1043, 994),
    8192: (853, 1630, 2068, 924, 870),
    16_384: (963, 1620, 2141, 1016, 881),
    32_768: (1254, 1763, 2438, 1265, 966),
    65_536: (1258, 1972, 3114, 2333, 1304),
    131_072: (2600, 3909, 6282, 4754, 2744),
    262_144: (5205, 7468, 11_989, 9404, 5565),
    524_288: (10_767, 14_274, 22_764, 19_028, 11_178),
    1_048_576: (21_554, 28_117, 44_986, 38_244, 22_044),
}
LL = {
    1024: (629, 131, 155, 107, 92),
    4096: (580, 133, 157, 109, 94),
    8192: (1055, 214, 246, 156, 130),
    16_384: (1804, 373, 426, 252, 198),
    32_768: (3295, 679, 790, 453, 337),  # RRS and RRCS are bimodal here: their 25th percentile
}


def cost(primitive: Primitive, protocol: Protocol, data_bytes: int, model: str = "gh200") -> int:
    return int(load_costs(model).time_ns(primitive, protocol, np.array([data_bytes]))[0])


def deviations(table: Mapping[int, tuple[int, ...]], protocol: Protocol, sizes: range) -> dict[Primitive, float]:
    """Largest relative deviation of every primitive from the medians of *sizes*."""
    return {
        primitive: max(
            abs(cost(primitive, protocol, size) / medians[column] - 1)
            for size, medians in table.items()
            if size in sizes
        )
        for column, primitive in enumerate(ORDER)
    }


def test_simple_is_within_the_stated_errors() -> None:
    worst = deviations(SIMPLE, Protocol.SIMPLE, range(4096, 1 << 21))
    for primitive, stated in zip(ORDER, (0.235, 0.145, 0.105, 0.155, 0.075), strict=True):
        assert worst[primitive] <= stated
    assert max(deviations(SIMPLE, Protocol.SIMPLE, range(65_536, 1 << 21)).values()) < 0.045
    assert max(deviations(SIMPLE, Protocol.SIMPLE, range(4096)).values()) <= 0.45


def test_ll_is_within_the_stated_errors() -> None:
    worst = deviations(LL, Protocol.LL, range(256, 1 << 16))
    for primitive, stated in zip(ORDER, (0.28, 0.02, 0.02, 0.02, 0.02), strict=True):
        assert worst[primitive] <= stated


def test_mean_errors_of_simple() -> None:
    for column, (primitive, stated) in enumerate(zip(ORDER, (0.078, 0.047, 0.046, 0.036, 0.030), strict=True)):
        errors = [
            abs(cost(primitive, Protocol.SIMPLE, size) / medians[column] - 1)
            for size, medians in SIMPLE.items()
            if size >= 4096
        ]
        assert abs(sum(errors) / len(errors) - stated) < 0.005


@pytest.mark.parametrize("protocol", list(Protocol))
@pytest.mark.parametrize("primitive", list(Primitive))
def test_more_bytes_never_take_less_time_from_4_kib_up(primitive: Primitive, protocol: Protocol) -> None:
    sizes = np.arange(4096, 1 << 20, 4096)
    times = load_costs().time_ns(primitive, protocol, sizes)
    assert times.dtype == np.int64
    assert np.all(np.diff(times) >= 0)
    assert np.all(times > 0)


def test_rounding_is_half_up() -> None:
    # 330 + 45057 / 23.0 = 2289.0 exactly; 11.5 bytes more are half a ns more.
    assert cost(P.RECV_REDUCE_COPY_SEND, Protocol.SIMPLE, 45_057) == 2289
    assert cost(P.RECV_REDUCE_COPY_SEND, Protocol.SIMPLE, 45_057 + 11) == 2289
    assert cost(P.RECV_REDUCE_COPY_SEND, Protocol.SIMPLE, 45_057 + 12) == 2290


def test_reduce_into_the_output_costs_what_reduce_and_send_costs() -> None:
    sizes = np.array([1, 5000, 1 << 20])
    for protocol in Protocol:
        one, other = (load_costs().time_ns(p, protocol, sizes) for p in (P.RECV_REDUCE_COPY, P.RECV_REDUCE_SEND))
        assert one.tolist() == other.tolist()


def test_ll128_takes_the_rate_of_simple_and_the_least_time_of_ll() -> None:
    assert cost(P.SEND, Protocol.LL128, 8) == 585
    assert cost(P.SEND, Protocol.LL128, 487_000) == 10_000


def test_the_free_model() -> None:
    assert set(REDUCE_COPY_MODELS) == {"gh200", "none"}
    assert cost(P.RECV, Protocol.SIMPLE, 1 << 20, "none") == 0


def test_what_primitives_do() -> None:
    assert [p.name for p in Primitive if not p.receives] == ["SEND"]
    assert [p.name for p in Primitive if not p.sends] == ["RECV_REDUCE_COPY", "RECV"]


NPKIT = {
    "NPKIT_EVENT_GPU_SEND": {"1024": [100, 300, 120], "2048": [200, 240], "8192": [820]},
    "NPKIT_EVENT_GPU_RECV_REDUCE_SEND": {"1024": [50]},
    "NPKIT_EVENT_SOMETHING_ELSE": {"1": []},
}


def npkit(folder: Path, name: str = "npkit_data_summary_Simple.json", summary: object = NPKIT) -> Path:
    path = folder / name
    path.write_text(json.dumps(summary))
    return path


def test_npkit_summary(tmp_path: Path) -> None:
    table = load_costs(npkit(tmp_path))
    sizes = np.array([0, 512, 1024, 1536, 2048, 5120, 8192, 14_336])
    # Medians 120, 220, 820: linear between, the nearest two extended beyond.
    assert table.time_ns(P.SEND, Protocol.SIMPLE, sizes).tolist() == [20, 70, 120, 170, 220, 520, 820, 1420]
    assert table.time_ns(P.RECV_REDUCE_COPY, Protocol.SIMPLE, sizes).tolist() == [50] * 8
    # What the file does not measure comes from the default table, and the table says so.
    default = load_costs().time_ns(P.RECV, Protocol.LL, sizes)
    assert table.time_ns(P.RECV, Protocol.LL, sizes).tolist() == default.tolist()
    assert "npkit_data_summary_Simple.json" in table.assumption
    assert "taken from GH200" in table.assumption


@pytest.mark.parametrize(
    ("name", "protocol"),
    [("summary_LL.json", Protocol.LL), ("LL128-x.json", Protocol.LL128), ("mine.json", Protocol.SIMPLE)],
)
def test_protocol_of_a_summary_is_in_its_name(tmp_path: Path, name: str, protocol: Protocol) -> None:
    table = load_costs(npkit(tmp_path, name))
    assert int(table.time_ns(P.SEND, protocol, np.array([1024]))[0]) == 120


def test_user_table(tmp_path: Path) -> None:
    npkit(tmp_path, "LL.json")
    path = tmp_path / "mine.toml"
    path.write_text(
        """
        name = "mine"
        assumption = "measured in the lab"
        [npkit]
        ll = "LL.json"
        [simple.send]
        points = [[0, 10], [100, 20.5]]
        [simple.recv]
        least_ns = 5
        offset_ns = 0
        bytes_per_ns = 2
        """
    )
    table = load_costs(path)
    assert table.name == "mine"
    assert table.assumption.startswith("measured in the lab; ")
    assert table.time_ns(P.SEND, Protocol.SIMPLE, np.array([0, 50, 100, 200])).tolist() == [10, 15, 21, 31]
    assert table.time_ns(P.RECV, Protocol.SIMPLE, np.array([1, 11])).tolist() == [5, 6]
    assert int(table.time_ns(P.SEND, Protocol.LL, np.array([2048]))[0]) == 220


def test_a_table_changes_the_calcs_and_its_digest(tmp_path: Path) -> None:
    signature = ring_signature("AllReduce", Protocol.SIMPLE, 4096, assumed_rings([0, 1], 1), [0, 1], nccl="2.26")
    one, other = load_costs(npkit(tmp_path)), load_costs(npkit(tmp_path, "again.json"))
    assert one.digest == other.digest
    assert len({one.digest, load_costs("gh200").digest, load_costs("none").digest}) == 3
    assert expand(signature, one).size.tolist() != expand(signature).size.tolist()
    assert expand(signature, load_costs("gh200")).size.tolist() == expand(signature).size.tolist()
    assert load_costs(one) is one


@given(st.dictionaries(st.integers(0, 1 << 20), st.integers(0, 10**6), min_size=1, max_size=5), st.integers(0, 1 << 21))
def test_points_are_interpolated_exactly(measured: dict[int, int], size: int) -> None:
    sizes = sorted(measured)
    curve = Points(tuple(sizes), tuple(Fraction(measured[s]) for s in sizes))
    if len(sizes) == 1:
        expected = Fraction(measured[sizes[0]])
    else:
        right = next((i for i, s in enumerate(sizes) if s > size and i > 0), len(sizes) - 1)
        a, b = sizes[right - 1], sizes[right]
        expected = measured[a] + Fraction((measured[b] - measured[a]) * (size - a), b - a)
    found = int(curve.time_ns(np.array([size]))[0])
    assert found == max(0, (expected + Fraction(1, 2)).__floor__())


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("a.json", "{", "not JSON"),
        ("a.json", "[]", "none of the events"),
        ("a.json", '{"NPKIT_EVENT_GPU_SEND": {"x": [1]}}', "must map bytes to lists of ns"),
        ("a.json", '{"NPKIT_EVENT_GPU_SEND": {"1": []}}', "must map bytes to lists of ns"),
        ("a.json", '{"NPKIT_EVENT_GPU_SEND": {"1": [-4]}}', "0 or more"),
        ("a.json", '{"NPKIT_EVENT_GPU_SEND": {}}', "at least one size"),
        ("a.toml", "x", "not TOML"),
        ("a.toml", "", "holds no costs"),
        ("a.toml", "[simple.sned]\nleast_ns = 1", r"\[simple.sned\] is no cost"),
        ("a.toml", "[fast.send]\nleast_ns = 1", r"\[fast.send\] is no cost"),
        ("a.toml", "fast = 1", r"\[fast\] is no group"),
        ("a.toml", "[simple]\nsend = 3", r"\[simple.send\] must be a table"),
        ("a.toml", "[simple.send]\nleast_ns = 1", "needs bytes_per_ns, least_ns, offset_ns"),
        ("a.toml", "[simple.send]\npoints = [1]", "pairs"),
        ("a.toml", "[simple.send]\nleast_ns = 1\noffset_ns = 0\nbytes_per_ns = 0", "must be positive"),
        ("a.toml", "[simple.send]\nleast_ns = 1.5\noffset_ns = 0\nbytes_per_ns = 1", "not a whole number"),
        ("a.toml", "[npkit]\nfast = 'x.json'", "no protocol"),
        ("a.toml", "[npkit]\nll = 'x.json'", "x.json: neither"),
    ],
)
def test_wrong_files(tmp_path: Path, name: str, text: str, said: str) -> None:
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(InputError, match=said):
        load_costs(path)


def test_no_such_file(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="neither a cost table"):
        load_costs(tmp_path / "nothing.toml")


def test_events_cover_all_primitives() -> None:
    assert {p for primitives in NPKIT_EVENTS.values() for p in primitives} == set(Primitive)
