import json
from typing import Any

import pytest

from tidegate_delta.errors import BrokenLog, UnsupportedFeature
from tidegate_delta.schema.types import (
    INTEGER,
    LEVELS_MAX,
    STRING,
    VOID,
    ArrayType,
    DecimalType,
    MapType,
    StructField,
    StructType,
    format_schema,
    leaves,
    parse_schema,
    schema_string_problem,
    walk,
)

NESTED = StructType(
    (
        StructField("a", INTEGER, nullable=False, metadata={"comment": "key", "future": [1, 2]}),
        StructField("b", StructType((StructField("c", DecimalType(38, 18)),))),
        StructField("d", ArrayType(StructType((StructField("e", STRING),)), contains_null=False)),
        StructField("f", MapType(STRING, ArrayType(INTEGER), value_contains_null=False)),
        StructField("g", VOID),
    )
)


def struct_of(kind: object) -> str:
    return json.dumps({"type": "struct", "fields": [{"name": "x", "type": kind, "nullable": True}]})


def test_a_schema_survives_its_text() -> None:
    assert parse_schema(format_schema(NESTED)) == NESTED


def test_the_text_is_as_delta_spells_it() -> None:
    plain = json.loads(format_schema(NESTED))
    assert plain["fields"][0] == {
        "name": "a",
        "type": "integer",
        "nullable": False,
        "metadata": {"comment": "key", "future": [1, 2]},
    }
    assert plain["fields"][3]["type"] == {
        "type": "map",
        "keyType": "string",
        "valueType": {"type": "array", "elementType": "integer", "containsNull": True},
        "valueContainsNull": False,
    }


@pytest.mark.parametrize(
    ("name", "feature"), [("interval day to second", "intervalType"), ("money", "money")]
)
def test_a_type_we_do_not_know_is_refused_by_name(name: str, feature: str) -> None:
    with pytest.raises(UnsupportedFeature, match=feature) as caught:
        parse_schema(struct_of({"type": "array", "elementType": name, "containsNull": True}))
    assert caught.value.feature == feature


@pytest.mark.parametrize(
    "text",
    ["", "{", '"integer"', "[]", "{}", struct_of("decimal(39,0)"), struct_of("decimal(2,3)")],
)
def test_what_is_no_schema_is_refused(text: str) -> None:
    with pytest.raises(BrokenLog):
        parse_schema(text)


def test_leaves_are_named_by_their_path() -> None:
    assert list(leaves(NESTED)) == [("a",), ("b", "c"), ("d",), ("f",), ("g",)]


def test_walking_reaches_fields_inside_arrays() -> None:
    assert [item.name for item in walk(NESTED)] == ["a", "b", "c", "d", "e", "f", "g"]


def test_a_field_is_found_by_name() -> None:
    assert NESTED.get("a") == NESTED.fields[0]
    assert NESTED.get("A") is None
    assert NESTED.names == ("a", "b", "d", "f", "g")


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
