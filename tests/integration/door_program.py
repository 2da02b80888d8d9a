"""A driver of delta-spark whose commits go through the gate. Arguments: brokers, topic prefix,
a folder for its warehouse and, as JSON, settings besides; `packages` are Maven's names.

It carries out Python code from its standard input, one JSON line each, with `spark` at hand, and
answers each with a JSON line: what the code left in `result`, or the error. Exit status 75:
delta-spark's jar is not available.
"""

import json
import os
import sys
import traceback
from pathlib import Path
from typing import Any

from delta import configure_spark_with_delta_pip
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException, PySparkRuntimeError
from pyspark.sql import SparkSession

from tidegate_local.kafka_jars import ensure_jars
from tidegate_producers.log_store import spark_config
from tidegate_runtime.kafka.settings import KafkaSettings

NO_JAR = 75
SAID: list[str] = []
"""What an earlier piece of code has left."""
FRUGAL = {
    "spark.driver.memory": "1g",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.databricks.delta.snapshotPartitions": "1",
}


def main(brokers: str, prefix: str, warehouse: str, settings: str) -> int:
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8", buffering=1)
    os.dup2(2, 1)  # what Spark prints is no answer
    kafka = KafkaSettings(bootstrap_servers=brokers, topic_prefix=prefix)
    config = {**FRUGAL, **door_settings(kafka), "spark.sql.warehouse.dir": warehouse}
    builder = SparkSession.builder.appName(Path(warehouse).name).master("local[4]")
    own = json.loads(settings)
    packages = own.pop("packages", "").split()
    for key, value in {**config, **own}.items():
        builder = builder.config(key, value)
    try:
        spark = configure_spark_with_delta_pip(builder, packages).getOrCreate()
    except (PySparkException, PySparkRuntimeError):
        return NO_JAR
    spark.sparkContext.setLogLevel("ERROR")
    answers.write(json.dumps({"result": "ready"}) + "\n")
    for line in sys.stdin:
        answers.write(json.dumps(_answer(spark, json.loads(line)), default=str) + "\n")
    return 0


def door_settings(kafka: KafkaSettings) -> dict[str, str]:
    """Return the settings of a session whose commits go through the gate.

    Kafka's client is that of the cache; a job names LOG_STORE_PACKAGES.
    """
    [client] = ensure_jars(lambda line: None).glob("kafka-clients-*.jar")
    config = spark_config(kafka)
    return {**config, "spark.jars": f"{config['spark.jars']},{client}"}


def _answer(spark: SparkSession, code: str) -> dict[str, Any]:
    names: dict[str, Any] = {"spark": spark, "SAID": SAID}
    try:
        exec(code, names)  # it is a test's own code
    except (PySparkException, Py4JJavaError) as error:
        return {"error": f"{type(error).__name__}: {error}", "trace": traceback.format_exc()}
    return {"result": names.get("result")}


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
