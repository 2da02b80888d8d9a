"""librdkafka's records, errors and logs, translated into ours.

Errors are classified by what the caller should do next. Log messages become warnings, at most one
of each kind a minute: each client logs every failed attempt to connect. The caller gets an error
anyway, so one line is enough.
"""

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, Final, TypeVar

from confluent_kafka import OFFSET_INVALID, KafkaError, KafkaException, Message
from confluent_kafka import TopicPartition as RdPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # public, not declared so
    AdminClient,
    OffsetSpec,
)

from tidegate_delta.errors import (
    Fenced,
    InvalidRequest,
    Misconfigured,
    OutcomeUnknown,
    TidegateError,
    Unavailable,
)
from tidegate_runtime.kafka.client_protocols import Headers, Offset, Record, TopicPartition
from tidegate_runtime.observability.logs import Repeats, log_event

_log = logging.getLogger(__name__)


class LibraryLog:
    """The logger for librdkafka's clients, shared by all their threads."""

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        self._repeats = Repeats(now_s)

    def log(self, level: int, form: str, *parts: object) -> None:
        """Log a message, unless one of its kind was just logged; the next counts those omitted."""
        held_back = self._repeats.held_back(str(parts[0]) if parts else form)
        if held_back is None:
            return
        fields = {"held_back": held_back} if held_back else {}
        message = form % parts if parts else form
        log_event(_log, "librdkafka", level=min(level, logging.WARNING), why=message, **fields)


LIBRARY: Final = LibraryLog()
"""The logger that all clients of this process share."""


NO_ANSWER: Final = "look whether the brokers answer, and at the setting kafka.bootstrap_servers"
"""The remedy if no broker answers."""

_FENCED: Final = frozenset(
    {
        KafkaError._ASSIGNMENT_LOST,
        KafkaError._FENCED,
        KafkaError.FENCED_INSTANCE_ID,
        KafkaError.ILLEGAL_GENERATION,
        KafkaError.INVALID_PRODUCER_EPOCH,
        KafkaError.PRODUCER_FENCED,
        KafkaError.UNKNOWN_MEMBER_ID,
    }
)
_NO_TOPIC: Final = frozenset(
    {
        KafkaError._UNKNOWN_PARTITION,
        KafkaError._UNKNOWN_TOPIC,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
    }
)
_TOO_LARGE: Final = frozenset(
    {
        KafkaError.INVALID_MSG_SIZE,
        KafkaError.MSG_SIZE_TOO_LARGE,
        KafkaError.RECORD_LIST_TOO_LARGE,
    }
)
LOGIN_REFUSED: Final = "LoginRefused"
"""The error class for a password, token or certificate that the brokers do not accept."""

_CLOCK: Final = frozenset({KafkaError.INVALID_RECORD, KafkaError.INVALID_TIMESTAMP})
"""Errors of brokers for a record whose time is too far from theirs; the first also means that a
compacted topic asks for a key.
"""

_LOGIN: Final = frozenset(
    {KafkaError._AUTHENTICATION, KafkaError._SSL, KafkaError.SASL_AUTHENTICATION_FAILED}
)
_SETTINGS: Final = frozenset(
    {
        KafkaError._INVALID_ARG,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.INVALID_SESSION_TIMEOUT,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        KafkaError.UNSUPPORTED_SASL_MECHANISM,
    }
)
_REFUSED: Final = {
    KafkaError.TOPIC_EXCEPTION: (
        "the brokers take no such name for a topic, or have one that differs from it in dots and "
        "underscores only: choose another name (of a change topic: cdc.tables.<name>.topic)"
    ),
    KafkaError.INVALID_TRANSACTION_TIMEOUT: (
        "the brokers' transaction.max.timeout.ms is shorter: lower cdc.transaction_timeout_ms"
    ),
    KafkaError.UNSUPPORTED_FOR_MESSAGE_FORMAT: (
        "the topic keeps records in a format without headers and transactions: raise its "
        "message.format.version"
    ),
    KafkaError.UNSUPPORTED_COMPRESSION_TYPE: (
        "the brokers do not know this compression: set compression.type in kafka.client"
    ),
    KafkaError.INVALID_CONFIG: (
        "the brokers refuse a setting of the topic: correct it (of a change topic: "
        "cdc.topic_properties)"
    ),
    KafkaError.INVALID_PARTITIONS: "the brokers refuse this number of partitions: correct it",
    KafkaError.INVALID_REPLICATION_FACTOR: (
        "the cluster has fewer brokers than its default.replication.factor: start them, or lower it"
    ),
    KafkaError.POLICY_VIOLATION: (
        "a policy of the cluster (create.topic.policy.class.name, alter.config.policy.class.name) "
        "refuses it: create the topic as the policy wants it"
    ),
}
"""What brokers refuse however often they are asked, and the remedy."""

_PARTLY_DOWN: Final = {
    code: "fewer replicas are in sync than the topic's min.insync.replicas: start their brokers"
    for code in (KafkaError.NOT_ENOUGH_REPLICAS, KafkaError.NOT_ENOUGH_REPLICAS_AFTER_APPEND)
} | {
    KafkaError.KAFKA_STORAGE_ERROR: "a broker can't write to its disk: look at its log directories"
}
"""What passes once somebody has looked after the brokers, although they answer."""

_NEVER_SENT: Final = frozenset({KafkaError._PURGE_QUEUE, KafkaError._QUEUE_FULL})
_PASSING: Final = frozenset(
    {
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._MAX_POLL_EXCEEDED,
        KafkaError._PARTITION_EOF,
        KafkaError._RESOLVE,
        KafkaError._TIMED_OUT,
        KafkaError._TRANSPORT,
        KafkaError._WAIT_COORD,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.NOT_COORDINATOR,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.OFFSET_NOT_AVAILABLE,
        KafkaError.REQUEST_TIMED_OUT,
    }
)


EARLIEST: Final[Any] = OffsetSpec.earliest()  # type: ignore[no-untyped-call]  # it has no types
LATEST: Final[Any] = OffsetSpec.latest()  # type: ignore[no-untyped-call]  # it has no types
"""The first and the end offset, as `AdminClient.list_offsets` takes them."""


def find_leaders(admin: AdminClient, topics: Iterable[str], timeout_s: float) -> None:
    """Have librdkafka look up the leaders of topics, before `list_offsets` of them.

    `list_offsets` would look up those that it does not know, and may end the process with a
    segmentation fault where their metadata come just then: two threads run one operation, and one
    of them frees it (`rd_kafka_topic_partition_list_query_leaders_async`, seen in 2.16). It forgets
    them after `metadata.max.age.ms`.
    Raises: KafkaException, for a missing topic too.
    """
    for topic in topics:
        error = admin.list_topics(topic, timeout=timeout_s).topics[topic].error
        if error is not None:
            raise KafkaException(error)


def offset_of(answer: Future[Any], timeout_s: float) -> Offset:
    """Return the offset that `AdminClient.list_offsets` found; -1 for a time behind all records.

    While a partition gets another leader, librdkafka may give no offset, and no error either.
    Raises: KafkaException, for that too; TimeoutError.
    """
    offset: int = answer.result(timeout_s).offset
    if offset == OFFSET_INVALID:
        raise KafkaException(KafkaError(KafkaError.OFFSET_NOT_AVAILABLE))
    return Offset(offset)


C = TypeVar("C")


def make_client(kind: Callable[[dict[str, Any]], C], config: Mapping[str, Any]) -> C:
    """Return a librdkafka client.

    Raises: Misconfigured, for settings that it refuses; as `oauth_cb`, for a token that it lacks.
    """
    try:
        return kind(dict(config))
    except KafkaException as error:
        if "oauth_cb" in config:
            # The library says only that it got no token.
            config["oauth_cb"]("")
        reason = _error_of(error).str()
        raise Misconfigured(
            f"Kafka's client library refuses its settings: {reason}; correct `kafka.client`, or "
            "the files and the mechanism in `kafka.security`"
        ) from error


def passes(error: KafkaError) -> bool:
    """Whether librdkafka recovers from it by itself while it is polled."""
    return error.code() in _PASSING or error.retriable()


def translated(error: KafkaError | KafkaException, doing: str) -> TidegateError:
    """Return our error for one of librdkafka's; `doing` completes "cannot …" in its message."""
    kafka_error = _error_of(error)
    code, message = (
        kafka_error.code(),
        f"cannot {doing}: {kafka_error.str()} ({kafka_error.name()})",
    )
    if code in _FENCED:
        return Fenced(f"{message}; another instance has taken over, this one ends")
    if code == KafkaError._UNKNOWN_PARTITION:
        return Misconfigured(
            f"{message}; the topic is missing (`tidegate topics apply` creates it), or has fewer "
            "partitions than it should: `tidegate topics plan` shows which, add the others"
        )
    if code in _NO_TOPIC:
        return Misconfigured(f"{message}; create the topics: run `tidegate topics apply`")
    if code in _TOO_LARGE:
        return InvalidRequest(
            f"{message}; send a smaller record, and many actions by a claim check. A topic whose "
            "`max.message.bytes` is below a mebibyte refuses what services send, too: raise it",
            error_class="RecordTooLarge",
        )
    if code in _CLOCK:
        return Misconfigured(
            f"{message}; the brokers take no records whose time is too far from their clocks "
            "(`message.timestamp.after.max.ms`): set this machine's clock. `tidegate doctor` "
            "compares the clocks. If they agree: a topic with cleanup.policy=compact takes no "
            "record without a key, as the changes of a table with `key: none` are: declare key "
            "columns, or take `compact` off the topic"
        )
    if code in _LOGIN:
        return Misconfigured(
            f"{message}; check the settings `kafka.security`, and the files that they name",
            error_class=LOGIN_REFUSED,
        )
    if code in _SETTINGS:
        return Misconfigured(
            f"{message}; check the settings `kafka.security`, and the brokers' ACLs"
        )
    if code in _REFUSED:
        return Misconfigured(f"{message}; {_REFUSED[code]}")
    return Unavailable(f"{message}; {_PARTLY_DOWN.get(code, NO_ANSWER)}")


def is_retriable(error: KafkaError) -> bool:
    """Whether the same request may succeed later without any intervention.

    A broker that has just started may not yet know the partitions of an existing topic.
    """
    plain = translated(error, "ask")
    return isinstance(plain, Unavailable) or error.code() == KafkaError._UNKNOWN_PARTITION


def undelivered(error: KafkaError, doing: str) -> TidegateError:
    """Return our error for a record whose delivery failed; it may be in the topic nevertheless."""
    plain = translated(error, doing)
    if type(plain) is Unavailable and error.code() not in _NEVER_SENT:
        return OutcomeUnknown(f"{plain}; it may have arrived: read the topic before sending again")
    return plain


def _error_of(error: KafkaError | KafkaException) -> KafkaError:
    if isinstance(error, KafkaError):
        return error
    kafka_error = error.args[0]
    assert isinstance(kafka_error, KafkaError), "librdkafka's exceptions carry its error"
    return kafka_error


def records(messages: Sequence[Message], doing: str) -> tuple[Record, ...]:
    """Return the records among some messages; errors from which librdkafka recovers are skipped.

    Raises: Fenced, Misconfigured, Unavailable, for the others.
    """
    converted = []
    for message in messages:
        error = message.error()
        if error is None:
            converted.append(_record(message))
        elif error.fatal() and not passes(error):
            raise Fenced(f"cannot {doing}: {error.str()}; this instance ends")
        elif not passes(error):
            raise translated(error, doing)
    return tuple(converted)


def _record(message: Message) -> Record:
    topic, partition, offset = message.topic(), message.partition(), message.offset()
    assert topic is not None, "a record has a topic"
    assert partition is not None, "a record has a partition"
    assert offset is not None, "a record has an offset"
    return Record(
        TopicPartition(topic, partition),
        Offset(offset),
        message.key(),
        message.value(),
        _headers(message),
        message.timestamp()[1],
    )


def _headers(message: Message) -> Headers:
    """Return the headers; none if a name is not UTF-8, which librdkafka's binding can't read.

    Any writer may send such a name, and no decision depends on headers alone.
    """
    try:
        pairs = message.headers() or ()
    except (SystemError, UnicodeDecodeError):
        return ()
    assert not isinstance(pairs, dict), "headers are read as pairs"
    return tuple((name, _octets(value)) for name, value in pairs)


def _octets(value: str | bytes | None) -> bytes:
    return value.encode() if isinstance(value, str) else value or b""


def to_librdkafka(
    topic_partition: TopicPartition, offset: int = OFFSET_INVALID, note: str = ""
) -> RdPartition:
    """Return librdkafka's object for a topic partition, an offset in it and a note."""
    return RdPartition(topic_partition.topic, topic_partition.partition, offset, metadata=note)


def from_librdkafka(partitions: list[RdPartition]) -> list[TopicPartition]:
    """Convert librdkafka's topic partitions to ours, sorted."""
    return sorted(
        TopicPartition(topic_partition.topic, topic_partition.partition)
        for topic_partition in partitions
    )
