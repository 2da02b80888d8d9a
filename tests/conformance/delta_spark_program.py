"""What delta-spark reads of some tables, as JSON on standard output: `program FOLDER...`.

A process of its own, so that its session's extensions do not reach other tests. Exit status 75:
delta-spark's jar could not be had.
"""

import json
import sys
from typing import Any

from delta import DeltaTable, configure_spark_with_delta_pip
from pyspark.errors import PySparkException, PySparkRuntimeError
from pyspark.sql import SparkSession

NO_JAR = 75
_CONFIG = {
    "spark.driver.memory": "1g",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "1",
    "spark.databricks.delta.snapshotPartitions": "1",
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}


def main(folders: list[str]) -> int:
    """Print one object: folder -> what was read there."""
    try:
        spark = _session()
    except (PySparkException, PySparkRuntimeError):
        return NO_JAR
    spark.sparkContext.setLogLevel("OFF")
    json.dump({folder: _read(spark, folder) for folder in folders}, sys.stdout)
    return 0


def _session() -> SparkSession:
    builder = SparkSession.builder.appName("delta-spark-reads").master("local[2]")
    for key, value in _CONFIG.items():
        builder = builder.config(key, value)
    return configure_spark_with_delta_pip(builder).getOrCreate()


def _read(spark: SparkSession, folder: str) -> dict[str, Any]:
    table = DeltaTable.forPath(spark, folder)
    history = table.history().select("version", "operation", "operationMetrics").collect()
    counts = {
        str(row["version"]): spark.read.format("delta")
        .option("versionAsOf", row["version"])
        .load(folder)
        .count()
        for row in history
    }
    rows = table.toDF().orderBy("k").toArrow()
    return {
        "history": [[row["version"], row["operation"]] for row in history],
        "counts": counts,
        "columns": rows.column_names,
        "rows": [repr(row) for row in rows.to_pylist()],
        "changes": _changes(spark, folder, history[-1]["version"]) if _is_fed(table) else None,
    }


def _is_fed(table: DeltaTable) -> bool:
    properties = table.detail().select("properties").collect()[0]["properties"]
    return bool(properties.get("delta.enableChangeDataFeed") == "true")


def _changes(spark: SparkSession, folder: str, start: int) -> list[str]:
    reader = spark.read.format("delta").option("readChangeFeed", "true")
    changes = reader.option("startingVersion", start).load(folder)
    return sorted(repr(row) for row in changes.toArrow().to_pylist())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
