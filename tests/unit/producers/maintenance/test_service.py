"""The maintainer beside a committer that answers what a test wants, on a table in a folder."""

import json
import logging
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import Queue
from threading import Event
from typing import Any
from uuid import UUID, uuid4

import pyarrow as pa
import pytest

from tests.unit.producers.answering_bus import TABLE, committed, rejected
from tests.unit.producers.writing.test_optimize import begun
from tests.unit.producers.writing.test_table_write import FRAME, Line
from tidegate_delta.errors import Unavailable
from tidegate_delta.schema.types import format_schema
from tidegate_delta.snapshots.snapshot import Snapshot
from tidegate_messages.codec import encode, headers
from tidegate_messages.outcome import Outcome, Rejection
from tidegate_messages.proposal import Proposal
from tidegate_messages.published_records import MaintenanceRecord, TableRecord
from tidegate_producers.maintenance import service as module
from tidegate_producers.maintenance.machine import DAY_MS
from tidegate_producers.maintenance.maintenance_topic import (
    publish_maintenance,
    read_maintenance,
    resume,
)
from tidegate_producers.maintenance.service import Maintainer
from tidegate_producers.maintenance.settings import MaintainSettings
from tidegate_producers.options import TableLocation
from tidegate_producers.parquet.file_rewrite import CompactionResult
from tidegate_producers.writing.optimize import (
    Bin,
    Compacting,
    CompactionRunner,
    bins_at,
    compact_here,
)
from tidegate_runtime.kafka.client_protocols import TopicPartition
from tidegate_runtime.service.health import Health
from tidegate_runtime.service.runner import Running
from tidegate_runtime.table_io.open_table import open_snapshot

FILES = 20


class Maintained:
    """A table of small files, and maintainers that are started one after the other."""

    def __init__(self, folder: Path, properties: Mapping[str, str] | None = None) -> None:
        self.line = Line(folder)
        begun(self.line, properties or {})
        for k in range(FILES):
            self.line.write(pa.table({"k": [k, k + 100], "p": ["a", "b"]}))
        self.running = Running(self.line.client.clock, Health(self.line.client.clock))

    def maintainer(self, spark: CompactionRunner | None = None, **section: Any) -> Maintainer:
        given = {"file_age_s": 0, "pause_s": 0.001, **section}
        settings = MaintainSettings.model_validate({"maintain": given})
        return Maintainer(settings, self.line.gate, self.running, spark)

    def run(self, **section: Any) -> None:
        self.maintainer(**section).run(once=True)

    @property
    def files(self) -> int:
        return int(open_snapshot(self.line.yes.store).files.num_rows)

    @property
    def report(self) -> MaintenanceRecord:
        return read_maintenance(self.line.gate, self.line.gate.topics)[1][TABLE]

    def answer(self, refusal: Rejection, **statuses: str) -> list[Proposal]:
        """Refuse the next rewrite, answer a cancel, and write what follows; return what came."""
        seen: list[Proposal] = []
        write = self.line.yes

        def answers(sent: Proposal, digest: str) -> Iterable[Outcome]:
            seen.append(sent)
            if sent.kind == "cancel":
                given = {"status": statuses["cancel"], "version": None}
                return [committed(sent, digest).model_copy(update=given)]
            if len(seen) == 1:
                refused = rejected(sent, digest, refusal)
                return [refused.model_copy(update={"status": statuses["first"]})]
            return write(sent, digest)

        self.line.gate.answers = answers
        return seen


@pytest.fixture
def maintained(tmp_path: Path) -> Maintained:
    return Maintained(tmp_path)


def test_small_files_are_packed_once_and_the_history_says_by_whom(maintained: Maintained) -> None:
    before = maintained.line.rows()
    maintained.run()
    assert (maintained.files, maintained.line.rows()) == (1, before)
    sent = maintained.line.last()
    assert sent.operation.parameters["auto"] == "true"
    assert (sent.user_metadata or "").startswith("tidegate maintain: 20 files of ")
    assert all(row[kind]["dataChange"] is False for row in sent.actions for kind in row), (
        "change streams see nothing"
    )
    count = len(maintained.line.gate.sent)
    maintained.run()
    assert len(maintained.line.gate.sent) == count
    report = maintained.report
    assert report.last is not None
    assert (report.last.kind, report.last.outcome) == ("pack", "committed")
    assert "its files are few (1)" in (report.reason or "")


def test_what_packing_costs_is_what_it_writes(maintained: Maintained) -> None:
    maintainer = maintained.maintainer()
    maintainer.run(once=True)
    [known] = maintainer._tables.values()
    [size] = open_snapshot(maintained.line.yes.store).files["size"].to_pylist()
    assert known.rewritten_bytes == size
    assert known.rewritten_bytes < known.added_bytes / 2, "a footer for each small file is gone"


def test_a_plan_proposes_nothing_and_a_pause_holds_a_table(maintained: Maintained) -> None:
    planned = maintained.maintainer().planned()
    assert [task.kind for task in planned.tasks] == ["check", "pack"]
    bus, topics = maintained.line.gate, maintained.line.gate.topics
    pause = MaintenanceRecord(table=TABLE, name="t", about="pause", at_ms=1, reason="a load")
    publish_maintenance(bus, topics, pause)
    maintained.run()
    assert maintained.files == FILES
    assert maintained.maintainer().planned().reasons == {TABLE: "paused: a load"}
    resume(bus, topics, TABLE)
    maintained.run()
    assert maintained.files == 1


@pytest.mark.parametrize(
    ("section", "reason"),
    [({"off": ["t"]}, None), ({"quiet_hours": "00:00-23:59"}, "quiet hours")],
)
def test_tables_are_left_alone_as_the_settings_say(
    maintained: Maintained, section: dict[str, Any], reason: str | None
) -> None:
    maintained.run(**section)
    assert maintained.files == FILES
    reasons = maintained.maintainer(**section).planned().reasons
    assert (reason or "") in reasons.get(TABLE, "")
    assert (reason is None) == (reasons == {})


def test_a_task_that_gives_way_to_a_writer_is_planned_anew_and_is_no_error(
    maintained: Maintained, caplog: pytest.LogCaptureFixture
) -> None:
    conflict = Rejection(rule="concurrent_delete_delete", reason="a writer was first")
    seen = maintained.answer(conflict, first="rejected")
    with caplog.at_level(logging.DEBUG):
        maintained.run()
    assert maintained.files == FILES
    assert [record for record in caplog.records if record.levelno > logging.INFO] == []
    assert maintained.report.last is not None
    assert maintained.report.last.outcome == "concurrent_delete_delete"
    maintained.run()
    assert maintained.files == 1
    assert seen[0].proposal_id == seen[1].proposal_id, "another process knows nothing of it"


@pytest.mark.parametrize("became", ["committed", "rejected"])
def test_an_id_that_came_before_is_looked_up(maintained: Maintained, became: str) -> None:
    reused = Rejection(rule="id_reused", reason="it came before", advice="fix")
    seen = maintained.answer(reused, first="denied", cancel=became)
    maintainer = maintained.maintainer()
    maintainer.run(once=True)
    assert [sent.kind for sent in seen] == ["commit", "cancel"]
    assert seen[1].cancels == seen[0].proposal_id
    if became == "rejected":
        assert maintained.files == FILES
        maintainer.run(once=True)
        assert seen[2].proposal_id != seen[0].proposal_id, "no bytes under that id are taken"
        assert maintained.files == 1


def test_damage_is_found_once_a_day_and_reported_until_it_is_repaired(
    maintained: Maintained, caplog: pytest.LogCaptureFixture
) -> None:
    missing, whole = two(maintained)
    path = maintained.line.root / missing
    content = path.read_bytes()
    path.unlink()
    with caplog.at_level(logging.WARNING):
        maintained.run()
    [line] = [record for record in caplog.records if "file_damaged" in record.getMessage()]
    assert line.levelno == logging.WARNING
    [damaged] = maintained.report.damaged
    assert (damaged.path, damaged.kind) == (missing, "missing_file")
    maintainer = maintained.maintainer()
    maintainer.planned()
    assert maintainer.damaged == {TABLE: (damaged,)}
    path.write_bytes(content[:-1])
    maintained.run()
    assert maintained.report.damaged == (damaged,), "not again within the day"
    maintained.line.client.clock.sleep(DAY_MS / 1000)
    maintained.run()
    assert {found.kind for found in maintained.report.damaged} == {"wrong_size", "unreadable_file"}
    assert {found.path for found in maintained.report.damaged} == {missing} != {whole}
    path.write_bytes(content)
    maintained.line.client.clock.sleep(DAY_MS / 1000)
    maintained.run()
    assert len(maintained.report.damaged) == 0


def two(maintained: Maintained) -> list[str]:
    return sorted(file.name for file in maintained.line.root.glob("*.parquet"))[:2]


def test_a_stop_within_a_task_leaves_no_proposal(
    maintained: Maintained, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    count = len(maintained.line.gate.sent)

    def stopped(snapshot: Snapshot, paths: Sequence[Sequence[str]]) -> list[Bin] | None:
        maintained.running.stopping.set()
        return bins_at(snapshot, paths)

    monkeypatch.setattr(module, "bins_at", stopped)
    with caplog.at_level(logging.INFO):
        maintained.run()
    assert "given_up" in caplog.text
    assert len(maintained.line.gate.sent) == count


def test_a_table_within_whose_tasks_processes_die_is_left_alone_until_it_is_resumed(
    maintained: Maintained, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Killed(BaseException):
        """The process is gone."""

    def die(*_: object) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(module.Maintainer, "_do", die)
        # A process that is gone publishes nothing.
        patch.setattr(module.Maintainer, "_keep", keep_until_it_dies)
        for _ in range(module.DEATHS_MAX):
            with pytest.raises(Killed):
                maintained.run()
    assert maintained.report.deaths == module.DEATHS_MAX
    maintained.run()
    assert maintained.files == FILES
    assert maintained.maintainer().planned().reasons == {TABLE: module.DIED}
    resume(maintained.line.gate, maintained.line.gate.topics, TABLE)
    maintained.run()
    assert maintained.files == 1
    assert maintained.report.deaths == 0


def test_what_was_spent_counts_after_a_restart_also_of_a_task_that_killed(
    maintained: Maintained, monkeypatch: pytest.MonkeyPatch
) -> None:
    [task] = [one for one in maintained.maintainer().planned().tasks if one.kind == "pack"]

    class Killed(BaseException):
        """The process is gone."""

    def die(*_: object) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(module, "compact_here", die)
        patch.setattr(module.Maintainer, "_keep", keep_until_it_dies)
        with pytest.raises(Killed):
            maintained.run()
    assert [size for _, size in maintained.report.spent] == [task.cost_bytes]
    maintained.run()
    assert sum(size for _, size in maintained.report.spent) == 2 * task.cost_bytes
    maintainer = maintained.maintainer()
    maintainer.planned()
    hour = maintainer._section.hour_bytes_max
    assert maintainer._budget.left_bytes(maintained.running.clock.now_ms()) == (
        hour - 2 * task.cost_bytes
    )


_keep = Maintainer._keep


def keep_until_it_dies(self: Maintainer, table: UUID, **changed: object) -> None:
    if changed.get("deaths") != 0:
        _keep(self, table, **changed)


def test_a_table_that_fails_rests_and_the_plan_says_why(maintained: Maintained) -> None:
    (maintained.line.root / "_delta_log" / f"{3:020d}.json").unlink()
    maintained.run()
    [reason] = maintained.maintainer().planned().reasons.values()
    assert "version 3 is missing from the log" in reason


def removed_from(maintained: Maintained, folder: Path, name: str) -> UUID:
    """Register a table whose only file was removed, and is past its retention; return its id."""
    table, log = uuid4(), folder / name / "_delta_log"
    log.mkdir(parents=True)
    metadata: dict[str, Any] = {
        "id": str(table),
        "format": {"provider": "parquet", "options": {}},
        "schemaString": format_schema(FRAME),
        "partitionColumns": [],
        "configuration": {"delta.deletedFileRetentionDuration": "interval 0 hours"},
    }
    add = {
        "path": "f",
        "partitionValues": {},
        "size": 9_000,
        "modificationTime": 1,
        "dataChange": True,
    }
    remove = {"path": "f", "deletionTimestamp": 1, "dataChange": True, "size": 9_000}
    commits: list[list[dict[str, Any]]] = [
        [{"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}, {"metaData": metadata}],
        [{"add": add}],
        [{"remove": remove}],
    ]
    for version, actions in enumerate(commits):
        lines = "".join(json.dumps(action) + "\n" for action in actions)
        (log / f"{version:020d}.json").write_text(lines)
    gate = maintained.line.gate
    record = TableRecord(
        table=table,
        table_root=log.parent.as_uri(),
        name=name,
        proposals_topic=gate.topics.proposals,
        topic_partition=0,
        published_through=2,
    )
    at = TopicPartition(gate.topics.table_state, 0)
    gate.append(at, str(table).encode(), encode(record), headers(record))
    return table


class Vacuums:
    """Vacuums that last until a test lets them end, and then succeed, or fail."""

    def __init__(self) -> None:
        self.begun: Queue[str] = Queue()
        self.may_end = Event()
        self.error: Exception | None = None

    def __call__(self, _client: object, place: TableLocation, *_: object) -> None:
        self.begun.put(place.root.rpartition("/")[2])
        assert self.may_end.wait(30)
        if self.error is not None:
            raise self.error


@pytest.fixture
def vacuums(monkeypatch: pytest.MonkeyPatch) -> Vacuums:
    result = Vacuums()
    monkeypatch.setattr(module, "vacuum", result)
    return result


@pytest.mark.parametrize("error", [None, Unavailable("the store is away")])
def test_a_long_vacuum_holds_up_its_table_alone_and_the_next_follows_it(
    maintained: Maintained, vacuums: Vacuums, tmp_path: Path, error: Exception | None
) -> None:
    names = {removed_from(maintained, tmp_path, name): name for name in ("large", "other")}
    vacuums.error = error
    maintainer = maintained.maintainer()
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(maintainer.run, once=False)
        first = vacuums.begun.get(timeout=30)
        while maintained.files > 1:
            assert not running.done(), "it goes on"
        gate = maintained.line.gate
        [first_id] = [table for table, name in names.items() if name == first]
        while read_maintenance(gate, gate.topics)[1][first_id].reason != module.VACUUMED:
            assert not running.done(), "it goes on"
        assert vacuums.begun.empty(), "one vacuum at a time"
        vacuums.may_end.set()
        assert {first, vacuums.begun.get(timeout=30)} == set(names.values())
        maintained.running.stopping.set()
        running.result(30)
    assert vacuums.begun.empty(), "each once, also if it failed"
    reports = read_maintenance(gate, gate.topics)[1]
    chores = [last for table in names if (last := reports[table].last) is not None]
    assert [last.outcome for last in chores] == ([] if error else ["committed"] * 2)
    assert {reports[table].deaths for table in names} == {0}


def test_a_single_round_ends_after_its_vacuums(
    maintained: Maintained, vacuums: Vacuums, tmp_path: Path
) -> None:
    for name in ("large", "other"):
        removed_from(maintained, tmp_path, name)
    vacuums.may_end.set()
    maintained.run()
    assert {vacuums.begun.get(block=False) for _ in range(2)} == {"large", "other"}
    maintained.run()
    assert vacuums.begun.empty(), "another process knows of them"


def test_a_file_that_is_too_large_here_is_left_to_spark(
    maintained: Maintained, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, seen = maintained.line.rows(), list[list[int]]()
    monkeypatch.setattr(module, "TASK_BYTES_MAX", 0)

    def spark(compacting: Compacting, bins: Sequence[Bin]) -> Sequence[CompactionResult]:
        seen.append([len(each.adds) for each in bins])
        return compact_here(compacting, bins)

    maintained.maintainer(spark).run(once=True)
    assert seen == [[FILES]]
    assert (maintained.files, maintained.line.rows()) == (1, before)
