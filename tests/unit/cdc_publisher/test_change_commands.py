"""`tidegate changes tail` shows the changes of every envelope and format."""

import json
from pathlib import Path
from typing import get_args
from uuid import UUID

import pyarrow as pa
import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from typer.testing import CliRunner

from tests.fakes.memory_bus import MemoryBus
from tests.unit.cdc_publisher.memory_change_topic import Topic, stream
from tests.unit.cdc_publisher.written_table import WrittenTable, rows
from tidegate_cdc_publisher.change_records import ChangeRecord
from tidegate_cdc_publisher.cli import change_commands, table_copy_commands
from tidegate_cdc_publisher.cli.change_commands import change_line
from tidegate_cdc_publisher.record_form import Envelope, Format, RecordForm
from tidegate_cdc_publisher.schema_registry import Registry
from tidegate_delta.errors import InvalidRequest, Misconfigured
from tidegate_messages.published_records import TableRecord
from tidegate_runtime.kafka.client_protocols import Offset, Record, TopicPartition


def registry() -> Registry:
    return Registry(SchemaRegistryClient.new_client({"url": "mock://"}), "mock://")


def read(record: ChangeRecord) -> Record:
    headers = tuple(
        (name, value.encode() if isinstance(value, str) else value or b"")
        for name, value in record.headers
    )
    return Record(TopicPartition("cdc.t", 0), Offset(7), record.key, record.value, headers)


def published(folder: Path, form: RecordForm, of: Registry | None) -> list[Record]:
    """Publish a snapshot of two rows, then an update and a delete."""
    table, topic = WrittenTable(folder / "t").create(), Topic()
    table.append(rows(1, 2))
    stream(table, topic, form=form, registry=of).catch_up(1)
    table.rewrite(lambda old: [{**row, "price": 9.0} for row in old if row["id"] == 1])
    stream(table, topic, form=form, registry=of).catch_up(2)
    return [read(record) for record in topic.records if record.value is not None]


@pytest.mark.parametrize("envelope", get_args(Envelope))
@pytest.mark.parametrize("record_format", get_args(Format))
def test_a_change_is_a_line_in_every_envelope_and_format(
    tmp_path: Path, envelope: Envelope, record_format: Format
) -> None:
    of = registry()
    form = RecordForm(record_format, record_format, envelope=envelope)
    records = published(tmp_path, form, of)
    shown = [change_line(record, of, as_json=False).split(" ", 2) for record in records]
    old, new = ({"id": 1, "name": "n1", "price": price} for price in (0.25, 9.0))
    gone = {"id": 2, "name": "n2", "price": 0.5}
    expected = {
        "delta": [
            ("1:0", "insert", old),
            ("1:1", "insert", gone),
            ("2:0", "delete", gone),
            ("2:1", "update_preimage", old),
            ("2:1", "update_postimage", new),
        ]
    }.get(envelope, [("1:0", "r", old), ("1:1", "r", gone), ("2:0", "d", gone), ("2:1", "u", new)])
    assert [(at, op, json.loads(row)) for at, op, row in shown] == expected
    for record in records:
        assert isinstance(json.loads(change_line(record, of, as_json=True)), dict)


def test_a_column_named_as_a_field_of_another_envelope_is_part_of_the_row(tmp_path: Path) -> None:
    columns = pa.schema([("id", pa.int64()), ("_change_type", pa.string())])
    table, topic = WrittenTable(tmp_path / "t", schema=columns).create(), Topic()
    row = {"id": 1, "_change_type": "mine"}
    table.append([row])
    stream(table, topic, form=RecordForm(envelope="flat")).catch_up(1)
    [line] = [change_line(read(record), None, as_json=False) for record in topic.records]
    at, op, shown = line.split(" ", 2)
    assert (at, op, json.loads(shown)) == ("1:0", "r", row)


@pytest.mark.parametrize("record_format", ["avro", "protobuf"])
def test_what_a_registrys_schema_explains_needs_the_registry(
    tmp_path: Path, record_format: Format
) -> None:
    (record, *_) = published(tmp_path, RecordForm(record_format), registry())
    with pytest.raises(Misconfigured, match=r"cdc\.t.*cdc\.registry\.url"):
        change_line(record, None, as_json=False)


def test_a_record_of_somebody_else_is_named() -> None:
    record = Record(TopicPartition("cdc.t", 0), Offset(7), None, b"hello", ())
    with pytest.raises(InvalidRequest, match="offset 7"):
        change_line(record, None, as_json=False)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("snapshot", "t", "--pause", "--stop"), "give one of them"),
        (("snapshot", "t", "--resume", "--incremental"), "give one of them"),
        (("snapshot", "t", "--stop", "--reason", "x"), "give one of them"),
        (("snapshot", "t", "--where", "id < 3"), "add --incremental"),
        (("reset", "t"), "give one of the two"),
        (("reset", "t", "--to", "3", "--anew"), "give one of the two"),
        (("reset", "t", "--anew", "--reason", "x"), "it goes with --to"),
        (("skip", "t"), "Missing option '--to'"),
    ],
)
def test_incompatible_options_are_refused_before_a_broker_is_contacted(
    arguments: tuple[str, ...], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    ended = CliRunner().invoke(change_commands.app, arguments)
    assert ended.exit_code == 2
    assert message in ended.stderr


@pytest.mark.parametrize("envelope", ["flat", "delta"])
@pytest.mark.parametrize("verb", ["replay", "verify"])
def test_an_envelope_that_is_not_debeziums_is_named_and_is_no_fault_of_ours(
    tmp_path: Path, envelope: Envelope, verb: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, topic = WrittenTable(tmp_path / "t").create(), Topic()
    table.append(rows(1, 2))
    stream(table, topic, form=RecordForm("json", "json", envelope=envelope)).catch_up(1)
    bus, at = MemoryBus({"tidegate.cdc.t": 1}), TopicPartition("tidegate.cdc.t", 0)
    for record in topic.records:
        bus.append(at, record.key, record.value)
    registered = TableRecord.model_validate(
        {
            "table": UUID(int=1),
            "table_root": table.root,
            "name": "t",
            "proposals_topic": "tidegate.proposals",
            "topic_partition": 0,
        }
    )
    monkeypatch.setattr(table_copy_commands, "KafkaBus", lambda *_: bus)
    monkeypatch.setattr(table_copy_commands, "find_stream", lambda *_: registered)
    monkeypatch.setattr(table_copy_commands, "_published", lambda *_: 1)
    ended = CliRunner().invoke(change_commands.app, [verb, "t", "--quiet", "1"])
    assert ended.exit_code == 2, ended.exception
    assert "its value is not Debezium's envelope" in ended.stderr
