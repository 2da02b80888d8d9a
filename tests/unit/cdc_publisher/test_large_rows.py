"""Records that are larger than their topic takes."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.fakes.memory_bus import MemoryBus
from tests.unit.cdc_publisher.memory_change_topic import Topic, stream
from tests.unit.cdc_publisher.written_table import WrittenTable, rows
from tidegate_cdc_publisher.large_rows import LargeRowRule, LargeRows
from tidegate_cdc_publisher.record_form import PLAIN, RecordForm
from tidegate_cdc_publisher.settings import CdcSection
from tidegate_delta.errors import InvalidRequest
from tidegate_runtime.client.change_stream import ChangeStream, TableCopy
from tidegate_runtime.kafka.client_protocols import TopicPartition
from tidegate_runtime.storage.local_store import LocalStore

LIMIT = 100_000
LARGE = "x" * 200_000


@pytest.fixture
def table(tmp_path: Path) -> WrittenTable:
    made = WrittenTable(tmp_path / "t").create()
    made.append(rows(1), [{"id": 2, "name": LARGE, "price": 1.0}], rows(3))
    return made


def published(table: WrittenTable, policy: LargeRows, form: RecordForm = PLAIN) -> Topic:
    topic, store = Topic(), LocalStore(table.root)
    rule = LargeRowRule(policy, LIMIT, "dead", store.put)
    stream(table, topic, large_rows=rule, form=form).catch_up(table.version)
    assert all(len(record.value or b"") <= LIMIT for record in topic.records)
    return topic


@pytest.mark.parametrize("form", [PLAIN, RecordForm(value_format="json_schema")])
def test_texts_are_cut_until_the_record_fits(table: WrittenTable, form: RecordForm) -> None:
    topic = published(table, "truncate", form)
    [record] = [item for item in topic.records if "truncated" in dict(item.headers)]
    value = json.loads(record.value or b"")
    after = value.get("payload", value)["after"]
    assert (after["id"], after["name"]) == (2, LARGE[:65_536])
    assert dict(record.headers)["truncated"] == b"name"
    assert len(topic.told) == 3


def test_a_row_is_left_out_and_noted(table: WrittenTable) -> None:
    topic = published(table, "dead_letter")
    assert [item["after"]["id"] for item in topic.told] == [1, 3]
    [letter] = [
        change for change in topic.schema_changes if change.place and change.place.topic == "dead"
    ]
    assert json.loads(letter.value or b"")["size_bytes"] > LIMIT
    assert dict(letter.headers)["rule"] == b"RecordTooLarge"
    assert json.loads(letter.key or b"") == {"id": 2}


def test_a_subscriber_gets_a_large_row_from_its_file(table: WrittenTable) -> None:
    topic = published(table, "claim_check")
    bus, copy = MemoryBus({"cdc.t": 1}), TableCopy()
    for record in topic.records:
        headers = [(name, one) for name, one in record.headers if isinstance(one, bytes)]
        bus.append(TopicPartition("cdc.t", 0), record.key, record.value, tuple(headers))
    with ChangeStream(bus, "cdc.t", store=LocalStore(table.root)) as follower:
        for change in follower.changes(quiet_s=0.1):
            copy.apply(change)
    assert sorted(row["name"] for row in copy.rows) == sorted(["n1", LARGE, "n3"])
    for file in (table.folder / "_tidegate/changes").iterdir():
        file.write_bytes(b"{}")
    with (
        ChangeStream(bus, "cdc.t", store=LocalStore(table.root)) as follower,
        pytest.raises(InvalidRequest, match="gone or another"),
    ):
        list(follower.changes(quiet_s=0.1))


@pytest.mark.parametrize(
    "given",
    [
        {"large_rows": "claim_check", "envelope": "flat"},
        {"large_rows": "claim_check", "tables": {"t": {"envelope": "delta"}}},
        {"large_rows": "truncate", "value_format": "avro", "registry": {"url": "mock://x"}},
    ],
)
def test_what_a_form_cannot_make_small_is_refused_at_once(given: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="large_rows"):
        CdcSection.model_validate(given)


@pytest.mark.parametrize("columns", [("before", "source"), ("source", "after")])
def test_a_row_with_columns_named_as_parts_of_an_envelope_is_cut(
    tmp_path: Path, columns: tuple[str, str]
) -> None:
    schema = pa.schema([(name, pa.string()) for name in columns])
    table = WrittenTable(
        tmp_path / "named", schema=schema, configuration={"tidegate.cdc.keyColumns": columns[0]}
    ).create()
    table.append([dict.fromkeys(columns, LARGE)])
    topic = published(table, "truncate", RecordForm(envelope="flat"))
    [record] = [record for record in topic.records if record.value]
    row = json.loads(record.value or b"")
    assert [len(row[name]) for name in columns] == [8_192, 8_192]
    assert dict(record.headers)["truncated"] == ",".join(sorted(columns)).encode()
