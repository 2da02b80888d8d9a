"""Finds proposals in a table's log: the version in which one was accepted or refused."""

from collections.abc import Iterator
from dataclasses import dataclass
from uuid import UUID

from tidegate_delta.log.commit import Commit
from tidegate_messages import commit_provenance
from tidegate_messages.outcome import Rejection
from tidegate_runtime.storage.log_store import LogStore
from tidegate_runtime.table_io.open_table import head_version, read_commit


@dataclass(frozen=True)
class LogMatch:
    """What the log says of a proposal: accepted or refused in `version`.

    `place` is the number of an accepted proposal among those of the version.
    """

    proposal_id: UUID
    version: int
    place: int | None = None
    rejection: Rejection | None = None
    at_ms: int | None = None


def newest_commits(store: LogStore, versions: int) -> Iterator[Commit]:
    """Yield the newest `versions` commits that the log still holds, newest first.

    Raises: BrokenLog; Unavailable.
    """
    head = head_version(store)
    if head is None:
        return
    for version in range(head, max(-1, head - versions), -1):
        entry = read_commit(store, version)
        if entry is None:
            return
        yield entry[0]


def find_in_log(store: LogStore, proposal_id: UUID, versions: int) -> LogMatch | None:
    """Return what the newest `versions` commits say of a proposal, or None.

    Raises: BrokenLog; Unavailable.
    """
    for commit in newest_commits(store, versions):
        for match in matches_of(commit):
            if match.proposal_id == proposal_id:
                return match
    return None


def matches_of(commit: Commit) -> Iterator[LogMatch]:
    """Yield what an entry of the committer says of each of its proposals."""
    provenance, version = commit_provenance.of(commit), int(commit.version)
    at_ms = commit.info.timestamp if commit.info else None
    if provenance is None:
        return
    for place, accepted in enumerate(provenance.accepted):
        yield LogMatch(accepted.id, version, place, at_ms=at_ms)
    for refused in provenance.refused:
        yield LogMatch(refused.id, version, rejection=refused.reason, at_ms=at_ms)
