"""The Spark session of a test run: local, two cores, UTC, with workers of this Python."""

import os
import sys

from pyspark.sql import SparkSession
from pyspark.sql.utils import is_remote

REMOTE = "SPARK_REMOTE"
"""Spark's variable for the address of a Spark Connect server, or the master of one to start."""

_CONFIG = {
    "spark.driver.memory": "1g",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
}


def open_session() -> SparkSession:
    """Return the session, started on the first call: a classic one, or where SPARK_REMOTE is set,
    as in `SPARK_REMOTE="local[2]"`, one of Spark Connect, with a server of its own.
    """
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.appName("tidegate-tests")
    if REMOTE not in os.environ:
        builder = builder.master("local[2]")
    for key, value in _CONFIG.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    if not is_remote():
        session.sparkContext.setLogLevel("OFF")
    return session
