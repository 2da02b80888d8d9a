"""Kafka Connect schemas as Avro schemas, as Connect's AvroConverter writes them; values in them."""

from base64 import b64decode
from collections.abc import Callable, Mapping, Sequence
from io import BytesIO
from typing import Any, Final

import fastavro
import orjson

from tidegate_cdc_publisher.avro_columns import encode_columns, is_columnar
from tidegate_cdc_publisher.connect_schema import DECIMAL
from tidegate_cdc_publisher.connect_values import (
    Converter,
    check_identifier,
    identifiers,
    or_null,
    struct_converter,
    unused,
)

MANY_ROWS: Final = 50
"""From this many rows on it pays to encode them by column."""

_PRIMITIVES: Final = frozenset(
    {"null", "boolean", "int", "long", "float", "double", "bytes", "string"}
)
"""Names that no record may have, in any namespace."""
_SCALARS: Final = {
    "int8": {"type": "int", "connect.type": "int8"},
    "int16": {"type": "int", "connect.type": "int16"},
    "int32": "int",
    "int64": "long",
    "float": "float",
    "double": "double",
    "boolean": "boolean",
    "string": "string",
    "bytes": "bytes",
}


def avro_schema(connect: Mapping[str, Any]) -> dict[str, Any]:
    """Return the Avro schema of a Connect struct: fields keep their names, and optional ones are
    unions with null, which is their default.

    Raises: UnsupportedFeature, for a column whose name Avro does not allow.
    """
    return _struct(connect, identifiers(connect["name"]), set())


def avro_encoder(connect: Mapping[str, Any]) -> Callable[[Sequence[bytes]], list[bytes]]:
    """Return what encodes JSON payloads of a Connect struct as Avro.

    Law: many at once have the bytes that they have one by one.
    """
    schema = fastavro.parse_schema(avro_schema(connect))
    to_avro = struct_converter(connect, _converter)

    def encode_row(payload: bytes) -> bytes:
        out = BytesIO()
        fastavro.schemaless_writer(out, schema, to_avro(orjson.loads(payload)))
        return out.getvalue()

    by_column = is_columnar(connect)

    def encode(payloads: Sequence[bytes]) -> list[bytes]:
        if by_column and len(payloads) >= MANY_ROWS:
            return encode_columns(connect, payloads)
        return [encode_row(payload) for payload in payloads]

    return encode


def avro_decoder(schema_text: str) -> Callable[[bytes], Any]:
    """Return what reads an Avro value, by the schema that it was written with."""
    schema = fastavro.parse_schema(orjson.loads(schema_text))
    return lambda content: fastavro.schemaless_reader(BytesIO(content), schema, None)


def _struct(connect: Mapping[str, Any], full: str, known_names: set[str]) -> dict[str, Any]:
    known_names.add(full)
    fields = []
    for column in connect["fields"]:
        check_identifier(column["field"], "Avro")
        kind = _optional(column, f"{full}.{column['field']}", known_names)
        field = {"name": column["field"], "type": kind}
        fields.append({**field, "default": None} if column.get("optional") else field)
    namespace, _, last = full.rpartition(".")
    return {
        "type": "record",
        "name": last,
        **({"namespace": namespace} if namespace else {}),
        "fields": fields,
        "connect.name": full,
    }


def _optional(connect: Mapping[str, Any], path: str, known_names: set[str]) -> Any:
    kind = _kind(connect, path, known_names)
    return ["null", kind] if connect.get("optional") else kind


def _kind(connect: Mapping[str, Any], path: str, known_names: set[str]) -> Any:
    match connect["type"]:
        case "struct" if "name" in connect:
            name = identifiers(connect["name"])
            return name if name in known_names else _struct(connect, name, known_names)
        case "struct":
            is_reserved = path.rpartition(".")[2] in _PRIMITIVES
            name = unused(f"{path}_" if is_reserved else path, known_names)
            return _struct(connect, name, known_names)
        case "array":
            return {"type": "array", "items": _optional(connect["items"], path, known_names)}
        case "map":
            return {"type": "map", "values": _optional(connect["values"], path, known_names)}
    plain = _SCALARS[connect["type"]]
    if "name" not in connect:
        return plain
    name = connect["name"]
    avro_type = {"type": plain, "connect.version": connect["version"], "connect.name": name}
    if name != DECIMAL:
        return avro_type
    parameters = connect["parameters"]
    digits = {
        "scale": int(parameters["scale"]),
        "precision": int(parameters["connect.decimal.precision"]),
    }
    return {**avro_type, **digits, "connect.parameters": parameters, "logicalType": "decimal"}


def _converter(connect: Mapping[str, Any]) -> Converter | None:
    """Return what makes an Avro value of a JSON one; None if they are the same."""
    match connect["type"]:
        case "struct":
            return or_null(struct_converter(connect, _converter))
        case "array":
            of_item = _converter(connect["items"])
            return of_item and or_null(lambda value: [of_item(item) for item in value])
        case "map":
            of_value = _converter(connect["values"])
            return of_value and or_null(
                lambda value: {key: of_value(item) for key, item in value.items()}
            )
        case "bytes":
            return or_null(b64decode)
        case _:
            return None
