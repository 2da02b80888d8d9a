"""Load: writers in a closed loop that cost almost nothing, so that the committer is what is
measured.

Many writers are one loop over one connection. Each outcome that arrives sends its writer's next
proposal, whose bytes are those of a template except for an id, a time and the version read. In
production a writer's cost is on its own machine; here it would take the committer's core.
"""

import multiprocessing as mp
import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Protocol
from urllib.parse import urlsplit
from urllib.request import url2pathname
from uuid import UUID

import orjson
from confluent_kafka import Consumer, Producer, TopicPartition

from bench.delta_rs_writers import STATS
from bench.figures import percentile
from bench.row_deletes import Deleting
from tidegate_delta.log.actions import Add
from tidegate_messages.codec import PRODUCER, encode, headers
from tidegate_messages.published_records import TableRecord
from tidegate_runtime.client import proposal_builders
from tidegate_runtime.clock import SystemClock
from tidegate_runtime.kafka.settings import KafkaSettings, for_librdkafka

WARM_S: Final = 1.0
"""Warm-up that is not measured: groups form, connections open."""

PATIENCE_S: Final = 15.0
"""How long to wait for outcomes after the end."""

START_S: Final = 60.0
"""How long a process may take to start."""

_ID: Final = UUID(int=0x7777_7777_7777_7777_8777_7777_7777_7777)
_CREATED_MS: Final = 1_111_111_111_111
_READ_VERSION: Final = 987_654_321
_COMMITTED: Final = b'"status":"committed"'
_VERSION: Final = b'"version":'
_AT_ONCE: Final = 500
_SLICE_S: Final = 0.2


@dataclass
class Load:
    """What the writers measured. `committed` are all paths that were reported as in the tables,
    `deleted` counts rows that were reported as deleted.

    Units: `latencies_s` in seconds, of proposals that ended after the warm-up, and `by_table` those
    of each table; `seconds` is how long that was.
    """

    latencies_s: list[float] = field(default_factory=list)
    by_table: list[list[float]] = field(default_factory=list)
    committed: list[str] = field(default_factory=list)
    deleted: int = 0
    not_committed: int = 0
    silent: int = 0
    seconds: float = 0.0

    @property
    def per_s(self) -> float:
        """Proposals committed a second."""
        return len(self.latencies_s) / self.seconds

    @property
    def p50_ms(self) -> float:
        """The median latency, proposal to outcome."""
        return 1e3 * percentile(self.latencies_s, 50)

    @property
    def p99_ms(self) -> float:
        """The 99th percentile of the latency."""
        return 1e3 * percentile(self.latencies_s, 99)

    @property
    def gave_up(self) -> int:
        """Proposals that were not committed or got no outcome."""
        return self.not_committed + self.silent


def path_of(proposal_id: str) -> str:
    """Return the path of the file that a proposal adds."""
    return f"month=1/part-{proposal_id}.parquet"


@dataclass(frozen=True)
class Writers:
    """The writers of each table. `deleters` of them delete rows of `row_deletes.shared_file`; with
    `each_file`, a Parquet file of one row, appends name hard links to it.
    """

    count: int
    deleters: int = 0
    each_file: Path | None = None


def run(
    settings: KafkaSettings,
    tables: Sequence[TableRecord],
    writers: Writers,
    seconds: float,
    begins: Callable[[], None] = lambda: None,
) -> Load:
    """Let writers of each of some tables propose for some seconds after the warm-up.

    `begins` is called right before the first proposal.
    """
    context = mp.get_context("spawn")
    results: mp.Queue[Load] = context.Queue()
    started, go = context.Event(), context.Event()
    writer_args = (
        settings.model_dump(mode="json"),
        [table.model_dump(mode="json") for table in tables],
        writers,
        seconds,
    )
    process = context.Process(target=_process, args=(writer_args, started, go, results))
    process.start()
    assert started.wait(START_S), "the writers start"
    begins()
    go.set()
    load = results.get(timeout=seconds + START_S + PATIENCE_S)
    process.join()
    return load


def _process(
    writer_args: tuple[dict[str, Any], list[dict[str, Any]], Writers, float],
    started: Any,
    go: Any,
    results: Any,
) -> None:
    settings, tables, writers, seconds = writer_args
    records = [TableRecord.model_validate(table) for table in tables]
    loop = _Loop(KafkaSettings.model_validate(settings), records, writers)
    started.set()
    go.wait()
    results.put(loop.run(seconds))
    loop.close()


class _Writer(Protocol):
    """What one writer sends to a table, one proposal after the other."""

    table: TableRecord

    def next(self) -> tuple[bytes, bytes, dict[str, str | bytes | None]]:
        """Return the next proposal's id, value and headers."""

    def committed(self, proposal_id: bytes, value: bytes, load: Load) -> None:
        """Record an outcome."""

    def refused(self) -> None:
        """Record that the last one was not committed."""


class _Template:
    """The bytes of an append, cut where the next append differs; its writers share it."""

    def __init__(self, table: TableRecord, each_file: Path | None) -> None:
        add = Add(
            path=path_of(str(_ID)),
            partition_values={"month": "1"},
            size=each_file.stat().st_size if each_file else 1000,
            modification_time=SystemClock().now_ms(),
            data_change=True,
            stats='{"numRecords":1}' if each_file else STATS,
        )
        self._folder = Path(url2pathname(urlsplit(table.table_root).path))
        self._file = each_file
        if each_file is not None:
            (self._folder / path_of("")).parent.mkdir()
        target = proposal_builders.Target(
            table.table, table.table_root, _READ_VERSION, table.table_id
        )
        proposal = proposal_builders.append(
            target, proposal_builders.Stamp(_ID, _CREATED_MS), [add]
        )
        self._body = encode(proposal)
        self._headers = headers(proposal)
        self._id = str(_ID).encode()
        self._run_id, self._sent = secrets.token_hex(5), 0

    def next_id(self) -> bytes:
        """Return an id that no proposal has had."""
        self._sent += 1
        return f"{self._run_id[:8]}-{self._run_id[8:]}00-7000-8000-{self._sent:012x}".encode()

    def body(self, proposal_id: bytes, version: bytes) -> bytes:
        """Return a proposal's value, and make its file."""
        if self._file is not None:
            (self._folder / path_of(proposal_id.decode())).hardlink_to(self._file)
        value = self._body.replace(self._id, proposal_id)
        value = value.replace(b"%d" % _CREATED_MS, b"%d" % (time.time_ns() // 1_000_000))
        return value.replace(b"%d" % _READ_VERSION, version)

    def headers(self, proposal_id: bytes) -> dict[str, str | bytes | None]:
        """Return its headers."""
        headers_of_proposal = [
            (name, proposal_id if name == "proposal_id" else value) for name, value in self._headers
        ]
        return dict(headers_of_proposal)


class _Appender:
    """Blind appends of a file each."""

    def __init__(self, table: TableRecord, template: _Template, number: int) -> None:
        self.table, self._template = table, template
        self._producer, self._version = b"writer-%d" % number, b"0"

    def next(self) -> tuple[bytes, bytes, dict[str, str | bytes | None]]:
        proposal_id = self._template.next_id()
        message_headers = {**self._template.headers(proposal_id), PRODUCER: self._producer}
        return proposal_id, self._template.body(proposal_id, self._version), message_headers

    def committed(self, proposal_id: bytes, value: bytes, load: Load) -> None:
        load.committed.append(path_of(proposal_id.decode()))
        self._version = _number_after(value, _VERSION)

    def refused(self) -> None:
        self._version = b"0"


class _Deleter:
    """Deletes of one row each."""

    def __init__(self, table: TableRecord, number: int) -> None:
        self.table, self._number = table, number
        self._work = Deleting(table, 0)

    def next(self) -> tuple[bytes, bytes, dict[str, str | bytes | None]]:
        proposal = self._work.proposal()
        message_headers: dict[str, str | bytes | None] = dict(headers(proposal))
        message_headers[PRODUCER] = b"writer-%d" % self._number
        return str(proposal.proposal_id).encode(), encode(proposal), message_headers

    def committed(self, proposal_id: bytes, value: bytes, load: Load) -> None:
        self._work.committed(orjson.loads(value))
        load.deleted += 1

    def refused(self) -> None:
        """Go on with the next row."""


class _Loop:
    """All writers, and their one connection."""

    def __init__(
        self,
        settings: KafkaSettings,
        tables: Sequence[TableRecord],
        writers: Writers,
    ) -> None:
        common = for_librdkafka(settings)
        self._producer = Producer(
            {**common, "linger.ms": 0, "acks": "all", "enable.idempotence": True}
        )
        self._consumer = Consumer(
            {
                **common,
                "group.id": "bench.none",
                "enable.auto.commit": False,
                "fetch.wait.max.ms": 100,
            }
        )
        homes = [
            TopicPartition(settings.topics.outcomes, partition)
            for partition in {table.topic_partition for table in tables}
        ]
        for home in homes:
            home.offset = self._consumer.get_watermark_offsets(home, timeout=PATIENCE_S)[1]
        self._consumer.assign(homes)
        self._tables = {table.table: number for number, table in enumerate(tables)}
        self._writers: list[_Writer] = []
        for table in tables:
            template = _Template(table, writers.each_file)
            for number in range(writers.count):
                self._writers.append(
                    _Deleter(table, number)
                    if number < writers.deleters
                    else _Appender(table, template, number)
                )
        self._out: dict[bytes, tuple[_Writer, float]] = {}

    def run(self, seconds: float) -> Load:
        """Return what the writers measured."""
        load = Load(seconds=seconds, by_table=[[] for _ in self._tables])
        starts_s = time.perf_counter() + WARM_S
        ends_s = starts_s + seconds
        for writer in self._writers:
            self._send(writer)
        while self._out and time.perf_counter() < ends_s + PATIENCE_S:
            for message in self._arrived():
                sent = self._out.pop(message.key(), None)
                if sent is None:
                    continue
                writer, began_s = sent
                now_s, value = time.perf_counter(), message.value()
                if _COMMITTED not in value:
                    load.not_committed += 1
                    writer.refused()
                else:
                    writer.committed(message.key(), value, load)
                    if starts_s <= now_s < ends_s:
                        load.latencies_s.append(now_s - began_s)
                        load.by_table[self._tables[writer.table.table]].append(now_s - began_s)
                if now_s < ends_s:
                    self._send(writer)
        load.silent = len(self._out)
        return load

    def close(self) -> None:
        """Close the connection to the broker."""
        self._producer.flush(PATIENCE_S)
        self._consumer.close()

    def _arrived(self) -> Sequence[Any]:
        first = self._consumer.poll(_SLICE_S)
        if first is None:
            return ()
        return [
            message
            for message in (first, *self._consumer.consume(_AT_ONCE, 0))
            if not message.error()
        ]

    def _send(self, writer: _Writer) -> None:
        proposal_id, body, message_headers = writer.next()
        self._out[proposal_id] = writer, time.perf_counter()
        self._producer.produce(
            writer.table.proposals_topic,
            value=body,
            key=str(writer.table.table).encode(),
            partition=writer.table.topic_partition,
            headers=message_headers,
        )
        self._producer.poll(0)


def _number_after(value: bytes, name: bytes) -> bytes:
    start = value.index(name) + len(name)
    end = start
    while value[end : end + 1].isdigit():
        end += 1
    return value[start:end]
