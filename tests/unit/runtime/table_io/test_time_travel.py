import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.checkpoints import put_classic
from tests.fakes.memory_store import MemoryStore
from tests.support.refusals import refused
from tests.support.table_files import NotingListings
from tidegate_delta.errors import BrokenLog, InvalidRequest
from tidegate_delta.log.file_names import commit_name, in_log
from tidegate_runtime.storage.log_store import FileStat
from tidegate_runtime.table_io.open_table import open_snapshot
from tidegate_runtime.table_io.time_travel import (
    UNEVEN,
    commit_timestamps,
    find_version,
    own_timestamp,
    versions_between,
)

SCHEMA = '{"type":"struct","fields":[]}'


def put(store: MemoryStore, version: int, at_ms: int, *rows: dict[str, Any]) -> None:
    content = b"".join(json.dumps(row).encode() + b"\n" for row in rows)
    store.files[in_log(commit_name(version))] = content
    store.modified[in_log(commit_name(version))] = at_ms


def metadata(**configuration: str) -> dict[str, Any]:
    named = {f"delta.{key}": text for key, text in configuration.items()}
    return {"metaData": {"id": "t", "schemaString": SCHEMA, "configuration": named}}


def info(ict: int | None = None) -> dict[str, Any]:
    return {"commitInfo": {} if ict is None else {"inCommitTimestamp": ict}}


PROTOCOL = {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}


def by_age(*times: int) -> MemoryStore:
    store = MemoryStore()
    for version, at_ms in enumerate(times):
        put(store, version, at_ms, info(), *((PROTOCOL, metadata()) if version == 0 else ()))
    return store


def enabled_at_two() -> MemoryStore:
    """Versions 0 and 1 go by file age; commits from version 2 on carry 100, 110 and 120."""
    store = by_age(10, 20)
    settings = {
        "enableInCommitTimestamps": "true",
        "inCommitTimestampEnablementVersion": "2",
        "inCommitTimestampEnablementTimestamp": "100",
    }
    put(store, 2, 5000, info(100), metadata(**settings))
    put(store, 3, 1, info(110))
    put(store, 4, 2, info(120))
    return store


def found(store: MemoryStore, at_ms: int) -> int:
    return find_version(store, open_snapshot(store), at_ms)


def test_ages_that_do_not_rise_are_made_to() -> None:
    store = by_age(10, 10, 5, 20)
    assert commit_timestamps(store, open_snapshot(store), 0, 3) == {0: 10, 1: 11, 2: 12, 3: 20}
    assert [found(store, at_ms) for at_ms in (10, 11, 12, 19, 20)] == [0, 1, 2, 2, 3]


def test_only_the_versions_requested_are_listed() -> None:
    store = by_age(10, 20, 30)
    assert commit_timestamps(store, open_snapshot(store), 1, 1) == {1: 20}


def test_time_is_split_where_commits_begin_to_carry_their_own() -> None:
    store = enabled_at_two()
    times = commit_timestamps(store, open_snapshot(store), 0, 4)
    assert times == {0: 10, 1: 20, 2: 100, 3: 110, 4: 120}
    asked = (10, 20, 99, 100, 109, 110, 119, 120)
    assert [found(store, at_ms) for at_ms in asked] == [0, 1, 1, 2, 2, 3, 3, 4]


def test_a_table_created_with_in_commit_timestamps_never_reads_file_times() -> None:
    store = MemoryStore()
    put(store, 0, 9999, info(50), PROTOCOL, metadata(enableInCommitTimestamps="true"))
    put(store, 1, 1, info(60))
    assert [found(store, at_ms) for at_ms in (50, 59, 60)] == [0, 0, 1]


@pytest.mark.parametrize(
    ("store", "at_ms", "error"),
    [
        (by_age(10, 20), 9, "TimestampBeforeEarliest"),
        (enabled_at_two(), 9, "TimestampBeforeEarliest"),
        (by_age(10, 20), 21, "TimestampAfterLatest"),
        (enabled_at_two(), 121, "TimestampAfterLatest"),
    ],
    ids=[
        "before the first commit, by the age of files",
        "before the first commit, which carries no time of its own",
        "after the last commit, by the age of files",
        "after the last commit, which carries its own time",
    ],
)
def test_a_time_outside_the_log_is_refused(store: MemoryStore, at_ms: int, error: str) -> None:
    with refused(InvalidRequest, error):
        found(store, at_ms)


def test_a_commit_without_the_time_it_promised_is_refused() -> None:
    store = enabled_at_two()
    put(store, 3, 1, info())
    with pytest.raises(BrokenLog, match="memory://t"):
        own_timestamp(store, 3)


def between(store: MemoryStore, start_ms: int, end_ms: int | None = None) -> tuple[int, int | None]:
    return versions_between(store, open_snapshot(store), start_ms, end_ms)


@pytest.mark.parametrize(
    ("start_ms", "end_ms", "versions"),
    [
        (0, None, (0, None)),
        (10, 10, (0, 0)),
        (11, 25, (1, 1)),
        (20, 99, (1, 1)),
        (21, 100, (2, 2)),
        (99, 119, (2, 3)),
        (101, 120, (3, 4)),
        (120, None, (4, None)),
    ],
)
def test_changes_between_two_times_are_those_of_the_versions_made_then(
    start_ms: int, end_ms: int | None, versions: tuple[int, int | None]
) -> None:
    assert between(enabled_at_two(), start_ms, end_ms) == versions


@pytest.mark.parametrize(
    ("start_ms", "end_ms", "error"),
    [
        (121, None, "TimestampAfterLatest"),
        (10, 121, "TimestampAfterLatest"),
        (1, 9, "TimestampBeforeEarliest"),
        (21, 99, "InvalidVersionRange"),
        (100, 20, "InvalidVersionRange"),
    ],
)
def test_times_out_of_the_range_are_refused(start_ms: int, end_ms: int | None, error: str) -> None:
    with refused(InvalidRequest, error, match="memory://t"):
        between(enabled_at_two(), start_ms, end_ms)


def test_a_time_is_found_without_listing_what_lies_past_it() -> None:
    own = {"enableInCommitTimestamps": "true"}
    late = {f"inCommitTimestampEnablement{end}": "900" for end in ("Version", "Timestamp")}
    for configuration, asked in ((own, 500), (own | late, 950)):
        store = by_age(0)
        put(store, 0, 0, info(0), PROTOCOL, metadata(**configuration))
        for version in range(1, 1_000):
            put(store, version, version, info(version))
        listed = NotingListings(store)
        head = open_snapshot(listed)
        listed.listed.clear()
        assert find_version(listed, head, asked) == asked
        assert versions_between(listed, head, asked, asked + 1) == (asked, asked + 1)
        assert len(listed.listed) < 10


def test_times_of_some_versions_are_read_from_a_listing_near_them() -> None:
    store = by_age(*range(1_000))
    listed = NotingListings(store)
    head = open_snapshot(listed)
    listed.listed.clear()
    assert commit_timestamps(listed, head, 500, 502) == {500: 500, 501: 501, 502: 502}
    assert len(listed.listed) <= UNEVEN + 4


def test_ages_are_listed_up_to_where_commits_carry_their_own_time() -> None:
    store = enabled_at_two()
    for version in range(5, 500):
        put(store, version, 3, info(120 + version))
    listed = NotingListings(store)
    head = open_snapshot(listed)
    listed.listed.clear()
    assert find_version(listed, head, 20) == 1
    assert versions_between(listed, head, 11, 50) == (1, 1)
    assert len(listed.listed) < 20


def test_a_log_that_begins_with_a_checkpoint_is_travelled_from_there() -> None:
    store = by_age(10, 20, 30, 40)
    snapshot = open_snapshot(store, 1)
    put_classic(store, snapshot, 0)
    del store.files[in_log(commit_name(0))]
    assert [found(store, at_ms) for at_ms in (20, 30, 40)] == [1, 2, 3]
    oldest = "oldest that can be read is version 1"
    with refused(InvalidRequest, "TimestampBeforeEarliest", match=oldest):
        found(store, 19)


def test_a_table_with_in_commit_timestamps_is_resolved_without_listing_its_log() -> None:
    store = enabled_at_two()
    head = open_snapshot(store)

    class Unlisted(MemoryStore):
        def list_from(self, folder: str, start: str) -> Iterator[FileStat]:
            raise AssertionError(f"{folder} is listed from {start!r}")

    blind = Unlisted()
    blind.files = store.files
    assert commit_timestamps(blind, head, 2, 5) == {2: 100, 3: 110, 4: 120}
