"""The target of a change as a DataFrame: the table's columns, and where each row is stored.

Spark's own Parquet reader reads the files, so that Spark prunes columns and row groups. Where it
can't find the files as the log names them, our reader makes the same rows on the executors.
"""

import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final
from urllib.parse import quote

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import DoubleType, FloatType, IntegerType, LongType
from pyspark.sql.types import StructField as SparkField
from pyspark.sql.types import StructType as SparkSchema

from tidegate_delta.deletion_vectors.roaring_bitmap import Bitmap, last, mask
from tidegate_delta.log.actions import Metadata
from tidegate_delta.log.file_paths import canonical_path, is_absolute
from tidegate_delta.schema import partition_values
from tidegate_delta.schema import partition_values as partitions
from tidegate_delta.schema.arrow_types import arrow_type
from tidegate_delta.schema.char_varchar import TYPE_STRING
from tidegate_delta.schema.column_mapping import ColumnMappingMode, mode_of, to_physical
from tidegate_delta.schema.types import LONG, StructField, StructType, parse_schema
from tidegate_producers.cached_clients import store_for
from tidegate_producers.datasource.spark_schema import arrow_of, shaped, to_spark
from tidegate_producers.options import TableLocation
from tidegate_producers.parquet.data_file_encoding import row_id_columns
from tidegate_producers.table.spark_jobs import tasks_at_once
from tidegate_producers.writing.column_checks import as_nullable
from tidegate_runtime.storage.log_store import LogStore
from tidegate_runtime.storage.root_paths import decoded_root
from tidegate_runtime.table_io.data_file_reader import (
    TO_READ,
    FileShare,
    partition_values_of,
    read_rows,
    rows_of,
    selected,
)
from tidegate_runtime.table_io.deletion_vector_reader import live_rows, read_vector
from tidegate_runtime.table_io.row_ids import POSITION as ROW_INDEX

FILE: Final = "__tidegate_file"
"""The column with the number of a row's file: its place in the list of files."""

POSITION: Final = "__tidegate_position"
"""The column with a row's position in its file; deleted rows are counted."""

ROW_ID: Final = "__tidegate_row_id"
"""The column with a row's id, on a table whose rows are tracked."""

ROW_VERSION: Final = "__tidegate_row_version"
"""The column with the version that last changed a row, on a table whose rows are tracked."""

ABOUT_ROWS: Final = frozenset({FILE, POSITION, ROW_ID, ROW_VERSION})
"""The columns that are not the table's."""

LISTED_MAX: Final = 1_000
"""Number of files above which Spark's listing of them takes longer than reading them does."""

SHARE_BYTES: Final = 128 * 1024 * 1024
"""Size of a file above which several tasks read it, by row groups; Spark's own reader does so, too.
"""

_PART: Final = "__tidegate_part"
_PARTS: Final = "__tidegate_parts"
_URI: Final = "__tidegate_uri"
_DELETED: Final = "__tidegate_deleted"
_FIRST_ROW_ID: Final = "__tidegate_first_row_id"
_FILE_VERSION: Final = "__tidegate_file_version"
_BLOCK: Final = 1 << 16
"""Rows in a block of deleted bits."""
_LOCAL: Final = "file://"
_GLOB: Final = re.compile(r"([\\{}\[\]*?])")
_ESCAPED: Final = frozenset({"Cc", "Zs", "Zl", "Zp"})
_UNQUOTED: Final = "/:@!$&'()*+,;=~_-."
_PARTITION: Final = "__tidegate_partition_{}"
_SCAN: Final = "__tidegate_scan"


def table_frame(
    spark: SparkSession,
    place: TableLocation,
    metadata: Metadata,
    files: pa.Table,
    columns: Sequence[str] | None = None,
) -> DataFrame:
    """Return the live rows of some files, with the table's columns or some of them, in order.

    Where no row is deleted and the table has no partitions, it is Spark's scan and nothing else.
    Raises: as `target_frame`; InvalidRequest, for an unknown column.
    """
    wanted = StructType(selected(metadata, columns))
    frame = _plain_scan(spark, place, metadata, files)
    if frame is None:
        frame = target_frame(spark, place, metadata, files, wanted)
    fields = to_spark(wanted).fields
    return frame.select(
        *(F.col(quoted(field.name)).alias(field.name, metadata=field.metadata) for field in fields)
    )


def target_frame(
    spark: SparkSession,
    place: TableLocation,
    metadata: Metadata,
    files: pa.Table,
    wanted: StructType | None = None,
) -> DataFrame:
    """Return the live rows of some files, with the columns FILE and POSITION behind the table's.

    Where rows are tracked, ROW_ID and ROW_VERSION follow. `wanted` are the columns of the table
    that are needed; a frame that Spark reads has all of them, and Spark reads what is used.
    Shape: `files` has ADD_SCHEMA. No Python object is made for each, beyond LISTED_MAX.
    Raises: BrokenLog, for a deletion vector that can't be read; UnsupportedFeature, for a column
    type that Spark lacks; Unavailable.
    """
    schema = parse_schema(metadata.schema_string) if wanted is None else wanted
    if not files.num_rows:
        return spark.createDataFrame([], _shape(schema, is_tracked=bool(row_id_columns(metadata))))
    if files.num_rows <= LISTED_MAX:
        listed = list(rows_of(files))
        if _reads_itself(place, metadata, listed):
            return _read_by_spark(spark, place, metadata, listed)
    return _read_by_us(spark, place, metadata, files, schema)


def _plain_scan(
    spark: SparkSession, place: TableLocation, metadata: Metadata, files: pa.Table
) -> DataFrame | None:
    """Return the rows of files of which Spark need not know more than where they lie, or None."""
    if files.num_rows > LISTED_MAX or metadata.partition_columns:
        return None
    listed = list(rows_of(files))
    has_vectors = any(file.get("deletionVector") for file in listed)
    if not listed or has_vectors or not _reads_itself(place, metadata, listed):
        return None
    schema = parse_schema(metadata.schema_string)
    physical = _read_schema(to_physical(schema, mode_of(metadata)))
    rows = _scan(spark, _paths(place, listed), physical.fields)
    # The name stays in the plan, which says so that the frame comes from a table of ours.
    named = rows.alias(_SCAN)
    return named.select(*_logical_columns(schema, schema, physical, metadata))


def table_columns(frame: SparkSchema) -> SparkSchema:
    """Return the columns of a target frame that are the table's."""
    return SparkSchema([field for field in frame.fields if field.name not in ABOUT_ROWS])


def quoted(name: str) -> str:
    """Return a column's name as SQL writes it."""
    return "`" + name.replace("`", "``") + "`"


def _reads_itself(
    place: TableLocation, metadata: Metadata, files: Sequence[Mapping[str, Any]]
) -> bool:
    """Return whether Spark finds these files and their columns by itself.

    It leaves out files whose name begins with `_` or `.`, and finds columns by name only.
    """
    if not place.root.startswith(_LOCAL):
        return False
    names = [file["path"].rpartition("/")[2] for file in files]
    is_plain = not any(
        name.startswith(("_", ".", "%")) or is_absolute(file["path"])
        for name, file in zip(names, files, strict=True)
    )
    return is_plain and mode_of(metadata) is not ColumnMappingMode.ID


def _read_by_spark(
    spark: SparkSession,
    place: TableLocation,
    metadata: Metadata,
    files: Sequence[Mapping[str, Any]],
) -> DataFrame:
    schema = parse_schema(metadata.schema_string)
    keys = set(metadata.partition_columns)
    stored = StructType(tuple(field for field in schema.fields if field.name not in keys))
    physical = _read_schema(to_physical(stored, mode_of(metadata)))
    paths = _paths(place, files)
    kept = row_id_columns(metadata)
    fields = [*physical.fields, *(SparkField(name, LongType()) for name in kept)]
    rows = _scan(spark, paths, fields)
    known = spark.createDataFrame(_known_files(place, metadata, paths, files, schema))
    # Not by name: a column of the table may be called `_metadata`.
    origin = rows.metadataColumn("_metadata")
    joined = rows.select(
        "*",
        origin.getField("file_path").alias(_URI),
        origin.getField("row_index").alias(POSITION),
    ).join(F.broadcast(known), _URI, "left_outer")
    columns = [*_logical_columns(schema, stored, physical, metadata), F.col(FILE), F.col(POSITION)]
    if kept:
        ids, versions = (F.col(quoted(name)) for name in kept)
        implied = F.col(_FIRST_ROW_ID) + F.col(POSITION)
        columns.append(F.coalesce(ids, implied).alias(ROW_ID))
        columns.append(F.coalesce(versions, F.col(_FILE_VERSION)).alias(ROW_VERSION))
    return joined.where(_is_live()).select(*columns)


def _paths(place: TableLocation, files: Sequence[Mapping[str, Any]]) -> list[str]:
    folder = decoded_root(place.root).removeprefix(_LOCAL)
    return [f"{folder}/{canonical_path(file['path'])}" for file in files]


def _scan(spark: SparkSession, paths: Sequence[str], fields: Sequence[SparkField]) -> DataFrame:
    reader = spark.read.schema(SparkSchema(list(fields))).option("recursiveFileLookup", "true")
    return reader.parquet(*(_GLOB.sub(r"\\\1", f"file:{path}") for path in paths))


def _shape(schema: StructType, *, is_tracked: bool) -> SparkSchema:
    """Return the columns of a target frame."""
    own = [SparkField(FILE, IntegerType()), SparkField(POSITION, LongType())]
    names = (ROW_ID, ROW_VERSION) if is_tracked else ()
    tracked = [SparkField(name, LongType()) for name in names]
    return SparkSchema([*_read_schema(schema).fields, *own, *tracked])


def _read_schema(schema: StructType) -> SparkSchema:
    """Return the schema to read files with: nothing is required, and only lengths are kept."""
    fields = []
    for field in to_spark(as_nullable(schema)).fields:
        kept = {key: value for key, value in field.metadata.items() if key == TYPE_STRING}
        fields.append(SparkField(field.name, field.dataType, True, kept))
    return SparkSchema(fields)


def _logical_columns(
    schema: StructType, stored: StructType, physical: SparkSchema, metadata: Metadata
) -> Iterator[Column]:
    names = {
        field.name: physical_field.name
        for field, physical_field in zip(stored.fields, physical.fields, strict=True)
    }
    wanted = _read_schema(schema)
    for number, field in enumerate(wanted.fields):
        source = names.get(field.name, _PARTITION.format(number))
        column = F.col(quoted(source)).cast(field.dataType)
        if isinstance(field.dataType, DoubleType | FloatType):
            column = _beyond_statistics(column)
        yield column.alias(field.name, metadata=field.metadata)


def _beyond_statistics(column: Column) -> Column:
    """Return a column of floats as it is, in a form that Spark's Parquet reader can't filter by.

    The statistics in a Parquet file leave NaN out, and to Spark NaN is the largest number: by them
    it would skip rows that a condition such as `d > 2` selects.
    """
    return F.nanvl(column, column)


def _known_files(
    place: TableLocation,
    metadata: Metadata,
    paths: Sequence[str],
    files: Sequence[Mapping[str, Any]],
    schema: StructType,
) -> pa.Table:
    """Return each file's URI as Spark writes it, its number, partition values and deleted rows."""
    store = store_for(place)
    columns: dict[str, pa.Array] = {
        _URI: pa.array([f"file:{_as_uri(path)}" for path in paths], pa.string()),
        FILE: pa.array(range(len(paths)), pa.int32()),
        _DELETED: pa.array(
            [_deleted_bits(store, file) for file in files], pa.list_(pa.list_(pa.int64()))
        ),
        _FIRST_ROW_ID: pa.array([file.get("baseRowId") for file in files], pa.int64()),
        _FILE_VERSION: pa.array(
            [file.get("defaultRowCommitVersion") for file in files], pa.int64()
        ),
    }
    values = [partition_values_of(metadata, dict(file["partitionValues"] or {})) for file in files]
    for number, field in enumerate(schema.fields):
        if values and field.name in values[0]:
            texts = [value[field.name] for value in values]
            columns[_PARTITION.format(number)] = _partition_column(texts, field)
    return pa.table(columns)


def _partition_column(texts: Sequence[str | None], field: StructField) -> pa.Array:
    try:
        return partitions.column(texts, field.kind)
    except ValueError:
        values = [
            None if text is None else partition_values.lenient_cast(text, field.kind)
            for text in texts
        ]
        return pa.array(values, arrow_type(field.kind))


def _as_uri(path: str) -> str:
    """Return a path as Java's URI writes it: characters beyond ASCII stay as they are, but for
    control characters and spaces.
    """
    return "".join(
        char
        if not char.isascii() and unicodedata.category(char) not in _ESCAPED
        else quote(char, safe=_UNQUOTED)
        for char in path
    )


def _deleted_bits(store: LogStore, file: Mapping[str, Any]) -> list[list[int] | None] | None:
    """Return the deleted rows of a file as 64-bit words, by blocks of 65,536 rows."""
    choice = live_rows(store, file)
    if choice.without is None:
        return None
    rows = read_vector(store, choice.without, file["path"])
    return [_words(rows, block) for block in range(last(rows) // _BLOCK + 1)]


def _words(rows: Bitmap, block: int) -> list[int] | None:
    deleted = mask(rows, block * _BLOCK, _BLOCK)
    if deleted is None:
        return None
    words: list[int] = pa.Array.from_buffers(
        pa.int64(), _BLOCK // 64, [None, deleted.buffers()[1]]
    ).to_pylist()
    return words


def _is_live() -> Column:
    """Return whether a row is live; it fails for a row of an unknown file, which is a bug."""
    position = quoted(POSITION)
    words = f"get({_DELETED}, cast(shiftright({position}, 16) as int))"
    word = f"coalesce(get({words}, cast(shiftright({position} & 65535, 6) as int)), 0L)"
    return F.expr(
        f"CASE WHEN {FILE} IS NULL THEN raise_error(concat('no file of the table is ', {_URI})) "
        f"WHEN {_DELETED} IS NULL THEN true "
        f"ELSE (shiftright({word}, cast({position} & 63 as int)) & 1L) = 0L END"
    )


def _read_by_us(
    spark: SparkSession,
    place: TableLocation,
    metadata: Metadata,
    files: pa.Table,
    schema: StructType,
) -> DataFrame:
    shape = _shape(schema, is_tracked=bool(row_id_columns(metadata)))
    wanted = arrow_of(shape)
    shares = _shares(files)
    count = min(shares.num_rows, 4 * tasks_at_once(spark)) or 1

    def on_executor(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        store = store_for(place)
        for batch in batches:
            for file in batch.to_pylist():
                for columns in _rows_of_file(store, file, schema, metadata):
                    numbers = pa.repeat(pa.scalar(file[FILE], pa.int32()), len(columns[0]))
                    index = len(schema.fields)
                    yield shaped([*columns[:index], numbers, *columns[index:]], wanted)

    return spark.createDataFrame(shares).repartition(count).mapInArrow(on_executor, shape)


def _shares(files: pa.Table) -> pa.Table:
    """Return what reads each file, with its number; files above SHARE_BYTES in several parts."""
    needed = files.select([name for name in TO_READ if name in files.schema.names])
    counts = pc.add(pc.divide(files["size"], SHARE_BYTES), 1)
    most = pc.max(counts).as_py() or 1
    parts = []
    for part in range(most):
        large = pc.greater(counts, part)
        numbered = needed.append_column(FILE, pa.array(range(files.num_rows), pa.int32()))
        numbered = numbered.append_column(_PART, pa.repeat(pa.scalar(part), files.num_rows))
        parts.append(numbered.append_column(_PARTS, counts).filter(large))
    return pa.concat_tables(parts)


def _rows_of_file(
    store: LogStore, file: Mapping[str, Any], schema: StructType, metadata: Metadata
) -> Iterator[list[pa.Array]]:
    """Yield the table's columns, the rows' positions and, where rows are tracked, their ids and
    commit versions.
    """
    values = partition_values_of(metadata, dict(file["partitionValues"] or {}))
    kept = row_id_columns(metadata)
    fields = (*schema.fields, ROW_INDEX, *(StructField(name, LONG) for name in kept))
    share = FileShare(file[_PART], file[_PARTS], live_rows(store, file))
    for batch in read_rows(store, file["path"], fields, values, mode_of(metadata), share):
        if not kept:
            yield batch.columns
            continue
        *columns, positions, ids, versions = batch.columns
        first = pa.scalar(file.get("baseRowId"), pa.int64())
        written = pa.scalar(file.get("defaultRowCommitVersion"), pa.int64())
        tracked = pc.coalesce(ids, pc.add(positions, first)), pc.coalesce(versions, written)
        yield [*columns, positions, *tracked]
