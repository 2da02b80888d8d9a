"""Decides what to publish next of one table. Pure: the service reads, encodes and sends.

    (nothing published) --- initial ---> snapshot of V, row by row ---+
          |                                                           v
          +----------- no_data -------------------------> V complete ---> V+1, change by change --+
                                                             ^                                    |
                                                             +-------------- complete <-----------+

The only state is the position stored in Kafka: work done before a kill is either in the position
or did not happen. The snapshot is of one version and the stream begins with the version after it,
so no change is lost or repeated between them.
"""

from dataclasses import dataclass, replace
from typing import Literal, assert_never
from uuid import UUID

from tidegate_messages.stream_position import Position

SnapshotMode = Literal["initial", "no_data"]


@dataclass(frozen=True)
class StreamState:
    """The state of one table's stream.

    `mode` says whether to publish the rows that exist when the stream begins. `position` is the one
    in Kafka; it is None before the first chunk.
    """

    table: UUID
    mode: SnapshotMode
    position: Position | None = None


@dataclass(frozen=True)
class Notice:
    """The table's newest version is `head`."""

    head: int


Command = Notice


@dataclass(frozen=True)
class SnapshotDue:
    """The rows of the table at `version` must be published, from row `start` on.

    `order` names the rules that ordered the first `start` rows; it is unused if `start` is 0.
    """

    version: int
    start: int = 0
    order: str = ""


@dataclass(frozen=True)
class VersionDue:
    """The changes of `version` must be published, from change `start` on.

    `order` names the rules that ordered the first `start` changes, as for a snapshot.
    """

    version: int
    start: int = 0
    order: str = ""


@dataclass(frozen=True)
class StreamDue:
    """The stream begins without existing rows: the position must be set to the end of `version`."""

    version: int


@dataclass(frozen=True)
class Stranded:
    """The stream can't continue without publishing something wrong.

    `reason` says why and what to do.
    """

    reason: str


@dataclass(frozen=True)
class Published:
    """A Kafka transaction with this position is committed, or queued to be committed in order.

    If a queued one fails, the stream is discarded and the position is read from Kafka again.
    """

    position: Position


Event = SnapshotDue | VersionDue | StreamDue | Stranded | Published


def decide(state: StreamState, command: Command) -> tuple[Event, ...]:
    """Return what to do next, or nothing if the stream is at the head.

    Law: after every Published that completes a version, decide names the version after it.
    """
    position = state.position
    if position is None:
        return (_beginning(state.mode, command.head),)
    if position.version > command.head:
        return (Stranded(_BACKWARDS.format(position=position.version, head=command.head)),)
    if position.complete:
        following = position.version + 1
        return (VersionDue(following),) if following <= command.head else ()
    due = SnapshotDue if position.snapshot else VersionDue
    return (due(position.version, position.changes_published, position.order),)


def evolve(state: StreamState, event: Event) -> StreamState:
    """Return the state after an event; only Published changes it."""
    match event:
        case Published(position):
            assert position.table == state.table, "a position belongs to its table"
            assert _follows(state.position, position), "positions never go back"
            return replace(state, position=position)
        case SnapshotDue() | VersionDue() | StreamDue() | Stranded():
            return state
        case _:
            assert_never(event)


def reordered(due: SnapshotDue | VersionDue, order: str) -> Stranded | None:
    """Return why a partly published version can't be continued in this order, or None if it can."""
    if due.start == 0 or due.order == order:
        return None
    return Stranded(_REORDERED.format(version=due.version, order=due.order))


_BACKWARDS = (
    "version {position} is published, and the log ends at {head}: the table was replaced or its "
    "log was cut; register it under a new name, or delete its record on the topic of positions "
    "to begin with a new snapshot"
)
_REORDERED = (
    "version {version} is published in part, in an order that the settings of today would change "
    "(it was {order!r}); start once with the key columns of before, until the version is complete"
)


def _beginning(mode: SnapshotMode, head: int) -> Event:
    match mode:
        case "initial":
            return SnapshotDue(head)
        case "no_data":
            return StreamDue(head)
        case _:
            assert_never(mode)


def _follows(before: Position | None, after: Position) -> bool:
    if before is None:
        return True
    if after.version == before.version:
        return not before.complete and after.changes_published >= before.changes_published
    return before.complete and after.version > before.version
