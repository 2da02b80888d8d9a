"""The peer: delta-rs writers, each a process that appends to one local table as fast as it can.

A writer commits one ready-made add action a call, refreshing its handle before: no data is
written, so that only the commit path is measured. `gave_up` counts calls that failed after
delta-rs's own retries; the writer then tries again at once, and its latency runs on.
"""

import json
import multiprocessing as mp
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deltalake import DeltaTable, Schema
from deltalake.exceptions import DeltaError
from deltalake.transaction import AddAction, create_table_with_add_actions

from bench.figures import percentile

SCHEMA_STRING = json.dumps(
    {
        "type": "struct",
        "fields": [
            {"name": name, "type": kind, "nullable": True, "metadata": {}}
            for name, kind in (("id", "long"), ("carrier", "string"), ("month", "integer"))
        ],
    }
)
STATS = '{"numRecords":1000,"minValues":{"id":0},"maxValues":{"id":999},"nullCount":{"id":0}}'


@dataclass(frozen=True)
class Rate:
    """What some writers came to. Units: `per_s` commits a second, latencies in ms."""

    per_s: float
    p50_ms: float
    p99_ms: float
    gave_up: int
    committed: int


def rate_of(latencies_s: list[float], seconds: float, gave_up: int = 0) -> Rate:
    """Return the rate and latencies of commits."""
    return Rate(
        len(latencies_s) / seconds,
        1e3 * percentile(latencies_s, 50),
        1e3 * percentile(latencies_s, 99),
        gave_up,
        len(latencies_s),
    )


def run(folder: Path, writers: int, seconds: float) -> Rate:
    """Create a table and let so many processes append to it for some seconds."""
    create_table_with_add_actions(
        str(folder), Schema.from_json(SCHEMA_STRING), [], "error", partition_by=["month"]
    )
    context = mp.get_context("spawn")
    barrier, results = context.Barrier(writers), context.Queue()
    processes = [
        context.Process(target=_writer, args=(number, str(folder), seconds, barrier, results))
        for number in range(writers)
    ]
    for process in processes:
        process.start()
    parts = [results.get() for _ in processes]
    for process in processes:
        process.join()
    latencies = [latency for part in parts for latency in part[0]]
    return rate_of(latencies, max(part[2] for part in parts), sum(part[1] for part in parts))


def _writer(number: int, folder: str, seconds: float, barrier: Any, results: Any) -> None:
    table = DeltaTable(folder)
    schema = table.schema()
    latencies: list[float] = []
    gave_up = sequence = 0
    barrier.wait()
    start = time.perf_counter()
    while time.perf_counter() < start + seconds:
        sequence += 1
        add = AddAction(
            f"month=1/part-{number:05d}-{sequence:09d}.parquet",
            1000,
            {"month": "1"},
            0,
            True,
            STATS,
        )
        began = time.perf_counter()
        while True:
            try:
                table.update_incremental()
                table.create_write_transaction([add], "append", schema, ["month"])
            except DeltaError:
                gave_up += 1
                if time.perf_counter() > start + seconds:
                    break
            else:
                latencies.append(time.perf_counter() - began)
                break
    results.put((latencies, gave_up, time.perf_counter() - start))
