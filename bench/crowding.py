"""What one writer costs others: a flood of another table, and a very old read version."""

import json
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from http.client import HTTPConnection
from typing import Any, Final
from uuid import UUID

from confluent_kafka import Consumer, Producer, TopicPartition
from rich.console import Console

from bench import host, load
from bench.committer_line import CommitterLine
from bench.figures import Figure, at_most, median, percentile
from bench.slow_store import BUCKET
from tidegate_delta.log.actions import Add
from tidegate_delta.log.file_names import commit_name, in_log
from tidegate_messages.codec import PRODUCER, encode
from tidegate_messages.proposal import ReadSet
from tidegate_messages.published_records import TableRecord
from tidegate_runtime.client import proposal_builders
from tidegate_runtime.clock import SystemClock, new_id
from tidegate_runtime.kafka.settings import KafkaSettings, for_librdkafka

FLOOD: Final = 40_000
FLOOD_BYTES: Final = 2_000
QUIET: Final = 20
WRITERS: Final = 64
PAST: Final = {"local": 5_200, "slow": 1_300}
"""Foreign versions before the writers start. The committer reads 32 a second from the slow store.
"""

BEHIND: Final = {"local": 4_000, "slow": 1_000}
PUTS_AT_ONCE: Final = 32
PATIENCE_S: Final = 180.0
_CLOCK: Final = SystemClock()
_console = Console(width=170)


class Asking:
    """One connection that sends proposals and waits for outcomes."""

    def __init__(self, kafka: KafkaSettings, table: TableRecord) -> None:
        common = for_librdkafka(kafka)
        self._producer = Producer(
            {**common, "linger.ms": 0, "acks": "all", "queue.buffering.max.messages": 2 * FLOOD}
        )
        self._consumer = Consumer({**common, "group.id": "bench.none", "enable.auto.commit": False})
        topic_partition = TopicPartition(kafka.topics.outcomes, table.topic_partition)
        topic_partition.offset = self._consumer.get_watermark_offsets(
            topic_partition, timeout=PATIENCE_S
        )[1]
        self._consumer.assign([topic_partition])

    def send(self, table: TableRecord, producer: str, value: bytes, proposal_id: UUID) -> bytes:
        """Send a proposal; return the key of its outcome."""
        headers = [("format", b"proposal/1"), ("proposal_id", str(proposal_id).encode())]
        self._producer.produce(
            table.proposals_topic,
            value=value,
            key=str(table.table).encode(),
            partition=table.topic_partition,
            headers=[*headers, (PRODUCER, producer.encode())],
        )
        self._producer.poll(0)
        return str(proposal_id).encode()

    def flush(self) -> None:
        """Wait until all is durable."""
        self._producer.flush(PATIENCE_S)

    def outcomes(self) -> Iterator[tuple[bytes, dict[str, Any]]]:
        """Yield outcomes as they arrive, until the time limit."""
        ends_s = time.perf_counter() + PATIENCE_S
        while time.perf_counter() < ends_s:
            for message in self._consumer.consume(500, 0.05):
                key, value = message.key(), message.value()
                if not message.error() and key is not None and value is not None:
                    yield key, json.loads(value)

    def wait_for(self, key: bytes) -> dict[str, Any]:
        """Return one outcome."""
        return next(outcome for outcome_key, outcome in self.outcomes() if outcome_key == key)

    def close(self) -> None:
        """Close the connection to the broker."""
        self._consumer.close()


def append(
    table: TableRecord, read_version: int, size_bytes: int = 0, *, reads: bool = False
) -> tuple[bytes, UUID]:
    """Return an append of one file, padded to a size, and its id.

    With `reads`, its read set is the table's rows of a month that nobody writes.
    """
    proposal_id = new_id(_CLOCK)
    stats = {"numRecords": 1, "minValues": {"name": ""}, "nullCount": {"id": 0}}
    value = b""
    for length in (0, max(0, size_bytes)):
        stats["minValues"] = {"name": "x" * max(0, length - len(value) * bool(length))}
        add = Add(
            path=f"month=1/part-{proposal_id}.parquet",
            partition_values={"month": "1"},
            size=1000,
            modification_time=_CLOCK.now_ms(),
            data_change=True,
            stats=json.dumps(stats),
        )
        target = proposal_builders.Target(
            table.table, table.table_root, read_version, table.table_id
        )
        proposal = proposal_builders.append(
            target, proposal_builders.Stamp(proposal_id, _CLOCK.now_ms()), [add]
        )
        if reads:
            proposal = proposal.model_copy(update={"reads": ReadSet(files=("month=2/no.parquet",))})
        value = encode(proposal)
    return value, proposal_id


@dataclass
class Flooded:
    """One proposal behind 40,000 of another table in the same topic partition."""

    seconds: float
    quiet_s: list[float] = field(default_factory=list)
    first_s: list[float] = field(default_factory=list)
    drained_s: list[float] = field(default_factory=list)
    memory: list[float] = field(default_factory=list)

    def measure(self, line: CommitterLine, number: int) -> None:
        """Measure a round."""
        flooded = line.gate.table(line.local_root(f"flooded-{number}"))
        beside_table = line.gate.table(line.local_root(f"beside-flood-{number}"))
        asking = Asking(line.gate.kafka, beside_table)
        for _ in range(QUIET):
            began_s = time.perf_counter()
            asking.wait_for(asking.send(beside_table, "quiet", *append(beside_table, 0)))
            self.quiet_s.append(time.perf_counter() - began_s)
        flood = [append(flooded, 0, FLOOD_BYTES) for _ in range(FLOOD)]
        waiting = {asking.send(flooded, "flood", *value_and_id) for value_and_id in flood}
        asking.flush()
        began_s = time.perf_counter()
        key = asking.send(beside_table, "quiet", *append(beside_table, 0))
        for outcome_key, outcome in asking.outcomes():
            assert outcome["status"] == "committed", outcome
            if outcome_key == key:
                self.first_s.append(time.perf_counter() - began_s)
                answered = FLOOD - len(waiting)
            waiting.discard(outcome_key)
            if not waiting:
                break
        self.drained_s.append(time.perf_counter() - began_s)
        self.memory.append(host.memory_mib(line.gate.service.child.pid, "VmHWM"))
        asking.close()
        _console.print(
            f"behind a flood: first answer after {self.first_s[-1]:.2f} s, when {answered} of it "
            f"had theirs; all took {self.drained_s[-1]:.1f} s; {self.memory[-1]:.0f} MiB"
        )

    def figures(self) -> list[Figure]:
        """Return how long the other table's first outcome took."""
        first, drained = median(self.first_s), median(self.drained_s)
        return [
            Figure(
                f"behind {FLOOD} records of {FLOOD_BYTES} bytes of another table: first answer",
                f"{first:.2f} s",
                "-",
                first,
                "<= 2 s",
                f"most memory {median(self.memory):.0f} MiB",
                f"flood {drained:.1f} s, without it {1e3 * median(self.quiet_s):.0f} ms",
                max(self.first_s) <= 2,
                recorded=at_most(0.74),
            )
        ]


@dataclass
class Stale:
    """64 writers, with and without a proposal a second that has a very old read version."""

    seconds: float
    alone: dict[str, list[load.Load]] = field(default_factory=dict)
    beside: dict[str, list[load.Load]] = field(default_factory=dict)
    first_s: dict[str, list[float]] = field(default_factory=dict)
    later_s: dict[str, list[float]] = field(default_factory=dict)

    def measure(self, line: CommitterLine, number: int) -> None:
        """Measure a round."""
        local, slow = line.local_root(f"stale-{number}"), line.slow_root(f"stale-far-{number}")
        folder = line.folder / "tables" / f"stale-{number}"

        def put_slowly(version: int) -> None:
            connection = HTTPConnection("127.0.0.1", line.store.port)
            path = f"/{BUCKET}/stale-far-{number}/{in_log(commit_name(version))}"
            connection.request("PUT", path, _past(version))
            connection.getresponse().read()
            connection.close()

        def put(version: int) -> None:
            (folder / in_log(commit_name(version))).write_bytes(_past(version))

        self._measure(line, "local", line.gate.table(local), put)
        self._measure(line, "slow", line.gate.table(slow), put_slowly)

    def figures(self) -> list[Figure]:
        """Return the p99 of the writers beside it, divided by that of the writers alone."""
        return [self._figure(kind) for kind in self.alone]

    def _measure(
        self, line: CommitterLine, kind: str, table: TableRecord, put: Callable[[int], None]
    ) -> None:
        with ThreadPoolExecutor(PUTS_AT_ONCE) as threads:
            list(threads.map(put, range(1, PAST[kind])))
        asking = Asking(line.gate.kafka, table)
        outcome = asking.wait_for(asking.send(table, "first", *append(table, 0)))
        assert outcome["status"] == "committed", outcome
        # The first writers after so many foreign versions find a table that is still catching up.
        self._load(line, table)
        self.alone.setdefault(kind, []).append(self._load(line, table))
        over, took_s = threading.Event(), list[float]()
        head = asking.wait_for(asking.send(table, "head", *append(table, outcome["version"])))

        def ask() -> None:
            while not over.is_set():
                began_s = time.perf_counter()
                old = head["version"] - BEHIND[kind]
                stale_outcome = asking.wait_for(
                    asking.send(table, "stale", *append(table, old, reads=True))
                )
                assert stale_outcome["status"] == "committed", stale_outcome
                took_s.append(time.perf_counter() - began_s)
                over.wait(max(0.0, began_s + 1.0 - time.perf_counter()))

        thread = threading.Thread(target=ask)
        thread.start()
        self.beside.setdefault(kind, []).append(self._load(line, table))
        over.set()
        thread.join()
        asking.close()
        self.first_s.setdefault(kind, []).append(took_s[0])
        self.later_s.setdefault(kind, []).extend(took_s[1:])
        alone, beside = self.alone[kind][-1], self.beside[kind][-1]
        _console.print(
            f"{kind}: alone {alone.per_s:.0f}/s, p99 {alone.p99_ms:.0f} ms; beside a stale one "
            f"{beside.per_s:.0f}/s, p50 {beside.p50_ms:.0f}, p99 {beside.p99_ms:.0f}, longest "
            f"{1e3 * max(beside.latencies_s):.0f} ms; it waited {took_s[0]:.2f} s at first, then "
            f"{1e3 * median(took_s[1:]):.0f} ms ({len(took_s)} times)"
        )

    def _load(self, line: CommitterLine, table: TableRecord) -> load.Load:
        return load.run(line.gate.kafka, [table], load.Writers(WRITERS), self.seconds)

    def _figure(self, kind: str) -> Figure:
        alone = median([run.p99_ms for run in self.alone[kind]])
        beside = median([run.p99_ms for run in self.beside[kind]])
        lost = sum(run.gave_up for run in (*self.alone[kind], *self.beside[kind]))
        later_ms = 1e3 * percentile(self.later_s[kind], 50)
        return Figure(
            f"{WRITERS} writers, {kind}, while one asks {BEHIND[kind]} versions behind: p99",
            f"{beside:.0f} ms",
            f"without it {alone:.0f} ms",
            beside / alone,
            "<= 2",
            f"it waits {median(self.first_s[kind]):.1f} s at first, then {later_ms:.0f} ms",
            "",
            beside <= 2 * alone and not lost,
            recorded=at_most(1.16 if kind == "local" else 0.81),
        )


def _past(version: int) -> bytes:
    """Return a commit of an append by another engine."""
    info = {"timestamp": _CLOCK.now_ms(), "operation": "WRITE", "operationParameters": {}}
    added = {
        "path": f"month=1/past-{version}.parquet",
        "partitionValues": {"month": "1"},
        "size": 1000,
        "modificationTime": _CLOCK.now_ms(),
        "dataChange": True,
        "stats": json.dumps({"numRecords": 1}),
    }
    return b"\n".join(json.dumps(row).encode() for row in ({"commitInfo": info}, {"add": added}))
