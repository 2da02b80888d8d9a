"""What a driver does for a change of a table with many files, in a fresh process: `program WAY
FOLDER`.

The files themselves are not read: executors do that. The cost is printed as JSON.
"""

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast
from uuid import UUID

from pyspark.sql import SparkSession

from bench.measured import Counted, measure
from tidegate_delta.data_skipping.partition_predicates import prune
from tidegate_messages.published_records import TableRecord
from tidegate_producers.cached_clients import store_for
from tidegate_producers.options import TableLocation
from tidegate_producers.parquet.file_rewrite import Rewritten
from tidegate_producers.table.target_frame import target_frame
from tidegate_producers.writing.row_delete import Rewriting, delete_rows
from tidegate_producers.writing.table_write import WriteRequest
from tidegate_runtime.client.client import Client
from tidegate_runtime.clock import SystemClock
from tidegate_runtime.service import arrow_setup
from tidegate_runtime.table_io.open_table import open_snapshot

JVM_MEMORY: Final = "1g"
EVERY_FILE: Final = "id >= 0"

Work = Callable[[], Counted]


@dataclass(frozen=True)
class NoClient:
    """Knows the table, and proposes nothing, as no row is deleted."""

    root: str
    clock: SystemClock

    def require(self, root: str, timeout_s: float) -> TableRecord:
        """Return the table."""
        return TableRecord(
            table=UUID(int=1), table_root=root, name="t", proposals_topic="p", topic_partition=0
        )


def deleting(place: TableLocation) -> Work:
    """Delete by a condition that may match rows of each file, and matches none."""

    sent = 0

    def found(rewriting: Rewriting, files: Sequence[Mapping[str, Any]]) -> Sequence[Rewritten]:
        nonlocal sent
        sent += len(files)
        return [Rewritten(file["path"], 0, 0, ()) for file in files]

    def delete() -> Counted:
        client = cast(Client, NoClient(place.root, SystemClock()))
        assert delete_rows(client, place, EVERY_FILE, WriteRequest(60), found) is None
        return sent

    return delete


def updating(place: TableLocation) -> Work:
    """Make the frame of an update or a merge that reads each file. The JVM has JVM_MEMORY."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master("local[1]").config("spark.driver.memory", JVM_MEMORY)
    spark = builder.config("spark.ui.enabled", "false").getOrCreate()
    predicate = {"op": ">=", "column": "id", "value": 0, "type": "long"}

    def frame() -> Counted:
        snapshot = open_snapshot(store_for(place))
        files = prune(predicate, snapshot.files, snapshot.metadata)
        rows = target_frame(spark, place, snapshot.metadata, files)
        assert rows.columns
        return int(files.num_rows)

    return frame


WAYS: Final = {"delete": deleting, "update": updating}


def main(way: str, folder: str) -> None:
    """Measure one way."""
    arrow_setup.choose_memory_pool()
    measure(WAYS[way](TableLocation(f"file://{Path(folder).absolute()}")))


if __name__ == "__main__":
    main(*sys.argv[1:])
