"""A delta-spark writer that commits directly. Arguments: table, name, report file, and a folder.

It appends a row at a time, and writes the result of each into its report, one JSON line each. It
ends when the folder holds the file `stop`. Exit status 75: delta-spark's jar is not available. It
uses a log store of ours, because its own checks and then renames, which overwrites what another
process wrote in between (`committer/admission/tidegate_properties.py`).
"""

import json
import sys
from pathlib import Path
from typing import Any

from delta import configure_spark_with_delta_pip
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException, PySparkRuntimeError
from pyspark.sql import SparkSession

NO_JAR = 75
_LOG_STORE = Path(__file__).with_name("LinkingLogStore.java")
_CONFIG = {
    "spark.driver.memory": "1g",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "1",
    "spark.databricks.delta.snapshotPartitions": "1",
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.delta.logStore.file.impl": _LOG_STORE.stem,
}


def main(folder: str, name: str, account: str, signs: str) -> int:
    builder = SparkSession.builder.appName(name).master("local[1]")
    for key, value in _CONFIG.items():
        builder = builder.config(key, value)
    try:
        spark = configure_spark_with_delta_pip(builder).getOrCreate()
    except (PySparkException, PySparkRuntimeError):
        return NO_JAR
    spark.sparkContext.setLogLevel("OFF")
    compile_into(spark, _LOG_STORE, Path(signs, f"{name}-classes"))
    number = 0
    with Path(account).open("w", encoding="utf-8", buffering=1) as file:
        while not Path(signs, "stop").exists():
            row = spark.sql(f"SELECT '{name}' AS writer, CAST({number} AS BIGINT) AS number")
            why = None
            try:
                row.write.format("delta").mode("append").save(folder)
            except (PySparkException, Py4JJavaError) as error:
                why = str(error)[:2000]
            file.write(json.dumps({"verb": "append", "number": number, "why": why}) + "\n")
            number += 1
    return 0


def compile_into(spark: SparkSession, source: Path, folder: Path) -> None:
    """Compile a Java class onto Spark's class path.

    It uses the compiler that Spark brings, as the machine may have no other.
    """
    java: Any = spark.sparkContext._jvm
    loader = java.java.lang.Thread.currentThread().getContextClassLoader()
    compiler = java.org.codehaus.janino.SimpleCompiler()
    compiler.setParentClassLoader(loader)
    compiler.cook(source.read_text("utf-8"))
    folder.mkdir()
    for name, content in dict(compiler.getBytecodes()).items():
        Path(folder, f"{name}.class").write_bytes(content)
    loader.addURL(java.java.io.File(f"{folder}/").toURI().toURL())


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
