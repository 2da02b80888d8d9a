import json
from collections.abc import Iterator

import pytest

from tests.builders import add, creation, info, table_in_memory, to_bytes
from tests.fakes.memory_store import MemoryStore
from tidegate_delta.checkpoints import version_checksum
from tidegate_delta.log.file_names import checksum_name, commit_name, in_log
from tidegate_delta.snapshots.snapshot import ABSENT, AGREES, NOT_ASKED, UNREADABLE, Checked
from tidegate_runtime.storage.log_store import FileStat
from tidegate_runtime.table_io.open_table import (
    checksum_contradiction,
    open_snapshot,
    refresh,
    stated_checksum,
)


def table() -> MemoryStore:
    return table_in_memory(creation(), [info(), add("a"), add("b")])


def state(store: MemoryStore, **changed: object) -> None:
    body = json.loads(version_checksum.encode(version_checksum.of(open_snapshot(store))))
    store.files[in_log(checksum_name(1))] = json.dumps({**body, **changed}).encode()


def test_a_version_without_a_checksum_file_is_taken_as_it_is() -> None:
    assert checksum_contradiction(table(), open_snapshot(table())) == ""


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"numFiles":1}'])
def test_an_unreadable_checksum_file_verifies_nothing(content: bytes) -> None:
    store = table()
    store.files[in_log(checksum_name(1))] = content
    assert stated_checksum(store, 1) is None
    assert checksum_contradiction(store, open_snapshot(store)) == ""


class RecordingStore(MemoryStore):
    """A store that records reads and counts listings."""

    def __init__(self, files: dict[str, bytes]) -> None:
        super().__init__()
        self.files, self.read_files, self.listings = files, list[str](), 0

    def read(self, path: str) -> bytes | None:
        self.read_files.append(path.rpartition("/")[2])
        return super().read(path)

    def list_from(self, folder: str, start: str) -> Iterator[FileStat]:
        self.listings += 1
        return super().list_from(folder, start)


def test_a_plain_read_learns_whether_its_checksum_file_agrees() -> None:
    store = table()
    assert open_snapshot(store).checksum == ABSENT
    state(store)
    assert open_snapshot(store).checksum == AGREES
    assert open_snapshot(store, 0).checksum == ABSENT
    state(store, numFiles=9)
    result = open_snapshot(store)
    assert (result.checksum.checked, result.checksum.fields) == (Checked.CONTRADICTS, ("numFiles",))
    assert result.files.num_rows == 2
    store.files[in_log(checksum_name(1))] = b"{"
    assert open_snapshot(store).checksum == UNREADABLE


def test_the_verdict_costs_one_request_where_there_is_a_file_and_none_where_not() -> None:
    plain, stated = table(), table()
    state(stated)
    cost = []
    for store in (plain, stated):
        asked = RecordingStore(store.files)
        open_snapshot(asked)
        cost.append((asked.listings, asked.read_files.count(checksum_name(1))))
    assert cost == [(1, 0), (1, 1)]


def test_a_doubt_is_logged_once_a_version(caplog: pytest.LogCaptureFixture) -> None:
    store = table_in_memory(creation(), [info(), add("a")], root="memory://doubted-once")
    state(store, numFiles=9)
    for _ in range(3):
        open_snapshot(store)
    [result] = [
        record.getMessage() for record in caplog.records if "doubted-once" in record.getMessage()
    ]
    for word in ("checksum_doubted", "version=1", "contradicts: numFiles"):
        assert word in result


def test_a_table_that_moved_on_is_not_verified() -> None:
    store = table()
    state(store)
    before = open_snapshot(store)
    store.files[in_log(commit_name(2))] = to_bytes([add("c")])
    assert refresh(store, before).checksum == NOT_ASKED


def test_a_version_is_what_its_checksum_file_says() -> None:
    store = table()
    state(store)
    assert checksum_contradiction(store, open_snapshot(store)) == ""


@pytest.mark.parametrize("name", ["tableSizeBytes", "numFiles"])
def test_a_contradiction_is_named_and_a_plain_read_goes_on(name: str) -> None:
    store = table()
    state(store, **{name: 999})
    assert "999, not" in checksum_contradiction(store, open_snapshot(store))
    assert open_snapshot(store).files.num_rows == 2
