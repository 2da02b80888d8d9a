"""The fast path: accepts most proposals without running the steps of a decision one by one.

Most proposals only add and remove files of a table whose metadata and protocol are still the ones
that they read, and which has no constraints or features that need more checks. No step
(`steps.STEPS`) would reject or change them. The fast path checks this at once; what depends only on
the table is computed once for all candidates. All other proposals take the steps.
"""

from typing import Final

from tidegate_committer.admission.admission_rules import (
    OPERATION_CHARS_MAX,
    table_level,
    unlike_partitioning,
)
from tidegate_committer.conflicts.conflict_prefilter import passes_by
from tidegate_committer.conflicts.rebase_state import begin
from tidegate_committer.decision.decision_types import Consider, DecisionInput
from tidegate_committer.group_commit.grouping import Group, has_room
from tidegate_committer.intake.candidate import REPLACES_TABLE, Candidate
from tidegate_committer.policy import STRICTNESS, Policy
from tidegate_committer.state.live_files import GONE
from tidegate_committer.state.path_normal_form import misspelt
from tidegate_committer.state.table_state import TableState
from tidegate_delta.data_skipping.predicate_validation import wrong_with
from tidegate_delta.log.file_paths import is_absolute
from tidegate_delta.properties.table_properties import append_only

_ROWS_CHANGE: Final = frozenset({True})


class FastPath:
    """Decides which candidates join a group without running the steps, for one table state.

    Law: if `is_clear(view, command)`, no step of `STEPS` answers, and the candidate stays
    unchanged: `decide(view, command)` is membership
    """

    def __init__(self, state: TableState, policy: Policy) -> None:
        self._state, self._policy = state, policy
        self._since = max(state.oldest, state.window_start) - 1
        self._is_open = state.version >= 0 and state.table_definition.is_unconstrained
        if not self._is_open:
            return
        since, table_definition = state.table_definitions[-1]
        self._since, self._table_definition = max(self._since, since), table_definition
        self._table_id, self._level = (
            table_definition.metadata.id,
            table_level(table_definition.metadata),
        )
        self._only_appends = append_only(table_definition.metadata)
        weakest = STRICTNESS.index(policy.weakest_isolation)
        self._isolations = frozenset(("default", *STRICTNESS[weakest:]))

    def is_clear(self, view: DecisionInput, command: Consider) -> bool:
        """Return whether a candidate joins the group unchanged; False leaves it to the steps."""
        candidate = command.candidate
        return (
            self._is_open
            and self._since <= candidate.read_version <= self._state.version
            and only_writes_files(candidate)
            and self._is_new_id(candidate, view.group)
            and self._is_admitted(candidate, command.now_ms)
            and self._joins(candidate, view.group)
            and self._fits_live_files(candidate)
            and (_is_plain_append(candidate) or self._conflicts_with_none(candidate, view))
        )

    def _is_new_id(self, candidate: Candidate, group: Group) -> bool:
        """Whether its proposal id is neither in the log nor in the group."""
        return candidate.id not in group.settled and candidate.id not in self._state.settled.now

    def _is_admitted(self, candidate: Candidate, now_ms: int) -> bool:
        """Whether it passes admission: this table, an allowed isolation level, in time, valid."""
        proposal, reads, policy = candidate.proposal, candidate.reads, self._policy
        assert proposal is not None, "what only writes files was proposed"
        since_ms, deadline_ms = candidate.since_ms, proposal.deadline_ms
        return (
            proposal.table_root == self._state.root
            and proposal.table_id == self._table_id
            and proposal.isolation in self._isolations
            and (deadline_ms is None or now_ms <= deadline_ms)
            and (since_ms is None or now_ms - since_ms <= policy.files_age_max_ms)
            and len(proposal.operation.name) <= OPERATION_CHARS_MAX
            and unlike_partitioning(candidate.content, self._table_definition, candidate.operation)
            is None
            and not (reads.predicates and wrong_with(reads.predicates, policy.predicate_nodes_max))
        )

    def _joins(self, candidate: Candidate, group: Group) -> bool:
        """Whether it may share the entry with the members.

        Files whose rows members delete or move count as removed, so naming one takes the steps.
        """
        if group.changes_table:
            return False
        if not group.members:
            return True
        content, touched = candidate.content, group.touched
        return (
            group.nature == ("change" if content.removes else "append")
            and not group.has_changes
            and touched.isdisjoint(content.removed)
            and touched.isdisjoint([path for path, _ in content.added])
            and has_room(group, candidate, self._policy)
        )

    def _fits_live_files(self, candidate: Candidate) -> bool:
        """Whether what it removes is live, spelled as in the log and without a deletion vector, and
        what it adds is new.
        """
        content, files = candidate.content, self._state.files
        if content.removes and (
            self._only_appends
            or any(vector is not None for vector in files.vectors_of(content.removed))
            or misspelt(content, files, self._state.spelt) is not None
        ):
            return False
        return all(
            vector == GONE for vector in files.vectors_of([path for path, _ in content.added])
        )

    def _conflicts_with_none(self, candidate: Candidate, view: DecisionInput) -> bool:
        """Whether no conflict rule can fire against the versions since it read, or the members."""
        state, known, group = self._state, view.known, view.group
        rebase_state = begin(candidate, self._table_definition, candidate.level(self._level), known)
        for winner in state.since(candidate.read_version):
            adds = known.adds.get(winner.version, winner.adds)
            if not passes_by(rebase_state, winner.write_summary, adds):
                return False
        return passes_by(rebase_state, group.write_summary, group.adds)


def _is_plain_append(candidate: Candidate) -> bool:
    """Whether only metadata or protocol can conflict with a candidate that only writes files."""
    reads = candidate.reads
    needs_rules = reads.app_ids or reads.domains or candidate.operation in REPLACES_TABLE
    return candidate.is_blind_append and not needs_rules


def only_writes_files(candidate: Candidate) -> bool:
    """Return whether a proposal only adds and removes whole files, with `dataChange` true.

    It has no deletion vectors, row ids, change files, app transactions, domains, metadata or
    protocol, and no file outside of the table's root.
    """
    content, proposal = candidate.content, candidate.proposal
    if proposal is None or candidate.flaw is not None or proposal.kind != "commit":
        return False
    if candidate.intents or candidate.moves or candidate.reads.delete_insensitive:
        return False
    if proposal.app_txn is not None or proposal.app_txns or proposal.metadata_patch is not None:
        return False
    if proposal.identity_usage or proposal.identity_leases or candidate.only_moves_row_ids:
        return False
    if content.vectors or content.removed_vectors or content.has_row_ids or content.changes:
        return False
    if content.txns or content.domains or content.metadata or content.protocol:
        return False
    # Whether files may lie elsewhere is checked by the slow path alone.
    if not content.is_plain and any(is_absolute(add.path) for add in content.adds):
        return False
    return candidate.data_changes == _ROWS_CHANGE
