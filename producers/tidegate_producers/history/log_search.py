"""Finds proposals in a table's log: the version in which one was accepted or refused.

The refusals of a table, from its log and from the topic `outcomes`.

The log records only refusals that do not follow from its commits. Conflicts are in the topic
only, for as long as it keeps them.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from tidegate_delta.errors import BrokenLog
from tidegate_delta.log.commit import Commit
from tidegate_messages import commit_provenance
from tidegate_messages.outcome import Outcome, Rejection
from tidegate_producers.history.outcome_log import PublishedOutcome
from tidegate_producers.history.table_history import HistoryEntry, entry_of
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


CANCELLED: Final = "cancelled"


@dataclass(frozen=True)
class RefusedProposal:
    """A refused proposal, and the winning version of a conflict.

    `refused_in` is the entry that records the refusal, None if only the topic does.
    Units: `at_ms` in ms since the Unix epoch.
    """

    proposal_id: str
    status: str
    rejection: Rejection
    at_ms: int | None
    refused_in: int | None = None
    winner: HistoryEntry | None = None


def conflicts(
    store: LogStore, published_outcomes: Sequence[PublishedOutcome], versions: int
) -> list[RefusedProposal]:
    """Return the refusals of a table, newest first, without winners.

    The first rejection counts, not what the log says later: a rejected proposal that is cancelled
    afterwards has its rejection in the topic, and `cancelled` in the log.
    Raises: Unavailable.
    """
    refused_by_id = {
        str(published.outcome.proposal_id): RefusedProposal(
            str(published.outcome.proposal_id),
            published.outcome.status,
            published.outcome.rejection,
            published.at_ms,
        )
        for published in published_outcomes
        if published.outcome.rejection is not None and not _gives_up(published.outcome)
    }
    for refused in _in_the_log(store, versions):
        earlier = refused_by_id.get(refused.proposal_id)
        is_other = earlier is not None and earlier.rejection.rule != refused.rejection.rule
        if earlier is None or earlier.status != "rejected" or not is_other:
            refused_by_id[refused.proposal_id] = refused
    return sorted(
        refused_by_id.values(), key=lambda proposal: (proposal.at_ms or 0, proposal.proposal_id)
    )[::-1]


def _gives_up(outcome: Outcome) -> bool:
    """Return whether an outcome is that of the cancel itself, which is no refusal."""
    rejection = outcome.rejection
    if rejection is None or rejection.rule != CANCELLED:
        return False
    return str(outcome.proposal_id) in rejection.reason


def _in_the_log(store: LogStore, versions: int) -> Iterator[RefusedProposal]:
    """Yield the refusals in the log; stop at a corrupt commit, as the topic has others."""
    try:
        for commit in newest_commits(store, versions):
            for match in matches_of(commit):
                if match.rejection is not None:
                    name = str(match.proposal_id)
                    yield RefusedProposal(
                        name, "rejected", match.rejection, match.at_ms, match.version
                    )
    except BrokenLog:
        return


def by_rule(conflicts: Sequence[RefusedProposal]) -> dict[str, int]:
    """Return the number of refusals of each rule, the most frequent first."""
    return dict(Counter(conflict.rejection.rule for conflict in conflicts).most_common())


def with_winner(store: LogStore, proposal: RefusedProposal) -> RefusedProposal:
    """Return a refusal with the winning version, if it was a conflict. Raises: Unavailable."""
    version = proposal.rejection.winner_version
    if version is None:
        return proposal
    try:
        read = read_commit(store, version)
    except BrokenLog:
        read = None
    winner = HistoryEntry(version) if read is None else entry_of(read[0])
    return RefusedProposal(
        proposal.proposal_id,
        proposal.status,
        proposal.rejection,
        proposal.at_ms,
        proposal.refused_in,
        winner,
    )
