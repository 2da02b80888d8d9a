"""For threads that Python starts: Spark finds data sources by the session active in a thread."""

from pyspark.sql import SparkSession
from pyspark.sql.utils import is_remote


def use_session(spark: SparkSession) -> None:
    """Make a session the active one of this thread, so that `format("tidegate")` can write here.

    Without one Spark refuses to write with DATA_SOURCE_NOT_FOUND. Spark Connect needs none.
    """
    if is_remote():
        return
    jvm = spark._jvm
    assert jvm is not None, "a classic session has a JVM"
    jvm.SparkSession.setActiveSession(spark._jsparkSession)
