"""Conversion of librdkafka's records, odd ones included."""

from typing import Any, cast

from confluent_kafka import Message

from tidegate_runtime.kafka.librdkafka import records


class FakeMessage:
    """A message whose headers the library may fail to decode."""

    def __init__(self, headers: Any) -> None:
        self._headers = headers

    def headers(self) -> Any:
        """Return the headers, or raise as the library does for a name that is not UTF-8."""
        if isinstance(self._headers, BaseException):
            raise self._headers
        return self._headers

    def error(self) -> None:
        """Return None."""

    def topic(self) -> str:
        """Return its topic."""
        return "t"

    def partition(self) -> int:
        """Return its partition."""
        return 0

    def offset(self) -> int:
        """Return its offset."""
        return 7

    def key(self) -> None:
        """Return None."""

    def value(self) -> bytes:
        """Return its value."""
        return b"{}"

    def timestamp(self) -> tuple[int, int]:
        """Return the broker's timestamp."""
        return (1, 9)


def read(headers: Any) -> Any:
    [record] = records([cast("Message", FakeMessage(headers))], "read")
    assert (record.offset, record.value, record.timestamp_ms) == (7, b"{}", 9)
    return record.headers


def test_headers_are_pairs_of_a_name_and_octets() -> None:
    assert read([("a", b"1"), ("a", "2"), ("b", None)]) == (("a", b"1"), ("a", b"2"), ("b", b""))
    assert read(None) == ()


def test_headers_that_the_library_cannot_read_are_none() -> None:
    unreadable = UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte")
    assert read(unreadable) == ()
    assert read(SystemError("headers returned a result with an exception set")) == ()
