"""A maintainer dies at each step of a task, beside the real committer, and another one begins."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.builders import Gate, an_id, row_delete, rows_of
from tests.unit.producers.commands import Prompt
from tidegate_committer.settings import CommitterSection
from tidegate_delta.definitions.resolve_definition import define_new
from tidegate_delta.log.actions import Add, Metadata
from tidegate_delta.schema.arrow_types import from_arrow
from tidegate_delta.schema.types import format_schema
from tidegate_producers.history.table_history import history
from tidegate_producers.maintenance import service
from tidegate_producers.maintenance.machine import HOUR_MS
from tidegate_producers.maintenance.maintenance_topic import read_maintenance
from tidegate_producers.maintenance.service import Maintainer
from tidegate_producers.maintenance.settings import MaintainSettings
from tidegate_producers.options import for_writing
from tidegate_producers.writing.clustering import cluster_by
from tidegate_producers.writing.table_write import WriteRequest
from tidegate_runtime.client import proposal_builders
from tidegate_runtime.client.client import Client
from tidegate_runtime.service.health import Health
from tidegate_runtime.service.runner import Running
from tidegate_runtime.storage.local_store import LocalStore
from tidegate_runtime.table_io.data_file_reader import read_table
from tidegate_runtime.table_io.open_table import open_snapshot

ROWS: Final = 10
SCHEMA: Final = pa.schema([("k", pa.int64()), ("text", pa.string())])
OPERATIONS: Final = {"pack": "OPTIMIZE", "statistics": "COMPUTE STATS", "recluster": "OPTIMIZE"}
FILES: Final = {"pack": 12, "statistics": 3, "recluster": 5}


class Killed(BaseException):
    """The process is gone."""


def die(*_: object, **__: object) -> None:
    raise Killed


def die_after(step: Callable[..., Any]) -> Callable[..., Any]:
    """Return a step that is done, and after which the process is gone."""

    def done(*arguments: Any, **named: Any) -> Any:
        step(*arguments, **named)
        raise Killed

    return done


@dataclass
class Sea:
    """A table of small files without statistics, the committer, and its maintainers."""

    root: Path
    gate: Gate
    table: Any
    expected: set[int]

    @property
    def store(self) -> LocalStore:
        return LocalStore(self.root.as_uri())

    def maintain(self) -> None:
        """Start a maintainer, which does what is due."""
        settings = MaintainSettings.model_validate({"maintain": {"file_age_s": 0}})
        clock = self.gate.clock
        Maintainer(settings, self.gate.bus, Running(clock, Health(clock))).run(once=True)

    def delete(self, path: str, position: int, number: int, version: int) -> None:
        """Delete a row of a file as a user who read it at a version; the committer takes it."""
        intent = rows_of(path, [position], num_records=ROWS)
        own = row_delete(intent, read_version=version, table=self.table)
        sent = own.model_copy(update={"table_root": self.root.as_uri(), "table_id": TABLE_ID})
        [outcome] = self.gate.ask(sent)
        assert outcome.status == "committed", outcome
        self.expected.remove(number)

    def versions(self, operation: str) -> int:
        return sum(entry.operation == operation for entry in history(self.store))

    def check(self) -> None:
        """Check that no row is lost or doubled, and that nobody was refused."""
        rows = read_table(self.store, open_snapshot(self.store), ["k"])["k"].to_pylist()
        assert sorted(rows) == sorted(self.expected)
        assert not any(entry.refused for entry in history(self.store))


TABLE_ID: Final = "00000000-0000-0000-0000-0000000000aa"


def sea_of(folder: Path, count: int, monkeypatch: pytest.MonkeyPatch) -> Sea:
    root = folder / "t"
    root.mkdir()
    adds = []
    for number in range(count):
        keys = range(number * ROWS, (number + 1) * ROWS)
        path = root / f"f-{number:02}.parquet"
        pq.write_table(pa.table([list(keys), ["x"] * ROWS], schema=SCHEMA), path)
        stats = f'{{"numRecords":{ROWS}}}'
        adds.append(
            Add(
                path=path.name,
                partition_values={},
                size=path.stat().st_size,
                modification_time=1,
                data_change=True,
                stats=stats,
            )
        )
    uri = root.as_uri()
    gate = Gate(CommitterSection(roots=(folder.as_uri(),), audit_s=1e9), {uri: LocalStore(uri)})
    metadata = Metadata(
        id=TABLE_ID,
        schema_string=format_schema(from_arrow(SCHEMA)),
        configuration={"delta.enableDeletionVectors": "true"},
    )
    target = proposal_builders.Target(an_id(), uri, name="t")
    stamp = proposal_builders.Stamp(an_id(), gate.clock.now_ms())
    protocol = define_new(metadata).protocol
    [made] = gate.ask(proposal_builders.create(target, stamp, protocol, metadata, adds))
    assert made.status == "committed", made
    gate.clock.boot += 3 * HOUR_MS / 1000
    monkeypatch.setattr(gate.bus, "producer", lambda: Prompt(gate.bus, gate.settle))
    return Sea(root, gate, target.table, set(range(count * ROWS)))


def with_facts_read(patch: pytest.MonkeyPatch, sea: Sea) -> None:
    patch.setattr(service, "bins_at", die)


def with_files_written(patch: pytest.MonkeyPatch, sea: Sea) -> None:
    for name in ("compact_here", "with_statistics"):
        patch.setattr(service, name, die_after(getattr(service, name)))


def with_its_proposal_sent(patch: pytest.MonkeyPatch, sea: Sea) -> None:
    patch.setattr(sea.gate.bus, "producer", lambda: Prompt(sea.gate.bus, die))


def before_its_outcome_came(patch: pytest.MonkeyPatch, sea: Sea) -> None:
    patch.setattr(sea.gate.bus, "producer", lambda: Prompt(sea.gate.bus, work_and_die(sea)))


def work_and_die(sea: Sea) -> Callable[[], None]:
    return die_after(sea.gate.settle)


def with_its_outcome(patch: pytest.MonkeyPatch, sea: Sea) -> None:
    patch.setattr(service, "reach", die)


def with_all_recorded(patch: pytest.MonkeyPatch, sea: Sea) -> None:
    patch.setattr(Maintainer, "_report", die_after(Maintainer._report))


STEPS: Final = (
    with_facts_read,
    with_files_written,
    with_its_proposal_sent,
    before_its_outcome_came,
    with_its_outcome,
    with_all_recorded,
)
_keep = Maintainer._keep


def keep_until_it_dies(self: Maintainer, table: Any, **changed: object) -> None:
    """Keep what a process that lives keeps: after its death it ends no task."""
    if changed.get("deaths") != 0:
        _keep(self, table, **changed)


@pytest.mark.parametrize("kind", OPERATIONS)
@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.__name__)
def test_a_task_is_done_once_whenever_its_maintainer_dies(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    step: Callable[[pytest.MonkeyPatch, Sea], None],
    kind: str,
) -> None:
    sea = sea_of(tmp_path, FILES[kind], monkeypatch)
    if kind == "recluster":
        with Client(sea.gate.bus, sea.gate.topics) as client:
            place = for_writing({"path": str(sea.root)}).place
            assert cluster_by(client, place, ("text", "k"), WriteRequest(10)) is not None
    version = int(open_snapshot(sea.store).version)
    with monkeypatch.context() as patch:
        patch.setattr(Maintainer, "_keep", keep_until_it_dies)
        step(patch, sea)
        with pytest.raises(Killed):
            sea.maintain()
    sea.gate.settle()
    sea.check()
    if kind != "recluster":  # whose rows can't be followed: it runs in quiet windows
        sea.delete("f-01.parquet", 3, ROWS + 3, version)
    sea.gate.clock.boot += 3 * HOUR_MS / 1000
    sea.maintain()
    if kind != "recluster":
        sea.delete("f-02.parquet", 4, 2 * ROWS + 4, version)
    sea.gate.clock.boot += 3 * HOUR_MS / 1000
    sea.maintain()
    sea.check()
    assert sea.versions(OPERATIONS[kind]) == 1
    report = read_maintenance(sea.gate.bus, sea.gate.topics)[1][sea.table]
    assert report.deaths < service.DEATHS_MAX
    assert report.last is not None
