"""Many writers delete rows of shared files at once; delta-rs and our reader see the result."""

import json
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, QueryBuilder

from tests import builders
from tests.builders import NOW_MS, TABLE, TABLE_ID, Gate, Row, add, info, metadata, protocol
from tidegate_committer.decision.machine import DecisionTerms, VersionLanded, evolve, plan
from tidegate_committer.decision.required_reads import wanted
from tidegate_committer.group_commit.entry_encoding import Attempt, EntryWriter, encode
from tidegate_committer.intake.candidate import Candidate
from tidegate_committer.intake.proposal_reader import read_record
from tidegate_committer.policy import Policy
from tidegate_committer.settings import CommitterSection
from tidegate_committer.state.log_entry import entry_of
from tidegate_committer.state.table_state import TableState
from tidegate_committer.store_reads.read_cache import ReadCache
from tidegate_delta.data_skipping.predicate_tree import Predicate
from tidegate_delta.log.commit import sha256
from tidegate_delta.log.file_names import commit_name, in_log
from tidegate_delta.snapshots.file_action_columns import rows_to_adds
from tidegate_messages.proposal import Operation, Proposal
from tidegate_producers.parquet.file_rewrite import Rewriter
from tidegate_runtime.client import proposal_builders
from tidegate_runtime.clock import SystemClock
from tidegate_runtime.storage.local_store import LocalStore
from tidegate_runtime.table_io.change_row_reader import read_changes
from tidegate_runtime.table_io.data_file_reader import read_table, rows_of
from tidegate_runtime.table_io.open_table import open_snapshot

ROWS, FILES, WRITERS = 30_000, 2, 12
NAMES = ["deletionVectors"]


def files(folder: Path) -> list[Row]:
    """Write some files of consecutive numbers; return their adds."""
    result = []
    for at in range(FILES):
        values = pa.array(range(at * ROWS, (at + 1) * ROWS), pa.int64())
        pq.write_table(pa.table({"x": values, "s": values.cast("string")}), folder / f"f{at}")
        bounds = {"minValues": {"x": at * ROWS}, "maxValues": {"x": (at + 1) * ROWS - 1}}
        stats = json.dumps({"numRecords": ROWS, **bounds, "nullCount": {"x": 0}})
        result.append(add(f"f{at}", size=(folder / f"f{at}").stat().st_size, stats=stats))
    return result


def chosen(writer: int) -> list[int]:
    """Return the rows that a writer deletes: few, a long run, or so many that they need a file."""
    if writer % 3 == 0:
        return [writer, ROWS + writer]
    if writer % 3 == 1:
        return list(range(1_000 * writer, 1_000 * writer + 500))
    return list(range(20_000 + writer, 2 * ROWS, 48))


def deleting(store: LocalStore, values: Sequence[int], version: int) -> Proposal:
    """Return the proposal of a producer that read a version and deletes some numbers."""
    snapshot = open_snapshot(store, version)
    predicate: Predicate = {"op": "in", "column": ["x"], "values": list(values), "type": "long"}
    rewriter = Rewriter(store, snapshot.metadata, predicate, SystemClock(), 0)
    adds = {row.path: row for row in rows_to_adds(snapshot.files)}
    result = [rewriter.mark(file) for file in rows_of(snapshot.files)]
    marked = [
        (adds[item.path], item.marked) for item in result if item.marked and item.deleted_rows
    ]
    deletion = proposal_builders.Deletion("x IN (...)", predicate, list(adds), (), (), {}, marked)
    vectors, content = proposal_builders.vectors_of(deletion, builders.an_id())
    if content is not None:
        store.put(*content)
    target = proposal_builders.Target(TABLE, store.root, version, TABLE_ID)
    return proposal_builders.delete(
        target, proposal_builders.Stamp(builders.an_id(), NOW_MS), deletion, vectors
    )


@pytest.mark.parametrize("members", [1, 5, 64])
def test_deletes_of_many_writers_leave_the_rows_that_nobody_deleted(
    tmp_path: Path, members: int
) -> None:
    store = LocalStore(tmp_path.as_uri())
    section = CommitterSection(roots=(tmp_path.parent.as_uri(),), group_members_max=members)
    gate = Gate(section, stores={store.root: store})
    feature = protocol(3, 7, readerFeatures=NAMES, writerFeatures=NAMES)
    create = builders.proposal(
        *(feature, metadata(enableDeletionVectors="true")),
        read_version=-1,
        table_root=store.root,
        operation=Operation(name="CREATE TABLE"),
    )
    append = builders.proposal(*files(tmp_path), table_root=store.root)
    assert [outcome.status for outcome in gate.ask(create, append)] == ["committed", "committed"]
    gate.send(*(deleting(store, chosen(writer), 1) for writer in range(WRITERS)))
    gate.settle(WRITERS + 4)
    result = gate.outcomes()[2:]
    assert [outcome.rejection for outcome in result] == [None] * WRITERS
    gone = set().union(*map(chosen, range(WRITERS)))
    assert sum(int(str(item.assigned["rows_deleted"])) for item in result) == len(gone)
    left = sorted(set(range(FILES * ROWS)) - gone)
    snapshot = open_snapshot(store)
    assert snapshot.version == 1 + -(-WRITERS // members)
    assert sorted(read_table(store, snapshot, ["x"])["x"].to_pylist()) == left
    query = QueryBuilder().register("t", DeltaTable(tmp_path)).execute("SELECT x FROM t")
    assert sorted(pa.table(query.read_all())["x"].to_pylist()) == left


def test_readers_of_the_change_feed_see_each_deleted_row_once(tmp_path: Path) -> None:
    store = LocalStore(tmp_path.as_uri())
    table = metadata(enableDeletionVectors="true", enableChangeDataFeed="true")
    feature = protocol(3, 7, readerFeatures=NAMES, writerFeatures=[*NAMES, "changeDataFeed"])
    state = TableState(TABLE, store.root, 1_000)
    for version, rows in enumerate(([info(), feature, table], [info(), *files(tmp_path)])):
        store.put(in_log(commit_name(version)), builders.to_bytes(rows))
        made = builders.commit(version, *rows)
        state = evolve(state, VersionLanded(entry_of(made, sha256(made.encode()), 1)))
    overlapping = [range(100), range(50, 150), range(ROWS, ROWS + 2_000, 2)]
    batch = []
    for offset, values in enumerate(overlapping):
        candidate = read_record(builders.value_of(deleting(store, values, 1)), offset, Policy())
        assert isinstance(candidate, Candidate)
        batch.append(candidate)
    known = ReadCache(store).learn(state, batch, Policy())
    assert not wanted(state, batch, known, Policy().vector_bytes_max)
    decided = plan(state, batch, Policy(), DecisionTerms(NOW_MS, 1), known)
    assert [verdict.status for verdict in decided.verdicts] == ["committed"] * 3
    origin = EntryWriter(TABLE, "c/t/0", "tidegate/t/0", "Tidegate")
    encoded = encode(state, decided.group, origin, Attempt(builders.an_id(), NOW_MS))
    if encoded.merged.written is not None:
        store.put(*encoded.merged.written)
    store.put(in_log(commit_name(2)), encoded.content)
    changes = read_changes(store, 2, 2)
    assert set(changes["_change_type"].to_pylist()) == {"delete"}
    meant = sorted({value for values in overlapping for value in values})
    assert sorted(changes["x"].to_pylist()) == meant
