"""Reading files: what is refused is refused in bounded memory, and what is real is read as it is."""

import gzip
import io
import json
import os
import tomllib
from fractions import Fraction

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from atlas_lp import inputs
from atlas_lp.errors import GoalError, InputError
from atlas_lp.inputs import (
    bounded_lines,
    check_regular,
    most_records,
    open_input,
    parse_json,
    parse_toml,
    read_bytes,
    read_text,
)


@pytest.mark.parametrize("name", ["x", "x.gz", "x.zst"])
def test_a_file_is_read_as_it_is_or_decompressed(tmp_path, name):
    content = bytes(range(256)) * 1000
    pack = {"x": bytes, "x.gz": gzip.compress, "x.zst": zstandard.compress}[name]
    (tmp_path / name).write_bytes(pack(content[:1000]) + pack(content[1000:]))
    with open_input(tmp_path / name) as file:
        assert file.read(10) == content[:10]
        assert file.read() == content[10:]


def test_what_is_no_regular_file_is_refused_with_the_error_of_the_reader(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for attempt in (check_regular, lambda *words: open_input(*words).__enter__()):
        with pytest.raises(GoalError, match="pipe: is a pipe, not a file; write what it gives into a file"):
            attempt(tmp_path / "pipe", GoalError)
        with pytest.raises(IsADirectoryError):
            attempt(tmp_path, GoalError)
        with pytest.raises(FileNotFoundError):
            attempt(tmp_path / "absent", GoalError)


@pytest.mark.parametrize(("name", "times"), [("x.gz", 100), ("x.zst", 300)])
def test_a_compressed_file_may_grow_to_so_many_times_its_size(tmp_path, monkeypatch, name, times):
    monkeypatch.setattr(inputs, "MOST_DOCUMENT", 1000)
    path = tmp_path / name
    pack = gzip.compress if name == "x.gz" else zstandard.compress
    path.write_bytes(pack(bytes(10**6)))
    with open_input(path) as file, pytest.raises(InputError, match=f"more than {times} times its size.*decompress it"):
        file.read()
    path.write_bytes(pack(os.urandom(10**5)))
    with open_input(path) as file:
        assert len(file.read()) == 10**5


TEXTS = st.text(st.sampled_from("ab\n\r\t"), max_size=60)


@given(TEXTS, st.integers(1, 9))
def test_lines_are_those_of_the_file(tmp_path_factory, text, longest):
    """In pieces of any length the same lines, or a refusal that names the first that is too long."""
    path = tmp_path_factory.getbasetemp() / "lines"
    path.write_bytes(text.encode())
    with path.open() as file:
        expected = [line.rstrip("\n") for line in file]
    too_long = [number for number, line in enumerate(expected, 1) if len(line) > longest]
    with pytest.MonkeyPatch.context() as patch, path.open() as file:
        patch.setattr(inputs, "LONGEST_LINE", longest)
        found = []
        if too_long:
            with pytest.raises(InputError, match=f"lines, line {too_long[0]}: longer than {longest} "):
                found.extend(bounded_lines(file, path))
        else:
            assert list(bounded_lines(file, path)) == expected


def test_lines_of_a_compressed_file_are_counted(tmp_path, monkeypatch):
    monkeypatch.setattr(inputs, "_FEW_RECORDS", 10)
    path = tmp_path / "x.zst"
    path.write_bytes(zstandard.compress(b"\n" * 10_000))
    most = most_records(path, inputs._LINES_PER_BYTE)
    assert 10 < most < 10_000
    assert len(list(bounded_lines(io.StringIO("\n" * most), path))) == most
    with pytest.raises(InputError, match="more lines than a file of its size holds"):
        list(bounded_lines(io.StringIO("\n" * (most + 1)), path))


def test_a_document_is_read_as_a_whole_up_to_a_size(tmp_path):
    (tmp_path / "x").write_bytes("ä\r\nb\rc".encode())
    assert read_text(tmp_path / "x") == "ä\nb\nc"
    assert len(read_bytes(tmp_path / "x", most=7)) == 7
    with pytest.raises(InputError, match="x: more than 6 bytes"):
        read_bytes(tmp_path / "x", most=6)
    (tmp_path / "x").write_bytes(b"\xff")
    with pytest.raises(UnicodeDecodeError):
        read_text(tmp_path / "x")
    assert read_text(tmp_path / "x", errors="replace") == "\ufffd"


KEYS = st.lists(st.sampled_from(["a", "b", '"c.d"']), min_size=1, max_size=20).map(".".join)


@given(KEYS, st.sampled_from(["1", "1.5", "[1.5, 2.5]", "'...........................'", "{x = 1.5}"]))
def test_toml_is_what_the_parser_says_but_for_keys_of_many_parts(key, value):
    text = f"# e.g. 1.2.3.4\n{key} = {value}\n"
    if key.count(".") < inputs._MOST_DOTS:
        assert parse_toml(text, "x") == tomllib.loads(text)
    else:
        with pytest.raises(InputError, match="x: a key of more than 16 parts"):
            parse_toml(text, "x")


@pytest.mark.parametrize("number", ["1e401", "1e-401", "0." + "1" * 400, "9" * 5000, "inf", "nan"])
def test_numbers_that_take_minutes_as_exact_ones_are_refused(number):
    with pytest.raises(InputError, match="x: not TOML: a number that is infinite, or of more digits"):
        parse_toml(f"a = {number}", "x", parse_float=Fraction)
    assert parse_toml("a = 1_0.5e3", "x", parse_float=Fraction) == {"a": Fraction(10500)}


@pytest.mark.parametrize(
    ("text", "said"),
    [("[" * 10**5, "x: nested too deeply"), ("{", "x: not JSON: "), ("9" * 5000, "x: not JSON: a number that is")],
)
def test_json_is_refused_in_one_sentence(text, said):
    with pytest.raises(GoalError, match=said) as refused:
        parse_json(text, "x", GoalError)
    assert len(str(refused.value).splitlines()) == 1
    assert parse_json(json.dumps({"a": [1]}).encode(), "x") == {"a": [1]}
