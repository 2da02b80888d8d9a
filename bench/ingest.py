"""A topic becomes a table: `tidegate ingest`, beside Spark's own streams."""

import json
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined] # public
from deltalake import DeltaTable

from bench.figures import Figure, median, percentile
from bench.ingest_program import KEYS, SCHEMA, TOPICS, TRIGGER_S
from tidegate_local.local_stack import LocalStack

PROGRAM: Final = "bench.ingest_program"
RECORDS: Final = 400_000
MANY_RECORDS: Final = 48_000
PACED: Final = 1_200
TABLE_ROWS: Final = (1_000_000, 10_000_000)
START_S: Final = 20.0
P50_MS: Final = 1_500.0
P99_MS: Final = 3_000.0
COPY_MIN: Final = 0.8
MANY_MIN: Final = 5.0
MEMORY_MAX: Final = 2.0


def figures(stack: LocalStack, folder: Path, rounds: int) -> list[Figure]:
    """Return what a job copies in a second, how late rows are there, and how it grows."""

    def run(part: str, records: int) -> Mapping[str, Any]:
        return _run(stack.kafka.bootstrap_servers, folder, part, rounds, records)

    copied, many = run("copy", RECORDS), run("many", MANY_RECORDS)
    took_ms = run("latency", PACED)["ms"]
    small, large = (run("upsert", rows) for rows in TABLE_ROWS)
    return [
        _start(stack, folder),
        _copied(copied),
        _many(many),
        _late(took_ms),
        _upserted(small, large),
    ]


def _copied(rates: Mapping[str, list[float]]) -> Figure:
    ours, theirs = median(rates["ours"]), median(rates["parquet"])
    return Figure(
        "ingest: records of JSON copied",
        f"{ours:,.0f}/s",
        f"Spark's stream into Parquet {theirs:,.0f}/s",
        ours / theirs,
        f">= {COPY_MIN}",
        is_met=ours / theirs >= COPY_MIN,
        recorded=None,
    )


def _many(rates: Mapping[str, list[float]]) -> Figure:
    ours, theirs = median(rates["ours"]), median(rates["delta-spark"])
    return Figure(
        f"ingest: {TOPICS} topics into one table",
        f"{ours:,.0f} records/s",
        f"{TOPICS} delta-spark streams {theirs:,.0f}/s, {sum(rates['failed']):.0f} gave up",
        ours / theirs,
        f">= {MANY_MIN}",
        is_met=ours / theirs >= MANY_MIN,
        recorded=None,
    )


def _late(took_ms: list[float]) -> Figure:
    p50, p99 = median(took_ms), percentile(took_ms, 99)
    return Figure(
        f"ingest: sent to readable by delta-rs, a trigger of {TRIGGER_S:.0f} s",
        f"p50 {p50:,.0f}, p99 {p99:,.0f} ms",
        f"{P50_MS:,.0f} and {P99_MS:,.0f} ms",
        p50 / P50_MS,
        "<= both",
        is_met=p50 <= P50_MS and p99 <= P99_MS,
        recorded=None,
    )


def _upserted(small: Mapping[str, Any], large: Mapping[str, Any]) -> Figure:
    grows = large["mib"] / small["mib"]
    rates = [median(run["rate"]) for run in (small, large)]
    return Figure(
        f"ingest: {KEYS:,} keys upserted into 10^6 and 10^7 rows",
        f"{rates[0]:,.0f} and {rates[1]:,.0f}/s, {large['mib']:,.0f} MiB",
        f"at 10^6 rows {small['mib']:,.0f} MiB",
        grows,
        f"memory <= {MEMORY_MAX:.0f} times",
        is_met=grows <= MEMORY_MAX,
        recorded=None,
    )


def _start(stack: LocalStack, folder: Path) -> Figure:
    """Return how long the command takes to its first row."""
    brokers, topic = stack.kafka.bootstrap_servers, "first"
    table = folder / "tables" / "first"
    admin = AdminClient({"bootstrap.servers": brokers})
    admin.create_topics([NewTopic(topic, num_partitions=1)])[topic].result()
    producer = Producer({"bootstrap.servers": brokers})
    producer.produce(topic, json.dumps({"id": 1, "kind": 1, "amount": 0.5, "note": "n"}))
    producer.flush(60.0)
    argv = [sys.executable, "-m", "tidegate_producers.ingest", topic, str(table)]
    argv += ["--value-schema", SCHEMA, "--set", f"kafka.bootstrap_servers={brokers}"]
    began_s = time.perf_counter()
    with subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as job:
        while not (DeltaTable.is_deltatable(str(table)) and DeltaTable(str(table)).file_uris()):
            if job.poll() is not None:
                raise RuntimeError(f"{' '.join(argv)} ended with {job.returncode}")
            time.sleep(0.05)
        took_s = time.perf_counter() - began_s
        job.terminate()
    return Figure(
        "ingest: from the command to the first row",
        f"{took_s:.1f} s",
        f"{START_S:.0f} s",
        took_s / START_S,
        f"<= {START_S:.0f} s",
        is_met=took_s <= START_S,
        recorded=None,
    )


def _run(brokers: str, folder: Path, part: str, rounds: int, records: int) -> Mapping[str, Any]:
    argv = [sys.executable, "-m", PROGRAM, brokers, str(folder), part, str(rounds), str(records)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{PROGRAM} {part} failed:\n{done.stderr[-4000:]}")
    result: Mapping[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result
