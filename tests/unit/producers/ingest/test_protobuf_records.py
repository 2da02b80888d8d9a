"""A record names its schema and its message; what can't be read says why."""

from typing import Any

import orjson
import pyarrow as pa
import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from tests.support.protobuf_orders import LINE, ORDER, framed, message_of, order_files
from tidegate_producers.ingest.protobuf_records import (
    RecordReader,
    head_of,
    message_name,
    message_place,
)
from tidegate_runtime.kafka.protobuf_messages import json_reader
from tidegate_runtime.kafka.schema_registry import RegisteredSchemas

FILES = order_files()
FIELDS: dict[tuple[int, ...], dict[str, Any]] = {
    ORDER: {"id": 5, "parts": {1: {"weight": 2}}, "at": {"seconds": 1}},
    LINE: {"number": 5},
}
LINE_OF_7 = framed(7, LINE, message_of(LINE, number=3).SerializeToString())


@pytest.mark.parametrize("index", [(0,), (1,), (1, 0), (0, 0, 3), (63,)])
def test_a_head_has_the_name_of_its_message(index: tuple[int, ...]) -> None:
    record = framed(2**31, index, b"rest")
    assert head_of(record) == (message_name(2**31, index), len(record) - 4)
    assert message_place(message_name(7, index)) == (7, index)


def test_large_numbers_of_an_index_have_several_bytes() -> None:
    assert head_of(b"\0\0\0\0\x07\x02\xac\x02rest") == ("7/150", 8)
    assert head_of(b"\0\0\0\0\x07\x02\x00rest") == ("7", 7)


@pytest.mark.parametrize("index", [b"", b"\x04\x02", b"\x01", b"\xff\xff\xff\xff\xff\xff", b"\x80"])
def test_an_index_that_is_none_is_refused(index: bytes) -> None:
    with pytest.raises(ValueError, match="the index of its message"):
        head_of(b"\0\0\0\0\x07" + index)


@pytest.mark.parametrize("index", [(0,), ORDER, LINE])
def test_what_confluents_serializer_writes_is_read(index: tuple[int, ...]) -> None:
    """With the file that the schema imports, which the serializer registers, too."""
    client = SchemaRegistryClient.new_client({"url": "mock://orders"})
    made = message_of(index, **({} if index == (0,) else FIELDS[index]))
    write = ProtobufSerializer(type(made), client, {"use.deprecated.format": False})
    record = write(made, SerializationContext("orders", MessageField.VALUE))
    assert record is not None
    head = head_of(record)
    assert head is not None
    schema_id, found = message_place(head[0])
    assert found == index
    files = RegisteredSchemas(client, "mock://orders", "--registry").protobuf(schema_id)
    assert files is not None
    values = pa.array([record], pa.binary()), pa.array([None], pa.binary())
    [read] = RecordReader({head[0]: (files, found)}).read(*values).to_pylist()
    expected = json_reader(type(made), absent_as_null=False)(made.SerializeToString())
    assert orjson.loads(read["text"]) == expected


def test_records_are_read_or_say_why_not() -> None:
    reader = RecordReader(
        {"7/1": (FILES, ORDER), "7/1/1": (FILES, LINE)}, {"8": "the schema 8 can't be used"}
    )
    values = [
        LINE_OF_7,
        None,
        b'{"id": 1}',
        framed(8, (0,), b""),
        framed(9, (2, 3), b""),
        framed(7, LINE, b"\xff"),
        b"\0\0\0\0\x07\x80",
        None,
        None,
    ]
    keys = [None, LINE_OF_7, None, None, None, None, None, framed(9, (0,), b""), b"5"]
    read = reader.read(pa.array(values, pa.binary()), pa.array(keys, pa.binary())).to_pylist()
    line = '{"number":3,"price":0.0}'
    unknown = "the schema of the value, 9/2/3, is not known"
    assert [(row["text"], row["key_text"], row["fault"], row["missing"]) for row in read] == [
        (line, None, None, []),
        (None, line, None, []),
        (None, None, "the value does not begin with the id of a schema", []),
        (None, None, "the schema 8 can't be used", []),
        (None, None, unknown, ["9/2/3"]),
        (None, None, "the value can't be read by its schema, 7/1/1", []),
        (None, None, "the value can't be read: the index of its message ends too soon", []),
        (None, None, None, ["9"]),
        (None, "5", None, []),
    ]
