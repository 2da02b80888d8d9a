"""Column defaults: the value that a writer inserts for a column that its rows lack.

Defaults concern writers only: existing rows keep their values. So a new column may not have one,
because older rows would lack it, and `EXISTS_DEFAULT` of other engines is not kept.

Spec: "Default Columns"
"""

from dataclasses import dataclass, replace
from typing import Final

from tidegate_delta.constraints.generated_columns import is_generated
from tidegate_delta.constraints.identity_columns import check_alterable
from tidegate_delta.errors import BrokenLog, InvalidRequest
from tidegate_delta.log.actions import Metadata, Protocol
from tidegate_delta.log.protocol_versions import writer_features
from tidegate_delta.schema.column_mapping import mode_of, physical_name
from tidegate_delta.schema.field_paths import dotted, field_at
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
    """A column and the SQL expression of its default."""

    column: str
    physical: str
    expression: str


def column_defaults(metadata: Metadata, protocol: Protocol) -> tuple[ColumnDefault, ...]:
    """Return the defaults of a table's columns, in order; () without the table feature.

    Raises: BrokenLog for a default that is no text.
    """
    if FEATURE not in writer_features(protocol):
        return ()
    mode = mode_of(metadata)
    return tuple(
        ColumnDefault(field.name, physical_name(field, mode), _expression(field))
        for field in parse_schema(metadata.schema_string)
        if CURRENT in field.metadata
    )


def set_default(
    metadata: Metadata, protocol: Protocol, column: str, expression: str | None
) -> Metadata:
    """Return a table's metadata with another default on a column, or with None, without one.

    Raises: InvalidRequest for a default that the table or the column can't have.
    """
    schema = parse_schema(metadata.schema_string)
    old = field_at(schema, (column,))
    rest = {key: text for key, text in old.metadata.items() if key not in (CURRENT, EXISTS)}
    if expression is None:
        new = replace(old, metadata=rest)
    else:
        new = replace(old, metadata={**rest, CURRENT: expression})
        check_alterable(old)
        _check(new, schema, protocol)
    fields = tuple(new if field is old else field for field in schema)
    return metadata.with_(schema_string=format_schema(StructType(fields)))


def check_defaults(schema: StructType, protocol: Protocol) -> None:
    """Refuse a schema with defaults that its columns can't have.

    Raises: InvalidRequest, naming the column.
    """
    for field in schema:
        if CURRENT in field.metadata:
            _check(field, schema, protocol)


def check_no_default(field: StructField) -> None:
    """Refuse a new column that has a default.

    Raises: InvalidRequest.
    """
    if CURRENT in field.metadata:
        raise InvalidRequest(
            f"column {dotted((field.name,))!r} can't be added with a default, which the rows that "
            "are there would lack; add the column, then set its default",
            error_class="WRONG_COLUMN_DEFAULTS_FOR_DELTA_ALTER_TABLE_ADD_COLUMN_NOT_SUPPORTED",
        )


def _check(field: StructField, schema: StructType, protocol: Protocol) -> None:
    name = dotted((field.name,))
    text = _expression(field)
    if FEATURE not in writer_features(protocol):
        raise InvalidRequest(
            f"column {name!r} can't have a default: the table does not support the feature "
            f"{FEATURE!r}; set delta.feature.{FEATURE} to supported first",
            error_class="WRONG_COLUMN_DEFAULTS_FOR_DELTA_FEATURE_NOT_ENABLED",
        )
    if is_generated(field):
        raise InvalidRequest(
            f"column {name!r} is generated and can't have a default too; leave one out",
            error_class="GENERATED_COLUMN_WITH_DEFAULT_VALUE",
        )
    if holds(field.kind, is_geospatial) or (_holds_variants(field.kind) and not _is_null(text)):
        raise InvalidRequest(
            f"column {name!r} of type {field.kind} can't have the default {text!r}; leave it out",
            error_class="DELTA_OPERATION_NOT_SUPPORTED_FOR_DATATYPES",
        )
    named = columns_in(text, schema)
    if not text.strip() or named is None or named:
        raise InvalidRequest(
            f"{text!r} is no default for column {name!r}: it must be an expression that names no "
            "column",
            error_class="INVALID_DEFAULT_VALUE",
        )


def _expression(field: StructField) -> str:
    expression = field.metadata.get(CURRENT)
    if not isinstance(expression, str):
        raise BrokenLog(
            f"column {dotted((field.name,))!r} has the default {expression!r}, which is no "
            "expression",
            error_class="CorruptCommit",
            remedy="restore the table to a version before its schema was changed",
        )
    return expression


def _holds_variants(kind: DataType) -> bool:
    return holds(kind, lambda inner: inner == VARIANT)


def _is_null(text: str) -> bool:
    return text.strip().lower() == "null"
