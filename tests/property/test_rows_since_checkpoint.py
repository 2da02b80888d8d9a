"""The state between checkpoints says what a replay says, and so do the checkpoints it writes."""

from collections.abc import Callable, Iterator
from itertools import count
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.checkpoints import Form
from tests.fakes.memory_store import MemoryStore
from tests.property.log_strategies import logs
from tests.property.test_split_logs import INFO, NOW_MS, put_checkpoint, state_of, stored
from tidegate_delta.checkpoints import rows_since_checkpoint, version_checksum
from tidegate_delta.checkpoints.rows_since_checkpoint import CheckpointState
from tidegate_delta.log.commit import Commit
from tidegate_delta.log.file_names import checkpoint_name, in_log
from tidegate_runtime.table_io import checkpoint_writer, stored_checkpoint
from tidegate_runtime.table_io.checkpoint_writer import WrittenCheckpoint, write_classic, write_v2
from tidegate_runtime.table_io.open_table import open_snapshot
from tidegate_runtime.table_io.stored_checkpoint import follow, load_state

Write = Callable[[MemoryStore, CheckpointState], WrittenCheckpoint]


def v2(numbers: Iterator[int]) -> Write:
    return lambda store, state: write_v2(store, state, NOW_MS, lambda: UUID(int=next(numbers)))


def classic(store: MemoryStore, state: CheckpointState) -> WrittenCheckpoint:
    return write_classic(store, state, NOW_MS)


@pytest.mark.parametrize("kind", ["classic", "v2", "v2 in parquet", "both", "both, with indexes"])
def test_checkpoints_of_a_followed_table_say_what_its_commits_say(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoint_writer, "ROWS_MAX", 2)
    monkeypatch.setattr(checkpoint_writer, "COPIED_ROWS_MIN", 1)
    monkeypatch.setattr(checkpoint_writer, "SIDECAR_FILES", 3)
    monkeypatch.setattr(checkpoint_writer, "WHOLE_ROWS_MAX", 2)
    if kind == "both, with indexes":
        monkeypatch.setattr(rows_since_checkpoint, "SCANS_BEFORE_INDEX", 0)
        monkeypatch.setattr(rows_since_checkpoint, "ROWS_PER_KEY", 0)
    numbers = count(1)
    kinds: dict[str, list[Write]] = {"classic": [classic], "v2": [v2(numbers)]}
    if kind == "v2 in parquet":
        kinds[kind] = [v2(numbers)]
        monkeypatch.setattr(checkpoint_writer, "TOP_LEVEL_JSON_MAX", 0)
    writes = kinds.get(kind) or [classic, v2(numbers)]

    @given(logs, st.data())
    @settings(max_examples=12)
    def law(log: list[Commit], data: st.DataObject) -> None:
        whole, store = stored(log), MemoryStore()
        store.files[in_log(log[0].name)] = INFO + log[0].encode()
        state = load_state(store)
        for commit in log[1:]:
            content = INFO + commit.encode()
            store.files[in_log(commit.name)] = content
            state = follow(store, state, [content])
            snapshot = open_snapshot(whole, commit.version)
            assert state.checksum == version_checksum.of(snapshot)
            if not data.draw(st.booleans(), "checkpoint"):
                continue
            state = data.draw(st.sampled_from(writes))(store, state).state
            alone = MemoryStore()
            alone.files = {
                path: one
                for path, one in store.files.items()
                if "_sidecars" in path or f"{commit.version:020d}.checkpoint" in path
            }
            assert state_of(open_snapshot(alone)) == state_of(snapshot)
            assert state.checksum == version_checksum.of(snapshot)

    law()


FORMS: list[Form | str] = [*Form, "classic", "in parts"]


@pytest.mark.parametrize("form", FORMS, ids=str)
def test_a_state_goes_on_from_a_checkpoint_of_any_form(
    form: Form | str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stored_checkpoint, "WHOLE_ROWS_MAX", 1)
    numbers = count(1)

    @given(logs, st.data())
    @settings(max_examples=4)
    def law(log: list[Commit], data: st.DataObject) -> None:
        store, last = stored(log), len(log) - 1
        at = data.draw(st.integers(0, last), "checkpoint")
        put_checkpoint(store, at, form, data.draw(st.integers(1, 4), "files a part"))
        snapshot = open_snapshot(stored(log))
        state = load_state(store)
        assert state.checksum == version_checksum.of(snapshot)
        writes: list[Write] = [classic, v2(numbers)]
        write = data.draw(st.sampled_from(writes))
        if at == last:
            return
        write(store, state)
        for commit in log:
            del store.files[in_log(commit.name)]
        store.files.pop(in_log(checkpoint_name(at)), None)
        assert state_of(open_snapshot(store)) == state_of(snapshot)

    law()
