"""A JSON Schema gives columns their types; what it leaves open it gives none."""

import json
from typing import Any

import pytest

from tidegate_producers.ingest.json_schema_types import json_schema_types

NULL = {"type": "null"}
TEXT = {"type": "string"}
CONNECT_DECIMAL = {
    "type": "number",
    "title": "org.apache.kafka.connect.data.Decimal",
    "connect.type": "bytes",
    "connect.parameters": {"scale": "2", "connect.decimal.precision": "5"},
}


def type_of(schema: Any, **more: Any) -> str | None:
    text = json.dumps({"type": "object", "properties": {"a": schema}, **more})
    kind = json_schema_types(text).get("a")
    return None if kind is None else kind.simpleString()


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ({"type": "boolean"}, "boolean"),
        ({"type": "integer"}, "bigint"),
        ({"type": "integer", "connect.type": "int8"}, "tinyint"),
        ({"type": "integer", "connect.type": "int16"}, "smallint"),
        ({"type": "integer", "connect.type": "int32"}, "int"),
        ({"type": "integer", "connect.type": "int64"}, "bigint"),
        ({"type": "number"}, "double"),
        ({"type": "number", "connect.type": "float32"}, "float"),
        (CONNECT_DECIMAL, "decimal(5,2)"),
        ({**CONNECT_DECIMAL, "connect.parameters": {"scale": "3"}}, "decimal(38,3)"),
        ({**CONNECT_DECIMAL, "type": "string"}, "string"),
        (TEXT, "string"),
        ({"type": "string", "format": "date-time"}, "timestamp"),
        ({"type": "string", "format": "date"}, "date"),
        ({"type": "string", "format": "uuid"}, "string"),
        ({"type": "string", "connect.type": "bytes"}, "binary"),
        ({"type": "string", "contentEncoding": "base64"}, "binary"),
        ({"enum": ["a", "b"]}, "string"),
        ({"type": ["null", "integer"]}, "bigint"),
        ({"oneOf": [NULL, TEXT]}, "string"),
        ({"anyOf": [{"type": "integer"}, NULL]}, "bigint"),
        ({"oneOf": [TEXT, {"type": "string", "maxLength": 5}]}, "string"),
        ({"type": "array", "items": {"type": "number"}}, "array<double>"),
        (
            {"type": "object", "properties": {"x": TEXT, "y": {"type": "array", "items": TEXT}}},
            "struct<x:string,y:array<string>>",
        ),
        ({"type": "object", "additionalProperties": {"type": "integer"}}, "map<string,bigint>"),
    ],
)
def test_a_property_has_the_type_that_its_schema_gives(schema: Any, expected: str) -> None:
    assert type_of(schema) == expected


@pytest.mark.parametrize(
    "schema",
    [
        True,
        {},
        {"type": ["string", "integer"]},
        {"oneOf": [TEXT, {"type": "integer"}]},
        {"oneOf": []},
        {"oneOf": 5},
        {"enum": [1, "a"]},
        {"type": "array"},
        {"type": "object"},
        {"type": "object", "properties": {"x": {}}},
        {"$ref": "other.json"},
        {"$ref": "#/definitions/none"},
        {**CONNECT_DECIMAL, "connect.parameters": {"scale": "many"}},
        {**CONNECT_DECIMAL, "connect.parameters": {"scale": "40"}},
    ],
)
def test_what_a_schema_leaves_open_has_no_type(schema: Any) -> None:
    assert type_of(schema) is None


def test_references_in_a_schema_are_followed_but_not_in_circles() -> None:
    parts = {
        "id": {"type": "integer"},
        "all": {"type": "object", "properties": {"id": {"$ref": "#/definitions/id"}}},
        "node": {"type": "object", "properties": {"next": {"$ref": "#/definitions/node"}}},
        "self": {"$ref": "#/definitions/self"},
        "a/b": TEXT,
    }
    found = {
        name: type_of({"$ref": f"#/definitions/{name.replace('/', '~1')}"}, definitions=parts)
        for name in parts
    }
    assert found == {
        "id": "bigint",
        "all": "struct<id:bigint>",
        "node": None,
        "self": None,
        "a/b": "string",
    }


@pytest.mark.parametrize("text", ["5", "{}", '{"type": "string"}', '{"properties": 5}'])
def test_a_schema_of_no_object_has_no_columns(text: str) -> None:
    assert json_schema_types(text) == {}


def test_the_schema_itself_may_be_a_reference() -> None:
    text = {"$ref": "#/$defs/o", "$defs": {"o": {"type": "object", "properties": {"a": TEXT}}}}
    assert [*json_schema_types(json.dumps(text))] == ["a"]
