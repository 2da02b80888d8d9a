"""Spark's jobs and tasks: how many run at once, their refusals, and files that they rewrite.

Refusals that are raised in Spark's tasks reach the driver as text only. Files are rewritten on the
executors, or in this process if they are small.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

import orjson
import pyarrow as pa
from pyspark import TaskContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.utils import is_remote

from tidegate_delta.errors import InvalidRequest
from tidegate_producers.parquet.file_rewrite import Rewritten
from tidegate_producers.writing.row_delete import Rewriting, rewrite_here

_SETTINGS: Final = ("spark.sql.leafNodeDefaultParallelism", "spark.default.parallelism")
_SHUFFLES: Final = "spark.sql.shuffle.partitions"


def tasks_at_once(spark: SparkSession) -> int:
    """Return how many tasks a step with many files should have at least, to use every core.

    Spark Connect does not tell the number of cores: there it is what the session's settings say.
    """
    if not is_remote():
        return int(spark.sparkContext.defaultParallelism)
    said = (spark.conf.get(name, None) for name in (*_SETTINGS, _SHUFFLES))
    return int(next(value for value in said if value is not None))


VIOLATED: Final = "DELTA_VIOLATE_CONSTRAINT_WITH_VALUES"
"""The error class of a row that violates a constraint, with which Spark's `raise_error` begins."""

MISMATCH: Final = "DELTA_REPLACE_WHERE_MISMATCH"
"""The error class of a row that does not match the condition of its overwrite; as VIOLATED."""

OVERFLOW: Final = "DELTA_CAST_OVERFLOW_IN_TABLE_WRITE"
"""The error class of a value that its column can't hold; as VIOLATED."""

_STATE: Final = re.compile(r"\s*SQLSTATE: \w+$")
"""What Spark writes behind a message of `raise_error`."""

_REFUSED: Final = re.compile(r"tidegate_delta\.errors\.InvalidRequest: (\w+): (.*)")


@contextmanager
def naming_refusals() -> Iterator[None]:
    """In a task: write the error class into the text of a refusal, where `refusal_in` finds it."""
    try:
        yield
    except InvalidRequest as error:
        raise InvalidRequest(f"{error.error_class}: {error}") from error


@contextmanager
def refusals_of_tasks() -> Iterator[None]:
    """Raise the refusal of a row, by `raise_error` or by our writer, as InvalidRequest.

    It spans a whole verb: Spark may evaluate rows that it knows as soon as it plans.
    """
    try:
        yield
    except PySparkException as error:
        refusal = refusal_in(str(error))
        if refusal is None:
            raise
        raise refusal from error


def refusal_in(text: str) -> InvalidRequest | None:
    """Return the refusal of a row that an error's text names; None for another error."""
    for error_class in (VIOLATED, MISMATCH, OVERFLOW):
        if error_class in text:
            message = _STATE.sub("", text[text.index(error_class) :].partition("\n")[0])
            return InvalidRequest(message, error_class=error_class)
    match = _REFUSED.search(text)
    return None if match is None else InvalidRequest(match[2], error_class=match[1])


LOCAL_REWRITE_BYTES_MAX: Final = 16 * 1024 * 1024
"""Total file size up to which rewriting here costs less than starting a Spark job."""


class SparkRunner:
    """Rewrites files with a session's executors."""

    def __init__(self, spark: SparkSession, here_bytes_max: int = LOCAL_REWRITE_BYTES_MAX) -> None:
        self._spark = spark
        self._here_bytes_max = here_bytes_max

    def __call__(
        self, rewriting: Rewriting, files: Sequence[Mapping[str, Any]]
    ) -> Sequence[Rewritten]:
        """Return the result of each file."""
        if sum(file["size"] for file in files) <= self._here_bytes_max:
            return rewrite_here(rewriting, files)
        texts = [(orjson.dumps(file).decode(),) for file in files]
        count = min(len(files), tasks_at_once(self._spark))
        frame = self._spark.createDataFrame(texts, "file string").repartition(count)

        def on_executor(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            task = TaskContext.get()
            number = task.partitionId() if task is not None else 0
            for batch in batches:
                batch_files = [orjson.loads(text) for text in batch.column(0).to_pylist()]
                results = [
                    result.to_json() for result in rewrite_here(rewriting, batch_files, number)
                ]
                yield pa.record_batch([pa.array(results, pa.binary())], names=["rewritten"])

        rows = frame.mapInArrow(on_executor, "rewritten binary").collect()
        return [Rewritten.from_json(bytes(row["rewritten"])) for row in rows]
