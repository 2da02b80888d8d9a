import math
from datetime import UTC, date, datetime
from decimal import Decimal

import pytest

from tests.builders import Row
from tidegate_delta.data_skipping.predicate_tree import (
    columns_of,
    conjuncts,
    kind_of,
    literal,
    order,
    paths_of,
    predicate_problem,
)
from tidegate_delta.schema.types import BINARY, DATE, DOUBLE, FLOAT, INTEGER, TIMESTAMP, DecimalType

P = {"op": "=", "column": ["p"], "value": 1, "type": "integer"}
X = {"op": ">", "column": ["a", "b"], "value": "2.50", "type": "decimal(10, 2)"}


def test_nested_ands_are_one_list_of_conjuncts() -> None:
    either = {"op": "or", "args": [P, X]}
    tree = {"op": "and", "args": [P, {"op": "and", "args": [X, either]}]}
    assert conjuncts(tree) == [P, X, either]
    assert conjuncts({"op": "true"}) == [{"op": "true"}]


def test_columns_are_found_under_not_and_in_opaque_text() -> None:
    opaque = {"op": "opaque", "columns": [["q"]], "text": "udf(q)"}
    tree = {"op": "or", "args": [{"op": "not", "arg": X}, opaque]}
    assert paths_of(tree) == {("a", "b"), ("q",)}
    assert columns_of(tree) == {"a", "q"}


def test_a_type_is_read_with_its_parameters() -> None:
    assert kind_of(P) == INTEGER
    assert kind_of(X) == DecimalType(10, 2)
    with pytest.raises(ValueError, match="geometry"):
        kind_of({**P, "type": "geometry"})


def test_literals_are_python_values_of_their_type() -> None:
    assert literal(None, INTEGER) is None
    assert literal("2024-02-29", DATE) == date(2024, 2, 29)
    assert literal("2024-01-01 00:00:00", TIMESTAMP) == datetime(2024, 1, 1, tzinfo=UTC)
    assert literal("1.50", DecimalType(10, 2)) == Decimal("1.5")
    assert literal(0.1, FLOAT) == 0.10000000149011612
    assert math.isnan(literal("NaN", DOUBLE))
    assert literal("AQID", BINARY) == b"\x01\x02\x03"


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (1.5, INTEGER),
        (2**31, INTEGER),
        (True, INTEGER),
        ("x", DATE),
        ("*", BINARY),
        ([], DOUBLE),
        ("sNaN", DecimalType(9, 2)),
    ],
)
def test_a_literal_of_another_type_is_named(value: object, kind: object) -> None:
    with pytest.raises(ValueError, match=r"holds|partition value"):
        literal(value, kind)  # type: ignore[arg-type]  # parametrized


def test_nan_is_equal_to_itself_and_greater_than_infinity() -> None:
    nan = float("nan")
    assert order(nan, nan) == 0
    assert order(nan, float("inf")) == 1
    assert order(1, nan) == -1
    assert order(-0.0, 0.0) == 0


def test_values_of_one_family_compare_across_types() -> None:
    assert order(Decimal("1.1"), 1.1) == 0
    assert order(2, Decimal("1.99")) == 1
    assert order(date(2024, 1, 1), datetime(2024, 1, 1, tzinfo=UTC)) == 0
    naive = datetime.fromisoformat("2024-01-01")
    assert order(naive, datetime(2024, 1, 1, 0, 0, 1, tzinfo=UTC)) == -1


EQUAL: Row = {"op": "=", "column": ["p"], "value": 1, "type": "integer"}


@pytest.mark.parametrize(
    "predicate",
    [
        EQUAL,
        {"op": "true"},
        {"op": "not", "arg": EQUAL},
        {"op": "and", "args": [EQUAL, {"op": "opaque", "columns": ["p"], "text": "udf(p)"}]},
        {"op": "in", "column": ["p"], "values": [1, None], "type": "integer"},
        {"op": "is_null", "column": "p"},
        {"op": "=", "column": ["d"], "value": "1.50", "type": "decimal(10,2)"},
        {**EQUAL, "values": 5, "args": 5},
        {"op": "is_null", "column": "p", "values": 5},
    ],
)
def test_the_grammar_is_understood(predicate: Row) -> None:
    assert predicate_problem([predicate], 100) is None


@pytest.mark.parametrize(
    "predicate",
    [
        None,
        {},
        {"op": 1},
        {"op": "like"},
        {"op": "or", "args": {}},
        {**EQUAL, "type": "integre"},
        {**EQUAL, "value": "one"},
        {**EQUAL, "column": []},
        {**EQUAL, "column": ""},
        {**EQUAL, "column": [1]},
        {**EQUAL, "op": []},
        {**EQUAL, "type": []},
        {**EQUAL, "value": True},
        {**EQUAL, "value": 2**31},
        {"op": [], "args": [EQUAL]},
        {"op": "and", "args": []},
        {"op": "not", "arg": {"op": "or", "args": [EQUAL, {"op": "?"}]}},
    ],
)
def test_what_is_not_of_the_grammar_is_named(predicate: object) -> None:
    assert predicate_problem([predicate], 100)


def test_all_predicates_together_have_a_size() -> None:
    many: Row = {"op": "or", "args": [EQUAL] * 50}
    values: Row = {"op": "in", "column": ["p"], "values": [1] * 50, "type": "integer"}
    assert predicate_problem([many, values], 102) is None
    assert predicate_problem([many, values], 101) == (
        1,
        "has, with the ones before it, more than 101 nodes and values",
        True,
    )


def test_the_invalid_one_is_named() -> None:
    result = predicate_problem([EQUAL, {"op": "like"}], 100)
    assert result is not None
    assert result[0] == 1
