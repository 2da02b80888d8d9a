"""The headers by which a writer asks for a copy of its outcome on a topic of its own.

They are optional, unverified, and change nothing about the decision.
"""

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
