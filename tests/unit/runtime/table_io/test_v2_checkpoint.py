"""V2 checkpoints name the sidecars of the last one again, and write what changed."""

from collections.abc import Iterator
from itertools import count
from typing import NoReturn
from uuid import UUID

import pyarrow.parquet as pq
import pytest

from tests.builders import NOW_MS, Row, add, info, metadata, remove, to_bytes
from tests.fakes.memory_store import MemoryStore
from tests.support.refusals import refused
from tests.support.table_files import protocol_listing
from tidegate_delta.checkpoints.rows_since_checkpoint import CheckpointState
from tidegate_delta.errors import BrokenLog, Unavailable
from tidegate_delta.log.file_names import commit_name, in_log
from tidegate_runtime.table_io import checkpoint_writer, stored_checkpoint
from tidegate_runtime.table_io.checkpoint_writer import WrittenCheckpoint, write_classic, write_v2
from tidegate_runtime.table_io.open_table import open_snapshot
from tidegate_runtime.table_io.stored_checkpoint import follow, load_state

WEEK_MS = 7 * 24 * 60 * 60 * 1000


@pytest.fixture(autouse=True)
def _small_sidecars(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint_writer, "SIDECAR_FILES", 10)
    monkeypatch.setattr(checkpoint_writer, "WHOLE_ROWS_MAX", 0)
    monkeypatch.setattr(stored_checkpoint, "WHOLE_ROWS_MAX", 0)


class Table:
    """A table in memory with V2 checkpoints, followed from its first version on."""

    def __init__(self) -> None:
        self.store = MemoryStore()
        self._ids = map(lambda number: UUID(int=number), count(1))
        old = [add(f"old-{number}") for number in range(30)]
        self.put(0, info(), protocol_listing("v2Checkpoint"), metadata(), *old)
        self.state: CheckpointState = load_state(self.store)

    def put(self, version: int, *rows: Row) -> bytes:
        content = to_bytes(rows)
        self.store.files[in_log(commit_name(version))] = content
        return content

    def commit(self, *rows: Row) -> None:
        content = self.put(self.state.version + 1, info(), *rows)
        self.state = follow(self.store, self.state, [content])

    def checkpoint(self, now_ms: int = NOW_MS) -> set[str]:
        """Write a checkpoint, and return the sidecars that it wrote."""
        before = self.sidecars
        self.state = self.written(now_ms).state
        return self.sidecars - before

    def written(self, now_ms: int = NOW_MS) -> WrittenCheckpoint:
        return write_v2(self.store, self.state, now_ms, lambda: next(self._ids))

    @property
    def sidecars(self) -> set[str]:
        return {path for path in self.store.files if "/_sidecars/" in path}

    @property
    def named(self) -> set[str]:
        return {part.path for part in self.state.stored}

    def paths_alone(self) -> list[str]:
        """Return the live files as the newest checkpoint alone says."""
        alone = MemoryStore()
        alone.files = {
            path: content
            for path, content in self.store.files.items()
            if not path.endswith(".json") or f"{self.state.version:020d}.checkpoint" in path
        }
        return sorted(open_snapshot(alone).files["path"].to_pylist())


@pytest.fixture
def table() -> Iterator[Table]:
    table = Table()
    assert len(table.checkpoint()) == 3
    yield table
    whole = sorted(open_snapshot(table.store).files["path"].to_pylist())
    assert table.paths_alone() == whole


def rows_in(table: Table, path: str) -> int:
    with table.store.open(path) as file:
        return int(pq.read_metadata(file).num_rows)


def test_new_files_go_into_a_sidecar_of_their_own(table: Table) -> None:
    before = table.named
    table.commit(add("new-1"), add("new-2"))
    [written] = table.checkpoint()
    assert rows_in(table, written) == 2
    assert table.named == {*before, written}


def failing(*_: object) -> NoReturn:
    raise Unavailable("no")


def test_a_store_that_fails_between_the_files_leaves_no_checkpoint(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What names the sidecars is written last."""
    before = {path for path in table.store.files if "/_sidecars/" not in path}
    table.commit(remove("old-3", deletionTimestamp=NOW_MS))
    sidecars = table.sidecars
    with monkeypatch.context() as patched:
        patched.setattr(table.store, "put_if_absent", failing)
        with pytest.raises(Unavailable):
            table.written()
    assert len(table.sidecars - sidecars) == 2
    added = {path for path in table.store.files if "/_sidecars/" not in path} - before
    assert added == {in_log(commit_name(1))}
    table.checkpoint()


def test_only_sidecars_that_lost_a_file_are_written_anew(table: Table) -> None:
    before = table.named
    table.commit(remove("old-3", deletionTimestamp=NOW_MS))
    rewritten, of_tombstones = sorted(table.checkpoint(), key=lambda path: -rows_in(table, path))
    assert (rows_in(table, rewritten), rows_in(table, of_tombstones)) == (9, 1)
    assert len(table.named & before) == 2


def test_a_sidecar_without_a_live_file_is_named_no_more(table: Table) -> None:
    before = table.named
    table.commit(*(remove(f"old-{number}", deletionTimestamp=0) for number in range(10)))
    assert table.checkpoint() == set()
    assert len(table.named) == len(before) - 1


def test_small_sidecars_are_joined_so_that_their_number_stays_small(table: Table) -> None:
    for number in range(40):
        table.commit(add(f"new-{number}"))
        table.checkpoint()
    assert len(table.named) <= 3 + 40 // 10 + 4
    assert max(rows_in(table, path) for path in table.named) <= 10


def test_a_file_that_is_added_again_is_in_the_checkpoint_once(table: Table) -> None:
    table.commit(add("old-3", size=7))
    table.checkpoint()
    files = open_snapshot(table.store).files
    assert files.filter([path == "old-3" for path in files["path"].to_pylist()])[
        "size"
    ].to_pylist() == [7]


def test_a_tombstone_of_a_file_that_is_restored_goes(table: Table) -> None:
    table.commit(remove("old-3", deletionTimestamp=NOW_MS))
    table.checkpoint()
    table.commit(add("old-3"))
    table.checkpoint()
    assert sum(part.tombstones.count for part in table.state.stored) == 0


def test_expired_tombstones_go_with_their_sidecar(table: Table) -> None:
    table.commit(remove("old-3", deletionTimestamp=NOW_MS))
    table.checkpoint()
    assert sum(part.tombstones.count for part in table.state.stored) == 1
    table.commit(add("new"))
    table.checkpoint(NOW_MS + 2 * WEEK_MS)
    assert sum(part.tombstones.count for part in table.state.stored) == 0


@pytest.mark.parametrize(
    "property_", ["checkpoint.writeStatsAsStruct", "checkpoint.writeStatsAsJson"]
)
def test_of_another_shape_every_sidecar_is_written_anew(table: Table, property_: str) -> None:
    before = table.named
    value = "true" if property_.endswith("Struct") else "false"
    table.commit(metadata(**{property_: value}))
    table.checkpoint()
    assert not table.named & before


def test_a_sidecar_that_is_gone_is_not_named(table: Table) -> None:
    gone = min(table.named)
    content = table.store.files.pop(gone)
    table.commit(add("new"))
    with refused(BrokenLog, "CorruptCheckpoint") as raised:
        table.written()
    assert gone.rpartition("/")[2] in str(raised.value)
    table.store.files[gone] = content
    table.checkpoint()


def test_a_sidecar_of_another_length_is_written_anew(table: Table) -> None:
    changed = min(table.named)
    table.store.files[changed] += b"."
    with pytest.raises(BrokenLog):
        table.written()
    table.store.files[changed] = table.store.files[changed][:-1]
    table.commit(add("new"))
    table.checkpoint()


def test_a_classic_checkpoint_follows_one_with_sidecars_and_back(table: Table) -> None:
    table.commit(add("new"), remove("old-3", deletionTimestamp=NOW_MS))
    table.state = write_classic(table.store, table.state, NOW_MS).state
    assert {part.path for part in table.state.stored} == {in_log(f"{1:020d}.checkpoint.parquet")}
    table.commit(remove("old-4", deletionTimestamp=NOW_MS))
    table.checkpoint()
    assert all("/_sidecars/" in path for path in table.named)
