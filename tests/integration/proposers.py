"""Writers for the tests of whole services: real files, real proposals, one thread each."""

import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from tidegate_delta.log.actions import Add, Metadata, Protocol
from tidegate_delta.schema.arrow_types import from_arrow
from tidegate_delta.schema.types import format_schema
from tidegate_messages.outcome import Outcome
from tidegate_messages.proposal import Proposal
from tidegate_messages.published_records import TableRecord
from tidegate_runtime.client import proposal_builders
from tidegate_runtime.client.client import Client
from tidegate_runtime.clock import SystemClock, new_id
from tidegate_runtime.kafka.client_protocols import Record, TopicPartition
from tidegate_runtime.kafka.confluent_bus import KafkaBus
from tidegate_runtime.kafka.settings import KafkaSettings

CLOCK = SystemClock()
TIMEOUT_S = 180.0
"""How long a writer awaits an outcome; nothing takes so long but a fault of ours, or a machine
that is busy with something else.
"""

SCHEMA = pa.schema([("writer", pa.string()), ("number", pa.int64())])


def create_table(
    kafka: KafkaSettings, folder: Path, configuration: dict[str, str] | None = None
) -> TableRecord:
    """Create an empty table by a proposal and return its registration."""
    with Client(KafkaBus(kafka, "test"), kafka.topics, patience_s=3.0) as client:
        outcome = client.propose(creation(folder, configuration))
        assert outcome.status == "committed", outcome
        return client.require(folder.as_uri())


def creation(folder: Path, configuration: dict[str, str] | None = None) -> Proposal:
    """Return the proposal to create an empty table."""
    target = proposal_builders.Target(new_id(CLOCK), folder.as_uri(), name=folder.name)
    metadata = Metadata(
        id=str(new_id(CLOCK)),
        schema_string=format_schema(from_arrow(SCHEMA)),
        configuration=configuration or {},
    )
    protocol = Protocol(min_reader_version=1, min_writer_version=2)
    stamp = proposal_builders.Stamp(new_id(CLOCK), CLOCK.now_ms())
    return proposal_builders.create(target, stamp, protocol, metadata)


def write_file(folder: Path, writer: str, number: int) -> Add:
    """Write a data file of one row and return its action."""
    name = f"part-{writer}-{number:06d}-{new_id(CLOCK)}.parquet"
    pq.write_table(pa.table([[writer], [number]], schema=SCHEMA), folder / name)
    row = {"writer": writer, "number": number}
    stats = {
        "numRecords": 1,
        "minValues": row,
        "maxValues": row,
        "nullCount": dict.fromkeys(row, 0),
    }
    return Add(
        path=name,
        partition_values={},
        size=(folder / name).stat().st_size,
        modification_time=CLOCK.now_ms(),
        data_change=True,
        stats=orjson.dumps(stats).decode(),
    )


@dataclass
class Proposer:
    """A writer that appends rows one proposal at a time, and remembers the outcomes.

    It writes `count` rows, or writes until `enough` is set. It pauses while `may_write` is not set.
    `slowest_s` is how long it waited for an outcome at most.
    """

    kafka: KafkaSettings
    table: TableRecord
    name: str
    count: int
    enough: threading.Event = field(default_factory=threading.Event)
    may_write: threading.Event | None = None
    outcomes: dict[int, Outcome] = field(default_factory=dict)
    failure: Exception | None = None
    slowest_s: float = 0.0

    def __post_init__(self) -> None:
        self._thread = threading.Thread(target=self._run, name=self.name, daemon=True)

    def start(self) -> None:
        """Start the writer."""
        self._thread.start()

    def join(self, timeout_s: float) -> None:
        """Wait for the last outcome."""
        self._thread.join(timeout_s)
        assert not self._thread.is_alive(), f"{self.name} has {len(self.outcomes)} outcomes only"
        if self.failure is not None:
            raise self.failure

    def _run(self) -> None:
        try:
            self._append()
        except Exception as error:  # join() raises whatever ends this thread
            self.failure = error
            raise

    def _append(self) -> None:
        folder = Path(self.table.table_root.removeprefix("file://"))
        version = 0
        with Client(KafkaBus(self.kafka, self.name), self.kafka.topics, patience_s=3.0) as client:
            for number in range(self.count):
                if self.may_write is not None:
                    self.may_write.wait()
                if self.enough.is_set():
                    self.count = number
                    break
                target = proposal_builders.Target(
                    self.table.table, self.table.table_root, version, self.table.table_id
                )
                stamp = proposal_builders.Stamp(new_id(CLOCK), CLOCK.now_ms())
                add = write_file(folder, self.name, number)
                began_s = time.monotonic()
                outcome = client.propose(
                    proposal_builders.append(target, stamp, [add]), timeout_s=TIMEOUT_S
                )
                self.slowest_s = max(self.slowest_s, time.monotonic() - began_s)
                self.outcomes[number] = outcome
                version = outcome.version or version


def append_with(
    kafka: KafkaSettings,
    table: TableRecord,
    writers: int,
    count: int,
    enough: threading.Event | None = None,
    may_write: threading.Event | None = None,
) -> list[Proposer]:
    """Start writers with so many rows each, or until `enough` is set."""
    until = enough or threading.Event()
    proposers = [Proposer(kafka, table, f"w{n}", count, until, may_write) for n in range(writers)]
    for proposer in proposers:
        proposer.start()
    return proposers


def all_outcomes(proposers: Sequence[Proposer]) -> list[Outcome]:
    """Return every outcome that the writers received."""
    return [outcome for proposer in proposers for outcome in proposer.outcomes.copy().values()]


def read_topic(
    kafka: KafkaSettings, topic: str, partition: int = 0, start: int = 0
) -> Iterator[Record]:
    """Yield the records of a partition from an offset on."""
    reader = KafkaBus(kafka, "test").reader()
    at = TopicPartition(topic, partition)
    following, end = reader.bounds(at)
    following = max(following, type(end)(start))
    while following < end:
        records = reader.read(at, following, 5.0)
        if not records:
            break
        yield from records
        following = type(end)(records[-1].offset + 1)
    reader.close()


def values(kafka: KafkaSettings, topic: str) -> list[dict[str, Any]]:
    """Return the JSON values on partition 0 of a topic."""
    return [
        orjson.loads(record.value)
        for record in read_topic(kafka, topic)
        if record.value is not None
    ]


def committed_offset(kafka: KafkaSettings, group: str) -> int:
    """Return the group's next offset on the proposals topic, 0 if it has none."""
    consumer = KafkaBus(kafka, "test").consumer(group, [])
    result = consumer.committed(TopicPartition(kafka.topics.proposals, 0))
    consumer.close()
    return result or 0
