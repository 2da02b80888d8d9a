"""Logs of tables with many files, made by columns: no data file exists, only what is said of them.

A table has `files` adds in ten partitions with statistics of three columns. Its checkpoint is
classic or V2, and a tail of commits follows; or there are commits alone.
"""

import hashlib
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import Final
from uuid import UUID

import orjson
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tidegate_delta.checkpoints import last_checkpoint
from tidegate_delta.checkpoints.checkpoint_rows import (
    add_rows,
    classic_schema,
    few_actions,
    object_rows,
)
from tidegate_delta.checkpoints.last_checkpoint import LastCheckpoint
from tidegate_delta.checkpoints.v2_checkpoint_rows import (
    sidecar_rows,
    sidecar_schema,
    top_level_json,
)
from tidegate_delta.log.actions import Metadata, Protocol, Sidecar
from tidegate_delta.log.file_names import (
    LAST_CHECKPOINT,
    LOG_FOLDER,
    SIDECAR_FOLDER,
    Version,
    checkpoint_name,
    commit_name,
    sidecar_name,
    v2_checkpoint_name,
)
from tidegate_delta.schema.types import DATE, LONG, STRING, StructField, StructType, format_schema
from tidegate_delta.snapshots.file_action_columns import ADD_SCHEMA, REMOVE_SCHEMA
from tidegate_delta.snapshots.snapshot import Snapshot

SIDECAR_FILES: Final = 50_000
COMMITS: Final = 1_000
TAIL: Final = 10
ADDS_A_COMMIT: Final = 10
AT_MS: Final = 1_767_225_600_000
_SCHEMA: Final = StructType(
    (
        StructField("id", LONG),
        StructField("name", STRING),
        StructField("day", DATE),
        StructField("part", LONG),
    )
)


class Shape(StrEnum):
    """What stands in the log."""

    JSON = "json"
    CLASSIC = "classic"
    V2 = "v2"


def generate(folder: Path, shape: Shape, files: int) -> None:
    """Write the log of a table with about `files` live files."""
    (folder / LOG_FOLDER / SIDECAR_FOLDER).mkdir(parents=True)
    if shape is Shape.JSON:
        each = max(1, files // COMMITS)
        for version in range(COMMITS):
            _commit(folder, version, range(version * each, (version + 1) * each))
        return
    _checkpoint(folder, shape, files)
    extend(folder, COMMITS + 1, TAIL, files)


def extend(folder: Path, version: int, commits: int, first: int) -> None:
    """Write some more commits, each of which adds files and removes one that an older one added."""
    for number in range(commits):
        start = first + number * ADDS_A_COMMIT
        removed = [first - 1 - number] if first > commits else []
        _commit(folder, version + number, range(start, start + ADDS_A_COMMIT), removed)


def _commit(folder: Path, version: int, adds: range, removed: list[int] | None = None) -> None:
    operation = {"operation": "WRITE", "operationParameters": {"mode": "Append"}}
    rows: list[object] = [{"commitInfo": {"timestamp": AT_MS + version, **operation}}]
    if version == 0:
        head = _head(Shape.JSON, 0)
        rows += [head.protocol.to_row(), head.metadata.to_row()]
    for batch in _batches(adds.start, len(adds)):
        for row in batch.to_pylist():
            body = {name: value for name, value in row.items() if value is not None}
            rows.append({"add": {**body, "partitionValues": dict(row["partitionValues"])}})
    gone = _batches(removed[0], 1) if removed else ()
    for batch in gone:
        path = batch["path"][0].as_py()
        rows.append({"remove": {"path": path, "dataChange": True, "deletionTimestamp": AT_MS}})
    content = b"".join(orjson.dumps(row) + b"\n" for row in rows)
    (folder / LOG_FOLDER / commit_name(version)).write_bytes(content)


def _checkpoint(folder: Path, shape: Shape, files: int) -> None:
    log, head = folder / LOG_FOLDER, _head(shape, COMMITS)
    if shape is Shape.CLASSIC:
        schema = classic_schema(head.metadata)
        few = list(object_rows(schema, few_actions(head, AT_MS)))
        rows = (row for one in _batches(0, files) for row in add_rows(schema, one, head.metadata))
        with pq.ParquetWriter(log / checkpoint_name(COMMITS), schema, store_schema=False) as out:
            out.write_table(pa.Table.from_batches(few))
            for row in rows:
                out.write_batch(row)
    else:
        sidecars = [_sidecar(log, head.metadata, one) for one in _batches(0, files)]
        name = v2_checkpoint_name(COMMITS, str(UUID(int=COMMITS)), "json")
        (log / name).write_bytes(top_level_json(head, sidecars, AT_MS))
    (log / LAST_CHECKPOINT).write_bytes(last_checkpoint.encode(LastCheckpoint(COMMITS, files + 2)))
    _commit(folder, COMMITS, range(0))


def _sidecar(log: Path, metadata: Metadata, files: pa.Table) -> Sidecar:
    first = files["size"][0].as_py()
    name = sidecar_name(COMMITS, str(UUID(int=first)))
    schema = sidecar_schema(metadata)
    rows = pa.Table.from_batches(sidecar_rows(files, REMOVE_SCHEMA.empty_table(), metadata))
    pq.write_table(rows.cast(schema), log / SIDECAR_FOLDER / name, store_schema=False)
    size = (log / SIDECAR_FOLDER / name).stat().st_size
    return Sidecar(path=name, size_in_bytes=size, modification_time=AT_MS)


def _head(shape: Shape, version: int) -> Snapshot:
    v2 = shape is Shape.V2
    names = ("v2Checkpoint",) if v2 else None
    metadata = Metadata(
        id=str(UUID(int=7)),
        schema_string=format_schema(_SCHEMA),
        partition_columns=("part",),
        configuration={"delta.checkpointPolicy": "v2"} if v2 else {},
        created_time=AT_MS,
    )
    protocol = Protocol(
        min_reader_version=3 if v2 else 1,
        min_writer_version=7 if v2 else 2,
        reader_features=names,
        writer_features=names,
    )
    empty = ADD_SCHEMA.empty_table(), REMOVE_SCHEMA.empty_table()
    return Snapshot(Version(version), protocol, metadata, *empty)


def _batches(start: int, count: int) -> Iterator[pa.Table]:
    """Yield the adds of the files with some numbers, at most as many as go into a sidecar."""
    for first in range(start, start + count, SIDECAR_FILES):
        yield _adds(first, min(SIDECAR_FILES, start + count - first))


def _unique(number: int) -> str:
    """Return what looks like the UUID in a data file's name, and compresses as badly."""
    return hashlib.md5(str(number).encode(), usedforsecurity=False).hexdigest()


def _adds(start: int, count: int) -> pa.Table:
    numbers = pa.array(range(start, start + count), pa.int64())
    text = numbers.cast(pa.string())
    partition = pc.subtract(numbers, pc.multiply(pc.divide(numbers, 10), 10)).cast(pa.string())
    unique = pa.array([_unique(number) for number in range(start, start + count)])
    path = pc.binary_join_element_wise(
        pc.binary_join_element_wise("part=", partition, "/part-00000-", ""), unique, ".parquet", ""
    )
    stats = pc.binary_join_element_wise(
        pc.binary_join_element_wise('{"numRecords":1000,"minValues":{"id":', text, ""),
        pc.binary_join_element_wise(',"name":"customer ', text, '","day":"2026-01-01"}', ""),
        pc.binary_join_element_wise(',"maxValues":{"id":', text, ',"name":"customer ', text, ""),
        '","day":"2026-01-28"},"nullCount":{"id":0,"name":3,"day":0}}',
        "",
    )
    offsets = pa.array(range(count + 1), pa.int32())
    values = pa.MapArray.from_arrays(offsets, pa.array(["part"] * count), partition)
    known = {
        "path": path,
        "partitionValues": values,
        "size": numbers,
        "modificationTime": pc.add(numbers, AT_MS),
        "dataChange": pa.array([True] * count),
        "stats": stats,
    }
    columns = [known.get(one.name, pa.nulls(count, one.type)) for one in ADD_SCHEMA]
    return pa.Table.from_arrays(columns, schema=ADD_SCHEMA)
