"""A Protobuf message is a JSON value with the schema's names, and its schema has columns."""

import math
from typing import Any

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.json_format import MessageToDict
from google.protobuf.message import Message

from tests.support.protobuf_orders import (
    LINE,
    ORDER,
    add_fields,
    message_of,
    order_file,
    order_files,
)
from tidegate_delta.errors import InvalidRequest
from tidegate_runtime.kafka.protobuf_messages import (
    UNREADABLE,
    built_in_files,
    json_reader,
    message_class,
    message_columns,
    parsed_file,
)


def value_of(message: Message, *, absent_as_null: bool = False) -> Any:
    return json_reader(type(message), absent_as_null=absent_as_null)(message.SerializeToString())


FULL: dict[str, Any] = {
    "id": -(2**63),
    "text": "a",
    "note": "",
    "big": 2**64 - 1,
    "small": 2**32 - 1,
    "ratio": 0.5,
    "price": 1.25,
    "is_paid": True,
    "data": b"\x00\xff",
    "status": 1,
    "counts": [1, 2**62],
    "parts": {-7: {"weight": 1}, 8: {"colour": "red"}},
    "at": {"seconds": 1_767_268_800, "nanos": 123_456_789},
    "took": {"seconds": 1, "nanos": 500_000_000},
    "memo": {"value": 2**63},
    "free": {"a": 1.5, "b": None},
    "parent": {"id": 2},
    "lines": [{"number": 1}, {"price": math.inf}],
    "mask": {"paths": ["a_b", "c"]},
    "any": {"type_url": "x/y", "value": b"z"},
    "past": [0, 1, 7],
}
PARENT = {
    **{"text": "", "big": 0, "small": 0, "ratio": 0.0, "price": 0.0, "is_paid": False, "data": ""},
    **{"status": "NEW", "counts": [], "parts": {}, "lines": [], "past": []},
}


def test_values_are_json_with_numbers_as_numbers() -> None:
    assert value_of(message_of(**FULL)) == {
        **FULL,
        "data": "AP8=",
        "status": "PAID",
        "parts": {"-7": {"weight": 1}, "8": {"weight": 0, "colour": "red"}},
        "at": "2026-01-01T12:00:00.123456789Z",
        "took": "1.500s",
        "memo": 2**63,
        "parent": {**PARENT, "id": 2},
        "lines": [{"number": 1, "price": 0.0}, {"number": 0, "price": "Infinity"}],
        "mask": "aB,c",
        "any": {"type_url": "x/y", "value": "eg=="},
        "past": ["NEW", "PAID", 7],
    }


def test_what_protojson_writes_alike_is_alike() -> None:
    """But for numbers of 64 bits, `Any`, and enums without a name."""
    given = {name: FULL[name] for name in FULL if name not in ("any", "past", "parent")}
    message = message_of(**{**given, "past": [1]})
    expected = MessageToDict(
        message, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
    )
    for name in ("id", "big"):
        expected[name] = int(expected[name])
    expected["memo"] = int(expected["memo"])
    expected["counts"] = [*map(int, expected["counts"])]
    for part in expected["parts"].values():
        part["weight"] = int(part["weight"])
    assert value_of(message) == expected


def test_absent_fields_are_defaults_or_without_presence_left_out_or_null() -> None:
    assert value_of(message_of()) == {**PARENT, "id": 0}
    absent = value_of(message_of(), absent_as_null=True)
    assert [name for name, value in absent.items() if value is None] == [
        *("note", "at", "took", "memo", "free", "parent", "mask", "nothing", "any"),
    ]


@pytest.mark.parametrize(
    ("number", "text"), [(math.nan, "NaN"), (math.inf, "Infinity"), (-math.inf, "-Infinity")]
)
def test_numbers_that_json_has_not_are_texts(number: float, text: str) -> None:
    assert value_of(message_of(LINE, price=number))["price"] == text


@pytest.mark.parametrize(
    "content",
    [
        b"\xff",
        message_of(text="abc").SerializeToString()[:-1],
        b"\x12\x02\xff\xfe",
        message_of(at={"seconds": 2**60}).SerializeToString(),
        message_of(free={"a": math.nan}).SerializeToString(),
    ],
)
def test_what_is_no_such_message_is_unreadable(content: bytes) -> None:
    read = json_reader(message_class(order_files(), ORDER), absent_as_null=False)
    with pytest.raises(UNREADABLE):
        read(content)


def test_columns_have_the_types_of_the_schema() -> None:
    columns = message_columns(message_class(order_files(), ORDER).DESCRIPTOR)
    assert {field.name: str(field.kind) for field in columns} == {
        "id": "long",
        "text": "string",
        "note": "string",
        "big": "decimal(20,0)",
        "small": "long",
        "ratio": "float",
        "price": "double",
        "is_paid": "boolean",
        "data": "binary",
        "status": "string",
        "counts": "array<long>",
        "parts": "map<string,struct<weight:long,colour:string>>",
        "at": "timestamp",
        "took": "string",
        "memo": "decimal(20,0)",
        "free": "string",
        "parent": "string",
        "lines": "array<struct<number:integer,price:double>>",
        "mask": "string",
        "nothing": "string",
        "any": "struct<type_url:string,value:binary>",
        "past": "array<string>",
    }
    line = message_class(order_files(), LINE).DESCRIPTOR
    assert str(message_columns(line)) == "struct<number:integer,price:double>"
    files = tuple(built_in_files("google/protobuf/struct.proto").values())
    assert message_columns(message_class(files).DESCRIPTOR).fields == ()


@pytest.mark.parametrize("index", [(2,), (0, 0), (1, 2), (-1,)])
def test_an_index_without_a_message_is_said(index: tuple[int, ...]) -> None:
    place = "/".join(map(str, index))
    with pytest.raises(InvalidRequest, match=f"no message with the index {place}"):
        message_class(order_files(), index)


def test_a_schema_that_can_not_be_used_is_said() -> None:
    with pytest.raises(InvalidRequest, match="Protobuf can't use the schema"):
        message_class((order_file().SerializeToString(),))
    with pytest.raises(InvalidRequest, match="no serialized descriptor"):
        parsed_file('syntax = "proto3"; message Order {}', "order.proto")
    for name in ("other/part.proto", "google/protobuf/none.proto"):
        with pytest.raises(InvalidRequest, match=f"imports {name}.*with a reference"):
            built_in_files(name)


def test_a_message_that_is_only_named_like_a_list_stays_one() -> None:
    file = FileDescriptorProto(name="a.proto", syntax="proto3")
    message = add_fields(file.message_type.add(name="M"), "M.tagsList tags", "M.partsMap parts")
    add_fields(message.nested_type.add(name="tagsList"), "repeated string items")
    add_fields(message.nested_type.add(name="partsMap"), "repeated string items")
    made = message_class((file.SerializeToString(),))
    assert str(message_columns(made.DESCRIPTOR)) == (
        "struct<tags:struct<items:array<string>>,parts:struct<items:array<string>>>"
    )
    value = {"tags": {"items": ["a"]}, "parts": {"items": ["b"]}}
    assert value_of(made(**value)) == value
