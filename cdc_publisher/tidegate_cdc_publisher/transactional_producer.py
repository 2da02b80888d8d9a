"""Writes a table's changes and its position to Kafka in one transaction: both or neither.

Each table has one producer. Its transactional id contains the table id, so a new owner of the
table fences the old one, and the old owner's open transaction is aborted before the position is
read.
"""

import json
import logging
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, Literal
from uuid import UUID

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient

from tidegate_cdc_publisher.change_records import (
    EVERY_PARTITION,
    ChangeRecord,
    Headers,
    RecordPlace,
    VersionBound,
)
from tidegate_delta.errors import Unavailable
from tidegate_messages import codec
from tidegate_messages.stream_position import FORMAT, Position, Positions, positions_of
from tidegate_runtime.failpoints import reach
from tidegate_runtime.kafka.librdkafka import (
    LATEST,
    LIBRARY,
    NO_ANSWER,
    make_client,
    offset_of,
    translated,
)
from tidegate_runtime.kafka.settings import KafkaSettings, for_librdkafka

RECORD_BYTES_MAX: Final = 4 * 1024 * 1024
"""The size limit of records on change topics that the publisher creates."""

FAILPOINTS: Final = (
    "publisher.before_begin",
    "publisher.in_transaction",
    "publisher.before_commit",
    "publisher.after_commit",
)
"""Points of `publish` at which a test may kill the process."""

_QUEUE_RECORDS_MAX: Final = 200_000
_WAIT_S: Final = 30.0
_BY_KEY: Final = -1
_LEVEL: Final = {
    "end": IsolationLevel.READ_UNCOMMITTED,
    "committed": IsolationLevel.READ_COMMITTED,
}


class ChangeWriter:
    """Writes the changes of one table, one chunk per Kafka transaction.

    After any error it is unusable: close it, make another, and read the position again.
    """

    def __init__(
        self,
        settings: KafkaSettings,
        table: UUID,
        timeout_ms: int,
        transactions_of: str | None = None,
    ) -> None:
        """`transactions_of` is the table's name on the topic of transactions; without it nothing is
        published there.
        """
        self._settings = settings
        self._table = table
        self._timeout_ms = timeout_ms
        self._transactions_of = transactions_of
        self._counts: Counter[int] = Counter()
        self._producer: Producer | None = None

    def go_on(self, position: Position | None) -> None:
        """Count on the records of a version that is published in part."""
        self._counts = Counter(position.counts or {} if position is not None else {})

    def take_over(self) -> None:
        """Fence the table's previous owner and abort its open transaction.

        Raises: Unavailable; Misconfigured.
        """
        prefix = self._settings.topic_prefix
        with _translated(f"take over the changes of table {self._table}"):
            self._producer = make_client(
                Producer,
                {
                    "linger.ms": 5,
                    "batch.size": 1_000_000,
                    "compression.type": "lz4",
                    # Java's partitioner keeps joins with topics of Java clients co-partitioned.
                    "partitioner": "murmur2_random",
                    "message.max.bytes": RECORD_BYTES_MAX,
                    "queue.buffering.max.messages": _QUEUE_RECORDS_MAX,
                    # The commit says whether all records arrived: no reports for each are needed.
                    "delivery.report.only.error": self._transactions_of is None,
                    **_in_time(_client(self._settings), self._timeout_ms),
                    "transactional.id": f"{prefix}cdc.{self._table}",
                    "transaction.timeout.ms": self._timeout_ms,
                },
            )
            self._producer.init_transactions(_WAIT_S)

    def publish(
        self,
        topic: str,
        records: Sequence[ChangeRecord],
        position: Position,
        bounds: Sequence[VersionBound] = (),
    ) -> None:
        """Publish changes and the position after them in one transaction.

        `bounds` are those of the versions that go to the topic of transactions.
        Raises: Unavailable, when it is not known whether they are visible; Fenced; Misconfigured;
        InvalidRequest (`RecordTooLarge`).
        """
        producer = self._producer
        assert producer is not None, "taken over"
        reach("publisher.before_begin", topic)
        with _translated(f"publish to {topic}"):
            producer.begin_transaction()
            if self._transactions_of is None:
                for record in records:
                    _produce(producer, topic, record)
            else:
                position = self._counted(topic, records, position, bounds)
            reach("publisher.in_transaction")
            key = str(self._table).encode()
            position_record = ChangeRecord(
                key, codec.encode(position), [("format", FORMAT.encode())]
            )
            _produce(producer, self._settings.topics.cdc_positions, position_record)
            producer.flush(_WAIT_S)
            reach("publisher.before_commit")
            producer.commit_transaction(_WAIT_S)
        reach("publisher.after_commit")

    def _counted(
        self,
        topic: str,
        records: Sequence[ChangeRecord],
        position: Position,
        bounds: Sequence[VersionBound],
    ) -> Position:
        """Queue records; tell where versions begin and end, and return the position with counts.

        The brokers' reports say to which partitions the records went.
        """
        producer = self._producer
        assert producer is not None, "taken over"
        counts, ends, waiting = self._counts, list[tuple[VersionBound, Counter[int]]](), [*bounds]
        for number, record in enumerate(records):
            while waiting and waiting[0].records <= number:
                counts = self._pass(waiting.pop(0), counts, ends)
            is_counted = record[3] is None and record[1] is not None
            _produce(producer, topic, record, _counter(counts) if is_counted else None)
        for bound in waiting:
            counts = self._pass(bound, counts, ends)
        if ends:
            # Reports come with the acknowledgements.
            producer.flush(_WAIT_S)
        for bound, end_counts in ends:
            self._queue_transaction_record(bound, end_counts)
        if not position.complete:
            producer.flush(_WAIT_S)
        self._counts = Counter() if position.complete else counts
        left = None if position.complete else dict(self._counts)
        return position.model_copy(update={"counts": left})

    def _pass(
        self,
        bound: VersionBound,
        counts: Counter[int],
        ends: list[tuple[VersionBound, Counter[int]]],
    ) -> Counter[int]:
        """Return the counts to go on with behind a bound."""
        if not bound.is_end:
            self._queue_transaction_record(bound, None)
            return Counter()
        ends.append((bound, counts))
        return Counter()

    def _queue_transaction_record(self, bound: VersionBound, counts: Counter[int] | None) -> None:
        """Queue the record of a version's begin or end, in Debezium's words."""
        assert self._producer is not None, "taken over"
        name = f"{self._table}:{bound.version}"
        value: dict[str, Any] = {
            "status": "BEGIN" if counts is None else "END",
            "id": name,
            "ts_ms": bound.timestamp_ms,
            "event_count": None if counts is None else counts.total(),
            "data_collections": None
            if counts is None
            else [
                {
                    "data_collection": self._transactions_of,
                    "event_count": counts.total(),
                    "partitions": {
                        str(partition): counts[partition] for partition in sorted(counts)
                    },
                }
            ],
        }
        key = json.dumps({"id": name}).encode()
        headers: Headers = [("table", str(self._table).encode())]
        headers += [("delta_version", str(bound.version).encode())]
        place = RecordPlace(self._settings.topics.cdc_transactions, 0)
        record = ChangeRecord(key, json.dumps(value).encode(), headers, place)
        _produce(self._producer, place.topic, record)

    def close(self) -> None:
        """Drop the producer; the next owner aborts a Kafka transaction that is left open."""
        if self._producer is not None:
            self._producer.purge(in_queue=True, in_flight=True)
            self._producer = None


POSITIONS_S: Final = 15.0
"""How long reading the positions once may take."""


class PositionReader:
    """Reads the positions of all tables, each time from where the last reading ended."""

    def __init__(self, settings: KafkaSettings) -> None:
        self._settings = settings
        self._next: dict[int, int] = {}
        self._newest: dict[bytes | None, bytes | None] = {}

    def read(self, timeout_s: float, until: Literal["end", "committed"]) -> Positions:
        """Return the last position of every table.

        `end` reads to the high watermark: a position of ours may follow the open transaction of
        another table, so it waits for that transaction. `committed` reads to the last stable offset
        only, so its positions may be out of date.
        Raises: Unavailable, when the offset is not reached in time; Misconfigured.
        """
        topic = self._settings.topics.cdc_positions
        shared = _client(self._settings)
        with _translated(f"read the positions on {topic}"):
            consumer = make_client(
                Consumer,
                {
                    **shared,
                    "group.id": f"{self._settings.topic_prefix}cdc-positions-reader",
                    "enable.auto.commit": False,
                    "enable.partition.eof": True,
                    "isolation.level": "read_committed",
                    "auto.offset.reset": "earliest",
                    "fetch.wait.max.ms": 50,
                },
            )
            try:
                ends = _ends(make_client(AdminClient, shared), topic, _LEVEL[until])
                if any(ends.get(partition, 0) < begin for partition, begin in self._next.items()):
                    # The topic was recreated.
                    self._next, self._newest = {}, {}
                starts = {
                    partition: self._next.get(partition, OFFSET_BEGINNING) for partition in ends
                }
                consumer.assign([TopicPartition(topic, p, start) for p, start in starts.items()])
                self._read_to(consumer, ends, time.monotonic() + timeout_s)
            finally:
                consumer.close()
        return positions_of(self._newest)

    def _read_to(self, consumer: Consumer, ends: Mapping[int, int], until_s: float) -> None:
        awaited = {
            partition for partition, end in ends.items() if self._next.get(partition, 0) < end
        }
        while awaited:
            message = consumer.poll(0.5)
            if time.monotonic() > until_s:
                raise Unavailable(
                    "the topic of positions was not read to its end (partitions "
                    f"{sorted(awaited)}): a Kafka transaction of another publisher is open, or the "
                    "brokers do not answer"
                )
            if message is None:
                continue
            error, partition, offset = message.error(), message.partition(), message.offset()
            assert partition is not None, "a record or an end is somewhere"
            assert offset is not None, "a record or an end is somewhere"
            if error is None:
                self._newest[message.key()] = message.value()
                self._next[partition] = offset + 1
            elif error.code() != KafkaError._PARTITION_EOF:
                raise KafkaException(error)
            else:
                self._next[partition] = offset
                if offset >= ends[partition]:
                    awaited.discard(partition)


def read_positions(settings: KafkaSettings, timeout_s: float = POSITIONS_S) -> Positions:
    """Return the last committed position of every table, once. Raises: as `PositionReader.read`."""
    return PositionReader(settings).read(timeout_s, "committed")


def _client(settings: KafkaSettings) -> dict[str, Any]:
    return {"logger": LIBRARY, "error_cb": _note, **for_librdkafka(settings)}


def _in_time(client: dict[str, Any], timeout_ms: int) -> dict[str, Any]:
    """Limit the request timeout to the transaction's; librdkafka refuses a longer one."""
    key = "socket.timeout.ms"
    return {**client, key: min(int(client[key]), timeout_ms)}


def _note(error: KafkaError) -> None:
    """Log what librdkafka reports of the brokers, so that it does not print it to stderr.

    It recovers or raises by itself. Each table has a client, and each client reports.
    """
    LIBRARY.log(logging.WARNING, "%s: %s", error.name(), error.str())


def _ends(admin: AdminClient, topic: str, level: IsolationLevel) -> dict[int, int]:
    topic_metadata = admin.list_topics(topic, timeout=_WAIT_S).topics[topic]
    if topic_metadata.error is not None:
        raise KafkaException(topic_metadata.error)
    offset_specs = {TopicPartition(topic, p): LATEST for p in topic_metadata.partitions}
    answers = admin.list_offsets(offset_specs, isolation_level=level, request_timeout=_WAIT_S)
    ends = {
        topic_partition.partition: offset_of(answer, _WAIT_S)
        for topic_partition, answer in answers.items()
    }
    return {partition: end for partition, end in ends.items() if end > 0}


_Reported = Callable[[KafkaError | None, Message], None]


def _counter(counts: Counter[int]) -> _Reported:
    """Return what counts the records that were delivered, by topic partition."""

    def reported(error: KafkaError | None, message: Message) -> None:
        partition = message.partition()
        if error is None and partition is not None:
            counts[partition] += 1

    return reported


def _produce(
    producer: Producer, topic: str, record: ChangeRecord, reported: _Reported | None = None
) -> None:
    """Queue a record; a keyless record goes to partition 0, the only one of such a stream."""
    key, value, headers, place = record
    if place is not None:
        for partition in _partitions(producer, place):
            _queue(producer, place.topic, record, partition)
        return
    partition = 0 if key is None else _BY_KEY
    try:
        producer.produce(topic, value, key, partition, headers=headers, on_delivery=reported)
    except BufferError:
        _queue(producer, topic, record, partition, reported)


def _queue(
    producer: Producer,
    topic: str,
    record: ChangeRecord,
    partition: int,
    reported: _Reported | None = None,
) -> None:
    """Queue a record, after the others were acknowledged if the queue is full."""
    key, value, headers, _ = record
    try:
        producer.produce(topic, value, key, partition, headers=headers, on_delivery=reported)
    except BufferError:
        # Acknowledgements free the queue; one that is still full after this time is stuck.
        producer.flush(_WAIT_S)
        producer.produce(topic, value, key, partition, headers=headers, on_delivery=reported)


def _partitions(producer: Producer, place: RecordPlace) -> Sequence[int]:
    if place.partition != EVERY_PARTITION:
        return (place.partition,)
    topic_metadata = producer.list_topics(place.topic, timeout=_WAIT_S).topics[place.topic]
    if topic_metadata.error is not None:
        raise KafkaException(topic_metadata.error)
    return sorted(topic_metadata.partitions)


@contextmanager
def _translated(doing: str) -> Iterator[None]:
    """Turn confluent-kafka's exceptions into ours, which say what to do next."""
    try:
        yield
    except BufferError as error:
        raise Unavailable(f"cannot {doing}: the brokers take no records; look at them") from error
    except TimeoutError as error:
        raise Unavailable(f"cannot {doing}: no answer in time; {NO_ANSWER}") from error
    except KafkaException as error:
        raise translated(error, doing) from error
