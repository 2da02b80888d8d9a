"""Appends of one row by delta-spark, in a process of its own: `program SETTINGS ROOT LONE SECONDS`.

SETTINGS are those of the session, as JSON; `packages` are Maven's names. It prints, as JSON, what
each of LONE appends took, then how many appends WRITERS threads made to one table within SECONDS,
and how many of them gave up.
"""

import json
import os
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from delta import configure_spark_with_delta_pip
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

WARM: Final = 5
WRITERS: Final = 16


def main(settings: str, root: str, lone_appends: int, seconds: float) -> None:
    """Measure, and print the result."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.appName("door").master("local[2]")
    config = json.loads(settings)
    packages = config.pop("packages", "").split()
    for key, value in config.items():
        builder = builder.config(key, value)
    spark = configure_spark_with_delta_pip(builder, packages).getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    lone, shared = f"delta.`{root}/lone`", f"delta.`{root}/shared`"
    for table in (lone, shared):
        spark.sql(f"CREATE TABLE {table} (id BIGINT) USING delta")
    took_s = []
    for number in range(WARM + lone_appends):
        began = time.perf_counter()
        spark.sql(f"INSERT INTO {lone} VALUES ({number})")
        took_s.append(time.perf_counter() - began)
    until = time.perf_counter() + seconds
    all_ready = threading.Barrier(WRITERS)

    def append(writer: int) -> tuple[int, int]:
        done = gave_up = 0
        all_ready.wait()
        while time.perf_counter() < until:
            try:
                spark.sql(f"INSERT INTO {shared} VALUES ({writer})")
                done += 1
            except (PySparkException, Py4JJavaError):  # a lost race
                gave_up += 1
        return done, gave_up

    with ThreadPoolExecutor(WRITERS) as pool:
        counts = list(pool.map(append, range(WRITERS)))
    done, gave_up = (sum(column) for column in zip(*counts, strict=True))
    there = spark.sql(f"SELECT count(*) FROM {shared}").collect()[0][0]
    assert there == done, f"{done} appends were done, and {there} rows are there"
    print(json.dumps({"took_s": took_s[WARM:], "rate": done / max(seconds, 1), "gave_up": gave_up}))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4]))
