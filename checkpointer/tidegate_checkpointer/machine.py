"""Decides which summaries of one table's log are due. Pure: the service reads and writes.

    head ---> every version         a version checksum      (of the last RECENT_MAX, after a pause)
         ---> every interval-th     a checkpoint            (after a pause: only the newest)
         ---> a heavy tail          a checkpoint            (where the interval is not set)
         ---> every n-th after it   a log compaction        (of whole ranges above the checkpoint:
                                                             n versions, n times n, and so on)

Summaries only speed readers up. Omitting one does no harm, writing one twice has the same
effect, and each field of the state only grows.
"""

from dataclasses import dataclass, replace
from typing import Final, assert_never

RECENT_MAX: Final = 100
"""The newest versions that still get a checksum if it was missed."""


@dataclass(frozen=True)
class SummaryState:
    """The summary files in `_delta_log`.

    `checkpoint` is the version in `_last_checkpoint`, `compacted` the last version of the last log
    compaction, `checksummed` the last version with a checksum; each is -1 if there is none.
    `compaction_interval` is the number of versions in one log compaction.
    """

    compaction_interval: int
    checkpoint: int = -1
    compacted: int = -1
    checksummed: int = -1


@dataclass(frozen=True)
class Notice:
    """The newest published version is `head`; a checkpoint is due every `interval` versions.

    `is_heavy` says that the commits above the last checkpoint cost readers more than a checkpoint
    would; then one is due at once.
    """

    head: int
    interval: int
    is_heavy: bool = False


Command = Notice


@dataclass(frozen=True)
class CheckpointDue:
    """A checkpoint of `version` must be written and `_last_checkpoint` moved to it."""

    version: int


@dataclass(frozen=True)
class CompactionDue:
    """The commits `start` to `end`, inclusive, must be compacted into one file."""

    start: int
    end: int


@dataclass(frozen=True)
class ChecksumDue:
    """The checksum of `version` must be written."""

    version: int


@dataclass(frozen=True)
class Checkpointed:
    """`_last_checkpoint` names `version` or a later one."""

    version: int


@dataclass(frozen=True)
class Compacted:
    """The log compaction of these versions exists; we or another process wrote it."""

    start: int
    end: int


@dataclass(frozen=True)
class ChecksumWritten:
    """The checksum of `version` exists; we or another process wrote it."""

    version: int


Due = CheckpointDue | CompactionDue | ChecksumDue
Done = Checkpointed | Compacted | ChecksumWritten


def decide(state: SummaryState, command: Command) -> tuple[Due, ...]:
    """Return what is due, ordered by version; at one version the checkpoint comes first.

    Law: nothing due is beyond the head, and nothing is due twice.
    """
    checkpoint = _newest_due(command)
    checkpoints = [CheckpointDue(checkpoint)] if checkpoint > state.checkpoint else []
    compactions = _compactions(state, max(checkpoint, state.checkpoint), command.head)
    first = max(state.checksummed + 1, command.head - RECENT_MAX + 1, 0)
    checksums = [ChecksumDue(version) for version in range(first, command.head + 1)]
    return tuple(sorted([*checkpoints, *checksums, *compactions], key=_order))


def evolve(state: SummaryState, event: Done) -> SummaryState:
    """Return the state after an event; no field decreases."""
    match event:
        case Checkpointed(version):
            return replace(state, checkpoint=max(state.checkpoint, version))
        case Compacted(start, end):
            assert start < end, "a log compaction holds two versions or more"
            return replace(state, compacted=max(state.compacted, end))
        case ChecksumWritten(version):
            return replace(state, checksummed=max(state.checksummed, version))
        case _:
            assert_never(event)


def _newest_due(command: Notice) -> int:
    """Return the newest version up to the head that is due a checkpoint, or -1.

    Version 0 is due none: its commit alone is no longer to read than its checkpoint.
    """
    assert command.interval > 0, "an interval is a positive number of versions"
    newest = command.head - (0 if command.is_heavy else command.head % command.interval)
    return newest if newest > 0 else -1


def _compactions(state: SummaryState, checkpoint: int, head: int) -> list[CompactionDue]:
    """Return the uncompacted whole ranges between the checkpoint and the head.

    A range starts after the checkpoint: one that includes its version would serve no reader. As
    many ranges as make up the interval are followed by one over all of them, and so on, so that the
    number of files that a reader needs grows with the logarithm of the tail.
    """
    base, at = checkpoint + 1, checkpoint + 1
    due = []
    while end := _end_of_range(base, at, head, state.compaction_interval):
        if end > max(checkpoint, state.compacted):
            due.append(CompactionDue(at, end))
        at = end + 1
    return due


def _end_of_range(base: int, start: int, head: int, size: int) -> int | None:
    """Return where the longest range from a version on ends, or None if none is whole yet."""
    length = size
    while (start - base) % (length * size) == 0 and start + length * size - 1 <= head:
        length *= size
    end = start + length - 1
    return end if end <= head else None


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
