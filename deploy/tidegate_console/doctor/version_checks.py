"""Checks of versions: what is installed here, the formats of records on the topics, and versions of
tables that came past the gate.
"""

import platform
from collections import defaultdict
from collections.abc import Iterator
from importlib.metadata import version
from typing import Final

from tidegate_console.doctor.check import Check
from tidegate_console.overview import CLIENT_ID
from tidegate_delta.errors import TidegateError, Unavailable
from tidegate_messages.codec import FORMATS, other_format
from tidegate_messages.message import Message
from tidegate_messages.outcome import Outcome
from tidegate_messages.proposal import Proposal
from tidegate_messages.published_records import CommitRecord, TableRecord
from tidegate_producers.history.outcome_log import versions_past_the_gate
from tidegate_runtime.kafka.client_protocols import Offset, TopicPartition
from tidegate_runtime.kafka.confluent_bus import KafkaBus
from tidegate_runtime.kafka.settings import KafkaSettings
from tidegate_runtime.release import KAFKA_VERSION, RELEASE

_READ_S: Final = 2.0
_NAMED: Final = 5


def installed() -> Check:
    """Return the versions of what runs here."""
    versions = f"tidegate {RELEASE}, python {platform.python_version()}, "
    versions += ", ".join(f"{name} {version(name)}" for name in ("confluent-kafka", "pyarrow"))
    return Check("versions", "ok", f"{versions}, embedded Kafka {KAFKA_VERSION}")


def formats(kafka: KafkaSettings) -> Iterator[Check]:
    """Yield whether the newest record of each topic has a format that this release reads."""
    topics = kafka.topics
    kinds: dict[str, type[Message]] = {
        topics.proposals: Proposal,
        topics.outcomes: Outcome,
        topics.commits: CommitRecord,
        topics.table_state: TableRecord,
    }
    bus = KafkaBus(kafka, CLIENT_ID)
    for topic, kind in kinds.items():
        try:
            foreign_format = _foreign_format(bus, topic, kind)
        except Unavailable:
            raise
        except TidegateError as error:
            yield Check("versions", "skipped", f"{topic} may not be read: {error}")
            continue
        if foreign_format is not None:
            yield Check(
                "versions",
                "wrong",
                f"the newest record of {topic} has the format {foreign_format!r}, this release "
                f"reads {FORMATS[kind]!r}",
                "upgrade what runs here, or find the program that writes it",
            )


def past_the_gate(kafka: KafkaSettings) -> Iterator[Check]:
    """Yield the tables with recent versions that another program wrote and nobody proposed."""
    versions: dict[str, list[int]] = defaultdict(list)
    try:
        commits = versions_past_the_gate(KafkaBus(kafka, CLIENT_ID), kafka.topics)
    except Unavailable:
        raise
    except TidegateError as error:
        yield Check("gate", "skipped", f"commits and outcomes can't be compared: {error}")
        return
    for commit in commits:
        versions[commit.name or commit.table_root].append(commit.version)
    for table, numbers in versions.items():
        newest = ", ".join(map(str, numbers[-_NAMED:]))
        came = f"{len(numbers)} recent version{'s' * (len(numbers) > 1)} of {table} came"
        yield Check(
            "gate",
            "note",
            f"{came} past the gate: {newest}",
            "`tidegate table history` shows the engine; give delta-spark its log store "
            "(docs/spark-jobs.md#settings)",
        )
    if not versions:
        yield Check("gate", "ok", "no recent version was written past it")


def _foreign_format(bus: KafkaBus, topic: str, kind: type[Message]) -> str | None:
    reader = bus.reader()
    try:
        for number in range(bus.partitions(topic)):
            topic_partition = TopicPartition(topic, number)
            first, end = reader.bounds(topic_partition)
            for record in (
                reader.read(topic_partition, Offset(end - 1), _READ_S) if first < end else ()
            ):
                if (found_format := other_format(record.headers, kind)) is not None:
                    return found_format
    finally:
        reader.close()
    return None
