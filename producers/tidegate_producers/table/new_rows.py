"""The new rows of an update or merge: what is assigned, cast as Spark stores it, and checked."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from types import MappingProxyType
from typing import Final

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import ArrayType, DataType, MapType, StructType

from tidegate_delta.constraints.generated_columns import Generation
from tidegate_delta.constraints.row_constraints import WriteRequirements
from tidegate_delta.errors import InvalidRequest
from tidegate_delta.schema.field_paths import FieldPath, dotted, same_name
from tidegate_producers.table.row_changes import ACTION, DELETED
from tidegate_producers.table.spark_jobs import OVERFLOW, VIOLATED
from tidegate_producers.table.target_frame import quoted

Expression = str | Column
"""SQL text or a Column."""

NOT_DETERMINISTIC: Final = "INVALID_NON_DETERMINISTIC_EXPRESSIONS"

_PROBE: Final = "__tidegate_probe"
_NESTED: Final = (StructType, ArrayType, MapType)
_NAME: Final = re.compile(r"`((?:[^`]|``)+)`|([^.`]+)")
_NAMES: Final = re.compile(rf"(?:{_NAME.pattern})(?:\.(?:{_NAME.pattern}))*")


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


def check_deterministic(frame: DataFrame, expressions: Mapping[str, Column]) -> None:
    """Refuse expressions over a frame that may give another value each time, such as `rand()`.

    Spark evaluates an expression as often as it likes: a value that is checked may be another one
    than is stored. Raises: InvalidRequest, naming the column.
    """
    if not expressions or _may_join(frame, expressions.values()):
        return
    for name, expression in expressions.items():
        if not _may_join(frame, [expression]):
            raise InvalidRequest(
                f"the expression for {name!r} may give another value each time it is evaluated: "
                "compute it into a column of the source, or of a table, first; nothing was "
                "proposed",
                error_class=NOT_DETERMINISTIC,
            )


def _may_join(frame: DataFrame, expressions: Iterable[Column]) -> bool:
    """Return whether Spark would join by expressions, which it refuses if one may vary."""
    nothing = frame.sparkSession.range(0).toDF(_PROBE)
    condition = reduce(Column.__or__, (expression.isNull() for expression in expressions))
    try:
        # Asked for its schema, Spark analyzes the join; it runs nothing.
        _ = frame.join(nothing, condition, "left_semi").schema
    except AnalysisException as error:
        # What else is wrong with an expression is said where it is used.
        return error.getCondition() != NOT_DETERMINISTIC
    return True


def by_column(
    assigned: Mapping[str, Expression],
    table: StructType,
    clause: str,
    current: Mapping[str, Column],
    alias: str | None = None,
    unknown: str = "DELTA_MERGE_UNRESOLVED_EXPRESSION",
) -> dict[str, Column]:
    """Return what is assigned to each column, by the column's name in the table.

    `current` has the columns of the row that is replaced: where a field inside a struct is
    assigned, the other fields keep their values, and are null where the struct is null. It is empty
    for a new row, which takes whole columns only. `alias` is the table's, and `unknown` the error
    class of a column that the table lacks.
    Raises: InvalidRequest, for an unknown column, or one that is assigned twice; TypeError.
    """
    values: dict[FieldPath, Column] = {}
    for assigned_name, expression in assigned.items():
        asked = assigned_path(assigned_name, table.names, alias)
        path = _in_table(asked, table)
        if path is None:
            is_field = _in_table(asked[:1], table) is not None
            error = "FIELD_NOT_FOUND" if is_field else unknown
            raise _wrong(clause, assigned_name, "is no column of the table", table, error)
        if any(path[: len(known)] == known or known[: len(path)] == path for known in values):
            error = "DELTA_CONFLICT_SET_COLUMN"
            raise _wrong(clause, assigned_name, "is assigned twice", table, error)
        if len(path) > 1 and path[0] not in current:
            error = "DELTA_UNSUPPORTED_NESTED_FIELD_IN_OPERATION"
            reason = "is a field inside a struct of a new row"
            raise _wrong(clause, assigned_name, reason, table, error)
        values[path] = as_column(expression, f"the value of {assigned_name!r}")
    roots = dict.fromkeys(path[0] for path in values)
    return {
        root: values[(root,)]
        if (root,) in values
        else _with_fields(current[root], (root,), table[root].dataType, values)
        for root in roots
    }


def assigned_path(text: str, columns: Sequence[str], alias: str | None) -> FieldPath:
    """Return the path that the name of an assignment gives, without the table's alias.

    Names are those of Spark: a dot leads into a struct, backticks hold a name with dots. As in
    Spark, an alias goes before a column of its name.
    Raises: InvalidRequest, for a text that is no name.
    """
    match = _NAMES.fullmatch(text.strip())
    if match is None:
        raise InvalidRequest(
            f"{text!r} names no column: write column or column.field, and names with dots or "
            "backticks in backticks; nothing was proposed",
            error_class="INVALID_ATTRIBUTE_NAME_SYNTAX",
        )
    path = tuple(
        quoted_name.replace("``", "`") if quoted_name else plain
        for quoted_name, plain in _NAME.findall(text.strip())
    )
    is_qualified = alias is not None and len(path) > 1 and same_name(path[0], alias)
    if is_qualified and any(same_name(path[1], column) for column in columns):
        return path[1:]
    return path


def _in_table(path: FieldPath, table: StructType) -> FieldPath | None:
    """Return a path as the table spells it; None if it names no column or field of a struct."""
    spelled: list[str] = []
    kind: DataType = table
    for name in path:
        fields = kind.fields if isinstance(kind, StructType) else []
        field = next((field for field in fields if same_name(field.name, name)), None)
        if field is None:
            return None
        spelled.append(field.name)
        kind = field.dataType
    return tuple(spelled)


def _with_fields(
    struct: Column, path: FieldPath, kind: DataType, values: Mapping[FieldPath, Column]
) -> Column:
    """Return a struct with some of its fields replaced; one that is null gets fields of null."""
    assert isinstance(kind, StructType), "an assigned path leads through structs"
    fields = []
    for field in kind.fields:
        below = (*path, field.name)
        value = struct.getField(field.name)
        if below in values:
            value = values[below]
        elif any(known[: len(below)] == below for known in values):
            value = _with_fields(value, below, field.dataType, values)
        fields.append(value.alias(field.name))
    return F.struct(*fields)


def _wrong(
    clause: str, assigned_name: str, reason: str, table: StructType, error: str
) -> InvalidRequest:
    return InvalidRequest(
        f"{clause}: {assigned_name!r} {reason}; the columns are {', '.join(table.names)}; nothing "
        "was proposed",
        error_class=error,
    )


def stored(
    frame: DataFrame,
    values: Mapping[str, Column],
    target: StructType,
    *,
    fills: bool = False,
    old: Mapping[str, Column] = MappingProxyType({}),
) -> list[Column]:
    """Return the values as columns of the table's types, in the order of `values`.

    Fields of structs are found by name. With `fills` a struct may lack some: they are those of the
    column's value in `old`, or null. A value that does not fit fails the query, whatever
    `spark.sql.ansi.enabled` says.
    Raises: InvalidRequest, for a struct with other fields than the column's.
    """
    kinds = frame.select(
        *(value.alias(f"_{number}") for number, value in enumerate(values.values()))
    ).schema
    return [
        _fitted(
            value, field.dataType, target[name].dataType, _ValueTarget(name, fills, old.get(name))
        ).alias(name)
        for (name, value), field in zip(values.items(), kinds.fields, strict=True)
    ]


@dataclass(frozen=True)
class _ValueTarget:
    """Where a value goes, for messages; whether structs may lack fields, and the value from which
    they are taken then.
    """

    name: str
    fills: bool
    old: Column | None = None

    def inside(self, name: str) -> "_ValueTarget":
        """Return the place of an element, a key or a value, of which there is no old one."""
        return _ValueTarget(f"{self.name}.{name}", self.fills)

    def field(self, name: str) -> "_ValueTarget":
        """Return the place of a field of a struct."""
        old = None if self.old is None else self.old.getField(name)
        return _ValueTarget(f"{self.name}.{name}", self.fills, old)


def _fitted(value: Column, source: DataType, target: DataType, place: _ValueTarget) -> Column:
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
            f"{OVERFLOW}: a value of type {source.simpleString()} does not "
            f"fit into column {place.name!r} of type {target.simpleString()}: cast it first; "
            "nothing was proposed"
        )
    ).cast(target)
    return F.when(value.isNotNull(), F.coalesce(value.try_cast(target), wrong))


def _struct(value: Column, source: StructType, target: StructType, place: _ValueTarget) -> Column:
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
    fields = []
    for field in target.fields:
        inside = place.field(field.name)
        source_field = by_name.get(field.name.lower())
        if source_field is not None:
            given = value.getField(source_field.name)
            child = _fitted(given, source_field.dataType, field.dataType, inside)
        elif inside.old is not None:
            child = inside.old
        else:
            child = F.lit(None).cast(field.dataType)
        fields.append(child.alias(field.name))
    is_there = value.isNotNull()
    if place.old is not None and _lacks_fields(source, target):
        is_there |= place.old.isNotNull()
    return F.when(is_there, F.struct(*fields))


def _lacks_fields(source: DataType, target: DataType) -> bool:
    """Return whether a struct, or one inside it, has a field that another lacks."""
    if not (isinstance(source, StructType) and isinstance(target, StructType)):
        return False
    by_name = {field.name.lower(): field.dataType for field in source.fields}
    return any(
        field.name.lower() not in by_name
        or _lacks_fields(by_name[field.name.lower()], field.dataType)
        for field in target.fields
    )


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


def with_null_texts(rows: DataFrame, required: WriteRequirements) -> DataFrame:
    """Return rows as they will be read: an empty string in a partition column is null."""
    for name in required.text_partitions:
        column = F.col(quoted(name))
        rows = rows.withColumn(name, F.when(column != "", column))
    return rows


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
    if wrong:
        rows = with_null_texts(rows, required)
    for requirement, holds in wrong:
        failure = F.raise_error(
            F.lit(
                f"{VIOLATED}: a row violates {requirement}: correct the rows; nothing was proposed"
            )
        ).cast("boolean")
        rows = rows.where(~is_new | F.coalesce(holds, F.lit(False)) | failure)
    return rows
