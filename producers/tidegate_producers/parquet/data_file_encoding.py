"""Encodes one data file: its layout, name, bytes and statistics.

The columns of a data file: names, field ids and shapes, as other engines expect them.
"""

import io
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final
from uuid import UUID

import pyarrow as pa
import pyarrow.parquet as pq

from tidegate_delta.data_skipping.file_statistics import compute
from tidegate_delta.features import row_tracking
from tidegate_delta.log.actions import Metadata
from tidegate_delta.properties.table_properties import (
    compression_codec,
    num_indexed_columns,
    page_version,
    row_commit_version_column,
    row_id_column,
    stats_columns,
)
from tidegate_delta.schema.arrow_types import arrow_type
from tidegate_delta.schema.char_varchar import limited
from tidegate_delta.schema.column_mapping import (
    ColumnMappingMode,
    field_id,
    mapped_paths,
    mode_of,
    physical_name,
    to_physical,
)
from tidegate_delta.schema.partition_values import folder
from tidegate_delta.schema.types import (
    LONG,
    STRING,
    VARIANT,
    ArrayType,
    DataType,
    MapType,
    StructField,
    StructType,
    parse_schema,
)
from tidegate_producers.parquet.row_conformance import fitted

_FIELD_ID: Final = "PARQUET:field_id"
_VARIANT: Final = pa.struct(
    [pa.field(part.name, part.type, nullable=False) for part in arrow_type(VARIANT)]
)
"""Spark requires that neither part of a variant can be null."""


def parquet_schema(schema: StructType, mode: ColumnMappingMode) -> pa.Schema:
    """Return the Arrow schema by which a file with these columns is written.

    Under column mapping each field has its physical name and its id, in both modes, as in files of
    delta-spark.
    """
    return pa.schema([_field(field, mode) for field in schema.fields])


def _field(field: StructField, mode: ColumnMappingMode) -> pa.Field:
    number = None if mode is ColumnMappingMode.NONE else field_id(field)
    metadata = None if number is None else {_FIELD_ID: str(number)}
    kind = _type(field.kind, mode)
    nullable = field.nullable or pa.types.is_null(kind)
    return pa.field(physical_name(field, mode), kind, nullable, metadata)


def _type(kind: DataType, mode: ColumnMappingMode) -> pa.DataType:
    match kind:
        case StructType():
            return pa.struct([_field(field, mode) for field in kind.fields])
        case ArrayType():
            element = StructField("element", kind.element, kind.contains_null)
            return pa.list_(_field(element, mode))
        case MapType():
            item = StructField("value", kind.value, kind.value_contains_null)
            return pa.map_(_type(kind.key, mode), _field(item, mode))
        case _:
            return _VARIANT if kind == VARIANT else arrow_type(kind)


CHANGE_TYPE: Final = "_change_type"
"""The column of change files that says what happened to a row, as readers get it."""

_CHANGE_FOLDER: Final = "_change_data"
_EXTENSIONS: Final = {"none": "", "uncompressed": "", "gzip": ".gz", "lz4_raw": ".lz4raw"}
_CODECS: Final = {"uncompressed": "none", "lz4_raw": "lz4"}


@dataclass(frozen=True)
class FileLayout:
    """How the rows of a table become files; it is sent to the tasks.

    `stats_max` is the number of columns with statistics; -1 is all. `row_ids` are the columns of
    files whose rows keep their row ids and row commit versions. `is_of_changes` makes change files:
    their rows have CHANGE_TYPE behind the table's columns.
    """

    schema: StructType
    partition_columns: tuple[str, ...] = ()
    compression: str = "zstd"
    page_version: str = "1.0.0"
    stats_max: int = 32
    stats_paths: tuple[tuple[str, ...], ...] | None = None
    records_per_file_max: int | None = None
    mode: ColumnMappingMode = ColumnMappingMode.NONE
    row_ids: tuple[str, ...] = ()
    is_of_changes: bool = False

    @property
    def rows(self) -> StructType:
        """The columns of the rows to write: the table's, and those that only files have."""
        row_id_fields = tuple(StructField(name, LONG) for name in self.row_ids)
        change = (StructField(CHANGE_TYPE, STRING, nullable=False),) if self.is_of_changes else ()
        return StructType((*self.schema.fields, *row_id_fields, *change))

    @property
    def stored(self) -> StructType:
        """The columns stored in data files: all but the partition columns."""
        names = set(self.partition_columns)
        return StructType(tuple(column for column in self.rows.fields if column.name not in names))

    def partition_keys(self) -> tuple[str, ...]:
        """Return the keys of the partition columns in `partitionValues`."""
        fields = {column.name: column for column in self.schema.fields}
        return tuple(physical_name(fields[name], self.mode) for name in self.partition_columns)


@dataclass(frozen=True)
class FileName:
    """The parts that make a data file's name unique: its task, an attempt id, and a number."""

    task: int
    unique: UUID
    number: int = 0
    values: Mapping[str, str | None] = field(default_factory=dict)

    def key(self, layout: FileLayout) -> str:
        """Return the object key, relative to the table root; the file name has Spark's form."""
        codec = _EXTENSIONS.get(layout.compression, f".{layout.compression}")
        kind = "cdc" if layout.is_of_changes else "part"
        bare = f"{kind}-{self.task:05d}-{self.unique}.c{self.number:03d}{codec}.parquet"
        parts = [_CHANGE_FOLDER] if layout.is_of_changes else []
        if layout.partition_columns:
            parts.append(folder(self.values, layout.partition_keys()))
        return "/".join([*parts, bare])


def layout_of(
    metadata: Metadata, compression: str | None = None, records_per_file_max: int | None = None
) -> FileLayout:
    """Return the layout that a table's properties ask for; the arguments override them."""
    return FileLayout(
        schema=parse_schema(metadata.schema_string),
        partition_columns=tuple(metadata.partition_columns),
        compression=compression or compression_codec(metadata),
        page_version=page_version(metadata),
        stats_max=num_indexed_columns(metadata),
        stats_paths=stats_columns(metadata),
        records_per_file_max=records_per_file_max,
        mode=mode_of(metadata),
    )


def as_it_is(layout: FileLayout) -> FileLayout:
    """Return a layout without limits on string length: existing rows keep their values."""
    fields = tuple(limited(field, {}) for field in layout.schema.fields)
    return replace(layout, schema=StructType(fields))


def keeping_row_ids(layout: FileLayout, metadata: Metadata) -> FileLayout:
    """Return a layout with the columns of row tracking, if the table's rows are tracked."""
    return replace(layout, row_ids=row_id_columns(metadata))


def row_id_columns(metadata: Metadata) -> tuple[str, ...]:
    """Return the columns of files in which moved rows keep their ids and commit versions; none
    where rows are not tracked.
    """
    ids, versions = row_id_column(metadata), row_commit_version_column(metadata)
    if ids is None or versions is None or not row_tracking.is_enabled(metadata):
        return ()
    return (ids, versions)


def of_changes(layout: FileLayout) -> FileLayout:
    """Return the layout of the change files beside the data files of a layout."""
    plain = replace(as_it_is(layout), row_ids=(), records_per_file_max=None)
    return replace(plain, is_of_changes=True, stats_max=0, stats_paths=None)


def encode_rows(rows: pa.Table, layout: FileLayout) -> bytes:
    """Return the bytes of a Parquet file with these rows, whose columns are those stored."""
    out = io.BytesIO()
    pq.write_table(
        _physical(rows, layout),
        out,
        compression=_CODECS.get(layout.compression, layout.compression),
        version="2.6",
        data_page_version="1.0" if layout.page_version == "1.0.0" else "2.0",
        store_schema=False,
    )
    return out.getvalue()


def statistics(rows: pa.Table, layout: FileLayout) -> str:
    """Return the statistics of a file's rows, for the columns that the table's properties name."""
    stats_paths, mode = layout.stats_paths, layout.mode
    if mode is ColumnMappingMode.NONE:
        return compute(rows, layout.schema, layout.stats_max, stats_paths)
    if stats_paths is not None:
        physical_by_logical = {
            logical: physical for physical, logical in mapped_paths(layout.schema, mode)
        }
        stats_paths = tuple(
            physical_by_logical[path] for path in stats_paths if path in physical_by_logical
        )
    schema = to_physical(layout.schema, mode)
    return compute(_physical(rows, layout), schema, layout.stats_max, stats_paths)


def _physical(rows: pa.Table, layout: FileLayout) -> pa.Table:
    """Return stored rows under the names, field ids and shapes that their file gets."""
    schema = parquet_schema(layout.stored, layout.mode)
    columns = [
        pa.chunked_array([fitted(chunk, field.type) for chunk in column.chunks], field.type)
        for column, field in zip(rows.columns, schema, strict=True)
    ]
    return pa.Table.from_arrays(columns, schema=schema)
