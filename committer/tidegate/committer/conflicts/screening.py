"""Whether a proposal passes by a winner: asked before any rule, for most never meet.

A rule tells why a proposal conflicts. That nothing of the kind can be is found quicker, and of all
members of a group at once. What can't be told so quickly is left to the rules.
"""

from collections.abc import Sequence, Set

from tidegate.committer.conflicts.appended import LOOKS_MAX, VERSIONS_MAX, asks_too_much
from tidegate.committer.conflicts.standing import Scan, Standing
from tidegate.committer.proposals.candidate import REPLACES_TABLE
from tidegate.committer.tables.footprint import Footprint
from tidegate.delta.actions import Add


def passes_by(standing: Standing, winner: Footprint, adds: Sequence[Add] | None) -> bool:
    """Return whether no rule can fire, and nothing of the proposal changes by following.

    `adds` are the winner's new files, where they are known. Rows that moved need no word of their
    own: the files that they left are among the removed, the winner's and the proposal's.
    Law: passes_by(s, w.footprint, w.adds) implies follow(s, [w]) == s
    """
    candidate, content, reads = standing.candidate, standing.candidate.content, standing.reads
    if not winner.is_plain or standing.now is not standing.read:
        return False
    if candidate.speaks_of_table or candidate.minds_every_file:
        return False
    if winner.domains and (
        content.domains or reads.domains or candidate.operation in REPLACES_TABLE
    ):
        return False
    if winner.app_ids and not winner.app_ids.isdisjoint(reads.app_ids):
        return False
    return _keeps_off(standing, winner.removed) and _adds_unread(standing, winner, adds)


def _keeps_off(standing: Standing, removed: Set[str]) -> bool:
    """Return whether none of the removed files is the proposal's concern."""
    candidate = standing.candidate
    if not removed:
        return True
    return (
        not standing.reads.whole_table
        and removed.isdisjoint(candidate.files_read)
        and removed.isdisjoint(candidate.content.removed)
        and removed.isdisjoint(candidate.intended)
    )


def _adds_unread(standing: Standing, winner: Footprint, adds: Sequence[Add] | None) -> bool:
    """Return whether no new file holds a row that the writer should have read."""
    candidate, reads = standing.candidate, standing.reads
    if not winner.count or candidate.is_blind_append or standing.level == "SnapshotIsolation":
        return True
    if standing.level == "WriteSerializable" and winner.is_blind_append:
        return True
    if reads.whole_table:
        return False
    if not reads.predicates:
        return True
    if standing.partitions_weight * len(winner.added) > LOOKS_MAX:
        return False
    is_near = winner.version - candidate.read_version <= VERSIONS_MAX
    is_near = is_near and not asks_too_much(candidate, winner.count)
    known = adds if is_near and adds is not None and len(adds) == winner.count else None
    try:
        return _holds_none(standing.scans, winner, known)
    except ValueError:
        # A partition value is none of its type: the rule says of which file.
        return False


def _holds_none(scans: Sequence[Scan], winner: Footprint, adds: Sequence[Add] | None) -> bool:
    """Return whether no new file holds a row of a scan; unknown ones hold all of their partition's.

    Only files of partitions that some scan covers are looked at, and these by all of them: as the
    rule does, for which a file may be there by one predicate and in reach by another.
    """
    added = winner.added
    met = {key for scan in scans for key in added if scan.partitions[key]}
    if not met or adds is None:
        return not met
    for key in met:
        for scan in scans:
            test = scan.beyond if scan.partitions[key] else scan.anywhere
            if any([test(adds[place]) for place in added[key]]):
                return False
    return True
