"""Headers of records: where a copy of the outcome goes, and the trace that a proposal belongs to.

All are optional and unverified, and change nothing about the decision. A writer asks for a copy of
its outcome on a topic of its own. The W3C trace context links the spans of one proposal, and is
passed on and never acted upon.
"""

import re
from collections.abc import Iterable
from typing import Final, NamedTuple

from tidegate_messages.topics import Topics

REPLY_TO: Final = "reply_to"
"""The header that names the topic for the copy of the outcome."""

CORRELATION_ID: Final = "correlation_id"
"""The header that is copied, byte for byte, to the outcome."""

CORRELATION_BYTES_MAX: Final = 1024
_SHOWN_CHARS: Final = 128


class ReplyRequest(NamedTuple):
    """What a record's headers ask for: the topic, or None; the correlation id, or None."""

    topic: str | None = None
    correlation_id: bytes | None = None

    @property
    def headers(self) -> tuple[tuple[str, bytes], ...]:
        """The headers to add to the outcome."""
        if self.correlation_id is None or len(self.correlation_id) > CORRELATION_BYTES_MAX:
            return ()
        return ((CORRELATION_ID, self.correlation_id),)

    def wrong(self, topics: Topics) -> tuple[str, ...]:
        """Return what can't be done as asked, as warnings for the outcome."""
        warnings = []
        if self.topic is not None and not topics.is_for_replies(self.topic):
            warnings.append(
                f"{REPLY_TO}: {self.topic[:_SHOWN_CHARS]!r} is no topic for replies, so the "
                f"outcome is in {topics.outcomes!r} alone; name a topic that begins with "
                f"{topics.replies!r}"
            )
        if self.correlation_id is not None and not self.headers:
            warnings.append(
                f"{CORRELATION_ID}: it has {len(self.correlation_id)} bytes and is not passed on; "
                f"give at most {CORRELATION_BYTES_MAX}"
            )
        return tuple(warnings)


NO_REPLY: Final = ReplyRequest()


def reply_request(headers: Iterable[tuple[str, bytes]]) -> ReplyRequest:
    """Return what the headers ask for. Of a header that stands twice the first counts."""
    topic, correlation_id = None, None
    for name, value in headers:
        if name == REPLY_TO and topic is None:
            topic = value.decode("utf-8", "replace")
        elif name == CORRELATION_ID and correlation_id is None:
            correlation_id = value
    if topic is None and correlation_id is None:
        return NO_REPLY
    return ReplyRequest(topic, correlation_id)


TRACEPARENT: Final = "traceparent"
"""The header's name in W3C's standard. As an environment variable it is TRACEPARENT."""

TRACE_ID_BITS: Final = 128
SPAN_ID_BITS: Final = 64
LENGTH_MAX: Final = 512
"""Longer headers of a newer version are not passed on. In characters."""

_FORM: Final = re.compile(
    r"(?!ff)(?P<version>[0-9a-f]{2})-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}"
    r"(?P<more>-[!-~]*)?"
)


def is_traceparent(text: str) -> bool:
    """Return whether a text is a trace context that W3C allows to be passed on."""
    match = _FORM.fullmatch(text) if len(text) <= LENGTH_MAX else None
    return match is not None and not (match["version"] == "00" and match["more"])


def compose_traceparent(trace_id: int, span_id: int, flags: int = 0) -> str:
    """Return a context; without flags it is "not sampled". Neither id may be zero.

    Law: is_traceparent(compose(t, s)) for 0 < t < 2**128 and 0 < s < 2**64.
    """
    assert 0 < trace_id < 1 << TRACE_ID_BITS, "a trace id has 128 bits and is not zero"
    assert 0 < span_id < 1 << SPAN_ID_BITS, "a span id has 64 bits and is not zero"
    return f"00-{trace_id:032x}-{span_id:016x}-{flags & 0xFF:02x}"


def trace_id(headers: Iterable[tuple[str, bytes]]) -> str | None:
    """Return the trace id in some headers, as its 32 hex digits, or None.

    Law: trace_id([(TRACEPARENT, compose(t, s).encode())]) == f"{t:032x}".
    """
    traceparent = traceparent_of(headers)
    return None if traceparent is None else traceparent.split("-")[1]


def traceparent_of(headers: Iterable[tuple[str, bytes]]) -> str | None:
    """Return the trace context in some headers, or None.

    Law: traceparent_of([(TRACEPARENT, compose(t, s).encode())]) == compose(t, s).
    """
    return next((value.decode("ascii") for _, value in passed_on(headers)), None)


def passed_on(headers: Iterable[tuple[str, bytes]]) -> tuple[tuple[str, bytes], ...]:
    """Return the headers to copy from a record to those that it causes: its trace, if it has one.

    Law: where `headers` hold a valid trace, it comes back, once, byte for byte; nothing else does.
    """
    for name, value in headers:
        if name == TRACEPARENT and is_traceparent(value.decode("ascii", "replace")):
            return ((TRACEPARENT, value),)
    return ()
