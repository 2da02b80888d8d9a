import pyarrow as pa
import pytest

from tests.definitions import one_file
from tidegate_delta.log.actions import (
    Action,
    Add,
    CommitInfo,
    DomainMetadata,
    Metadata,
    Protocol,
    Remove,
    Txn,
)
from tidegate_delta.log.commit import Commit
from tidegate_delta.log.file_names import Version
from tidegate_delta.snapshots.file_action_columns import ADD_SCHEMA, REMOVE_SCHEMA
from tidegate_delta.snapshots.replay import keys
from tidegate_delta.snapshots.snapshot import CHUNKS_MAX, Snapshot, evolve

PROTOCOL = Protocol(min_reader_version=1, min_writer_version=2)
METADATA = Metadata(id="t", schema_string="{}")
EMPTY = Snapshot(
    Version(0), PROTOCOL, METADATA, ADD_SCHEMA.empty_table(), REMOVE_SCHEMA.empty_table()
)


def add(path: str, size: int = 1) -> Add:
    return one_file(path, size=size, modification_time=1)


def remove(path: str) -> Remove:
    return Remove(path=path, data_change=True, deletion_timestamp=1)


def after(snapshot: Snapshot, *actions: Action) -> Snapshot:
    return evolve(snapshot, Commit(Version(snapshot.version + 1), actions))


def paths(table: pa.Table) -> list[str]:
    return sorted(table["path"].to_pylist())


def test_files_join_and_leave() -> None:
    snapshot = after(after(EMPTY, add("a"), add("b")), remove("a"), add("c"))
    assert snapshot.version == 2
    assert paths(snapshot.files) == ["b", "c"]
    assert paths(snapshot.tombstones) == ["a"]
    assert paths(EMPTY.files) == []


def test_a_file_that_comes_back_has_no_tombstone() -> None:
    snapshot = after(after(after(EMPTY, add("a")), remove("a")), add("a", size=2))
    assert snapshot.files["size"].to_pylist() == [2]
    assert snapshot.tombstones.num_rows == 0


def test_a_commit_says_only_what_changes() -> None:
    renamed = METADATA.with_(name="new")
    snapshot = after(after(EMPTY, Txn(app_id="a", version=1)), renamed, Txn(app_id="b", version=2))
    assert snapshot.metadata.name == "new"
    assert snapshot.protocol == PROTOCOL
    assert set(snapshot.app_transactions) == {"a", "b"}


def test_a_domain_can_be_removed() -> None:
    here = DomainMetadata(domain="d", configuration="1")
    snapshot = after(EMPTY, here)
    assert snapshot.domains == {"d": here}
    assert after(snapshot, here.with_(removed=True)).domains == {}


def test_the_time_is_that_of_the_versions_own_commit() -> None:
    snapshot = after(EMPTY, CommitInfo(in_commit_timestamp=5))
    assert snapshot.in_commit_timestamp == 5
    assert after(snapshot, CommitInfo()).in_commit_timestamp is None


@pytest.mark.parametrize("version", [0, 2])
def test_only_the_next_version_is_accepted(version: int) -> None:
    with pytest.raises(AssertionError, match="left out"):
        evolve(EMPTY, Commit(Version(version), ()))


def test_many_commits_do_not_leave_many_chunks() -> None:
    snapshot = EMPTY
    for number in range(2 * CHUNKS_MAX):
        snapshot = after(snapshot, add(f"f{number}"))
    assert snapshot.files.num_rows == 2 * CHUNKS_MAX
    assert snapshot.files["path"].num_chunks <= CHUNKS_MAX + 1
    assert snapshot.file_keys.to_pylist() == keys(snapshot.files).to_pylist()
