"""Columnar pruning excludes no file that the exact check of statistics keeps."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.definitions import one_file
from tidegate_delta.data_skipping import file_pruning
from tidegate_delta.data_skipping.file_pruning import prune
from tidegate_delta.log.actions import Metadata
from tidegate_delta.snapshots.file_action_columns import adds_to_columns

KINDS = {"i": "integer", "l": "long", "s": "string", "day": "date", "d": "double", "part": "long"}
SCHEMA = {
    "type": "struct",
    "fields": [
        *({"name": n, "type": kind, "nullable": True, "metadata": {}} for n, kind in KINDS.items()),
        {
            "name": "n",
            "type": {
                "type": "struct",
                "fields": [{"name": "a", "type": "long", "nullable": True, "metadata": {}}],
            },
            "nullable": True,
            "metadata": {},
        },
    ],
}
TABLE = Metadata(id="t", schema_string=json.dumps(SCHEMA), partition_columns=("part",))
PARTS = ["1", "2", None]
TEXTS = ["", "a", "b", "ab\ufffd", "ab\U0001f600", "x" * 15, "x" * 31, "x" * 32, "x" * 40]
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "i": st.integers(-2, 2),
    "l": st.integers(-2, 2) | st.sampled_from([2**63 - 1, -(2**63)]),
    "s": st.sampled_from(TEXTS),
    "day": st.sampled_from(["2024-02-28", "2024-02-29", "0001-01-01", "9999-12-31"]),
    "d": st.sampled_from([-1.5, 0.0, 2.0]),
    "part": st.integers(0, 3),
}
odd = st.none() | st.just(2**70) | st.sampled_from(["20240229", "x", True, 1.5, {}, []])


def of_columns(strange: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    plain = {name: values | strange for name, values in VALUES.items()}
    nested = {"n": st.fixed_dictionaries({}, optional={"a": st.integers(-2, 2) | strange})}
    return st.fixed_dictionaries({}, optional={**plain, **nested})


def statements(strange: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    sides = {"minValues": of_columns(strange), "maxValues": of_columns(strange)}
    counts = {"numRecords": st.integers(-1, 3), "nullCount": of_columns(st.integers(-1, 3))}
    return st.fixed_dictionaries({}, optional={**sides, **counts})


regular = statements(st.nothing()).map(json.dumps)
irregular = statements(odd).map(json.dumps) | st.sampled_from(["", " ", "{}{}", "{", "[]", "1"])
files = st.lists(regular | st.none(), min_size=1, max_size=6) | st.lists(
    regular | irregular | st.none(), min_size=1, max_size=6
)


def leaf(op: str, column: str, value: Any) -> dict[str, Any]:
    return {"op": op, "column": column, "value": value, "type": KINDS[column]}


def leaves(column: str) -> st.SearchStrategy[dict[str, Any]]:
    ops = st.sampled_from(["=", "!=", "<", "<=", ">", ">=", "<=>"])
    values = VALUES[column]
    if column in ("i", "l"):
        values = st.integers(-2, 2)
    within = {"op": "in", "column": column, "type": KINDS[column]}
    return (
        st.builds(lambda op, value: leaf(op, column, value), ops, values | st.none())
        | st.lists(values | st.none(), max_size=3).map(lambda found: {**within, "values": found})
        | st.sampled_from(["is_null", "is_not_null"]).map(lambda op: {"op": op, "column": column})
    )


nested = st.builds(
    lambda op, value: {"op": op, "column": ["n", "a"], "value": value, "type": "long"},
    st.sampled_from(["=", "<", ">="]),
    st.integers(-2, 2),
)
predicates = st.recursive(
    st.one_of(*map(leaves, KINDS)) | nested | st.just({"op": "true"}),
    lambda below: (
        st.lists(below, max_size=3).map(lambda args: {"op": "and", "args": args})
        | st.lists(below, max_size=3).map(lambda args: {"op": "or", "args": args})
        | below.map(lambda arg: {"op": "not", "arg": arg})
    ),
    max_leaves=6,
)


def paths_kept(predicate: dict[str, Any], texts: list[str | None]) -> list[str]:
    adds = [
        one_file(str(at), partition_values={"part": PARTS[at % 3]}, stats=text)
        for at, text in enumerate(texts)
    ]
    result: list[str] = prune(predicate, adds_to_columns(adds), TABLE)["path"].to_pylist()
    return result


@settings(max_examples=800, deadline=None)
@given(predicates, files)
def test_pruning_by_columns_first_does_not_change_the_result(
    predicate: dict[str, Any], texts: list[str | None]
) -> None:
    exact = paths_kept(predicate, texts)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(file_pruning, "ROWS_MIN", 0)
        assert paths_kept(predicate, texts) == exact
