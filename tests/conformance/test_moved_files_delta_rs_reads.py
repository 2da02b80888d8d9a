"""Whole files change beside compactions; delta-rs and our reader see rows and changes right."""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, QueryBuilder

from tests import builders
from tests.builders import Gate, Row, add, metadata, protocol, remove
from tidegate_committer.settings import CommitterSection
from tidegate_messages.proposal import Operation, ReadSet
from tidegate_runtime.storage.local_store import LocalStore
from tidegate_runtime.table_io.change_row_reader import read_changes
from tidegate_runtime.table_io.data_file_reader import read_table
from tidegate_runtime.table_io.open_table import open_snapshot

READING = ["deletionVectors"]
WRITING = [*READING, "changeDataFeed"]


def written(folder: Path, name: str, values: list[int], **changed: object) -> Row:
    """Write a file with some numbers; return its add."""
    column = pa.array(values, pa.int64())
    pq.write_table(pa.table({"x": column, "s": column.cast("string")}), folder / name)
    stats = json.dumps({"numRecords": len(values)})
    return add(name, size=(folder / name).stat().st_size, stats=stats, **changed)


def change_file(folder: Path) -> Row:
    """Write the change of 10 into 100 to a change file; return its cdc action."""
    (folder / "_change_data").mkdir()
    kinds = pa.array(["update_preimage", "update_postimage"])
    numbers = pa.array([10, 100], pa.int64())
    columns = {"x": numbers, "s": numbers.cast("string"), "_change_type": kinds}
    path = "_change_data/c"
    pq.write_table(pa.table(columns), folder / path)
    size = (folder / path).stat().st_size
    return {"cdc": {"path": path, "partitionValues": {}, "size": size, "dataChange": False}}


@pytest.mark.parametrize("takes_vectors", [True, False])
def test_rows_and_changes_are_those_of_the_writers(tmp_path: Path, takes_vectors: bool) -> None:
    store = LocalStore(tmp_path.as_uri())
    gate = Gate(CommitterSection(roots=(tmp_path.parent.as_uri(),)), stores={store.root: store})
    on = {"enableDeletionVectors": str(takes_vectors).lower(), "enableChangeDataFeed": "true"}
    feature = protocol(3, 7, readerFeatures=READING, writerFeatures=WRITING)
    files = {name: [*range(at, at + 10)] for name, at in (("a", 0), ("b", 10), ("c", 20))}
    gate.ask(
        builders.create(table_root=store.root).model_copy(
            update={"actions": (feature, metadata(**on))}
        ),
        builders.proposal(
            *(written(tmp_path, name, values) for name, values in files.items()),
            table_root=store.root,
        ),
    )
    packed = builders.compact({"a": 10, "b": 10, "c": 10}, "g", 1, table_root=store.root)
    whole = written(tmp_path, "g", [*range(30)], dataChange=False)
    packed = packed.model_copy(update={"actions": (*packed.actions[:-1], whole)})
    updated = builders.proposal(
        *(remove("b"), written(tmp_path, "b2", [100, *range(11, 20)]), change_file(tmp_path)),
        read_version=1,
        table_root=store.root,
        reads=ReadSet(files=("b",)),
        operation=Operation(name="UPDATE"),
    )
    deleted = builders.delete("a", read_version=1, table_root=store.root)
    result = gate.ask(packed) + gate.ask(updated) + gate.ask(deleted)
    assert [outcome.status for outcome in result] == ["committed"] * 3, result
    left = [*range(11, 30), 100]
    assert sorted(read_table(store, open_snapshot(store), ["x"])["x"].to_pylist()) == left
    query = QueryBuilder().register("t", DeltaTable(tmp_path)).execute("SELECT x FROM t")
    assert sorted(pa.table(query.read_all())["x"].to_pylist()) == left
    changes = read_changes(store, 2, 4).sort_by([("_commit_version", "ascending")])
    seen = [(row["_commit_version"], row["_change_type"], row["x"]) for row in changes.to_pylist()]
    assert sorted(seen) == sorted(
        [
            *((3, kind, x) for kind, x in (("update_preimage", 10), ("update_postimage", 100))),
            *((4, "delete", x) for x in range(10)),
        ]
    )
