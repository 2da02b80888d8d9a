"""Copy-on-write of a delete, file by file."""

import io
import json

import pyarrow as pa
import pyarrow.parquet as pq

from tests.fakes.memory_store import MemoryStore
from tidegate_delta.deletion_vectors.descriptors import inline
from tidegate_delta.deletion_vectors.roaring_bitmap import Bitmap, of_rows
from tidegate_delta.log.actions import Add, Metadata, Protocol
from tidegate_delta.log.file_names import Version
from tidegate_delta.log.file_paths import decode_path
from tidegate_delta.schema.types import LONG, STRING, StructField, StructType, format_schema
from tidegate_delta.snapshots.file_action_columns import REMOVE_SCHEMA, adds_to_columns
from tidegate_delta.snapshots.snapshot import Snapshot
from tidegate_producers.parquet.data_file_encoding import CHANGE_TYPE, layout_of
from tidegate_producers.parquet.data_file_writer import FileWriter
from tidegate_producers.parquet.file_rewrite import Rewriter, Rewritten, whole_files
from tidegate_runtime.clock import SystemClock
from tidegate_runtime.table_io.data_file_reader import read_file, rows_of

SCHEMA = StructType((StructField("p", STRING), StructField("x", LONG)))
METADATA = Metadata(id="m", schema_string=format_schema(SCHEMA), partition_columns=("p",))


def written(store: MemoryStore, rows: pa.Table) -> list[Add]:
    files = FileWriter(store, layout_of(METADATA), SystemClock())
    files.write(rows)
    return files.finish()


def rewrite(store: MemoryStore, add: Add, predicate: dict[str, object]) -> Rewritten:
    (file,) = rows_of(adds_to_columns([add]))
    as_it_travels = json.loads(json.dumps(file))
    return Rewriter(store, METADATA, predicate, SystemClock(), 0).rewrite(as_it_travels)


def above(value: int) -> dict[str, object]:
    return {"op": ">", "column": ["x"], "value": value, "type": "long"}


def test_a_file_with_matching_rows_is_written_anew_without_them() -> None:
    store = MemoryStore()
    (add,) = written(store, pa.table({"p": ["a"] * 4, "x": [1, 5, None, 7]}))
    result = rewrite(store, add, above(4))
    assert (result.path, result.deleted_rows, result.copied_rows) == (add.path, 2, 2)
    (copy,) = result.adds
    assert copy.partition_values == {"p": "a"}
    (file,) = rows_of(adds_to_columns([copy]))
    kept = pa.Table.from_batches(read_file(store, file, METADATA))
    assert kept.to_pylist() == [{"p": "a", "x": 1}, {"p": "a", "x": None}]
    assert json.loads(copy.stats or "")["numRecords"] == 2


def test_a_file_without_a_match_or_with_nothing_else_is_not_written_anew() -> None:
    store = MemoryStore()
    (add,) = written(store, pa.table({"p": ["a", "a"], "x": [1, 2]}))
    before = dict(store.files)
    assert rewrite(store, add, above(9)) == Rewritten(add.path, 0, 0, ())
    assert rewrite(store, add, above(0)) == Rewritten(add.path, 2, 0, ())
    assert store.files == before


def test_rows_are_marked_by_their_position_in_the_whole_file() -> None:
    store = MemoryStore()
    (add,) = written(store, pa.table({"p": ["a"] * 5, "x": [1, 5, None, 7, 9]}))
    before = dict(store.files)
    for vector, expected in ((None, [1, 3, 4]), (inline(of_rows([0, 3])), [1, 4])):
        (file,) = rows_of(adds_to_columns([add.with_(deletion_vector=vector)]))
        result = Rewriter(store, METADATA, above(4), SystemClock(), 0).mark(file)
        assert result.marked == of_rows(expected)
        assert (result.path, result.deleted_rows, result.adds) == (add.path, len(expected), ())
        assert Rewritten.from_json(result.to_json()) == result
    assert store.files == before


def test_a_file_without_a_match_has_no_row_marked() -> None:
    store = MemoryStore()
    (add,) = written(store, pa.table({"p": ["a"], "x": [1]}))
    (file,) = rows_of(adds_to_columns([add]))
    result = Rewriter(store, METADATA, above(4), SystemClock(), 0).mark(file)
    assert (result.deleted_rows, result.marked) == (0, Bitmap())


def test_a_result_survives_its_way_from_the_task() -> None:
    store = MemoryStore()
    (add,) = written(store, pa.table({"p": [None, None], "x": [1, 2]}))
    result = rewrite(store, add, above(1))
    assert Rewritten.from_json(result.to_json()) == result


def test_partition_values_alone_say_which_files_go() -> None:
    store = MemoryStore()
    adds = written(store, pa.table({"p": ["a", "b", None], "x": [1, 2, 3]}))
    files = adds_to_columns(adds)
    protocol = Protocol(min_reader_version=1, min_writer_version=2)
    removed = REMOVE_SCHEMA.empty_table()
    snapshot = Snapshot(Version(0), protocol, METADATA, files, removed)
    equal: dict[str, object] = {"op": "=", "column": ["p"], "value": "a", "type": "string"}
    cases: list[tuple[dict[str, object], set[str | None]]] = [
        (equal, {"a"}),
        ({"op": "not", "arg": equal}, {"b"}),
        ({"op": "is_null", "column": ["p"]}, {None}),
        ({"op": "true"}, {"a", "b", None}),
    ]
    for predicate, expected in cases:
        result = whole_files(snapshot, predicate, layout_of(METADATA))
        paths = set(result["path"].to_pylist())
        assert paths == {add.path for add in adds if add.partition_values["p"] in expected}


def of(properties: dict[str, str], **fields: object) -> Metadata:
    return METADATA.model_copy(update={"configuration": properties, **fields})


def test_the_deleted_rows_of_a_copied_file_are_in_the_change_feed() -> None:
    store = MemoryStore()
    (add,) = written(store, pa.table({"p": ["a"] * 3, "x": [1, 5, 7]}))
    (file,) = rows_of(adds_to_columns([add]))
    metadata = of({"delta.enableChangeDataFeed": "true"})
    for limit, gone in ((4, [5, 7]), (0, [1, 5, 7])):
        result = Rewriter(store, metadata, above(limit), SystemClock(), 0).rewrite(file)
        (change,) = result.changes
        assert change.partition_values == {"p": "a"}
        found = pq.read_table(io.BytesIO(store.files[decode_path(change.path)]))
        assert found.to_pylist() == [{"x": x, CHANGE_TYPE: "delete"} for x in gone]
        assert Rewritten.from_json(result.to_json()) == result


def test_copied_rows_keep_their_ids_and_versions() -> None:
    store = MemoryStore()
    (add,) = written(store, pa.table({"p": ["a"] * 3, "x": [1, 5, 2]}))
    numbered = add.with_(base_row_id=100, default_row_commit_version=3)
    (file,) = rows_of(adds_to_columns([numbered]))
    metadata = of(
        {
            "delta.enableRowTracking": "true",
            "delta.rowTracking.materializedRowIdColumnName": "_id",
            "delta.rowTracking.materializedRowCommitVersionColumnName": "_version",
        }
    )
    rewriter = Rewriter(store, metadata, above(4), SystemClock(), 0)
    for result in (rewriter.rewrite(file), rewriter.copy_without(file, of_rows([1]))):
        (copy,) = result.adds
        found = pq.read_table(io.BytesIO(store.files[decode_path(copy.path)]))
        assert found.to_pylist() == [
            {"x": 1, "_id": 100, "_version": 3},
            {"x": 2, "_id": 102, "_version": 3},
        ]
