"""A Delta table written file by file and commit by commit, for tests of the followers."""

import json
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import UUID

import pyarrow as pa
import pyarrow.parquet as pq

from tidegate_delta.deletion_vectors import descriptors, roaring_bitmap
from tidegate_messages import codec
from tidegate_messages.published_records import CommitRecord, TableRecord
from tidegate_messages.topics import Topics
from tidegate_runtime.kafka.client_protocols import Producer, TopicPartition

SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string()), ("price", pa.float64())])
WIRE = {pa.int64(): "long", pa.string(): "string", pa.float64(): "double"}
Rows = list[dict[str, Any]]


def rows(*ids: int, name: str = "n") -> Rows:
    """Return rows with these ids."""
    return [{"id": i, "name": f"{name}{i}", "price": i / 4} for i in ids]


def change_at_random(table: "WrittenTable", dice: random.Random) -> None:
    """Write the next version at random: an append, delete or update, sometimes of many rows."""
    ids = {row["id"] for row in table.content}
    chosen = set(dice.sample(sorted(ids), min(len(ids), dice.choice([1, 5, 60]))))
    match dice.randrange(3):
        case 0:
            first = max(ids, default=0) + 1
            table.append(rows(*range(first, first + dice.choice([1, 7, 90]))))
        case 1:
            table.rewrite(lambda old: [row for row in old if row["id"] not in chosen])
        case _:
            table.rewrite(
                lambda old: [
                    {**row, "price": row["price"] + 1} if row["id"] in chosen else row
                    for row in old
                ]
            )


@dataclass
class WrittenTable:
    """A table in a folder. Each writing method writes the next version."""

    folder: Path
    id: UUID = field(default=UUID(int=0xF11E))
    schema: pa.Schema = SCHEMA
    configuration: Mapping[str, str] = field(
        default_factory=lambda: {"tidegate.cdc.keyColumns": "id"}
    )
    version: int = -1
    files: dict[str, Rows] = field(default_factory=dict)
    _written: int = 0
    _stored: dict[str, Rows] = field(default_factory=dict)
    _vectors: dict[str, dict[str, Any]] = field(default_factory=dict)

    @property
    def root(self) -> str:
        """The table's root."""
        return self.folder.as_uri()

    @property
    def content(self) -> Rows:
        """The table's current rows."""
        return [row for file in self.files.values() for row in file]

    def create(self) -> "WrittenTable":
        """Write protocol and metadata."""
        (self.folder / "_delta_log").mkdir(parents=True)
        self.commit("CREATE TABLE", {"protocol": _PROTOCOL}, self._metadata())
        return self

    def append(self, *files: Rows) -> None:
        """Add files."""
        self.commit("WRITE", *(self._add(file) for file in files))

    def rewrite(self, change: Callable[[Rows], Rows], *, data_change: bool = True) -> None:
        """Replace every file by one with changed rows, as copy-on-write does."""
        actions: list[dict[str, Any]] = []
        for path, content in list(self.files.items()):
            after = change(content)
            if after != content or not data_change:
                actions += [self._remove(path, data_change=data_change)]
                actions += [self._add(after, data_change=data_change)] if after else []
        self.commit("MERGE" if data_change else "OPTIMIZE", *actions)

    def compact(self) -> None:
        """Put all rows into one file."""
        content = self.content
        removes = [self._remove(path, data_change=False) for path in list(self.files)]
        self.commit("OPTIMIZE", *removes, self._add(content, data_change=False))

    def drop(self, path: str) -> None:
        """Remove a file and add nothing."""
        self.commit("DELETE", self._remove(path))

    def allow_vectors(self) -> None:
        """Write a protocol that lists deletion vectors."""
        lists = {"readerFeatures": ["deletionVectors"], "writerFeatures": ["deletionVectors"]}
        protocol = {"minReaderVersion": 3, "minWriterVersion": 7, **lists}
        self.commit("ADD FEATURE", {"protocol": protocol})

    def mask(self, *ids: int) -> None:
        """Delete the rows with these ids from the table by deletion vectors alone."""
        actions: list[dict[str, Any]] = []
        for path, stored in self._stored.items():
            gone = [position for position, row in enumerate(stored) if row["id"] in ids]
            kept = [row for row in stored if row["id"] not in ids]
            if path in self.files and kept != self.files[path]:
                actions += [self._remove(path), self._add_again(path, gone)]
                self.files[path] = kept
        self.commit("DELETE", *actions)

    def change_with_file(self, changes: Rows, *, name: str = "cdc") -> None:
        """Write a version that has a change file and leaves the data files as they are."""
        path = f"_change_data/{name}.parquet"
        shape = self.schema.append(pa.field("_change_type", pa.string()))
        size = self._parquet(path, changes, shape)
        cdc = {"path": path, "partitionValues": {}, "size": size, "dataChange": False}
        self.commit("UPDATE", {"cdc": cdc})

    def set_metadata(self, schema: pa.Schema | None = None, **configuration: str) -> None:
        """Write new metadata."""
        self.schema = schema or self.schema
        self.configuration = {**self.configuration, **configuration}
        self.commit("SET TBLPROPERTIES", self._metadata())

    def replace(self, schema: pa.Schema, *files: Rows) -> None:
        """Overwrite everything, schema included."""
        removes = [self._remove(path) for path in list(self.files)]
        self.schema = schema
        self.commit("WRITE", self._metadata(), *removes, *(self._add(file) for file in files))

    def commit(self, operation: str, *actions: Mapping[str, Any]) -> None:
        """Write a version with any actions."""
        self.version += 1
        info = {"commitInfo": {"timestamp": 1_000 + self.version, "operation": operation}}
        lines = "".join(json.dumps(action) + "\n" for action in (info, *actions))
        (self.folder / "_delta_log" / f"{self.version:020d}.json").write_text(lines)

    def record(self, **fields: Any) -> TableRecord:
        """Return the table's registration."""
        return TableRecord(
            table=self.id,
            table_root=self.root,
            name=self.folder.name,
            proposals_topic="tidegate.proposals",
            topic_partition=0,
            **fields,
        )

    def notification(self) -> CommitRecord:
        """Return the notification for the newest version."""
        return CommitRecord(
            table=self.id,
            table_root=self.root,
            name=self.folder.name,
            version=self.version,
            sha256="0" * 64,
            size=1,
            author="external",
        )

    def register(self, producer: Producer, topics: Topics) -> None:
        """Publish the table's registration."""
        _send(producer, topics.table_state, self.id, codec.encode(self.record()))

    def notify(self, producer: Producer, topics: Topics) -> None:
        """Publish the notification for the newest version."""
        _send(producer, topics.commits, self.id, codec.encode(self.notification()))

    def _metadata(self) -> dict[str, Any]:
        fields = [
            {"name": item.name, "type": WIRE[item.type], "nullable": item.nullable, "metadata": {}}
            for item in self.schema
        ]
        return {
            "metaData": {
                "id": "00000000-0000-0000-0000-00000000f11e",
                "format": {"provider": "parquet", "options": {}},
                "schemaString": json.dumps({"type": "struct", "fields": fields}),
                "partitionColumns": [],
                "configuration": dict(self.configuration),
                "createdTime": 0,
            }
        }

    def _add(self, content: Rows, *, data_change: bool = True) -> dict[str, Any]:
        self._written += 1
        path = f"part-{self._written:05d}.parquet"
        size = self._parquet(path, content, self.schema)
        self.files[path] = self._stored[path] = content
        stats = json.dumps({"numRecords": len(content)})
        return {"add": {**_file(path, size, data_change), "modificationTime": 0, "stats": stats}}

    def _add_again(self, path: str, gone: Sequence[int]) -> dict[str, Any]:
        size = (self.folder / path).stat().st_size
        body: dict[str, Any] = {**_file(path, size, True), "modificationTime": 0}
        stats = {"numRecords": len(self._stored[path]), "tightBounds": False}
        if gone:
            vector = descriptors.inline(roaring_bitmap.of_rows(gone))
            body["deletionVector"] = vector.model_dump(by_alias=True, exclude_none=True)
            self._vectors[path] = body["deletionVector"]
        return {"add": {**body, "stats": json.dumps(stats)}}

    def _remove(self, path: str, *, data_change: bool = True) -> dict[str, Any]:
        del self.files[path]
        size = (self.folder / path).stat().st_size
        gone: dict[str, Any] = {
            "deletionTimestamp": 2_000_000_000_000,
            "extendedFileMetadata": True,
        }
        if path in self._vectors:
            gone["deletionVector"] = self._vectors.pop(path)
        return {"remove": {**_file(path, size, data_change), **gone}}

    def _parquet(self, path: str, content: Sequence[Mapping[str, Any]], shape: pa.Schema) -> int:
        where = self.folder / path
        where.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.Table.from_pylist(list(content), schema=shape), where)
        return where.stat().st_size


_PROTOCOL = {"minReaderVersion": 1, "minWriterVersion": 2}


def _file(path: str, size: int, data_change: bool) -> dict[str, Any]:
    return {"path": path, "partitionValues": {}, "size": size, "dataChange": data_change}


def _send(producer: Producer, topic: str, table: UUID, value: bytes) -> None:
    producer.publish(TopicPartition(topic, 0), str(table).encode(), value)
    producer.flush(10.0)
