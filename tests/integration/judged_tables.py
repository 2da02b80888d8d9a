"""What two engines have made of their tables: the parts that must be alike."""

from collections.abc import Mapping
from typing import Any, Final

import pyarrow as pa
from delta import DeltaTable
from deltalake import DeltaTable as DeltaRsTable
from deltalake import QueryBuilder
from pyspark.errors import AnalysisException, UnsupportedOperationException
from pyspark.sql import DataFrame, Row, SparkSession

COUNTS: Final = (
    "numDeletedRows",
    "numUpdatedRows",
    "numOutputRows",
    "numTargetRowsInserted",
    "numTargetRowsUpdated",
    "numTargetRowsDeleted",
    "numDeletionVectorsAdded",
    "numRestoredFiles",
    "numRemovedFiles",
)
"""The metrics of the history that do not depend on how an engine lays out its files; a merge of
ours does not count the rows of its source.
"""
UNREADABLE: Final = ("DELTA_MISSING_CHANGE_DATA", "DELTA_CHANGE_DATA_FEED_INCOMPATIBLE_DATA_SCHEMA")


def observed(spark: SparkSession, path: str) -> dict[str, Any]:
    """Return a table's rows, columns, protocol, properties, history and change feed, as
    delta-spark reads them.
    """
    table = DeltaTable.forPath(spark, path)
    detail = table.detail().collect()[0]
    frame = spark.read.format("delta").load(path)
    return {
        "rows": lines(frame),
        "columns": frame.schema.jsonValue(),
        "partition columns": detail["partitionColumns"],
        "clustering columns": detail["clusteringColumns"],
        "protocol": [detail["minReaderVersion"], detail["minWriterVersion"]],
        "features": sorted(detail["tableFeatures"]),
        "properties": _properties(detail["properties"]),
        "history": [_counts(row) for row in table.history().collect()],
        "change feed": _feed(spark, path, detail["properties"]),
    }


def lines(frame: DataFrame) -> list[str]:
    """Return the rows of a frame as text, in order."""
    return sorted(repr(row.asDict(recursive=True)) for row in frame.collect())


def keys_by_delta_rs(path: str, key: str) -> list[str]:
    """Return one column of a table, in order, as delta-rs reads it."""
    result = QueryBuilder().register("t", DeltaRsTable(path)).execute(f'SELECT "{key}" AS k FROM t')
    return sorted(map(repr, pa.table(result.read_all())["k"].to_pylist()))


def _properties(properties: Mapping[str, str]) -> dict[str, str]:
    """Return the properties without what an engine counts, makes up or dates by itself."""
    own = ("maxColumnId", "materializedRow", "inCommitTimestampEnablementTimestamp")
    return {key: value for key, value in properties.items() if not any(map(key.count, own))}


def _counts(row: Row) -> tuple[str, dict[str, str]]:
    metrics = row["operationMetrics"] or {}
    return row["operation"], {name: metrics[name] for name in COUNTS if name in metrics}


def _feed(spark: SparkSession, path: str, properties: Mapping[str, str]) -> list[str]:
    if properties.get("delta.enableChangeDataFeed") != "true":
        return []
    # The feed may have been turned on, or a column renamed, by a later version.
    for version in range(DeltaTable.forPath(spark, path).history(1).collect()[0]["version"] + 1):
        reader = spark.read.format("delta").option("readChangeFeed", "true")
        try:
            changes = reader.option("startingVersion", version).load(path)
            return lines(changes.drop("_commit_timestamp"))
        except (AnalysisException, UnsupportedOperationException) as error:
            if error.getCondition() not in UNREADABLE:
                raise
    return []
