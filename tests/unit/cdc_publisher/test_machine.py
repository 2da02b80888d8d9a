"""The state machine that decides what to publish next."""

from uuid import UUID

import pytest

from tidegate_cdc_publisher.machine import (
    Notice,
    Published,
    SnapshotDue,
    SnapshotMode,
    Stranded,
    StreamDue,
    StreamState,
    VersionDue,
    decide,
    evolve,
    reordered,
)
from tidegate_messages.stream_position import Position

TABLE = UUID(int=1)
ORDER = "1:k"


def at(
    version: int, index: int | None = None, *, complete: bool, snapshot: bool = False
) -> StreamState:
    position = Position(
        table=TABLE, version=version, index=index, complete=complete, snapshot=snapshot, order=ORDER
    )
    return StreamState(TABLE, "initial", position)


def fresh(mode: SnapshotMode) -> StreamState:
    return StreamState(TABLE, mode)


def test_a_table_seen_first_is_published_as_it_stands_at_the_head() -> None:
    assert decide(fresh("initial"), Notice(7)) == (SnapshotDue(7),)


def test_without_the_rows_of_the_past_the_stream_begins_after_the_head() -> None:
    assert decide(fresh("no_data"), Notice(7)) == (StreamDue(7),)


def test_the_snapshot_stays_at_its_version_while_the_head_moves_on() -> None:
    halfway = at(7, 99, complete=False, snapshot=True)
    assert decide(halfway, Notice(12)) == (SnapshotDue(7, 100, ORDER),)


def test_the_stream_begins_with_the_version_after_the_snapshot() -> None:
    assert decide(at(7, 200, complete=True, snapshot=True), Notice(8)) == (VersionDue(8),)


def test_a_partly_published_version_goes_on_behind_its_last_change() -> None:
    assert decide(at(9, 41, complete=False), Notice(9)) == (VersionDue(9, 42, ORDER),)


def test_an_unpublished_version_begins_at_its_first_change() -> None:
    assert decide(at(9, None, complete=False), Notice(9)) == (VersionDue(9, 0, ORDER),)


def test_nothing_is_due_at_the_head() -> None:
    assert decide(at(9, complete=True), Notice(9)) == ()


def test_a_log_that_ends_before_the_position_strands_the_stream() -> None:
    (stranded,) = decide(at(9, complete=True), Notice(4))
    assert isinstance(stranded, Stranded)
    assert "version 9" in stranded.reason


def test_an_index_of_another_order_strands_the_stream() -> None:
    stranded = reordered(VersionDue(9, 42, ORDER), "1:other")
    assert stranded is not None
    assert "version 9" in stranded.reason


def test_another_order_is_fine_where_nothing_of_the_version_is_published() -> None:
    assert reordered(VersionDue(9), "1:other") is None
    assert reordered(SnapshotDue(9, 42, ORDER), ORDER) is None


def test_following_the_machine_publishes_every_version_once() -> None:
    state, result = fresh("no_data"), []
    for head in (3, 3, 5, 9):
        while due := decide(state, Notice(head)):
            version = due[0].version  # type: ignore[union-attr]  # the log never goes back here
            result.append(version)
            told_now = Position(table=TABLE, version=version, complete=True, order=ORDER)
            state = evolve(state, Published(told_now))
    assert result == [3, 4, 5, 6, 7, 8, 9]


@pytest.mark.parametrize(
    "back",
    [
        Position(table=TABLE, version=8, complete=True, order=ORDER),
        Position(table=TABLE, version=9, index=3, complete=False, order=ORDER),
    ],
)
def test_a_position_never_goes_back(back: Position) -> None:
    with pytest.raises(AssertionError, match="never go back"):
        evolve(at(9, 41, complete=False), Published(back))


def test_a_version_is_complete_before_the_next_begins() -> None:
    following = Position(table=TABLE, version=10, complete=True, order=ORDER)
    with pytest.raises(AssertionError):
        evolve(at(9, 41, complete=False), Published(following))
