"""What a table asks of the rows that are written to it, as data: the writers enforce it.

The log says what must hold; an engine that evaluates SQL makes sure that it does, and says by
hashes what it made sure of. Whoever commits compares these with what the table asks by then.
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
    structs_inside,
)
from tidegate_delta.schema.sql_column_references import names_column
from tidegate_delta.schema.types import (
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
"""Raised with any change of what is hashed, so that hashes of two forms never meet."""


@dataclass(frozen=True)
class NotNull:
    """A column, or what is inside one, that may not be null.

    A null struct on the way breaks it too, unless it lies in an array or a map: those hold nothing
    where they are null or empty, and their elements are asked one by one.
    Spec: "Struct Field"
    """

    path: FieldPath
    physical: FieldPath


@dataclass(frozen=True)
class CheckConstraint:
    """A SQL expression by name that must be true for each row; null is not true.

    Spec: "CHECK Constraints"
    """

    name: str
    expression: str


@dataclass(frozen=True)
class Invariant:
    """A SQL expression kept with a column that must be true for each row; null is not true.

    Spec: "Column Invariants"
    """

    path: FieldPath
    physical: FieldPath
    expression: str


@dataclass(frozen=True)
class Length:
    """A string that may have only so many characters.

    Spec: "Column Metadata"
    """

    path: FieldPath
    physical: FieldPath
    limit: LengthLimit


@dataclass(frozen=True)
class WriteRequirements:
    """All that a table asks of the rows written to it, and what it fills in where they lack it.

    Spec: "Writer Version Requirements"
    """

    not_null: tuple[NotNull, ...] = ()
    checks: tuple[CheckConstraint, ...] = ()
    invariants: tuple[Invariant, ...] = ()
    lengths: tuple[Length, ...] = ()
    generated: tuple[Generation, ...] = ()
    identities: tuple[IdentityColumn, ...] = ()
    defaults: tuple[ColumnDefault, ...] = ()


def requirements(metadata: Metadata, protocol: Protocol) -> WriteRequirements:
    """Return what a table asks of the rows written to it.

    What belongs to a feature counts where the table supports it; that metadata uses a feature that
    its protocol lacks is for `delta.features.table` to refuse.
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
    )


def expressions(required: WriteRequirements) -> WriteRequirements:
    """Return what takes an engine to evaluate: constraints, invariants, generated columns.

    That no value is null shows in statistics; how long strings may be is for engines that know of
    such types, and asked of no other writer.
    Law: expressions(expressions(r)) == expressions(r)
    Spec: "CHECK Constraints", "Column Invariants", "Generated Columns"
    """
    return replace(required, not_null=(), lengths=())


def hashes(required: WriteRequirements) -> Mapping[str, str]:
    """Return what a writer must evaluate on each row, by a hash of its own, with words for it.

    Columns count by their physical names, so a rename changes no hash. Identity columns and
    defaults are no part: they say what to write, not what to refuse.
    Shape: SHA-256 in hexadecimal -> a phrase such as `NOT NULL a.b`
    Spec: "Additional Requirements for Writers"
    """
    return {
        hashlib.sha256(orjson.dumps([_HASH_FORM, *parts])).hexdigest(): words
        for words, parts in _hashed(required)
    }


def digest(required: WriteRequirements) -> str:
    """Return one hash of all that a writer must evaluate on each row, in whatever order.

    Law: digest(a) == digest(b) if and only if hashes(a).keys() == hashes(b).keys()
    Spec: "Additional Requirements for Writers"
    """
    return hashlib.sha256(orjson.dumps(sorted(hashes(required)))).hexdigest()


def unenforced(required: WriteRequirements, enforced: Collection[str]) -> tuple[str, ...]:
    """Return in words what a table asks and a writer did not say by its hash that it enforced.

    Spec: "Additional Requirements for Writers"
    """
    done = frozenset(enforced)
    return tuple(words for one, words in hashes(required).items() if one not in done)


def checks(metadata: Metadata) -> tuple[CheckConstraint, ...]:
    """Return the CHECK constraints of a table, by name.

    Spec: "CHECK Constraints"
    """
    found = (
        CheckConstraint(key[len(PREFIX) :], text)
        for key, text in metadata.configuration.items()
        if key.lower().startswith(PREFIX)
    )
    return tuple(sorted(found, key=lambda one: one.name))


def add_check(metadata: Metadata, name: str, expression: str) -> Metadata:
    """Return a table's metadata with one more CHECK constraint; the table must support them.

    Every row that is there must satisfy it, which is the caller's to see to in the same commit.
    Raises: InvalidRequest for a name that is taken or reserved, and an empty expression.
    Spec: "CHECK Constraints"
    """
    if not name or name.upper() == RESERVED_NAME:
        raise InvalidRequest(
            f"{name!r} can't be the name of a CHECK constraint; choose another",
            error_class="DELTA_INVALID_CONSTRAINT_NAME",
        )
    taken = [one for one in checks(metadata) if one.name.lower() == name.lower()]
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
    Raises: InvalidRequest for a name that there is none of, unless that is allowed.
    Spec: "CHECK Constraints"
    """
    key = f"{PREFIX}{name}".lower()
    kept = {one: text for one, text in metadata.configuration.items() if one.lower() != key}
    if len(kept) == len(metadata.configuration) and not if_exists:
        known = ", ".join(one.name for one in checks(metadata)) or "none"
        raise InvalidRequest(
            f"there is no CHECK constraint {name!r}; there are: {known}",
            error_class="DELTA_CONSTRAINT_DOES_NOT_EXIST",
        )
    return metadata.with_(configuration=kept)


def constraints_on(
    metadata: Metadata, schema: StructType, path: Sequence[str]
) -> Mapping[str, str]:
    """Return the CHECK constraints and invariants that may name a column, with their expressions.

    Spec: "CHECK Constraints"
    """
    found = {one.name: one.expression for one in checks(metadata)}
    for where, one in field_paths(schema):
        if INVARIANT in one.metadata:
            found[f"invariant of {dotted(where)}"] = _invariant(where, one)
    return {name: text for name, text in found.items() if names_column(text, path, schema)}


def check_enforceable(schema: StructType) -> None:
    """Refuse a new schema with fields inside arrays and maps that may not be null.

    Raises: InvalidRequest, naming the field.
    Spec: "Struct Field"
    """
    for path, one in field_paths(schema):
        for steps, inner in structs_inside(one.kind):
            below = field_paths(inner, (*path, *steps)) if steps else ()
            wrong = [dotted(where) for where, field in below if not field.nullable]
            if wrong:
                raise InvalidRequest(
                    f"{', '.join(wrong)} may not be null inside an array or a map, which engines "
                    "do not enforce; let it be nullable",
                    error_class="DELTA_NESTED_NOT_NULL_CONSTRAINT",
                )


Named = tuple[FieldPath, FieldPath, StructField]
"""The path of a field, its physical path, and the field."""


def _with_physical(schema: StructType, mode: ColumnMappingMode) -> Iterator[Named]:
    physical = (path for path, _ in field_paths(to_physical(schema, mode)))
    for at, (path, one) in zip(physical, field_paths(schema), strict=True):
        yield path, at, one


def _not_null(named: Sequence[Named]) -> Iterator[NotNull]:
    for path, physical, one in named:
        if not one.nullable:
            yield NotNull(path, physical)
        for steps in _full_steps(one.kind):
            yield NotNull((*path, *steps), (*physical, *steps))


def _full_steps(kind: DataType) -> Iterator[FieldPath]:
    """Yield the steps to elements and values that may not be null, up to the next structs."""
    match kind:
        case ArrayType() if not kind.contains_null:
            yield (ELEMENT,)
        case MapType() if not kind.value_contains_null:
            yield (VALUE,)
    for step, inner in steps_inside(kind):
        yield from ((step, *rest) for rest in _full_steps(inner))


def _invariants(named: Sequence[Named]) -> Iterator[Invariant]:
    for path, physical, one in named:
        if INVARIANT in one.metadata:
            yield Invariant(path, physical, _invariant(path, one))


def _invariant(path: FieldPath, one: StructField) -> str:
    """Return the expression inside of `{"expression": {"expression": ...}}`."""
    text = one.metadata[INVARIANT]
    try:
        found = orjson.loads(text)["expression"]["expression"]
    except (orjson.JSONDecodeError, KeyError, TypeError):
        found = None
    if not isinstance(found, str):
        raise BrokenLog(
            f"column {dotted(path)!r} has an invariant that can't be read, {text!r}; restore the "
            "table to a version before it was set",
            error_class="DELTA_UNRECOGNIZED_INVARIANT",
        )
    return found


def _lengths(named: Sequence[Named]) -> Iterator[Length]:
    known = {path: physical for path, physical, _ in named}
    for top, _, one in named:
        if len(top) > 1:
            continue
        for steps, limit in limits(one).items():
            path = (*top, *steps)
            fields = [path[:end] for end in range(len(path), 0, -1) if path[:end] in known]
            yield Length(path, (*known[fields[0]], *path[len(fields[0]) :]), limit)


def _hashed(required: WriteRequirements) -> Iterator[tuple[str, list[object]]]:
    """Yield each thing that a row can break, in words, and as what is hashed."""
    for null in required.not_null:
        yield f"NOT NULL {dotted(null.path)}", ["not null", *null.physical]
    for check in required.checks:
        yield f"CHECK {check.name} ({check.expression})", ["true", check.expression]
    for one in required.invariants:
        yield f"invariant of {dotted(one.path)} ({one.expression})", ["true", one.expression]
    for length in required.lengths:
        words = f"{length.limit} {dotted(length.path)}"
        yield words, ["length", length.limit.length, *length.physical]
    for column in required.generated:
        words = f"{dotted((column.column,))} AS ({column.expression})"
        yield words, ["generated", column.physical, column.expression]
