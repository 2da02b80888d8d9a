"""The maintainer beside a committer that answers what a test wants, on a table in a folder."""

import logging
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest

from tests.unit.producers.answering_bus import TABLE, committed, rejected
from tests.unit.producers.writing.test_optimize import begun
from tests.unit.producers.writing.test_table_write import Line
from tidegate_delta.snapshots.snapshot import Snapshot
from tidegate_messages.outcome import Outcome, Rejection
from tidegate_messages.proposal import Proposal
from tidegate_messages.published_records import MaintenanceRecord
from tidegate_producers.maintenance import service as module
from tidegate_producers.maintenance.machine import DAY_MS
from tidegate_producers.maintenance.maintenance_topic import (
    publish_maintenance,
    read_maintenance,
    resume,
)
from tidegate_producers.maintenance.service import Maintainer
from tidegate_producers.maintenance.settings import MaintainSettings
from tidegate_producers.writing.optimize import Bin, bins_at
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

    def maintainer(self, **section: Any) -> Maintainer:
        given = {"file_age_s": 0, "pause_s": 0.001, **section}
        settings = MaintainSettings.model_validate({"maintain": given})
        return Maintainer(settings, self.line.gate, self.running)

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
