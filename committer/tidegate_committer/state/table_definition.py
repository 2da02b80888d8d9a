"""The table's metadata and protocol at some version, as far as the rules use them."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

import orjson

from tidegate_committer.cached_property import CachedProperty
from tidegate_committer.intake.proposal_actions import PartitionKey, PartitionValues
from tidegate_committer.policy import LEVELS
from tidegate_delta.constraints import row_constraints
from tidegate_delta.constraints.identity_columns import IdentityColumn
from tidegate_delta.constraints.row_constraints import WriteRequirements
from tidegate_delta.data_skipping.file_predicates import FileTests
from tidegate_delta.data_skipping.partition_predicates import (
    Predicate,
    about_partitions,
    partition_test,
)
from tidegate_delta.data_skipping.predicate_tree import COMPARISONS, size_of
from tidegate_delta.definitions.definition import Definition
from tidegate_delta.errors import BrokenLog
from tidegate_delta.features import row_tracking
from tidegate_delta.log.actions import Metadata, Protocol
from tidegate_delta.log.protocol_versions import supported_features
from tidegate_delta.properties.table_properties import (
    change_feed_enabled,
    variant_shredding_enabled,
)
from tidegate_delta.schema.column_mapping import mode_of, physical_partition_columns, to_physical
from tidegate_delta.schema.field_paths import FieldPath
from tidegate_delta.schema.partition_values import partition_kinds
from tidegate_delta.schema.type_widening import TYPE_CHANGES
from tidegate_delta.schema.types import (
    VARIANT,
    DataType,
    StructField,
    StructType,
    parse_schema,
)

TESTS_MAX: Final = 256
"""Most predicates whose partition test is cached for a table, and most cached results of each."""


class PartitionTest(dict[PartitionKey, bool]):
    """Partition values -> whether files with them may hold a row that a predicate matches.

    `weight` is the number of its nodes and listed values that concern partitions.
    Raises: ValueError for a value that is not of its column's type.
    """

    def __init__(self, test: Callable[[PartitionKey], bool], weight: int) -> None:
        super().__init__()
        self._test = test
        self.weight = weight

    def __missing__(self, key: PartitionKey) -> bool:
        if len(self) >= TESTS_MAX:
            self.clear()
        may_match = self[key] = self._test(key)
        return may_match


class UnclearDefinition(NamedTuple):
    """What is wrong with a table whose properties do not say how it must be written."""

    what: str
    error_class: str | None


@dataclass(frozen=True)
class TableDefinition:
    """The table's metadata and protocol at some version, as far as the rules use them."""

    metadata: Metadata
    protocol: Protocol

    @property
    def definition(self) -> Definition:
        """The same as a `Definition`, which the features use."""
        return Definition(self.metadata, self.protocol)

    @property
    def schema(self) -> StructType:
        """The parsed schema."""
        return parse_schema(self.metadata.schema_string)

    @CachedProperty
    def features(self) -> frozenset[str]:
        """The features that the protocol supports: listed, or implied by both its versions."""
        return supported_features(self.protocol)

    @CachedProperty
    def tracks_rows(self) -> bool:
        """Whether new files must be given row ids."""
        return self._numbers_rows and not row_tracking.is_suspended(self.metadata)

    @property
    def _numbers_rows(self) -> bool:
        return row_tracking.FEATURE in self.features

    @CachedProperty
    def unclear(self) -> UnclearDefinition | None:
        """Which property leaves open how the table must be written, or None."""
        level = self.metadata.configuration.get("delta.isolationLevel")
        if level is not None and level.lower() not in LEVELS:
            return UnclearDefinition(
                f"delta.isolationLevel is {level[:64]!r}, which is not an isolation level", None
            )
        suspended = row_tracking.is_suspended(self.metadata)
        if suspended and row_tracking.is_enabled(self.metadata) and self._numbers_rows:
            problem = "delta.rowTrackingSuspended is true while row tracking is enabled"
            return UnclearDefinition(problem, "DELTA_ROW_TRACKING_ILLEGAL_PROPERTY_COMBINATION")
        return None

    @CachedProperty
    def feeds_changes(self) -> bool:
        """Whether readers may ask which rows a version changed."""
        return "changeDataFeed" in self.features and change_feed_enabled.is_on(self.metadata)

    @CachedProperty
    def required(self) -> WriteRequirements:
        """The requirements on new rows; none if they can't be read.

        Such a table is halted, so only a past version can be like that.
        """
        try:
            return row_constraints.requirements(self.metadata, self.protocol)
        except BrokenLog:
            return WriteRequirements()

    @CachedProperty
    def expressions(self) -> Mapping[str, str]:
        """The hash of each expression that must be evaluated on new rows, with its description."""
        return row_constraints.hashes(row_constraints.expressions(self.required))

    @CachedProperty
    def never_null(self) -> tuple[FieldPath, ...]:
        """The physical paths of the columns and struct fields that may not be null."""
        return tuple(path for path, field in self._fields if not field.nullable)

    @CachedProperty
    def unbounded_variants(self) -> tuple[FieldPath, ...]:
        """The physical paths of variants without bounds in statistics (they are not shredded)."""
        if variant_shredding_enabled(self.metadata):
            return ()
        return tuple(path for path, field in self._fields if field.kind == VARIANT)

    @property
    def _fields(self) -> Iterator[tuple[FieldPath, StructField]]:
        return _fields_of(to_physical(self.schema, mode_of(self.metadata)))

    @CachedProperty
    def numbered(self) -> Mapping[str, IdentityColumn]:
        """The identity columns, by their physical names."""
        return {identity.physical: identity for identity in self.required.identities}

    @CachedProperty
    def partition_keys(self) -> Mapping[str, str]:
        """Partition column -> the key of its value in `partitionValues`."""
        return physical_partition_columns(self.metadata)

    @CachedProperty
    def partition_kinds(self) -> Mapping[str, DataType]:
        """Key of a partition column's value -> the column's type."""
        return partition_kinds(self.metadata)

    @CachedProperty
    def widened_partitions(self) -> frozenset[str]:
        """Keys of the partition columns whose type was widened."""
        changed = {field.name for field in self.schema if TYPE_CHANGES in field.metadata}
        return frozenset(key for name, key in self.partition_keys.items() if name in changed)

    @CachedProperty
    def right_partitions(self) -> set[PartitionKey]:
        """Partition values that were found valid for the table."""
        return set()

    @CachedProperty
    def renames_partitions(self) -> bool:
        """Whether some of these keys are not the columns' names."""
        return any(name != key for name, key in self.partition_keys.items())

    def by_column(self, values: PartitionValues) -> PartitionValues:
        """Return partition values by column name; a missing one is left out."""
        if not self.renames_partitions:
            return values
        keys = self.partition_keys
        return {name: values[key] for name, key in keys.items() if key in values}

    @CachedProperty
    def file_tests(self) -> FileTests:
        """The tests of which new files may hold a row that a predicate matches."""
        return FileTests(self.metadata)

    @CachedProperty
    def _tests(self) -> dict[object, PartitionTest]:
        return {}

    @CachedProperty
    def _partition_names(self) -> frozenset[str]:
        return frozenset(name.lower() for name in self.metadata.partition_columns)

    def partition_test(self, predicate: Predicate) -> PartitionTest:
        """Return which partitions may hold a row that a predicate matches.

        Writers ask for few partitions in many ways, so the result is cached by the predicate's part
        about partitions.
        """
        columns = self.metadata.partition_columns
        key = self._cache_key(predicate)
        if key is None:
            key = orjson.dumps(about_partitions(predicate, columns))
        partition = self._tests.get(key)
        if partition is None:
            if len(self._tests) >= TESTS_MAX:
                self._tests.clear()
            test = partition_test(predicate, self.schema, columns)
            weight = sum(map(size_of, about_partitions(predicate, columns)))
            partition = PartitionTest(lambda key: test(self.by_column(dict(key))), weight)
            self._tests[key] = partition
        return partition

    def _cache_key(self, predicate: Predicate) -> object:
        """Return a cheap cache key for the partition part of most predicates, or None.

        Law: predicates with one key are the same to `about_partitions`
        """
        parts = predicate["args"] if predicate["op"] == "and" else (predicate,)
        key: list[tuple[str, str, str, type, int | str]] = []
        for part in parts:
            column, value = part.get("column"), part.get("value")
            if type(column) is not str:
                return None
            if column.lower() not in self._partition_names:
                continue
            if part["op"] not in COMPARISONS or not (type(value) is int or type(value) is str):
                # Other fields of a node are not part of this key.
                return None
            key.append((part["op"], column, part["type"], type(value), value))
        return tuple(key)

    def after(self, metadata: Metadata | None, protocol: Protocol | None) -> "TableDefinition":
        """Return the table definition after a commit with this metadata and protocol, if any."""
        if metadata is None and protocol is None:
            return self
        return TableDefinition(metadata or self.metadata, protocol or self.protocol)


def table_definition_after(
    before: TableDefinition | None, metadata: Metadata | None, protocol: Protocol | None
) -> TableDefinition:
    """Return the definition after a commit. The first one (`before` is None) has both actions."""
    if before is not None:
        return before.after(metadata, protocol)
    assert metadata is not None, "a table begins with metaData"
    assert protocol is not None, "a table begins with a protocol"
    return TableDefinition(metadata, protocol)


def _fields_of(
    schema: StructType, above: FieldPath = ()
) -> Iterator[tuple[FieldPath, StructField]]:
    """Yield the columns and the fields of structs, as statistics have them: no arrays, no maps."""
    for field in schema:
        path = (*above, field.name)
        yield path, field
        if isinstance(field.kind, StructType):
            yield from _fields_of(field.kind, path)
