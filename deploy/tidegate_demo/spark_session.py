"""A small local Spark session for the demo's processes."""

import os
import sys
from typing import Final

from pyspark.sql import SparkSession

_CONFIG: Final = {
    "spark.driver.memory": "1g",
    "spark.driver.host": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
    "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
}


def open_session(name: str) -> SparkSession:
    """Return a Spark session on two local cores, in UTC and without log noise."""
    # By default Spark takes the first python3 on PATH, which may lack this package.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName(name).master("local[2]")
    for key, value in _CONFIG.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session
