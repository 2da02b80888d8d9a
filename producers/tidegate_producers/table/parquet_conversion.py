"""`Table.convertToDelta`: a folder of Parquet files becomes a table; no file is written anew."""

from collections.abc import Iterator, Sequence
from typing import Any, Final
from urllib.parse import unquote

import orjson
import pyarrow as pa
from pyspark.sql import SparkSession

from tidegate_delta.errors import InvalidRequest
from tidegate_delta.log.actions import Add
from tidegate_delta.log.file_paths import encode_path
from tidegate_delta.schema import partition_values
from tidegate_delta.schema.partition_values import NULL_FOLDER
from tidegate_delta.schema.types import StructType, parse_schema
from tidegate_delta.schema_evolution.evolve_on_write import Merging, merged
from tidegate_messages.outcome import Outcome
from tidegate_messages.proposal import Operation
from tidegate_producers.cached_clients import client_for, store_for
from tidegate_producers.options import WriteOptions
from tidegate_producers.parquet.file_import import described
from tidegate_producers.table.spark_jobs import naming_refusals, refusals_of_tasks, tasks_at_once
from tidegate_producers.writing.table_write import (
    WriteRequest,
    creation,
    propose,
    stamp_for,
)
from tidegate_runtime.client import proposal_builders
from tidegate_runtime.storage.log_store import FileStat, LogStore
from tidegate_runtime.table_io.table_files import list_own_files

FILES_A_TASK: Final = 64


def convert(spark: SparkSession, options: WriteOptions, partition_schema: StructType) -> Outcome:
    """Propose the table of the Parquet files in a folder, and return the outcome.

    `partition_schema` has the columns of the folders' names, in their order. Executors read each
    file once, for its columns and its statistics.
    Raises: InvalidRequest, naming the file or the folder; Rejected; OutcomeUnknown; Unavailable.
    """
    client, store, root = client_for(options.kafka), store_for(options.place), options.place.root
    began_ms = client.clock.now_ms()
    request, names = WriteRequest.of(options), partition_schema.names
    files = sorted(_files(store, names), key=lambda stat: stat.path)
    if not files:
        raise InvalidRequest(
            f"{root} holds no Parquet file to convert: check the path; nothing was proposed",
            error_class="DELTA_EMPTY_DIRECTORY",
        )
    values = [_values(stat.path, partition_schema, root) for stat in files]
    schema, adds = StructType(()), []
    for stat, file_values, (columns, stats) in zip(
        files, values, _described(spark, options, files, names), strict=True
    ):
        schema = merged(schema, parse_schema(columns), Merging(stored_alike=True))
        path = encode_path(stat.path)
        adds.append(
            Add(
                path=path,
                partition_values=file_values,
                size=stat.size,
                modification_time=stat.modified_ms,
                data_change=True,
                stats=stats,
            )
        )
    table_schema = StructType((*schema.fields, *partition_schema.fields))
    table_creation = creation(client, table_schema, names, options)
    parameters = {"numFiles": str(len(adds)), "partitionedBy": orjson.dumps(names).decode()}
    metrics = {"numConvertedFiles": str(len(adds))}
    operation = Operation(name="CONVERT", parameters=parameters, metrics=metrics)
    target = proposal_builders.Target(
        table_creation.table, root, proposal_builders.NO_VERSION, None, options.name
    )
    rows = tuple(
        action.to_row() for action in (table_creation.protocol, table_creation.metadata, *adds)
    )
    body = proposal_builders.Body(operation, rows, proposal_builders.NOTHING)
    stamp = stamp_for(client, request, began_ms)
    proposal = proposal_builders.of_body("commit", target, stamp, body)
    return propose(client, store, proposal, request.timeout_s)


def _files(store: LogStore, partition_columns: Sequence[str]) -> list[FileStat]:
    """Return the data files in a folder: all that are not hidden and of no table below it."""
    files = list_own_files(store, partition_columns).files
    return [FileStat(*row.values()) for row in files.to_pylist()]


def _values(key: str, partition_schema: StructType, root: str) -> dict[str, str | None]:
    """Return the partition values in a file's folders. Raises: InvalidRequest."""
    parts = [part.partition("=") for part in key.split("/")[:-1]]
    texts = {unquote(name): unquote(text) for name, equals, text in parts if equals}
    if tuple(texts) != partition_schema.names or len(texts) != len(parts):
        raise InvalidRequest(
            f"{root}/{key} lies in folders of the partition columns {list(texts)}, and the "
            f"partition schema names {list(partition_schema.names)}: give the folders' columns, in "
            "their order, with types; nothing was proposed",
            error_class="DELTA_UNEXPECTED_PARTITION_COLUMN_FROM_FILE_NAME",
        )
    values = {name: None if text == NULL_FOLDER else text for name, text in texts.items()}
    for field in partition_schema:
        try:
            partition_values.parse(values[field.name], field.kind)
        except ValueError as error:
            raise InvalidRequest(
                f"{root}/{key}: {values[field.name]!r} is no {field.kind}, which the partition "
                f"schema says of column {field.name!r}: correct the schema; nothing was proposed",
                error_class="DELTA_FAILED_CAST_PARTITION_VALUE",
            ) from error
    return values


def _described(
    spark: SparkSession,
    options: WriteOptions,
    files: Sequence[FileStat],
    partition_columns: Sequence[str],
) -> Iterator[tuple[str, str]]:
    """Yield the columns and the statistics of each file, in order."""
    place, names = options.place, tuple(partition_columns)
    numbered_files = [
        (index, stat.path, encode_path(stat.path)) for index, stat in enumerate(files)
    ]
    count = min(len(files), max(len(files) // FILES_A_TASK, tasks_at_once(spark)))
    frame = spark.createDataFrame(numbered_files, "at int, key string, path string").repartition(
        count
    )

    def on_executor(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        store = store_for(place)
        with naming_refusals():
            for batch in batches:
                for number, key, path in zip(
                    *(column.to_pylist() for column in batch.columns), strict=True
                ):
                    columns, stats = described(store, key, path, names)
                    yield pa.record_batch(
                        [pa.array([number], pa.int32()), pa.array([columns]), pa.array([stats])],
                        names=["at", "columns", "stats"],
                    )

    with refusals_of_tasks():
        rows = frame.mapInArrow(on_executor, "at int, columns string, stats string").collect()
    descriptions: dict[int, Any] = {row["at"]: (row["columns"], row["stats"]) for row in rows}
    yield from (descriptions[index] for index in range(len(files)))
