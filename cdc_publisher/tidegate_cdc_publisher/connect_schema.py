"""Kafka Connect schemas of change records, as JSON texts.

They stand in the records, where Connect's JsonConverter (`schemas.enable=true`) reads them, or give
the schemas for a registry. A column's schema here and its JSON text in `json_rows` change together.

Encoders of other formats take names and values from here, too.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from dataclasses import field as dataclass_field
from typing import Any, Final, assert_never

import pyarrow as pa

from tidegate_cdc_publisher.json_rows import becomes_json_text
from tidegate_cdc_publisher.record_form import RecordForm, ValueTypes
from tidegate_delta.errors import UnsupportedFeature
from tidegate_delta.schema.arrow_types import to_arrow
from tidegate_delta.schema.column_mapping import ColumnMappingMode, field_id
from tidegate_delta.schema.field_paths import ELEMENT, VALUE, FieldPath, field_paths
from tidegate_delta.schema.types import StructType

DECIMAL: Final = "org.apache.kafka.connect.data.Decimal"
"""The name of a decimal as bytes in a schema."""

Schema = dict[str, Any]
"""A Connect schema, as JSON."""


@dataclass(frozen=True)
class Layout:
    """The columns of a table at a version, and the key columns of its changes.

    Rows without the key columns have no key, and the version deletes none of them. `field_ids` are
    those of a table with column mapping.
    """

    rows: pa.Schema
    keys: Sequence[str] | None
    field_ids: Mapping[FieldPath, int] = dataclass_field(default_factory=dict)


def layout(schema: StructType, mode: ColumnMappingMode, keys: Sequence[str] | None) -> Layout:
    """Return the columns of a table as its changes have them, and its key columns."""
    ids: dict[FieldPath, int] = {}
    if mode is not ColumnMappingMode.NONE:
        ids = {
            path: number
            for path, column in field_paths(schema)
            if (number := field_id(column)) is not None
        }
    return Layout(to_arrow(schema), keys, ids)


def add_field_ids(schema: Schema, row_name: str, field_ids: Mapping[FieldPath, int]) -> None:
    """Give the columns in a schema their field ids, with which `protobuf` numbers them.

    `row_name` is the name of the structs of a row, which may stand below others.
    """
    if schema.get("name") == row_name:
        _ids_inside(schema, (), field_ids)
        return
    for column in schema["fields"]:
        if column["type"] == "struct":
            add_field_ids(column, row_name, field_ids)


def _ids_inside(schema: Schema, path: FieldPath, field_ids: Mapping[FieldPath, int]) -> None:
    match schema["type"]:
        case "struct":
            for column in schema["fields"]:
                inner = (*path, column["field"])
                if inner in field_ids:
                    column["id"] = field_ids[inner]
                _ids_inside(column, inner, field_ids)
        case "array":
            _ids_inside(schema["items"], (*path, ELEMENT), field_ids)
        case "map":
            _ids_inside(schema["values"], (*path, VALUE), field_ids)


def null_key(
    form: RecordForm, topic: str, rows: pa.Schema, columns: Sequence[str], doc: str
) -> bytes:
    """Return a key with its schema, in which every key column is null."""
    chosen = pa.schema([rows.field(name).with_nullable(True) for name in columns])
    schema = {**row_schema(f"{topic}.Key", chosen, form.in_keys), "optional": False, "doc": doc}
    return schema_text({"schema": schema, "payload": dict.fromkeys(columns)}).encode()


def key_schema(topic: str, rows: pa.Schema, columns: Sequence[str], types: ValueTypes) -> Schema:
    """Return the schema of a topic's keys, of these columns."""
    chosen = pa.schema([rows.field(name) for name in columns])
    return {**row_schema(f"{topic}.Key", chosen, types), "optional": False}


def row_schema(name: str, rows: pa.Schema, types: ValueTypes) -> Schema:
    """Return the schema of a row, a struct of this name."""
    return {"type": "struct", "fields": [_field(field, types) for field in rows], "name": name}


def plain_field(field: str, kind: str, *, optional: bool = False) -> Schema:
    """Return a field of a Connect type."""
    return {"type": kind, "optional": optional, "field": field}


def _field(field: pa.Field, types: ValueTypes) -> Schema:
    return {**_of(field, types), "field": field.name}


def _of(field: pa.Field, types: ValueTypes) -> Schema:
    """Return the schema of a column or element, without its name.

    A float may be null although its column is not: NaN has no form in a record with a schema.
    """
    optional = bool(field.nullable or pa.types.is_floating(field.type))
    return {**_type(field, types), "optional": optional}


def _type(field: pa.Field, types: ValueTypes) -> Schema:
    kind = field.type
    if types.types == "debezium" and (semantic_type := _debezium_type(kind, types)) is not None:
        return semantic_type
    if kind in _SCALARS:
        return {"type": _SCALARS[kind]}
    if pa.types.is_timestamp(kind) or pa.types.is_decimal(kind):
        return {"type": "string"}
    if pa.types.is_struct(kind):
        return {"type": "struct", "fields": [_field(child, types) for child in kind.fields]}
    if pa.types.is_list(kind):
        return {"type": "array", "items": _of(kind.value_field, types)}
    if pa.types.is_map(kind):
        # The keys are texts, whatever their type: see json_rows.
        keys = {"type": "string", "optional": False}
        return {"type": "map", "keys": keys, "values": _of(kind.item_field, types)}
    raise UnsupportedFeature(
        f"column {field.name!r} has the type {kind}, which has no Kafka Connect type; set "
        "`value_format` and `key_format` of its table to json, or leave it out of `cdc.tables`"
    )


def _debezium_type(kind: pa.DataType, types: ValueTypes) -> Schema | None:
    """Return the schema of a type that Debezium writes in its own way, or None for others."""
    if pa.types.is_date(kind):
        return {"type": "int32", "name": "io.debezium.time.Date", "version": 1}
    if pa.types.is_timestamp(kind) and kind.tz:
        return {"type": "string", "name": "io.debezium.time.ZonedTimestamp", "version": 1}
    if pa.types.is_timestamp(kind):
        unit = "Nano" if kind.unit == "ns" else "Micro"
        return {"type": "int64", "name": f"io.debezium.time.{unit}Timestamp", "version": 1}
    if pa.types.is_decimal(kind):
        return _decimal(kind, types)
    if types.structs == "json" and becomes_json_text(kind):
        return {"type": "string", "name": "io.debezium.data.Json", "version": 1}
    return None


def _decimal(kind: pa.DataType, types: ValueTypes) -> Schema:
    match types.decimals:
        case "precise":
            digits = {"scale": str(kind.scale), "connect.decimal.precision": str(kind.precision)}
            return {"type": "bytes", "name": DECIMAL, "version": 1, "parameters": digits}
        case "string":
            return {"type": "string"}
        case "double":
            return {"type": "double"}
        case _:
            assert_never(types.decimals)


_SCALARS: Final = {
    pa.int8(): "int8",
    pa.int16(): "int16",
    pa.int32(): "int32",
    pa.int64(): "int64",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.bool_(): "boolean",
    pa.string(): "string",
    pa.binary(): "bytes",
    pa.date32(): "string",
    pa.null(): "string",
}


def schema_text(schema: Schema) -> str:
    """Return a schema, or a key with its schema, as JSON."""
    return json.dumps(schema, ensure_ascii=False, separators=(",", ":"))


_ILLEGAL: Final = re.compile(r"[^A-Za-z0-9_.]")
_IDENTIFIER: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

Converter = Callable[[Any], Any]


def identifiers(name: str) -> str:
    """Return a schema's name with an identifier in each part between its dots, as Avro's and
    Protobuf's readers demand: other characters become `_`, which stands before a digit, too.
    """
    parts = _ILLEGAL.sub("_", name).split(".")
    return ".".join(part if _IDENTIFIER.fullmatch(part) else f"_{part}" for part in parts)


def check_identifier(column: str, wire_format: str) -> None:
    """Refuse a column whose name is no identifier. Raises: UnsupportedFeature."""
    if not _IDENTIFIER.fullmatch(column):
        raise UnsupportedFeature(
            f"column {column!r} has a name that {wire_format} does not allow (letters, digits and "
            "_ are allowed, and no digit at its begin); set `value_format` and `key_format` of its "
            "table to another format, or rename the column",
            feature=f"{wire_format} names",
        )


def unused(name: str, taken: set[str]) -> str:
    """Return a name, with `_` behind it until nothing else has it, and note that it is taken."""
    while name in taken:
        name += "_"
    taken.add(name)
    return name


def struct_converter(
    connect: Mapping[str, Any], converter: Callable[[Mapping[str, Any]], Converter | None]
) -> Converter:
    """Return what converts each field of a struct in place, by what `converter` gives for it.

    `converter` gives None for fields whose values stay as they are.
    """
    inside = [
        (column["field"], convert)
        for column in connect["fields"]
        if (convert := converter(column)) is not None
    ]

    def convert_struct(value: dict[str, Any]) -> dict[str, Any]:
        for name, convert in inside:
            value[name] = convert(value.get(name))
        return value

    return convert_struct


def or_null(convert: Converter) -> Converter:
    """Return a converter that leaves null as it is."""
    return lambda value: None if value is None else convert(value)
