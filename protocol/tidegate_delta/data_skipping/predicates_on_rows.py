"""Evaluate predicates on rows, with SQL's three-valued logic, column by column.

Comparisons are Spark's: NaN equals NaN and is greater than every other number, 0.0 equals -0.0,
strings and binary compare by their bytes.

Spec: "Per-file Statistics"
"""

from collections.abc import Callable, Mapping
from functools import reduce
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from tidegate_delta.data_skipping.predicate_tree import (
    COMPARISONS,
    Predicate,
    kind_of,
    literal,
    path_of,
)
from tidegate_delta.errors import InvalidRequest, UnsupportedFeature
from tidegate_delta.schema.arrow_types import arrow_type, is_nanos

ArrowColumns = Any
"""A chunked array. Arrow ships no types."""

_COMPARE: Final[Mapping[str, Callable[..., ArrowColumns]]] = {
    "=": pc.equal,
    "!=": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}
_NAN_OVER_NUMBER: Final = frozenset({"!=", ">", ">="})
"""Comparisons that are true of NaN against any other number."""


def evaluate(predicate: Predicate, rows: pa.Table) -> pa.ChunkedArray:
    """Return for each row whether the predicate is true, false, or null where that is unknown.

    A column is found by its exact name, else by the only name that differs in case.
    Raises: InvalidRequest for a missing column; UnsupportedFeature for an opaque node.
    """
    return _evaluate(predicate, rows)


def _evaluate(node: Predicate, rows: pa.Table) -> ArrowColumns:
    match node["op"]:
        case "true":
            return _constant(rows, value=True)
        case "and":
            parts = [_evaluate(arg, rows) for arg in node["args"]]
            return reduce(pc.and_kleene, parts) if parts else _constant(rows, value=True)
        case "or":
            parts = [_evaluate(arg, rows) for arg in node["args"]]
            return reduce(pc.or_kleene, parts) if parts else _constant(rows, value=False)
        case "not":
            return pc.invert(_evaluate(node["arg"], rows))
        case "is_null":
            return pc.is_null(_column(rows, path_of(node)))
        case "is_not_null":
            return pc.is_valid(_column(rows, path_of(node)))
        case "in":
            return _is_in(node, _column(rows, path_of(node)))
        case op if op in COMPARISONS:
            return _compared(node, _column(rows, path_of(node)))
        case op:
            raise UnsupportedFeature(
                f"the predicate {node.get('text') or op!r} can't be evaluated here; "
                "say it with comparisons, IN, IS NULL, AND, OR and NOT",
                feature="opaque predicate",
            )


def _constant(rows: pa.Table, *, value: bool) -> ArrowColumns:
    return pa.chunked_array([pa.repeat(pa.scalar(value), rows.num_rows)])


def _column(rows: pa.Table, path: tuple[str, ...]) -> ArrowColumns:
    column = rows.column(_index(rows.schema.names, path[0], path))
    for name in path[1:]:
        names = [field.name for field in column.type] if pa.types.is_struct(column.type) else []
        column = pc.struct_field(column, _index(names, name, path))
    return _plain(column)


def _index(names: list[str], name: str, path: tuple[str, ...]) -> int:
    exact = [index for index, other in enumerate(names) if other == name]
    indexes = exact or [index for index, other in enumerate(names) if other.lower() == name.lower()]
    if len(indexes) != 1:
        raise InvalidRequest(
            f"the predicate names the column {'.'.join(path)!r}, which is "
            f"{'ambiguous' if indexes else 'not there'}; there are {', '.join(names)}",
            error_class="DELTA_COLUMN_NOT_FOUND",
        )
    return indexes[0]


def _plain(column: ArrowColumns) -> ArrowColumns:
    types = pa.types
    if types.is_dictionary(column.type):
        return pc.cast(column, column.type.value_type)
    if types.is_large_string(column.type) or types.is_string_view(column.type):
        return pc.cast(column, pa.string())
    return column


def _compared(node: Predicate, column: ArrowColumns) -> ArrowColumns:
    kind = kind_of(node)
    value = literal(node["value"], kind)
    if value is None:
        if node["op"] == "<=>":
            return pc.is_null(column)
        return pa.chunked_array([pa.nulls(len(column), pa.bool_())])
    left, right = _alike(column, pa.scalar(value, arrow_type(kind)))
    if node["op"] == "<=>":
        return pc.fill_null(_ordered("=", left, right), False)
    return _ordered(node["op"], left, right)


def _ordered(op: str, left: ArrowColumns, right: pa.Scalar) -> ArrowColumns:
    result = _COMPARE[op](left, right)
    if not pa.types.is_floating(left.type):
        return result
    nan = pc.is_nan(left)
    number = right.as_py()
    if number == number:
        return pc.or_kleene(result, nan) if op in _NAN_OVER_NUMBER else result
    match op:
        case "=" | ">=":
            return nan
        case "!=" | "<":
            return pc.invert(nan)
        case "<=":
            return pc.or_kleene(nan, pc.invert(nan))
        case _:
            return pc.and_kleene(nan, pc.invert(nan))


def _alike(column: ArrowColumns, value: pa.Scalar) -> tuple[ArrowColumns, pa.Scalar]:
    """Return both sides in one type, as Spark coerces them."""
    types, column_type, value_type = pa.types, column.type, value.type
    if column_type == value_type:
        return column, value
    if _is_number(column_type) and _is_number(value_type):
        if types.is_floating(column_type) or types.is_floating(value_type):
            return pc.cast(column, pa.float64(), safe=False), pc.cast(value, pa.float64())
        if types.is_decimal(column_type) or types.is_decimal(value_type):
            return _decimals(column, value)
        return pc.cast(column, pa.int64()), pc.cast(value, pa.int64())
    if (
        types.is_temporal(column_type)
        and types.is_temporal(value_type)
        and not is_nanos(column_type) | is_nanos(value_type)
    ):
        utc = pa.timestamp("us", tz="UTC")
        return pc.cast(column, utc, safe=False), pc.cast(value, utc, safe=False)
    if types.is_binary(value_type) or types.is_large_binary(column_type):
        return pc.cast(column, pa.binary()), value
    raise InvalidRequest(
        f"the predicate compares a column of type {column_type} with a value of type {value_type}; "
        "cast the value to the column's type",
        error_class="DATATYPE_MISMATCH",
    )


def _is_number(kind: pa.DataType) -> bool:
    types = pa.types
    return bool(types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind))


def _decimals(column: ArrowColumns, value: pa.Scalar) -> tuple[ArrowColumns, pa.Scalar]:
    scale = max(_scale(column.type), _scale(value.type))
    wide = pa.decimal256(76, scale)
    return pc.cast(column, wide), pc.cast(value, wide)


def _scale(kind: pa.DataType) -> int:
    return int(kind.scale) if pa.types.is_decimal(kind) else 0


def _is_in(node: Predicate, column: ArrowColumns) -> ArrowColumns:
    kind = kind_of(node)
    values = [literal(value, kind) for value in node["values"]]
    present = [value for value in values if value is not None]
    matches = _any_of(column, present, kind)
    if not values:
        return matches
    unknown = pc.is_null(column)
    if len(present) < len(values):
        unknown = pc.or_(unknown, pc.invert(matches))
    return pc.if_else(unknown, None, matches)


def _any_of(column: ArrowColumns, values: list[Any], kind: Any) -> ArrowColumns:
    """Return whether each row is one of the values; false where the row is null."""
    scalars = [pa.scalar(value, arrow_type(kind)) for value in values]
    if not scalars:
        return pc.and_(pc.is_null(column), pc.is_valid(column))
    pairs = [_alike(column, scalar) for scalar in scalars]
    left = pairs[0][0]
    if pa.types.is_floating(left.type):
        hits = [pc.fill_null(_ordered("=", left, right), False) for _, right in pairs]
        return reduce(pc.or_, hits)
    value_set = pa.array([right.as_py() for _, right in pairs], left.type)
    return pc.is_in(left, value_set=value_set, skip_nulls=True)
