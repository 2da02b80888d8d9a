"""Row ids and row commit versions: the columns of row tracking, for readers that request them.

A row keeps its id when it moves to another file: then that file stores it in a column. Otherwise it
follows from the file's first id and the row's position, counting deleted rows.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from tidegate_delta.errors import BrokenLog, InvalidRequest
from tidegate_delta.log.actions import Metadata
from tidegate_delta.properties import table_properties
from tidegate_delta.schema.types import LONG, StructField

ROW_ID: Final = "_metadata.row_id"
ROW_COMMIT_VERSION: Final = "_metadata.row_commit_version"
POSITION: Final = StructField("_metadata.row_index", LONG)
"""The position of a row in its file: not stored, but computed on reading."""

_TRACKED: Final = (ROW_ID, ROW_COMMIT_VERSION)


def tracked_field(metadata: Metadata, name: str) -> StructField | None:
    """Return the field of a row tracking column, or None for another name.

    Raises: InvalidRequest if the table's rows are not tracked.
    """
    if name not in _TRACKED:
        return None
    if not table_properties.row_tracking_enabled(metadata):
        raise InvalidRequest(
            f"the table's rows have no {name!r}: row tracking is not enabled (table property "
            f"{table_properties.row_tracking_enabled.key}); leave the column out",
            error_class="DELTA_COLUMN_NOT_FOUND",
        )
    return StructField(name, LONG, nullable=False)


def files_with_row_ids(files: pa.Table) -> tuple[int, str | None]:
    """Return how many live files have a row id or a commit version, and the path of one.

    Shape: `files` has ADD_SCHEMA.
    """
    return _counted(files, has_row_ids(files))


def files_without_row_ids(files: pa.Table) -> tuple[int, str | None]:
    """Return how many live files lack a row id or a commit version, and the path of one.

    Shape: `files` has ADD_SCHEMA.
    """
    return _counted(files, lacks_row_ids(files))


def has_row_ids(files: pa.Table) -> pa.ChunkedArray:
    """Return which files of a table of ADD_SCHEMA have a row id or a commit version."""
    return pc.or_(files["baseRowId"].is_valid(), files["defaultRowCommitVersion"].is_valid())


def lacks_row_ids(files: pa.Table) -> pa.ChunkedArray:
    """Return which files of a table of ADD_SCHEMA lack a row id or a commit version."""
    return pc.or_(files["baseRowId"].is_null(), files["defaultRowCommitVersion"].is_null())


def _counted(files: pa.Table, marks: pa.ChunkedArray) -> tuple[int, str | None]:
    paths = files["path"].filter(marks)
    return len(paths), paths[0].as_py() if len(paths) else None


def physical_fields(metadata: Metadata, fields: Sequence[StructField]) -> tuple[StructField, ...]:
    """Return the fields to read from a file for some fields, row tracking columns among them."""
    own = tuple(field for field in fields if field.name not in _TRACKED)
    if len(own) == len(fields):
        return own
    kept = (_column(metadata, name) for name in _TRACKED)
    return (*own, POSITION, *(StructField(name, LONG) for name in kept if name))


def with_tracking(
    batch: pa.RecordBatch,
    file: Mapping[str, Any],
    metadata: Metadata,
    fields: Sequence[StructField],
) -> pa.RecordBatch:
    """Return rows of `physical_fields` as rows of `fields`.

    Raises: BrokenLog (`CorruptCommit`) if rows store no ids and their file has no first id.
    """
    columns = [
        _values(batch, file, metadata, field.name)
        if field.name in _TRACKED
        else batch.column(batch.schema.get_field_index(field.name))
        for field in fields
    ]
    shape = [
        pa.field(field.name, column.type, field.nullable)
        for field, column in zip(fields, columns, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema(shape))


def _values(
    batch: pa.RecordBatch, file: Mapping[str, Any], metadata: Metadata, name: str
) -> pa.Array:
    kept = _column(metadata, name)
    index = batch.schema.get_field_index(kept) if kept else -1
    values = batch.column(index) if index >= 0 else pa.nulls(batch.num_rows, pa.int64())
    if values.null_count:
        values = pc.coalesce(values, _implied(batch, file, name))
    if values.null_count:
        raise BrokenLog(
            f"the log names {file['path']!r} without the {_STATED[name]} that row tracking asks "
            f"for: leave {name!r} out, or restore the table to a version without the file",
            error_class="CorruptCommit",
        )
    return values


_STATED: Final = {ROW_ID: "baseRowId", ROW_COMMIT_VERSION: "defaultRowCommitVersion"}


def _implied(batch: pa.RecordBatch, file: Mapping[str, Any], name: str) -> pa.Array:
    first = pa.scalar(file.get(_STATED[name]), pa.int64())
    if name == ROW_ID:
        return pc.add(batch.column(batch.schema.get_field_index(POSITION.name)), first)
    return pa.repeat(first, batch.num_rows)


def _column(metadata: Metadata, name: str) -> str | None:
    column_property = (
        table_properties.row_id_column
        if name == ROW_ID
        else table_properties.row_commit_version_column
    )
    column: str | None = column_property(metadata)
    return column
