"""Reads JSON with an inline Kafka Connect schema as Connect's JsonConverter does, but strictly.

What JsonConverter would silently read as something else (a text as the number 0, an unknown field
as nothing) is an error here.
"""

import json
from base64 import b64decode
from datetime import datetime
from typing import Any

INTEGERS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}
LITERALS = {"boolean": bool, "string": str, "float": float, "double": float}


LOGICAL = {
    "io.debezium.time.Date": "int32",
    "io.debezium.time.MicroTimestamp": "int64",
    "io.debezium.time.NanoTimestamp": "int64",
    "io.debezium.time.ZonedTimestamp": "string",
    "io.debezium.data.Json": "string",
    "org.apache.kafka.connect.data.Decimal": "bytes",
}


def payload(record: bytes | None) -> Any:
    """Return the payload of a record. Raises: AssertionError, if its schema does not fit it."""
    assert record is not None
    body = json.loads(record)
    assert list(body) == ["schema", "payload"]
    check(body["schema"], body["payload"], "$")
    return body["payload"]


def check(schema: dict[str, Any], value: Any, path: str) -> None:
    """Check a value against its schema. Raises: AssertionError, with the path of the value."""
    assert isinstance(schema["optional"], bool), path
    if value is None:
        assert schema["optional"], f"{path} is null and required"
        return
    _check_name(schema, value, path)
    match schema["type"]:
        case "struct":
            _check_struct(schema, value, path)
        case "array":
            assert isinstance(value, list), path
            for at, item in enumerate(value):
                check(schema["items"], item, f"{path}[{at}]")
        case "map":
            assert schema["keys"] == {"type": "string", "optional": False}, path
            assert isinstance(value, dict), path
            for key, item in value.items():
                check(schema["values"], item, f"{path}[{key!r}]")
        case "bytes":
            assert isinstance(value, str), path
            b64decode(value, validate=True)
        case kind if kind in INTEGERS:
            bound = 2 ** (INTEGERS[kind] - 1)
            assert type(value) is int, f"{path}: {value!r} is no {kind}"
            assert -bound <= value < bound, f"{path}: {value} is out of the range of {kind}"
        case kind:
            assert type(value) is LITERALS[kind], f"{path}: {value!r} is no {kind}"


def _check_name(schema: dict[str, Any], value: Any, path: str) -> None:
    name = schema.get("name", "")
    if not name.startswith(("io.debezium.", "org.apache.")):
        return
    assert (LOGICAL[name], schema["version"]) == (schema["type"], 1), path
    match name:
        case "io.debezium.data.Json":
            json.loads(value)
        case "io.debezium.time.ZonedTimestamp":
            assert datetime.fromisoformat(value).tzinfo is not None, path
        case "org.apache.kafka.connect.data.Decimal":
            digits = schema["parameters"]
            number = int.from_bytes(b64decode(value), "big", signed=True)
            assert abs(number) < 10 ** int(digits["connect.decimal.precision"]), path
            assert int(digits["scale"]) >= 0, path


def _check_struct(schema: dict[str, Any], value: Any, path: str) -> None:
    assert isinstance(value, dict), path
    fields = {field["field"]: field for field in schema["fields"]}
    assert len(fields) == len(schema["fields"]), f"{path} has a field twice"
    assert value.keys() <= fields.keys(), f"{path} has fields that its schema lacks"
    for name, field in fields.items():
        check(field, value.get(name), f"{path}.{name}")
