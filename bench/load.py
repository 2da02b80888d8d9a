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
from typing import Any, Final
from uuid import UUID

from confluent_kafka import Consumer, Producer, TopicPartition

from bench.delta_rs_writers import STATS
from bench.figures import percentile
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
    """What the writers measured. `committed` are all paths that were reported as in the table.

    Units: `latencies_s` in seconds, of proposals that ended after the warm-up; `seconds` is how
    long that was.
    """

    latencies_s: list[float] = field(default_factory=list)
    committed: list[str] = field(default_factory=list)
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


def run(
    settings: KafkaSettings,
    table: TableRecord,
    writers: int,
    seconds: float,
    begins: Callable[[], None] = lambda: None,
) -> Load:
    """Let this many writers append to a table for some seconds after the warm-up.

    `begins` is called right before the first proposal.
    """
    context = mp.get_context("spawn")
    results: mp.Queue[Load] = context.Queue()
    started, go = context.Event(), context.Event()
    writer_args = (
        settings.model_dump(mode="json"),
        table.model_dump(mode="json"),
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
    writer_args: tuple[dict[str, Any], dict[str, Any], int, float],
    started: Any,
    go: Any,
    results: Any,
) -> None:
    settings, table, writers, seconds = writer_args
    loop = _Loop(KafkaSettings.model_validate(settings), TableRecord.model_validate(table))
    started.set()
    go.wait()
    results.put(loop.run(writers, seconds))
    loop.close()


class _Template:
    """The bytes of an append, cut where the next append differs."""

    def __init__(self, table: TableRecord) -> None:
        add = Add(
            path=path_of(str(_ID)),
            partition_values={"month": "1"},
            size=1000,
            modification_time=SystemClock().now_ms(),
            data_change=True,
            stats=STATS,
        )
        target = proposal_builders.Target(
            table.table, table.table_root, _READ_VERSION, table.table_id
        )
        proposal = proposal_builders.append(
            target, proposal_builders.Stamp(_ID, _CREATED_MS), [add]
        )
        self._body = encode(proposal)
        self._headers = headers(proposal)
        self._id = str(_ID).encode()

    def body(self, proposal_id: bytes, version: bytes) -> bytes:
        """Return a proposal's value."""
        value = self._body.replace(self._id, proposal_id)
        value = value.replace(b"%d" % _CREATED_MS, b"%d" % (time.time_ns() // 1_000_000))
        return value.replace(b"%d" % _READ_VERSION, version)

    def headers(self, proposal_id: bytes, writer: int) -> dict[str, str | bytes | None]:
        """Return its headers."""
        headers_of_proposal = [
            (name, proposal_id if name == "proposal_id" else value) for name, value in self._headers
        ]
        return {**dict(headers_of_proposal), PRODUCER: b"writer-%d" % writer}


class _Loop:
    """All writers, and their one connection."""

    def __init__(self, settings: KafkaSettings, table: TableRecord) -> None:
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
        topic_partition = TopicPartition(settings.topics.outcomes, table.topic_partition)
        topic_partition.offset = self._consumer.get_watermark_offsets(
            topic_partition, timeout=PATIENCE_S
        )[1]
        self._consumer.assign([topic_partition])
        self._table = table
        self._key = str(table.table).encode()
        self._template = _Template(table)
        self._out: dict[bytes, tuple[int, float]] = {}
        self._run_id, self._sent = secrets.token_hex(5), 0

    def run(self, writers: int, seconds: float) -> Load:
        """Return what the writers measured."""
        load = Load(seconds=seconds)
        starts_s = time.perf_counter() + WARM_S
        ends_s = starts_s + seconds
        for writer in range(writers):
            self._send(writer, b"0")
        while self._out and time.perf_counter() < ends_s + PATIENCE_S:
            for message in self._arrived():
                sent = self._out.pop(message.key(), None)
                if sent is None:
                    continue
                writer, began_s = sent
                now_s, value = time.perf_counter(), message.value()
                if _COMMITTED not in value:
                    load.not_committed += 1
                    version = b"0"
                else:
                    load.committed.append(path_of(message.key().decode()))
                    version = _number_after(value, _VERSION)
                    if starts_s <= now_s < ends_s:
                        load.latencies_s.append(now_s - began_s)
                if now_s < ends_s:
                    self._send(writer, version)
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

    def _send(self, writer: int, version: bytes) -> None:
        self._sent += 1
        proposal_id = (
            f"{self._run_id[:8]}-{self._run_id[8:]}00-7000-8000-{self._sent:012x}".encode()
        )
        body = self._template.body(proposal_id, version)
        message_headers = self._template.headers(proposal_id, writer)
        self._out[proposal_id] = writer, time.perf_counter()
        self._producer.produce(
            self._table.proposals_topic,
            value=body,
            key=self._key,
            partition=self._table.topic_partition,
            headers=message_headers,
        )
        self._producer.poll(0)


def _number_after(value: bytes, name: bytes) -> bytes:
    start = value.index(name) + len(name)
    end = start
    while value[end : end + 1].isdigit():
        end += 1
    return value[start:end]
