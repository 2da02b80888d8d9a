"""Kafka Connect schemas as Protobuf messages, and values in them."""

from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import orjson
from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
)

from tidegate_cdc_publisher.connect_schema import (
    DECIMAL,
    Converter,
    check_identifier,
    identifiers,
    or_null,
    struct_converter,
    unused,
)
from tidegate_delta.errors import UnsupportedFeature
from tidegate_runtime.kafka.protobuf_messages import json_reader, message_class

FIRST_MESSAGE: Final = b"\x00"
"""What stands between a schema's id and a message: it is the first one of the schema."""

_SCALARS: Final = {
    "int8": FieldDescriptorProto.TYPE_INT32,
    "int16": FieldDescriptorProto.TYPE_INT32,
    "int32": FieldDescriptorProto.TYPE_INT32,
    "int64": FieldDescriptorProto.TYPE_INT64,
    "float": FieldDescriptorProto.TYPE_FLOAT,
    "double": FieldDescriptorProto.TYPE_DOUBLE,
    "boolean": FieldDescriptorProto.TYPE_BOOL,
    "string": FieldDescriptorProto.TYPE_STRING,
    "bytes": FieldDescriptorProto.TYPE_BYTES,
}
# Numbers below are those of fields that the envelope adds to the columns.
_FIRST_COLUMN: Final = 16
_RESERVED: Final = range(19_000, 20_000)
_NUMBER_MAX: Final = 2**29 - 1


def protobuf_schema(connect: Mapping[str, Any]) -> FileDescriptorProto:
    """Return the Protobuf schema of a Connect struct, which is its first message.

    A field of its columns has the number of the column's field id, if the table has column
    mapping, and of its place otherwise. Every scalar is `optional`: else a zero is not written, and
    is null for readers once the column may be null. A list is a message whose `items` are messages
    with a `value`, a map one whose `items` is a map of such messages: so lists, maps and what is in
    them can be null.
    Raises: UnsupportedFeature, for a column whose name Protobuf does not allow, and for a decimal
    as bytes, whose scale has no place in a Protobuf schema.
    """
    package, _, _ = identifiers(connect["name"]).rpartition(".")
    file = FileDescriptorProto(name=f"{identifiers(connect['name'])}.proto", syntax="proto3")
    if package:
        file.package = package
    _Messages(file).named(connect)
    return file


def registry_text(schema: FileDescriptorProto) -> str:
    """Return a schema as confluent-kafka's serializer registers it: its descriptor in base64."""
    return b64encode(schema.SerializeToString(deterministic=True)).decode()


def protobuf_encoder(
    schema: FileDescriptorProto, connect: Mapping[str, Any]
) -> Callable[[Sequence[bytes]], list[bytes]]:
    """Return what encodes JSON payloads of a Connect struct as messages of its schema."""
    message = message_class((schema.SerializeToString(),))
    to_protobuf = struct_converter(connect, _converter)

    def encode_row(payload: bytes) -> bytes:
        value = to_protobuf(orjson.loads(payload))
        # A column may have the name of a method.
        return message.SerializeToString(message(**value), deterministic=True)

    def encode(payloads: Sequence[bytes]) -> list[bytes]:
        return [encode_row(payload) for payload in payloads]

    return encode


def protobuf_decoder(schema_text: str) -> Callable[[bytes], Any]:
    """Return what reads a message that FIRST_MESSAGE leads, by its schema as `registry_text`."""
    read = json_reader(message_class((b64decode(schema_text),)), absent_as_null=True)
    return lambda content: read(content.removeprefix(FIRST_MESSAGE))


class _Messages:
    """The messages of one schema: structs with a name once each, others where they are used."""

    def __init__(self, file: FileDescriptorProto) -> None:
        self._file = file
        self._known: set[str] = set()

    def named(self, connect: Mapping[str, Any]) -> str:
        """Return the full name of the message of a struct that has one."""
        name = identifiers(connect["name"]).rpartition(".")[2]
        if name not in self._known:
            self._known.add(name)
            self._fill(self._file.message_type.add(name=name), f".{self._prefix}{name}", connect)
        return f".{self._prefix}{name}"

    @property
    def _prefix(self) -> str:
        return f"{self._file.package}." if self._file.package else ""

    def _fill(self, message: DescriptorProto, path: str, connect: Mapping[str, Any]) -> None:
        taken = {column["field"] for column in connect["fields"]}
        for place, column in enumerate(connect["fields"], start=1):
            name = column["field"]
            check_identifier(name, "Protobuf")
            field = message.field.add(
                name=name,
                # By default `a_b` and `aB` have one name in JSON, which no reader takes.
                json_name=name,
                number=field_number(column, place),
                label=FieldDescriptorProto.LABEL_OPTIONAL,
            )
            self._set_type(message, path, field, column, taken)

    def _set_type(
        self,
        message: DescriptorProto,
        path: str,
        field: FieldDescriptorProto,
        connect: Mapping[str, Any],
        taken: set[str],
    ) -> None:
        match connect["type"]:
            case "struct" if "name" in connect:
                field.type_name = self.named(connect)
            case "struct":
                inner, field.type_name = _nested(message, path, f"{field.name}Struct", taken)
                self._fill(inner, field.type_name, connect)
            case "array":
                inner, field.type_name = _nested(message, path, f"{field.name}List", taken)
                self._add_items(inner, field.type_name, connect["items"])
            case "map":
                inner, field.type_name = _nested(message, path, f"{field.name}Map", taken)
                self._add_entries(inner, field.type_name, connect["values"])
            case kind:
                field.type = _scalar(field.name, kind, connect)
                field.proto3_optional = True
                field.oneof_index = len(message.oneof_decl)
                message.oneof_decl.add(name=unused(f"_{field.name}", taken))
                return
        field.type = FieldDescriptorProto.TYPE_MESSAGE

    def _add_items(self, message: DescriptorProto, path: str, connect: Mapping[str, Any]) -> None:
        message.field.add(
            name="items",
            number=1,
            label=FieldDescriptorProto.LABEL_REPEATED,
            type=FieldDescriptorProto.TYPE_MESSAGE,
            type_name=self._add_item(message, path, connect),
        )

    def _add_entries(self, message: DescriptorProto, path: str, connect: Mapping[str, Any]) -> None:
        item = self._add_item(message, path, connect)
        entry = message.nested_type.add(name="ItemsEntry")
        entry.options.map_entry = True
        single = FieldDescriptorProto.LABEL_OPTIONAL
        text, of_type = FieldDescriptorProto.TYPE_STRING, FieldDescriptorProto.TYPE_MESSAGE
        entry.field.add(name="key", number=1, label=single, type=text)
        entry.field.add(name="value", number=2, label=single, type=of_type, type_name=item)
        message.field.add(
            name="items",
            number=1,
            label=FieldDescriptorProto.LABEL_REPEATED,
            type=of_type,
            type_name=f"{path}.ItemsEntry",
        )

    def _add_item(self, message: DescriptorProto, path: str, connect: Mapping[str, Any]) -> str:
        item = message.nested_type.add(name="Item")
        self._fill(item, f"{path}.Item", {"fields": [{**connect, "field": "value"}]})
        return f"{path}.Item"


def _nested(
    message: DescriptorProto, path: str, name: str, taken: set[str]
) -> tuple[DescriptorProto, str]:
    """Add a message inside another one; return it and its full name."""
    free = unused(name, taken)
    return message.nested_type.add(name=free), f"{path}.{free}"


def field_number(column: Mapping[str, Any], place: int) -> int:
    """Return the number of a field: of its column's field id, if it has one, else of its place.

    Raises: UnsupportedFeature, for a field id that is no number for Protobuf.
    """
    if "id" not in column:
        return place
    number = _FIRST_COLUMN + int(column["id"])
    if number >= _RESERVED.start:
        number += len(_RESERVED)
    if not _FIRST_COLUMN <= number <= _NUMBER_MAX:
        raise UnsupportedFeature(
            f"column {column['field']!r} has the field id {column['id']}, for which Protobuf has "
            "no field number; set `value_format` and `key_format` of its table to another format",
            feature="Protobuf field numbers",
        )
    return number


def _scalar(
    name: str, kind: str, connect: Mapping[str, Any]
) -> FieldDescriptorProto.Type.ValueType:
    if connect.get("name") == DECIMAL:
        raise UnsupportedFeature(
            f"column {name!r} is a decimal, and a Protobuf schema has no place for the scale of "
            "its bytes: set `decimal_handling_mode` of its table to string or double, or "
            "`value_format` and `key_format` to another format",
            feature="Protobuf decimals",
        )
    return _SCALARS[kind]


def _converter(connect: Mapping[str, Any]) -> Converter | None:
    """Return what makes a message's arguments of a JSON value; None if they are the same."""
    match connect["type"]:
        case "struct":
            return or_null(struct_converter(connect, _converter))
        case "array":
            of_item = _item_converter(connect["items"])
            return or_null(lambda value: {"items": [of_item(item) for item in value]})
        case "map":
            of_value = _item_converter(connect["values"])
            return or_null(
                lambda value: {"items": {key: of_value(item) for key, item in value.items()}}
            )
        case "bytes":
            return or_null(b64decode)
        case _:
            return None


def _item_converter(connect: Mapping[str, Any]) -> Converter:
    convert = _converter(connect)
    return lambda value: {"value": convert(value) if convert else value}
