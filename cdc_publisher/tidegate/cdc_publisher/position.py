"""How far a table's changes are told: a record in the same Kafka transaction as the rows.

The topic is `cdc-positions`, the key the table. A position is believed because it cannot disagree
with the rows: a reader of committed records sees both or neither.
"""

from collections.abc import Mapping
from uuid import UUID

from tidegate.delta.errors import MalformedRecord
from tidegate.pipeline import codec
from tidegate.pipeline.message import Message

FORMAT = "cdc-position/1"


class Position(Message):
    """The last change of a table that is published.

    `index` is the change's place in its version, from 0; null where the version had none.
    `complete` says that the version has no more. `snapshot` says that the change is a row of the
    initial snapshot at `version`, not of the version's own changes. `order` names the rules by
    which a version's changes are put in order: an index means nothing under others.
    """

    table: UUID
    version: int
    index: int | None = None
    complete: bool
    snapshot: bool = False
    order: str = ""

    @property
    def told(self) -> int:
        """How many changes of the version are published."""
        return 0 if self.index is None else self.index + 1


def positions_of(newest: Mapping[bytes | None, bytes | None]) -> dict[UUID, Position]:
    """Return the position of each table, given the newest value of each key of the topic.

    A tombstone lets a table begin anew; people write them, and one whose key is no table's does
    nothing.
    Raises: MalformedRecord.
    """
    found = [decode(value) for value in newest.values() if value is not None]
    return {position.table: position for position in found}


def decode(value: bytes) -> Position:
    """Return the position that a record's value holds.

    Raises: MalformedRecord.
    """
    body = codec.parse_json(value)
    try:
        return Position.model_validate(body)
    except ValueError as error:
        raise MalformedRecord(
            f"{FORMAT}: {error}; without its position the changes of a table can't go on: repair "
            "the record on the topic of positions",
            error_class="malformed",
        ) from error
