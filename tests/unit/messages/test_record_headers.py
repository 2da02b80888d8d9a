import pytest

from tidegate_messages.record_headers import (
    CORRELATION_BYTES_MAX,
    CORRELATION_ID,
    LENGTH_MAX,
    NO_REPLY,
    REPLY_TO,
    TRACEPARENT,
    ReplyRequest,
    compose_traceparent,
    is_traceparent,
    passed_on,
    reply_request,
    trace_id,
)
from tidegate_messages.topics import Topics

TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
IDS = TRACE[3:]


@pytest.mark.parametrize("text", [TRACE, f"01-{IDS}", f"cc-{IDS}-what-the-future-will-bring"])
def test_a_trace_context_is_known_in_this_version_and_newer_ones(text: str) -> None:
    assert is_traceparent(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "00",
        TRACE.upper(),
        TRACE + "\n",
        TRACE[:-1],
        f"{TRACE}-more",
        f"ff-{IDS}",
        f"01-{IDS}-\n",
        f"01-{IDS}-{'x' * LENGTH_MAX}",
        TRACE.replace("4bf92f3577b34da6a3ce929d0e0e4736", "0" * 32),
        TRACE.replace("00f067aa0ba902b7", "0" * 16),
    ],
)
def test_what_w3c_does_not_allow_is_no_trace_context(text: str) -> None:
    assert not is_traceparent(text)


@pytest.mark.parametrize("ids", [(1, 1), (2**128 - 1, 2**64 - 1)])
def test_a_new_trace_is_one_that_w3c_allows(ids: tuple[int, int]) -> None:
    assert is_traceparent(compose_traceparent(*ids))


@pytest.mark.parametrize("ids", [(0, 1), (1, 0), (2**128, 1), (1, 2**64)])
def test_an_id_that_is_none_makes_no_trace(ids: tuple[int, int]) -> None:
    with pytest.raises(AssertionError):
        compose_traceparent(*ids)


def test_of_a_records_headers_the_trace_alone_is_passed_on() -> None:
    trace = (TRACEPARENT, TRACE.encode())
    assert passed_on([("format", b"proposal/1"), trace, (TRACEPARENT, b"00-else")]) == (trace,)
    assert passed_on([("format", b"proposal/1")]) == ()
    assert passed_on([(TRACEPARENT, b"\xff\xfe"), (TRACEPARENT, b"00-\n")]) == ()


@pytest.mark.parametrize("ids", [(1, 1), (2**128 - 1, 2**64 - 1), (0xABC, 7)])
def test_the_id_of_a_trace_is_what_logs_are_searched_for(ids: tuple[int, int]) -> None:
    assert trace_id([(TRACEPARENT, compose_traceparent(*ids).encode())]) == f"{ids[0]:032x}"


def test_headers_without_a_trace_have_no_id() -> None:
    assert trace_id([("format", b"outcome/1"), (TRACEPARENT, b"00-else")]) is None


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
