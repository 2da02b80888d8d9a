"""A predicate's result on partition values equals its result on a row that holds them."""

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.definitions import one_file
from tidegate_delta.data_skipping.partition_predicates import evaluate, may_match_partition, prune
from tidegate_delta.log.actions import Metadata
from tidegate_delta.schema import partition_values
from tidegate_delta.schema.arrow_types import to_arrow
from tidegate_delta.schema.types import format_schema, parse_schema
from tidegate_delta.snapshots.file_action_columns import adds_to_columns

KINDS = {
    "i": "integer",
    "l": "long",
    "f": "float",
    "d": "double",
    "m": "decimal(9,2)",
    "s": "string",
    "day": "date",
    "at": "timestamp",
    "ntz": "timestamp_ntz",
    "b": "boolean",
}
SCHEMA = parse_schema(
    json.dumps(
        {
            "type": "struct",
            "fields": [
                {"name": name, "type": kind, "nullable": True, "metadata": {}}
                for name, kind in KINDS.items()
            ],
        }
    )
)
TABLE = Metadata(id="t", schema_string=format_schema(SCHEMA), partition_columns=SCHEMA.names)
moments = st.sampled_from(["1999-12-31T23:59:59.999999", "2024-02-29"]).map(datetime.fromisoformat)
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "i": st.integers(-2, 2),
    "l": st.integers(-2, 2),
    "f": st.sampled_from([0.1, -0.0, 0.0, float("nan"), float("inf")]),
    "d": st.sampled_from([0.1, -0.0, 0.0, float("nan"), float("-inf")]),
    "m": st.sampled_from([Decimal("-1.50"), Decimal("0.10"), Decimal("0.00")]),
    "s": st.sampled_from(["a", "b", "Zürich 東京", "\U0001f600", "\ufffd"]),
    "day": st.sampled_from([date(2024, 2, 28), date(2024, 2, 29)]),
    "at": moments.map(lambda at: at.replace(tzinfo=UTC)),
    "ntz": moments,
    "b": st.booleans(),
}
rows = st.fixed_dictionaries({name: st.none() | values for name, values in VALUES.items()})


def plain(value: Any) -> Any:
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, float) and value - value != 0:
        return str(value)
    if isinstance(value, datetime):
        return value.replace(tzinfo=None).isoformat(sep=" ")
    return value.isoformat() if isinstance(value, date) else value


def leaf(name: str) -> st.SearchStrategy[dict[str, Any]]:
    column = {"column": [name.upper()]}
    value = st.none() | VALUES[name].map(plain)
    compared = st.builds(
        lambda op, one: {"op": op, **column, "value": one, "type": KINDS[name]},
        st.sampled_from(["=", "!=", "<", "<=", ">", ">=", "<=>"]),
        value,
    )
    listed = st.lists(value, max_size=3).map(
        lambda many: {"op": "in", **column, "values": many, "type": KINDS[name]}
    )
    nulls = st.sampled_from(["is_null", "is_not_null"]).map(lambda op: {"op": op, **column})
    return compared | listed | nulls


def joined(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    several = st.lists(inner, min_size=1, max_size=3)
    return st.one_of(
        several.map(lambda args: {"op": "and", "args": args}),
        several.map(lambda args: {"op": "or", "args": args}),
        inner.map(lambda arg: {"op": "not", "arg": arg}),
    )


trees = st.recursive(st.sampled_from(sorted(VALUES)).flatmap(leaf), joined, max_leaves=6)


def texts(row: dict[str, Any]) -> dict[str, str | None]:
    kinds = {field.name: field.kind for field in SCHEMA.fields}
    return {name: partition_values.serialize(value, kinds[name]) for name, value in row.items()}


@given(trees, rows)
@settings(deadline=None, max_examples=500)
def test_partition_values_match_as_a_row_would(tree: dict[str, Any], row: dict[str, Any]) -> None:
    held = pa.Table.from_pylist([row], schema=to_arrow(SCHEMA))
    expected = evaluate(tree, held).to_pylist() == [True]
    assert may_match_partition(tree, texts(row), SCHEMA, SCHEMA.names) == expected


@given(trees, st.lists(rows, min_size=1, max_size=4))
@settings(deadline=None, max_examples=300)
def test_pruning_keeps_every_matching_partition(
    tree: dict[str, Any], found: list[dict[str, Any]]
) -> None:
    adds = [one_file(str(place), partition_values=texts(row)) for place, row in enumerate(found)]
    truths = evaluate(tree, pa.Table.from_pylist(found, schema=to_arrow(SCHEMA))).to_pylist()
    kept = prune(tree, adds_to_columns(adds), TABLE).column("path").to_pylist()
    assert {str(place) for place, truth in enumerate(truths) if truth} <= set(kept)


@given(trees, rows)
@settings(deadline=None)
def test_a_negation_turns_true_and_false_and_keeps_the_unknown(
    tree: dict[str, Any], row: dict[str, Any]
) -> None:
    held = pa.Table.from_pylist([row], schema=to_arrow(SCHEMA))
    truth = evaluate(tree, held).to_pylist()[0]
    turned = evaluate({"op": "not", "arg": tree}, held).to_pylist()[0]
    assert turned == (None if truth is None else not truth)
