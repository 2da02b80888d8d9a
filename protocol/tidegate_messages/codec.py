"""Encode messages as JSON values with headers, and decode them.

The header `format` names the message and its major version.

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
from tidegate_messages.published_records import (
    ChangeSignal,
    CommitRecord,
    FollowerRecord,
    LeaseRecord,
    MaintenanceRecord,
    TableRecord,
)
from tidegate_messages.schema_announcement import SchemaChange

M = TypeVar("M", bound=Message)
Headers = tuple[tuple[str, bytes], ...]

FORMAT: Final = "format"
"""The header that names a record's message and its major version."""

FORMAT_BYTES_MAX: Final = 64

PRODUCER: Final = "producer"
"""The header that names the writer, so that the committer can serve writers fairly."""

PRODUCER_BYTES_MAX: Final = 64

FORMATS: Final[Mapping[type[Message], str]] = {
    Proposal: "proposal/1",
    Outcome: "outcome/1",
    CommitRecord: "commit/1",
    TableRecord: "table/1",
    FollowerRecord: "follower/1",
    LeaseRecord: "lease/1",
    MaintenanceRecord: "maintenance/1",
    SchemaChange: "schema-change/1",
    ChangeSignal: "change-signal/1",
}


def encode(message: Message) -> bytes:
    """Return the record's value: compact JSON without nulls, unknown fields kept."""
    return message.__pydantic_serializer__.to_json(message, exclude_none=True)


def headers(message: Message, extra: Iterable[tuple[str, bytes]] = ()) -> Headers:
    """Return the headers: `format`, `table`, `proposal_id` if there is one, and `extra`."""
    own_headers = [(FORMAT, FORMATS[type(message)].encode())]
    for name in ("proposal_id", "table"):
        value = getattr(message, name, None)
        if value is not None:
            own_headers.append((name, str(value).encode()))
    return (*own_headers, *extra)


def other_format(headers: Headers, kind: type[Message]) -> str | None:
    """Return the record's `format` if it names another message or major version, else None.

    A record without the header is taken for the message that belongs on its topic.
    """
    for name, value in headers:
        if name == FORMAT and value and value != FORMATS[kind].encode():
            return value[:FORMAT_BYTES_MAX].decode("utf-8", "replace")
    return None


def producer_of(headers: Headers) -> str:
    """Return the writer that the headers name, or "".

    The name is unverified: it may order the queue of writers, and grants no rights.
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
    """Return the message that a JSON object holds.

    Raises: MalformedRecord, naming the first field that is wrong.
    """
    try:
        return kind.model_validate(body)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        field = ".".join(str(part) for part in first["loc"])
        message = first["msg"].removeprefix("Value error, ")
        raise MalformedRecord(
            f"{message} ({FORMATS[kind]})", error_class="malformed", field=field or "(record)"
        ) from error


def parse_json(value: bytes | None) -> dict[str, Any]:
    """Return the JSON object in a value.

    Raises: MalformedRecord, also for one that is nested too deeply.
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
