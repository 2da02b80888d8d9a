"""Read the rows of data files in the table's schema, with partition values from the log.

Batches are read one at a time, so reading needs the memory of a row group, not of a whole file.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import accumulate
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from tidegate_delta.data_skipping.file_pruning import prune
from tidegate_delta.data_skipping.predicate_tree import (
    COLLATIONS,
    Predicate,
    children,
    columns_of,
    path_of,
    predicate_problem,
)
from tidegate_delta.data_skipping.predicates_on_rows import evaluate
from tidegate_delta.deletion_vectors.descriptors import EVERY_ROW, RowChoice
from tidegate_delta.errors import BrokenLog, InvalidRequest, Unavailable, UnsupportedFeature
from tidegate_delta.log.actions import Metadata
from tidegate_delta.schema import partition_values as partitions
from tidegate_delta.schema.arrow_types import arrow_type, to_arrow
from tidegate_delta.schema.column_mapping import (
    ColumnMappingMode,
    mode_of,
    physical_partition_columns,
)
from tidegate_delta.schema.partition_values import lenient_cast
from tidegate_delta.schema.types import StructField, StructType, parse_schema
from tidegate_delta.snapshots.snapshot import Snapshot
from tidegate_runtime.storage.log_store import LogStore
from tidegate_runtime.table_io.deletion_vector_reader import chosen_rows, live_rows
from tidegate_runtime.table_io.log_reader import of_table
from tidegate_runtime.table_io.logical_columns import (
    OldCalendar,
    WrongType,
    calendar_of,
    conform,
    find_name,
    sources_of,
)
from tidegate_runtime.table_io.row_ids import (
    POSITION,
    physical_fields,
    tracked_field,
    with_tracking,
)
from tidegate_runtime.table_io.table_files import open_table_file

ROWS_MAX: Final = 16_384
"""Rows of a batch: some megabytes, which fit into a processor's cache."""

NODES_MAX: Final = 100_000
"""Maximum number of nodes and values of a predicate."""

FILES_MAX: Final = 1_024
"""How many files' add actions are converted to Python objects at once."""

PartitionValues = Mapping[str, str | None]


@dataclass(frozen=True)
class FileShare:
    """Part `number` of `count` parts of a data file of about equal size, cut between row groups.

    `choice` selects rows of it, by their positions in the whole file.
    Law: the parts of a file hold each row group once, in order.
    """

    number: int = 0
    count: int = 1
    choice: RowChoice = EVERY_ROW

    def row_groups(self, parquet: pq.ParquetFile) -> range:
        """Return the numbers of its row groups: those whose middle lies in this part."""
        metadata = parquet.metadata
        sizes = [
            metadata.row_group(index).total_byte_size for index in range(metadata.num_row_groups)
        ]
        ends = list(accumulate(sizes))
        total = max(sum(sizes), 1)
        parts = [
            (2 * end - size) * self.count // (2 * total)
            for end, size in zip(ends, sizes, strict=True)
        ]
        return range(bisect_left(parts, self.number), bisect_left(parts, self.number + 1))


TO_READ: Final = (
    "path",
    "partitionValues",
    "size",
    "deletionVector",
    "baseRowId",
    "defaultRowCommitVersion",
)
"""The columns of ADD_SCHEMA that reading a file needs."""


def read_table(
    store: LogStore,
    snapshot: Snapshot,
    columns: Sequence[str] | None = None,
    predicate: Predicate | None = None,
) -> pa.Table:
    """Return the rows of a snapshot or, with a predicate, those for which it is true.

    Raises: as `read_file`.
    """
    shape = to_arrow(StructType(selected(snapshot.metadata, columns)))
    return pa.Table.from_batches(scan(store, snapshot, columns, predicate), schema=shape)


def scan(
    store: LogStore,
    snapshot: Snapshot,
    columns: Sequence[str] | None = None,
    predicate: Predicate | None = None,
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a snapshot in batches, file after file.

    Files that can't hold a row for which the predicate is true are not opened.
    Raises: as `read_file`; UnsupportedFeature for a comparison under a collation; InvalidRequest
    (`BadPredicate`) for a predicate outside the grammar.
    """
    metadata = snapshot.metadata
    names = [field.name for field in selected(metadata, columns)]
    if predicate is None:
        for file in rows_of(snapshot.files):
            yield from read_file(store, file, metadata, names)
        return
    _check_grammar(predicate)
    _check_comparable(predicate, schema_of(metadata), store.root)
    kept = prune(predicate, snapshot.files, metadata)
    predicate_columns = [field.name for field in selected(metadata, sorted(columns_of(predicate)))]
    needed = list(dict.fromkeys([*names, *predicate_columns]))
    for file in rows_of(kept):
        for batch in read_file(store, file, metadata, needed):
            yield matching(batch, predicate).select(names)


def read_file(
    store: LogStore,
    file: Mapping[str, Any],
    metadata: Metadata,
    columns: Sequence[str] | None = None,
    part: tuple[int, int] = (0, 1),
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a live file, a row of ADD_SCHEMA as a mapping, in the table's schema.

    `part` is (number, count) of a `FileShare`.

    Partition values come from the log; a column that the file lacks is null; columns that the
    schema lacks are dropped. Names that differ only in case are one column. Rows that its deletion
    vector deletes are left out. `_metadata.row_id` and `_metadata.row_commit_version` are columns
    if rows are tracked and `columns` names them.
    Raises: BrokenLog (`DataFileMissing`, `CorruptDataFile`, `DeletionVectorMissing`,
    `CorruptDeletionVector`); UnsupportedFeature for a file in another store; InvalidRequest for an
    unknown column; Unavailable.
    """
    values = partition_values_of(metadata, dict(file["partitionValues"] or {}))
    share, fields = FileShare(*part, live_rows(store, file)), selected(metadata, columns)
    physical = physical_fields(metadata, fields)
    batches = read_rows(store, file["path"], physical, values, mode_of(metadata), share)
    if POSITION not in physical:
        yield from batches
        return
    with of_table(store.root):
        for batch in batches:
            yield with_tracking(batch, file, metadata, fields)


def read_rows(
    store: LogStore,
    path: str,
    fields: Sequence[StructField],
    partition_values: PartitionValues,
    mode: ColumnMappingMode,
    choice: RowChoice | FileShare = EVERY_ROW,
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a Parquet file in the given fields; `partition_values` win over the file.

    `path` is in the log's form; `choice` selects rows, or a part of the file. Raises: as
    `read_file`.
    """
    share = choice if isinstance(choice, FileShare) else FileShare(choice=choice)
    try:
        with open_table_file(store, path) as file:
            rows = None if share.choice == EVERY_ROW else chosen_rows(store, share.choice, path)
            if rows is not None and rows.is_nothing:
                return
            parquet = pq.ParquetFile(file, coerce_int96_timestamp_unit="us")
            groups = share.row_groups(parquet)
            start = sum(parquet.metadata.row_group(index).num_rows for index in range(groups.start))
            batches = _batches(parquet, fields, partition_values, mode, (groups, start))
            yield from batches if rows is None else rows.of_batches(batches, start)
    except FileNotFoundError as error:
        raise BrokenLog(
            f"data file {path!r} of table {store.root} is not there, although the log names it: "
            "restore the file, or the table to a version without it",
            error_class="DataFileMissing",
        ) from error
    except OSError as error:
        if error.errno is not None:
            raise Unavailable(f"reading {path!r} of table {store.root} failed: {error}") from error
        raise _corrupt(store, path, error) from error
    except (pa.ArrowException, WrongType, ValueError) as error:
        raise _corrupt(store, path, error) from error


def matching(batch: pa.RecordBatch, predicate: Predicate) -> pa.RecordBatch:
    """Return the rows for which a predicate is true."""
    mask = evaluate(predicate, pa.Table.from_batches([batch]))
    return batch.filter(mask.combine_chunks())


def _check_grammar(predicate: Predicate) -> None:
    mistake = predicate_problem([predicate], NODES_MAX)
    if mistake is not None:
        raise InvalidRequest(
            f"the predicate {mistake[1]}: use the grammar of "
            "`tidegate_delta.data_skipping.predicate_tree`, or leave the condition out and apply "
            "it to the rows",
            error_class="BadPredicate",
        )


def _check_comparable(predicate: Predicate, schema: StructType, root: str) -> None:
    """Refuse comparisons of strings with a collation other than by bytes: we would miss rows."""
    if "type" in predicate:
        name = find_name(schema.names, path_of(predicate)[0])
        field = None if name is None else schema.get(name)
        if field is not None and COLLATIONS in field.metadata:
            raise UnsupportedFeature(
                f"column {field.name!r} of table {root} has a collation, under which this release "
                "does not compare: leave the condition out and apply it to the rows",
                feature="collations",
            )
    for inner in children(predicate):
        _check_comparable(inner, schema, root)


def rows_of(files: pa.Table) -> Iterator[Mapping[str, Any]]:
    """Yield what reading each file of a table of ADD_SCHEMA needs, a few at a time."""
    needed = files.select([name for name in TO_READ if name in files.schema.names])
    for start in range(0, needed.num_rows, FILES_MAX):
        yield from needed.slice(start, FILES_MAX).to_pylist()


def schema_of(metadata: Metadata) -> StructType:
    """Return the table's schema, parsed once for each schema string."""
    return _schema(metadata.schema_string)


def selected(metadata: Metadata, columns: Iterable[str] | None) -> tuple[StructField, ...]:
    """Return the fields of some columns, named as in the schema; None selects all in its order.

    Raises: InvalidRequest for an unknown column.
    """
    schema = schema_of(metadata)
    if columns is None:
        return schema.fields
    fields: list[StructField] = []
    for column in columns:
        name = find_name(schema.names, column)
        field = tracked_field(metadata, column) if name is None else schema.get(name)
        if field is None:
            raise InvalidRequest(
                f"there is no column {column!r}; there are {', '.join(schema.names)}",
                error_class="DELTA_COLUMN_NOT_FOUND",
            )
        fields.append(field)
    return tuple(fields)


def partition_values_of(metadata: Metadata, values: PartitionValues) -> PartitionValues:
    """Return a file's value of each partition column, by the column's name in the schema.

    A value that the log leaves out is null.
    """
    keys = physical_partition_columns(metadata)
    return {name: values.get(key) for name, key in keys.items()}


@lru_cache(maxsize=64)
def _schema(text: str) -> StructType:
    return parse_schema(text)


def _corrupt(store: LogStore, path: str, error: Exception) -> BrokenLog:
    return BrokenLog(
        f"data file {path!r} of table {store.root} can't be read: {error}; restore the file, or "
        "the table to a version without it",
        error_class="CorruptDataFile",
    )


def _batches(
    parquet: pq.ParquetFile,
    fields: Sequence[StructField],
    partition_values: PartitionValues,
    mode: ColumnMappingMode,
    share: tuple[range, int],
) -> Iterator[pa.RecordBatch]:
    groups, start = share
    own = [field for field in fields if field.name not in partition_values and field != POSITION]
    sources = sources_of(parquet.schema_arrow, own, mode)
    physical_names = [name for name in sources.values() if name is not None]
    end = start + sum(parquet.metadata.row_group(index).num_rows for index in groups)
    conformed = partial(_conformed, mode=mode, calendar=calendar_of(parquet))
    logical = partial(_logical, fields, sources, partition_values, conformed)
    if physical_names:
        chosen = {"row_groups": list(groups), "columns": physical_names}
        for batch in parquet.iter_batches(ROWS_MAX, **chosen):
            yield logical(batch, range(start, start + batch.num_rows))
            start += batch.num_rows
        return
    for first in range(start, end, ROWS_MAX):
        yield logical(None, range(first, min(first + ROWS_MAX, end)))


def _logical(
    fields: Sequence[StructField],
    sources: Mapping[str, str | None],
    partition_values: PartitionValues,
    conformed: Callable[[pa.Array, StructField], pa.Array],
    batch: pa.RecordBatch | None,
    positions: range,
) -> pa.RecordBatch:
    columns, size = [], len(positions)
    for field in fields:
        source = sources.get(field.name)
        if field.name in partition_values:
            columns.append(_constant(partition_values[field.name], field, size))
        elif field == POSITION:
            columns.append(pa.array(positions, pa.int64()))
        elif source is None or batch is None:
            columns.append(pa.nulls(size, arrow_type(field.kind)))
        else:
            columns.append(conformed(batch.column(source), field))
    shape = to_arrow(StructType(tuple(fields)))
    if not fields:
        return pa.RecordBatch.from_struct_array(pa.array([{}] * size, pa.struct([])))
    return pa.RecordBatch.from_arrays(columns, schema=shape)


def _constant(text: str | None, field: StructField, size: int) -> pa.Array:
    try:
        value = partitions.column([text], field.kind)[0]
    except ValueError:
        # As Spark reads it; predicates and the conflict rules do the same.
        value = pa.scalar(lenient_cast(text or "", field.kind), arrow_type(field.kind))
    return pa.repeat(value, size) if value.is_valid else pa.nulls(size, arrow_type(field.kind))


def _conformed(
    column: pa.Array, field: StructField, mode: ColumnMappingMode, calendar: OldCalendar | None
) -> pa.Array:
    try:
        conformed = conform(column, field.kind, mode)
        return conformed if calendar is None else calendar.recounted(conformed, field.kind)
    except WrongType as error:
        raise WrongType(f"column {field.name!r}: {error}") from error
