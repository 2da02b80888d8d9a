"""The peer: delta-rs writers, each a process that appends to one table as fast as it can.

A writer commits one prepared add action a call, and refreshes its handle before. No data is
written, so that only the commit path is measured. `gave_up` counts calls that failed after
delta-rs's own retries; the writer then tries again at once, and its latency runs on.
"""

import json
import multiprocessing as mp
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

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


NO_OPTIONS: Final[Mapping[str, str]] = {}


@dataclass(frozen=True)
class Rate:
    """The throughput of some writers. Units: `per_s` commits a second, latencies in ms."""

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


def add_of(path: str) -> AddAction:
    """Return the action that adds a file."""
    return AddAction(path, 1000, {"month": "1"}, 0, True, STATS)


def run(
    roots: Sequence[str], writers: int, seconds: float, options: Mapping[str, str] = NO_OPTIONS
) -> Rate:
    """Create tables, and let this many processes append to each of them for some seconds."""
    for root in roots:
        create_table_with_add_actions(
            root,
            Schema.from_json(SCHEMA_STRING),
            [],
            "error",
            partition_by=["month"],
            storage_options=dict(options) or None,
        )
    # Forked from a process that has only imported the library: 64 starts of Python are slow.
    context = mp.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    barrier, results = context.Barrier(writers * len(roots)), context.Queue()
    processes = [
        context.Process(
            target=_writer, args=((root, dict(options)), number, seconds, barrier, results)
        )
        for root in roots
        for number in range(writers)
    ]
    for process in processes:
        process.start()
    parts = [results.get() for _ in processes]
    for process in processes:
        process.join()
    latencies = [latency for part in parts for latency in part[0]]
    return rate_of(latencies, max(part[2] for part in parts), sum(part[1] for part in parts))


def _writer(
    place: tuple[str, dict[str, str]], number: int, seconds: float, barrier: Any, results: Any
) -> None:
    table = DeltaTable(place[0], storage_options=place[1] or None)
    schema = table.schema()
    latencies: list[float] = []
    gave_up = sequence = 0
    barrier.wait()
    start = time.perf_counter()
    while time.perf_counter() < start + seconds:
        sequence += 1
        add = add_of(f"month=1/part-{number:05d}-{sequence:09d}.parquet")
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
