"""`tidegate changes replay` and `verify`, of streams of which no table can be made."""

from pathlib import Path
from uuid import UUID

import pytest
from typer.testing import CliRunner

from tests.fakes.memory_bus import MemoryBus
from tests.unit.cdc_publisher.memory_change_topic import Topic, stream
from tests.unit.cdc_publisher.written_table import WrittenTable, rows
from tidegate_cdc_publisher.cli import change_commands, table_copy_commands
from tidegate_cdc_publisher.record_form import Envelope, RecordForm
from tidegate_messages.published_records import TableRecord
from tidegate_runtime.kafka.client_protocols import TopicPartition


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
