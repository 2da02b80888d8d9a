"""A Spark job that shows the whole line: it appends, deletes, and waits for checkpoint and changes.

    demo.py URI [ROWS]

The table is created if it is not there; each run goes on from where the last one ended. The
settings of Kafka and the store come from the environment variables that the services read.
"""

import os
import sys
import time
from collections.abc import Callable
from typing import TypeVar

import orjson
from pyspark.sql import SparkSession

from tidegate import InvalidRequest, KafkaSettings, Table, changes
from tidegate_runtime.service.settings import ServiceSettings, load
from tidegate_runtime.storage.open_store import open_store

NAME = "readings"
SCHEMA = "id BIGINT, sensor INT, value DOUBLE"
PROPERTIES = {
    "delta.checkpointInterval": "3",
    "delta.enableDeletionVectors": "true",
    "tidegate.cdc.keyColumns": "id",
}
APPENDS = 3
PATIENCE_S = 600.0

T = TypeVar("T")


def say(message: str) -> None:
    """Print a line at once."""
    sys.stdout.write(f"demo: {message}\n")
    sys.stdout.flush()


def until(attempt: Callable[[], T | None], subject: str) -> T:
    """Return the first result that is not None."""
    end_s = time.monotonic() + PATIENCE_S
    while (result := attempt()) is None:
        if time.monotonic() > end_s:
            sys.exit(f"demo: {subject} did not come within {PATIENCE_S:g} s")
        time.sleep(0.5)
    return result


def opened(spark: SparkSession, uri: str, storage: dict[str, str]) -> Table:
    """Return the table, created if it is not there."""
    try:
        return Table.for_path(spark, uri, storage)
    except InvalidRequest:
        say(f"creating {uri}")
        options = {**storage, "name": NAME}
        return Table.create(spark, uri, SCHEMA, properties=PROPERTIES, options=options)


def write(spark: SparkSession, table: Table, storage: dict[str, str], rows: int) -> int:
    """Append rows with new ids, delete a tenth of them, and return the last version."""
    newest_row = table.to_df().selectExpr("coalesce(max(id), 0) AS newest").first()
    assert newest_row is not None, "an aggregate has a row"
    newest = newest_row["newest"]
    for number in range(APPENDS):
        first = newest + 1 + number * rows
        readings = spark.range(first, first + rows).selectExpr(
            "id", "CAST(id % 10 AS INT) AS sensor", "rand(7) * 100 AS value"
        )
        readings.write.format("tidegate").mode("append").options(**storage).save(table.root)
        say(f"appended {rows} rows")
    version = table.delete(f"id > {newest} AND sensor = 3")
    assert version is not None, "there are such rows"
    say(f"deleted the rows of sensor 3 in version {version}")
    return version


def checkpoint(uri: str, storage: dict[str, str]) -> int | None:
    """Return the version of the last checkpoint, or None if there is none."""
    hint = open_store(uri, storage).read("_delta_log/_last_checkpoint")
    return None if hint is None else int(orjson.loads(hint)["version"])


def changed(kafka: KafkaSettings, version: int) -> int:
    """Return the number of rows of a copy made of the changes, up to a version or beyond."""
    copy, last_version = changes.TableCopy(), -1
    end_s = time.monotonic() + PATIENCE_S
    while time.monotonic() < end_s:
        with changes.follow(NAME, kafka) as stream:
            copy, last_version = changes.TableCopy(), -1
            for change in stream.changes(quiet_s=5):
                copy.apply(change)
                last_version = max(last_version, change.version)
        if last_version >= version:
            return len(copy.rows)
    return sys.exit(
        f"demo: the changes of version {version} did not come, the last is of {last_version}"
    )


def main(uri: str, rows: int) -> None:
    """Run the demo."""
    settings = load(ServiceSettings, None, {})
    storage = {f"storage.{name}": value for name, value in settings.storage.items()}
    spark = SparkSession.builder.master("local[1]").appName("demo").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    table = opened(spark, uri, storage)
    started = table.version()
    version = write(spark, table, storage, rows)

    def is_new() -> int | None:
        checkpoint_version = checkpoint(uri, dict(settings.storage))
        return (
            checkpoint_version
            if checkpoint_version is not None and checkpoint_version > started
            else None
        )

    say(f"checkpoint of version {until(is_new, 'the checkpoint')}")
    count = table.to_df().count()
    copied = changed(settings.kafka, version)
    if copied != count:
        sys.exit(f"demo: the table has {count} rows, the copy made of its changes {copied}")
    table.history(5).select("version", "timestamp", "operation").show(truncate=False)
    say(f"done: version {version}, {count} rows, and as many in a copy made of the changes")
    spark.stop()


if __name__ == "__main__":
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    main(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 1000)
