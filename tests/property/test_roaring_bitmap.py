"""Laws of row sets: the algebra of sets, one encoding each, and other bytes are refused."""

from itertools import islice
from uuid import UUID

from hypothesis import given, settings
from hypothesis import strategies as st

from tidegate_delta.deletion_vectors import descriptors, roaring_bitmap
from tidegate_delta.deletion_vectors.descriptors import (
    frame_of,
    framed_rows,
    in_file,
    inline,
    inline_rows,
    path_of,
)
from tidegate_delta.deletion_vectors.roaring_bitmap import MAGIC, NATIVE_MAGIC, last, of_rows

BLOCK = 1 << 16
WRITTEN_ROWS_MAX = 1 << 48
STARTS = st.builds(
    lambda bucket, block, low: (bucket << 32) + block * BLOCK + low,
    st.sampled_from([0, 0, 0, 1, 3]),
    st.sampled_from([0, 1, 2, BLOCK - 1]),
    st.integers(0, BLOCK - 1),
)
STRETCHES = st.builds(
    lambda start, length, step: range(start, start + length * step, step),
    STARTS,
    st.sampled_from([1, 1, 2, 3, 4, 40, 4_096, 4_097, 9_000, BLOCK]),
    st.sampled_from([1, 1, 2, 3]),
)
ROWS = st.lists(STRETCHES, max_size=4).map(lambda found: {row for one in found for row in one})


@given(ROWS)
def test_a_set_is_read_as_it_was_written(rows: set[int]) -> None:
    result = of_rows(rows)
    assert list(result) == sorted(rows)
    assert len(result) == len(rows)
    content = roaring_bitmap.encode(result)
    assert roaring_bitmap.decode(content) == result
    assert inline_rows(inline(result)) == result


@given(ROWS, ROWS)
@settings(max_examples=40)
def test_sets_obey_the_algebra_of_sets(left: set[int], right: set[int]) -> None:
    one, two = of_rows(left), of_rows(right)
    assert one | two == two | one == of_rows(left | right)
    assert one & two == two & one == of_rows(left & right)
    assert one - two == of_rows(left - right)
    assert (one - two) | (one & two) == one
    assert (one <= two) == (left <= right)
    assert one & two <= one <= one | two
    assert one.isdisjoint(two) == left.isdisjoint(right)
    assert (one - two).isdisjoint(two)
    assert last(one) == max(left, default=-1)
    assert all(row in one for row in islice(left, 50))
    assert all((row in one) == (row in left) for row in islice(right, 50))
    assert len(one | two) == len(one) + len(two) - len(one & two)
    assert roaring_bitmap.decode(roaring_bitmap.encode(one | two)) == one | two


@given(st.sampled_from([MAGIC, NATIVE_MAGIC]), st.binary(max_size=200))
def test_any_bytes_are_a_set_or_a_value_error(magic: int, content: bytes) -> None:
    try:
        result = roaring_bitmap.decode(magic.to_bytes(4, "little") + content)
    except ValueError:
        return
    if last(result) < WRITTEN_ROWS_MAX:
        assert roaring_bitmap.decode(roaring_bitmap.encode(result)) == result


@given(st.lists(ROWS, max_size=3), st.integers(0, 2**48 - 1), st.sampled_from(["", "ab"]))
@settings(max_examples=30)
def test_a_file_gives_back_each_of_its_vectors(sets: list[set[int]], row: int, prefix: str) -> None:
    wanted = [*map(of_rows, sets), of_rows([row])]
    content, vectors = in_file(wanted, UUID(int=5), prefix)
    for vector, rows in zip(vectors, wanted, strict=True):
        frame = frame_of(vector)
        assert framed_rows(vector, content[frame.start : frame.stop]) == rows
        assert vector.cardinality == len(rows)
    assert len({path_of(vector) for vector in vectors}) == 1


@given(ROWS, st.data())
def test_damaged_bytes_are_a_set_or_a_value_error(rows: set[int], data: st.DataObject) -> None:
    content = bytearray(roaring_bitmap.encode(of_rows(rows)))
    at = data.draw(st.integers(0, min(len(content) - 1, 60)))
    content[at] ^= data.draw(st.integers(1, 255))
    try:
        result = roaring_bitmap.decode(bytes(content[: data.draw(st.integers(1, len(content)))]))
    except ValueError:
        return
    if len(result) < 1 << 20:
        assert sorted(set(result)) == list(result)
        assert len(list(result)) == len(result)


@given(st.binary(max_size=64))
def test_what_z85_spells_is_what_it_was_given(content: bytes) -> None:
    text = descriptors.z85_encode(content)
    assert descriptors.z85_decode(text)[: len(content)] == content
    assert descriptors.z85_encode(descriptors.z85_decode(text)) == text


@given(st.text(max_size=20) | st.text(alphabet=descriptors.ALPHABET, max_size=20))
def test_any_text_is_bytes_or_a_value_error(text: str) -> None:
    try:
        content = descriptors.z85_decode(text)
    except ValueError:
        return
    assert descriptors.z85_encode(content) == text
