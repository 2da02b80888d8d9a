"""When a change stream stops rather than publish wrong changes, and how keys behave."""

import json
from pathlib import Path

import pytest

from tests.unit.cdc_publisher.memory_change_topic import Topic, stream
from tests.unit.cdc_publisher.written_table import WIRE, WrittenTable, rows
from tidegate_cdc_publisher.settings import TableChanges
from tidegate_delta.errors import BrokenLog, InvalidRequest, Unavailable, UnsupportedFeature
from tidegate_messages.stream_position import Position


@pytest.fixture
def table(tmp_path: Path) -> WrittenTable:
    return WrittenTable(tmp_path / "t").create()


def test_a_version_gone_from_the_log_stops_the_stream(table: WrittenTable) -> None:
    table.append(rows(1))
    topic = Topic()
    stream(table, topic).catch_up(1)
    table.append(rows(2))
    table.append(rows(3))
    (table.folder / "_delta_log" / f"{2:020d}.json").unlink()
    with pytest.raises(BrokenLog) as caught:
        stream(table, topic).catch_up(3)
    assert caught.value.error_class == "GAP"
    assert [item["after"]["id"] for item in topic.told] == [1]


def test_versions_before_one_that_cannot_be_published_are_published_whole(
    table: WrittenTable,
) -> None:
    topic = Topic()
    stream(table, topic).catch_up(0)
    table.append(rows(1))
    table.rewrite(lambda old: [{**row, "price": 9.5} for row in old])
    table.append(rows(2), rows(3))
    (table.folder / "part-00004.parquet").unlink()
    for _ in range(2):
        with pytest.raises(BrokenLog) as caught:
            stream(table, topic).catch_up(3)
        assert caught.value.error_class == "DataFileMissing"
        assert [item["op"] for item in topic.told] == ["c", "u"]
        assert topic.position is not None
        assert (topic.position.version, topic.position.complete) == (2, True)


def test_a_log_that_was_cut_back_stops_the_stream(table: WrittenTable) -> None:
    topic = Topic(position=Position(table=table.id, version=9, complete=True))
    with pytest.raises(BrokenLog) as caught:
        stream(table, topic).catch_up(0)
    assert caught.value.error_class == "GAP"


def test_other_key_columns_in_the_middle_of_a_version_hold_from_the_next_one(
    table: WrittenTable,
) -> None:
    table.append(rows(*range(10)))
    topic = Topic()
    topic.dies_at = 1
    with pytest.raises(Unavailable):
        stream(table, topic, chunk_rows=4).catch_up(1)
    other = TableChanges(key_columns=("name",))
    stream(table, topic, other).catch_up(1)
    assert [item["after"]["id"] for item in topic.told] == list(range(10))
    table.append(rows(11))
    stream(table, topic, other).catch_up(2)
    assert topic.keys == [*(b'{"id":%d}' % key for key in range(10)), b'{"name":"n11"}']


def test_an_unknown_order_stops_a_partly_published_version(table: WrittenTable) -> None:
    table.append(rows(*range(10)))
    partly = Position(table=table.id, version=1, index=3, complete=False, order="0:id")
    with pytest.raises(BrokenLog, match="key columns"):
        stream(table, Topic(position=partly)).catch_up(1)


def test_a_table_without_key_columns_is_refused(tmp_path: Path) -> None:
    table = WrittenTable(tmp_path / "t", configuration={}).create()
    with pytest.raises(InvalidRequest, match=r"tidegate\.cdc\.keyColumns"):
        stream(table, Topic()).catch_up(0)


def test_a_table_declared_to_have_no_key_is_published_without(tmp_path: Path) -> None:
    table, topic = WrittenTable(tmp_path / "t", configuration={}).create(), Topic()
    table.append(rows(1, 2))
    stream(table, topic, TableChanges(key="none")).catch_up(1)
    table.rewrite(lambda old: [{**row, "price": 9.5} for row in old])
    stream(table, topic, TableChanges(key="none")).catch_up(2)
    assert topic.ops(2) == ["d", "d", "c", "c"]
    assert {record.key for record in topic.records} == {None}
    assert len(topic.told) == len(topic.records)


def test_settings_stand_above_the_tables_own_key(table: WrittenTable) -> None:
    table.append(rows(1))
    topic = Topic()
    stream(table, topic, TableChanges(key_columns=("NAME",))).catch_up(1)
    assert topic.records[0].key == b'{"name":"n1"}'


def test_a_key_column_that_is_not_there_is_refused_by_name(table: WrittenTable) -> None:
    with pytest.raises(InvalidRequest, match="'nope'"):
        stream(table, Topic(), TableChanges(key_columns=("nope",))).catch_up(0)


def mapped(table: WrittenTable, renamed: str, **configuration: str) -> None:
    """Write metadata with column mapping by name, in which the column `id` is called `renamed`."""
    names = {"id": renamed, "name": "name", "price": "price"}
    fields = [
        {
            "name": names[one.name],
            "type": WIRE[one.type],
            "nullable": True,
            "metadata": {
                "delta.columnMapping.id": place,
                "delta.columnMapping.physicalName": one.name,
            },
        }
        for place, one in enumerate(table.schema, 1)
    ]
    mode = {"delta.columnMapping.mode": "name", "delta.columnMapping.maxColumnId": "3"}
    table.configuration = {**table.configuration, **mode, **configuration}
    metadata = {
        "id": "00000000-0000-0000-0000-00000000f11e",
        "format": {"provider": "parquet", "options": {}},
        "schemaString": json.dumps({"type": "struct", "fields": fields}),
        "partitionColumns": [],
        "configuration": dict(table.configuration),
    }
    protocol = {"minReaderVersion": 2, "minWriterVersion": 5}
    table.commit("RENAME COLUMN", {"protocol": protocol}, {"metaData": metadata})


def test_a_renamed_key_column_goes_on_under_its_new_name(table: WrittenTable) -> None:
    topic = Topic()
    mapped(table, "id")
    table.append(rows(1))
    stream(table, topic).catch_up(table.version)
    mapped(table, "ident")
    table.append(rows(2))
    stream(table, topic).catch_up(table.version)
    table.append(rows(3))
    stream(table, topic).catch_up(table.version)
    mapped(table, "number")
    table.append(rows(4))
    stream(table, topic).catch_up(table.version)
    assert topic.keys == [b'{"id":1}', b'{"ident":2}', b'{"ident":3}', b'{"number":4}']
    assert topic.position is not None
    assert topic.position.declared == ("id",)
    table.append(rows(5))
    with pytest.raises(InvalidRequest, match="'nope'"):
        stream(table, topic, TableChanges(key_columns=("nope",))).catch_up(table.version)
    mapped(table, "number", **{"tidegate.cdc.keyColumns": "number"})
    stream(table, topic).catch_up(table.version)
    assert topic.position.declared is None


def test_a_corrected_property_holds_from_the_version_at_which_the_stream_stands(
    table: WrittenTable,
) -> None:
    topic = Topic()
    stream(table, topic).catch_up(0)
    table.set_metadata(**{"tidegate.cdc.keyColumns": "nope"})
    table.append(rows(1))
    with pytest.raises(InvalidRequest, match="tidegate table alter t --property"):
        stream(table, topic).catch_up(table.version)
    table.set_metadata(**{"tidegate.cdc.keyColumns": "name"})
    table.append(rows(2))
    stream(table, topic).catch_up(table.version)
    assert topic.keys == [b'{"name":"n1"}', b'{"name":"n2"}']


def test_a_protocol_we_do_not_read_stops_the_stream_before_its_version(table: WrittenTable) -> None:
    table.append(rows(1))
    topic = Topic()
    stream(table, topic).catch_up(1)
    features = {"readerFeatures": ["catalogManaged"], "writerFeatures": ["catalogManaged"]}
    table.commit("x", {"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, **features}})
    table.append(rows(2))
    with pytest.raises(UnsupportedFeature, match="catalogManaged"):
        stream(table, topic).catch_up(3)
    assert [item["after"]["id"] for item in topic.told] == [1]


def test_the_error_of_an_earlier_chunk_is_raised_before_that_of_a_later_one(
    table: WrittenTable,
) -> None:
    topic = Topic()
    stream(table, topic).catch_up(0)
    table.append(rows(*range(4)))
    table.append(rows(9))
    (table.folder / "_delta_log" / f"{2:020d}.json").unlink()
    topic.dies_at = 1
    with pytest.raises(Unavailable):
        stream(table, topic, chunk_rows=4).catch_up(2)
    assert topic.told == []
    with pytest.raises(BrokenLog):
        stream(table, topic, chunk_rows=4).catch_up(2)
    assert [item["after"]["id"] for item in topic.told] == [0, 1, 2, 3]
