"""From the log alone to what the committer remembers."""

import pytest

from tests.builders import (
    NOW_MS,
    TABLE,
    Gate,
    Row,
    add,
    create,
    creation,
    info,
    metadata,
    proposal,
    remove,
    table_in_memory,
    to_bytes,
)
from tidegate.committer import recovery
from tidegate.committer.state import TableState
from tidegate.delta.errors import BrokenLog, UnsupportedFeature
from tidegate.delta.names import Version, commit_name, in_log
from tidegate.runtime.checkpoint_writing import move_hint_forward, write_classic
from tidegate.runtime.memory import MemoryStore
from tidegate.runtime.open_table import open_snapshot


def log(*commits: list[Row]) -> MemoryStore:
    return table_in_memory(creation(), *commits)


def test_no_log_is_a_table_that_does_not_exist() -> None:
    assert recovery.load(MemoryStore("memory://t"), TABLE, 10).version == -1


def test_loading_finds_live_files_and_applications() -> None:
    txn: Row = {"txn": {"appId": "s", "version": 3}}
    state = recovery.load(log([add("a"), add("b%20c"), txn], [remove("a")]), TABLE, 10)
    assert (state.version, state.oldest) == (2, 0)
    assert set(state.files) == {"b c"}
    assert state.apps["s"].version == 3


def test_loading_reads_the_heads_entry_and_no_more() -> None:
    state = recovery.load(log([add("a")], [info(timestamp=5), add("b")]), TABLE, 10)
    assert (state.window_start, list(state.entries)) == (2, [2])
    assert state.timestamp == 5


def test_reaching_back_gives_what_folding_from_the_start_gives() -> None:
    gate = Gate()
    gate.ask(create())
    for number in range(4):
        gate.ask(proposal(add(f"f{number}"), read_version=number), proposal(add("../x")))
    store = gate.stores["memory://tables/t"]
    whole, _ = recovery.refresh(store, TableState(TABLE, store.root, 100))
    loaded = recovery.reach_back(store, recovery.load(store, TABLE, 100), -1)
    assert plain(loaded) == plain(whole)


def plain(state: TableState) -> tuple[object, ...]:
    """Return what two states must have in common to decide alike."""
    return (
        (state.version, state.window_start, state.oldest, state.rules, state.timestamp),
        set(state.files),
        dict(state.apps),
        dict(state.entries),
        dict(state.settled),
        [state.basis_at(version) for version in range(state.version + 1)],
    )


def test_what_was_read_is_known_across_a_change_of_the_table() -> None:
    changed = metadata()
    changed["metaData"]["configuration"] = {"io.unitycatalog.tableId": "u"}
    store = log([add("a")], [changed], [add("b")])
    state = recovery.reach_back(store, recovery.load(store, TABLE, 10), 1)
    assert state.basis_at(1).metadata.configuration == {}
    assert state.basis_at(2).metadata.configuration != {}
    assert state.basis_at(3) is state.basis_at(2)


def test_where_the_log_was_cleaned_the_oldest_entry_says_so() -> None:
    store = log([add("a")], [add("b")], [add("c")])
    state = recovery.load(store, TABLE, 10)
    del store.files[in_log(commit_name(1))]
    state = recovery.reach_back(store, state, -1)
    assert (state.oldest, state.window_start) == (2, 2)


def cleaned_below_a_change() -> MemoryStore:
    """Return a log that begins with a change of the table: what was in force below it is gone."""
    changed = metadata()
    changed["metaData"]["configuration"] = {"note": "changed"}
    store = log([add("a")], [info(timestamp=7), changed])
    hint = write_classic(store, open_snapshot(store, Version(2)), NOW_MS)
    move_hint_forward(store, hint)
    for version in (0, 1):
        store.delete(in_log(commit_name(version)))
    return store


def test_where_the_basis_was_cleaned_nothing_is_decided_on_it_and_time_is_kept() -> None:
    state = recovery.load(cleaned_below_a_change(), TABLE, 10)
    assert (state.version, state.oldest, state.window_start) == (2, 3, 3)
    assert state.timestamp == 7, "the next version is to be later"


def test_entries_are_read_down_to_the_first_that_is_gone() -> None:
    found = recovery.entries(cleaned_below_a_change(), range(3))
    assert [entry.version for entry in found] == [2]


def test_refreshing_reads_what_others_wrote() -> None:
    store = log()
    state = recovery.load(store, TABLE, 10)
    store.files[in_log(commit_name(1))] = to_bytes([info(), add("a")])
    state, news = recovery.refresh(store, state)
    assert state.version == 1
    assert [entry.author for entry in news] == ["external"]


def test_a_torn_entry_is_told_by_name() -> None:
    store = log()
    state = recovery.load(store, TABLE, 10)
    store.files[in_log(commit_name(1))] = b'{"add": {"pa'
    with pytest.raises(BrokenLog, match=r"0001\.json"):
        recovery.refresh(store, state)


def test_a_table_that_we_cannot_write_is_refused() -> None:
    store = log([metadata(enableChangeDataFeed="true")])
    with pytest.raises(UnsupportedFeature, match="changeDataFeed"):
        recovery.load(store, TABLE, 10)
