import json
import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from tests.fakes.memory_store import MemoryStore
from tests.support.table_files import NotingListings, protocol_listing
from tidegate_delta.errors import BrokenLog, InvalidRequest, TidegateError, UnsupportedFeature
from tidegate_delta.features.feature import FeatureKind, Support
from tidegate_delta.features.supported_features import FEATURES
from tidegate_delta.log.file_names import (
    LAST_CHECKPOINT,
    checkpoint_name,
    checksum_name,
    commit_name,
    compacted_name,
    in_log,
)
from tidegate_delta.snapshots.file_action_columns import KEY_SCHEMA
from tidegate_runtime.storage.log_store import FileStat
from tidegate_runtime.table_io import log_reader
from tidegate_runtime.table_io.log_reader import REACH
from tidegate_runtime.table_io.open_table import (
    head_version,
    log_extent,
    open_keys,
    open_snapshot,
    read_commit,
    refresh,
    version_at,
)

SCHEMA = '{"type":"struct","fields":[{"name":"a","type":"long","nullable":true,"metadata":{}}]}'
VECTOR = {"storageType": "i", "pathOrInlineDv": "x", "sizeInBytes": 1, "cardinality": 1}
PROTOCOL = {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}


def metadata(**configuration: str) -> dict[str, Any]:
    return {
        "metaData": {
            "id": "t",
            "format": {"provider": "parquet", "options": {}},
            "schemaString": SCHEMA,
            "partitionColumns": [],
            "configuration": configuration,
        }
    }


def add(path: str, **more: Any) -> dict[str, Any]:
    row = {"path": path, "partitionValues": {}, "size": 1, "modificationTime": 1}
    return {"add": {**row, "dataChange": True, **more}}


def remove(path: str) -> dict[str, Any]:
    return {"remove": {"path": path, "dataChange": True, "deletionTimestamp": 1}}


def lines(*rows: dict[str, Any]) -> bytes:
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


def put(store: MemoryStore, version: int, *rows: dict[str, Any], at_ms: int = 0) -> None:
    store.files[in_log(commit_name(version))] = lines(*rows)
    store.modified[in_log(commit_name(version))] = at_ms


V2_NAME = f"{1:020d}.checkpoint.{uuid.UUID(int=1)}.json"


def v2_checkpoint(*sidecars: str, version: int = 1) -> bytes:
    """Return a V2 checkpoint, with the actions in sidecars or, without any, in the file itself."""
    rows = [{"checkpointMetadata": {"version": version}}, PROTOCOL, metadata()]
    about = {"sizeInBytes": 1, "modificationTime": 1}
    rows += [{"sidecar": {"path": path, **about}} for path in sidecars]
    return lines(*rows, *(() if sidecars else (add(f"f{v}") for v in range(version + 1))))


def hint(store: MemoryStore, content: bytes) -> None:
    store.files[in_log(LAST_CHECKPOINT)] = content


def table(versions: int = 3) -> MemoryStore:
    """Version v adds file fv; nothing is removed."""
    store = MemoryStore()
    put(store, 0, PROTOCOL, metadata(), add("f0"))
    for version in range(1, versions):
        put(store, version, add(f"f{version}"), at_ms=version * 1000)
    return store


def paths(store: MemoryStore, version: int | None = None) -> list[str]:
    return sorted(open_snapshot(store, version).files["path"].to_pylist())


def refusal(store: MemoryStore, **asked: int) -> str:
    with pytest.raises(TidegateError, match="memory://t") as caught:
        open_snapshot(store, **asked)
    return caught.value.error_class


def test_a_table_is_opened_as_it_is_and_as_it_was() -> None:
    store = table()
    put(store, 3, remove("f0"))
    assert paths(store) == ["f1", "f2"]
    assert paths(store, 1) == ["f0", "f1"]
    assert open_snapshot(store).version == 3


@pytest.mark.parametrize("version", [-1, 3])
def test_a_version_that_never_was_is_not_found(version: int) -> None:
    assert refusal(table(), version=version) == "VersionNotFound"


def test_an_empty_folder_is_no_table() -> None:
    assert refusal(MemoryStore()) == "NotADeltaTable"


def test_a_version_and_a_timestamp_are_not_accepted_together() -> None:
    with pytest.raises(InvalidRequest):
        open_snapshot(table(), version=1, timestamp_ms=1)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[]",
        b'{"version":"2"}',
        b'{"version":-1}',
        b'{"version":2,"size":1}',
        b'{"version":99,"size":1}',
        b'{"version":0,"size":1}',
    ],
)
def test_a_hint_that_leads_nowhere_changes_nothing(content: bytes) -> None:
    store = table(5)
    hint(store, content)
    assert paths(store) == [f"f{version}" for version in range(5)]
    assert paths(store, 1) == ["f0", "f1"]


class Torn(MemoryStore):
    """Lists the log without version 1, as a folder may to which files come."""

    def list_from(self, folder: str, start: str) -> Iterator[FileStat]:
        for stat in super().list_from(folder, start):
            if commit_name(1) not in stat.path:
                yield stat


def test_a_commit_that_came_while_its_folder_was_listed_is_found_by_name() -> None:
    store = Torn()
    put(store, 0, PROTOCOL, metadata())
    for version in (1, 2):
        put(store, version, add(f"f{version}"))
    assert open_snapshot(store).version == 2
    del store.files[in_log(commit_name(1))]
    with pytest.raises(BrokenLog, match="version 1 is missing"):
        open_snapshot(store)


def test_a_gap_is_refused_with_a_hint_behind_it_too() -> None:
    store = table(5)
    del store.files[in_log(commit_name(3))]
    assert refusal(store) == "LogGap"
    hint(store, b'{"version":4,"size":1}')
    assert refusal(store) == "LogGap"


@pytest.mark.parametrize("content", [b"", b"\n", b'{"add":{"path":', b"torn", b"[]\n"])
def test_a_torn_commit_is_refused(content: bytes) -> None:
    store = table()
    store.files[in_log(commit_name(1))] = content
    assert refusal(store) == "CorruptCommit"
    assert paths(store, 0) == ["f0"]


def test_a_torn_commit_among_many_is_refused_by_its_name_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(log_reader, "TOGETHER_BYTES", 1)
    store = table(20)
    store.files[in_log(commit_name(11))] = b'{"add":'

    with pytest.raises(BrokenLog, match=f"table memory://t: {commit_name(11)} holds") as refused:
        open_snapshot(store)
    assert str(refused.value).count("memory://") == 1
    assert refused.value.error_class == "CorruptCommit"


@pytest.mark.parametrize(
    ("rows", "error"), [((metadata(),), "MissingProtocol"), ((PROTOCOL,), "MissingMetadata")]
)
def test_a_log_without_its_head_is_refused(rows: tuple[dict[str, Any], ...], error: str) -> None:
    store = MemoryStore()
    put(store, 0, *rows)
    assert refusal(store) == error


def test_an_empty_checkpoint_counts_as_none() -> None:
    store = table()
    store.files[in_log(checkpoint_name(1))] = b""
    assert paths(store) == ["f0", "f1", "f2"]


def test_a_torn_checkpoint_is_passed_over_where_the_commits_are_there() -> None:
    store = table()
    store.files[in_log(checkpoint_name(1))] = b"PAR1 torn"
    hint(store, b'{"version":1,"size":3}')
    assert paths(store) == ["f0", "f1", "f2"]
    assert paths(store, 1) == ["f0", "f1"]


@pytest.mark.parametrize("name", [checkpoint_name(1), V2_NAME, V2_NAME.replace("json", "parquet")])
def test_a_torn_checkpoint_that_is_needed_is_refused(name: str) -> None:
    store = table()
    store.files[in_log(name)] = b"PAR1 torn"
    del store.files[in_log(commit_name(0))]
    assert refusal(store) == "CorruptCheckpoint"


def test_a_missing_sidecar_is_refused_where_the_checkpoint_is_needed() -> None:
    store = table()
    store.files[in_log(V2_NAME)] = v2_checkpoint("gone.parquet")
    assert paths(store) == ["f0", "f1", "f2"]
    del store.files[in_log(commit_name(0))]
    assert refusal(store) == "CorruptCheckpoint"


def test_another_checkpoint_of_the_version_serves_where_one_is_torn() -> None:
    store = table()
    store.files[in_log(V2_NAME)] = v2_checkpoint("gone.parquet")
    store.files[in_log(V2_NAME.replace("-0000", "-1111"))] = v2_checkpoint()
    del store.files[in_log(commit_name(0))]
    assert paths(store) == ["f0", "f1", "f2"]


def test_a_log_compaction_that_names_a_file_twice_is_passed_over() -> None:
    store = table(4)
    unordered = lines(add("f1"), add("f2"), remove("f1"), remove("f0"))
    store.files[in_log(compacted_name(1, 2))] = unordered
    assert paths(store) == ["f0", "f1", "f2", "f3"]
    del store.files[in_log(commit_name(1))]
    assert refusal(store) == "LogGap"


def test_only_what_is_near_the_version_is_listed() -> None:
    store = NotingListings(table(REACH * 2 + 5))
    store.files[in_log(checkpoint_name(REACH * 2))] = b"torn"
    names = [f"{version:020d}.checkpoint.{uuid.UUID(int=version)}.json" for version in (REACH, 150)]
    for name in names:
        store.files[in_log(name)] = v2_checkpoint(version=int(name[:20]))
    assert open_snapshot(store, REACH + 10).version == REACH + 10
    assert len(store.listed) < REACH + 20
    store.listed.clear()
    hint(store, b'{"version":150,"size":1}')
    assert open_snapshot(store, 160).version == 160
    assert len(store.listed) < 20


def test_keys_are_those_of_the_snapshot() -> None:
    store = table()
    put(store, 3, remove("f0"), {"txn": {"appId": "a", "version": 7}})
    store.files[in_log(V2_NAME)] = v2_checkpoint()
    live, snapshot = open_keys(store), open_snapshot(store)
    assert live.files.schema == KEY_SCHEMA
    assert sorted(live.files["path"].to_pylist()) == paths(store)
    assert (live.version, live.protocol, live.metadata) == (
        snapshot.version,
        snapshot.protocol,
        snapshot.metadata,
    )
    assert live.app_transactions == snapshot.app_transactions
    assert (before := open_keys(store, 1)).version == 1
    assert sorted(before.files["path"].to_pylist()) == paths(store, 1)


def test_a_log_compaction_is_read_instead_of_its_commits() -> None:
    store = table(4)
    compacted = lines(add("f1"), add("f2"), remove("f0"))
    store.files[in_log(compacted_name(1, 2))] = compacted
    assert paths(store) == ["f1", "f2", "f3"]


def test_features_we_lack_are_refused_by_name() -> None:
    store = table()
    put(store, 3, protocol_listing("catalogManaged"))
    with pytest.raises(UnsupportedFeature, match="memory://t") as caught:
        open_snapshot(store)
    assert caught.value.feature == "catalogManaged"
    assert "catalogManaged" in FEATURES
    assert paths(store, 2) == ["f0", "f1", "f2"]
    with pytest.raises(UnsupportedFeature):
        refresh(store, open_snapshot(store, 2))


def test_a_file_with_a_vector_that_no_feature_announced_is_refused() -> None:
    store = table()
    before = open_snapshot(store)
    put(store, 3, remove("f1"), add("f1", deletionVector=VECTOR))
    with pytest.raises(UnsupportedFeature, match="deletion vectors"):
        open_snapshot(store)
    with pytest.raises(UnsupportedFeature, match="deletion vectors"):
        refresh(store, before)


def test_a_file_with_a_vector_that_a_feature_announced_is_a_file_of_the_table() -> None:
    store = table()
    before = open_snapshot(store)
    listing = protocol_listing("deletionVectors")
    put(store, 3, listing, remove("f1"), add("f1", deletionVector=VECTOR))
    for snapshot in (open_snapshot(store), refresh(store, before)):
        assert sorted(snapshot.file_keys.to_pylist()) == ["f0", "f1\0ix", "f2"]


def test_vectors_that_were_gone_before_their_feature_was_are_no_matter() -> None:
    store = table()
    before = open_snapshot(store)
    put(store, 3, protocol_listing("deletionVectors"))
    put(store, 4, remove("f1"), add("f1", deletionVector=VECTOR))
    put(store, 5, {"remove": {**remove("f1")["remove"], "deletionVector": VECTOR}}, add("f3"))
    put(store, 6, {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}})
    assert sorted(refresh(store, before).file_keys.to_pylist()) == ["f0", "f2", "f3"]


def test_a_log_compaction_that_was_not_reconciled_is_not_believed() -> None:
    store = table(4)
    for rows in (
        [remove("f0"), add("f1"), add("f2"), remove("f2")],
        [remove("f0"), add("f1"), add("f1", deletionVector=VECTOR), add("f2")],
    ):
        store.files[in_log(compacted_name(1, 2))] = lines(*rows)
        assert paths(store) == ["f0", "f1", "f2", "f3"]
    del store.files[in_log(commit_name(2))]
    assert refusal(store) == "LogGap"


def test_refreshing_comes_to_what_opening_comes_to() -> None:
    store = table(2)
    before = open_snapshot(store)
    put(store, 2, add("f2"), {"txn": {"appId": "a", "version": 7}})
    put(store, 3, remove("f0"))
    after = refresh(store, before)
    assert after.version == 3
    assert sorted(after.files["path"].to_pylist()) == paths(store)
    assert after.app_transactions == open_snapshot(store).app_transactions
    assert refresh(store, after) is after


def test_the_head_is_found_from_anywhere_below_it() -> None:
    store = table(12)
    store.files[in_log(checksum_name(99))] = b"{}"
    store.files[in_log(compacted_name(10, 98))] = b"{}"
    assert head_version(store) == 11
    assert head_version(store, 7) == 11
    assert head_version(store, 50) == 11
    assert head_version(MemoryStore()) is None


def test_a_listing_says_the_oldest_commit_and_how_much_is_read_to_open_a_table() -> None:
    store = table(4)
    del store.files[in_log(commit_name(0))]
    sizes = [len(store.files[in_log(commit_name(version))]) for version in range(1, 4)]
    store.files[in_log(checksum_name(3))] = b"{}"
    store.files[in_log(compacted_name(1, 3))] = b"{}"
    assert log_extent(store) == (False, 1, sum(sizes))
    store.files[in_log(checkpoint_name(2))] = b"c" * 1_000
    assert log_extent(store) == (False, 1, 1_000 + sum(sizes[1:]))


def test_without_commits_a_listing_names_no_oldest_one() -> None:
    store = MemoryStore()
    assert log_extent(store) == (True, None, 0)
    store.files[in_log(checkpoint_name(2))] = b"c" * 1_000
    assert log_extent(store) == (False, None, 1_000)


def test_the_size_of_a_v2_checkpoint_is_not_known_from_a_listing() -> None:
    store = table(4)
    name = f"{2:020d}.checkpoint.{uuid.UUID(int=1)}.parquet"
    store.files[in_log(name)] = b"c" * 1_000
    assert log_extent(store).opened_bytes is None


def test_a_commit_is_read_with_its_bytes() -> None:
    store = table()
    result = read_commit(store, 1)
    assert result is not None
    commit, content = result
    assert (commit.version, content) == (1, store.files[in_log(commit_name(1))])
    assert read_commit(store, 3) is None
    store.files[in_log(commit_name(3))] = b'{"add":'
    with pytest.raises(BrokenLog, match="memory://t"):
        read_commit(store, 3)


@pytest.mark.parametrize(("at_ms", "version"), [(0, 0), (999, 0), (1000, 1), (2000, 2)])
def test_a_point_in_time_is_the_version_that_was_newest(at_ms: int, version: int) -> None:
    store = table()
    assert version_at(store, at_ms) == version
    assert open_snapshot(store, timestamp_ms=at_ms).version == version


def test_a_time_before_or_after_the_log_is_refused() -> None:
    assert refusal(table(), timestamp_ms=-1) == "TimestampBeforeEarliest"
    assert refusal(table(), timestamp_ms=2001) == "TimestampAfterLatest"


@pytest.mark.parametrize(
    "name", [feature.name for feature in FEATURES.values() if feature.reads is Support.YES]
)
def test_a_table_with_a_feature_that_we_read_is_opened(name: str) -> None:
    listed = [name, *FEATURES[name].needs]
    readers = [item for item in listed if FEATURES[item].kind is FeatureKind.READER_WRITER]
    asked: dict[str, Any] = {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": listed}
    if readers:
        asked |= {"minReaderVersion": 3, "readerFeatures": readers}
    store = table(1)
    put(store, 1, {"protocol": asked}, add("f1"))
    assert paths(store) == ["f0", "f1"]
