"""Decides what to publish next of one table. Pure: the service reads, encodes and sends.

    (nothing published) --- initial ---> snapshot of V, row by row ---+
          |                                                           v
          +----------- no_data -------------------------> V complete ---> V+1, change by change --+
                                                             ^                                    |
                                                             +-------------- complete <-----------+

Operators' signals move the position, and an incremental snapshot takes turns with the versions.

The only state is the position stored in Kafka: work done before a kill is either in the position
or did not happen. The snapshot is of one version and the stream begins with the version after it,
so no change is lost or repeated between them.
"""

from dataclasses import dataclass, replace
from typing import Literal, assert_never
from uuid import UUID

from tidegate_messages.published_records import ChangeSignal
from tidegate_messages.stream_position import Incremental, Position

SnapshotMode = Literal["initial", "initial_only", "no_data", "when_needed", "always"]
OnGap = Literal["fail", "resnapshot", "marker"]
"""What to do where versions can't be read any more: stop, publish all rows, or say so and go on."""


@dataclass(frozen=True)
class Received:
    """A signal, and its offset on the topic of signals."""

    offset: int
    signal: ChangeSignal


@dataclass(frozen=True)
class StreamState:
    """The state of one table's stream.

    `mode` says whether to publish the rows that exist when the stream begins. `position` is the one
    in Kafka; it is None before the first chunk. `start` is the first version whose changes are
    published, if the stream does not begin at the head. `signals` are to be obeyed, in order;
    `signal` is the offset of the one before them. `anew` begins with a snapshot in any case.
    """

    table: UUID
    mode: SnapshotMode
    position: Position | None = None
    start: int | None = None
    signals: tuple[Received, ...] = ()
    signal: int | None = None
    anew: bool = False


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
class IncrementalDue:
    """A part of the incremental snapshot must be published, in the rows of `version`."""

    version: int
    progress: Incremental


@dataclass(frozen=True)
class SignalDue:
    """An operator's signal must be obeyed before anything else."""

    received: Received


@dataclass(frozen=True)
class SnapshotAnew:
    """The rows of the table at `version` must be published instead of what is not published yet."""

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


@dataclass(frozen=True)
class Moved:
    """The position is another one by a signal, or over versions that can't be read.

    As with `Published` it is in Kafka, or queued. None: nothing is done but the signal obeyed.
    """

    position: Position | None
    is_signal: bool = False


Due = SnapshotDue | VersionDue | StreamDue | IncrementalDue | SignalDue | SnapshotAnew | Stranded
Event = Due | Published | Moved


def decide(state: StreamState, command: Command) -> tuple[Due, ...]:
    """Return what to do next, or nothing if the stream is at the head.

    Law: after every Published that completes a version, decide names the version after it, unless
    the stream is its initial snapshot only.
    """
    position = state.position
    if state.signals:
        return (SignalDue(state.signals[0]),)
    if position is None or position.begins:
        return _beginning(state, command.head)
    if position.version > command.head:
        return (Stranded(_BACKWARDS.format(position=position.version, head=command.head)),)
    if state.anew:
        return (SnapshotAnew(command.head),)
    if position.complete:
        return _following(state.mode, position, command.head)
    due = SnapshotDue if position.snapshot else VersionDue
    return (due(position.version, position.changes_published, position.order),)


def _following(mode: SnapshotMode, position: Position, head: int) -> tuple[Due, ...]:
    """Return the next version and the next part of the incremental snapshot, in turns.

    A file that is published in part is finished first: its rows are those of one version.
    """
    following, incremental = position.version + 1, position.incremental
    is_due = following <= head and mode != "initial_only"
    versions: tuple[Due, ...] = (VersionDue(following),) if is_due else ()
    if incremental is None or incremental.paused:
        return versions
    if incremental.rows or not versions:
        return (IncrementalDue(position.version, incremental),)
    return (*versions, IncrementalDue(following, incremental))


def evolve(state: StreamState, event: Event) -> StreamState:
    """Return the state after an event; only Published and Moved change it."""
    match event:
        case Published(position):
            assert position.table == state.table, "a position belongs to its table"
            assert _follows(state.position, position), "positions never go back"
            return replace(state, position=position, anew=False)
        case Moved(position, is_signal):
            if is_signal:
                state = replace(state, signal=state.signals[0].offset, signals=state.signals[1:])
            return state if position is None else replace(state, position=position, anew=False)
        case (
            SnapshotDue()
            | VersionDue()
            | StreamDue()
            | IncrementalDue()
            | SignalDue()
            | SnapshotAnew()
            | Stranded()
        ):
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


def _beginning(state: StreamState, head: int) -> tuple[Due, ...]:
    """Return how a stream begins: at the head, or so that the changes of `start` are the first."""
    last = head if state.start is None else state.start - 1
    if last > head:
        return ()
    match state.mode:
        case "no_data":
            if state.start is None:
                return (StreamDue(last),)
            return (VersionDue(state.start),) if state.start <= head else ()
        case "initial" | "initial_only" | "when_needed" | "always":
            # There was no table before version 0, so there are no rows to begin with.
            return (SnapshotDue(last),) if last >= 0 else (VersionDue(0),)
        case _:
            assert_never(state.mode)


def paused(progress: Incremental | None, signal: ChangeSignal) -> Incremental | None:
    """Return an incremental snapshot after a signal to pause, resume or stop it."""
    if progress is None or signal.type == "stop-snapshot":
        return None
    # Versions may follow meanwhile, so a file that is published in part begins again.
    return progress.model_copy(update={"paused": signal.type == "pause-snapshot", "rows": 0})


def _follows(before: Position | None, after: Position) -> bool:
    if before is None or before.begins:
        return True
    if after.version == before.version and before.complete:
        return after.complete and before.incremental is not None
    if after.version == before.version:
        return after.changes_published >= before.changes_published
    return before.complete and after.version > before.version
