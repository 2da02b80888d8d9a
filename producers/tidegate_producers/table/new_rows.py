"""The new rows of an update or merge: what is assigned, cast as Spark stores it, and checked."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import ArrayType, DataType, MapType, StructType

from tidegate_delta.constraints.row_constraints import WriteRequirements
from tidegate_delta.errors import InvalidRequest
from tidegate_delta.properties.property_parsers import column_list
from tidegate_delta.schema.field_paths import dotted, same_name
from tidegate_producers.table.row_changes import ACTION, DELETED
from tidegate_producers.table.target_frame import quoted
from tidegate_producers.table.task_refusals import VIOLATED

Expression = str | Column
"""SQL text or a Column."""

_NESTED: Final = (StructType, ArrayType, MapType)


def as_column(expression: Expression, what: str) -> Column:
    """Return an expression as a Column. Raises: TypeError, naming the argument."""
    if isinstance(expression, str):
        return F.expr(expression)
    if isinstance(expression, Column):
        return expression
    raise TypeError(
        f"{what} must be a Spark SQL Column or a string (an expression in SQL), found "
        f"{expression!r} of type {type(expression).__name__}"
    )


def by_column(
    assigned: Mapping[str, Expression],
    columns: Sequence[str],
    clause: str,
    current: Mapping[str, Column],
) -> dict[str, Column]:
    """Return what is assigned to each column, by the column's name in the table.

    `current` has the columns of the row that is replaced; a field inside a struct is replaced in
    it. It is empty for a new row, which takes whole columns only.
    Raises: InvalidRequest, for an unknown column, or one that is assigned twice; TypeError.
    """
    found: dict[str, Column] = {}
    paths: set[tuple[str, ...]] = set()
    for given, expression in assigned.items():
        path = _assigned_path(given, columns, clause)
        key = tuple(part.lower() for part in path)
        if any(key[: len(one)] == one or one[: len(key)] == key for one in paths):
            raise _wrong(clause, given, "is assigned twice", columns)
        paths.add(key)
        value, root = as_column(expression, f"the value of {given!r}"), path[0]
        if len(path) > 1 and root not in current:
            raise _wrong(clause, given, "is a field inside a struct of a new row", columns)
        if len(path) > 1:
            before = found.get(root, current.get(root))
            assert before is not None, "a nested field has a row that it is replaced in"
            value = before.withField(".".join(map(quoted, path[1:])), value)
        found[root] = value
    return found


def _assigned_path(given: str, columns: Sequence[str], clause: str) -> tuple[str, ...]:
    """Return the column of an assignment, and the names of the fields inside it.

    A name may carry the table's alias, and may hold dots as it is.
    """
    bare = given.strip().strip("`").replace("``", "`")
    try:
        path: tuple[str, ...] = column_list(given)[0]
    except (ValueError, IndexError):
        path = (bare,)
    for names in ((bare,), path, path[1:]):
        root = next((one for one in columns if names and same_name(one, names[0])), None)
        if root is not None:
            return (root, *names[1:])
    raise _wrong(clause, given, "is no column of the table", columns)


def _wrong(clause: str, given: str, why: str, columns: Sequence[str]) -> InvalidRequest:
    return InvalidRequest(
        f"{clause}: {given!r} {why}; the columns are {', '.join(columns)}; nothing was proposed",
        error_class="DELTA_COLUMN_NOT_FOUND",
    )


def stored(
    frame: DataFrame, values: Mapping[str, Column], target: StructType, *, fills: bool = False
) -> list[Column]:
    """Return the values as columns of the table's types, in the order of `values`.

    Fields of structs are found by name; `fills` makes those null that a struct lacks. A value that
    does not fit fails the query, whatever `spark.sql.ansi.enabled` says.
    Raises: InvalidRequest, for a struct with other fields than the column's.
    """
    kinds = frame.select(
        *(value.alias(f"_{number}") for number, value in enumerate(values.values()))
    ).schema
    return [
        _fitted(value, field.dataType, target[name].dataType, _Place(name, fills)).alias(name)
        for (name, value), field in zip(values.items(), kinds.fields, strict=True)
    ]


@dataclass(frozen=True)
class _Place:
    """Where a value goes, for messages, and whether missing fields of structs become null."""

    name: str
    fills: bool

    def inside(self, name: str) -> "_Place":
        return _Place(f"{self.name}.{name}", self.fills)


def _fitted(value: Column, given: DataType, wanted: DataType, place: _Place) -> Column:
    if given.simpleString() == wanted.simpleString():
        return value
    match given, wanted:
        case StructType(), StructType():
            return _struct(value, given, wanted, place)
        case ArrayType(), ArrayType():
            kinds = given.elementType, wanted.elementType
            return F.transform(value, lambda one: _fitted(one, *kinds, place.inside("element")))
        case MapType(), MapType():
            keys = given.keyType, wanted.keyType
            values = given.valueType, wanted.valueType
            entries = F.transform(
                F.map_entries(value),
                lambda one: F.struct(
                    _fitted(one["key"], *keys, place.inside("key")).alias("key"),
                    _fitted(one["value"], *values, place.inside("value")).alias("value"),
                ),
            )
            return F.map_from_entries(entries)
    if isinstance(given, _NESTED) or isinstance(wanted, _NESTED):
        return value.cast(wanted)
    wrong = F.raise_error(
        F.lit(
            f"DELTA_CAST_OVERFLOW_IN_TABLE_WRITE: a value of type {given.simpleString()} does not "
            f"fit into column {place.name!r} of type {wanted.simpleString()}: cast it first; "
            "nothing was proposed"
        )
    ).cast(wanted)
    return F.when(value.isNotNull(), F.coalesce(value.try_cast(wanted), wrong))


def _struct(value: Column, given: StructType, wanted: StructType, place: _Place) -> Column:
    """Return a struct with the wanted fields, each from the given one of its name."""
    by_name = {one.name.lower(): one for one in given.fields}
    known = {one.name.lower() for one in wanted.fields}
    other = [one.name for one in given.fields if one.name.lower() not in known]
    lacking = [one.name for one in wanted.fields if one.name.lower() not in by_name]
    if other or (lacking and not place.fills):
        what = f"has the fields {', '.join(other)} besides" if other else "lacks some of them"
        raise InvalidRequest(
            f"column {place.name!r} has the fields {', '.join(wanted.names)}, and the struct that "
            f"it would get {what}: give it these fields; nothing was proposed",
            error_class="DELTA_UPDATE_SCHEMA_MISMATCH_EXPRESSION",
        )
    fields = [
        _fitted(value[found.name], found.dataType, one.dataType, place.inside(one.name))
        if (found := by_name.get(one.name.lower())) is not None
        else F.lit(None).cast(one.dataType)
        for one in wanted.fields
    ]
    named = (one.alias(field.name) for one, field in zip(fields, wanted.fields, strict=True))
    return F.when(value.isNotNull(), F.struct(*named))


def checked(
    rows: DataFrame, required: WriteRequirements, assigned: Sequence[str], target: StructType
) -> DataFrame:
    """Return rows with generated columns computed, which fail where they violate a constraint.

    `assigned` are the columns with a given value: for a generated one it must be the generated one.
    """
    wrong: list[tuple[str, Column]] = []
    is_new = F.col(ACTION) != DELETED
    for column in required.generated:
        value = F.expr(column.expression).cast(target[column.column].dataType)
        if column.column in assigned:
            told = f"Generated Column {column.column} AS ({column.expression})"
            wrong.append((told, F.col(quoted(column.column)).eqNullSafe(value)))
        else:
            rows = rows.withColumn(column.column, F.when(is_new, value))
    wrong += [
        (f"CHECK {one.name} ({one.expression})", F.expr(one.expression)) for one in required.checks
    ]
    wrong += [
        (f"the invariant of {dotted(one.path)} ({one.expression})", F.expr(one.expression))
        for one in required.invariants
    ]
    for told, holds in wrong:
        failure = F.raise_error(
            F.lit(f"{VIOLATED}: a row violates {told}: correct the rows; nothing was proposed")
        ).cast("boolean")
        rows = rows.where(~is_new | F.coalesce(holds, F.lit(False)) | failure)
    return rows
