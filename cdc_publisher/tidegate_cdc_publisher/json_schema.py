"""Kafka Connect schemas as JSON Schemas, as Connect's JsonSchemaConverter writes them."""

from collections.abc import Mapping
from typing import Any, Final

_SCALARS: Final = {
    "int8": "integer",
    "int16": "integer",
    "int32": "integer",
    "int64": "integer",
    "float": "number",
    "double": "number",
    "boolean": "boolean",
    "string": "string",
    "bytes": "string",
}


def json_schema(connect: Mapping[str, Any]) -> dict[str, Any]:
    """Return the JSON Schema of a Connect schema; an optional value may be null.

    Objects are closed (`additionalProperties` is false): to an open one no property can be added
    at a registry's default compatibility, because old records might have it in another type.
    """
    schema = _kind(connect)
    if connect.get("optional"):
        return {"oneOf": [{"type": "null"}, schema]}
    return schema


def _kind(connect: Mapping[str, Any]) -> dict[str, Any]:
    kind = connect["type"]
    title = {"title": connect["name"]} if "name" in connect else {}
    if kind == "struct":
        properties = {
            column["field"]: {"connect.index": place, **json_schema(column)}
            for place, column in enumerate(connect["fields"])
        }
        required = [column["field"] for column in connect["fields"] if not column.get("optional")]
        content = {"properties": properties, "required": required, "additionalProperties": False}
        return {"type": "object", **title, **content}
    if kind == "array":
        return {"type": "array", **title, "items": json_schema(connect["items"])}
    if kind == "map":
        values = json_schema(connect["values"])
        return {"type": "object", **title, "connect.type": "map", "additionalProperties": values}
    schema: dict[str, Any] = {"type": _SCALARS[kind], **title}
    if kind not in ("string", "boolean"):
        schema["connect.type"] = {"float": "float32", "double": "float64"}.get(kind, kind)
    if "version" in connect:
        schema["connect.version"] = connect["version"]
    if "parameters" in connect:
        schema["connect.parameters"] = connect["parameters"]
    return schema
