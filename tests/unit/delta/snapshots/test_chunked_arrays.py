import pyarrow as pa
import pytest

from tidegate_delta.snapshots.chunked_arrays import SHARED_NULLS, first_seen, missing


@pytest.mark.parametrize("count", [0, 1, 3, 4, 5, SHARED_NULLS, SHARED_NULLS + 1, 3 * SHARED_NULLS])
@pytest.mark.parametrize("kind", [pa.string(), pa.struct([pa.field("x", pa.int32())])])
def test_a_missing_column_is_null_and_of_the_requested_length(
    count: int, kind: pa.DataType
) -> None:
    column = missing(count, kind)

    assert (column.type, len(column), column.null_count) == (kind, count, count)


def test_what_is_missing_shares_its_memory() -> None:
    one, other = missing(SHARED_NULLS * 2, pa.int64()), missing(SHARED_NULLS, pa.int64())

    places = {piece.buffers()[1].address for column in (one, other) for piece in column.chunks}
    assert len(places) == 1


def test_a_value_is_seen_first_once_across_chunks() -> None:
    result = first_seen(pa.chunked_array([["a", "b"], [], ["b", "c"], ["a"]], pa.string()))

    assert result is not None
    assert result.to_pylist() == [True, True, False, True, False]


@pytest.mark.parametrize("pieces", [[], [[]], [["a"], ["b"]]])
def test_without_duplicates_nothing_is_reported(pieces: list[list[str]]) -> None:
    assert first_seen(pa.chunked_array(pieces, pa.string())) is None
