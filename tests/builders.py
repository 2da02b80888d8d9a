"""Builders for tests: log rows, proposals, tables in memory, and a whole committer.

`Gate` is a committer with in-memory dependencies: send a proposal, let the committer settle, read
the outcome.
"""

import hashlib
import itertools
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from tests.fakes.memory_bus import MemoryBus, MemoryConsumer
from tests.fakes.memory_store import MemoryStore
from tidegate_committer.dependencies import Dependencies
from tidegate_committer.loop.service import CommitterLoop
from tidegate_committer.loop.table_committer import TableCommitter
from tidegate_committer.settings import CommitterSection
from tidegate_committer.store_executor import InlineExecutor, StoreExecutor
from tidegate_delta.deletion_vectors.descriptors import inline
from tidegate_delta.deletion_vectors.roaring_bitmap import of_rows
from tidegate_delta.log.commit import Commit
from tidegate_delta.log.file_names import Version, commit_name, in_log
from tidegate_messages.codec import decode, encode
from tidegate_messages.outcome import Outcome
from tidegate_messages.proposal import (
    OPERATOR_REQUESTS,
    AppTxn,
    Operation,
    Proposal,
    ReadSet,
    RowIntent,
)
from tidegate_messages.published_records import CommitRecord, TableRecord
from tidegate_messages.topics import Topics
from tidegate_runtime.clock import SystemClock
from tidegate_runtime.kafka.client_protocols import Headers, Record, TopicPartition
from tidegate_runtime.storage.log_store import LogStore

TABLE = UUID("00000000-0000-7000-8000-00000000000a")
ROOT = "memory://tables/t"
TABLE_ID = "11111111-1111-4111-8111-111111111111"
NOW_MS = 1_700_000_000_000

Row = dict[str, Any]
_ids = itertools.count(1)


def an_id() -> UUID:
    """Return an id that no other call returns."""
    return UUID(int=0x7000_8000_0000_0000_0000 + next(_ids))


def add(path: str, **changed: Any) -> Row:
    """Return an add of ten rows; `p=1/a` gives the file its partition value."""
    values = dict(part.split("=", 1) for part in path.split("/")[:-1] if "=" in part)
    body = {
        "path": path,
        "partitionValues": values,
        "size": 100,
        "modificationTime": NOW_MS,
        "dataChange": True,
        "stats": json.dumps({"numRecords": 10}),
    }
    return {"add": {**body, **changed}}


def remove(path: str, **changed: Any) -> Row:
    """Return the remove that matches what `add` adds."""
    values = dict(part.split("=", 1) for part in path.split("/")[:-1] if "=" in part)
    body = {
        "path": path,
        "dataChange": True,
        "extendedFileMetadata": True,
        "partitionValues": values,
        "size": 100,
    }
    return {"remove": {**body, **changed}}


def schema(**columns: str) -> str:
    """Return a schemaString with nullable columns."""
    fields = [
        {"name": name, "type": kind, "nullable": True, "metadata": {}}
        for name, kind in columns.items()
    ]
    return json.dumps({"type": "struct", "fields": fields})


def metadata(partition_columns: Sequence[str] = (), **properties: str) -> Row:
    """Return the metaData of a table with columns `x`, `s` and the partition columns (integers).

    Properties are given without the `delta.` prefix.
    """
    columns = {"x": "long", "s": "string", **dict.fromkeys(partition_columns, "integer")}
    return {
        "metaData": {
            "id": TABLE_ID,
            "format": {"provider": "parquet", "options": {}},
            "schemaString": schema(**columns),
            "partitionColumns": list(partition_columns),
            "configuration": {f"delta.{name}": value for name, value in properties.items()},
            "createdTime": NOW_MS,
        }
    }


def protocol(reader: int = 1, writer: int = 2, **features: Sequence[str]) -> Row:
    """Return a protocol action; pass features as `readerFeatures=…`, `writerFeatures=…`."""
    body: Row = {"minReaderVersion": reader, "minWriterVersion": writer}
    return {"protocol": {**body, **{name: list(value) for name, value in features.items()}}}


def info(operation: str = "WRITE", **fields: Any) -> Row:
    """Return a commitInfo as another engine writes it."""
    body = {"timestamp": NOW_MS, "operation": operation, "operationParameters": {}}
    return {"commitInfo": {**body, **fields}}


def creation(partition_columns: Sequence[str] = (), **properties: str) -> list[Row]:
    """Return the rows of version 0."""
    return [info("CREATE TABLE"), protocol(), metadata(partition_columns, **properties)]


def to_bytes(rows: Sequence[Mapping[str, Any]]) -> bytes:
    """Return the bytes of a commit file."""
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


def digest_of(content: bytes) -> str:
    """Return the SHA-256 of some bytes."""
    return hashlib.sha256(content).hexdigest()


def commit(version: int, *rows: Mapping[str, Any]) -> Commit:
    """Return a commit of some rows."""
    return Commit.decode(Version(version), to_bytes(rows))


def table_in_memory(*commits: Sequence[Mapping[str, Any]], root: str = ROOT) -> MemoryStore:
    """Return a store that holds a table's log: one list of rows for each version."""
    store = MemoryStore(root)
    for version, rows in enumerate(commits):
        store.files[in_log(commit_name(version))] = to_bytes(rows)
    return store


def proposal(*rows: Row, read_version: int = 0, **fields: Any) -> Proposal:
    """Return a proposal of some rows with an empty read set, unless `reads` is given."""
    result: dict[str, Any] = {
        "proposal_id": an_id(),
        "table": TABLE,
        "table_root": ROOT,
        "table_id": None if read_version < 0 else TABLE_ID,
        "read_version": read_version,
        "operation": Operation(name="WRITE", parameters={"mode": "Append"}),
        "actions": rows,
        "reads": ReadSet(),
    }
    return Proposal.model_validate({**result, **fields})


def late(*rows: Row, read_version: int = 0) -> Proposal:
    """Return a proposal whose deadline has passed, so that its refusal is written into the log."""
    return proposal(*rows, read_version=read_version, deadline_ms=1)


def create(partition_columns: Sequence[str] = (), **fields: Any) -> Proposal:
    """Return the proposal that creates the table."""
    rows = (protocol(), metadata(partition_columns))
    return proposal(*rows, read_version=-1, operation=Operation(name="CREATE TABLE"), **fields)


def delete(*paths: str, read_version: int = 0, **fields: Any) -> Proposal:
    """Return a proposal that removes files and whose read set is exactly these files."""
    reads = ReadSet(files=paths)
    result = {"reads": reads, "operation": Operation(name="DELETE"), **fields}
    return proposal(*map(remove, paths), read_version=read_version, **result)


def rows_of(path: str, which: Iterable[int], **changed: Any) -> RowIntent:
    """Return the intent to delete rows of a file from `add`, which has no deletion vector yet."""
    vector = inline(of_rows(which)).model_dump(by_alias=True, exclude_none=True)
    return RowIntent.model_validate({"path": path, "rows": vector, "num_records": 10, **changed})


def row_delete(*intents: RowIntent, read_version: int = 0, **fields: Any) -> Proposal:
    """Return a proposal that deletes rows of files it read, and tolerates other lost rows there."""
    reads = ReadSet(files=tuple(intent.path for intent in intents), delete_insensitive=True)
    result = {
        "reads": reads,
        "operation": Operation(name="DELETE"),
        "dv_intents": intents,
        **fields,
    }
    return proposal(read_version=read_version, **result)


def compact(
    sources: Mapping[str, int],
    target: str,
    read_version: int = 0,
    vectors: Mapping[str, Any] | None = None,
    **fields: Any,
) -> Proposal:
    """Return a compaction that moves the given number of rows of each source into one file.

    The proposal states where the rows went. `vectors` are the deletion vectors that the sources had
    when they were read.
    """
    offsets = itertools.accumulate(sources.values(), initial=0)
    places = [
        {"path": path, "offset": offset, "rows": rows}
        for (path, rows), offset in zip(sources.items(), offsets, strict=False)
    ]
    gone = {path: {"deletionVector": one} for path, one in (vectors or {}).items() if one}
    rows = [
        *(remove(path, dataChange=False, **gone.get(path, {})) for path in sources),
        add(target, dataChange=False, stats=json.dumps({"numRecords": sum(sources.values())})),
    ]
    result = {
        "reads": ReadSet(files=tuple(sources)),
        "operation": Operation(name="OPTIMIZE"),
        "row_mapping": ({"path": target, "sources": places},),
    }
    return proposal(*rows, read_version=read_version, **{**result, **fields})


def batch_of(app_id: str, version: int, *rows: Row, read_version: int = 0) -> Proposal:
    """Return a micro-batch: an append with a version of a streaming application (txn)."""
    own = AppTxn(app_id=app_id, version=version)
    return proposal(*rows, read_version=read_version, app_txn=own)


def value_of(one: Proposal) -> bytes:
    """Return a proposal as the value of a Kafka record."""
    return encode(one)


@dataclass
class StillClock:
    """A clock that advances only when a test says so."""

    boot: float = 0.0
    epoch_ms: int = NOW_MS

    def now_ms(self) -> int:
        """Return wall time."""
        return self.epoch_ms + int(self.boot * 1000)

    def boot_s(self) -> float:
        """Return boot time."""
        return self.boot

    def sleep(self, seconds: float) -> None:
        """Advance the clock."""
        self.boot += seconds


class StandingClock(SystemClock):
    """The time of day, and durations of nothing, however slow the machine is."""

    def boot_s(self) -> float:
        """Return the same each time."""
        return 1_000.0


def _pass(store: LogStore) -> None:
    """Accept every store as qualified."""


def _is_request(one: Proposal | bytes) -> bool:
    return not isinstance(one, bytes) and one.kind in OPERATOR_REQUESTS


@dataclass
class Gate:
    """A committer with in-memory dependencies. `stores` maps each table root to its store."""

    settings: CommitterSection = field(
        # Audits are off by default, because some tests count reads.
        default_factory=lambda: CommitterSection(roots=("memory://tables",), audit_s=1e9)
    )
    stores: dict[str, LogStore] = field(default_factory=dict)
    clock: StillClock = field(default_factory=StillClock)
    topics: Topics = field(default_factory=Topics)
    puts: StoreExecutor = field(default_factory=InlineExecutor)
    background: StoreExecutor = field(default_factory=InlineExecutor)
    loads: StoreExecutor = field(default_factory=InlineExecutor)
    reads: StoreExecutor = field(default_factory=InlineExecutor)
    vet: Callable[[LogStore], None] = _pass
    processes: Iterator[int] = field(default_factory=itertools.count)
    tokens: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    def __post_init__(self) -> None:
        self.bus = MemoryBus(self.topics.declared(), self.clock.now_ms)
        self.loop = self.start()

    def start(self) -> CommitterLoop:
        """Return a new committer without any state."""
        dependencies = Dependencies(
            bus=self.bus,
            topics=self.topics,
            open_store=lambda root: self.stores.setdefault(root, MemoryStore(root)),
            clock=self.clock,
            new_id=lambda: UUID(int=next(self.tokens)),
            settings=self.settings,
            puts=self.puts,
            background=self.background,
            loads=self.loads,
            reads=self.reads,
            vet=self.vet,
            process=f"process {next(self.processes)}",
        )
        return CommitterLoop(dependencies)

    def restart(self) -> None:
        """Kill the committer without telling the broker, and start another."""
        consumer = self.loop.consumer
        assert isinstance(consumer, MemoryConsumer), "the test's bus is in memory"
        self.bus.expire(consumer)
        self.loop = self.start()

    def table_committer(self, table: UUID = TABLE) -> TableCommitter:
        """Return a table's committer."""
        [worker] = self.loop.workers.values()
        return worker.tables.committers[table]

    def send(self, *proposals: Proposal | bytes, headers: Headers = ()) -> None:
        """Produce proposals and operators' requests, or values that are neither."""
        for proposal in proposals:
            topic = self.topics.admin if _is_request(proposal) else self.topics.proposals
            at = TopicPartition(topic, 0)
            value = proposal if isinstance(proposal, bytes) else encode(proposal)
            self.bus.append(at, None, value, headers)

    def settle(self, steps: int = 6) -> None:
        """Let the committer work until it is done, and let enough time pass for its linger."""
        for _ in range(steps):
            self.loop.step()
            self.clock.boot += 0.3

    def ask(self, *proposals: Proposal | bytes) -> list[Outcome]:
        """Send proposals, settle, and return the new outcomes.

        What follows an operator's request is sent after its outcome: their topics have no common
        order.
        """
        before = len(self.outcomes())
        for _, run in itertools.groupby(proposals, key=_is_request):
            self.send(*run)
            self.settle()
        return self.outcomes()[before:]

    def outcomes(self) -> list[Outcome]:
        """Return all outcomes so far."""
        return [decode(Outcome, record.value) for record in self.records(self.topics.outcomes)]

    def commits(self) -> list[CommitRecord]:
        """Return all commit records that were published."""
        return [decode(CommitRecord, record.value) for record in self.records(self.topics.commits)]

    def tables(self) -> dict[UUID, TableRecord]:
        """Return the registry."""
        records = self.records(self.topics.table_state)
        result = [decode(TableRecord, record.value) for record in records]
        return {item.table: item for item in result}

    def letters(self) -> list[Record]:
        """Return the dead letters."""
        return self.records(self.topics.dead_letters)

    def records(self, topic: str) -> list[Record]:
        """Return the records of a topic's first partition."""
        return self.bus.logs[TopicPartition(topic, 0)]

    def entries(self, root: str = ROOT) -> list[list[Row]]:
        """Return the rows of each version of a table."""
        result: list[list[Row]] = []
        while (content := self.stores[root].read(in_log(commit_name(len(result))))) is not None:
            result.append([json.loads(line) for line in content.splitlines()])
        return result
