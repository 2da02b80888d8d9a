"""Writes rows to data files: one per partition, or more if there are many rows.

Rows are buffered until a file is full or the task ends, so that each file's statistics are
computed over exactly its rows. A file is durable under a fresh name before its add action exists.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol
from uuid import UUID

import pyarrow as pa
import pyarrow.compute as pc

from tidegate_delta.errors import InvalidRequest
from tidegate_delta.log.actions import Add, Cdc
from tidegate_delta.log.file_paths import encode_path
from tidegate_delta.schema.partition_values import serialize
from tidegate_delta.schema.types import STRING, DataType, StructField
from tidegate_producers.parquet.data_file_encoding import (
    FileLayout,
    FileName,
    encode_rows,
    statistics,
)
from tidegate_producers.parquet.row_conformance import conform
from tidegate_runtime.clock import Clock, new_id
from tidegate_runtime.storage.log_store import LogStore

BUFFERED_BYTES_MAX: Final = 128 * 1024 * 1024
"""Maximum size of the rows that a task buffers; above it the largest partition becomes a file."""

_POSITION: Final = "__tidegate_position"

Values = tuple[str | None, ...]
"""The partition values of some rows, in the log's form."""


class RowCheck(Protocol):
    """Checks rows before they are written."""

    def check(self, rows: pa.Table) -> None:
        """Refuse rows. Raises: InvalidRequest."""


@dataclass
class _Pending:
    """Buffered rows of one partition."""

    tables: list[pa.Table] = field(default_factory=list)
    rows: int = 0
    size: int = 0


class FileWriter:
    """Writes the rows of one task; unusable after `finish`."""

    def __init__(
        self,
        store: LogStore,
        layout: FileLayout,
        clock: Clock,
        task: int = 0,
        buffered_bytes_max: int | None = None,
    ) -> None:
        self._store = store
        self._buffered_bytes_max = buffered_bytes_max or BUFFERED_BYTES_MAX
        self._layout = layout
        self._clock = clock
        self._task = task
        self._unique: UUID = new_id(clock)
        self._fields = _partition_fields(layout)
        self._keys = layout.partition_keys()
        self._pending: dict[Values, _Pending] = {}
        self._buffered = 0
        self._adds: list[Add] = []

    def write(self, batch: pa.RecordBatch | pa.Table, condition: RowCheck | None = None) -> None:
        """Buffer rows, and write files that are full; `condition` refuses rows.

        Raises: InvalidRequest, for a value that does not fit; Unavailable, from the store.
        """
        if batch.num_rows == 0:
            return
        rows = conform(batch, self._layout.rows)
        if condition is not None:
            condition.check(_with_null_texts(rows, self._fields))
        for values, part in self._split(rows):
            self._take(values, part)
        while self._buffered > self._buffered_bytes_max:
            self._flush(max(self._pending, key=lambda values: self._pending[values].size))

    def finish(self) -> list[Add]:
        """Write the buffered rows, and return the add actions of all files."""
        for values in list(self._pending):
            self._flush(values)
        return self._adds

    def finish_changes(self) -> list[Cdc]:
        """Write the buffered rows, and return the actions of all change files."""
        return [
            Cdc(path=add.path, partition_values=add.partition_values, size=add.size)
            for add in self.finish()
        ]

    def _take(self, values: Values, part: pa.Table) -> None:
        limit = self._layout.records_per_file_max
        pending = self._pending.setdefault(values, _Pending())
        while limit is not None and pending.rows + part.num_rows >= limit:
            room = limit - pending.rows
            self._add(pending, part.slice(0, room))
            self._flush(values)
            part = part.slice(room)
            pending = self._pending.setdefault(values, _Pending())
        self._add(pending, part)

    def _add(self, pending: _Pending, part: pa.Table) -> None:
        pending.tables.append(part)
        pending.rows += part.num_rows
        pending.size += part.nbytes
        self._buffered += part.nbytes

    def _flush(self, values: Values) -> None:
        pending = self._pending.pop(values)
        self._buffered -= pending.size
        if pending.rows == 0:
            return
        rows = pa.concat_tables(pending.tables).combine_chunks()
        partition_values = dict(zip(self._keys, values, strict=True))
        key = FileName(self._task, self._unique, len(self._adds), partition_values).key(
            self._layout
        )
        content = encode_rows(rows, self._layout)
        self._store.put(key, content)
        self._adds.append(
            Add(
                path=encode_path(key),
                partition_values=partition_values,
                size=len(content),
                modification_time=self._clock.now_ms(),
                data_change=True,
                stats=statistics(rows, self._layout),
            )
        )

    def _split(self, rows: pa.Table) -> Iterator[tuple[Values, pa.Table]]:
        if not self._fields:
            yield (), rows
            return
        names = [column.name for column in self._fields]
        position = pa.array(range(rows.num_rows), pa.int64())
        keys = rows.select(names).append_column(_POSITION, position)
        groups = keys.group_by(names, use_threads=False).aggregate([(_POSITION, "list")])
        stored = rows.drop_columns(names)
        positions = groups.column(f"{_POSITION}_list")
        for index, values in enumerate(_spelled(groups, self._fields)):
            yield values, stored.take(positions[index].values)


def actions_of(rows: Sequence[Mapping[str, object]]) -> list[Add]:
    """Return add actions from rows of ADD_SCHEMA, as tasks send them to the driver."""
    return [Add.model_validate(row["add"]) for row in rows]


def changes_of(rows: Sequence[Mapping[str, object]]) -> list[Cdc]:
    """Return the actions of change files from rows in the log's form."""
    return [Cdc.model_validate(row["cdc"]) for row in rows]


def _partition_fields(layout: FileLayout) -> tuple[StructField, ...]:
    by_name = {column.name: column for column in layout.schema.fields}
    return tuple(by_name[name] for name in layout.partition_columns)


def _with_null_texts(rows: pa.Table, fields: Sequence[StructField]) -> pa.Table:
    """Return rows as they will be read: an empty string in a partition column is null."""
    for column in fields:
        if column.kind == STRING:
            index = rows.schema.get_field_index(column.name)
            values = rows.column(index)
            kept = pc.if_else(pc.equal(values, ""), pa.scalar(None, values.type), values)
            rows = rows.set_column(index, rows.schema.field(index), kept)
    return rows


def _spelled(groups: pa.Table, fields: Sequence[StructField]) -> Iterator[Values]:
    columns = [_values(groups, column) for column in fields]
    for values in zip(*columns, strict=True):
        yield tuple(_text(value, column) for value, column in zip(values, fields, strict=True))


def _values(groups: pa.Table, column: StructField) -> list[object]:
    try:
        values: list[object] = groups.column(column.name).to_pylist()
        return values
    except UnicodeDecodeError as error:
        raise InvalidRequest(
            f"partition column {column.name!r}: a row holds bytes there that are not UTF-8, and a "
            "partition value is text; correct the rows, or leave the column out of the "
            "partitioning; nothing was proposed",
            error_class="DELTA_FAILED_CAST_PARTITION_VALUE",
        ) from error
    except (OverflowError, ValueError) as error:
        raise InvalidRequest(
            f"partition column {column.name!r}: a {column.kind} before year 1 or past year 9999 is "
            "written to no partition value; correct the rows, or leave the column out of the "
            "partitioning; nothing was proposed",
            error_class="DELTA_FAILED_CAST_PARTITION_VALUE",
        ) from error


def _text(value: object, column: StructField) -> str | None:
    kind: DataType = column.kind
    try:
        text = serialize(value, kind)
    except ValueError as error:
        raise InvalidRequest(
            f"partition column {column.name!r}: {error}; nothing was proposed",
            error_class="DELTA_FAILED_CAST_PARTITION_VALUE",
        ) from error
    if text is None and not column.nullable:
        raise InvalidRequest(
            f"partition column {column.name!r} is NOT NULL, and a row holds null or an empty value "
            "there, which a partition cannot tell apart; nothing was proposed",
            error_class="DELTA_NOT_NULL_CONSTRAINT_VIOLATED",
        )
    return text
