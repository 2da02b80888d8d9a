"""Checks of clocks: this machine's beside the brokers' and the store's.

Deadlines of proposals, ages of files, leases and the signatures of object stores compare times of
several machines.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from tidegate_console.doctor.check import Check
from tidegate_console.overview import CLIENT_ID
from tidegate_delta.errors import Misconfigured, TidegateError, Unavailable
from tidegate_messages.codec import encode
from tidegate_messages.topics import Topics
from tidegate_runtime.client import proposal_builders
from tidegate_runtime.client.client import Client
from tidegate_runtime.clock import Clock, SystemClock
from tidegate_runtime.kafka.client_protocols import Bus, Offset, Reader, TopicPartition
from tidegate_runtime.kafka.confluent_bus import KafkaBus
from tidegate_runtime.kafka.settings import KafkaSettings

SKEW_NOTE_MS: Final = 2_000
SKEW_MAX_MS: Final = 60_000
"""A skew past the first is worth a note; past the second deadlines and leases are misjudged."""

ASK_S: Final = 30.0
_READ_S: Final = 2.0
_APPS: Final = "tidegate-doctor"


@dataclass(frozen=True)
class RoundTrip:
    """A question to a table's committer and back. Units: ms; `broker_ms` by the broker's clock."""

    sent_ms: int
    answered_ms: int
    broker_ms: int | None


def newest_record(kafka: KafkaSettings, clock: Clock | None = None) -> Iterator[Check]:
    """Yield whether the newest records carry times that lie ahead of this machine's clock."""
    bus, topics = KafkaBus(kafka, CLIENT_ID), kafka.topics
    reader, newest_ms = bus.reader(), 0
    try:
        for topic in (topics.proposals, topics.outcomes, topics.commits):
            for number in range(bus.partitions(topic)):
                topic_partition = TopicPartition(topic, number)
                first, end = reader.bounds(topic_partition)
                if first < end:
                    for record in reader.read(topic_partition, Offset(end - 1), _READ_S):
                        newest_ms = max(newest_ms, record.timestamp_ms)
    except Unavailable:
        raise
    except TidegateError as error:
        yield Check("clock", "skipped", f"no records may be read: {error}")
        return
    finally:
        reader.close()
    ahead_ms = newest_ms - (clock or SystemClock()).now_ms()
    if ahead_ms > SKEW_NOTE_MS:
        yield _skewed("this machine's clock is behind the brokers'", ahead_ms)


def round_trip(kafka: KafkaSettings, table: str) -> Iterator[Check]:
    """Yield whether a question about a table is answered, and how the clocks compare by it.

    The question is for the versions of an application: nothing is written into the table's log.
    """
    bus = KafkaBus(kafka, CLIENT_ID)
    try:
        with Client(bus, kafka.topics) as client:
            trip = ask(bus, kafka.topics, client, table)
    except Unavailable as error:
        do = "start a committer; `tidegate status` shows whether one runs, and what waits"
        yield Check("committer", "wrong", f"gives no answer about {table}: {error}", do)
        return
    except TidegateError as error:
        yield Check("committer", "wrong", f"can't be asked about {table}: {error}")
        return
    took_ms = trip.answered_ms - trip.sent_ms
    yield Check("committer", "ok", f"answered a question about {table} within {took_ms} ms")
    if trip.broker_ms is None:
        yield Check("clock", "skipped", "the proposals may not be read, so no time is compared")
        return
    off_ms, direction = skew(trip)
    if off_ms > SKEW_NOTE_MS:
        yield _skewed(f"this machine's clock is {direction} the brokers'", off_ms)
    else:
        yield Check("clock", "ok", f"within {max(off_ms, took_ms)} ms of the brokers'")


def ask(bus: Bus, topics: Topics, client: Client, table: str) -> RoundTrip:
    """Send a question about a table, wait for the answer, and find the broker's time of it.

    Raises: InvalidRequest, for a table that is not registered; OutcomeUnknown; Unavailable.
    """
    record, clock = client.require(table), client.clock
    topic_partition = TopicPartition(record.proposals_topic, record.topic_partition)
    reader = bus.reader()
    try:
        start = reader.bounds(topic_partition)[1]
        target = proposal_builders.Target(record.table, record.table_root)
        stamp = proposal_builders.Stamp(client.new_id(), clock.now_ms())
        question = proposal_builders.app_versions(target, stamp, [_APPS])
        sent_ms = clock.now_ms()
        client.propose(question, ASK_S)
        answered_ms = clock.now_ms()
        return RoundTrip(
            sent_ms, answered_ms, _time_of(reader, topic_partition, start, encode(question))
        )
    finally:
        reader.close()


def _time_of(
    reader: Reader, topic_partition: TopicPartition, start: Offset, value: bytes
) -> int | None:
    """Return the broker's time of a record; None without the right to read, as writers lack it."""
    try:
        records = [
            record
            for record in reader.read(topic_partition, start, _READ_S)
            if record.value == value
        ]
    except Misconfigured:
        return None
    return records[0].timestamp_ms if records else None


def skew(trip: RoundTrip) -> tuple[int, str]:
    """Return by how many ms at least the clocks differ, and whether ours is ahead or behind.

    Law: 0 if the broker's time lies between those of sending and of the answer
    """
    assert trip.broker_ms is not None, "it was found"
    if trip.broker_ms < trip.sent_ms:
        return trip.sent_ms - trip.broker_ms, "ahead of"
    return max(0, trip.broker_ms - trip.answered_ms), "behind"


def _skewed(comparison: str, by_ms: int) -> Check:
    return Check(
        "clock",
        "wrong" if by_ms > SKEW_MAX_MS else "note",
        f"{comparison} by {by_ms / 1000:.1f} s or more",
        "synchronise the clocks of this machine and of the brokers (NTP, chrony)",
    )
