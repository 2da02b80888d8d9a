"""Changes as rows: flat, and as Delta's change feed."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.connect_records import payload
from tests.unit.cdc_publisher.memory_change_topic import Topic, stream
from tests.unit.cdc_publisher.written_table import SCHEMA, WrittenTable, rows
from tidegate_cdc_publisher.record_form import ColumnRules, Envelope, Format, RecordForm
from tidegate_cdc_publisher.schema_registry import Registry
from tidegate_delta.errors import InvalidRequest

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
