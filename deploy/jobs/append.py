"""A Spark job as a user would write one: creates a table of readings if needed, and appends.

    append.py URI [ROWS]

The settings of Kafka and the store come from the environment variables that the services read.
"""

import os
import sys

from pyspark.sql import SparkSession

from tidegate import InvalidRequest, Table

PREFIX = "TIDEGATE__STORAGE__"
SCHEMA = "sensor INT, at TIMESTAMP, value DOUBLE"


def main(uri: str, rows: int) -> None:
    """Append readings of ten sensors to the table at a URI."""
    storage = {
        f"storage.{name.removeprefix(PREFIX).lower()}": value
        for name, value in os.environ.items()
        if name.startswith(PREFIX)
    }
    spark = SparkSession.builder.appName("append").getOrCreate()
    try:
        table = Table.for_path(spark, uri, storage)
    except InvalidRequest:
        table = Table.create(spark, uri, SCHEMA, options={**storage, "name": "readings"})
    readings = spark.range(rows).selectExpr(
        "CAST(id % 10 AS INT) AS sensor", "now() AS at", "rand(7) * 100 AS value"
    )
    readings.write.format("tidegate").mode("append").options(**storage).save(uri)
    table.history(5).show(truncate=False)
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 1000)
