"""Differences between removed rows and added rows."""

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest

from tidegate_cdc_publisher.row_diff import Changes, Images, compare

Row = tuple[int | None, str]
SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.string())])


def rows(*given: Row) -> pa.Table:
    return pa.table({"k": [k for k, _ in given], "v": [v for _, v in given]}, schema=SCHEMA)


def values(images: Images) -> list[str]:
    return [text.split('"v":"')[1][:-2] for text in images.texts.to_pylist()]


def parts(changes: Changes) -> tuple[list[str], list[tuple[str, str]], list[str]]:
    updated = zip(values(changes.updated_before), values(changes.updated_after), strict=True)
    return values(changes.deleted), list(updated), values(changes.inserted)


def compared(
    old: Sequence[Row], new: Sequence[Row], key: Sequence[str] | None = ("k",)
) -> tuple[list[str], list[tuple[str, str]], list[str]]:
    return parts(compare(rows(*old), rows(*new), key))


def test_rows_that_a_rewrite_copied_cancel_out() -> None:
    assert compared([(1, "a"), (2, "b"), (3, "c")], [(3, "c"), (1, "a")]) == (["b"], [], [])


def test_a_deleted_and_an_inserted_row_with_one_key_are_an_update() -> None:
    assert compared([(1, "a"), (2, "b")], [(2, "B"), (1, "a")]) == ([], [("b", "B")], [])


def test_equal_rows_cancel_one_against_one() -> None:
    assert compared([(1, "a")] * 3, [(1, "a")] * 2) == (["a"], [], [])
    assert compared([(1, "a")], [(1, "a")] * 3) == ([], [], ["a", "a"])


def test_a_key_that_occurs_twice_is_published_as_deletes_and_inserts() -> None:
    assert compared([(1, "a"), (1, "b")], [(1, "c")]) == (["a", "b"], [], ["c"])
    assert compared([(1, "a")], [(1, "b"), (1, "c")]) == (["a"], [], ["b", "c"])


def test_a_changed_key_is_a_delete_and_an_insert() -> None:
    assert compared([(1, "a")], [(2, "a")]) == (["a"], [], ["a"])


def test_a_null_is_a_key_like_any_other() -> None:
    assert compared([(None, "a")], [(None, "b")]) == ([], [("a", "b")], [])


def test_without_keys_nothing_is_paired() -> None:
    changes = compare(rows((1, "a"), (2, "x")), rows((1, "b"), (2, "x")), None)
    assert parts(changes) == (["a"], [], ["b"])
    assert changes.deleted.keys is None


def test_changes_follow_the_order_of_the_rows() -> None:
    old: list[Row] = [(9, "i"), (4, "d"), (7, "g"), (1, "a")]
    new: list[Row] = [(1, "A"), (8, "h"), (4, "D"), (2, "b")]
    assert compared(old, new) == (["i", "g"], [("d", "D"), ("a", "A")], ["h", "b"])


def test_keys_stand_beside_their_rows() -> None:
    changes = compare(rows((1, "a"), (2, "b")), rows((2, "B"), (3, "c")), ["k"])
    keys = [
        images.keys.to_pylist()
        for images in (changes.deleted, changes.updated_after, changes.inserted)
        if images.keys is not None
    ]
    assert keys == [['{"k":1}'], ['{"k":2}'], ['{"k":3}']]
    assert len(changes) == 3


@pytest.mark.parametrize("key", [["k"], None])
def test_a_side_without_rows_leaves_the_other_as_it_is(key: list[str] | None) -> None:
    assert compared([], [(1, "a")], key) == ([], [], ["a"])
    assert compared([(1, "a")], [], key) == (["a"], [], [])
    assert compared([], [], key) == ([], [], [])


def test_rows_before_and_after_a_change_of_schema_differ() -> None:
    wider = pa.table({"k": [1], "v": ["a"], "w": [None]})
    changes = compare(rows((1, "a")), wider, ["k"])
    assert changes.updated_before.texts.to_pylist() == ['{"k":1,"v":"a"}']
    assert changes.updated_after.texts.to_pylist() == ['{"k":1,"v":"a","w":null}']


STRUCT = pa.struct([pa.field("a", pa.int64(), nullable=False)])
ELEMENT = pa.field("element", pa.int64(), nullable=False)
MAP = pa.map_(pa.string(), pa.field("value", pa.int64(), nullable=False))


@pytest.mark.parametrize(
    ("field", "lacking", "whole"),
    [
        (pa.field("w", pa.int64(), nullable=False), None, 1),
        (pa.field("w", STRUCT), {"a": None}, None),
        (pa.field("w", pa.list_(ELEMENT)), [1, None], [1]),
        (pa.field("w", MAP), [("x", 1), ("y", None)], [("x", 1)]),
        (pa.field("w", pa.list_(STRUCT)), [{"a": 1}, {"a": None}], [{"a": 1}, None]),
    ],
    ids=["column", "struct", "list", "map", "list of structs"],
)
def test_a_row_without_a_value_that_is_required_now_is_no_image_of_an_update(
    field: pa.Field, lacking: Any, whole: Any
) -> None:
    after = pa.schema([*SCHEMA, field])
    before = pa.schema([*SCHEMA, ("w", without_rules(field.type))])
    old = pa.table({"k": [1, 2], "v": ["a", "b"], "w": [lacking, whole]}, schema=before)
    new = pa.table({"k": [1, 2], "v": ["A", "B"], "w": [whole, whole]}, schema=after)
    changes = compare(old, new, ["k"])
    kinds = (changes.deleted, changes.updated_before, changes.inserted)
    keys = [images.keys.to_pylist() for images in kinds if images.keys is not None]
    assert keys == [['{"k":1}'], ['{"k":2}'], ['{"k":1}']]


def without_rules(kind: pa.DataType) -> pa.DataType:
    """Return a type in which everything may be null."""
    if pa.types.is_struct(kind):
        return pa.struct([(field.name, without_rules(field.type)) for field in kind.fields])
    if pa.types.is_map(kind):
        return pa.map_(kind.key_type, without_rules(kind.item_type))
    return pa.list_(without_rules(kind.value_type)) if pa.types.is_list(kind) else kind
