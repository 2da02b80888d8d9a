"""Notifications of a stream's snapshots and its heartbeats, each on a topic of its own.

Notifications have Debezium's form. They are sent in the Kafka transaction of what they report, so
each is there once. Heartbeats say up to which version an idle table's stream has come.
"""

import json
from collections.abc import Mapping
from typing import Final, Literal
from uuid import UUID

from tidegate_cdc_publisher.change_records import CONTENT_TYPE, Headers, RecordPlace, Records
from tidegate_messages.stream_position import Position
from tidegate_runtime.clock import Clock, new_id

Aggregate = Literal["Initial Snapshot", "Incremental Snapshot"]
Status = Literal["STARTED", "IN_PROGRESS", "PAUSED", "RESUMED", "ABORTED", "SKIPPED", "COMPLETED"]

BY_SIGNAL: Final[Mapping[str, Status]] = {
    "execute-snapshot": "STARTED",
    "pause-snapshot": "PAUSED",
    "resume-snapshot": "RESUMED",
    "stop-snapshot": "ABORTED",
}
"""What a signal of that type does with an incremental snapshot."""


def notification(
    table: UUID,
    place: RecordPlace,
    aggregate: Aggregate,
    status: Status,
    details: Mapping[str, str],
    clock: Clock,
) -> Records:
    """Return the record of one notification; `details` become `additional_data`."""
    body = {
        "id": str(new_id(clock)),
        "aggregate_type": aggregate,
        "type": status,
        "additional_data": details,
        "timestamp": clock.now_ms(),
    }
    key, records = str(table).encode(), Records()
    headers: Headers = [("table", key), ("content-type", CONTENT_TYPE)]
    records.append(key, _json(body), headers, place)
    return records


def heartbeat(name: str, position: Position, now_ms: int) -> tuple[bytes, bytes]:
    """Return key and value of a heartbeat: all changes up to `version` are published.

    `version` is null before the first version is published whole.
    """
    version = None
    if not position.begins:
        version = position.version if position.complete else position.version - 1
    body = {"ts_ms": now_ms, "table": name, "version": version}
    return str(position.table).encode(), _json(body)


def _json(body: Mapping[str, object]) -> bytes:
    return json.dumps(body, separators=(",", ":")).encode()
