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
    """Return the JSON Schema of a Connect schema; an optional value may be null."""
    told = _kind(connect)
    if connect.get("optional"):
        return {"oneOf": [{"type": "null"}, told]}
    return told


def _kind(connect: Mapping[str, Any]) -> dict[str, Any]:
    kind = connect["type"]
    named = {"title": connect["name"]} if "name" in connect else {}
    if kind == "struct":
        properties = {
            one["field"]: {"connect.index": place, **json_schema(one)}
            for place, one in enumerate(connect["fields"])
        }
        required = [one["field"] for one in connect["fields"] if not one.get("optional")]
        return {"type": "object", **named, "properties": properties, "required": required}
    if kind == "array":
        return {"type": "array", **named, "items": json_schema(connect["items"])}
    if kind == "map":
        values = json_schema(connect["values"])
        return {"type": "object", **named, "connect.type": "map", "additionalProperties": values}
    told: dict[str, Any] = {"type": _SCALARS[kind], **named}
    if kind not in ("string", "boolean"):
        told["connect.type"] = {"float": "float32", "double": "float64"}.get(kind, kind)
    if "version" in connect:
        told["connect.version"] = connect["version"]
    if "parameters" in connect:
        told["connect.parameters"] = connect["parameters"]
    return told
