"""Change records in formats with a registry, beside confluent-kafka's serializer, row by row."""

import time
from collections.abc import Callable
from uuid import UUID

import orjson
import pyarrow as pa
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from bench.figures import Figure, at_least, median
from tidegate_cdc_publisher.change_batch import Batch, SourceBlock
from tidegate_cdc_publisher.connect_schema import Layout
from tidegate_cdc_publisher.envelopes import inline_schemas
from tidegate_cdc_publisher.record_encoding import records
from tidegate_cdc_publisher.record_form import Format, RecordForm
from tidegate_cdc_publisher.row_diff import images
from tidegate_cdc_publisher.schema_registry import Registry

ROWS = 100_000
BATCH_ROWS = 5_000
TOPIC = "cdc.bench"
RECORDED: dict[Format, float] = {"avro": 4.2, "protobuf": 3.6}


def figures(rounds: int) -> list[Figure]:
    """Return a figure for each format: inserts of four columns in Debezium's envelope, with keys,
    from Arrow rows to the bytes of the records. All by CPU time, in turns.
    """
    rows = pa.table(
        {
            "id": pa.array(range(ROWS), pa.int64()),
            "kind": pa.array([n % 100 for n in range(ROWS)], pa.int32()),
            "amount": pa.array([n * 0.5 for n in range(ROWS)]),
            "note": pa.array([f"note {n}" for n in range(ROWS)]),
        }
    )
    goals: dict[Format, float | None] = {"avro": 3.0, "protobuf": None}
    rates: dict[str, list[float]] = {name: [] for name in ("serializer", *goals)}
    for _ in range(rounds):
        rates["serializer"].append(_serializer_rate(rows))
        for record_format in goals:
            rates[record_format].append(_our_rate(rows, record_format))
    peer = median(rates["serializer"])
    return [
        Figure(
            f"change records/s in {record_format}, by CPU time",
            f"{median(rates[record_format]):,.0f}/s",
            f"confluent-kafka's AvroSerializer, row by row {peer:,.0f}/s",
            median(rates[record_format]) / peer,
            f">= {goal:g}" if goal else "",
            "from Arrow rows; the peer's from dicts that are ready",
            is_met=goal is None or median(rates[record_format]) / peer >= goal,
            recorded=at_least(RECORDED[record_format]),
        )
        for record_format, goal in goals.items()
    ]


def _our_rate(rows: pa.Table, record_format: Format) -> float:
    client = SchemaRegistryClient.new_client({"url": "mock://"})
    origin = _origin(rows, record_format, Registry(client, "mock://"))

    def encode() -> None:
        for start in range(0, ROWS, BATCH_ROWS):
            some = images(rows.slice(start, BATCH_ROWS), ["id"], origin.form)
            records(origin, Batch("c", start, after=some), 0, "with")

    return ROWS / _cpu_s(encode)


def _serializer_rate(rows: pa.Table) -> float:
    client = SchemaRegistryClient.new_client({"url": "mock://"})
    origin = _origin(rows, "avro", Registry(client, "mock://"))
    plain = _origin(rows, "json", None)
    batch = Batch("c", 0, after=images(rows, ["id"], plain.form))
    written = records(plain, batch, 0, "with")
    events = [
        (orjson.loads(k or b""), orjson.loads(v or b""))
        for k, v in zip(written.keys, written.values, strict=True)
    ]
    records(origin, batch.slice(0, 1), 0, "with")
    write: dict[str, AvroSerializer] = {
        part: AvroSerializer(
            client,
            client.get_latest_version(f"{TOPIC}-{part}").schema.schema_str,
        )
        for part in ("key", "value")
    }
    of_key = SerializationContext(TOPIC, MessageField.KEY)
    of_value = SerializationContext(TOPIC, MessageField.VALUE)

    def encode() -> None:
        for key, value in events:
            write["key"](key, of_key)
            write["value"](value, of_value)

    return ROWS / _cpu_s(encode)


def _origin(rows: pa.Table, record_format: Format, registry: Registry | None) -> SourceBlock:
    form = RecordForm(record_format, record_format)
    layout = Layout(rows.schema, ["id"])
    schemas = inline_schemas(form, TOPIC, layout, layout)
    return SourceBlock(
        UUID(int=1), "bench", "tidegate", 1, 0, {}, schemas, form, topic=TOPIC, registry=registry
    )


def _cpu_s(work: Callable[[], None]) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began
