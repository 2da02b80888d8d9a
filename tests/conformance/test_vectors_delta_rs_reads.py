"""Deletion vectors that we encoded, and a checkpoint with them, as delta-rs reads them."""

import json
from pathlib import Path
from typing import Any
from uuid import UUID

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable, QueryBuilder

from tests.builders import add, info, metadata, protocol, remove, to_bytes
from tests.checkpoints import put_classic
from tidegate_delta.deletion_vectors import descriptors
from tidegate_delta.deletion_vectors.roaring_bitmap import of_rows
from tidegate_delta.log.actions import DeletionVector
from tidegate_delta.log.file_names import commit_name, in_log
from tidegate_runtime.storage.local_store import LocalStore
from tidegate_runtime.table_io.data_file_reader import read_table
from tidegate_runtime.table_io.open_table import open_snapshot

ROWS = 140_000
GONE = {
    "runs": of_rows(range(1_000, 139_000)),
    "scattered": of_rows(range(0, ROWS, 7)),
    "dense": of_rows(row for row in range(ROWS) if row % 3),
    "last": of_rows([ROWS - 1]),
}
FILE = UUID("d2c639aa-8816-431a-aaf6-d3fe2512ff61")


def stated(size: int, vector: DeletionVector | None = None) -> dict[str, Any]:
    stats = json.dumps({"numRecords": ROWS, "tightBounds": vector is None})
    result: dict[str, Any] = {"size": size, "stats": stats}
    if vector is not None:
        result["deletionVector"] = vector.model_dump(by_alias=True, exclude_none=True)
    return result


def written(folder: Path) -> LocalStore:
    """Return a table of four files with rows deleted by vectors: one inline, three in a file."""
    names = ["deletionVectors"]
    feature = protocol(3, 7, readerFeatures=names, writerFeatures=names)
    store = LocalStore(folder.as_uri())
    content, stored = descriptors.in_file(list(GONE.values())[:-1], FILE, "ab")
    store.put(f"ab/deletion_vector_{FILE}.bin", content)
    vectors = [*stored, descriptors.inline(GONE["last"])]
    adds, exchanges = [], []
    for at, (name, vector) in enumerate(zip(GONE, vectors, strict=True)):
        values = pa.array(range(at * ROWS, (at + 1) * ROWS), pa.int64())
        pq.write_table(pa.table({"x": values, "s": values.cast("string")}), folder / name)
        size = (folder / name).stat().st_size
        adds.append(add(name, **stated(size)))
        exchanges += [remove(name, size=size), add(name, **stated(size, vector))]
    first = [info("WRITE"), feature, metadata(enableDeletionVectors="true"), *adds]
    store.put(in_log(commit_name(0)), to_bytes(first))
    store.put(in_log(commit_name(1)), to_bytes([info("DELETE"), *exchanges]))
    return store


def test_delta_rs_leaves_out_the_rows_of_our_vectors(tmp_path: Path) -> None:
    store = written(tmp_path)
    meant = [
        at * ROWS + row
        for at, gone in enumerate(GONE.values())
        for row in sorted(set(range(ROWS)) - set(gone))
    ]
    snapshot = open_snapshot(store)
    assert sorted(read_table(store, snapshot, ["x"])["x"].to_pylist()) == meant
    put_classic(store, snapshot, 0)
    for _ in ("from the commits, too", "from the checkpoint alone"):
        query = QueryBuilder().register("t", DeltaTable(tmp_path)).execute("SELECT x FROM t")
        assert sorted(pa.table(query.read_all())["x"].to_pylist()) == meant
        (tmp_path / in_log(commit_name(0))).unlink(missing_ok=True)
