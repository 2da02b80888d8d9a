"""The checkpointer over tables on disk and an in-memory registry."""

import io
import os
import shutil
import time
from math import inf
from pathlib import Path
from typing import Any
from uuid import UUID

import orjson
import prometheus_client
import pyarrow.parquet as pq
import pytest

from tests.builders import StandingClock, add, creation, table_in_memory
from tests.checkpoints import put_classic
from tests.fakes.memory_store import MemoryBus, MemoryStore
from tests.support.delta_logs import (
    append_until,
    delete_commits,
    enable_v2_checkpoints,
    hint_of,
    log_folder,
    log_names,
)
from tests.unit.cdc_publisher.written_table import WrittenTable, rows
from tidegate_checkpointer import table_view
from tidegate_checkpointer.machine import SummaryState
from tidegate_checkpointer.service import Checkpointer
from tidegate_checkpointer.settings import CheckpointerSettings
from tidegate_checkpointer.table_turns import settle
from tidegate_checkpointer.table_view import TableView
from tidegate_delta.checkpoints import version_checksum
from tidegate_delta.checkpoints.rows_since_checkpoint import new_state
from tidegate_delta.errors import Misconfigured, TidegateError, Unavailable
from tidegate_delta.log.commit import sha256
from tidegate_delta.log.file_names import (
    checkpoint_name,
    checksum_name,
    commit_name,
    compacted_name,
    parse,
)
from tidegate_delta.snapshots.snapshot import Snapshot
from tidegate_messages.codec import encode, headers
from tidegate_messages.published_records import CommitRecord, TableRecord
from tidegate_runtime.clock import SystemClock
from tidegate_runtime.followers.quarantine import read_follower_state
from tidegate_runtime.kafka.client_protocols import TopicPartition
from tidegate_runtime.observability import metrics
from tidegate_runtime.service.health import Health
from tidegate_runtime.service.runner import Running
from tidegate_runtime.storage.local_store import LocalStore
from tidegate_runtime.storage.log_store import Put
from tidegate_runtime.table_io import checkpoint_writer
from tidegate_runtime.table_io.checkpoint_reader import read_sidecar_names
from tidegate_runtime.table_io.open_table import open_checkpoint, open_snapshot
from tidegate_runtime.table_registry import read_registry


@pytest.fixture
def bus() -> MemoryBus:
    return MemoryBus(CheckpointerSettings().kafka.topics.declared())


@pytest.fixture
def table(tmp_path: Path, bus: MemoryBus) -> WrittenTable:
    return registered(WrittenTable(tmp_path / "t"), bus)


def registered(table: WrittenTable, bus: MemoryBus) -> WrittenTable:
    """Create a table and publish its registration."""
    table.create().register(bus.producer(), CheckpointerSettings().kafka.topics)
    return table


def checkpointer(bus: MemoryBus, **section: Any) -> Checkpointer:
    settings = CheckpointerSettings.model_validate({"checkpointer": section})
    clock = StandingClock()
    return Checkpointer(settings, bus, Running(clock, Health(clock)))


def modification_times(table: WrittenTable) -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for path in log_folder(table).iterdir()}


def opened(table: WrittenTable, version: int | None = None) -> Snapshot:
    return open_snapshot(LocalStore(table.root), version)


def summary(table: WrittenTable, version: int | None = None) -> Any:
    snapshot = opened(table, version)
    return snapshot.version, snapshot.metadata, sorted(snapshot.files["path"].to_pylist())


def test_notifications_bring_checksums_compactions_and_checkpoints(
    table: WrittenTable, bus: MemoryBus
) -> None:
    service = checkpointer(bus)
    service.notice(table.notification())
    while table.version < 21:
        table.append(rows(table.version))
        service.notice(table.notification())
    expected = {checksum_name(version) for version in range(22)}
    expected |= {checkpoint_name(10), checkpoint_name(20)}
    expected |= {compacted_name(0, 4), compacted_name(5, 9), compacted_name(11, 15)}
    assert expected <= log_names(table)
    assert hint_of(table).version == 20


def test_the_table_reads_the_same_with_what_was_written(
    table: WrittenTable, bus: MemoryBus
) -> None:
    append_until(table, 12)
    table.drop(next(iter(table.files)))
    append_until(table, 17)
    before = [summary(table, version) for version in range(18)]
    checkpointer(bus).poll()
    assert checkpoint_name(10) in log_names(table)
    assert [summary(table, version) for version in range(18)] == before
    assert summary(table) == before[-1]


def test_a_poll_catches_up_after_a_pause(table: WrittenTable, bus: MemoryBus) -> None:
    append_until(table, 37)
    checkpointer(bus).poll()
    names = log_names(table)
    assert {checkpoint_name(30), compacted_name(31, 35)} <= names
    assert checkpoint_name(20) not in names
    assert {checksum_name(version) for version in range(38)} <= names


def test_a_second_check_changes_nothing(table: WrittenTable, bus: MemoryBus) -> None:
    append_until(table, 23)
    checkpointer(bus).poll()
    times = modification_times(table)
    service = checkpointer(bus)
    service.poll()
    service.notice(table.notification())
    assert modification_times(table) == times


def test_the_interval_is_the_tables_property_even_when_it_changes(
    table: WrittenTable, bus: MemoryBus
) -> None:
    service = checkpointer(bus)
    service.notice(table.notification())
    table.set_metadata(**{"delta.checkpointInterval": "3"})
    append_until(table, 4)
    service.notice(table.notification())
    assert checkpoint_name(3) in log_names(table)


def test_a_hint_that_was_not_moved_is_moved_by_the_next_life(
    table: WrittenTable, bus: MemoryBus
) -> None:
    append_until(table, 11)
    store = LocalStore(table.root)
    put_classic(store, open_snapshot(store, 10), 0)
    checkpointer(bus).poll()
    assert hint_of(table).version == 10


def test_a_checkpoint_that_another_wrote_is_left_as_it_is(
    table: WrittenTable, bus: MemoryBus
) -> None:
    service, store = checkpointer(bus), LocalStore(table.root)
    service.notice(table.notification())
    append_until(table, 11)
    theirs = log_folder(table) / checkpoint_name(10)
    given = put_classic(store, open_snapshot(store, 10), 0)
    checkpoint_writer.move_hint_forward(store, given)
    written_ns = theirs.stat().st_mtime_ns
    service.notice(table.notification())
    assert theirs.stat().st_mtime_ns == written_ns
    assert checksum_name(11) in log_names(table)
    assert compacted_name(6, 10) not in log_names(table)


def test_a_torn_checkpoint_that_the_hint_names_is_written_again(
    table: WrittenTable, bus: MemoryBus
) -> None:
    append_until(table, 11)
    checkpointer(bus).poll()
    path = log_folder(table) / checkpoint_name(10)
    whole = path.read_bytes()
    path.write_bytes(whole[:-3])
    checkpointer(bus).poll()
    assert pq.read_metadata(path).num_rows == pq.read_metadata(io.BytesIO(whole)).num_rows


def test_two_instances_leave_one_checkpoint_of_a_version(
    table: WrittenTable, bus: MemoryBus
) -> None:
    enable_v2_checkpoints(table)
    first, second = checkpointer(bus), checkpointer(bus)
    first.notice(table.notification())
    second.notice(table.notification())
    append_until(table, 10)
    first.notice(table.notification())
    (log_folder(table) / "_last_checkpoint").unlink()
    second.notice(table.notification())
    assert len(list(log_folder(table).glob("*.checkpoint.*.json"))) == 1
    assert (log_folder(table) / "_last_checkpoint").exists()


def test_a_table_with_v2_checkpoints_gets_them(table: WrittenTable, bus: MemoryBus) -> None:
    enable_v2_checkpoints(table)
    append_until(table, 9)
    table.drop(next(iter(table.files)))
    before = summary(table)
    checkpointer(bus).poll()
    log = log_folder(table)
    [top] = log.glob("*.checkpoint.*.json")
    assert top.name.startswith(f"{10:020d}.checkpoint.")
    assert not list(log.glob("*.checkpoint*.parquet"))
    assert list((log / "_sidecars").iterdir())
    assert (hint_of(table).version, hint_of(table).num_of_add_files) == (10, len(table.files))
    delete_commits(table, below=10)
    for old_name in (compacted_name(0, 4), compacted_name(5, 9)):
        (log / old_name).unlink(missing_ok=True)
    assert summary(table) == before
    append_until(table, 11)
    assert summary(table)[0] == 11


def checksum_differences(table: WrittenTable, version: int) -> tuple[str, ...]:
    """Return where a version's checksum file differs from what the log says."""
    content = (log_folder(table) / checksum_name(version)).read_bytes()
    truth = version_checksum.of(opened(table, version))
    return version_checksum.differences(version_checksum.decode(content), truth)


def test_a_checksum_follows_from_the_one_before(table: WrittenTable, bus: MemoryBus) -> None:
    append_until(table, 6)
    checkpointer(bus).poll()
    for version in range(7):
        assert checksum_differences(table, version) == ()


def test_a_torn_checksum_is_not_built_upon(table: WrittenTable, bus: MemoryBus) -> None:
    append_until(table, 3)
    (log_folder(table) / checksum_name(2)).write_bytes(b'{"tableSize')
    checkpointer(bus).poll()
    assert checksum_differences(table, 3) == ()


def test_a_log_that_begins_with_a_checkpoint_is_followed(
    table: WrittenTable, bus: MemoryBus
) -> None:
    append_until(table, 12)
    checkpointer(bus).poll()
    delete_commits(table, below=10)
    for name in (compacted_name(0, 4), compacted_name(5, 9), "_last_checkpoint"):
        (log_folder(table) / name).unlink(missing_ok=True)
    append_until(table, 21)
    checkpointer(bus).poll()
    assert checkpoint_name(20) in log_names(table)
    assert summary(table)[2] == sorted(table.files)


def test_no_checkpoint_is_due_of_a_version_that_is_gone(
    table: WrittenTable, bus: MemoryBus
) -> None:
    append_until(table, 12)
    checkpointer(bus).poll()
    delete_commits(table, below=11)
    (log_folder(table) / "_last_checkpoint").unlink()
    append_until(table, 15)
    checkpointer(bus).poll()
    assert {checksum_name(15), compacted_name(11, 15)} <= log_names(table)


def test_a_table_made_anew_in_its_place_is_summed_up_anew(
    table: WrittenTable, bus: MemoryBus
) -> None:
    service = checkpointer(bus)
    append_until(table, 12)
    service.poll()
    shutil.rmtree(table.folder)
    again = WrittenTable(table.folder).create()
    again.set_metadata(owner="ann")
    service.poll()
    append_until(again, 14)
    service.poll()
    assert {checksum_name(version) for version in range(15)} <= log_names(again)
    assert {str(opened(again, version).checksum) for version in range(15)} == {"agrees"}


def test_a_feature_we_do_not_summarise_leaves_the_log_alone_and_others_go_on(
    tmp_path: Path, bus: MemoryBus, table: WrittenTable
) -> None:
    other = registered(WrittenTable(tmp_path / "other", id=UUID(int=2)), bus)
    features = {"writerFeatures": ["fromTheFuture"]}
    other.commit("x", {"protocol": {"minReaderVersion": 1, "minWriterVersion": 7, **features}})
    append_until(other, 11)
    append_until(table, 11)
    service = checkpointer(bus)
    service.poll()
    service.notice(other.notification())
    assert log_names(other) == {commit_name(version) for version in range(12)}
    assert checkpoint_name(10) in log_names(table)


def test_a_table_with_a_feature_that_leaves_checkpoints_alone_is_summarised(
    table: WrittenTable, bus: MemoryBus
) -> None:
    table.set_metadata(**{"delta.enableChangeDataFeed": "true"})
    append_until(table, 10)
    checkpointer(bus).poll()
    assert checkpoint_name(10) in log_names(table)


def test_a_quarantined_table_waits_for_the_next_poll(table: WrittenTable, bus: MemoryBus) -> None:
    append_until(table, 3)
    broken = log_folder(table) / commit_name(2)
    content = broken.read_bytes()
    broken.write_bytes(b"{torn")
    service = checkpointer(bus)
    service.poll()
    assert checksum_name(3) not in log_names(table)
    broken.write_bytes(content)
    service.notice(table.notification())
    assert checksum_name(3) not in log_names(table)
    service.poll()
    assert checksum_name(3) in log_names(table)


def test_a_put_without_an_answer_is_its_tables_own_and_the_log_is_read_anew(
    table: WrittenTable, bus: MemoryBus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = registered(WrittenTable(tmp_path / "u", id=UUID(int=0xF11F)), bus)
    service, works = checkpointer(bus), LocalStore.put_if_absent

    def asked(store: LocalStore, *arguments: Any) -> Put:
        return Put.UNKNOWN if store.root == table.root else works(store, *arguments)

    with monkeypatch.context() as patched:
        patched.setattr(LocalStore, "put_if_absent", asked)
        service.poll()
        assert checksum_name(0) in log_names(other)
        assert checksum_name(0) not in log_names(table)
    service.poll()
    assert checksum_name(0) in log_names(table)


@pytest.mark.parametrize("error", [Unavailable, Misconfigured])
def test_a_table_with_an_unavailable_store_is_quarantined_and_others_go_on(
    table: WrittenTable,
    bus: MemoryBus,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    error: type[TidegateError],
) -> None:
    other = registered(WrittenTable(tmp_path / "u", id=UUID(int=0xF11F)), bus)
    service, works = checkpointer(bus), LocalStore.list_from

    def asked(store: LocalStore, folder: str, start: str) -> Any:
        if store.root == table.root:
            raise error("403 AccessDenied")
        return works(store, folder, start)

    with monkeypatch.context() as patched:
        patched.setattr(LocalStore, "list_from", asked)
        service.notice(table.notification())
        service.poll()
        assert checksum_name(0) in log_names(other)
        assert checksum_name(0) not in log_names(table)
    service.poll()
    assert checksum_name(0) in log_names(table)


def test_what_another_wrote_first_is_left_as_it_is(table: WrittenTable, bus: MemoryBus) -> None:
    theirs = log_folder(table) / checksum_name(0)
    table.append(rows(1))
    theirs.write_bytes(b"theirs")
    checkpointer(bus).poll()
    assert theirs.read_bytes() == b"theirs"


def test_commits_that_do_nothing_leave_no_empty_compaction(
    table: WrittenTable, bus: MemoryBus
) -> None:
    while table.version < 9:
        table.commit("NOTHING")
    checkpointer(bus).poll()
    assert compacted_name(0, 4) in log_names(table)
    assert compacted_name(5, 9) not in log_names(table)
    assert summary(table)[0] == 9


def test_a_checkpoint_keeps_a_fresh_tombstone(table: WrittenTable, bus: MemoryBus) -> None:
    append_until(table, 9)
    gone = next(iter(table.files))
    table.drop(gone)
    checkpointer(bus).poll()
    parquet = pq.read_table(log_folder(table) / checkpoint_name(10))
    removed = [item["path"] for item in parquet["remove"].to_pylist() if item]
    assert removed == [gone]


def test_a_checksum_that_contradicts_the_log_is_reported_and_checkpoints_go_on(
    table: WrittenTable, bus: MemoryBus, caplog: pytest.LogCaptureFixture
) -> None:
    service, labels = checkpointer(bus), {"table": "t"}
    sample = prometheus_client.REGISTRY.get_sample_value
    before = sample("tidegate_checksum_contradictions_total", labels) or 0
    append_until(table, 9)
    service.poll()
    path = log_folder(table) / checksum_name(10)
    body = checksum_body(table, 9)
    path.write_bytes(orjson.dumps({**body, "numFiles": 999}))
    append_until(table, 10)
    service.poll()
    assert checkpoint_name(10) in log_names(table)
    assert "num_files 999, not 10" in caplog.text
    assert sample("tidegate_checksum_contradictions_total", labels) == before + 1


def test_a_poll_removes_files_of_expired_proposals_once_a_day(
    table: WrittenTable, bus: MemoryBus
) -> None:
    folder = table.folder / "_tidegate" / "proposals"
    folder.mkdir(parents=True)
    for name in ("old", "new"):
        (folder / f"{name}.ndjson").write_bytes(b"{}")
    month_ago_s = SystemClock().now_ms() / 1000 - 30 * 24 * 3600
    os.utime(folder / "old.ndjson", (month_ago_s, month_ago_s))
    service = checkpointer(bus)
    service.poll()
    assert [path.name for path in folder.iterdir()] == ["new.ndjson"]
    os.utime(folder / "new.ndjson", (month_ago_s, month_ago_s))
    service.poll()
    assert [path.name for path in folder.iterdir()] == ["new.ndjson"]


@pytest.mark.parametrize(
    "update",
    [
        {"status": "dropped"},
        {"status": "staged"},
        {"status": "halted", "overwritten": {"version": 3, "sha256": "a" * 64}},
        {"status": "halted", "halted_by_hand": "it is being moved"},
    ],
)
def test_a_table_that_is_not_there_or_not_to_be_touched_is_left_as_it_is(
    table: WrittenTable, bus: MemoryBus, update: dict[str, Any]
) -> None:
    topics = CheckpointerSettings().kafka.topics
    [record] = read_registry(bus, topics).values()
    changed = TableRecord.model_validate({**record.model_dump(), **update})
    # A new registry, because a claim (`staged`) does not override a registration.
    bus = MemoryBus(topics.declared())
    producer = bus.producer()
    at = TopicPartition(topics.table_state, record.topic_partition)
    producer.publish(at, str(record.table).encode(), encode(changed), headers(changed))
    producer.flush(1.0)
    append_until(table, 12)
    before = log_names(table)
    metrics.CHECKPOINT_AGE.labels(record.name).set(inf)  # as when it was set aside
    checkpointer(bus).poll()
    assert log_names(table) == before
    labels = {"table": record.name}
    age = prometheus_client.REGISTRY.get_sample_value("tidegate_checkpoint_age_versions", labels)
    assert age is None, "nobody need get up for it"


def test_a_version_costs_one_read_and_one_write(
    table: WrittenTable, bus: MemoryBus, monkeypatch: pytest.MonkeyPatch
) -> None:
    service, asked = checkpointer(bus), list[tuple[str, str]]()
    service.notice(told_of(table))
    append_until(table, 20)
    service.poll()
    for name in ("read", "open", "put", "put_if_absent", "list_from"):
        monkeypatch.setattr(LocalStore, name, noting(asked, name))
    while table.version < 29:
        table.append(rows(table.version + 1))
        service.notice(told_of(table))
    compactions = [path for verb, path in asked if path.endswith(".compacted.json")]
    assert len(compactions) == 1
    expected = [("read", commit_name(version)) for version in range(21, 30)]
    expected += [("put_if_absent", checksum_name(version)) for version in range(21, 30)]
    assert sorted(asked) == sorted([*expected, ("put_if_absent", compactions[0])])
    asked.clear()
    table.append(rows(30))
    service.notice(told_of(table))
    assert len([path for verb, path in asked if verb == "list_from"]) == 1
    assert [path for verb, path in asked if verb == "read"] == [commit_name(30)]


def told_of(table: WrittenTable) -> CommitRecord:
    """Return the notification of a table's newest version, as a committer writes it."""
    content = (log_folder(table) / commit_name(table.version)).read_bytes()
    return table.notification().model_copy(update={"sha256": sha256(content)})


def noting(asked: list[tuple[str, str]], name: str) -> Any:
    """Return a method of the store that notes the names of the files it is called for."""
    real = getattr(LocalStore, name)

    def method(store: LocalStore, path: str, *rest: Any) -> Any:
        asked.append((name, path.rpartition("/")[2]))
        return real(store, path, *rest)

    return method


def test_a_notification_that_is_not_what_the_log_holds_has_the_log_listed(
    table: WrittenTable, bus: MemoryBus, monkeypatch: pytest.MonkeyPatch
) -> None:
    service, asked = checkpointer(bus), list[tuple[str, str]]()
    service.notice(told_of(table))
    append_until(table, 3)
    monkeypatch.setattr(LocalStore, "list_from", noting(asked, "list_from"))
    service.notice(table.notification())
    assert len(asked) == 1
    assert {checksum_name(version) for version in range(4)} <= log_names(table)


def test_states_beyond_the_limit_are_read_again(table: WrittenTable, bus: MemoryBus) -> None:
    service = checkpointer(bus, state_bytes_max=0)
    service.notice(told_of(table))
    while table.version < 21:
        table.append(rows(table.version))
        service.notice(told_of(table))
        while service.unfinished:
            service.go_on(table.id)
    expected = {checksum_name(version) for version in range(22)}
    assert {*expected, checkpoint_name(20)} <= log_names(table)
    assert {str(opened(table, version).checksum) for version in range(22)} == {"agrees"}


def test_the_state_goes_first_that_spares_the_least_time() -> None:
    def view(load_s: float, used_s: float) -> TableView:
        state = new_state(open_snapshot(table_in_memory(creation(), [add("a")])))
        view = TableView(MemoryStore(), SummaryState(5), warm=state, load_s=load_s)
        view.used_s = time.monotonic() - used_s
        return view

    slow, quick, old = view(2.0, 10.0), view(1.0, 10.0), view(2.0, 60.0)
    assert slow.warm is not None
    settle([slow, quick, old], slow.warm.size_bytes * 2)
    assert [item.warm is not None for item in (slow, quick, old)] == [True, True, False]
    settle([slow, quick, old], slow.warm.size_bytes)
    assert [one.warm is not None for one in (slow, quick, old)] == [True, False, False]


def test_a_checkpoint_of_which_a_sidecar_went_is_followed_by_a_whole_one(
    table: WrittenTable, bus: MemoryBus
) -> None:
    service, log = checkpointer(bus), log_folder(table)
    enable_v2_checkpoints(table)
    append_until(table, 10)
    service.poll()
    for path in (log / "_sidecars").iterdir():
        path.unlink()
    append_until(table, 20)
    service.poll()
    delete_commits(table, below=20)
    for path in log.glob("*.compacted.json"):
        path.unlink()
    assert summary(table)[2] == sorted(table.files)


def test_two_instances_that_take_turns_never_name_a_sidecar_that_is_cleaned_up(
    table: WrittenTable, bus: MemoryBus
) -> None:
    enable_v2_checkpoints(table)
    instances, store = [checkpointer(bus), checkpointer(bus)], LocalStore(table.root)
    for due in range(10, 80, 10):
        append_until(table, due)
        table.drop(next(iter(table.files)))
        ahead, behind = instances
        ahead.notice(told_of(table))
        if due % 20:
            behind.notice(told_of(table))
            instances.reverse()
        log = log_folder(table)
        [*older, newest] = sorted(log.glob("*.checkpoint.*.json"))
        assert newest.name.startswith(f"{due:020d}")
        for path in older:
            path.unlink()
        file = parse(newest.name)
        assert file is not None
        named = read_sidecar_names(store, file) or frozenset()
        for path in (log / "_sidecars").iterdir():
            if path.name not in named:
                path.unlink()
        assert open_checkpoint(store, due).files.num_rows > 0
        assert summary(table)[2] == sorted(table.files)


def slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let all work be expected to take long."""
    monkeypatch.setattr(table_view, "BYTES_PER_S", 1e-3)


def test_long_work_waits_for_a_turn_of_its_table(
    table: WrittenTable, bus: MemoryBus, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = checkpointer(bus)
    append_until(table, 12)
    with monkeypatch.context() as patched:
        slow(patched)
        service.poll()
        assert list(service.unfinished) == [table.id]
        service.notice(told_of(table))
        assert log_names(table) == {commit_name(version) for version in range(13)}
    for _ in range(100):
        if not service.unfinished:
            break
        service.go_on(table.id)
    assert {checkpoint_name(10), checksum_name(12)} <= log_names(table)


def test_a_turn_does_one_long_work(
    table: WrittenTable, bus: MemoryBus, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow(monkeypatch)
    service = checkpointer(bus)
    append_until(table, 12)
    service.poll()
    service.go_on(table.id)
    summaries = log_names(table) - {commit_name(version) for version in range(13)}
    assert summaries == {checksum_name(0)}
    assert list(service.unfinished) == [table.id]


def test_a_table_leaves_the_quarantine_only_once_its_long_work_is_done(
    table: WrittenTable, bus: MemoryBus, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = checkpointer(bus)
    append_until(table, 12)
    slow(monkeypatch)
    with monkeypatch.context() as patched:
        patched.setattr(LocalStore, "put_if_absent", lambda *_: Put.UNKNOWN)
        service.poll()
        service.go_on(table.id)
        assert not service.unfinished
    topics = CheckpointerSettings().kafka.topics
    service.poll()
    assert len(read_follower_state(bus, topics)) == 1
    while service.unfinished:
        service.go_on(table.id)
    assert not read_follower_state(bus, topics)
    assert checkpoint_name(10) in log_names(table)


def test_a_heavy_tail_is_due_a_checkpoint_unless_the_interval_is_set(
    table: WrittenTable, bus: MemoryBus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_view, "HEAVY_BYTES", 100)
    service = checkpointer(bus)
    table.set_metadata(**{"delta.checkpointInterval": "10"})
    append_until(table, 7)
    service.notice(told_of(table))
    assert checkpoint_name(7) not in log_names(table)
    table.configuration = {}
    table.set_metadata()
    service.notice(told_of(table))
    assert checkpoint_name(8) in log_names(table)


def checksum_body(table: WrittenTable, version: int) -> dict[str, Any]:
    body: dict[str, Any] = orjson.loads((log_folder(table) / checksum_name(version)).read_bytes())
    return body


def test_the_checksum_of_a_small_table_lists_its_files_and_their_sizes(
    table: WrittenTable, bus: MemoryBus
) -> None:
    append_until(table, 11)
    table.drop(next(iter(table.files)))
    checkpointer(bus).poll()
    body = checksum_body(table, 12)
    assert sorted(add["path"] for add in body["allFiles"]) == sorted(table.files)
    assert not any(add["dataChange"] for add in body["allFiles"])
    assert sum(body["fileSizeHistogram"]["fileCounts"]) == len(table.files)
    assert sum(body["fileSizeHistogram"]["totalBytes"]) == body["tableSizeBytes"]
    append_until(table, 70)
    checkpointer(bus).poll()
    body = checksum_body(table, 70)
    assert "allFiles" not in body
    assert sum(body["fileSizeHistogram"]["fileCounts"]) == len(table.files)


def test_a_long_compaction_is_made_of_our_shorter_ones_and_equals_the_commits(
    table: WrittenTable, bus: MemoryBus, monkeypatch: pytest.MonkeyPatch
) -> None:
    table.set_metadata(**{"delta.checkpointInterval": "1000"})
    service, asked = checkpointer(bus), list[tuple[str, str]]()
    while table.version < 23:
        table.append(rows(table.version + 1))
        if table.version % 3 == 0:
            table.drop(next(iter(table.files)))
        service.notice(told_of(table))
    monkeypatch.setattr(LocalStore, "read", noting(asked, "read"))
    table.append(rows(24))
    before = summary(table)
    asked.clear()
    service.notice(told_of(table))
    names = [compacted_name(start, start + 4) for start in (0, 5, 10, 15)]
    assert [name for _, name in asked if name in names] == names
    assert not [name for _, name in asked if name == commit_name(4)]
    assert compacted_name(0, 24) in log_names(table)
    for name in names:
        (log_folder(table) / name).unlink()
    for version in range(24):
        (log_folder(table) / commit_name(version)).write_bytes(b"{torn")
    assert summary(table) == before
