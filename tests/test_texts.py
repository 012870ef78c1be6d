"""Texts that anybody may have written: shown without effect, and read as numbers by one rule."""

import json
import sys
import unicodedata

import pytest
from helpers.hostile import FILE_NAME, MANY_DIGITS, TEXT
from hypothesis import example, given
from hypothesis import strategies as st

from atlas_lp.files import json_text
from atlas_lp.texts import acts, integer, plain, plain_json, plain_lines, quoted, shortened

ANY_TEXT = st.text(st.characters(codec=None, exclude_categories=[]))
"""Every character that Python has, halves of pairs among them."""

SEEN = {"L", "M", "N", "P", "S"}
"""Categories of Unicode of what has a shape: letters, marks, numbers, punctuation and symbols."""


@given(ANY_TEXT)
@example(TEXT)
@example(FILE_NAME)
def test_what_is_plain_has_only_characters_with_a_shape_and_spaces(text):
    shown = plain(text)
    assert {unicodedata.category(c)[0] for c in shown if unicodedata.category(c) != "Zs"} <= SEEN
    assert shown.encode().decode() == shown
    assert plain(shown) == shown


@given(st.text(st.characters(categories=["L", "M", "N", "P", "S", "Zs"])))
def test_what_has_a_shape_stays_as_it_is(text):
    assert plain(text) == text
    assert not any(map(acts, text))


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("node0", "node0"),
        ("µ ≤ \N{MINUS SIGN}5 %, 日本, \N{NO-BREAK SPACE}", "µ ≤ \N{MINUS SIGN}5 %, 日本, \N{NO-BREAK SPACE}"),
        ("\x1b[2J", r"\x1b[2J"),
        ("a\nb\tc\rd\0", r"a\nb\tc\rd\x00"),
        ("\x7f\x85\x9b", r"\x7f\x85\x9b"),
        ("\u202eabc\u2028", r"\u202eabc\u2028"),
        ("\U000e0041", r"\U000e0041"),
        ("\udcff\udc80", r"\xff\x80"),
        ("\ud800\udfff", r"\ud800\udfff"),
    ],
)
def test_characters_that_act_are_written_out(text, shown):
    assert plain(text) == shown


def test_lines_stay_lines():
    assert plain_lines("one\x1b\ntwo\u2028\n") == "one\\x1b\ntwo\\u2028\n"


@given(st.recursive(ANY_TEXT | st.integers() | st.none(), lambda inner: st.dictionaries(ANY_TEXT, inner, max_size=3)))
@example({TEXT: FILE_NAME})
def test_json_says_the_same_in_characters_that_act_on_nobody(value):
    document = json_text(value)
    assert not any(acts(c) for c in document if c != "\n")

    def without_halves(part):
        if isinstance(part, dict):
            return {without_halves(name): without_halves(inner) for name, inner in part.items()}
        if not isinstance(part, str):
            return part
        return "".join(plain(c) if unicodedata.category(c) == "Cs" else c for c in part)

    assert json.loads(document.encode()) == without_halves(value)


def test_json_of_plain_texts_is_untouched():
    document = json.dumps({"µ": "\N{MINUS SIGN}5 % ≤ 日本"}, ensure_ascii=False, indent=1)
    assert plain_json(document) == document


@given(st.integers(-(10**20) + 1, 10**20 - 1))
def test_integers_are_read_back(number):
    assert integer(str(number)) == number


@given(st.integers(0, 2**64 - 1))
def test_hexadecimal_integers_are_read_back(number):
    assert integer(hex(number)) == integer(f"0X{number:X}") == number


@given(ANY_TEXT)
@example("²")
@example("٣")
@example(MANY_DIGITS)
@example("0x" + MANY_DIGITS)
@example("1_000")
@example(" 1")
@example("1\n")
@example("+1")
@example("0b1")
@example("")
@example("-")
@example("--1")
@example("0x")
def test_whatever_is_read_as_an_integer_is_one_in_ascii_and_of_few_digits(text):
    found = integer(text)
    if found is not None:
        assert text.isascii()
        assert len(text) <= 21
        assert found == int(text, 16 if "x" in text.lower() else 10)
        assert text == text.strip()
        assert not set(text) & set("_+")


def test_what_int_takes_and_integer_does_not():
    for text in ("²", MANY_DIGITS):
        with pytest.raises(ValueError, match="int"):
            int(text)
    assert [integer(text) for text in ("²", MANY_DIGITS, "٣", " 1", "1_000", "+1", "1.0", "nan")] == [None] * 8
    assert len(MANY_DIGITS) > sys.get_int_max_str_digits()


@given(ANY_TEXT, st.integers(2, 50))
def test_long_texts_are_cut_in_the_middle(text, most):
    cut = shortened(text, most)
    assert len(cut) <= most + len(" ... ")
    assert cut == text or (cut.startswith(text[: most // 2]) and cut.endswith(text[-(most // 2) :]))


def test_quotes_are_short():
    assert quoted("4 bananas") == "'4 bananas'"
    assert quoted(MANY_DIGITS) == f"'{'9' * 40}...'"
