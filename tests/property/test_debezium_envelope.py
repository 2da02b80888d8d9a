"""Laws of the change stream's records over generated rows."""

import json
from collections import Counter
from decimal import Decimal
from typing import Any
from uuid import UUID

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from tidegate_cdc_publisher.change_batch import Batch, SourceBlock
from tidegate_cdc_publisher.json_rows import row_texts
from tidegate_cdc_publisher.record_encoding import records
from tidegate_cdc_publisher.row_diff import Changes, compare

SCHEMA = pa.schema(
    [
        ("k", pa.int32()),
        ("s", pa.string()),
        ("f", pa.float64()),
        ("d", pa.decimal128(6, 2)),
        ("l", pa.list_(pa.string())),
    ]
)
ORIGIN = SourceBlock(UUID(int=1), "t", "tidegate", 3, 1_000)

_row = st.fixed_dictionaries(
    {
        "k": st.none() | st.integers(0, 4),
        "s": st.none() | st.text(max_size=3),
        "f": st.none() | st.sampled_from([0.0, -0.0, 1.5, float("nan"), float("inf")]),
        "d": st.none() | st.sampled_from([Decimal("0.01"), Decimal("-1.50")]),
        "l": st.none() | st.lists(st.none() | st.text(max_size=2), max_size=2),
    }
)
_rows = st.lists(_row, max_size=12)


def table(rows: list[dict[str, Any]]) -> pa.Table:
    return pa.Table.from_pylist(rows, schema=SCHEMA)


def sent(changes: Changes) -> list[dict[str, Any]]:
    updated = len(changes.deleted)
    batches = [
        Batch("d", 0, before=changes.deleted),
        Batch("u", updated, before=changes.updated_before, after=changes.updated_after),
        Batch("c", updated + len(changes.updated_after), after=changes.inserted),
    ]
    values = [record.value for batch in batches for record in records(ORIGIN, batch, 9, "without")]
    return [json.loads(value) for value in values if value is not None]


def identity(row: dict[str, Any] | None) -> str:
    return json.dumps(row)


@given(_rows)
@settings(deadline=None, max_examples=60)
def test_every_row_is_a_json_object_with_every_column(rows: list[dict[str, Any]]) -> None:
    for text, row in zip(row_texts(table(rows)).to_pylist(), rows, strict=True):
        read = json.loads(text)
        assert list(read) == SCHEMA.names
        assert [read[name] for name in ("k", "s", "l")] == [row[name] for name in ("k", "s", "l")]
        assert {name for name in read if read[name] is None} == {n for n in row if row[n] is None}


@given(_rows, _rows, _rows)
@settings(deadline=None, max_examples=100)
def test_applying_the_changes_gives_the_rows_after(
    kept: list[dict[str, Any]], left: list[dict[str, Any]], joined: list[dict[str, Any]]
) -> None:
    before, after = table(kept + left), table(joined + kept)
    rows = Counter(row_texts(before).to_pylist())
    changes = compare(before, after, ["k"])
    rows -= Counter(changes.deleted.texts.to_pylist() + changes.updated_before.texts.to_pylist())
    rows += Counter(changes.inserted.texts.to_pylist() + changes.updated_after.texts.to_pylist())
    assert rows == Counter(row_texts(after).to_pylist())


@given(_rows, _rows)
@settings(deadline=None, max_examples=100)
def test_no_row_is_both_deleted_and_inserted(
    left: list[dict[str, Any]], joined: list[dict[str, Any]]
) -> None:
    result = sent(compare(table(left), table(joined), ["k"]))
    gone = {identity(item["before"]) for item in result if item["before"] is not None}
    come = {identity(one["after"]) for one in result if one["after"] is not None}
    assert not gone & come


@given(_rows, _rows)
@settings(deadline=None, max_examples=100)
def test_a_version_numbers_its_changes_without_a_gap(
    left: list[dict[str, Any]], joined: list[dict[str, Any]]
) -> None:
    result = sent(compare(table(left), table(joined), ["k"]))
    indices = [int(json.loads(item["source"]["sequence"])[1]) for item in result]
    assert indices == list(range(len(result)))


@given(_rows, _rows, st.integers(1, 5))
@settings(deadline=None, max_examples=60)
def test_cut_anywhere_the_records_are_the_same(
    left: list[dict[str, Any]], joined: list[dict[str, Any]], length: int
) -> None:
    batch = Batch("d", 0, before=compare(table(left), table(joined), ["k"]).deleted)
    parts = [batch.slice(start, length) for start in range(0, len(batch), length)]
    cut = [record for part in parts for record in records(ORIGIN, part, 9, "with")]
    assert cut == list(records(ORIGIN, batch, 9, "with"))
