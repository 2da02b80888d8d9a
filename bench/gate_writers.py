"""Ours: writers that propose through a real broker to a real committer process, in closed loops.

Every writer has one proposal outstanding. Writers stand for as many machines: the writers of one
process share a connection, so that their own cost is not counted as the committer's.
"""

import json
import multiprocessing as mp
import queue
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol
from uuid import UUID

import orjson

from bench.delta_rs_writers import SCHEMA_STRING, STATS, Rate, rate_of
from tidegate_delta.definitions.resolve_definition import define_new
from tidegate_delta.log.actions import Add, Metadata
from tidegate_messages.codec import encode, headers
from tidegate_messages.proposal import Proposal
from tidegate_messages.published_records import TableRecord
from tidegate_runtime.client import proposal_builders
from tidegate_runtime.client.client import Client, Rejected
from tidegate_runtime.clock import SystemClock, new_id
from tidegate_runtime.kafka.client_protocols import Producer, TopicPartition
from tidegate_runtime.kafka.confluent_bus import KafkaBus
from tidegate_runtime.kafka.settings import KafkaSettings

PROCESSES_MAX = 4
PATIENCE_S = 30.0
NO_PROPERTIES: Final[Mapping[str, str]] = {}
CLOCK = SystemClock()


class Work(Protocol):
    """What one writer proposes repeatedly."""

    def proposal(self) -> Proposal:
        """Return the next proposal."""

    def committed(self, outcome: Mapping[str, Any]) -> None:
        """Record what was committed."""


Workshop = Callable[[TableRecord, int], Work]
"""Makes the work of a writer of a table, given the writer's number."""


@dataclass(frozen=True)
class Share:
    """The writers of one process, and what they do."""

    workshop: Workshop
    writers: Sequence[int]


class Appending:
    """Blind appends of a file each."""

    def __init__(self, table: TableRecord, writer: int) -> None:
        self._table = table
        self._version = 0

    def proposal(self) -> Proposal:
        """Return an append that read the version of the last one."""
        add = Add(
            path=f"month=1/part-{new_id(CLOCK)}.parquet",
            partition_values={"month": "1"},
            size=1000,
            modification_time=CLOCK.now_ms(),
            data_change=True,
            stats=STATS,
        )
        stamp = proposal_builders.Stamp(new_id(CLOCK), CLOCK.now_ms())
        return proposal_builders.append(target_of(self._table, self._version), stamp, [add])

    def committed(self, outcome: Mapping[str, Any]) -> None:
        """Record the version."""
        self._version = outcome["version"]


def target_of(table: TableRecord, version: int) -> proposal_builders.Target:
    """Return a table as a writer saw it that read a version."""
    return proposal_builders.Target(table.table, table.table_root, version, table.table_id)


def create(
    settings: KafkaSettings,
    folder: Path,
    properties: Mapping[str, str] = NO_PROPERTIES,
    adds: Sequence[Add] | None = None,
) -> TableRecord:
    """Create a local table through the committer, with its first files; return its registration."""
    return create_at(settings, f"file://{folder}", properties, adds)


def create_at(
    settings: KafkaSettings,
    root: str,
    properties: Mapping[str, str] = NO_PROPERTIES,
    adds: Sequence[Add] | None = None,
) -> TableRecord:
    """Create a table through the committer, with its first files, and return its registration."""
    with Client(KafkaBus(settings, "bench"), settings.topics) as client:
        return create_by(client, root, properties, adds)


def create_by(
    client: Client, root: str, properties: Mapping[str, str], adds: Sequence[Add] | None
) -> TableRecord:
    """Do as `create_at`, with a client that exists."""
    target = proposal_builders.Target(new_id(CLOCK), root, name=root.rpartition("/")[2])
    metadata = Metadata(
        id=str(new_id(CLOCK)),
        schema_string=SCHEMA_STRING,
        partition_columns=("month",),
        configuration=properties,
    )
    protocol = define_new(metadata).protocol
    stamp = proposal_builders.Stamp(new_id(CLOCK), CLOCK.now_ms())
    outcome = client.propose(proposal_builders.create(target, stamp, protocol, metadata, adds))
    if outcome.status != "committed":
        raise Rejected(outcome)
    return client.require(target.root)


def run(
    settings: KafkaSettings,
    table: TableRecord,
    writers: int,
    seconds: float,
    workshop: Workshop = Appending,
) -> Rate:
    """Let this many writers append to the table for some seconds, or do the work of a workshop."""
    processes = min(writers, PROCESSES_MAX)
    context = mp.get_context("spawn")
    barrier, results = context.Barrier(processes), context.Queue()
    shares = [range(n, writers, processes) for n in range(processes)]
    started = [
        context.Process(
            target=_process,
            args=(
                settings.model_dump(mode="json"),
                table.model_dump(mode="json"),
                Share(workshop, share),
            ),
            kwargs={"seconds": seconds, "barrier": barrier, "results": results},
        )
        for share in shares
    ]
    for process in started:
        process.start()
    parts = [results.get() for _ in started]
    for process in started:
        process.join()
    latencies = [latency for part in parts for latency in part[0]]
    return rate_of(latencies, max(part[2] for part in parts), sum(part[1] for part in parts))


class _Connection:
    """One connection for the writers of a process: sends proposals, and hands out the outcomes."""

    def __init__(self, settings: KafkaSettings, table: TableRecord) -> None:
        bus = KafkaBus(settings, "bench")
        self.table = table
        self._proposals = TopicPartition(table.proposals_topic, table.topic_partition)
        self._outcomes = TopicPartition(settings.topics.outcomes, table.topic_partition)
        self._producer: Producer = bus.producer()
        self._reader = bus.reader()
        self._start = self._reader.bounds(self._outcomes)[1]
        self._boxes: dict[bytes, queue.SimpleQueue[dict[str, Any]]] = {}
        self._closing = threading.Event()
        self._pump = threading.Thread(target=self._hand_out)
        self._pump.start()

    def propose(self, proposal: Proposal) -> dict[str, Any]:
        """Send a proposal, and return its outcome."""
        box = self._boxes[str(proposal.proposal_id).encode()] = queue.SimpleQueue()
        self._producer.publish(
            self._proposals, table_key(self.table.table), encode(proposal), headers(proposal)
        )
        return box.get(timeout=PATIENCE_S)

    def close(self) -> None:
        """Close the connection to the broker."""
        self._closing.set()
        self._pump.join()
        self._producer.close()
        self._reader.close()

    def _hand_out(self) -> None:
        following = self._start
        while not self._closing.is_set():
            for record in self._reader.read(self._outcomes, following, 0.05):
                following = type(following)(record.offset + 1)
                box = self._boxes.pop(record.key or b"", None)
                if box is not None and record.value is not None:
                    box.put(orjson.loads(record.value))


def table_key(table: UUID) -> bytes:
    """Return the key of a table's records."""
    return str(table).encode()


def _process(
    settings: dict[str, Any],
    table: dict[str, Any],
    share: Share,
    *,
    seconds: float,
    barrier: Any,
    results: Any,
) -> None:
    connection = _Connection(
        KafkaSettings.model_validate(settings), TableRecord.model_validate(table)
    )
    latencies: list[float] = []
    gave_up: list[str] = []
    barrier.wait()
    start = time.perf_counter()

    def write(work: Work) -> None:
        while time.perf_counter() < start + seconds:
            began = time.perf_counter()
            outcome = connection.propose(work.proposal())
            if outcome["status"] == "committed":
                latencies.append(time.perf_counter() - began)
                work.committed(outcome)
            else:
                gave_up.append(outcome["status"])

    works = [share.workshop(connection.table, writer) for writer in share.writers]
    threads = [threading.Thread(target=write, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    took = time.perf_counter() - start
    connection.close()
    results.put((latencies, len(gave_up), took))


def describe(rate: Rate) -> str:
    """Return a rate as one line of text."""
    return json.dumps(
        {name: round(value, 2) for name, value in vars(rate).items()}, separators=(", ", ": ")
    )
