"""The batch writer: tasks write files, and the driver proposes them as one commit.

`commit` and `abort` run in separate Python processes, without a session.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Final

import orjson
import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from tidegate_delta.errors import InvalidRequest, UnsupportedFeature
from tidegate_delta.log.actions import Add
from tidegate_delta.schema.types import StructType
from tidegate_producers.cached_clients import client_for, clock, store_for
from tidegate_producers.datasource.outcome_logging import log_outcome
from tidegate_producers.datasource.plain_errors import plain_errors
from tidegate_producers.datasource.spark_tasks import (
    check_no_catalog_write,
    overwrite_mode,
    task_number,
)
from tidegate_producers.options import WriteOptions, app_txn_of
from tidegate_producers.parquet.data_file_writer import FileWriter, actions_of
from tidegate_producers.writing.partial_overwrite import ReplaceWhere
from tidegate_producers.writing.table_write import (
    WriteMode,
    WritePlan,
    WriteRequest,
    check_mode,
    check_served,
    commit,
    plan,
)
from tidegate_runtime.observability.tracing import continued

_OVERWRITE_MODE: Final = "spark.sql.sources.partitionOverwriteMode"


@dataclass
class Written(WriterCommitMessage):
    """A task's message: add actions as JSON, for a stream also its plan and query id.

    `by_partition` says that the session wants only the partitions replaced that are written to.
    """

    adds: bytes
    by_partition: bool = False
    plan: WritePlan | None = None
    query_id: str | None = None


class BatchWriter(DataSourceArrowWriter):
    """Writes one DataFrame as one proposal."""

    def __init__(self, options: WriteOptions, frame: StructType, mode: WriteMode) -> None:
        super().__init__()
        self._options = options
        self._app_txn = app_txn_of(options)
        client = client_for(options.kafka)
        check_mode(options, mode)
        self._plan = with_condition(plan(client, frame, mode, options), options)
        check_served(client, self._plan, options.kafka.bootstrap_servers)

    @plain_errors
    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """Write the rows of one task.

        Raises: InvalidRequest, for a row that violates the schema or `replaceWhere`, and for a
        write to a table of Spark's catalog.
        """
        # Even a write without rows has one task.
        check_no_catalog_write(self._plan.place.root)
        by_partition = replaces_partitions(self._plan, self._options, overwrite_mode())
        return Written(write_files(self._plan, iterator), by_partition)

    @plain_errors
    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Propose the files of all tasks, and wait. Raises: Rejected, OutcomeUnknown."""
        saying = WriteRequest.of(self._options, self._app_txn)
        client = client_for(self._options.kafka)
        by_partition = any(
            isinstance(message, Written) and message.by_partition for message in messages
        )
        adds = adds_of(messages)
        with continued(self._options.traceparent):
            outcome = commit(client, self._plan, adds, saying, by_partition=by_partition)
        log_outcome(self._plan.place.root, outcome)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Keep the files for VACUUM: a proposal that names them may have been sent."""


def replaces_partitions(written: WritePlan, options: WriteOptions, session: str | None) -> bool:
    """Return whether an overwrite replaces only the partitions that it writes to.

    `session` is the session's `spark.sql.sources.partitionOverwriteMode`, None if it is not set.
    Raises: InvalidRequest, if the columns shall be replaced, too.
    """
    is_partitioned = written.creation is None and bool(written.layout.partition_columns)
    if written.mode != "overwrite" or not is_partitioned or options.replace_where is not None:
        return False
    mode = options.overwrite_mode or (session or "static").lower()
    if mode == "dynamic" and options.overwrite_schema:
        raise InvalidRequest(
            f"the session says {_OVERWRITE_MODE}={session}, by which an overwrite of "
            f"{written.place.root} keeps some rows, and overwriteSchema replaces the columns of "
            "all: give the option partitionOverwriteMode=static, or leave overwriteSchema out; "
            "nothing was proposed",
            error_class="DELTA_OVERWRITE_SCHEMA_WITH_DYNAMIC_PARTITION_OVERWRITE",
        )
    return mode == "dynamic"


def with_condition(written: WritePlan, options: WriteOptions) -> WritePlan:
    """Return a plan with the condition of `replaceWhere`, if it is given.

    Raises: InvalidRequest; UnsupportedFeature, for an expression that is not evaluated here.
    """
    text = options.replace_where
    if text is None:
        return written
    # Loading the SQL parser is a quarter of a worker's start, and few writes need it.
    sql_condition = import_module("tidegate_runtime.conditions.sql_condition")
    try:
        predicate = sql_condition.predicate_of(text, written.layout.schema)
    except UnsupportedFeature as error:
        raise UnsupportedFeature(
            f"replaceWhere: {error}; or call Table.overwrite(rows, {text!r}), whose condition "
            "Spark evaluates; nothing was proposed",
            feature=error.feature,
            error_class=error.error_class,
        ) from error
    return replace(written, replace_where=ReplaceWhere(text, predicate))


def write_files(written: WritePlan, batches: Iterator[pa.RecordBatch]) -> bytes:
    """Write the rows of this task to files, and return their add actions as JSON."""
    writer = FileWriter(store_for(written.place), written.layout, clock(), task_number())
    for batch in batches:
        writer.write(batch, written.replace_where)
    return orjson.dumps([add.to_row() for add in writer.finish()])


def adds_of(messages: Sequence[WriterCommitMessage | None]) -> list[Add]:
    """Return the add actions of all tasks."""
    return [
        add
        for message in messages
        if isinstance(message, Written)
        for add in actions_of(orjson.loads(message.adds))
    ]
