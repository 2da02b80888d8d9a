"""File actions as Arrow columns, with the column names and types of checkpoints.

A table's whole file set is never one Python object per file (a million of them would not fit).

Spec: "Add File and Remove File"
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import accumulate, chain
from operator import itemgetter
from typing import Any, Final

import pyarrow as pa

from tidegate_delta.errors import BrokenLog
from tidegate_delta.log.actions import Add, Remove
from tidegate_delta.snapshots.chunked_arrays import missing
from tidegate_delta.snapshots.raw_stats import with_texts

_STRINGS: Final = pa.map_(pa.string(), pa.string())

DELETION_VECTOR: Final = pa.struct(
    [
        pa.field("storageType", pa.string()),
        pa.field("pathOrInlineDv", pa.string()),
        pa.field("offset", pa.int32()),
        pa.field("sizeInBytes", pa.int32()),
        pa.field("cardinality", pa.int64()),
    ]
)

ADD_SCHEMA: Final = pa.schema(
    [
        pa.field("path", pa.string()),
        pa.field("partitionValues", _STRINGS),
        pa.field("size", pa.int64()),
        pa.field("modificationTime", pa.int64()),
        pa.field("dataChange", pa.bool_()),
        pa.field("stats", pa.string()),
        pa.field("tags", _STRINGS),
        pa.field("deletionVector", DELETION_VECTOR),
        pa.field("baseRowId", pa.int64()),
        pa.field("defaultRowCommitVersion", pa.int64()),
        pa.field("clusteringProvider", pa.string()),
    ]
)
"""Columns of live files.

Spec: "Add File and Remove File"
"""

KEY_SCHEMA: Final = pa.schema([ADD_SCHEMA.field("path"), ADD_SCHEMA.field("deletionVector")])
"""The columns that identify a live file.

Spec: "Action Reconciliation"
"""

REMOVE_SCHEMA: Final = pa.schema(
    [
        pa.field("path", pa.string()),
        pa.field("deletionTimestamp", pa.int64()),
        pa.field("dataChange", pa.bool_()),
        pa.field("extendedFileMetadata", pa.bool_()),
        pa.field("partitionValues", _STRINGS),
        pa.field("size", pa.int64()),
        pa.field("deletionVector", DELETION_VECTOR),
        pa.field("baseRowId", pa.int64()),
        pa.field("defaultRowCommitVersion", pa.int64()),
    ]
)
"""Columns of tombstones.

Spec: "Add File and Remove File"
"""


def adds_to_columns(adds: list[Add]) -> pa.Table:
    """Return add actions as columns of ADD_SCHEMA."""
    return _columns([add.to_row()["add"] for add in adds], ADD_SCHEMA)


def removes_to_columns(removes: list[Remove]) -> pa.Table:
    """Return remove actions as columns of REMOVE_SCHEMA."""
    return _columns([remove.to_row()["remove"] for remove in removes], REMOVE_SCHEMA)


def rows_to_adds(files: pa.Table) -> list[Add]:
    """Return the rows of a (small, already pruned) table of files as add actions."""
    return [Add.model_validate(_row(row)) for row in with_texts(files).to_pylist()]


def _columns(rows: list[Any], schema: pa.Schema) -> pa.Table:
    return pa.Table.from_pylist([{**row, **_maps(row)} for row in rows], schema=schema)


def _maps(row: dict[str, Any]) -> dict[str, Any]:
    named = ((name, row.get(name)) for name in ("partitionValues", "tags"))
    return {name: list(value.items()) for name, value in named if value is not None}


def _row(row: dict[str, Any]) -> dict[str, Any]:
    present = {name: value for name, value in row.items() if value is not None}
    for name in ("partitionValues", "tags"):
        if name in present:
            present[name] = dict(present[name])
    return present


Row = Mapping[str, Any]

STRINGS: Final = pa.map_(pa.string(), pa.string())


def to_columns(rows: Sequence[Row], schema: pa.Schema, file_name: str) -> pa.Table:
    """Return decoded file actions as a table of ADD_SCHEMA or REMOVE_SCHEMA.

    Raises: BrokenLog (`CorruptCommit`) for a missing path or a value of the wrong type.
    """
    if not rows:
        return _empty(schema)
    names = set().union(*rows)
    fields = [field for field in schema if field.name in names]
    maps = [field for field in fields if pa.types.is_map(field.type)]
    plain = [field for field in fields if field not in maps]
    try:
        flat = pa.array(rows, pa.struct(plain))
        columns = dict(zip((field.name for field in plain), flat.flatten(), strict=True))
        columns |= {field.name: _mappings(_values(rows, field.name)) for field in maps}
        columns |= {
            field.name: missing(len(rows), field.type) for field in schema if field not in fields
        }
    except (pa.ArrowException, AttributeError, TypeError, OverflowError) as error:
        raise _malformed(file_name, error) from error
    if columns["path"].null_count:
        raise _malformed(file_name, "no path")
    return pa.Table.from_arrays([columns[field.name] for field in schema], schema=schema)


@lru_cache(maxsize=16)
def _empty(schema: pa.Schema) -> pa.Table:
    return schema.empty_table()


def _values(rows: Sequence[Row], name: str) -> Sequence[Any]:
    """Return the rows' values of one field; the fast path serves where every row has the field."""
    try:
        return list(map(itemgetter(name), rows))
    except KeyError:
        return [row.get(name) for row in rows]


def _mappings(values: Sequence[Row | None]) -> pa.Array:
    """Return maps of strings, built from flat lists of keys and values."""
    present = [value for value in values if value is not None]
    if not present:
        return pa.nulls(len(values), STRINGS)
    has_all = len(present) == len(values)
    sizes = [0 if value is None else len(value) for value in values]
    return pa.MapArray.from_arrays(
        pa.array(list(accumulate(sizes, initial=0)), pa.int32()),
        pa.array(list(chain.from_iterable(present)), pa.string()),
        pa.array([text for value in present for text in value.values()], pa.string()),
        mask=None if has_all else pa.array([value is None for value in values], pa.bool_()),
    )


def _malformed(file_name: str, cause: object) -> BrokenLog:
    return BrokenLog(
        f"{file_name} holds a malformed file action ({cause}): restore it from a backup, or the "
        "table to an earlier version",
        error_class="CorruptCommit",
    )
