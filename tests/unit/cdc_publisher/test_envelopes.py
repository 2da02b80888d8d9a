"""Debezium envelopes of row changes."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest

from tests.connect_records import payload
from tests.unit.cdc_publisher.memory_change_topic import Topic, stream
from tests.unit.cdc_publisher.written_table import SCHEMA, WrittenTable, rows
from tidegate_cdc_publisher.change_batch import Batch, Op, SourceBlock
from tidegate_cdc_publisher.change_records import ChangeRecord
from tidegate_cdc_publisher.record_encoding import records
from tidegate_cdc_publisher.record_form import ColumnRules, Envelope, Format, RecordForm
from tidegate_cdc_publisher.row_diff import images
from tidegate_cdc_publisher.schema_registry import Registry
from tidegate_delta.errors import InvalidRequest

TABLE = UUID(int=5)
ORIGIN = SourceBlock(TABLE, "lake.air.flights", "tidegate", 7, 1_500, {"operation": "DELETE"})
ROWS = pa.table({"k": [1, 2, 3], "v": ["a", "b", "c"]})


def batch(op: Op, start: int = 0, *, ends: bool = False, keyed: bool = True) -> Batch:
    both = images(ROWS, ["k"] if keyed else None)
    before = both if op in ("u", "d") else None
    after = both if op in ("c", "u", "r") else None
    return Batch(op, start, before, after, ends)


def decoded(one: ChangeRecord) -> dict[str, Any]:
    assert one.value is not None
    body: dict[str, Any] = json.loads(one.value)
    return body


def test_an_insert_has_an_image_after_and_none_before() -> None:
    first = decoded(records(ORIGIN, batch("c"), 99, "with")[0])
    assert (first["op"], first["before"], first["after"]) == ("c", None, {"k": 1, "v": "a"})
    assert first["ts_ms"] == 99


def test_an_update_has_both_images() -> None:
    first = decoded(records(ORIGIN, batch("u"), 99, "with")[0])
    assert first["before"] == first["after"] == {"k": 1, "v": "a"}


def test_a_delete_is_followed_by_a_tombstone_with_its_key() -> None:
    sent = records(ORIGIN, batch("d"), 99, "with")
    assert [record.key for record in sent] == [b'{"k":1}'] * 2 + [b'{"k":2}'] * 2 + [b'{"k":3}'] * 2
    assert [record.value is None for record in sent] == [False, True] * 3


def test_changes_and_tombstones_carry_the_trace_of_their_span_if_there_is_one() -> None:
    trace = "00-000000000000000000000000000000ab-00000000000000cd-01"
    sent = records(replace(ORIGIN, traceparent=trace), batch("d"), 99, "with")
    assert {dict(record.headers)["traceparent"] for record in sent} == {trace.encode()}
    assert "traceparent" not in dict(records(ORIGIN, batch("d"), 99, "with")[0].headers)


def test_tombstones_can_be_left_out() -> None:
    assert all(record.value is not None for record in records(ORIGIN, batch("d"), 99, "without"))


def test_without_keys_there_are_no_tombstones() -> None:
    sent = records(ORIGIN, batch("d", keyed=False), 99, "with")
    assert [record.key for record in sent] == [None] * 3
    assert all(record.value is not None for record in sent)


def test_the_source_names_table_and_version() -> None:
    source = decoded(records(ORIGIN, batch("c", 40), 99, "with")[1])["source"]
    assert source["connector"] == source["name"] == "tidegate"
    assert (source["db"], source["schema"], source["table"]) == ("lake", "air", "flights")
    assert (source["ts_ms"], source["txId"]) == (1_500, 7)
    assert "ts_us" not in source, "the log has milliseconds"
    assert json.loads(source["sequence"]) == ["7", "41"]
    assert (source["snapshot"], source["operation"]) == ("false", "DELETE")


def test_a_plain_name_is_the_table_alone() -> None:
    origin = SourceBlock(TABLE, "flights", "tidegate", 7, 0)
    source = decoded(records(origin, batch("c"), 99, "with")[0])["source"]
    assert (source["db"], source["schema"], source["table"]) == ("", "", "flights")


def test_the_transaction_numbers_the_changes_of_a_version_from_one() -> None:
    blocks = [
        decoded(record)["transaction"] for record in records(ORIGIN, batch("c", 40), 99, "with")
    ]
    assert {block["id"] for block in blocks} == {f"{TABLE}:7"}
    assert [block["total_order"] for block in blocks] == [41, 42, 43]


def test_the_rows_of_a_snapshot_mark_its_beginning_and_end() -> None:
    sent = records(ORIGIN, batch("r", ends=True), 99, "with")
    assert [decoded(item)["source"]["snapshot"] for item in sent] == ["first", "true", "last"]
    assert decoded(sent[0])["transaction"] is None


def test_a_chunk_in_the_middle_of_a_snapshot_neither_begins_nor_ends_it() -> None:
    sent = records(ORIGIN, batch("r", 20), 99, "with")
    assert {decoded(item)["source"]["snapshot"] for item in sent} == {"true"}


def test_only_the_last_slice_ends_a_snapshot() -> None:
    whole = batch("r", ends=True)
    assert [whole.slice(0, 2).ends, whole.slice(2, 2).ends] == [False, True]


def test_a_slice_keeps_the_indices_of_its_changes() -> None:
    sent = records(ORIGIN, batch("c").slice(1, 2), 99, "with")
    assert [json.loads(decoded(item)["source"]["sequence"])[1] for item in sent] == ["1", "2"]


def test_an_event_id_is_the_same_at_every_reading_and_differs_from_all_others() -> None:
    ids = [
        dict(record.headers).get("event_id")
        for op in ("c", "r")
        for record in records(ORIGIN, batch(op), 99, "with")
    ]
    assert len(set(ids)) == 6
    again = [dict(record.headers)["event_id"] for record in records(ORIGIN, batch("c"), 5, "with")]
    assert again == ids[:3]


def test_a_tombstone_is_no_event_of_its_own() -> None:
    tombstone = records(ORIGIN, batch("d"), 99, "with")[1]
    assert "event_id" not in dict(tombstone.headers)
    assert dict(tombstone.headers)["delta_version"] == b"7"


def test_records_are_taken_one_by_one_or_some_at_a_time() -> None:
    sent = records(ORIGIN, batch("d"), 99, "with")
    all_of_them = list(sent)
    assert [sent[at] for at in range(len(sent))] == all_of_them
    assert list(sent[1:4]) == all_of_them[1:4]
    assert sent[-1] == all_of_them[-1]


def test_records_put_behind_others_keep_their_own_headers() -> None:
    both = records(ORIGIN, batch("d"), 99, "with")
    both += records(ORIGIN, batch("c", 3), 99, "with")
    assert [dict(record.headers)["op"] for record in both] == [b"d"] * 6 + [b"c"] * 3


SMALL_BYTES = 500


def published(tmp_path: Path, envelope: Envelope, *, with_schema: bool = False) -> Topic:
    """Publish a snapshot of two rows, an update, a delete and an insert."""
    table, topic = WrittenTable(tmp_path / "t").create(), Topic()
    table.append(rows(1, 2))
    value_format = "json_schema" if with_schema else "json"
    form = RecordForm(value_format, value_format, envelope=envelope, cloud_events=True)  # type: ignore[arg-type]  # one of two
    stream(table, topic, form=form).catch_up(1)
    table.rewrite(
        lambda old: [
            {**row, "price": 9.0} if row["id"] == 1 else row for row in old if row["id"] != 2
        ]
    )
    table.append(rows(3))
    stream(table, topic, form=form).catch_up(3)
    return topic


def values(topic: Topic, *, with_schema: bool = False) -> list[dict[str, Any] | None]:
    read = payload if with_schema else json.loads
    return [None if record.value is None else read(record.value) for record in topic.records]


@pytest.mark.parametrize("with_schema", [False, True])
def test_a_flat_change_is_a_row_and_a_deleted_one_is_marked(
    tmp_path: Path, with_schema: bool
) -> None:
    topic = published(tmp_path, "flat", with_schema=with_schema)
    result = values(topic, with_schema=with_schema)
    shown = [
        item and (item["__op"], item["id"], item["price"], item["__deleted"]) for item in result
    ]
    assert shown == [
        ("r", 1, 0.25, "false"),
        ("r", 2, 0.5, "false"),
        ("d", 2, 0.5, "true"),
        None,
        ("u", 1, 9.0, "false"),
        ("c", 3, 0.75, "false"),
    ]
    first, last = result[0], result[-1]
    assert first is not None
    assert last is not None
    assert (first["__version"], first["__index"], first["__snapshot"]) == (1, 0, "first")
    assert (last["__version"], last["__index"], last["__snapshot"]) == (3, 0, "false")
    assert last["__commit_ts"] == 1_003


def test_a_flat_record_of_a_small_row_is_small(tmp_path: Path) -> None:
    topic = published(tmp_path, "flat")
    for record in topic.records:
        headers = sum(len(name) + len(value or b"") for name, value in record.headers)
        plain = sum(
            len(name) + len(value or b"")
            for name, value in record.headers
            if name.startswith("ce_")
        )
        size = len(record.key or b"") + len(record.value or b"") + headers - plain
        assert size < SMALL_BYTES, record


@pytest.mark.parametrize("with_schema", [False, True])
def test_a_change_feed_has_two_rows_for_an_update(tmp_path: Path, with_schema: bool) -> None:
    topic = published(tmp_path, "delta", with_schema=with_schema)
    result = values(topic, with_schema=with_schema)
    shown = [item and (item["_change_type"], item["id"], item["price"]) for item in result]
    assert shown == [
        ("insert", 1, 0.25),
        ("insert", 2, 0.5),
        ("delete", 2, 0.5),
        None,
        ("update_preimage", 1, 0.25),
        ("update_postimage", 1, 9.0),
        ("insert", 3, 0.75),
    ]
    last = result[-1]
    assert last is not None
    assert (last["_commit_version"], last["_commit_timestamp"]) == (
        3,
        "1970-01-01T00:00:01.003000Z",
    )
    ids = [dict(record.headers).get("event_id") for record in topic.records]
    assert len(set(ids) - {None}) == 6


def test_cloud_events_are_headers_beside_ours(tmp_path: Path) -> None:
    topic = published(tmp_path, "debezium")
    headers = dict(topic.records[0].headers)
    assert headers["ce_id"] == headers["event_id"]
    assert headers["ce_specversion"] == b"1.0"
    assert headers["ce_source"] == b"/tidegate/tidegate/t"
    assert headers["ce_time"] == b"1970-01-01T00:00:01.001000Z"
    (tombstone,) = (record for record in topic.records if record.value is None)
    assert "ce_id" not in dict(tombstone.headers)


def with_column(name: str) -> pa.Schema:
    return pa.schema([*SCHEMA, (name, pa.string())])


@pytest.mark.parametrize("value_format", ["json", "json_schema", "avro"])
@pytest.mark.parametrize(
    ("envelope", "name"),
    [
        ("flat", "__op"),
        ("flat", "__Deleted"),
        ("delta", "_change_type"),
        ("delta", "_COMMIT_version"),
    ],
)
def test_a_column_with_the_name_of_an_added_field_is_refused_before_anything_is_published(
    tmp_path: Path, envelope: Envelope, name: str, value_format: Format
) -> None:
    """Else it would stand twice in a record, and readers would take the column for our field."""
    table, topic = WrittenTable(tmp_path / "t").create(), Topic()
    table.append(rows(1, 2))
    form = RecordForm(value_format, envelope=envelope)
    registry = Registry.at("mock://", {})
    stream(table, topic, form=form, registry=registry).catch_up(1)
    before = list(topic.records)
    table.replace(with_column(name), [{**row, name: "mine"} for row in rows(2, 3)])
    with pytest.raises(InvalidRequest, match=rf"{name}.*column_exclude_list") as refused:
        stream(table, topic, form=form, registry=registry).catch_up(2)
    assert refused.value.error_class == "BadColumns"
    assert topic.records == before
    without = replace(form, columns=ColumnRules(exclude=(name,)))
    stream(table, topic, form=without, registry=registry).catch_up(2)
    assert len(topic.records) > len(before)


def test_debeziums_envelope_has_columns_of_any_name(tmp_path: Path) -> None:
    names = ["__op", "__deleted", "_change_type", "op", "before", "after", "source", "schema"]
    schema = pa.schema([("id", pa.int64()), *((name, pa.string()) for name in names)])
    table, topic = WrittenTable(tmp_path / "t", schema=schema).create(), Topic()
    row = {"id": 1, **dict.fromkeys(names, "mine")}
    table.append([row])
    stream(table, topic).catch_up(1)
    assert [change["after"] for change in topic.told] == [row]
