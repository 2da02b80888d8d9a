"""Followers of many busy tables: how far checkpointer and CDC publisher are behind, and their cost.

Every append names a real file of one row, a hard link, so that the publisher has rows to read.
"""

import re
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq
from rich.console import Console

from bench import gate_writers, host, load
from bench.figures import Figure
from tidegate_local.child_processes import ServiceProcess, probe
from tidegate_local.local_stack import LocalStack
from tidegate_messages.published_records import TableRecord

TABLES: Final = 200
WRITERS: Final = 4
AT_ONCE: Final = 16
INTERVAL: Final = 10
CAUGHT_UP_S: Final = 300.0
FOLLOWERS: Final = ("checkpointer", "cdc_publisher")
_VALUE: Final = r'^%s\{table="[^"]*"\} ([0-9.e+]+)$'
_BEHIND: Final = {
    "checkpointer": re.compile(_VALUE % "tidegate_checkpoint_age_versions", re.MULTILINE),
    "cdc_publisher": re.compile(_VALUE % "tidegate_cdc_lag_versions", re.MULTILINE),
}
"""The gauge that says how many versions of a table a follower has not dealt with."""

_ALLOWED: Final = {"checkpointer": INTERVAL, "cdc_publisher": 0}
_console = Console(width=170)


def figures(stack: LocalStack, folder: Path, seconds: float) -> list[Figure]:
    """Return a figure of each follower, of one run."""
    original = folder / "one-row.parquet"
    pq.write_table(pa.table({"id": pa.array([1], pa.int64())}), original)
    properties = {"delta.checkpointInterval": str(INTERVAL)}

    def create(number: int) -> TableRecord:
        root = folder / "tables" / f"followed-{number}"
        return gate_writers.create(stack.kafka, root, properties)

    with ThreadPoolExecutor(AT_ONCE) as pool:
        tables = list(pool.map(create, range(TABLES)))
    services = {name: stack.services[name] for name in FOLLOWERS}
    before_s = {name: host.cpu_s(service.child.pid) for name, service in services.items()}
    run = load.run(stack.kafka, tables, load.Writers(WRITERS, each_file=original), seconds)
    ended_s = time.perf_counter()
    behind = {name: _behind(name, service) for name, service in services.items()}
    versions = _versions(folder, tables)
    _console.print(
        f"{TABLES} tables: {run.per_s:.0f} proposals/s, {versions} versions, {run.gave_up} gave up"
    )
    caught_up_s = _caught_up_s(services, ended_s)
    spent_s = {
        name: host.cpu_s(service.child.pid) - before_s[name] for name, service in services.items()
    }
    return [
        Figure(
            f"{name} of {TABLES} busy tables: versions behind when writers end, until it has all",
            f"{behind[name]:.0f} of {versions}, {caught_up_s[name]:.1f} s",
            f"{run.per_s:.0f} proposals/s for {seconds:.0f} s",
            behind[name] / versions,
            "",
            f"{1e3 * spent_s[name] / versions:.1f} ms CPU a version",
            is_met=None,
            recorded=None,
        )
        for name in FOLLOWERS
    ]


def _versions(folder: Path, tables: Sequence[TableRecord]) -> int:
    roots = (folder / "tables" / Path(table.table_root).name for table in tables)
    return sum(len(list((root / "_delta_log").glob("0*.json"))) for root in roots)


def _behind(name: str, service: ServiceProcess) -> float:
    """Return how many versions a follower has not dealt with, by its metrics."""
    _, text = probe(f"{service.address()}/metrics")
    ages = map(float, _BEHIND[name].findall(text))
    return sum(max(0.0, age - _ALLOWED[name]) for age in ages)


def _caught_up_s(services: dict[str, ServiceProcess], since_s: float) -> dict[str, float]:
    """Return when each follower had dealt with everything."""
    done: dict[str, float] = {}
    while len(done) < len(services) and time.perf_counter() - since_s < CAUGHT_UP_S:
        for name, service in services.items():
            if name not in done and not _behind(name, service):
                done[name] = time.perf_counter() - since_s
        time.sleep(0.5)
    return {name: done.get(name, float("inf")) for name in services}
