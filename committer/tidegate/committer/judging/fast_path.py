"""The fast path into an entry, which most proposals take: asked before any step of a decision.

A step tells why a proposal is not accepted, or what it becomes. Most proposals only write and
remove files of a table that is as it was when they read it, and that asks nothing special of new
rows: of such a one no step has anything to say. That is found quicker than by asking each, and much
of it once for all that meet the table. What can't be told so quickly is left to the steps.
"""

from typing import Final

from tidegate.committer.admission.rules import OPERATION_CHARS_MAX, table_level, unlike_partitioning
from tidegate.committer.conflicts.screening import passes_by
from tidegate.committer.conflicts.standing import begin
from tidegate.committer.group_commit.grouping import Group, has_room
from tidegate.committer.judging.verdicts import Consider, View
from tidegate.committer.proposals.candidate import REPLACES_TABLE, Candidate
from tidegate.committer.proposals.policy import STRICTNESS, Policy
from tidegate.committer.tables.live_files import GONE
from tidegate.committer.tables.spelling import misspelt
from tidegate.committer.tables.state import TableState
from tidegate.delta.features.properties import append_only
from tidegate.delta.files.wellformed import wrong_with

_ROWS_CHANGE: Final = frozenset({True})


class FastPath:
    """Who gets into a group past all steps, on a table as it is.

    Law: where `is_clear(view, command)`, no step of `STEPS` answers, and the candidate stays as it
    is: `decide(view, command)` is membership
    """

    def __init__(self, state: TableState, policy: Policy) -> None:
        self._state, self._policy = state, policy
        self._since = max(state.oldest, state.window_start) - 1
        self._is_open = state.version >= 0 and state.basis.asks_nothing
        if not self._is_open:
            return
        since, basis = state.bases[-1]
        self._since, self._basis = max(self._since, since), basis
        self._table_id, self._level = basis.metadata.id, table_level(basis.metadata)
        self._only_appends = append_only(basis.metadata)
        weakest = STRICTNESS.index(policy.weakest_isolation)
        self._isolations = frozenset(("default", *STRICTNESS[weakest:]))

    def is_clear(self, view: View, command: Consider) -> bool:
        """Return whether no step has anything to say of a candidate."""
        candidate = command.candidate
        return (
            self._is_open
            and self._since <= candidate.read_version <= self._state.version
            and only_writes_files(candidate)
            and self._is_unheard_of(candidate, view.group)
            and self._is_admitted(candidate, command.now_ms)
            and self._joins(candidate, view.group)
            and self._goes_with_the_files(candidate)
            and (_minds_nothing(candidate) or self._passes_all(candidate, view))
        )

    def _is_unheard_of(self, candidate: Candidate, group: Group) -> bool:
        """Neither the log nor the group knows the id."""
        return candidate.id not in group.settled and candidate.id not in self._state.settled.now

    def _is_admitted(self, candidate: Candidate, now_ms: int) -> bool:
        """It was made for this table, in time, and says what it says in the right words."""
        proposal, reads, policy = candidate.proposal, candidate.reads, self._policy
        assert proposal is not None, "what only writes files was proposed"
        since_ms, deadline_ms = proposal.files_since_ms, proposal.deadline_ms
        return (
            proposal.table_root == self._state.root
            and proposal.table_id == self._table_id
            and proposal.isolation in self._isolations
            and (deadline_ms is None or now_ms <= deadline_ms)
            and (since_ms is None or now_ms - since_ms <= policy.files_age_max_ms)
            and len(proposal.operation.name) <= OPERATION_CHARS_MAX
            and unlike_partitioning(candidate.content, self._basis, candidate.operation) is None
            and not (reads.predicates and wrong_with(reads.predicates, policy.predicate_nodes_max))
        )

    def _joins(self, candidate: Candidate, group: Group) -> bool:
        """It may share an entry with the members.

        Rows that they delete or move lie in files which count as removed: nobody passes by these.
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

    def _goes_with_the_files(self, candidate: Candidate) -> bool:
        """What it removes is live, spelt as usual and without a vector; what it adds is not."""
        content, files = candidate.content, self._state.files
        if content.removes and (
            self._only_appends
            or any(one is not None for one in files.vectors_of(content.removed))
            or misspelt(content, files, self._state.spelt) is not None
        ):
            return False
        return all(one == GONE for one in files.vectors_of([path for path, _ in content.added]))

    def _passes_all(self, candidate: Candidate, view: View) -> bool:
        """It passes by each version that it has not seen, and by the members of the group."""
        state, known, group = self._state, view.known, view.group
        standing = begin(candidate, self._basis, candidate.level(self._level), known)
        for winner in state.since(candidate.read_version):
            adds = known.adds.get(winner.version, winner.adds)
            if not passes_by(standing, winner.footprint, adds):
                return False
        return passes_by(standing, group.footprint, group.adds)


def _minds_nothing(candidate: Candidate) -> bool:
    """What of `Candidate.is_indifferent` is still to be asked of who only writes files."""
    reads = candidate.reads
    asks = reads.app_ids or reads.domains or candidate.operation in REPLACES_TABLE
    return candidate.is_blind_append and not asks


def only_writes_files(candidate: Candidate) -> bool:
    """Return whether a proposal writes or removes files whose rows are new or gone, and no more.

    No vector, no row id, no application, nothing of the table itself, no row without its file.
    """
    content, proposal = candidate.content, candidate.proposal
    if proposal is None or candidate.flaw is not None or proposal.kind != "commit":
        return False
    if candidate.intents or candidate.moves or candidate.reads.delete_insensitive:
        return False
    if proposal.app_txn is not None or proposal.metadata_patch is not None:
        return False
    if proposal.identity_usage or proposal.identity_leases or candidate.only_moves_row_ids:
        return False
    if content.vectors or content.removed_vectors or content.has_row_ids or content.changes:
        return False
    if content.txns or content.domains or content.metadata or content.protocol:
        return False
    return candidate.data_changes == _ROWS_CHANGE
