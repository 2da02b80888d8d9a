import pytest

from tests.builders import Row
from tidegate.committer.predicates import wrong_with

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
    ],
)
def test_the_grammar_is_understood(predicate: Row) -> None:
    assert wrong_with(predicate, 100) is None


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
        {"op": "not", "arg": {"op": "or", "args": [EQUAL, {"op": "?"}]}},
    ],
)
def test_what_is_not_of_the_grammar_is_named(predicate: object) -> None:
    assert wrong_with(predicate, 100)


def test_a_predicate_has_a_size() -> None:
    many = {"op": "or", "args": [EQUAL] * 50}
    assert wrong_with(many, 51) is None
    assert wrong_with(many, 50)
