"""Metadata patches: what they touch, how they are applied, and what can follow them.

What a patch touches is determined from the table that its writer read. What a winner touched is
determined by comparing the metadata before and after it. If the two have nothing in common, the
patch means the same for the table after the winner as before it: docs/adr/0021 has the proof.

A patch is checked against the table that was read, and applied to the table at the head.

delta-spark rebases a proposal over few changes of metadata. A patch states everything that it
changes, so a proposal can be rebased over more of them: docs/adr/0021 has the list and the reasons.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final

import orjson

from tidegate_committer.admission.constraint_checks import not_validated
from tidegate_committer.admission.feature_checks import CLUSTERING
from tidegate_committer.admission.table_change_checks import table_change_problem
from tidegate_committer.conflicts.metadata_compatibility import (
    TOLERATED,
    MetadataChange,
    changed_field,
)
from tidegate_committer.intake.candidate import Candidate
from tidegate_committer.intake.refusals import BAD_METADATA, fault_in, flaw
from tidegate_committer.policy import Policy
from tidegate_committer.state.metadata_diff import MetadataTouch, SchemaColumn, columns_by_physical
from tidegate_committer.state.table_definition import TableDefinition
from tidegate_committer.state.table_state import TableState
from tidegate_delta.constraints import (
    column_defaults,
    generated_columns,
    identity_columns,
    row_constraints,
)
from tidegate_delta.data_skipping.predicate_tree import holds_opaque, paths_of
from tidegate_delta.definitions.definition import Definition, refuse
from tidegate_delta.definitions.definition_changes import check_change
from tidegate_delta.errors import InvalidRequest, TidegateError
from tidegate_delta.features.clustering import physical_clustering_columns
from tidegate_delta.log.actions import Metadata
from tidegate_delta.properties import table_properties
from tidegate_delta.schema.column_mapping import mode_of, physical_name, physical_partition_columns
from tidegate_delta.schema.column_mapping_assignment import MAPPING_KEYS
from tidegate_delta.schema.field_paths import FieldPath, dotted, resolve, steps_inside
from tidegate_delta.schema.sql_column_references import columns_in
from tidegate_delta.schema.type_widening import TYPE_CHANGES, TypeChange, changes, widens
from tidegate_delta.schema.types import (
    ArrayType,
    DataType,
    MapType,
    StructField,
    StructType,
    parse_schema,
)
from tidegate_delta.schema_evolution import alter_columns
from tidegate_delta.schema_evolution.alter_columns import COMMENT
from tidegate_delta.schema_evolution.type_changes import changed
from tidegate_messages.metadata_patch import (
    AddColumn,
    DropColumn,
    MetadataPatch,
    PatchChange,
    PatchedTable,
    RenameColumn,
    SetDefault,
    SetProperty,
    UnsetProperty,
    applied_patch,
    canonical_property,
    metadata_hash,
)
from tidegate_messages.outcome import Rejection


def touches(patch: MetadataPatch, read: Definition) -> frozenset[MetadataTouch]:
    """Return what a patch touches of the table that its writer read.

    A property that names columns touches them, because it depends on them.
    Raises: InvalidRequest for a change that the table does not allow.
    """
    touched = set[MetadataTouch]()
    patched = PatchedTable(read, read.metadata)
    for change in patch.changes:
        touched.update(_touches(change, patched.metadata))
        patched = patched.after(change)
    return frozenset(touched)


def _touches(change: PatchChange, metadata: Metadata) -> Iterator[MetadataTouch]:
    physical = partial(_physical, metadata)
    match change:
        case AddColumn():
            name = str(change.column.get("name", "")).lower()
            yield MetadataTouch("name", (*physical(change.parent), name))
            if change.after is not None:
                yield MetadataTouch("column", physical((*change.parent, change.after)))
        case RenameColumn():
            yield MetadataTouch("column", physical(change.path))
            yield MetadataTouch("name", (*physical(change.path[:-1]), change.name.lower()))
            yield from _followed(metadata)
        case DropColumn():
            yield MetadataTouch("column", physical(change.path))
            yield from _followed(metadata)
        case SetDefault():
            yield MetadataTouch("column", physical((change.column,)))
        case SetProperty() | UnsetProperty():
            key = canonical_property(change.key)
            yield MetadataTouch("property", (key,))
            if isinstance(change, SetProperty):
                yield from (
                    MetadataTouch("column", physical(path))
                    for path in _named(metadata, key, change)
                )
        case _:
            yield MetadataTouch("column", physical(change.path))


def _followed(metadata: Metadata) -> Iterator[MetadataTouch]:
    """Yield the property of statistics columns, if set: it follows dropped and renamed columns."""
    if alter_columns.STATISTICS_COLUMNS in metadata.configuration:
        yield MetadataTouch("property", (alter_columns.STATISTICS_COLUMNS,))


def _named(metadata: Metadata, key: str, change: SetProperty) -> Iterable[FieldPath]:
    """Return the columns that a property names, or all columns if it can't be parsed."""
    schema = parse_schema(metadata.schema_string)
    all_columns = [(name,) for name in schema.names]
    if key == alter_columns.STATISTICS_COLUMNS:
        try:
            return table_properties.stats_columns.of({key: change.value}) or ()
        except InvalidRequest:
            return all_columns
    if not key.startswith(table_properties.CONSTRAINT_PREFIX):
        return ()
    named = columns_in(change.value, schema)
    return all_columns if named is None else named


def _physical(metadata: Metadata, path: FieldPath) -> FieldPath:
    """Return the physical path of a path, or the path itself if it does not exist."""
    mode = mode_of(metadata)
    kind: DataType = parse_schema(metadata.schema_string)
    try:
        resolved = resolve(kind, path) if isinstance(kind, StructType) else path
    except InvalidRequest:
        return tuple(path)
    physical: list[str] = []
    for step in resolved:
        if isinstance(kind, StructType):
            column = kind.get(step)
            assert column is not None, "a path that was resolved leads somewhere"
            physical.append(physical_name(column, mode))
            kind = column.kind
        else:
            physical.append(step)
            kind = dict(steps_inside(kind))[step]
    return tuple(physical)


_FIELD = "metadata_patch"


def patch_problem(candidate: Candidate, state: TableState, policy: Policy) -> Rejection | None:
    """Return why a patch does not fit the table that its writer read, or None."""
    patch = candidate.patch
    assert patch is not None, "the proposal has a patch"
    read = state.table_definition_at(candidate.read_version)
    if patch.base is not None and patch.base != metadata_hash(read.metadata):
        problem = f"is not the hash of the metadata at version {candidate.read_version}"
        return flaw("other_metadata", f"{_FIELD}.base", problem, "read the table and propose again")
    patched = with_patch(candidate, read, state, policy)
    if isinstance(patched, Rejection):
        return patched
    after = read.after(patched.content.metadata, patched.content.protocol)
    return not_validated(candidate, read, after)


def with_patch(
    candidate: Candidate, table_definition: TableDefinition, state: TableState, policy: Policy
) -> Candidate | Rejection:
    """Return the proposal with its patch applied to a table, or a refusal.

    Metadata and protocol are checked together, as a change of that table.
    """
    patch = candidate.patch
    assert patch is not None, "the proposal has a patch"
    try:
        before = table_definition.definition
        after = applied_patch(
            patch, before, candidate.id, physical_clustering_columns(state.domains)
        )
        refuse(check_change(before, after), state.root)
    except (TidegateError, ValueError, RecursionError) as error:
        return _refusal(error)
    listed = None if after.protocol == table_definition.protocol else after.protocol
    patched = candidate.with_table(after.metadata, listed)
    return table_change_problem(patched.content, table_definition, state.root, policy) or patched


def _refusal(error: Exception) -> Rejection:
    rejection = flaw(BAD_METADATA, _FIELD, fault_in(error), "correct what it names")
    error_class = error.error_class if isinstance(error, TidegateError) else None
    return rejection.model_copy(update={"error_class": error_class})


HARMLESS: Final = frozenset(
    {
        *(
            prop.key
            for prop in (
                table_properties.checkpoint_interval,
                table_properties.checkpoint_retention_ms,
                table_properties.checkpoint_stats_as_json,
                table_properties.checkpoint_stats_as_struct,
                table_properties.log_cleanup_enabled,
                table_properties.log_retention_ms,
                table_properties.tombstone_retention_ms,
                table_properties.txn_retention_ms,
                table_properties.compression_codec,
            )
        ),
        *table_properties.PROPERTIES_OF_OTHER_ENGINES,
        "delta.autoOptimize",
        "delta.autoOptimize.autoCompact",
        "delta.autoOptimize.optimizeWrite",
    }
)
"""Properties about how the log is kept and how large files are. They have no requirement on rows or
on files that are written. Properties without the prefix `delta.` mean nothing to Delta.
"""

_ASKING: Final = (
    column_defaults.CURRENT,
    column_defaults.EXISTS,
    row_constraints.INVARIANT,
    generated_columns.EXPRESSION,
)
_LOOSE: Final = frozenset({COMMENT, TYPE_CHANGES, *MAPPING_KEYS})


@dataclass(frozen=True)
class PatchEffect:
    """A table before and after a patch, and the features that it supports after."""

    before: Metadata
    after: Metadata
    features: frozenset[str]

    @property
    def fields(self) -> Iterator[tuple[FieldPath, SchemaColumn | None, SchemaColumn | None]]:
        """Each field by its physical path, before and after; None where it does not exist."""
        old, new = columns_by_physical(self.before), columns_by_physical(self.after)
        for path in sorted(old.keys() | new.keys()):
            yield path, old.get(path), new.get(path)


def unrebasable_change(candidate: Candidate, effect: PatchEffect) -> str | None:
    """Return a change of a patch over which a proposal can't be rebased, or None."""
    return next((change for rule in LIMITS if (change := rule(candidate, effect))), None)


def other_fields(candidate: Candidate, effect: PatchEffect) -> str | None:
    """The table has another name or description, or is another table."""
    # Partition columns are compared in `other_partitions`, by name and by physical name.
    before = effect.before.with_(partition_columns=effect.after.partition_columns)
    return changed_field(MetadataChange(before, effect.after, effect.features))


def other_partitions(candidate: Candidate, effect: PatchEffect) -> str | None:
    """The partition columns are others, or the type of one changed."""
    before, after = effect.before, effect.after
    keys = physical_partition_columns(before)
    if before.partition_columns != after.partition_columns:
        return "the table's partition columns"
    if keys != physical_partition_columns(after):
        return "the table's partition columns"
    for path, old, new in effect.fields:
        if path[0] in keys.values() and old and new and old.field.kind != new.field.kind:
            return f"the partition column {dotted(new.path)!r}"
    return None


def other_properties(candidate: Candidate, effect: PatchEffect) -> str | None:
    """A property was changed that has requirements on rows or files."""
    before, after = effect.before.configuration, effect.after.configuration
    change = MetadataChange(effect.before, effect.after, effect.features)
    for key in sorted(before.keys() | after.keys()):
        if before.get(key) == after.get(key) or key in HARMLESS:
            continue
        if not key.lower().startswith("delta.") and key not in TOLERATED:
            continue
        if key not in after or key not in TOLERATED or not TOLERATED[key](change):
            return f"the property {key!r}"
    return None


def column_with_requirements(candidate: Candidate, effect: PatchEffect) -> str | None:
    """A new column has requirements that rows without it can't meet."""
    for _, old, new in effect.fields:
        if old is None and new is not None and _has_requirements(new.field):
            return f"the new column {dotted(new.path)!r}, which asks something of rows"
    return None


def column_that_was_read(candidate: Candidate, effect: PatchEffect) -> str | None:
    """A column was dropped that the proposal read, or may have read."""
    for path, old, new in effect.fields:
        if old is not None and new is None and _may_use(candidate, path, old.path):
            return f"the column {dotted(old.path)!r}, which is gone"
    return None


def column_to_cluster_by(candidate: Candidate, effect: PatchEffect) -> str | None:
    """A column was dropped by which the proposal clusters the table."""
    clustering = {
        tuple(path)
        for domain in candidate.content.domains
        if domain.domain == CLUSTERING and not domain.removed
        for path in orjson.loads(domain.configuration)["clusteringColumns"]
    }
    for path, old, new in effect.fields if clustering else ():
        if old is not None and new is None and path in clustering:
            return f"the column {dotted(old.path)!r}, which is gone"
    return None


def column_of_other_values(candidate: Candidate, effect: PatchEffect) -> str | None:
    """A column holds other values than before, or is filled in another way."""
    for _, old, new in effect.fields:
        if old is None or new is None or old == new:
            continue
        if old.field.nullable and not new.field.nullable:
            return f"the column {dotted(new.path)!r}, which may not be null any more"
        if _relevant_metadata(old.field) != _relevant_metadata(new.field):
            return f"the column {dotted(new.path)!r}, which is filled in another way"
        if not _takes(old, new):
            return f"the type of the column {dotted(new.path)!r}"
    return None


PatchRule = Callable[[Candidate, PatchEffect], str | None]
LIMITS: Final[tuple[PatchRule, ...]] = (
    other_fields,
    other_partitions,
    other_properties,
    column_with_requirements,
    column_that_was_read,
    column_to_cluster_by,
    column_of_other_values,
)
"""Changes over which no proposal is rebased. It is rebased over all others."""


def _has_requirements(field: StructField) -> bool:
    has_requirement = any(key in field.metadata for key in _ASKING)
    return not field.nullable or has_requirement or identity_columns.identity_of(field) is not None


def _may_use(candidate: Candidate, physical: FieldPath, logical: FieldPath) -> bool:
    """Return whether a proposal may depend on the values of a column.

    A blind append read none. A proposal that removes or moves rows read the columns of its
    predicates, and one that writes other rows for them may have computed these from any column.
    """
    if candidate.is_blind_append:
        return False
    if candidate.reads.whole_table or any(add.data_change for add in candidate.content.adds):
        return True
    for predicate in candidate.reads.predicates:
        if holds_opaque(predicate):
            return True
        for path in paths_of(predicate):
            named = tuple(path)
            if any(_one_is_prefix(named, column) for column in (physical, logical)):
                return True
    return False


def _one_is_prefix(path: FieldPath, other: FieldPath) -> bool:
    return all(a.lower() == b.lower() for a, b in zip(path, other, strict=False))


def _relevant_metadata(field: StructField) -> Mapping[str, object]:
    return {key: value for key, value in field.metadata.items() if key not in _LOOSE}


def _takes(old: SchemaColumn, new: SchemaColumn) -> bool:
    """Return whether the old type can be read as the new one by the recorded type changes."""
    steps = list(changed(old.shape, new.shape))
    if not _nulls_stay(old.shape, new.shape):
        return False
    known = set(changes(new.field)) if steps else set[TypeChange]()
    return all(widens(step.before, step.after) and step in known for step in steps)


def _nulls_stay(old: DataType, new: DataType) -> bool:
    match old, new:
        case ArrayType(), ArrayType():
            stay = new.contains_null or not old.contains_null
            return stay and _nulls_stay(old.element, new.element)
        case MapType(), MapType():
            stay = new.value_contains_null or not old.value_contains_null
            parts_stay = _nulls_stay(old.key, new.key) and _nulls_stay(old.value, new.value)
            return stay and parts_stay
        case _:
            return True
