"""The Spark session of an ingest job: what `spark-submit` or the settings say, else `local[*]`."""

import logging
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pyspark
from pyspark.sql import SparkSession
from pyspark.sql.utils import is_remote

from tidegate_delta.errors import Misconfigured

KAFKA: Final = "spark-sql-kafka-0-10_2.13"
AVRO: Final = "spark-avro_2.13"
_JARS: Final = ("spark.jars.packages", "spark.jars")
_REMOTE: Final = "SPARK_REMOTE"
_MASTER: Final = "spark.master"
_CHECKPOINT_FILES: Final = (
    "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
)
DEFAULTS: Final = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "4",
    "spark.sql.mapKeyDedupPolicy": "LAST_WIN",
    # Where in our code a column was made: no user needs it, and each batch makes hundreds.
    "spark.python.sql.dataFrameDebugging.enabled": "false",
    # Spark notes a batch's offsets in a folder of this process, 0.3 s a batch by its default, which
    # starts a process for each link and mode that it looks at.
    "spark.sql.streaming.checkpointFileManagerClass": _CHECKPOINT_FILES,
}
"""Settings of a session that this job starts, unless others are given."""

_LOCAL: Final = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
"""Settings of a session in this process, which nobody outside the machine calls."""


def open_session(given: Mapping[str, str], *, avro: bool = False) -> SparkSession:
    """Return the Spark session, started with the packages that the sources need, `avro` among them.

    `given` are Spark's settings by name. Packages are fetched only where neither a setting names
    any, nor Spark's own folder has them.
    Raises: Misconfigured, for a session of Spark Connect.
    """
    if is_remote() or _REMOTE in os.environ or "spark.remote" in given:
        raise Misconfigured(
            "tidegate ingest commits where its query runs, and through Spark Connect that is the "
            f"server: unset {_REMOTE} and set ingest.spark.spark.master to the cluster, or start "
            "it by spark-submit"
        )
    logging.getLogger("py4j").setLevel(logging.WARNING)
    # By default Spark takes the first python3 on PATH, which may lack this package.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName("tidegate-ingest")
    settings = {**DEFAULTS, **given}
    if _MASTER not in given and not _is_submitted():
        settings = {_MASTER: "local[*]", **_LOCAL, **settings}
    if not any(name in given for name in _JARS) and not _is_submitted():
        packages = [name for name in (KAFKA, *((AVRO,) if avro else ())) if not _has_jars(name)]
        if packages:
            settings["spark.jars.packages"] = ",".join(
                f"org.apache.spark:{name}:{pyspark.__version__}" for name in packages
            )
    for name, value in settings.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF" if sys.stderr.isatty() else "ERROR")
    return session


def _is_submitted() -> bool:
    """Return whether `spark-submit` started this program, which then gives master and packages."""
    return "SPARK_SUBMIT" in os.environ or "PYSPARK_GATEWAY_PORT" in os.environ


def _has_jars(package: str) -> bool:
    jars = Path(os.environ.get("SPARK_HOME", Path(pyspark.__file__).parent)) / "jars"
    return any(jars.glob(f"{package}-*.jar"))
