import pytest

from tests.builders import Row
from tidegate_delta.data_skipping.predicate_tree import predicate_problem

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
