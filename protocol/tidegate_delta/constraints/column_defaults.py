"""Column defaults: what stands in for a value that a writer was not given.

A default is for writers alone: rows that are there keep what they hold. Hence none may come with
a new column, whose older rows would lack it, and `EXISTS_DEFAULT` of other engines is not kept.
"""

from dataclasses import dataclass, replace
from typing import Final

from tidegate_delta.constraints.generated_columns import is_generated
from tidegate_delta.constraints.identity_columns import check_alterable
from tidegate_delta.errors import BrokenLog, InvalidRequest
from tidegate_delta.log.actions import Metadata, Protocol
from tidegate_delta.log.protocol_versions import writer_features
from tidegate_delta.schema.column_mapping import mode_of, physical_name
from tidegate_delta.schema.field_paths import dotted, field_at, transform
from tidegate_delta.schema.sql_column_references import columns_in
from tidegate_delta.schema.types import (
    VARIANT,
    DataType,
    StructField,
    StructType,
    format_schema,
    holds,
    is_geospatial,
    parse_schema,
)

CURRENT: Final = "CURRENT_DEFAULT"
EXISTS: Final = "EXISTS_DEFAULT"
FEATURE: Final = "allowColumnDefaults"


@dataclass(frozen=True)
class ColumnDefault:
    """A column and the SQL expression whose value it takes where none is given.

    Spec: "Default Columns"
    """

    column: str
    physical: str
    expression: str


def column_defaults(metadata: Metadata, protocol: Protocol) -> tuple[ColumnDefault, ...]:
    """Return the defaults of a table's columns, in order; none where it does not support them.

    Raises: BrokenLog for a default that is no text.
    Spec: "Default Columns"
    """
    if FEATURE not in writer_features(protocol):
        return ()
    mode = mode_of(metadata)
    return tuple(
        ColumnDefault(one.name, physical_name(one, mode), _expression(one))
        for one in parse_schema(metadata.schema_string)
        if CURRENT in one.metadata
    )


def set_default(
    metadata: Metadata, protocol: Protocol, column: str, expression: str | None
) -> Metadata:
    """Return the metadata of a table with another default on a column, or, by None, without one.

    Raises: InvalidRequest for a default that the table or the column can't have.
    Spec: "Default Columns"
    """
    schema = parse_schema(metadata.schema_string)
    found = field_at(schema, (column,))
    rest = {key: text for key, text in found.metadata.items() if key not in (CURRENT, EXISTS)}
    if expression is None:
        new = replace(found, metadata=rest)
    else:
        new = replace(found, metadata={**rest, CURRENT: expression})
        check_alterable(found)
        _check(new, schema, protocol)
    fields = tuple(new if one is found else one for one in schema)
    return metadata.with_(schema_string=format_schema(StructType(fields)))


def check_defaults(schema: StructType, protocol: Protocol) -> None:
    """Refuse a schema whose columns have defaults that they can't have.

    Raises: InvalidRequest, naming the column.
    Spec: "Default Columns"
    """
    for one in schema:
        if CURRENT in one.metadata:
            _check(one, schema, protocol)


def check_no_default(field: StructField) -> None:
    """Refuse a new column that brings a default along.

    Raises: InvalidRequest.
    Spec: "Default Columns"
    """
    if CURRENT in field.metadata:
        raise InvalidRequest(
            f"column {dotted((field.name,))!r} can't be added with a default, which the rows that "
            "are there would lack; add the column, then set its default",
            error_class="WRONG_COLUMN_DEFAULTS_FOR_DELTA_ALTER_TABLE_ADD_COLUMN_NOT_SUPPORTED",
        )


def without_exists_defaults(schema: StructType) -> StructType:
    """Return a schema without the defaults for older rows that other engines leave in it.

    Spec: "Default Columns"
    """
    return transform(
        schema,
        lambda _, one: replace(
            one, metadata={key: value for key, value in one.metadata.items() if key != EXISTS}
        ),
    )


def _check(one: StructField, schema: StructType, protocol: Protocol) -> None:
    where = dotted((one.name,))
    text = _expression(one)
    if FEATURE not in writer_features(protocol):
        raise InvalidRequest(
            f"column {where!r} can't have a default: the table does not support the feature "
            f"{FEATURE!r}; set delta.feature.{FEATURE} to supported first",
            error_class="WRONG_COLUMN_DEFAULTS_FOR_DELTA_FEATURE_NOT_ENABLED",
        )
    if is_generated(one):
        raise InvalidRequest(
            f"column {where!r} is generated and can't have a default too; leave one out",
            error_class="GENERATED_COLUMN_WITH_DEFAULT_VALUE",
        )
    if holds(one.kind, is_geospatial) or (_holds_variants(one.kind) and not _is_null(text)):
        raise InvalidRequest(
            f"column {where!r} of type {one.kind} can't have the default {text!r}; leave it out",
            error_class="DELTA_OPERATION_NOT_SUPPORTED_FOR_DATATYPES",
        )
    named = columns_in(text, schema)
    if not text.strip() or named is None or named:
        raise InvalidRequest(
            f"{text!r} is no default for column {where!r}: it must be an expression that names no "
            "column",
            error_class="INVALID_DEFAULT_VALUE",
        )


def _expression(one: StructField) -> str:
    found = one.metadata.get(CURRENT)
    if not isinstance(found, str):
        raise BrokenLog(
            f"column {dotted((one.name,))!r} has the default {found!r}, which is no expression",
            error_class="CorruptCommit",
            remedy="restore the table to a version before its schema was changed",
        )
    return found


def _holds_variants(kind: DataType) -> bool:
    return holds(kind, lambda inner: inner == VARIANT)


def _is_null(text: str) -> bool:
    return text.strip().lower() == "null"
