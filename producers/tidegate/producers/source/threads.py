"""Threads that Python starts: Spark finds Python data sources through a thread's active session."""

from pyspark.sql import SparkSession
from pyspark.sql.utils import is_remote


def use_session(spark: SparkSession) -> None:
    """Make a session the active one of this thread, so that `format("tidegate")` is found here.

    A thread that Python starts has none, and there Spark refuses to write with
    DATA_SOURCE_NOT_FOUND; Spark Connect does not look for one.
    """
    if is_remote():
        return
    jvm = spark._jvm
    assert jvm is not None, "a classic session has a JVM"
    jvm.SparkSession.setActiveSession(spark._jsparkSession)
