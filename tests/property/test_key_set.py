"""The set of live paths equals a Python set of the same strings."""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate_delta.snapshots import snapshot
from tidegate_delta.snapshots.snapshot import KeySet

texts = st.sampled_from(["", "a", "b", "part=1/a.parquet", "ä\U0001f600", "\0"]) | st.text(
    st.characters(codec="utf-8"), max_size=5
)


@st.composite
def columns(draw: st.DrawFn) -> pa.ChunkedArray:
    there = draw(st.lists(texts, unique=True, max_size=30))
    at = draw(st.integers(0, len(there)))
    pieces = draw(st.sampled_from([[there], [there[:at], there[at:]]]))
    return pa.chunked_array(pieces, pa.string())


@given(columns(), st.lists(texts))
def test_it_holds_what_the_column_holds(column: pa.ChunkedArray, asked: list[str]) -> None:
    result, plain = KeySet(column), set(column.to_pylist())

    assert set(result) == plain
    assert len(result) == len(plain)
    for text in [*asked, *plain]:
        assert (text in result) == (text in plain)
    assert [result.row(text) for text in column.to_pylist()] == list(range(len(column)))


@given(columns(), st.lists(texts))
def test_texts_with_one_hash_are_distinguished(column: pa.ChunkedArray, asked: list[str]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(snapshot, "hash", len, raising=False)
        result = KeySet(column)
        assert {text: text in result for text in asked} == {
            text: text in column.to_pylist() for text in asked
        }


def test_it_is_empty_for_a_column_without_chunks() -> None:
    assert not KeySet(pa.chunked_array([], pa.string()))


def test_what_is_no_text_is_not_in_it() -> None:
    assert KeySet(pa.chunked_array([["1"]])).row(1) is None
