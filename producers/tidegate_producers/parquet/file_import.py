"""Describes a Parquet file that another engine wrote: its columns, in Delta's types, and its
statistics.
"""

from collections.abc import Iterator, Sequence
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
    ArrayType,
    DataType,
    MapType,
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
    leaves = (parquet.schema.column(index) for index in range(len(parquet.schema.names)))
    # These columns are instants, although the file does not say so.
    are_instants = iter([leaf.physical_type == _INT96 for leaf in leaves])
    described_schema = _with_instants(schema, are_instants)
    assert isinstance(described_schema, StructType), "a schema stays a struct"
    return described_schema


def _with_instants(kind: DataType, are_instants: Iterator[bool]) -> DataType:
    """Return a type with instants in the places of INT96; its leaves come in the file's order."""
    match kind:
        case StructType():
            return StructType(
                tuple(
                    replace(field, kind=_with_instants(field.kind, are_instants))
                    for field in kind.fields
                )
            )
        case ArrayType():
            return replace(kind, element=_with_instants(kind.element, are_instants))
        case MapType():
            key = _with_instants(kind.key, are_instants)
            return replace(kind, key=key, value=_with_instants(kind.value, are_instants))
        case _:
            return TIMESTAMP if next(are_instants) else kind
