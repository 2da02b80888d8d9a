"""Rows become files: one per partition, with fresh names and exact statistics."""

import io
import json
from collections.abc import Sequence
from datetime import date

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.fakes.memory_store import MemoryStore
from tidegate_delta.errors import InvalidRequest
from tidegate_delta.log.actions import Add
from tidegate_delta.log.file_paths import decode_path
from tidegate_delta.schema.arrow_types import arrow_type, to_arrow
from tidegate_delta.schema.column_mapping import FIELD_ID, PHYSICAL_NAME, ColumnMappingMode
from tidegate_delta.schema.types import (
    DATE,
    DOUBLE,
    LONG,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    VARIANT,
    ArrayType,
    DataType,
    MapType,
    PrimitiveType,
    StructField,
    StructType,
)
from tidegate_producers.parquet import data_file_writer
from tidegate_producers.parquet.data_file_encoding import CHANGE_TYPE, FileLayout, of_changes
from tidegate_producers.parquet.data_file_writer import FileWriter
from tidegate_runtime.clock import SystemClock

SCHEMA = StructType(
    (
        StructField("p", STRING),
        StructField("d", DATE),
        StructField("x", LONG),
        StructField("y", DOUBLE),
    )
)


def rows(**columns: Sequence[object]) -> pa.Table:
    return pa.table(columns)


def write(layout: FileLayout, *tables: pa.Table) -> tuple[MemoryStore, list[Add]]:
    store = MemoryStore()
    files = FileWriter(store, layout, SystemClock(), task=7)
    for table in tables:
        files.write(table)
    return store, files.finish()


def content(store: MemoryStore, add: Add) -> pa.Table:
    return pq.read_table(io.BytesIO(store.files[decode_path(add.path)]))


def test_an_unpartitioned_task_writes_one_file_with_all_its_batches() -> None:
    store, adds = write(FileLayout(SCHEMA), rows(x=[1, 2]), rows(x=[3]))
    (add,) = adds
    assert content(store, add)["x"].to_pylist() == [1, 2, 3]
    assert add.size == len(store.files[add.path])
    assert add.data_change
    stats = json.loads(add.stats or "")
    assert stats["numRecords"] == 3
    assert (stats["minValues"]["x"], stats["maxValues"]["x"]) == (1, 3)
    assert stats["nullCount"]["y"] == 3


def test_names_contain_the_task_and_the_codec_and_are_never_given_twice() -> None:
    layout = FileLayout(SCHEMA, compression="snappy")
    names = [write(layout, rows(x=[1]))[1][0].path for _ in range(2)]
    assert names[0] != names[1]
    for name in names:
        assert name.startswith("part-00007-")
        assert name.endswith(".c000.snappy.parquet")


def test_each_partition_has_a_file_without_the_partition_columns() -> None:
    layout = FileLayout(SCHEMA, ("p", "d"))
    day = date(2013, 1, 1)
    batch = rows(p=["a", "b/c", "a"], d=[day, None, day], x=[1, 2, 3])
    store, adds = write(layout, batch, rows(p=["a"], d=[day], x=[4]))
    result = {tuple(add.partition_values.values()): add for add in adds}
    assert set(result) == {("a", "2013-01-01"), ("b/c", None)}
    first, second = result["a", "2013-01-01"], result["b/c", None]
    assert content(store, first).column_names == ["x", "y"]
    assert content(store, first)["x"].to_pylist() == [1, 3, 4]
    assert first.path.startswith("p=a/d=2013-01-01/part-")
    assert second.path.startswith("p=b%252Fc/d=__HIVE_DEFAULT_PARTITION__/part-")
    assert "p" not in json.loads(first.stats or "")["nullCount"]


def test_an_empty_string_and_null_are_one_partition() -> None:
    _, adds = write(FileLayout(SCHEMA, ("p",)), rows(p=["", None], x=[1, 2]))
    (add,) = adds
    assert add.partition_values == {"p": None}
    assert json.loads(add.stats or "")["numRecords"] == 2


def test_an_empty_value_in_a_not_null_partition_column_is_refused() -> None:
    schema = StructType((StructField("p", STRING, nullable=False), StructField("x", LONG)))
    with pytest.raises(InvalidRequest, match="'p' is NOT NULL"):
        write(FileLayout(schema, ("p",)), rows(p=[""], x=[1]))


def test_bytes_that_are_not_utf8_are_kept_but_make_no_partition() -> None:
    """Spark writes them: `cast(X'FF' AS STRING)`."""
    text = pa.array([b"\xff"], pa.binary()).view(pa.string())
    store, (add,) = write(FileLayout(SCHEMA), pa.table({"p": text}))
    assert content(store, add)["p"].cast(pa.binary()).to_pylist() == [b"\xff"]
    with pytest.raises(InvalidRequest, match="'p': a row holds bytes there that are not UTF-8"):
        write(FileLayout(SCHEMA, ("p",)), pa.table({"p": text, "x": pa.array([1])}))


@pytest.mark.parametrize("kind", [DATE, TIMESTAMP, TIMESTAMP_NTZ])
@pytest.mark.parametrize("far", [3_000_000, -800_000])
def test_a_partition_in_a_year_that_python_has_not_is_refused_by_name(
    kind: PrimitiveType, far: int
) -> None:
    days = pa.array([far], pa.int32())
    moments = pa.array([far * 86_400_000_000], pa.int64())
    values = (days if kind == DATE else moments).cast(arrow_type(kind))
    schema = StructType((StructField("id", LONG), StructField("d", kind)))
    with pytest.raises(InvalidRequest, match=r"'d'.*past year 9999"):
        write(FileLayout(schema, ("d",)), pa.table({"id": [1], "d": values}))


def test_a_file_holds_no_more_rows_than_asked_for() -> None:
    store, adds = write(
        FileLayout(SCHEMA, records_per_file_max=2), rows(x=[1, 2, 3]), rows(x=[4, 5])
    )
    assert [content(store, add)["x"].to_pylist() for add in adds] == [[1, 2], [3, 4], [5]]
    assert len({add.path for add in adds}) == 3


def test_a_task_that_holds_too_much_writes_its_largest_partition_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(data_file_writer, "BUFFERED_BYTES_MAX", 100)
    batch = rows(p=["a"] * 20 + ["b"], x=list(range(21)))
    store, adds = write(FileLayout(SCHEMA, ("p",)), batch, batch)
    assert [add.partition_values["p"] for add in adds] == ["a", "a", "b"]
    assert sum(content(store, add).num_rows for add in adds) == 42


def test_no_rows_make_no_file() -> None:
    store, adds = write(FileLayout(SCHEMA), rows(x=[]))
    assert (adds, store.files) == ([], {})


def test_statistics_follow_the_tables_choice_of_columns() -> None:
    _, (few,) = write(FileLayout(SCHEMA, stats_max=1), rows(p=["a"], x=[1]))
    assert list(json.loads(few.stats or "")["nullCount"]) == ["p"]
    _, (chosen,) = write(FileLayout(SCHEMA, stats_paths=(("x",),)), rows(p=["a"], x=[1]))
    assert list(json.loads(chosen.stats or "")["nullCount"]) == ["x"]


def mapped(name: str, kind: DataType, number: int) -> StructField:
    return StructField(name, kind, metadata={FIELD_ID: number, PHYSICAL_NAME: f"col-{number}"})


INNER = StructType((mapped("a", LONG, 3),))
MAPPED = StructType(
    (
        mapped("part of it", STRING, 1),
        mapped("inner", INNER, 2),
        mapped("list", ArrayType(INNER, True), 4),
        mapped("map", MapType(STRING, INNER, True), 5),
    )
)
NESTED = {
    "part of it": ["x", "x"],
    "inner": [{"a": 1}, None],
    "list": [[{"a": 2}], None],
    "map": [[("k", {"a": 3})], None],
}


def test_mapped_columns_have_their_physical_names_and_ids_in_files_statistics_and_folders() -> None:
    layout = FileLayout(MAPPED, ("part of it",), mode=ColumnMappingMode.NAME)
    store, [add] = write(layout, pa.table(NESTED, schema=to_arrow(MAPPED)))
    assert add.path.startswith("col-1=x/")
    assert add.partition_values == {"col-1": "x"}
    result = json.loads(add.stats or "")
    assert (result["minValues"], result["nullCount"]["col-2"]) == (
        {"col-2": {"col-3": 1}},
        {"col-3": 1},
    )
    found = content(store, add)
    assert found.to_pylist() == [
        {"col-2": {"col-3": 1}, "col-4": [{"col-3": 2}], "col-5": [("k", {"col-3": 3})]},
        {"col-2": None, "col-4": None, "col-5": None},
    ]
    inside = found.schema.field("col-2")
    assert inside.metadata[b"PARQUET:field_id"] == b"2"
    assert inside.type.field(0).metadata[b"PARQUET:field_id"] == b"3"


def test_columns_that_statistics_name_are_found_by_their_names_in_the_table() -> None:
    layout = FileLayout(MAPPED, stats_paths=(("inner",),), mode=ColumnMappingMode.ID)
    _, [add] = write(layout, pa.table(NESTED, schema=to_arrow(MAPPED)))
    assert json.loads(add.stats or "")["nullCount"] == {"col-2": {"col-3": 1}}


def test_both_parts_of_a_variant_are_required_as_in_spark() -> None:
    schema = StructType((StructField("v", VARIANT),))
    parts = pa.array([{"value": b"\x0c\x01", "metadata": b"\x01\x00\x00"}, None])
    store, [add] = write(FileLayout(schema), pa.table({"v": parts}))
    written = content(store, add).schema.field("v").type
    assert [field.nullable for field in written] == [False, False]
    assert content(store, add)["v"].null_count == 1


@pytest.mark.parametrize("nested", ["alone", "in a struct", "in a list", "in a map"])
def test_a_null_variant_is_written_whose_parts_are_null_as_spark_sends_them(nested: str) -> None:
    kind, rows = _null_variants(nested)
    store, [add] = write(FileLayout(StructType((StructField("v", kind),))), pa.table({"v": rows}))
    assert content(store, add)["v"].to_pylist() == rows.to_pylist()


def _null_variants(nested: str) -> tuple[DataType, pa.Array]:
    """Return a type and two rows: a variant, and a null one."""
    parts = [pa.array([b"\x01\x00\x00", None]), pa.array([b"\x0c\x01", None])]
    fields = [pa.field(name, pa.binary(), nullable=False) for name in ("metadata", "value")]
    rows = pa.StructArray.from_arrays(parts, fields=fields, mask=pa.array([False, True]))
    match nested:
        case "in a struct":
            inside = StructType((StructField("i", VARIANT),))
            return inside, pa.StructArray.from_arrays([rows], names=["i"])
        case "in a list":
            return ArrayType(VARIANT), pa.ListArray.from_arrays([0, 2, 2], rows)
        case "in a map":
            keys = pa.array(["a", "b"])
            return MapType(STRING, VARIANT), pa.MapArray.from_arrays([0, 1, 2], keys, rows)
    return VARIANT, rows


def test_change_files_lie_in_their_folder_with_the_change_type_of_each_row() -> None:
    store = MemoryStore()
    writer = FileWriter(store, of_changes(FileLayout(SCHEMA, ("p",))), SystemClock())
    writer.write(rows(p=["a", "b"], x=[1, 2], **{CHANGE_TYPE: ["insert", "delete"]}))
    changes = writer.finish_changes()
    assert [change.partition_values for change in changes] == [{"p": "a"}, {"p": "b"}]
    assert all(change.path.startswith("_change_data/p=") for change in changes)
    assert not any(change.data_change for change in changes)
    first = pq.read_table(io.BytesIO(store.files[decode_path(changes[0].path)]))
    assert first.to_pylist() == [{"d": None, "x": 1, "y": None, CHANGE_TYPE: "insert"}]


def test_rows_keep_their_ids_where_they_have_some() -> None:
    layout = FileLayout(SCHEMA, row_ids=("_row-id", "_row-version"))
    store, [add] = write(layout, rows(x=[1], **{"_row-id": [7]}), rows(x=[2]))
    result = content(store, add)
    assert result["_row-id"].to_pylist() == [7, None]
    assert result["_row-version"].null_count == 2
    assert "_row-id" not in (add.stats or "")
