"""Each change of a table's schema is one that a registry takes at BACKWARD, or refused by name."""

from decimal import Decimal
from pathlib import Path
from typing import get_args

import pyarrow as pa
import pytest

from tests.fakes.backward_registry import BackwardRegistry
from tests.unit.cdc_publisher.mapped_table import MappedTable
from tests.unit.cdc_publisher.memory_change_topic import Topic, stream
from tests.unit.cdc_publisher.written_table import SCHEMA, WrittenTable, rows
from tidegate_cdc_publisher.record_form import Decimals, Format, RecordForm, ValueTypes
from tidegate_cdc_publisher.schema_registry import INCOMPATIBLE, Registry, misread_columns
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


@pytest.mark.parametrize("record_format", REGISTERED)
@pytest.mark.parametrize("kind", [pa.int64(), pa.string(), pa.float64()], ids=str)
@pytest.mark.parametrize("is_new", [True, False], ids=["a new column", "an old column"])
def test_a_column_that_must_have_a_value_is_refused_where_old_records_have_none(
    tmp_path: Path, record_format: Format, kind: pa.DataType, *, is_new: bool
) -> None:
    """NaN is null in these formats, so floats may always be null; Protobuf's readers find null."""
    topic, client, how = Topic(), BackwardRegistry(), form(record_format)
    identity = pa.field("id", pa.int64())
    fields = [identity] if is_new else [identity, pa.field("more", kind)]
    table = WrittenTable(tmp_path / "t", schema=pa.schema(fields)).create()
    table.append([{"id": 1}])
    follow(table, topic, how, client)
    value = {pa.int64(): 0, pa.string(): "", pa.float64(): 0.0}[kind]
    required = pa.field("more", kind, nullable=False)
    table.replace(pa.schema([identity, required]), [{"id": 1, "more": value}])
    if record_format == "protobuf" or kind == pa.float64():
        follow(table, topic, how, client)
        assert len(topic.records) == 4  # a delete with its tombstone, and an insert
        return
    with pytest.raises(InvalidRequest, match=r"version 2.*more") as refused:
        follow(table, topic, how, client)
    assert refused.value.error_class == INCOMPATIBLE
    assert len(topic.records) == 1


@pytest.mark.parametrize("record_format", REGISTERED)
def test_a_number_that_becomes_a_decimal_is_taken_as_a_double_alone(
    tmp_path: Path, record_format: Format
) -> None:
    """In Protobuf a whole number and a double have different bytes."""
    for decimals in get_args(Decimals):
        types = ValueTypes(types="debezium", decimals=decimals)
        if record_format == "protobuf" and decimals == "precise":
            continue
        topic, client = Topic(), BackwardRegistry()
        how = form(record_format, types)
        table = begun(tmp_path / decimals, topic, how, client)
        table.widen("few", "decimal(14,4)")
        table.append(table.rows({"id": 2, "few": Decimal("0.5000")}))
        if decimals == "double" and record_format != "protobuf":
            follow(table, topic, how, client)
            assert len(topic.records) == 2
            continue
        with pytest.raises(InvalidRequest, match="widen few from integer to decimal") as refused:
            follow(table, topic, how, client)
        assert refused.value.error_class == INCOMPATIBLE
        assert len(topic.records) == 1


@pytest.mark.parametrize(
    ("record_format", "is_mapped", "is_taken"),
    [
        ("avro", True, True),
        ("json_schema_registry", True, False),
        ("protobuf", True, True),
        ("protobuf", False, False),
    ],
)
def test_other_key_columns_are_taken_or_refused_by_their_names(
    tmp_path: Path, record_format: Format, *, is_mapped: bool, is_taken: bool
) -> None:
    topic, client, how = Topic(), BackwardRegistry(), form(record_format)
    table: WrittenTable = WrittenTable(tmp_path / "t").create()
    if is_mapped:
        table = MappedTable.at(tmp_path / "m", id="long", name="string")
    content = table.rows({"id": 1, "name": "x"}) if isinstance(table, MappedTable) else rows(1)
    table.append(content)
    follow(table, topic, how, client)
    table.set_metadata(**{"tidegate.cdc.keyColumns": "name"})
    if is_taken:
        follow(table, topic, how, client)
        assert len(client.versions["cdc.t-key"]) == 2
        return
    with pytest.raises(InvalidRequest, match="key columns id become name") as refused:
        follow(table, topic, how, client)
    assert refused.value.error_class == INCOMPATIBLE


def test_a_key_column_that_may_not_be_null_is_no_other_key_in_avro(tmp_path: Path) -> None:
    topic, client, how = Topic(), BackwardRegistry(), form("avro")
    fields = [pa.field("id", pa.int64()), pa.field("name", pa.string(), nullable=False)]
    table = WrittenTable(tmp_path / "t", schema=pa.schema(fields)).create()
    table.append([{"id": 1, "name": "x"}])
    follow(table, topic, how, client)
    table.set_metadata(**{"tidegate.cdc.keyColumns": "name"})
    with pytest.raises(InvalidRequest, match="key columns id become name"):
        follow(table, topic, how, client)


def test_a_schema_that_a_registry_had_before_is_compared_with_the_newest(tmp_path: Path) -> None:
    """The registry takes it unseen, and old readers could not read the column added meanwhile."""
    topic, client, how = Topic(), BackwardRegistry(), form("json_schema_registry")
    table = begun(tmp_path, topic, how, client)
    table.add("more", "string")
    follow(table, topic, how, client)
    table.remove("more")
    with pytest.raises(InvalidRequest, match=r"drop more.*had this schema before") as refused:
        follow(table, topic, how, client)
    assert refused.value.error_class == INCOMPATIBLE
    client.levels["cdc.t-value"] = "NONE"
    follow(table, topic, how, client)


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
