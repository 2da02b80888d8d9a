"""Messages <-> bytes and headers. JSON; the header `format` says which message and major version.

Law: decode(kind, *encode(m)) == m, unknown newer fields included.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final, TypeVar

import orjson
from pydantic import ValidationError

from tidegate.delta.errors import MalformedRecord
from tidegate.pipeline.message import Message
from tidegate.pipeline.outcome import Outcome
from tidegate.pipeline.proposal import Proposal
from tidegate.pipeline.published import CommitRecord, FollowerRecord, TableRecord
from tidegate.pipeline.ratification import Ratification

M = TypeVar("M", bound=Message)
Headers = tuple[tuple[str, bytes], ...]

FORMAT: Final = "format"
"""The header that says which message a record is, and of which major version."""

FORMAT_BYTES_MAX: Final = 64

PRODUCER: Final = "producer"
"""The header in which a writer names itself: it need not wait behind another one's flood."""

PRODUCER_BYTES_MAX: Final = 64

FORMATS: Final[Mapping[type[Message], str]] = {
    Proposal: "proposal/1",
    Outcome: "outcome/1",
    CommitRecord: "commit/1",
    TableRecord: "table/1",
    FollowerRecord: "follower/1",
    Ratification: "ratification/1",
}
DEPTH_MAX: Final = 64
"""Levels of nesting past which a record is not read."""

_NO_BRACKETS: Final = bytes(byte for byte in range(256) if byte not in b"{[")


def encode(message: Message) -> bytes:
    """Return the record's value: compact JSON, absent rather than null, unknown fields kept."""
    return message.__pydantic_serializer__.to_json(message, exclude_none=True)


def headers(message: Message, extra: Iterable[tuple[str, bytes]] = ()) -> Headers:
    """Return the headers: `format`, `table`, `proposal_id` where there is one, and more."""
    told = [(FORMAT, FORMATS[type(message)].encode())]
    for name in ("proposal_id", "table"):
        value = getattr(message, name, None)
        if value is not None:
            told.append((name, str(value).encode()))
    return (*told, *extra)


def other_format(headers: Headers, kind: type[Message]) -> str | None:
    """Return what a record says to be, where that is no message of this kind and major version.

    A record that says nothing is taken for what its topic is for.
    """
    for name, value in headers:
        if name == FORMAT and value and value != FORMATS[kind].encode():
            return value[:FORMAT_BYTES_MAX].decode("utf-8", "replace")
    return None


def producer_of(headers: Headers) -> str:
    """Return who says to have sent a record, or "".

    A claim: it may order a line of writers, and gives no rights.
    """
    for name, value in headers:
        if name == PRODUCER:
            return value[:PRODUCER_BYTES_MAX].decode("utf-8", "replace")
    return ""


def decode(kind: type[M], value: bytes | None) -> M:
    """Return the message that a record's value holds.

    Raises: MalformedRecord, naming the first field that is wrong.
    """
    return validated(kind, parse_json(value))


def validated(kind: type[M], body: dict[str, Any]) -> M:
    """Return the message that a JSON object spells. Raises: as `decode`."""
    try:
        return kind.model_validate(body)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        told = first["msg"].removeprefix("Value error, ")
        raise MalformedRecord(
            f"{told} ({FORMATS[kind]})", error_class="malformed", field=where or "(record)"
        ) from error


def parse_json(value: bytes | None) -> dict[str, Any]:
    """Return the JSON object in a value, refusing what is nested too deeply.

    Raises: MalformedRecord.
    """
    if value is None:
        raise MalformedRecord("the record has no value (a tombstone)", error_class="malformed")
    try:
        body = orjson.loads(value)
    except orjson.JSONDecodeError as error:
        raise MalformedRecord(f"the value is no JSON: {error}", error_class="malformed") from error
    if not isinstance(body, dict):
        raise MalformedRecord("the value is no JSON object", error_class="malformed")
    # Counting brackets is quick, and where there are so few nothing can be nested too deeply.
    if len(value.translate(None, _NO_BRACKETS)) > DEPTH_MAX and _deeper_than(body, DEPTH_MAX):
        raise MalformedRecord(f"nested deeper than {DEPTH_MAX} levels", error_class="malformed")
    return body


def _deeper_than(body: Any, depth_max: int) -> bool:
    level = [body]
    for _ in range(depth_max):
        level = [
            child
            for node in level
            for child in (node.values() if type(node) is dict else node)
            if type(child) is dict or type(child) is list
        ]
        if not level:
            return False
    return True
