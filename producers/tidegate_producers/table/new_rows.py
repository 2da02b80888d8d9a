"""The new rows of an update or merge: what is assigned, cast as Spark stores it, and checked."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import ArrayType, DataType, MapType, StructType

from tidegate_delta.constraints.generated_columns import Generation
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


def as_column(expression: Expression, argument: str) -> Column:
    """Return an expression as a Column. Raises: TypeError, naming the argument."""
    if isinstance(expression, str):
        return F.expr(expression)
    if isinstance(expression, Column):
        return expression
    raise TypeError(
        f"{argument} must be a Spark SQL Column or a string (an expression in SQL), found "
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
    values: dict[str, Column] = {}
    paths: set[tuple[str, ...]] = set()
    for assigned_name, expression in assigned.items():
        path = _assigned_path(assigned_name, columns, clause)
        key = tuple(part.lower() for part in path)
        if any(key[: len(earlier)] == earlier or earlier[: len(key)] == key for earlier in paths):
            raise _wrong(clause, assigned_name, "is assigned twice", columns)
        paths.add(key)
        value, root = as_column(expression, f"the value of {assigned_name!r}"), path[0]
        if len(path) > 1 and root not in current:
            raise _wrong(clause, assigned_name, "is a field inside a struct of a new row", columns)
        if len(path) > 1:
            struct = values.get(root, current.get(root))
            assert struct is not None, "a nested field has a row that it is replaced in"
            value = struct.withField(".".join(map(quoted, path[1:])), value)
        values[root] = value
    return values


def _assigned_path(assigned_name: str, columns: Sequence[str], clause: str) -> tuple[str, ...]:
    """Return the column of an assignment, and the names of the fields inside it.

    A name may carry the table's alias, and may hold dots as it is.
    """
    bare = assigned_name.strip().strip("`").replace("``", "`")
    try:
        path: tuple[str, ...] = column_list(assigned_name)[0]
    except (ValueError, IndexError):
        path = (bare,)
    for names in ((bare,), path, path[1:]):
        root = next((column for column in columns if names and same_name(column, names[0])), None)
        if root is not None:
            return (root, *names[1:])
    raise _wrong(clause, assigned_name, "is no column of the table", columns)


def _wrong(clause: str, assigned_name: str, reason: str, columns: Sequence[str]) -> InvalidRequest:
    return InvalidRequest(
        f"{clause}: {assigned_name!r} {reason}; the columns are {', '.join(columns)}; nothing was "
        "proposed",
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


def _fitted(value: Column, source: DataType, target: DataType, place: _Place) -> Column:
    if source.simpleString() == target.simpleString():
        return value
    match source, target:
        case StructType(), StructType():
            return _struct(value, source, target, place)
        case ArrayType(), ArrayType():
            kinds = source.elementType, target.elementType
            return F.transform(
                value, lambda element: _fitted(element, *kinds, place.inside("element"))
            )
        case MapType(), MapType():
            keys = source.keyType, target.keyType
            values = source.valueType, target.valueType
            entries = F.transform(
                F.map_entries(value),
                lambda entry: F.struct(
                    _fitted(entry["key"], *keys, place.inside("key")).alias("key"),
                    _fitted(entry["value"], *values, place.inside("value")).alias("value"),
                ),
            )
            return F.map_from_entries(entries)
    if isinstance(source, _NESTED) or isinstance(target, _NESTED):
        return value.cast(target)
    wrong = F.raise_error(
        F.lit(
            f"DELTA_CAST_OVERFLOW_IN_TABLE_WRITE: a value of type {source.simpleString()} does not "
            f"fit into column {place.name!r} of type {target.simpleString()}: cast it first; "
            "nothing was proposed"
        )
    ).cast(target)
    return F.when(value.isNotNull(), F.coalesce(value.try_cast(target), wrong))


def _struct(value: Column, source: StructType, target: StructType, place: _Place) -> Column:
    """Return a struct with the wanted fields, each from the given one of its name."""
    by_name = {field.name.lower(): field for field in source.fields}
    target_names = {field.name.lower() for field in target.fields}
    surplus = [field.name for field in source.fields if field.name.lower() not in target_names]
    missing = [field.name for field in target.fields if field.name.lower() not in by_name]
    if surplus or (missing and not place.fills):
        difference = (
            f"has the fields {', '.join(surplus)} besides" if surplus else "lacks some of them"
        )
        raise InvalidRequest(
            f"column {place.name!r} has the fields {', '.join(target.names)}, and the struct that "
            f"it would get {difference}: give it these fields; nothing was proposed",
            error_class="DELTA_UPDATE_SCHEMA_MISMATCH_EXPRESSION",
        )
    fields = [
        _fitted(
            value[source_field.name],
            source_field.dataType,
            target_field.dataType,
            place.inside(target_field.name),
        )
        if (source_field := by_name.get(target_field.name.lower())) is not None
        else F.lit(None).cast(target_field.dataType)
        for target_field in target.fields
    ]
    children = (child.alias(field.name) for child, field in zip(fields, target.fields, strict=True))
    return F.when(value.isNotNull(), F.struct(*children))


def computed(
    rows: DataFrame, required: WriteRequirements, assigned: Sequence[str], target: StructType
) -> DataFrame:
    """Return rows with the generated columns that were not given, `assigned`, computed."""
    is_new = F.col(ACTION) != DELETED
    for column in required.generated:
        if column.column not in assigned:
            value = F.when(is_new, _generated(column, target))
            rows = rows.withColumn(column.column, value)
    return rows


def _generated(column: Generation, target: StructType) -> Column:
    return F.expr(column.expression).cast(target[column.column].dataType)


def checked(
    rows: DataFrame, required: WriteRequirements, assigned: Sequence[str], target: StructType
) -> DataFrame:
    """Return rows with generated columns computed, which fail where they violate a constraint.

    `assigned` are the columns with a given value: for a generated one it must be the generated one.
    """
    wrong: list[tuple[str, Column]] = []
    is_new = F.col(ACTION) != DELETED
    rows = computed(rows, required, assigned, target)
    for column in required.generated:
        if column.column in assigned:
            requirement = f"Generated Column {column.column} AS ({column.expression})"
            is_right = F.col(quoted(column.column)).eqNullSafe(_generated(column, target))
            wrong.append((requirement, is_right))
    wrong += [
        (f"CHECK {check.name} ({check.expression})", F.expr(check.expression))
        for check in required.checks
    ]
    wrong += [
        (
            f"the invariant of {dotted(invariant.path)} ({invariant.expression})",
            F.expr(invariant.expression),
        )
        for invariant in required.invariants
    ]
    for requirement, holds in wrong:
        failure = F.raise_error(
            F.lit(
                f"{VIOLATED}: a row violates {requirement}: correct the rows; nothing was proposed"
            )
        ).cast("boolean")
        rows = rows.where(~is_new | F.coalesce(holds, F.lit(False)) | failure)
    return rows
