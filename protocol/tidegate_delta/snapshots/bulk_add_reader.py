"""Read many `add` lines of JSON straight into Arrow columns, without an object for each line.

Commits with many adds are written by programs whose lines look alike. Arrow reads such lines on
all cores. All others are left to the line-by-line reader, which allows everything the protocol
allows.
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from io import BytesIO
from itertools import accumulate, pairwise
from typing import Any, Final

import orjson
import pyarrow as pa
import pyarrow.json as pa_json

from tidegate_delta.snapshots.chunked_arrays import missing
from tidegate_delta.snapshots.file_action_columns import ADD_SCHEMA

START: Final = b'{"add":{'
"""How writers begin an `add` line; a line with spaces in it is read as any other line.

Spec: "Add File and Remove File"
"""

BYTES_MIN: Final = 1 << 16
"""The number of bytes from which Arrow's reader is faster.

Spec: "Add File and Remove File"
"""

_SHARED_ROWS: Final = 4_096
_BLOCK_BYTES: Final = 1 << 21
"""Bytes of lines that one core reads at a time; shorter input uses one core."""


def split(content: bytes) -> tuple[bytes, bytes]:
    """Return the lines around the `add` lines, and those from the first to the last `add` line.

    Spec: "Delta Log Entries"
    """
    first = 0 if content.startswith(START) else content.find(b"\n" + START) + 1
    if not first and not content.startswith(START):
        return content, b""
    last = max(content.rfind(b"\n" + START) + 1, first)
    end = content.find(b"\n", last)
    return (content, b"") if end < 0 else (content[:first] + content[end + 1 :], content[first:end])


def read_runs(runs: Sequence[bytes], files: pa.Schema = ADD_SCHEMA) -> list[pa.Table] | None:
    """Return the adds of each run of lines, in the columns of `files`; None where lines differ.

    The lines must each add a file, have no unknown field, and have the same partition columns and
    tags, none of them null.
    Spec: "Add File and Remove File"
    """
    if sum(map(len, runs)) < BYTES_MIN:
        return None
    # Iterating over the lines is faster than `bytes.count`.
    counts = [sum(1 for _ in BytesIO(run)) for run in runs]
    lines = b"\n".join(run for run in runs if run)
    try:
        sample = orjson.loads(lines[: lines.find(b"\n")])["add"]
        read = _parse(
            lines, [_declared_field(field, sample[field.name]) for field in _sample_fields(sample)]
        )
        tables = [_columns(batch) for batch in read.to_batches()]
    except (ValueError, TypeError, pa.ArrowException):
        return None
    if sum(counts) != read.num_rows or any(table is None for table in tables):
        return None
    all_adds = pa.concat_tables([table for table in tables if table is not None]).select(
        files.names
    )
    ends = accumulate(counts, initial=0)
    return [all_adds.slice(start, end - start) for start, end in pairwise(ends)]


def _sample_fields(sample: Mapping[str, Any]) -> list[pa.Field]:
    return [field for field in ADD_SCHEMA if sample.get(field.name) is not None]


def _declared_field(field: pa.Field, value: Any) -> pa.Field:
    """Return a field as the JSON reader expects it: a map is a struct with the sample's keys."""
    if not pa.types.is_map(field.type):
        return field
    return pa.field(field.name, pa.struct([pa.field(key, pa.string()) for key in value]))


def _parse(lines: bytes, fields: Sequence[pa.Field]) -> pa.Table:
    """Return the lines as a column `add`; an unexpected field is an error."""
    read = pa_json.read_json(
        pa.BufferReader(lines),
        pa_json.ReadOptions(use_threads=True, block_size=_BLOCK_BYTES),
        pa_json.ParseOptions(
            explicit_schema=pa.schema([pa.field("add", pa.struct(fields))]),
            unexpected_field_behavior="error",
        ),
    )
    # JSON must be UTF-8, but the parser accepts any bytes between quotes.
    read.validate(full=True)
    return read


def _columns(batch: pa.RecordBatch) -> pa.Table | None:
    read: Any = batch.column(0)
    columns_by_name = dict(zip((field.name for field in read.type), read.flatten(), strict=True))
    if read.null_count or "path" not in columns_by_name or columns_by_name["path"].null_count:
        return None
    columns: list[Any] = []
    for field in ADD_SCHEMA:
        column = columns_by_name.get(field.name)
        if column is None:
            columns.append(missing(len(read), field.type))
        elif pa.types.is_map(field.type):
            columns.append(_mapping(column))
        else:
            columns.append(column)
    if any(column is None for column in columns):
        return None
    return pa.Table.from_arrays(columns, schema=ADD_SCHEMA)


def _mapping(read: Any) -> pa.Array | None:
    """Return structs with the same keys as maps; None where a struct or a value is null."""
    keys = [field.name for field in read.type]
    values = read.flatten()
    if read.null_count or any(value.null_count for value in values):
        return None
    size, width = len(read), len(keys)
    offsets = _steps(width).slice(0, size + 1)
    if len(offsets) <= size:
        offsets = pa.array([index * width for index in range(size + 1)], pa.int32())
    if not width:
        return pa.MapArray.from_arrays(offsets, *[pa.array([], pa.string())] * 2)
    if width == 1:
        return pa.MapArray.from_arrays(offsets, pa.repeat(keys[0], size), values[0])
    order = pa.array(index * size + row for row in range(size) for index in range(width))
    key_column = pa.array(keys * size, pa.string())
    return pa.MapArray.from_arrays(offsets, key_column, pa.concat_arrays(values).take(order))


@lru_cache(maxsize=8)
def _steps(width: int) -> pa.Array:
    return pa.array([index * width for index in range(_SHARED_ROWS + 1)], pa.int32())
