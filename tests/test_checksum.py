"""The checksum at the end of what atlas-lp keeps for itself: nothing that was changed is taken for whole."""

import io
from dataclasses import replace

import pytest
from helpers.damage import cut_or_grown, flipped
from hypothesis import given
from hypothesis import strategies as st

from atlas_lp.checksum import LINE_BYTES, check, with_checksum
from atlas_lp.errors import DamageError, VersionError
from atlas_lp.schemas import ANALYSIS_FILE, CACHE_ENTRY, FILES


def refused(content, kind=CACHE_ENTRY):
    with pytest.raises(DamageError) as found:
        check(io.BytesIO(content), kind)
    return found.value


@pytest.mark.parametrize("kind", FILES, ids=lambda kind: kind.name)
@pytest.mark.parametrize("content", [b"", b"planes", b"\n" * 500, bytes(3 << 20)])
def test_what_is_whole_is_taken_and_can_be_read_from_its_beginning(kind, content):
    file = io.BytesIO(with_checksum(content, kind))
    check(file, kind)
    assert file.read() == with_checksum(content, kind)
    assert len(with_checksum(content, kind)) == len(content) + LINE_BYTES


def test_the_line_says_what_the_file_is():
    line = with_checksum(b"", CACHE_ENTRY).decode("ascii")
    assert line.split()[:3] == ["atlas-lp/cache-entry", str(CACHE_ENTRY.version), "blake2b"]
    assert (line[0], line[-1]) == ("\n", "\n")


@given(st.binary(max_size=64))
def test_every_bit_counts(content):
    for changed in flipped(with_checksum(content, CACHE_ENTRY)):
        assert not isinstance(refused(changed), VersionError)


@given(st.binary(max_size=64))
def test_every_byte_counts(content):
    for changed in cut_or_grown(with_checksum(content, CACHE_ENTRY)):
        refused(changed)


@given(st.binary(max_size=300))
def test_what_nobody_wrote_is_refused(content):
    refused(content)


def test_another_kind_and_another_version_are_named():
    assert str(refused(with_checksum(b"planes", ANALYSIS_FILE))) == "it is a file of another kind, atlas-lp/analysis"
    later = replace(CACHE_ENTRY, version=CACHE_ENTRY.version + 1)
    other = refused(with_checksum(b"planes", later))
    assert isinstance(other, VersionError)
    assert str(other) == f"its version is {later.version}, this one reads {CACHE_ENTRY.version}"
    assert str(refused(b"short")) == "it is too short"
    assert str(refused(bytes(200))) == "its end, with the checksum, is missing or changed"
    assert str(refused(b"x" + with_checksum(b"planes", CACHE_ENTRY))) == "its checksum is that of other content"
