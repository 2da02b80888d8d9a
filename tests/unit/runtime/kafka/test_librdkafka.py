import logging
from typing import Any, cast

import pytest
from confluent_kafka import KafkaError, KafkaException, Message

from tidegate_delta.errors import (
    Fenced,
    InvalidRequest,
    Misconfigured,
    OutcomeUnknown,
    TidegateError,
    Unavailable,
)
from tidegate_runtime.kafka.librdkafka import LibraryLog, passes, records, translated, undelivered
from tidegate_runtime.observability.logs import QUIET_S


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (KafkaError.ILLEGAL_GENERATION, Fenced),
        (KafkaError.UNKNOWN_MEMBER_ID, Fenced),
        (KafkaError.FENCED_INSTANCE_ID, Fenced),
        (KafkaError.PRODUCER_FENCED, Fenced),
        (KafkaError._FENCED, Fenced),
        (KafkaError.UNKNOWN_TOPIC_OR_PART, Misconfigured),
        (KafkaError._UNKNOWN_TOPIC, Misconfigured),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, Misconfigured),
        (KafkaError._AUTHENTICATION, Misconfigured),
        (KafkaError.MSG_SIZE_TOO_LARGE, InvalidRequest),
        (KafkaError._TRANSPORT, Unavailable),
        (KafkaError.REBALANCE_IN_PROGRESS, Unavailable),
        (KafkaError._WAIT_COORD, Unavailable),
    ],
)
def test_a_code_says_what_to_do_next(code: int, kind: type[TidegateError]) -> None:
    for error in (KafkaError(code), KafkaException(KafkaError(code))):
        ours = translated(error, "do it")
        assert type(ours) is kind
        assert "cannot do it" in str(ours)


def test_a_missing_topic_names_the_remedy() -> None:
    missing = translated(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART), "read")
    assert "tidegate topics apply" in str(missing)


@pytest.mark.parametrize("code", [KafkaError.INVALID_RECORD, KafkaError.INVALID_TIMESTAMP])
def test_a_time_that_brokers_refuse_names_the_clock(code: int) -> None:
    for refused in (
        translated(KafkaError(code), "send a record to 'leases'"),
        undelivered(KafkaError(code), "send a record to 'leases'"),
    ):
        assert type(refused) is Misconfigured
        assert "set this machine's clock" in str(refused)
        assert "brokers answer" not in str(refused)


def test_a_record_too_large_for_its_topic_names_what_an_operator_lowered() -> None:
    refused = translated(KafkaError(KafkaError.MSG_SIZE_TOO_LARGE), "send a record to 'outcomes'")
    assert "`max.message.bytes`" in str(refused)


@pytest.mark.parametrize(
    ("code", "kind", "remedy"),
    [
        (KafkaError.INVALID_RECORD, Misconfigured, "without a key"),
        (KafkaError.TOPIC_EXCEPTION, Misconfigured, "dots and underscores"),
        (KafkaError.INVALID_TRANSACTION_TIMEOUT, Misconfigured, "transaction.max.timeout.ms"),
        (KafkaError.UNSUPPORTED_FOR_MESSAGE_FORMAT, Misconfigured, "message.format.version"),
        (KafkaError.UNSUPPORTED_COMPRESSION_TYPE, Misconfigured, "compression.type"),
        (KafkaError.INVALID_CONFIG, Misconfigured, "topic_properties"),
        (KafkaError.INVALID_PARTITIONS, Misconfigured, "number of partitions"),
        (KafkaError.INVALID_REPLICATION_FACTOR, Misconfigured, "default.replication.factor"),
        (KafkaError.POLICY_VIOLATION, Misconfigured, "policy"),
        (KafkaError.NOT_ENOUGH_REPLICAS, Unavailable, "min.insync.replicas"),
        (KafkaError.NOT_ENOUGH_REPLICAS_AFTER_APPEND, Unavailable, "min.insync.replicas"),
        (KafkaError.KAFKA_STORAGE_ERROR, Unavailable, "disk"),
    ],
)
def test_brokers_that_answer_are_not_reported_as_silent(
    code: int, kind: type[TidegateError], remedy: str
) -> None:
    ours = translated(KafkaError(code), "do it")
    assert type(ours) is kind
    assert remedy in str(ours)
    assert "bootstrap_servers" not in str(ours)


def test_a_partition_that_is_missing_is_not_made_by_creating_topics() -> None:
    missing = translated(KafkaError(KafkaError._UNKNOWN_PARTITION), "send")
    assert type(missing) is Misconfigured
    assert "fewer partitions than it should: `tidegate topics plan` shows which" in str(missing)


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (KafkaError._MSG_TIMED_OUT, OutcomeUnknown),
        (KafkaError._PURGE_INFLIGHT, OutcomeUnknown),
        (KafkaError.NOT_ENOUGH_REPLICAS_AFTER_APPEND, OutcomeUnknown),
        (KafkaError._PURGE_QUEUE, Unavailable),
        (KafkaError.MSG_SIZE_TOO_LARGE, InvalidRequest),
        (KafkaError.UNKNOWN_TOPIC_OR_PART, Misconfigured),
    ],
)
def test_a_failed_delivery_may_have_arrived_unless_it_is_known_not_to(
    code: int, kind: type[TidegateError]
) -> None:
    assert type(undelivered(KafkaError(code), "send")) is kind


def test_what_the_library_mends_passes() -> None:
    assert passes(KafkaError(KafkaError._ALL_BROKERS_DOWN))
    assert passes(KafkaError(KafkaError._PARTITION_EOF))
    assert not passes(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART))
    assert not passes(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED))


REFUSED = ("FAIL", "client#1", "Connect to 127.0.0.1:9092 failed: Connection refused")


class Times:
    """A clock that a test sets."""

    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def messages(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records]


def test_one_of_a_kind_is_logged_and_the_next_counts_those_suppressed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    times = Times()
    library = LibraryLog(times)
    for _ in range(5):
        library.log(logging.ERROR, "%s [%s] %s", *REFUSED)
    library.log(logging.WARNING, "%s [%s] %s", "ERROR", "client#1", "1/1 brokers are down")
    assert len(messages(caplog)) == 2
    assert "Connection refused" in messages(caplog)[0]
    times.now_s += QUIET_S
    library.log(logging.ERROR, "%s [%s] %s", *REFUSED)
    assert messages(caplog)[2].endswith("held_back=4")
    library.log(logging.ERROR, "%s [%s] %s", *REFUSED)
    assert len(messages(caplog)) == 3


def test_nothing_of_the_librarys_is_more_than_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    LibraryLog(Times()).log(logging.CRITICAL, "%s [%s] %s", *REFUSED)
    assert [record.levelno for record in caplog.records] == [logging.WARNING]


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
