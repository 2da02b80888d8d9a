"""Two Protobuf schemas of orders, one of which imports the other, and their records."""

from collections.abc import Sequence
from typing import Any

from google.protobuf.descriptor_pb2 import DescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pb2 import FieldDescriptorProto as Field
from google.protobuf.message import Message

from tidegate_runtime.kafka.protobuf_messages import Files, built_in_files, message_class

ORDER = (1,)
"""The index of `Order` in the file `shop/order.proto`."""

LINE = (1, 1)
"""That of `Line`, which is declared inside `Order`, behind the entries of its map."""

KINDS = {
    "int32": Field.TYPE_INT32,
    "int64": Field.TYPE_INT64,
    "uint32": Field.TYPE_UINT32,
    "uint64": Field.TYPE_UINT64,
    "float": Field.TYPE_FLOAT,
    "double": Field.TYPE_DOUBLE,
    "bool": Field.TYPE_BOOL,
    "string": Field.TYPE_STRING,
    "bytes": Field.TYPE_BYTES,
}


def add_fields(message: DescriptorProto, *lines: str) -> DescriptorProto:
    """Add fields as in `repeated int64 counts`, numbered in order; a name with a dot is a message's
    or, after the word `enum`, an enumeration's.
    """
    for number, line in enumerate(lines, start=1):
        *words, kind, name = line.split()
        field = message.field.add(name=name, number=number, label=Field.LABEL_OPTIONAL)
        if "repeated" in words:
            field.label = Field.LABEL_REPEATED
        if kind in KINDS:
            field.type = KINDS[kind]
        else:
            field.type = Field.TYPE_ENUM if "enum" in words else Field.TYPE_MESSAGE
            field.type_name = f".{kind}"
        if "optional" in words:
            field.proto3_optional = True
            field.oneof_index = len(message.oneof_decl)
            message.oneof_decl.add(name=f"_{name}")
    return message


def part_file() -> FileDescriptorProto:
    """Return the file that the other one imports."""
    file = FileDescriptorProto(name="shop/part.proto", package="shop", syntax="proto3")
    add_fields(file.message_type.add(name="Part"), "int64 weight", "optional string colour")
    return file


def order_file() -> FileDescriptorProto:
    """Return a file with a message of each form of field."""
    file = FileDescriptorProto(name="shop/order.proto", package="shop", syntax="proto3")
    known = ("timestamp", "duration", "wrappers", "struct", "field_mask", "empty", "any")
    file.dependency.extend(
        ["shop/part.proto", *(f"google/protobuf/{name}.proto" for name in known)]
    )
    add_fields(file.message_type.add(name="Click"), "string page")
    status = file.enum_type.add(name="Status")
    status.value.add(name="NEW", number=0)
    status.value.add(name="PAID", number=1)
    order = add_fields(
        file.message_type.add(name="Order"),
        "int64 id",
        "string text",
        "optional string note",
        "uint64 big",
        "uint32 small",
        "float ratio",
        "double price",
        "bool is_paid",
        "bytes data",
        "enum shop.Status status",
        "repeated int64 counts",
        "repeated shop.Order.PartsEntry parts",
        "google.protobuf.Timestamp at",
        "google.protobuf.Duration took",
        "google.protobuf.UInt64Value memo",
        "google.protobuf.Struct free",
        "shop.Order parent",
        "repeated shop.Order.Line lines",
        "google.protobuf.FieldMask mask",
        "google.protobuf.Empty nothing",
        "google.protobuf.Any any",
        "repeated enum shop.Status past",
    )
    entry = order.nested_type.add(name="PartsEntry")
    entry.options.map_entry = True
    add_fields(entry, "int32 key", "shop.Part value")
    add_fields(order.nested_type.add(name="Line"), "int32 number", "double price")
    return file


def order_files() -> Files:
    """Return the files of orders, each behind those that it imports."""
    files: dict[str, bytes] = {}
    for name in order_file().dependency:
        if name.startswith("google/"):
            files |= built_in_files(name)
    return (*files.values(), part_file().SerializeToString(), order_file().SerializeToString())


def message_of(index: Sequence[int] = ORDER, **fields: Any) -> Message:
    """Return a message of the orders' file."""
    return message_class(order_files(), index)(**fields)


def framed(schema_id: int, index: Sequence[int], content: bytes) -> bytes:
    """Return a record as Confluent's serializer writes it; every number of an index is below 64."""
    path = b"\0" if tuple(index) == (0,) else bytes(2 * each for each in (len(index), *index))
    return b"\0" + schema_id.to_bytes(4, "big") + path + content
