"""The checkpointer as a process: killed anywhere, the table stays readable and it catches up."""

import os
import random
import time
from uuid import UUID

import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from bench.generated_logs import (
    ADDS_A_COMMIT,
    COMMITS,
    SIDECAR_FILES,
    TAIL,
    Shape,
    commit,
    generate,
    paths,
)
from tests.integration.changing_table import changing
from tests.integration.conftest import Line
from tests.integration.waiting import until
from tests.unit.cdc_publisher.written_table import WrittenTable, change_at_random, rows
from tidegate_checkpointer.service import FAILPOINTS
from tidegate_delta.checkpoints import last_checkpoint, version_checksum
from tidegate_delta.log.file_names import (
    Version,
    checkpoint_name,
    checksum_name,
    commit_name,
    compacted_name,
)
from tidegate_local.child_processes import ServiceProcess
from tidegate_runtime.kafka.confluent_bus import KafkaBus
from tidegate_runtime.storage.local_store import LocalStore
from tidegate_runtime.table_io.open_table import open_snapshot

pytestmark = pytest.mark.broker

BEFORE_CLEANUP = "checkpointer.before_cleanup"
CLEANED_AT_ONCE = UUID(int=0)
"""Tables are cleaned at different times of the hour, by their id; this one at its start."""

LARGE_FILES = 3 * SIDECAR_FILES + 1_000
"""Files of a table whose checkpoint has two row groups that are never touched, and others."""

AHEAD_MAX = 100
"""Versions that the table is written beyond its hint while the checkpointer starts."""

DAYS_40_S = 40 * 24 * 60 * 60


@pytest.fixture
def table(line: Line) -> WrittenTable:
    table = WrittenTable(line.tables / "t").create()
    table.register(KafkaBus(line.kafka, "test").producer(), line.kafka.topics)
    return table


def checkpointer(line: Line, name: str = "checkpointer", failpoint: str = "") -> ServiceProcess:
    return line.service("checkpointer", name, failpoint, checkpointer={"look_s": "0.5"})


def there(table: WrittenTable, name: str) -> bool:
    return (table.folder / "_delta_log" / name).exists()


def hinted(table: WrittenTable) -> int:
    path = table.folder / "_delta_log/_last_checkpoint"
    result = last_checkpoint.decode(path.read_bytes()) if path.exists() else None
    return -1 if result is None else result.version


def wait_for_checkpoint_after(table: WrittenTable, version: int) -> int:
    until(lambda: hinted(table) > version, f"a checkpoint after {version}")
    return hinted(table)


def check_table(table: WrittenTable) -> None:
    """Assert that we and delta-rs read the table's rows, and that every checksum is right."""
    snapshot = open_snapshot(LocalStore(table.root))
    assert snapshot.version == table.version
    assert sorted(snapshot.files["path"].to_pylist()) == sorted(table.files)
    theirs = DeltaTable(str(table.folder))
    assert theirs.version() == table.version
    result = theirs.to_pyarrow_table().sort_by("id").to_pylist()
    assert result == sorted(table.content, key=lambda row: row["id"])
    for path in (table.folder / "_delta_log").glob("*.crc"):
        truth = version_checksum.of(open_snapshot(LocalStore(table.root), int(path.stem)))
        assert (
            version_checksum.differences(version_checksum.decode(path.read_bytes()), truth) == ()
        ), path.name


@pytest.mark.timeout(400)
def test_killed_at_every_named_point_the_table_stays_readable(
    line: Line, table: WrittenTable
) -> None:
    dice = random.Random(3)
    bell = KafkaBus(line.kafka, "test").producer()
    table.append(rows(*range(50)))
    for number, failpoint in enumerate(item for item in FAILPOINTS if item != BEFORE_CLEANUP):
        for _ in range(12):
            change_at_random(table, dice)
        service = checkpointer(line, f"checkpointer-{number}", failpoint)
        service.start()
        table.notify(bell, line.kafka.topics)
        assert service.child.wait(180) == -9, service.child.tail()
        check_table(table)
    checkpointer(line, "checkpointer-last").start()
    due = table.version - table.version % 10
    until(lambda: there(table, checksum_name(table.version)), "the last checksum")
    until(lambda: hinted(table) == due, f"the hint at {due}")
    check_table(table)


@pytest.mark.timeout(400)
def test_killed_before_it_deletes_it_cleans_the_log_when_it_is_back(line: Line) -> None:
    dice = random.Random(7)
    table = WrittenTable(line.tables / "t", id=CLEANED_AT_ONCE).create()
    bus = KafkaBus(line.kafka, "test")
    table.register(bus.producer(), line.kafka.topics)
    table.append(rows(*range(50)))
    checkpoints: list[int] = []
    for number in range(3):
        while table.version % 10 or table.version <= max(checkpoints, default=0):
            change_at_random(table, dice)
        checkpoints.append(table.version)
        service = checkpointer(line, f"checkpointer-{number}")
        service.start()
        wait_for_checkpoint_after(table, table.version - 1)
        until(lambda: there(table, checksum_name(table.version)), "the last checksum")
        assert service.child.stop(30) == 0
    check_table(table)
    log = table.folder / "_delta_log"
    aged_s = time.time() - DAYS_40_S
    for path in log.iterdir():
        os.utime(path, (aged_s, aged_s))
    listed = sorted(path.name for path in log.iterdir())

    service = checkpointer(line, "killed", BEFORE_CLEANUP)
    service.start()
    assert service.child.wait(180) == -9, service.child.tail()
    assert {path.name for path in log.iterdir()} >= set(listed), "a file is gone"

    checkpointer(line, "back").start()
    below = [name for name in listed if name[0].isdigit() and int(name[:20]) < checkpoints[1]]
    assert below
    until(lambda: not any(there(table, name) for name in below), "the cleanup")
    assert there(table, commit_name(Version(checkpoints[1])))
    check_table(table)


@pytest.mark.timeout(400)
def test_killed_at_any_moment_under_load_it_catches_up(line: Line, table: WrittenTable) -> None:
    dice = random.Random(5)
    table.append(rows(*range(50)))
    service = checkpointer(line)
    seen = -1
    with changing(table, dice, line, is_paused=lambda: table.version > hinted(table) + AHEAD_MAX):
        for _ in range(3):
            service.start()
            seen = wait_for_checkpoint_after(table, seen)
            time.sleep(dice.random() / 2)
            service.child.kill()
            assert hinted(table) >= seen, "the hint went back"
    service.start()
    service.wait_ready()
    until(lambda: there(table, checksum_name(table.version)), "the last checksum")
    due = table.version - table.version % 10
    until(lambda: hinted(table) == due, f"the hint at {due}")
    check_table(table)
    assert service.child.stop(30) == 0


@pytest.mark.timeout(400)
def test_killed_while_it_copies_row_groups_every_checkpoint_is_whole(line: Line) -> None:
    dice = random.Random(11)
    table = WrittenTable(line.tables / "large")
    generate(table.folder, Shape.CLASSIC, LARGE_FILES, {"delta.checkpointInterval": "2"})
    log, table.version = table.folder / "_delta_log", COMMITS + TAIL
    bus = KafkaBus(line.kafka, "test")
    bell = bus.producer()
    table.register(bell, line.kafka.topics)
    service = checkpointer(line)
    live = set(open_snapshot(LocalStore(table.root)).files["path"].to_pylist())
    changed: list[tuple[set[str], set[str]]] = []
    added, numbers = LARGE_FILES + TAIL * ADDS_A_COMMIT, iter(range(0, SIDECAR_FILES, 2))
    for _ in range(3):
        service.start()
        service.wait_ready()
        seen, ends_s = hinted(table), time.monotonic() + 1.0 + dice.random()
        while hinted(table) <= seen or time.monotonic() < ends_s:
            table.version += 1
            adds, removed = range(added, added + 100), [next(numbers), next(numbers)]
            added += len(adds)
            commit(table.folder, table.version, adds, removed, int(1e3 * time.time()))
            gone = {path for number in removed for path in paths(number, 1)}
            changed.append((gone, set(paths(adds.start, len(adds)))))
            table.notify(bell, line.kafka.topics)
            time.sleep(0.1)
        service.child.kill()
    service.start()
    service.wait_ready()
    last = checkpoint_name(Version(table.version - table.version % 2))
    until(lambda: there(table, last), "the last checkpoint")
    assert service.child.stop(30) == 0
    verified = 0
    for version, (gone, new) in enumerate(changed, COMMITS + TAIL + 1):
        live = (live - gone) | new
        path = log / checkpoint_name(Version(version))
        if path.exists():
            rows = pq.ParquetFile(path).read(columns=["add.path"])["add"].combine_chunks()
            held = rows.field("path").drop_null().to_pylist()
            assert len(held) == len(live), path.name
            assert set(held) == live, path.name
            verified += 1
    assert verified >= 3
    assert len(DeltaTable(str(table.folder)).file_uris()) == len(live)
    # Only the row groups that were generated have a dictionary of their paths.
    newest = pq.read_metadata(log / last)
    leaf = newest.schema.names.index("path")
    groups = map(newest.row_group, range(newest.num_row_groups))
    assert sum(group.column(leaf).has_dictionary_page for group in groups) == 2


@pytest.mark.timeout(400)
def test_notifications_lead_to_every_kind_of_file(line: Line, table: WrittenTable) -> None:
    bell = KafkaBus(line.kafka, "test").producer()
    service = checkpointer(line)
    service.start()
    service.wait_ready()
    while table.version < 16:
        table.append(rows(table.version + 100))
        table.notify(bell, line.kafka.topics)
        until(lambda: there(table, checksum_name(table.version)), "its checksum")
    for name in (checkpoint_name(10), compacted_name(0, 4), compacted_name(11, 15)):
        assert there(table, name), name
    check_table(table)
