"""Where a proposal stands on its way past the winners, and what a rule may find on it."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from tidegate.committer.candidate import Candidate
from tidegate.committer.content import PartitionValues
from tidegate.committer.entries import Entry
from tidegate.committer.known import NOTHING, Known
from tidegate.committer.patches import touches
from tidegate.committer.policy import Level
from tidegate.committer.touched import Touch
from tidegate.delta.actions import Metadata, Protocol
from tidegate.delta.errors import BrokenLog
from tidegate.delta.features import constraints, row_tracking
from tidegate.delta.features.activity import change_data_feed
from tidegate.delta.features.arithmetic import writer_features
from tidegate.delta.features.constraints import WriteRequirements
from tidegate.delta.features.definition import Definition
from tidegate.delta.features.identity import IdentityColumn
from tidegate.delta.features.properties import variant_shredding_enabled
from tidegate.delta.schema.mapping import mode_of, physical_partition_columns, to_physical
from tidegate.delta.schema.types import (
    STRING,
    VARIANT,
    DataType,
    StructField,
    StructType,
    parse_schema,
)

Path = tuple[str, ...]


@dataclass(frozen=True)
class Basis:
    """The table as a writer saw it, as far as the rules look at it."""

    metadata: Metadata
    protocol: Protocol

    @property
    def schema(self) -> StructType:
        """The parsed schema."""
        return parse_schema(self.metadata.schema_string)

    @cached_property
    def features(self) -> frozenset[str]:
        """The features that a writer must know."""
        return writer_features(self.protocol)

    @cached_property
    def tracks_rows(self) -> bool:
        """Whether new files must be given row ids."""
        supported = row_tracking.FEATURE in self.features
        return supported and not row_tracking.is_suspended(self.metadata)

    @cached_property
    def feeds_changes(self) -> bool:
        """Whether readers may ask which rows a version changed."""
        return "changeDataFeed" in self.features and change_data_feed(self.metadata, self.schema)

    @cached_property
    def required(self) -> WriteRequirements:
        """What is asked of new rows; nothing where that can't be read.

        Such a table is served no more, so only a version of the past can be like that.
        """
        try:
            return constraints.requirements(self.metadata, self.protocol)
        except BrokenLog:
            return WriteRequirements()

    @cached_property
    def expressions(self) -> Mapping[str, str]:
        """The hash of each expression that has to be evaluated on new rows, with words for it."""
        return constraints.hashes(constraints.expressions(self.required))

    @cached_property
    def never_null(self) -> tuple[Path, ...]:
        """The physical paths of the columns, and fields of structs, that may not be null."""
        return tuple(path for path, one in self._fields if not one.nullable)

    @cached_property
    def unbounded_variants(self) -> tuple[Path, ...]:
        """The physical paths of variants whose statistics have no bounds: they are not shredded."""
        if variant_shredding_enabled(self.metadata):
            return ()
        return tuple(path for path, one in self._fields if one.kind == VARIANT)

    @property
    def _fields(self) -> Iterator[tuple[Path, StructField]]:
        return _fields_of(to_physical(self.schema, mode_of(self.metadata)))

    @cached_property
    def numbered(self) -> Mapping[str, IdentityColumn]:
        """The identity columns, by their physical names."""
        return {one.physical: one for one in self.required.identities}

    @cached_property
    def partition_keys(self) -> Mapping[str, str]:
        """Partition column -> the key of its value in `partitionValues`."""
        return physical_partition_columns(self.metadata)

    @cached_property
    def partition_kinds(self) -> Mapping[str, DataType]:
        """Key of a partition column's value -> the column's type."""
        keys = self.partition_keys
        kinds = {one.name: one.kind for one in self.schema} if keys else {}
        return {key: kinds.get(name, STRING) for name, key in keys.items()}

    @cached_property
    def renames_partitions(self) -> bool:
        """Whether some of these keys are not the columns' names."""
        return any(name != key for name, key in self.partition_keys.items())

    def by_column(self, values: PartitionValues) -> PartitionValues:
        """Return partition values by the names of the columns; a missing one is left out."""
        if not self.renames_partitions:
            return values
        keys = self.partition_keys
        return {name: values[key] for name, key in keys.items() if key in values}

    def after(self, metadata: Metadata | None, protocol: Protocol | None) -> "Basis":
        """Return the basis after what a commit says of the table, if it says anything."""
        if metadata is None and protocol is None:
            return self
        return Basis(metadata or self.metadata, protocol or self.protocol)


@dataclass(frozen=True)
class Standing:
    """A proposal on its way past the winners: what it read, and the table as adopted so far.

    What a proposal writes of the table itself is part of `now`: it is judged by the table that it
    leaves. `known` is what was read besides of files and vectors, `touches` what a patch is about.
    """

    candidate: Candidate
    read: Basis
    now: Basis
    level: Level
    known: Known = NOTHING
    touches: frozenset[Touch] = frozenset()

    def after(self, winner: Entry) -> Basis:
        """Return the table as it is after a winner, as far as the proposal is concerned."""
        return self.now.after(winner.metadata, winner.protocol)

    def takes_ids_off(self, winner: Entry) -> bool:
        """Whether the proposal adds the winner's files again, without the row ids they have."""
        if row_tracking.FEATURE in self.read.features - self.now.features:
            return True
        return self.candidate.is_unbackfill and row_tracking.supports(self.after(winner).protocol)


@dataclass(frozen=True)
class Found:
    """What a rule found: in words, and the file where it is about one."""

    detail: str
    path: str | None = None
    error_class: str | None = None


Rule = Callable[[Standing, Entry], Found | None]
"""Says why the winner rules the proposal out, or None. A rule's name is the conflict's name."""


def begin(candidate: Candidate, read: Basis, level: Level, known: Known = NOTHING) -> Standing:
    """Return the standing of a proposal before it meets its first winner."""
    now = read.after(candidate.content.metadata, candidate.content.protocol)
    if candidate.patch is None:
        return Standing(candidate, read, now, level, known)
    own = touches(candidate.patch, Definition(read.metadata, read.protocol))
    return Standing(candidate, read, now, level, known, own)


def _fields_of(schema: StructType, above: Path = ()) -> Iterator[tuple[Path, StructField]]:
    """Yield the columns and the fields of structs, as statistics have them: no arrays, no maps."""
    for one in schema:
        path = (*above, one.name)
        yield path, one
        if isinstance(one.kind, StructType):
            yield from _fields_of(one.kind, path)
