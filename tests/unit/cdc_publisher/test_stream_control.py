"""What operators do with a stream: modes, signals, gaps, incremental snapshots."""

import json
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from tests.fakes.memory_bus import MemoryBus
from tests.unit.cdc_publisher.memory_change_topic import Topic, stream
from tests.unit.cdc_publisher.written_table import SCHEMA, Rows, WrittenTable, rows
from tidegate_cdc_publisher.machine import Received, SnapshotMode
from tidegate_cdc_publisher.settings import CdcSettings
from tidegate_cdc_publisher.signals import SignalReader
from tidegate_cdc_publisher.table_stream import TableStream
from tidegate_delta.errors import BrokenLog
from tidegate_messages.codec import encode, headers
from tidegate_messages.published_records import ChangeSignal
from tidegate_messages.schema_announcement import MARKER
from tidegate_runtime.client.change_stream import ChangeStream, TableCopy
from tidegate_runtime.kafka.client_protocols import TopicPartition

TOPIC = "cdc.t"


@pytest.fixture
def table(tmp_path: Path) -> WrittenTable:
    made = WrittenTable(tmp_path / "t").create()
    for number in range(1, 4):
        made.append(rows(number * 10, number * 10 + 1))
    return made


def signal(table: WrittenTable, kind: str, offset: int = 0, **fields: Any) -> Received:
    message = {"table": table.id, "type": kind, **fields}
    return Received(offset, ChangeSignal.model_validate(message))


def obey(table: WrittenTable, topic: Topic, *signals: Received, **given: Any) -> TableStream:
    """Open the stream, let it obey, and publish up to the head."""
    opened = stream(table, topic, **given)
    opened.receive(signals)
    opened.catch_up(table.version)
    return opened


def copy_of(topic: Topic) -> TableCopy:
    """Return the table as a subscriber has it after all records."""
    bus = MemoryBus({TOPIC: 1})
    for record in topic.records:
        at = TopicPartition(TOPIC, 0)
        result = tuple((name, value) for name, value in record.headers if isinstance(value, bytes))
        bus.append(at, record.key, record.value, result)
    copy = TableCopy()
    with ChangeStream(bus, TOPIC) as follower:
        for change in follower.changes(quiet_s=0.1):
            copy.apply(change)
    return copy


def by_id(content: Any) -> Rows:
    return sorted((dict(row) for row in content), key=lambda row: row["id"])


def markers(topic: Topic) -> list[str]:
    result = [dict(record.headers).get(MARKER) for record in topic.records]
    return [kind.decode() for kind in result if isinstance(kind, bytes)]


@pytest.mark.parametrize(
    ("mode", "told"),
    [
        ("initial", ["r"] * 6 + ["c"]),
        ("initial_only", ["r"] * 6),
        ("no_data", ["c"]),
        ("when_needed", ["r"] * 6 + ["c"]),
    ],
)
def test_a_mode_decides_how_a_stream_begins(
    table: WrittenTable, mode: SnapshotMode, told: list[str]
) -> None:
    topic = Topic()
    opened = stream(table, topic, mode=mode)
    opened.catch_up(table.version)
    table.append(rows(99))
    opened.catch_up(table.version)
    assert [item["op"] for item in topic.told] == told


def test_always_publishes_all_rows_at_each_start(table: WrittenTable) -> None:
    topic = Topic()
    for _ in range(2):
        stream(table, topic, mode="always", anew=True).catch_up(table.version)
        assert by_id(copy_of(topic).rows) == by_id(table.content)
    assert [item["op"] for item in topic.told] == ["r"] * 12
    assert markers(topic) == ["schema"], "copies forget what they had"


@pytest.mark.parametrize(
    ("mode", "start", "told"),
    [
        ("no_data", 2, [(2, "c"), (2, "c"), (3, "c"), (3, "c")]),
        ("initial", 3, [(2, "r")] * 4 + [(3, "c")] * 2),
        ("initial", 0, [(1, "c")] * 2 + [(2, "c")] * 2 + [(3, "c")] * 2),
        ("no_data", 4, []),
        ("no_data", 9, []),
    ],
)
def test_a_stream_begins_with_the_changes_of_its_start(
    table: WrittenTable, mode: SnapshotMode, start: int, told: list[tuple[int, str]]
) -> None:
    topic = Topic()
    stream(table, topic, mode=mode, start=start).catch_up(table.version)
    assert [(item["source"]["txId"], item["op"]) for item in topic.told] == told


def test_a_new_snapshot_stands_for_what_was_not_published(table: WrittenTable) -> None:
    topic = Topic()
    stream(table, topic).catch_up(table.version)
    table.drop("part-00001.parquet")
    obey(table, topic, signal(table, "execute-snapshot", snapshot="blocking"))
    assert by_id(copy_of(topic).rows) == by_id(table.content)
    assert topic.position is not None
    assert topic.position.signal == 0
    table.append(rows(77))
    stream(table, topic).catch_up(table.version)
    assert topic.told[-1]["after"]["id"] == 77
    assert by_id(copy_of(topic).rows) == by_id(table.content)


def test_versions_that_are_passed_over_are_a_gap(table: WrittenTable) -> None:
    topic = Topic()
    opened = stream(table, topic)
    opened.catch_up(table.version)
    for number in (41, 42, 43):
        table.append(rows(number))
    opened.receive([signal(table, "set-position", 7, version=table.version - 1, reason="poison")])
    opened.catch_up(table.version)
    copy = copy_of(topic)
    assert [(gap.first, gap.last, gap.reason) for gap in copy.gaps] == [(4, 5, "poison")]
    assert topic.told[-1]["after"]["id"] == 43
    assert not {41, 42} & {row["id"] for row in copy.rows}
    assert topic.position is not None
    assert (topic.position.version, topic.position.signal) == (table.version, 7)


def test_a_position_that_is_set_back_publishes_the_same_changes_again(table: WrittenTable) -> None:
    topic = Topic()
    opened = stream(table, topic, mode="no_data", start=0)
    opened.catch_up(table.version)
    first = [(record.key, dict(record.headers)["event_id"]) for record in topic.records]
    opened.receive([signal(table, "set-position", version=1)])
    opened.catch_up(table.version)
    again = [(record.key, dict(record.headers)["event_id"]) for record in topic.records[6:]]
    assert again == first[2:]
    assert len(copy_of(topic).rows) == 6, "a subscriber counts each change once"


def test_a_stream_that_is_reset_begins_anew_and_is_not_reset_twice(table: WrittenTable) -> None:
    topic = Topic()
    stream(table, topic).catch_up(table.version)
    obey(table, topic, signal(table, "reset-position", 3))
    assert [item["op"] for item in topic.told] == ["r"] * 12
    assert topic.position is not None
    assert (topic.position.signal, topic.position.begins) == (3, False)


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        ("set-position", {"version": 99}),
        ("pause-snapshot", {}),
        ("stop-snapshot", {}),
        ("execute-snapshot", {"filter": "cost > 1"}),
        ("execute-snapshot", {"filter": "name RLIKE 'n.*'"}),
    ],
)
def test_a_signal_that_makes_no_sense_is_left_and_stops_nothing(
    table: WrittenTable, kind: str, fields: dict[str, Any]
) -> None:
    topic = Topic()
    opened = stream(table, topic)
    opened.catch_up(table.version)
    opened.receive([signal(table, kind, 5, **fields)])
    table.append(rows(50))
    opened.catch_up(table.version)
    assert topic.told[-1]["after"]["id"] == 50
    assert topic.position is not None
    assert (topic.position.signal, topic.position.incremental) == (5, None)
    assert topic.position.refused


def gone(table: WrittenTable, what: str) -> None:
    """Take away what version 4 is made of, and go on."""
    table.append(rows(40))
    table.append(rows(50))
    name = f"_delta_log/{4:020d}.json" if what == "log" else "part-00004.parquet"
    (table.folder / name).unlink()


def test_versions_whose_files_are_gone_stop_the_stream(table: WrittenTable) -> None:
    topic = Topic()
    opened = stream(table, topic)
    opened.catch_up(table.version)
    gone(table, "data")
    with pytest.raises(BrokenLog):
        opened.catch_up(table.version)


def test_versions_whose_files_are_gone_are_a_gap_if_wanted(table: WrittenTable) -> None:
    topic = Topic()
    opened = stream(table, topic, on_gap="marker")
    opened.catch_up(table.version)
    gone(table, "data")
    opened.catch_up(table.version)
    assert [(gap.first, gap.last) for gap in copy_of(topic).gaps] == [(4, 4)]
    assert topic.told[-1]["after"]["id"] == 50


def test_all_rows_stand_for_versions_that_are_gone_if_wanted(table: WrittenTable) -> None:
    topic = Topic()
    opened = stream(table, topic, on_gap="resnapshot")
    opened.catch_up(table.version)
    gone(table, "data")
    table.files.pop("part-00004.parquet")
    table.commit("DELETE", {"remove": {"path": "part-00004.parquet", "dataChange": True}})
    opened.catch_up(table.version)
    assert topic.told[-1]["op"] == "r"
    assert by_id(copy_of(topic).rows) == by_id(table.content)


def test_an_incremental_snapshot_takes_turns_with_the_versions(table: WrittenTable) -> None:
    topic = Topic()
    opened = stream(table, topic, mode="no_data", chunk_rows=1)
    opened.catch_up(table.version)
    for number in (60, 61, 62):
        table.append(rows(number))
    opened.receive([signal(table, "execute-snapshot")])
    opened.catch_up(table.version)
    result = [item["op"] for item in topic.told]
    assert result.count("r") == 6
    assert result[-1] == "r", "versions do not wait for the snapshot"
    assert result[:4] == ["c", "r", "r", "c"], "a file is not cut by a version"
    assert {one["source"]["snapshot"] for one in topic.told if one["op"] == "r"} == {"incremental"}
    ids = [dict(record.headers)["event_id"] for record in topic.records if record.value]
    assert len(ids) == len(set(ids))
    assert by_id(copy_of(topic).rows) == by_id(table.content)
    assert topic.position is not None
    assert topic.position.incremental is None


def test_an_incremental_snapshot_is_paused_resumed_and_goes_on_after_a_death(
    table: WrittenTable,
) -> None:
    topic = Topic()
    opened = stream(table, topic, mode="no_data", chunk_rows=1)
    opened.catch_up(table.version)
    opened.receive([signal(table, "execute-snapshot", 0), signal(table, "pause-snapshot", 1)])
    opened.catch_up(table.version)
    assert topic.told == []
    table.append(rows(90))
    opened.catch_up(table.version)
    assert [item["op"] for item in topic.told] == ["c"], "versions go on"
    opened = stream(table, topic, mode="no_data", chunk_rows=1)
    topic.dies_at = len(topic.chunks) + 2
    opened.receive([signal(table, "resume-snapshot", 2)])
    with pytest.raises(Exception, match="died"):
        opened.catch_up(table.version)
    table.append(rows(91))
    stream(table, topic, mode="no_data", chunk_rows=1).catch_up(table.version)
    assert by_id(copy_of(topic).rows) == by_id(table.content)
    assert [one["op"] for one in topic.told].count("r") == 6


@pytest.mark.parametrize("paused_at", range(1, 5))
def test_rows_that_a_rewrite_copies_come_in_a_later_round(
    table: WrittenTable, paused_at: int
) -> None:
    topic = Topic()
    opened = stream(table, topic, mode="no_data", chunk_rows=1)
    opened.catch_up(table.version)
    opened.receive([signal(table, "execute-snapshot")])
    for _ in range(paused_at):
        if opened.catch_up(table.version, until_s=0):
            break
    table.rewrite(lambda old: [{**row, "price": -1.0} if row["id"] % 2 else row for row in old])
    opened.catch_up(table.version)
    assert by_id(copy_of(topic).rows) == by_id(table.content)


@pytest.mark.parametrize("paused_at", range(1, 4))
def test_an_incremental_snapshot_takes_only_rows_for_which_its_filter_is_true(
    table: WrittenTable, paused_at: int
) -> None:
    topic = Topic()
    opened = stream(table, topic, mode="no_data", chunk_rows=1)
    opened.catch_up(table.version)
    opened.receive([signal(table, "execute-snapshot", filter="ID > 10 and name in ('n20', 'n31')")])
    for _ in range(paused_at):
        if opened.catch_up(table.version, until_s=0):
            break
    table.rewrite(lambda old: old, data_change=False)
    opened.catch_up(table.version)
    assert topic.position is not None
    assert topic.position.incremental is None
    assert {item["after"]["id"] for item in topic.told} == {20, 31}
    assert notified(topic)[-1][1] == "COMPLETED"


def test_a_filter_that_no_longer_fits_the_columns_ends_its_snapshot(table: WrittenTable) -> None:
    topic = Topic()
    opened = stream(table, topic, mode="no_data", chunk_rows=1)
    opened.catch_up(table.version)
    opened.receive([signal(table, "execute-snapshot", filter="price >= 0")])
    opened.receive([signal(table, "pause-snapshot", 1), signal(table, "resume-snapshot", 2)])
    table.replace(SCHEMA.remove(SCHEMA.get_field_index("price")), [{"id": 70, "name": "n"}])
    opened.catch_up(table.version)
    assert topic.position is not None
    assert topic.position.incremental is None
    assert notified(topic)[-1][1] == "ABORTED"
    assert topic.told[-1]["after"]["id"] == 70


def notified(topic: Topic) -> list[tuple[str, str, str | None]]:
    """Return the notifications: of which snapshot, what, and how many rows."""
    bodies = [json.loads(record.value or b"") for record in topic.notifications]
    assert len({body["id"] for body in bodies}) == len(bodies)
    return [
        (body["aggregate_type"], body["type"], body["additional_data"].get("total_rows_scanned"))
        for body in bodies
    ]


def test_what_becomes_of_snapshots_is_notified(table: WrittenTable) -> None:
    topic = Topic()
    obey(table, topic)
    initial, incremental = "Initial Snapshot", "Incremental Snapshot"
    assert notified(topic) == [(initial, "STARTED", None), (initial, "COMPLETED", "6")]
    topic.notifications.clear()
    signals = ("execute-snapshot", "pause-snapshot", "resume-snapshot", "stop-snapshot")
    obey(table, topic, *(signal(table, kind, at) for at, kind in enumerate(signals)))
    states = ("STARTED", "PAUSED", "RESUMED", "ABORTED")
    assert notified(topic) == [(incremental, state, None) for state in states]
    topic.notifications.clear()
    obey(table, topic, signal(table, "execute-snapshot", 4), chunk_rows=2)
    assert notified(topic)[0] == (incremental, "STARTED", None)
    assert notified(topic)[1:-1] == [(incremental, "IN_PROGRESS", rows) for rows in ("2", "4")]
    assert notified(topic)[-1] == (incremental, "COMPLETED", "6")


def test_a_notification_is_there_once_after_a_death(table: WrittenTable) -> None:
    topic = Topic(dies_at=0)
    with pytest.raises(Exception, match="died"):
        obey(table, topic)
    assert topic.notifications == []
    obey(table, topic)
    assert [what for _, what, _ in notified(topic)] == ["STARTED", "COMPLETED"]


def test_a_stream_without_its_rows_reports_that_it_skips_them(table: WrittenTable) -> None:
    topic = Topic()
    obey(table, topic, mode="no_data")
    assert notified(topic) == [("Initial Snapshot", "SKIPPED", None)]


def test_signals_are_read_on_from_where_the_last_reading_ended(table: WrittenTable) -> None:
    topic = CdcSettings().kafka.topics.cdc_signals
    bus = MemoryBus({topic: 1})
    at, other = TopicPartition(topic, 0), UUID(int=2)
    reader = SignalReader(bus, topic)
    reader.read()
    assert reader.newest == -1
    for of in (table.id, other, table.id):
        message = ChangeSignal(table=of, type="reset-position")
        bus.append(at, str(of).encode(), encode(message), headers(message))
    bus.append(at, b"x", b"no signal")
    reader.read()
    assert [item.offset for item in reader.after(table.id, None)] == [0, 2]
    assert [one.offset for one in reader.after(table.id, 0)] == [2]
    assert reader.newest == 3
    assert reader.after(table.id, 99), "offsets of a former topic do not count"


def test_transactions_have_bounds_and_versions_an_end(table: WrittenTable) -> None:
    topic = Topic()
    opened = stream(table, topic, mode="no_data", start=1, has_transactions=True, chunk_rows=1)
    opened.catch_up(table.version)
    table.rewrite(lambda old: old, data_change=False)
    opened.catch_up(table.version)
    result = [(bound.version, bound.is_end) for bound in topic.bounds]
    assert result == [(number, is_end) for number in range(1, 5) for is_end in (False, True)]
    assert markers(topic) == ["end"] * 4
    ends = [dict(record.headers).get(MARKER) == b"end" for record in topic.records]
    assert ends == [False, False, True] * 3 + [True]
