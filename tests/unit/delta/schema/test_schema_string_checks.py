"""Schemas that we could read and others could not, each compared with delta-rs."""

import json
from typing import Any

import pytest

from tidegate_delta.schema.types import LEVELS_MAX, parse_schema, schema_string_problem


def field(name: Any = "x", kind: Any = "long", **changed: Any) -> dict[str, Any]:
    """Return a field with some members replaced; ... leaves one out."""
    body = {"name": name, "type": kind, "nullable": True, "metadata": {}, **changed}
    return {key: value for key, value in body.items() if value is not ...}


def struct(*fields: dict[str, Any]) -> dict[str, Any]:
    return {"type": "struct", "fields": list(fields)}


def nested(depth: int) -> dict[str, Any]:
    return struct(field(kind=nested(depth - 1) if depth else "long"))


ARRAY = {"type": "array", "elementType": "long", "containsNull": True}
MAP = {"type": "map", "keyType": "long", "valueType": "long", "valueContainsNull": False}

WRONG = {
    "no metadata": struct(field(metadata=...)),
    "null metadata": struct(field(metadata=None)),
    "a list of metadata": struct(field(metadata=[])),
    "no nullable": struct(field(nullable=...)),
    "nullable in words": struct(field(nullable="false")),
    "nullable as a number": struct(field(nullable=1)),
    "a number for a name": struct(field(5)),
    "no name": struct(field(None)),
    "a zero byte in a name": struct(field("a\0b")),
    "a bare decimal": struct(field(kind="decimal")),
    "a decimal without a scale": struct(field(kind="decimal(10)")),
    "a decimal of Python's": struct(field(kind="decimal(1_0,2)")),
    "null for void": struct(field("y"), field(kind="null")),
    "containsNull in words": struct(field(kind={**ARRAY, "containsNull": "true"})),
    "valueContainsNull as a number": struct(field(kind={**MAP, "valueContainsNull": 0})),
    "one name inside": struct(field(kind=struct(field("a"), field("A")))),
    "wrong in an array": struct(field(kind={**ARRAY, "elementType": struct(field(nullable=0))})),
    "wrong in a map": struct(field(kind={**MAP, "valueType": struct(field(metadata=...))})),
    "too deep": nested(LEVELS_MAX // 3 + 1),
}

RIGHT = {
    "plain": struct(field(), field("y", "decimal(10, 2)"), field("z", "void")),
    "nested": struct(
        field(kind=struct(field("a"), field("b"))), field("y", ARRAY), field("z", MAP)
    ),
    "more than we know": struct(field(extra=5, metadata={"a": {"b": [1, None, 1.5]}})),
    "odd names": struct(field("a b;{}"), field("a.b")),
    "deep": nested(LEVELS_MAX // 3 - 2),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_others_do_not_read_is_named(name: str) -> None:
    text = json.dumps(WRONG[name])
    parse_schema(text)
    assert schema_string_problem(text)


@pytest.mark.parametrize("name", RIGHT)
def test_what_all_read_is_right(name: str) -> None:
    text = json.dumps(RIGHT[name])
    parse_schema(text)
    assert schema_string_problem(text) is None
