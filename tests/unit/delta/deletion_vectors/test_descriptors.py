from typing import Any
from uuid import UUID

import pytest

from tidegate_delta.deletion_vectors import descriptors
from tidegate_delta.deletion_vectors.descriptors import (
    frame_of,
    framed_rows,
    in_file,
    inline,
    inline_rows,
    is_inline,
    path_of,
)
from tidegate_delta.deletion_vectors.roaring_bitmap import Bitmap, of_rows
from tidegate_delta.log.actions import DeletionVector

GOLDEN = "^Bg9^0rr910000000000iXQKl0rr91000f55c8Xg0@@D72lkbi5=-{L"
ROWS = [3, 4, 7, 11, 18, 29]
FILE = UUID("d2c639aa-8816-431a-aaf6-d3fe2512ff61")


def vector(storage_type: str, place: str, **more: Any) -> DeletionVector:
    fields = {"size_in_bytes": 44, "cardinality": 6, **more}
    return DeletionVector(storage_type=storage_type, path_or_inline_dv=place, **fields)


def framed(rows: Bitmap) -> tuple[DeletionVector, bytes]:
    content, (one,) = in_file([rows], FILE)
    frame = frame_of(one)
    return one, content[frame.start : frame.stop]


def test_an_inline_vector_holds_its_rows() -> None:
    golden = vector("i", GOLDEN)
    assert is_inline(golden)
    assert list(inline_rows(golden)) == ROWS
    assert inline(of_rows(ROWS)) == golden


def test_a_vector_that_deletes_nothing_is_not_read() -> None:
    nowhere = vector("u", "", size_in_bytes=0, cardinality=0)
    assert is_inline(nowhere)
    assert inline_rows(nowhere) == Bitmap()


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"size_in_bytes": 45}, "45 are stated"),
        ({"size_in_bytes": -1}, "-1 are stated"),
        ({"size_in_bytes": 40}, "no set of rows"),
        ({"cardinality": 7}, "6 rows, the log says 7"),
        ({"path_or_inline_dv": GOLDEN[:-1]}, "words of five"),
    ],
)
def test_an_inline_vector_that_is_not_as_stated_is_refused(changed: Any, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        inline_rows(vector("i", GOLDEN).with_(**changed))


def test_a_relative_vector_lies_in_a_file_with_a_name_of_its_own() -> None:
    name = "deletion_vector_d2c639aa-8816-431a-aaf6-d3fe2512ff61.bin"
    assert path_of(vector("u", "^-aqEH.-t@S}K{vb[*k^")) == name
    assert path_of(vector("u", "ab^-aqEH.-t@S}K{vb[*k^")) == f"ab/{name}"
    assert path_of(vector("u", "a b%^-aqEH.-t@S}K{vb[*k^")) == f"a%20b%25/{name}"


def test_an_absolute_vector_is_read_from_its_path() -> None:
    assert path_of(vector("p", "s3://b/x%20y.bin")) == "s3://b/x%20y.bin"


@pytest.mark.parametrize(
    ("storage_type", "place"),
    [
        ("p", "x.bin"),
        ("r", "x.bin"),
        ("U", "^-aqEH.-t@S}K{vb[*k^"),
        ("u", "short"),
        ("u", "../^-aqEH.-t@S}K{vb[*k^"),
        ("u", "/^-aqEH.-t@S}K{vb[*k^"),
        ("u", "..^-aqEH.-t@S}K{vb[*k^"),
        ("u", "~-aqEH.-t@S}K{vb[*k^"),
    ],
)
def test_a_descriptor_that_names_no_file_is_refused(storage_type: str, place: str) -> None:
    with pytest.raises(ValueError, match=r"[a-z]"):
        path_of(vector(storage_type, place))


def test_a_file_holds_several_vectors_each_at_its_offset() -> None:
    sets = [of_rows(ROWS), of_rows([0]), Bitmap()]
    content, vectors = in_file(sets, FILE, "ab")
    assert content[:1] == b"\x01"
    assert [vector.offset for vector in vectors] == [1, 53, 95]
    assert {vector.path_or_inline_dv for vector in vectors} == {
        "ab" + descriptors.z85_encode(FILE.bytes)
    }
    for one, rows in zip(vectors, sets, strict=True):
        frame = frame_of(one)
        assert framed_rows(one, content[frame.start : frame.stop]) == rows
    assert frame_of(vectors[-1]).stop == len(content)


def test_a_vector_without_an_offset_begins_where_its_file_does() -> None:
    assert frame_of(vector("u", "")) == range(52)


@pytest.mark.parametrize("changed", [{"offset": -1}, {"size_in_bytes": -1}])
def test_numbers_that_cannot_be_are_refused(changed: Any) -> None:
    with pytest.raises(ValueError, match="in no file"):
        frame_of(vector("u", "").with_(**changed))


def test_a_frame_that_is_not_as_stated_is_refused() -> None:
    one, frame = framed(of_rows(ROWS))
    flipped = bytearray(frame)
    flipped[20] ^= 1
    for result, content, why in (
        (one, frame[:-1], "1 bytes too early"),
        (one, bytes([1]) + frame[1:], "16777260 bytes, the log 44"),
        (one, frame[:-1] + bytes([frame[-1] ^ 1]), "checksum"),
        (one, bytes(flipped), "checksum"),
        (one.with_(cardinality=5), frame, "6 rows, the log says 5"),
    ):
        with pytest.raises(ValueError, match=why):
            framed_rows(result, content)


def test_the_vector_of_its_specification_is_spelt_as_there() -> None:
    content = bytes.fromhex("864fd26fb559f75b")
    assert descriptors.z85_encode(content) == "HelloWorld"
    assert descriptors.z85_decode("HelloWorld") == content


def test_what_is_no_whole_word_is_filled_up_with_zeros() -> None:
    assert descriptors.z85_decode(descriptors.z85_encode(b"abcde")) == b"abcde\0\0\0"
    assert descriptors.z85_encode(b"") == ""


@pytest.mark.parametrize("text", ["0000", "0000~", "#####", "0000é", "00000 0000"])
def test_what_spells_no_bytes_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="character"):
        descriptors.z85_decode(text)
