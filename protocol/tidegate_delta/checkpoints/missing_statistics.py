"""Files that lack statistics by which readers would skip them: of all rows, or of a column.

Spec: "Per-file Statistics"
"""

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tidegate_delta.checkpoints.parsed_stats import bounded_columns
from tidegate_delta.data_skipping import column_bounds
from tidegate_delta.data_skipping.file_pruning import ROWS_MAX, read_texts
from tidegate_delta.log.actions import Metadata
from tidegate_delta.schema.field_paths import FieldPath
from tidegate_delta.schema.types import StructType, leaves
from tidegate_delta.snapshots.raw_stats import texts


def lack_statistics(files: pa.Table, metadata: Metadata) -> pa.ChunkedArray:
    """Return of each file, a row of ADD_SCHEMA, whether its statistics lack the number of rows, or
    the nulls of a column that should have bounds.
    """
    columns = bounded_columns(metadata)
    chunks = [
        _lack(texts(files.slice(start, ROWS_MAX)).combine_chunks(), columns)
        for start in range(0, files.num_rows, ROWS_MAX)
    ]
    return pa.chunked_array(chunks, pa.bool_())


def _lack(stats: pa.StringArray, columns: StructType) -> pa.Array:
    fields = [pa.field("numRecords", pa.int64())]
    if columns.fields:
        fields.append(pa.field("nullCount", _counts_of(columns)))
    shape = pa.struct(fields)
    paths: list[FieldPath] = [("numRecords",)]
    paths += [("nullCount", *path) for path in leaves(columns)]
    try:
        read = read_texts(stats, pa.schema([pa.field("stats", shape)]))["stats"].combine_chunks()
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return pa.array([_lacks(text, paths) for text in stats.to_pylist()], pa.bool_())
    lacking = pa.repeat(pa.scalar(False), len(stats))
    for path in paths:
        lacking = pc.or_(lacking, pc.is_null(pc.struct_field(read, list(path))))
    return lacking


def _lacks(text: str | None, paths: Sequence[FieldPath]) -> bool:
    parsed = column_bounds.parsed(text, exact_numbers=True)
    return any(not isinstance(column_bounds.value_at(parsed, path), int) for path in paths)


def _counts_of(columns: StructType) -> Any:
    return pa.struct(
        [
            pa.field(
                field.name,
                _counts_of(field.kind) if isinstance(field.kind, StructType) else pa.int64(),
            )
            for field in columns.fields
        ]
    )
