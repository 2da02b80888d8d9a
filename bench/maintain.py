"""A table of small files, packed by the maintainer and by delta-spark's OPTIMIZE.

Both tables are the same files. They are packed alone, then others while one client deletes single
rows of them, one after the other: `Client.delete` of ours, delta-spark's DELETE of theirs. Then
users append beside a maintainer that runs by itself (`maintained_users.py`).
"""

import shutil
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable, QueryBuilder
from deltalake.exceptions import DeltaError
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from bench import maintained_users
from bench.figures import Figure, median
from bench.spark_beside import VECTORS, open_session
from tidegate_delta.errors import TidegateError
from tidegate_local.local_stack import LocalStack
from tidegate_producers.client import Client
from tidegate_producers.maintenance.service import Maintainer
from tidegate_producers.maintenance.settings import MaintainSection, MaintainSettings
from tidegate_runtime.clock import SystemClock
from tidegate_runtime.kafka.confluent_bus import KafkaBus
from tidegate_runtime.service.health import Health
from tidegate_runtime.service.runner import Running

FILES: Final = 200
WARM_FILES: Final = 20
FILE_ROWS: Final = 50_000
MIN_RATIO: Final = 0.8
OPENINGS: Final = 10


@dataclass(frozen=True)
class Packed:
    """A table that was packed. Units: `mb_per_s` in 10^6 bytes of small files a second. `deleted`
    and `refused` are single-row deletes meanwhile, with the packing itself; `lost` rows are missing
    or doubled at the end.
    """

    mb_per_s: float
    files: int
    deleted: int
    refused: int
    lost: int


@dataclass(frozen=True)
class Round:
    """Both engines, alone and beside deletes."""

    ours: Packed
    theirs: Packed
    ours_beside: Packed
    theirs_beside: Packed


def figures(stack: LocalStack, folder: Path, rounds: int) -> list[Figure]:
    """Return bytes packed a second, what became of the deletes beside it, and how users waited."""
    spark = open_session()
    try:
        # A round that is not counted: Java compiles, and Python imports.
        _round(stack, folder, spark, "warm-up", WARM_FILES)
        runs = [_round(stack, folder, spark, str(number), FILES) for number in range(rounds)]
    finally:
        spark.stop()
    users = maintained_users.figure(stack, folder, rounds)
    ours = median([run.ours.mb_per_s for run in runs])
    theirs = median([run.theirs.mb_per_s for run in runs])
    mine, peers = [run.ours_beside for run in runs], [run.theirs_beside for run in runs]
    refused = sum(run.refused for run in mine)
    lost = sum(run.lost for run in (*mine, *(run.ours for run in runs)))
    return [
        Figure(
            f"{FILES} small files packed, MB/s",
            f"{ours:.1f}/s, {runs[-1].ours.files} files left",
            f"delta-spark {theirs:.1f}/s, {runs[-1].theirs.files} files left",
            ours / theirs,
            f">= {MIN_RATIO}",
            is_met=ours / theirs >= MIN_RATIO,
            recorded=None,
        ),
        Figure(
            "deletes of single rows while such a table is packed",
            f"{sum(run.deleted for run in mine)}, {refused} refused, {lost} rows lost or doubled; "
            f"{mine[-1].files} files left",
            f"delta-spark {sum(run.deleted for run in peers)}, "
            f"{sum(run.refused for run in peers)} refused, the packing among them if it was; "
            f"{peers[-1].files} files left",
            float(refused),
            "0 refused",
            is_met=not refused and not lost,
            recorded=None,
        ),
        users,
    ]


def _round(stack: LocalStack, folder: Path, spark: SparkSession, name: str, files: int) -> Round:
    packed: dict[tuple[bool, bool], Packed] = {}
    with Client(stack.kafka.bootstrap_servers) as client:
        for is_beside in (False, True):
            ours = folder / "tables" / f"ours-{name}-{is_beside}"
            theirs = folder / f"theirs-{name}-{is_beside}"
            size = _make(client, ours, files)
            # The checkpointer still writes: a hint may be copied without its checkpoint.
            passing = shutil.ignore_patterns("_last_checkpoint", "*.tmp")
            shutil.copytree(ours, theirs, ignore=passing)
            rows = files * FILE_ROWS
            delete = partial(_delete, client, ours) if is_beside else None
            packed[True, is_beside] = _packed(ours, size, partial(_maintain, stack), delete, rows)
            optimize = partial(_run, spark, f"OPTIMIZE delta.`{theirs}`")
            delete = partial(_delete_by_spark, spark, theirs) if is_beside else None
            packed[False, is_beside] = _packed(theirs, size, optimize, delete, rows)
    return Round(packed[True, False], packed[False, False], packed[True, True], packed[False, True])


def _make(client: Client, folder: Path, files: int) -> int:
    """Make a table of small files with vectors; return the bytes of its files."""
    numbers = pa.array(range(FILE_ROWS), pa.int64())
    for file in range(files):
        ids, amounts = pc.add(numbers, file * FILE_ROWS), pc.random(FILE_ROWS)
        kinds = pc.cast(pc.divide(ids, 7), pa.string())
        rows = pa.table({"id": ids, "kind": kinds, "amount": amounts})
        if not file:
            client.create(str(folder), rows.schema, properties=VECTORS)
        client.append(str(folder), rows)
    return sum(path.stat().st_size for path in folder.glob("*.parquet"))


def _packed(
    folder: Path,
    size: int,
    pack: Callable[[], bool],
    delete: Callable[[int], bool] | None,
    rows: int,
) -> Packed:
    """Pack a table, while single rows are deleted by `delete`, spread over its files."""
    over, deleted, refused = threading.Event(), 0, 0

    def delete_on() -> None:
        nonlocal deleted, refused
        while delete is not None and not over.is_set():
            if delete((deleted + refused) * 7_919_117 % rows):
                deleted += 1
            else:
                refused += 1

    deleting = threading.Thread(target=delete_on)
    deleting.start()
    began_s = time.perf_counter()
    refused_packings = not pack()
    took_s = time.perf_counter() - began_s
    over.set()
    deleting.join()
    table = _opened(folder)
    query = "SELECT count(*) AS rows, count(DISTINCT id) AS ids FROM t"
    [found] = pa.table(QueryBuilder().register("t", table).execute(query).read_all()).to_pylist()
    lost = max(abs(found[name] + deleted - rows) for name in ("rows", "ids"))
    files = len(table.file_uris())
    return Packed(size / took_s / 1e6, files, deleted, refused + refused_packings, lost)


def _opened(folder: Path) -> DeltaTable:
    """Open a table, again if delta-rs misses the checkpoint that delta-spark is just writing."""
    for _ in range(OPENINGS):
        with suppress(DeltaError):
            return DeltaTable(folder)
        time.sleep(1.0)
    return DeltaTable(folder)


def _maintain(stack: LocalStack) -> bool:
    clock = SystemClock()
    section = MaintainSection(file_age_s=0.0, vacuum_interval_s=None)
    settings = MaintainSettings(kafka=stack.kafka, maintain=section)
    running = Running(clock, Health(clock))
    Maintainer(settings, KafkaBus(stack.kafka, "bench"), running).run(once=True)
    return True


def _delete(client: Client, folder: Path, row: int) -> bool:
    """Delete a row; return whether it is gone."""
    try:
        return client.delete(str(folder), f"id = {row}") is not None
    except TidegateError:
        return False


def _delete_by_spark(spark: SparkSession, folder: Path, row: int) -> bool:
    return _run(spark, f"DELETE FROM delta.`{folder}` WHERE id = {row}")


def _run(spark: SparkSession, statement: str) -> bool:
    """Run a statement; return whether it was committed."""
    try:
        spark.sql(statement)
    except (PySparkException, Py4JJavaError):
        return False
    return True
