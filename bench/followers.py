"""Followers of many busy tables: how far checkpointer and CDC publisher are behind, and their cost.

Every append names a real file of one row, a hard link, so that the publisher has rows to read.
"""

import re
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq
from rich.console import Console

from bench import gate_writers, host, load
from bench.figures import Figure
from tidegate_cdc_publisher.key_columns import PROPERTY as KEY_COLUMNS
from tidegate_local.child_processes import ServiceProcess, probe
from tidegate_local.local_stack import LocalStack
from tidegate_messages.published_records import TableRecord

TABLES: Final = 200
WRITERS: Final = 4
AT_ONCE: Final = 16
INTERVAL: Final = 10
PATIENCE_S: Final = 120.0
_AGES: Final = re.compile(
    r'^tidegate_checkpoint_age_versions\{table="[^"]*"\} ([0-9.e+]+)$', re.MULTILINE
)
_TAKEN_OVER: Final = re.compile(r"^tidegate_cdc_position_version\{", re.MULTILINE)
_EVENTS: Final = re.compile(r'^tidegate_cdc_events_total\{op="c",.*\} ([0-9.e+]+)$', re.MULTILINE)
_console = Console(width=170)


def figures(stack: LocalStack, folder: Path, seconds: float) -> list[Figure]:
    """Return a figure of each follower, of one run."""
    original = folder / "one-row.parquet"
    pq.write_table(pa.table({"id": pa.array([1], pa.int64())}), original)
    properties = {"delta.checkpointInterval": str(INTERVAL), KEY_COLUMNS: "id"}

    def create(number: int) -> TableRecord:
        root = folder / "tables" / f"followed-{number}"
        return gate_writers.create(stack.kafka, root, properties)

    checkpointer, publisher = stack.services["checkpointer"], stack.services["cdc_publisher"]
    began_s = time.perf_counter()
    with ThreadPoolExecutor(AT_ONCE) as pool:
        tables = list(pool.map(create, range(TABLES)))
    _until(lambda: len(_TAKEN_OVER.findall(_metrics(publisher))) == TABLES)
    _console.print(f"{TABLES} tables taken over after {time.perf_counter() - began_s:.0f} s")
    before_s = [host.cpu_s(service.child.pid) for service in (checkpointer, publisher)]
    run = load.run(stack.kafka, tables, load.Writers(WRITERS, each_file=original), seconds)
    rows = len(run.committed)
    late_versions, late_rows = _late_versions(checkpointer), rows - _events(publisher)
    published_s = _until(lambda: _events(publisher) == rows)
    checkpointed_s = published_s + _until(lambda: not _late_versions(checkpointer))
    spent_s = [
        host.cpu_s(service.child.pid) - before
        for service, before in zip((checkpointer, publisher), before_s, strict=True)
    ]
    versions = sum(1 for _ in (folder / "tables").glob("*/_delta_log/0*.json"))
    peer = f"{run.per_s:.0f} proposals/s, {versions} versions, {rows} rows"
    return [
        Figure(
            f"checkpointer of {TABLES} busy tables: versions late at the end of the load",
            f"{late_versions:.0f}, none after {checkpointed_s:.1f} s at most",
            peer,
            late_versions / versions,
            "",
            f"{1e3 * spent_s[0] / versions:.1f} ms CPU a version",
            is_met=None,
            recorded=None,
        ),
        Figure(
            f"CDC publisher of {TABLES} busy tables: rows not published at the end of the load",
            f"{late_rows:.0f}, none after {published_s:.1f} s",
            peer,
            late_rows / rows,
            "",
            f"{1e3 * spent_s[1] / versions:.1f} ms CPU a version",
            is_met=None,
            recorded=None,
        ),
    ]


def _until(is_done: Callable[[], bool]) -> float:
    """Return after how many seconds something is done; infinity if it takes too long."""
    began_s = time.perf_counter()
    while not is_done():
        if time.perf_counter() - began_s > PATIENCE_S:
            return float("inf")
        time.sleep(0.25)
    return time.perf_counter() - began_s


def _metrics(service: ServiceProcess) -> str:
    return probe(f"{service.address()}/metrics")[1]


def _late_versions(checkpointer: ServiceProcess) -> float:
    """Return how many versions are past the interval of their table's checkpoints."""
    return sum(max(0.0, float(age) - INTERVAL) for age in _AGES.findall(_metrics(checkpointer)))


def _events(publisher: ServiceProcess) -> float:
    return sum(map(float, _EVENTS.findall(_metrics(publisher))))
