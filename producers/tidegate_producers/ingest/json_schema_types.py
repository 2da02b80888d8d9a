"""The types of columns that a JSON Schema gives, with the hints that Kafka Connect writes into it.

What a schema leaves open has no type here: it is inferred from records. A number is no date and no
timestamp, whatever its title says.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import orjson
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

_DECIMAL: Final = "org.apache.kafka.connect.data.Decimal"
_PRECISION_MAX: Final = 38
_INTEGERS: Final[Mapping[str, DataType]] = {
    "int8": ByteType(),
    "int16": ShortType(),
    "int32": IntegerType(),
}
_FORMATS: Final[Mapping[str, DataType]] = {"date-time": TimestampType(), "date": DateType()}
_LOCAL: Final = "#"


def json_schema_types(text: str) -> Mapping[str, DataType]:
    """Return the types of those properties of an object that have one, by name; none for a schema
    of no object.

    Raises: ValueError, for what is no JSON.
    """
    schema = orjson.loads(text)
    return _Types(schema).of_properties(schema)


class _Types:
    """The types in one schema, whose parts may refer to one another."""

    def __init__(self, root: Any) -> None:
        self._root = root

    def of_properties(self, schema: Any) -> Mapping[str, DataType]:
        """Return the types of those properties of an object that have one."""
        resolved, within = self._resolved(schema, ())
        if not isinstance(resolved, dict) or not isinstance(resolved.get("properties"), dict):
            return {}
        typed = {name: self.of(part, within) for name, part in resolved["properties"].items()}
        return {name: kind for name, kind in typed.items() if kind is not None}

    def of(self, schema: Any, within: tuple[str, ...]) -> DataType | None:
        """Return the type of a schema; `within` are the references that led to it."""
        schema, within = self._resolved(schema, within)
        if not isinstance(schema, dict):
            return None
        for word in ("oneOf", "anyOf"):
            if word in schema:
                return self._choice(schema[word], within)
        match _without_null(schema):
            case "boolean":
                return BooleanType()
            case "integer":
                return _INTEGERS.get(str(schema.get("connect.type")), LongType())
            case "number":
                return _number(schema)
            case "string":
                return _string(schema)
            case "array":
                item = self.of(schema.get("items"), within)
                return None if item is None else ArrayType(item)
            case "object":
                return self._object(schema, within)
        return None

    def _resolved(self, schema: Any, within: tuple[str, ...]) -> tuple[Any, tuple[str, ...]]:
        """Return a schema without references, None for one that contains itself or is elsewhere;
        and the references that led to it.
        """
        while isinstance(schema, dict) and "$ref" in schema:
            place = str(schema["$ref"])
            if place in within or not place.startswith(_LOCAL):
                return None, within
            within = (*within, place)
            schema = self._root
            for step in place.removeprefix(_LOCAL).split("/")[1:]:
                name = step.replace("~1", "/").replace("~0", "~")
                schema = schema.get(name) if isinstance(schema, dict) else None
        return schema, within

    def _choice(self, schemas: Any, within: tuple[str, ...]) -> DataType | None:
        """Return the type that all alternatives share, besides null."""
        if not isinstance(schemas, Sequence):
            return None
        kinds = [self.of(each, within) for each in schemas if each != {"type": "null"}]
        return kinds[0] if kinds and all(kind == kinds[0] for kind in kinds) else None

    def _object(self, schema: Mapping[str, Any], within: tuple[str, ...]) -> DataType | None:
        parts, more = schema.get("properties"), schema.get("additionalProperties")
        if isinstance(parts, dict) and parts:
            kinds = {name: self.of(part, within) for name, part in parts.items()}
            fields = [StructField(name, kind) for name, kind in kinds.items() if kind is not None]
            return StructType(fields) if len(fields) == len(kinds) else None
        value = self.of(more, within)
        return None if value is None else MapType(StringType(), value)


def _without_null(schema: Mapping[str, Any]) -> str | None:
    """Return the one JSON type of a value that is not null, or None if there are others."""
    kind, values = schema.get("type"), schema.get("enum")
    if kind is None and isinstance(values, list) and all(isinstance(each, str) for each in values):
        return "string"
    if isinstance(kind, list):
        kinds = [each for each in kind if each != "null"]
        kind = kinds[0] if len(kinds) == 1 else None
    return kind if isinstance(kind, str) else None


def _number(schema: Mapping[str, Any]) -> DataType | None:
    parameters = schema.get("connect.parameters")
    if schema.get("title") == _DECIMAL and isinstance(parameters, dict):
        precision, scale = (
            str(parameters.get(name, default))
            for name, default in (("connect.decimal.precision", _PRECISION_MAX), ("scale", 0))
        )
        if not (precision.isdecimal() and scale.isdecimal()):
            return None
        fits = int(scale) <= int(precision) <= _PRECISION_MAX
        return DecimalType(int(precision), int(scale)) if fits else None
    return FloatType() if schema.get("connect.type") == "float32" else DoubleType()


def _string(schema: Mapping[str, Any]) -> DataType:
    is_bytes = schema.get("connect.type") == "bytes" or schema.get("contentEncoding") == "base64"
    if is_bytes and schema.get("title") != _DECIMAL:
        return BinaryType()
    return _FORMATS.get(str(schema.get("format")), StringType())
