"""Each change of a table's schema is one that a registry takes at BACKWARD, or refused by name."""

from pathlib import Path

import pyarrow as pa
import pytest

from tests.fakes.backward_registry import BackwardRegistry
from tests.unit.cdc_publisher.mapped_table import MappedTable
from tests.unit.cdc_publisher.memory_change_topic import Topic, stream
from tests.unit.cdc_publisher.written_table import SCHEMA, WrittenTable, rows
from tidegate_cdc_publisher.record_form import Format, RecordForm, ValueTypes
from tidegate_cdc_publisher.schema_evolution import misread_columns
from tidegate_cdc_publisher.schema_registry import INCOMPATIBLE, Registry
from tidegate_delta.errors import InvalidRequest

REGISTERED: tuple[Format, ...] = ("avro", "json_schema_registry", "protobuf")
PRECISE = ValueTypes(types="debezium", decimals="precise")
ISO = ValueTypes()


def form(record_format: Format, types: ValueTypes = ISO) -> RecordForm:
    return RecordForm(record_format, record_format, types)


def begun(folder: Path, topic: Topic, how: RecordForm, client: BackwardRegistry) -> MappedTable:
    """Return a table with a column of many types, whose first row is published."""
    kinds = {"id": "long", "name": "string", "few": "integer", "day": "date"}
    table = MappedTable.at(folder / "t", **kinds, price="decimal(6,2)")
    table.append(table.rows({"id": 1, "name": "x"}))
    follow(table, topic, how, client)
    return table


def follow(table: WrittenTable, topic: Topic, how: RecordForm, client: BackwardRegistry) -> None:
    registry = Registry(client, "mock://")  # type: ignore[arg-type]  # a double of the client
    stream(table, topic, form=how, registry=registry).catch_up(table.version)


@pytest.mark.parametrize("record_format", REGISTERED)
def test_an_added_column_and_a_wider_number_are_taken(
    tmp_path: Path, record_format: Format
) -> None:
    topic, client = Topic(), BackwardRegistry()
    table = begun(tmp_path, topic, form(record_format), client)
    table.add("more", "string")
    table.widen("few", "long")
    table.append(table.rows({"id": 2, "more": "y", "few": 2**40}))
    follow(table, topic, form(record_format), client)
    assert len(topic.records) == 2
    assert len(client.versions["cdc.t-value"]) == 3


@pytest.mark.parametrize(
    ("record_format", "name", "is_taken"),
    [("avro", "name", True), ("protobuf", "name", True), ("json_schema_registry", "name", False)],
)
def test_a_dropped_or_renamed_column_is_taken_or_refused_by_its_name(
    tmp_path: Path, record_format: Format, name: str, is_taken: bool
) -> None:
    """A closed JSON Schema can't lose a property: old records would not fit it."""
    for change in ("drop", "rename"):
        topic, client = Topic(), BackwardRegistry()
        table = begun(tmp_path / change, topic, form(record_format), client)
        table.remove(name) if change == "drop" else table.rename(name, "other")
        table.append(table.rows({"id": 2}))
        if is_taken:
            follow(table, topic, form(record_format), client)
            assert len(topic.records) == 2
            continue
        with pytest.raises(InvalidRequest, match=rf"version 2.*{change} {name}.*NONE") as refused:
            follow(table, topic, form(record_format), client)
        assert refused.value.error_class == INCOMPATIBLE
        assert len(topic.records) == 1
        client.levels["cdc.t-value"] = "NONE"
        follow(table, topic, form(record_format), client)
        assert len(topic.records) == 2


@pytest.mark.parametrize("record_format", REGISTERED[:2])
@pytest.mark.parametrize(("name", "kind"), [("price", "decimal(12,4)"), ("day", "timestamp_ntz")])
def test_a_wider_type_whose_old_bytes_mean_another_value_is_refused(
    tmp_path: Path, record_format: Format, name: str, kind: str
) -> None:
    """The registry compares bytes with bytes and long with int, and would take it."""
    topic, client = Topic(), BackwardRegistry()
    table = begun(tmp_path, topic, form(record_format, PRECISE), client)
    table.widen(name, kind)
    with pytest.raises(InvalidRequest, match=rf"'{name}' was .* and is .*NONE") as refused:
        follow(table, topic, form(record_format, PRECISE), client)
    assert refused.value.error_class == INCOMPATIBLE
    client.levels["cdc.t-value"] = "NONE"
    follow(table, topic, form(record_format, PRECISE), client)


def test_a_protobuf_field_number_never_becomes_that_of_another_column(tmp_path: Path) -> None:
    """Without column mapping numbers are places; the registry takes a field of another name."""
    topic, client, how = Topic(), BackwardRegistry(), form("protobuf")
    table = WrittenTable(tmp_path / "t").create()
    table.append(rows(1))
    follow(table, topic, how, client)
    moved = pa.schema([("id", pa.int64()), ("extra", pa.string()), *list(SCHEMA)[1:]])
    table.replace(moved, [{**rows(2)[0], "extra": "x"}])
    with pytest.raises(InvalidRequest, match=r"'extra' has the field number 2 that 'name' had"):
        follow(table, topic, how, client)


def test_the_columns_of_a_protobuf_stream_are_not_mapped_in_silence() -> None:
    """All numbers become those of field ids: a reader would find no column in old records."""
    column = {"type": "string", "field": "a"}
    before, after = ({"type": "struct", "fields": [one]} for one in (column, {**column, "id": 1}))
    found = [*misread_columns("protobuf", before, after)]
    assert found == ["column 'a' had the field number 1 and has 17"]
    assert not [*misread_columns("avro", before, after)]


@pytest.mark.parametrize("record_format", REGISTERED)
def test_nothing_of_a_version_is_sent_if_its_schema_is_refused(
    tmp_path: Path, record_format: Format
) -> None:
    """Its deletes come first, in the schema before, and may fill chunks of their own."""
    topic, client = Topic(), BackwardRegistry()
    table = WrittenTable(tmp_path / "t").create()
    table.append(rows(*range(10)))
    registry = Registry(client, "mock://")  # type: ignore[arg-type]  # a double of the client
    how = form(record_format)
    stream(table, topic, form=how, registry=registry, chunk_rows=2).catch_up(1)
    told = list(topic.records)
    other = pa.schema([("id", pa.int64()), ("name", pa.float64())])
    table.replace(other, [{"id": 100, "name": 0.5}])
    with pytest.raises(InvalidRequest, match=r"version 2 of table t changes its schema.*name"):
        stream(table, topic, form=how, registry=registry, chunk_rows=2).catch_up(2)
    assert topic.records == told
