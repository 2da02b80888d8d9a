"""The conflict rules: why a proposal cannot be committed after a winning commit.

A winner is a version after the proposal's read version, or an earlier member of its group. Each
winner, in the order of versions, is checked by `RULES` in their order, and the first rule that
fires names the conflict. If none fires, the proposal is rebased over the winner: it goes on as if
it had read the table after it. Rules and error classes are those of delta-spark's ConflictChecker.

`skips_rules` is a cheap test that a winner neither conflicts with a proposal nor changes it. Most
proposals and winners have nothing in common. This test finds that faster than the rules do, and for
all members of a group at once, by their joint write summary. If in doubt, the rules decide.
"""

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import Final
from uuid import UUID

from tidegate_committer.conflicts.concurrent_appends import (
    LOOKS_MAX,
    VERSIONS_MAX,
    AddedFiles,
    may_have_been_read,
    needs_too_many_tests,
    stated,
)
from tidegate_committer.conflicts.rebase import (
    ConflictFinding,
    ConflictRule,
    PredicateScan,
    RebaseState,
    adopt,
    with_ids,
)
from tidegate_committer.conflicts.table_conflict_rules import (
    backfill_of_more_than_files,
    concurrent_transaction,
    domain_metadata_changed,
    dropped_feature_in_use,
    feature_binds_writers,
    metadata_changed,
    protocol_changed,
    protocol_unsupported,
    row_ids_of_no_table,
    row_ids_without_statistics,
    unbackfill_meets_backfill,
    unclear_table,
)
from tidegate_committer.intake.candidate import REPLACES_TABLE
from tidegate_committer.intake.proposal_actions import PartitionKey, canonical
from tidegate_committer.row_level.row_deletes import are_untouched, gone_for, rows_in_the_way
from tidegate_committer.row_level.row_relocation import (
    carried,
    removals_that_follow,
    vectors_that_follow,
)
from tidegate_committer.state.log_entry import Entry, WriteSummary
from tidegate_committer.state.table_definition import TableDefinition
from tidegate_delta.features import row_tracking
from tidegate_delta.log.actions import Add
from tidegate_messages.outcome import Rejection


def skips_rules(
    rebase_state: RebaseState, winner: WriteSummary, adds: Sequence[Add] | None
) -> bool:
    """Return whether no conflict rule can fire, and no rebase step would change the proposal.

    `adds` are the winner's add actions, if known. The files that rows of a compaction left are
    among the removed ones; where these are now matters only to who may meet them by statistics.
    Law: skips_rules(s, w.write_summary, w.adds) implies follow(s, [w]) == s
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
    if winner.moves_rows and candidate.may_meet_packed_rows:
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
        and removed.isdisjoint(candidate.followed)
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
    is_near = is_near and not needs_too_many_tests(candidate, winner.count)
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


__all__ = [
    "CONCURRENT",
    "DELTA_NAMES",
    "RULES",
    "RULES_VERSION",
    "Conflict",
    "RebaseState",
    "TableDefinition",
    "check",
    "follow",
]

RULES_VERSION: Final = 19
"""Raised with every change that can change a decision. Every entry names it, so that a committer
knows whether the rejections that an entry implies were decided by its own rules.
"""


@dataclass(frozen=True)
class Conflict:
    """A rule that fired, and the winner against which it fired."""

    rule: str
    winner_version: int
    found: ConflictFinding = field(default_factory=lambda: ConflictFinding(""))
    winner_proposal_id: UUID | None = None

    @property
    def rejection(self) -> Rejection:
        """The rejection that a writer gets for it."""
        error_class, exception = DELTA_NAMES[self.rule]
        winner = f"proposal {self.winner_proposal_id} in " if self.winner_proposal_id else ""
        return Rejection(
            rule=self.rule,
            reason=f"{winner}version {self.winner_version} {self.found.detail}",
            advice="fix" if self.rule in FOR_A_PERSON else "rerun",
            error_class=self.found.error_class or error_class,
            exception=self.found.exception or exception,
            winner_version=self.winner_version,
            winner_proposal_id=str(self.winner_proposal_id) if self.winner_proposal_id else None,
            path=self.found.path,
            predicate=self.found.predicate,
            domain=self.found.domain,
            app_id=self.found.app_id,
        )


def concurrent_append(rebase_state: RebaseState, winner: Entry) -> ConflictFinding | None:
    """The winner added a file that may hold rows which the proposal would have read."""
    if not _conflicts_with_appends(rebase_state, winner):
        return None
    candidate, columns = rebase_state.candidate, rebase_state.read.metadata.partition_columns
    added = may_have_been_read(candidate, winner, rebase_state.file_tests, rebase_state.known)
    if added and candidate.reads.whole_table:
        path = added[0][0]
        return ConflictFinding(f"added {path!r}, and the whole table was read", path)
    if added and not columns:
        path = added[0][0]
        return _may_match(path, _predicate_for(path, rebase_state, winner))
    return _in_partitions_read(rebase_state, winner, added)


def _conflicts_with_appends(rebase_state: RebaseState, winner: Entry) -> bool:
    candidate = rebase_state.candidate
    if not winner.added or candidate.is_blind_append or rebase_state.level == "SnapshotIsolation":
        return False
    if candidate.only_moves_row_ids or _only_moves_row_ids(rebase_state, winner):
        return False
    may_come_later = winner.is_blind_append and not candidate.writes_metadata
    return not (rebase_state.level == "WriteSerializable" and may_come_later)


def _only_moves_row_ids(rebase_state: RebaseState, winner: Entry) -> bool:
    """Return whether a winner only gave or removed row ids, on a table with row tracking.

    The operation's name alone is not enough: without the feature the winner can't have done so.
    """
    if not winner.only_moves_row_ids:
        return False
    tables = (rebase_state.read, rebase_state.after(winner))
    return any(row_tracking.supports(table.protocol) for table in tables)


def _in_partitions_read(
    rebase_state: RebaseState, winner: Entry, added: AddedFiles
) -> ConflictFinding | None:
    """Return the first of the added files that lies in a partition which was read, or None.

    A partition value that its column's type can't hold is found first. delta-spark casts the values
    of all the winner's files, also of those that `added` leaves out by their statistics.
    """
    partitions = dict[PartitionKey, str]()
    for path, values in added:
        partitions.setdefault(frozenset(values.items()), path)
    ruled_out = [
        key
        for key in winner.write_summary.added
        if key not in partitions and _has_no_empty_value(key)
    ]
    if rebase_state.partitions_weight * (len(partitions) + len(ruled_out)) > LOOKS_MAX:
        if not added:
            return None
        path = added[0][0]
        return ConflictFinding(
            f"added {path!r}, and too much was read by predicates to be compared", path
        )
    for scan in rebase_state.scans:
        first: str | None = None
        for key in (*partitions, *ruled_out):
            try:
                matches = scan.partitions[key]
            except ValueError as error:
                path = winner.added[winner.write_summary.added[key][0]][0]
                return ConflictFinding(f"added {path!r}: {error}", path, *NO_VALUE)
            if matches and first is None:
                first = partitions.get(key)
        if first is not None:
            return _may_match(first, scan.place)
    return None


def _may_match(path: str, predicate: int | None) -> ConflictFinding:
    read_part = "what was read" if predicate is None else f"reads.predicates[{predicate}]"
    return ConflictFinding(
        f"added {path!r}, which may match {read_part}", path, predicate=predicate
    )


def _predicate_for(path: str, rebase_state: RebaseState, winner: Entry) -> int | None:
    """Return the index of the first read predicate that a new file may match, or None."""
    if len(rebase_state.reads.predicates) == 1:
        return 0
    adds = stated(rebase_state.candidate, winner, rebase_state.known) or {}
    add = adds.get(path)
    scans = rebase_state.scans if add is not None else ()
    return next((scan.place for scan in scans if add is not None and scan.anywhere(add)), None)


def _has_no_empty_value(key: PartitionKey) -> bool:
    """Return whether no partition value is an empty string, which means null and never matches."""
    return all(text != "" for _, text in key)


def _with_delta_error_class(
    rebase_state: RebaseState, winner: Entry, finding: ConflictFinding
) -> ConflictFinding:
    """Return a conflict over removed files with the error class that delta-spark would give it.

    delta-spark checks appends first, and without statistics. If our check cleared a winner's append
    by statistics, delta-spark would report that append as the conflict.
    """
    if not _conflicts_with_appends(rebase_state, winner):
        return finding
    if rebase_state.read.metadata.partition_columns:
        matched = _in_partitions_read(rebase_state, winner, winner.added)
        if matched is None or matched.error_class is not None:
            return finding
    error_class, exception = DELTA_NAMES[concurrent_append.__name__]
    return replace(finding, error_class=error_class, exception=exception)


def concurrent_delete_read(rebase_state: RebaseState, winner: Entry) -> ConflictFinding | None:
    """The winner removed a file that was read."""
    if not winner.removed:
        return None
    candidate = rebase_state.candidate
    removed = gone_for(candidate, winner, rebase_state.known)
    # A backfill or unbackfill drops the removed files from its work, so it does not conflict.
    forgets = candidate.only_moves_row_ids or rebase_state.takes_ids_off(winner)
    if not (forgets or candidate.files_read.isdisjoint(removed)):
        path = min(candidate.files_read & removed)
        finding = ConflictFinding(f"removed {path!r}, which was read", path)
        return _with_delta_error_class(rebase_state, winner, finding)
    if candidate.reads.whole_table and removed:
        path = min(removed)
        return ConflictFinding(f"removed {path!r}, and the whole table was read", path)
    return None


def concurrent_delete_delete(rebase_state: RebaseState, winner: Entry) -> ConflictFinding | None:
    """The winner removed a file that the proposal removes too, or changed rows of such a file where
    an earlier winner had moved them.
    """
    candidate, known = rebase_state.candidate, rebase_state.known
    twice = winner.removed & candidate.content.removed
    if twice and candidate.moves:
        twice -= carried(candidate, winner, known)
    if twice and winner.moved:
        twice -= removals_that_follow(candidate, winner)
        twice -= vectors_that_follow(candidate, winner, known).keys()
    twice |= {
        removal.rows.path
        for removal in candidate.leaving
        if not are_untouched(removal.rows, winner, known)
    }
    if not twice:
        return None
    finding = ConflictFinding(f"removed {min(twice)!r} too", min(twice))
    return _with_delta_error_class(rebase_state, winner, finding)


def concurrent_row_delete(rebase_state: RebaseState, winner: Entry) -> ConflictFinding | None:
    """The winner removed a file from which the proposal deletes rows, or deleted the same rows."""
    candidate, level = rebase_state.candidate, rebase_state.level
    conflict = rows_in_the_way(candidate, level, winner, rebase_state.known)
    return ConflictFinding(*conflict) if conflict else None


def duplicate_actions(rebase_state: RebaseState, winner: Entry) -> ConflictFinding | None:
    """The proposal would add a file twice.

    It strips row ids from a file that the winner added, and also removes that file or rows of it.
    """
    content, intended = rebase_state.candidate.content, rebase_state.candidate.intended
    if not (content.removes or intended) or not rebase_state.takes_ids_off(winner):
        return None
    for add in with_ids(winner):
        path = canonical(add.path)
        if path in intended:
            return ConflictFinding(
                f"added {path!r}, which the proposal adds without ids, less rows", path
            )
        if path in content.removed and winner.vectors.get(path) == content.removed_vectors.get(
            path
        ):
            return ConflictFinding(
                f"added {path!r}, which the proposal adds without ids and removes", path
            )
    return None


RULES: Final[tuple[ConflictRule, ...]] = (
    protocol_unsupported,
    protocol_changed,
    feature_binds_writers,
    dropped_feature_in_use,
    metadata_changed,
    domain_metadata_changed,
    concurrent_transaction,
    row_ids_of_no_table,
    backfill_of_more_than_files,
    unbackfill_meets_backfill,
    unclear_table,
    row_ids_without_statistics,
    concurrent_append,
    concurrent_delete_read,
    concurrent_delete_delete,
    concurrent_row_delete,
    duplicate_actions,
)
"""All rules, in the order in which they are checked: first about the table, then about files."""

DELTA_NAMES: Final[Mapping[str, tuple[str | None, str]]] = {
    "protocol_unsupported": ("DELTA_UNSUPPORTED_FEATURES_FOR_WRITE", "DeltaTableFeatureException"),
    "protocol_changed": ("DELTA_PROTOCOL_CHANGED", "ProtocolChangedException"),
    "feature_binds_writers": ("DELTA_PROTOCOL_CHANGED", "ProtocolChangedException"),
    "dropped_feature_in_use": (
        "DELTA_FEATURE_DROP_CONFLICT_REVALIDATION_FAIL",
        "DeltaTableFeatureException",
    ),
    "metadata_changed": ("DELTA_METADATA_CHANGED", "MetadataChangedException"),
    "domain_metadata_changed": ("DELTA_CONCURRENT_TRANSACTION", "ConcurrentTransactionException"),
    "concurrent_transaction": ("DELTA_CONCURRENT_TRANSACTION", "ConcurrentTransactionException"),
    "row_ids_of_no_table": (None, "AssertionError"),
    "backfill_of_more_than_files": (None, "IllegalStateException"),
    "unbackfill_meets_backfill": (
        "DELTA_ROW_TRACKING_BACKFILL_RUNNING_CONCURRENTLY_WITH_UNBACKFILL",
        "DeltaIllegalStateException",
    ),
    "unclear_table": (
        "DELTA_ROW_TRACKING_ILLEGAL_PROPERTY_COMBINATION",
        "DeltaIllegalStateException",
    ),
    "row_ids_without_statistics": (
        "DELTA_ROW_ID_ASSIGNMENT_WITHOUT_STATS",
        "DeltaIllegalStateException",
    ),
    "concurrent_append": ("DELTA_CONCURRENT_APPEND", "ConcurrentAppendException"),
    "concurrent_delete_read": ("DELTA_CONCURRENT_DELETE_READ", "ConcurrentDeleteReadException"),
    "concurrent_delete_delete": (
        "DELTA_CONCURRENT_DELETE_DELETE",
        "ConcurrentDeleteDeleteException",
    ),
    "concurrent_row_delete": (
        "DELTA_CONCURRENT_DELETE_DELETE",
        "ConcurrentDeleteDeleteException",
    ),
    "duplicate_actions": ("DELTA_DUPLICATE_ACTIONS_FOUND", "DeltaRuntimeException"),
}
"""Rule -> delta-spark's error class, if it has one, and exception."""

FOR_A_PERSON: Final = frozenset(
    {"protocol_unsupported", "row_ids_of_no_table", "row_ids_without_statistics", "unclear_table"}
)
"""Rules after which it does not help to run the operation again: somebody must change the table or
upgrade the committer (advice `fix`, not `rerun`).
"""

NO_VALUE: Final = ("CAST_INVALID_INPUT", "SparkRuntimeException")
"""delta-spark's error for a partition value that its column's type can't hold. It is no conflict.
"""

CONCURRENT: Final = frozenset(
    {
        "ProtocolChangedException",
        "MetadataChangedException",
        "ConcurrentTransactionException",
        "ConcurrentAppendException",
        "ConcurrentDeleteReadException",
        "ConcurrentDeleteDeleteException",
    }
)
"""The exceptions that delta-spark counts as conflicts. The others say that a commit is invalid."""


def check(rebase_state: RebaseState, winners: Iterable[Entry]) -> Conflict | None:
    """Return the first conflict with the winners, oldest first, or None if there is none.

    Law: a conflict is final. If check(s, ws) is a conflict, check(s, ws + more) is the same one.
    """
    result = follow(rebase_state, winners)
    return result if isinstance(result, Conflict) else None


def follow(rebase_state: RebaseState, winners: Iterable[Entry]) -> RebaseState | Conflict:
    """Return a proposal's rebase state after all winners, oldest first, or its first conflict."""
    indifferent = rebase_state.candidate.is_plain_append
    for winner in winners:
        if indifferent and not winner.concerns_all:
            continue
        adds = rebase_state.known.adds.get(winner.version, winner.adds)
        if skips_rules(rebase_state, winner.write_summary, adds):
            continue
        for rule in RULES:
            finding = rule(rebase_state, winner)
            if finding is not None:
                winner_id = winner.proposal_with(finding.path, finding.app_id, finding.domain)
                return Conflict(rule.__name__, winner.version, finding, winner_id)
        rebase_state = adopt(rebase_state, winner)
    return rebase_state
