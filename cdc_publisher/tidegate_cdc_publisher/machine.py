"""What is to be published next of one table. Pure: the service reads, encodes and sends.

    (nothing told) --- initial ---> snapshot of V, row by row ---+
          |                                                      v
          +----------- no_data --------------------> V complete ---> V+1, change by change --+
                                                        ^                                     |
                                                        +------------- complete <-------------+

The state is the position that stands on Kafka, and nothing else: what a life did before it was
killed is in the position or did not happen. The snapshot is of one version, and the stream begins
with the version after it, so the hand-over has no seam.
"""

from dataclasses import dataclass, replace
from typing import Literal, assert_never
from uuid import UUID

from tidegate_cdc_publisher.stream_position import Position

SnapshotMode = Literal["initial", "no_data"]


@dataclass(frozen=True)
class StreamState:
    """Where the stream of one table stands.

    `mode` says what to do with the rows that are there at first sight; `position` is what Kafka
    holds, None before the first chunk.
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
    """The rows of the table at `version` are to be published, from the row `start` on.

    `order` names the rules under which `start` rows are told; it means nothing where that is 0.
    """

    version: int
    start: int = 0
    order: str = ""


@dataclass(frozen=True)
class VersionDue:
    """The changes of `version` are to be published, from the change `start` on.

    `order` names the rules under which `start` changes are told; as with a snapshot.
    """

    version: int
    start: int = 0
    order: str = ""


@dataclass(frozen=True)
class StreamDue:
    """No rows of the past are wanted: the position is to be set behind `version`."""

    version: int


@dataclass(frozen=True)
class Stranded:
    """The stream can't go on without telling something wrong; `reason` says why and what to do."""

    reason: str


@dataclass(frozen=True)
class Published:
    """A Kafka transaction with this position is committed, or is soon to be, each in its turn.

    Between the two a stream may fail; it is then thrown away, and Kafka's position is read again.
    """

    position: Position


Event = SnapshotDue | VersionDue | StreamDue | Stranded | Published


def decide(state: StreamState, command: Command) -> tuple[Event, ...]:
    """Return what is to be done next, or nothing where the stream is at the head.

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
    return (due(position.version, position.told, position.order),)


def evolve(state: StreamState, event: Event) -> StreamState:
    """Return the state after an event; only what is published changes it."""
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
    """Return why a version told in part can't be gone on with in today's order, or None: it can."""
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
        return not before.complete and after.told >= before.told
    return before.complete and after.version > before.version
