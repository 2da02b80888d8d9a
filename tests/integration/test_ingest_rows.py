"""What Spark makes of records: rows, deletes, or the reason why they are none."""

import json
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from io import BytesIO
from pathlib import Path
from typing import Any

import fastavro
import pyspark
import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StructType

from tests.integration.spark_session import open_session
from tests.support.protobuf_orders import (
    LINE,
    ORDER,
    add_fields,
    framed,
    message_of,
    order_file,
    part_file,
)
from tests.support.schema_registry import serving
from tidegate_cdc_publisher.protobuf_encoding import registry_text
from tidegate_delta.constraints.generated_columns import Generation
from tidegate_delta.constraints.row_constraints import (
    CheckConstraint,
    NotNull,
    WriteRequirements,
)
from tidegate_delta.errors import InvalidRequest, Misconfigured
from tidegate_delta.schema.field_paths import dotted
from tidegate_producers.ingest.column_evolution import new_fields, wider_types
from tidegate_producers.ingest.job import read_by, registered
from tidegate_producers.ingest.positions import OffsetsBySource
from tidegate_producers.ingest.record_decoding import (
    DELETED,
    FIELD,
    IS_IN,
    REASON,
    ROW,
    STEP,
    UNKNOWN,
    JsonValues,
    Selection,
    columns_of,
    columns_of_sample,
    inferred,
    type_of,
)
from tidegate_producers.ingest.record_texts import MISSING, AvroTexts, RecordTexts
from tidegate_producers.ingest.route_batches import (
    Progress,
    RouteBatches,
    RouteDependencies,
    rows_of,
)
from tidegate_producers.ingest.settings import OWN_PREFIX, RECORD_PARTS, Route
from tidegate_producers.ingest.spark_errors import translated
from tidegate_producers.ingest.spark_session import AVRO
from tidegate_producers.ingest.target_table import TargetTable, fitted
from tidegate_producers.ingest.topic_source import TopicSource
from tidegate_producers.ingest.upsert import last_of_keys
from tidegate_producers.options import TableLocation
from tidegate_runtime.kafka.protobuf_messages import message_class
from tidegate_runtime.kafka.settings import KafkaSettings

pytestmark = pytest.mark.spark

COLUMNS = "id INT, text STRING, at TIMESTAMP, price DECIMAL(5,2)"
KIND = {"kind": "order"}
RECORD = ", ".join(f"{name} {kind}" for name, kind in {**RECORD_PARTS, "value": "BINARY"}.items())


@pytest.fixture(scope="module")
def spark() -> SparkSession:
    return open_session()


@pytest.fixture(scope="module")
def spark_with_avro(spark: SparkSession) -> SparkSession:
    """A session that has Spark's package for Avro, which it fetches from Maven."""
    package = f"ivy://org.apache.spark:{AVRO}:{pyspark.__version__}?transitive=false"
    try:
        spark.sql(f"ADD JAR '{package}'")
    except PySparkException as error:
        pytest.skip(f"Spark's package for Avro can't be had: {error}")
    return spark


def records(
    spark: SparkSession, *values: Any, keys: Any = None, headers: Mapping[str, str] = KIND
) -> DataFrame:
    """Return records of one partition; values and keys are bytes, texts, or JSON."""
    marks = [(name, value.encode()) for name, value in headers.items()]
    made = [
        (_bytes(key), marks, None, "orders", 0, offset, _bytes(value))
        for offset, (value, key) in enumerate(zip(values, keys or values, strict=True))
    ]
    return spark.createDataFrame(made, RECORD)


def _bytes(value: Any) -> bytes | None:
    if value is None or isinstance(value, bytes):
        return value
    return (value if isinstance(value, str) else json.dumps(value)).encode()


def route(**given: Any) -> Route:
    return Route(topics=("orders",), table="/lake/orders", **given)


PLAIN = RecordTexts()


def fit(
    frame: DataFrame,
    asked: Route,
    required: WriteRequirements | None = None,
    texts: RecordTexts | None = PLAIN,
) -> DataFrame:
    """Return the rows of records; `texts` is None where they have their texts."""
    table = columns_of(COLUMNS)
    target = TargetTable(TableLocation("file:///t"), table, required or WriteRequirements())
    frame = frame if texts is None else texts.read(frame)
    decoded = JsonValues(target.value_fields(asked), asked).decoded(frame)
    kept = [F.col(name).alias(f"{OWN_PREFIX}{name}") for name in ("partition", "offset")]
    return fitted(Selection.of(asked).rows(decoded, kept), target, asked)


def reasons(frame: DataFrame) -> list[tuple[str | None, str | None]]:
    rows = frame.orderBy(f"{OWN_PREFIX}offset").select(FIELD, REASON).collect()
    return [(row[0], row[1]) for row in rows]


BAD = [
    ("x", None, "no JSON object"),
    ("", None, "no JSON object"),
    ("null", None, "no JSON object"),
    ("5", None, "no JSON object"),
    ('[{"id": 1}, {"id": 2}]', None, "no JSON object"),
    ('{"id": 1}{"id": 2}', None, "more than one JSON object"),
    ('{"id": 1}\n{"id": 2}', None, "more than one JSON object"),
    ('{"id": 1} x', None, "does not end with its object"),
    ('{"id": 1', None, "does not end with its object"),
    ('{"id": 1, "text"}', None, "no JSON"),
    (b'{"text": "\xff\xfe"}', None, "no text in UTF-8"),
    (None, None, "no value"),
    ({"id": "1"}, "id", "is 1, which is no int"),
    ({"id": 1.5}, "id", "is 1.5, which is no int"),
    ({"id": 2**40}, "id", "is 1099511627776, which is no int"),
    ({"id": 1, "price": 12345.6}, "price", "which is no decimal(5,2)"),
    ({"id": 1, "at": "soon"}, "at", "is soon, which is no timestamp"),
    ({"id": 1, "at": 1767225600000}, "at", "is 1767225600000, which is no timestamp"),
]


def test_each_value_that_is_no_row_says_why_and_by_which_field(spark: SparkSession) -> None:
    found = reasons(fit(records(spark, *(value for value, _, _ in BAD)), route()))
    for (value, field, text), (found_field, reason) in zip(BAD, found, strict=True):
        assert text in (reason or ""), (value, reason)
        assert found_field == field, value


def test_values_that_are_rows_keep_theirs(spark: SparkSession) -> None:
    values: tuple[Any, ...] = (
        {"id": 1, "text": 'a } { "b"', "at": "2026-01-01T12:00:00Z", "price": 1.5},
        {"id": None},
        {},
        ' {"id": 7}\r\n',
    )
    rows = fit(records(spark, *values), route()).orderBy(f"{OWN_PREFIX}offset").collect()
    assert [row[REASON] for row in rows] == [None] * 4
    assert [row["id"] for row in rows] == [1, None, None, 7]
    assert (rows[0]["text"], rows[0]["at"].isoformat()) == ('a } { "b"', "2026-01-01T12:00:00")


def test_what_violates_a_constraint_is_no_row(spark: SparkSession) -> None:
    required = WriteRequirements(
        not_null=(NotNull(("text",), ("text",)),), checks=(CheckConstraint("small", "id < 10"),)
    )
    values = ({"id": 1, "text": "a"}, {"id": 1}, {"id": 11, "text": "a"}, {"text": "a"})
    found = reasons(fit(records(spark, *values), route(), required))
    assert found[0] == (None, None)
    assert found[1] == ("text", "field 'text' is null, and may not be")
    assert found[2] == (None, "it violates CHECK small (id < 10)")
    assert found[3] == (None, "it violates CHECK small (id < 10)")


def test_a_condition_and_expressions_choose_rows_and_columns(spark: SparkSession) -> None:
    asked = route(
        value_schema="id INT, text STRING",
        where="id > 1 AND kafka.headers['kind'] = 'order'",
        select="id * 10 AS id, upper(text) AS text",
        columns=("timestamp=at",),
    )
    frame = records(spark, {"id": 1, "text": "a"}, {"id": 2, "text": "b"}, "x")
    rows = fit(frame, asked).orderBy(f"{OWN_PREFIX}offset").collect()
    assert [(row[IS_IN], row[REASON] is None) for row in rows] == [
        (False, True),
        (True, True),
        (True, False),
    ]
    assert (rows[1]["id"], rows[1]["text"]) == (20, "B")


@pytest.mark.parametrize("wrong", [{"where": "idd > 1"}, {"select": "idd AS id"}])
def test_a_wrong_expression_says_which_option_and_which_column(
    spark: SparkSession, wrong: dict[str, str]
) -> None:
    asked = route(value_schema="id INT", **wrong)
    with pytest.raises(AnalysisException) as caught:
        fit(records(spark, {"id": 1}), asked)
    error = translated(caught.value, "orders", "file:///t")
    assert error.advice == "fix"
    assert "route orders" in str(error)
    assert "`idd`" in str(error)
    assert "correct its where, select or value_schema" in str(error)


def test_fields_without_a_column_are_named(spark: SparkSession) -> None:
    frame = fit(records(spark, {"id": 1, "more": 2, "text": "a"}, {"id": 1}), route())
    assert [row[0] for row in frame.orderBy(f"{OWN_PREFIX}offset").select(UNKNOWN).collect()] == [
        ["more"],
        [],
    ]


NESTED = (
    "id INT, part STRUCT<a: INT, `in.ner`: STRUCT<x: INT>>, list ARRAY<STRUCT<n: INT>>, "
    "named MAP<STRING, STRUCT<v: INT>>, deep ARRAY<MAP<STRING, ARRAY<STRUCT<z: INT>>>>, text STRING"
)
WITH_NEW_FIELDS: tuple[dict[str, Any], ...] = (
    {"id": 1, "part": {"a": 1, "b": "x", "none": None, "in.ner": {"x": 1, "y": 1.5}}},
    {"id": 2, "list": [{"n": 1}, None, {"n": 2, "m": {"k": True}}, {"m": {"l": 2}}]},
    {"id": 3, "named": {"k": {"v": 1}, "l": {"w": 2}, "value": None}, "b": "2026", "text": "{}"},
    {"id": 4, "deep": [{"k": [{"z": 1, "new": 2**70}]}, {}, None], "part": None, "list": []},
)


def test_fields_without_a_field_inside_their_column_become_new_ones(spark: SparkSession) -> None:
    target = TargetTable(TableLocation("file:///t"), columns_of(NESTED), WriteRequirements())
    frame = PLAIN.read(records(spark, *WITH_NEW_FIELDS))
    rows = rows_of(frame, target, route()).orderBy(f"{OWN_PREFIX}offset").cache()
    found = [row[0] for row in rows.select(UNKNOWN).collect()]
    assert [[path.split(STEP) for path in paths] for paths in found] == [
        [["part", "b"], ["part", "none"], ["part", "in.ner", "y"]],
        [["list", "element", "m"]],
        [["b"], ["named", "value", "w"]],
        [["deep", "element", "value", "element", "new"]],
    ]
    new = new_fields(rows, [path for paths in found for path in paths], target, route(), {})
    assert {dotted(f.path): f.field.dataType.simpleString() for f in new} == {
        "part.b": "string",
        "part.`in.ner`.y": "double",
        "list.element.m": "struct<k:boolean,l:bigint>",
        "b": "string",
        "named.value.w": "bigint",
        "deep.element.value.element.new": "decimal(22,0)",
    }
    registry = {"part": type_of("STRUCT<b: DATE>"), "named": type_of("MAP<STRING, STRUCT<w: INT>>")}
    new = new_fields(rows, ["part\1b", "named\1value\1w"], target, route(), registry)
    assert [f.field.dataType.simpleString() for f in new] == ["date", "int"]


def test_fields_inside_a_column_are_refused_left_out_or_read_as_a_route_says(
    spark: SparkSession,
) -> None:
    target = TargetTable(TableLocation("file:///t"), columns_of(NESTED), WriteRequirements())
    frame = PLAIN.read(records(spark, *WITH_NEW_FIELDS[:2], {"part": {"A": 1}}))
    refused = reasons(rows_of(frame, target, route(schema_evolution="fail")))
    assert [reason for _, reason in refused] == [
        "there is no column for part.b, part.none, part.in.ner.y",
        "there is no column for list.element.m",
        "fields among part.A are not as the table's columns are, in upper and lower case",
    ]
    ignoring = rows_of(frame, target, route(schema_evolution="ignore"))
    assert [reason for _, reason in reasons(ignoring)] == [None] * 3
    # Once the table has them, they are read, although value_schema lacks them.
    grown = columns_of(NESTED.replace("a: INT", "a: INT, b: STRING").replace("n: INT", "n: BIGINT"))
    target = replace(target, columns=grown)
    narrow = "id INT, part STRUCT<a: INT>, list ARRAY<STRUCT<n: INT>>"
    for evolution, kind in (("add", "int"), ("widen", "bigint")):
        asked = route(schema_evolution=evolution, value_schema=narrow)
        fields = target.value_fields(asked).fieldNames()
        assert fields == ["id", "part", "list", "named", "deep", "text"]
        read = target.value_fields(asked)["list"].dataType.simpleString()
        assert read == f"array<struct<n:{kind}>>"
        [row, *_] = rows_of(frame, target, asked).orderBy(f"{OWN_PREFIX}offset").collect()
        assert (row["part"]["b"], row["part"]["in.ner"]["x"]) == ("x", 1)


def test_a_field_whose_name_no_column_can_have_makes_no_row(spark: SparkSession) -> None:
    target = TargetTable(TableLocation("file:///t"), columns_of(NESTED), WriteRequirements())
    odd = ({"a b": 1}, {"part": {"x=": 1}}, {f"{OWN_PREFIX}x": 1}, {"": 1}, {"a.b": 1, "B": 1})
    frame = PLAIN.read(records(spark, *odd))
    refused = reasons(rows_of(frame, target, route()))
    assert [(reason or "").partition(":")[0] for _, reason in refused] == [
        *(
            f"no column can have a name among {name}"
            for name in ("a b", "part.x=", f"{OWN_PREFIX}x", "")
        ),
        "",
    ]
    assert "Set delta.columnMapping.mode to name" in str(refused[0][1])
    mapped = rows_of(frame, replace(target, takes_any_name=True), route())
    assert [reason is None for _, reason in reasons(mapped)] == [True, True, False, False, True]


def test_of_new_fields_that_differ_by_case_alone_the_first_becomes_one(
    spark: SparkSession,
) -> None:
    target = TargetTable(TableLocation("file:///t"), columns_of("id INT"), WriteRequirements())
    frame = PLAIN.read(records(spark, {"id": 1, "X": "a"}, {"id": 2, "x": 1}))
    rows = rows_of(frame, target, route()).cache()
    new = new_fields(rows, ["X", "x"], target, route(), {})
    assert [(one.field.name, one.field.dataType.simpleString()) for one in new] == [("X", "string")]


def test_new_fields_have_types_that_a_table_can_have(spark: SparkSession) -> None:
    target = TargetTable(TableLocation("file:///t"), columns_of("id INT"), WriteRequirements())
    odd = {"a": {}, "b": {"c d": 1}, "e": {"f": 1, "F": 2, "g h": 3}, "i": [{"j=": 1, "k": 2}]}
    frame = PLAIN.read(records(spark, {"id": 1, **odd}, {"id": 2, "a": {"l": {}}}))
    rows = rows_of(frame, target, route()).cache()

    def added(target: TargetTable) -> dict[str, str]:
        new = new_fields(rows, ["a", "b", "e", "i"], target, route(), {})
        return {one.field.name: one.field.dataType.simpleString() for one in new}

    assert added(target) == {"b": "string", "e": "struct<F:bigint>", "i": "array<struct<k:bigint>>"}
    assert added(replace(target, takes_any_name=True)) == {
        "b": "struct<c d:bigint>",
        "e": "struct<F:bigint,g h:bigint>",
        "i": "array<struct<j=:bigint,k:bigint>>",
    }


UPSERT = {"mode": "upsert", "key": ("id",)}


@pytest.mark.parametrize("key", ['{"id": 3}', "3", '"3"', '{"schema": {}, "payload": {"id": 3}}'])
def test_a_tombstone_deletes_by_its_key(spark: SparkSession, key: str) -> None:
    required = WriteRequirements(not_null=(NotNull(("text",), ("text",)),))
    [row] = fit(records(spark, None, keys=[key]), route(**UPSERT), required).collect()
    assert (row["id"], row[DELETED], row[REASON]) == (3, True, None)


def test_a_record_without_its_key_is_no_row(spark: SparkSession) -> None:
    frame = records(spark, {"text": "a"}, None, keys=["1", b"\x00"])
    assert [field for field, _ in reasons(fit(frame, route(**UPSERT)))] == ["id", "id"]


def after(values: Any, **row: Any) -> Any:
    return {"before": None, "after": row, "op": "c", **values}


def test_debeziums_envelopes_are_rows_and_deletes(spark: SparkSession) -> None:
    asked = route(**UPSERT, envelope="debezium")
    values = (
        after({}, id=1, text="a"),
        {"schema": {"type": "struct"}, "payload": after({}, id=2, text="b")},
        {"before": {"id": 3, "text": "c"}, "after": None, "op": "d"},
        {"id": 4, "text": "flat"},
        after({"op": "t"}),
    )
    rows = fit(records(spark, *values), asked).orderBy(f"{OWN_PREFIX}offset").collect()
    assert [(row["id"], row[DELETED]) for row in rows[:3]] == [(1, False), (2, False), (3, True)]
    assert all("no op of c, r, u or d" in row[REASON] for row in rows[3:])


def test_debeziums_flat_rows_say_what_they_delete(spark: SparkSession) -> None:
    asked = route(**UPSERT, envelope="debezium_flat")
    values = ({"id": 1, "__deleted": "false"}, {"id": 2, "__deleted": "true", "__op": "d"})
    rows = fit(records(spark, *values), asked).orderBy(f"{OWN_PREFIX}offset").collect()
    assert [(row["id"], row[DELETED], row[UNKNOWN]) for row in rows] == [
        (1, False, []),
        (2, True, []),
    ]


UNAVAILABLE = "__debezium_unavailable_value"
OF_EACH_TYPE = {
    "STRING": UNAVAILABLE,
    "DECIMAL(9,2)": UNAVAILABLE,
    "BINARY": b64encode(UNAVAILABLE.encode()).decode(),
    "ARRAY<STRING>": [UNAVAILABLE],
    "ARRAY<BIGINT>": [*UNAVAILABLE.encode()],
    "ARRAY<INT>": [*UNAVAILABLE.encode()],
    "ARRAY<DOUBLE>": [*UNAVAILABLE.encode()],
    "ARRAY<BINARY>": [b64encode(UNAVAILABLE.encode()).decode()],
    "MAP<STRING, STRING>": {UNAVAILABLE: UNAVAILABLE},
    "STRUCT<x: ARRAY<STRING>>": {"x": ["b68a35a7-17ad-35b3-af2a-ae46edb4545a"]},
}


@pytest.mark.parametrize("envelope", ["debezium", "debezium_flat"])
def test_a_value_that_debezium_does_not_have_is_written_to_no_row(
    spark: SparkSession, envelope: str
) -> None:
    # All but the struct as texts, too.
    kinds = [*OF_EACH_TYPE, *["STRING"] * (len(OF_EACH_TYPE) - 1)]
    columns = ", ".join(f"c{at} {kind}" for at, kind in enumerate(kinds))
    fields = columns_of(f"id INT, {columns}, __deleted STRING")
    asked = route(**UPSERT, envelope=envelope)
    sent = [*OF_EACH_TYPE.values()] * 2
    filled = [{"id": at, f"c{at}": sent[at]} for at in range(len(kinds))]
    # Neither a delete needs other values than its key, nor is a list like it the placeholder.
    other = [{"id": 98, "c3": [UNAVAILABLE, "b"], "c4": [95], "c0": f"{UNAVAILABLE}."}]
    is_flat = envelope == "debezium_flat"
    values = [row if is_flat else after({}, **row) for row in [*filled, *other]]
    gone = {"id": 99, "c0": UNAVAILABLE}
    delete = {"before": gone, "after": None, "op": "d"}
    values.append({**gone, "__deleted": "true"} if is_flat else delete)
    read = JsonValues(fields, asked).decoded(PLAIN.read(records(spark, *values)))
    rows = read.orderBy("offset").select(FIELD, REASON, DELETED).collect()
    assert [row[FIELD] for row in rows] == [*(f"c{at}" for at in range(len(kinds))), None, None]
    assert all("REPLICA IDENTITY FULL" in row[REASON] for row in rows[: len(kinds)])
    assert [(row[REASON], row[DELETED]) for row in rows[len(kinds) :]] == [
        (None, False),
        (None, True),
    ]


def test_times_of_debezium_as_iso_texts_are_those_of_their_columns(spark: SparkSession) -> None:
    ddl = "id INT, at TIMESTAMP, local TIMESTAMP_NTZ, day DATE"
    asked = route(**UPSERT, envelope="debezium", value_schema=ddl)
    values = (
        after({}, id=1, at="2026-01-01T10:00:00.5Z", local="2026-01-01T12:00:00.1Z", day=day)
        for day in ("2026-01-02Z", "2026-01-02+14:00", "2026-01-02", "soonZ")
    )
    read = JsonValues(columns_of(ddl), asked).decoded(PLAIN.read(records(spark, *values)))
    rows = read.orderBy("offset").select(ROW, REASON).collect()
    assert [row[REASON] for row in rows] == [None] * 3 + ["field 'day' is soonZ, which is no date"]
    for row, _ in rows[:3]:
        assert row["at"].isoformat() == "2026-01-01T10:00:00.500000"
        assert row["local"].isoformat() == "2026-01-01T12:00:00.100000"
        assert row["day"].isoformat() == "2026-01-02"


def last(spark: SparkSession, asked: Route, *values: Any, keys: Any = None) -> list[Any]:
    chosen = last_of_keys(fit(records(spark, *values, keys=keys), asked), asked)
    return sorted((row["id"], row["text"], row[DELETED]) for row in chosen.collect())


def test_the_last_record_of_a_key_counts_by_offset(spark: SparkSession) -> None:
    values = ({"id": 1, "text": "a"}, {"id": 1, "text": "b"}, {"id": 2, "text": "c"})
    assert last(spark, route(**UPSERT), *values) == [(1, "b", False), (2, "c", False)]


def test_the_last_record_of_a_key_counts_by_a_column(spark: SparkSession) -> None:
    asked = route(**UPSERT, order_by="price")
    values = (
        {"id": 1, "text": "new", "price": 2},
        {"id": 1, "text": "late", "price": 1},
        {"id": 2, "text": "a", "price": 1},
        {"id": 2, "text": "equal", "price": 1},
    )
    assert last(spark, asked, *values) == [(1, "new", False), (2, "equal", False)]


def test_a_tombstone_comes_behind_the_records_before_it(spark: SparkSession) -> None:
    asked = route(**UPSERT, order_by="price")
    values = ({"id": 1, "text": "a", "price": 5}, None, {"id": 1, "text": "late", "price": 1})
    assert last(spark, asked, *values, keys=["1", "1", "1"]) == [(1, None, True)]


def test_a_schema_is_inferred_from_the_objects_of_a_sample(spark: SparkSession) -> None:
    schema: StructType = inferred(spark, [b'{"id": 1, "x": {"y": [1.5]}}', b"no", b'{"b": true}'])
    assert schema.simpleString() == "struct<b:boolean,id:bigint,x:struct<y:array<double>>>"


OLD = """{"type": "record", "name": "Order", "fields": [
    {"name": "id", "type": "int"},
    {"name": "text", "type": ["null", "string"], "default": null}]}"""
NEW = """{"type": "record", "name": "Order", "fields": [
    {"name": "id", "type": "int"},
    {"name": "text", "type": "string"},
    {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
    {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 5,
     "scale": 2}},
    {"name": "parts", "type": {"type": "array", "items": "long"}}]}"""
AT = datetime(2026, 1, 1, 12, 0, 0, 123456, UTC)


class Known:
    """A registry of two schemas that can be used, and two that can't."""

    def avro(self, schema_id: int) -> str | None:
        if schema_id == 11:
            raise InvalidRequest("the schema 11 is of another kind", error_class="x")
        if schema_id == 12:
            return '{"type": "no type"}'
        return {7: OLD, 256: NEW}.get(schema_id)


def avro(schema_id: int, **row: Any) -> bytes:
    """Return a row as Confluent's serializer writes it."""
    content = BytesIO()
    schema = json.loads(Known().avro(schema_id) or "")
    fastavro.schemaless_writer(content, fastavro.parse_schema(schema), row)
    return b"\x00" + schema_id.to_bytes(4, "big") + content.getvalue()


def test_each_avro_value_is_read_by_its_own_schema(spark_with_avro: SparkSession) -> None:
    texts = AvroTexts(spark_with_avro, Known().avro)
    values = (
        avro(7, id=1, text=None),
        avro(256, id=2, text="b", at=AT, price=Decimal("1.50"), parts=[3, 4]),
        {"id": 3},
        avro(7, id=4, text="d").replace(b"\x07", b"\x09", 1),
        avro(7, id=5, text="e")[:-1],
        None,
        b"\x00\xff\xff\xff\xff{}",
        avro(7, id=8, text="h").replace(b"\x07", b"\x0b", 1),
        avro(7, id=9, text="i").replace(b"\x07", b"\x0c", 1),
    )
    keys = ["1", "2", "3", "4", "5", avro(7, id=6, text=None), "7", "8", "9"]
    asked = route(**UPSERT, format="avro", registry="http://registry")
    frame = texts.read_with_all(records(spark_with_avro, *values, keys=keys))
    rows = fit(frame, asked, texts=None).orderBy(f"{OWN_PREFIX}offset").collect()
    assert [(row["id"], row["text"], row[DELETED]) for row in (rows[0], rows[1], rows[5])] == [
        (1, None, False),
        (2, "b", False),
        (6, None, True),
    ]
    assert (rows[1]["at"], rows[1]["price"]) == (AT.replace(tzinfo=None), Decimal("1.50"))
    assert rows[8][REASON].startswith("Spark can't read the schema 12: ")
    assert [row[REASON] for row in rows[:8]] == [
        None,
        None,
        "the value does not begin with the id of a schema",
        "the registry has no schema with the id 9",
        "the value can't be read by its schema, 7",
        None,
        "the registry has no schema with the id 4294967295",
        "the schema 11 is of another kind",
    ]
    columns = columns_of_sample(frame, asked, texts.types())
    assert columns is not None
    assert columns.simpleString() == (
        "struct<id:int,text:string,at:timestamp,price:decimal(5,2),parts:array<bigint>>"
    )


@pytest.mark.parametrize("mode", [{}, {**UPSERT, "envelope": "debezium"}])
def test_markers_of_our_change_streams_are_for_no_table(
    spark: SparkSession, mode: dict[str, Any]
) -> None:
    key = {"tidegate_marker": "end:3"}
    for kind in ("schema", "end", "snapshot", "gap"):
        headers = {"table": "t", "delta_version": "3", "marker": kind}
        frame = records(spark, None, keys=[key], headers=headers)
        [row] = fit(frame, route(**mode)).collect()
        is_gap = kind == "gap"
        assert (row[IS_IN], row[REASON] is not None) == (is_gap, is_gap), kind
    assert row[REASON].startswith("the change stream lacks versions here")
    foreign = records(spark, None, keys=["7"], headers={"marker": "end"})
    [row] = fit(foreign, route(**UPSERT)).collect()
    assert (row["id"], row[DELETED], row[IS_IN]) == (7, True, True)


def test_a_record_for_another_table_need_not_fit_this_one(spark: SparkSession) -> None:
    asked = route(**UPSERT, where="text = 'mine'")
    frame = records(spark, {"text": "other"}, {"text": "mine"}, {"id": 1, "text": "mine"})
    required = WriteRequirements(checks=(CheckConstraint("small", "id < 9"),))
    rows = fit(frame, asked, required).orderBy(f"{OWN_PREFIX}offset").collect()
    assert [(row[IS_IN], row[REASON]) for row in rows] == [
        (False, None),
        (True, "field 'id' is null, and is needed to find the row"),
        (True, None),
    ]


class Failing(RouteBatches):
    """Batches of which none can be written."""

    def commit(self, rows: DataFrame, last: OffsetsBySource) -> None:
        assert not last, "no partition"
        assert self.failure is None, "it is asked once"
        rows.select(F.raise_error(F.lit("no space left"))).collect()


def test_the_first_batch_that_fails_is_kept_and_those_behind_it_are_left_alone(
    spark: SparkSession, tmp_path: Path
) -> None:
    target = TargetTable(TableLocation(str(tmp_path)), columns_of(COLUMNS), WriteRequirements())
    options = {"path": str(tmp_path), "kafka.bootstrap.servers": "localhost:1"}
    job = RouteDependencies(route(), options, PLAIN, lambda _: {}, len)
    batches = Failing(job, target, {}, Progress())
    source = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 1).load()
    writer = source.writeStream.foreachBatch(lambda rows, _: batches(rows, dict))
    writer = writer.trigger(availableNow=True)
    query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    query.awaitTermination()
    assert "no space left" in str(batches.failure)
    batches(spark.range(1), dict)
    assert isinstance(batches.failure, PySparkException)
    assert not batches.progress.batches


def protobuf(file: FileDescriptorProto, *references: str) -> dict[str, Any]:
    """Return a schema as a registry has it; `references` are of the schema with the id 5."""
    named = [{"name": name, "subject": "s5", "version": 1} for name in references]
    return {"schemaType": "PROTOBUF", "schema": registry_text(file), "references": named}


def old_order_file() -> FileDescriptorProto:
    file = FileDescriptorProto(name="old.proto", syntax="proto3")
    add_fields(file.message_type.add(name="Order"), "int32 id", "string text")
    return file


def test_each_protobuf_value_is_read_by_its_own_schema_and_message(spark: SparkSession) -> None:
    old = message_class((old_order_file().SerializeToString(),))
    schemas = {
        5: protobuf(part_file()),
        7: protobuf(old_order_file()),
        256: protobuf(order_file(), "shop/part.proto"),
        11: {"schema": OLD},
    }
    full = message_of(id=2, text="b", at=AT, price=1.5, parts={3: {"weight": 2**40}}, data=b"x")
    values = (
        framed(7, (0,), old(id=1, text="a").SerializeToString()),
        framed(256, ORDER, full.SerializeToString()),
        framed(256, LINE, message_of(LINE, number=3, price=2.5).SerializeToString()),
        {"id": 4},
        framed(9, (0,), b""),
        framed(7, (0,), old(id=6, text="f").SerializeToString()[:-1]),
        framed(256, (4,), b""),
        framed(11, (0,), b""),
        None,
        framed(256, ORDER, message_of(id=2**62, big=2**64 - 1).SerializeToString()),
    )
    keys = [*("12345678"), framed(7, (0,), old(id=9).SerializeToString()), "10"]
    with serving(schemas) as url:
        asked = route(mode="upsert", key=("id",), format="protobuf", registry=url)
        texts = read_by(spark, asked.format, registered(url, {}))
        frame = texts.read_with_all(records(spark, *values, keys=keys)).persist()
    rows = fit(frame, asked, texts=None).orderBy(f"{OWN_PREFIX}offset").collect()
    assert [(row["id"], row["text"], row[DELETED]) for row in rows if row[REASON] is None] == [
        (1, "a", False),
        (2, "b", False),
        (9, None, True),
    ]
    assert (rows[1]["at"], rows[1]["price"]) == (AT.replace(tzinfo=None), Decimal("1.50"))
    assert [row[REASON] for row in rows[2:8]] == [
        "field 'id' is null, and is needed to find the row",
        "the value does not begin with the id of a schema",
        "the registry has no schema with the id 9",
        "the value can't be read by its schema, 7",
        "the schema 256 can't be used: the schema has no message with the index 4",
        "the schema 11 can't be used: the schema 11 in the registry is AVRO, and the format is "
        "protobuf: set the format to avro for such a topic",
    ]
    assert rows[9][REASON] == "field 'id' is 4611686018427387904, which is no int"
    columns = columns_of_sample(frame, asked, texts.types())
    assert columns is not None
    assert (columns["id"].dataType, columns["big"].dataType, columns["number"].dataType) == tuple(
        map(type_of, ("BIGINT", "DECIMAL(20,0)", "INT"))
    )
    whole = JsonValues(columns, asked).decoded(frame).orderBy("offset").select(ROW, REASON)
    made = [(row[ROW], row[REASON]) for row in whole.collect()]
    assert (made[1][0]["data"], made[1][0]["parts"]["3"]["weight"]) == (b"x", 2**40)
    assert (made[9][0]["big"], made[9][1]) == (2**64 - 1, None)
    frame.unpersist()


def test_a_json_value_may_begin_with_the_id_of_its_schema(spark: SparkSession) -> None:
    value = b"\x00\x00\x00\x00\x07" + b'{"id": 7}'
    assert [row["id"] for row in fit(records(spark, value), route()).collect()] == [7]


def json_schema(**properties: Any) -> dict[str, Any]:
    schema = {"type": "object", "properties": properties}
    return {"schemaType": "JSON", "schema": json.dumps(schema)}


def test_new_columns_have_the_types_of_json_schemas(spark: SparkSession) -> None:
    number, at = {"type": "integer"}, {"type": ["null", "string"], "format": "date-time"}
    schemas = {
        7: json_schema(id={**number, "connect.type": "int32"}, at=at, open={}),
        8: json_schema(id=number, day={"type": "string", "format": "date"}, note=at),
        9: {"schema": OLD},
    }
    values = [
        b"\0\0\0\0\x07" + b'{"id": 1, "at": "2026-01-01T12:00:00Z", "open": [1.5]}',
        b"\0\0\0\0\x08" + b'{"id": 2, "day": "2026-01-01"}',
        b"\0\0\0\0\x09" + b'{"id": 3}',
        b"\0\0\0\0\x0a" + b'{"id": 4}',
        b'{"id": 5, "more": true}',
    ]
    with serving(schemas) as url:
        asked = route(registry=url)
        texts = read_by(spark, asked.format, registered(url, {}))
        frame = texts.read_with_all(records(spark, *values))
        columns = columns_of_sample(frame, asked, texts.types())
        assert columns is not None
        assert columns.simpleString() == (
            "struct<id:bigint,at:timestamp,day:date,note:timestamp,more:boolean,open:array<double>>"
        )
        assert texts.read(frame).select(F.flatten(F.collect_list(MISSING))).head() == ([],)
    rows = fit(frame, asked, texts=None)
    assert [row["id"] for row in rows.where(f"{REASON} IS NULL").collect()] == [1, 2, 3, 4, 5]
    target = TargetTable(TableLocation("file:///t"), columns_of(COLUMNS), WriteRequirements())
    new = new_fields(rows_of(frame, target, asked), ["day", "more"], target, asked, texts.types())
    assert [(f.path, f.field.dataType.simpleString()) for f in new] == [
        (("day",), "date"),
        (("more",), "boolean"),
    ]


def test_a_field_of_a_column_that_comes_from_elsewhere_is_no_new_column(
    spark: SparkSession,
) -> None:
    frame = PLAIN.read(records(spark, {"id": 1, "at": "2026-01-01"}, {"id": 2, "twice": 4}))
    target = TargetTable(
        TableLocation("file:///t"),
        columns_of(f"{COLUMNS}, twice BIGINT"),
        WriteRequirements(generated=(Generation("twice", "twice", "id * 2"),)),
    )
    asked = route(columns=("timestamp=at",))
    rows = rows_of(frame, target, asked).orderBy(f"{OWN_PREFIX}offset").collect()
    for row, name in zip(rows, ("at", "twice"), strict=True):
        assert f"what the value has, too: {name}. Choose" in row[REASON]
    ignoring = rows_of(frame, target, asked.model_copy(update={"schema_evolution": "ignore"}))
    assert [row[REASON] for row in ignoring.collect()] == [None, None]


def test_a_number_that_does_not_fit_asks_for_a_wider_column(spark: SparkSession) -> None:
    frame = PLAIN.read(records(spark, {"id": 2**40}, {"id": "x"}, {"id": 1, "price": 1234.5}))
    asked = route(schema_evolution="widen", value_schema="id INT")
    target = TargetTable(TableLocation("file:///t"), columns_of(COLUMNS), WriteRequirements())
    found = wider_types(rows_of(frame, target, asked), target.columns)
    assert {name: str(kind) for name, kind in found.items()} == {
        "id": "long",
        "price": "decimal(6,2)",
    }
    wide = columns_of(COLUMNS.replace("id INT", "id BIGINT").replace("(5,2)", "(6,2)"))
    rows = rows_of(frame, replace(target, columns=wide), asked).where(f"{REASON} IS NULL")
    assert sorted(row["id"] for row in rows.collect()) == [1, 2**40]
    narrow = rows_of(frame, target, route())
    assert wider_types(narrow, target.columns) == {}, "only where the route says so"


def test_columns_of_a_sample_of_envelopes_are_those_of_their_rows(spark: SparkSession) -> None:
    values = (
        {"before": {"id": 3}, "after": None, "op": "d"},
        {"payload": {"before": None, "after": {"id": 1, "at": "now"}, "op": "c"}},
    )
    frame = RecordTexts().read(records(spark, *values))
    columns = columns_of_sample(frame, route(**UPSERT, envelope="debezium"), {})
    assert columns is not None
    assert columns.simpleString() == "struct<at:string,id:bigint>"
    flat = RecordTexts().read(records(spark, {"id": 1, "__deleted": "false", "__op": "c"}))
    columns = columns_of_sample(flat, route(**UPSERT, envelope="debezium_flat"), {})
    assert columns is not None
    assert columns.names == ["id"]
    assert columns_of_sample(flat.limit(0), route(), {}) is None


@pytest.mark.broker
def test_a_missing_topic_is_named(kafka: KafkaSettings) -> None:
    """`tidegate ingest` asks before Spark starts."""
    with pytest.raises(Misconfigured, match=r"no topic 'nothing' .*correct the name"):
        TopicSource(kafka, Route(topics=("nothing",), table="/t")).topics()
    with pytest.raises(Misconfigured, match=r"is called 'nothing\.\*'.*topic_pattern"):
        TopicSource(kafka, Route(topic_pattern="nothing.*", table="/t")).topics()
