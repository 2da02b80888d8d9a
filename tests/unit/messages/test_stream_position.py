"""The record of a change stream's position."""

from uuid import UUID

import pytest

from tidegate_delta.errors import MalformedRecord
from tidegate_messages import codec
from tidegate_messages.stream_position import Position, decode, position_of, positions_of


@pytest.mark.parametrize(
    "position",
    [
        Position(table=UUID(int=1), version=0, complete=True),
        Position(table=UUID(int=1), version=4, index=7, complete=False, snapshot=True, order="1:k"),
    ],
)
def test_a_position_survives_the_topic(position: Position) -> None:
    assert decode(codec.encode(position), position.table) == position


def test_a_field_of_a_newer_release_survives() -> None:
    value = b'{"table":"00000000-0000-0000-0000-000000000001","version":3,"complete":true,"new":1}'
    assert b'"new":1' in codec.encode(decode(value, UUID(int=1)))


@pytest.mark.parametrize(
    "value",
    [
        b"{}",
        b"no json",
        b'{"table":"x","version":1,"complete":true}',
        b'{"table":"00000000-0000-0000-0000-000000000009","version":3,"complete":true}',
    ],
)
def test_an_invalid_position_stops_its_table_alone_with_a_remedy(value: bytes) -> None:
    sound = Position(table=UUID(int=2), version=2, complete=True)
    broken = UUID(int=1)
    newest: dict[bytes | None, bytes | None] = dict.fromkeys([b"flights", b"\xff", None], value)
    newest |= {str(broken).encode(): value, str(sound.table).encode(): codec.encode(sound)}
    result = positions_of(newest)
    assert result.keys() == {broken, sound.table}
    assert position_of(result, sound.table) == sound
    assert position_of(result, UUID(int=3)) is None
    with pytest.raises(MalformedRecord, match=f"{broken}.*tombstone"):
        position_of(result, broken)


def test_a_tombstone_takes_a_position_away_and_one_under_a_name_takes_none() -> None:
    one, other = (Position(table=UUID(int=n), version=n, complete=True) for n in (1, 2))
    newest = {str(one.table).encode(): codec.encode(one), b"flights": None, None: None}
    assert positions_of(newest) == {one.table: one}
    newest |= {str(other.table).encode(): codec.encode(other), str(one.table).encode(): None}
    assert positions_of(newest) == {other.table: other}


def test_the_number_of_changes_published_follows_the_index() -> None:
    assert Position(table=UUID(int=1), version=0, complete=False).changes_published == 0
    assert Position(table=UUID(int=1), version=0, index=0, complete=False).changes_published == 1
