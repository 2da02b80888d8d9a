"""Protobuf messages as JSON values, and their schemas as columns. Needs the extra `registry`.

A schema is its files as serialized descriptors, each behind those that it imports: so a process
without a registry can read messages.
"""

import re
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache, partial
from importlib import import_module
from math import isfinite, isnan
from typing import Any, Final, TypeAlias

from google.protobuf.descriptor import FieldDescriptor, FileDescriptor
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.json_format import Error as NotInJson
from google.protobuf.json_format import MessageToDict
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass

from tidegate_delta.errors import InvalidRequest
from tidegate_delta.schema.types import (
    ArrayType,
    DataType,
    DecimalType,
    MapType,
    PrimitiveType,
    StructField,
    StructType,
)

Files: TypeAlias = tuple[bytes, ...]
"""The files of a schema, the schema's own as the last."""

UNREADABLE: Final = (DecodeError, NotInJson, ValueError)
"""What reading a message raises that is none of its schema, or whose values no JSON has."""

_Reader = Callable[[Any], Any]

_CACHED_SCHEMAS: Final = 256
_STRING: Final = PrimitiveType("string")
_TYPES: Final[Mapping[int, DataType]] = {
    FieldDescriptor.TYPE_INT32: PrimitiveType("integer"),
    FieldDescriptor.TYPE_SINT32: PrimitiveType("integer"),
    FieldDescriptor.TYPE_SFIXED32: PrimitiveType("integer"),
    FieldDescriptor.TYPE_UINT32: PrimitiveType("long"),
    FieldDescriptor.TYPE_FIXED32: PrimitiveType("long"),
    FieldDescriptor.TYPE_INT64: PrimitiveType("long"),
    FieldDescriptor.TYPE_SINT64: PrimitiveType("long"),
    FieldDescriptor.TYPE_SFIXED64: PrimitiveType("long"),
    FieldDescriptor.TYPE_UINT64: DecimalType(20, 0),
    FieldDescriptor.TYPE_FIXED64: DecimalType(20, 0),
    FieldDescriptor.TYPE_FLOAT: PrimitiveType("float"),
    FieldDescriptor.TYPE_DOUBLE: PrimitiveType("double"),
    FieldDescriptor.TYPE_BOOL: PrimitiveType("boolean"),
    FieldDescriptor.TYPE_STRING: _STRING,
    FieldDescriptor.TYPE_BYTES: PrimitiveType("binary"),
    FieldDescriptor.TYPE_ENUM: _STRING,
}

_GOOGLE: Final = "google.protobuf."
_JSON: Final = frozenset(f"{_GOOGLE}{name}" for name in ("Struct", "Value", "ListValue"))
_TEXTS: Final[Mapping[str, DataType]] = {
    f"{_GOOGLE}Timestamp": PrimitiveType("timestamp"),
    f"{_GOOGLE}Duration": _STRING,
    f"{_GOOGLE}FieldMask": _STRING,
}
"""Messages whose JSON is a text."""

_WRAPPERS: Final = frozenset(
    f"{_GOOGLE}{name}Value"
    for name in ("Bool", "Bytes", "Double", "Float", "Int32", "Int64", "String", "UInt32", "UInt64")
)
_BUILT_IN: Final = re.compile(r"(google/(?:protobuf|type)|confluent(?:/types?)?)/(\w+)\.proto")
"""Files that every client of a registry has, so that no schema refers to them."""


def is_built_in(name: str) -> bool:
    """Return whether a file that a schema imports is one that no registry has."""
    return _BUILT_IN.fullmatch(name) is not None


def built_in_files(name: str) -> dict[str, bytes]:
    """Return a file that every client has, by its name behind those that it imports.

    Raises: InvalidRequest, for one that this client does not have.
    """
    match = _BUILT_IN.fullmatch(name)
    module = None
    if match is not None:
        folder = match[1].replace("/", ".")
        client = "confluent_kafka.schema_registry." if folder.startswith("confluent") else ""
        with suppress(ImportError):
            module = import_module(f"{client}{folder}.{match[2]}_pb2")
    if module is None:
        raise InvalidRequest(
            f"the schema imports {name}, to which it does not refer: register it with a reference",
            error_class="DELTA_ILLEGAL_OPTION",
        )
    file: FileDescriptor = module.DESCRIPTOR
    files: dict[str, bytes] = {}
    for imported in file.dependencies:
        files |= built_in_files(imported.name)
    files[name] = file.serialized_pb
    return files


def parsed_file(text: str, name: str) -> FileDescriptorProto:
    """Return a file by its serialized descriptor in base64, under the name that others import.

    Raises: InvalidRequest, for another text.
    """
    try:
        file = FileDescriptorProto.FromString(b64decode(text, validate=True))
    except (ValueError, DecodeError) as error:
        raise InvalidRequest(
            "the registry returned a Protobuf schema that is no serialized descriptor, which "
            f"format=serialized asks it for ({error}): use one that knows this format",
            error_class="DELTA_ILLEGAL_OPTION",
        ) from error
    file.name = name
    return file


def message_class(files: Files, index: Sequence[int] = (0,)) -> type[Message]:
    """Return the class of a message: the index of the outermost one, then of those in it.

    Raises: InvalidRequest, for a schema that can't be used, or has no such message.
    """
    pool, file = _pooled(files)
    path = [file.package] if file.package else []
    messages: Any = file.message_type
    for number in index:
        if not 0 <= number < len(messages):
            place = "/".join(map(str, index))
            raise InvalidRequest(
                f"the schema has no message with the index {place}",
                error_class="DELTA_ILLEGAL_OPTION",
            )
        path.append(messages[number].name)
        messages = messages[number].nested_type
    return GetMessageClass(pool.FindMessageTypeByName(".".join(path)))


@lru_cache(_CACHED_SCHEMAS)
def _pooled(files: Files) -> tuple[DescriptorPool, FileDescriptorProto]:
    pool = DescriptorPool()
    try:
        for file in files:
            pool.AddSerializedFile(file)
    except TypeError as error:
        raise InvalidRequest(
            f"Protobuf can't use the schema: {error}", error_class="DELTA_ILLEGAL_OPTION"
        ) from error
    return pool, FileDescriptorProto.FromString(files[-1])


def json_reader(message: type[Message], *, absent_as_null: bool) -> Callable[[bytes], Any]:
    """Return what reads a serialized message as a JSON value.

    Fields have the names of the schema; a field without presence has its default where it is
    absent, one with presence is null or left out. Numbers are numbers, also those of 64 bits, and
    what is none of the finite ones its name as a text; enums are their names, bytes base64. Maps
    are objects, whose keys are texts. Google's well-known types are what ProtoJSON makes of them,
    but for `Any`. A list or map of our own change topics, which is a message, is one again.
    The result raises: one of UNREADABLE.
    """
    read = _Readers(absent_as_null=absent_as_null).of(message.DESCRIPTOR)
    return lambda content: read(message.FromString(content))


def message_columns(descriptor: Any) -> StructType:
    """Return the columns of a message's JSON values.

    An unsigned number of 64 bits is a decimal(20,0). A message that contains itself, or has no
    fields, is a text of JSON.
    """
    if _is_special(descriptor.full_name):
        return StructType()
    return StructType(_fields(descriptor, (descriptor.full_name,)))


def _fields(descriptor: Any, within: tuple[str, ...]) -> tuple[StructField, ...]:
    return tuple(StructField(field.name, _type(field, within)) for field in descriptor.fields)


def _type(field: FieldDescriptor, within: tuple[str, ...]) -> DataType:
    wrapped = _wrapped(field)
    if wrapped is not None:
        is_map, value = wrapped
        kind = _type(value, within)
        return MapType(_STRING, kind) if is_map else ArrayType(kind)
    if _is_map(field):
        return MapType(_STRING, _type(_message(field).fields_by_name["value"], within))
    kind = _single_type(field, within)
    return ArrayType(kind) if field.is_repeated else kind


def _single_type(field: FieldDescriptor, within: tuple[str, ...]) -> DataType:
    if field.message_type is None:
        return _TYPES[field.type]
    message = _message(field)
    name = message.full_name
    if name in _WRAPPERS:
        return _TYPES[message.fields_by_name["value"].type]
    if _is_special(name):
        return _TEXTS.get(name, _STRING)
    if name in within or not message.fields:
        return _STRING
    return StructType(_fields(message, (*within, name)))


def _is_special(name: str) -> bool:
    return name in _JSON or name in _TEXTS or name in _WRAPPERS


def _message(field: FieldDescriptor) -> Any:
    """Return the descriptor of a field's message. Its type has two names in Protobuf's stubs."""
    return field.message_type


def _is_map(field: FieldDescriptor) -> bool:
    return field.message_type is not None and bool(_message(field).GetOptions().map_entry)


def _wrapped(field: FieldDescriptor) -> tuple[bool, FieldDescriptor] | None:
    """Return the field with a value of a list or map as our change topics have them, and whether
    it is a map; None for any other field.

    Such a list is a message `<field>List`, whose `items` are messages with one field, `value`.
    """
    message = _message(field)
    if message is None or field.is_repeated or message.containing_type != field.containing_type:
        return None
    is_map = message.name.rstrip("_") == f"{field.name}Map"
    if not is_map and message.name.rstrip("_") != f"{field.name}List":
        return None
    items = message.fields_by_name.get("items")
    if items is None or len(message.fields) > 1 or not items.is_repeated:
        return None
    item = items.message_type
    if _is_map(items) != is_map or item is None:
        return None
    if is_map:
        item = item.fields_by_name["value"].message_type
    if item is None or item.containing_type != message or [*item.fields_by_name] != ["value"]:
        return None
    return is_map, item.fields_by_name["value"]


class _Readers:
    """What reads messages as JSON values, by the messages' names."""

    def __init__(self, *, absent_as_null: bool) -> None:
        self._absent_as_null = absent_as_null
        self._known: dict[str, _Reader] = {}

    def of(self, descriptor: Any) -> _Reader:
        """Return what reads a message."""
        name = descriptor.full_name
        if name in _WRAPPERS:
            inner = self._single(descriptor.fields_by_name["value"])
            return lambda message: message.value if inner is None else inner(message.value)
        if name in _JSON:
            return MessageToDict
        if name in _TEXTS:
            return _text
        if name not in self._known:
            # A message may contain itself: it is known before its fields are.
            fields: list[tuple[str, bool, _Reader | None]] = []
            self._known[name] = partial(_object, fields, self._absent_as_null)
            fields += [(f.name, f.has_presence, self._field(f)) for f in descriptor.fields]
        return self._known[name]

    def _field(self, field: FieldDescriptor) -> _Reader | None:
        """Return what reads a field's value; None if it is JSON as it is."""
        wrapped = _wrapped(field)
        if wrapped is not None:
            is_map, value = wrapped
            of_item = self.of(value.containing_type)
            if is_map:
                return lambda of: {str(k): of_item(v).get("value") for k, v in of.items.items()}
            return lambda of: [of_item(item).get("value") for item in of.items]
        if _is_map(field):
            entry = _message(field).fields_by_name
            is_bool = entry["key"].type == FieldDescriptor.TYPE_BOOL
            of_key = _bool_text if is_bool else str
            of_value = self._single(entry["value"]) or _same
            return lambda items: {of_key(key): of_value(value) for key, value in items.items()}
        read = self._single(field)
        if field.is_repeated:
            return list if read is None else lambda items: [read(item) for item in items]
        return read

    def _single(self, field: FieldDescriptor) -> _Reader | None:
        if field.message_type is not None:
            return self.of(_message(field))
        if field.type == FieldDescriptor.TYPE_BYTES:
            return _base64
        if field.type == FieldDescriptor.TYPE_ENUM:
            values: Any = field.enum_type
            names = {number: value.name for number, value in values.values_by_number.items()}
            # A newer value has no name yet.
            return lambda number: names.get(number, number)
        if field.type in (FieldDescriptor.TYPE_FLOAT, FieldDescriptor.TYPE_DOUBLE):
            return _number
        return None


def _object(
    fields: Sequence[tuple[str, bool, _Reader | None]], absent_as_null: bool, message: Message
) -> dict[str, Any]:
    value: dict[str, Any] = {}
    # A field may have the name of a method.
    has_field = type(message).HasField
    for name, has_presence, read in fields:
        if has_presence and not has_field(message, name):
            if absent_as_null:
                value[name] = None
            continue
        item = getattr(message, name)
        value[name] = item if read is None else read(item)
    return value


def _text(message: Any) -> str:
    text: str = message.ToJsonString()
    return text


def _base64(content: bytes) -> str:
    return b64encode(content).decode()


def _number(number: float) -> float | str:
    if isfinite(number):
        return number
    if isnan(number):
        return "NaN"
    return "Infinity" if number > 0 else "-Infinity"


def _bool_text(value: bool) -> str:
    return "true" if value else "false"


def _same(value: Any) -> Any:
    return value
