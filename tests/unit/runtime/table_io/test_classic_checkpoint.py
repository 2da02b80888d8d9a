"""Classic checkpoints copy the row groups of the last one, and write anew what changed."""

import io
from collections.abc import Collection
from random import Random

import pyarrow.parquet as pq
import pytest

from tests.builders import NOW_MS, Row, add, info, metadata, protocol, remove, to_bytes
from tests.fakes.memory_store import MemoryStore
from tidegate_delta.checkpoints.rows_since_checkpoint import CheckpointState
from tidegate_delta.log.file_names import checkpoint_name, commit_name, in_log
from tidegate_runtime.table_io import checkpoint_writer, stored_checkpoint
from tidegate_runtime.table_io.checkpoint_writer import write_classic
from tidegate_runtime.table_io.open_table import open_snapshot
from tidegate_runtime.table_io.stored_checkpoint import follow, load_state

GROUP_ROWS = 10
WEEK_MS = 7 * 24 * 60 * 60 * 1000


@pytest.fixture(autouse=True)
def _small_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint_writer, "ROWS_MAX", GROUP_ROWS)
    monkeypatch.setattr(checkpoint_writer, "COPIED_ROWS_MIN", 4)
    monkeypatch.setattr(checkpoint_writer, "WHOLE_ROWS_MAX", 0)
    monkeypatch.setattr(stored_checkpoint, "WHOLE_ROWS_MAX", 0)


class Table:
    """A table in memory with classic checkpoints, followed from its first version on."""

    def __init__(self, files: int = 30) -> None:
        self.store = MemoryStore()
        self.live = {f"d/{number}" for number in range(files)}
        head = (info(), protocol(), metadata())
        self.put(0, *head, *(add(path) for path in sorted(self.live)))
        self.state = load_state(self.store)
        self.checkpoint()

    def put(self, version: int, *rows: Row) -> bytes:
        content = to_bytes(rows)
        self.store.files[in_log(commit_name(version))] = content
        return content

    def commit(self, added: set[str], removed: Collection[str] = (), *rows: Row) -> None:
        actions = [
            *(add(path) for path in sorted(added)),
            *(remove(path, deletionTimestamp=NOW_MS) for path in sorted(removed)),
        ]
        content = self.put(self.state.version + 1, info(), *actions, *rows)
        self.live = (self.live - set(removed)) | added
        self.state = follow(self.store, self.state, [content])

    def checkpoint(self, now_ms: int = NOW_MS) -> bytes:
        """Write a checkpoint, and return the file, which says what the log says."""
        self.state = write_classic(self.store, self.state, now_ms).state
        alone = MemoryStore()
        alone.files = {self.path: self.content}
        assert sorted(open_snapshot(alone).files["path"].to_pylist()) == sorted(self.live)
        again = load_state(self.store)
        for kind in ("files", "tombstones"):
            assert rows_by_group(self.state, kind) == rows_by_group(again, kind)
        assert again.checksum == self.state.checksum
        return self.content

    @property
    def path(self) -> str:
        return in_log(checkpoint_name(self.state.version))

    @property
    def content(self) -> bytes:
        return self.store.files[in_log(checkpoint_name(self.state.based_on))]


@pytest.fixture
def table() -> Table:
    return Table()


def rows_by_group(state: CheckpointState, kind: str) -> dict[tuple[str, int | None], list[str]]:
    return {
        (part.path, part.group): getattr(part, kind).rows["path"].to_pylist()
        for part in state.stored
    }


def stored_groups(content: bytes) -> list[bytes]:
    """Return the bytes of each row group that has rows of files."""
    metadata = pq.read_metadata(io.BytesIO(content))
    spans = []
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        chunks = [group.column(column) for column in range(metadata.num_columns)]
        start = min(chunk.dictionary_page_offset or chunk.data_page_offset for chunk in chunks)
        spans.append((start, start + sum(chunk.total_compressed_size for chunk in chunks)))
    return [content[start:end] for start, end in spans if b"d/" in content[start:end]]


def copied(before: bytes, after: bytes) -> int:
    return len(set(stored_groups(before)) & set(stored_groups(after)))


def test_row_groups_that_lost_no_row_are_copied(table: Table) -> None:
    before = table.content
    table.commit({"d/new"}, {"d/3"})
    assert copied(before, table.checkpoint()) == 2


def test_a_small_table_has_one_row_group() -> None:
    table = Table(files=2)
    for number in range(3):
        table.commit({f"d/new-{number}"}, {f"d/{number}"} & table.live)
        assert pq.read_metadata(io.BytesIO(table.checkpoint())).num_row_groups == 1


def test_the_number_of_row_groups_stays_small(table: Table) -> None:
    for number in range(60):
        table.commit({f"d/new-{number}"})
        content = table.checkpoint()
    assert pq.read_metadata(io.BytesIO(content)).num_row_groups <= 90 / GROUP_ROWS + 5


def test_after_any_adds_and_removes_the_checkpoint_equals_the_log() -> None:
    random, table = Random(7), Table(files=100)
    count = 0
    for number in range(40):
        known = sorted(table.live)
        start = random.randrange(len(known))
        removed = {*random.sample(known, random.randrange(3)), *known[start : start + 5]}
        added = {f"d/new-{number}-{file}" for file in range(random.randrange(12))}
        again = {f"d/{random.randrange(100)}"} - removed
        table.commit(added | again, removed if number % 3 else ())
        if random.random() < 0.7:
            before = table.content
            later_ms = random.choice([0, 0, 2 * WEEK_MS])
            count += copied(before, table.checkpoint(NOW_MS + later_ms))
    assert count > 20


def test_of_other_columns_every_row_group_is_written_anew(table: Table) -> None:
    before = table.content
    table.commit({"d/new"}, (), metadata(**{"checkpoint.writeStatsAsStruct": "true"}))
    assert copied(before, table.checkpoint()) == 0


def test_row_groups_of_another_writer_are_written_anew(table: Table) -> None:
    rows = pq.read_table(io.BytesIO(table.content))
    theirs = io.BytesIO()
    pq.write_table(rows.select(list(reversed(rows.schema.names))), theirs, row_group_size=8)
    table.store.files[table.path] = theirs.getvalue()
    table.state = load_state(table.store)
    table.commit({"d/new"}, {"d/3"})
    after = table.checkpoint()
    assert copied(theirs.getvalue(), after) == 0
    table.commit({"d/more"})
    assert copied(after, table.checkpoint()) >= 2
