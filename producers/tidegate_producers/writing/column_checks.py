"""Checks the columns of rows to write against the table's; an error names the column.

Names match without regard to case, as in Spark. A type fits another if each of its values can be
converted to the other without loss: shorter integers, float to double, a decimal with fewer digits.

A writer also gives columns their names and ids, of column mapping and of row tracking (`assigned`).
It refuses rows that lack what only Spark computes (`check_new_rows`), which `Table.append` writes.
And it attests its rows (`Attestation`), because the committer opens no data file.
"""

import re
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final
from uuid import UUID

from tidegate_delta.constraints.column_defaults import CURRENT, EXISTS
from tidegate_delta.constraints.row_constraints import expressions, hashes, requirements, unenforced
from tidegate_delta.errors import InvalidRequest, UnsupportedFeature
from tidegate_delta.features import row_tracking
from tidegate_delta.log.actions import Metadata, Protocol
from tidegate_delta.properties.table_properties import (
    change_feed_enabled,
    row_commit_version_column,
    row_id_column,
)
from tidegate_delta.schema.column_mapping_assignment import map_columns, physical_names
from tidegate_delta.schema.field_paths import same_name
from tidegate_delta.schema.types import (
    VOID,
    ArrayType,
    DataType,
    DecimalType,
    MapType,
    PrimitiveType,
    StructField,
    StructType,
    walk,
)
from tidegate_messages.proposal import CdcMode, IdentityDemand, IdentityUsage, Operation, Proposal
from tidegate_runtime.client import proposal_builders

_ILLEGAL: Final = re.compile(r"[ ,;{}()\n\t=]")
_WIDER: Final = {
    "byte": ("short", "integer", "long", "float", "double"),
    "short": ("integer", "long", "float", "double"),
    "integer": ("long", "double"),
    "float": ("double",),
}
_DIGITS: Final = {"byte": 3, "short": 5, "integer": 10, "long": 20}


def check_frame(
    frame: StructType, table: StructType, root: str, filled: Collection[str] = ()
) -> None:
    """Check that rows with the columns of `frame` can be written to a table.

    `filled` are the columns that get a value where rows lack them.
    Raises: InvalidRequest, naming the column, what was expected and what was given.
    """
    _check_fields(frame, table, "", root)
    check_given(frame, table, root, filled)


def check_given(
    frame: StructType, table: StructType, root: str, filled: Collection[str] = (), prefix: str = ""
) -> None:
    """Check that rows have every column of a table that may not be null, or has such a field.

    `filled` are the columns that get a value where rows lack them, and `prefix` is the path of the
    struct that is the table here.
    Raises: InvalidRequest, naming the column.
    """
    given_names = {column.name.lower() for column in frame.fields}
    for column in table.fields:
        if column.name.lower() in given_names or column.name in filled:
            continue
        required = _required_path(column)
        if required is not None:
            lacking = "it" if required == column.name else repr(prefix + column.name)
            raise _invalid(
                "DELTA_MISSING_NOT_NULL_COLUMN_VALUE",
                f"{root}: column {prefix + required!r} is NOT NULL, and the DataFrame lacks "
                f"{lacking}: add a column of type {column.kind}",
            )


def _required_path(column: StructField) -> str | None:
    """Return the path of a column, or of the first field inside it, that may not be null."""
    if not column.nullable:
        return column.name
    inside = column.kind.fields if isinstance(column.kind, StructType) else ()
    paths = (_required_path(field) for field in inside)
    return next((f"{column.name}.{path}" for path in paths if path is not None), None)


def check_new(
    schema: StructType, partition_columns: Sequence[str], root: str, *, is_mapped: bool = False
) -> None:
    """Check the columns of a new table; under column mapping names may have any character.

    Raises: InvalidRequest, naming the column.
    """
    if not schema.fields:
        raise _invalid("DELTA_EMPTY_DATA", f"{root}: a table needs at least one column")
    counts = Counter(name.lower() for name in schema.names)
    twice = [name for name in schema.names if counts[name.lower()] > 1]
    if twice:
        raise _invalid(
            "DELTA_DUPLICATE_COLUMNS_FOUND",
            f"{root}: the names of the columns {twice} differ only in case; rename all but one",
        )
    for column in walk(schema):
        if _ILLEGAL.search(column.name) and not is_mapped:
            raise _invalid(
                "DELTA_INVALID_CHARACTERS_IN_COLUMN_NAMES",
                f"{root}: the column name {column.name!r} holds one of ' ,;{{}}()=' or a tab or "
                "line break, for which a table needs column mapping: rename the column, or set the "
                "property delta.columnMapping.mode to name",
            )
    resolve_partition_columns(schema, partition_columns, root)


def resolve_partition_columns(
    schema: StructType, names: Sequence[str], root: str
) -> tuple[str, ...]:
    """Return the partition columns, spelled as in the schema.

    Raises: InvalidRequest, naming the column.
    """
    by_name = {field.name.lower(): field for field in schema.fields}
    partition_columns: list[str] = []
    for name in names:
        column = by_name.get(name.lower())
        if column is None:
            raise _invalid(
                "DELTA_INVALID_PARTITION_COLUMN",
                f"{root}: the partition column {name!r} is not in the schema; its columns are "
                f"{', '.join(schema.names)}",
            )
        if isinstance(column.kind, StructType | ArrayType | MapType) or column.kind == VOID:
            raise _invalid(
                "DELTA_INVALID_PARTITION_COLUMN_TYPE",
                f"{root}: partition column {column.name!r} has type {column.kind}; it must not be "
                "a struct, array, map or void",
            )
        if column.name not in partition_columns:
            partition_columns.append(column.name)
    if partition_columns and len(partition_columns) == len(schema.fields):
        raise _invalid(
            "DELTA_CANNOT_USE_ALL_COLUMNS_FOR_PARTITION",
            f"{root}: every column is a partition column; at least one must not be",
        )
    return tuple(partition_columns)


def check_partitioning(
    requested: Sequence[str] | None, schema: StructType, actual: Sequence[str], root: str
) -> None:
    """Check that the requested partition columns, if any, are the table's.

    Raises: InvalidRequest.
    """
    if requested is not None and resolve_partition_columns(schema, requested, root) != tuple(
        actual
    ):
        raise _invalid(
            "DELTA_METADATA_MISMATCH",
            f"{root} is partitioned by {list(actual)}, not by {list(requested)}: leave the option "
            "partitionColumns out, or write another table",
        )


def as_nullable(schema: StructType) -> StructType:
    """Return the schema with every column and element nullable, as a first write creates it.

    `delta.*` metadata and column defaults are dropped: they belong to the table from which the rows
    were read.
    """
    return StructType(tuple(_nullable_field(field) for field in schema.fields))


def as_stored(frame: StructType, table: StructType) -> StructType:
    """Return the frame's columns, with the table's type where the rows are converted to it."""
    by_name = {field.name.lower(): field for field in table.fields}
    return StructType(
        tuple(
            replace(column, kind=_stored_kind(column.kind, table_column.kind))
            if (table_column := by_name.get(column.name.lower())) is not None
            else column
            for column in frame.fields
        )
    )


def _stored_kind(frame_kind: DataType, table_kind: DataType) -> DataType:
    match frame_kind, table_kind:
        case StructType(), StructType():
            return as_stored(frame_kind, table_kind)
        case ArrayType(), ArrayType():
            return ArrayType(
                _stored_kind(frame_kind.element, table_kind.element), frame_kind.contains_null
            )
        case MapType(), MapType():
            key, value = (
                _stored_kind(frame_kind.key, table_kind.key),
                _stored_kind(frame_kind.value, table_kind.value),
            )
            return MapType(key, value, frame_kind.value_contains_null)
        case _:
            return table_kind if fits(frame_kind, table_kind) else frame_kind


def fits(source: DataType, target: DataType) -> bool:
    """Return whether every value of one type can be converted to another without loss."""
    match source, target:
        case (PrimitiveType("void"), _):
            return True
        case (PrimitiveType(), PrimitiveType()):
            return source == target or target.name in _WIDER.get(source.name, ())
        case (PrimitiveType(), DecimalType()):
            digits = _DIGITS.get(source.name)
            return digits is not None and target.precision - target.scale >= digits
        case (DecimalType(), DecimalType()):
            whole_digits = source.precision - source.scale
            return target.scale >= source.scale and target.precision - target.scale >= whole_digits
        case (ArrayType(), ArrayType()):
            return fits(source.element, target.element)
        case (MapType(), MapType()):
            return fits(source.key, target.key) and fits(source.value, target.value)
        case (StructType(), StructType()):
            return _struct_fits(source, target)
        case _:
            return False


def _struct_fits(source: StructType, target: StructType) -> bool:
    by_name = {field.name.lower(): field for field in target.fields}
    names = {field.name.lower() for field in source.fields}
    return all(
        (matching := by_name.get(field.name.lower())) is not None
        and fits(field.kind, matching.kind)
        for field in source.fields
    ) and all(target_field.nullable or name in names for name, target_field in by_name.items())


def _check_fields(frame: StructType, table: StructType, prefix: str, root: str) -> None:
    by_name = {field.name.lower(): field for field in table.fields}
    given_names: set[str] = set()
    for column in frame.fields:
        dotted_name = f"{prefix}{column.name}"
        table_column = by_name.get(column.name.lower())
        if table_column is None:
            raise _invalid(
                "DELTA_METADATA_MISMATCH",
                f"{root} has no column {dotted_name!r}; its columns are {_names(table, prefix)}: "
                "drop the column from the DataFrame, or add it to the table, as df.write does with "
                "the option mergeSchema=true",
            )
        if column.name.lower() in given_names:
            raise _invalid(
                "DELTA_DUPLICATE_COLUMNS_ON_INSERT",
                f"{root}: column {dotted_name!r} is given twice",
            )
        given_names.add(column.name.lower())
        if isinstance(column.kind, StructType) and isinstance(table_column.kind, StructType):
            inside = f"{dotted_name}."
            _check_fields(column.kind, table_column.kind, inside, root)
            check_given(column.kind, table_column.kind, root, prefix=inside)
        elif not fits(column.kind, table_column.kind):
            raise _invalid(
                "DELTA_FAILED_TO_MERGE_FIELDS",
                f"{root}: column {dotted_name!r} has type {table_column.kind}, but the DataFrame's "
                f"has type {column.kind}: cast it to {table_column.kind}",
            )


def _names(schema: StructType, prefix: str) -> str:
    return ", ".join(f"{prefix}{name}" for name in schema.names)


def _nullable_field(column: StructField) -> StructField:
    metadata = {
        key: value
        for key, value in column.metadata.items()
        if not key.startswith("delta.") and key not in (CURRENT, EXISTS)
    }
    return replace(column, kind=_nullable(column.kind), nullable=True, metadata=metadata)


def _nullable(kind: DataType) -> DataType:
    match kind:
        case StructType():
            return as_nullable(kind)
        case ArrayType():
            return ArrayType(_nullable(kind.element), True)
        case MapType():
            return MapType(_nullable(kind.key), _nullable(kind.value), True)
        case _:
            return kind


def _invalid(error_class: str, message: str) -> InvalidRequest:
    return InvalidRequest(f"{message}; nothing was proposed", error_class=error_class)


_ROW_TRACKING: Final = (
    (row_id_column, "_row-id-col-"),
    (row_commit_version_column, "_row-commit-version-col-"),
)


def assigned(
    before: Metadata | None,
    after: Metadata,
    new_id: Callable[[], UUID],
    *,
    overwrites: bool = False,
) -> Metadata:
    """Return new metadata whose columns have what column mapping and row tracking ask for.

    `before` is None for a new table; `overwrites` says that all files are replaced.
    Raises: InvalidRequest, for a name or a change of mode that the mapping does not allow.
    """
    names = physical_names(iter(new_id, None))
    mapped = map_columns(before, after, names, overwrites=overwrites)
    if not row_tracking.is_enabled(mapped):
        return mapped
    # Files of older versions keep the names that they have.
    configured = {
        column.key: text for column, _ in _ROW_TRACKING if before and (text := column(before))
    }
    mapped = mapped.with_(configuration={**mapped.configuration, **configured})
    configured = row_columns(mapped, new_id)
    return mapped.with_(configuration={**mapped.configuration, **configured})


def row_columns(metadata: Metadata, new_id: Callable[[], UUID]) -> dict[str, str]:
    """Return the properties that name the columns in which moved rows keep their ids, as far as
    none does yet.
    """
    return {
        column.key: f"{prefix}{new_id()}"
        for column, prefix in _ROW_TRACKING
        if not column(metadata)
    }


def check_new_rows(
    protocol: Protocol,
    metadata: Metadata,
    root: str,
    enforced: Collection[str] = (),
    given_columns: Collection[str] = (),
) -> None:
    """Refuse rows that lack defaults, constraints or identity values, which a data source cannot
    compute.

    `enforced` are the hashes of constraints that the caller has evaluated, `given_columns`
    its columns.
    Raises: UnsupportedFeature, naming the column or constraint.
    """
    required = requirements(metadata, protocol)
    numbered = [
        identity.column
        for identity in required.identities
        if not (
            identity.allows_explicit
            and any(same_name(identity.column, name) for name in given_columns)
        )
    ]
    if numbered:
        raise UnsupportedFeature(
            f"{root} has the identity column {numbered[0]!r}, whose values this writer does not "
            "give out: write with Table.append, which does; nothing was proposed",
            feature="identityColumns",
        )
    lacks = [
        column_default
        for column_default in required.defaults
        if not any(same_name(column_default.column, name) for name in given_columns)
    ]
    if lacks:
        raise UnsupportedFeature(
            f"{root} has the default {lacks[0].expression} for column {lacks[0].column!r}, which "
            "the rows lack and this writer does not compute (feature allowColumnDefaults): write "
            "with Table.append, which does, or add the column; nothing was proposed",
            feature="allowColumnDefaults",
        )
    unevaluated = unenforced(expressions(required), enforced)
    if unevaluated:
        raise UnsupportedFeature(
            f"{root} requires {unevaluated[0]} of new rows, which this writer does not evaluate: "
            "write with Table.append, which does; nothing was proposed",
            feature="checkConstraints",
        )


def check_copies(metadata: Metadata, root: str) -> None:
    """Refuse to copy rows beside new ones if readers of the change feed would take them for new.

    Raises: UnsupportedFeature.
    """
    if change_feed_enabled(metadata):
        raise UnsupportedFeature(
            f"{root} has a change feed, which would show the rows that stay in the rewritten files "
            "as new: set delta.enableDeletionVectors, or delete the rows first and append the "
            "others; nothing was proposed",
            feature="changeDataFeed",
        )


LEASE: Final = "LEASE IDENTITY VALUES"
"""The operation of a commit that only leases identity values."""


@dataclass(frozen=True)
class Attestation:
    """A writer's statements about a proposal's rows; the fields are those of `Proposal`."""

    constraints_enforced: tuple[str, ...] = ()
    cdc_mode: CdcMode | None = None
    identity_usage: tuple[IdentityUsage, ...] = ()


NOTHING: Final = Attestation()


def in_table_already(metadata: Metadata, protocol: Protocol) -> tuple[str, ...]:
    """Return the hashes of a table's constraints: its own rows meet them, so copies of them do."""
    return tuple(hashes(expressions(requirements(metadata, protocol))))


def with_attestation(proposal: Proposal, attestation: Attestation) -> Proposal:
    """Return a proposal with its writer's statements added to those it already has."""
    statements: dict[str, Any] = {
        "constraints_enforced": (*proposal.constraints_enforced, *attestation.constraints_enforced),
        "identity_usage": (*proposal.identity_usage, *attestation.identity_usage),
        "cdc_mode": attestation.cdc_mode or proposal.cdc_mode,
    }
    return proposal.model_copy(update=statements)


def lease(
    target: proposal_builders.Target, stamp: proposal_builders.Stamp, *demands: IdentityDemand
) -> Proposal:
    """Return a proposal that leases identity values; the outcome's `assigned` holds the blocks.

    Application transactions of the stamp are left to the proposal that brings the rows: with them
    here, the table would seem to have the rows already.
    """
    draft = proposal_builders.append(target, replace(stamp, app_txn=None, app_txns=()), ())
    lease_fields = {"operation": Operation(name=LEASE), "identity_leases": demands}
    return draft.model_copy(update=lease_fields)
