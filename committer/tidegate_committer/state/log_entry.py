"""An entry: what the state keeps of a version, for conflict rules and for publishing.

It is made from the commit file alone, so that every committer has the same.

A write summary has the effects of one or more winners with which proposals can conflict.
"""

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from itertools import accumulate, chain, repeat
from typing import Final, Literal, NamedTuple
from uuid import UUID

from tidegate_committer.cached_property import CachedProperty
from tidegate_committer.intake.candidate import (
    BACKFILL,
    COMPUTE_STATS,
    ROW_ID_OPERATIONS,
    Candidate,
)
from tidegate_committer.intake.proposal_actions import (
    PartitionKey,
    PartitionValues,
    canonical,
    vectors_of,
)
from tidegate_committer.intake.row_intents import Relocations, moves_of
from tidegate_committer.state.path_normal_form import NormalForms, unusual
from tidegate_delta.deletion_vectors.roaring_bitmap import Bitmap
from tidegate_delta.features.row_tracking import DOMAIN as ROW_TRACKING
from tidegate_delta.features.row_tracking import mark_in
from tidegate_delta.log.actions import (
    Add,
    DeletionVector,
    DomainMetadata,
    Metadata,
    Protocol,
    Remove,
    Txn,
)
from tidegate_delta.log.commit import Commit
from tidegate_messages.commit_provenance import Provenance, deleting_proposals, of


@dataclass
class WriteSummary:
    """The joint effects of winners; `version` is that of the last one.

    `is_blind_append` says that all of them are blind appends; `is_plain` that they only add and
    remove files (compactions included), write txn actions and set domains; `moves_rows` that one of
    them is a compaction that says where rows went.
    """

    version: int
    removed: Set[str] = frozenset()
    app_ids: Set[str] = frozenset()
    domains: Set[str] = frozenset()
    is_blind_append: bool = True
    is_plain: bool = True
    moves_rows: bool = False
    _values: list[PartitionValues] = field(default_factory=list)
    _places: dict[PartitionKey, list[int]] = field(default_factory=dict)
    _placed: int = 0

    def add(self, files: Iterable[tuple[str, PartitionValues]]) -> None:
        """Add new files."""
        self._values += [values for _, values in files]

    @property
    def count(self) -> int:
        """The number of new files."""
        return len(self._values)

    @property
    def added(self) -> Mapping[PartitionKey, Sequence[int]]:
        """The indexes of the new files, by partition values; computed on first use."""
        for index in range(self._placed, len(self._values)):
            key = frozenset(self._values[index].items())
            self._places.setdefault(key, []).append(index)
        self._placed = len(self._values)
        return self._places


class Revision(NamedTuple):
    """A file that stays in the table with another deletion vector: before and after a version."""

    before: DeletionVector | None
    after: DeletionVector | None


DELTA_SPARK: Final = "Delta-Lake/"
"""The start of delta-spark's engineInfo; its release follows."""

IDENTITY_ONLY: Final = "delta.identity.schemaUpdate"


@dataclass(frozen=True)
class Entry:
    """A version of a table.

    Files: `added` holds canonical paths with partition values, `vectors` the deletion vectors of
    those that have one, `spelt` the log's form of unusual paths. `removed` holds canonical paths,
    and `removed_in_order` the same in the order of the commit, if several proposals share the
    entry. `revised` are the files that were removed and added again with another vector, `moved`
    the relocations of the rows of removed files by a compaction, `returned` the files added again
    that a compaction had replaced. `adds` are the full add actions,
    kept for a member of a group and for versions that were read again.

    Of the commit: `is_timed` says that it has an in-commit timestamp, `is_identity_only` that its
    metadata only moves identity high-water marks, `only_moves_row_ids` that it is a row tracking
    backfill or unbackfill, `by_delta_spark` that its engineInfo names delta-spark; `txn_id` is
    `commitInfo.txnId`, `provenance` our own record of its proposals.

    `proposal_id` is set on a verbatim entry that is to be published and, like `deletes` (rows
    deleted by intents), on a member of a group that is not committed yet.
    Units: `size` in bytes; `timestamp` in ms since the Unix epoch.
    """

    version: int
    added: tuple[tuple[str, PartitionValues], ...] = ()
    vectors: Mapping[str, str] = field(default_factory=dict)
    spelt: NormalForms = field(default_factory=dict)
    removed: frozenset[str] = frozenset()
    removed_in_order: tuple[str, ...] = ()
    revised: Mapping[str, Revision] = field(default_factory=dict)
    is_blind_append: bool = False
    is_identity_only: bool = False
    metadata: Metadata | None = None
    protocol: Protocol | None = None
    txns: tuple[Txn, ...] = ()
    domains: tuple[DomainMetadata, ...] = ()
    provenance: Provenance | None = None
    operation: str | None = None
    timestamp: int | None = None
    sha256: str = ""
    size: int = 0
    proposal_id: UUID | None = None
    only_moves_row_ids: bool = False
    is_timed: bool = False
    by_delta_spark: bool = False
    txn_id: str | None = None
    adds: tuple[Add, ...] | None = None
    deletes: Mapping[str, Bitmap] = field(default_factory=dict)
    moved: Relocations = field(default_factory=dict)
    returned: frozenset[str] = frozenset()

    @CachedProperty
    def moved_to(self) -> frozenset[str]:
        """The new files into which a compaction moved rows."""
        return frozenset(move.target for move in self.moved.values())

    @CachedProperty
    def counted(self) -> frozenset[str]:
        """Its files that were in the table before, and only got statistics.

        The committer took them from a proposal by that operation: each is the file that it was,
        with the same deletion vector.
        """
        origin = self.provenance
        by = [one.operation for one in origin.accepted] if origin else []
        by = by or [self.operation if self.proposal_id is not None else None]
        if COMPUTE_STATS not in by:
            return frozenset()
        counts = origin.files_added if origin and len(by) > 1 else (len(self.added),)
        members = chain.from_iterable(map(repeat, by, counts))
        files = zip(self.added, members, strict=False)
        counted = frozenset(path for (path, _), operation in files if operation == COMPUTE_STATS)
        return counted - self.removed

    @CachedProperty
    def write_summary(self) -> WriteSummary:
        """Its write summary, for `conflicts.conflict_prefilter`."""
        summary = WriteSummary(
            self.version,
            removed=self.removed,
            app_ids=self.app_ids,
            domains=frozenset([domain.domain for domain in self.domains]),
            is_blind_append=self.is_blind_append,
            is_plain=not (self.concerns_all or self.only_moves_row_ids),
            moves_rows=bool(self.moved),
        )
        summary.add(self.added)
        return summary

    @property
    def author(self) -> Literal["tidegate", "external"]:
        """Whether our committer or an external writer made the bytes of the version."""
        return "tidegate" if self.provenance else "external"

    @property
    def is_past_the_gate(self) -> bool:
        """Whether nobody proposed the version, of one that is to be published."""
        return self.provenance is None and self.proposal_id is None

    @property
    def sole_proposal(self) -> UUID | None:
        """Its only proposal; None if it holds several or is by an external writer."""
        if self.proposal_id is not None or self.provenance is None:
            return self.proposal_id
        accepted = self.provenance.accepted
        return accepted[0].id if len(accepted) == 1 else None

    def proposal_with(
        self, path: str | None, app_id: str | None = None, domain: str | None = None
    ) -> UUID | None:
        """Return the proposal that touched a file, application or domain, or None if unknown.

        It is unknown if several proposals deleted rows of the file, and in entries of older
        releases.
        """
        origin = self.provenance
        if self.sole_proposal is not None or origin is None:
            return self.sole_proposal
        index = None
        if path is not None:
            index = self._member_with(path, origin)
        elif app_id is not None:
            index = _proposal_of(app_id, [txn.app_id for txn in self.txns], origin.applications)
        elif domain is not None:
            index = _proposal_of(domain, [domain.domain for domain in self.domains], origin.domains)
        if index is None or index >= len(origin.accepted):
            return None
        return origin.accepted[index].id

    def _member_with(self, path: str, origin: Provenance) -> int | None:
        """Return the index of the member that added a file, removed it or deleted rows of it."""
        adding = _proposal_of(
            path, [added_path for added_path, _ in self.added], origin.files_added
        )
        member = (
            _proposal_of(path, self.removed_in_order, origin.files_removed)
            if adding is None
            else adding
        )
        deleting = deleting_proposals(origin, self.removed_in_order, path) if member is None else ()
        return deleting[0] if len(deleting) == 1 else member

    @property
    def is_patch(self) -> bool:
        """Whether its metadata comes from a metadata patch."""
        origin = self.provenance
        return origin is not None and any(accepted.patched for accepted in origin.accepted)

    @property
    def changes_table(self) -> bool:
        """Whether the schema, the properties or the protocol were written."""
        return self.metadata is not None or self.protocol is not None

    @property
    def repeats_a_domain(self) -> bool:
        """Whether it holds one metadata domain twice."""
        return bool(self.domains) and len({domain.domain for domain in self.domains}) < len(
            self.domains
        )

    @property
    def concerns_all(self) -> bool:
        """Whether it may conflict with every proposal, including blind appends."""
        return self.changes_table or self.repeats_a_domain

    @property
    def is_backfill(self) -> bool:
        """Whether it gave row ids to files that had none, and nothing else."""
        return self.only_moves_row_ids and self.operation == BACKFILL

    @property
    def row_mark(self) -> int | None:
        """The high-water mark of row ids that it set, or None."""
        if not self.domains:
            return None
        marks = [mark_in(domain) for domain in self.domains if domain.domain == ROW_TRACKING]
        return marks[0] if marks else None

    @property
    def app_ids(self) -> frozenset[str]:
        """The applications whose transaction version it set."""
        return frozenset(txn.app_id for txn in self.txns)


def as_proposed(entry: Entry, proposal_id: UUID | None) -> Entry:
    """Return a version for publishing, with the verbatim proposal that brought it, if one did."""
    return entry if proposal_id is None else replace(entry, proposal_id=proposal_id)


def names_what_left(origin: Provenance) -> bool:
    """Return whether the provenance says which proposals removed files, by their order."""
    return bool(origin.files_removed or origin.rows_by)


def _proposal_of(name: str, names: Sequence[str], counts: Sequence[int]) -> int | None:
    """Return the index of the proposal that brought a name, given the number of names of each."""
    ends = [*accumulate(counts)]
    if name not in names or not ends or ends[-1] > len(names):
        return None
    index = bisect_right(ends, names.index(name))
    return index if index < len(ends) else None


def moves_row_ids(operation: str | None, adds: Iterable[Add], removes: Iterable[Remove]) -> bool:
    """Return whether a commit with this operation adds files again only for their row ids."""
    if operation not in ROW_ID_OPERATIONS:
        return False
    return not any(file.data_change for file in (*adds, *removes))


def entry_of(commit: Commit, digest: str, size: int) -> Entry:
    """Return the entry of a commit whose file has this SHA-256 and size."""
    info, origin = commit.info, of(commit)
    tags: Mapping[str, object] = (info and info.tags) or {}
    removed = [canonical(remove.path) for remove in commit.removes]
    return Entry(
        version=commit.version,
        added=tuple((canonical(add.path), add.partition_values) for add in commit.adds),
        vectors=vectors_of(commit.adds),
        spelt=unusual(commit.adds),
        removed=frozenset(removed),
        removed_in_order=tuple(removed) if origin and names_what_left(origin) else (),
        revised=revisions(commit.removes, commit.adds),
        is_blind_append=commit.is_blind_append,
        is_identity_only=str(tags.get(IDENTITY_ONLY)).lower() == "true",
        metadata=commit.metadata,
        protocol=commit.protocol,
        txns=tuple(commit.txns),
        domains=tuple(commit.domains),
        only_moves_row_ids=moves_row_ids(
            info.operation if info else None, commit.adds, commit.removes
        ),
        is_timed=info is not None and info.in_commit_timestamp is not None,
        by_delta_spark=info is not None and DELTA_SPARK in (info.engine_info or ""),
        txn_id=info.txn_id if info else None,
        provenance=origin,
        operation=info.operation if info else None,
        timestamp=_timestamp(commit),
        sha256=digest,
        size=size,
        moved=moves_of(origin, commit.removes, commit.adds),
        returned=returned_by(origin),
    )


def returned_by(origin: Provenance | None) -> frozenset[str]:
    """Return the files of compactions that an entry adds again, by canonical path."""
    if origin is None:
        return frozenset()
    return frozenset(canonical(path) for accepted in origin.accepted for path in accepted.returned)


def member_entry(candidate: Candidate, version: int, deletes: Mapping[str, Bitmap]) -> Entry:
    """Return a member of a group as an entry of its own: a winner for the later members.

    `deletes` are the rows that it deletes from files that stay.
    """
    content = candidate.content
    return Entry(
        version=version,
        added=content.added,
        removed=content.removed.union(deletes),
        vectors=content.vectors,
        revised=revisions(content.removes, content.adds),
        is_blind_append=candidate.is_blind_append,
        only_moves_row_ids=not (candidate.is_plain_append or candidate.intents)
        and moves_row_ids(candidate.operation, content.adds, content.removes),
        metadata=content.metadata,
        protocol=content.protocol,
        txns=candidate.txns,
        domains=content.domains,
        operation=candidate.operation,
        proposal_id=candidate.id,
        adds=content.adds,
        deletes=deletes,
        moved=candidate.moves,
        returned=candidate.returned,
    )


def revisions(removes: Sequence[Remove], adds: Sequence[Add]) -> dict[str, Revision]:
    """Return the files that are removed and added again with another vector."""
    if not removes or not adds:
        return {}
    if not any([file.deletion_vector for file in (*removes, *adds)]):
        return {}
    before = {canonical(remove.path): remove.deletion_vector for remove in removes}
    after = {canonical(add.path): add.deletion_vector for add in adds}
    return {
        path: Revision(before[path], after[path])
        for path in before.keys() & after.keys()
        if before[path] != after[path]
    }


def _timestamp(commit: Commit) -> int | None:
    if commit.info is None:
        return None
    in_commit_timestamp = commit.info.in_commit_timestamp
    return commit.info.timestamp if in_commit_timestamp is None else in_commit_timestamp
