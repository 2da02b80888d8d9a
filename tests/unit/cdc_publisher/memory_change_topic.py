"""A change stream whose writer keeps records in memory instead of sending them to Kafka."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.unit.cdc_publisher.written_table import Rows, WrittenTable
from tidegate_cdc_publisher.change_records import ChangeRecord, VersionBound
from tidegate_cdc_publisher.large_rows import LargeRowRule
from tidegate_cdc_publisher.machine import OnGap, SnapshotMode, StreamState
from tidegate_cdc_publisher.record_form import PLAIN, RecordForm
from tidegate_cdc_publisher.schema_markers import OnSchemaChange
from tidegate_cdc_publisher.schema_registry import Registry
from tidegate_cdc_publisher.settings import TableChanges
from tidegate_cdc_publisher.stream_layouts import StreamSource
from tidegate_cdc_publisher.table_stream import TableStream
from tidegate_delta.errors import Unavailable
from tidegate_messages.schema_announcement import MARKER
from tidegate_messages.stream_position import Position
from tidegate_runtime.clock import SystemClock
from tidegate_runtime.service.health import Health
from tidegate_runtime.service.runner import Running
from tidegate_runtime.storage.local_store import LocalStore

NOTIFICATIONS = "cdc-notifications"


@dataclass
class Topic:
    """The committed records of a change topic, and the position committed with them."""

    records: list[ChangeRecord] = field(default_factory=list)
    position: Position | None = None
    chunks: list[int] = field(default_factory=list)
    schema_changes: list[ChangeRecord] = field(default_factory=list)
    notifications: list[ChangeRecord] = field(default_factory=list)
    dies_at: int = -1
    bounds: list[VersionBound] = field(default_factory=list)

    def publish(
        self,
        topic: str,
        records: Sequence[ChangeRecord],
        position: Position,
        bounds: Sequence[VersionBound] = (),
    ) -> None:
        """Take a whole chunk; or fail before or after it, as a dying process does."""
        assert topic == "cdc.t"
        if self.dies_at == len(self.chunks):
            self.dies_at = -1
            raise Unavailable("died")
        here = [record for record in records if record.place is None or record.place.topic == topic]
        self.records += here
        self.schema_changes += [
            record
            for record in records
            if record.place and record.place.topic not in (topic, NOTIFICATIONS)
        ]
        self.notifications += [
            record for record in records if record.place and record.place.topic == NOTIFICATIONS
        ]
        self.position = position
        self.bounds += bounds
        self.chunks.append(len(here))

    def go_on(self, position: Position | None) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""

    @property
    def told(self) -> list[dict[str, Any]]:
        """Return the changes, without tombstones."""
        return [json.loads(record.value) for record in self.records if record.value is not None]

    @property
    def keys(self) -> list[bytes | None]:
        """Return the keys of the changes and tombstones, without those of markers."""
        return [record.key for record in self.records if MARKER not in dict(record.headers)]

    def ops(self, version: int) -> list[str]:
        """Return the operations of a version's changes."""
        return [item["op"] for item in self.told if item["source"]["txId"] == version]

    def replayed(self) -> Rows:
        """Return the rows that remain when a reader keeps the last record of each key."""
        kept: dict[bytes | None, dict[str, Any]] = {}
        for record in self.records:
            after = None if record.value is None else json.loads(record.value)["after"]
            if after is None:
                kept.pop(record.key, None)
            else:
                kept[record.key] = after
        return list(kept.values())


def stream(
    table: WrittenTable,
    topic: Topic,
    changes: TableChanges | None = None,
    *,
    chunk_rows: int = 1_000,
    mode: SnapshotMode = "initial",
    form: RecordForm = PLAIN,
    on_schema_change: OnSchemaChange = "marker",
    registry: Registry | None = None,
    start: int | None = None,
    anew: bool = False,
    on_gap: OnGap = "fail",
    has_transactions: bool = False,
    large_rows: LargeRowRule | None = None,
) -> TableStream:
    set_to = changes or TableChanges()
    source = StreamSource(
        table.id,
        "t",
        "tidegate",
        "cdc.t",
        set_to,
        chunk_rows,
        form,
        on_schema_change,
        on_gap,
        registry=registry,
        has_transactions=has_transactions,
        large_rows=large_rows,
        notifications_topic=NOTIFICATIONS,
    )
    position = topic.position
    signal = None if position is None else position.signal
    state = StreamState(table.id, mode, position, start, (), signal, anew)
    clock = SystemClock()
    return TableStream(source, LocalStore(table.root), topic, state, Running(clock, Health(clock)))
