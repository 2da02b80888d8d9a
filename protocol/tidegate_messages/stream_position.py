"""How far a table is published: a record in the same Kafka transaction as the rows.

The topic is `cdc-positions`, the key is the table id. A position can't disagree with the rows: a
reader of committed records sees both or neither.
"""

from collections.abc import Mapping
from uuid import UUID

from tidegate_delta.errors import MalformedRecord
from tidegate_messages import codec
from tidegate_messages.message import Message

FORMAT = "cdc-position/1"


class Incremental(Message):
    """How far an incremental snapshot is: rows that are published between the versions.

    Its files are those of the table at `base`, in the order of their paths: all of them, or in a
    later round those that came by rewrites since version `since`. Of these `files` are done, and
    `rows` rows of the next one. `told` counts the rows of all rounds. Only rows for which the SQL
    condition `filter` is true are published and counted.
    """

    base: int
    since: int | None = None
    files: int = 0
    rows: int = 0
    told: int = 0
    paused: bool = False
    filter: str | None = None


class Position(Message):
    """The last published change of a table.

    `index` is the change's place in its version, from 0; null if the version had none. `complete`
    says that the version has no more changes. `snapshot` says that the change is a row of the
    initial snapshot at `version`, not one of the version's own changes. `order` names the rules
    that order the changes of a version; an index has no meaning under other rules. `declared` are
    the names by which the key columns were declared, if columns were renamed since.
    `schema_version` is the version whose schema was announced last.
    `signal` is the offset of the operator's signal that was obeyed last, or before which none was
    waited for; `refused` says why that one was not obeyed. `begins` says that an operator had the
    stream begin anew, and nothing is published since. `counts` are the records of an unfinished
    version in each topic partition, if transactions are told. `incremental` is the snapshot that is
    published beside the versions.
    """

    table: UUID
    version: int
    index: int | None = None
    complete: bool
    snapshot: bool = False
    order: str = ""
    declared: tuple[str, ...] | None = None
    schema_version: int | None = None
    signal: int | None = None
    refused: str | None = None
    begins: bool = False
    incremental: Incremental | None = None
    counts: dict[int, int] | None = None

    @property
    def changes_published(self) -> int:
        """The number of changes of the version that are published."""
        return 0 if self.index is None else self.index + 1


Positions = Mapping[UUID, Position | MalformedRecord]
"""The position of each table, or the error that reading it gave."""


def positions_of(newest: Mapping[bytes | None, bytes | None]) -> Positions:
    """Return the position of each table, given the newest value of each key of the topic.

    After a tombstone a table begins with a new snapshot. People write tombstones by hand, so a key
    that is no table id is ignored.
    """
    positions: dict[UUID, Position | MalformedRecord] = {}
    for key, value in newest.items():
        table = _table(key)
        if table is None or value is None:
            continue
        try:
            positions[table] = decode(value, table)
        except MalformedRecord as error:
            positions[table] = error
    return positions


def position_of(positions: Positions, table: UUID) -> Position | None:
    """Return the position of a table, or None if nothing of it is published yet.

    Raises: MalformedRecord.
    """
    position = positions.get(table)
    if isinstance(position, MalformedRecord):
        raise position
    return position


def _table(key: bytes | None) -> UUID | None:
    try:
        return UUID((key or b"").decode())
    except ValueError:
        return None


def decode(value: bytes, table: UUID) -> Position:
    """Return the position in a record's value; the record's key is the table id.

    Raises: MalformedRecord.
    """
    try:
        position = Position.model_validate(codec.parse_json(value))
        if position.table != table:
            raise ValueError(f"its key is table {table}, and its value is of another table")
    except (MalformedRecord, ValueError) as error:
        raise MalformedRecord(
            f"{FORMAT}: {error}; without its position the changes of table {table} can't go on: "
            "write a correct record for it on the topic of positions, or a tombstone, after which "
            "it begins with a new snapshot",
            error_class="malformed",
        ) from error
    return position
