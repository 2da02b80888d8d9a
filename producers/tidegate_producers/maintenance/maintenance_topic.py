"""Reads and writes the topic `maintenance`: pauses by operators, reports by the maintainer."""

from uuid import UUID

from tidegate_messages.codec import encode, headers
from tidegate_messages.published_records import MaintenanceRecord
from tidegate_messages.topics import Topics
from tidegate_runtime.kafka.client_protocols import Bus, TopicPartition
from tidegate_runtime.table_registry import PATIENCE_S, newest_values, read_message

Records = dict[UUID, MaintenanceRecord]


def read_maintenance(bus: Bus, topics: Topics) -> tuple[Records, Records]:
    """Return the pauses and the reports of tables.

    Raises: Unavailable; Misconfigured, when the topic is missing.
    """
    pauses: Records = {}
    reports: Records = {}
    newest = newest_values(bus, TopicPartition(topics.maintenance, 0), PATIENCE_S)
    for entry in newest.values():
        record = read_message(MaintenanceRecord, entry)
        if record is not None:
            (pauses if record.about == "pause" else reports)[record.table] = record
    return pauses, reports


def publish_maintenance(bus: Bus, topics: Topics, *records: MaintenanceRecord) -> None:
    """Write records durably; each replaces the one before. Raises: Unavailable."""
    producer, place = bus.producer(), TopicPartition(topics.maintenance, 0)
    for record in records:
        key = f"{record.about}/{record.table}".encode()
        producer.publish(place, key, encode(record), headers(record))
    producer.close()


def resume(bus: Bus, topics: Topics, table: UUID) -> None:
    """End the pause of a table, and forget processes that died within its tasks.

    Raises: Unavailable; Misconfigured, when the topic is missing.
    """
    report = read_maintenance(bus, topics)[1].get(table)
    if report is not None and report.deaths:
        publish_maintenance(bus, topics, report.model_copy(update={"deaths": 0}))
    producer = bus.producer()
    producer.publish(TopicPartition(topics.maintenance, 0), f"pause/{table}".encode(), None)
    producer.close()
