import pytest

from tidegate_messages.record_headers import (
    CORRELATION_BYTES_MAX,
    CORRELATION_ID,
    NO_REPLY,
    REPLY_TO,
    ReplyRequest,
    reply_request,
)
from tidegate_messages.topics import Topics

TOPICS = Topics("x.", 5)


def test_a_record_without_the_headers_requests_nothing() -> None:
    assert reply_request([("format", b"proposal/1")]) is NO_REPLY
    assert NO_REPLY.headers == ()
    assert NO_REPLY.wrong(TOPICS) == ()


def test_of_a_header_that_stands_twice_the_first_counts() -> None:
    headers = [(REPLY_TO, b"x.replies.a"), (CORRELATION_ID, b"\xff1"), (REPLY_TO, b"b")]
    asked = reply_request(headers)
    assert asked == ReplyRequest("x.replies.a", b"\xff1")
    assert asked.headers == ((CORRELATION_ID, b"\xff1"),)
    assert asked.wrong(TOPICS) == ()


@pytest.mark.parametrize(
    "topic",
    [
        b"",
        b"x.outcomes",
        b"x.replies.",
        b"y.replies.a",
        b"x.replies.\xff",
        b"x.replies." + b"a" * 250,
    ],
)
def test_an_invalid_topic_for_replies_is_reported(topic: bytes) -> None:
    [warning] = reply_request([(REPLY_TO, topic)]).wrong(TOPICS)
    assert warning.startswith("reply_to: ")
    assert "'x.replies.'" in warning
    assert len(warning) < 1024


def test_a_correlation_id_that_is_too_long_is_reported_and_not_passed_on() -> None:
    asked = reply_request([(CORRELATION_ID, b"1" * (CORRELATION_BYTES_MAX + 1))])
    assert asked.headers == ()
    assert asked.wrong(TOPICS) == (
        "correlation_id: it has 1025 bytes and is not passed on; give at most 1024",
    )
