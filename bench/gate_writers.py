"""Ours: writers that propose through a real broker to a real committer process, in closed loops.

Every writer has one proposal outstanding. Writers stand for as many machines: the writers of one
process share a connection, so that their own cost is not taken for the gate's.
"""

import json
import multiprocessing as mp
import queue
import threading
import time
from pathlib import Path
from typing import Any
from uuid import UUID

import orjson

from bench.delta_rs_writers import SCHEMA_STRING, STATS, Rate, rate_of
from tidegate.delta.actions import Add, Metadata, Protocol
from tidegate.pipeline.codec import encode, headers
from tidegate.pipeline.published import TableRecord
from tidegate.producers import draft
from tidegate.producers.client import Client, Rejected
from tidegate.runtime.bus import Producer, TopicPartition
from tidegate.runtime.clock import SystemClock, new_id
from tidegate.runtime.kafka_bus import KafkaBus
from tidegate.runtime.kafka_settings import KafkaSettings

PROCESSES_MAX = 4
PATIENCE_S = 30.0
CLOCK = SystemClock()


def create(settings: KafkaSettings, folder: Path) -> TableRecord:
    """Create an empty table through the gate and return its registration."""
    with Client(KafkaBus(settings, "bench"), settings.topics) as client:
        target = draft.Target(new_id(CLOCK), f"file://{folder}", name=folder.name)
        metadata = Metadata(
            id=str(new_id(CLOCK)), schema_string=SCHEMA_STRING, partition_columns=("month",)
        )
        protocol = Protocol(min_reader_version=1, min_writer_version=2)
        stamp = draft.Stamp(new_id(CLOCK), CLOCK.now_ms())
        outcome = client.propose(draft.create(target, stamp, protocol, metadata))
        if outcome.status != "committed":
            raise Rejected(outcome)
        return client.require(target.root)


def run(settings: KafkaSettings, table: TableRecord, writers: int, seconds: float) -> Rate:
    """Let so many writers append to the table for some seconds."""
    processes = min(writers, PROCESSES_MAX)
    context = mp.get_context("spawn")
    barrier, results = context.Barrier(processes), context.Queue()
    shares = [writers // processes + (n < writers % processes) for n in range(processes)]
    started = [
        context.Process(
            target=_process,
            args=(settings.model_dump(mode="json"), table.model_dump(mode="json"), share),
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


class _Desk:
    """One connection for the writers of a process: sends, and hands each its outcome."""

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

    def propose(self, version: int, path: str) -> dict[str, Any]:
        """Send an append that read a version, and return its outcome."""
        one = new_id(CLOCK)
        target = draft.Target(self.table.table, self.table.table_root, version, self.table.table_id)
        add = Add(
            path=path,
            partition_values={"month": "1"},
            size=1000,
            modification_time=CLOCK.now_ms(),
            data_change=True,
            stats=STATS,
        )
        proposal = draft.append(target, draft.Stamp(one, CLOCK.now_ms()), [add])
        box = self._boxes[str(one).encode()] = queue.SimpleQueue()
        self._producer.publish(
            self._proposals, table_key(self.table.table), encode(proposal), headers(proposal)
        )
        return box.get(timeout=PATIENCE_S)

    def close(self) -> None:
        """Let go of the broker."""
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
    writers: int,
    *,
    seconds: float,
    barrier: Any,
    results: Any,
) -> None:
    desk = _Desk(KafkaSettings.model_validate(settings), TableRecord.model_validate(table))
    latencies: list[float] = []
    gave_up: list[str] = []
    barrier.wait()
    start = time.perf_counter()

    def write() -> None:
        version = 0
        while time.perf_counter() < start + seconds:
            began = time.perf_counter()
            outcome = desk.propose(version, f"month=1/part-{new_id(CLOCK)}.parquet")
            if outcome["status"] == "committed":
                latencies.append(time.perf_counter() - began)
                version = outcome["version"]
            else:
                gave_up.append(outcome["status"])

    threads = [threading.Thread(target=write) for _ in range(writers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    took = time.perf_counter() - start
    desk.close()
    results.put((latencies, len(gave_up), took))


def describe(rate: Rate) -> str:
    """Return a rate in a line."""
    return json.dumps(
        {name: round(value, 2) for name, value in vars(rate).items()}, separators=(", ", ": ")
    )
