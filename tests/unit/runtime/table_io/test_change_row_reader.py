import json
from typing import Any

import pyarrow as pa
import pytest

from tests.fakes.memory_store import MemoryStore
from tests.support.refusals import refused
from tests.support.table_files import parquet
from tidegate_delta.errors import BrokenLog, InvalidRequest, TidegateError, UnsupportedFeature
from tidegate_delta.log.file_names import commit_name, in_log
from tidegate_runtime.table_io.change_row_reader import read_changes, stream_changes

FEED = {"delta.enableChangeDataFeed": "true"}
LONG = {"name": "v", "type": "long", "nullable": True, "metadata": {}}
TEXT = {"name": "s", "type": "string", "nullable": True, "metadata": {}}
PARTITION = {"name": "p", "type": "string", "nullable": True, "metadata": {}}


def metadata(configuration: dict[str, str] | None = None, *fields: Any) -> dict[str, Any]:
    schema = {"type": "struct", "fields": list(fields or (PARTITION, LONG))}
    return {
        "metaData": {
            "id": "t",
            "format": {"provider": "parquet", "options": {}},
            "schemaString": json.dumps(schema),
            "partitionColumns": ["p"],
            "configuration": FEED if configuration is None else configuration,
        }
    }


PROTOCOL = {"protocol": {"minReaderVersion": 1, "minWriterVersion": 4}}


class Table:
    """An in-memory table whose files all have the same modification time."""

    def __init__(self) -> None:
        self.store = MemoryStore(now_ms=lambda: 1_000)
        self.version = -1

    def commit(self, *rows: dict[str, Any]) -> None:
        self.version += 1
        content = "".join(json.dumps(row) + "\n" for row in rows)
        self.store.put(in_log(commit_name(self.version)), content.encode())

    def file(self, path: str, **columns: list[Any]) -> dict[str, Any]:
        self.store.files[path] = parquet(pa.table(columns))
        return {"path": path, "partitionValues": {"p": "x"}, "size": 1}

    def add(self, path: str, **columns: list[Any]) -> dict[str, Any]:
        body = self.file(path, **columns)
        return {"add": {**body, "modificationTime": 0, "dataChange": True}}

    def cdc(self, path: str, **columns: list[Any]) -> dict[str, Any]:
        return {"cdc": {**self.file(path, **columns), "dataChange": False}}


def remove(path: str) -> dict[str, Any]:
    return {"remove": {"path": path, "partitionValues": {"p": "x"}, "dataChange": True}}


class Forgetful(MemoryStore):
    """Version 2 exists when the table is opened, and is gone at the second read."""

    reads = 0

    def read(self, path: str) -> bytes | None:
        self.reads += path == in_log(commit_name(2))
        gone = path == in_log(commit_name(2)) and self.reads > 1
        return None if gone else super().read(path)


@pytest.fixture
def table() -> Table:
    made = Table()
    made.commit(PROTOCOL, metadata())
    made.commit(made.add("a", v=[1, 2]))
    made.commit(
        remove("a"), made.add("b", v=[2]), made.cdc("c", v=[1], _change_type=["update_preimage"])
    )
    made.commit(remove("b"))
    return made


def as_tuples(rows: pa.Table) -> list[tuple[Any, ...]]:
    columns = ["v", "_change_type", "_commit_version"]
    return [tuple(row.values()) for row in rows.select(columns).to_pylist()]


def refusal(table: Table, *versions: int) -> tuple[type[TidegateError], str]:
    with pytest.raises(TidegateError) as caught:
        read_changes(table.store, *versions)
    return type(caught.value), caught.value.error_class


def test_changes_come_from_change_files_else_from_data_files(table: Table) -> None:
    assert as_tuples(read_changes(table.store, 0)) == [
        (1, "insert", 1),
        (2, "insert", 1),
        (1, "update_preimage", 2),
        (2, "delete", 3),
    ]
    assert as_tuples(read_changes(table.store, 3, 3)) == [(2, "delete", 3)]


def test_the_schema_is_the_tables_with_the_columns_of_the_change_feed(table: Table) -> None:
    result = read_changes(table.store, 1, 1)
    assert result.schema.names == ["p", "v", "_change_type", "_commit_version", "_commit_timestamp"]
    assert result.schema.field("_commit_timestamp").type == pa.timestamp("us", "UTC")
    assert result.column("p").to_pylist() == ["x", "x"]
    assert read_changes(table.store, 0, 0).num_rows == 0


def test_a_commits_time_is_its_files_made_to_rise(table: Table) -> None:
    times = read_changes(table.store, 0).column("_commit_timestamp").cast(pa.int64()).to_pylist()
    assert times == [1_001_000, 1_001_000, 1_002_000, 1_003_000]


def test_a_commits_own_timestamp_goes_before_its_files(table: Table) -> None:
    table.commit({"commitInfo": {"inCommitTimestamp": 77}}, table.add("d", v=[5]))
    (at,) = read_changes(table.store, 4).column("_commit_timestamp").cast(pa.int64()).to_pylist()
    assert at == 77_000


def test_an_end_past_the_newest_version_is_the_newest(table: Table) -> None:
    assert as_tuples(read_changes(table.store, 3, 99)) == [(2, "delete", 3)]


def test_a_stream_of_changes_reads_a_file_when_its_batch_is_requested(table: Table) -> None:
    shape, batches = stream_changes(table.store, 0)
    whole = read_changes(table.store, 0)
    first = next(batches)

    for path in [path for path in table.store.files if not path.startswith("_delta_log")]:
        del table.store.files[path]

    assert shape == whole.schema
    assert first.to_pylist() == whole.slice(0, first.num_rows).to_pylist()
    with pytest.raises(BrokenLog):
        list(batches)


def test_a_stream_of_changes_checks_its_range_at_once(table: Table) -> None:
    with pytest.raises(InvalidRequest):
        stream_changes(table.store, 99)


def test_ranges_that_make_no_sense_are_refused(table: Table) -> None:
    assert refusal(table, 2, 1) == (InvalidRequest, "InvalidVersionRange")
    assert refusal(table, -1) == (InvalidRequest, "InvalidVersionRange")
    assert refusal(table, 4) == (InvalidRequest, "VersionNotFound")


def test_versions_that_recorded_no_changes_are_refused(table: Table) -> None:
    table.commit(metadata({}))
    table.commit(metadata())
    assert refusal(table, 3) == (InvalidRequest, "CdfNotEnabled")
    assert refusal(table, 4) == (InvalidRequest, "CdfNotEnabled")
    assert read_changes(table.store, 5).num_rows == 0
    assert as_tuples(read_changes(table.store, 3, 3)) == [(2, "delete", 3)]


def test_older_rows_are_read_in_the_newest_schema(table: Table) -> None:
    table.commit(metadata(FEED, PARTITION, LONG, TEXT))
    table.commit(table.add("d", v=[5], s=["new"]))
    rows = read_changes(table.store, 3).select(["v", "s"]).to_pylist()
    assert rows == [{"v": 2, "s": None}, {"v": 5, "s": "new"}]


def test_a_schema_that_cannot_be_read_as_the_newest_is_refused(table: Table) -> None:
    table.commit(metadata(FEED, PARTITION, {**LONG, "type": "string"}))
    assert refusal(table, 1, 3) == (UnsupportedFeature, "UnsupportedFeature")
    assert read_changes(table.store, 4).num_rows == 0


@pytest.mark.parametrize("before", [[], ["p"]])
def test_files_from_before_a_new_partitioning_keep_their_values(before: list[str]) -> None:
    table = Table()

    def file(path: str, *partition_columns: str) -> dict[str, Any]:
        own = {"p": "x"} if partition_columns else {}
        body = table.add(path, v=[1], **({} if own else {"p": ["x"]}))["add"]
        return {**body, "partitionValues": own}

    def partitioned(*columns: str) -> dict[str, Any]:
        return {"metaData": {**metadata()["metaData"], "partitionColumns": columns}}

    after = [] if before else ["p"]
    old, new = file("a", *before), file("b", *after)
    gone = {**remove("a")["remove"], "partitionValues": old["partitionValues"]}
    table.commit(PROTOCOL, partitioned(*before), {"add": old})
    table.commit(partitioned(*after), {"remove": gone}, {"add": new})
    result = read_changes(table.store, 0).select(["p", "_change_type"]).to_pylist()
    assert [tuple(row.values()) for row in result] == [
        ("x", "insert"),
        ("x", "delete"),
        ("x", "insert"),
    ]


def test_a_commit_that_is_gone_is_a_gap(table: Table) -> None:
    forgetful = Forgetful()
    forgetful.files = table.store.files
    with refused(BrokenLog, "LogGap"):
        read_changes(forgetful, 1)


def named(name: str, physical: str, number: int, kind: str = "long") -> dict[str, Any]:
    about = {"delta.columnMapping.id": number, "delta.columnMapping.physicalName": physical}
    return {"name": name, "type": kind, "nullable": True, "metadata": about}


@pytest.fixture
def renamed() -> Table:
    """A table that enables column mapping at version 2 and renames a column at version 4."""
    by_name = {**FEED, "delta.columnMapping.mode": "name"}
    made = Table()
    made.commit(PROTOCOL, metadata())
    made.commit(made.add("a", v=[1]))
    made.commit(
        {"protocol": {"minReaderVersion": 2, "minWriterVersion": 5}},
        metadata(by_name, named("p", "p", 1, "string"), named("v", "v", 2)),
    )
    made.commit(made.add("b", v=[2]))
    made.commit(metadata(by_name, named("p", "p", 1, "string"), named("w", "v", 2)))
    made.commit(made.add("c", v=[3]), made.cdc("d", v=[3], _change_type=["insert"]))
    return made


def test_changes_of_mapped_columns_have_the_names_of_the_last_version(renamed: Table) -> None:
    assert read_changes(renamed.store, 0, 3).column("v").to_pylist() == [1, 2]
    assert read_changes(renamed.store, 0, 1).column("v").to_pylist() == [1]
    result = read_changes(renamed.store, 4)
    assert result.column("w").to_pylist() == [3]
    assert result.column("p").to_pylist() == ["x"]
    assert result.column("_change_type").to_pylist() == ["insert"]


@pytest.mark.parametrize("start", [0, 2, 3])
def test_changes_across_a_change_of_name_are_refused(renamed: Table, start: int) -> None:
    with pytest.raises(UnsupportedFeature, match="renamed"):
        read_changes(renamed.store, start)
