"""What a judge needs: Kafka, a committer, and a Spark session with delta-spark."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from delta import configure_spark_with_delta_pip
from pyspark.sql import SparkSession

from tests.integration.conftest import Line, own_topics
from tests.integration.door_program import door_settings
from tests.integration.test_spark_judge import CONFIG
from tests.judge import loaded_workers
from tests.judge.comparison import Judge
from tidegate_local.embedded_kafka import EmbeddedKafka
from tidegate_runtime.kafka.settings import KafkaSettings

FAST: Final = {
    **CONFIG,
    # Thousands of plans fill the code cache of the first compiler, and then nothing is compiled.
    "spark.driver.extraJavaOptions": CONFIG["spark.driver.extraJavaOptions"]
    + " -XX:ReservedCodeCacheSize=256m",
    # The logs of tables that nobody reads any more fill the heap after a thousand sequences.
    "spark.databricks.delta.delta.log.cacheSize": "64",
    "spark.databricks.delta.writeChecksumFile.enabled": "false",
    "spark.sql.readSideCharPadding": "false",
    "spark.scheduler.mode": "FAIR",
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": "1",
    "spark.python.daemon.module": loaded_workers.__name__,
}
LONG: Final = {
    **FAST,
    "spark.driver.memory": "4g",
    "spark.driver.extraJavaOptions": "-XX:+UseParallelGC -XX:TieredStopAtLevel=1 "
    "-XX:ReservedCodeCacheSize=512m",
}
"""For runs of more than SHORT sequences, which fill a small heap. The second compiler does not pay:
after ten minutes it still takes most of a core.
"""

SHORT: Final = 100


def open_spark(sequences: int, gate: KafkaSettings | None = None) -> SparkSession:
    """Return a session with delta-spark, for a run of so many sequences.

    Where `gate` is given, delta-spark's commits go through it.
    """
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
    builder = SparkSession.builder.appName("tidegate-judge").master("local[2]")
    through = {} if gate is None else door_settings(gate)
    for key, value in {**(LONG if sequences > SHORT else FAST), **through}.items():
        builder = builder.config(key, value)
    session = configure_spark_with_delta_pip(builder).getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    return session


def judge_of(spark: SparkSession, line: Line) -> Judge:
    """Return a judge on a running committer's tables."""
    options = {
        "kafka.bootstrap.servers": line.kafka.bootstrap_servers,
        "topicPrefix": line.kafka.topic_prefix,
        "outcomeTimeout": "60s",
    }
    return Judge(spark, line.tables, options)


@contextmanager
def surroundings(
    folder: Path, sequences: int = SHORT, *, through_the_gate: bool = False
) -> Iterator[Judge]:
    """Yield a judge with a Kafka and a committer of its own, for so many sequences."""
    tables = folder / "tables"
    tables.mkdir(parents=True)
    with EmbeddedKafka(folder / "kafka") as kafka:
        line = Line(own_topics(kafka.bootstrap), folder / "services", tables)
        try:
            line.started("committer")
            spark = open_spark(sequences, line.kafka if through_the_gate else None)
            yield judge_of(spark, line)
        finally:
            line.stop()
