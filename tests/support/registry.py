"""What other committers and catalogs publish in the registry of tables."""

from typing import Any
from uuid import UUID

from tests.builders import ROOT, TABLE, Gate
from tidegate_messages.codec import encode
from tidegate_messages.published_records import TableRecord
from tidegate_runtime.kafka.client_protocols import TopicPartition


def table_record(
    table: UUID = TABLE, root: str = ROOT, name: str = "t", topic: str = "p", **fields: Any
) -> TableRecord:
    """Return the registry's record of a table whose proposals are in the topic's partition 0."""
    there: dict[str, Any] = {"table": table, "table_root": root, "name": name}
    return TableRecord(**{**there, "proposals_topic": topic, "topic_partition": 0, **fields})


def publish(gate: Gate, record: TableRecord) -> None:
    """Publish a table's record in the registry."""
    gate.bus.append(TopicPartition(gate.topics.table_state, 0), None, encode(record))
