"""Change events a second, beside what the plain producer sends of ready-made records."""

import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from bench.figures import Figure, at_least, median
from bench.limits import produce_per_s
from tidegate_delta.log.actions import Add, Metadata, Protocol
from tidegate_delta.schema.arrow_types import from_arrow
from tidegate_delta.schema.types import format_schema
from tidegate_demo import proof_checks
from tidegate_local.local_stack import LocalStack
from tidegate_runtime.client import proposal_builders
from tidegate_runtime.client.client import Client, result
from tidegate_runtime.clock import SystemClock, new_id
from tidegate_runtime.kafka.client_protocols import Record, TopicPartition
from tidegate_runtime.kafka.confluent_bus import KafkaBus

ROWS = 300_000
CLOCK = SystemClock()
TIMEOUT_S = 180.0


def figures(stack: LocalStack, folder: Path, rounds: int) -> list[Figure]:
    """Return the figure: one append of many rows a round, timed on the change topic itself."""
    tidegate_rates, producer_rates = [], []
    for number in range(rounds):
        name = f"changing{number}"
        _append(stack, folder / "tables" / name)
        events = _await(stack, name)
        span_s = (events[-1].timestamp_ms - events[0].timestamp_ms) / 1000
        tidegate_rates.append(len(events) / max(span_s, 0.001))
        producer_rates.append(produce_per_s(stack.kafka, events))
    us, most = median(tidegate_rates), median(producer_rates)
    return [
        Figure(
            "change events/s, exactly once",
            f"{us:,.0f}/s",
            f"plain producer, ready bytes and headers {most:,.0f}/s",
            us / most,
            ">= 0.45 (F3)",
            "first to last event by the broker's clock; a row is read, encoded and keyed",
            is_met=us / most >= 0.45,
            recorded=at_least(0.36),
        )
    ]


def _append(stack: LocalStack, folder: Path) -> None:
    rows = pa.table(
        {
            "id": pa.array(range(ROWS), pa.int64()),
            "kind": pa.array([n % 100 for n in range(ROWS)], pa.int32()),
            "amount": pa.array([n * 0.5 for n in range(ROWS)]),
            "note": pa.array([f"note {n}" for n in range(ROWS)]),
        }
    )
    metadata = Metadata(
        id=str(new_id(CLOCK)),
        schema_string=format_schema(from_arrow(rows.schema)),
        configuration={"tidegate.cdc.keyColumns": "id"},
    )
    protocol = Protocol(min_reader_version=1, min_writer_version=2)
    with Client(KafkaBus(stack.kafka, "bench"), stack.kafka.topics) as client:
        target = proposal_builders.Target(new_id(CLOCK), folder.as_uri(), name=folder.name)
        stamp = proposal_builders.Stamp(new_id(CLOCK), CLOCK.now_ms())
        result(client.propose(proposal_builders.create(target, stamp, protocol, metadata)))
        pq.write_table(rows, folder / "rows.parquet")
        add = Add(
            path="rows.parquet",
            partition_values={},
            size=(folder / "rows.parquet").stat().st_size,
            modification_time=CLOCK.now_ms(),
            data_change=True,
            stats=f'{{"numRecords":{ROWS}}}',
        )
        target = proposal_builders.Target(target.table, target.root, 0, metadata.id)
        stamp = proposal_builders.Stamp(new_id(CLOCK), CLOCK.now_ms())
        result(client.propose(proposal_builders.append(target, stamp, [add])))


def _await(stack: LocalStack, name: str) -> list[Record]:
    bus, topics = KafkaBus(stack.kafka, "bench"), stack.kafka.topics
    with Client(bus, topics) as client:
        table = client.require(name)
    until_s = time.monotonic() + TIMEOUT_S
    while proof_checks.positions(bus, topics).get(str(table.table), {}).get("version", -1) < 1:
        assert time.monotonic() < until_s, f"the changes of {name} did not come"
        time.sleep(0.5)
    reader, topic_partition = bus.reader(), TopicPartition(topics.changes(name), 0)
    events: list[Record] = []
    while len(events) < ROWS:
        start = type(reader.bounds(topic_partition)[0])(events[-1].offset + 1 if events else 0)
        events += reader.read(topic_partition, start, 5.0)
        assert time.monotonic() < until_s, f"{len(events)} of {ROWS} events"
    reader.close()
    return events
