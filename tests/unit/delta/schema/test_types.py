import json

import pytest

from tidegate_delta.errors import BrokenLog, UnsupportedFeature
from tidegate_delta.schema.types import (
    INTEGER,
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
    ("name", "feature"),
    [
        ("interval day to second", "intervalType"),
        ("money", "money"),
    ],
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
