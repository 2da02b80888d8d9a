"""What `bench.ingest` measures in one Spark session: `program BROKERS FOLDER PART ROUNDS RECORDS`.

It prints the result as JSON. Kafka's and delta-spark's packages come from Maven.
"""

import json
import os
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pyspark
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined] # public
from delta import configure_spark_with_delta_pip
from deltalake import DeltaTable
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming.readwriter import DataStreamWriter

from bench.spark_beside import CONFIG
from tidegate_delta.errors import Unavailable
from tidegate_producers.ingest.job import RouteRunner
from tidegate_producers.ingest.settings import IngestSettings
from tidegate_producers.ingest.spark_session import DEFAULTS, KAFKA
from tidegate_producers.options import TableLocation
from tidegate_producers.table import Table
from tidegate_runtime.clock import SystemClock
from tidegate_runtime.service.health import Health
from tidegate_runtime.service.runner import Running
from tidegate_runtime.service.settings import load

PARTITIONS: Final = 4
TOPICS: Final = 16
BATCHES: Final = 6
"""Batches of each of many topics."""

KEYS: Final = 1_000
SCHEMA: Final = "id BIGINT, kind INT, amount DOUBLE, note STRING"
SENT_S: Final = 0.05
TRIGGER_S: Final = 1.0


class Bench:
    """A session, and the brokers and folder of a run."""

    def __init__(self, spark: SparkSession, brokers: str, folder: Path) -> None:
        self.spark, self.brokers, self.folder = spark, brokers, folder

    def topic(self, name: str, records: int, first: int = 0, partitions: int = PARTITIONS) -> str:
        """Make a topic of records, and return its name."""
        admin = AdminClient({"bootstrap.servers": self.brokers})
        admin.create_topics([NewTopic(name, num_partitions=partitions)])[name].result()
        self.send(name, range(first, first + records))
        return name

    def send(self, topic: str, numbers: Sequence[int]) -> None:
        """Send a record for each number."""
        producer = Producer({"bootstrap.servers": self.brokers, "linger.ms": 20})
        for number in numbers:
            row = {"id": number, "kind": number % 100, "amount": number / 2, "note": f"n{number}"}
            while True:
                try:
                    producer.produce(topic, json.dumps(row), str(number))
                    break
                except BufferError:
                    producer.poll(0.1)
        producer.flush(60.0)

    def routes(
        self, routes: Mapping[str, Mapping[str, object]], *, once: bool = True
    ) -> tuple[RouteRunner, Running]:
        """Return a job of some routes."""
        given = {"kafka.bootstrap_servers": self.brokers}
        for name, route in routes.items():
            given |= {f"ingest.routes.{name}.{key}": str(value) for key, value in route.items()}
        settings = load(IngestSettings, None, given)
        places = {
            name: TableLocation(route.table, settings.storage)
            for name, route in settings.ingest.routes.items()
        }
        clock = SystemClock()
        job = RouteRunner(self.spark, settings, places, once=once)
        return job, Running(clock, Health(clock))

    def copied(self, routes: Mapping[str, Mapping[str, object]]) -> float:
        """Copy all that the topics have, and return the seconds."""
        began_s = time.perf_counter()
        job, running = self.routes(routes)
        job.run(running, lambda run: None)
        return time.perf_counter() - began_s

    def root(self, name: str) -> str:
        """Return the root of a table."""
        return (self.folder / "tables" / name).as_uri()

    def stream(self, topic: str, batch: int) -> DataStreamWriter:
        """Return a stream of a topic's rows, as a user of Spark writes it."""
        records = (
            self.spark.readStream.format("kafka")
            .option("kafka.bootstrap.servers", self.brokers)
            .option("subscribe", topic)
            .option("startingOffsets", "earliest")
            .option("maxOffsetsPerTrigger", batch)
            .load()
        )
        rows = records.select(F.from_json(F.col("value").cast("string"), SCHEMA).alias("row"))
        return rows.select("row.*").writeStream.trigger(availableNow=True)


def copy(bench: Bench, rounds: int, records: int) -> Mapping[str, Any]:
    """Copy a topic by us, and by Spark into Parquet files, in turn."""
    topic, warm = bench.topic("copied", records), bench.topic("warm", 1_000)
    batch = records // 4
    took: dict[str, list[float]] = {"ours": [], "parquet": []}
    for number in range(-1, rounds):
        source = topic if number >= 0 else warm
        root = bench.root(f"copied{number}")
        route = {"topics": source, "table": root, "value_schema": SCHEMA}
        ours_s = bench.copied({"r": {**route, "batch_records_max": batch}})
        path = bench.folder / f"parquet{number}"
        writer = bench.stream(source, batch).option("checkpointLocation", f"{path}-checkpoint")
        began_s = time.perf_counter()
        writer.format("parquet").start(str(path)).awaitTermination()
        theirs_s = time.perf_counter() - began_s
        if number >= 0:
            rows = DeltaTable(root).to_pyarrow_dataset().count_rows()
            assert rows == records == bench.spark.read.parquet(str(path)).count()
            took["ours"].append(records / ours_s)
            took["parquet"].append(records / theirs_s)
    return took


def many(bench: Bench, rounds: int, records: int) -> Mapping[str, Any]:
    """Copy many topics into one table by us, and by as many streams of delta-spark, in turn.

    Ours are one route of many topics, as its users write it. Both tables are there before. What
    counts is records that the table then has.
    """
    share = records // TOPICS
    topics = [bench.topic(f"many{n}", share, n * share, 1) for n in range(TOPICS)]
    batch = share // BATCHES
    took: dict[str, list[float]] = {"ours": [], "delta-spark": [], "failed": []}
    for number in range(rounds):
        root = bench.root(f"many{number}")
        Table.create(bench.spark, root, SCHEMA, [], {}, {"kafka.bootstrap.servers": bench.brokers})
        route = {
            "topics": ",".join(topics), "table": root, "value_schema": SCHEMA,
            "batch_records_max": batch * TOPICS,
        }  # fmt: skip
        took["ours"].append(records / bench.copied({"r": route}))
        assert DeltaTable(root).to_pyarrow_dataset().count_rows() == records
        theirs = bench.folder / f"theirs{number}"
        bench.spark.createDataFrame([], SCHEMA).write.format("delta").save(str(theirs))
        began_s = time.perf_counter()
        queries = [
            bench.stream(topic, batch)
            .option("checkpointLocation", f"{theirs}-{topic}")
            .format("delta")
            .start(str(theirs))
            for topic in topics
        ]
        for query in queries:
            while query.isActive:
                time.sleep(0.05)
        there = DeltaTable(str(theirs)).to_pyarrow_dataset().count_rows()
        took["delta-spark"].append(there / (time.perf_counter() - began_s))
        took["failed"].append(sum(query.exception() is not None for query in queries))
    return took


def latency(bench: Bench, _rounds: int, records: int) -> Mapping[str, Any]:
    """Send records at an even pace, and note when each of them is in the table for delta-rs."""
    topic, root = bench.topic("paced", 1), bench.root("paced")
    route = {"topics": topic, "table": root, "value_schema": SCHEMA, "max_latency_s": TRIGGER_S}
    job, running = bench.routes({"r": route}, once=False)
    thread = threading.Thread(target=job.run, args=(running, lambda run: None), daemon=True)
    thread.start()
    table = _wait_for(root, 1)
    sent_s: dict[int, float] = {}

    def send() -> None:
        producer = Producer({"bootstrap.servers": bench.brokers})
        for number in range(1, records + 1):
            sent_s[number] = time.perf_counter()
            row = {"id": number, "kind": 0, "amount": 0.0, "note": ""}
            producer.produce(topic, json.dumps(row))
            producer.poll(0.0)
            time.sleep(SENT_S)
        producer.flush(30.0)

    sending = threading.Thread(target=send)
    sending.start()
    seen: dict[int, float] = {}
    known: set[str] = set()
    log = bench.folder / "tables" / "paced" / "_delta_log"
    while len(seen) < records:
        if not (log / f"{table.version() + 1:020}.json").exists():
            # To ask for nothing new would take the job's processor.
            time.sleep(0.02)
            continue
        table.update_incremental()
        files = set(table.file_uris())
        now_s = time.perf_counter()
        if new := files - known:
            dataset = table.to_pyarrow_dataset()
            ids = dataset.to_table(columns=["id"]).column("id").to_pylist() if new else []
            for number in ids:
                if number and number not in seen:
                    seen[number] = now_s
            known |= new
    sending.join()
    running.stopping.set()
    thread.join(60.0)
    # The first seconds are Java's compiler's.
    return {"ms": [1e3 * (seen[n] - sent_s[n]) for n in sorted(seen)[records // 4 :]]}


def _wait_for(root: str, rows: int) -> DeltaTable:
    until_s = time.monotonic() + 300.0
    while time.monotonic() < until_s:
        if DeltaTable.is_deltatable(root):
            table = DeltaTable(root)
            if table.to_pyarrow_dataset().count_rows() >= rows:
                return table
        time.sleep(0.1)
    raise Unavailable(f"{root}: no row")


def upsert(bench: Bench, rounds: int, records: int) -> Mapping[str, Any]:
    """Upsert batches of KEYS keys into a table of so many rows; the first batch is not counted."""
    root = bench.root(f"upserted{records}")
    properties = {"delta.enableDeletionVectors": "true"}
    options = {"kafka.bootstrap.servers": bench.brokers}
    table = Table.create(bench.spark, root, SCHEMA, [], properties, options)
    ids = bench.spark.range(0, records, 1, 4)
    table.append(
        ids.selectExpr("id", "cast(id % 100 AS int) kind", "id / 2 amount", "'n' || id AS note")
    )
    route = {
        "table": root, "value_schema": SCHEMA, "mode": "upsert", "key": "id",
    }  # fmt: skip
    took_s = []
    for number in range(rounds + 1):
        step = records // KEYS
        topic = bench.topic(f"upserts{records}-{number}", 0)
        bench.send(topic, range(number, records + number, step)[:KEYS])
        took_s.append(bench.copied({"r": {**route, "topics": topic}}))
    gateway = bench.spark.sparkContext._gateway  # the JVM's process
    assert gateway is not None
    pid = gateway.proc.pid
    status = Path(f"/proc/{_java(pid)}/status").read_text(encoding="ascii")
    [peak] = [line for line in status.splitlines() if line.startswith("VmHWM")]
    return {"rate": [KEYS / each for each in took_s[1:]], "mib": int(peak.split()[1]) / 1024}


def _java(pid: int) -> int:
    """Return the process that a shell of Spark's became, or its child."""
    if "java" in Path(f"/proc/{pid}/comm").read_text(encoding="ascii"):
        return pid
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()
    return _java(int(children[0]))


PARTS: Final[Mapping[str, Callable[[Bench, int, int], Mapping[str, Any]]]] = {
    "copy": copy,
    "many": many,
    "latency": latency,
    "upsert": upsert,
}


def main(brokers: str, folder: Path, part: str, rounds: int, records: int) -> None:
    """Measure, and print the result."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.appName("ingest").master("local[2]")
    for key, value in {**DEFAULTS, **CONFIG}.items():
        builder = builder.config(key, value)
    package = f"org.apache.spark:{KAFKA}:{pyspark.__version__}"
    spark = configure_spark_with_delta_pip(builder, [package]).getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    print(json.dumps(PARTS[part](Bench(spark, brokers, folder), rounds, records)), flush=True)
    # Threads of clients and of Spark are not waited for.
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), sys.argv[3], int(sys.argv[4]), int(sys.argv[5]))
