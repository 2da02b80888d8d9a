"""Files that are too large for the maintainer's own memory, which Spark writes anew, at night.

The maintainer is a process of its own, as its user starts it: with a session of its own, or on a
server of Spark Connect. delta-rs reads what it has made.
"""

import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, QueryBuilder

from tests.integration.conftest import Line
from tests.integration.proposers import SCHEMA
from tests.integration.test_ingest import SPARK
from tests.integration.test_ingest_connect import ConnectServer, session_settings
from tests.integration.test_maintenance import created
from tidegate_delta.log.actions import Add
from tidegate_producers.maintenance.machine import TASK_BYTES_MAX
from tidegate_producers.options import for_writing
from tidegate_producers.writing.clustering import cluster_by
from tidegate_producers.writing.row_delete import delete, rewrite_here
from tidegate_producers.writing.table_write import WriteRequest
from tidegate_runtime.client.client import Client
from tidegate_runtime.kafka.confluent_bus import KafkaBus

pytestmark = [
    pytest.mark.spark,
    pytest.mark.broker,
    pytest.mark.nightly,
    pytest.mark.timeout(1_200),
]

ROWS = 38_000_000
WAIT_S = 600.0


@pytest.fixture(params=["local", "connect"])
def session(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[dict[str, str]]:
    """Yield settings of a session."""
    if request.param == "local":
        yield SPARK
        return
    server = ConnectServer(tmp_path, has_packages=False)
    try:
        server.start()
        yield session_settings(server)
    finally:
        server.child.stop()


def large_file(folder: Path) -> Add:
    """Write one file whose numbers can't be made smaller, and return its action."""
    folder.mkdir()
    draw = random.Random(folder.name)
    drawn = b"".join(draw.randbytes(8 * ROWS // 16) for _ in range(16))
    numbers = pa.Array.from_buffers(pa.int64(), ROWS, [None, pa.py_buffer(drawn)])
    rows = pa.table([pa.nulls(ROWS, pa.string()).fill_null("w"), numbers], schema=SCHEMA)
    pq.write_table(rows, folder / "large.parquet", use_dictionary=["writer"])
    size = (folder / "large.parquet").stat().st_size
    assert size > TASK_BYTES_MAX
    return Add(
        path="large.parquet",
        partition_values={},
        size=size,
        modification_time=1,
        data_change=True,
        stats=f'{{"numRecords":{ROWS},"nullCount":{{"writer":0,"number":0}}}}',
    )


def total_of(folder: Path) -> tuple[int, int]:
    """Return how many rows a table has, and their numbers' bits, all put together."""
    found = (
        QueryBuilder()
        .register("t", DeltaTable(folder))
        .execute("SELECT count(*), bit_xor(number) FROM t")
    )
    count, bits = (column.to_pylist()[0] for column in pa.table(found.read_all()).columns)
    return count, bits


def test_files_that_are_too_large_are_purged_and_sorted_by_spark(
    line: Line, session: dict[str, str]
) -> None:
    line.started("committer")
    purged, sorted_ = line.tables / "purged", line.tables / "sorted"
    with Client(KafkaBus(line.kafka, "test"), line.kafka.topics, patience_s=3.0) as client:
        created(client, purged, [large_file(purged)])
        place = for_writing({"path": str(purged)}).place
        delete(client, place, "number < -3000000000000000000", WriteRequest(WAIT_S), rewrite_here)
        created(client, sorted_, [large_file(sorted_)], targetFileSize="64mb")
        place = for_writing({"path": str(sorted_)}).place
        assert cluster_by(client, place, ("number",), WriteRequest(WAIT_S)) is not None
    before = {folder: total_of(folder) for folder in (purged, sorted_)}
    settings = {f"maintain.spark.{name}": text for name, text in session.items()}
    settings |= {**line.settings, "maintain.file_age_s": "0", "maintain.pause_s": "0.1"}
    given = [part for pair in settings.items() for part in ("--set", "=".join(map(str, pair)))]
    program = [sys.executable, "-m", "tidegate_producers.maintenance", "--once", *given]
    done = subprocess.run(program, capture_output=True, text=True, timeout=WAIT_S)
    assert done.returncode == 0, done.stderr[-4_000:]
    assert {folder: total_of(folder) for folder in before} == before, done.stderr[-4_000:]
    files = {
        folder: pa.table(DeltaTable(folder).get_add_actions(flatten=True)) for folder in before
    }
    assert files[purged]["num_records"].to_pylist() == [before[purged][0]], done.stderr[-4_000:]
    low, high = (files[sorted_][f"{side}.number"].to_pylist() for side in ("min", "max"))
    assert len(low) > 2, done.stderr[-4_000:]
    spans = [above - below for below, above in zip(low, high, strict=True)]
    assert sum(spans) < 1.1 * (max(high) - min(low)), "neighbours share a bit of the curve at most"
