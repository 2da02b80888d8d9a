"""A job of an older Spark through the gate: `program SETTINGS ROOT STATEMENTS`, all JSON but ROOT.

It knows nothing of Tidegate but the settings. It runs SQL statements, each with `{t}` for the table
at ROOT, and prints the rows of the last one as JSON.
"""

import json
import sys

from delta import configure_spark_with_delta_pip
from pyspark.sql import SparkSession


def main(settings: str, root: str, statements: str) -> None:
    builder = SparkSession.builder.appName("older").master("local[2]")
    for key, value in json.loads(settings).items():
        builder = builder.config(key, value)
    spark = configure_spark_with_delta_pip(builder).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    rows = []
    for statement in json.loads(statements):
        rows = spark.sql(statement.format(t=f"delta.`{root}`")).collect()
    sys.stdout.write(json.dumps([list(row) for row in rows], default=str) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
