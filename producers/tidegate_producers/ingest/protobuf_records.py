"""Reads Protobuf records in Spark's Python workers. Needs the extra `registry`.

A record has Confluent's wire format: a zero byte, four bytes of its schema's id, the index of its
message in the schema, and the message. The index is a path of numbers, the outermost message first,
with their count before them, as zig-zag varints; a single zero stands for the first message.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final

import orjson
import pyarrow as pa

from tidegate_runtime.kafka.protobuf_messages import UNREADABLE, Files, json_reader, message_class

READ_TYPE: Final = "text string, key_text string, fault string, missing array<string>"
"""What `read` returns of a record, as Spark's DDL."""

_ARROW: Final = pa.struct(
    {
        "text": pa.string(),
        "key_text": pa.string(),
        "fault": pa.string(),
        "missing": pa.list_(pa.string()),
    }
)
_HEAD: Final = 5
_ROOT: Final = (0,)
_VARINT_MAX: Final = 5
"""How many bytes a number of 32 bits has at most."""

_READERS: Final = 256


def message_name(schema_id: int, index: Sequence[int]) -> str:
    """Return how a message of a schema is named: `7` for the first one, else as in `7/1/0`."""
    return str(schema_id) if tuple(index) == _ROOT else "/".join(map(str, (schema_id, *index)))


def message_place(name: str) -> tuple[int, tuple[int, ...]]:
    """Return the schema id and index of a message. Law: message_name(*message_place(n)) == n."""
    schema_id, *index = map(int, name.split("/"))
    return schema_id, tuple(index) or _ROOT


def head_of(content: bytes) -> tuple[str, int] | None:
    """Return the name of the message in a record, and where it begins; None without an id.

    Raises: ValueError, for an index that is none.
    """
    if len(content) < _HEAD or content[0]:
        return None
    schema_id = int.from_bytes(content[1:_HEAD], "big")
    count, at = _number(content, _HEAD)
    if count == 0:
        return str(schema_id), at
    if not 0 < count <= len(content) - at:
        raise ValueError("the index of its message has no such length")
    index = []
    for _ in range(count):
        number, at = _number(content, at)
        index.append(number)
    return message_name(schema_id, index), at


def _number(content: bytes, at: int) -> tuple[int, int]:
    """Return a zig-zag varint, and where the next one begins."""
    value = 0
    for place in range(_VARINT_MAX):
        if at + place >= len(content):
            break
        byte = content[at + place]
        value |= (byte & 0x7F) << 7 * place
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), at + place + 1
    raise ValueError("the index of its message ends too soon")


@dataclass(frozen=True)
class RecordReader:
    """What reads records with the messages that are known, by their names, as files and index.

    `faults` say of other messages why records of them can't be read.
    """

    known: Mapping[str, tuple[Files, tuple[int, ...]]] = field(default_factory=dict)
    faults: Mapping[str, str] = field(default_factory=dict)

    def read(self, values: pa.Array, keys: pa.Array) -> pa.Array:
        """Return structs of READ_TYPE for records. Shape: all as long as one another.

        A key is null where none is needed; one without the id of a schema is a text as it is.
        """
        pairs = zip(values.to_pylist(), keys.to_pylist(), strict=True)
        return pa.array([self._record(value, key) for value, key in pairs], _ARROW)

    def _record(self, value: bytes | None, key: bytes | None) -> dict[str, Any]:
        text, fault, missing = self._value(value)
        key_text, _, missing_too = self._value(key, is_key=True)
        both = [name for name in (missing, missing_too) if name is not None]
        return {"text": text, "key_text": key_text, "fault": fault, "missing": both}

    def _value(
        self, content: bytes | None, *, is_key: bool = False
    ) -> tuple[str | None, str | None, str | None]:
        """Return the text of a value, why it has none, and the message that must be known first."""
        if content is None:
            return None, None, None
        try:
            head = head_of(content)
        except ValueError as error:
            return None, f"the value can't be read: {error}", None
        if head is None:
            if is_key:
                return content.decode(errors="replace"), None, None
            return None, "the value does not begin with the id of a schema", None
        name, at = head
        if name in self.faults:
            return None, self.faults[name], None
        if name not in self.known:
            return None, f"the schema of the value, {name}, is not known", name
        try:
            return orjson.dumps(_reader(*self.known[name])(content[at:])).decode(), None, None
        except UNREADABLE:
            return None, f"the value can't be read by its schema, {name}", None


@lru_cache(_READERS)
def _reader(files: Files, index: tuple[int, ...]) -> Callable[[bytes], Any]:
    return json_reader(message_class(files, index), absent_as_null=False)
