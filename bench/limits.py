"""Limits of the machine, measured in the same run: the broker's round trip, the store's PUT, the
client's ceiling."""

import time
from collections.abc import Sequence
from http.client import HTTPConnection
from pathlib import Path

from confluent_kafka import Producer

from bench.figures import median
from tidegate_messages.topics import Topic
from tidegate_runtime.kafka.client_protocols import Record, TopicPartition
from tidegate_runtime.kafka.confluent_bus import KafkaBus
from tidegate_runtime.kafka.settings import KafkaSettings, for_librdkafka
from tidegate_runtime.kafka.topic_admin import create_topics
from tidegate_runtime.storage.local_store import LocalStore

RECORD = b"x" * 600
PUT_BYTES = b"x" * 1_500


def broker_round_trip_ms(settings: KafkaSettings, count: int, pause_ms: float = 0.0) -> float:
    """Return the median time from producing a record to reading it back, in ms.

    With a pause before each record, because idle threads take a while to wake, on both sides.
    """
    topic = f"{settings.topic_prefix}bench-echo"
    create_topics(settings, [Topic(topic, "", 1, "delete", 3_600_000)])
    bus, topic_partition = KafkaBus(settings, "bench"), TopicPartition(topic, 0)
    producer, reader = bus.producer(), bus.reader()
    following = reader.bounds(topic_partition)[1]
    took = []
    for _ in range(count):
        time.sleep(pause_ms / 1000)
        began = time.perf_counter()
        producer.publish(topic_partition, None, RECORD)
        while not (read := reader.read(topic_partition, following, 1.0)):
            pass
        took.append(1e3 * (time.perf_counter() - began))
        following = type(following)(read[-1].offset + 1)
    producer.close()
    reader.close()
    return median(took)


def put_ms(folder: Path, count: int) -> float:
    """Return the median time of a put-if-absent with fsync of file and folder, in ms."""
    store = LocalStore(str(folder))
    took = []
    for number in range(count):
        began = time.perf_counter()
        store.put_if_absent(f"_delta_log/{number:020d}.json", PUT_BYTES, 10.0)
        took.append(1e3 * (time.perf_counter() - began))
    return median(took)


def slow_put_ms(port: int, key: str, count: int) -> float:
    """Return the median time of a conditional PUT to the slow store on a bare connection, in ms."""
    connection = HTTPConnection("127.0.0.1", port)
    took = []
    for number in range(count):
        began = time.perf_counter()
        connection.request("PUT", f"/{key}/{number:020d}", PUT_BYTES, {"If-None-Match": "*"})
        connection.getresponse().read()
        took.append(1e3 * (time.perf_counter() - began))
    connection.close()
    return median(took)


def _headers(record: Record) -> list[tuple[str, str | bytes | None]]:
    return [*record.headers]


def produce_per_s(settings: KafkaSettings, records: Sequence[Record]) -> float:
    """Return how many prepared records a second the client sends, with their headers, tuned for
    throughput.
    """
    prepared = [(record.key, record.value, _headers(record)) for record in records]
    topic = f"{settings.topic_prefix}bench-ceiling"
    create_topics(settings, [Topic(topic, "", 1, "delete", 3_600_000)])
    producer = Producer(
        {
            **for_librdkafka(settings),
            "enable.idempotence": True,
            "linger.ms": 5,
            "batch.size": 1_000_000,
            "compression.type": "lz4",
            "queue.buffering.max.messages": len(records) + 1,
            "queue.buffering.max.kbytes": 1_000_000,
        }
    )
    began = time.perf_counter()
    for key, value, headers in prepared:
        producer.produce(topic, value, key, 0, headers=headers)
    left = producer.flush(60.0)
    assert left == 0, f"{left} records were not acknowledged"
    return len(records) / (time.perf_counter() - began)
