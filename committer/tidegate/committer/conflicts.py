"""The conflict rules: why a proposal cannot follow a winner.

A rule is a function with a docstring, the tuple is the specification: in its order, for each winner
in the order of versions, the first rule that fires names the conflict. A winner that rules nothing
out is *adopted*: the proposal goes on as if it had read the table after it.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Final
from uuid import UUID

from tidegate.committer.appended import may_have_been_read
from tidegate.committer.candidate import Candidate
from tidegate.committer.entries import Entry
from tidegate.committer.known import NOTHING, Known
from tidegate.committer.metadata_changes import conflict_free
from tidegate.committer.policy import Level
from tidegate.committer.row_conflicts import gone_for, rows_in_the_way
from tidegate.delta.actions import Metadata, Protocol
from tidegate.delta.errors import UnsupportedFeature
from tidegate.delta.features.arithmetic import check_shape, reader_features, writer_features
from tidegate.delta.features.table import FEATURES
from tidegate.delta.files.predicate import may_match_partition
from tidegate.delta.schema.types import StructType, parse_schema
from tidegate.pipeline.outcome import Rejection

RULES_VERSION: Final = 3
"""Raised with every change that can change a verdict; it stands in every entry."""


@dataclass(frozen=True)
class Basis:
    """The table as a writer saw it, as far as the rules look at it."""

    metadata: Metadata
    protocol: Protocol

    @property
    def schema(self) -> StructType:
        """The parsed schema."""
        return parse_schema(self.metadata.schema_string)


@dataclass(frozen=True)
class Standing:
    """A proposal on its way past the winners: what it read, and the table as adopted so far."""

    candidate: Candidate
    read: Basis
    now: Basis
    level: Level
    known: Known = NOTHING

    def adopt(self, winner: Entry) -> "Standing":
        """Return the standing after a winner that rules nothing out."""
        metadata = None if winner.is_identity_only else winner.metadata
        if metadata is None and winner.protocol is None:
            return self
        now = Basis(metadata or self.now.metadata, winner.protocol or self.now.protocol)
        return replace(self, now=now)


@dataclass(frozen=True)
class Found:
    """What a rule found: in words, and the file where it is about one."""

    detail: str
    path: str | None = None
    error_class: str | None = None


@dataclass(frozen=True)
class Conflict:
    """A rule that fired, and the winner it fired against."""

    rule: str
    winner_version: int
    found: Found = field(default_factory=lambda: Found(""))
    winner_proposal_id: UUID | None = None

    @property
    def rejection(self) -> Rejection:
        """The conflict as a writer is told it."""
        error_class, exception = DELTA_NAMES[self.rule]
        winner = f"proposal {self.winner_proposal_id} in " if self.winner_proposal_id else ""
        return Rejection(
            rule=self.rule,
            reason=f"{winner}version {self.winner_version} {self.found.detail}",
            advice="rerun",
            error_class=self.found.error_class or error_class,
            exception=exception,
            winner_version=self.winner_version,
            winner_proposal_id=str(self.winner_proposal_id) if self.winner_proposal_id else None,
            path=self.found.path,
        )


Rule = Callable[[Standing, Entry], Found | None]
"""Says why the winner rules the proposal out, or None. A rule's name is the conflict's name."""


def protocol_unsupported(standing: Standing, winner: Entry) -> Found | None:
    """The winner asks for versions or features that this release has never heard of.

    Raises: UnsupportedFeature, for a feature that it has heard of and does not support.
    """
    if winner.protocol is None:
        return None
    try:
        check_shape(winner.protocol, "")
    except UnsupportedFeature as error:
        return Found(f"wrote a protocol: {error}", error_class="DELTA_INVALID_PROTOCOL_VERSION")
    if winner.protocol.min_writer_version > 7:
        return Found(
            f"asks for writer version {winner.protocol.min_writer_version}",
            error_class="DELTA_INVALID_PROTOCOL_VERSION",
        )
    for features, verb in ((reader_features, "READ"), (writer_features, "WRITE")):
        for name in sorted(features(winner.protocol) - FEATURES.keys()):
            error_class = f"DELTA_UNSUPPORTED_FEATURES_FOR_{verb}"
            return Found(f"asks for the unknown feature {name!r}", error_class=error_class)
    return None


def protocol_changed(standing: Standing, winner: Entry) -> Found | None:
    """Both wrote a protocol, or the winner dropped a feature that the writer counted on."""
    if winner.protocol is None:
        return None
    if standing.candidate.content.protocol is not None:
        return Found("changed the protocol, as does the proposal")
    dropped = writer_features(standing.read.protocol) - writer_features(winner.protocol)
    return Found(f"dropped the feature {min(dropped)!r}") if dropped else None


def metadata_changed(standing: Standing, winner: Entry) -> Found | None:
    """The winner changed schema, partitioning or properties in a way that the writer must see."""
    if winner.metadata is None:
        return None
    if standing.candidate.content.metadata is not None:
        return Found("changed the metadata, as does the proposal")
    if winner.is_identity_only:
        return None
    features = writer_features(winner.protocol or standing.now.protocol)
    what = conflict_free(standing.now.metadata, winner.metadata, features)
    return Found(f"changed {what}") if what else None


def domain_metadata_changed(standing: Standing, winner: Entry) -> Found | None:
    """Both wrote one domain, or the winner wrote one that was read."""
    if not winner.domains:
        return None
    own = {domain.domain for domain in standing.candidate.content.domains}
    own.update(standing.candidate.reads.domains)
    both = own & {domain.domain for domain in winner.domains}
    return Found(f"wrote the metadata domain {min(both)!r}") if both else None


def concurrent_transaction(standing: Standing, winner: Entry) -> Found | None:
    """The winner moved an application whose version was asked for."""
    if not winner.txns or not standing.candidate.reads.app_ids:
        return None
    both = winner.app_ids.intersection(standing.candidate.reads.app_ids)
    return Found(f"moved the application {min(both)!r}") if both else None


def concurrent_append(standing: Standing, winner: Entry) -> Found | None:
    """The winner added a file that the writer should have read."""
    candidate = standing.candidate
    if not winner.added or candidate.is_blind_append or standing.level == "SnapshotIsolation":
        return None
    may_come_later = winner.is_blind_append and candidate.content.metadata is None
    if standing.level == "WriteSerializable" and may_come_later:
        return None
    columns = standing.read.metadata.partition_columns
    read, now = standing.read.metadata, standing.now.metadata
    bases = [read] if read is now else [read, now]
    added = may_have_been_read(candidate, winner, bases, standing.known)
    if added and (candidate.reads.whole_table or not columns):
        path = added[0][0]
        return Found(f"added {path!r}, and the whole table was read", path)
    asked: set[frozenset[tuple[str, str | None]]] = set()
    for path, values in added:
        alike = frozenset(values.items())
        if alike in asked:
            continue
        asked.add(alike)
        for predicate in candidate.reads.predicates:
            try:
                if may_match_partition(predicate, values, standing.read.schema, columns):
                    return Found(f"added {path!r}, which may match what was read", path)
            except ValueError as error:
                return Found(f"added {path!r}: {error}", path, "CAST_INVALID_INPUT")
    return None


def concurrent_delete_read(standing: Standing, winner: Entry) -> Found | None:
    """The winner removed a file that was read."""
    if not winner.removed:
        return None
    candidate = standing.candidate
    removed = gone_for(candidate, winner, standing.known)
    if not candidate.files_read.isdisjoint(removed):
        path = min(candidate.files_read & removed)
        return Found(f"removed {path!r}, which was read", path)
    if candidate.reads.whole_table and removed:
        path = min(removed)
        return Found(f"removed {path!r}, and the whole table was read", path)
    return None


def concurrent_delete_delete(standing: Standing, winner: Entry) -> Found | None:
    """The winner removed a file that the proposal removes too."""
    twice = winner.removed & standing.candidate.content.removed
    return Found(f"removed {min(twice)!r} too", min(twice)) if twice else None


def concurrent_row_delete(standing: Standing, winner: Entry) -> Found | None:
    """The winner took away a file of which the proposal deletes rows, or the same rows of it."""
    candidate, level = standing.candidate, standing.level
    found = rows_in_the_way(candidate, level, winner, standing.known)
    return Found(*found) if found else None


RULES: Final[tuple[Rule, ...]] = (
    protocol_unsupported,
    protocol_changed,
    metadata_changed,
    domain_metadata_changed,
    concurrent_transaction,
    concurrent_append,
    concurrent_delete_read,
    concurrent_delete_delete,
    concurrent_row_delete,
)
"""What touches the whole table first, then files."""

DELTA_NAMES: Final = {
    "protocol_unsupported": ("DELTA_UNSUPPORTED_FEATURES_FOR_WRITE", "DeltaTableFeatureException"),
    "protocol_changed": ("DELTA_PROTOCOL_CHANGED", "ProtocolChangedException"),
    "metadata_changed": ("DELTA_METADATA_CHANGED", "MetadataChangedException"),
    "domain_metadata_changed": ("DELTA_CONCURRENT_TRANSACTION", "ConcurrentTransactionException"),
    "concurrent_transaction": ("DELTA_CONCURRENT_TRANSACTION", "ConcurrentTransactionException"),
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
}
"""Rule -> delta-spark's error class and exception."""


def check(standing: Standing, winners: Iterable[Entry]) -> Conflict | None:
    """Return the first conflict with the winners, oldest first, or None: the proposal may follow.

    Law: a conflict is for ever. If check(s, ws) is a conflict, check(s, ws + more) is the same one.
    """
    indifferent = standing.candidate.is_indifferent
    for winner in winners:
        if indifferent and not winner.changes_table:
            continue
        for rule in RULES:
            found = rule(standing, winner)
            if found is not None:
                return Conflict(rule.__name__, winner.version, found, winner.proposal_id)
        standing = standing.adopt(winner)
    return None
