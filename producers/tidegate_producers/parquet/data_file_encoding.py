"""Encodes one data file: its layout, name, bytes and statistics."""

import io
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

import pyarrow as pa
import pyarrow.parquet as pq

from tidegate_delta.data_skipping.file_statistics import compute
from tidegate_delta.log.actions import Metadata
from tidegate_delta.properties.table_properties import (
    compression_codec,
    num_indexed_columns,
    page_version,
    stats_columns,
)
from tidegate_delta.schema.partition_values import folder
from tidegate_delta.schema.types import StructType, parse_schema

_EXTENSIONS: Final = {"none": "", "uncompressed": "", "gzip": ".gz", "lz4_raw": ".lz4raw"}
_CODECS: Final = {"uncompressed": "none", "lz4_raw": "lz4"}


@dataclass(frozen=True)
class FileLayout:
    """How the rows of a table become files; it is sent to the tasks.

    `stats_max` is the number of columns with statistics; -1 is all.
    """

    schema: StructType
    partition_columns: tuple[str, ...] = ()
    compression: str = "zstd"
    page_version: str = "1.0.0"
    stats_max: int = 32
    stats_paths: tuple[tuple[str, ...], ...] | None = None
    records_per_file_max: int | None = None

    @property
    def stored(self) -> StructType:
        """The columns stored in data files: all but the partition columns."""
        names = set(self.partition_columns)
        return StructType(tuple(one for one in self.schema.fields if one.name not in names))


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
        bare = f"part-{self.task:05d}-{self.unique}.c{self.number:03d}{codec}.parquet"
        if not layout.partition_columns:
            return bare
        return f"{folder(self.values, layout.partition_columns)}/{bare}"


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
    )


def encode_rows(rows: pa.Table, layout: FileLayout) -> bytes:
    """Return the bytes of a Parquet file with these rows."""
    out = io.BytesIO()
    pq.write_table(
        rows,
        out,
        compression=_CODECS.get(layout.compression, layout.compression),
        version="2.6",
        data_page_version="1.0" if layout.page_version == "1.0.0" else "2.0",
        store_schema=False,
    )
    return out.getvalue()


def statistics(rows: pa.Table, layout: FileLayout) -> str:
    """Return the statistics of a file's rows, for the columns that the table's properties name."""
    return compute(rows, layout.schema, layout.stats_max, layout.stats_paths)
