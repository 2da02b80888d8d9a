"""How far a change stream is, by the registry, its position and the tables that were set aside."""

from typing import Any
from uuid import UUID

import pytest

from tidegate_delta.errors import MalformedRecord
from tidegate_messages.published_records import FollowerRecord, TableRecord
from tidegate_messages.stream_position import Position
from tidegate_runtime.followers.stream_status import NOT_BEGUN, SERVICE, StreamStatus, statuses

TABLE = UUID(int=1)


def registered(name: str = "t", table: UUID = TABLE, **fields: Any) -> TableRecord:
    given = {"proposals_topic": "p", "topic_partition": 0, "published_through": 7, **fields}
    return TableRecord(table=table, table_root=f"file:///lake/{name}", name=name, **given)


def position(version: int, *, complete: bool = True, **fields: Any) -> Position:
    return Position(table=TABLE, version=version, complete=complete, **fields)


def quarantined(service: str = SERVICE) -> FollowerRecord:
    return FollowerRecord(
        service=service,
        table=TABLE,
        name="t",
        reason="a key is missing",
        error_class="KeyColumnsMissing",
        since_ms=1,
        attempts=2,
    )


@pytest.mark.parametrize(
    ("at", "state", "lag"),
    [
        (position(7), "up to date", 0),
        (position(8), "up to date", 0),
        (position(4), "behind", 3),
        (position(7, complete=False, index=9), "behind", 1),
        (position(7, complete=False, index=9, snapshot=True), "snapshot", 1),
        (None, "not begun", 8),
    ],
)
def test_a_stream_is_as_far_as_its_position(at: Position | None, state: str, lag: int) -> None:
    positions = {} if at is None else {TABLE: at}
    [result] = statuses([registered()], positions, [])
    assert (result.state, result.lag, result.head) == (state, lag, 7)
    assert result.reason == (NOT_BEGUN if at is None else None)


def test_the_changes_of_an_unfinished_version_are_counted() -> None:
    [result] = statuses([registered()], {TABLE: position(6, complete=False, index=9)}, [])
    assert (result.version, result.changes, result.lag) == (6, 10, 2)


@pytest.mark.parametrize("at", [position(7), None, MalformedRecord("no JSON")])
def test_a_quarantined_table_has_stopped(at: Position | MalformedRecord | None) -> None:
    positions = {} if at is None else {TABLE: at}
    [result] = statuses([registered()], positions, [quarantined()])
    assert (result.state, result.reason) == ("stopped", "a key is missing")


def test_what_another_follower_quarantined_goes_on() -> None:
    [result] = statuses([registered()], {TABLE: position(7)}, [quarantined("checkpointer")])
    assert result == StreamStatus("t", "up to date", 7, 7)


def test_a_position_that_cannot_be_read_has_stopped_its_stream() -> None:
    [result] = statuses([registered()], {TABLE: MalformedRecord("no JSON")}, [])
    assert (result.state, result.reason) == ("stopped", "no JSON")


def test_streams_are_sorted_by_name_and_those_of_dropped_tables_are_left_out() -> None:
    tables = [
        registered("b", UUID(int=2)),
        registered("a", status="halted"),
        registered("c", UUID(int=3), status="dropped"),
        registered("d", UUID(int=4), status="staged"),
    ]
    assert [result.table for result in statuses(tables, {}, [])] == ["a", "b"]
