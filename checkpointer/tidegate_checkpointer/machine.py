"""What of one table's log is due to be shortened. Pure: the service reads and writes.

    head ---> every version         a version checksum      (of the last RECENT_MAX, after a pause)
         ---> every interval-th     a checkpoint            (after a pause: only the newest)
         ---> every n-th after it   a log compaction        (of whole ranges above the checkpoint)

Everything here is a convenience for readers. What is missed is missed without harm, what is done
twice is done to the same effect, and nothing goes back: each field of the state only grows.
"""

from dataclasses import dataclass, replace
from typing import Final, assert_never

RECENT_MAX: Final = 100
"""Versions, counted from the head, that still get a checksum when they were missed."""


@dataclass(frozen=True)
class SummaryState:
    """What stands in `_delta_log` for the readers' convenience.

    `checkpoint` is the version that the hint names, `compacted` the last version of the last log
    compaction, `summed` the last version with a checksum; -1 where there is none.
    `compaction_interval` is how many versions one log compaction holds.
    """

    compaction_interval: int
    checkpoint: int = -1
    compacted: int = -1
    summed: int = -1


@dataclass(frozen=True)
class Notice:
    """The newest published version is `head`; the table wants a checkpoint every `interval`."""

    head: int
    interval: int


Command = Notice


@dataclass(frozen=True)
class CheckpointDue:
    """A checkpoint of `version` is to be written and the hint moved to it."""

    version: int


@dataclass(frozen=True)
class CompactionDue:
    """The commits `start` to `end`, both included, are to be written as one file."""

    start: int
    end: int


@dataclass(frozen=True)
class ChecksumDue:
    """The checksum of `version` is to be written."""

    version: int


@dataclass(frozen=True)
class Checkpointed:
    """The hint names `version`, or a later one."""

    version: int


@dataclass(frozen=True)
class Compacted:
    """The log compaction of these versions stands, ours or another's."""

    start: int
    end: int


@dataclass(frozen=True)
class Summed:
    """The checksum of `version` stands, ours or another's."""

    version: int


Due = CheckpointDue | CompactionDue | ChecksumDue
Done = Checkpointed | Compacted | Summed


def decide(state: SummaryState, command: Command) -> tuple[Due, ...]:
    """Return what is due, in the order of versions; at one version the checkpoint comes first.

    Law: nothing that is due lies beyond the head, and nothing is due twice.
    """
    checkpoint = _newest_due(command)
    checkpoints = [CheckpointDue(checkpoint)] if checkpoint > state.checkpoint else []
    compactions = _compactions(state, max(checkpoint, state.checkpoint), command.head)
    first = max(state.summed + 1, command.head - RECENT_MAX + 1, 0)
    checksums = [ChecksumDue(version) for version in range(first, command.head + 1)]
    return tuple(sorted([*checkpoints, *checksums, *compactions], key=_order))


def evolve(state: SummaryState, event: Done) -> SummaryState:
    """Return the state after something was done; it never goes back."""
    match event:
        case Checkpointed(version):
            return replace(state, checkpoint=max(state.checkpoint, version))
        case Compacted(start, end):
            assert start < end, "a log compaction holds two versions or more"
            return replace(state, compacted=max(state.compacted, end))
        case Summed(version):
            return replace(state, summed=max(state.summed, version))
        case _:
            assert_never(event)


def _newest_due(command: Notice) -> int:
    """Return the newest version at or below the head that wants a checkpoint, or -1.

    A first version alone is no longer to read than its checkpoint, so 0 wants none.
    """
    assert command.interval > 0, "an interval is a positive number of versions"
    newest = command.head - command.head % command.interval
    return newest if newest > 0 else -1


def _compactions(state: SummaryState, checkpoint: int, head: int) -> list[CompactionDue]:
    """Return the whole ranges between the checkpoint and the head that are not compacted.

    A range starts behind the checkpoint: one that straddled it would serve no reader.
    """
    size = state.compaction_interval
    first = max(checkpoint, state.compacted) + 1
    return [CompactionDue(s, s + size - 1) for s in range(first, head - size + 2, size)]


def _order(due: Due) -> tuple[int, int]:
    match due:
        case CheckpointDue(version):
            return (version, 0)
        case ChecksumDue(version):
            return (version, 1)
        case CompactionDue(_, end):
            return (end, 2)
        case _:
            assert_never(due)
