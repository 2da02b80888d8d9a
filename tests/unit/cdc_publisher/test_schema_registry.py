"""Formats whose schemas stand in a registry, read with confluent-kafka's deserializers."""

import json
from base64 import b64decode
from dataclasses import replace
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer
from confluent_kafka.schema_registry.error import SchemaRegistryError
from confluent_kafka.serialization import MessageField, SerializationContext

from tests.protobuf_records import message_class, of_message, of_record
from tests.unit.cdc_publisher.memory_change_topic import Topic, stream
from tests.unit.cdc_publisher.written_table import WIRE, WrittenTable, rows
from tidegate_cdc_publisher.connect_schema import Layout
from tidegate_cdc_publisher.envelopes import inline_schemas
from tidegate_cdc_publisher.protobuf_encoding import protobuf_encoder, protobuf_schema
from tidegate_cdc_publisher.record_form import Envelope, Format, RecordForm, ValueTypes
from tidegate_cdc_publisher.schema_registry import Registry
from tidegate_delta.errors import InvalidRequest, Unavailable, UnsupportedFeature

NESTED = pa.schema(
    [
        pa.field("id", pa.int64()),
        pa.field("amount", pa.decimal128(10, 2)),
        pa.field("day", pa.date32()),
        pa.field("local", pa.timestamp("us")),
        pa.field("blob", pa.binary()),
        pa.field("tags", pa.list_(pa.string())),
        pa.field("place", pa.struct([("city", pa.string()), ("raw", pa.binary())])),
        pa.field("counts", pa.map_(pa.string(), pa.int32())),
    ]
)
ROW = {
    "id": 1,
    "amount": Decimal("-12.30"),
    "day": date(2024, 2, 29),
    "local": datetime.fromisoformat("2024-02-29T12:00:00.000001"),
    "blob": b"\x00\xff",
    "tags": ["a", None],
    "place": {"city": "Zürich", "raw": b"\x01"},
    "counts": [("x", 1), ("y", None)],
}


def mock() -> tuple[Registry, Any]:
    client = SchemaRegistryClient.new_client({"url": "mock://"})
    return Registry(client, "mock://"), client


def form(record_format: Format, types: ValueTypes | None = None) -> RecordForm:
    return RecordForm(record_format, record_format, types or ValueTypes())


def changed(table: WrittenTable, topic: Topic, **how: Any) -> None:
    """Publish a snapshot, an update and a delete."""
    table.append(rows(1, 2))
    stream(table, topic, **how).catch_up(1)
    table.rewrite(lambda old: [{**row, "price": 9.0} for row in old if row["id"] == 1])
    stream(table, topic, **how).catch_up(2)


def test_avro_records_are_those_of_json(tmp_path: Path) -> None:
    registry, client = mock()
    plain, topic = Topic(), Topic()
    changed(WrittenTable(tmp_path / "plain").create(), plain)
    changed(WrittenTable(tmp_path / "t").create(), topic, form=form("avro"), registry=registry)
    read = AvroDeserializer(client)
    for expected, record in zip(plain.records, topic.records, strict=True):
        key = read(record.key, SerializationContext("cdc.t", MessageField.KEY))
        assert key == json.loads(expected.key or b"")
        value = read(record.value, SerializationContext("cdc.t", MessageField.VALUE))
        result = None if expected.value is None else json.loads(expected.value)
        if result is None:
            assert value is None
            continue
        assert (value["op"], value["before"], value["after"]) == (
            result["op"], result["before"], result["after"],
        )  # fmt: skip
        assert {k: v for k, v in value["source"].items() if v is not None} == result["source"]
    assert sorted(client.get_subjects()) == ["cdc.t-key", "cdc.t-value"]
    schema = json.loads(client.get_latest_version("cdc.t-value").schema.schema_str)
    assert (schema["namespace"], schema["name"]) == ("cdc.t", "Envelope")


def test_avro_has_the_values_of_debeziums_types(tmp_path: Path) -> None:
    registry, client = mock()
    table = nested(tmp_path)
    topic = Topic()
    types = ValueTypes(types="debezium", decimals="precise")
    stream(table, topic, form=form("avro", types), registry=registry).catch_up(1)
    context = SerializationContext("cdc.t", MessageField.VALUE)
    value = AvroDeserializer(client)(topic.records[0].value, context)
    assert value is not None
    assert value["after"] == {
        **ROW,
        "day": 19782,
        "local": 1709208000000001,
        "counts": {"x": 1, "y": None},
    }
    nulls = AvroDeserializer(client)(topic.records[1].value, context)
    assert nulls is not None
    assert nulls["after"] == {"id": 2} | dict.fromkeys([name for name in ROW if name != "id"])


def test_json_with_a_registered_schema_has_the_payload_behind_the_schemas_id(
    tmp_path: Path,
) -> None:
    registry, client = mock()
    table, topic, plain = nested(tmp_path), Topic(), Topic()
    types = ValueTypes(types="debezium", decimals="precise")
    stream(table, plain, form=RecordForm(types=types)).catch_up(1)
    stream(table, topic, form=form("json_schema_registry", types), registry=registry).catch_up(1)
    for record, expected in zip(topic.records, plain.records, strict=True):
        assert record.value is not None
        result, wanted = json.loads(record.value[5:]), json.loads(expected.value or b"")
        assert result["after"] == wanted["after"]
        schema = client.get_schema(int.from_bytes(record.value[1:5], "big"))
        assert schema.schema_type == "JSON"
    body = json.loads(schema.schema_str)
    image = body["properties"]["after"]["oneOf"][1]
    assert body["title"] == "cdc.t.Envelope"
    assert image["properties"]["amount"]["oneOf"][1]["title"].endswith("data.Decimal")
    assert b64decode(result["after"]["blob"] or "") == b""


def nested(tmp_path: Path) -> WrittenTable:
    """Return a table of a row with nested values, and one of nulls."""
    decimal = {pa.decimal128(10, 2): "decimal(10,2)", pa.date32(): "date", pa.binary(): "binary"}
    kinds: dict[Any, Any] = {**WIRE, **decimal, pa.timestamp("us"): "timestamp_ntz"}
    field = {"nullable": True, "metadata": {}}
    inner = [
        {"name": "city", "type": "string", **field},
        {"name": "raw", "type": "binary", **field},
    ]
    kinds[NESTED.field("place").type] = {"type": "struct", "fields": inner}
    array = {"type": "array", "elementType": "string", "containsNull": True}
    kinds[NESTED.field("tags").type] = array
    keyed = {"type": "map", "keyType": "string", "valueType": "integer", "valueContainsNull": True}
    kinds[NESTED.field("counts").type] = keyed
    WIRE.update(kinds)
    table = WrittenTable(tmp_path / "t", schema=NESTED).create()
    features = {"readerFeatures": ["timestampNtz"], "writerFeatures": ["timestampNtz"]}
    protocol = {"minReaderVersion": 3, "minWriterVersion": 7, **features}
    table.append([ROW, {"id": 2}])
    log = table.folder / "_delta_log" / f"{0:020d}.json"
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    result = [{"protocol": protocol} if "protocol" in line else line for line in lines]
    log.write_text("".join(json.dumps(line) + "\n" for line in result))
    return table


def without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: without_nulls(inner) for key, inner in value.items() if inner is not None}
    return value


@pytest.mark.parametrize("envelope", ["debezium", "flat", "delta"])
def test_protobuf_records_are_those_of_json(tmp_path: Path, envelope: Envelope) -> None:
    registry, client = mock()
    plain, topic = Topic(), Topic()
    json_form = RecordForm(envelope=envelope)
    changed(WrittenTable(tmp_path / "plain").create(), plain, form=json_form)
    protobuf = replace(json_form, value_format="protobuf", key_format="protobuf")
    changed(WrittenTable(tmp_path / "t").create(), topic, form=protobuf, registry=registry)
    for expected, record in zip(plain.records, topic.records, strict=True):
        wanted = [text and json.loads(text) for text in (expected.key, expected.value)]
        read = [
            of_record(client, "cdc.t", record.key, MessageField.KEY),
            of_record(client, "cdc.t", record.value, MessageField.VALUE),
        ]
        for value in (*wanted, *read):
            if isinstance(value, dict):
                value.pop("ts_ms", None)
        assert [*map(without_nulls, read)] == [*map(without_nulls, wanted)]
    assert {"cdc.t-key", "cdc.t-value"} == set(client.get_subjects())


@pytest.mark.parametrize("types", [ValueTypes(), ValueTypes(types="debezium", decimals="string")])
def test_protobuf_distinguishes_null_from_empty_at_every_depth(
    tmp_path: Path, types: ValueTypes
) -> None:
    registry, client = mock()
    table, topic, plain = nested(tmp_path), Topic(), Topic()
    table.append([{"id": 3, "tags": [], "counts": [], "place": {"city": None, "raw": b""}}])
    stream(table, plain, form=RecordForm(types=types)).catch_up(2)
    stream(table, topic, form=form("protobuf", types), registry=registry).catch_up(2)
    assert len(topic.records) >= 3
    for record, expected in zip(topic.records, plain.records, strict=True):
        read = of_record(client, "cdc.t", record.value, MessageField.VALUE)
        wanted = json.loads(expected.value or b"null")
        assert (read and read["after"]) == (wanted and wanted["after"])


def test_protobuf_numbers_a_mapped_column_by_its_field_id() -> None:
    columns = pa.schema(
        [
            pa.field("b", pa.int64()),
            pa.field("s", pa.list_(pa.struct([("x", pa.string()), ("from", pa.int32())]))),
        ]
    )
    ids = {("b",): 3, ("s",): 19_000, ("s", "element", "x"): 4, ("s", "element", "from"): 5}
    schemas = inline_schemas(form("protobuf"), "1-t", *[Layout(columns, ["b"], ids)] * 2)
    assert schemas.value is not None
    file = protobuf_schema(json.loads(schemas.value))
    assert file.package == "_1_t"
    image = next(message for message in file.message_type if message.name == "Value")
    assert {field.name: field.number for field in image.field} == {"b": 19, "s": 20_016}
    item = image.nested_type[0].nested_type[0].nested_type[0]
    assert {field.name: field.number for field in item.field} == {"x": 20, "from": 21}
    envelope = {field.name: field.number for field in file.message_type[0].field}
    assert envelope == {
        "before": 1, "after": 2, "source": 3, "op": 4, "ts_ms": 5, "transaction": 6,
    }  # fmt: skip
    payload = {"op": "c", "after": {"b": 1, "s": [{"x": "y", "from": 2}, None]}, "source": {}}
    encode = protobuf_encoder(file, json.loads(schemas.value))
    message = of_message(message_class(file).FromString(*encode([json.dumps(payload).encode()])))
    assert message["after"] == payload["after"]


def test_protobuf_refuses_a_decimal_as_bytes_without_a_scale(tmp_path: Path) -> None:
    registry, _ = mock()
    types = ValueTypes(types="debezium", decimals="precise")
    with pytest.raises(UnsupportedFeature, match=r"'amount'.*decimal_handling_mode"):
        stream(nested(tmp_path), Topic(), form=form("protobuf", types), registry=registry).catch_up(
            1
        )


@pytest.mark.parametrize("record_format", ["avro", "protobuf"])
def test_a_column_that_a_format_cannot_name_is_refused(
    tmp_path: Path, record_format: Format
) -> None:
    registry, _ = mock()
    schema = pa.schema([("id", pa.int64()), ("a b", pa.string())])
    table = WrittenTable(tmp_path / "t", schema=schema).create()
    table.append([{"id": 1, "a b": "x"}])
    with pytest.raises(UnsupportedFeature, match="'a b'"):
        stream(table, Topic(), form=form(record_format), registry=registry).catch_up(1)


@pytest.mark.parametrize(("status", "kind"), [(409, InvalidRequest), (500, Unavailable)])
def test_what_a_registry_refuses_is_an_error_with_a_remedy(
    tmp_path: Path, status: int, kind: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    registry, client = mock()

    def refuse(*_: object) -> int:
        raise SchemaRegistryError(status, 1, "no")

    monkeypatch.setattr(client, "register_schema", refuse)
    table = WrittenTable(tmp_path / "t").create()
    table.append(rows(1))
    with pytest.raises(kind, match=r"cdc\.t-"):
        stream(table, Topic(), form=form("avro"), registry=registry).catch_up(1)
