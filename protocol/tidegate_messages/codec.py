"""Messages <-> bytes and headers. JSON; the header `format` says which message and major version.

Law: decode(kind, *encode(m)) == m, unknown newer fields included.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final, TypeVar

import orjson
from pydantic import ValidationError

from tidegate_delta.errors import MalformedRecord
from tidegate_delta.value_limits import DEPTH_MAX, is_deeper, may_be_deep
from tidegate_messages.message import Message
from tidegate_messages.outcome import Outcome
from tidegate_messages.proposal import Proposal
from tidegate_messages.published_records import CommitRecord, FollowerRecord, TableRecord
from tidegate_messages.ratification import Ratification

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
    if may_be_deep(value) and is_deeper(body, DEPTH_MAX):
        raise MalformedRecord(f"nested deeper than {DEPTH_MAX} levels", error_class="malformed")
    return body
