"""Type widening: which types widen to which, and that old files are read and pruned correctly."""

import json
from datetime import date
from decimal import Decimal
from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.definitions import of_schema, one_file
from tidegate_delta.data_skipping.file_statistics import compute
from tidegate_delta.data_skipping.partition_predicates import evaluate, prune
from tidegate_delta.schema import partition_values
from tidegate_delta.schema.arrow_types import arrow_type, to_arrow
from tidegate_delta.schema.type_widening import holds, widens
from tidegate_delta.schema.types import (
    DataType,
    DecimalType,
    StructField,
    StructType,
    parse_type,
)
from tidegate_delta.snapshots.file_action_columns import adds_to_columns
from tidegate_runtime.table_io.logical_columns import conform

ATOMS = [
    "byte", "short", "integer", "long", "float", "double", "date", "timestamp", "timestamp_ntz",
    "string", "boolean", "binary",
]  # fmt: skip
decimals = st.integers(1, 38).flatmap(
    lambda precision: st.builds(DecimalType, st.just(precision), st.integers(0, precision))
)
kinds = st.sampled_from(ATOMS).map(parse_type) | decimals

VALUES: dict[str, st.SearchStrategy[Any]] = {
    "byte": st.integers(-128, 127),
    "short": st.integers(-(2**15), 2**15 - 1),
    "integer": st.integers(-(2**31), 2**31 - 1),
    "long": st.integers(-(2**63), 2**63 - 1),
    "float": st.floats(width=32, allow_nan=False),
    "date": st.dates(date(1, 1, 2), date(9999, 12, 30)),
    "decimal(4,1)": st.decimals(-999, 999, places=1),
}
CHANGES = [
    ("byte", "short"), ("short", "integer"), ("integer", "long"), ("float", "double"),
    ("byte", "double"), ("integer", "double"), ("integer", "decimal(12,2)"),
    ("long", "decimal(22,2)"), ("date", "timestamp_ntz"), ("decimal(4,1)", "decimal(9,3)"),
    ("byte", "decimal(4,1)"), ("short", "decimal(5,0)"), ("long", "decimal(19,0)"),
    ("byte", "float"), ("short", "float"),
]  # fmt: skip


@given(kinds, kinds, kinds)
def test_to_widen_twice_is_to_widen_once(one: DataType, two: DataType, three: DataType) -> None:
    assert widens(one, one)
    if widens(one, two) and widens(two, three):
        assert widens(one, three)
    if widens(one, two) and widens(two, one):
        assert one == two


@given(kinds, kinds, kinds)
def test_what_a_type_holds_is_held_by_what_holds_that_type(
    one: DataType, two: DataType, three: DataType
) -> None:
    assert holds(one, two) or not widens(one, two)
    if holds(one, two) and holds(two, three):
        assert holds(one, three)
    if holds(one, two) and holds(two, one):
        assert one == two


@given(st.data())
@settings(deadline=None, max_examples=300)
def test_a_file_of_before_that_holds_a_match_is_never_pruned(data: st.DataObject) -> None:
    before, after = data.draw(st.sampled_from(CHANGES))
    old = StructType((StructField("w", parse_type(before)),))
    values = data.draw(st.lists(st.none() | VALUES[before], min_size=1, max_size=4))
    rows = pa.Table.from_pylist([{"w": value} for value in values], schema=to_arrow(old))
    widened = conform(rows.column("w").combine_chunks(), parse_type(after))
    record = {"delta.typeChanges": [{"fromType": before, "toType": after}]}
    new = StructType((StructField("w", parse_type(after), metadata=record),))
    add = one_file("a", stats=compute(rows, old))
    op = data.draw(st.sampled_from(["=", "!=", "<", "<=", ">", ">="]))
    sought = data.draw(st.sampled_from(widened.to_pylist()))
    predicate = {"op": op, "column": ["w"], "value": plain(sought), "type": after}
    kept = prune(predicate, adds_to_columns([add]), of_schema(new))
    if True in evaluate(predicate, pa.table({"w": widened})).to_pylist():
        assert kept.num_rows == 1


@given(st.data())
@settings(deadline=None)
def test_a_partition_value_of_before_is_a_value_of_the_wider_type(data: st.DataObject) -> None:
    """A float's text is parsed as it is: 1.1 becomes the double 1.1, as in Spark."""
    before, after = data.draw(
        st.sampled_from([change for change in CHANGES if change[0] != "float"])
    )
    value = data.draw(VALUES[before])
    text = partition_values.serialize(value, parse_type(before))
    old = pa.array([value], arrow_type(parse_type(before)))
    assert partition_values.column([text], parse_type(after)) == conform(old, parse_type(after))


def plain(value: Any) -> Any:
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, date):
        return str(value)
    if isinstance(value, float) and value - value != 0:
        return str(value)
    return json.loads(json.dumps(value))
