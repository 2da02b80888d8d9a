"""Recovery of the committer's state from the log alone."""

import threading
from concurrent.futures import ThreadPoolExecutor

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
    protocol,
    remove,
    table_in_memory,
    to_bytes,
)
from tests.checkpoints import put_classic
from tests.fakes.memory_store import MemoryStore
from tests.support.decisions import considered
from tests.support.outcomes import rejection_of, rules_of
from tests.support.stores import store_of
from tests.support.tables import creating
from tidegate_committer.state.table_state import TableState
from tidegate_committer.store_reads import recovery
from tidegate_delta.errors import BrokenLog, UnsupportedFeature
from tidegate_delta.features.row_tracking import NO_HIGH_WATER_MARK
from tidegate_delta.log.file_names import Version, commit_name, in_log
from tidegate_delta.snapshots.snapshot import LiveKeys
from tidegate_messages.proposal import Operation
from tidegate_runtime.storage.log_store import LogStore
from tidegate_runtime.table_io.checkpoint_writer import move_hint_forward
from tidegate_runtime.table_io.open_table import open_keys, open_snapshot


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
    """Return the parts of a state that must be equal for equal decisions."""
    return (
        (state.version, state.window_start, state.oldest, state.rules, state.timestamp),
        set(state.files),
        dict(state.apps),
        dict(state.entries),
        dict(state.decisions),
        [state.table_definition_at(version) for version in range(state.version + 1)],
    )


def test_what_was_read_is_known_across_a_change_of_the_table() -> None:
    changed = metadata()
    changed["metaData"]["configuration"] = {"io.unitycatalog.tableId": "u"}
    store = log([add("a")], [changed], [add("b")])
    state = recovery.reach_back(store, recovery.load(store, TABLE, 10), 1)
    assert state.table_definition_at(1).metadata.configuration == {}
    assert state.table_definition_at(2).metadata.configuration != {}
    assert state.table_definition_at(3) is state.table_definition_at(2)


def test_a_cleaned_log_is_noted_at_the_oldest_entry() -> None:
    store = log([add("a")], [add("b")], [add("c")])
    state = recovery.load(store, TABLE, 10)
    del store.files[in_log(commit_name(1))]
    state = recovery.reach_back(store, state, -1)
    assert (state.oldest, state.window_start) == (2, 2)


def cleaned_below_a_change() -> MemoryStore:
    """Return a log that begins with a metadata change: the definition before it is cleaned up."""
    changed = metadata()
    changed["metaData"]["configuration"] = {"note": "changed"}
    store = log([add("a")], [info(timestamp=7), changed])
    hint = put_classic(store, open_snapshot(store, Version(2)), NOW_MS)
    move_hint_forward(store, hint)
    for version in (0, 1):
        store.delete(in_log(commit_name(version)))
    return store


def test_where_the_basis_was_cleaned_nothing_is_decided_on_it_and_time_is_kept() -> None:
    state = recovery.load(cleaned_below_a_change(), TABLE, 10)
    assert (state.version, state.oldest, state.window_start) == (2, 3, 3)
    assert state.timestamp == 7, "the next version is to be later"


def test_entries_are_read_down_to_the_first_that_is_gone() -> None:
    result = recovery.entries(cleaned_below_a_change(), range(3))
    assert [entry.version for entry in result] == [2]


def test_external_versions_from_before_registration_count_as_published() -> None:
    store = table_in_memory(creation(), [info(), add("a")])
    state = recovery.load(store, TABLE, 10)
    assert recovery.counts_as_published(state) == state.version == 1


def test_refreshing_reads_what_others_wrote() -> None:
    store = log()
    state = recovery.load(store, TABLE, 10)
    store.files[in_log(commit_name(1))] = to_bytes([info(), add("a")])
    state, news = recovery.refresh(store, state)
    assert state.version == 1
    assert [entry.author for entry in news] == ["external"]


def test_a_first_version_that_defines_no_table_is_a_broken_log() -> None:
    store = MemoryStore("memory://t")
    state = recovery.load(store, TABLE, 10)
    store.put(in_log(commit_name(Version(0))), to_bytes([info(), add("a")]))
    with pytest.raises(BrokenLog, match="version 0 of memory://t does not say both"):
        recovery.refresh(store, state)


def test_a_torn_entry_is_reported_by_name() -> None:
    store = log()
    state = recovery.load(store, TABLE, 10)
    store.files[in_log(commit_name(1))] = b'{"add": {"pa'
    with pytest.raises(BrokenLog, match=r"0001\.json"):
        recovery.refresh(store, state)


def test_a_table_that_we_cannot_write_is_refused() -> None:
    store = log([metadata(enableIcebergCompatV2="true")])
    with pytest.raises(UnsupportedFeature, match="icebergCompatV2"):
        recovery.load(store, TABLE, 10)


def tracked_log(*commits: list[Row]) -> MemoryStore:
    names = ["domainMetadata", "rowTracking"]
    listed = protocol(1, 7, writerFeatures=names)
    return table_in_memory([info(), listed, metadata()], *commits)


def mark(value: int) -> Row:
    text = f'{{"rowIdHighWaterMark":{value}}}'
    body = {"domain": "delta.rowTracking", "configuration": text, "removed": False}
    return {"domainMetadata": body}


def with_id(path: str, base_row_id: int) -> Row:
    return add(path, baseRowId=base_row_id, defaultRowCommitVersion=1)


def test_a_mark_that_nobody_can_read_halts_a_table_that_tracks_rows() -> None:
    broken: Row = {"domainMetadata": dict(mark(9)["domainMetadata"])}
    broken["domainMetadata"]["configuration"] = '{"rowIdHighWaterMark":"9"}'
    with pytest.raises(BrokenLog, match="rowIdHighWaterMark"):
        recovery.load(tracked_log([info(), broken]), TABLE, 10)
    untracked = protocol(1, 7, writerFeatures=["domainMetadata"])
    plain = table_in_memory([info(), untracked, metadata()], [info(), broken])
    assert recovery.load(plain, TABLE, 10).version == 1


def test_the_mark_of_a_version_is_the_last_that_was_set() -> None:
    store = tracked_log(
        [info(), with_id("a", 0), mark(9)], [info(), remove("a")], [info(), add("b"), mark(19)]
    )
    loaded = recovery.reach_back(store, recovery.load(store, TABLE, 10), 0)
    assert [loaded.row_mark_at(version) for version in range(4)] == [None, 9, 9, 19]
    assert recovery.reach_back(store, loaded, -1).mark_before == NO_HIGH_WATER_MARK
    whole, _ = recovery.refresh(store, TableState(TABLE, store.root, 10))
    assert [whole.row_mark_at(version) for version in range(4)] == [-1, 9, 9, 19]


def test_the_mark_before_the_window_is_kept_while_versions_leave_it() -> None:
    store = tracked_log(
        [info(), with_id("a", 0), mark(9)], [info(), remove("a")], [info(), remove("z")]
    )
    state, _ = recovery.refresh(store, TableState(TABLE, store.root, 1))
    assert state.window_start == 3
    assert [state.row_mark_at(version) for version in (2, 3)] == [9, 9]


def test_a_mark_that_is_not_known_is_read_where_somebody_brings_ids() -> None:
    store = tracked_log([info(), with_id("a", 0), mark(9)], [info(), with_id("b", 10), mark(19)])
    state = recovery.load(store, TABLE, 10)
    assert (state.window_start, state.row_mark_at(1)) == (2, None)
    plain = considered(proposal(add("c"), read_version=1))
    assert recovery.complete(store, state, [plain]) is state
    moved = considered(proposal(with_id("c", 0), read_version=1))
    assert recovery.complete(store, state, [moved]).row_mark_at(1) == 9


def test_commits_are_read_again_for_who_repeats_their_files() -> None:
    given = add("a", dataChange=False, baseRowId=0, defaultRowCommitVersion=2)
    store = tracked_log(
        [info(), add("a")], [info("ROW TRACKING BACKFILL"), given, mark(9)], [info(), add("b")]
    )
    state = recovery.reach_back(store, recovery.load(store, TABLE, 10), 0)
    change = considered(proposal(remove("a"), read_version=1))
    full = recovery.complete(store, state, [change])
    assert [full.entries[at].adds is not None for at in (1, 2, 3)] == [False, True, False]
    assert recovery.complete(store, state, [considered(proposal(add("z")))]) is state
    del store.files[in_log(commit_name(2))]
    assert recovery.complete(store, state, [change]).oldest == 3


def test_the_store_gives_a_files_modification_time() -> None:
    store = log([add("a")])
    assert recovery.written_ms(store, 1) == next(
        file.modified_ms for file in store.list_from("_delta_log", commit_name(1))
    )
    with pytest.raises(BrokenLog, match="is gone"):
        recovery.written_ms(store, 7)


def test_row_tracking_goes_once_no_file_carries_row_ids() -> None:
    gate = Gate()
    names = ["appendOnly", "domainMetadata"]
    tracks = protocol(1, 7, writerFeatures=[*names, "rowTracking"])
    gate.ask(creating(tracks, metadata()), proposal(add("a")))
    suspended = metadata(rowTrackingSuspended="true")
    operation = Operation(name="SET TBLPROPERTIES")
    [result] = gate.ask(proposal(suspended, read_version=1, operation=operation))
    assert result.version == 2
    operation = Operation(name="DROP FEATURE")
    left = (protocol(1, 7, writerFeatures=names), metadata())
    drops = [proposal(*left, read_version=at, operation=operation) for at in (2, 3)]
    [result] = gate.ask(drops[0])
    assert rejection_of(result).rule == "feature_in_use"
    assert "1 files carry row ids, 'a' is one" in rejection_of(result).reason
    operation = Operation(name="ROW TRACKING UNBACKFILL")
    bare = proposal(add("a", dataChange=False), read_version=2, operation=operation)
    version = gate.ask(bare)[0].version
    assert version is not None
    drop = drops[1].model_copy(update={"read_version": version})
    assert rules_of(gate.ask(drop)) == ["committed"]
    rows = gate.entries()[version]
    assert [row["add"].get("baseRowId") for row in rows if "add" in row] == [None]


@pytest.mark.parametrize("turns_on", [True, False])
def test_files_with_row_ids_of_a_version_that_is_gone_are_unknown(turns_on: bool) -> None:
    suspended = "false" if turns_on else "true"
    tracks = protocol(1, 7, writerFeatures=["appendOnly", "domainMetadata", "rowTracking"])
    begun = [info(), tracks, metadata(rowTrackingSuspended=suspended)]
    store = table_in_memory(begun, [info(), with_id("a", 0), mark(9)], [info(), add("b")])
    state = recovery.reach_back(store, recovery.load(store, TABLE, 10), 0)
    del store.files[in_log(commit_name(0))]
    if turns_on:
        one = proposal(metadata(enableRowTracking="true"), read_version=1)
    else:
        drops = Operation(name="DROP FEATURE")
        left = protocol(1, 7, writerFeatures=["appendOnly", "domainMetadata"])
        one = proposal(left, metadata(), read_version=1, operation=drops)
    looked = recovery.complete(store, state, [considered(one)]).row_ids[1]
    assert "nobody knows which files carry row ids" in looked.lacked
    assert looked.carried == looked.lacked


def test_a_mark_that_can_not_be_read_any_more_is_not_known() -> None:
    store = tracked_log([info(), with_id("a", 0), mark(9)], [info(), with_id("b", 10), mark(19)])
    state = recovery.load(store, TABLE, 10)
    del store.files[in_log(commit_name(0))]
    moved = considered(proposal(with_id("c", 0), read_version=1))
    assert recovery.complete(store, state, [moved]).row_mark_at(1) is None


def test_timestamps_begin_after_the_time_of_the_file_before_them() -> None:
    gate = Gate()
    listed = protocol(1, 7, writerFeatures=["inCommitTimestamp"])
    rows = (listed, metadata())
    gate.ask(creating(*rows))
    store = store_of(gate)
    written_ms = gate.clock.now_ms() + 3_600_000
    store.modified[in_log(commit_name(0))] = written_ms
    [begun] = gate.ask(proposal(metadata(enableInCommitTimestamps="true")))
    assert begun.in_commit_timestamp == written_ms + 1
    [about] = [row["metaData"] for row in gate.entries()[1] if "metaData" in row]
    recorded = about["configuration"]["delta.inCommitTimestampEnablementTimestamp"]
    assert recorded == str(written_ms + 1)
    [next_one] = gate.ask(proposal(add("a"), read_version=1))
    assert next_one.in_commit_timestamp == written_ms + 2


def test_a_winner_with_a_feature_that_we_do_not_write_halts_its_table() -> None:
    gate = Gate()
    gate.ask(create(), proposal(add("a")))
    store = store_of(gate)
    features = ["appendOnly", "invariants", "collations"]
    foreign = [info("UPGRADE PROTOCOL"), protocol(1, 7, writerFeatures=features)]
    store.files[in_log(commit_name(2))] = to_bytes(foreign)
    [result] = gate.ask(proposal(add("b"), read_version=1))
    assert result.status == "denied"
    assert rejection_of(result).rule == "table_halted"
    assert "collations" in rejection_of(result).reason
    assert store.read(in_log(commit_name(3))) is None


@pytest.mark.parametrize("is_large", [True, False])
def test_large_tables_of_one_store_are_loaded_one_at_a_time(
    monkeypatch: pytest.MonkeyPatch, is_large: bool
) -> None:
    monkeypatch.setattr(recovery, "LARGE_BYTES", 0 if is_large else 1 << 20)
    opening, opened = threading.Event(), open_keys

    def observed(store: LogStore) -> LiveKeys:
        opening.set()
        return opened(store)

    monkeypatch.setattr(recovery, "open_keys", observed)
    first, second = log([add("a")]), log([add("b")])
    with ThreadPoolExecutor(1) as thread:
        with recovery.whole_table(first, 1):
            loading = thread.submit(recovery.load, second, TABLE, 10)
            assert opening.wait(0.2 if is_large else 10.0) is not is_large
        assert loading.result(10.0).version == 1


def test_who_never_ends_keeps_no_large_table_waiting_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(recovery, "LARGE_BYTES", 0)
    monkeypatch.setattr(recovery, "TURN_MAX_S", 0.01)
    with ThreadPoolExecutor(1) as thread, recovery.whole_table(log([add("a")]), 1):
        loading = thread.submit(recovery.load, log([add("b")]), TABLE, 10)
        assert loading.result(10.0).version == 1
