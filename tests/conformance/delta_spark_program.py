"""Print what delta-spark reads of some tables, as JSON: `program FOLDER...`.

It is a separate process, so that its session's extensions do not reach other tests. Exit status 75:
delta-spark's jar is not available. A folder with the prefix `facts:` is read with fewer past
versions and more of its log.
"""

import json
import sys
from typing import Any

from delta import DeltaTable, configure_spark_with_delta_pip
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException, PySparkRuntimeError
from pyspark.sql import DataFrame, SparkSession

NO_JAR = 75
FACTS = "facts:"
_ROW_ID = ("_metadata.row_id", "_metadata.row_commit_version")
# The tables are tiny: compiling a plan takes longer than interpreting it.
_CONFIG = {
    "spark.driver.memory": "1g",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "1",
    # VACUUM lists a table with this many tasks.
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": "1",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.databricks.delta.snapshotPartitions": "1",
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}


def main(folders: list[str]) -> int:
    """Print one object: folder -> what delta-spark read there."""
    try:
        spark = session()
    except (PySparkException, PySparkRuntimeError):
        return NO_JAR
    spark.sparkContext.setLogLevel("OFF")
    result = {}
    for folder in folders:
        if folder.startswith(FACTS):
            result[folder.removeprefix(FACTS)] = _facts_or_error(spark, folder.removeprefix(FACTS))
        else:
            result[folder] = _read(spark, folder)
    # VACUUM prints to standard output too.
    sys.stdout.write(f"\n{json.dumps(result)}\n")
    return 0


def session() -> SparkSession:
    """Return a session with delta-spark.

    Raises: PySparkException, PySparkRuntimeError.
    """
    builder = SparkSession.builder.appName("delta-spark-reads").master("local[2]")
    for key, value in _CONFIG.items():
        builder = builder.config(key, value)
    return configure_spark_with_delta_pip(builder).getOrCreate()


def _read(spark: SparkSession, folder: str) -> dict[str, Any]:
    table = DeltaTable.forPath(spark, folder)
    history = table.history().select("version", "operation", "operationMetrics").collect()
    counts = {str(row["version"]): _at(spark, folder, row["version"]).count() for row in history}
    rows = table.toDF().orderBy("k").toArrow()
    return {
        "history": [[row["version"], row["operation"]] for row in history],
        "counts": counts,
        "columns": rows.column_names,
        "rows": [repr(row) for row in rows.to_pylist()],
        "changes": _changes(spark, folder, history[-1]["version"]) if _is_fed(table) else None,
    }


def _facts_or_error(spark: SparkSession, folder: str) -> dict[str, Any]:
    """Return the rows at the head and one version before, and the log's content; or the error."""
    try:
        return _facts(spark, folder)
    except (PySparkException, Py4JJavaError) as error:
        return {"refused": str(error)[:2000]}


def _facts(spark: SparkSession, folder: str) -> dict[str, Any]:
    delta = _jvm(spark).org.apache.spark.sql.delta
    snapshot = delta.DeltaLog.forTable(spark._jsparkSession, folder).unsafeVolatileSnapshot()
    metadata = json.loads(snapshot.metadata().json())["metaData"]
    own, version = metadata["configuration"], snapshot.version()
    is_timed = own.get("delta.enableInCommitTimestamps") == "true"
    is_tracked = own.get("delta.enableRowTracking") == "true"
    is_fed = own.get("delta.enableChangeDataFeed") == "true"
    head = spark.read.format("delta").load(folder)
    ids = head.select("k", *_ROW_ID).collect() if is_tracked else []
    domains = json.loads(f"[{_joined(snapshot.domainMetadata())}]")
    is_clustered = any(
        domain["domainMetadata"]["domain"] == "delta.clustering" for domain in domains
    )
    detail = DeltaTable.forPath(spark, folder).detail().collect()[0] if is_clustered else None
    return {
        "version": version,
        "protocol": json.loads(snapshot.protocol().json())["protocol"],
        "metadata": metadata,
        "domains": domains,
        "transactions": json.loads(f"[{_joined(snapshot.setTransactions())}]"),
        "files": snapshot.numOfFiles(),
        "bytes": snapshot.sizeInBytes(),
        "checksum_holds": _checksum_holds(spark, snapshot),
        "times_ms": _times_ms(spark, folder) if is_timed else {},
        "rows": _rows(head),
        "rows_before": _rows(_at(spark, folder, version - 1)),
        "row_ids": sorted(list(row) for row in ids),
        "changes": _changes(spark, folder, 0) if is_fed else None,
        "clustering": list(detail["clusteringColumns"]) if detail else [],
        "vacuumed": _vacuumed(spark, folder) if _has_vectors(own) else None,
    }


def _has_vectors(properties: dict[str, str]) -> bool:
    return properties.get("delta.enableDeletionVectors") == "true"


def _vacuumed(spark: SparkSession, folder: str) -> list[str] | str:
    """Return the files that VACUUM would delete, or its error.

    It reads the deletion vector of every file and tombstone.
    """
    try:
        return [row[0] for row in spark.sql(f"VACUUM delta.`{folder}` DRY RUN").collect()]
    except (PySparkException, Py4JJavaError) as error:
        return str(error)[:2000]


def _jvm(spark: SparkSession) -> Any:
    return spark._jvm


def _checksum_holds(spark: SparkSession, snapshot: Any) -> bool | None:
    """Return whether the log matches its checksum; None if the version has none."""
    if not snapshot.checksumOpt().isDefined():
        return None
    return bool(snapshot.validateChecksum(_jvm(spark).PythonUtils.toScalaMap({})))


def _times_ms(spark: SparkSession, folder: str) -> dict[str, int]:
    result = DeltaTable.forPath(spark, folder).history().select("version", "timestamp").collect()
    return {str(row["version"]): round(row["timestamp"].timestamp() * 1000) for row in result}


def _joined(actions: Any) -> str:
    """Return the JSON of some actions."""
    return ",".join(actions.apply(at).json() for at in range(actions.size()))


def _rows(frame: DataFrame) -> list[str]:
    return [repr(row) for row in frame.toArrow().sort_by("k").to_pylist()]


def _at(spark: SparkSession, folder: str, version: int) -> DataFrame:
    return spark.read.format("delta").option("versionAsOf", version).load(folder)


def _is_fed(table: DeltaTable) -> bool:
    properties = table.detail().select("properties").collect()[0]["properties"]
    return bool(properties.get("delta.enableChangeDataFeed") == "true")


def _changes(spark: SparkSession, folder: str, start: int) -> list[str]:
    reader = spark.read.format("delta").option("readChangeFeed", "true")
    changes = reader.option("startingVersion", start).load(folder)
    return sorted(repr(row) for row in changes.toArrow().to_pylist())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
