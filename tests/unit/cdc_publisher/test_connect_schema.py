"""Records with an inline Kafka Connect schema, type by type, whole."""

import json
import random
from base64 import b64encode
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest

from tests.connect_records import payload
from tests.unit.cdc_publisher.memory_change_topic import Topic, stream
from tests.unit.cdc_publisher.written_table import WrittenTable, change_at_random, rows
from tidegate_cdc_publisher.change_batch import Batch, Op, SourceBlock
from tidegate_cdc_publisher.change_records import CHUNK_BYTES_MAX, ChangeRecord
from tidegate_cdc_publisher.connect_schema import Layout, layout
from tidegate_cdc_publisher.envelopes import inline_schemas
from tidegate_cdc_publisher.json_rows import row_texts
from tidegate_cdc_publisher.record_encoding import records
from tidegate_cdc_publisher.record_form import Decimals, RecordForm, Structs, ValueTypes
from tidegate_cdc_publisher.row_diff import compare, images
from tidegate_delta.errors import UnsupportedFeature
from tidegate_delta.schema.column_mapping import FIELD_ID, ColumnMappingMode
from tidegate_delta.schema.types import ArrayType, DataType, PrimitiveType, StructField, StructType

TABLE = UUID(int=5)
WITH_SCHEMA = RecordForm("json_schema", "json_schema")


def in_debeziums_types(decimals: Decimals = "precise", structs: Structs = "struct") -> RecordForm:
    """Return the form of records with a schema and Debezium's types."""
    types = ValueTypes("debezium", decimals, structs)
    return RecordForm("json_schema", "json_schema", types)


def sent(table: pa.Table, op: Op = "c", form: RecordForm = WITH_SCHEMA) -> list[ChangeRecord]:
    """Return the records of rows whose first column is the key."""
    keys = table.schema.names[:1]
    schemas = inline_schemas(form, "cdc.t", *[Layout(table.schema, keys)] * 2)
    origin = SourceBlock(TABLE, "t", "tidegate", 7, 1_500, {"operation": "WRITE"}, schemas)
    image = images(table, keys, form)
    before = image if op in ("u", "d") else None
    after = image if op in ("c", "u", "r") else None
    return list(records(origin, Batch(op, 0, before, after), 99, "with"))


def column(values: list[Any], kind: pa.DataType, form: RecordForm = WITH_SCHEMA) -> tuple[Any, Any]:
    """Return the schema of a column in `after`, and its values."""
    table = pa.table({"c": pa.array(values, kind)})
    result = [record.value for record in sent(table, form=form)]
    image = json.loads(result[0] or b"")["schema"]["fields"][1]
    return image["fields"][0], [payload(value)["after"]["c"] for value in result]


GOLDEN = [
    (pa.int8(), -128, {"type": "int8"}, -128),
    (pa.int16(), 300, {"type": "int16"}, 300),
    (pa.int32(), -1, {"type": "int32"}, -1),
    (pa.int64(), 2**63 - 1, {"type": "int64"}, 2**63 - 1),
    (pa.float32(), 0.5, {"type": "float"}, 0.5),
    (pa.float64(), 1.0, {"type": "double"}, 1.0),
    (pa.bool_(), True, {"type": "boolean"}, True),
    (pa.string(), 'é"', {"type": "string"}, 'é"'),
    (pa.binary(), b"\x00\xff", {"type": "bytes"}, "AP8="),
    (pa.null(), None, {"type": "string"}, None),
    (pa.date32(), date(2013, 1, 31), {"type": "string"}, "2013-01-31"),
    (
        pa.timestamp("us", "UTC"),
        datetime(2013, 1, 1, 10, tzinfo=UTC),
        {"type": "string"},
        "2013-01-01T10:00:00.000000Z",
    ),
    (pa.timestamp("us"), datetime(2013, 1, 1), {"type": "string"}, "2013-01-01T00:00:00.000000"),  # noqa: DTZ001
    (pa.timestamp("ns"), 1, {"type": "string"}, "1970-01-01T00:00:00.000000001"),
    (pa.decimal128(10, 2), Decimal("12.30"), {"type": "string"}, "12.30"),
    (
        pa.list_(pa.int32()),
        [1, None],
        {"type": "array", "items": {"type": "int32", "optional": True}},
        [1, None],
    ),
    (
        pa.map_(pa.int64(), pa.bool_()),
        [(7, False)],
        {
            "type": "map",
            "keys": {"type": "string", "optional": False},
            "values": {"type": "boolean", "optional": True},
        },
        {"7": False},
    ),
    (
        pa.struct([pa.field("a", pa.int32(), nullable=False), pa.field("b", pa.string())]),
        {"a": 1, "b": None},
        {
            "type": "struct",
            "fields": [
                {"type": "int32", "optional": False, "field": "a"},
                {"type": "string", "optional": True, "field": "b"},
            ],
        },
        {"a": 1, "b": None},
    ),
]


DATE = {"type": "int32", "name": "io.debezium.time.Date", "version": 1}
ZONED = {"type": "string", "name": "io.debezium.time.ZonedTimestamp", "version": 1}
MICROS = {"type": "int64", "name": "io.debezium.time.MicroTimestamp", "version": 1}
NANOS = {"type": "int64", "name": "io.debezium.time.NanoTimestamp", "version": 1}
JSON = {"type": "string", "name": "io.debezium.data.Json", "version": 1}


def decimal(precision: int, scale: int) -> dict[str, Any]:
    """Return the schema of a decimal in `precise`."""
    digits = {"scale": str(scale), "connect.decimal.precision": str(precision)}
    name = "org.apache.kafka.connect.data.Decimal"
    return {"type": "bytes", "name": name, "version": 1, "parameters": digits}


def base64(*octets: int) -> str:
    """Return bytes in base64."""
    return b64encode(bytes(octets)).decode()


GOLDEN_OF_DEBEZIUM = [
    (pa.date32(), date(1970, 1, 2), DATE, 1),
    (pa.date32(), date(1969, 12, 31), DATE, -1),
    (
        pa.timestamp("us", "UTC"),
        datetime(2013, 1, 1, 10, tzinfo=UTC),
        ZONED,
        "2013-01-01T10:00:00.000000Z",
    ),
    (pa.timestamp("us"), datetime(1970, 1, 1, 0, 0, 1, 5), MICROS, 1_000_005),  # noqa: DTZ001
    (pa.timestamp("us"), datetime(1969, 12, 31, 23, 59, 59), MICROS, -1_000_000),  # noqa: DTZ001
    (pa.timestamp("ns"), 7, NANOS, 7),
    (pa.timestamp("ns", "UTC"), 7, ZONED, "1970-01-01T00:00:00.000000007Z"),
    (pa.decimal128(10, 2), Decimal("0.00"), decimal(10, 2), base64(0)),
    (pa.decimal128(10, 2), Decimal("1.27"), decimal(10, 2), base64(127)),
    (pa.decimal128(10, 2), Decimal("1.28"), decimal(10, 2), base64(0, 128)),
    (pa.decimal128(10, 2), Decimal("-1.28"), decimal(10, 2), base64(128)),
    (pa.decimal128(10, 2), Decimal("-1.29"), decimal(10, 2), base64(255, 127)),
    (
        pa.decimal128(38, 10),
        Decimal("-9999999999999999999999999999.9999999999"),
        decimal(38, 10),
        b64encode((1 - 10**38).to_bytes(16, "big", signed=True)).decode(),
    ),
    (
        pa.list_(pa.date32()),
        [date(1970, 1, 3)],
        {"type": "array", "items": {**DATE, "optional": True}},
        [2],
    ),
    (pa.int64(), 5, {"type": "int64"}, 5),
    (pa.binary(), b"\xff", {"type": "bytes"}, "/w=="),
]


@pytest.mark.parametrize(("kind", "value", "schema", "expected"), GOLDEN_OF_DEBEZIUM)
def test_a_column_in_debeziums_types(
    kind: pa.DataType, value: Any, schema: dict[str, Any], expected: Any
) -> None:
    result, values = column([None, value], kind, in_debeziums_types())
    assert result == {**schema, "optional": True, "field": "c"}
    assert values == [None, expected]


@pytest.mark.parametrize(
    ("decimals", "schema", "expected"),
    [("string", {"type": "string"}, "12.30"), ("double", {"type": "double"}, 12.3)],
)
def test_decimals_are_texts_or_doubles_where_set(
    decimals: Decimals, schema: dict[str, Any], expected: Any
) -> None:
    form = in_debeziums_types(decimals=decimals)
    result, values = column([Decimal("12.30"), None], pa.decimal128(10, 2), form)
    assert result == {**schema, "optional": True, "field": "c"}
    assert values == [expected, None]


@pytest.mark.parametrize("number", ["0.12345678901234567890", "9007199254740993", "-0.3", "1e17"])
def test_a_decimal_becomes_the_nearest_double(number: str) -> None:
    form = in_debeziums_types(decimals="double")
    assert column([Decimal(number)], pa.decimal128(38, 20), form)[1] == [float(number)]


NESTED = [
    (pa.struct([("d", pa.date32())]), {"d": date(2013, 1, 31)}, '{"d":"2013-01-31"}'),
    (pa.map_(pa.string(), pa.int8()), [("a", 1)], '{"a":1}'),
    (pa.list_(pa.struct([("a", pa.int8())])), [{"a": 1}, None], '[{"a":1},null]'),
    (pa.list_(pa.list_(pa.int8())), [[1], []], "[[1],[]]"),
]


@pytest.mark.parametrize(("kind", "value", "expected"), NESTED)
def test_nested_values_are_json_in_a_text_where_set(
    kind: pa.DataType, value: Any, expected: str
) -> None:
    result, values = column([value, None], kind, in_debeziums_types(structs="json"))
    assert result == {**JSON, "optional": True, "field": "c"}
    assert values == [expected, None]


def test_the_types_inside_a_struct_are_debeziums_too() -> None:
    kind = pa.struct([("d", pa.date32()), ("n", pa.decimal128(4, 1))])
    value = {"d": date(1970, 1, 2), "n": Decimal("0.1")}
    result, values = column([None, value], kind, in_debeziums_types())
    assert [item["name"] for item in result["fields"]] == [DATE["name"], decimal(4, 1)["name"]]
    assert values == [None, {"d": 1, "n": base64(1)}]


def test_a_slice_of_decimals_is_written_as_the_slice() -> None:
    numbers = pa.array([Decimal("0.1"), Decimal("0.2"), None, Decimal("0.4")], pa.decimal128(4, 1))
    rows = pa.table({"n": numbers}).slice(1)
    texts = row_texts(rows, types=ValueTypes("debezium", "precise")).to_pylist()
    assert [json.loads(text)["n"] for text in texts] == [base64(2), None, base64(4)]


def test_debeziums_types_need_no_schema() -> None:
    table = pa.table({"c": pa.array([1], pa.date32())})
    form = RecordForm(types=ValueTypes("debezium", "precise"))
    (one,) = sent(table, form=form)
    assert one.key == b'{"c":1}'
    assert json.loads(one.value or b"")["after"] == {"c": 1}


def test_rows_that_differ_only_in_what_a_type_loses_are_an_update() -> None:
    kind = pa.schema([("k", pa.int8()), ("n", pa.decimal128(38, 20))])
    old, new = (
        pa.Table.from_pylist([{"k": 1, "n": Decimal(number)}], kind)
        for number in ("0.1", "0.10000000000000000001")
    )
    changes = compare(old, new, ["k"], RecordForm(types=ValueTypes("debezium", "double")))
    assert changes.updated_before.texts.to_pylist() == ['{"k":1,"n":0.1}']
    assert changes.updated_after.texts.to_pylist() == ['{"k":1,"n":0.1}']


@pytest.mark.parametrize(("kind", "value", "schema", "expected"), GOLDEN)
def test_a_column_has_the_connect_type_of_its_values(
    kind: pa.DataType, value: Any, schema: dict[str, Any], expected: Any
) -> None:
    result, values = column([None, value], kind)
    assert result == {**schema, "optional": True, "field": "c"}
    assert values == [None, expected]


def test_a_record_is_written_whole_with_its_schemas() -> None:
    table = pa.table(
        {"k": [1], "v": ["a"]},
        schema=pa.schema([pa.field("k", pa.int64(), nullable=False), ("v", pa.string())]),
    )
    deleted, tombstone = sent(table, "d")
    key = {
        "type": "struct",
        "fields": [{"type": "int64", "optional": False, "field": "k"}],
        "name": "cdc.t.Key",
        "optional": False,
    }
    assert json.loads(deleted.key or b"") == {"schema": key, "payload": {"k": 1}}
    assert (tombstone.key, tombstone.value) == (deleted.key, None)
    schema = json.loads(deleted.value or b"")["schema"]
    assert (schema["name"], schema["optional"]) == ("cdc.t.Envelope", False)
    image = {
        "type": "struct",
        "fields": [
            {"type": "int64", "optional": False, "field": "k"},
            {"type": "string", "optional": True, "field": "v"},
        ],
        "name": "cdc.t.Value",
        "optional": True,
    }
    before, after, source, *others = schema["fields"]
    assert (before, after) == ({**image, "field": "before"}, {**image, "field": "after"})
    assert (source["name"], source["field"]) == ("cdc.t.Source", "source")
    assert [other["field"] for other in others] == ["op", "ts_ms", "transaction"]
    result = payload(deleted.value)
    plain = json.loads(sent(table, "d", RecordForm())[0].value or b"")
    assert result == plain
    assert result["before"] == {"k": 1, "v": "a"}


@pytest.mark.parametrize("op", ["c", "u", "d", "r"])
def test_a_value_of_each_kind_fits_its_schema(op: Op) -> None:
    table = pa.table({"k": [1, 2], "v": ["a", None]})
    result = [record.value for record in sent(table, op) if record.value is not None]
    assert [payload(value)["op"] for value in result] == [op, op]


def test_nan_and_infinities_are_null_where_a_reader_would_take_them_for_zero() -> None:
    schema = pa.schema([pa.field("f", pa.float64(), nullable=False)])
    table = pa.table({"f": [float("nan"), float("-inf"), 1.5]}, schema=schema)
    result = [payload(record.value)["after"]["f"] for record in sent(table)]
    assert result == [None, None, 1.5]


def test_key_and_value_have_formats_of_their_own() -> None:
    table = pa.table({"k": [1]})
    (one,) = sent(table, form=RecordForm(key_format="json_schema"))
    assert payload(one.key) == {"k": 1}
    assert "schema" not in json.loads(one.value or b"")
    (one,) = sent(table, form=RecordForm("json_schema"))
    assert one.key == b'{"k":1}'
    assert payload(one.value)["after"] == {"k": 1}


def test_a_deleted_row_keeps_the_schema_that_it_was_written_with() -> None:
    before, after = (
        pa.schema([("k", pa.int32())]),
        pa.schema([("k", pa.int64()), ("v", pa.bool_())]),
    )
    schemas = inline_schemas(WITH_SCHEMA, "cdc.t", Layout(before, ["k"]), Layout(after, ["k"]))
    assert '"int32"' in (schemas.key_of_deletes or "")
    assert '"int64"' in (schemas.key or "")
    for text, types in (
        (schemas.value_of_deletes, ["int32"]),
        (schemas.value, ["int64", "boolean"]),
    ):
        images_of = json.loads(text or "")["fields"][:2]
        assert [[item["type"] for item in image["fields"]] for image in images_of] == [types] * 2


def test_the_key_of_a_delete_has_the_schema_before_the_version() -> None:
    table = pa.table({"k": pa.array([1], pa.int32())})
    later = Layout(pa.schema([("k", pa.int64())]), ["k"])
    schemas = inline_schemas(WITH_SCHEMA, "cdc.t", Layout(table.schema, ["k"]), later)
    origin = SourceBlock(TABLE, "t", "tidegate", 7, 1_500, schemas=schemas)
    image = images(table, ["k"], WITH_SCHEMA)
    (deleted,) = records(origin, Batch("d", 0, before=image), 99, "without")
    (inserted,) = records(origin, Batch("c", 1, after=image), 99, "without")
    kinds = [
        json.loads(record.key or b"")["schema"]["fields"][0]["type"]
        for record in (deleted, inserted)
    ]
    assert kinds == ["int32", "int64"]


def test_a_key_column_that_the_rows_of_before_lack_is_in_no_delete() -> None:
    before, after = pa.schema([("a", pa.int32())]), pa.schema([("k", pa.int64())])
    schemas = inline_schemas(WITH_SCHEMA, "cdc.t", Layout(before, ["k"]), Layout(after, ["k"]))
    assert schemas.key is not None
    assert schemas.key_of_deletes is None


def test_a_stream_with_schemas_has_the_payloads_of_the_stream_without(tmp_path: Path) -> None:
    table = WrittenTable(tmp_path / "t").create()
    dice = random.Random(7)
    for _ in range(20):
        change_at_random(table, dice)
    plain, result = Topic(), Topic()
    for topic, form in ((plain, RecordForm()), (result, WITH_SCHEMA)):
        following = stream(table, topic, chunk_rows=40, form=form)
        following.catch_up(6)
        following.catch_up(table.version)
    assert {item["op"] for item in plain.told} == {"r", "c", "u", "d"}
    for one, other in zip(plain.records, result.records, strict=True):
        assert payload(other.key) == json.loads(one.key or b"")
        assert (other.value is None) == (one.value is None)
        if one.value is not None:
            assert {**payload(other.value), "ts_ms": 0} == {**json.loads(one.value), "ts_ms": 0}


def test_the_schemas_of_the_records_count_toward_the_size_of_a_chunk(tmp_path: Path) -> None:
    table = WrittenTable(tmp_path / "t").create()
    table.append(rows(*range(12_000)))
    topic = Topic()
    stream(table, topic, chunk_rows=100_000, form=WITH_SCHEMA).catch_up(1)
    assert len(topic.chunks) > 1
    size_bytes = sum(len(record.value or b"") for record in topic.records[: topic.chunks[0]])
    assert size_bytes <= 1.5 * CHUNK_BYTES_MAX


def test_columns_have_their_field_ids_in_protobuf_only_and_where_columns_are_mapped() -> None:
    def mapped(name: str, kind: DataType, number: int) -> StructField:
        return StructField(name, kind, nullable=True, metadata={FIELD_ID: number})

    inner = StructType((mapped("x", PrimitiveType("long"), 9),))
    columns = StructType((mapped("s", ArrayType(inner, contains_null=True), 7),))
    protobuf = RecordForm("protobuf", "protobuf")
    for form, mode, ids in (
        (protobuf, ColumnMappingMode.NAME, (7, 9)),
        (protobuf, ColumnMappingMode.NONE, (None, None)),
        (WITH_SCHEMA, ColumnMappingMode.NAME, (None, None)),
    ):
        schemas = inline_schemas(form, "cdc.t", *[layout(columns, mode, ["s"])] * 2)
        (column,) = json.loads(schemas.key or "")["fields"]
        (nested,) = column["items"]["fields"]
        assert (column.get("id"), nested.get("id")) == ids


def test_a_type_without_a_connect_type_is_refused_by_column() -> None:
    schema = pa.schema([("c", pa.duration("us"))])
    with pytest.raises(UnsupportedFeature, match="'c'"):
        inline_schemas(WITH_SCHEMA, "cdc.t", *[Layout(schema, None)] * 2)
