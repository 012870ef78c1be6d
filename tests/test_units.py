"""Quantities: exact in, readable out."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from atlas_lp.errors import InputError, UnitError
from atlas_lp.units import (
    format_bandwidth,
    format_size,
    format_time,
    gbps,
    number,
    parse_bandwidth,
    parse_factor,
    parse_size_bytes,
    parse_time_ns,
)


@pytest.mark.parametrize(
    ("text", "ns"),
    [
        ("4us", 4000),
        ("3.7us", 3700),
        (" 3.7 us ", 3700),
        ("0.1ns", Fraction(1, 10)),
        (".5ns", Fraction(1, 2)),
        ("1e3ns", 1000),
        ("1.5e-3s", 1_500_000),
        ("1E2ns", 100),
        ("2.s", 2 * 10**9),
        ("7µs", 7000),  # micro sign
        ("7μs", 7000),  # Greek mu
        ("3ms", 3 * 10**6),
        ("0", 0),
        (" 0 ", 0),
        ("0us", 0),
    ],
)
def test_times(text: str, ns: Fraction) -> None:
    assert parse_time_ns(text) == ns


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("64KiB", 65536),
        ("128MiB", 1 << 27),
        ("1GiB", 1 << 30),
        ("2TiB", 1 << 41),
        ("0.5KiB", 512),
        ("1kB", 1000),
        ("1KB", 1000),
        ("3MB", 3 * 10**6),
        ("17B", 17),
        ("17", 17),
        ("0", 0),
    ],
)
def test_sizes(text: str, size: int) -> None:
    assert parse_size_bytes(text) == size


@pytest.mark.parametrize(
    ("text", "gap"),
    [
        ("200Gbps", Fraction(1, 25)),
        ("200Gb/s", Fraction(1, 25)),
        ("200Gbit/s", Fraction(1, 25)),
        ("25GB/s", Fraction(1, 25)),
        ("150GB/s", Fraction(1, 150)),
        ("1GiB/s", Fraction(10**9, 2**30)),
        ("1Tbps", Fraction(1, 125)),
        ("8bps", 10**9),
        ("0.8Gbps", 10),
    ],
)
def test_bandwidths(text: str, gap: Fraction) -> None:
    assert parse_bandwidth(text) == gap


@pytest.mark.parametrize(
    ("parse", "text", "said"),
    [
        (parse_time_ns, "4 bananas", "'bananas' is not one of ns, us"),
        (parse_time_ns, "4", "'no unit' is not one of"),
        (parse_time_ns, "-4us", "is not a time: write a number and a unit, such as 4us"),
        (parse_time_ns, "", "is not a time"),
        (parse_time_ns, "us", "is not a time"),
        (parse_time_ns, "4US", "'US' is not one of"),
        (parse_time_ns, "1.2.3us", "is not a time"),
        (parse_time_ns, "1_000us", "is not a time"),
        (parse_time_ns, "nan", "is not a time"),
        (parse_size_bytes, "0.3KiB", "not a whole number of bytes"),
        (parse_size_bytes, "-1B", "is not a size"),
        (parse_size_bytes, "4us", "'us' is not one of B"),
        (parse_bandwidth, "0Gbps", "a bandwidth of zero has no gap"),
        (parse_bandwidth, "200", "'no unit' is not one of"),
        (parse_bandwidth, "200GB", "'GB' is not one of"),
        (parse_bandwidth, "fast", "is not a bandwidth"),
    ],
)
def test_refused(parse: object, text: str, said: str) -> None:
    with pytest.raises(UnitError) as caught:
        parse(text)  # type: ignore[operator]
    assert repr(text) in str(caught.value)
    assert said in str(caught.value)
    assert isinstance(caught.value, InputError)
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(
    ("written", "text"),
    [
        (format_time(0), "0 ns"),
        (format_time(3700), "3.7 us"),
        (format_time(999.94), "999.9 ns"),
        (format_time(999.97), "1 us"),
        (format_time(Fraction(35, 3)), "11.67 ns"),
        (format_time(10_618_630.9), "10.62 ms"),
        (format_time(123_456, digits=2), "123 us"),
        (format_time(5e12), "5000 s"),
        (format_time(-3700), "-3.7 us"),
        (format_size(1 << 27), "128 MiB"),
        (format_size(1000), "1000 B"),
        (format_size(1536), "1.5 KiB"),
        (format_bandwidth(Fraction(1, 25)), "200 Gbps"),
        (format_bandwidth(Fraction(8, 10**4)), "10 Tbps"),
        (format_bandwidth(Fraction(80)), "100 Mbps"),
        (format_bandwidth(Fraction(0)), "unlimited bandwidth"),
    ],
)
def test_formats(written: str, text: str) -> None:
    assert written == text


@given(st.fractions(Fraction(1, 1000), 10**12, max_denominator=1000))
def test_a_written_time_reads_back_within_its_digits(ns: Fraction) -> None:
    assert abs(parse_time_ns(format_time(ns, digits=6)) - ns) <= ns * Fraction(5, 10**6)


@given(st.fractions(Fraction(1, 10**6), 10**4, max_denominator=10**6))
def test_a_written_bandwidth_reads_back_within_its_digits(gap: Fraction) -> None:
    assert abs(parse_bandwidth(format_bandwidth(gap, digits=6)) - gap) <= gap * Fraction(6, 10**6)


@given(st.integers(0, 10**9), st.integers(0, 999))
def test_no_decimal_is_rounded(whole: int, thousandths: int) -> None:
    assert parse_time_ns(f"{whole}.{thousandths:03}us") == whole * 1000 + thousandths


def test_numbers_for_json() -> None:
    assert number(Fraction(6, 3)) == 2
    assert isinstance(number(Fraction(6, 3)), int)
    assert number(Fraction(1, 4)) == 0.25
    assert gbps(Fraction(1, 25)) == 200.0
    assert gbps(Fraction(0)) == float("inf")


def test_factors():
    assert parse_factor("0.5") == Fraction(1, 2)
    assert parse_factor("1.25x") == Fraction(5, 4)
    for text in ("half", "50%", "-1", "2us"):
        with pytest.raises(UnitError, match=r"write a number, such as 0\.5 or 1\.25x"):
            parse_factor(text)


@pytest.mark.parametrize("parse", [parse_time_ns, parse_size_bytes, parse_bandwidth, parse_factor])
def test_numbers_of_thousands_of_digits_are_refused_in_a_line(parse):
    unit = {parse_time_ns: "ns", parse_size_bytes: "B", parse_bandwidth: "bps", parse_factor: ""}[parse]
    for text in ("9" * 5000, "0." + "1" * 5000, "1" * 61):
        with pytest.raises(UnitError) as refused:
            parse(text + unit)
        assert len(str(refused.value)) < 200
    assert parse("0.5" + "0" * 50 + unit.replace("B", "KiB")) > 0
