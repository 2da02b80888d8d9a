"""Group commit: which proposals may share an entry.

One entry has one commitInfo, and readers take it as one change. Each rule of `SHARING` names
something that one JSON file cannot say of several proposals, or that a reader would misread. What
does not fit closes the group and opens the next one.
"""

from collections.abc import Callable, Sequence
from typing import Final, Literal
from uuid import UUID

from tidegate.committer.candidate import Candidate
from tidegate.committer.entries import Entry, member_entry
from tidegate.committer.known import NOTHING, Known
from tidegate.committer.leases import Leased
from tidegate.committer.merging import Merges
from tidegate.committer.policy import Policy
from tidegate.pipeline.outcome import Rejection

Nature = Literal["append", "change", "rearrangement", "bare", "mixed"]


def nature(candidate: Candidate) -> Nature:
    """Return what a proposal is to a streaming reader.

    An append only adds rows; a change also removes some; a rearrangement moves rows between files;
    a bare one names no files; a mixed one does several of these at once.
    """
    content = candidate.content
    if not (content.has_files or candidate.intents):
        return "bare"
    flags = {file.data_change for file in (*content.adds, *content.removes)}
    if candidate.intents:
        flags.add(True)
    if len(flags) > 1 or (content.changes and False in flags):
        return "mixed"
    if flags == {False}:
        return "rearrangement"
    return "change" if content.removes or content.changes or candidate.intents else "append"


class Group:
    """The proposals of one entry while it is being decided; local to one decision.

    `winners` are the members so far, as winners for the next, `others` those of them that do more
    than delete rows of files which stay; `settled` is what the entry will say
    of each id in it; `deleted` how many rows each member is the first to delete by vectors;
    `marks` and `leases` how far identity values are given out and used.
    """

    def __init__(self, version: int) -> None:
        self.version = version
        self.members: list[Candidate] = []
        self.winners: list[Entry] = []
        self.others: list[Entry] = []
        self.refused: list[tuple[Candidate, UUID, Rejection]] = []
        self.settled: dict[UUID, tuple[str | None, int | Rejection]] = {}
        self.touched: set[str] = set()
        self.merges = Merges()
        self.deleted: list[int | None] = []
        self.app_ids: set[str] = set()
        self.domains: set[str] = set()
        self.marks: dict[str, int] = {}
        self.leases: dict[UUID, Leased] = {}
        self.nature: Nature = "bare"
        self.has_changes = False
        self.changes_table = False
        self.moves_row_ids = False
        self.actions = 0
        self.size = 0

    def take(self, candidate: Candidate, known: Known = NOTHING) -> int:
        """Add a member, and return its place in the entry."""
        content = candidate.content
        place = len(self.members)
        before = len(self.merges.tallies)
        deletes, count = self.merges.take(candidate, known)
        self.members.append(candidate)
        self.deleted.append(count if candidate.intents else None)
        self.winners.append(member_entry(candidate, self.version, deletes))
        if not candidate.only_deletes_rows:
            self.others.append(self.winners[-1])
        self.actions += 2 * (len(self.merges.tallies) - before)
        self.settled[candidate.id] = (candidate.sha256, place)
        self.touched.update(path for path, _ in content.added)
        self.touched.update(content.removed)
        self.touched.update(file.path for file in content.changes)
        self.app_ids.update(txn.app_id for txn in candidate.txns)
        self.domains.update(domain.domain for domain in content.domains)
        if candidate.numbers is not None:
            self.marks.update(candidate.numbers.marks)
            self.leases.update(candidate.numbers.leases)
        own = nature(candidate)
        self.nature = self.nature if own == "bare" else own
        self.has_changes = self.has_changes or bool(content.changes)
        self.changes_table = self.changes_table or self.winners[-1].changes_table
        self.moves_row_ids = self.winners[-1].only_moves_row_ids
        self.actions += len(content.lines) + len(candidate.txns)
        self.size += candidate.size
        return place

    def rivals(self, candidate: Candidate, known: Known) -> Sequence[Entry]:
        """Return the members that may rule a candidate out, or change what it does.

        Who only deletes rows does neither to whom lost rows make no difference, unless some of the
        rows are the candidate's own. So a thousand deletes need not be compared in pairs.
        """
        bears = candidate.settles_for_less and not candidate.content.has_row_ids
        if bears and self.merges.are_apart_from(candidate, known):
            return self.others
        return self.winners

    def refuse(self, candidate: Candidate, target: UUID, rejection: Rejection) -> None:
        """Add a refusal: of the candidate itself, or of the proposal that it gives up."""
        self.refused.append((candidate, target, rejection))
        digest = candidate.sha256 if target == candidate.id else None
        self.settled[target] = (digest, rejection)
        self.size += len(rejection.reason) + 256

    @property
    def is_empty(self) -> bool:
        """Whether nothing has to be written."""
        return not (self.members or self.refused)


Sharing = Callable[[Group, Candidate], bool]
"""Says whether a proposal may join the members that a group has."""


def the_table_changes_alone(group: Group, candidate: Candidate) -> bool:
    """Schema, properties and protocol are written in an entry of their own."""
    alone = candidate.content.metadata or candidate.content.protocol
    return not (alone or group.changes_table)


def row_ids_move_alone(group: Group, candidate: Candidate) -> bool:
    """A backfill is known to others by the name of its entry, which then names nothing else."""
    if group.moves_row_ids:
        return False
    return candidate.is_indifferent or not candidate.only_moves_row_ids


def like_with_like(group: Group, candidate: Candidate) -> bool:
    """Appends go with appends only: one removal makes streaming readers skip the whole version.

    What rearranges rows goes with its like, or others lose their own downgrade of isolation.
    """
    own = nature(candidate)
    if "mixed" in (own, group.nature):
        return False
    return own == group.nature or "bare" in (own, group.nature)


def change_files_for_all_or_none(group: Group, candidate: Candidate) -> bool:
    """One change file hides all adds and removes of a version from readers of the change feed."""
    if nature(candidate) == "bare" or group.nature == "bare":
        return True
    return bool(candidate.content.changes) == group.has_changes


def no_path_twice(group: Group, candidate: Candidate) -> bool:
    """A path stands in an entry once: as an add, a remove, a change file, or with one vector.

    What members delete of one file goes into that vector together.
    """
    content, merged = candidate.content, group.merges.tallies.keys()
    return (
        group.touched.isdisjoint(candidate.intended)
        and merged.isdisjoint(path for path, _ in content.added)
        and merged.isdisjoint(content.removed)
        and group.touched.isdisjoint(path for path, _ in content.added)
        and group.touched.isdisjoint(content.removed)
        and group.touched.isdisjoint(file.path for file in content.changes)
    )


def one_version_per_application(group: Group, candidate: Candidate) -> bool:
    """An entry moves an application at most once."""
    return group.app_ids.isdisjoint(txn.app_id for txn in candidate.txns)


def one_of_each_domain(group: Group, candidate: Candidate) -> bool:
    """An entry writes a metadata domain at most once."""
    return group.domains.isdisjoint(domain.domain for domain in candidate.content.domains)


SHARING: Final[tuple[Sharing, ...]] = (
    the_table_changes_alone,
    row_ids_move_alone,
    like_with_like,
    change_files_for_all_or_none,
    no_path_twice,
    one_version_per_application,
    one_of_each_domain,
)
"""All must hold between a proposal and the members before it."""


def fits(group: Group, candidate: Candidate, policy: Policy) -> bool:
    """Return whether a proposal may join a group; into an empty one it always may."""
    if not group.members:
        return True
    if len(group.members) >= policy.group_members_max:
        return False
    if group.actions + len(candidate.content.lines) > policy.group_actions_max:
        return False
    if group.size + candidate.size > policy.group_bytes_max:
        return False
    return all(may_share(group, candidate) for may_share in SHARING)
