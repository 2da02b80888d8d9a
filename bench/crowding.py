"""What one writer does to others: a flood of another table, and a read version of long ago."""

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from uuid import UUID

from confluent_kafka import Consumer, Producer, TopicPartition
from rich.console import Console

from bench.committer_line import CommitterLine, Gate
from bench.figures import Figure, median
from tidegate.delta.actions import Add
from tidegate.pipeline.codec import PRODUCER, encode
from tidegate.pipeline.published import TableRecord
from tidegate.producers import draft
from tidegate.runtime.clock import SystemClock, new_id
from tidegate.runtime.kafka.settings import KafkaSettings, for_librdkafka

FLOOD: Final = 40_000
FLOOD_BYTES: Final = 2_000
QUIET: Final = 20
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
        at = TopicPartition(kafka.topics.outcomes, table.topic_partition)
        at.offset = self._consumer.get_watermark_offsets(at, timeout=PATIENCE_S)[1]
        self._consumer.assign([at])

    def send(self, table: TableRecord, who: str, value: bytes, proposal_id: UUID) -> bytes:
        """Send a proposal; return the key of its outcome."""
        named = [("format", b"proposal/1"), ("proposal_id", str(proposal_id).encode())]
        self._producer.produce(
            table.proposals_topic,
            value=value,
            key=str(table.table).encode(),
            partition=table.topic_partition,
            headers=[*named, (PRODUCER, who.encode())],
        )
        self._producer.poll(0)
        return str(proposal_id).encode()

    def flush(self) -> None:
        """Wait until all is durable."""
        self._producer.flush(PATIENCE_S)

    def outcomes(self) -> Iterator[tuple[bytes, dict[str, Any]]]:
        """Yield outcomes as they come, for as long as patience lasts."""
        ends_s = time.perf_counter() + PATIENCE_S
        while time.perf_counter() < ends_s:
            for one in self._consumer.consume(500, 0.05):
                key, value = one.key(), one.value()
                if not one.error() and key is not None and value is not None:
                    yield key, json.loads(value)

    def wait_for(self, key: bytes) -> dict[str, Any]:
        """Return one outcome."""
        return next(told for found, told in self.outcomes() if found == key)

    def close(self) -> None:
        """Let go of the broker."""
        self._consumer.close()


def append(table: TableRecord, read_version: int, size_bytes: int = 0) -> tuple[bytes, UUID]:
    """Return the bytes of an append of one file, as many as are wanted, and its id."""
    own = new_id(_CLOCK)
    stats = {"numRecords": 1, "minValues": {"name": ""}, "nullCount": {"id": 0}}
    made = b""
    for length in (0, max(0, size_bytes)):
        stats["minValues"] = {"name": "x" * max(0, length - len(made) * bool(length))}
        add = Add(
            path=f"month=1/part-{own}.parquet",
            partition_values={"month": "1"},
            size=1000,
            modification_time=_CLOCK.now_ms(),
            data_change=True,
            stats=json.dumps(stats),
        )
        target = draft.Target(table.table, table.table_root, read_version, table.table_id)
        made = encode(draft.append(target, draft.Stamp(own, _CLOCK.now_ms()), [add]))
    return made, own


def memory_mib(gate: Gate) -> float:
    """Return the most memory that a committer's process has taken."""
    status = Path(f"/proc/{gate.service.child.pid}/status").read_text(encoding="ascii")
    [line] = [line for line in status.splitlines() if line.startswith("VmHWM")]
    return int(line.split()[1]) / 1024


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
        other = line.gate.table(line.local_root(f"beside-flood-{number}"))
        asking = Asking(line.gate.kafka, other)
        for _ in range(QUIET):
            began_s = time.perf_counter()
            asking.wait_for(asking.send(other, "quiet", *append(other, 0)))
            self.quiet_s.append(time.perf_counter() - began_s)
        flood = [append(flooded, 0, FLOOD_BYTES) for _ in range(FLOOD)]
        waiting = {asking.send(flooded, "flood", *one) for one in flood}
        asking.flush()
        began_s = time.perf_counter()
        key = asking.send(other, "quiet", *append(other, 0))
        for found, told in asking.outcomes():
            assert told["status"] == "committed", told
            if found == key:
                self.first_s.append(time.perf_counter() - began_s)
                answered = FLOOD - len(waiting)
            waiting.discard(found)
            if not waiting:
                break
        self.drained_s.append(time.perf_counter() - began_s)
        self.memory.append(memory_mib(line.gate))
        asking.close()
        _console.print(
            f"behind a flood: first answer after {self.first_s[-1]:.2f} s, when {answered} of it "
            f"had theirs; all took {self.drained_s[-1]:.1f} s; {self.memory[-1]:.0f} MiB"
        )

    def figures(self) -> list[Figure]:
        """Return how long the other table's first answer took."""
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
            )
        ]
