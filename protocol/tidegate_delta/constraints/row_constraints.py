"""The constraints that a table sets for rows written to it, as data: the writers enforce them.

The log states the constraints. An engine that evaluates SQL enforces them, and attests by hashes
which ones it enforced. The committer compares these with the table's constraints at commit time.

Spec: "CHECK Constraints"
"""

import hashlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import orjson

from tidegate_delta.constraints.column_defaults import ColumnDefault, column_defaults
from tidegate_delta.constraints.generated_columns import Generation, generated_columns
from tidegate_delta.constraints.identity_columns import IdentityColumn, identity_columns
from tidegate_delta.errors import BrokenLog, InvalidRequest
from tidegate_delta.log.actions import Metadata, Protocol
from tidegate_delta.log.protocol_versions import writer_features
from tidegate_delta.schema.char_varchar import LengthLimit, limits
from tidegate_delta.schema.column_mapping import ColumnMappingMode, mode_of, to_physical
from tidegate_delta.schema.field_paths import (
    ELEMENT,
    VALUE,
    FieldPath,
    dotted,
    field_paths,
    steps_inside,
)
from tidegate_delta.schema.sql_column_references import names_column
from tidegate_delta.schema.types import (
    STRING,
    ArrayType,
    DataType,
    MapType,
    StructField,
    StructType,
    parse_schema,
)

PREFIX: Final = "delta.constraints."
INVARIANT: Final = "delta.invariants"
RESERVED_NAME: Final = "__CHAR_VARCHAR_STRING_LENGTH_CHECK__"

_HASH_FORM: Final = 1
"""Increased whenever the hashed form changes, so that hashes of two forms are never equal."""


@dataclass(frozen=True)
class NotNull:
    """A column, or a field inside one, that may not be null.

    A null parent struct also violates it, unless the field is inside an array or a map: these have
    no values where they are null or empty, and each of their elements is checked.
    Spec: "Struct Field"
    """

    path: FieldPath
    physical: FieldPath


@dataclass(frozen=True)
class CheckConstraint:
    """A named SQL expression that must be true for each row; null is not true."""

    name: str
    expression: str


@dataclass(frozen=True)
class Invariant:
    """A SQL expression in a column's metadata that must be true for each row; null is not true.

    Spec: "Column Invariants"
    """

    path: FieldPath
    physical: FieldPath
    expression: str


@dataclass(frozen=True)
class Length:
    """A string with a greatest length in characters.

    Spec: "Column Metadata"
    """

    path: FieldPath
    physical: FieldPath
    limit: LengthLimit


@dataclass(frozen=True)
class WriteRequirements:
    """All constraints on rows written to a table, and the values it fills in where they lack them.

    Spec: "Writer Version Requirements"
    """

    not_null: tuple[NotNull, ...] = ()
    checks: tuple[CheckConstraint, ...] = ()
    invariants: tuple[Invariant, ...] = ()
    lengths: tuple[Length, ...] = ()
    generated: tuple[Generation, ...] = ()
    identities: tuple[IdentityColumn, ...] = ()
    defaults: tuple[ColumnDefault, ...] = ()
    text_partitions: tuple[str, ...] = ()
    """The partition columns of strings: an empty one is stored as null, and is null for each check.
    """


def requirements(metadata: Metadata, protocol: Protocol) -> WriteRequirements:
    """Return what a table requires of the rows written to it.

    What belongs to a table feature counts only if the table supports it. Metadata that uses an
    unlisted feature is refused by `features.supported_features`.
    Raises: BrokenLog for what can't be read.
    Spec: "Writer Version Requirements"
    """
    schema = parse_schema(metadata.schema_string)
    supported = writer_features(protocol)
    named = tuple(_with_physical(schema, mode_of(metadata)))
    return WriteRequirements(
        not_null=tuple(_not_null(named)),
        checks=checks(metadata) if "checkConstraints" in supported else (),
        invariants=tuple(_invariants(named)) if "invariants" in supported else (),
        lengths=tuple(_lengths(named)),
        generated=generated_columns(metadata, protocol),
        identities=identity_columns(metadata, protocol),
        defaults=column_defaults(metadata, protocol),
        text_partitions=tuple(_text_partitions(schema, metadata)),
    )


def expressions(required: WriteRequirements) -> WriteRequirements:
    """Return the requirements that need an engine: constraints, invariants, generated columns.

    Statistics show that no value is null. String lengths concern only engines that know such types.
    Law: expressions(expressions(r)) == expressions(r)
    Spec: "CHECK Constraints", "Column Invariants", "Generated Columns"
    """
    return replace(required, not_null=(), lengths=())


def hashes(required: WriteRequirements) -> Mapping[str, str]:
    """Return a hash of each check that a writer must evaluate on each row, with its description.

    Columns are hashed by their physical names, so a rename changes no hash. Identity columns and
    defaults are excluded: they say what to write, not what to refuse.
    Shape: SHA-256 in hexadecimal -> a phrase such as `NOT NULL a.b`
    Spec: "Additional Requirements for Writers"
    """
    return {
        hashlib.sha256(orjson.dumps([_HASH_FORM, *parts])).hexdigest(): description
        for description, parts in _hashed(required)
    }


def digest(required: WriteRequirements) -> str:
    """Return one hash of all checks that a writer must evaluate on each row, in any order.

    Law: digest(a) == digest(b) if and only if hashes(a).keys() == hashes(b).keys()
    Spec: "Additional Requirements for Writers"
    """
    return hashlib.sha256(orjson.dumps(sorted(hashes(required)))).hexdigest()


def unenforced(required: WriteRequirements, enforced: Collection[str]) -> tuple[str, ...]:
    """Return descriptions of the checks whose hashes the writer did not attest.

    Spec: "Additional Requirements for Writers"
    """
    attested = frozenset(enforced)
    return tuple(
        description for sha256, description in hashes(required).items() if sha256 not in attested
    )


def checks(metadata: Metadata) -> tuple[CheckConstraint, ...]:
    """Return the CHECK constraints of a table, by name."""
    constraints = (
        CheckConstraint(key[len(PREFIX) :], text)
        for key, text in metadata.configuration.items()
        if key.lower().startswith(PREFIX)
    )
    return tuple(sorted(constraints, key=lambda constraint: constraint.name))


def add_check(metadata: Metadata, name: str, expression: str) -> Metadata:
    """Return a table's metadata with one more CHECK constraint; the table must support them.

    The caller ensures in the same commit that all existing rows satisfy it.
    Raises: InvalidRequest for a name that is taken or reserved, and an empty expression.
    """
    if not name or name.upper() == RESERVED_NAME:
        raise InvalidRequest(
            f"{name!r} can't be the name of a CHECK constraint; choose another",
            error_class="DELTA_INVALID_CONSTRAINT_NAME",
        )
    taken = [check for check in checks(metadata) if check.name.lower() == name.lower()]
    if taken:
        raise InvalidRequest(
            f"there is a CHECK constraint {taken[0].name!r} ({taken[0].expression}); drop it first",
            error_class="DELTA_CONSTRAINT_ALREADY_EXISTS",
        )
    if not expression.strip():
        raise InvalidRequest(
            f"CHECK constraint {name!r} has no expression; give one that is true or false",
            error_class="DELTA_NON_BOOLEAN_CHECK_CONSTRAINT",
        )
    own = {**metadata.configuration, f"{PREFIX}{name.lower()}": expression}
    return metadata.with_(configuration=own)


def drop_check(metadata: Metadata, name: str, *, if_exists: bool = False) -> Metadata:
    """Return a table's metadata without a CHECK constraint.

    Law: drop_check(add_check(m, n, e), n) == m
    Raises: InvalidRequest for a constraint that does not exist, unless `if_exists` is set.
    """
    key = f"{PREFIX}{name}".lower()
    kept = {
        property_key: text
        for property_key, text in metadata.configuration.items()
        if property_key.lower() != key
    }
    if len(kept) == len(metadata.configuration) and not if_exists:
        known = ", ".join(check.name for check in checks(metadata)) or "none"
        raise InvalidRequest(
            f"there is no CHECK constraint {name!r}; there are: {known}",
            error_class="DELTA_CONSTRAINT_DOES_NOT_EXIST",
        )
    return metadata.with_(configuration=kept)


def constraints_on(
    metadata: Metadata, schema: StructType, path: Sequence[str]
) -> Mapping[str, str]:
    """Return the CHECK constraints and invariants that may name a column, with their
    expressions.
    """
    by_name = {check.name: check.expression for check in checks(metadata)}
    for field_path, field in field_paths(schema):
        if INVARIANT in field.metadata:
            by_name[f"invariant of {dotted(field_path)}"] = _invariant(field_path, field)
    return {name: text for name, text in by_name.items() if names_column(text, path, schema)}


Named = tuple[FieldPath, FieldPath, StructField]
"""The path of a field, its physical path, and the field."""


def _with_physical(schema: StructType, mode: ColumnMappingMode) -> Iterator[Named]:
    physical = (path for path, _ in field_paths(to_physical(schema, mode)))
    for physical_path, (path, field) in zip(physical, field_paths(schema), strict=True):
        yield path, physical_path, field


def _text_partitions(schema: StructType, metadata: Metadata) -> Iterator[str]:
    for field in schema.fields:
        if field.name in metadata.partition_columns and field.kind == STRING:
            yield field.name


def _not_null(named: Sequence[Named]) -> Iterator[NotNull]:
    for path, physical, field in named:
        if not field.nullable:
            yield NotNull(path, physical)
        for steps in _full_steps(field.kind):
            yield NotNull((*path, *steps), (*physical, *steps))


def _full_steps(kind: DataType) -> Iterator[FieldPath]:
    """Yield the steps to non-null elements and values, down to the next structs."""
    match kind:
        case ArrayType() if not kind.contains_null:
            yield (ELEMENT,)
        case MapType() if not kind.value_contains_null:
            yield (VALUE,)
    for step, inner in steps_inside(kind):
        yield from ((step, *rest) for rest in _full_steps(inner))


def _invariants(named: Sequence[Named]) -> Iterator[Invariant]:
    for path, physical, field in named:
        if INVARIANT in field.metadata:
            yield Invariant(path, physical, _invariant(path, field))


def _invariant(path: FieldPath, field: StructField) -> str:
    """Return the expression in `{"expression": {"expression": ...}}`."""
    text = field.metadata[INVARIANT]
    try:
        expression = orjson.loads(text)["expression"]["expression"]
    except (orjson.JSONDecodeError, KeyError, TypeError):
        expression = None
    if not isinstance(expression, str):
        raise BrokenLog(
            f"column {dotted(path)!r} has an invariant that can't be read, {text!r}; restore the "
            "table to a version before it was set",
            error_class="DELTA_UNRECOGNIZED_INVARIANT",
        )
    return expression


def _lengths(named: Sequence[Named]) -> Iterator[Length]:
    known = {path: physical for path, physical, _ in named}
    for top, _, field in named:
        if len(top) > 1:
            continue
        for steps, limit in limits(field).items():
            path = (*top, *steps)
            fields = [path[:end] for end in range(len(path), 0, -1) if path[:end] in known]
            yield Length(path, (*known[fields[0]], *path[len(fields[0]) :]), limit)


def _hashed(required: WriteRequirements) -> Iterator[tuple[str, list[object]]]:
    """Yield the description of each check on rows, and the values that are hashed for it."""
    for null in required.not_null:
        yield f"NOT NULL {dotted(null.path)}", ["not null", *null.physical]
    for check in required.checks:
        yield f"CHECK {check.name} ({check.expression})", ["true", check.expression]
    for invariant in required.invariants:
        yield (
            f"invariant of {dotted(invariant.path)} ({invariant.expression})",
            ["true", invariant.expression],
        )
    for length in required.lengths:
        description = f"{length.limit} {dotted(length.path)}"
        yield description, ["length", length.limit.length, *length.physical]
    for column in required.generated:
        description = f"{dotted((column.column,))} AS ({column.expression})"
        yield description, ["generated", column.physical, column.expression]
