"""`tidegate maintain` beside writers, killed within tasks: nobody is refused, no row is lost."""

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, QueryBuilder

from tests.integration.conftest import Line
from tests.integration.proposers import CLOCK, SCHEMA, append_with, write_file
from tests.integration.test_producer_cli import Terminal
from tests.integration.waiting import until
from tidegate_delta.definitions.resolve_definition import define_new
from tidegate_delta.log.actions import Add, Metadata
from tidegate_delta.schema.arrow_types import from_arrow
from tidegate_delta.schema.types import format_schema
from tidegate_delta.snapshots.file_action_columns import rows_to_adds
from tidegate_messages.published_records import TableRecord
from tidegate_producers.history.table_history import HistoryEntry, history
from tidegate_producers.maintenance import service
from tidegate_producers.maintenance.__main__ import app
from tidegate_producers.maintenance.service import Maintainer
from tidegate_producers.maintenance.settings import MaintainSettings
from tidegate_producers.options import TableLocation, for_writing
from tidegate_producers.parquet.file_rewrite import CompactionResult
from tidegate_producers.writing.clustering import cluster_by
from tidegate_producers.writing.optimize import Bin, Compacting, compact_here
from tidegate_producers.writing.row_delete import delete, rewrite_here
from tidegate_producers.writing.table_write import WriteRequest
from tidegate_runtime.client import proposal_builders
from tidegate_runtime.client.client import Client
from tidegate_runtime.clock import new_id
from tidegate_runtime.kafka.confluent_bus import KafkaBus
from tidegate_runtime.service.health import Health
from tidegate_runtime.service.runner import Running
from tidegate_runtime.storage.local_store import LocalStore
from tidegate_runtime.table_io.data_file_reader import read_table
from tidegate_runtime.table_io.open_table import open_snapshot

pytestmark = pytest.mark.broker

FILES, ROWS = 60, 20
TASKS = 4
WAIT_S = 60.0
TRACKED = {
    "enableRowTracking": "true",
    "rowTracking.materializedRowIdColumnName": "_id",
    "rowTracking.materializedRowCommitVersionColumnName": "_version",
}
EAGER = {"file_age_s": "0", "pause_s": "0.2"}


def small_files(folder: Path, count: int = FILES) -> Iterator[Add]:
    """Write many files of a few rows, and yield their actions."""
    folder.mkdir()
    for number in range(count):
        rows = range(number * ROWS, (number + 1) * ROWS)
        name = f"first-{number:03}.parquet"
        pq.write_table(pa.table([["first"] * ROWS, list(rows)], schema=SCHEMA), folder / name)
        yield Add(
            path=name,
            partition_values={},
            size=(folder / name).stat().st_size,
            modification_time=CLOCK.now_ms(),
            data_change=True,
            stats=f'{{"numRecords":{ROWS}}}',
        )


def created(
    client: Client, folder: Path, adds: Sequence[Add] | None = None, **properties: str
) -> TableRecord:
    """Create a table, named as its folder, with some files, by default its small ones."""
    given = {f"delta.{name}": value for name, value in properties.items()}
    metadata = Metadata(
        id=str(new_id(CLOCK)),
        schema_string=format_schema(from_arrow(SCHEMA)),
        configuration={"delta.enableDeletionVectors": "true", **given},
    )
    target = proposal_builders.Target(new_id(CLOCK), folder.as_uri(), name=folder.name)
    stamp = proposal_builders.Stamp(new_id(CLOCK), CLOCK.now_ms())
    protocol = define_new(metadata).protocol
    files = list(small_files(folder)) if adds is None else adds
    made = proposal_builders.create(target, stamp, protocol, metadata, files)
    assert client.propose(made).status == "committed"
    return client.require(folder.as_uri())


def packings(store: LocalStore) -> list[HistoryEntry]:
    """Return the versions by which files were packed."""
    return [entry for entry in history(store) if entry.operation == "OPTIMIZE"]


def delete_one_by_one(line: Line, place: TableLocation, over: threading.Event) -> list[int]:
    """Delete single rows until it is over, and return which; a refusal is raised."""
    gone: list[int] = []
    with Client(KafkaBus(line.kafka, "deleter"), line.kafka.topics, patience_s=3.0) as client:
        for number in range(0, FILES * ROWS, 7):
            if over.is_set():
                break
            condition = f"writer = 'first' AND number = {number}"
            outcome = delete(client, place, condition, WriteRequest(WAIT_S), rewrite_here)
            assert outcome is not None
            assert outcome.status == "committed"
            gone.append(number)
    return gone


def test_a_maintainer_that_dies_packs_a_busy_table_and_refuses_nobody(line: Line) -> None:
    folder = line.tables / "busy"
    place = for_writing({"path": str(folder)}).place
    store = LocalStore(folder.as_uri())
    line.started("committer")
    with Client(KafkaBus(line.kafka, "test"), line.kafka.topics, patience_s=3.0) as client:
        record = created(client, folder)
    over = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        deleting = pool.submit(delete_one_by_one, line, place, over)
        [appender] = append_with(line.kafka, record, 1, 10_000, over)
        try:
            for name in ("after_compact", "after_rewrite"):
                dying = line.service("producers.maintenance", name, name, maintain=EAGER)
                dying.start()
                assert dying.child.wait(WAIT_S) == -9, dying.child.tail()
            names = ("maintain", "another by mistake")
            maintainers = [
                line.service("producers.maintenance", name, maintain=EAGER) for name in names
            ]
            for maintainer in maintainers:
                maintainer.start()
            until(lambda: len(packings(store)) >= TASKS, "packings beside writers", WAIT_S)
        finally:
            over.set()
        gone = deleting.result(WAIT_S)
        appender.join(WAIT_S)
    assert {outcome.status for outcome in appender.outcomes.values()} == {"committed"}
    until(lambda: open_snapshot(store).files.num_rows < 20, "few files", WAIT_S)
    for maintainer in maintainers:
        assert maintainer.child.stop() == 0, maintainer.child.tail()

    terminal = Terminal(line)
    planned = terminal.json(app, "plan", "busy", "--set=maintain.file_age_s=0")
    assert len(planned["tasks"]) + len(planned["nothing"]) >= 1
    terminal.json(app, "pause", "busy", "--reason", "a look")
    [paused] = terminal.json(app, "plan", "busy")["nothing"]
    assert paused["why"] == "paused: a look"

    query = QueryBuilder().register("t", DeltaTable(folder)).execute("SELECT * FROM t")
    columns = pa.table(query.read_all()).select(["writer", "number"]).to_pydict()
    held = sorted(zip(columns["writer"], columns["number"], strict=True))
    expected = [("first", number) for number in sorted({*range(FILES * ROWS)} - {*gone})]
    expected += [("w0", number) for number in range(len(appender.outcomes))]
    assert held == expected
    entries = packings(store)
    alone = [entry for entry in entries if entry.proposals == 1]
    assert all((one.user_metadata or "").startswith("tidegate maintain: ") for one in alone)
    packed = sum(int(entry.metrics["numRemovedFiles"]) for entry in entries)
    assert packed >= FILES


def test_the_same_task_twice_is_done_once_and_a_writer_that_is_first_wins(
    line: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another maintainer, or a writer, commits while a maintainer has its files written."""
    folder = line.tables / "busy"
    line.started("committer")
    with Client(KafkaBus(line.kafka, "test"), line.kafka.topics, patience_s=3.0) as client:
        created(client, folder)
        settings = MaintainSettings.model_validate(
            {"kafka": line.kafka.model_dump(), "maintain": {"file_age_s": 0, "pause_s": 0.01}}
        )
        running = Running(CLOCK, Health(CLOCK))
        meanwhile: list[Callable[[], object]] = []

        def compact(compacting: Compacting, bins: Sequence[Bin]) -> Sequence[CompactionResult]:
            results = compact_here(compacting, bins)
            if meanwhile:
                meanwhile.pop()()
            return results

        monkeypatch.setattr(service, "compact_here", compact)

        def maintain() -> str | None:
            maintainer = Maintainer(settings, KafkaBus(line.kafka, "test"), running)
            maintainer.run(once=True)
            [last] = maintainer.last.values()
            return last.outcome

        store = LocalStore(folder.as_uri())
        meanwhile.append(maintain)
        assert maintain() == "committed"
        entries = packings(store)
        assert [entry.metrics["numRemovedFiles"] for entry in entries] == [str(FILES)]
        refused = [entry for entry in history(store) if entry.refused]
        assert refused == []

        record = client.require(folder.as_uri())
        more = [write_file(folder, "more", number) for number in range(30)]
        target = proposal_builders.Target(
            record.table, record.table_root, int(open_snapshot(store).version), record.table_id
        )
        stamp = proposal_builders.Stamp(new_id(CLOCK), CLOCK.now_ms())
        assert client.propose(proposal_builders.append(target, stamp, more)).status == "committed"
        [live] = [rows_to_adds(open_snapshot(store).files)]

        def overwrite() -> None:
            version = int(open_snapshot(store).version)
            over = replace(target, read_version=version)
            own = proposal_builders.Stamp(new_id(CLOCK), CLOCK.now_ms())
            fresh = write_file(folder, "over", 0)
            sent = proposal_builders.overwrite(over, own, [fresh], live)
            assert client.propose(sent).status == "committed"

        meanwhile.append(overwrite)
        assert maintain() == "concurrent_delete_read"
        assert [add.path.split("-")[1] for add in rows_to_adds(open_snapshot(store).files)] == [
            "over"
        ]


def test_statistics_that_are_missing_are_computed_and_other_engines_use_them(line: Line) -> None:
    folder = line.tables / "busy"
    line.started("committer")
    adds = [add.with_(modification_time=1) for add in small_files(folder, 3)]
    store = LocalStore(folder.as_uri())
    terminal = Terminal(line)
    with Client(KafkaBus(line.kafka, "test"), line.kafka.topics, patience_s=3.0) as client:
        created(client, folder, adds, **TRACKED)
        before = rows_to_adds(open_snapshot(store).files)
        check, due = terminal.json(app, "plan", "busy")["tasks"]
        assert check["kind"] == "check"
        assert (due["kind"], len(due["files"])) == ("statistics", 3)
        settings = MaintainSettings.model_validate({"kafka": line.kafka.model_dump()})
        running = Running(CLOCK, Health(CLOCK))
        Maintainer(settings, KafkaBus(line.kafka, "test"), running).run(once=True)
        assert terminal.json(app, "plan", "busy")["tasks"] == []

        [entry] = [entry for entry in history(store) if entry.operation == "COMPUTE STATS"]
        assert (entry.user_metadata or "").startswith("tidegate maintain: 3 files of ")
        after = rows_to_adds(open_snapshot(store).files)
        assert [add.with_(stats=None) for add in after] == [
            add.with_(data_change=False, stats=None) for add in before
        ], "row ids and all stay as they were"
        shown = pa.table(DeltaTable(folder).get_add_actions(flatten=True)).sort_by("path")
        assert shown["num_records"].to_pylist() == [ROWS] * 3
        assert shown["max.number"].to_pylist() == [ROWS - 1, 2 * ROWS - 1, 3 * ROWS - 1]
        assert shown["null_count.writer"].to_pylist() == [0, 0, 0]

        place = for_writing({"path": str(folder)}).place
        outcome = delete(client, place, "number < 5", WriteRequest(WAIT_S), rewrite_here)
        assert outcome is not None
    assert outcome.status == "committed"
    counted = QueryBuilder().register("t", DeltaTable(folder)).execute("SELECT count(*) FROM t")
    assert pa.table(counted.read_all())[0].to_pylist() == [3 * ROWS - 5]


def test_a_clustered_table_is_sorted_in_a_quiet_window_and_others_skip_its_files(
    line: Line,
) -> None:
    folder = line.tables / "busy"
    line.started("committer")
    adds = [add.with_(modification_time=1) for add in small_files(folder, 8)]
    place = for_writing({"path": str(folder)}).place
    store = LocalStore(folder.as_uri())
    with Client(KafkaBus(line.kafka, "test"), line.kafka.topics, patience_s=3.0) as client:
        created(client, folder, adds[::2] + adds[1::2], **TRACKED, targetFileSize="4kb")
        assert cluster_by(client, place, ("number",), WriteRequest(WAIT_S)) is not None
        before = rows_with_ids(store)
        settings = MaintainSettings.model_validate({"kafka": line.kafka.model_dump()})
        running = Running(CLOCK, Health(CLOCK))
        Maintainer(settings, KafkaBus(line.kafka, "test"), running).run(once=True)
        assert rows_with_ids(store).equals(before)
        again = Maintainer(settings, KafkaBus(line.kafka, "test"), running).planned()
    assert again.tasks == ()
    [entry] = packings(store)
    assert entry.parameters["clusterBy"] == '["number"]'
    files = rows_to_adds(open_snapshot(store).files)
    assert {add.clustering_provider for add in files} == {"tidegate"}
    shown = pa.table(DeltaTable(folder).get_add_actions(flatten=True)).sort_by("min.number")
    low, high = (shown[f"{side}.number"].to_pylist() for side in ("min", "max"))
    assert len(low) == 2
    assert (low[0], high[-1]) == (0, 8 * ROWS - 1)
    assert all(above > below for above, below in zip(low[1:], high, strict=False))


def rows_with_ids(store: LocalStore) -> pa.Table:
    names = ["writer", "number", "_metadata.row_id"]
    return read_table(store, open_snapshot(store), names).sort_by("number")
