from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from tidegate_delta.data_skipping.partition_predicates import evaluate
from tidegate_delta.errors import InvalidRequest, UnsupportedFeature

NAN = float("nan")


def compare(op: str, column: Any, value: Any, kind: str) -> list[bool | None]:
    rows = pa.table({"c": column})
    tree = {"op": op, "column": ["C"], "value": value, "type": kind}
    return list(evaluate(tree, rows).to_pylist())


def test_nan_is_the_greatest_number_and_equals_itself() -> None:
    column = [1.0, NAN, None, float("inf")]
    assert compare("=", column, "NaN", "double") == [False, True, None, False]
    assert compare("<", column, "NaN", "double") == [True, False, None, True]
    assert compare(">=", column, "NaN", "double") == [False, True, None, False]
    assert compare("<=", column, "NaN", "double") == [True, True, None, True]
    assert compare(">", column, "NaN", "double") == [False, False, None, False]
    assert compare(">", column, 1.0, "double") == [False, True, None, True]
    assert compare("!=", column, 1.0, "double") == [False, True, None, True]
    assert compare("<", column, 2.0, "double") == [True, False, None, False]


def test_a_null_is_unknown_but_for_the_null_safe_comparison() -> None:
    column = pa.array([1, None], pa.int32())
    assert compare("=", column, None, "integer") == [None, None]
    assert compare("<=>", column, None, "integer") == [False, True]
    assert compare("<=>", column, 1, "integer") == [True, False]


def test_numbers_of_different_types_compare_by_value() -> None:
    narrow = pa.array([1, -3], pa.int8())
    assert compare("<", narrow, 2**40, "long") == [True, True]
    assert compare("=", narrow, "1.00", "decimal(38,2)") == [True, False]
    decimals = pa.array([Decimal("0.10"), None], pa.decimal128(38, 2))
    assert compare("=", decimals, 0.1, "double") == [True, None]
    singles = pa.array([0.1], pa.float32())
    assert compare("=", singles, 0.1, "double") == [False]
    assert compare("=", singles, 0.1, "float") == [True]


def test_moments_compare_across_types() -> None:
    at = pa.array([datetime(2024, 1, 1, tzinfo=UTC)], pa.timestamp("us", "UTC"))
    assert compare("=", at, "2024-01-01", "date") == [True]
    assert compare("<", at, "2024-01-01 00:00:00.000001", "timestamp") == [True]
    days = pa.array([19723], pa.int32()).cast(pa.date32())
    assert compare("<", days, "2024-01-01 00:00:01", "timestamp_ntz") == [True]


def test_strings_compare_by_their_bytes() -> None:
    column = ["\ufffd", "\U0001f600"]
    assert compare("<", column, "\U0001f600", "string") == [True, False]
    coded = pa.array(["a", None, "b"]).dictionary_encode()
    assert compare("=", coded, "a", "string") == [True, None, False]
    assert compare("=", pa.array([b"\x01", b"\xff"]), "/w==", "binary") == [False, True]


def test_in_is_unknown_where_only_a_null_could_match() -> None:
    rows = pa.table({"c": pa.array([1, 2, None], pa.int64())})
    tree = {"op": "in", "column": ["c"], "values": [1, None], "type": "long"}
    assert evaluate(tree, rows).to_pylist() == [True, None, None]
    assert evaluate({**tree, "values": [2]}, rows).to_pylist() == [False, True, None]
    assert evaluate({**tree, "values": []}, rows).to_pylist() == [False, False, False]
    nans = pa.table({"c": [NAN, 1.0]})
    listed = {"op": "in", "column": ["c"], "values": ["NaN"], "type": "double"}
    assert evaluate(listed, nans).to_pylist() == [True, False]


def test_and_or_not_are_three_valued() -> None:
    rows = pa.table({"c": pa.array([True, False, None])})
    yes = {"op": "=", "column": ["c"], "value": True, "type": "boolean"}
    unknown = {"op": "=", "column": ["c"], "value": None, "type": "boolean"}
    both = {"op": "and", "args": [yes, unknown]}
    either = {"op": "or", "args": [yes, unknown]}
    assert evaluate(both, rows).to_pylist() == [None, False, None]
    assert evaluate(either, rows).to_pylist() == [True, None, None]
    assert evaluate({"op": "not", "arg": yes}, rows).to_pylist() == [False, True, None]


def test_a_field_of_a_null_struct_is_null() -> None:
    rows = pa.table({"s": [{"a": 1}, None, {"a": None}]})
    tree = {"op": "is_null", "column": ["s", "a"]}
    assert evaluate(tree, rows).to_pylist() == [False, True, True]


def test_a_column_that_is_not_there_is_named() -> None:
    with pytest.raises(InvalidRequest, match="'x'"):
        evaluate({"op": "is_null", "column": ["x"]}, pa.table({"c": [1]}))


def test_types_that_do_not_compare_are_named() -> None:
    with pytest.raises(InvalidRequest, match="string"):
        compare("=", ["1"], 1, "integer")


def test_nanoseconds_compare_with_nanoseconds_alone() -> None:
    moments = pa.table({"c": pa.array([0, 1, 2], pa.timestamp("ns", "UTC"))})
    leaf = {"op": ">", "column": ["c"], "type": "timestamp_nanos"}
    after = evaluate({**leaf, "value": "1970-01-01T00:00:00.000000001Z"}, moments)
    assert after.to_pylist() == [False, False, True]
    with pytest.raises(InvalidRequest, match=r"timestamp\[ns"):
        evaluate({**leaf, "type": "timestamp", "value": "1970-01-01T00:00:00Z"}, moments)


def test_what_is_opaque_is_refused() -> None:
    with pytest.raises(UnsupportedFeature, match="udf"):
        evaluate({"op": "opaque", "columns": [], "text": "udf(x)"}, pa.table({"c": [1]}))


def test_everything_is_true_of_every_row() -> None:
    assert evaluate({"op": "true"}, pa.table({"c": [1, None]})).to_pylist() == [True, True]
