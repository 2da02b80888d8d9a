"""Cleanup of real logs: what stays reads the same for delta-rs and for us, whenever it dies."""

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import prometheus_client
import pytest
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError
from typer.testing import CliRunner

from tests.builders import StillClock
from tests.checkpoints import Form, put_classic, put_v2
from tests.fakes.memory_store import MemoryBus
from tests.support.delta_logs import NOW_MS, log_folder, log_names, support_v2_checkpoints
from tests.unit.cdc_publisher.written_table import WrittenTable, rows
from tidegate_checkpointer.cli import table_commands
from tidegate_checkpointer.log_cleaner import (
    CleanedTable,
    CleanupMemory,
    CleanupSchedule,
    delete,
    survey,
    verify,
)
from tidegate_checkpointer.log_cleanup_plan import DAY_MS, CleanupPlan
from tidegate_checkpointer.service import Checkpointer
from tidegate_checkpointer.settings import CheckpointerSettings
from tidegate_delta.checkpoints import version_checksum
from tidegate_delta.errors import InvalidRequest
from tidegate_delta.log.file_names import (
    checkpoint_name,
    checksum_name,
    commit_name,
    compacted_name,
)
from tidegate_messages.codec import encode, headers
from tidegate_messages.published_records import Gate, LeaseRecord
from tidegate_runtime.followers.version_gates import give_back_lease, take_lease
from tidegate_runtime.kafka.client_protocols import TopicPartition
from tidegate_runtime.service.health import Health
from tidegate_runtime.service.runner import Running
from tidegate_runtime.storage.local_store import LocalStore
from tidegate_runtime.table_io.checkpoint_writer import move_hint_forward
from tidegate_runtime.table_io.open_table import open_snapshot

EVERY = 3
FORMS = (None, Form.JSON, Form.PARQUET, Form.CLASSIC)


def written(folder: Path, form: Form | None = None, versions: int = 20) -> WrittenTable:
    """Write a table of a version a day, the newest of today, with checkpoints and compactions."""
    table = WrittenTable(folder).create()
    if form is not None:
        support_v2_checkpoints(table)
    table.set_metadata(**{"delta.logRetentionDuration": "interval 5 days"})
    store = LocalStore(table.root)
    while table.version < versions:
        table.append(rows(table.version))
        if table.version % 4 == 3:
            table.drop(next(iter(table.files)))
        if table.version % EVERY == 0:
            snapshot = open_snapshot(store, table.version)
            if form is None:
                hint = put_classic(store, snapshot, NOW_MS)
            else:
                hint = put_v2(store, snapshot, form, NOW_MS, files_a_sidecar=2).hint
            move_hint_forward(store, hint)
    (folder / "_delta_log" / compacted_name(1, 2)).write_bytes(
        b"".join((folder / "_delta_log" / commit_name(v)).read_bytes() for v in (1, 2))
    )
    for path in (folder / "_delta_log").rglob("*"):
        if path.is_file() and path.name[:20].isdigit():
            age = table.version - int(path.name[:20])
            at_s = (NOW_MS - age * DAY_MS) / 1000
            os.utime(path, (at_s, at_s))
    return table


def cleaned(table: WrittenTable) -> CleanedTable:
    store = LocalStore(table.root)
    head = open_snapshot(store)
    return CleanedTable(store, head.version, head.protocol, head.metadata)


def planned(table: WrittenTable, *gates: Gate, memory: CleanupMemory | None = None) -> CleanupPlan:
    return survey(cleaned(table), memory or CleanupMemory(), gates, NOW_MS)


def by_delta_rs(table: WrittenTable, version: int) -> list[Any]:
    return sorted(DeltaTable(table.root, version=version).file_uris())


def ours(table: WrittenTable, version: int) -> list[str]:
    files = open_snapshot(LocalStore(table.root), version).files["path"].to_pylist()
    return sorted(f"{table.folder}/{path}" for path in files)


@pytest.mark.parametrize("form", FORMS)
def test_versions_from_the_floor_on_read_the_same_and_older_ones_are_gone(
    tmp_path: Path, form: Form | None
) -> None:
    table = written(tmp_path / "t", form)
    store, memory = LocalStore(table.root), CleanupMemory()
    due = planned(table, memory=memory)
    assert 0 < due.floor < table.version - 5
    assert due.floor % EVERY == 0
    kept = range(due.floor, table.version + 1)
    before = [ours(table, version) for version in kept]
    assert [by_delta_rs(table, version) for version in kept] == before
    assert verify(store, due, memory, NOW_MS)
    assert delete(store, due, lambda: True).files == len(due.goes) > due.floor
    assert [ours(table, version) for version in kept] == before
    assert [by_delta_rs(table, version) for version in kept] == before
    assert not {commit_name(version) for version in range(due.floor)} & log_names(table)
    assert {commit_name(version) for version in kept} <= log_names(table)
    assert compacted_name(1, 2) not in log_names(table)
    for version in (0, due.floor - 1):
        with pytest.raises(InvalidRequest, match="cleaned up"):
            open_snapshot(store, version)
        with pytest.raises(DeltaError):
            by_delta_rs(table, version)
    assert planned(table, memory=memory).goes == ()


@pytest.mark.parametrize("form", FORMS)
def test_a_cleanup_that_dies_at_any_file_leaves_a_readable_table(
    tmp_path: Path, form: Form | None
) -> None:
    table = written(tmp_path / "t", form)
    store, due = LocalStore(table.root), planned(table)
    kept = range(due.floor, table.version + 1)
    before = [ours(table, version) for version in kept]
    for item in due.goes:
        store.delete(item.file.path)
        assert [ours(table, version) for version in (kept[0], kept[-1])] == [before[0], before[-1]]
        assert by_delta_rs(table, kept[-1]) == before[-1]
        again = planned(table)
        assert again.floor == due.floor
        assert {v.file.path for v in again.goes} <= {v.file.path for v in due.goes}
    assert [ours(table, version) for version in kept] == before


def test_sidecars_of_checkpoints_that_go_go_and_the_others_stay(tmp_path: Path) -> None:
    table = written(tmp_path / "t", Form.JSON)
    sidecars = log_folder(table) / "_sidecars"
    old, new = sidecars / "old.parquet", sidecars / "new.parquet"
    for path, at_s in ((old, (NOW_MS - 2 * DAY_MS) / 1000), (new, NOW_MS / 1000)):
        path.write_bytes(b"x")
        os.utime(path, (at_s, at_s))
    due = planned(table)
    going = {item.file.name for item in due.goes}
    assert old.name in going
    assert new.name not in going
    below = {path.name for path in sidecars.iterdir() if path.name[:20].isdigit()}
    assert {name for name in below if int(name[:20]) < due.floor} <= going


def test_a_consumer_of_older_versions_keeps_them(tmp_path: Path) -> None:
    table = written(tmp_path / "t")
    free, held = planned(table), planned(table, Gate(7, "a reader"))
    assert held.floor == 6 < free.floor
    assert [item.why for item in held.blocked] == ["a reader needs the versions from 7 on"]


@pytest.mark.parametrize("value", ["false", "FALSE"])
def test_a_table_that_forbids_cleanup_is_left_as_it_is(tmp_path: Path, value: str) -> None:
    table = written(tmp_path / "t")
    table.set_metadata(**{"delta.enableExpiredLogCleanup": value})
    due = planned(table)
    assert due.goes == ()
    assert [item.cause for item in due.blocked] == ["disabled"]


def test_protected_checkpoints_go_only_with_everything_before_the_bound(tmp_path: Path) -> None:
    table = written(tmp_path / "t")
    floor = planned(table).floor
    features = {"writerFeatures": ["checkpointProtection"]}
    table.commit(
        "PROTECT", {"protocol": {"minReaderVersion": 1, "minWriterVersion": 7, **features}}
    )
    bound = "delta.requireCheckpointProtectionBeforeVersion"
    table.set_metadata(**{bound: str(floor + 1)})
    held = planned(table)
    assert held.floor == -1
    assert not [item for item in held.goes if "checkpoint" in item.file.name]
    assert "protected" in [one.cause for one in held.blocked]
    table.set_metadata(**{bound: str(floor)})
    assert planned(table).floor >= floor


def test_a_checkpoint_that_contradicts_the_log_stops_the_cleanup(tmp_path: Path) -> None:
    table = written(tmp_path / "t")
    store, memory = LocalStore(table.root), CleanupMemory()
    due = planned(table)
    wrong = open_snapshot(store, due.floor)
    path = log_folder(table) / checkpoint_name(due.floor)
    at_s = path.stat().st_mtime
    other = open_snapshot(store, due.floor - EVERY)
    path.unlink()
    put_classic(store, replace(other, version=wrong.version), NOW_MS)
    os.utime(path, (at_s, at_s))
    assert not verify(store, due, memory, NOW_MS)
    assert "contradicts the log: it " in memory.contradiction
    assert not verify(store, due, memory, NOW_MS + DAY_MS - 1)


def test_an_interrupted_cleanup_leaves_a_checkpoint_unverifiable_not_invalid(
    tmp_path: Path,
) -> None:
    table = written(tmp_path / "t")
    store, due = LocalStore(table.root), planned(table)
    assert verify(store, due, CleanupMemory(), NOW_MS)
    has_time = iter([True] * due.floor + [False])
    assert not delete(store, due, lambda: next(has_time)).is_finished
    assert commit_name(due.floor - 1) not in log_names(table)
    restarted = CleanupMemory()
    again = planned(table)
    assert again.floor == due.floor
    assert not verify(store, again, restarted, NOW_MS)
    assert restarted.contradiction == ""
    assert f"version {due.floor} can't be verified" in restarted.unverifiable
    for _ in range(2 * EVERY):
        table.append(rows(table.version))
        put_classic(store, open_snapshot(store, table.version), NOW_MS)
    later_ms = NOW_MS + 6 * DAY_MS
    newer = survey(cleaned(table), restarted, (), later_ms)
    assert newer.floor > due.floor
    assert verify(store, newer, restarted, later_ms)
    assert restarted.unverifiable == ""
    assert delete(store, newer, lambda: True).is_finished
    assert not {commit_name(version) for version in range(newer.floor)} & log_names(table)


def test_the_service_cleans_a_log_within_an_hour_and_respects_a_lease(tmp_path: Path) -> None:
    settings = CheckpointerSettings()
    topics = settings.kafka.topics
    bus = MemoryBus(topics.declared())
    table = written(tmp_path / "t")
    publisher = bus.producer()
    record = table.record(published_through=table.version)
    publisher.publish(
        TopicPartition(topics.table_state, 0),
        str(table.id).encode(),
        encode(record),
        headers(record),
    )
    publisher.close()
    lease = LeaseRecord(table=table.id, holder="report", needed_from=7, until_ms=NOW_MS + DAY_MS)
    take_lease(bus, topics, lease)
    clock = StillClock(epoch_ms=NOW_MS)
    service = Checkpointer(settings, bus, Running(clock, Health(clock)))
    service.poll()
    assert commit_name(0) in log_names(table)
    clock.boot += 3_600
    service.poll()
    assert commit_name(5) not in log_names(table)
    assert {commit_name(version) for version in range(6, 21)} <= log_names(table)
    give_back_lease(bus, topics, "report", table.id)
    clock.boot += 6 * DAY_MS / 1000
    service.poll()
    assert commit_name(17) not in log_names(table)
    assert commit_name(18) in log_names(table)
    labels = {"table": "t"}
    files = prometheus_client.REGISTRY.get_sample_value("tidegate_log_cleanup_files_total", labels)
    assert files is not None
    assert files > 18


def test_a_doubted_checksum_stops_the_cleanup_until_it_is_deleted(tmp_path: Path) -> None:
    table = written(tmp_path / "doubted")
    topics = CheckpointerSettings().kafka.topics
    bus, clock = MemoryBus(topics.declared()), StillClock(epoch_ms=NOW_MS)
    store, newest = LocalStore(table.root), open_snapshot(LocalStore(table.root))
    path = log_folder(table) / checksum_name(table.version)
    right = version_checksum.of(newest)
    path.write_bytes(version_checksum.encode(replace(right, num_files=999)))
    schedule = CleanupSchedule(bus, topics, Running(clock, Health(clock)))
    schedule.note_checksum(table.id, "doubted", store, newest.version, right)
    record = table.record(published_through=table.version)
    labels = {"table": "doubted", "why": "contradicted"}
    sample = prometheus_client.REGISTRY.get_sample_value
    schedule.clean(record, cleaned(table))
    assert commit_name(0) in log_names(table)
    assert sample("tidegate_log_cleanup_blocked", labels) == 1
    by_hand = CliRunner().invoke(
        table_commands.app, ["cleanup", table.root, "--offline", "--apply"]
    )
    assert by_hand.exit_code == 3
    assert "CorruptChecksum: nothing of table" in by_hand.stderr
    path.unlink()
    schedule.clean(record, cleaned(table))
    assert commit_name(0) not in log_names(table)
    assert sample("tidegate_log_cleanup_blocked", labels) == 0
