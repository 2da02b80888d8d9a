"""What a Spark task says of the query that it is part of: the writer of a data source sees no more.

Planning and commit run in Python processes without a session; only tasks have properties.
"""

from typing import Final

from pyspark import TaskContext
from pyspark.sql import SparkSession
from pyspark.sql.utils import is_remote

from tidegate_delta.errors import InvalidRequest

_EXECUTION: Final = "spark.sql.execution.id"
_ROOT_EXECUTION: Final = "spark.sql.execution.root.id"
_BATCH: Final = "streaming.sql.batchId"
_QUERY: Final = "sql.streaming.queryId"
_CALL: Final = "callSite.short"
_OVERWRITE_MODE: Final = "spark.sql.sources.partitionOverwriteMode"


def task_number() -> int:
    """Return the number of this task's partition, 0 outside of tasks."""
    task = TaskContext.get()
    return task.partitionId() if task is not None else 0


def overwrite_mode() -> str | None:
    """Return the session's `spark.sql.sources.partitionOverwriteMode`, None if it is not set."""
    return _property(_OVERWRITE_MODE)


def query_id() -> str | None:
    """Return the id of the streaming query, None outside of one."""
    return _property(_QUERY)


def query_of(spark: SparkSession) -> str | None:
    """Return the id of the streaming query whose batch this thread runs, None outside of one, and
    on Spark Connect, whose client does not learn it.
    """
    return None if is_remote() else spark.sparkContext.getLocalProperty(_QUERY)


def check_no_catalog_write(root: str) -> None:
    """Refuse a batch write by `saveAsTable`, CTAS or `writeTo.create`, which leaves an entry in
    Spark's catalog that cannot be read, and passes no partition columns.

    Such a command runs the write as an execution inside its own; a batch of a stream does so, too.
    Raises: InvalidRequest.
    """
    execution, root_execution = _property(_EXECUTION), _property(_ROOT_EXECUTION)
    is_nested = None not in (execution, root_execution) and execution != root_execution
    if is_nested and _property(_BATCH) is None:
        raise InvalidRequest(
            f"{root}: saveAsTable, CREATE TABLE ... AS SELECT and writeTo(...).create() can't make "
            "a table of this format, because Spark's catalog does not keep its path, and passes no "
            "partition columns: write with .option('partitionColumns', ...).save(path); nothing "
            "was proposed",
            error_class="DELTA_UNSUPPORTED_FEATURES_FOR_WRITE",
        )


def check_no_to_table(root: str) -> None:
    """Refuse a stream that `toTable` started, for the same reason. Raises: InvalidRequest."""
    if (_property(_CALL) or "").startswith("toTable "):
        raise InvalidRequest(
            f"{root}: toTable(name) leaves an entry in Spark's catalog that can't be read, because "
            "the catalog does not keep the path of a table of this format: start the stream with "
            ".start(path), and DROP TABLE the name; nothing was proposed",
            error_class="DELTA_UNSUPPORTED_FEATURES_FOR_WRITE",
        )


def _property(name: str) -> str | None:
    task = TaskContext.get()
    value = task.getLocalProperty(name) if task is not None else None
    return None if value is None else str(value)
