"""A record names its schema and its message; what can't be read says why."""

import pyarrow as pa
import pytest

from tests.support.protobuf_orders import LINE, ORDER, framed, message_of, order_files
from tidegate_producers.ingest.protobuf_records import (
    RecordReader,
    head_of,
    message_name,
    message_place,
)

FILES = order_files()
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
