"""Changes of a table's schema in its change stream: a copy that follows them is the table."""

import json
import random
from base64 import b64decode
from collections.abc import Callable
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from tests.unit.cdc_publisher.mapped_table import MappedTable, change_at_random
from tests.unit.cdc_publisher.memory_change_topic import Topic, stream
from tests.unit.cdc_publisher.written_table import Rows, WrittenTable, rows
from tidegate_cdc_publisher.record_form import RecordForm, ValueTypes
from tidegate_cdc_publisher.schema_markers import OnSchemaChange
from tidegate_delta.errors import InvalidRequest, Unavailable
from tidegate_messages import codec
from tidegate_messages.schema_announcement import SchemaChange
from tidegate_runtime.client.change_stream import NewSchema, TableCopy, change_of, schema_change_of
from tidegate_runtime.kafka.client_protocols import Offset, Record, TopicPartition

WITH_SCHEMA = RecordForm("json_schema", "json_schema")


def copied(topic: Topic) -> Rows:
    """Return what a subscriber holds that follows docs/changes.md."""
    copy = TableCopy()
    for place, sent in enumerate(topic.records):
        headers = tuple((name, value) for name, value in sent.headers if isinstance(value, bytes))
        record = Record(TopicPartition("cdc.t", 0), Offset(place), sent.key, sent.value, headers)
        schema = schema_change_of(record)
        if schema is not None:
            copy.apply(NewSchema(schema))
        elif sent.value is not None:
            copy.apply(change_of(record))
    return [dict(row) for row in copy.rows]


def by_id(content: Rows, key: str = "id") -> Rows:
    return sorted(content, key=lambda row: str(row[key]))


def announcements(topic: Topic) -> list[SchemaChange]:
    return [codec.decode(SchemaChange, change.value) for change in topic.schema_changes]


def three(tmp_path: Path) -> MappedTable:
    table = MappedTable.at(tmp_path / "t", id="long", b="string", n="long")
    table.append(table.rows(*({"id": n, "b": f"b{n}", "n": n} for n in range(3))))
    return table


def test_a_copy_is_the_table_at_every_version(tmp_path: Path) -> None:
    table, topic = three(tmp_path), Topic()
    stream(table, topic).catch_up(table.version)
    b = next(column.physical for column in table.columns if column.name == "b")
    first = table.columns[0].physical
    changes: list[Callable[[], None]] = [
        lambda: table.rename("b", "c"),
        lambda: table.rewrite(
            lambda old: [{**row, b: "new"} if row[first] == 1 else row for row in old]
        ),
        lambda: table.remove("c"),
        lambda: table.add("c", "string"),
        lambda: table.rewrite(lambda old: [row for row in old if row[first] != 0]),
        lambda: table.evolve("more", "string", lambda old: [old[0]]),
    ]
    for change in changes:
        change()
        stream(table, topic).catch_up(table.version)
        assert by_id(copied(topic)) == by_id(table.shown)
    result = [[step.change for step in announcement.steps] for announcement in announcements(topic)]
    assert result == [[], ["rename"], ["drop"], ["add"], ["add"]]
    assert topic.ops(table.version) == ["d"], "a copied row did not change"


@pytest.mark.parametrize("seed", range(12))
def test_a_copy_is_the_table_whatever_changes_and_whenever_the_publisher_dies(
    tmp_path: Path, seed: int
) -> None:
    dice, topic = random.Random(seed), Topic()
    table = three(tmp_path)
    form = dice.choice([RecordForm(), WITH_SCHEMA])
    for _ in range(12):
        change_at_random(table, dice)
        topic.dies_at = len(topic.chunks) + dice.randrange(4)
        for _ in range(30):
            try:
                stream(table, topic, chunk_rows=dice.choice([1, 2, 50]), form=form).catch_up(
                    table.version
                )
                break
            except Unavailable:
                continue
        else:
            raise AssertionError("it never got to the head")
        assert by_id(copied(topic)) == by_id(table.shown)
    versions = [announcement.version for announcement in announcements(topic)]
    assert versions == sorted(set(versions)), "a change of the schema was announced twice"


WIDENED = [
    ("integer", "long", 7, 7, 7),
    ("integer", "double", 7, 7.0, 7.0),
    ("float", "double", 0.1, 0.10000000149011612, 0.10000000149011612),
    ("date", "timestamp_ntz", date(2024, 2, 29), "2024-02-29T00:00:00.000000", 1709164800000000),
    ("decimal(6,2)", "decimal(12,4)", Decimal("-12.30"), "-12.3000", "/h+I"),
    ("integer", "decimal(14,4)", 3, "3.0000", "dTA="),
]


@pytest.mark.parametrize(("before", "after", "value", "iso", "debezium"), WIDENED)
def test_values_of_a_widened_column_are_carried_as_the_publisher_writes_them(
    tmp_path: Path, before: str, after: str, value: Any, iso: Any, debezium: Any
) -> None:
    for number, types in enumerate(
        (ValueTypes(), ValueTypes(types="debezium", decimals="precise"))
    ):
        table, topic = MappedTable.at(tmp_path / f"{number}", id="long", v=before), Topic()
        table.append(table.rows({"id": 1, "v": value}, {"id": 2, "v": None}))
        stream(table, topic, form=RecordForm(types=types)).catch_up(1)
        table.widen("v", after)
        stream(table, topic, form=RecordForm(types=types)).catch_up(2)
        result = {row["id"]: row["v"] for row in copied(topic)}
        anew = Topic()
        stream(table, anew, form=RecordForm(types=types)).catch_up(2)
        assert result == {row["id"]: row["v"] for row in anew.replayed()}
        assert result == {1: iso if number == 0 else debezium, 2: None}


def test_a_marker_is_a_tombstone_that_no_key_has_and_says_what_changed(tmp_path: Path) -> None:
    for form in (RecordForm(), WITH_SCHEMA):
        table, topic = three(tmp_path / form.key_format), Topic()
        stream(table, topic, form=form).catch_up(1)
        table.rename("b", "c")
        stream(table, topic, form=form).catch_up(2)
        marker = topic.records[-1]
        headers = dict(marker.headers)
        assert (marker.value, headers["marker"]) == (None, b"schema")
        assert marker.key not in {record.key for record in topic.records[:-1]}
        assert "event_id" not in headers
        key = json.loads(marker.key or b"")
        if form is WITH_SCHEMA:
            assert key["payload"] == {"id": None}
            assert key["schema"]["doc"] == "tidegate marker schema:2"
        else:
            assert key == {"tidegate_marker": "schema:2"}
        content = headers["schema_change"]
        assert isinstance(content, bytes)
        result = codec.decode(SchemaChange, b64decode(content))
        assert [column.before for column in result.columns] == ["id", "b", "n"]
        assert [column.name for column in result.columns] == ["id", "c", "n"]


def test_a_renamed_key_column_gives_rows_their_new_keys(tmp_path: Path) -> None:
    table, topic = three(tmp_path), Topic()
    stream(table, topic).catch_up(1)
    table.rename("id", "ident")
    stream(table, topic).catch_up(2)
    first = table.columns[0].physical
    table.rewrite(lambda old: [row for row in old if row[first] != 1])
    stream(table, topic).catch_up(3)
    assert by_id(copied(topic), "ident") == by_id(table.shown, "ident")
    assert [step.change for step in announcements(topic)[-1].steps] == ["rename", "key"]


def test_other_key_columns_are_announced(tmp_path: Path) -> None:
    table, topic = WrittenTable(tmp_path / "t").create(), Topic()
    table.append(rows(1, 2))
    stream(table, topic).catch_up(1)
    table.set_metadata(**{"tidegate.cdc.keyColumns": "name"})
    table.rewrite(lambda old: [row for row in old if row["id"] == 1])
    stream(table, topic).catch_up(3)
    assert copied(topic) == rows(1)
    (step,) = announcements(topic)[-1].steps
    assert (step.change, step.before, step.after) == ("key", ("id",), ("name",))


def test_a_comment_or_another_property_is_no_change_of_the_schema(tmp_path: Path) -> None:
    table, topic = WrittenTable(tmp_path / "t").create(), Topic()
    stream(table, topic, mode="no_data").catch_up(0)
    table.set_metadata(comment="c")
    stream(table, topic).catch_up(1)
    assert topic.records == []
    assert [announcement.steps for announcement in announcements(topic)] == [()]


def test_fail_stops_before_the_version_and_marker_goes_on_from_there(tmp_path: Path) -> None:
    table, topic = three(tmp_path), Topic()
    stream(table, topic).catch_up(1)
    table.append(table.rows({"id": 9, "b": "b", "n": 9}))
    table.remove("b")
    with pytest.raises(InvalidRequest, match="drop b") as caught:
        stream(table, topic, on_schema_change="fail").catch_up(3)
    assert caught.value.error_class == "SchemaChanged"
    assert topic.ops(2) == ["c"]
    stream(table, topic).catch_up(3)
    assert by_id(copied(topic)) == by_id(table.shown)


def test_resnapshot_publishes_all_rows_and_copies_begin_with_them(tmp_path: Path) -> None:
    table, topic = three(tmp_path), Topic()
    policy: OnSchemaChange = "resnapshot"
    stream(table, topic).catch_up(1)
    table.evolve("more", "string", lambda old: old[1:])
    topic.dies_at = len(topic.chunks) + 1
    with pytest.raises(Unavailable):
        stream(table, topic, on_schema_change=policy, chunk_rows=1).catch_up(2)
    stream(table, topic, on_schema_change=policy, chunk_rows=1).catch_up(2)
    assert topic.ops(2) == ["r", "r"]
    assert by_id(copied(topic)) == by_id(table.shown)
    table.append(table.rows({"id": 9, "b": "b", "n": 9, "more": "m"}))
    stream(table, topic, on_schema_change=policy).catch_up(3)
    assert topic.ops(3) == ["c"]
    assert by_id(copied(topic)) == by_id(table.shown)


def test_topic_alone_leaves_the_stream_without_markers(tmp_path: Path) -> None:
    table, topic = three(tmp_path), Topic()
    stream(table, topic).catch_up(1)
    table.remove("b")
    stream(table, topic, on_schema_change="topic").catch_up(2)
    assert len(topic.records) == 3
    assert announcements(topic)[-1].steps[0].column == ("b",)
