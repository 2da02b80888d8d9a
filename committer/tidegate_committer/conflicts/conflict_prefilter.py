"""A cheap test that a winner neither conflicts with a proposal nor changes it.

Most proposals and winners have nothing in common. This test finds that faster than the rules do,
and for all members of a group at once, by their joint write summary. If in doubt, the rules decide.
"""

from collections.abc import Sequence, Set

from tidegate_committer.conflicts.concurrent_appends import LOOKS_MAX, VERSIONS_MAX, asks_too_much
from tidegate_committer.conflicts.rebase_state import PredicateScan, RebaseState
from tidegate_committer.intake.candidate import REPLACES_TABLE
from tidegate_committer.state.write_summary import WriteSummary
from tidegate_delta.log.actions import Add


def passes_by(rebase_state: RebaseState, winner: WriteSummary, adds: Sequence[Add] | None) -> bool:
    """Return whether no conflict rule can fire, and no rebase step would change the proposal.

    `adds` are the winner's add actions, if known. Compactions need no test of their own: the files
    that rows left are among the removed ones.
    Law: passes_by(s, w.write_summary, w.adds) implies follow(s, [w]) == s
    """
    candidate, content, reads = (
        rebase_state.candidate,
        rebase_state.candidate.content,
        rebase_state.reads,
    )
    if not winner.is_plain or rebase_state.now is not rebase_state.read:
        return False
    if candidate.changes_definition or candidate.depends_on_added_files:
        return False
    if winner.domains and (
        content.domains or reads.domains or candidate.operation in REPLACES_TABLE
    ):
        return False
    if winner.app_ids and not winner.app_ids.isdisjoint(reads.app_ids):
        return False
    return _touches_none_of(rebase_state, winner.removed) and _adds_unread(
        rebase_state, winner, adds
    )


def _touches_none_of(rebase_state: RebaseState, removed: Set[str]) -> bool:
    """Return whether the proposal neither read, removes nor deletes rows of a removed file."""
    candidate = rebase_state.candidate
    if not removed:
        return True
    return (
        not rebase_state.reads.whole_table
        and removed.isdisjoint(candidate.files_read)
        and removed.isdisjoint(candidate.content.removed)
        and removed.isdisjoint(candidate.intended)
    )


def _adds_unread(
    rebase_state: RebaseState, winner: WriteSummary, adds: Sequence[Add] | None
) -> bool:
    """Return whether no new file may hold a row that the proposal should have read."""
    candidate, reads = rebase_state.candidate, rebase_state.reads
    if not winner.count or candidate.is_blind_append or rebase_state.level == "SnapshotIsolation":
        return True
    if rebase_state.level == "WriteSerializable" and winner.is_blind_append:
        return True
    if reads.whole_table:
        return False
    if not reads.predicates:
        return True
    if rebase_state.partitions_weight * len(winner.added) > LOOKS_MAX:
        return False
    is_near = winner.version - candidate.read_version <= VERSIONS_MAX
    is_near = is_near and not asks_too_much(candidate, winner.count)
    known = adds if is_near and adds is not None and len(adds) == winner.count else None
    try:
        return _holds_none(rebase_state.scans, winner, known)
    except ValueError:
        # A partition value is not of its column's type: the rule finds the file.
        return False


def _holds_none(
    scans: Sequence[PredicateScan], winner: WriteSummary, adds: Sequence[Add] | None
) -> bool:
    """Return whether no new file may match a scan. Without `adds`, only partitions are tested.

    Files in partitions that some scan matches are tested by all scans, as the rule does: it may
    take the partition from one predicate and the statistics from another.
    """
    added = winner.added
    matched = {key for scan in scans for key in added if scan.partitions[key]}
    if not matched or adds is None:
        return not matched
    for key in matched:
        for scan in scans:
            test = scan.beyond if scan.partitions[key] else scan.anywhere
            if any([test(adds[index]) for index in added[key]]):
                return False
    return True
