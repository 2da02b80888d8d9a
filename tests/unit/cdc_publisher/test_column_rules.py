"""Columns of a stream's values: included, left out, masked, hashed; and the names of its topics."""

import json
from hashlib import sha256
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.unit.cdc_publisher.memory_change_topic import Topic, stream
from tests.unit.cdc_publisher.written_table import WrittenTable, rows
from tidegate_cdc_publisher.record_form import MASK, ColumnRules, RecordForm
from tidegate_cdc_publisher.settings import CdcSection
from tidegate_delta.errors import InvalidRequest, Misconfigured
from tidegate_messages.topics import Topics


@pytest.fixture
def table(tmp_path: Path) -> WrittenTable:
    made = WrittenTable(tmp_path / "t").create()
    made.append(rows(1, 2))
    return made


def published(table: WrittenTable, rules: ColumnRules, **form: Any) -> Topic:
    topic = Topic()
    stream(table, topic, form=RecordForm(columns=rules, **form)).catch_up(table.version)
    table.rewrite(lambda old: [{**row, "name": f"new {row['id']}"} for row in old])
    stream(table, topic, form=RecordForm(columns=rules, **form)).catch_up(table.version)
    return topic


@pytest.mark.parametrize("rules", [ColumnRules(exclude=("NAME",)), ColumnRules(("id", "price"))])
def test_a_column_that_is_left_out_is_in_no_image(table: WrittenTable, rules: ColumnRules) -> None:
    topic = published(table, rules)
    assert [one["op"] for one in topic.told] == ["r", "r", "u", "u"]
    images = [item[side] for item in topic.told for side in ("before", "after") if item[side]]
    assert len(images) == 6
    assert {tuple(image) for image in images} == {("id", "price")}
    [introduction] = topic.schema_changes
    columns = json.loads(introduction.value or b"")["columns"]
    assert [column["name"] for column in columns] == ["id", "price"]


def test_texts_are_masked_and_hashed_and_nulls_stay(table: WrittenTable) -> None:
    table.append([{"id": 3, "name": None, "price": None}])
    masked = [item["after"]["name"] for item in published(table, ColumnRules(mask=("name",))).told]
    assert masked == [MASK, MASK, None, MASK, MASK, MASK]
    hashed = published(table, ColumnRules(hash=("name",), salt="salt")).told[0]["after"]["name"]
    assert hashed == sha256(b"saltnew 1").hexdigest()


def test_an_inline_schema_has_the_columns_of_the_values(table: WrittenTable) -> None:
    topic = published(table, ColumnRules(exclude=("name",)), value_format="json_schema")
    schema = json.loads(topic.records[0].value or b"")["schema"]
    after = next(field for field in schema["fields"] if field["field"] == "after")
    assert [field["field"] for field in after["fields"]] == ["id", "price"]


def test_a_column_that_is_left_out_leaves_without_an_announcement(table: WrittenTable) -> None:
    rules, topic = ColumnRules(exclude=("more",)), Topic()
    opened = stream(table, topic, form=RecordForm(columns=rules))
    opened.catch_up(table.version)
    table.set_metadata(table.schema.append(pa.field("more", pa.string())))
    table.append([{"id": 9, "name": "n", "price": 1.0, "more": "secret"}])
    opened.catch_up(table.version)
    assert b"secret" not in b"".join(record.value or b"" for record in topic.records)
    assert json.loads(topic.schema_changes[-1].value or b"").get("steps", []) == []


@pytest.mark.parametrize(
    ("rules", "column"),
    [
        (ColumnRules(exclude=("id",)), "id"),
        (ColumnRules(include=("name",)), "id"),
        (ColumnRules(hash=("id",)), "id"),
        (ColumnRules(mask=("price",)), "price"),
    ],
)
def test_what_would_leave_a_value_in_the_open_is_refused(
    table: WrittenTable, rules: ColumnRules, column: str
) -> None:
    opened = stream(table, Topic(), form=RecordForm(columns=rules))
    with pytest.raises(InvalidRequest, match=column) as caught:
        opened.catch_up(table.version)
    assert caught.value.error_class == "BadColumns"


def test_a_topic_is_named_by_a_template() -> None:
    topics = Topics("lake.")
    given = {"topic": "{prefix}{schema}.{name}", "tables": {"own": {"topic": "my topic"}}}
    section = CdcSection.model_validate(given)
    assert section.topic_of(topics, "main.sales.orders") == "lake.sales.orders"
    assert section.topic_of(topics, "own") == "my_topic"
    assert CdcSection().topic_of(topics, "a.b.c") == topics.changes("a.b.c") == "lake.cdc.a.b.c"
    with pytest.raises(Misconfigured, match="longer"):
        section.topic_of(topics, "n" * 300)


@pytest.mark.parametrize("topic", ["{database}", "{", "{0}"])
def test_a_template_with_an_unknown_part_is_refused(topic: str) -> None:
    with pytest.raises(ValueError, match="prefix"):
        CdcSection.model_validate({"topic": topic})


def test_text_that_is_not_utf8_is_hashed_by_its_bytes() -> None:
    """Spark writes it: `cast(X'FF' AS STRING)`."""
    texts = pa.array([b"\xff", None], pa.binary()).view(pa.string())
    rules = ColumnRules(hash=("name",), salt="salt")
    assert rules.applied(pa.table({"name": texts}))["name"].to_pylist() == [
        sha256(b"salt\xff").hexdigest(),
        None,
    ]
