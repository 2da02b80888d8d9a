"""Row deletes from one shared file through a real broker, while the committer is killed."""

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, QueryBuilder

from tests.integration.conftest import Line
from tests.integration.proposers import CLOCK, SCHEMA
from tests.integration.test_committer_processes import WAIT_S
from tidegate_delta.definitions.resolve_definition import define_new
from tidegate_delta.log.actions import Add, Metadata
from tidegate_delta.schema.arrow_types import from_arrow
from tidegate_delta.schema.types import format_schema
from tidegate_messages.outcome import Outcome
from tidegate_producers.options import TableLocation, for_writing
from tidegate_producers.parquet.file_rewrite import CompactionResult, Rewriter, Rewritten
from tidegate_producers.writing.optimize import (
    Bin,
    Compacting,
    OptimizeRequest,
    compact_here,
    optimize,
)
from tidegate_producers.writing.row_delete import Rewriting, delete, rewrite_here
from tidegate_producers.writing.table_write import WriteRequest
from tidegate_runtime.client import proposal_builders
from tidegate_runtime.client.client import Client
from tidegate_runtime.clock import new_id
from tidegate_runtime.kafka.confluent_bus import KafkaBus
from tidegate_runtime.storage.local_store import LocalStore
from tidegate_runtime.table_io.data_file_reader import read_table
from tidegate_runtime.table_io.open_table import open_snapshot

pytestmark = pytest.mark.broker

ROWS, WRITERS, DELETES = 3_000, 6, 8


def shared_file(folder: Path) -> Add:
    """Write one file of many rows, and return its action."""
    rows = pa.table([["w"] * ROWS, list(range(ROWS))], schema=SCHEMA)
    folder.mkdir()
    pq.write_table(rows, folder / "shared.parquet")
    return Add(
        path="shared.parquet",
        partition_values={},
        size=(folder / "shared.parquet").stat().st_size,
        modification_time=CLOCK.now_ms(),
        data_change=True,
        stats=f'{{"numRecords":{ROWS}}}',
    )


def create(client: Client, folder: Path) -> None:
    """Create the table with its file by a proposal."""
    metadata = Metadata(
        id=str(new_id(CLOCK)),
        schema_string=format_schema(from_arrow(SCHEMA)),
        configuration={"delta.enableDeletionVectors": "true"},
    )
    protocol = define_new(metadata).protocol
    target = proposal_builders.Target(new_id(CLOCK), folder.as_uri(), name="shared")
    stamp = proposal_builders.Stamp(new_id(CLOCK), CLOCK.now_ms())
    made = proposal_builders.create(target, stamp, protocol, metadata, [shared_file(folder)])
    assert client.propose(made).status == "committed"


def test_every_row_is_deleted_once_beside_deleters_that_die(line: Line) -> None:
    folder = line.tables / "shared"
    place = for_writing({"path": str(folder)}).place
    first = line.started("committer", "first")
    with Client(KafkaBus(line.kafka, "test"), line.kafka.topics, patience_s=3.0) as client:
        create(client, folder)
    with ThreadPoolExecutor(WRITERS) as pool:
        writing = [pool.submit(writer, line, place, number) for number in range(WRITERS)]
        writing[0].result(WAIT_S)
        first.child.kill()
        line.started("committer", "successor")
        writing += [pool.submit(writer, line, place, WRITERS)]
        outcomes = [outcome for item in writing for outcome in item.result(WAIT_S)]
    assert {outcome.status for outcome in outcomes} == {"committed"}
    gone = {row for number in range(WRITERS + 1) for row in rows_of(number)}
    left = sorted(set(range(ROWS)) - gone)
    store = LocalStore(folder.as_uri())
    held = read_table(store, open_snapshot(store), ["number"])["number"].to_pylist()
    assert sorted(held) == left
    query = QueryBuilder().register("t", DeltaTable(folder)).execute("SELECT number FROM t")
    assert sorted(pa.table(query.read_all())["number"].to_pylist()) == left


def test_a_compaction_and_deletes_beside_it_all_commit(line: Line) -> None:
    """The compaction has read the files; then rows are deleted; then it is proposed; and back."""
    folder = line.tables / "shared"
    place = for_writing({"path": str(folder)}).place
    line.started("committer")
    with Client(KafkaBus(line.kafka, "test"), line.kafka.topics, patience_s=3.0) as client:
        create(client, folder)
        request = WriteRequest(WAIT_S)
        assert delete(client, place, "number >= 1000", request, rewrite_here) is not None

        def compact(compacting: Compacting, bins: Sequence[Bin]) -> Sequence[CompactionResult]:
            compacted = compact_here(compacting, bins)
            beside = delete(client, place, "number < 10", request, rewrite_here)
            assert beside is not None
            assert beside.status == "committed"
            return compacted

        done = optimize(client, place, OptimizeRequest(), request, compact)
    assert len(done.versions) == 1
    assert (len(done.removed), len(done.added)) == (1, 1)
    store = LocalStore(folder.as_uri())
    held = read_table(store, open_snapshot(store), ["number"])["number"].to_pylist()
    assert held == list(range(10, 1000))
    foreign = QueryBuilder().register("t", DeltaTable(folder)).execute("SELECT number FROM t")
    assert sorted(pa.table(foreign.read_all())["number"].to_pylist()) == held


def rows_of(writer: int) -> range:
    """Return the rows that a writer deletes one by one; the last writer deletes many at once."""
    if writer == WRITERS:
        return range(1_000, ROWS, 3)
    return range(writer, WRITERS * DELETES, WRITERS)


def writer(line: Line, place: TableLocation, number: int) -> list[Outcome]:
    """Delete a writer's rows, and return its outcomes."""
    store = LocalStore(place.root)

    def mark(rewriting: Rewriting, files: Sequence[Mapping[str, Any]]) -> Sequence[Rewritten]:
        assert rewriting.by == "vectors"
        rewriter = Rewriter(store, rewriting.metadata, rewriting.predicate, CLOCK, number)
        return [rewriter.mark(file) for file in files]

    conditions = [f"number = {row}" for row in rows_of(number)]
    if number == WRITERS:
        conditions = [f"number >= 1000 AND number IN ({', '.join(map(str, rows_of(number)))})"]
    with Client(KafkaBus(line.kafka, "test"), line.kafka.topics, patience_s=3.0) as client:
        result = [
            delete(client, place, condition, WriteRequest(WAIT_S), mark) for condition in conditions
        ]
    return [item for item in result if item is not None]
