"""A stream whose writer remembers what it is given instead of sending it to Kafka."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.unit.cdc_publisher.written_table import Rows, WrittenTable
from tidegate_cdc_publisher.debezium_envelope import ChangeRecord
from tidegate_cdc_publisher.machine import SnapshotMode, StreamState
from tidegate_cdc_publisher.settings import TableChanges
from tidegate_cdc_publisher.stream_position import Position
from tidegate_cdc_publisher.table_stream import StreamSource, TableStream
from tidegate_delta.errors import Unavailable
from tidegate_runtime.clock import SystemClock
from tidegate_runtime.service.health import Health
from tidegate_runtime.service.runner import Running
from tidegate_runtime.storage.local_store import LocalStore


@dataclass
class Topic:
    """What a reader of committed records sees, and the position that stands with it."""

    records: list[ChangeRecord] = field(default_factory=list)
    position: Position | None = None
    chunks: list[int] = field(default_factory=list)
    dies_at: int = -1

    def publish(self, topic: str, records: Sequence[ChangeRecord], position: Position) -> None:
        """Take a chunk whole; or die, before it or after it, as a process may."""
        assert topic == "cdc.t"
        if self.dies_at == len(self.chunks):
            self.dies_at = -1
            raise Unavailable("died")
        self.records += records
        self.position = position
        self.chunks.append(len(records))

    def close(self) -> None:
        """Nothing is open."""

    @property
    def told(self) -> list[dict[str, Any]]:
        """The changes, without tombstones."""
        return [json.loads(one.value) for one in self.records if one.value is not None]

    def ops(self, version: int) -> list[str]:
        """The kinds of a version's changes."""
        return [one["op"] for one in self.told if one["source"]["txId"] == version]

    def replayed(self) -> Rows:
        """The rows that the records leave, for a reader who keeps the last of each key."""
        kept: dict[bytes | None, dict[str, Any]] = {}
        for one in self.records:
            after = None if one.value is None else json.loads(one.value)["after"]
            if after is None:
                kept.pop(one.key, None)
            else:
                kept[one.key] = after
        return list(kept.values())


def stream(
    table: WrittenTable,
    topic: Topic,
    changes: TableChanges | None = None,
    *,
    chunk_rows: int = 1_000,
    mode: SnapshotMode = "initial",
) -> TableStream:
    source = StreamSource(table.id, "t", "tidegate", "cdc.t", changes or TableChanges(), chunk_rows)
    state = StreamState(table.id, mode, topic.position)
    clock = SystemClock()
    return TableStream(source, LocalStore(table.root), topic, state, Running(clock, Health(clock)))
