import json
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests import builders
from tests.definitions import one_file
from tests.fakes.memory_store import MemoryStore
from tests.support.refusals import refused
from tests.support.table_files import parquet
from tidegate_delta.data_skipping.file_statistics import compute
from tidegate_delta.deletion_vectors import descriptors, roaring_bitmap
from tidegate_delta.deletion_vectors.descriptors import RowChoice
from tidegate_delta.errors import BrokenLog, InvalidRequest, Unavailable, UnsupportedFeature
from tidegate_delta.log.actions import Metadata, Protocol
from tidegate_delta.log.file_names import Version
from tidegate_delta.schema.column_mapping import ColumnMappingMode
from tidegate_delta.schema.types import LONG, StructField, parse_schema
from tidegate_delta.snapshots.file_action_columns import REMOVE_SCHEMA, adds_to_columns
from tidegate_delta.snapshots.snapshot import Snapshot
from tidegate_runtime.storage.local_store import LocalStore
from tidegate_runtime.table_io.data_file_reader import (
    ROWS_MAX,
    FileShare,
    read_file,
    read_rows,
    read_table,
    scan,
    schema_of,
)
from tidegate_runtime.table_io.open_table import open_snapshot
from tidegate_runtime.table_io.row_ids import POSITION


def struct(**kinds: Any) -> dict[str, Any]:
    fields = [{"name": name, "type": kind, "nullable": True} for name, kind in kinds.items()]
    return {"type": "struct", "fields": fields}


def metadata(*partition_columns: str, **kinds: Any) -> Metadata:
    text = json.dumps(struct(**kinds))
    return Metadata(id="t", schema_string=text, partition_columns=partition_columns)


def store_of(**files: pa.Table | bytes) -> MemoryStore:
    store = MemoryStore()
    for name, rows in files.items():
        store.files[name] = rows if isinstance(rows, bytes) else parquet(rows)
    return store


def row_of(path: str, **values: str | None) -> dict[str, Any]:
    return {"path": path, "partitionValues": list(values.items()), "deletionVector": None}


def read(rows: pa.Table | bytes, of: Metadata, *columns: str, **values: str | None) -> pa.Table:
    store = store_of(a=rows)
    return pa.Table.from_batches(read_file(store, row_of("a", **values), of, columns or None))


def test_columns_come_in_the_schemas_order_and_types() -> None:
    rows = pa.table({"extra": [1], "b": pa.array(["x"]), "a": pa.array([1], pa.int32())})
    result = read(rows, metadata(a="long", b="string", gone="double"))
    assert result.schema.names == ["a", "b", "gone"]
    assert result.schema.types == [pa.int64(), pa.string(), pa.float64()]
    assert result.to_pylist() == [{"a": 1, "b": "x", "gone": None}]


def test_partition_values_come_from_the_log_even_if_the_file_has_them() -> None:
    rows = pa.table({"a": [1, 2], "p": [7, 7]})
    of = metadata("p", "q", p="date", a="long", q="string")
    result = read(rows, of, p="2024-02-29")
    assert result.column("p").to_pylist() == [date(2024, 2, 29)] * 2
    assert result.column("q").to_pylist() == [None, None]


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        ("timestamp", "2024-06-15T19:30:45.000000Z", datetime(2024, 6, 15, 19, 30, 45, tzinfo=UTC)),
        ("timestamp", "2024-06-15 19:30:45", datetime(2024, 6, 15, 19, 30, 45, tzinfo=UTC)),
        ("decimal(9,2)", "1.50", Decimal("1.50")),
        ("string", "", None),
        ("boolean", "true", True),
        ("binary", "\u0001", b"\x01"),
        ("boolean", "yes", True),
        ("date", "2024", date(2024, 1, 1)),
        ("decimal(9,2)", "1.505", Decimal("1.51")),
        ("timestamp", "2024-06-15 19:30:45 GMT+1", datetime(2024, 6, 15, 18, 30, 45, tzinfo=UTC)),
    ],
)
def test_partition_values_are_typed(kind: str, text: str, value: object) -> None:
    result = read(pa.table({"a": [1]}), metadata("p", p=kind, a="long"), p=text)
    assert result.column("p").to_pylist() == [value]


def test_a_partition_value_that_no_engine_can_read_names_its_text() -> None:
    with pytest.raises(BrokenLog, match="'maybe' is no boolean"):
        read(pa.table({"a": [1]}), metadata("p", p="boolean", a="long"), p="maybe")


def test_partition_columns_in_another_case_than_the_schemas_are_refused_by_name() -> None:
    """As by delta-spark: other readers find null in the column, or no value for the file."""
    about = builders.metadata(["p"])["metaData"]
    about["schemaString"] = about["schemaString"].replace('"p"', '"P"')
    for key in ("p", "P"):
        named = builders.add("a", partitionValues={key: "3"})
        store = builders.table_in_memory([builders.protocol(), {"metaData": about}, named])
        with pytest.raises(BrokenLog, match=r"partitioned by 'p', .* but 'P'"):
            open_snapshot(store)


def test_only_the_columns_requested_are_read_in_their_order() -> None:
    rows = pa.table({"a": [1], "b": ["x"]})
    of = metadata("p", a="long", b="string", p="long")
    assert read(rows, of, "P", "a", p="5").to_pylist() == [{"p": 5, "a": 1}]
    assert read(rows, of, "p", p="5").num_rows == 1
    with pytest.raises(InvalidRequest, match="'c'"):
        read(rows, of, "c")


def test_rows_are_counted_even_if_no_column_is_wanted() -> None:
    store = store_of(a=pa.table({"a": [1, 2, 3]}))
    batches = list(read_file(store, row_of("a"), metadata(a="long"), []))
    assert sum(batch.num_rows for batch in batches) == 3


def test_names_that_differ_in_case_alone_are_one_column() -> None:
    assert read(pa.table({"ID": [1]}), metadata(id="long")).to_pylist() == [{"id": 1}]
    both = pa.table([[1], [2]], names=["ID", "id"])
    assert read(both, metadata(id="long")).to_pylist() == [{"id": 2}]


@pytest.mark.parametrize("names", [["id", "id"], ["ID", "Id"]])
def test_a_column_that_a_file_has_twice_is_not_guessed(names: list[str]) -> None:
    twice = pa.table([[1], [2], [3]], names=[*names, "v"])
    with refused(BrokenLog, "CorruptDataFile", match="'id' is in the file 2 times"):
        read(twice, metadata(id="long"))
    assert read(twice, metadata(v="long")).to_pylist() == [{"v": 3}]


def test_timestamps_of_every_spelling_are_microseconds() -> None:
    at = datetime(1582, 1, 1, 12, 0, 0, 123456, UTC)
    rows = pa.table({"t": pa.array([at], pa.timestamp("us", "UTC"))})
    of = metadata(t="timestamp")
    int96 = parquet(rows, use_deprecated_int96_timestamps=True)
    assert read(int96, of).to_pylist() == [{"t": at}]
    nanos = pa.table({"t": pa.array([1_000_000_123], pa.timestamp("ns"))})
    micros = datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)
    assert read(nanos, of).to_pylist() == [{"t": micros}]
    assert read(nanos, metadata(t="timestamp_ntz")).to_pylist() == [
        {"t": micros.replace(tzinfo=None)}
    ]


def test_dictionaries_and_large_types_become_plain() -> None:
    rows = pa.table(
        {
            "s": pa.array(["a", None, "a"]).dictionary_encode(),
            "l": pa.array(["x", "y", None], pa.large_string()),
            "raw": pa.array([b"1", b"2", b"3"], pa.large_binary()),
        }
    )
    result = read(rows, metadata(s="string", l="string", raw="binary"))
    assert result.schema.types == [pa.string(), pa.string(), pa.binary()]
    assert result.column("s").to_pylist() == ["a", None, "a"]


def test_nested_columns_gain_missing_fields_and_lose_extra_ones() -> None:
    inner = struct(y="string", x="long")
    array = {"type": "array", "elementType": inner, "containsNull": True}
    held = {"type": "map", "keyType": "string", "valueType": inner, "valueContainsNull": True}
    item = {"x": 1, "extra": 2}
    rows = pa.table(
        {
            "s": [item, None],
            "a": [[item, None], None],
            "m": pa.array(
                [None, [("k", item)]],
                pa.map_(pa.string(), pa.struct({"x": pa.int32(), "extra": pa.int32()})),
            ),
        }
    )
    found = read(rows, metadata(s=inner, a=array, m=held))
    result = {"y": None, "x": 1}
    assert found.to_pylist() == [
        {"s": result, "a": [result, None], "m": None},
        {"s": None, "a": None, "m": [("k", result)]},
    ]


def test_a_sliced_batch_is_read_right() -> None:
    array = {"type": "array", "elementType": struct(x="long"), "containsNull": True}
    values = [[{"x": at}] if at % 3 else None for at in range(ROWS_MAX + 10)]
    content = parquet(pa.table({"a": pa.array(values, pa.list_(pa.struct({"x": pa.int32()})))}))
    assert read(content, metadata(a=array)).column("a").to_pylist() == values


def test_a_type_that_cannot_be_read_as_the_schemas_names_the_column() -> None:
    with refused(BrokenLog, "CorruptDataFile", match="column 'a'"):
        read(pa.table({"a": ["x"]}), metadata(a="long"))
    with pytest.raises(BrokenLog, match="column 'a'"):
        read(pa.table({"a": [2**40]}), metadata(a="integer"))


def test_a_missing_file_and_a_torn_file_are_distinguished() -> None:
    of = metadata(a="long")
    with refused(BrokenLog, "DataFileMissing"):
        list(read_file(MemoryStore(), row_of("a"), of))
    for content in (b"", b"PAR1", parquet(pa.table({"a": [1]}))[:-6]):
        with refused(BrokenLog, "CorruptDataFile"):
            read(content, of)


def test_a_store_that_fails_while_reading_is_no_broken_file() -> None:
    class Failing(MemoryStore):
        def open(self, path: str) -> Any:
            raise Unavailable("down")

    with pytest.raises(Unavailable):
        list(read_file(Failing(), row_of("a"), metadata(a="long")))


def test_paths_are_decoded_once() -> None:
    store = store_of(**{"p=a%2Fb/x y.parquet": pa.table({"a": [1]})})
    rows = read_file(store, row_of("p=a%252Fb/x%20y.parquet"), metadata(a="long"))
    assert sum(batch.num_rows for batch in rows) == 1


def test_a_path_may_hold_what_a_uri_may() -> None:
    store = store_of(**{"p=1/a.parquet": pa.table({"a": [1]})})
    for path in ("./p=1/a.parquet", "p=1//a.parquet", "q/../p=1/a.parquet"):
        assert sum(b.num_rows for b in read_file(store, row_of(path), metadata(a="long"))) == 1
    with pytest.raises(InvalidRequest):
        list(read_file(store, row_of("p=1/../../a.parquet"), metadata(a="long")))


def test_absolute_paths_are_followed_within_the_same_kind_of_store(tmp_path: Path) -> None:
    (tmp_path / "table").mkdir()
    (tmp_path / "else where").mkdir()
    content = parquet(pa.table({"a": [1]}))
    (tmp_path / "table" / "in.parquet").write_bytes(content)
    (tmp_path / "else where" / "out.parquet").write_bytes(content)
    store = LocalStore(f"file://{tmp_path}/table")
    for path in (
        f"file://{tmp_path}/table/in.parquet",
        f"file:{tmp_path}/else%20where/out.parquet",
        f"{tmp_path}/else%20where/out.parquet",
    ):
        (batch,) = read_file(store, row_of(path), metadata(a="long"))
        assert batch.num_rows == 1
    with pytest.raises(UnsupportedFeature, match="s3a://bucket/x"):
        list(read_file(store, row_of("s3a://bucket/x"), metadata(a="long")))


def deleting(*rows: int) -> dict[str, Any]:
    vector = descriptors.inline(roaring_bitmap.of_rows(rows))
    return {**row_of("a"), "deletionVector": vector.model_dump(by_alias=True)}


def test_rows_that_a_deletion_vector_deletes_are_left_out() -> None:
    store = store_of(a=pa.table({"v": list(range(10))}))
    batches = list(read_file(store, deleting(0, 3, 9), metadata(v="long")))
    assert [row["v"] for batch in batches for row in batch.to_pylist()] == [1, 2, 4, 5, 6, 7, 8]
    assert list(read_file(store, deleting(*range(10)), metadata(v="long"))) == []


def test_positions_are_of_the_whole_file_whatever_batches_it_is_read_in() -> None:
    count = 2 * ROWS_MAX + 5
    rows = parquet(pa.table({"v": pa.array(range(count))}), row_group_size=ROWS_MAX - 9)
    store = store_of(a=rows)
    gone = [0, ROWS_MAX - 10, ROWS_MAX, ROWS_MAX + 1, 2 * ROWS_MAX, count - 1]
    batches = read_file(store, deleting(*gone), metadata(v="long"))
    result = {value for batch in batches for value in batch.column(0).to_pylist()}
    assert result == set(range(count)) - set(gone)


def test_the_parts_of_a_file_hold_each_row_once_at_its_position() -> None:
    rows = parquet(pa.table({"v": pa.array(range(1_000))}), row_group_size=90)
    store = store_of(a=rows)
    fields = (StructField("v", LONG), POSITION)
    vector = descriptors.inline(roaring_bitmap.of_rows([0, 95, 999]))
    for count in (1, 2, 5, 40):
        result = []
        for part in range(count):
            share = FileShare(part, count, RowChoice(vector))
            for batch in read_rows(store, "a", fields, {}, ColumnMappingMode.NONE, share):
                result += batch.to_pylist()
        assert [row["v"] for row in result] == [row[POSITION.name] for row in result]
        assert [row["v"] for row in result] == [v for v in range(1_000) if v not in (0, 95, 999)]
        counted = [
            sum(
                row.num_rows
                for row in read_rows(
                    store, "a", (), {}, ColumnMappingMode.NONE, FileShare(part, count)
                )
            )
            for part in range(count)
        ]
        assert sum(counted) == 1_000


def test_rows_are_counted_without_those_deleted_where_no_column_is_read() -> None:
    store = store_of(a=pa.table({"v": list(range(10))}))
    for columns in ([], ["p"], ["gone"]):
        of = metadata("p", p="string", v="long", gone="long")
        row = {**deleting(1, 2), "partitionValues": [("p", "x")]}
        assert sum(item.num_rows for item in read_file(store, row, of, columns)) == 8


def test_only_the_rows_that_are_meant_are_read() -> None:
    store = store_of(a=pa.table({"v": list(range(10))}))
    old, new = (descriptors.inline(roaring_bitmap.of_rows(rows)) for rows in ([1, 2], [1, 2, 5, 7]))
    fields = schema_of(metadata(v="long")).fields

    def values(choice: RowChoice) -> list[int]:
        batches = read_rows(store, "a", fields, {}, ColumnMappingMode.NONE, choice)
        return [value for batch in batches for value in batch.column(0).to_pylist()]

    assert values(RowChoice(only=new)) == [1, 2, 5, 7]
    assert values(RowChoice(without=old, only=new)) == [5, 7]
    assert values(RowChoice(without=new, only=old)) == []


def test_a_missing_data_file_is_reported_before_its_missing_vector() -> None:
    vector = {"storageType": "u", "pathOrInlineDv": "0" * 20, "sizeInBytes": 1, "cardinality": 1}
    with refused(BrokenLog, "DataFileMissing"):
        list(
            read_file(MemoryStore(), {**row_of("a"), "deletionVector": vector}, metadata(a="long"))
        )


def table(**partitions: list[int]) -> tuple[MemoryStore, Snapshot]:
    of = metadata("p", p="string", v="long")
    schema = parse_schema(of.schema_string)
    store, adds = MemoryStore(), []
    for name, values in partitions.items():
        rows = pa.table({"v": values})
        store.files[name] = parquet(rows)
        adds.append(one_file(name, partition_values={"p": name}, stats=compute(rows, schema)))
    return store, Snapshot(
        version=Version(0),
        protocol=Protocol(min_reader_version=1, min_writer_version=2),
        metadata=of,
        files=adds_to_columns(adds),
        tombstones=REMOVE_SCHEMA.empty_table(),
    )


def test_a_table_is_the_rows_of_its_files() -> None:
    store, snapshot = table(x=[1, 2], y=[3])
    assert read_table(store, snapshot).to_pylist() == [
        {"p": "x", "v": 1},
        {"p": "x", "v": 2},
        {"p": "y", "v": 3},
    ]
    assert read_table(store, snapshot, ["v"]).column("v").to_pylist() == [1, 2, 3]
    assert read_table(*table()).num_rows == 0


def test_files_out_of_reach_are_not_opened_and_rows_are_filtered() -> None:
    store, snapshot = table(x=[1, 2], y=[30], z=[2, 40])
    del store.files["y"]
    small = {"op": "<", "column": ["v"], "value": 3, "type": "long"}
    in_z = {"op": "=", "column": ["p"], "value": "z", "type": "string"}
    assert read_table(store, snapshot, predicate=small).column("v").to_pylist() == [1, 2, 2]
    both = {"op": "and", "args": [small, in_z]}
    result = list(scan(store, snapshot, ["p"], both))
    assert [batch.to_pylist() for batch in result] == [[{"p": "z"}]]


@pytest.mark.parametrize(
    ("predicate", "named"),
    [
        ({"op": "like", "column": ["v"], "value": "a%", "type": "string"}, "'like'"),
        ({"op": "not", "arg": {"op": "xor", "args": []}}, "'xor'"),
        ({"op": "=", "column": ["v"], "value": 1}, "'type'"),
        ({"op": "=", "column": ["v"], "value": "one", "type": "long"}, "'one'"),
        ({"column": ["v"]}, "`op`"),
    ],
)
def test_a_predicate_outside_the_grammar_is_refused_and_named(
    predicate: dict[str, Any], named: str
) -> None:
    store, snapshot = table(x=[1])
    with refused(InvalidRequest, "BadPredicate", match=named):
        read_table(store, snapshot, predicate=predicate)


@pytest.fixture
def spark_table(own_corpus: Path) -> Path:
    return own_corpus / "tables" / "spark44" / "dates-and-timestamps-early"


def test_int96_of_the_years_1_to_9999_is_read(spark_table: Path) -> None:
    files = sorted(spark_table.glob("*.parquet"))
    store = LocalStore(f"file://{spark_table}")
    log = (spark_table / "_delta_log" / f"{0:020d}.json").read_text()
    text = next(json.loads(line) for line in log.splitlines() if '"metaData"' in line)
    of = Metadata.model_validate(text["metaData"])
    years = set()
    for file in files:
        for batch in read_file(store, row_of(file.name), of):
            for name, column in zip(batch.schema.names, batch.columns, strict=True):
                if pa.types.is_timestamp(batch.schema.field(name).type):
                    years |= {at.year for at in column.to_pylist() if at}
    assert min(years) == 1
    assert max(years) == 9999


@pytest.mark.parametrize("mode", ["name", "id"])
def test_mapped_columns_are_read_by_what_files_and_the_log_call_them(mode: str) -> None:
    def mapped(name: str, kind: Any, number: int) -> dict[str, Any]:
        about = {"delta.columnMapping.id": number, "delta.columnMapping.physicalName": f"c{number}"}
        return {"name": name, "type": kind, "nullable": True, "metadata": about}

    fields = [
        mapped("part =1", "integer", 1),
        mapped("x.y,`z`", "long", 2),
        mapped("c2", "long", 3),
    ]
    of = Metadata(
        id="t",
        schema_string=json.dumps({"type": "struct", "fields": fields}),
        partition_columns=("part =1",),
        configuration={"delta.columnMapping.mode": mode},
    )
    shape = [pa.field(f"c{n}", pa.int64(), metadata={"PARQUET:field_id": str(n)}) for n in (2, 3)]
    rows = pa.table({"c2": [5], "c3": [6]}, schema=pa.schema(shape))
    expected = {"part =1": 9, "x.y,`z`": 5, "c2": 6}
    assert read(rows, of, c1="9").to_pylist() == [expected]
    assert read(rows, of, "c2", c1="9", **{"part =1": "8"}).to_pylist() == [{"c2": 6}]


def test_a_file_without_field_ids_is_refused_where_the_table_needs_them() -> None:
    about = {"delta.columnMapping.id": 1, "delta.columnMapping.physicalName": "c1"}
    field = {"name": "a", "type": "long", "nullable": True, "metadata": about}
    of = Metadata(
        id="t",
        schema_string=json.dumps({"type": "struct", "fields": [field]}),
        configuration={"delta.columnMapping.mode": "id"},
    )
    with refused(BrokenLog, "CorruptDataFile", match="field ids"):
        read(pa.table({"c1": [1]}), of)
