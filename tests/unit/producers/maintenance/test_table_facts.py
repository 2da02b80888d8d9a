"""What the maintainer reads of a log, and the vacuum and purge that follow from it."""

import json
import os
from pathlib import Path

import pyarrow as pa
import pytest

from tests.unit.producers.maintenance.test_service import Maintained
from tests.unit.producers.writing.test_optimize import begun, put
from tests.unit.producers.writing.test_table_write import Line
from tidegate_delta.deletion_vectors.descriptors import inline
from tidegate_delta.deletion_vectors.roaring_bitmap import of_rows
from tidegate_delta.features.clustering import clustering_domain
from tidegate_delta.log.actions import Add, CommitInfo, Metadata
from tidegate_delta.snapshots.file_action_columns import rows_to_adds
from tidegate_producers.maintenance import table_facts
from tidegate_producers.maintenance.machine import HOUR_MS, TASK_BYTES_MAX
from tidegate_producers.maintenance.service import Maintainer
from tidegate_producers.maintenance.table_facts import (
    AUTO_COMPACT,
    KnownTable,
    facts_of,
    sample_of,
    target_file_bytes,
)
from tidegate_runtime.client.proposal_builders import removal
from tidegate_runtime.table_io.open_table import open_snapshot

MIB = 1024 * 1024
NOW_MS = 1_800_000_000_000


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("104857600", 100 * MIB),
        ("64mb", 64 * MIB),
        ("16 MiB", 16 * MIB),
        ("1g", TASK_BYTES_MAX),
        ("0", 128 * MIB),
        ("much", 128 * MIB),
        (None, 128 * MIB),
    ],
)
def test_the_target_size_is_the_tables_own(text: str | None, size: int) -> None:
    given = {} if text is None else {"delta.targetFileSize": text}
    metadata = Metadata(id="x", schema_string='{"type":"struct","fields":[]}', configuration=given)
    assert target_file_bytes(metadata) == size


@pytest.fixture
def line(tmp_path: Path) -> Line:
    return Line(tmp_path)


def known(line: Line) -> KnownTable:
    [record] = line.client.tables().values()
    return KnownTable(record, line.yes.store)


def test_files_are_listed_by_partition_and_only_what_is_new_counts_as_written(line: Line) -> None:
    for k in range(3):
        line.write(pa.table({"k": [k], "p": ["a"]}), partitionColumns="p")
    table = known(line)
    assert table.read(NOW_MS) == 0
    facts = table.facts
    assert facts is not None
    assert [(one.name, len(one.files)) for one in facts.partitions] == [("p=a", 3)]
    first = table.added_bytes
    assert first == facts.written_bytes == facts.size_bytes
    line.write(pa.table({"k": [9], "p": ["b"]}), partitionColumns="p")
    [new] = [add for add in live(line) if add.partition_values == {"p": "b"}]
    assert table.read(NOW_MS) == new.size
    moved = new.with_(path="p=b/packed.parquet", data_change=False)
    put(line, [removal(new, 0), moved])
    assert table.read(NOW_MS) == 0, "what a compaction brought was not written by a user"
    assert table.read(NOW_MS) == 0
    assert table.added_bytes == first + new.size


@pytest.mark.parametrize(("retention", "slot_ms"), [("1 week", HOUR_MS), ("24 seconds", 1_000)])
def test_removals_are_known_by_the_hour_or_by_a_part_of_a_short_retention(
    line: Line, retention: str, slot_ms: int
) -> None:
    begun(line, {"delta.deletedFileRetentionDuration": f"interval {retention}"})
    line.write(pa.table({"k": [1], "p": ["a"]}))
    [add] = live(line)
    put(line, [removal(add, 5 * HOUR_MS + 1)])
    facts = facts_of(open_snapshot(line.yes.store), known(line).record)
    assert facts.removed == ((5 * HOUR_MS + slot_ms, 1, add.size),)


def live(line: Line) -> list[Add]:
    return rows_to_adds(open_snapshot(line.yes.store).files)


def test_of_very_many_files_those_are_looked_at_that_came_first(
    line: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_facts, "LOOKED_AT_MAX", 2)
    for k in range(4):
        line.write(pa.table({"k": [k], "p": ["a"]}))
    oldest = sorted(add.modification_time for add in live(line))[:2]
    [partition] = facts_of(open_snapshot(line.yes.store), known(line).record).partitions
    assert [file.modified_ms for file in partition.files] == oldest


def test_tables_say_why_their_files_stay(line: Line) -> None:
    begun(line, {"delta.autoOptimize.autoCompact": "false"})
    record = known(line).record
    facts = facts_of(open_snapshot(line.yes.store), record)
    assert facts.hindrance == "its property delta.autoOptimize.autoCompact is false"
    snapshot = open_snapshot(line.yes.store)
    metadata = snapshot.metadata.with_(configuration={"delta.feature.clustering": "supported"})
    protocol = snapshot.protocol.with_(
        min_reader_version=1, min_writer_version=7, writer_features=("clustering", "domainMetadata")
    )
    put(line, [protocol, metadata, clustering_domain(metadata, (("k",),))])
    facts = facts_of(open_snapshot(line.yes.store), record)
    assert (facts.hindrance, facts.clustered_by, len(facts.unsorted)) == ("", "k", 0)


def kinds(maintainer: Maintainer) -> set[str]:
    return {task.kind for task in maintainer.planned().tasks}


def test_files_stay_for_an_hour_after_a_writer_past_the_gate_has_changed_rows(
    tmp_path: Path,
) -> None:
    maintained = Maintained(tmp_path, {"delta.enableDeletionVectors": "true"})
    line, clock = maintained.line, maintained.line.client.clock
    clock.sleep(3 * HOUR_MS / 1000)
    assert kinds(maintained.maintainer()) == {"check", "pack"}
    follower = known(line)
    follower.read(clock.now_ms())
    assert follower.changed_elsewhere_ms is None
    add, changed_ms = live(line)[0], clock.now_ms()
    marked = add.with_(deletion_vector=inline(of_rows([1])))
    put(line, [removal(add, changed_ms), marked])
    line.write(pa.table({"k": [1], "p": ["a"]}))
    follower.read(clock.now_ms())
    assert follower.changed_elsewhere_ms == changed_ms
    assert kinds(maintained.maintainer()) == {"check"}, "who begins looks back"
    metadata = open_snapshot(line.yes.store).metadata
    put(line, [metadata.with_(configuration={AUTO_COMPACT: "true"})])
    assert "pack" in kinds(maintained.maintainer()), "the property allows it"
    put(line, [metadata])
    assert kinds(maintained.maintainer()) == {"check"}
    clock.sleep(HOUR_MS / 1000)
    assert "pack" in kinds(maintained.maintainer())


def test_statistics_that_are_missing_are_computed_in_a_quiet_window(tmp_path: Path) -> None:
    maintained = Maintained(tmp_path, {"delta.enableDeletionVectors": "true"})
    line, clock = maintained.line, maintained.line.client.clock
    clock.sleep(3 * HOUR_MS / 1000)
    maintained.run()
    [packed] = live(line)
    marked = packed.with_(deletion_vector=inline(of_rows([39])), stats=None, tags={"a": "b"})
    marked = marked.with_(modification_time=clock.now_ms())
    put(line, [removal(packed, clock.now_ms()), marked])
    rows = line.rows()
    maintained.run()
    assert live(line)[0].stats is None, "a writer has just been there"
    clock.sleep(3 * HOUR_MS / 1000)
    maintained.run()
    assert line.last().operation.name == "COMPUTE STATS"
    [counted] = live(line)
    assert counted == marked.with_(stats=counted.stats, data_change=False)
    stats = json.loads(counted.stats or "")
    assert stats == {**json.loads(packed.stats or ""), "tightBounds": False}
    assert line.rows() == rows
    sent = len(line.gate.sent)
    maintained.run()
    assert len(line.gate.sent) == sent, "nothing is lacking any more"


def test_deleted_rows_go_and_later_the_files_that_held_them(tmp_path: Path) -> None:
    maintained = Maintained(tmp_path, {"delta.enableDeletionVectors": "true", **SOON})
    line, clock = maintained.line, maintained.line.client.clock
    for add in live(line):
        marked = add.with_(deletion_vector=inline(of_rows([1])))
        put(line, [CommitInfo(tidegate={}), removal(add, clock.now_ms()), marked])
    maintained.run(vacuum_interval_s=None)
    assert not any(add.deletion_vector for add in live(line))
    assert len(line.rows()) == 20
    files = set(line.root.glob("*.parquet"))
    for file in files:
        os.utime(file, (0, 0))  # by the test's clock, which is not the machine's
    clock.sleep(3 * HOUR_MS / 1000)
    maintained.run()
    last = line.last()
    assert last.operation.name == "VACUUM END"
    assert (last.user_metadata or "").startswith("tidegate maintain: ")
    left = {line.root / add.path for add in live(line)}
    assert set(line.root.glob("*.parquet")) == left < files
    count = len(line.gate.sent)
    clock.sleep(3 * HOUR_MS / 1000)
    maintained.run()
    assert len(line.gate.sent) == count, "once a day"


def test_a_days_sample_is_drawn_and_has_what_was_damaged(
    line: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    for k in range(6):
        line.write(pa.table({"k": [k], "p": ["a"]}))
    snapshot = open_snapshot(line.yes.store)
    assert sample_of(snapshot, (), 1).num_rows == 6
    monkeypatch.setattr(table_facts, "SAMPLE_FILES", 2)
    days = [tuple(sample_of(snapshot, (), day)["path"].to_pylist()) for day in range(30)]
    assert days[0] == tuple(sample_of(snapshot, (), 0)["path"].to_pylist())
    assert {len(set(paths)) for paths in days} == {2}
    assert {path for paths in days for path in paths} == {add.path for add in live(line)}
    for add in live(line):
        assert add.path in sample_of(snapshot, [add.path], 1)["path"].to_pylist()


SOON = {"delta.deletedFileRetentionDuration": "interval 1 hour"}
