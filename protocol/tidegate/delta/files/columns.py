"""File actions as Arrow columns: what a snapshot holds of its files, as checkpoints spell it.

A table's whole file set is never a Python object per file (a million of them would not fit).
"""

from typing import Any, Final

import pyarrow as pa

from tidegate.delta.actions import Add, Remove
from tidegate.delta.files.stated import with_texts

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
"""The columns that tell live files apart.

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
    """Return some add actions as columns of ADD_SCHEMA.

    Spec: "Add File and Remove File"
    """
    return _columns([add.to_row()["add"] for add in adds], ADD_SCHEMA)


def removes_to_columns(removes: list[Remove]) -> pa.Table:
    """Return some remove actions as columns of REMOVE_SCHEMA.

    Spec: "Add File and Remove File"
    """
    return _columns([remove.to_row()["remove"] for remove in removes], REMOVE_SCHEMA)


def rows_to_adds(files: pa.Table) -> list[Add]:
    """Return the rows of a (small, already pruned) table of files as add actions.

    Spec: "Add File and Remove File"
    """
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
