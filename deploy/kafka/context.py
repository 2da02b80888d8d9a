"""Fills a folder with what the Dockerfile beside it copies: `context.py FOLDER`."""

import shutil
import sys
from pathlib import Path

from tidegate_local.kafka_jars import ensure_jars, pyspark_jars

HERE = Path(__file__).parent
LOGGING = ("log4j-slf4j2-impl-*.jar", "slf4j-api-*.jar", "log4j-api-*.jar", "log4j-core-*.jar")
"""Kafka's jars lack a log binding, and PySpark has one."""


def say(line: str) -> None:
    """Print a line of progress."""
    sys.stderr.write(f"{line}\n")


def fill(folder: Path) -> None:
    """Copy the jars and the files of this folder."""
    libs = folder / "libs"
    libs.mkdir(parents=True)
    jars = ensure_jars(say)
    names = {jar.name: jar for jar in jars.glob("*.jar")}
    spark = pyspark_jars()
    if spark is not None and any(spark.glob(LOGGING[0])):
        twins = tuple(pattern.removesuffix("*.jar") for pattern in LOGGING)
        names = {name: jar for name, jar in names.items() if not name.startswith(twins)}
        names |= {jar.name: jar for pattern in LOGGING for jar in spark.glob(pattern)}
    for jar in names.values():
        shutil.copy(jar, libs)
    for name in ("Dockerfile", "start", "log4j2.properties"):
        shutil.copy(HERE / name, folder)
    shutil.copy(HERE.parent / "image-steps.sh", folder)


if __name__ == "__main__":
    fill(Path(sys.argv[1]))
