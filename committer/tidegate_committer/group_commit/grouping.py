"""Group commit: which proposals may share an entry of the log.

An entry has one commitInfo, and readers take it as one change. Each rule of `SHARING` names
something that one entry cannot express for several proposals, or that a reader would misread. The
first proposal that does not fit closes the group and opens the next one.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final
from uuid import UUID

from tidegate_committer.intake.candidate import Candidate, ChangeKind
from tidegate_committer.intake.identity_leases import LeasedBlocks
from tidegate_committer.intake.proposal_actions import CheckedActions
from tidegate_committer.policy import Policy
from tidegate_committer.row_level.merged_row_deletes import MergedDeletes
from tidegate_committer.state.fetched_inputs import NOTHING, FetchedInputs
from tidegate_committer.state.log_entry import (
    Entry,
    WriteSummary,
    member_entry,
    moves_row_ids,
    revisions,
)
from tidegate_delta.deletion_vectors.roaring_bitmap import Bitmap
from tidegate_delta.log.actions import Add
from tidegate_messages.outcome import Rejection

NO_DELETES: Final[Mapping[str, Bitmap]] = {}


class Group:
    """The proposals that will share one entry, while it is being decided. Mutable.

    `members` are accepted, `refused` are refusals to be written. `decisions` is what the entry will
    say about each proposal id: the digest of its bytes, with its place or its rejection. `touched`
    are the paths that members add, remove or name as change files, `removed` those that lose rows
    or are removed; `adds` are the new files, `write_summary` what all members write. `merges` joins
    the row deletes of members; `deleted` is how many rows each member is the first to delete.
    `revises`: a member brings its own deletion vector. `marks` and `leases` are identity values
    used and given out. `actions` and `size` count towards the limits of an entry.
    """

    def __init__(self, version: int) -> None:
        self.version = version
        self.members: list[Candidate] = []
        self._winners: list[Entry] = []
        self._deletes: list[Mapping[str, Bitmap]] = []
        self.refused: list[tuple[Candidate, UUID, Rejection]] = []
        self.decisions: dict[UUID, tuple[str | None, int | Rejection]] = {}
        self.touched: set[str] = set()
        self.removed: set[str] = set()
        self.adds: list[Add] = []
        self.merges = MergedDeletes()
        self.deleted: list[int | None] = []
        self.app_ids: set[str] = set()
        self.domains: set[str] = set()
        self.marks: dict[str, int] = {}
        self.leases: dict[UUID, LeasedBlocks] = {}
        self.change_kind: ChangeKind = "bare"
        self.has_changes = False
        self.changes_table = False
        self.moves_row_ids = False
        self.revises = False
        self.actions = 0
        self.size = 0
        self.write_summary = WriteSummary(
            version, removed=self.removed, app_ids=self.app_ids, domains=self.domains
        )

    def take(self, candidate: Candidate, known: FetchedInputs = NOTHING) -> None:
        """Add a member; its place in the entry is the number of members before it."""
        content, intents = candidate.content, candidate.intents
        place = len(self.members)
        self.members.append(candidate)
        deletes, count = NO_DELETES, None
        if intents:
            before = len(self.merges.tallies)
            deletes, count = self.merges.take(candidate, known)
            self.actions += 2 * (len(self.merges.tallies) - before)
        self.deleted.append(count)
        self._deletes.append(deletes)
        self.decisions[candidate.id] = (candidate.sha256, place)
        if candidate.numbers is not None:
            self.marks.update(candidate.numbers.marks)
            self.leases.update(candidate.numbers.leases)
        if candidate.change_kind != "bare":
            self.change_kind = candidate.change_kind
        self.moves_row_ids = not intents and moves_row_ids(
            candidate.operation, content.adds, content.removes
        )
        if content.metadata is not None or content.protocol is not None:
            self.changes_table = True
        if content.vectors or content.removed_vectors:
            self.revises = self.revises or bool(revisions(content.removes, content.adds))
        self.write_summary.moves_rows |= bool(candidate.moves)
        self._note_files(content)
        self._note_effects(candidate, deletes)
        self.actions += len(content.lines) + len(candidate.txns)
        self.size += candidate.size

    def _note_files(self, content: CheckedActions) -> None:
        """Record the paths and domains that a member names, which no other member may name."""
        self.touched.update([path for path, _ in content.added])
        if content.removed:
            self.touched.update(content.removed)
        if content.changes:
            self.touched.update([file.path for file in content.changes])
            self.has_changes = True
        if content.domains:
            self.domains.update([domain.domain for domain in content.domains])

    def _note_effects(self, candidate: Candidate, deletes: Mapping[str, Bitmap]) -> None:
        """Record the writes of a member that can conflict with later candidates."""
        content, write_summary = candidate.content, self.write_summary
        if candidate.txns:
            self.app_ids.update([txn.app_id for txn in candidate.txns])
        if content.removed or deletes:
            self.removed.update(content.removed, deletes)
        self.adds += content.adds
        write_summary.add(content.added)
        write_summary.is_blind_append = write_summary.is_blind_append and candidate.is_blind_append
        write_summary.is_plain = not (self.changes_table or self.moves_row_ids)

    @property
    def winners(self) -> Sequence[Entry]:
        """The members so far, each as an entry that the next candidate must be rebased on."""
        for place in range(len(self._winners), len(self.members)):
            member, deletes = self.members[place], self._deletes[place]
            self._winners.append(member_entry(member, self.version, deletes))
        return self._winners

    @property
    def rows_by(self) -> tuple[tuple[int, ...], ...]:
        """The places of the members that delete rows of each file, in the order of paths."""
        places_by_path: dict[str, list[int]] = {}
        for place, deletes in enumerate(self._deletes):
            for path in deletes:
                places_by_path.setdefault(path, []).append(place)
        return tuple(tuple(places_by_path[path]) for path in sorted(places_by_path))

    def may_meet_rows_of(self, candidate: Candidate) -> bool:
        """Return whether members revised vectors or moved rows, or the candidate moves some."""
        return self.revises or self.write_summary.moves_rows or bool(candidate.moves)

    @property
    def beyond_row_deletes(self) -> Sequence[Entry]:
        """The winners, except those that only delete rows."""
        pairs = zip(self.winners, self.members, strict=True)
        return [winner for winner, member in pairs if not member.only_deletes_rows]

    def rivals(self, candidate: Candidate, known: FetchedInputs) -> Sequence[Entry]:
        """Return the members with which a candidate may conflict, or that may change it.

        If a candidate tolerates row deletes (`tolerates_row_deletes`) and deletes none of the same
        rows, members that only delete rows are left out: so a thousand row deletes need not be
        compared in pairs.
        """
        bears = candidate.tolerates_row_deletes and not candidate.content.has_row_ids
        if bears and self.merges.are_apart_from(candidate, known):
            return self.beyond_row_deletes
        return self.winners

    def refuse(self, candidate: Candidate, target: UUID, rejection: Rejection) -> None:
        """Add a refusal of the proposal `target`: the candidate's own, or the one it cancels."""
        self.refused.append((candidate, target, rejection))
        digest = candidate.sha256 if target == candidate.id else None
        self.decisions[target] = (digest, rejection)
        self.size += len(rejection.reason) + 256

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to write."""
        return not (self.members or self.refused)


Sharing = Callable[[Group, Candidate], bool]
"""Returns whether a proposal may join the members of a group."""


def the_table_changes_alone(group: Group, candidate: Candidate) -> bool:
    """Metadata and protocol changes get an entry of their own."""
    alone = candidate.content.metadata or candidate.content.protocol
    return not (alone or group.changes_table)


def row_ids_move_alone(group: Group, candidate: Candidate) -> bool:
    """A row tracking backfill stays alone: others recognize it by the operation of its entry."""
    if group.moves_row_ids:
        return False
    return candidate.is_plain_append or not candidate.only_moves_row_ids


def like_with_like(group: Group, candidate: Candidate) -> bool:
    """Appends share only with appends: streaming readers skip, or fail on, a version that removes.

    Rearrangements share only with their like, or they lose the weaker isolation that Delta allows
    a commit which changes no data.
    """
    own = candidate.change_kind
    if "mixed" in (own, group.change_kind):
        return False
    return own == group.change_kind or "bare" in (own, group.change_kind)


def change_files_for_all_or_none(group: Group, candidate: Candidate) -> bool:
    """One change file hides all adds and removes of a version from readers of the change feed."""
    if candidate.change_kind == "bare" or group.change_kind == "bare":
        return True
    return bool(candidate.content.changes) == group.has_changes


def no_path_twice(group: Group, candidate: Candidate) -> bool:
    """No two members name the same path as add, remove or change file.

    Row deletes on one file are the exception: they are merged into one deletion vector.
    """
    content, touched, merged = candidate.content, group.touched, group.merges.tallies.keys()
    added = [path for path, _ in content.added]
    if merged and not (merged.isdisjoint(added) and merged.isdisjoint(content.removed)):
        return False
    if not (touched.isdisjoint(added) and touched.isdisjoint(content.removed)):
        return False
    if not (candidate.intents or content.changes):
        return True
    return touched.isdisjoint(candidate.intended) and touched.isdisjoint(
        [file.path for file in content.changes]
    )


def one_of_each_domain(group: Group, candidate: Candidate) -> bool:
    """An entry writes each metadata domain at most once."""
    domains = candidate.content.domains
    return not domains or group.domains.isdisjoint([domain.domain for domain in domains])


SHARING: Final[tuple[Sharing, ...]] = (
    the_table_changes_alone,
    row_ids_move_alone,
    like_with_like,
    change_files_for_all_or_none,
    no_path_twice,
    one_of_each_domain,
)
"""All must hold between a proposal and the members before it."""


def fits(group: Group, candidate: Candidate, policy: Policy) -> bool:
    """Return whether a proposal may join a group; an empty group takes any."""
    if not group.members:
        return True
    if not _has_room(group, candidate, policy):
        return False
    # A list costs less than a generator: nearly always all are asked.
    return all([may_share(group, candidate) for may_share in SHARING])


def _has_room(group: Group, candidate: Candidate, policy: Policy) -> bool:
    """Return whether an entry with one more proposal is no larger than allowed."""
    actions = len(candidate.content.lines) + len(candidate.txns)
    if candidate.intents:
        # A file that loses rows costs one remove and one add, however many members delete rows.
        actions += 2 * len(candidate.intended - group.merges.tallies.keys())
    return (
        len(group.members) < policy.group_members_max
        and group.actions + actions <= policy.group_actions_max
        and group.size + candidate.size <= policy.group_bytes_max
    )
