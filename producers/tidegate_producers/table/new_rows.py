"""The new rows of an update or merge: what is assigned, cast as Spark stores it, and checked."""

from collections.abc import Mapping, Sequence
from typing import Final

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import ArrayType, DataType, MapType, StructType

from tidegate_delta.constraints.row_constraints import WriteRequirements
from tidegate_delta.errors import InvalidRequest
from tidegate_delta.properties.property_parsers import column_list
from tidegate_delta.schema.field_paths import dotted, same_name
from tidegate_producers.table.row_changes import ACTION, DELETED
from tidegate_producers.table.target_frame import quoted

Expression = str | Column
"""SQL text or a Column."""

VIOLATED: Final = "DELTA_VIOLATE_CONSTRAINT_WITH_VALUES"
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


def stored(frame: DataFrame, values: Mapping[str, Column], target: StructType) -> list[Column]:
    """Return the values as columns of the table's types, in the order of `values`.

    A value that does not fit fails the query, whatever `spark.sql.ansi.enabled` says.
    """
    kinds = frame.select(
        *(value.alias(f"_{number}") for number, value in enumerate(values.values()))
    ).schema
    return [
        _fitted(value, field.dataType, target[name].dataType, name).alias(name)
        for (name, value), field in zip(values.items(), kinds.fields, strict=True)
    ]


def _fitted(value: Column, given: DataType, wanted: DataType, name: str) -> Column:
    if given == wanted:
        return value
    if isinstance(given, StructType) and isinstance(wanted, StructType):
        return _fitted_struct(value, given, wanted, name)
    if isinstance(given, ArrayType) and isinstance(wanted, ArrayType):
        inner, outer = given.elementType, wanted.elementType
        return F.transform(value, lambda one: _fitted(one, inner, outer, name)).cast(wanted)
    if isinstance(given, _NESTED) or isinstance(wanted, _NESTED):
        return value.cast(wanted)
    wrong = F.raise_error(
        F.lit(
            f"DELTA_CAST_OVERFLOW_IN_TABLE_WRITE: a value of type {given.simpleString()} does not "
            f"fit into column {name!r} of type {wanted.simpleString()}: cast it first; nothing was "
            "proposed"
        )
    ).cast(wanted)
    return F.when(value.isNotNull(), F.coalesce(value.try_cast(wanted), wrong))


def _fitted_struct(value: Column, given: StructType, wanted: StructType, name: str) -> Column:
    """Return a struct with the fields of the table's, taken by name.

    Raises: InvalidRequest, if it has others.
    """
    own = {field.name.lower(): field for field in given.fields}
    if own.keys() != {field.name.lower() for field in wanted.fields}:
        raise InvalidRequest(
            f"column {name!r} has the fields {', '.join(wanted.names)}, and the value for it has "
            f"{', '.join(given.names)}: give each field of the column, and no other; nothing was "
            "proposed",
            error_class="DELTA_UPDATE_SCHEMA_MISMATCH_EXPRESSION",
        )
    fields = [
        _fitted(
            value.getField(own[field.name.lower()].name),
            own[field.name.lower()].dataType,
            field.dataType,
            f"{name}.{field.name}",
        ).alias(field.name)
        for field in wanted.fields
    ]
    return F.when(value.isNotNull(), F.struct(*fields)).cast(wanted)


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


def violation_in(error: PySparkException) -> str | None:
    """Return what a query says of the row that violates a constraint; None for another error."""
    text = str(error)
    return text[text.index(VIOLATED) :].partition("\n")[0] if VIOLATED in text else None
