"""Rewrites files for a delete: on the executors, or in this process if the files are small."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import orjson
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import SparkSession

from tidegate_producers.parquet.file_rewrite import Rewritten
from tidegate_producers.table.parallelism import tasks_at_once
from tidegate_producers.writing.row_delete import Rewriting, rewrite_here

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
