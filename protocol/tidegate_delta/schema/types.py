"""The schema as values: `schemaString` <-> StructType.

`schema_string_problem` says whether every reader can parse a schemaString, not only ours:
`parse_schema` is lenient with what is already in a log. Other readers are not, and one that can't
parse the schema can't read the table at all.

Spec: "Primitive Types"
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final

import orjson

from tidegate_delta.errors import BrokenLog, UnsupportedFeature, message_for

PRIMITIVES: Final = frozenset(
    {
        "string",
        "long",
        "integer",
        "short",
        "byte",
        "float",
        "double",
        "boolean",
        "binary",
        "date",
        "timestamp",
        "timestamp_ntz",
        "timestamp_nanos",
        "timestamp_nanos_ntz",
        "void",
        "variant",
    }
)
"""The types without parameters that we read."""

GEOSPATIAL: Final = ("geometry", "geography")
"""Geospatial types by the first word of their name; a reference system of any form follows it."""

DECIMAL_PRECISION_MAX: Final = 38

DEPTH_MAX: Final = 100
"""The greatest nesting depth of a schema that is read: functions recurse as deep as the schema."""


@dataclass(frozen=True)
class PrimitiveType:
    """A type without parameters, by Delta's name."""

    name: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class DecimalType:
    """A decimal number with `precision` digits, `scale` of them after the point."""

    precision: int
    scale: int

    def __str__(self) -> str:
        return f"decimal({self.precision},{self.scale})"


@dataclass(frozen=True)
class ArrayType:
    """A list of elements of one type.

    Spec: "Array Type"
    """

    element: "DataType"
    contains_null: bool = True

    def __str__(self) -> str:
        return f"array<{self.element}>"


@dataclass(frozen=True)
class MapType:
    """Keys of one type with values of one type.

    Spec: "Map Type"
    """

    key: "DataType"
    value: "DataType"
    value_contains_null: bool = True

    def __str__(self) -> str:
        return f"map<{self.key},{self.value}>"


@dataclass(frozen=True)
class StructField:
    """A named column or a field of a struct. `metadata` keeps unknown keys too.

    Spec: "Struct Field"
    """

    name: str
    kind: "DataType"
    nullable: bool = True
    metadata: Mapping[str, Any] = field(default_factory=dict, hash=False)


@dataclass(frozen=True)
class StructType:
    """Fields in order.

    Law: parse_schema(format_schema(s)) == s
    Spec: "Struct Type"
    """

    fields: tuple[StructField, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the fields, in order."""
        return tuple(field.name for field in self.fields)

    def __iter__(self) -> Iterator[StructField]:
        return iter(self.fields)

    def __len__(self) -> int:
        return len(self.fields)

    def get(self, name: str) -> StructField | None:
        """Return the field of a name, or None."""
        return next((field for field in self.fields if field.name == name), None)

    def __str__(self) -> str:
        return "struct<" + ",".join(f"{field.name}:{field.kind}" for field in self.fields) + ">"


DataType = PrimitiveType | DecimalType | ArrayType | MapType | StructType

STRING: Final = PrimitiveType("string")
LONG: Final = PrimitiveType("long")
INTEGER: Final = PrimitiveType("integer")
SHORT: Final = PrimitiveType("short")
BYTE: Final = PrimitiveType("byte")
FLOAT: Final = PrimitiveType("float")
DOUBLE: Final = PrimitiveType("double")
BOOLEAN: Final = PrimitiveType("boolean")
BINARY: Final = PrimitiveType("binary")
DATE: Final = PrimitiveType("date")
TIMESTAMP: Final = PrimitiveType("timestamp")
TIMESTAMP_NTZ: Final = PrimitiveType("timestamp_ntz")
NANOS: Final = (PrimitiveType("timestamp_nanos"), PrimitiveType("timestamp_nanos_ntz"))
VOID: Final = PrimitiveType("void")
VARIANT: Final = PrimitiveType("variant")


_SQL_NAMES: Final = {"byte": "tinyint", "short": "smallint", "integer": "int", "long": "bigint"}


def sql_name(kind: PrimitiveType | DecimalType) -> str:
    """Return how SQL writes a type that has no fields or elements."""
    return _SQL_NAMES.get(str(kind), str(kind))


@lru_cache(maxsize=256)
def parse_schema(text: str) -> StructType:
    """Return the schema in a `schemaString`.

    Raises: UnsupportedFeature for an unknown type; BrokenLog for a text that is no schema.
    Spec: "Schema Serialization Format"
    """
    try:
        kind = _kind(orjson.loads(text))
        if not isinstance(kind, StructType):
            raise ValueError(f"it spells {kind}, no struct")
        return kind
    except (orjson.JSONDecodeError, KeyError, TypeError, ValueError) as error:
        raise BrokenLog(
            f"a schemaString is no Delta schema ({message_for(error)})",
            error_class="CorruptCommit",
            remedy="restore the table to a version before the commit that set it",
        ) from error


def format_schema(schema: StructType) -> str:
    """Return the `schemaString` of a schema.

    Spec: "Schema Serialization Format"
    """
    return orjson.dumps(_plain(schema)).decode()


def parse_type(name: str) -> DataType:
    """Return the type of a name; it has no nested fields.

    Raises: UnsupportedFeature for an unknown type; ValueError for a parameter out of range.
    """
    return _primitive(name)


def is_geospatial(kind: "DataType") -> bool:
    """Return whether a type is a geometry or a geography: Well-Known Binary in files.

    Spec: "Primitive Types", except that the specification does not list these yet.
    """
    return isinstance(kind, PrimitiveType) and kind.name.partition("(")[0] in GEOSPATIAL


def holds(kind: "DataType", is_wanted: Callable[["DataType"], bool]) -> bool:
    """Return whether `is_wanted` is true of a type or of one nested in it.

    Spec: "Schema Serialization Format"
    """
    match kind:
        case StructType():
            holds_inside = any(holds(field.kind, is_wanted) for field in kind.fields)
        case ArrayType():
            holds_inside = holds(kind.element, is_wanted)
        case MapType():
            holds_inside = holds(kind.key, is_wanted) or holds(kind.value, is_wanted)
        case _:
            holds_inside = False
    return holds_inside or is_wanted(kind)


def leaves(schema: StructType) -> Iterator[tuple[str, ...]]:
    """Yield the paths of the columns and fields that are no structs, in order.

    Spec: "Per-file Statistics"
    """
    for struct_field in schema.fields:
        if isinstance(struct_field.kind, StructType):
            yield from ((struct_field.name, *rest) for rest in leaves(struct_field.kind))
        else:
            yield (struct_field.name,)


def walk(schema: StructType) -> Iterator[StructField]:
    """Yield every field, including those nested in structs, arrays and maps.

    Spec: "Struct Field"
    """
    for struct_field in schema.fields:
        yield struct_field
        yield from _nested_fields(struct_field.kind)


def _nested_fields(kind: DataType) -> Iterator[StructField]:
    match kind:
        case StructType():
            yield from walk(kind)
        case ArrayType():
            yield from _nested_fields(kind.element)
        case MapType():
            yield from _nested_fields(kind.key)
            yield from _nested_fields(kind.value)
        case _:
            return


def _kind(plain: Any, left: int = DEPTH_MAX) -> DataType:
    if isinstance(plain, str):
        return _primitive(plain)
    if not left:
        raise ValueError(f"types are nested deeper than {DEPTH_MAX} levels")
    match plain["type"]:
        case "struct":
            return _struct([_field(field, left - 1) for field in plain["fields"]])
        case "array":
            return ArrayType(_kind(plain["elementType"], left - 1), bool(plain["containsNull"]))
        case "map":
            key, value = _kind(plain["keyType"], left - 1), _kind(plain["valueType"], left - 1)
            return MapType(key, value, bool(plain["valueContainsNull"]))
        case other:
            raise _unknown(str(other))


def _struct(fields: list[StructField]) -> StructType:
    if len({field.name for field in fields}) < len(fields):
        raise ValueError(f"two of {[field.name for field in fields]} have one name")
    return StructType(tuple(fields))


def _field(plain: Any, left: int) -> StructField:
    return StructField(
        str(plain["name"]),
        _kind(plain["type"], left),
        bool(plain.get("nullable", True)),
        dict(plain.get("metadata") or {}),
    )


def _primitive(name: str) -> DataType:
    if name in PRIMITIVES:
        return PrimitiveType(name)
    if name == "null":
        return VOID
    if name.partition("(")[0] in GEOSPATIAL:
        return PrimitiveType(name)
    if name == "decimal":
        return DecimalType(10, 0)
    if name.startswith("decimal(") and name.endswith(")"):
        precision, _, scale = name[8:-1].partition(",")
        return _decimal(int(precision), int(scale or "0"))
    raise _unknown(name)


def _decimal(precision: int, scale: int) -> DecimalType:
    if not (1 <= precision <= DECIMAL_PRECISION_MAX and 0 <= scale <= precision):
        raise ValueError(f"decimal({precision},{scale}) is out of range")
    return DecimalType(precision, scale)


def _unknown(name: str) -> UnsupportedFeature:
    first = name.split("(")[0].split(" ")[0]
    feature = "intervalType" if first == "interval" else first
    return UnsupportedFeature(
        f"the schema holds the type {name!r} (feature {feature!r}), which this release neither "
        "reads nor writes",
        feature=feature,
        remedy="use a release that does, or another reader",
    )


def _plain(kind: DataType) -> Any:
    match kind:
        case StructType():
            return {"type": "struct", "fields": [_plain_field(field) for field in kind.fields]}
        case ArrayType():
            return {
                "type": "array",
                "elementType": _plain(kind.element),
                "containsNull": kind.contains_null,
            }
        case MapType():
            return {
                "type": "map",
                "keyType": _plain(kind.key),
                "valueType": _plain(kind.value),
                "valueContainsNull": kind.value_contains_null,
            }
        case _:
            return str(kind)


def _plain_field(field: StructField) -> dict[str, Any]:
    return {
        "name": field.name,
        "type": _plain(field.kind),
        "nullable": field.nullable,
        "metadata": dict(field.metadata),
    }


LEVELS_MAX: Final = 120
"""The greatest nesting depth of the JSON; delta-kernel fails at slightly more."""

_DECIMAL: Final = re.compile(r"decimal\( *[0-9]+ *, *[0-9]+ *\)")
_LEGACY: Final = {"null": "void", "decimal": "decimal(10,0)"}


def schema_string_problem(schema_string: str) -> str | None:
    """Return what in a schemaString some readers do not parse, or None.

    Law: defined for texts that parse_schema accepts
    Spec: "Schema Serialization Format"
    """
    return next(_struct_problems(orjson.loads(schema_string), "the schema", 1), None)


def _struct_problems(plain: Any, location: str, level: int) -> Iterator[str]:
    if level > LEVELS_MAX:
        yield f"{location} is nested deeper than {LEVELS_MAX} levels of JSON"
        return
    seen = set[str]()
    for stored in plain["fields"]:
        name = stored["name"]
        if not isinstance(name, str) or "\0" in name:
            yield f"a field of {location} is named {name!r}, which is no text without NUL"
            return
        if name.lower() in seen:
            yield f"{location} has two fields {name!r}, which differ in case at most"
        seen.add(name.lower())
        yield from _field_problems(stored, f"the field {name!r}", level + 2)


def _field_problems(field: Any, location: str, level: int) -> Iterator[str]:
    if not isinstance(field.get("nullable"), bool):
        yield f"{location} does not say by a boolean whether it is `nullable`"
    if not isinstance(field.get("metadata"), dict):
        yield f"{location} has no object `metadata`"
    yield from _kind_problems(field["type"], location, level + 1)


def _kind_problems(plain: Any, location: str, level: int) -> Iterator[str]:
    if isinstance(plain, str):
        if plain in _LEGACY:
            yield f"{location} has the type {plain!r}, which is written {_LEGACY[plain]!r}"
        elif plain.startswith("decimal") and not _DECIMAL.fullmatch(plain):
            yield f"{location} has the type {plain!r}, which lacks a precision or a scale"
    elif plain["type"] == "struct":
        yield from _struct_problems(plain, location, level)
    elif plain["type"] == "array":
        yield from _flag_problems(plain, "containsNull", location)
        yield from _kind_problems(plain["elementType"], location, level + 1)
    else:
        yield from _flag_problems(plain, "valueContainsNull", location)
        yield from _kind_problems(plain["keyType"], location, level + 1)
        yield from _kind_problems(plain["valueType"], location, level + 1)


def _flag_problems(plain: Any, name: str, location: str) -> Iterator[str]:
    if not isinstance(plain[name], bool):
        yield f"{location} does not say by a boolean whether it `{name}`"
