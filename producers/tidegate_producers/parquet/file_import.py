"""Describes a Parquet file that another engine wrote: its columns, in Delta's types, and its
statistics.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from tidegate_delta.data_skipping.file_statistics import compute
from tidegate_delta.errors import InvalidRequest
from tidegate_delta.schema.arrow_types import from_arrow
from tidegate_delta.schema.column_mapping import ColumnMappingMode
from tidegate_delta.schema.types import (
    TIMESTAMP,
    StructField,
    StructType,
    format_schema,
    parse_schema,
)
from tidegate_runtime.storage.log_store import LogStore
from tidegate_runtime.table_io.data_file_reader import read_rows

_OF_SPARK: Final = b"org.apache.spark.sql.parquet.row.metadata"
_INT96: Final = "INT96"


def described(
    store: LogStore, key: str, path: str, partition_columns: Sequence[str]
) -> tuple[str, str]:
    """Return the columns and the statistics of a file, both as JSON; `path` is its key encoded.

    Partition columns are left out where the file holds them, too.
    Raises: InvalidRequest, for a file that is no Parquet or holds a type that Delta lacks;
    Unavailable.
    """
    try:
        with store.open(key) as file:
            parquet = pq.ParquetFile(file, coerce_int96_timestamp_unit="us")
            schema = _schema_of(parquet)
    except (pa.ArrowException, ValueError, OSError) as error:
        raise InvalidRequest(
            f"{store.root}/{key} can't be a data file: {error}; move it elsewhere, or name it with "
            "an underscore in front; nothing was proposed",
            error_class="DELTA_CONVERT_NON_PARQUET_TABLE",
        ) from error
    keys = {name.lower() for name in partition_columns}
    stored_schema = StructType(
        tuple(field for field in schema.fields if field.name.lower() not in keys)
    )
    batches = read_rows(store, path, stored_schema.fields, {}, ColumnMappingMode.NONE)
    rows = list(batches)
    table = pa.Table.from_batches(rows) if rows else pa.table({})
    return format_schema(stored_schema), compute(table, stored_schema)


def _schema_of(parquet: pq.ParquetFile) -> StructType:
    """Return a file's columns: as Spark noted them, or else by their Parquet types."""
    arrow = parquet.schema_arrow
    noted = (arrow.metadata or {}).get(_OF_SPARK)
    if noted is not None:
        return parse_schema(noted.decode())
    schema = from_arrow(arrow.remove_metadata())
    leaves = [parquet.schema.column(index) for index in range(len(parquet.schema.names))]
    # These columns are instants, although the file does not say so.
    instants = {leaf.path for leaf in leaves if leaf.physical_type == _INT96}
    return StructType(tuple(_as_instant(field, instants) for field in schema.fields))


def _as_instant(field: StructField, instants: set[str]) -> StructField:
    return replace(field, kind=TIMESTAMP) if field.name in instants else field
