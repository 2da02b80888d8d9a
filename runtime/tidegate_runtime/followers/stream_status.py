"""How far each table's change stream is, from the registry, the positions and the followers."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal
from uuid import UUID

from tidegate_delta.errors import MalformedRecord
from tidegate_messages.published_records import FollowerRecord, LeaseRecord, TableRecord
from tidegate_messages.stream_position import Incremental, Position, Positions
from tidegate_runtime.clock import instant

SERVICE: Final = "cdc-publisher"
FOLLOWED: Final = frozenset({"open", "managed", "halted"})
NOT_BEGUN: Final = (
    "nothing is published yet: the table has no key columns (set `tidegate.cdc.keyColumns` or "
    "`cdc.tables`), or no cdc-publisher has come to it"
)

State = Literal["up to date", "behind", "snapshot", "not begun", "stopped"]


@dataclass(frozen=True)
class StreamStatus:
    """A table's change stream.

    `head` is the table's last version that the committer published, `version` the last one in the
    stream, None before the first; `changes` are those of `version` that are published while it has
    more. `beside` is how far an incremental snapshot is. `lag` counts versions. Cleanup and vacuum
    keep what the stream needs until `leased_until_ms`, None where it holds no lease.
    """

    table: str
    state: State
    head: int
    version: int | None = None
    changes: int | None = None
    reason: str | None = None
    beside: Incremental | None = None
    leased_until_ms: int | None = None

    @property
    def lag(self) -> int:
        """Versions that the stream does not have, or not whole."""
        if self.version is None:
            return self.head + 1
        return max(0, self.head - self.version) + (self.changes is not None)


def statuses(
    tables: Iterable[TableRecord],
    positions: Positions,
    followers: Iterable[FollowerRecord],
    leases: Mapping[UUID, Sequence[LeaseRecord]] | None = None,
) -> Iterator[StreamStatus]:
    """Yield the status of each served table's stream, by name."""
    quarantined = {
        follower.table: follower.reason for follower in followers if follower.service == SERVICE
    }
    for table in sorted(tables, key=lambda record: record.name):
        if table.status in FOLLOWED:
            status = _status(table, positions.get(table.table), quarantined.get(table.table))
            own_leases = (leases or {}).get(table.table, ())
            ends = [lease.until_ms for lease in own_leases if lease.holder == SERVICE]
            yield replace(status, leased_until_ms=ends[0] if ends else None)


def _status(
    table: TableRecord, position: Position | MalformedRecord | None, stopped: str | None
) -> StreamStatus:
    head = table.published_through
    if isinstance(position, MalformedRecord):
        return StreamStatus(table.name, "stopped", head, reason=stopped or str(position))
    if position is None or position.begins:
        state: State = "not begun" if stopped is None else "stopped"
        return StreamStatus(table.name, state, head, reason=stopped or NOT_BEGUN)
    changes = None if position.complete else position.changes_published
    if stopped is not None:
        state = "stopped"
    elif position.snapshot and not position.complete:
        state = "snapshot"
    else:
        state = "up to date" if position.complete and position.version >= head else "behind"
    incremental = position.incremental
    return StreamStatus(table.name, state, head, position.version, changes, stopped, incremental)


def as_data(status: StreamStatus, topic: str | None) -> Mapping[str, object]:
    """Return a status as JSON values."""
    beside = status.beside and status.beside.model_dump(mode="json")
    return {**vars(status), "beside": beside, "lag": status.lag, "topic": topic}


def in_words(status: StreamStatus) -> str:
    """Return a status as a line for people, without the table's name."""
    version = "-" if status.version is None else str(status.version)
    if status.changes is not None:
        version += f" ({status.changes} changes of it)"
    line = f"{status.state}, version {version} of {status.head}, lag {status.lag}"
    if status.beside is not None:
        state = "paused" if status.beside.paused else "under way"
        line += f"; an incremental snapshot is {state}, {status.beside.told} rows"
    if status.leased_until_ms is not None:
        line += f", lease until {instant(status.leased_until_ms)} UTC"
    return f"{line}: {status.reason}" if status.reason else line
