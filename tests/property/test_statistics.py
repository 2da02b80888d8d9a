"""Every value is between the bounds, and no file with a match is pruned."""

import json
import math
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.definitions import of_schema, one_file
from tests.property.predicate_values import plain
from tidegate_delta.data_skipping.file_statistics import (
    compute,
    truncated_maximum,
    truncated_minimum,
)
from tidegate_delta.data_skipping.partition_predicates import evaluate, prune
from tidegate_delta.schema.arrow_types import to_arrow
from tidegate_delta.schema.types import parse_schema
from tidegate_delta.snapshots.file_action_columns import adds_to_columns

SCHEMA = parse_schema(
    json.dumps(
        {
            "type": "struct",
            "fields": [
                {"name": name, "type": kind, "nullable": True, "metadata": {}}
                for name, kind in {
                    "i": "integer",
                    "l": "long",
                    "f": "float",
                    "d": "double",
                    "m": "decimal(20,3)",
                    "s": "string",
                    "day": "date",
                    "at": "timestamp",
                    "ntz": "timestamp_ntz",
                    "b": "boolean",
                }.items()
            ],
        }
    )
)
NAMES = SCHEMA.names
TABLE = of_schema(SCHEMA)

days = st.dates(date(1, 1, 1), date(9999, 12, 31))
moments = st.datetimes(datetime.fromisoformat("0001-01-02"), datetime.fromisoformat("9999-12-30"))
texts = st.one_of(
    st.text(max_size=4), st.text(alphabet="ab\x7f\u00ff\ufffd\U0001f600\U0010ffff", max_size=80)
)
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "i": st.integers(-(2**31), 2**31 - 1),
    "l": st.integers(-(2**63), 2**63 - 1),
    "f": st.floats(width=32),
    "d": st.floats(),
    "m": st.decimals(-(10**16), 10**16, places=3, allow_nan=False, allow_infinity=False),
    "s": texts,
    "day": days,
    "at": moments.map(lambda at: at.replace(tzinfo=UTC)),
    "ntz": moments,
    "b": st.booleans(),
}
rows = st.lists(st.fixed_dictionaries({n: st.none() | VALUES[n] for n in NAMES}), max_size=5)


def table(found: list[dict[str, Any]]) -> pa.Table:
    return pa.Table.from_pylist(found, schema=to_arrow(SCHEMA))


def bound(name: str, text: Any) -> Any:
    if name in ("f", "d"):
        return float(text)
    if name == "day":
        return date.fromisoformat(text)
    if name in ("at", "ntz"):
        return datetime.fromisoformat(text)
    return text


@given(rows)
@settings(deadline=None)
def test_every_value_lies_between_the_bounds(found: list[dict[str, Any]]) -> None:
    held = table(found)
    stats = json.loads(compute(held, SCHEMA), parse_float=Decimal)
    assert stats["numRecords"] == len(found)
    for name in NAMES:
        values = [row[name] for row in held.to_pylist()]
        present = [value for value in values if value is not None]
        assert stats["nullCount"][name] == len(values) - len(present)
        low, high = stats["minValues"].get(name), stats["maxValues"].get(name)
        slack = timedelta(milliseconds=1) if name in ("at", "ntz") else None
        for value in present:
            if low is not None and value == value:
                assert bound(name, low) <= value
            if high is not None:
                assert value <= bound(name, high) + slack if slack else value <= bound(name, high)


@given(rows)
@settings(deadline=None)
def test_bounds_are_there_where_json_can_represent_them(found: list[dict[str, Any]]) -> None:
    held = table(found)
    stats = json.loads(compute(held, SCHEMA))
    for name in ("i", "l", "m", "day", "at", "ntz"):
        present = [row[name] for row in found if row[name] is not None]
        assert (name in stats["minValues"]) == (name in stats["maxValues"]) == bool(present)
    assert "b" not in stats["minValues"]
    if any(row["d"] is not None and math.isnan(row["d"]) for row in found):
        assert "d" not in stats["maxValues"]


@given(texts)
def test_a_cut_string_is_a_bound_of_the_whole(text: str) -> None:
    low, high = truncated_minimum(text), truncated_maximum(text)
    assert low is not None
    assert low <= text
    assert high is None or text.encode() <= high.encode()


def tree(name: str) -> st.SearchStrategy[dict[str, Any]]:
    kind = next(str(field.kind) for field in SCHEMA.fields if field.name == name)
    value = (st.none() | VALUES[name]).map(plain)
    column = {"column": [name]}
    return st.one_of(
        st.builds(
            lambda op, one: {"op": op, **column, "value": one, "type": kind},
            st.sampled_from(["=", "!=", "<", "<=", ">", ">=", "<=>"]),
            value,
        ),
        st.builds(
            lambda many: {"op": "in", **column, "values": many, "type": kind},
            st.lists(value, max_size=3),
        ),
        st.sampled_from(["is_null", "is_not_null"]).map(lambda op: {"op": op, **column}),
    )


predicates = st.recursive(
    st.sampled_from(NAMES).flatmap(tree) | st.just({"op": "true"}),
    lambda inner: st.one_of(
        st.builds(
            lambda op, args: {"op": op, "args": args},
            st.sampled_from(["and", "or"]),
            st.lists(inner, min_size=1, max_size=3),
        ),
        inner.map(lambda arg: {"op": "not", "arg": arg}),
    ),
    max_leaves=6,
)


def from_rows(found: list[dict[str, Any]], name: str) -> st.SearchStrategy[Any]:
    values = [row[name] for row in found if row[name] is not None]
    return st.sampled_from(values) if values else VALUES[name]


@given(st.data())
@settings(deadline=None, max_examples=300)
def test_a_file_that_holds_a_match_is_never_pruned(data: st.DataObject) -> None:
    result = data.draw(rows)
    predicate = data.draw(predicates | near(result))
    held = table(result)
    add = one_file("a", stats=compute(held, SCHEMA))
    kept = prune(predicate, adds_to_columns([add]), TABLE)
    if True in evaluate(predicate, held).to_pylist():
        assert kept.num_rows == 1


def near(found: list[dict[str, Any]]) -> st.SearchStrategy[dict[str, Any]]:
    """Draw comparisons with values of the rows, at the edges of the bounds."""

    def one(name: str) -> st.SearchStrategy[dict[str, Any]]:
        kind = next(str(field.kind) for field in SCHEMA.fields if field.name == name)
        return st.builds(
            lambda op, value: {"op": op, "column": [name], "value": plain(value), "type": kind},
            st.sampled_from(["=", "!=", "<", "<=", ">", ">=", "<=>"]),
            from_rows(found, name),
        )

    compared = st.sampled_from(NAMES).flatmap(one)
    return compared | compared.map(lambda arg: {"op": "not", "arg": arg})
