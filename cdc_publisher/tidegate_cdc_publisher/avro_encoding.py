"""Kafka Connect schemas as Avro schemas, as Connect's AvroConverter writes them; values in them.

Plain columns are encoded a column at a time (`encode_columns`), to the same bytes as row by row.
"""

from base64 import b64decode
from collections.abc import Callable, Mapping, Sequence
from io import BytesIO
from typing import Any, Final, cast

import fastavro
import orjson
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pa_json

from tidegate_cdc_publisher.connect_schema import (
    DECIMAL,
    Converter,
    check_identifier,
    identifiers,
    or_null,
    struct_converter,
    unused,
)

_COLUMN_SCALARS: Final = {
    "int8": pa.int64(),
    "int16": pa.int64(),
    "int32": pa.int64(),
    "int64": pa.int64(),
    "float": pa.float64(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
    "string": pa.string(),
    "bytes": pa.string(),
}
_BINARY: Final = pa.binary()
_EMPTY: Final = pa.scalar(b"", _BINARY)
_TRUE: Final = pa.scalar(b"\x01", _BINARY)
_FALSE: Final = pa.scalar(b"\x00", _BINARY)
_NULL: Final = pa.scalar(b"\x00", _BINARY)
"""The null of an optional value: the place of its branch in the union."""
_SOME: Final = pa.scalar(b"\x02", _BINARY)
"""What stands before an optional value."""


def is_columnar(connect: Mapping[str, Any]) -> bool:
    """Return whether a Connect schema has only structs and scalars, as `encode_columns` takes."""
    if connect["type"] == "struct":
        fields = connect["fields"]
        return bool(fields) and all(is_columnar(column) for column in fields)
    return connect["type"] in _COLUMN_SCALARS


def encode_columns(connect: Mapping[str, Any], payloads: Sequence[bytes]) -> list[bytes]:
    """Return JSON payloads of a Connect struct, at least one, as Avro, in their order.

    Raises: ValueError, for a null in a column that is not optional.
    """
    lines = b"\n".join(payloads)
    table = pa_json.read_json(
        pa.py_buffer(lines),
        # A block holds whole rows, however long they are.
        read_options=pa_json.ReadOptions(use_threads=False, block_size=len(lines) + 1),
        parse_options=pa_json.ParseOptions(
            explicit_schema=pa.schema(list(_arrow(connect))), unexpected_field_behavior="ignore"
        ),
    )
    (batch,) = table.combine_chunks().to_batches()
    return cast("list[bytes]", _struct_columns(batch.to_struct_array(), connect).to_pylist())


def _arrow(connect: Mapping[str, Any]) -> pa.DataType:
    if connect["type"] == "struct":
        return pa.struct([(column["field"], _arrow(column)) for column in connect["fields"]])
    return _COLUMN_SCALARS[connect["type"]]


def _struct_columns(rows: pa.StructArray, connect: Mapping[str, Any]) -> pa.Array:
    parts = []
    for place, column in enumerate(connect["fields"]):
        values = pc.struct_field(rows, [place])
        # A null struct has null fields, which are not written.
        if not column.get("optional") and values.null_count > rows.null_count:
            raise ValueError(f"column {column['field']!r} has a null, which its schema forbids")
        parts.append(_value(values, column))
    return _joined(parts)


def _value(values: pa.Array, connect: Mapping[str, Any]) -> pa.Array:
    """Return the encoding of each value; that of a null is unspecified if it is not optional."""
    if connect.get("optional") and values.null_count == len(values):
        return pa.repeat(_NULL, len(values))
    encoded = _present(values, connect)
    if not connect.get("optional"):
        return encoded
    some = _joined([_SOME, encoded])
    if values.null_count == 0:
        return some
    return pc.if_else(values.is_valid(), some, _NULL)


def _present(values: pa.Array, connect: Mapping[str, Any]) -> pa.Array:
    match connect["type"]:
        case "struct":
            return _struct_columns(values, connect)
        case "string":
            return _sized(pc.fill_null(values, "").cast(_BINARY))
        case "bytes":
            texts = pc.fill_null(values, "").to_pylist()
            return _sized(pa.array([b64decode(text) for text in texts], _BINARY))
        case "boolean":
            return pc.if_else(pc.fill_null(values, False), _TRUE, _FALSE)
        case "float":
            return _in_memory(pc.fill_null(values, 0.0).cast(pa.float32(), safe=False))
        case "double":
            return _in_memory(pc.fill_null(values, 0.0))
        case _:
            return _varints(pc.fill_null(values, 0))


def _sized(values: pa.Array) -> pa.Array:
    return _joined([_varints(pc.binary_length(values).cast(pa.int64())), values])


def _joined(parts: Sequence[pa.Array | pa.Scalar]) -> pa.Array:
    if len(parts) == 1:
        return parts[0]
    return pc.binary_join_element_wise(*parts, _EMPTY)


def _in_memory(numbers: pa.Array) -> pa.Array:
    """Return the bytes of numbers as they are in memory, little-endian."""
    return numbers.view(pa.binary(numbers.type.bit_width // 8)).cast(_BINARY)


def _varints(numbers: pa.Array) -> pa.Array:
    """Return int64 numbers in zigzag, seven bits a byte, the lowest first."""
    doubled = pc.shift_left(numbers, 1)
    zigzag = pc.if_else(pc.less(numbers, 0), pc.bit_wise_not(doubled), doubled)
    rest = zigzag.view(pa.uint64())
    parts: list[pa.Array] = []
    while True:
        seven = pc.bit_wise_and(rest, pa.scalar(0x7F, pa.uint64()))
        following = pc.shift_right(rest, pa.scalar(7, pa.uint64()))
        goes_on = pc.greater(following, 0)
        digit = pc.if_else(goes_on, pc.bit_wise_or(seven, pa.scalar(0x80, pa.uint64())), seven)
        part = _in_memory(digit.cast(pa.uint8()))
        parts.append(pc.if_else(pc.greater(rest, 0), part, _EMPTY) if parts else part)
        if not pc.any(goes_on).as_py():
            return _joined(parts)
        rest = following


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
