import pytest
from confluent_kafka import KafkaError, KafkaException

from tidegate_delta.errors import (
    Fenced,
    InvalidRequest,
    Misconfigured,
    OutcomeUnknown,
    TidegateError,
    Unavailable,
)
from tidegate_runtime.kafka.librdkafka import passes, translated, undelivered


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
