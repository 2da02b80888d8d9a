"""Write tables for foreign readers with the real writer and the real committer.

Only the broker is in memory: a client that waits for an outcome lets the committer do a step.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from unittest import mock
from uuid import UUID

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable, PostCommitHookProperties, write_deltalake

from tests.builders import StandingClock
from tests.checkpoints import put_classic
from tests.fakes.memory_bus import MemoryBus
from tests.fakes.memory_clients import MemoryReader
from tidegate_checkpointer.service import Checkpointer
from tidegate_checkpointer.settings import CheckpointerSettings
from tidegate_committer.dependencies import Dependencies
from tidegate_committer.loop.service import CommitterLoop
from tidegate_committer.settings import CommitterSection
from tidegate_delta.log.file_names import (
    LOG_FOLDER,
    SIDECAR_FOLDER,
    LogFile,
    checkpoint_name,
    compacted_name,
    parse,
)
from tidegate_delta.schema.arrow_types import from_arrow
from tidegate_messages.codec import encode, headers
from tidegate_messages.published_records import CommitRecord
from tidegate_messages.topics import Topics
from tidegate_producers.options import WriteOptions, for_writing
from tidegate_producers.parquet.data_file_writer import FileWriter
from tidegate_producers.parquet.file_rewrite import Rewriter
from tidegate_producers.writing.row_delete import delete
from tidegate_producers.writing.table_write import (
    WriteMode,
    WritePlan,
    WriteRequest,
    commit,
    creating,
    creation,
    plan,
    stamp_for,
    target_of,
)
from tidegate_runtime.client import proposal_builders
from tidegate_runtime.client.client import Client
from tidegate_runtime.client.proposal_builders import StreamBatch
from tidegate_runtime.clock import SystemClock, new_id
from tidegate_runtime.kafka.client_protocols import Offset, Record, TopicPartition
from tidegate_runtime.service.health import Health
from tidegate_runtime.service.runner import Running
from tidegate_runtime.storage.local_store import LocalStore
from tidegate_runtime.storage.open_store import canonical_root, open_store
from tidegate_runtime.table_io import checkpoint_writer, stored_checkpoint
from tidegate_runtime.table_io.checkpoint_reader import read_sidecar_names
from tidegate_runtime.table_io.checkpoint_writer import move_hint_forward
from tidegate_runtime.table_io.open_table import open_snapshot
from tidegate_runtime.table_io.row_group_copying import append_row_groups

CLOCK = SystemClock()


class _WritersBus(MemoryBus):
    """The bus as writers see it: waiting lets the committer work."""

    def __init__(self, bus: MemoryBus) -> None:
        self.__dict__ = bus.__dict__
        self.loop: CommitterLoop | None = None

    def reader(self) -> MemoryReader:
        return _WritersReader(self)


class _WritersReader(MemoryReader):
    def __init__(self, bus: _WritersBus) -> None:
        super().__init__(bus)
        self._writers = bus

    def read(
        self, topic_partition: TopicPartition, start: Offset, timeout_s: float
    ) -> Sequence[Record]:
        records = super().read(topic_partition, start, timeout_s)
        if not records and self._writers.loop is not None:
            self._writers.loop.step(0.0)
            records = super().read(topic_partition, start, timeout_s)
        return records


@dataclass
class Deployment:
    """Writers, a committer with one root folder, and a checkpointer."""

    folder: Path

    def __post_init__(self) -> None:
        topics = Topics()
        bus = MemoryBus(topics.declared())
        self.bus = _WritersBus(bus)
        dependencies = Dependencies(
            bus=bus,
            topics=topics,
            open_store=open_store,
            clock=CLOCK,
            new_id=lambda: new_id(CLOCK),
            settings=CommitterSection(roots=(canonical_root(str(self.folder)),)),
        )
        self.bus.loop = CommitterLoop(dependencies)
        self.client = Client(self.bus, topics, CLOCK)
        clock = StandingClock()
        running = Running(clock, Health(clock))
        self.checkpointer = Checkpointer(CheckpointerSettings(), bus, running)

    def table(self, name: str) -> "Written":
        return Written(self, self.folder / name)


@dataclass
class Written:
    """One table, with methods to write it."""

    deployment: Deployment
    path: Path

    @property
    def store(self) -> LocalStore:
        return LocalStore(canonical_root(str(self.path)))

    def options(self, **given: str) -> WriteOptions:
        return for_writing({"path": str(self.path), **given})

    def write(
        self, rows: pa.Table, mode: WriteMode = "append", batch: int = -1, **given: str
    ) -> None:
        """Write some rows; as a stream's micro-batch if `batch` is given."""
        options = self.options(**given)
        planned, adds = self.files(rows, mode, options)
        saying = WriteRequest.of(options)
        if batch >= 0:
            saying = WriteRequest.of_batch(options, StreamBatch("stream", batch))
        commit(self.deployment.client, planned, adds, saying)

    def files(
        self, rows: pa.Table, mode: WriteMode, options: WriteOptions
    ) -> tuple[WritePlan, list[Any]]:
        planned = plan(self.deployment.client, from_arrow(rows.schema), mode, options)
        files = FileWriter(self.store, planned.layout, CLOCK)
        files.write(rows)
        return planned, files.finish()

    def create(self, schema: pa.Schema, properties: dict[str, str], *columns: str) -> None:
        options = self.options()
        made = creation(self.deployment.client, from_arrow(schema), columns, options, properties)
        commit(self.deployment.client, creating(made, options.place), (), WriteRequest.of(options))

    def delete(self, condition: str) -> None:
        delete(
            self.deployment.client,
            self.options().place,
            condition,
            WriteRequest(30),
            lambda rewriting, files: [
                Rewriter(self.store, rewriting.metadata, rewriting.predicate, CLOCK, 0).rewrite(
                    file
                )
                for file in files
            ],
        )

    def write_together(self, *tables: pa.Table) -> None:
        """Append tables by proposals that are on the topic together and share one entry."""
        options = self.options()
        client, sent = self.deployment.client, []
        for rows in tables:
            planned, adds = self.files(rows, "append", options)
            record = client.require(planned.place.root)
            stamp = stamp_for(client, WriteRequest(30))
            sent.append(proposal_builders.append(target_of(record, planned), stamp, adds))
            at = TopicPartition(record.proposals_topic, record.topic_partition)
        for proposal in sent:
            key = str(proposal.table).encode()
            self.deployment.bus.append(at, key, encode(proposal), headers(proposal))
        for proposal in sent:
            assert client.propose(proposal).status == "committed"

    def checkpoint(self) -> None:
        """Write a checkpoint of the head and `_last_checkpoint`; remove the commits before it."""
        snapshot = open_snapshot(self.store)
        move_hint_forward(self.store, put_classic(self.store, snapshot, CLOCK.now_ms()))
        for version in range(snapshot.version):
            self.store.delete(f"_delta_log/{version:020d}.json")

    def notify(self, version: int) -> None:
        """Notify the checkpointer of another writer's version."""
        result = CommitRecord(
            table=UUID(int=1),
            table_root=self.store.root,
            version=version,
            sha256="0" * 64,
            size=0,
            author="external",
        )
        self.deployment.checkpointer.notice(result)

    def forget_before(self, checkpoint: int) -> None:
        """Remove every log file older than a checkpoint, which must exist."""
        self.forget_before_file(self.path / LOG_FOLDER / checkpoint_name(checkpoint))

    def forget_before_file(self, checkpoint: Path) -> None:
        """Remove every log file that is older than a checkpoint file, which must exist."""
        assert checkpoint.is_file()
        for file in checkpoint.parent.iterdir():
            if file.name[:20].isdigit() and file.name[:20] < checkpoint.name[:20]:
                file.unlink()


def plain_types(deployment: Deployment) -> Written:
    """All primitive types, nulls, extremes, and nested types."""
    table = deployment.table("plain-types")
    struct = pa.struct([("i", pa.int32()), ("t", pa.struct([("s", pa.string())]))])
    schema = pa.schema(
        [
            ("k", pa.int64()),
            ("i8", pa.int8()),
            ("i16", pa.int16()),
            ("i32", pa.int32()),
            ("f32", pa.float32()),
            ("f64", pa.float64()),
            ("b", pa.bool_()),
            ("s", pa.string()),
            ("bin", pa.binary()),
            ("d", pa.date32()),
            ("ts", pa.timestamp("us", "UTC")),
            ("ntz", pa.timestamp("us")),
            ("dec", pa.decimal128(38, 10)),
            ("dec9", pa.decimal128(9, 2)),
            ("st", struct),
            ("l", pa.list_(pa.int64())),
            ("m", pa.map_(pa.string(), pa.float64())),
        ]
    )
    at = datetime(2024, 2, 29, 23, 59, 59, 999_999, UTC)
    full: dict[str, Any] = {
        "i8": 127,
        "i16": -32768,
        "i32": 2**31 - 1,
        "f32": 0.1,
        "f64": -1.5e300,
        "b": True,
        "s": "ü ' \" \\ \u2028 𝄞" + "z" * 50,
        "bin": b"\x00\xff",
        "d": date(1582, 10, 15),
        "ts": at,
        "ntz": at.replace(tzinfo=None),
        "dec": Decimal("1234567890123456789012345678.0123456789"),
        "dec9": Decimal("-1234567.89"),
        "st": {"i": 1, "t": {"s": "x"}},
        "l": [1, None, 3],
        "m": [("a", 1.0), ("b", None)],
    }
    odd = {"f32": float("nan"), "f64": float("inf"), "s": "", "l": [], "m": [], "st": {"i": None}}
    rows = [{"k": 1, **full}, {"k": 2}, {"k": 3, **odd}]
    table.write(pa.Table.from_pylist(rows, schema=schema), compression="snappy")
    return table


def odd_partitions(deployment: Deployment) -> Written:
    """Partition values of several types that folders and URIs must escape."""
    table = deployment.table("odd partitions")
    texts = ["a/b", "a b", "100%", "é=ü", "x:y?z#q", "", None, "__x", "it's", "{}[]^", "a%2Fb"]
    count = len(texts)
    at = datetime(2024, 1, 1, 12, tzinfo=UTC)
    rows = pa.table(
        {
            "k": pa.array(range(count), pa.int64()),
            "p": pa.array(texts, pa.string()),
            "d": pa.array([date(2024, 1, 1 + n % 2) for n in range(count)]),
            "ts": pa.array([at] * (count - 1) + [None], pa.timestamp("us", "UTC")),
            "dec": pa.array([Decimal("1.50")] * count, pa.decimal128(6, 2)),
            "b": pa.array([n % 2 == 0 for n in range(count)]),
        }
    )
    table.write(rows, partitioncolumns="p,d,ts,dec,b")
    table.delete("p = 'a/b' AND k = 0")
    return table


def busy_log(deployment: Deployment) -> Written:
    """Appends, a group of appends, deletes, an overwrite, a stream, and a checkpoint midway."""
    table = deployment.table("busy-log")
    table.create(numbers(0).schema, {"delta.checkpointInterval": "5"}, "p")
    table.write(numbers(10), txnappid="job", txnversion="1")
    for batch in range(3):
        table.write(numbers(10, start=100 + 10 * batch), batch=batch)
    table.delete("k BETWEEN 3 AND 5")
    table.write_together(*(numbers(5, start=1000 + 10 * n) for n in range(8)))
    table.checkpoint()
    table.delete("p = 1")
    table.write(numbers(4, start=2000))
    table.delete("k = 2001 OR k IS NULL")
    return table


def overwritten(deployment: Deployment) -> Written:
    """A table whose rows were all replaced, twice."""
    table = deployment.table("overwritten")
    table.write(numbers(50))
    table.write(numbers(3, start=7), "overwrite")
    table.write(numbers(2, start=70), "overwrite")
    return table


def kept_short(deployment: Deployment) -> Written:
    """A log whose first versions exist only in the checkpointer's checkpoint."""
    table = deployment.table("kept-short")
    table.create(numbers(0).schema, {"delta.checkpointInterval": "10"}, "p")
    for batch in range(8):
        table.write(numbers(10, start=10 * batch), batch=batch)
    table.delete("k BETWEEN 3 AND 5")
    table.write(numbers(10, start=100), txnappid="job", txnversion="1")
    deployment.checkpointer.poll()
    table.delete("k > 20 AND p = 1")
    for batch in range(8, 13):
        table.write(numbers(3, start=10 * batch), batch=batch)
    deployment.checkpointer.poll()
    assert (table.path / LOG_FOLDER / compacted_name(11, 15)).is_file()
    table.forget_before(10)
    return table


def reused_sidecars(deployment: Deployment) -> Written:
    """A log that exists only in a V2 checkpoint, which names sidecars of older ones again."""
    table = deployment.table("reused-sidecars")
    properties = {"delta.checkpointPolicy": "v2", "delta.checkpointInterval": "5"}
    with mock.patch.object(checkpoint_writer, "SIDECAR_FILES", 4):
        fill_in_turns(table, properties)
    log = table.path / LOG_FOLDER
    [*older, newest] = sorted(log.glob("*.checkpoint.*.json"))
    before, named = (read_sidecar_names(table.store, of_name(path)) for path in (older[-1], newest))
    assert before is not None
    assert named is not None
    assert before & named, "some are named again"
    assert named - before
    table.forget_before_file(newest)
    for file in (log / SIDECAR_FOLDER).iterdir():
        if file.name not in named:
            file.unlink()
    return table


def copied_row_groups(deployment: Deployment) -> Written:
    """A log that exists only in a classic checkpoint, whose row groups are mostly copies."""
    table = deployment.table("copied-row-groups")
    properties = {"delta.checkpointInterval": "5", "delta.checkpoint.writeStatsAsStruct": "true"}
    with (
        mock.patch.multiple(checkpoint_writer, ROWS_MAX=4, COPIED_ROWS_MIN=3, WHOLE_ROWS_MAX=0),
        mock.patch.object(stored_checkpoint, "append_row_groups", wraps=append_row_groups) as copy,
    ):
        fill_in_turns(table, properties)
    newest = max((table.path / LOG_FOLDER).glob("*.checkpoint.parquet"))
    copied, whole = len(copy.call_args.args[2]), pq.read_metadata(newest).num_row_groups
    assert 3 <= copied < whole
    table.forget_before_file(newest)
    return table


def fill_in_turns(table: "Written", properties: dict[str, str]) -> None:
    """Write a table of 65 rows, with a look of the checkpointer after each commit."""
    table.create(numbers(0).schema, properties, "p")
    for batch in range(12):
        table.write(numbers(4, start=10 * batch), batch=batch)
        table.deployment.checkpointer.poll()
    table.delete("k BETWEEN 51 AND 53")
    for batch in range(12, 17):
        table.write(numbers(4, start=10 * batch), batch=batch)
        table.deployment.checkpointer.poll()


def of_name(path: Path) -> LogFile:
    """Return the parsed name of a file of the log."""
    result = parse(path.name)
    assert result is not None, path
    return result


def fed(deployment: Deployment) -> Written:
    """A delta-rs table with a change feed, with the checkpointer's files in its log."""
    table = deployment.table("fed")
    root, unkept = table.store.root, PostCommitHookProperties(create_checkpoint=False)
    feed = {"delta.enableChangeDataFeed": "true", "delta.checkpointInterval": "4"}
    for start in range(0, 400, 100):
        write_deltalake(
            root,
            numbers(10, start=start),
            mode="append",
            partition_by=["p"],
            configuration=feed,
            post_commithook_properties=unkept,
        )
    foreign = DeltaTable(root)
    foreign.update({"k": "k + 1000"}, predicate="k < 4", post_commithook_properties=unkept)
    table.notify(foreign.version())
    foreign.delete("k BETWEEN 6 AND 9", post_commithook_properties=unkept)
    foreign.delete("p = 1", post_commithook_properties=unkept)
    foreign.update({"k": "k + 2000"}, predicate="k >= 300", post_commithook_properties=unkept)
    write_deltalake(root, numbers(5), mode="append", post_commithook_properties=unkept)
    table.notify(foreign.version())
    table.forget_before(4)
    return table


def numbers(count: int, start: int = 0) -> pa.Table:
    """Return keys from `start`, and two partitions."""
    keys = range(start, start + count)
    return pa.table(
        {"k": pa.array(keys, pa.int64()), "p": pa.array([key % 2 for key in keys], pa.int32())}
    )


TABLES: tuple[Callable[[Deployment], Written], ...] = (
    plain_types,
    odd_partitions,
    busy_log,
    overwritten,
    kept_short,
)
